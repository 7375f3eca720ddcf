/*
 * bound.h -- declares a time below the step of every plan of the searched space
 * that fits.
 */
#ifndef PLANNER_BOUND_H
#define PLANNER_BOUND_H

#include "price/units/bound_walk.h"

Bound plan_bound(Arena *arena, const BoundRequest *request);

#endif
