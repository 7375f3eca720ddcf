/*
 * constrain.h -- declares how a pass puts a constraint behind a value.
 */
#ifndef PASSES_SPMD_CONSTRAIN_H
#define PASSES_SPMD_CONSTRAIN_H

#include "passes/passes.h"

/* Appends a constraint of the value by this line.  `path`: of the value, for
 * messages. */
Value constraint_append(PassContext *ctx, Graph *to, Value value,
                        const PlanPin *line, Name path);

#endif
