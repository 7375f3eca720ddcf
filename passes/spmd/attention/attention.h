/*
 * attention.h -- declares attention whose sequence is in shards: computed by
 * heads, and what lines of the plan say of it.
 */
#ifndef PASSES_SPMD_ATTENTION_ATTENTION_H
#define PASSES_SPMD_ATTENTION_ATTENTION_H

#include "passes/spmd/partition.h"

/* ---- attention_heads.c ---- */

/* Places attention or its gradient, whose operands are these, with heads in
 * shards in place of the sequence, where the plan says so.  Returns false if it
 * is not this one. */
bool place_by_heads(Partition *p, int id, Value *inputs);

/* ---- attention_lines.c ---- */

/* Returns into how many shards a line about its name divides a dim other than
 * that of the batch, else 1. */
int64_t sequence_shards(const Plan *plan, Name dim);
/* Reports, at its line, why no attention is computed as the plan
 * says.  `missed`, or NULL, is an attention of the graph. */
void report_no_attention(PassContext *ctx, const Graph *graph,
                         const Node *missed);

#endif
