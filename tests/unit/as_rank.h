/*
 * as_rank.h -- lets the executable of a test be a rank of a program too, as
 * bundles start it: "rank-0000", "run", or with --become-rank.
 */
#ifndef TESTS_UNIT_AS_RANK_H
#define TESTS_UNIT_AS_RANK_H

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

/* The number in a variable of the environment. */
static inline int64_t number_of(const char *variable, int64_t otherwise) {
  const char *text = getenv(variable);
  return text ? strtoll(text, NULL, 10) : otherwise;
}

/* Returns the exit status: of the rank, or of all tests. */
static inline int run_as_rank_or_tests(int argc, char **argv,
                                       int (*run_rank)(int, char **)) {
  const char *slash = strrchr(argv[0], '/'),
             *name = slash ? slash + 1 : argv[0];
  if (strncmp(name, "rank-", 5) == 0 || strcmp(name, "run") == 0 ||
      (argc > 1 && strcmp(argv[1], "--become-rank") == 0))
    return run_rank(argc, argv);
  struct criterion_test_set *tests = criterion_initialize();
  int result = 0;
  if (criterion_handle_args(argc, argv, true))
    result = !criterion_run_all_tests(tests);
  criterion_finalize(tests);
  return result;
}

#endif
