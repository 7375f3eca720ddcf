/*
 * stage_order.c -- divides what a stage of a pipeline runs into segments.
 *
 *     before micro-batches   by level: a parameter of another stage is level 1
 *     a micro-batch          the forward pass, then the backward pass, or
 *                            input gradients, then weight gradients
 *     after micro-batches    by level: its share of a gradient, norms, ...
 *
 * The level of a node is the greatest of the messages of the step that it
 * follows from (passes/stages/edge_levels.c).  So a rank can send what a level
 * makes before it waits for the messages of the next one, and a schedule can
 * call the passes of a micro-batch apart (microbatch_kinds).
 */
#include "passes/buffers/list_schedule.h"
#include "passes/stages/stages.h"

/* Gives the segments that there are the numbers from 0 on. */
static void number_segments(Arena *scratch, int n_segments, int *segment,
                            int n) {
  int *number = ARENA_ARRAY(scratch, int, n_segments);
  for (int id = 0; id < n; id++) number[segment[id]] = 1;
  for (int s = 0, next = 0; s < n_segments; s++)
    number[s] = number[s] ? next++ : -1;
  for (int id = 0; id < n; id++) segment[id] = number[segment[id]];
}

void divide_segments(const PassContext *ctx, const Graph *graph, int *segment) {
  const int *levels = stage_node_levels(ctx->scratch, ctx->cut, graph);
  const TokenKind *kinds = stage_segment_kinds(ctx->scratch, ctx->cut, graph);
  int n_levels = 1, n_kinds = segment_order(TOKEN_update);
  for (int id = 0; id < graph->nodes.n; id++)
    if (levels[id] >= n_levels) n_levels = levels[id] + 1;
  for (int id = 0; id < graph->nodes.n; id++) {
    switch (segment[id]) {
    case 0: segment[id] = levels[id]; break;
    case 1: segment[id] = n_levels + segment_order(kinds[id]); break;
    default: segment[id] = n_levels + n_kinds + levels[id];
    }
  }
  number_segments(ctx->scratch, 2 * n_levels + n_kinds, segment,
                  graph->nodes.n);
}
