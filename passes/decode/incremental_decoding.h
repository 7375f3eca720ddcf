/*
 * incremental_decoding.h -- sampling one position at a time.
 */
#ifndef PASSES_INCREMENTAL_H
#define PASSES_INCREMENTAL_H

#include "passes/passes.h"

/* Path of the data input that holds the position, an i32 scalar; a net that
 * does not ask for it has none, and its text may go on without end. */
#define SAMPLE_POSITION "sample.position"

/* A slot of ROLE_decode_cache. */
typedef struct DecodeCache {
  Name path;
  Value value;   /* of the net: what stands there for all positions; of a carry
                    what it begins with */
  bool is_carry; /* of a scan: one value, that of the last position */
} DecodeCache;

typedef struct DecodeGraphs {
  Graph *step; /* the net at one position: T of size 1 */
  DecodeCache *caches;
  int n_caches;
  bool has_carries; /* then a window cannot fill the caches: its carries have
                       run to its end, past the last token */
} DecodeGraphs;

/* From a forward net i32[B, T] -> [B, T, ...].  If the net does not allow it,
 * false, and `out_why` says which value prevents it. */
bool decode_split(PassContext *ctx, const Graph *net, DecodeGraphs *out,
                  Text *out_why);
/* From `step`, the result of all passes for the decode graph: the net as it
 * was, which without carries fills the caches too, in the dtypes in which the
 * decode graph reads them; and the graph that fills the other caches before the
 * first position: what `step` has, then the carries.  NULL: there are none. */
typedef struct DecodeFinish {
  Graph *prefill, *decode_init;
} DecodeFinish;
DecodeFinish decode_finish(PassContext *ctx, const Graph *net,
                           const DecodeGraphs *graphs, const PassResult *step);

#endif
