/*
 * solve_pairs.h -- declares how a sum of tables over variables and pairs of
 * them is minimised: by elimination, which is exact, as long as tables stay
 * small; else by the general engine (planner/factor).
 */
#ifndef PLANNER_SOLVE_SOLVE_PAIRS_H
#define PLANNER_SOLVE_SOLVE_PAIRS_H

#include "planner/factor/factor.h"
#include "planner/solve/eliminate.h"

typedef enum SolveMethod {
  SOLVED_by_elimination,
  SOLVED_by_engine,
  N_SOLVE_METHODS
} SolveMethod;

/* The search that a solver serves: how it solves, and how often either method
 * did. */
typedef struct PairSolver {
  bool engine_alone; /* no elimination: for tests and comparisons */
  int n_solved[N_SOLVE_METHODS];
} PairSolver;

/* Problems with variables and pairs of one shape, which differ in costs: what
 * is known of them.  Begins as {0}, for one arena. */
typedef struct PairShape {
  bool is_wide;   /* elimination cannot take them */
  Map *by_engine; /* hash of costs -> values */
} PairShape;

/* Fills in values and returns true.  By elimination their sum is the least; by
 * the engine it is mostly within a thousandth of it.  Returns false if the
 * engine finds none. */
bool solve_pairs(Arena *arena, PairSolver *solver, PairShape *shape,
                 const PairProblem *problem, int *values);
/* Does without elimination.  No values have a sum below `out_bound`. */
bool solve_by_engine(Arena *scratch, const PairProblem *problem, int *values,
                     int64_t *out_bound);

/* Why no values have a sum below the bound: messages alone, and steps that hold
 * for any costs.  Costs of the duals are units of 2^shift, rounded down. */
typedef struct PairDuals {
  const FactorDuals *duals;
  int shift;
  int64_t bound;
} PairDuals;

/* Returns a sum that no values are below: that of the least costs. */
int64_t sum_of_leasts(const PairProblem *problem);
/* Ends as soon as a bound of `enough` is proved; 0: the highest. */
PairDuals solve_for_duals(Arena *arena, const PairProblem *problem,
                          int64_t enough);

#endif
