/*
 * operators.h -- the table of operators that a model calls by name, and what
 * their files share.
 */
#ifndef FRONTEND_OPERATORS_OPERATORS_H
#define FRONTEND_OPERATORS_OPERATORS_H

#include "frontend/elaborate/match.h"

/* By name, for a Program. */
Map *builtins_create(Module *module);

BuiltinFn builtin_pointwise, builtin_not_supported;

/* ---- reduce.c ---- */

/* The largest magnitude along the dims, which passes no gradient. */
ExprValue reduce_most(Elab *e, ExprValue x, const Name *dims, int n);

/* ---- loss.c: what metrics share with losses ---- */

/* Logits x over V and integers y with the other dims, the first three
 * arguments; else reports. */
bool loss_check_classes(BuiltinCall *call);
bool arg_ignore(BuiltinCall *call, int i); /* an integer or none */
ExprValue loss_indices(Elab *e, ExprValue x,
                       Name dim); /* 0 1 2 ... along dim */
ExprValue loss_gather(Elab *e, ExprValue x, ExprValue y,
                      Name dim); /* the element of x at y */
/* `ignore` is argument 3; `weight`: of each label's class, or none. */
ExprValue loss_cross_entropy(BuiltinCall *call, double smooth,
                             ExprValue weight);

#endif
