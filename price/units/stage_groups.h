/*
 * stage_groups.h -- declares what plans with stages change for those who bound
 * their steps: the links of a group of ranks, the values that a border of
 * stages may cross, and what runs while a value is stored.
 */
#ifndef PRICE_UNITS_STAGE_GROUPS_H
#define PRICE_UNITS_STAGE_GROUPS_H

#include "ir/cluster/cluster.h"
#include "price/units/units.h"

/* ---- stage_groups.c ---- */

/* Returns the first of `groups` equal groups of the ranks.  Returns NULL if
 * another one may have faster links. */
const ClusterSlice *stage_group_slice(Arena *arena, const ClusterSlice *ranks,
                                      int groups);

/* ---- stage_edges.c ---- */

/* Returns for each edge whether its value may go from one stage to another
 * where stages are cut at single values. */
const bool *unit_edges_cross(Arena *arena, const Units *units);
/* Returns whether all launches of a unit are in one stage: an operator with its
 * gradients, all of which have its path. */
bool unit_is_in_one_stage(const Units *units, int unit);

/* ---- stage_spans.c ---- */

/* A kernel that runs once for each micro-batch. */
typedef struct SpanKernel {
  int unit, kernel; /* kernel: of the unit */
} SpanKernel;

/* While a saved value of a micro-batch is stored, these kernels run for this
 * micro-batch, one after the other. */
typedef struct StageSpan {
  int unit, saved;     /* saved: of the unit */
  const bool *between; /* by kernel */
} StageSpan;

typedef struct StageSpans {
  int n_kernels;
  const SpanKernel *kernels;
  VEC(StageSpan) spans; /* of all saved values */
} StageSpans;

/* Where a block stands for many, `between` has kernels of the block itself and
 * of the blocks behind it: those of a further copy are like those of the next
 * block. */
const StageSpans *unit_stage_spans(Arena *arena, const Units *units);

#endif
