/*
 * grad_experts.c -- builds the gradients of topk and of the operators that move
 * tokens to experts.
 *
 * A token of [G, T] has chosen J experts and so makes J routed tokens: number j
 * T + t is the j-th choice of token t, so that ascending numbers are the order
 * in which capacity slots are given away.  Two indices hold this relation, each
 * the inverse of the other, -1 where there is nothing:
 *
 *     %2 = route %1 {over = [J, T], to = [E, S]} : i32[G, T, J]
 *     %3 = route_inverse %2 {over = [J, T], to = [E, S]} : i32[E, S, G]
 *     %4 = dispatch %x, %2, %3                   : f32[E, S, G, C]
 *     %6 = combine %5, %2, %3                    : f32[G, T, J, C]
 *
 * Slot number e S + s is slot s of expert e.  `dispatch` reads x[G, T, C] at
 * the routed token of each slot (x without J: all choices of a token read the
 * same), `combine` reads y[E, S, G, C] at the slot of each routed token.  So
 * the gradient of either is the other, and neither needs an atomic addition.
 */
#include "ir/ops/grad.h"

/* The values are rows of x; their gradient goes back there. */
void grad_topk(Graph *graph, int id, const Value *cotangents, Value *out) {
  const Node *node = graph->nodes.data[id];
  Name dim = node_name(node, ATTR_dim);
  int64_t size = type_size(graph_type(graph, node->inputs[0]), dim);
  int n;
  if (!value_is(cotangents[0])) return;
  Attrs attrs = {0};
  attrs_names(&attrs, ATTR_over, node_names(node, ATTR_to, &n), 1);
  attrs_name(&attrs, ATTR_dim, dim);
  attrs_ints(&attrs, ATTR_sizes, &size, 1);
  Value inputs[] = {cotangents[0], (Value){id, 1}};
  out[0] = graph_append(graph, OP_scatter_add, inputs, 2, &attrs);
}

/* The cotangent as the other operator reads it, summed over dims that the
 * operand lacks: J of dispatch. */
static void grad_by_other(Graph *graph, int id, Op other, Value cotangent,
                          Value *out) {
  const Node *node = graph->nodes.data[id];
  int n_over, n_to;
  const Name *over = node_names(node, ATTR_over, &n_over);
  const Name *to = node_names(node, ATTR_to, &n_to);
  Attrs attrs = {0};
  attrs_names(&attrs, ATTR_over, over, n_over);
  attrs_names(&attrs, ATTR_to, to, n_to);
  Value inputs[] = {cotangent, node->inputs[1], node->inputs[2]};
  const Type *type = graph_type(graph, node->inputs[0]);
  out[0] =
      grad_sum_to(graph, graph_append(graph, other, inputs, 3, &attrs), type);
}

void grad_dispatch(Graph *graph, int id, const Value *cotangents, Value *out) {
  grad_by_other(graph, id, OP_combine, cotangents[0], out);
}

void grad_combine(Graph *graph, int id, const Value *cotangents, Value *out) {
  grad_by_other(graph, id, OP_dispatch, cotangents[0], out);
}
