/*
 * bound_kinds.c -- finds the kinds of devices that share the work of a plan.
 *
 *     mixed.cluster, 32 ranks    16 a100_80g, 16 v100_16g
 *
 * Ranks that compute parts of a kernel take together at least as long as one
 * device takes for all of it, but for what the whole loses to tiles and rounds
 * that are not full, and to rows that are not aligned: parts may fit better.
 */
#include "ir/list/instructions.h"
#include "ir/scan.h"
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

static double time_of_launches(const CostModel *model, const Graph *graph,
                               int id) {
  const Node *node = graph->nodes.data[id];
  double sum = 0;
  if (!node_is_launched(graph, id)) return 0;
  if (node->op != OP_scan) {
    LaunchCost cost = cost_launch(model, graph, id);
    return (double)(cost.launch + cost.time);
  }
  for (int i = 0; i < node->body->nodes.n; i++)
    sum += time_of_launches(model, node->body, i);
  return sum * (double)scan_steps(node);
}

const BoundKind *bound_slowest_kind(const Units *units, const BoundKind *kinds,
                                    int n) {
  const BoundKind *slowest = kinds;
  double longest = 0;
  for (int k = 0; k < n; k++) {
    double sum = 0;
    for (int u = 0; u < units->units.n; u++) {
      const PlanUnit *unit = units->units.data[u];
      for (int i = 0; i < unit->kernels.n; i++)
        sum +=
            (double)unit->times * time_of_launches(kinds[k].model, units->graph,
                                                   unit->kernels.data[i].id);
    }
    if (sum > longest) slowest = &kinds[k];
    if (sum > longest) longest = sum;
  }
  return slowest;
}

void bound_print_kind(Text *out, const BoundRequest *request) {
  if (!request->of) return;
  const ClusterGroup *group = request->of->group;
  text_printf(out, ", on the devices '%s' of '%s'", group->device->name,
              group->name ? group->name : request->slice->cluster->name);
}

const CostModel *bound_models(const BoundRequest *request, int *out_of) {
  *out_of = request->of ? (int)(request->of - request->kinds) : 0;
  return request->of ? request->kinds[0].model : NULL;
}

CostModel bound_whole_model(const CostModel *model) {
  CostModel out = *model;
  out.without |= 1u << COST_tiles | 1u << COST_waves | 1u << COST_alignment;
  return out;
}
