/*
 * decompose_experts.c -- rewrites topk as k rounds, each of which finds the
 * largest element after the one found last.
 *
 *     v0 = max x             p0 = first position where x == v0
 *     v1 = max of x after    p1 = first position after where x == v1
 *
 * An element comes after (v, p) if it is smaller than v, or equal and at a
 * later position.  Every number is smaller than NaN.  All rounds reduce over
 * the same dim, so that they become one kernel, and a softmax before it joins
 * them.  Experts are few and k is fewer; a sort would pay from some dozens on.
 */
#include <math.h>

#include "ir/ops/grad.h"

typedef struct Round {
  Value value, position;
} Round;

static bool topk_is_float(const Graph *graph, Value x) {
  return dtype_class(graph_type(graph, x)->dtype) == CLASS_FLOAT;
}

static Value topk_is_nan(Graph *graph, Value x) {
  return graph_op2(graph, OP_ne, x, x);
}

/* Equal, or both NaN. */
static Value topk_same(Graph *graph, Value x, Value y) {
  Value equal = graph_op2(graph, OP_eq, x, y);
  if (!topk_is_float(graph, x)) return equal;
  Value nans =
      graph_op2(graph, OP_and, topk_is_nan(graph, x), topk_is_nan(graph, y));
  return graph_op2(graph, OP_or, equal, nans);
}

static Value topk_below(Graph *graph, Value x, Value y) {
  Value less = graph_op2(graph, OP_lt, x, y);
  if (!topk_is_float(graph, x)) return less;
  Value is_number = graph_op2(graph, OP_eq, x, x);
  Value other = graph_op2(graph, OP_and, is_number, topk_is_nan(graph, y));
  return graph_op2(graph, OP_or, less, other);
}

/* Which elements come after the ones taken. */
static Value topk_after(Graph *graph, Value x, Value position, Round last) {
  Value smaller = topk_below(graph, x, last.value);
  Value equal = topk_same(graph, x, last.value);
  Value later = graph_op2(graph, OP_gt, position, last.position);
  return graph_op2(graph, OP_or, smaller,
                   graph_op2(graph, OP_and, equal, later));
}

static Round topk_take(Graph *graph, Value x, Value position, Name dim,
                       const Round *last) {
  const Type *type = graph_type(graph, x);
  Value most = x, is_left = VALUE_NONE;
  if (last) {
    is_left = topk_after(graph, x, position, *last);
    Value low = graph_const(graph, type->dtype, -INFINITY);
    most = graph_op3(graph, OP_select, is_left, x, low);
  }
  Round now = {.value = graph_reduce(graph, OP_max, most, &dim, 1)};
  Value hit = topk_same(graph, x, now.value);
  if (last) hit = graph_op2(graph, OP_and, is_left, hit);
  Value none = graph_const(graph, DT_i32, (double)type_size(type, dim) - 1);
  Value here = graph_op3(graph, OP_select, hit, position, none);
  now.position = graph_reduce(graph, OP_min, here, &dim, 1);
  return now;
}

/* k values side by side along a new dim; a single one is only seen so. */
static Value topk_beside(Graph *graph, const Value *values, int64_t k, Name dim,
                         const Type *type) {
  Attrs attrs = {0};
  if (k > 1) {
    attrs_name(&attrs, ATTR_dim, dim);
    return graph_append(graph, OP_concat, values, (int)k, &attrs);
  }
  attrs_names(&attrs, ATTR_to, &dim, 1);
  attrs_ints(&attrs, ATTR_sizes, &k, 1);
  Value one = graph_append(graph, OP_broadcast, values, 1, &attrs);
  return graph_transpose_to(graph, one, type);
}

void decompose_topk(Graph *graph, const Graph *from, int id,
                    const Value *inputs, Value *out_results) {
  const Node *node = from->nodes.data[id];
  Name dim = node_name(node, ATTR_dim);
  int n;
  Name to = node_names(node, ATTR_to, &n)[0];
  int64_t k = node_ints(node, ATTR_sizes, &n)[0];
  int64_t size = type_size(graph_type(graph, inputs[0]), dim);
  Value position = graph_positions(graph, dim, size);
  Arena *arena = graph->module->arena;
  Value *values = ARENA_ARRAY(arena, Value, k);
  Value *positions = ARENA_ARRAY(arena, Value, k);
  Round round;
  for (int64_t j = 0; j < k; j++) {
    round = topk_take(graph, inputs[0], position, dim, j ? &round : NULL);
    values[j] = round.value;
    positions[j] = round.position;
  }
  out_results[0] = topk_beside(graph, values, k, to, node->types[0]);
  out_results[1] = topk_beside(graph, positions, k, to, node->types[1]);
}
