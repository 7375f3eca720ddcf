/*
 * strategies.h -- declares the strategies of an operator, which are the ways to
 * divide its work among the ranks of a mesh.  A strategy says which dims are
 * sharded over which mesh axes, and so how operands and results are placed.
 */
#ifndef IR_PLACE_STRATEGIES_H
#define IR_PLACE_STRATEGIES_H

#include "ir/place/shardrule.h"

/* An iteration dim and the axes that shard it, outermost first. */
typedef struct DimAxes {
  Name dim; /* dim as in ShardDim.name */
  AxisList axes;
} DimAxes;

typedef struct Strategy {
  const Type *const *inputs, *const *results; /* placed */
  const DimAxes *dims;                        /* those that are sharded */
  int n_dims;
  /* The axes over which operand `partial_input` (-1 means every operand) comes
   * as a partial sum, so that the results of a linear operator are partial sums
   * too; empty where none does. */
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
