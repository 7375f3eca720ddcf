/*
 * plan_bound.c -- bounds the step of what a search looked at.
 */
#include "tools/commands/planning.h"
#include "tools/plan/one_rank.h"

/* Returns why there is no bound, or NULL. */
static const char *find_space(const Planning *planning, BoundRequest *out) {
  const SearchInput *input = &planning->input;
  /* Units point to its repeats. */
  OneRank *program = ARENA_NEW(planning->tool->arena, OneRank);
  *program = (OneRank){.kernels = input->kernels,
                       .repeats = input->repeats,
                       .cluster = input->cluster,
                       .slice = input->slice,
                       .model = input->model,
                       .memory = input->memory,
                       .ranks = input->ranks};
  if (!input->kernels) return "no operator is placed by itself";
  return one_rank_bound(planning->tool->arena, program, input->pins,
                        planning_restrictions(planning), out);
}

PlanBound planning_bound(const Planning *planning, const Chosen *chosen) {
  const SearchInput *input = &planning->input;
  PlanBound out = {0};
  BoundRequest *space = &out.space;
  out.bound.reason = find_space(planning, space);
  out.has_space = !out.bound.reason;
  if (out.bound.reason) return out;
  space->step = chosen->trial.priced.price.step;
  space->is_stopped = input->host->is_stopped;
  space->user = input->host->user;
  out.bound = plan_bound(planning->tool->arena, space);
  if (out.bound.reason) return out;
  out.load = plan_load(planning->tool->arena, &chosen->trial, space);
  if (!out.load.reason && out.load.time < out.bound.time)
    out.load.reason = "the bound is above the largest load of the plan, since "
                      "it counts bytes that the plan does not need";
  return out;
}

unsigned planning_restrictions(const Planning *planning) {
  const Pins *pins = planning->input.pins;
  unsigned out = restrictions_of_all();
  if (pins && pins_have_mesh(pins)) out |= 1u << RESTRICTION_pinned_mesh;
  if (pins && pins->zero.is_set) out |= 1u << RESTRICTION_pinned_zero;
  if (pins && pins->microbatches.is_set)
    out |= 1u << RESTRICTION_pinned_microbatches;
  return out;
}
