/*
 * list_schedule.h -- the updates in place that list_schedule promises and
 * buffer_assignment relies on.
 */
#ifndef PASSES_LIST_SCHEDULE_H
#define PASSES_LIST_SCHEDULE_H

#include "passes/rewrite.h"

/* ---- in_place.c ---- */

/* By output: the `input` node that it replaces, or -1. */
int *output_replaces(const Graph *graph, Arena *arena);
/* A fused node without reductions. */
bool fused_is_elementwise(const Node *node);
/* The node overwrites a part of its first input and keeps the rest. */
bool node_writes_over(const Node *node, int input);
/* The result may take the bytes of the input: each element of the input is
 * read only where that of the result is written (rule 8 of fuse.c). */
bool fused_may_overwrite(const Graph *graph, int id, int result, int input);
/* ---- list_schedule.c ---- */

/* The graph with the copies that updates and collectives in place need, in the
 * order that it has; not in the bodies of its scans. */
Graph *add_launch_copies(PassContext *ctx, const Graph *graph);

/* ---- launch_order.c, live_peak.c ---- */

/* By node, the key by which nodes that are ready are taken,
 * the lowest first.  `segment`: 0, 1 and 2 for before, inside and after the
 * loop over micro-batches.  `hiding`: how many times the estimated time of a
 * blocking collective other work may be put behind its start. */
int64_t *launch_order_keys(const Graph *graph, const int *segment,
                           double hiding, Arena *arena);
/* The most bytes that are live at once when nodes run in this
 * order, without persistent buffers. */
int64_t live_peak_bytes(const Graph *graph, const int *order, Arena *arena);

#endif
