/*
 * weight_precompute.h -- the graph `begin`, which fills slots before the first
 * position.
 */
#ifndef PASSES_PREPARE_H
#define PASSES_PREPARE_H

#include "passes/passes.h"

/* Appends to `begin` what computes `value` of `from`, cast to `dtype`, and the
 * slot of ROLE_decode_cache that takes it. */
void weight_precompute_add(PassContext *ctx, Graph *begin, const Graph *from,
                           Value value, Name path, DType dtype);

#endif
