/*
 * pointwise.c -- applies pointwise operators to any mixture of numbers, tensors
 * and lists.
 *
 * Numbers alone are computed at compile time. A number beside a tensor takes
 * the tensor's dtype, which is widened where its integers cannot hold the
 * number. Tensors are promoted by explicit casts, so that all operands of a
 * node have one dtype.
 */
#include "frontend/elaborate/emit.h"

/* ---- dtypes ---- */

static bool is_weak_float(const Elab *e, ExprValue val) {
  return val.kind == EXPR_VALUE_float ||
         (expr_value_is_tensor(val) && val.is_weak &&
          dtype_class(elab_type(e, val)->dtype) == CLASS_FLOAT);
}

/* The narrowest integers that hold both those of `dtype` and the number. */
static DType pointwise_widen(DType dtype, ExprValue val) {
  static const DType wider[] = {DT_i8, DT_i16, DT_i32, DT_i64};
  if (elab_fits(dtype, val)) return dtype;
  for (int i = 0; i < ARRAY_LENGTH(wider) - 1; i++)
    if (elab_fits(wider[i], val)) return dtype_promote(dtype, wider[i]);
  return DT_i64;
}

/* bool < integers < floats.  Numbers, and floats computed from numbers and iota
 * only, do not widen a dtype of their own class. */
static DType pointwise_promote(const Elab *e, const ExprValue *args, int n) {
  bool is_known = false, has_weak_float = false, has_int = false;
  DType dtype = DT_bool;
  for (int i = 0; i < n; i++) {
    if (is_weak_float(e, args[i]))
      has_weak_float = true;
    else if (args[i].kind == EXPR_VALUE_int)
      has_int = true;
    else if (expr_value_is_tensor(args[i])) {
      DType own = elab_type(e, args[i])->dtype;
      dtype = is_known ? dtype_promote(dtype, own) : own;
      is_known = true;
    }
  }
  if (has_weak_float && dtype_class(dtype) != CLASS_FLOAT) return DT_f32;
  if (has_int && dtype_class(dtype) == CLASS_BOOL) dtype = DT_i32;
  for (int i = 0; i < n && dtype_class(dtype) == CLASS_INT; i++)
    if (args[i].kind == EXPR_VALUE_int) dtype = pointwise_widen(dtype, args[i]);
  return dtype;
}

static DType pointwise_dtype(const Elab *e, Op op, const ExprValue *args,
                             int n) {
  DType dtype = pointwise_promote(e, args, n);
  switch (op_info(op)->pw_class) {
  case PW_FLOAT: return dtype_class(dtype) == CLASS_FLOAT ? dtype : DT_f32;
  case PW_ARITH:
    return dtype == DT_bool && !op_has(op, OP_FLAG_identity) ? DT_i32 : dtype;
  case PW_COMPARE:
  case PW_LOGIC:
  case PW_INTEGER:
  case PW_SELECT: return dtype;
  }
  UNREACHABLE();
}

/* Constants of a graph are doubles. */
static bool is_kept(Elab *e, ExprValue val, DType dtype) {
  const int64_t most = INT64_C(1) << 53;
  if (val.kind != EXPR_VALUE_int || dtype_class(dtype) != CLASS_INT ||
      (val.integer <= most && val.integer >= -most))
    return true;
  diag(e->diags, DIAG_inexact_integer, e->graph->span, (long long)val.integer);
  return false;
}

static ExprValue pointwise_to_tensor(Elab *e, ExprValue val, DType dtype) {
  if (expr_value_is_tensor(val)) return elab_cast(e, val, dtype);
  if (!is_kept(e, val, dtype)) return POISON;
  return elab_number(e, dtype, expr_value_to_double(val));
}

/* ---- operands ---- */

static bool pointwise_check_operand(Elab *e, Op op, PwClass class,
                                    ExprValue val, const Expr *x) {
  const char *wanted = NULL;
  DTypeClass own = CLASS_FLOAT;
  if (expr_value_is_tensor(val))
    own = dtype_class(elab_type(e, val)->dtype);
  else if (val.kind == EXPR_VALUE_bool)
    own = CLASS_BOOL;
  else if (val.kind == EXPR_VALUE_int)
    own = CLASS_INT;
  else if (val.kind != EXPR_VALUE_float)
    wanted = "a number or a tensor";
  if (class == PW_LOGIC && own != CLASS_BOOL) wanted = "a boolean";
  if (class == PW_INTEGER && own != CLASS_INT) wanted = "an integer";
  if (!wanted) return true;
  diag(e->diags, DIAG_wrong_operand, x ? x->span : e->graph->span,
       op_spelling(op), wanted, expr_value_describe(e, val));
  return false;
}

static bool pointwise_unify(Elab *e, const ExprValue *args,
                            const Expr *const *exprs, int n) {
  for (int i = 0; i < n; i++)
    for (int j = i + 1; j < n; j++)
      if (expr_value_is_tensor(args[i]) && expr_value_is_tensor(args[j]) &&
          !elab_unify(e, elab_type(e, args[i]), elab_type(e, args[j]),
                      exprs ? exprs[i] : NULL, exprs ? exprs[j] : NULL, NULL,
                      NULL))
        return false;
  return true;
}

static ExprValue pointwise_append(Elab *e, Op op, const ExprValue *args,
                                  const Expr *const *exprs, int n) {
  int first = op == OP_select; /* its condition stays bool */
  for (int i = 0; i < n; i++)
    if (!pointwise_check_operand(e, op,
                                 i < first ? PW_LOGIC : op_info(op)->pw_class,
                                 args[i], exprs ? exprs[i] : NULL))
      return POISON;
  if (!pointwise_unify(e, args, exprs, n)) return POISON;
  DType typed = pointwise_dtype(e, op, args + first, n - first), dtype = typed;
  /* A number beside a 16-bit float is not rounded to it. */
  for (int i = first; i < n && dtype_is_16bit(typed); i++)
    if (!expr_value_is_tensor(args[i]) || args[i].is_weak) dtype = DT_f32;
  ExprValue inputs[3];
  bool is_weak = true;
  for (int i = 0; i < n; i++) {
    is_weak = is_weak && (!expr_value_is_tensor(args[i]) || args[i].is_weak);
    inputs[i] = pointwise_to_tensor(e, args[i], i < first ? DT_bool : dtype);
  }
  Attrs attrs = {0};
  ExprValue out = elab_emit(e, op, inputs, n, &attrs);
  if (dtype != typed && expr_value_is_tensor(out) &&
      elab_type(e, out)->dtype == dtype)
    out = elab_cast(e, out, typed);
  out.is_weak = is_weak;
  return out;
}

static ExprValue pointwise_map_list(Elab *e, Op op, const ExprValue *args,
                                    const Expr *const *exprs, int n,
                                    int length) {
  ExprValue list = expr_value_list(e, length);
  for (int i = 0; i < length; i++) {
    ExprValue one[3];
    for (int j = 0; j < n; j++)
      one[j] =
          args[j].kind == EXPR_VALUE_list ? args[j].list->items[i] : args[j];
    list.list->items[i] = pointwise(e, op, one, exprs, n);
    if (expr_value_is_poison(list.list->items[i])) return POISON;
  }
  return expr_value_list_nested(e, list, e->graph->span);
}

static bool has_tensor(ExprValue val) {
  bool has = expr_value_is_tensor(val);
  for (int i = 0; val.kind == EXPR_VALUE_list && i < val.list->n && !has; i++)
    has = has_tensor(val.list->items[i]);
  return has;
}

/* `==` and `!=` compare lists without tensors as one value, and any value with
 * none. */
static bool compares_whole(Elab *e, Op op, const ExprValue *args, int n) {
  if (n != 2 || (op != OP_eq && op != OP_ne)) return false;
  expr_value_charge(e, args[0]);
  expr_value_charge(e, args[1]);
  bool has_none =
      args[0].kind == EXPR_VALUE_none || args[1].kind == EXPR_VALUE_none;
  return has_none || (!has_tensor(args[0]) && !has_tensor(args[1]));
}

ExprValue pointwise(Elab *e, Op op, const ExprValue *args,
                    const Expr *const *exprs, int n) {
  int length = -1;
  bool is_static = true;
  for (int i = 0; i < n; i++)
    if (expr_value_is_poison(args[i])) return POISON;
  if (compares_whole(e, op, args, n))
    return expr_value_compute(e, op, args, exprs, n);
  for (int i = 0; i < n; i++) {
    is_static = is_static && !expr_value_is_tensor(args[i]);
    if (args[i].kind != EXPR_VALUE_list) continue;
    if (length >= 0 && length != args[i].list->n) {
      diag(e->diags, DIAG_list_lengths, e->graph->span, length,
           args[i].list->n);
      return POISON;
    }
    length = args[i].list->n;
  }
  if (length >= 0) return pointwise_map_list(e, op, args, exprs, n, length);
  if (is_static) return expr_value_compute(e, op, args, exprs, n);
  return pointwise_append(e, op, args, exprs, n);
}

ExprValue pointwise1(Elab *e, Op op, ExprValue a) {
  return pointwise(e, op, &a, NULL, 1);
}

ExprValue pointwise2(Elab *e, Op op, ExprValue a, ExprValue b) {
  const ExprValue args[] = {a, b};
  return pointwise(e, op, args, NULL, 2);
}

ExprValue pointwise3(Elab *e, Op op, ExprValue a, ExprValue b, ExprValue c) {
  const ExprValue args[] = {a, b, c};
  return pointwise(e, op, args, NULL, 3);
}
