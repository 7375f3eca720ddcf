/*
 * plan.h -- declares values of a core that change one after the other, and what
 * they take in each row.
 */
#ifndef PLANNER_FACTOR_PLAN_H
#define PLANNER_FACTOR_PLAN_H

#include "planner/factor/core.h"

/* A cost, how many pairs and values are forbidden, and what is above the limit.
 */
typedef struct Cost {
  int64_t over, n_forbidden;
  FactorCost sum;
} Cost;

typedef struct Plan {
  const Core *core;
  int64_t weight; /* the price of the most that it exceeds the limit */
  Cost cost;
  int *values;          /* -1: none; the least usage counts */
  int width;            /* rows of the tree, a power of two */
  int64_t *most, *more; /* a tree of what is above the room: the largest in a
                           subtree, and what is added to all of it */
} Plan;

Plan *plan_create(Arena *arena, const Core *core);
/* Takes back all values. */
void plan_clear(Plan *plan);
void plan_put(Plan *plan, int variable, int value);
void plan_take(Plan *plan, int variable);
/* Returns a row in which most is above the room. */
int plan_worst_row(const Plan *plan);
/* Returns how far a variable without a value exceeds the limit with this one.
 */
int64_t plan_over(const Plan *plan, int variable, int value);
static inline bool cost_is_allowed(Cost cost) {
  return cost.over == 0 && cost.n_forbidden == 0;
}
Cost plan_cost(const Plan *plan);
void cost_add(Cost *to, FactorCost cost);

#endif
