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

Graph *pass_partition(PassContext *ctx, const Graph *graph) {
  const Plan *plan = ctx->plan;
  if (!plan || (plan->ranks <= 1 && plan->microbatches <= 1))
    return rewrite_graph(ctx, graph, NULL, NULL);
  bool has_pins = has_constraints(graph);
  PinTrial trial = {0};
  const Graph *placed = has_pins ? choose_completion(ctx, graph, &trial) : NULL;
  if (!placed) placed = partition_graph(ctx, graph, &trial);
  if (has_pins && ctx->is_training && diags_errors(ctx->module->diags) == 0)
    warn_of_costly_pins(ctx, graph, placed, &trial);
  return (Graph *)placed;
}
