/*
 * weight_precompute.h -- appends to the graph of the entry point decode_init,
 * which fills persistent buffers before the first token.
 */
#ifndef PASSES_WEIGHT_PRECOMPUTE_H
#define PASSES_WEIGHT_PRECOMPUTE_H

#include "passes/passes.h"

/* A persistent buffer of ROLE_decode_cache that an entry point fills. */
typedef struct FilledCache {
  Name path;
  DType dtype;
  uint16_t stage; /* that has it, as in Node */
} FilledCache;

/* Appends to `init` what computes `value` of `from`, cast to the dtype of the
 * cache, and the cache that stores it. */
void weight_precompute_add(PassContext *ctx, Graph *init, const Graph *from,
                           Value value, const FilledCache *cache);

#endif
