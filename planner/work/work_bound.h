/*
 * work_bound.h -- declares the bound of plans whose ranks, of one or of several
 * kinds of devices, share the kernels of a step.
 */
#ifndef PLANNER_WORK_WORK_BOUND_H
#define PLANNER_WORK_WORK_BOUND_H

#include "price/units/bound_walk.h"

/* Bounds a request that has kinds. */
Bound work_bound(Arena *arena, const BoundRequest *request);

#endif
