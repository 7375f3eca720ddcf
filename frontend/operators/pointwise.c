/*
 * pointwise.c -- builds the pointwise operators that a model calls by name, and
 * a few that resemble them: select, mask, cast, dropout.
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

/* ---- dropout ---- */

static ExprValue random_input(Elab *e, Role role, const char *name, DType dtype,
                              Value *value) {
  if (!value_is(*value))
    *value = graph_input(e->graph, role, name_intern(e->names, name),
                         type_scalar(e->arena, dtype));
  return expr_value_tensor(*value, false);
}

ExprValue builtin_dropout(BuiltinCall *call) {
  Elab *e = call->e;
  double p;
  if (!arg_float_tensor(call, 0) || !arg_float(call, 1, &p) ||
      !arg_dims(call, 2, 0, false))
    return POISON;
  if (!(p >= 0 && p < 1)) return arg_wrong(call, 1, "at least 0 and below 1");
  if (!e->is_training || p == 0) return call->args[0];
  const Type *type = elab_type(e, call->args[0]);
  const DimArg *over = &call->dims[2];
  int64_t *sizes = ARENA_ARRAY(e->arena, int64_t, over->n);
  for (int i = 0; i < over->n; i++) sizes[i] = type_size(type, over->names[i]);
  Attrs attrs = {0};
  attrs_names(&attrs, ATTR_to, over->names, over->n);
  attrs_ints(&attrs, ATTR_sizes, sizes, over->n);
  attrs_float(&attrs, ATTR_value, p);
  attrs_name(&attrs, ATTR_stream, e->graph->path);
  ExprValue inputs[] = {random_input(e, ROLE_seed, "seed", DT_i64, &e->seed),
                        random_input(e, ROLE_step, "step", DT_i32, &e->step)};
  ExprValue keep = elab_emit(e, OP_random_keep, inputs, 2, &attrs);
  ExprValue scaled =
      pointwise2(e, OP_mul, call->args[0], expr_value_float(1 / (1 - p)));
  return pointwise3(e, OP_select, keep, scaled, expr_value_float(0));
}
