/*
 * op.c -- answers questions about operators from the table ops.def.
 */
#include "ir/ops/rules.h"

#include <string.h>

#define infer_none     NULL
#define grad_none      NULL
#define cost_none      NULL
#define decompose_none NULL

/* The words of the column of flags. */
enum {
  none,
#define OPFLAG(name, meaning) name = OP_FLAG_##name,
#include "ir/opclass.def"
};

#define POINTWISE(name_, class_, flops_, linear_, flags_, n_, value_, ...)     \
  [OP_##name_] = {.name = #name_,                                              \
                  .class = OPCLASS_elementwise,                                \
                  .flags = by_name | free_order | renames | fuses | (flags_),  \
                  .min_inputs = n_,                                            \
                  .max_inputs = n_,                                            \
                  .is_pointwise = true,                                        \
                  .pw_class = PW_##class_,                                     \
                  .value = value_,                                             \
                  .derivative = {__VA_ARGS__},                                 \
                  .flops = flops_,                                             \
                  .linear = LINEAR_##linear_,                                  \
                  .sharding = "",                                              \
                  .infer = infer_pointwise,                                    \
                  .grad = grad_pointwise,                                      \
                  .cost = cost_pointwise},

const OpInfo op_infos[N_OPS] = {
#define PW1(name, class, value, da, flops, linear, flags)                      \
  POINTWISE(name, class, flops, linear, flags, 1, #value, #da)
#define PW2(name, class, value, da, db, flops, linear, flags)                  \
  POINTWISE(name, class, flops, linear, flags, 2, #value, #da, #db)
#define PW3(name, class, value, da, db, dc, flops, linear, flags)              \
  POINTWISE(name, class, flops, linear, flags, 3, #value, #da, #db, #dc)
#define OP(name_, class_, min, max, sharding_, linear_, infer_rule, grad_rule, \
           cost_rule, decompose_rule, interp, lower, flags_)                   \
  [OP_##name_] = {.name = #name_,                                              \
                  .class = OPCLASS_##class_,                                   \
                  .flags = flags_,                                             \
                  .min_inputs = min,                                           \
                  .max_inputs = max,                                           \
                  .linear = LINEAR_##linear_,                                  \
                  .sharding = sharding_,                                       \
                  .infer = infer_##infer_rule,                                 \
                  .grad = grad_##grad_rule,                                    \
                  .cost = cost_##cost_rule,                                    \
                  .decompose = decompose_##decompose_rule},
#include "ir/ops.def"
};

bool op_find(const char *name, Op *out_op) {
  for (int i = 0; i < N_OPS; i++) {
    if (strcmp(op_infos[i].name, name) == 0) {
      *out_op = (Op)i;
      return true;
    }
  }
  return false;
}

static int wrong_count(Module *module, const OpCall *call, Span span) {
  const OpInfo *info = op_info(call->op);
  diag(module->diags, DIAG_op_operands, span, info->name, info->min_inputs,
       info->max_inputs < 0 ? " or more" : "", call->n_inputs);
  return -1;
}

int op_infer(Module *module, const OpCall *call, Span span,
             const Type **out_types) {
  const OpInfo *info = op_info(call->op);
  ASSERT(info->infer);
  if (call->n_inputs < info->min_inputs) return wrong_count(module, call, span);
  if (info->max_inputs >= 0 && call->n_inputs > info->max_inputs) {
    return wrong_count(module, call, span);
  }
  return info->infer(module, call, span, out_types);
}
