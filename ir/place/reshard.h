/*
 * reshard.h -- declares the cheapest chain of steps that brings a value from
 * one placement to another; partition emits the steps, the planner prices them.
 */
#ifndef IR_PLACE_RESHARD_H
#define IR_PLACE_RESHARD_H

#include "ir/ir.h"

typedef enum ReshardKind {
#define RESHARD(name, moves_data, meaning) RESHARD_##name,
#include "ir/place/reshard.def"
  N_RESHARD_KINDS
} ReshardKind;

const char *reshard_name(ReshardKind kind);

/* At most this many steps are in a chain. */
#define MAX_RESHARD_STEPS 24

typedef struct ReshardStep {
  ReshardKind kind;
  /* Ranks that differ on these axes only work together. */
  AxisSet group;
  /* The axes that move, in the order in which they shard a dim: those dropped
   * by an all_gather or leaving `from_dim` in an all_to_all, those appended to
   * `to_dim` by a slice or reduce_scatter.  all_reduce, zero_fill and permute:
   * by index. */
  AxisList axes;
  /* all_to_all: the same axes in the order in which they shard `to_dim`. */
  AxisList to_axes;
  int from_dim, to_dim; /* indices of dims that lose and gain axes, or -1 */
  int64_t bytes;        /* bytes that a rank sends in a training step */
  const Type *type;     /* type of the value after the step */
} ReshardStep;

/* Remembers the chains of one mesh by placements, sizes and bytes of the
 * dtype.  It lives in the arena; the mesh must outlive it. */
typedef struct Resharding Resharding;
Resharding *reshard_create(Arena *arena, const Mesh *mesh);
/* Returns chains for a pass that cannot append all steps yet.  They have no
 * permutes, no all_to_all that changes the order of the axes, and only slices
 * over axes of micro-batches. */
Resharding *reshard_create_plain(Arena *arena, const Mesh *mesh);

/* Fills `out` (room for MAX_RESHARD_STEPS) with the chain that sends the fewest
 * bytes per rank; among equals the one with the fewest steps, then the first in
 * a fixed order.  Types of steps live in the arena of the table.  Both types
 * have the same dtype, dims and storage order.  Only axes whose placement
 * differs move, and only on dims whose sharding differs: a detour over
 * another dim could save padding, at the price of more steps than a reader of
 * the plan expects.
 *
 * A value becomes partial in two ways: it keeps a partial axis, or a replicated
 * value becomes a partial sum.  Anything else returns -1 with *out_reason, a
 * part of a sentence about the placement that was asked for ("axis 'data' ...
 * "). */
int reshard_steps(Resharding *table, const Type *from, const Type *to,
                  ReshardStep *out, const char **out_reason);

/* Finds the collective of a step.  Returns false if it sends nothing. */
bool reshard_op(ReshardKind kind, Op *out);

#endif
