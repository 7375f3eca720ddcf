/*
 * reach.h -- which inputs of a net its outputs depend on.
 */
#ifndef FRONTEND_ELABORATE_REACH_H
#define FRONTEND_ELABORATE_REACH_H

#include "frontend/elaborate/elaborate.h"

/* Warns about arguments of a call of a net from which no output is computed. */
void reach_warn(Elab *e, const Callable *net, const ExprValue *args, int n,
                ExprValue result);

#endif
