/*
 * checks.h -- declares the checks that every valid program must pass.
 */
#ifndef TESTS_RANDOM_CHECKS_H
#define TESTS_RANDOM_CHECKS_H

#include "support/support.h"

typedef struct Check {
  const char *name;
  /* NULL if it holds, else what is wrong, in the arena; check_refused where
   * dnnc said that it does not do this yet. */
  const char *(*run)(Arena *arena, const char *text, const char *dnnc);
  bool compiles; /* emits code and runs it: slow */
} Check;

extern const char check_refused[];
extern const Check checks[];
extern const int n_checks;

#endif
