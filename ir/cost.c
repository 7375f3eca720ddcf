/*
 * cost.c -- estimates the floating-point operations and bytes of a node from
 * its logical sizes.  The rules stand beside the infer rules of each family; a
 * region adds up its body.
 */
#include "ir/ops/rules.h"

double node_flops(const Graph *graph, int id) {
  const OpInfo *info = op_info(graph->nodes.data[id]->op);
  return info->cost ? info->cost(graph, id) : 0;
}

double node_contraction_flops(const Graph *graph, int id) {
  const Node *node = graph->nodes.data[id];
  if (op_is(node->op, OPCLASS_contraction)) return node_flops(graph, id);
  double flops = 0;
  for (int i = 0; node->body && i < node->body->nodes.n; i++)
    flops += node_contraction_flops(node->body, i);
  int n = 0;
  const int64_t *positions =
      node->op == OP_scan ? node_ints(node, ATTR_sizes, &n) : NULL;
  return n > 0 ? flops * (double)positions[0] : flops;
}

static double type_bytes(const Type *type) {
  return (double)type_elements(type) * dtype_size_bytes(type->dtype);
}

/* Views move nothing. */
double node_bytes(const Graph *graph, int id) {
  const Node *node = graph->nodes.data[id];
  if (op_is(node->op, OPCLASS_view) || node->op == OP_input) return 0;
  double bytes = 0;
  if (node->op == OP_update_slice) /* the row is read and written */
    return 2 * type_bytes(graph_type(graph, node->inputs[1]));
  for (int i = 0; i < node->n_inputs; i++) {
    bytes += type_bytes(graph_type(graph, node->inputs[i]));
  }
  for (int i = 0; i < node->n_results; i++) bytes += type_bytes(node->types[i]);
  return bytes;
}

double cost_scan(const Graph *graph, int id) {
  const Node *node = graph->nodes.data[id];
  double flops = 0;
  for (int i = 0; i < node->body->nodes.n; i++)
    flops += node_flops(node->body, i);
  return flops * (double)scan_steps(node);
}

double cost_fused(const Graph *graph, int id) {
  const Graph *body = graph->nodes.data[id]->body;
  double flops = 0;
  for (int i = 0; body && i < body->nodes.n; i++) flops += node_flops(body, i);
  return flops;
}
