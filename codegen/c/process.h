/*
 * process.h -- starting compilers.
 */
#ifndef CODEGEN_C_PROCESS_H
#define CODEGEN_C_PROCESS_H

#include <sys/types.h>

#include "support/support.h"

/* Starts arguments[0] (an absolute path) with both outputs going to the file
 * `log`. */
Status process_start(const char *const *arguments, const char *log,
                     pid_t *out_pid);
/* Waits for one child among `pids` (entries of 0 are skipped); its index goes
 * to *out_index, whether it ended with 0 to *out_ok. */
Status process_wait_any(pid_t *pids, int n, int *out_index, bool *out_ok);
/* Start and wait; a failure shows what it printed. */
Status process_run(Arena *arena, const char *const *arguments, const char *log);
/* The start of a log, for a message; why there is none if it is empty. */
const char *process_log(Arena *arena, const char *log);

#endif
