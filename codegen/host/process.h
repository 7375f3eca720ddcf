/*
 * process.h -- declares how compilers are started, awaited and ended.
 */
#ifndef CODEGEN_HOST_PROCESS_H
#define CODEGEN_HOST_PROCESS_H

#include <sys/types.h>

#include "support/support.h"

typedef struct Process {
  /* The process and its process group; 0 means that it has ended. */
  pid_t pid;
  int64_t started_ns;
} Process;

/* Reasons to end a compiler early. */
typedef struct ProcessBounds {
  bool (*is_stopped)(void *user); /* Returns whether the process is to be ended;
                                     may be NULL. */
  void *user;
  int64_t limit_s; /* 0 means no limit */
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
/* Waits until one of `processes` ends (those that have ended are skipped) and
 * returns its index and how it ended.  Kills a process that is over the time
 * limit.  Once is_stopped returns true, kills all of them and fails. */
Status process_wait_any(Process *processes, int n, const ProcessBounds *bounds,
                        int *out_index, ProcessEnd *out_end);
static inline bool process_is_ok(ProcessEnd end) {
  return end.kind == PROCESS_exited && end.number == 0;
}
/* Starts a process and waits for it; a failure shows its output. */
Status process_run(Arena *arena, const char *const *arguments, const char *log,
                   const ProcessBounds *bounds);
/* Returns the failure of `program`, which compiled `input` (or NULL), with its
 * output in the file `log`. */
Status process_failure(Arena *arena, const char *program, const char *input,
                       ProcessEnd end, const char *log);
/* Returns the beginning of a log, or the reason why it is empty. */
const char *process_log(Arena *arena, const char *log);

#endif
