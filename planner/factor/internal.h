/*
 * internal.h -- declares what the files of the engine share.
 */
#ifndef PLANNER_FACTOR_INTERNAL_H
#define PLANNER_FACTOR_INTERNAL_H

#include "planner/factor/factor.h"

/* For sums of usages and products with prices. */
__extension__ typedef __int128 Wide;

/* A forbidden cost inside of the engine: far above any sum of finite ones, far
 * enough below the end of 64 bits for two of them and all messages. */
#define COST_NEVER ((FactorCost)1 << 61)
/* Sums from here on contain a forbidden cost. */
#define COST_LIMIT ((FactorCost)1 << 60)

/* Returns a sum that is COST_NEVER if a part of it is. */
static inline FactorCost cost_plus(FactorCost a, FactorCost b) {
  return a >= COST_LIMIT || b >= COST_LIMIT || a + b >= COST_LIMIT ? COST_NEVER
                                                                   : a + b;
}

/* Returns a sum that is at most FACTOR_MOST_SUM from 0. */
FactorCost factor_saturate(Wide sum);

typedef struct ProblemVariable {
  int n_values;
  const FactorCost *costs;
} ProblemVariable;

typedef struct ProblemPair {
  int of[2];
  const FactorCost *costs; /* [values of of[0]][values of of[1]] */
} ProblemPair;

typedef struct ProblemUsage {
  int variable;
  int64_t begin, end;
  const int64_t *usages;
} ProblemUsage;

struct FactorProblem {
  Arena *arena;
  VEC(ProblemVariable) variables;
  VEC(ProblemPair) pairs;
  VEC(ProblemUsage) usages;
  int64_t limit; /* INT64_MAX: none */
};

#endif
