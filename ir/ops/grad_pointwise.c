/*
 * grad_pointwise.c -- builds the gradients of the pointwise rows from their
 * derivative texts, and undoes broadcasting by name.
 *
 * The derivative is multiplied by the cotangent, except where its form allows
 * better: 1 and -1, a quotient 1 / b, and a choice between 1 and 0, which
 * becomes a select.  The select also keeps an infinite cotangent of the branch
 * not taken from turning into 0 * inf.
 */
#include <string.h>

#include "ir/ops/grad.h"

/* ---- dims ---- */

Value grad_sum_to(Graph *graph, Value value, const Type *type) {
  const Type *from = graph_type(graph, value);
  Name over[MAX_RANK];
  int n = 0;
  for (int i = 0; i < from->rank; i++) {
    if (type_find(type, from->dims[i].name) < 0) over[n++] = from->dims[i].name;
  }
  if (n > 0) value = graph_reduce(graph, OP_sum, value, over, n);
  return graph_cast(graph, value, type->dtype);
}

Value grad_dot_to(Graph *graph, Value a, Value b, const Type *type) {
  const Type *a_type = graph_type(graph, a), *b_type = graph_type(graph, b);
  Name over[MAX_RANK];
  int n = 0;
  for (int i = 0; i < a_type->rank; i++) {
    Name dim = a_type->dims[i].name;
    if (type_find(b_type, dim) >= 0 && type_find(type, dim) < 0) {
      over[n++] = dim;
    }
  }
  Attrs attrs = {0};
  attrs_names(&attrs, ATTR_over, over, n);
  Value y = graph_append(graph, OP_dot, (Value[]){a, b}, 2, &attrs);
  return grad_sum_to(graph, y, type);
}

Value grad_broadcast_to(Graph *graph, Value value, const Type *type) {
  const Type *from = graph_type(graph, value);
  Name to[MAX_RANK];
  int64_t sizes[MAX_RANK];
  int n = 0;
  for (int i = 0; i < type->rank; i++) {
    if (type_find(from, type->dims[i].name) >= 0) continue;
    to[n] = type->dims[i].name;
    sizes[n++] = type->dims[i].size;
  }
  if (n == 0) return value;
  Attrs attrs = {0};
  attrs_names(&attrs, ATTR_to, to, n);
  attrs_ints(&attrs, ATTR_sizes, sizes, n);
  return graph_append(graph, OP_broadcast, &value, 1, &attrs);
}

/* ---- the rule ---- */

static bool is_const_of(const Graph *graph, Value value, double wanted) {
  const Node *node = graph_node(graph, value);
  return node->op == OP_const && node_float(node, ATTR_value, 0) == wanted;
}

static Value scaled_cotangent(Graph *graph, Value cotangent, Value derivative) {
  if (is_const_of(graph, derivative, 1)) return cotangent;
  if (is_const_of(graph, derivative, -1)) {
    return graph_op1(graph, OP_neg, cotangent);
  }
  const Node *node = graph_node(graph, derivative);
  if (node->op == OP_div && is_const_of(graph, node->inputs[0], 1)) {
    return graph_op2(graph, OP_div, cotangent, node->inputs[1]);
  }
  if (node->op == OP_select) {
    Value c = node->inputs[0], a = node->inputs[1], b = node->inputs[2];
    if (is_const_of(graph, a, 1) && is_const_of(graph, b, 0)) {
      return graph_op3(graph, OP_select, c, cotangent, b);
    }
    if (is_const_of(graph, a, 0) && is_const_of(graph, b, 1)) {
      return graph_op3(graph, OP_select, c, a, cotangent);
    }
  }
  return graph_op2(graph, OP_mul, cotangent, derivative);
}

void grad_pointwise(Graph *graph, int id, const Value *cotangents, Value *out) {
  static const char *const letters[] = {"a", "b", "c"};
  const Node *node = graph->nodes.data[id];
  const OpInfo *info = op_info(node->op);
  ExprScope scope = {.graph = graph, .dtype = node->types[0]->dtype};
  for (int i = 0; i < node->n_inputs; i++) {
    expr_bind(&scope, letters[i], node->inputs[i]);
  }
  expr_bind(&scope, "y", (Value){id, 0});
  for (int i = 0; i < node->n_inputs; i++) {
    const Type *type = graph_type(graph, node->inputs[i]);
    const char *text = info->derivative[i];
    out[i] = VALUE_NONE;
    if (text == NULL || strcmp(text, "none") == 0) continue;
    if (dtype_class(type->dtype) != CLASS_FLOAT) continue;
    Value derivative = expr_build(&scope, text);
    Value value = scaled_cotangent(graph, cotangents[0], derivative);
    out[i] = grad_sum_to(graph, value, type);
  }
}
