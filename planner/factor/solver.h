/*
 * solver.h -- declares what those who look for values and for the bound share.
 */
#ifndef PLANNER_FACTOR_SOLVER_H
#define PLANNER_FACTOR_SOLVER_H

#include "planner/factor/eliminate.h"
#include "planner/factor/messages.h"
#include "planner/factor/labelling.h"

typedef struct Solver {
  Arena *arena;
  const FactorBudget *budget;
  const Core *core;
  Messages *messages;
  Labelling *labelling; /* what is being changed */
  Labelling *other_labelling;
  int *best;            /* the best values that are allowed */
  FactorCost cost;      /* of them; COST_NEVER: none */
  FactorCost bound;     /* of all values that can be better than the best */
  int *reading;         /* the last values that were read off */
  int64_t *usages;      /* by row, of the reading */
  int64_t *steps;       /* by row: how prices changed last */
  int64_t *prices;      /* those of the best bound */
  int64_t *root_prices; /* the same, before values were fixed */
  bool has_fixed;
  bool has_prices; /* rows get prices now */
  int64_t scale;   /* of steps, of 2^20 */
  int64_t nodes;
  int64_t work;    /* table entries that were read */
  uint64_t random; /* counts random numbers */
  bool is_proved;
  bool has_cap; /* costs are not those of the problem */
} Solver;

/* ---- solver.c ---- */

Solver *solver_create(Arena *arena, const Core *core,
                      const FactorBudget *budget);
/* Returns a number below n. */
int solver_random(Solver *s, int n);
/* Counts a node.  Returns whether there are any left. */
bool solver_count(Solver *s);
bool solver_must_stop(Solver *s);
/* Notes that the values of the labelling are allowed and cost this. */
void solver_better(Solver *s, FactorCost cost);
/* Returns the cost of a labelling with penalties for what is not allowed. */
FactorCost solver_worth(const Solver *s, Cost cost);
void solver_raise(Solver *s, FactorCost bound);

/* Returns what a variable of the labelling with its edges costs above the
 * bound, as the messages have it. */
FactorCost solver_gap(const Solver *s, int variable);

/* ---- multipliers.c ---- */

/* Raises prices where the reading takes too much, lowers them elsewhere. */
void multipliers_step(Solver *s);

/* ---- decode.c ---- */

/* Makes the labelling of what the messages say: each value as memory allows,
 * or, if `freely`, whatever is above the limit. */
void decode(Solver *s, bool freely);

/* ---- neighbourhoods.c ---- */

/* Solves a part of the labelling again, and keeps what is no worse. */
void neighbourhood(Solver *s);

/* ---- duals.c ---- */

/* Says why there is nothing better than the best values: from the steps of the
 * graph alone if no solver is given.  The messages start anew. */
FactorDuals *duals_make(Arena *arena, const FactorGraph *g, Solver *s);

/* ---- branch.c ---- */

typedef struct Branches Branches;
Branches *branches_create(Arena *arena, Solver *s);
/* Looks at the open node with the least bound.  Returns whether any are left.
 */
bool branches_step(Branches *b);
/* Goes back to the values of the whole problem. */
void branches_leave(Branches *b);

#endif
