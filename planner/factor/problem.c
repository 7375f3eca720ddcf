/*
 * problem.c -- holds a problem, and computes cost and memory of values.
 */
#include <stdlib.h>

#include "planner/factor/internal.h"

FactorProblem *factor_create(Arena *arena) {
  FactorProblem *problem = ARENA_NEW(arena, FactorProblem);
  problem->arena = arena;
  problem->limit = INT64_MAX;
  return problem;
}

int factor_add_variable(FactorProblem *problem, int n_values,
                        const FactorCost *costs) {
  ASSERT(n_values > 0);
  vec_push(problem->arena, &problem->variables,
           (ProblemVariable){n_values, costs});
  return problem->variables.n - 1;
}

void factor_add_pair(FactorProblem *problem, int a, int b,
                     const FactorCost *costs) {
  ASSERT(a >= 0 && a < problem->variables.n && a != b);
  ASSERT(b >= 0 && b < problem->variables.n);
  vec_push(problem->arena, &problem->pairs, (ProblemPair){{a, b}, costs});
}

void factor_add_usage(FactorProblem *problem, int variable, int64_t begin,
                      int64_t end, const int64_t *usages) {
  ASSERT(variable >= 0 && variable < problem->variables.n);
  for (int v = 0; v < problem->variables.data[variable].n_values; v++)
    ASSERT(usages[v] >= 0);
  if (begin < end)
    vec_push(problem->arena, &problem->usages,
             (ProblemUsage){variable, begin, end, usages});
}

void factor_limit(FactorProblem *problem, int64_t limit) {
  ASSERT(limit >= 0);
  problem->limit = limit;
}

int factor_n_variables(const FactorProblem *problem) {
  return problem->variables.n;
}

const FactorCost *factor_variable(const FactorProblem *problem, int variable,
                                  int *out_n_values) {
  *out_n_values = problem->variables.data[variable].n_values;
  return problem->variables.data[variable].costs;
}

int factor_n_pairs(const FactorProblem *problem) {
  return problem->pairs.n;
}

const FactorCost *factor_pair(const FactorProblem *problem, int pair,
                              int out_of[2]) {
  out_of[0] = problem->pairs.data[pair].of[0];
  out_of[1] = problem->pairs.data[pair].of[1];
  return problem->pairs.data[pair].costs;
}

int factor_n_usages(const FactorProblem *problem) {
  return problem->usages.n;
}

const int64_t *factor_usage(const FactorProblem *problem, int usage,
                            int *out_variable, int64_t out_times[2]) {
  const ProblemUsage *of = &problem->usages.data[usage];
  *out_variable = of->variable;
  out_times[0] = of->begin;
  out_times[1] = of->end;
  return of->usages;
}

int64_t factor_limit_of(const FactorProblem *problem) {
  return problem->limit;
}

FactorCost factor_saturate(Wide sum) {
  if (sum > FACTOR_MOST_SUM) return FACTOR_MOST_SUM;
  return sum < -FACTOR_MOST_SUM ? -FACTOR_MOST_SUM : (FactorCost)sum;
}

FactorCost factor_cost(const FactorProblem *problem, const int *values) {
  Wide sum = 0;
  bool is_forbidden = false;
  for (int i = 0; i < problem->variables.n; i++) {
    FactorCost cost = problem->variables.data[i].costs[values[i]];
    is_forbidden |= cost >= FACTOR_FORBIDDEN;
    sum += cost;
  }
  for (int i = 0; i < problem->pairs.n; i++) {
    const ProblemPair *pair = &problem->pairs.data[i];
    int64_t n = problem->variables.data[pair->of[1]].n_values;
    FactorCost cost =
        pair->costs[values[pair->of[0]] * n + values[pair->of[1]]];
    is_forbidden |= cost >= FACTOR_FORBIDDEN;
    sum += cost;
  }
  return is_forbidden ? FACTOR_MOST_SUM : factor_saturate(sum);
}

/* A usage that begins or ends. */
typedef struct Change {
  int64_t time, usage; /* usage: negative at an end */
} Change;

static int compare_changes(const void *a, const void *b) {
  const Change *x = a, *y = b;
  if (x->time != y->time) return x->time < y->time ? -1 : 1;
  return (x->usage > y->usage) - (x->usage < y->usage);
}

int64_t factor_peak(const FactorProblem *problem, const int *values) {
  Arena *scratch = arena_beside(problem->arena);
  Change *changes =
      ARENA_ARRAY(scratch, Change, 2 * (int64_t)problem->usages.n);
  int n = 0;
  for (int i = 0; i < problem->usages.n; i++) {
    const ProblemUsage *use = &problem->usages.data[i];
    int64_t usage = use->usages[values[use->variable]];
    changes[n++] = (Change){use->begin, usage};
    changes[n++] = (Change){use->end, -usage};
  }
  qsort(changes, (size_t)n, sizeof *changes, compare_changes);
  int64_t sum = 0, peak = 0;
  for (int i = 0; i < n; i++) {
    if (__builtin_add_overflow(sum, changes[i].usage, &sum)) sum = INT64_MAX;
    peak = sum > peak ? sum : peak;
  }
  arena_destroy(scratch);
  return peak;
}
