/*
 * plan_bound.c -- bounds the step of what a search looked at.
 */
#include "tools/commands/planning.h"
#include "tools/plan/one_rank.h"

Bound planning_bound(const Planning *planning, Ps step) {
  const SearchInput *input = &planning->input;
  Arena *arena = planning->tool->arena;
  OneRank program = {.kernels = input->kernels,
                     .repeats = input->repeats,
                     .cluster = input->cluster,
                     .slice = input->slice,
                     .model = input->model,
                     .memory = input->memory,
                     .ranks = input->ranks};
  BoundRequest request;
  if (!input->kernels)
    return (Bound){.reason = "no operator is placed by itself"};
  const char *reason = one_rank_bound(
      arena, &program, input->pins, planning_restrictions(planning), &request);
  if (reason) return (Bound){.reason = reason};
  request.step = step;
  request.is_stopped = input->host->is_stopped;
  request.user = input->host->user;
  return plan_bound(arena, &request);
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
