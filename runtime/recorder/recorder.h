/*
 * recorder.h -- the flight recorder of a rank: what it is doing, for messages
 * when a rank is lost, and its line to the launcher.
 */
#ifndef RUNTIME_RECORDER_RECORDER_H
#define RUNTIME_RECORDER_RECORDER_H

#include "support/support.h"
#include <stdatomic.h>

enum { RECORDER_ENTRIES = 256 };

typedef struct RecorderEntry {
  int64_t step;
  int32_t instr;
  const char *path;
} RecorderEntry;

/* Written by the main thread, read by the communication thread.  A torn read
 * can only spoil a message. */
typedef struct FlightRecorder {
  int rank, local_rank;
  const char *stages; /* of its program, such as "stage 1"; or NULL */
  /* Descriptor that ends when the launcher is gone; -1 means no launcher. */
  int alive_fd;
  int report_fd; /* descriptor of the pipe to the launcher; -1 means none */
  _Atomic int64_t step;
  _Atomic int32_t instr;      /* index in its entry point */
  _Atomic int32_t microbatch; /* from 1; 0 means that it is for all of them */
  const char *_Atomic entry;  /* name of the entry point */
  const char *_Atomic path;
  /* Monotonic ns; 0 means that it waits for nothing. */
  _Atomic int64_t waits_since;
  _Atomic int64_t deadline_ns; /* limit of the time of one wait */
  _Atomic uint32_t n;          /* entries written so far */
  RecorderEntry entries[RECORDER_ENTRIES];
} FlightRecorder;

/* Returns the time of a monotonic clock. */
int64_t clock_ns(void);
/* Finds the launcher of this machine by $DNN_LAUNCHER. */
void recorder_open(FlightRecorder *recorder, int rank, int local_rank);
void recorder_close(FlightRecorder *recorder);
bool recorder_launcher_is_gone(const FlightRecorder *recorder);
/* Returns whether the launcher has lost a rank and asks the others where they
 * are. */
bool recorder_is_asked(const FlightRecorder *recorder);
/* Writes one line to the launcher: "started PID", "joined", "saves FOLDER",
 * "silent RANK" (nothing is heard of it), "waits N RANK ...  TEXT" (in a
 * collective of N ranks), "left" (there is nobody to print for), "ended CODE".
 */
void recorder_tell(const FlightRecorder *recorder, const char *format, ...)
    PRINTF_LIKE(2, 3);
void recorder_note(FlightRecorder *recorder, int64_t step, const char *entry,
                   int32_t instr, const char *path);
/* Notes for which micro-batch, from 0, the next instructions are; -1 means
 * all. */
void recorder_note_microbatch(FlightRecorder *recorder, int32_t microbatch);
/* Describes where this rank is: "rank 0 waits at step 7, instruction 70 of
 * train in micro-batch 3, 'PATH', for 0.5 s". */
void recorder_describe(const FlightRecorder *recorder, FixedText *text);
/* Describes what it did before: "; before that 67 'PATH', ...". */
void recorder_describe_past(const FlightRecorder *recorder, FixedText *text);
/* Prints `why` on standard error, then where this rank is and what it did last.
 */
void recorder_report(const FlightRecorder *recorder, const char *why);

#endif
