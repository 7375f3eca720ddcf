/*
 * decompose_attention.c -- rewrites attention and its gradient in simpler
 * operators, for targets without a kernel of their own.  This form stores the
 * scores.
 *
 *     s = scale q.k         causal: -inf where query < key
 *                           -inf too where key >= the number of keys, if given
 *     o = softmax(s) . v    lse = log of the sum of exp(s), or its two parts
 *     p = exp(s - lse)      dv = p . do
 *     ds = scale p (do . v - sum of do o)
 *     dq = ds . k           dk = ds . q
 */
#include <math.h>

#include "ir/ops/grad.h"

static Value attention_position(Graph *graph, Value value, Name dim) {
  return graph_positions(graph, dim, type_size(graph_type(graph, value), dim));
}

static Value attention_const(Graph *graph, Value like, double value) {
  return graph_const(graph, graph_type(graph, like)->dtype, value);
}

static DType attention_dtype(const Graph *graph, Value value) {
  return graph_type(graph, value)->dtype;
}

/* Scores and probabilities are f32 where operands are short. */
static DType work_dtype(DType dtype) {
  return dtype_size_bytes(dtype) < 4 ? DT_f32 : dtype;
}

static Value attention_dot(Graph *graph, Value a, Value b, const Name *over,
                           int n, DType dtype) {
  Attrs attrs = {0};
  attrs_names(&attrs, ATTR_over, over, n);
  a = graph_cast(graph, a, attention_dtype(graph, b));
  if (dtype != attention_dtype(graph, b))
    attrs_name(&attrs, ATTR_dtype,
               name_intern(graph->module->names, dtype_name(dtype)));
  return graph_append(graph, OP_dot, (Value[]){a, b}, 2, &attrs);
}

/* a . b over all that `type` lacks, in its dtype; a is rounded to b's. */
static Value attention_dot_to(Graph *graph, Value a, Value b,
                              const Type *type) {
  const Type *from = graph_type(graph, a);
  Name over[MAX_RANK];
  int n = 0;
  for (int i = 0; i < from->rank; i++) {
    Name dim = from->dims[i].name;
    bool is_shared = type_find(graph_type(graph, b), dim) >= 0;
    if (is_shared && type_find(type, dim) < 0) over[n++] = dim;
  }
  Value y = attention_dot(graph, a, b, over, n, work_dtype(type->dtype));
  return grad_sum_to(graph, y, type);
}

static Value mask_scores(Graph *graph, Value s, Value is_seen) {
  Value masked = graph_op3(graph, OP_select, is_seen, s,
                           attention_const(graph, s, -INFINITY));
  return graph_transpose_to(graph, masked, graph_type(graph, s));
}

/* `count`: the number of keys, or VALUE_NONE. */
static Value attention_scores(Graph *graph, const Node *node, Value q, Value k,
                              Value count) {
  int n;
  const Name *over = node_names(node, ATTR_over, &n);
  Name query = node_name(node, ATTR_query), key = node_name(node, ATTR_key);
  Value s = attention_dot(graph, q, k, over, n,
                          work_dtype(attention_dtype(graph, q)));
  double scale = node_float(node, ATTR_scale, 1);
  if (scale != 1)
    s = graph_op2(graph, OP_mul, s, attention_const(graph, s, scale));
  if (node_int(node, ATTR_causal, 0))
    s = mask_scores(graph, s,
                    graph_op2(graph, OP_ge, attention_position(graph, q, query),
                              attention_position(graph, k, key)));
  if (value_is(count))
    s = mask_scores(
        graph, s,
        graph_op2(graph, OP_lt, attention_position(graph, k, key), count));
  return s;
}

void decompose_attention(Graph *graph, const Graph *from, int id,
                         const Value *inputs, Value *out_results) {
  const Node *node = from->nodes.data[id];
  Name key = node_name(node, ATTR_key);
  Value count = node->n_inputs > 3 ? inputs[3] : VALUE_NONE;
  Value s = attention_scores(graph, node, inputs[0], inputs[1], count);
  Value p, saved[2]; /* maximum and sum of each row */
  rows_softmax(graph, s, &key, 1, &p, &saved[0], &saved[1]);
  bool is_relative = node_int(node, ATTR_relative, 0) != 0;
  if (!is_relative)
    saved[0] =
        graph_op2(graph, OP_add, graph_op1(graph, OP_log, saved[1]), saved[0]);
  Value o = attention_dot(graph, p, inputs[2], &key, 1, node->types[0]->dtype);
  out_results[0] = graph_transpose_to(graph, o, node->types[0]);
  for (int i = 0; i < 1 + is_relative; i++) {
    Value value = graph_cast(graph, saved[i], node->types[1 + i]->dtype);
    out_results[1 + i] = graph_transpose_to(graph, value, node->types[1 + i]);
  }
}

void decompose_attention_grad(Graph *graph, const Graph *from, int id,
                              const Value *inputs, Value *out_results) {
  const Node *node = from->nodes.data[id];
  Value q = inputs[0], k = inputs[1], v = inputs[2], o = inputs[3];
  Value lse = inputs[4], d_o = inputs[5];
  Value count = node->n_inputs > 6 ? inputs[6] : VALUE_NONE;
  Value s = attention_scores(graph, node, q, k, count);
  const Type *lse_type = graph_type(graph, lse);
  const Type *s_type = graph_type(graph, s);
  Value p = graph_op1(graph, OP_exp, graph_op2(graph, OP_sub, s, lse));
  Value dp = attention_dot_to(graph, d_o, v, s_type);
  Value delta = graph_op2(graph, OP_mul, graph_cast(graph, d_o, s_type->dtype),
                          graph_cast(graph, o, s_type->dtype));
  delta = grad_sum_to(graph, delta, lse_type);
  Value ds = graph_op2(graph, OP_mul, p, graph_op2(graph, OP_sub, dp, delta));
  double scale = node_float(node, ATTR_scale, 1);
  if (scale != 1)
    ds = graph_op2(graph, OP_mul, ds, attention_const(graph, ds, scale));
  Value results[3] = {
      attention_dot_to(graph, ds, k, node->types[0]),
      attention_dot_to(graph, ds, q, node->types[1]),
      attention_dot_to(graph, p, d_o, node->types[2]),
  };
  for (int i = 0; i < 3; i++) {
    out_results[i] = graph_transpose_to(graph, results[i], node->types[i]);
  }
}
