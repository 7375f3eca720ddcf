/*
 * incremental.h -- sampling one position at a time.
 */
#ifndef PASSES_INCREMENTAL_H
#define PASSES_INCREMENTAL_H

#include "passes/passes.h"

/* Path of the data input that holds the position, an i32 scalar. */
#define SAMPLE_POSITION "sample.position"

/* From a forward net i32[B, T] -> [B, T, ...]: the same net that also fills
 * caches, and the net at one position (T of size 1) that reads and extends
 * them; both have these caches as slots of ROLE_cache.  If the net does not
 * allow it, false, and `out_why` says which value prevents it. */
bool incremental_split(PassContext *ctx, const Graph *net, Graph **out_whole,
                       Graph **out_step, Text *out_why);

#endif
