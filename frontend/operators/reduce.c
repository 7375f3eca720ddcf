/*
 * reduce.c -- products, reductions and rows (softmax and its kin).
 */
#include "frontend/internal.h"

#include <math.h>
#include <string.h>

/* ---- reductions ---- */

Val elab_reduce(Elab *e, Op op, Val val, const Name *dims, int n) {
  if (n == 0 || !val_is_tensor(val)) return val;
  Attrs attrs = {0};
  attrs_names(&attrs, ATTR_over, dims, n);
  return elab_emit(e, op, &val, 1, &attrs);
}

static double count(const Type *type, const Name *dims, int n) {
  double product = 1;
  for (int i = 0; i < n; i++) product *= (double)type_size(type, dims[i]);
  return product;
}

Val elab_mean(Elab *e, Val val, const Name *dims, int n) {
  if (!val_is_tensor(val)) return val;
  double elements = count(elab_type(e, val), dims, n);
  Val total = elab_reduce(e, OP_sum, val, dims, n);
  return elements == 1 ? total
                       : pointwise2(e, OP_div, total, val_real(elements));
}

Val elab_reduce_all(Elab *e, Op op, Val val) {
  if (!val_is_tensor(val)) return val;
  const Type *type = elab_type(e, val);
  Name names[MAX_RANK];
  for (int i = 0; i < type->rank; i++) names[i] = type->dims[i].name;
  return elab_reduce(e, op, val, names, type->rank);
}

Val elab_mean_all(Elab *e, Val val) {
  if (!val_is_tensor(val)) return val;
  const Type *type = elab_type(e, val);
  Name names[MAX_RANK];
  for (int i = 0; i < type->rank; i++) names[i] = type->dims[i].name;
  return elab_mean(e, val, names, type->rank);
}

/* sum max min; bools are counted. */
Val builtin_reduce(BuiltinCall *call) {
  Elab *e = call->e;
  if (!arg_tensor(call, 0) || !arg_dims(call, 1, 0, false)) return POISON;
  if (elab_type(e, call->args[0])->dtype == DT_bool)
    call->args[0] = elab_cast(e, call->args[0], DT_i32);
  return elab_reduce(e, call->builtin->op, call->args[0], call->dims[1].names,
                     call->dims[1].n);
}

Val builtin_mean(BuiltinCall *call) {
  if (!arg_real_tensor(call, 0) || !arg_dims(call, 1, 0, false)) return POISON;
  return elab_mean(call->e, call->args[0], call->dims[1].names,
                   call->dims[1].n);
}

/* ---- spreads and norms ---- */

/* The mean square distance from the mean, of which `correction` elements are
 * not counted; false: told. */
static bool variance(BuiltinCall *call, Val *out) {
  Elab *e = call->e;
  int64_t correction;
  if (!arg_real_tensor(call, 0) || !arg_dims(call, 1, 0, false) ||
      !arg_int(call, 2, 0, &correction))
    return false;
  Val x = call->args[0];
  const Name *dims = call->dims[1].names;
  int n = call->dims[1].n;
  double kept = count(elab_type(e, x), dims, n) - (double)correction;
  if (kept <= 0) {
    (void)arg_wrong(call, 2, "less than the number of elements");
    return false;
  }
  Val away = pointwise2(e, OP_sub, x, elab_mean(e, x, dims, n));
  Val sum = elab_reduce(e, OP_sum, pointwise2(e, OP_mul, away, away), dims, n);
  *out = kept == 1 ? sum : pointwise2(e, OP_div, sum, val_real(kept));
  return true;
}

/* sqrt(x) whose gradient at 0 is 0, as PyTorch's of std and norms. */
static Val sqrt_or_zero(Elab *e, Val x) {
  Val is_zero = pointwise2(e, OP_eq, x, val_real(0));
  Val root =
      pointwise1(e, OP_sqrt, pointwise3(e, OP_select, is_zero, val_real(1), x));
  return pointwise3(e, OP_select, is_zero, val_real(0), root);
}

Val builtin_var(BuiltinCall *call) {
  Val out;
  return variance(call, &out) ? out : POISON;
}

Val builtin_std(BuiltinCall *call) {
  Val out;
  return variance(call, &out) ? sqrt_or_zero(call->e, out) : POISON;
}

/* m sqrt(sum((x / m)^2)), m the largest magnitude, so that no square overflows
 * or vanishes; where m is 0 or infinite it is left out. */
Val builtin_l2norm(BuiltinCall *call) {
  Elab *e = call->e;
  if (!arg_real_tensor(call, 0) || !arg_dims(call, 1, 0, false)) return POISON;
  Val x = call->args[0];
  const Name *dims = call->dims[1].names;
  int n = call->dims[1].n;
  Val most = elab_reduce(
      e, OP_max, pointwise1(e, OP_abs, pointwise1(e, OP_stop, x)), dims, n);
  Val is_plain = pointwise2(e, OP_or, pointwise2(e, OP_eq, most, val_real(0)),
                            pointwise2(e, OP_eq, most, val_real(INFINITY)));
  Val scale = pointwise3(e, OP_select, is_plain, val_real(1), most);
  Val part = pointwise2(e, OP_div, x, scale);
  Val sum = elab_reduce(e, OP_sum, pointwise2(e, OP_mul, part, part), dims, n);
  return pointwise2(e, OP_mul, scale, sqrt_or_zero(e, sum));
}

/* any is the maximum, all the minimum of 0 and 1. */
Val builtin_truth(BuiltinCall *call) {
  Elab *e = call->e;
  if (!arg_tensor(call, 0)) return POISON;
  if (elab_type(e, call->args[0])->dtype != DT_bool)
    return arg_wrong(call, 0, "truth values");
  if (!arg_dims(call, 1, 0, false)) return POISON;
  Op op = strcmp(call->builtin->name, "any") == 0 ? OP_max : OP_min;
  Val number = elab_cast(e, call->args[0], DT_i32);
  Val extreme =
      elab_reduce(e, op, number, call->dims[1].names, call->dims[1].n);
  return pointwise2(e, OP_ne, extreme, val_int(0));
}

Val elab_argmax(Elab *e, Val val, Name dim) {
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dim, dim);
  return elab_emit(e, OP_argmax, &val, 1, &attrs);
}

Val builtin_argmax(BuiltinCall *call) {
  if (!arg_tensor(call, 0) || !arg_dims(call, 1, 0, true)) return POISON;
  return elab_argmax(call->e, call->args[0], call->dims[1].names[0]);
}

/* The greatest of -x, of integers of -1 - x, which none overflows. */
Val builtin_argmin(BuiltinCall *call) {
  Elab *e = call->e;
  if (!arg_tensor(call, 0) || !arg_dims(call, 1, 0, true)) return POISON;
  Val x = call->args[0];
  DType dtype = elab_type(e, x)->dtype;
  if (dtype == DT_u8 || dtype == DT_bool) x = elab_cast(e, x, DT_i32);
  Val turned = dtype_class(dtype) == CLASS_REAL
                   ? pointwise1(e, OP_neg, x)
                   : pointwise2(e, OP_sub, val_int(-1), x);
  return elab_argmax(e, turned, call->dims[1].names[0]);
}

/* logsumexp softmax log_softmax; layernorm rmsnorm, which have an eps. */
Val builtin_rows(BuiltinCall *call) {
  Elab *e = call->e;
  if (!arg_real_tensor(call, 0) || !arg_dims(call, 1, 0, false)) return POISON;
  Attrs attrs = {0};
  attrs_names(&attrs, ATTR_over, call->dims[1].names, call->dims[1].n);
  if (call->builtin->n_formals > 2) {
    double eps;
    if (!arg_real(call, 2, &eps)) return POISON;
    if (!(eps >= 0)) return arg_wrong(call, 2, "at least 0");
    attrs_real(&attrs, ATTR_eps, eps);
  }
  return elab_emit(e, call->builtin->op, call->args, 1, &attrs);
}

/* ---- dot ---- */

static void same_dtype(Elab *e, Val *a, Val *b) {
  DType x = elab_type(e, *a)->dtype, y = elab_type(e, *b)->dtype;
  DType dtype = a->is_weak && !b->is_weak   ? y
                : b->is_weak && !a->is_weak ? x
                                            : dtype_promote(x, y);
  if (dtype_class(dtype) != CLASS_REAL) dtype = DT_f32;
  *a = elab_cast(e, *a, dtype);
  *b = elab_cast(e, *b, dtype);
}

Val builtin_dot(BuiltinCall *call) {
  Elab *e = call->e;
  if (!arg_tensor(call, 0) || !arg_tensor(call, 1)) return POISON;
  if (call->dims[2].n < 0) call->dims[2].n = 0;
  if (!arg_dims(call, 2, 0, false) || !arg_dims(call, 2, 1, false))
    return POISON;
  if (!elab_unify(e, elab_type(e, call->args[0]), elab_type(e, call->args[1]),
                  call->exprs[0], call->exprs[1], NULL, NULL))
    return POISON;
  same_dtype(e, &call->args[0], &call->args[1]);
  Attrs attrs = {0};
  attrs_names(&attrs, ATTR_over, call->dims[2].names, call->dims[2].n);
  return elab_emit(e, OP_dot, call->args, 2, &attrs);
}
