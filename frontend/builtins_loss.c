/*
 * builtins_loss.c -- losses and metrics, written in products, reductions and
 * pointwise operators.
 */
#include "frontend/internal.h"

/* Losses are f32 throughout, also of what was typed in 16 bits. */
static void widen(BuiltinCall *call, int at) {
  Elab *e = call->e;
  if (dtype_is_short(elab_type(e, call->args[at])->dtype))
    call->args[at] = elab_cast(e, call->args[at], DT_f32);
}

static bool same_dims(BuiltinCall *call, Val a, Val b, int at) {
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
static bool check_classes(BuiltinCall *call) {
  Elab *e = call->e;
  if (!arg_tensor(call, 0) || !arg_tensor(call, 1) ||
      !arg_dims(call, 2, 0, true))
    return false;
  if (!arg_class(call, 0, CLASS_REAL) || !arg_class(call, 1, CLASS_INT))
    return false;
  const Type *x = elab_type(e, call->args[0]), *y = elab_type(e, call->args[1]);
  if (!elab_unify(e, x, y, call->exprs[0], call->exprs[1], NULL, NULL))
    return false;
  const Type *rest = type_without(e->arena, x, call->dims[2].names, 1);
  widen(call, 0);
  if (type_same_dims(rest, y)) return true;
  diag(e->diags, DIAG_dims_differ, call->exprs[1]->span,
       expr_describe(e, call->exprs[1]), type_describe(e, y),
       type_describe(e, rest));
  return false;
}

static Val positions(Elab *e, Val x, Name dim) {
  int64_t size = type_size(elab_type(e, x), dim);
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dim, dim);
  attrs_ints(&attrs, ATTR_sizes, &size, 1);
  return elab_emit(e, OP_iota, NULL, 0, &attrs);
}

/* The logit at y: the sum over V of x where the position is y. */
static Val pick(Elab *e, Val x, Val y, Name dim) {
  Val chosen = pointwise2(e, OP_eq, y, positions(e, x, dim));
  return elab_reduce(e, OP_sum,
                     pointwise3(e, OP_select, chosen, x, val_real(0)), &dim, 1);
}

/* Mean over the y that are not `ignore`; 0 if there is none. */
static Val mean_kept(Elab *e, Val each, Val y, Val ignore) {
  Val keep = pointwise2(e, OP_ne, y, ignore);
  Val kept = pointwise3(e, OP_select, keep, each, val_real(0));
  Val n = elab_reduce_all(e, OP_sum, elab_cast(e, keep, DT_f32));
  return pointwise2(e, OP_div, elab_reduce_all(e, OP_sum, kept),
                    pointwise2(e, OP_maximum, n, val_real(1)));
}

static Val cross_entropy(BuiltinCall *call, double smooth) {
  Elab *e = call->e;
  Val x = call->args[0], y = call->args[1], ignore = call->args[3];
  if (ignore.kind != VAL_none && ignore.kind != VAL_int)
    return arg_wrong(call, 3, "a whole number or none");
  Name dim = call->dims[2].names[0];
  Val logsum = elab_reduce(e, OP_logsumexp, x, &dim, 1);
  Val target = pick(e, x, y, dim);
  if (smooth > 0) { /* nodes in one order, whatever compiler made this */
    Val rest =
        pointwise2(e, OP_mul, elab_mean(e, x, &dim, 1), val_real(smooth));
    target = pointwise2(e, OP_mul, target, val_real(1 - smooth));
    target = pointwise2(e, OP_add, target, rest);
  }
  Val each = pointwise2(e, OP_sub, logsum, target);
  each = elab_checked(e, each, y, type_size(elab_type(e, x), dim));
  return ignore.kind == VAL_int ? mean_kept(e, each, y, ignore)
                                : elab_mean_all(e, each);
}

Val builtin_cross_entropy(BuiltinCall *call) {
  double smooth;
  if (!check_classes(call) || !arg_real(call, 4, &smooth)) return POISON;
  if (!(smooth >= 0 && smooth <= 1)) return arg_wrong(call, 4, "in 0..1");
  return cross_entropy(call, smooth);
}

/* The runtime takes exp of the mean over the whole evaluation, not here of the
 * mean over a batch (add_metrics). */
Val builtin_perplexity(BuiltinCall *call) {
  if (call->x != call->e->metric) {
    diag(call->e->diags, DIAG_only_metric, call->x->span, call->builtin->name);
    return POISON;
  }
  return check_classes(call) ? cross_entropy(call, 0) : POISON;
}

Val builtin_mse(BuiltinCall *call) {
  Elab *e = call->e;
  if (!arg_real_tensor(call, 0) || !arg_real_tensor(call, 1) ||
      !same_dims(call, call->args[0], call->args[1], 1))
    return POISON;
  widen(call, 0);
  widen(call, 1);
  Val difference = pointwise2(e, OP_sub, call->args[0], call->args[1]);
  return elab_mean_all(e, pointwise2(e, OP_mul, difference, difference));
}

/* softplus(x) - x y is -log of the probability of y. */
Val builtin_bce(BuiltinCall *call) {
  Elab *e = call->e;
  if (!arg_real_tensor(call, 0) || !arg_real_tensor(call, 1) ||
      !same_dims(call, call->args[0], call->args[1], 1))
    return POISON;
  widen(call, 0);
  widen(call, 1);
  Val x = call->args[0], y = call->args[1];
  return elab_mean_all(e, pointwise2(e, OP_sub, pointwise1(e, OP_softplus, x),
                                     pointwise2(e, OP_mul, x, y)));
}

/* How many logits come before the one at y: they are larger, or equal and of a
 * lower position; all of them where y is no position. */
static Val place_of(Elab *e, Val x, Val y, Name dim) {
  int64_t size = type_size(elab_type(e, x), dim);
  Val at = positions(e, x, dim), own = pick(e, x, y, dim);
  Val later = pointwise2(e, OP_and, pointwise2(e, OP_eq, x, own),
                         pointwise2(e, OP_ge, at, y));
  Val after = pointwise2(e, OP_or, pointwise2(e, OP_lt, x, own), later);
  Val before = elab_cast(e, pointwise1(e, OP_not, after), DT_i32);
  Val is_position = pointwise2(e, OP_and, pointwise2(e, OP_ge, y, val_int(0)),
                               pointwise2(e, OP_lt, y, val_int(size)));
  return pointwise3(e, OP_select, is_position,
                    elab_reduce(e, OP_sum, before, &dim, 1), val_int(size));
}

Val builtin_accuracy(BuiltinCall *call) {
  Elab *e = call->e;
  int64_t top;
  if (!check_classes(call) || !arg_int(call, 3, 1, &top)) return POISON;
  Val x = call->args[0], y = call->args[1];
  Name dim = call->dims[2].names[0];
  Val hits = top == 1
                 ? pointwise2(e, OP_eq, elab_argmax(e, x, dim), y)
                 : pointwise2(e, OP_lt, place_of(e, x, y, dim), val_int(top));
  return elab_mean_all(e, elab_cast(e, hits, DT_f32));
}

Val builtin_add_loss(BuiltinCall *call) {
  Elab *e = call->e;
  if (scan_forbids(e, call->x->span, "'add_loss'")) return POISON;
  if (call->x != e->statement) {
    Diag *d = diag(e->diags, DIAG_not_a_value, call->x->span, "'add_loss'");
    diag_help(d, "it stands alone, as a statement");
    return POISON;
  }
  if (!arg_real_tensor(call, 0)) return POISON;
  if (elab_type(e, call->args[0])->rank != 0)
    return arg_wrong(call, 0, "a scalar");
  if (e->is_training) vec_push(e->arena, &e->extra_losses, call->args[0]);
  return (Val){.kind = VAL_none};
}
