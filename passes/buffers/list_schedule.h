/*
 * list_schedule.h -- the updates in place that list_schedule promises and
 * buffer_assignment relies on.
 */
#ifndef PASSES_LIST_SCHEDULE_H
#define PASSES_LIST_SCHEDULE_H

#include "passes/rewrite.h"

/* ---- in_place.c ---- */

/* Returns the `input` node that each output replaces, by output; -1 means none.
 */
int *output_replaces(const Graph *graph, Arena *arena);
/* Returns whether a fused node without reductions. */
bool fused_is_elementwise(const Node *node);
/* Returns whether the node overwrites a part of its first input and keeps the
 * rest. */
bool node_writes_over(const Node *node, int input);
/* Returns whether the result may take the bytes of the input: each element of
 * the input is read only where that of the result is written (rule 8 of
 * fuse.c). */
bool fused_may_overwrite(const Graph *graph, int id, int result, int input);
/* ---- list_schedule.c ---- */

/* Returns the graph, in its order, with the copies that updates and collectives
 * in place need; none are added in the bodies of its scans. */
Graph *add_launch_copies(PassContext *ctx, const Graph *graph);

/* ---- live_peak.c ---- */

/* The bytes that are live in an order of nodes, without persistent buffers. */
typedef struct LiveBytes {
  const Graph *graph;
  int *place;       /* place of each node in the order */
  int *first_value; /* index of the first result of each node */
  int *root;        /* by value: the value whose bytes it has */
  int *last;        /* place of the last use, by root; n of an output */
  int64_t *size;    /* bytes, by root; 0 of a persistent buffer */
  int64_t *bytes;   /* bytes that are live at each place */
  int64_t peak;     /* the most of them */
} LiveBytes;

LiveBytes live_bytes(const Graph *graph, const int *order, Arena *arena);

/* ---- stage_order.c ---- */

/* Divides the segments of the graph of a stage further: nodes of the step by
 * the level of the last message that they need, those of a micro-batch into
 * forward and backward pass.  `segment` has, by node, 0, 1 and 2 for before,
 * inside and after the loop over micro-batches. */
void divide_segments(const PassContext *ctx, const Graph *graph, int *segment);

/* ---- launch_order.c ---- */

/* Returns, by node, the key by which nodes that are ready are taken, the lowest
 * first.  `segment` has the number of the segment of each node, in the order in
 * which they run.  Other work is moved beside blocking collectives as far as
 * `live`, the bytes of the order without such moves, stays below `limit`; it
 * follows these moves.  NULL means that none is moved. */
int64_t *launch_order_keys(const Graph *graph, const int *segment,
                           LiveBytes *live, int64_t limit, Arena *arena);

#endif
