/*
 * strategies.h -- declares the ways to compute an operator on a mesh: which
 * dims its ranks share out, and the placements of operands and results that
 * follow.
 */
#ifndef IR_STRATEGIES_H
#define IR_STRATEGIES_H

#include "ir/shardrule.h"

/* An iteration dim and the axes that shard it, outermost first. */
typedef struct DimAxes {
  Name dim; /* as in ShardDim.name */
  AxisList axes;
} DimAxes;

typedef struct Strategy {
  const Type *const *inputs, *const *results; /* placed */
  const DimAxes *dims;                        /* those that are sharded */
  int n_dims;
  /* Axes over which operand `partial_input` (-1: every operand) comes as a
   * partial sum, so that the results of a linear operator are partial sums too;
   * 0 where none does. */
  AxisSet partial;
  int partial_input;
  /* Axes of dims whose ranges of global positions the operator must know
   * (SHARD_positions). */
  AxisSet positions;
} Strategy;

/* Is given one strategy, which lives until the call returns.  Returns false if
 * no more are wanted. */
typedef bool EachStrategy(void *user, const Strategy *strategy);

/* Calls `each` for every assignment of axes to iteration dims that the
 * operator's row allows, in a fixed order, the one that shards nothing first.
 * An axis shards one dim, inside or outside of others on it, or an operand is
 * partial over it, or it takes no part.  Sequential axes take no part: they
 * follow the ranks' shards of the batch.  Calls without an infer rule (inputs,
 * collectives, regions) have no strategies here. */
void shard_strategies(const Mesh *mesh, const ShardCall *call, Arena *scratch,
                      EachStrategy *each, void *user);

/* Returns the strategy that shards these iteration dims, in the arena.  Returns
 * NULL where there is none, with *out_reason, a sentence about the operator. */
const Strategy *strategy_for(const Mesh *mesh, const ShardCall *call,
                             const DimAxes *dims, int n_dims, Arena *arena,
                             const char **out_reason);

#endif
