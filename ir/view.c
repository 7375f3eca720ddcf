/*
 * view.c -- says which nodes are views: their result is the bytes of an
 * operand, so nothing is launched for them; and in which memory bytes are.
 */
#include "ir/ir.h"

/* A slice that begins where its operand does is a part of its bytes.  An input,
 * and what a scan reads and stacks, has its place from the bytes of its type,
 * so a slice of it is none. */
static bool slice_is_view(const Graph *graph, const Node *node) {
  const Type *from = graph_type(graph, node->inputs[0]), *to = node->types[0];
  bool is_body =
      graph->inputs.n > 0 && (graph->inputs.data[0].role == ROLE_carry ||
                              graph->inputs.data[0].role == ROLE_slice ||
                              graph->inputs.data[0].role == ROLE_arg);
  if (is_body || from->rank == 0 || from->dims[0].split ||
      from->dims[0].name != node_name(node, ATTR_dim) ||
      to->dims[0].name != from->dims[0].name ||
      node_int(node, ATTR_start, 0) != 0)
    return false;
  int root = node->inputs[0].node;
  while (node_is_view(graph, root))
    root = graph->nodes.data[root]->inputs[0].node;
  return graph->nodes.data[root]->op != OP_input;
}

bool node_is_view(const Graph *graph, int id) {
  const Node *node = graph->nodes.data[id];
  if (op_is(node->op, OPCLASS_view)) return true;
  if (node->op == OP_slice) return slice_is_view(graph, node);
  if (node->op != OP_merge_dims) return false;
  const Type *type = graph_type(graph, node->inputs[0]);
  int n;
  const Name *from = node_names(node, ATTR_from, &n);
  int first = type_find(type, from[0]);
  if (first < 0 || first + n > type->rank) return false;
  for (int i = 0; i < n; i++)
    if (type->dims[first + i].name != from[i]) return false;
  /* The result must keep the other dims where they are. */
  const Type *result = node->types[0];
  for (int d = 0; d < result->rank; d++) {
    int at = d < first ? d : d == first ? first : d + n - 1;
    if (d == first) continue;
    if (result->dims[d].name != type->dims[at].name) return false;
  }
  return true;
}

bool value_is_on_host(const Graph *graph, Value value) {
  while (node_is_view(graph, value.node))
    value = graph->nodes.data[value.node]->inputs[0];
  const Node *node = graph_node(graph, value);
  if (node->op != OP_input) return node->op == OP_swap_out;
  return graph->inputs.data[node_int(node, ATTR_index, 0)].is_on_host;
}
