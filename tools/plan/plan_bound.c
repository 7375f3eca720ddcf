/*
 * plan_bound.c -- bounds the step of what a search looked at.
 */
#include "planner/space.h"
#include "tools/commands/planning.h"

/* Returns why loads are no bounds, or NULL.  Measured launches and messages may
 * be faster than formulas. */
static const char *no_bound(const SearchInput *input) {
  if (!input->kernels) return "no operator is placed by itself";
  if (input->slice->n_groups > 1) return "the machines are of several kinds";
  if (input->cluster->n_curves > 0) return "the cluster has measured curves";
  if (input->pins && input->pins->reduces_bf16)
    return "sums of gradients have 16 bits";
  if (input->model->profile) return "a profile has measured launches";
  return NULL;
}

Bound planning_bound(const Planning *planning, Ps step) {
  const SearchInput *input = &planning->input;
  const Pins *pins = input->pins;
  Arena *arena = planning->tool->arena;
  const char *reason = no_bound(input);
  const Units *units =
      reason ? NULL
             : units_of(arena, input->kernels, pins ? pins->batch_dim : NULL,
                        &input->repeats, &reason);
  if (!units) return (Bound){.reason = reason};
  unsigned zeros = input->ranks > 1 ? 0xfu : 1u;
  if (pins && pins->zero.is_set) zeros = 1u << pins->zero.value;
  BoundRequest request = {.units = units,
                          .slice = input->slice,
                          .model = input->model,
                          .ranks = input->ranks,
                          .batch = pins ? pins->batch : 1,
                          .zeros = zeros,
                          .may_recompute = input->repeats.n > 0,
                          .memory = input->memory,
                          .step = step,
                          .is_stopped = input->host->is_stopped,
                          .user = input->host->user};
  request.mesh = pinned_mesh(arena, pins, input->ranks);
  if (pins && pins_have_mesh(pins) && !request.mesh)
    return (Bound){.reason = "the written mesh has more than three axes"};
  if (pins && pins->zero_over.n_axes > 0)
    return (Bound){.reason = "ZeRO is over written axes"};
  if (pins && pins->microbatches.is_set)
    request.microbatches = pins->microbatches.value;
  return plan_bound(arena, &request);
}
