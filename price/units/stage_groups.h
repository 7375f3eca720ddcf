/*
 * stage_groups.h -- declares what plans with stages change for those who bound
 * their steps: the links of a group of ranks, and the values that a border of
 * stages may cross.
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

#endif
