/*
 * work.h -- declares what the devices of all ranks have to compute at least,
 * for those who check a bound.
 */
#ifndef PLANNER_RECHECK_WORK_H
#define PLANNER_RECHECK_WORK_H

#include "price/units/bound_walk.h"

/* Returns the time below which no plan of a request with kinds can be, as the
 * prices of their time show; they may be any. */
Ps recheck_work(Arena *arena, const BoundRequest *request,
                const BoundWeights *prices);

#endif
