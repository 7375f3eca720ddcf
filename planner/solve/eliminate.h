/*
 * eliminate.h -- declares the minimum of a sum of tables over variables of few
 * values each, by elimination of one variable after the other (nonserial
 * dynamic programming: Bertele and Brioschi, 1972).
 */
#ifndef PLANNER_SOLVE_ELIMINATE_H
#define PLANNER_SOLVE_ELIMINATE_H

#include "support/support.h"

/* No cost may be higher: what costs so much cannot be. */
#define ELIMINATE_MOST ((int64_t)1 << 55)

/* costs[i * n_values[b] + k]: of value i of `a` with value k of `b`. */
typedef struct PairCosts {
  int a, b;
  const int64_t *costs;
} PairCosts;

typedef struct PairProblem {
  int n;
  const int *n_values;         /* by variable */
  const int64_t *const *costs; /* by variable: of each value */
  int n_pairs;
  const PairCosts *pairs;
} PairProblem;

/* Fills in the values of the least sum, and returns it.  Returns -1 if a table
 * would be larger than `most_entries`.  Costs are not negative. */
int64_t eliminate(Arena *scratch, const PairProblem *problem,
                  int64_t most_entries, int *values);
/* Returns the same, or less where a table would be too large: then a variable
 * has several values at a time, one of which is filled in. */
int64_t eliminate_below(Arena *scratch, const PairProblem *problem,
                        int64_t most_entries, int *values);

#endif
