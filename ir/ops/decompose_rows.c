/*
 * decompose_rows.c -- rewrites softmax and its family, the normalisations and
 * one_hot in simpler operators.
 *
 * A row of -inf has the maximum -inf, and -inf - -inf is NaN.  The maximum is
 * therefore raised to the lowest finite number of its dtype, which alters no
 * other row: exp gives 0 for all of a row of -inf, and since the sum of any
 * other row is at least exp(0) = 1, the sum may be raised to 1 to divide by.
 * The maximum of a logsumexp is lowered to the greatest finite number likewise,
 * so that infinity gives infinity, as in PyTorch; a softmax of it is NaN.
 * These clamps are guards (rows_guard).
 */
#include <float.h>

#include "ir/ops/grad.h"

static Value row_const(Graph *graph, Value like, double value) {
  return graph_const(graph, graph_type(graph, like)->dtype, value);
}

/* The greatest finite number of a float dtype. */
static const double greatest[N_DTYPES] = {
#define DTYPE(name, bytes, class, c, safetensors, npy, digits, least, most,    \
              ...)                                                             \
  [DT_##name] = (double)(most),
#include "support/dtype.def"
};

typedef struct Row {
  Value shifted; /* x - max, at most 0 */
  Value max, exp, sum;
} Row;

Value rows_guard(Graph *graph, Op op, Value x, double bound) {
  Attrs attrs = {0};
  attrs_int(&attrs, ATTR_guard, 1);
  Value operands[] = {x, row_const(graph, x, bound)};
  return graph_append(graph, op, operands, 2, &attrs);
}

static Row row_exp(Graph *graph, Value x, const Name *over, int n,
                   bool is_finite) {
  Row row;
  double most = greatest[graph_type(graph, x)->dtype];
  Value max = graph_reduce(graph, OP_max, x, over, n);
  row.max = rows_guard(graph, OP_maximum, max, -most);
  if (is_finite) row.max = rows_guard(graph, OP_minimum, row.max, most);
  row.shifted = graph_op2(graph, OP_sub, x, row.max);
  row.exp = graph_op1(graph, OP_exp, row.shifted);
  row.sum = graph_reduce(graph, OP_sum, row.exp, over, n);
  return row;
}

static Value at_least_one(Graph *graph, Value sum) {
  return rows_guard(graph, OP_maximum, sum, 1);
}

void rows_softmax(Graph *graph, Value x, const Name *over, int n,
                  Value *out_softmax, Value *out_max, Value *out_sum) {
  Row row = row_exp(graph, x, over, n, false);
  *out_softmax =
      graph_op2(graph, OP_div, row.exp, at_least_one(graph, row.sum));
  if (out_max) *out_max = row.max;
  if (out_sum) *out_sum = row.sum;
}

Value rows_share(Graph *graph, Value x, const Name *over, int n) {
  Row row = row_exp(graph, x, over, n, true);
  Value log = graph_op1(graph, OP_log, at_least_one(graph, row.sum));
  return graph_op1(graph, OP_exp, graph_op2(graph, OP_sub, row.shifted, log));
}

void decompose_softmax(Graph *graph, const Graph *from, int id,
                       const Value *inputs, Value *out_results) {
  int n;
  const Name *over = node_names(from->nodes.data[id], ATTR_over, &n);
  rows_softmax(graph, inputs[0], over, n, &out_results[0], NULL, NULL);
}

void decompose_log_softmax(Graph *graph, const Graph *from, int id,
                           const Value *inputs, Value *out_results) {
  int n;
  const Name *over = node_names(from->nodes.data[id], ATTR_over, &n);
  Row row = row_exp(graph, inputs[0], over, n, false);
  Value log = graph_op1(graph, OP_log, at_least_one(graph, row.sum));
  out_results[0] = graph_op2(graph, OP_sub, row.shifted, log);
}

void decompose_logsumexp(Graph *graph, const Graph *from, int id,
                         const Value *inputs, Value *out_results) {
  int n;
  const Name *over = node_names(from->nodes.data[id], ATTR_over, &n);
  Row row = row_exp(graph, inputs[0], over, n, true);
  Value log = graph_op1(graph, OP_log, row.sum);
  bool is_relative = node_int(from->nodes.data[id], ATTR_relative, 0);
  out_results[0] = is_relative ? log : graph_op2(graph, OP_add, log, row.max);
}

/* ---- normalisations ---- */

Value rows_mean(Graph *graph, Value x, const Name *over, int n) {
  double count = 1;
  for (int i = 0; i < n; i++) {
    count *= (double)type_size(graph_type(graph, x), over[i]);
  }
  Value sum = graph_reduce(graph, OP_sum, x, over, n);
  return graph_op2(graph, OP_mul, sum, row_const(graph, x, 1 / count));
}

void rows_moments(Graph *graph, Value x, const Name *over, int n, double eps,
                  Value *out_centred, Value *out_rstd) {
  Value mean = rows_mean(graph, x, over, n);
  *out_centred = graph_op2(graph, OP_sub, x, mean);
  *out_rstd = rows_rrms(graph, *out_centred, over, n, eps);
}

Value rows_rrms(Graph *graph, Value x, const Name *over, int n, double eps) {
  Value square = graph_op2(graph, OP_mul, x, x);
  Value mean = rows_mean(graph, square, over, n);
  Value sum = graph_op2(graph, OP_add, mean, row_const(graph, x, eps));
  return graph_op1(graph, OP_rsqrt, sum);
}

void decompose_layernorm(Graph *graph, const Graph *from, int id,
                         const Value *inputs, Value *out_results) {
  const Node *node = from->nodes.data[id];
  int n;
  const Name *over = node_names(node, ATTR_over, &n);
  double eps = node_float(node, ATTR_eps, 0);
  Value centred, rstd;
  rows_moments(graph, inputs[0], over, n, eps, &centred, &rstd);
  out_results[0] = graph_op2(graph, OP_mul, centred, rstd);
}

void decompose_rmsnorm(Graph *graph, const Graph *from, int id,
                       const Value *inputs, Value *out_results) {
  const Node *node = from->nodes.data[id];
  int n;
  const Name *over = node_names(node, ATTR_over, &n);
  double eps = node_float(node, ATTR_eps, 0);
  Value rrms = rows_rrms(graph, inputs[0], over, n, eps);
  out_results[0] = graph_op2(graph, OP_mul, inputs[0], rrms);
}

/* ---- one_hot ---- */

void decompose_one_hot(Graph *graph, const Graph *from, int id,
                       const Value *inputs, Value *out_results) {
  const Node *node = from->nodes.data[id];
  int n;
  Value position = graph_positions(graph, node_name(node, ATTR_dim),
                                   node_ints(node, ATTR_sizes, &n)[0]);
  Value is_here = graph_op2(graph, OP_eq, inputs[0], position);
  out_results[0] = graph_cast(graph, is_here, node->types[0]->dtype);
}
