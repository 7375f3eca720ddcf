/*
 * one_rank.c -- compiles the program of one rank, and makes its units.
 */
#include "tools/plan/one_rank.h"

#include <string.h>

#include "planner/space.h"
#include "price/units/stage_groups.h"

/* Returns the most micro-batches of which each may have the samples of a group
 * of batch normalisation, since none waits for the next one (decompose.c);
 * 0: any number. */
static int64_t most_microbatches(const Graph *graph, Name batch_dim) {
  int64_t most = 0;
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    int64_t own = node->body ? most_microbatches(node->body, batch_dim) : 0;
    int n = 0;
    if (node->op == OP_batchnorm &&
        node_names(node, ATTR_over, &n)[0] == batch_dim) {
      int64_t size = type_size(node->types[0], batch_dim);
      int64_t group = node_int(node, ATTR_group, size);
      if (group > 1) own = (size - 1) / (group - 1);
    }
    if (own > 0 && (most == 0 || own < most)) most = own;
  }
  return most;
}

bool one_rank_compile(Tool *tool, const Compilation *loaded,
                      const PriceRequest *request, int64_t ranks,
                      OneRank *out) {
  Trial *trial = ARENA_NEW(tool->arena, Trial);
  TrialPlan plan = {.pins = ARENA_NEW(tool->arena, Pins),
                    .blocks = KEPT_BLOCKS,
                    .is_training_only = true};
  if (!driver_try(loaded, tool->memory, &plan, request, trial)) return false;
  ClusterSlice *slice = ARENA_NEW(tool->arena, ClusterSlice);
  CostModel *model = ARENA_NEW(tool->arena, CostModel);
  *model = trial->priced.model;
  *slice = cluster_slice(tool->arena, trial->priced.cluster,
                         request->first_rank, ranks);
  if (!driver_cost_model(&trial->c, slice, model)) return false;
  Repeat *repeats = ARENA_ARRAY(tool->arena, Repeat, MOST_REPEATS);
  int n = graph_repeats(loaded->model->train, NULL, repeats);
  const Pins *pins = loaded->pins;
  *out = (OneRank){.kernels = trial->c.trained,
                   .repeats = {n, KEPT_BLOCKS, repeats},
                   .cluster = trial->priced.cluster,
                   .slice = slice,
                   .model = model,
                   .target = &trial->c.target.backend->target,
                   .memory = trial->priced.memory,
                   .ranks = ranks,
                   .most_microbatches = most_microbatches(
                       loaded->model->train, pins ? pins->batch_dim : NULL)};
  if (pins && pins->memory_bytes.is_set &&
      pins->memory_bytes.value < out->memory)
    out->memory = pins->memory_bytes.value;
  return true;
}

static bool is_fixed(unsigned restrictions, Restriction restriction) {
  return restrictions >> restriction & 1;
}

/* Returns whether ZeRO is over each axis of the written mesh. */
static bool is_zero_whole(const Pins *pins) {
  if (!pins_have_mesh(pins)) return false;
  for (int a = 0; a < pins->axes.n; a++) {
    bool is_there = pins->axes.data[a].size == 1;
    for (int i = 0; i < pins->zero_over.n_axes; i++)
      is_there |= pins->zero_over.axes[i] == pins->axes.data[a].name;
    if (!is_there) return false;
  }
  return true;
}

/* Measured launches and messages may be faster than formulas. */
static const char *no_bound(const OneRank *program, const Pins *pins,
                            unsigned restrictions) {
  if (program->cluster->n_curves > 0) return "the cluster has measured curves";
  if (pins && pins->reduces_bf16) return "sums of gradients have 16 bits";
  if (pins && pins->compress) return "gradients are compressed";
  if (pins && pins->border.n_axes > 0)
    return "gradients are added up inside of islands first";
  if (pins && is_fixed(restrictions, RESTRICTION_pinned_zero) &&
      pins->zero_over.n_axes > 0 && !is_zero_whole(pins))
    return "ZeRO is over a part of the axes";
  if (program->model->profile) return "a profile has measured launches";
  return NULL;
}

/* Kinds of devices have no one table of loads.  Returns why there are none, or
 * NULL. */
static const char *find_kinds(Arena *arena, const OneRank *program,
                              BoundRequest *out) {
  const ClusterSlice *ranks = program->slice;
  for (int i = 1; i < ranks->n_groups; i++)
    if (strcmp(ranks->groups[i].group->device->target,
               ranks->groups[0].group->device->target) != 0)
      return "devices have several back ends";
  out->kinds = bound_kinds(arena, program->model, ranks);
  return out->kinds ? NULL : "the machines are of too many kinds";
}

/* Stages share the work among kinds.  One program gives each rank as much, so
 * there the ranks of the slowest kind have the loads; but groups that add up
 * gradients first send others. */
static void take_kinds(const OneRank *program, BoundStages stages,
                       unsigned restrictions, BoundRequest *out) {
  int n = program->slice->n_groups;
  if (stages != STAGES_none ||
      !is_fixed(restrictions, RESTRICTION_whole_sums)) {
    out->n_kinds = n;
    return;
  }
  out->of = bound_slowest_kind(out->units, out->kinds, n);
  out->model = out->of->model;
}

/* Narrows the space to what was asked for. */
static const char *narrow(Arena *arena, const Pins *pins, unsigned restrictions,
                          BoundRequest *out) {
  if (is_fixed(restrictions, RESTRICTION_pinned_zero))
    out->zeros = 1u << pins->zero.value;
  if (is_fixed(restrictions, RESTRICTION_pinned_microbatches))
    out->microbatches = pins->microbatches.value;
  if (is_fixed(restrictions, RESTRICTION_pinned_mesh)) {
    out->mesh = pinned_mesh(arena, pins, out->ranks);
    if (!out->mesh) return "the written mesh has more than three axes";
  }
  return out->mesh && out->most_groups > 0 ? "the mesh of a stage is written"
                                           : NULL;
}

/* Loads count bytes that a line `offload` takes off the device: with such a
 * line plans of any bytes may fit. */
static Bytes memory_of(const OneRank *program, const Pins *pins) {
  enum { BEYOND_ALL = 60 };
  for (int i = 0; pins && i < pins->of_paths.n; i++)
    if (pins->of_paths.data[i].pin.says == SAYS_offload)
      return (Bytes)1 << BEYOND_ALL;
  return program->memory;
}

const char *one_rank_bound(Arena *arena, const OneRank *program,
                           const Pins *pins, unsigned restrictions,
                           BoundRequest *out) {
  const char *reason = no_bound(program, pins, restrictions);
  const Units *units =
      reason ? NULL
             : units_of(arena, program->kernels, pins ? pins->batch_dim : NULL,
                        &program->repeats, &reason);
  if (!units) return reason;
  *out = (BoundRequest){.units = units,
                        .slice = program->slice,
                        .model = program->model,
                        .ranks = program->ranks,
                        .batch = pins ? pins->batch : 1,
                        .most_microbatches = program->most_microbatches,
                        .zeros = program->ranks > 1 ? 0xfu : 1u,
                        .may_recompute = program->repeats.n > 0,
                        .memory = memory_of(program, pins)};
  BoundStages stages = restrictions_stages(restrictions);
  if (stages != STAGES_none) out->most_groups = MOST_STAGE_GROUPS;
  if (stages == STAGES_any || program->slice->n_groups > 1)
    reason = find_kinds(arena, program, out);
  if (out->kinds) take_kinds(program, stages, restrictions, out);
  if (reason || out->n_kinds > 0) return reason;
  if (stages == STAGES_equal) {
    out->crosses = unit_edges_cross(arena, units);
    out->spans = unit_stage_spans(arena, units);
  }
  return pins ? narrow(arena, pins, restrictions, out) : NULL;
}
