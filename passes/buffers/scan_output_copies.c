/*
 * scan_output_copies.c -- copy scan outputs that alias an input, a view or each
 * other.
 *
 *     output carry "h" %5            %6 = copy %5
 *     output result "y" %5     =>    output carry "h" %5
 *                                    output result "y" %6
 *
 * A carry and a stacked output have different buffers, so one value cannot be
 * both.  An input has a buffer already and cannot be an output either.  The
 * copies are pointwise and fuse with the node that computes the value.
 *
 * requires: unfused graph     keeps: values
 * promises: outputs of a body are different nodes and neither inputs nor views
 * cost: O(nodes)
 */
#include "passes/rewrite.h"

static bool scan_output_needs_copy(const Graph *body, int output) {
  Value value = body->outputs.data[output].value;
  const Node *node = graph_node(body, value);
  if (node->op == OP_input || node_is_view(body, value.node)) return true;
  for (int i = 0; i < output; i++)
    if (value_equal(body->outputs.data[i].value, value)) return true;
  return false;
}

static bool scan_output_rule(Rewrite *rewrite, int id, void *user);

static Graph *copy_scan_body(PassContext *ctx, const Graph *body) {
  Rewrite rewrite = rewrite_begin(ctx, body);
  Graph *to = rewrite.to;
  for (int id = 0; id < body->nodes.n; id++)
    if (!scan_output_rule(&rewrite, id, NULL)) rewrite_copy(&rewrite, id);
  for (int i = 0; i < body->outputs.n; i++) {
    const GraphOutput *output = &body->outputs.data[i];
    Value value = rewrite_get(&rewrite, output->value);
    if (scan_output_needs_copy(body, i)) {
      rewrite_at(&rewrite, output->value.node);
      const Type *types[1] = {graph_type(to, value)};
      value = graph_append_typed(to, OP_copy, &value, 1, NULL, types, 1, NULL);
    }
    graph_output(to, output->role, output->path, value);
  }
  return to;
}

static bool scan_output_rule(Rewrite *rewrite, int id, void *user) {
  (void)user;
  const Node *node = rewrite->from->nodes.data[id];
  if (node->op != OP_scan) return false;
  Value copy = rewrite_copy(rewrite, id);
  rewrite->to->nodes.data[copy.node]->body =
      copy_scan_body(rewrite->ctx, node->body);
  return true;
}

Graph *pass_scan_output_copies(PassContext *ctx, const Graph *graph) {
  return rewrite_graph(ctx, graph, scan_output_rule, NULL);
}
