/*
 * infer_pointwise.c -- infers the types of pointwise operators and of
 * reductions.
 *
 * A pointwise result has the union of the operands' dims; its dtype follows
 * from the class of the row (language.md sections 3 and 4).
 */
#include "ir/ops/infer.h"

static DType promoted_dtype(const Infer *in, int from) {
  DType dtype = infer_type(in, from)->dtype;
  for (int i = from + 1; i < in->call->n_inputs; i++) {
    dtype = dtype_promote(dtype, infer_type(in, i)->dtype);
  }
  return dtype;
}

/* Bools count as numbers beside a number, not among themselves. */
static DType arithmetic_dtype(Infer *in) {
  DType dtype = promoted_dtype(in, 0);
  if (dtype_class(dtype) == CLASS_BOOL &&
      !op_has(in->call->op, OP_FLAG_identity)) {
    infer_want(in, 0, "a number");
  }
  return dtype;
}

static DType logical_dtype(Infer *in) {
  for (int i = 0; i < in->call->n_inputs; i++) {
    if (infer_type(in, i)->dtype != DT_bool) infer_want(in, i, "bool");
  }
  return DT_bool;
}

static DType integer_dtype(Infer *in) {
  for (int i = 0; i < in->call->n_inputs; i++) infer_want_integer(in, i);
  return promoted_dtype(in, 0);
}

static DType result_dtype(Infer *in, PwClass pw_class) {
  switch (pw_class) {
  case PW_FLOAT: {
    DType dtype = arithmetic_dtype(in);
    return dtype_class(dtype) == CLASS_FLOAT ? dtype : DT_f32;
  }
  case PW_ARITH: return arithmetic_dtype(in);
  case PW_COMPARE: return DT_bool;
  case PW_LOGIC: return logical_dtype(in);
  case PW_INTEGER: return integer_dtype(in);
  case PW_SELECT:
    if (infer_type(in, 0)->dtype != DT_bool) infer_want(in, 0, "bool");
    return promoted_dtype(in, 1);
  }
  UNREACHABLE();
}

int infer_pointwise(Module *module, const OpCall *call, Span span,
                    const Type **out_types) {
  Infer in = infer_begin(module, call, span);
  Dims dims = {0};
  /* A choice is stored like the values chosen from, not like its condition. */
  int first = call->op == OP_select ? 1 : 0;
  for (int i = 0; i < call->n_inputs; i++) {
    dims_union(&in, &dims, (i + first) % call->n_inputs, (NameSpan){0});
  }
  DType dtype = result_dtype(&in, op_info(call->op)->pw_class);
  return infer_one(&in, dtype, &dims, out_types);
}

double cost_pointwise(const Node *node, const Type *const *inputs) {
  (void)inputs;
  return op_info(node->op)->flops * (double)type_elements(node->types[0]);
}

/* ---- reductions: over ---- */

static NameSpan over_dims(Infer *in, int operand) {
  NameSpan over = infer_names(in, ATTR_over, true);
  for (int i = 0; i < over.n; i++) infer_size(in, operand, over.items[i]);
  return over;
}

int infer_reduce(Module *module, const OpCall *call, Span span,
                 const Type **out_types) {
  Infer in = infer_begin(module, call, span);
  NameSpan over = over_dims(&in, 0);
  if (call->op == OP_sum) infer_want_number(&in, 0);
  if (call->op == OP_logsumexp) infer_want_real(&in, 0);
  Dims dims = {0};
  dims_add_type(&dims, call->types[0], over);
  return infer_one(&in, call->types[0]->dtype, &dims, out_types);
}

int infer_argmax(Module *module, const OpCall *call, Span span,
                 const Type **out_types) {
  Infer in = infer_begin(module, call, span);
  Name dim = infer_name(&in, ATTR_dim);
  infer_positions(&in, dim, infer_size(&in, 0, dim), DT_i32);
  Dims dims = {0};
  dims_add_type(&dims, call->types[0], (NameSpan){&dim, 1});
  return infer_one(&in, DT_i32, &dims, out_types);
}

int infer_same_over(Module *module, const OpCall *call, Span span,
                    const Type **out_types) {
  Infer in = infer_begin(module, call, span);
  over_dims(&in, 0);
  infer_want_real(&in, 0);
  Dims dims = {0};
  dims_add_type(&dims, call->types[0], (NameSpan){0});
  return infer_one(&in, call->types[0]->dtype, &dims, out_types);
}

/* Rows of the dims that `over` or `dim` lists. */
static double count_rows(const Node *node, const Type *x) {
  double rows = (double)type_elements(x);
  int n;
  const Name *over = node_names(node, ATTR_over, &n);
  for (int i = 0; i < n && rows > 0; i++) rows /= (double)type_size(x, over[i]);
  return rows;
}

/* logsumexp: maximum, difference, exponential and sum of each element; of each
 * row a logarithm and, unless it is relative, an addition. */
double cost_reduce(const Node *node, const Type *const *inputs) {
  double elements = (double)type_elements(inputs[0]);
  if (node->op != OP_logsumexp) return elements;
  bool is_relative = node_int(node, ATTR_relative, 0);
  return (3 + op_info(OP_exp)->flops) * elements +
         (op_info(OP_log)->flops + !is_relative) * count_rows(node, inputs[0]);
}

/* The operations of each element and of each row.  Softmax: maximum,
 * difference, exponential, sum, quotient; log_softmax: two differences in place
 * of the quotient, and a logarithm.  The norms: square, sum, multiplication,
 * and mean, eps, root; layernorm: another sum and a difference, and another
 * mean. */
double cost_row(const Node *node, const Type *const *inputs) {
  double elements = (double)type_elements(inputs[0]);
  double rows = count_rows(node, inputs[0]),
         root = 2 + op_info(OP_rsqrt)->flops;
  double softmax = (4 + op_info(OP_exp)->flops) * elements;
  switch (node->op) {
  case OP_softmax: return softmax;
  case OP_log_softmax:
    return softmax + elements + op_info(OP_log)->flops * rows;
  case OP_rmsnorm: return 3 * elements + root * rows;
  case OP_layernorm: return 5 * elements + (1 + root) * rows;
  default: UNREACHABLE();
  }
}
