/*
 * least.h -- declares the least sum of tables over variables of few values
 * each, in an order of elimination that is made once for many sums (bucket
 * elimination: Dechter, 1999).
 */
#ifndef PLANNER_RECHECK_LEAST_H
#define PLANNER_RECHECK_LEAST_H

#include "support/support.h"

/* Stands for what cannot be. */
#define LEAST_MOST ((int64_t)1 << 55)

/* A table over two variables. */
typedef struct LeastPair {
  int a, b;
} LeastPair;

typedef struct LeastOrder LeastOrder;

/* Returns NULL if a table would have more than `most_entries`. */
const LeastOrder *least_order(Arena *arena, int n, const int *n_values,
                              int n_pairs, const LeastPair *pairs,
                              int64_t most_entries);

/* costs[i * n_values[b] + k]: of value i of `a` with value k of `b`; turned has
 * it at k * n_values[a] + i. */
typedef struct PairTable {
  const int64_t *costs, *turned;
} PairTable;

/* Returns the least sum, and fills in the values that have it.  No cost is
 * negative. */
int64_t least_sum(Arena *scratch, const LeastOrder *order,
                  const int64_t *const *costs, /* by variable: of each value */
                  const PairTable *const *pairs, int *out_values);

#endif
