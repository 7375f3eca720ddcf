/*
 * pointwise.c -- builds the pointwise operators that a model calls by name, and
 * a few that resemble them: select, mask, cast.
 */
#include "frontend/elaborate/emit.h"
#include "frontend/elaborate/eval.h"
#include "frontend/operators/operators.h"

ExprValue builtin_pointwise(BuiltinCall *call) {
  return pointwise(call->e, call->builtin->op, call->args, call->exprs,
                   call->builtin->n_params);
}

/* ---- select, mask, cast ---- */

ExprValue builtin_select(BuiltinCall *call) {
  Elab *e = call->e;
  if (call->args[0].kind == EXPR_VALUE_bool)
    return eval(e, call->exprs[call->args[0].boolean ? 1 : 2]);
  call->args[1] = eval(e, call->exprs[1]);
  call->args[2] = eval(e, call->exprs[2]);
  elab_at(e, call->x);
  return pointwise(e, OP_select, call->args, call->exprs, 3);
}

/* In the condition, a dim of x is the index along it. */
static ExprValue eval_condition(BuiltinCall *call) {
  Elab *e = call->e;
  const Type *outer_type = e->frame->mask_type;
  const Expr *outer_expr = e->frame->mask_expr;
  e->frame->mask_type = elab_type(e, call->args[0]);
  e->frame->mask_expr = call->exprs[0];
  ExprValue condition = eval(e, call->exprs[1]);
  e->frame->mask_type = outer_type;
  e->frame->mask_expr = outer_expr;
  elab_at(e, call->x);
  return condition;
}

ExprValue builtin_mask(BuiltinCall *call) {
  Elab *e = call->e;
  double fill;
  if (!arg_tensor(call, 0) || !arg_float(call, 2, &fill)) return POISON;
  ExprValue condition = eval_condition(call);
  if (expr_value_is_poison(condition)) return POISON;
  if (expr_value_is_tensor(condition)) {
    const Type *type = elab_type(e, call->args[0]);
    const Type *c = elab_type(e, condition);
    for (int i = 0; i < c->rank; i++)
      if (type_find(type, c->dims[i].name) < 0) {
        elab_no_dim(e, call->exprs[0], type, c->dims[i].name,
                    call->exprs[1]->span);
        return POISON;
      }
  }
  /* The result has the dims of x in their order, so x stands first. */
  ExprValue args[] = {condition, call->args[0], call->args[2]};
  const Expr *exprs[] = {call->exprs[1], call->exprs[0], call->exprs[2]};
  ExprValue out = pointwise(e, OP_select, args, exprs, 3);
  return out;
}

ExprValue builtin_cast(BuiltinCall *call) {
  Elab *e = call->e;
  const Expr *x = call->exprs[1];
  DType dtype;
  if (x->kind != EXPR_name) {
    diag(e->diags, DIAG_unknown_dtype, x->span, "this");
    return POISON;
  }
  if (!elab_dtype(e, x->name, x->span, &dtype)) return POISON;
  if (!arg_tensor(call, 0)) return POISON;
  if (dtype_class(dtype) == CLASS_FLOAT && !dtype_is_rounded(dtype) &&
      !e->tree->options->check_only) {
    elab_not_supported(e, x->span, x->name);
    return POISON;
  }
  if (dtype == DT_f32) call->args[0] = elab_keep_f32(e, call->args[0]);
  ExprValue out = elab_cast(e, call->args[0], dtype);
  out.is_weak = out.is_weak && !dtype_is_16bit(dtype);
  return out;
}
