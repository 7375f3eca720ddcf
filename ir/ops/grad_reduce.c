/*
 * grad_reduce.c -- builds the gradients of reductions and normalisations.
 *
 * With means and sums over the dims `over` and y the result:
 *
 *     sum          g, broadcast          logsumexp    g softmax(x)
 *     max, min     g at the first one    log_softmax  g - exp(y) sum(g)
 *     softmax      y (g - sum(g y))      rmsnorm      r (g - y mean(g y))
 *     layernorm    r (g - mean(g) - y mean(g y)), r = 1 / sqrt(var + eps)
 *
 * The normalisations compute y and r from x in the words of their own
 * decomposition: where the forward is decomposed too, cse finds them equal, and
 * where it is not, x is the only saved activation.
 */
#include "ir/ops/grad.h"

typedef struct Call {
  Graph *graph;
  Value x, y, g;
  const Type *type; /* of x */
  const Name *over;
  int n;
} Call;

static Call reduce_call(Graph *graph, int id, const Value *cotangents) {
  const Node *node = graph->nodes.data[id];
  Call call = {.graph = graph, .x = node->inputs[0], .y = {id, 0}};
  call.g = cotangents[0];
  call.type = graph_type(graph, call.x);
  call.over = node_names(node, ATTR_over, &call.n);
  return call;
}

static Value row_sum(const Call *call, Value x) {
  return graph_reduce(call->graph, OP_sum, x, call->over, call->n);
}

static Value row_mean(const Call *call, Value x) {
  return rows_mean(call->graph, x, call->over, call->n);
}

static Value row_mul(const Call *call, Value a, Value b) {
  return graph_op2(call->graph, OP_mul, a, b);
}

static Value row_sub(const Call *call, Value a, Value b) {
  return graph_op2(call->graph, OP_sub, a, b);
}

void grad_sum(Graph *graph, int id, const Value *cotangents, Value *out) {
  Call call = reduce_call(graph, id, cotangents);
  out[0] = grad_broadcast_to(graph, call.g, call.type);
}

/* The row-major index along the dims `over`, which the dtype holds. */
static Value linear_position(const Call *call, DType dtype) {
  Graph *graph = call->graph;
  Value position = VALUE_NONE;
  int64_t stride = 1;
  for (int i = call->n - 1; i >= 0; i--) {
    int64_t size = type_size(call->type, call->over[i]);
    Value along = graph_positions(graph, call->over[i], size);
    along = graph_cast(graph, along, dtype);
    if (stride > 1) {
      Value factor = graph_const(graph, dtype, (double)stride);
      along = graph_op2(graph, OP_mul, along, factor);
    }
    position =
        value_is(position) ? graph_op2(graph, OP_add, position, along) : along;
    stride *= size;
  }
  return position;
}

/* The first element that equals the extremum gets all of the gradient.  A NaN
 * is the extremum of its row and equals nothing, so it is looked for by itself.
 */
void grad_extremum(Graph *graph, int id, const Value *cotangents, Value *out) {
  Call call = reduce_call(graph, id, cotangents);
  if (call.n == 0) { /* a reduction over nothing */
    out[0] = call.g;
    return;
  }
  int64_t n = 1; /* and one number more stands for no position */
  for (int i = 0; i < call.n; i++) n *= type_size(call.type, call.over[i]);
  DType dtype = dtype_of_positions(n + 1);
  Value position = linear_position(&call, dtype);
  Value is_equal = graph_op2(graph, OP_eq, call.x, call.y);
  if (dtype_class(call.type->dtype) == CLASS_FLOAT)
    is_equal = graph_op2(graph, OP_or, is_equal,
                         graph_op2(graph, OP_ne, call.x, call.x));
  Value beyond = graph_const(graph, dtype, dtype == DT_i32 ? INT32_MAX : n);
  Value candidate = graph_op3(graph, OP_select, is_equal, position, beyond);
  Value first = graph_reduce(graph, OP_min, candidate, call.over, call.n);
  Value is_first = graph_op2(graph, OP_eq, candidate, first);
  Value zero = graph_const(graph, call.type->dtype, 0);
  out[0] = graph_op3(graph, OP_select, is_first, call.g, zero);
}

void grad_logsumexp(Graph *graph, int id, const Value *cotangents, Value *out) {
  Call call = reduce_call(graph, id, cotangents);
  Value share = rows_share(graph, call.x, call.over, call.n);
  out[0] = row_mul(&call, share, call.g);
}

void grad_softmax(Graph *graph, int id, const Value *cotangents, Value *out) {
  Call call = reduce_call(graph, id, cotangents);
  Value weighted = row_sum(&call, row_mul(&call, call.g, call.y));
  out[0] = row_mul(&call, call.y, row_sub(&call, call.g, weighted));
}

void grad_log_softmax(Graph *graph, int id, const Value *cotangents,
                      Value *out) {
  Call call = reduce_call(graph, id, cotangents);
  Value share = graph_op1(graph, OP_exp, call.y);
  Value total = row_sum(&call, call.g);
  out[0] = row_sub(&call, call.g, row_mul(&call, share, total));
}

void grad_layernorm(Graph *graph, int id, const Value *cotangents, Value *out) {
  Call call = reduce_call(graph, id, cotangents);
  double eps = node_float(graph->nodes.data[id], ATTR_eps, 0);
  Value centred, rstd;
  rows_moments(graph, call.x, call.over, call.n, eps, &centred, &rstd);
  Value y = row_mul(&call, centred, rstd);
  Value along = row_mul(&call, y, row_mean(&call, row_mul(&call, call.g, y)));
  Value rest =
      row_sub(&call, row_sub(&call, call.g, row_mean(&call, call.g)), along);
  out[0] = row_mul(&call, rest, rstd);
}

void grad_rmsnorm(Graph *graph, int id, const Value *cotangents, Value *out) {
  Call call = reduce_call(graph, id, cotangents);
  double eps = node_float(graph->nodes.data[id], ATTR_eps, 0);
  Value rrms = rows_rrms(graph, call.x, call.over, call.n, eps);
  Value y = row_mul(&call, call.x, rrms);
  Value along = row_mul(&call, y, row_mean(&call, row_mul(&call, call.g, y)));
  out[0] = row_mul(&call, row_sub(&call, call.g, along), rrms);
}
