/*
 * resharding.h -- declares how a value is brought from one placement to
 * another.
 */
#ifndef PASSES_SPMD_RESHARDING_H
#define PASSES_SPMD_RESHARDING_H

#include "ir/place/reshard.h"
#include "passes/spmd/partition.h"

/* ---- resharding.c ---- */

/* Reduces a partial value; the reduction gets path and phase of the value. */
Value reduce_partial(Partition *p, Value value);
/* Collects the micro-batches of a value that they shard, except along dims that
 * `want`, if not NULL, shards over them too. */
Value collect_microbatches(Partition *p, Value value, const Type *want);
/* Returns the value in the placement of `want`, for node `id` of the old graph,
 * whose place a message names. */
Value reshard(Partition *p, Value value, const Type *want, int id);
/* Returns the value of the new graph that shows another one in this
 * placement.  Returns VALUE_NONE if there is none so far. */
Value find_reshard(Partition *p, Value value, const Type *placed);
/* Lets later readers of the value find that `now` shows it in its placement. */
void remember_reshard(Partition *p, Value value, Value now);
/* Returns whether the value depends on no replicated input, and on few nodes,
 * so that a rank can compute its shard alone. */
bool is_computed(const Graph *graph, Value value);

/* ---- resharding_steps.c ---- */

/* Finds a chain as reshard_steps does, of steps that can be emitted.  Where
 * there is no such chain, it takes one through the shards that both placements
 * have. */
int reshard_chain(Partition *p, const Type *from, const Type *to,
                  ReshardStep *out);
/* Returns why there is no chain, as a part of a message. */
const char *reshard_reason(Partition *p, const Type *from, const Type *to);
/* Returns the value with a dim split in two, d and d + 1.  The first has `n`
 * elements and the shards that dim d had, the second as many as a shard with
 * its padding. merge_shards undoes it, and `size` elements are left. */
Value split_shards(Partition *p, Value value, int d, int64_t n);
Value merge_shards(Partition *p, Value value, int d, int64_t size);
/* Moves dim `from` to place `to` of the storage order. */
Value transpose_dim(Partition *p, Value value, int from, int to);
/* Shards dim `d` of the value over further mesh axes, `axes`: each rank keeps
 * its shard of what it has, and sends nothing.  `split` is the new list of axes
 * of the dim: those that it had, then `axes`. */
Value shard_dim(Partition *p, Value value, int d, AxisList split,
                AxisList axes);
/* Returns the value reduced over these rank axes: by one all_reduce, or, where
 * the line `sync = hierarchical` says so, inside first (border.c). */
Value reduce_ranks(Partition *p, Value value, AxisSet axes);
Name shards_name(const Partition *p, const Type *type, Name dim);
Value reshard_emit(Partition *p, Value value, const ReshardStep *steps, int n);

#endif
