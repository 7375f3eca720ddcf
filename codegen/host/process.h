/*
 * process.h -- starting compilers.
 */
#ifndef CODEGEN_HOST_PROCESS_H
#define CODEGEN_HOST_PROCESS_H

#include <sys/types.h>

#include "support/support.h"

typedef struct Process {
  pid_t pid; /* also of its process group; 0: has ended */
  int64_t started_ns;
} Process;

/* Reasons to end a compiler early. */
typedef struct ProcessBounds {
  bool (*is_stopped)(void *user); /* may be NULL */
  void *user;
  int64_t limit_s; /* 0: none */
} ProcessBounds;

typedef enum ProcessEndKind {
  PROCESS_exited,   /* number: exit code */
  PROCESS_signaled, /* number: signal */
  PROCESS_late,     /* number: the limit in seconds; it was killed */
} ProcessEndKind;

typedef struct ProcessEnd {
  ProcessEndKind kind;
  int64_t number;
} ProcessEnd;

/* Starts arguments[0] (an absolute path) in a process group of its own, without
 * input and with both outputs going to the file `log`. */
Status process_start(const char *const *arguments, const char *log,
                     Process *out);
/* Waits for one of `processes` (those that have ended are skipped); its index
 * goes to *out_index, how it ended to *out_end.  One that is late is killed.
 * Once is_stopped says so, all are killed and the status is a failure. */
Status process_wait_any(Process *processes, int n, const ProcessBounds *bounds,
                        int *out_index, ProcessEnd *out_end);
static inline bool process_is_ok(ProcessEnd end) {
  return end.kind == PROCESS_exited && end.number == 0;
}
/* Start and wait; a failure shows what it printed. */
Status process_run(Arena *arena, const char *const *arguments, const char *log,
                   const ProcessBounds *bounds);
/* How `program`, which was given `input` (or NULL), has failed and what it
 * printed to `log`. */
Status process_failure(Arena *arena, const char *program, const char *input,
                       ProcessEnd end, const char *log);
/* The start of a log; why there is none if it is empty. */
const char *process_log(Arena *arena, const char *log);

#endif
