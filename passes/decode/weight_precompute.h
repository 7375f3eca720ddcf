/*
 * weight_precompute.h -- appends to the graph of the entry point decode_init,
 * which fills persistent buffers before the first token.
 */
#ifndef PASSES_WEIGHT_PRECOMPUTE_H
#define PASSES_WEIGHT_PRECOMPUTE_H

#include "passes/passes.h"

/* Appends to `init` what computes `value` of `from`, cast to `dtype`, and the
 * persistent buffer of ROLE_decode_cache that stores it. */
void weight_precompute_add(PassContext *ctx, Graph *init, const Graph *from,
                           Value value, Name path, DType dtype);

#endif
