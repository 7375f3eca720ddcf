/*
 * critical_path.h -- declares where the time of a step goes: by phase on the
 * ranks of one class, and by stage along the critical path.
 *
 *     stage 0 |F0 F1 ..            B0 .. B1|     a step begins with F0,
 *               \                 /              goes over to stage 1, and
 *     stage 1 |..F0 B0 F1 B1 ......|             comes back for B1
 *
 * On the critical path each launch and message waits for the one before.  Its
 * parts add up to the step, to the picosecond, without a bubble: while a stage
 * waits for another one, the path is in the other one.
 */
#ifndef TOOLS_SHOW_CRITICAL_PATH_H
#define TOOLS_SHOW_CRITICAL_PATH_H

#include "driver/driver_price.h"

/* Parts of a step. */
typedef struct PhaseTimes {
  Ps kernels[N_PHASES]; /* with what transfers take from them */
  Ps transfers;         /* waits for collectives */
  Ps messages;          /* waits for messages: the bubble is part of it */
} PhaseTimes;

/* Returns the parts of a step of one class; there are spans. */
PhaseTimes phase_times(const Priced *p, int class);
Ps phase_times_sum(const PhaseTimes *times);

/* Fills in, by number of the stage, its parts of the critical path, which ends
 * with the step of the slowest class; there are spans.  A message counts for
 * the stage that reads it. */
void critical_path(const Priced *p, int n_stages, PhaseTimes *out);

#endif
