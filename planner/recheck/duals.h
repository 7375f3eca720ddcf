/*
 * duals.h -- declares the check of duals of the engine: steps and sums are made
 * again, nothing is searched.
 */
#ifndef PLANNER_RECHECK_DUALS_H
#define PLANNER_RECHECK_DUALS_H

#include "planner/factor/factor.h"

typedef struct DualsCheck {
  const char *fault; /* NULL: the bound holds */
  int step;          /* the step at fault; -1: a stage or the bound */
  FactorCost bound;  /* what the duals prove; FACTOR_MOST_SUM: that there are no
                        values, or none better than `best` */
} DualsCheck;

/* Returns whether each assignment of the problem that is allowed costs at least
 * the bound of the duals, as far as these show it. */
DualsCheck recheck_duals(Arena *arena, const FactorProblem *problem,
                         const FactorDuals *duals);

/* Reads duals from text.  A fault is "NAME:LINE:COLUMN: ...". */
Status recheck_duals_read(Arena *arena, const char *name, const char *text,
                          size_t n, FactorDuals **out);

#endif
