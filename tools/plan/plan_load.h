/*
 * plan_load.h -- declares how far the bound of a space lies below the largest
 * load of a plan: what a better search, or a better mean, may gain.
 */
#ifndef TOOLS_PLAN_PLAN_LOAD_H
#define TOOLS_PLAN_PLAN_LOAD_H

#include "driver/trial.h"
#include "price/units/bound_walk.h"

typedef struct PlanLoad {
  const char *reason; /* why there is none; or NULL */
  Ps time;            /* the largest load, no more than the step */
  const char *what;   /* which load that is, in words */
} PlanLoad;

/* Returns the largest load of the plan of a trial, by the formulas of
 * planner/recheck.  `space`: that of the bound. */
PlanLoad plan_load(Arena *arena, const Trial *trial, const BoundRequest *space);
/* Returns 1 - bound / load. */
double plan_search_gap(const PlanLoad *load, Ps bound);

#endif
