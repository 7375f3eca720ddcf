/*
 * bound_duals.h -- declares the proof of a bound whose sums no elimination
 * takes: messages for each setting, which `dnnc verify` adds up.
 */
#ifndef PLANNER_SOLVE_BOUND_DUALS_H
#define PLANNER_SOLVE_BOUND_DUALS_H

#include "planner/bound.h"

/* Returns whether the recheck cannot sum one of the means by itself.  Some of
 * the `means` may be NULL. */
bool bound_needs_duals(Arena *arena, const BoundMeans *const *means, int n);
/* Gives the bound, which is the least of these means, the time that duals
 * prove, at most `step`; mostly a higher one than before, since that has
 * mini-buckets.  Appends the duals as text (docs/inside/search.md). */
void bound_prove(Arena *arena, const BoundMeans *const *means, int n, Ps step,
                 Bound *bound, Text *out);

#endif
