/*
 * grad_shape.c -- builds the gradients of views, moves and indexing: each is
 * the inverse move.  The order of dims of a gradient is free, so transpose
 * needs none.
 */
#include "ir/ops/grad.h"

static const Type *operand_type(const Graph *graph, int id, int input) {
  return graph_type(graph, graph->nodes.data[id]->inputs[input]);
}

void grad_rename(Graph *graph, int id, const Value *cotangents, Value *out) {
  const Node *node = graph->nodes.data[id];
  int n, n_to;
  const Name *from = node_names(node, ATTR_from, &n);
  const Name *to = node_names(node, ATTR_to, &n_to);
  Attrs attrs = {0};
  attrs_names(&attrs, ATTR_from, to, n_to);
  attrs_names(&attrs, ATTR_to, from, n);
  out[0] = graph_append(graph, OP_rename, &cotangents[0], 1, &attrs);
}

void grad_split_dim(Graph *graph, int id, const Value *cotangents, Value *out) {
  const Node *node = graph->nodes.data[id];
  int n;
  const Name *parts = node_names(node, ATTR_to, &n);
  Attrs attrs = {0};
  attrs_names(&attrs, ATTR_from, parts, n);
  attrs_name(&attrs, ATTR_dim, node_name(node, ATTR_dim));
  out[0] = graph_append(graph, OP_merge_dims, &cotangents[0], 1, &attrs);
}

void grad_merge_dims(Graph *graph, int id, const Value *cotangents,
                     Value *out) {
  const Node *node = graph->nodes.data[id];
  const Type *type = operand_type(graph, id, 0);
  int n;
  const Name *parts = node_names(node, ATTR_from, &n);
  int64_t sizes[MAX_RANK];
  for (int i = 0; i < n; i++) sizes[i] = type_size(type, parts[i]);
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dim, node_name(node, ATTR_dim));
  attrs_names(&attrs, ATTR_to, parts, n);
  attrs_ints(&attrs, ATTR_sizes, sizes, n);
  out[0] = graph_append(graph, OP_split_dim, &cotangents[0], 1, &attrs);
}

void grad_transpose(Graph *graph, int id, const Value *cotangents, Value *out) {
  (void)graph;
  (void)id;
  out[0] = cotangents[0];
}

void grad_broadcast(Graph *graph, int id, const Value *cotangents, Value *out) {
  out[0] = grad_sum_to(graph, cotangents[0], operand_type(graph, id, 0));
}

/* The gradient has the placement of the value (GSPMD, section 3.6); of a
 * partial sum it is not partial. */
void grad_constraint(Graph *graph, int id, const Value *cotangents,
                     Value *out) {
  const Node *node = graph->nodes.data[id];
  int n, n_axes;
  const Name *to = node_names(node, ATTR_to, &n);
  const Name *axes = node_names(node, ATTR_axes, &n_axes);
  const int64_t *sizes = node_ints(node, ATTR_sizes, &n);
  Attrs attrs = {0};
  attrs_names(&attrs, ATTR_to, to, n);
  attrs_ints(&attrs, ATTR_sizes, sizes, n);
  attrs_names(&attrs, ATTR_axes, axes, n_axes);
  out[0] = graph_append(graph, OP_constraint, &cotangents[0], 1, &attrs);
}

void grad_cast(Graph *graph, int id, const Value *cotangents, Value *out) {
  DType from = operand_type(graph, id, 0)->dtype;
  bool is_real =
      dtype_class(from) == CLASS_FLOAT &&
      dtype_class(graph_type(graph, cotangents[0])->dtype) == CLASS_FLOAT;
  out[0] = is_real ? graph_cast(graph, cotangents[0], from) : VALUE_NONE;
}

/* ---- slices ---- */

static Value sliced(Graph *graph, Value x, Name dim, int64_t start,
                    int64_t size) {
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dim, dim);
  attrs_int(&attrs, ATTR_start, start);
  attrs_ints(&attrs, ATTR_sizes, &size, 1);
  return graph_append(graph, OP_slice, &x, 1, &attrs);
}

void grad_slice(Graph *graph, int id, const Value *cotangents, Value *out) {
  const Node *node = graph->nodes.data[id];
  Name dim = node_name(node, ATTR_dim);
  int64_t whole = type_size(operand_type(graph, id, 0), dim);
  int64_t before = node_int(node, ATTR_start, 0);
  int64_t after = whole - before - type_size(node->types[0], dim);
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dim, dim);
  attrs_ints(&attrs, ATTR_pad, (int64_t[]){before, after}, 2);
  attrs_float(&attrs, ATTR_value, 0);
  out[0] = graph_append(graph, OP_pad, &cotangents[0], 1, &attrs);
}

void grad_reverse(Graph *graph, int id, const Value *cotangents, Value *out) {
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dim, node_name(graph->nodes.data[id], ATTR_dim));
  out[0] = graph_append(graph, OP_reverse, &cotangents[0], 1, &attrs);
}

void grad_pad(Graph *graph, int id, const Value *cotangents, Value *out) {
  const Node *node = graph->nodes.data[id];
  Name dim = node_name(node, ATTR_dim);
  int n;
  int64_t before = node_ints(node, ATTR_pad, &n)[0];
  int64_t size = type_size(operand_type(graph, id, 0), dim);
  out[0] = sliced(graph, cotangents[0], dim, before, size);
}

/* An element without the dim counts as one slice of it. */
void grad_concat(Graph *graph, int id, const Value *cotangents, Value *out) {
  const Node *node = graph->nodes.data[id];
  Name dim = node_name(node, ATTR_dim);
  int64_t start = 0;
  for (int i = 0; i < node->n_inputs; i++) {
    const Type *type = operand_type(graph, id, i);
    int64_t size = type_find(type, dim) < 0 ? 1 : type_size(type, dim);
    Value part = sliced(graph, cotangents[0], dim, start, size);
    out[i] = dtype_class(type->dtype) == CLASS_FLOAT
                 ? grad_sum_to(graph, part, type)
                 : VALUE_NONE;
    start += size;
  }
}

/* ---- indexing ---- */

void grad_gather(Graph *graph, int id, const Value *cotangents, Value *out) {
  const Node *node = graph->nodes.data[id];
  const Type *table = operand_type(graph, id, 0);
  const Type *index = operand_type(graph, id, 1);
  Name dim = node_name(node, ATTR_dim);
  int64_t size = type_size(table, dim);
  Name over[MAX_RANK];
  int n = 0;
  for (int i = 0; i < index->rank; i++) {
    Name name = index->dims[i].name;
    if (name == dim || type_find(table, name) < 0) over[n++] = name;
  }
  Attrs attrs = {0};
  attrs_names(&attrs, ATTR_over, over, n);
  attrs_name(&attrs, ATTR_dim, dim);
  attrs_ints(&attrs, ATTR_sizes, &size, 1);
  Value inputs[] = {cotangents[0], node->inputs[1]};
  out[0] = graph_append(graph, OP_scatter_add, inputs, 2, &attrs);
  out[1] = VALUE_NONE;
}

void grad_update_slice(Graph *graph, int id, const Value *cotangents,
                       Value *out) {
  const Node *node = graph->nodes.data[id];
  const Type *x = node->types[0];
  Name dim = node_name(node, ATTR_dim);
  Attrs row = {0};
  attrs_name(&row, ATTR_dim, dim);
  Value inputs[] = {cotangents[0], node->inputs[2]};
  out[1] = graph_append(graph, OP_gather, inputs, 2, &row);
  Value at = graph_positions(graph, dim, type_size(x, dim));
  Value at_row = graph_op2(graph, OP_eq, at, node->inputs[2]);
  Value zero = graph_const(graph, x->dtype, 0);
  out[0] = graph_transpose_to(
      graph, graph_op3(graph, OP_select, at_row, zero, cotangents[0]), x);
  out[2] = VALUE_NONE;
}

void grad_scatter_add(Graph *graph, int id, const Value *cotangents,
                      Value *out) {
  const Node *node = graph->nodes.data[id];
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dim, node_name(node, ATTR_dim));
  Value inputs[] = {cotangents[0], node->inputs[1]};
  Value rows = graph_append(graph, OP_gather, inputs, 2, &attrs);
  out[0] = grad_sum_to(graph, rows, operand_type(graph, id, 0));
  out[1] = VALUE_NONE;
}
