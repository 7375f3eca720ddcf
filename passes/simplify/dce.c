/*
 * dce.c -- drop the nodes that no output depends on.
 *
 *     %1 = exp %0          =>    (nothing)
 *     output loss %0
 *
 * A walk from the last node to the first marks what the outputs read.  Graph
 * inputs stay, used or not, because the graphs of a model share their
 * persistent buffers.  A pin stays where its value does.
 *
 * requires: any graph     keeps: order, placements     breaks: node ids
 * cost: O(nodes)
 */
#include "passes/rewrite.h"

static bool is_pin_of_live(const Graph *graph, const GraphPins *pins, int id,
                           const bool *is_live) {
  return pin_is_at(pins, id) && is_live[graph->nodes.data[id]->inputs[0].node];
}

Graph *pass_dce(PassContext *ctx, const Graph *graph) {
  int n = graph->nodes.n;
  bool *is_live = ARENA_ARRAY(ctx->scratch, bool, n);
  for (int i = 0; i < graph->outputs.n; i++)
    is_live[graph->outputs.data[i].value.node] = true;
  for (int id = n - 1; id >= 0; id--) {
    const Node *node = graph->nodes.data[id];
    if (node->op == OP_input) is_live[id] = true;
    if (!is_live[id]) continue;
    for (int i = 0; i < node->n_inputs; i++)
      is_live[node->inputs[i].node] = true;
  }
  Rewrite rewrite = rewrite_begin(ctx, graph);
  GraphPins pins = graph_pins(graph, ctx->scratch);
  for (int id = 0; id < n; id++)
    if (is_live[id] || is_pin_of_live(graph, &pins, id, is_live))
      rewrite_copy(&rewrite, id);
  return rewrite_end(&rewrite);
}
