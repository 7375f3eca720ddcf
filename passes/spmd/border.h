/*
 * border.h -- declares how gradients are added up on both sides of slow links:
 * the line `sync = hierarchical over AXES`.
 */
#ifndef PASSES_SPMD_BORDER_H
#define PASSES_SPMD_BORDER_H

#include "ir/place/reshard.h"
#include "passes/spmd/partition.h"

/* Returns the axes of the line. */
AxisSet border_axes(const Partition *p);
/* Returns the same axes with those of the line last, so that shards of a dim
 * are made inside of an island before they cross its border. */
AxisList inside_first(const Partition *p, AxisList axes);
/* Divides a step of a value of this type into one inside of the islands and one
 * over their borders, in the order in which they send the fewest bytes over
 * these.  Returns their number, 1 where the step stays whole. */
int divide_at_border(const Partition *p, const Type *type,
                     const ReshardStep *step, ReshardStep *out);

#endif
