/*
 * norm.c -- builds batchnorm, the operator that writes states.
 *
 * In training it is one node, whose second and third result become the states.
 * In evaluation it is pointwise operators on the states.
 */
#include "frontend/elaborate/emit.h"
#include "frontend/elaborate/match.h"
#include "frontend/elaborate/scan.h"
#include "frontend/elaborate/state.h"

#include <string.h>

static bool arg_state(BuiltinCall *call, int i) {
  Elab *e = call->e;
  if (!expr_value_is_tensor(call->args[i]) ||
      !state_of_value(e, call->args[i])) {
    arg_wrong(call, i, "a state");
    return false;
  }
  const Type *x = elab_type(e, call->args[0]);
  const Type *want =
      type_without(e->arena, x, call->dims[1].names, call->dims[1].n);
  const Type *have = elab_type(e, call->args[i]);
  if (!elab_unify(e, x, have, call->exprs[0], call->exprs[i], NULL, NULL))
    return false;
  if (type_same_dims(want, have)) return true;
  diag(e->diags, DIAG_dims_differ, call->exprs[i]->span,
       expr_describe(e, call->exprs[i]), type_describe(e, have),
       type_describe(e, want));
  return false;
}

static ExprValue batchnorm_evaluated(BuiltinCall *call, double eps) {
  Elab *e = call->e;
  DType dtype = elab_type(e, call->args[0])->dtype;
  ExprValue rstd = pointwise1(
      e, OP_rsqrt, pointwise2(e, OP_add, call->args[3], expr_value_float(eps)));
  ExprValue centred = pointwise2(e, OP_sub, call->args[0], call->args[2]);
  ExprValue y = pointwise2(e, OP_mul, centred, rstd);
  return expr_value_is_tensor(y) ? elab_cast(e, y, dtype) : y;
}

ExprValue builtin_batchnorm(BuiltinCall *call) {
  Elab *e = call->e;
  double eps, momentum;
  int64_t group;
  if (!arg_float_tensor(call, 0) || !arg_dims(call, 1, 0, false) ||
      !arg_state(call, 2) || !arg_state(call, 3) || !arg_float(call, 4, &eps) ||
      !arg_float(call, 5, &momentum) || !arg_int(call, 6, 0, &group))
    return POISON;
  if (!(eps >= 0)) return arg_wrong(call, 4, "at least 0");
  if (!(momentum >= 0 && momentum <= 1)) return arg_wrong(call, 5, "in 0..1");
  if (call->dims[1].n == 0) {
    diag(e->diags, DIAG_one_dim, call->x->span, call->builtin->name, 0);
    return POISON;
  }
  if (scan_forbids(e, call->x->span, "'batchnorm'")) return POISON;
  if (!e->is_training) return batchnorm_evaluated(call, eps);
  Attrs attrs = {0};
  attrs_names(&attrs, ATTR_over, call->dims[1].names, call->dims[1].n);
  attrs_float(&attrs, ATTR_eps, eps);
  attrs_float(&attrs, ATTR_momentum, momentum);
  /* A batch of one group needs none, nor does one that is smaller. */
  int64_t batch =
      type_size(elab_type(e, call->args[0]), call->dims[1].names[0]);
  if (group > 0 && group < batch) attrs_int(&attrs, ATTR_group, group);
  const Name paths[] = {NULL, state_of_value(e, call->args[2]),
                        state_of_value(e, call->args[3])};
  ExprValue inputs[] = {call->args[0], call->args[2], call->args[3]};
  for (int r = 1; r < 3; r++) inputs[r] = state_value(e, paths[r], inputs[r]);
  ExprValue y = elab_emit(e, OP_batchnorm, inputs, 3, &attrs);
  for (int r = 1; r < 3 && expr_value_is_tensor(y); r++)
    state_set(e, paths[r], expr_value_tensor((Value){y.tensor.node, r}, false));
  return y;
}
