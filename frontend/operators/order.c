/*
 * order.c -- operators that depend on the order along one dim: reverse, sort,
 * argsort, cumsum, cumprod, prod.
 *
 * The last three are built from other operators. A cumulative sum adds to each
 * element the sum of those before it in about log2(n) steps (Hillis and Steele
 * 1986):
 *
 *     y = x;  y = y + shift(y, 1);  y = y + shift(y, 2);  y = y + shift(y, 4)
 *
 * A cumulative product multiplies instead and fills with 1.  A product
 * multiplies one half with the other until one element is left.  So the
 * gradients of both need no quotient and are right at zeros.
 */
#include "frontend/elaborate/emit.h"
#include "frontend/elaborate/match.h"

ExprValue builtin_reverse(BuiltinCall *call) {
  if (!arg_tensor(call, 0) || !arg_dims(call, 1, 0, false)) return POISON;
  ExprValue val = call->args[0];
  for (int i = 0; i < call->dims[1].n && expr_value_is_tensor(val); i++) {
    Attrs attrs = {0};
    attrs_name(&attrs, ATTR_dim, call->dims[1].names[i]);
    val = elab_emit(call->e, OP_reverse, &val, 1, &attrs);
  }
  return val;
}

ExprValue builtin_sort(BuiltinCall *call) {
  if (!arg_tensor(call, 0) || !arg_dims(call, 1, 0, true)) return POISON;
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dim, call->dims[1].names[0]);
  return elab_emit(call->e, OP_sort, call->args, 1, &attrs);
}

ExprValue builtin_argsort(BuiltinCall *call) {
  return elab_second_result(builtin_sort(call));
}

/* Moves the elements towards the end by n < size and fills with `fill`. */
static ExprValue shift_pad(Elab *e, ExprValue val, Name dim, int64_t n,
                           double fill) {
  int64_t size = type_size(elab_type(e, val), dim);
  return elab_pad(e, elab_slice(e, val, dim, 0, size - n), dim, n, 0, fill);
}

/* Joins each element with all before it by `op`, whose neutral element is
 * `neutral`. */
static ExprValue cumulate(BuiltinCall *call, Op op, double neutral) {
  Elab *e = call->e;
  bool is_exclusive;
  if (!arg_tensor(call, 0) || !arg_dims(call, 1, 0, true) ||
      !arg_bool(call, 2, &is_exclusive))
    return POISON;
  ExprValue val = call->args[0];
  Name dim = call->dims[1].names[0];
  if (elab_type(e, val)->dtype == DT_bool) {
    if (op == OP_add &&
        !elab_counts_fit(e, call->exprs[0], elab_type(e, val), &dim, 1,
                         "count in i64, as in cumsum(cast(x, i64), D)"))
      return POISON;
    val = elab_cast(e, val, DT_i32);
  }
  int64_t size = type_size(elab_type(e, val), dim);
  if (is_exclusive)
    val = elab_slice(e, elab_pad(e, val, dim, 1, 0, neutral), dim, 0, size);
  for (int64_t n = 1; n < size && !expr_value_is_poison(val); n *= 2)
    val = pointwise2(e, op, val, shift_pad(e, val, dim, n, neutral));
  return val;
}

ExprValue builtin_cumsum(BuiltinCall *call) {
  return cumulate(call, OP_add, 0);
}

ExprValue builtin_cumprod(BuiltinCall *call) {
  return cumulate(call, OP_mul, 1);
}

static ExprValue product_along(Elab *e, ExprValue val, Name dim) {
  while (expr_value_is_tensor(val)) {
    int64_t size = type_size(elab_type(e, val), dim);
    if (size == 1) return elab_drop(e, val, dim);
    if (size % 2 == 1) val = elab_pad(e, val, dim, 0, 1, 1);
    int64_t half = (size + 1) / 2;
    ExprValue first = elab_slice(e, val, dim, 0, half);
    val = pointwise2(e, OP_mul, first, elab_slice(e, val, dim, half, half));
  }
  return val;
}

ExprValue builtin_prod(BuiltinCall *call) {
  Elab *e = call->e;
  if (!arg_tensor(call, 0) || !arg_dims(call, 1, 0, false)) return POISON;
  ExprValue val = call->args[0];
  if (elab_type(e, val)->dtype == DT_bool) val = elab_cast(e, val, DT_i32);
  for (int i = 0; i < call->dims[1].n; i++)
    val = product_along(e, val, call->dims[1].names[i]);
  return val;
}
