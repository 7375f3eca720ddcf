/*
 * pace.h -- declares the clock of a paced run: when the stream of a rank would
 * have come to a place, if its launches took the time that they are said to.
 */
#ifndef RUNTIME_EXEC_PACE_H
#define RUNTIME_EXEC_PACE_H

#include <stdint.h>

typedef struct Pace {
  /* Origin on the system's clock; 0 means that nothing has run yet. */
  int64_t origin_ns;
  int64_t due_ps; /* place of the stream, after the origin */
  /* Time at which the last step ended, by the system's clock. */
  int64_t left_ns;
} Pace;

/* Begins a step: what the host did since the last one takes its own time. */
void pace_begin(Pace *pace);
/* Adds a run of a node that takes so long; sleeps where that is worth it. */
void pace_add(Pace *pace, int64_t ps);
/* Sleeps until the stream has come here. */
void pace_reach(Pace *pace);
/* Notes that the stream was here and has waited since `begin_ns`, by the
 * system's clock. */
void pace_waited(Pace *pace, int64_t begin_ns);
void pace_end(Pace *pace);

#endif
