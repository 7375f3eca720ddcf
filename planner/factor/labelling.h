/*
 * labelling.h -- declares values of a core that change one after the other, and
 * what they take in each row.
 */
#ifndef PLANNER_FACTOR_LABELLING_H
#define PLANNER_FACTOR_LABELLING_H

#include "planner/factor/core.h"

/* A cost, how many pairs and values are forbidden, and what is above the limit.
 */
typedef struct Cost {
  int64_t over, n_forbidden;
  FactorCost sum;
} Cost;

typedef struct Labelling {
  const Core *core;
  int64_t weight; /* the price of the most that it exceeds the limit */
  Cost cost;
  int *values;          /* -1: none; the least usage counts */
  int width;            /* rows of the tree, a power of two */
  int64_t *most, *more; /* a tree of what is above the room: the largest in a
                           subtree, and what is added to all of it */
} Labelling;

Labelling *labelling_create(Arena *arena, const Core *core);
/* Makes it equal to another one of the same core. */
void labelling_copy(Labelling *labelling, const Labelling *from);
/* Gives all variables their values. */
void labelling_set(Labelling *labelling, const int *values);
/* Takes back all values. */
void labelling_clear(Labelling *labelling);
void labelling_put(Labelling *labelling, int variable, int value);
void labelling_take(Labelling *labelling, int variable);
/* Returns a row in which most is above the room. */
int labelling_worst_row(const Labelling *labelling);
/* Returns how far a variable without a value exceeds the limit with this one.
 */
int64_t labelling_over(const Labelling *labelling, int variable, int value);
static inline bool cost_is_allowed(Cost cost) {
  return cost.over == 0 && cost.n_forbidden == 0;
}
Cost labelling_cost(const Labelling *labelling);
void cost_add(Cost *to, FactorCost cost);

#endif
