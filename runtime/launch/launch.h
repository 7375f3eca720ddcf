/*
 * launch.h -- starts the ranks of a bundle on this machine and ensures that all
 * of them end, after signals, lost ranks and the death of the launcher.
 */
#ifndef RUNTIME_LAUNCH_H
#define RUNTIME_LAUNCH_H

#include "support/support.h"

enum {
  START_TIMEOUT_S = 120,
  MOST_LAUNCHED = 4096, /* ranks */
  HANDSHAKE_NAME = 80,
  BUNDLE_PATH = 4096 /* a longer one cannot be opened */
};

typedef struct LaunchOptions {
  const char *bundle; /* folder with rank-0000 ... */
  int ranks;
  /* Arguments of rank_main: --steps 10 --json ... */
  const char *const *arguments;
  int n_arguments;
  /* Folder of its checkpoints; NULL means that nothing is saved. */
  const char *save;
  /* The hashes of the program, with which the other files of the bundle must
   * agree.  NULL means that they were written just now. */
  const char *model_hash, *plan_hash;
  bool is_quiet;      /* no notes */
  bool keeps_nothing; /* a signal ends the ranks at once: nothing is saved */
  int64_t start_timeout_s; /* limit of the time until all ranks have joined */
} LaunchOptions;

/* Returns the exit code: 0; 1 the user's mistake; 3 the machine failed or a
 * rank was lost (named on standard error); 130 and 143 after Ctrl-C and
 * SIGTERM, once the checkpoint is complete. */
int launch_ranks(const LaunchOptions *options);

/* ---- handshake.c: from mpirun to a rank ---- */

/* Becomes a rank where mpirun has started this program for that, and returns
 * its exit code, else -1.  It comes first in the main of whatever calls
 * launch_ranks. */
int handshake_become(int argc, char **argv);
/* Checks that this file can be a rank: it exists, is complete and executable.
 */
Status handshake_check_file(const char *path);
/* Returns a socket to be called at under this name.  Returns -1 after a
 * failure. */
int handshake_listen(char name[HANDSHAKE_NAME]);

typedef struct Caller {
  int rank, process, socket; /* a descriptor of the process, or -1 */
} Caller;

/* Accepts the next process that calls, which now has our standard streams. */
bool handshake_accept(int listener, Caller *out);
/* Returns 0 if the result is not known yet.  Else *out_error says why the
 * process did not become a rank, and is 0 if it did, or has ended. */
int handshake_result(int socket, int *out_error);
/* Finds the exit status, as of waitpid, of a process that has ended.  Returns
 * false if the kernel is too old. */
bool handshake_exit_status(int process, int *out_status);

/* ---- bundle.c ---- */

/* Returns whether a process of this name, argv[0], is the `run` of a bundle;
 * then `out` is its folder. */
bool bundle_find(const char *name, char out[BUNDLE_PATH]);
/* Checks a bundle.  Invalid means that bundle.json or plan.plan is there, and
 * is of another bundle. */
Status bundle_check(Arena *arena, const LaunchOptions *options);

/* ---- scratch.c ---- */

/* Creates a new folder in memory or in /tmp; "" where neither works. */
void scratch_create(char out_folder[64]);
void scratch_remove(const char *folder);

#endif
