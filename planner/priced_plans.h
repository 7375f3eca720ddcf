/*
 * priced_plans.h -- declares a record of the plans that a search has priced,
 * from which a caller gets more than the best one.
 */
#ifndef PLANNER_PRICED_PLANS_H
#define PLANNER_PRICED_PLANS_H

#include "planner/search.h"

typedef struct PricedPlan {
  FoundPlan plan;
  const char *mesh; /* "data 16 x tensor 8" */
  /* Equal for plans with equal programs, as these were priced first. */
  uint64_t program;
} PricedPlan;

typedef struct PricedPlans {
  Arena *arena;
  Names *texts;
  Map *at; /* text -> index + 1 */
  VEC(PricedPlan) list;
} PricedPlans;

PricedPlans priced_plans_create(Arena *arena);
/* Adds a plan, or a new price of one that has this text. */
void priced_plans_add(PricedPlans *plans, const PricedPlan *plan);
/* Fills in `found` and `meshes` of a result.  Its best plan is the first of
 * those found. */
void priced_plans_list(const PricedPlans *plans, SearchResult *out);

#endif
