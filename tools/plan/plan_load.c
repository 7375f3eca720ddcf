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

PlanLoad plan_load(Arena *arena, const Trial *trial,
                   const BoundRequest *space) {
  const Plan *plan = trial->c.plan;
  if (plan && plan->stages.n > 1)
    return (PlanLoad){.reason = "the loads of stages are not added up yet"};
  if (!plan || mesh_ranks(plan_mesh(plan)) != space->ranks)
    return (PlanLoad){.reason = "the plan does not use all ranks"};
  PlacedUnits placed = units_placed(arena, space->units, plan,
                                    trial->priced.stage->instructions->graph);
  if (placed.reason) return (PlanLoad){.reason = placed.reason};
  if (plan->zero > 0 && !is_over_all(plan, placed.mesh))
    return (PlanLoad){.reason = "ZeRO is over a part of the axes"};
  BoundSetting setting = {.mesh = placed.mesh,
                          .microbatches = plan->microbatches,
                          .batch_axes = ANY_AXES,
                          .zero = plan->zero,
                          .recomputes = placed.recomputes};
  Ps load = recheck_load(arena, space, &setting, placed.assignments);
  if (load <= 0)
    return (PlanLoad){.reason = "the space does not have the plan"};
  Ps step = trial->priced.price.step;
  return (PlanLoad){.time = load < step ? load : step};
}

double plan_search_gap(const PlanLoad *load, Ps bound) {
  return 1 - (double)bound / (double)load->time;
}
