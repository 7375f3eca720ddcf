/*
 * plan_bound.c -- bounds the step of what a search looked at.
 */
#include "planner/solve/bound_duals.h"
#include "planner/stages/stage_pins.h"
#include "tools/commands/planning.h"
#include "tools/plan/one_rank.h"

#include "price/units/stage_groups.h"

void planning_find_space(Planning *planning) {
  const SearchInput *input = &planning->input;
  /* Units point to its repeats. */
  OneRank *program = ARENA_NEW(planning->tool->arena, OneRank);
  *program = (OneRank){.kernels = input->kernels,
                       .repeats = input->repeats,
                       .cluster = input->cluster,
                       .slice = input->slice,
                       .model = input->model,
                       .memory = input->memory,
                       .ranks = input->ranks,
                       .most_microbatches = input->most_microbatches};
  planning->space.step = 0;
  planning->no_space = "no operator is placed by itself";
  if (!input->kernels) return;
  planning->no_space = "the plan changes what is computed";
  if (input->pins && pins_change_results(planning->tool->arena, input->pins))
    return;
  planning->no_space = one_rank_bound(
      planning->tool->arena, program, input->pins,
      planning_restrictions(planning) | 1u << RESTRICTION_whole_sums,
      &planning->space);
  planning->space.is_stopped = input->host->is_stopped;
  planning->space.user = input->host->user;
}

void planning_bound_step(Planning *planning, Ps step, BoundPlans *out) {
  planning->space.step = step;
  planning->bound = plan_bound_and_means(
      planning->tool->arena, &planning->space, out, &planning->means);
}

/* All devices share the work of any plans, also of those that the loads of one
 * kind do not bound. */
static void share_work(const Planning *planning, BoundRequest *space) {
  if (!space->of) return;
  space->of = NULL;
  space->n_kinds = space->slice->n_groups;
  space->model = planning->input.model;
}

/* Bounds plans with stages, too, if the search has looked at them.  The bound
 * without stages holds for any step. */
static void add_stages(Planning *planning, Ps step, PlanBound *out,
                       const BoundMeans **out_means) {
  Arena *arena = planning->tool->arena;
  BoundRequest space = out->space;
  share_work(planning, &space);
  space.step = step;
  space.least_groups = 2;
  space.most_groups = MOST_STAGE_GROUPS;
  if (space.n_kinds > 0) out->space = space;
  out->space.crosses = space.crosses = unit_edges_cross(arena, space.units);
  space.spans = unit_stage_spans(arena, space.units);
  Bound bound = plan_bound_and_means(arena, &space, NULL, out_means);
  if (bound.is_empty) return;
  bool is_of_all = space.n_kinds > 0; /* of plans without stages, too */
  if (is_of_all || bound.reason || out->bound.is_empty ||
      bound.time < out->bound.time)
    out->bound = bound;
}

/* Proves the bound of a program that is too wide for others to add up. */
static void prove(Planning *planning, Ps step, const BoundMeans *with_stages,
                  PlanBound *out) {
  Arena *arena = planning->tool->arena;
  const BoundMeans *means[] = {planning->means, with_stages};
  Text text = text_create(arena);
  if (out->bound.reason || out->space.n_kinds > 0 ||
      !bound_needs_duals(arena, means, ARRAY_LENGTH(means)))
    return;
  bound_prove(arena, means, ARRAY_LENGTH(means), step, &out->bound, &text);
  out->duals = text_string(&text);
}

/* Gradients that groups of devices add up first are sent otherwise. */
static bool needs_work(const Planning *planning, const Chosen *chosen) {
  const Plan *plan = chosen->trial.c.plan;
  return planning->space.of && !planning->bound.is_empty &&
         (planning->bound.reason || (plan && plan->border.n_axes > 0));
}

PlanBound planning_bound(Planning *planning, const Chosen *chosen) {
  Ps step = chosen->trial.priced.price.step;
  PlanBound out = {.bound = {.reason = planning->no_space}};
  bool has_stages = planning->result.has_stages;
  /* Loads of stages that simulated times cut are unknown. */
  if (!out.bound.reason && planning->result.is_timed)
    out.bound.reason = units_loop(planning->tool->arena, planning->space.units);
  if (out.bound.reason) return out;
  /* The search has bounded the step of its own best plan. */
  if (planning->space.step < step ||
      (!has_stages && planning->space.step != step))
    planning_bound_step(planning, step, NULL);
  if (!has_stages && needs_work(planning, chosen)) {
    share_work(planning, &planning->space);
    planning_bound_step(planning, step, NULL);
  }
  out = (PlanBound){.bound = planning->bound, .space = planning->space};
  const BoundMeans *with_stages = NULL;
  if (has_stages && (!out.bound.reason || out.bound.is_empty || out.space.of))
    add_stages(planning, step, &out, &with_stages);
  out.has_space = out.space.n_kinds == 0;
  prove(planning, step, with_stages, &out);
  if (out.bound.time > step) out.bound.time = step;
  if (out.bound.reason) return out;
  out.load = plan_load(planning->tool->arena, &chosen->trial, &out.space);
  if (!out.load.reason && out.load.time < out.bound.time)
    out.load.reason = "the bound is above the largest load of the plan, since "
                      "it counts bytes that the plan does not need";
  return out;
}

/* Which plans the search has looked at. */
static BoundStages stages_of(const Planning *planning) {
  const SearchInput *input = &planning->input;
  if (stage_pins_of(planning->tool->arena, input->pins).needs_stages)
    return STAGES_any;
  if (!planning->result.has_stages) return STAGES_none;
  return input->slice->n_groups > 1 ? STAGES_any : STAGES_equal;
}

unsigned planning_restrictions(const Planning *planning) {
  const Pins *pins = planning->input.pins;
  unsigned out = restrictions_of_all(stages_of(planning));
  if (pins && pins_have_mesh(pins)) out |= 1u << RESTRICTION_pinned_mesh;
  if (pins && pins->zero.is_set) out |= 1u << RESTRICTION_pinned_zero;
  if (pins && pins->microbatches.is_set)
    out |= 1u << RESTRICTION_pinned_microbatches;
  const Units *units = planning->space.units;
  if (restrictions_stages(out) == STAGES_none && planning->space.of)
    out |= 1u << RESTRICTION_whole_sums;
  if (units && units_loop(planning->tool->arena, units))
    out |= 1u << RESTRICTION_whole_loops;
  return out;
}
