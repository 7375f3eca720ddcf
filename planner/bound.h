/*
 * bound.h -- declares a time below the step of every plan of the searched space
 * that fits.
 */
#ifndef PLANNER_BOUND_H
#define PLANNER_BOUND_H

#include "price/units/bound_walk.h"

/* An assignment at which a mean of loads is the least. */
typedef struct BoundPlan {
  BoundSetting setting;
  const Assignment *assignments; /* by unit; copies of a unit have that of the
                                    one in the middle */
  Ps load;                       /* its largest mean of those that were tried */
  int number;                    /* in the order of the answers */
} BoundPlan;

typedef struct BoundPlans {
  VEC(BoundPlan) list; /* the least load first */
} BoundPlans;

Bound plan_bound(Arena *arena, const BoundRequest *request);
/* Also lists the assignments of the settings whose bounds are below the step,
 * but for those that do not fit or whose loads are above it. */
Bound plan_bound_and_plans(Arena *arena, const BoundRequest *request,
                           BoundPlans *out);

#endif
