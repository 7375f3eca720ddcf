/*
 * plan_load.c -- finds the largest load of a plan itself, as a bound adds up
 * loads.
 *
 *     step >= largest load of the plan >= bound
 *
 * The first distance is what waits cost that no load has, the second is left
 * to the search and to the means of the bound.
 */
#include "tools/plan/plan_load.h"

#include "planner/recheck/recheck.h"
#include "price/units/placed_units.h"

static bool is_over_all(const Plan *plan, const Mesh *mesh) {
  const PlanShard *shard = plan_zero_shard(plan);
  return shard && shard->n_axes == mesh->n_axes;
}

/* Returns how many equal groups of ranks have stages; 0: they are unequal. */
static int groups_of(const Plan *plan) {
  int n_ranks = plan->stages.n > 0 ? plan->stages.data[0].n_ranks : plan->ranks;
  for (int s = 0; s < plan->stages.n; s++)
    if (plan->stages.data[s].n_ranks != n_ranks ||
        plan->stages.data[s].first_rank % n_ranks != 0)
      return 0;
  return plan->has_meshes || n_ranks == 0 ? 0 : plan->ranks / n_ranks;
}

static PlacedUnits placed_of(Arena *arena, const Trial *trial,
                             const BoundRequest *space) {
  const StageGraphs *stages = &trial->c.trained_stages;
  const Graph *only = trial->priced.stage->instructions->graph;
  const Graph **graphs =
      ARENA_ARRAY(arena, const Graph *, stages->graphs.n + 1);
  for (int s = 0; s < stages->graphs.n; s++) graphs[s] = stages->graphs.data[s];
  return trial->c.plan->stages.n > 1
             ? units_placed_in_stages(arena, space->units, trial->c.plan,
                                      stages->graphs.n, graphs)
             : units_placed(arena, space->units, trial->c.plan, only);
}

/* The operator that a group of ranks has whole, or the mean over all groups. */
static const char *words_of(Arena *arena, const BoundRequest *space,
                            const BoundSetting *setting, const OwnLoad *load) {
  const Units *units = space->units;
  Text out = text_create(arena);
  bound_limit_print(&out, &load->weights);
  bound_print_kind(&out, space);
  if (load->unit >= 0) {
    const PlanUnit *unit = units->units.data[load->unit];
    const Node *node = units->graph->nodes.data[unit->kernels.data[0].id];
    text_printf(&out, ", of '%s', which one group of ranks has", node->path);
  } else if (setting->groups > 1) {
    text_printf(&out, ", on average over %d groups of ranks", setting->groups);
  }
  return text_string(&out);
}

/* Why no assignment on equal groups says what the plan does, or NULL. */
static const char *no_load(const Plan *plan, int groups,
                           const BoundRequest *space) {
  if (groups == 0) return "its stages have unequal meshes";
  if (groups > 1 && !space->crosses)
    return "the bound is of plans without "
           "stages";
  if (plan->ranks != space->ranks) return "the plan does not use all ranks";
  return NULL;
}

/* The kind of devices that computes longest on average: each price of time
 * gives a mean of these averages. */
static PlanLoad load_of_kinds(Arena *arena, const Price *price,
                              const BoundRequest *space) {
  double longest = 0;
  int slowest = 0;
  for (int k = 0; k < space->n_kinds; k++) {
    double computes = 0;
    for (int c = 0; c < price->n_classes; c++)
      if (price->classes[c].group == space->kinds[k].group)
        computes +=
            (double)price->classes[c].compute * (double)price->classes[c].ranks;
    computes /= (double)space->kinds[k].ranks;
    if (computes > longest) slowest = k;
    if (computes > longest) longest = computes;
  }
  Ps time = (Ps)longest < price->step ? (Ps)longest : price->step;
  if (time <= 0) return (PlanLoad){.reason = "the plan has no kernels"};
  return (PlanLoad){
      .time = time,
      .what = arena_printf(
          arena, "kernels, on average over the devices '%s' of '%s'",
          space->kinds[slowest].group->device->name,
          space->kinds[slowest].group->name ? space->kinds[slowest].group->name
                                            : space->slice->cluster->name)};
}

PlanLoad plan_load(Arena *arena, const Trial *trial,
                   const BoundRequest *space) {
  const Plan *plan = trial->c.plan;
  if (!plan) return (PlanLoad){.reason = "the plan does not use all ranks"};
  if (space->n_kinds > 0)
    return load_of_kinds(arena, &trial->priced.price, space);
  int groups = groups_of(plan);
  const char *reason = no_load(plan, groups, space);
  if (reason) return (PlanLoad){.reason = reason};
  PlacedUnits placed = placed_of(arena, trial, space);
  if (placed.reason) return (PlanLoad){.reason = placed.reason};
  if (plan->zero > 0 && !is_over_all(plan, placed.mesh))
    return (PlanLoad){.reason = "ZeRO is over a part of the axes"};
  BoundSetting setting = {.mesh = placed.mesh,
                          .groups = groups,
                          .microbatches = plan->microbatches,
                          .batch_axes = ANY_AXES,
                          .zero = plan->zero,
                          .recomputes =
                              placed.recomputes || plan_recomputes(plan)};
  OwnLoad load = recheck_load(arena, space, &setting, placed.assignments);
  if (load.time <= 0)
    return (PlanLoad){.reason = "the space does not have the plan"};
  Ps step = trial->priced.price.step;
  return (PlanLoad){.time = load.time < step ? load.time : step,
                    .what = words_of(arena, space, &setting, &load)};
}

double plan_search_gap(const PlanLoad *load, Ps bound) {
  return 1 - (double)bound / (double)load->time;
}
