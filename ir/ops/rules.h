/*
 * rules.h -- declares every rule function that a row of ops.def names, so that
 * the table and the rules need no other header.  A rule named `none` is
 * declared too and never defined; op.c turns it into NULL.
 */
#ifndef IR_OPS_RULES_H
#define IR_OPS_RULES_H

#include "ir/ir.h"

InferRule infer_pointwise;
GradRule grad_pointwise;
CostRule cost_pointwise;

#define OP(name, class, min, max, sharding, linear, infer, grad, cost,         \
           decompose, ...)                                                     \
  InferRule infer_##infer;                                                     \
  GradRule grad_##grad;                                                        \
  CostRule cost_##cost;                                                        \
  DecomposeRule decompose_##decompose;
#include "ir/ops.def"

#endif
