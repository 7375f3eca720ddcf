/*
 * operators.h -- the table of operators that a model calls by name, and what
 * their files share.
 */
#ifndef FRONTEND_OPERATORS_OPERATORS_H
#define FRONTEND_OPERATORS_OPERATORS_H

#include "frontend/elaborate/match.h"

/* Returns the functions of operators by name, for a SourceTree. */
Map *builtins_create(Module *module);

BuiltinFn builtin_pointwise, builtin_not_supported;

/* ---- reduce.c ---- */

/* Returns the largest magnitude along the dims, which passes no gradient. */
ExprValue reduce_most(Elab *e, ExprValue x, const Name *dims, int n);

/* ---- loss.c: what metrics share with losses ---- */

/* Returns whether the first three arguments are logits x over V and integers y
 * with the other dims; else reports. */
bool loss_check_classes(BuiltinCall *call);
/* Returns whether the argument is an integer or absent; else reports. */
bool arg_ignore(BuiltinCall *call, int i);
ExprValue loss_indices(Elab *e, ExprValue x,
                       Name dim); /* 0 1 2 ... along dim */
ExprValue loss_gather(Elab *e, ExprValue x, ExprValue y,
                      Name dim); /* the element of x at y */
/* Returns the loss; `ignore` is argument 3, `weight` that of each label's
 * class, or none. */
ExprValue loss_cross_entropy(BuiltinCall *call, double smooth,
                             ExprValue weight);

#endif
