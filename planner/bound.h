/*
 * bound.h -- declares a time below the step of every plan of the searched space
 * that fits.
 */
#ifndef PLANNER_BOUND_H
#define PLANNER_BOUND_H

#include "planner/solve/eliminate.h"
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

/* ---- means for those who prove them ---- */

/* The settings that a bound has asked for; lives in the arena of the bound. */
typedef struct BoundMeans BoundMeans;

/* The mean of loads by which a setting is bounded best. */
typedef struct BoundMean {
  BoundSetting setting;
  const void *tables; /* equal for settings of the same tables */
  BoundWeights weights;
  Ps time;  /* below the steps of its plans, with mini-buckets */
  Ps alone; /* the same by one operator or one micro-batch: without a sum */
  BoundBy by_alone;
} BoundMean;

/* `out`: may be NULL; `out_means`: becomes NULL if nothing was summed. */
Bound plan_bound_and_means(Arena *arena, const BoundRequest *request,
                           BoundPlans *out, const BoundMeans **out_means);
int bound_means_count(const BoundMeans *means);
BoundMean bound_means_at(const BoundMeans *means, int i);
/* Returns the sum over units and edges that the mean is, with its price of
 * bytes. */
PairProblem bound_means_problem(Arena *arena, const BoundMeans *means,
                                const BoundMean *mean);
/* Returns the step that plans whose sum is so much have at least. */
Ps bound_means_time(const BoundMeans *means, const BoundMean *mean,
                    int64_t sum);

#endif
