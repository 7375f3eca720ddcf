/*
 * loss.c -- builds losses from reductions and pointwise operators.
 */
#include "frontend/elaborate/emit.h"
#include "frontend/elaborate/output.h"
#include "frontend/elaborate/scan.h"
#include "frontend/operators/operators.h"

#include <math.h>

/* Losses are f32 throughout, also of 16-bit values. */
static void loss_to_f32(BuiltinCall *call, int at) {
  Elab *e = call->e;
  if (dtype_is_16bit(elab_type(e, call->args[at])->dtype))
    call->args[at] = elab_cast(e, call->args[at], DT_f32);
}

static bool same_dims(BuiltinCall *call, ExprValue a, ExprValue b, int at) {
  Elab *e = call->e;
  const Type *x = elab_type(e, a), *y = elab_type(e, b);
  if (!elab_unify(e, x, y, call->exprs[0], call->exprs[1], NULL, NULL))
    return false;
  if (type_same_dims(x, y)) return true;
  diag(e->diags, DIAG_dims_differ, call->exprs[at]->span,
       expr_describe(e, call->exprs[1]), type_describe(e, y),
       type_describe(e, x));
  return false;
}

/* Logits x over V and integers y: y must have the dims of x but V. */
bool loss_check_classes(BuiltinCall *call) {
  Elab *e = call->e;
  if (!arg_tensor(call, 0) || !arg_tensor(call, 1) ||
      !arg_dims(call, 2, 0, true))
    return false;
  if (!arg_class(call, 0, CLASS_FLOAT) || !arg_class(call, 1, CLASS_INT))
    return false;
  const Type *x = elab_type(e, call->args[0]), *y = elab_type(e, call->args[1]);
  if (!elab_unify(e, x, y, call->exprs[0], call->exprs[1], NULL, NULL))
    return false;
  const Type *rest = type_without(e->arena, x, call->dims[2].names, 1);
  limits_note(call, call->args[1], type_size(x, call->dims[2].names[0]));
  loss_to_f32(call, 0);
  if (type_same_dims(rest, y)) return true;
  diag(e->diags, DIAG_dims_differ, call->exprs[1]->span,
       expr_describe(e, call->exprs[1]), type_describe(e, y),
       type_describe(e, rest));
  return false;
}

ExprValue loss_indices(Elab *e, ExprValue x, Name dim) {
  return elab_positions(e, dim, type_size(elab_type(e, x), dim));
}

/* The element of x at y: the sum over V of x where the index is y. */
ExprValue loss_gather(Elab *e, ExprValue x, ExprValue y, Name dim) {
  ExprValue chosen = pointwise2(e, OP_eq, y, loss_indices(e, x, dim));
  return elab_reduce(e, OP_sum,
                     pointwise3(e, OP_select, chosen, x, expr_value_float(0)),
                     &dim, 1);
}

/* ---- arguments ---- */

bool arg_ignore(BuiltinCall *call, int at) {
  ExprValue ignore = call->args[at];
  if (ignore.kind == EXPR_VALUE_none || ignore.kind == EXPR_VALUE_int)
    return true;
  arg_wrong(call, at, "an integer or none");
  return false;
}

/* A number for each class as a tensor [dim]. */
static bool weights_of_list(BuiltinCall *call, int at, Name dim, int64_t size) {
  Elab *e = call->e;
  const ExprValueList *list = call->args[at].list;
  if (list->n != size) {
    arg_wrong(call, at,
              arena_printf(e->arena, "a tensor [%s] or a list of %lld numbers",
                           dim, (long long)size));
    return false;
  }
  for (int i = 0; i < list->n; i++) {
    ExprValue item = list->items[i];
    if (expr_value_is_number(item) && expr_value_to_double(item) >= 0) continue;
    call->args[at] = item;
    arg_wrong(call, at, "numbers of at least 0");
    return false;
  }
  ExprValue *items = ARENA_ARRAY(e->arena, ExprValue, list->n);
  for (int i = 0; i < list->n; i++)
    items[i] = elab_broadcast(
        e, elab_number(e, DT_f32, expr_value_to_double(list->items[i])), &dim,
        &(int64_t){1}, 1);
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dim, dim);
  call->args[at] =
      list->n == 1 ? items[0] : elab_emit(e, OP_concat, items, list->n, &attrs);
  return expr_value_is_tensor(call->args[at]);
}

/* Weights of the classes along `dim` of x, or none. */
static bool arg_weights(BuiltinCall *call, int at, Name dim) {
  Elab *e = call->e;
  int64_t size = type_size(elab_type(e, call->args[0]), dim);
  if (call->args[at].kind == EXPR_VALUE_none) return true;
  if (call->args[at].kind == EXPR_VALUE_list)
    return weights_of_list(call, at, dim, size);
  const char *wanted =
      arena_printf(e->arena, "a tensor [%s] or a list of %lld numbers", dim,
                   (long long)size);
  if (expr_value_is_tensor(call->args[at])) {
    const Type *type = elab_type(e, call->args[at]);
    if (type->rank == 1 && type->dims[0].name == dim &&
        type->dims[0].size == size && arg_float_tensor(call, at)) {
      loss_to_f32(call, at);
      return true;
    }
  }
  arg_wrong(call, at, wanted);
  return false;
}

/* ---- means over what counts ---- */

/* Mean over the y that are not `ignore`, each with its weight (none: 1); 0 if
 * there is none. */
static ExprValue mean_kept(Elab *e, ExprValue each, ExprValue y,
                           ExprValue ignore, ExprValue weight) {
  bool has_weight = weight.kind != EXPR_VALUE_none;
  ExprValue count = weight;
  if (ignore.kind == EXPR_VALUE_int) {
    ExprValue keep = pointwise2(e, OP_ne, y, ignore);
    each = pointwise3(e, OP_select, keep, each, expr_value_float(0));
    count = has_weight
                ? pointwise3(e, OP_select, keep, weight, expr_value_float(0))
                : elab_cast(e, keep, DT_f32);
  }
  ExprValue n = elab_reduce_all(e, OP_sum, count);
  ExprValue sum = elab_reduce_all(e, OP_sum, each);
  ExprValue divisor =
      has_weight ? pointwise3(e, OP_select,
                              pointwise2(e, OP_eq, n, expr_value_float(0)),
                              expr_value_float(1), n)
                 : pointwise2(e, OP_maximum, n, expr_value_float(1));
  return elab_ratio(e, pointwise2(e, OP_div, sum, divisor), sum, n);
}

/* ---- cross entropy ---- */

/* A factor times log p, where 0 of -inf is 0, as 0 log 0 in kl. */
static ExprValue weighted_log(Elab *e, ExprValue factor, ExprValue logp) {
  ExprValue is_zero = pointwise2(e, OP_eq, factor, expr_value_float(0));
  ExprValue is_none = pointwise2(e, OP_eq, logp, expr_value_float(-INFINITY));
  ExprValue skips = pointwise2(e, OP_and, is_zero, is_none);
  logp = pointwise3(e, OP_select, skips, expr_value_float(0), logp);
  return pointwise2(e, OP_mul, factor, logp);
}

/* The parts of log p of the elements of a row: x - max - log_sum.  The log of
 * the sum would be lost beside a large maximum.  Its gradient reads x and two
 * numbers of each row, so nothing else of the size of x is stored. */
typedef struct RowLogs {
  ExprValue max, log_sum;
} RowLogs;

static RowLogs row_logs(Elab *e, ExprValue x, Name dim) {
  RowLogs logs;
  Attrs attrs = {0};
  attrs_names(&attrs, ATTR_over, &dim, 1);
  attrs_int(&attrs, ATTR_relative, 1);
  logs.max = elab_reduce(e, OP_max, x, &dim, 1);
  logs.max = pointwise1(e, OP_stop_gradient, logs.max);
  logs.log_sum = elab_emit(e, OP_logsumexp, &x, 1, &attrs);
  return logs;
}

static ExprValue log_share(Elab *e, ExprValue x, const RowLogs *of) {
  ExprValue shifted = pointwise2(e, OP_sub, x, of->max);
  return pointwise2(e, OP_sub, shifted, of->log_sum);
}

ExprValue loss_cross_entropy(BuiltinCall *call, double smooth,
                             ExprValue weight) {
  Elab *e = call->e;
  ExprValue x = call->args[0], y = call->args[1], ignore = call->args[3];
  Name dim = call->dims[2].names[0];
  RowLogs logs = row_logs(e, x, dim);
  ExprValue target = loss_gather(e, x, y, dim);
  if (smooth > 0) { /* separate statements: C does not order arguments */
    ExprValue rest = pointwise2(e, OP_mul, elab_mean(e, x, &dim, 1),
                                expr_value_float(smooth));
    target = pointwise2(e, OP_mul, target, expr_value_float(1 - smooth));
    target = pointwise2(e, OP_add, target, rest);
  }
  ExprValue each = pointwise1(e, OP_neg, log_share(e, target, &logs));
  each = elab_checked(e, each, y, type_size(elab_type(e, x), dim));
  return ignore.kind == EXPR_VALUE_int ? mean_kept(e, each, y, ignore, weight)
                                       : elab_mean_all(e, each);
}

/* Each label contributes (1 - s) w[y] loss[y] + s / V sum over k of w[k]
 * loss[k], where loss[k] is -log p[k].  The sum over all labels is divided by
 * the sum of w[y]. */
static ExprValue weighted_cross_entropy(BuiltinCall *call, double smooth,
                                        ExprValue weight) {
  Elab *e = call->e;
  ExprValue x = call->args[0], y = call->args[1];
  Name dim = call->dims[2].names[0];
  int64_t size = type_size(elab_type(e, x), dim);
  RowLogs logs = row_logs(e, x, dim);
  ExprValue own = loss_gather(e, weight, y, dim);
  ExprValue target = log_share(e, loss_gather(e, x, y, dim), &logs);
  ExprValue each = weighted_log(e, own, target);
  if (smooth > 0) {
    ExprValue all = weighted_log(e, weight, log_share(e, x, &logs));
    all = elab_reduce(e, OP_sum, all, &dim, 1);
    all = pointwise2(e, OP_mul, all, expr_value_float(smooth / (double)size));
    each = pointwise2(e, OP_mul, each, expr_value_float(1 - smooth));
    each = pointwise2(e, OP_add, each, all);
  }
  each = elab_checked(e, pointwise1(e, OP_neg, each), y, size);
  return mean_kept(e, each, y, call->args[3], own);
}

/* y holds the probability of each class: a mean over the other dims. */
static ExprValue soft_cross_entropy(BuiltinCall *call, double smooth,
                                    ExprValue weight) {
  Elab *e = call->e;
  ExprValue x = call->args[0], y = call->args[1];
  Name dim = call->dims[2].names[0];
  double size = (double)type_size(elab_type(e, x), dim);
  if (smooth > 0) {
    y = pointwise2(e, OP_mul, y, expr_value_float(1 - smooth));
    y = pointwise2(e, OP_add, y, expr_value_float(smooth / size));
  }
  if (weight.kind != EXPR_VALUE_none) y = pointwise2(e, OP_mul, y, weight);
  ExprValue logp = elab_reduce(e, OP_log_softmax, x, &dim, 1);
  ExprValue each = elab_reduce(e, OP_sum, weighted_log(e, y, logp), &dim, 1);
  return pointwise1(e, OP_neg, elab_mean_all(e, each));
}

/* Targets with the dims of the logits. */
static bool check_soft(BuiltinCall *call) {
  if (!arg_dims(call, 2, 0, true) || !arg_class(call, 0, CLASS_FLOAT) ||
      !same_dims(call, call->args[0], call->args[1], 1))
    return false;
  loss_to_f32(call, 0);
  loss_to_f32(call, 1);
  if (call->args[3].kind == EXPR_VALUE_none) return true;
  diag(call->e->diags, DIAG_ignore_soft, call->exprs[3]->span,
       expr_describe(call->e, call->exprs[1]));
  return false;
}

ExprValue builtin_cross_entropy(BuiltinCall *call) {
  double smooth;
  Elab *e = call->e;
  if (!arg_tensor(call, 0) || !arg_tensor(call, 1) || !arg_ignore(call, 3))
    return POISON;
  const Type *x = elab_type(e, call->args[0]), *y = elab_type(e, call->args[1]);
  bool is_soft = dtype_class(y->dtype) == CLASS_FLOAT && y->rank >= x->rank;
  if (!(is_soft ? check_soft(call) : loss_check_classes(call))) return POISON;
  if (!arg_float(call, 4, &smooth)) return POISON;
  if (!(smooth >= 0 && smooth <= 1)) return arg_wrong(call, 4, "in 0..1");
  if (!arg_weights(call, 5, call->dims[2].names[0])) return POISON;
  ExprValue weight = call->args[5];
  if (is_soft) return soft_cross_entropy(call, smooth, weight);
  return weight.kind == EXPR_VALUE_none
             ? loss_cross_entropy(call, smooth, weight)
             : weighted_cross_entropy(call, smooth, weight);
}

/* ---- losses of differences ---- */

/* Two floats of the same dims, in at least f32. */
static bool check_pair(BuiltinCall *call) {
  if (!arg_float_tensor(call, 0) || !arg_float_tensor(call, 1) ||
      !same_dims(call, call->args[0], call->args[1], 1))
    return false;
  loss_to_f32(call, 0);
  loss_to_f32(call, 1);
  return true;
}

ExprValue builtin_mse(BuiltinCall *call) {
  Elab *e = call->e;
  if (!check_pair(call)) return POISON;
  ExprValue difference = pointwise2(e, OP_sub, call->args[0], call->args[1]);
  return elab_mean_all(e, pointwise2(e, OP_mul, difference, difference));
}

ExprValue builtin_l1(BuiltinCall *call) {
  Elab *e = call->e;
  if (!check_pair(call)) return POISON;
  ExprValue difference = pointwise2(e, OP_sub, call->args[0], call->args[1]);
  return elab_mean_all(e, pointwise1(e, OP_abs, difference));
}

/* d^2 / 2 below delta, then delta (d - delta / 2).  The square is that of
 * min(d, delta), so that its gradient is finite where d is not. */
ExprValue builtin_huber(BuiltinCall *call) {
  Elab *e = call->e;
  double delta;
  if (!check_pair(call) || !arg_float(call, 2, &delta)) return POISON;
  if (!(delta > 0)) return arg_wrong(call, 2, "above 0");
  ExprValue d = pointwise1(e, OP_abs,
                           pointwise2(e, OP_sub, call->args[0], call->args[1]));
  ExprValue m = pointwise2(e, OP_minimum, d, expr_value_float(delta));
  ExprValue square =
      pointwise2(e, OP_mul, pointwise2(e, OP_mul, m, m), expr_value_float(0.5));
  ExprValue line = pointwise2(
      e, OP_mul, pointwise2(e, OP_sub, d, expr_value_float(delta / 2)),
      expr_value_float(delta));
  ExprValue is_below = pointwise2(e, OP_lt, d, expr_value_float(delta));
  return elab_mean_all(e, pointwise3(e, OP_select, is_below, square, line));
}

/* The dims of the weight are dims of x. */
static bool arg_pos_weight(BuiltinCall *call, int at) {
  Elab *e = call->e;
  if (!arg_float_tensor(call, at)) return false;
  const Type *x = elab_type(e, call->args[0]),
             *w = elab_type(e, call->args[at]);
  for (int i = 0; i < w->rank; i++)
    if (type_find(x, w->dims[i].name) < 0) {
      elab_no_dim(e, call->exprs[0], x, w->dims[i].name, call->exprs[at]->span);
      return false;
    }
  if (!elab_unify(e, x, w, call->exprs[0], call->exprs[at], NULL, NULL))
    return false;
  loss_to_f32(call, at);
  return true;
}

/* (1 - y) softplus(x) + p y softplus(-x), with the weight p of the positive
 * targets or 1.  softplus(x) - x y would be the same of p = 1, but for the
 * digits that cancel. */
ExprValue builtin_bce(BuiltinCall *call) {
  Elab *e = call->e;
  if (!check_pair(call)) return POISON;
  ExprValue x = call->args[0], y = call->args[1];
  bool has_weight = call->args[2].kind != EXPR_VALUE_none;
  if (has_weight && !arg_pos_weight(call, 2)) return POISON;
  ExprValue positive = pointwise1(e, OP_softplus, x);
  ExprValue negative = pointwise1(e, OP_softplus, pointwise1(e, OP_neg, x));
  ExprValue weight = has_weight ? pointwise2(e, OP_mul, call->args[2], y) : y;
  ExprValue hit = pointwise2(e, OP_mul, weight, negative);
  ExprValue miss = pointwise2(
      e, OP_mul, pointwise2(e, OP_sub, expr_value_float(1), y), positive);
  return elab_mean_all(e, pointwise2(e, OP_add, hit, miss));
}

/* y (log y - x) over V, where 0 log 0 is 0; a mean over the other dims. */
ExprValue builtin_kl(BuiltinCall *call) {
  Elab *e = call->e;
  if (!check_pair(call) || !arg_dims(call, 2, 0, false)) return POISON;
  ExprValue x = call->args[0], y = call->args[1];
  ExprValue is_zero = pointwise2(e, OP_eq, y, expr_value_float(0));
  ExprValue log = pointwise1(
      e, OP_log, pointwise3(e, OP_select, is_zero, expr_value_float(1), y));
  ExprValue each = pointwise2(e, OP_mul, y, pointwise2(e, OP_sub, log, x));
  each = pointwise3(e, OP_select, is_zero, expr_value_float(0), each);
  return elab_mean_all(
      e, elab_reduce(e, OP_sum, each, call->dims[2].names, call->dims[2].n));
}

/* x / max(norm, 1e-8).  The gradient has norm^-3, so the norm is that of c x,
 * with a power of two c by which it is below 2^40 sqrt(n).  It is 1 where the
 * norm may be below 1e-8. */
static ExprValue unit_rows(Elab *e, ExprValue x, const DimArg *dims) {
  ExprValue most = reduce_most(e, x, dims->names, dims->n);
  ExprValue c = pointwise3(e, OP_select,
                           pointwise2(e, OP_gt, most, expr_value_float(0x1p20)),
                           expr_value_float(0x1p-40), expr_value_float(1));
  c = pointwise3(e, OP_select,
                 pointwise2(e, OP_gt, most, expr_value_float(0x1p80)),
                 expr_value_float(0x1p-100), c);
  ExprValue part = pointwise2(e, OP_mul, x, c);
  ExprValue squares = elab_reduce(e, OP_sum, pointwise2(e, OP_mul, part, part),
                                  dims->names, dims->n);
  squares = pointwise2(e, OP_maximum, squares, expr_value_float(1e-16));
  return pointwise2(e, OP_mul, part, pointwise1(e, OP_rsqrt, squares));
}

ExprValue builtin_cosine(BuiltinCall *call) {
  Elab *e = call->e;
  if (!check_pair(call) || !arg_dims(call, 2, 0, false)) return POISON;
  const DimArg *dims = &call->dims[2];
  ExprValue x = unit_rows(e, call->args[0], dims);
  ExprValue y = unit_rows(e, call->args[1], dims);
  ExprValue each =
      elab_reduce(e, OP_sum, pointwise2(e, OP_mul, x, y), dims->names, dims->n);
  return pointwise2(e, OP_sub, expr_value_float(1), elab_mean_all(e, each));
}

ExprValue builtin_add_loss(BuiltinCall *call) {
  Elab *e = call->e;
  if (scan_forbids(e, call->x->span, "'add_loss'")) return POISON;
  if (call->x != e->statement) {
    Diag *d = diag(e->diags, DIAG_not_a_value, call->x->span, "'add_loss'");
    diag_help(d, "it stands alone, as a statement");
    return POISON;
  }
  if (!arg_float_tensor(call, 0)) return POISON;
  if (elab_type(e, call->args[0])->rank != 0)
    return arg_wrong(call, 0, "a scalar");
  if (e->is_training) vec_push(e->arena, &e->extra_losses, call->args[0]);
  return (ExprValue){.kind = EXPR_VALUE_none};
}
