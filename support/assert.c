/*
 * assert.c -- reports a broken invariant of the compiler and ends the process.
 *
 * Nothing is freed and no exit handler runs: after a broken invariant, the
 * less code runs, the more reliable the report is.
 */
#include "support/support.h"

#include <stdio.h>
#include <stdlib.h>

enum { EXIT_FAULT = 4 };

_Noreturn void assert_failed(const char *file, int line, const char *function,
                             const char *condition) {
  fflush(stdout);
  fprintf(stderr,
          "%s:%d: %s: %s\n"
          "this is a fault of dnnc; please send the command and the model that "
          "led here\n",
          file, line, function, condition);
  fflush(stderr);
  _Exit(EXIT_FAULT);
}
