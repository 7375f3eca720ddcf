/*
 * zigzag.h -- declares the order of a sequence in which causal ring attention
 * is equal work for all ranks.
 */
#ifndef PASSES_SPMD_ATTENTION_ZIGZAG_H
#define PASSES_SPMD_ATTENTION_ZIGZAG_H

#include "passes/rewrite.h"

enum { MOST_SEQUENCE_NAMES = 8 };

/* A sequence in `ranks` shards, and the names that renames give its dim. */
typedef struct Zigzag {
  int n_names;
  Name names[MOST_SEQUENCE_NAMES];
  int64_t ranks, size;
} Zigzag;

bool zigzag_has(const Zigzag *zigzag, Name dim);
/* Finds the sequence of the causal attention `node` in a graph after
 * `optimizer`, sharded by a line about its name.  Returns false if something
 * else than attention, positions, pointwise operators and sums sees its
 * order.  Then *out_reason says what, and *out_at is its node, or NULL. */
bool zigzag_find(PassContext *ctx, const Graph *graph, const Node *node,
                 int64_t ranks, Zigzag *out, const char **out_reason,
                 const Node **out_at);
/* Returns the graph with the sequence in zigzag order wherever the forward and
 * backward pass compute with it.  What is stored, the update and outputs keep
 * their order.  Masks of causal attention along the sequence are wrong until
 * its caller has written them anew. */
Graph *zigzag_graph(PassContext *ctx, const Graph *graph, const Zigzag *zigzag);

#endif
