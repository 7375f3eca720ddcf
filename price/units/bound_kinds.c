/*
 * bound_kinds.c -- finds the kinds of devices that share the work of a plan.
 *
 *     mixed.cluster, 32 ranks    16 a100_80g, 16 v100_16g
 *
 * Ranks that compute parts of a kernel take together at least as long as one
 * device takes for all of it, but for what the whole loses to tiles and rounds
 * that are not full, and to rows that are not aligned: parts may fit better.
 */
#include "price/price_list.h"
#include "price/units/bound_walk.h"

const BoundKind *bound_kinds(Arena *arena, const CostModel *model,
                             const ClusterSlice *ranks) {
  if (ranks->n_groups > MOST_BOUND_KINDS) return NULL;
  const CostModel *models = price_models(arena, model, ranks);
  BoundKind *out = ARENA_ARRAY(arena, BoundKind, ranks->n_groups);
  for (int i = 0; i < ranks->n_groups; i++)
    out[i] =
        (BoundKind){ranks->groups[i].group, &models[i], ranks->groups[i].n};
  return out;
}

CostModel bound_whole_model(const CostModel *model) {
  CostModel out = *model;
  out.without |= 1u << COST_tiles | 1u << COST_waves | 1u << COST_alignment;
  return out;
}
