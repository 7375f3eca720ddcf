/*
 * recheck.h -- declares the bound of a space as those compute it who do not
 * trust the search.
 *
 * The walk over settings and weights is that of the search, which cannot make a
 * bound too high.  Tables, sums and least sums are written anew.
 */
#ifndef PLANNER_RECHECK_RECHECK_H
#define PLANNER_RECHECK_RECHECK_H

#include "planner/recheck/setting_duals.h"

/* The bound of a certificate. */
typedef struct BoundClaim {
  Ps bound, step; /* step: of the plan */
  BoundWeights weights;
  const BoundDuals *duals; /* of sums that no elimination takes; or NULL */
} BoundClaim;

/* Duals that prove less than they say are its fault.  Returns a time below the
 * step of every plan of the space that fits, no longer than what is claimed
 * where that is one; so `request` needs no step. */
Bound recheck_bound(Arena *arena, const BoundRequest *request,
                    const BoundClaim *claim);
/* Returns whether the claim holds.  Sums of rounded numbers may differ in the
 * last digits. */
bool recheck_holds(const Bound *found, const BoundClaim *claim);

/* The largest load of a plan; with stages the mean over its groups of ranks, or
 * what one group has. */
typedef struct OwnLoad {
  Ps time;              /* -1: the space has no such plan */
  BoundWeights weights; /* the mean that it is */
  int unit;             /* which one group has whole; -1: all of the model */
} OwnLoad;

/* Returns the largest load of a plan of a setting, which no bound of the space
 * is above; its units have these assignments. */
OwnLoad recheck_load(Arena *arena, const BoundRequest *request,
                     const BoundSetting *setting,
                     const Assignment *assignments);

#endif
