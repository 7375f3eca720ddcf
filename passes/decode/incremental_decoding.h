/*
 * incremental_decoding.h -- split a net into entry points that decode one token
 * at a time.
 */
#ifndef PASSES_INCREMENTAL_DECODING_H
#define PASSES_INCREMENTAL_DECODING_H

#include "passes/passes.h"

/* Path of the data input that holds the token position, an i32 scalar. A net
 * that does not read it has no such input, and its text may have any length. */
#define SAMPLE_POSITION "sample.position"

/* A persistent buffer of ROLE_decode_cache. */
typedef struct DecodeCache {
  Name path;
  /* Rows of all token positions, a value of the net; of a carry its initial
   * value. */
  Value value;
  bool is_carry; /* a carry of a scan: one value, that of the last iteration */
} DecodeCache;

typedef struct DecodeGraphs {
  Graph *step; /* the net for one token: T of size 1 */
  DecodeCache *caches;
  int n_caches;
  /* Then `prefill` cannot fill the caches: its carries have run to the end of
   * its window, after the last token. */
  bool has_carries;
} DecodeGraphs;

/* Splits a forward net i32[B, T] -> [B, T, ...].  Returns false if the net does
 * not allow it, and `out_why` says which value prevents it. */
bool decode_split(PassContext *ctx, const Graph *net, DecodeGraphs *out,
                  Text *out_why);
/* The result of all passes for the decode graph: one graph, or those of its
 * stages. */
typedef struct CompiledDecode {
  Graph *const *graphs; /* by stage */
  int n_graphs;
  Graph *decode_init; /* as in PassResult */
} CompiledDecode;
/* `prefill` is the net, which without carries fills the caches too, in the
 * dtypes in which the decode graph reads them.  `decode_init` fills the other
 * caches before the first token: those of the compiled graph, then the carries;
 * NULL means none.  In both a cache has the stage that decode reads it in. */
typedef struct DecodeFinish {
  Graph *prefill, *decode_init;
} DecodeFinish;
DecodeFinish decode_finish(PassContext *ctx, const Graph *net,
                           const DecodeGraphs *graphs,
                           const CompiledDecode *compiled);

#endif
