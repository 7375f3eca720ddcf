/*
 * partition_pass.c -- the pass `partition`: decides whether values around pins
 * get the placements that the pins imply, partitions the graph, and warns of
 * costly pins.
 *
 * Without a pin of a value there is nothing to decide.
 */
#include "passes/spmd/partition.h"

static bool has_constraints(const Graph *graph) {
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    if (node->op == OP_constraint ||
        (node->body && has_constraints(node->body)))
      return true;
  }
  return false;
}

const Graph *partition_decide(PassContext *ctx, const Graph *graph,
                              PinTrial *trial) {
  const Plan *plan = ctx->plan;
  if (!plan || (plan->ranks <= 1 && plan->microbatches <= 1))
    return rewrite_graph(ctx, graph, NULL, NULL);
  const Graph *placed =
      has_constraints(graph) ? choose_completion(ctx, graph, trial) : NULL;
  return placed ? placed : partition_graph(ctx, graph, trial);
}

Graph *pass_partition(PassContext *ctx, const Graph *graph) {
  PinTrial trial = {0};
  const Graph *placed = partition_decide(ctx, graph, &trial);
  bool is_divided =
      ctx->plan && (ctx->plan->ranks > 1 || ctx->plan->microbatches > 1);
  if (is_divided && has_constraints(graph) && ctx->is_training &&
      diags_errors(ctx->module->diags) == 0)
    warn_of_costly_pins(ctx, graph, placed, &trial);
  return (Graph *)placed;
}
