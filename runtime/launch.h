/*
 * launch.h -- starts the ranks of a bundle on this machine and sees to it that
 * all of them end: signals, lost ranks, a launcher that dies.
 */
#ifndef RUNTIME_LAUNCH_H
#define RUNTIME_LAUNCH_H

#include <stdbool.h>

typedef struct LaunchOptions {
  const char *bundle; /* folder with rank-0000 ... */
  int ranks;
  const char *const *arguments; /* of rank_main: --steps 10 --json ... */
  int n_arguments;
  bool keeps_nothing; /* a signal ends the ranks at once: nothing is saved */
} LaunchOptions;

/* Returns the exit code: 0; 1 the user's mistake; 3 the machine failed or a
 * rank was lost (named on standard error); 130 and 143 after Ctrl-C and
 * SIGTERM, once the checkpoint is whole. */
int launch_ranks(const LaunchOptions *options);

/* ---- scratch.c ---- */

/* A new folder in memory or in /tmp; "" where neither works. */
void scratch_create(char out_folder[64]);
void scratch_remove(const char *folder);

#endif
