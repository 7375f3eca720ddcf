/*
 * stage_groups.c -- finds the links of one of several equal groups of ranks,
 * which lie one behind the other.
 *
 *     nodes of 8, groups of 4     each is in one node
 *     nodes of 8, groups of 6     the first is, the second is not
 */
#include "price/units/stage_groups.h"

/* Units of a level have so many ranks: each group has some of them whole, or a
 * part of one. */
static bool are_aligned(const ClusterSlice *ranks, int64_t n, int64_t unit) {
  int64_t small = n < unit ? n : unit, large = n < unit ? unit : n;
  return large % small == 0 && ranks->first % small == 0;
}

const ClusterSlice *stage_group_slice(Arena *arena, const ClusterSlice *ranks,
                                      int groups) {
  int64_t n = ranks->n / groups, unit = 1;
  const ClusterGroup *of = ranks->groups[0].group;
  if (ranks->n_groups > 1 || ranks->cluster->n_groups > 1) return NULL;
  for (int l = 0; l < of->n_levels; l++) {
    unit *= of->levels[l].count;
    if (!are_aligned(ranks, n, unit)) return NULL;
  }
  ClusterSlice *out = ARENA_NEW(arena, ClusterSlice);
  *out = cluster_slice(arena, ranks->cluster, ranks->first, n);
  return out;
}
