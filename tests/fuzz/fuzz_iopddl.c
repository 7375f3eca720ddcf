/*
 * fuzz_iopddl.c -- throws damaged problems at the reader of bench_iopddl
 * (libFuzzer); run.sh builds and starts it.  What is read is solved for a few
 * nodes, and its cost and peak are those of its values.
 */
#include "benchmarks/iopddl.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

typedef struct Bytes {
  const uint8_t *data;
  size_t n;
} Bytes;

static _Noreturn void exhausted(void *user) {
  (void)user;
  abort();
}

/* Gives a few bytes at a time, so that words lie across two readings. */
static int give(void *user, char *out, int n) {
  Bytes *left = user;
  size_t some = left->n < 7 ? left->n : 7;
  if ((size_t)n < some) some = (size_t)n;
  memcpy(out, left->data, some);
  left->data += some;
  left->n -= some;
  return (int)some;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  Memory *memory = memory_create(exhausted, NULL);
  Arena *arena = arena_create(memory);
  Bytes bytes = {data, n};
  FactorProblem *problem;
  int n_variables;
  Status status =
      iopddl_parse(arena, "fuzz", give, &bytes, &problem, &n_variables);
  if (status.code == STATUS_ok) {
    FactorBudget budget = {.nodes = 30};
    FactorResult result = factor_solve(arena, problem, &budget);
    if (result.values && factor_cost(problem, result.values) != result.cost)
      abort();
    if (result.values && result.bound > result.cost) abort();
    if (result.values) factor_peak(problem, result.values);
  } else if (strncmp(status.message, "fuzz:", 5) != 0) {
    abort();
  }
  memory_destroy(memory);
  return 0;
}
