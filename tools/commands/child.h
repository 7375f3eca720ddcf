/*
 * child.h -- declares how a command runs other commands of dnnc: in processes
 * of their own, so that what fails there, or takes too long, does not end it.
 */
#ifndef TOOLS_COMMANDS_CHILD_H
#define TOOLS_COMMANDS_CHILD_H

#include "support/support.h"

typedef struct Child {
  const char *const *words; /* words after the name of the program */
  int n_words;
  /* Files for its standard streams; NULL means /dev/null. */
  const char *out, *err;
  bool is_alone; /* the child is no rank of the job that this process is in */
  /* Time after which it is ended; 0 means that it is not started. */
  int64_t limit_ms;
  /* Is asked while the child runs; once it returns true, the child is ended. */
  bool (*is_stopped)(void);
} Child;

enum {
  CHILD_late = -1,    /* the child was ended after its limit */
  CHILD_stopped = -2, /* the child was ended because is_stopped said so */
  CHILD_failed = -3 /* the child could not be started, or a signal killed it */
};

/* Runs `program`, or dnnc itself (NULL), and waits for its end: its exit code,
 * or a CHILD_. */
int child_run(Arena *arena, const char *program, const Child *child);

/* Returns the time of a clock that only goes forward. */
int64_t child_now_ms(void);

#endif
