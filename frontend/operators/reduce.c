/*
 * reduce.c -- builds reductions, dot, and normalisations along dims such as
 * softmax and layernorm.
 */
#include "frontend/elaborate/emit.h"
#include "frontend/elaborate/match.h"
#include "frontend/operators/operators.h"

#include <string.h>

/* ---- reductions ---- */

/* sum max min; bools are counted. */
ExprValue builtin_reduce(BuiltinCall *call) {
  Elab *e = call->e;
  if (!arg_tensor(call, 0) || !arg_dims(call, 1, 0, false)) return POISON;
  const Type *type = elab_type(e, call->args[0]);
  if (type->dtype == DT_bool) {
    if (call->builtin->op == OP_sum &&
        !elab_counts_fit(e, call->exprs[0], type, call->dims[1].names,
                         call->dims[1].n,
                         "count in i64, as in sum(cast(x, i64), D)"))
      return POISON;
    call->args[0] = elab_cast(e, call->args[0], DT_i32);
  }
  return elab_reduce(e, call->builtin->op, call->args[0], call->dims[1].names,
                     call->dims[1].n);
}

ExprValue builtin_mean(BuiltinCall *call) {
  if (!arg_float_tensor(call, 0) || !arg_dims(call, 1, 0, false)) return POISON;
  return elab_mean(call->e, call->args[0], call->dims[1].names,
                   call->dims[1].n);
}

/* ---- spreads and norms ---- */

/* The mean square distance of x, whose argument is checked, from the mean, of
 * which `correction` elements are not counted; false after a message. */
static bool reduce_variance(BuiltinCall *call, ExprValue x, ExprValue *out) {
  Elab *e = call->e;
  int64_t correction;
  if (!arg_int(call, 2, 0, &correction)) return false;
  const Name *dims = call->dims[1].names;
  int n = call->dims[1].n;
  double kept = elab_count(elab_type(e, x), dims, n) - (double)correction;
  if (kept <= 0) {
    (void)arg_wrong(call, 2, "less than the number of elements");
    return false;
  }
  ExprValue away = pointwise2(e, OP_sub, x, elab_mean(e, x, dims, n));
  ExprValue sum =
      elab_reduce(e, OP_sum, pointwise2(e, OP_mul, away, away), dims, n);
  *out = kept == 1 ? sum : pointwise2(e, OP_div, sum, expr_value_float(kept));
  return true;
}

/* sqrt(x) whose gradient at 0 is 0, as PyTorch's of std and norms. */
static ExprValue sqrt_or_zero(Elab *e, ExprValue x) {
  ExprValue is_zero = pointwise2(e, OP_eq, x, expr_value_float(0));
  ExprValue root = pointwise1(
      e, OP_sqrt, pointwise3(e, OP_select, is_zero, expr_value_float(1), x));
  return pointwise3(e, OP_select, is_zero, expr_value_float(0), root);
}

static bool arg_rows(BuiltinCall *call) {
  return arg_float_tensor(call, 0) && arg_dims(call, 1, 0, false);
}

ExprValue builtin_var(BuiltinCall *call) {
  ExprValue out;
  if (!arg_rows(call)) return POISON;
  return reduce_variance(call, call->args[0], &out) ? out : POISON;
}

ExprValue reduce_most(Elab *e, ExprValue x, const Name *dims, int n) {
  ExprValue fixed = pointwise1(e, OP_stop_gradient, x);
  return elab_reduce(e, OP_max, pointwise1(e, OP_abs, fixed), dims, n);
}

/* A power of two c, so that sums of squares of c x neither overflow nor lose
 * elements that count: 1 but for rows of very large or very small elements.
 * With the norm m of a row, the gradient has 1 / (c^2 m), which fits as well.
 */
static ExprValue square_scale(Elab *e, ExprValue x, const Name *dims, int n) {
  static const struct {
    Op is;
    double bound, scale;
  } bands[] = {{OP_lt, 0x1p-39, 0x1p60},
               {OP_lt, 0x1p-80, 0x1p96},
               {OP_gt, 0x1p59, 0x1p-80}};
  ExprValue most = reduce_most(e, x, dims, n);
  ExprValue c = expr_value_float(1);
  for (int i = 0; i < 3; i++)
    c = pointwise3(
        e, OP_select,
        pointwise2(e, bands[i].is, most, expr_value_float(bands[i].bound)),
        expr_value_float(bands[i].scale), c);
  return c;
}

ExprValue builtin_std(BuiltinCall *call) {
  Elab *e = call->e;
  ExprValue x = call->args[0], out;
  if (!arg_rows(call)) return POISON;
  ExprValue c = square_scale(e, x, call->dims[1].names, call->dims[1].n);
  if (!reduce_variance(call, pointwise2(e, OP_mul, x, c), &out)) return POISON;
  return pointwise2(e, OP_div, sqrt_or_zero(e, out), c);
}

ExprValue builtin_l2norm(BuiltinCall *call) {
  Elab *e = call->e;
  if (!arg_rows(call)) return POISON;
  ExprValue x = call->args[0];
  const Name *dims = call->dims[1].names;
  int n = call->dims[1].n;
  ExprValue c = square_scale(e, x, dims, n);
  ExprValue part = pointwise2(e, OP_mul, x, c);
  ExprValue sum =
      elab_reduce(e, OP_sum, pointwise2(e, OP_mul, part, part), dims, n);
  return pointwise2(e, OP_div, sqrt_or_zero(e, sum), c);
}

/* any is the maximum, all the minimum of 0 and 1. */
ExprValue builtin_any_all(BuiltinCall *call) {
  Elab *e = call->e;
  if (!arg_tensor(call, 0)) return POISON;
  if (elab_type(e, call->args[0])->dtype != DT_bool)
    return arg_wrong(call, 0, "booleans");
  if (!arg_dims(call, 1, 0, false)) return POISON;
  Op op = strcmp(call->builtin->name, "any") == 0 ? OP_max : OP_min;
  ExprValue number = elab_cast(e, call->args[0], DT_i32);
  ExprValue extreme =
      elab_reduce(e, op, number, call->dims[1].names, call->dims[1].n);
  return pointwise2(e, OP_ne, extreme, expr_value_int(0));
}

ExprValue builtin_argmax(BuiltinCall *call) {
  if (!arg_tensor(call, 0) || !arg_dims(call, 1, 0, true)) return POISON;
  return elab_argmax(call->e, call->args[0], call->dims[1].names[0]);
}

/* The greatest of -x, of integers of -1 - x, which none overflows. */
ExprValue builtin_argmin(BuiltinCall *call) {
  Elab *e = call->e;
  if (!arg_tensor(call, 0) || !arg_dims(call, 1, 0, true)) return POISON;
  ExprValue x = call->args[0];
  DType dtype = elab_type(e, x)->dtype;
  if (dtype == DT_u8 || dtype == DT_bool) x = elab_cast(e, x, DT_i32);
  ExprValue turned = dtype_class(dtype) == CLASS_FLOAT
                         ? pointwise1(e, OP_neg, x)
                         : pointwise2(e, OP_sub, expr_value_int(-1), x);
  return elab_argmax(e, turned, call->dims[1].names[0]);
}

/* logsumexp softmax log_softmax; layernorm rmsnorm, which have an eps. */
ExprValue builtin_rows(BuiltinCall *call) {
  Elab *e = call->e;
  if (!arg_float_tensor(call, 0) || !arg_dims(call, 1, 0, false)) return POISON;
  Attrs attrs = {0};
  attrs_names(&attrs, ATTR_over, call->dims[1].names, call->dims[1].n);
  if (call->builtin->n_params > 2) {
    double eps;
    if (!arg_float(call, 2, &eps)) return POISON;
    if (!(eps >= 0)) return arg_wrong(call, 2, "at least 0");
    attrs_float(&attrs, ATTR_eps, eps);
  }
  return elab_emit(e, call->builtin->op, call->args, 1, &attrs);
}

/* ---- dot ---- */

static void dot_same_dtype(Elab *e, ExprValue *a, ExprValue *b) {
  DType x = elab_type(e, *a)->dtype, y = elab_type(e, *b)->dtype;
  DType dtype = a->is_weak && !b->is_weak   ? y
                : b->is_weak && !a->is_weak ? x
                                            : dtype_promote(x, y);
  if (dtype_class(dtype) != CLASS_FLOAT) dtype = DT_f32;
  *a = elab_cast(e, *a, dtype);
  *b = elab_cast(e, *b, dtype);
}

ExprValue builtin_dot(BuiltinCall *call) {
  Elab *e = call->e;
  if (!arg_tensor(call, 0) || !arg_tensor(call, 1)) return POISON;
  if (call->dims[2].n < 0) call->dims[2].n = 0;
  if (!arg_dims(call, 2, 0, false) || !arg_dims(call, 2, 1, false))
    return POISON;
  if (!elab_unify(e, elab_type(e, call->args[0]), elab_type(e, call->args[1]),
                  call->exprs[0], call->exprs[1], NULL, NULL))
    return POISON;
  dot_same_dtype(e, &call->args[0], &call->args[1]);
  Attrs attrs = {0};
  attrs_names(&attrs, ATTR_over, call->dims[2].names, call->dims[2].n);
  return elab_emit(e, OP_dot, call->args, 2, &attrs);
}
