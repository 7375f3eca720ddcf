/*
 * liveness.h -- declares the memory of a rank from live ranges alone, before
 * anything is packed.
 */
#ifndef PLANNER_LIVENESS_H
#define PLANNER_LIVENESS_H

#include "passes/passes.h"

/* Returns the least bytes that the arena of a graph has which list_schedule has
 * ordered, alone with its persistent buffers. buffer_assign needs more where
 * its packing leaves holes. */
int64_t plan_live_bytes(const PassContext *ctx, const Graph *ordered);

#endif
