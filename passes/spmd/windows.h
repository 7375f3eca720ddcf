/*
 * windows.h -- declares the part of the pass `partition` that computes
 * convolutions and pools over dims which ranks share out.
 */
#ifndef PASSES_SPMD_WINDOWS_H
#define PASSES_SPMD_WINDOWS_H

#include "passes/spmd/partition.h"

/* Returns whether the operator of node `id` of the old graph slides windows
 * over dims of `inputs` (values of the new graph) that ranks shard, and each
 * rank can compute its windows from its shard and a halo.  A line of the plan
 * about the operator says how it is computed instead. */
bool slides_over_shards(Partition *p, int id, const Value *inputs);
/* Appends the operator with its halos.  Result: its value, sharded along the
 * slid dims as the operand is. */
Value place_windows(Partition *p, int id, const Value *inputs);

#endif
