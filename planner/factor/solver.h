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
  bool has_prices;           /* rows get prices now */
  int64_t scale;             /* of steps, of 2^20 */
  int64_t nodes, most_nodes; /* most_nodes: 0, no limit */
  int64_t work;              /* table entries that were read */
  uint64_t random;           /* counts random numbers */
  int *numbers;              /* scratch of neighbourhoods: by variable, -1 */
  bool is_proved;
  bool is_beside; /* others work at the same time: nothing is reported */
  bool has_cap;   /* costs are not those of the problem */
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
/* Tells the caller of the best cost and the bound. */
void solver_report(Solver *s);
/* Takes the best values of another one.  Returns whether they are better. */
bool solver_take_best(Solver *s, const Solver *from);

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

/* ---- rounds.c ---- */

/* Where the bound has risen little for so many rounds, branches begin, with so
 * much work in a round. */
enum { STEADY_ROUNDS = 8, BRANCH_WORK = 1 << 20 };

/* Sends messages without prices until they tell little. */
void rounds_begin(Solver *s);
/* The bound and the labelling take turns until this much work is done. */
void rounds_run(Solver *s, int64_t end);
/* Raises the bound by some sweeps, each with new prices. */
void rounds_raise(Solver *s, int n_sweeps);
/* Looks at nodes for this much work. */
void rounds_branch(Solver *s, Branches *branches, int64_t work);
/* Makes the labelling anew of what the messages say, for memory that is dear or
 * as it is. */
void rounds_start(Solver *s, bool is_dear);
/* Changes the labelling for this much work. */
void rounds_walk(Solver *s, int64_t work);
bool rounds_is_better(const Solver *s, const Labelling *a, const Labelling *b);
/* Returns whether the bound has risen little since it was `before`. */
bool rounds_is_steady(const Solver *s, FactorCost before);

/* ---- lanes.c ---- */

/* Goes on until all is proved or the budget ends, the bound and several
 * labellings side by side. */
void lanes_run(Solver *s);

#endif
