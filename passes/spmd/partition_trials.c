/*
 * partition_trials.c -- partitions a graph without keeping the result, to learn
 * what its ranks would send.
 *
 * A trial reports nothing.  Its collectives are counted after equal ones are
 * merged and unread ones dropped, as the passes that follow do it.
 *
 * Values are completed (completion.c) where ranks then send no more bytes of
 * values and their gradients than with the placements that follow from the
 * operands alone: with as many bytes they store less.  Sums of parameter
 * gradients do not count: they are small, and no operator waits for them.
 */
#include "ir/place/mesh_place.h"
#include "ir/work.h"
#include "passes/spmd/partition.h"
#include "passes/spmd/partition_trials.h"

/* The bytes of a training step, or of one run of a scan's body. */
static void add_sent_bytes(const Graph *graph, int64_t microbatches,
                           int64_t times, PlacementCost *cost) {
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    int64_t n =
        node_is_per_microbatch(graph, id) ? times * microbatches : times;
    int64_t bytes = n * node_sent_bytes(graph, id);
    cost->bytes += bytes;
    if (node->phase == PHASE_forward || node->phase == PHASE_input_gradient)
      cost->value_bytes += bytes;
    if (node->op == OP_scan)
      add_sent_bytes(node->body, 1, n * scan_steps(node), cost);
  }
}

PlacementCost placement_cost(const PassContext *ctx, const Graph *placed,
                             bool with_remat) {
  Arena *scratch = arena_beside(ctx->scratch);
  PassContext own = *ctx;
  own.module = module_apart(ctx->module, scratch);
  own.scratch = scratch;
  PlacementCost cost = {0};
  placed = pass_cse(&own, placed);
  if (with_remat) placed = pass_remat(&own, placed);
  placed = pass_dce(&own, placed);
  add_sent_bytes(placed, ctx->plan->microbatches, 1, &cost);
  arena_destroy(scratch);
  return cost;
}

const Graph *partition_quietly(const PassContext *ctx, const Graph *graph,
                               PartitionTrial *trial, bool *out_is_quiet) {
  PassContext own = *ctx;
  Diags *diags = ctx->module->diags;
  own.scratch = arena_beside(ctx->scratch);
  own.module->diags = diags_create(own.scratch);
  const Graph *placed = partition_graph(&own, graph, trial);
  if (diags_errors(own.module->diags) > 0) placed = NULL;
  *out_is_quiet = placed && diags_warnings(own.module->diags) == 0;
  own.module->diags = diags;
  arena_destroy(own.scratch);
  return placed;
}

bool try_placement(const PassContext *ctx, const Graph *graph,
                   PartitionTrial *trial, bool with_remat,
                   PlacementCost *out_cost) {
  bool is_quiet;
  const Graph *placed = partition_quietly(ctx, graph, trial, &is_quiet);
  if (placed) *out_cost = placement_cost(ctx, placed, with_remat);
  return placed != NULL;
}

/* Values around the constraints have placements that the constraints imply. */
static bool implies_any(const Map *notes) {
  for (int i = 0; notes && i < map_size(notes); i++) {
    const ConstraintNote *note = map_value_at(notes, i);
    if (note->node->phase == PHASE_forward &&
        !type_equal(note->have, note->want))
      return true;
  }
  return false;
}

static int64_t value_bytes(const PassContext *ctx, const Graph *placed) {
  return placement_cost(ctx, placed, false).value_bytes;
}

/* A value that the backward pass gathers again, to save memory, is gathered
 * once here. */
const Graph *choose_completion(const PassContext *ctx, const Graph *graph,
                               PartitionTrial *trial) {
  PartitionTrial plain = {.left_out = trial->left_out,
                          .instead = trial->instead};
  PartitionTrial completed = plain;
  bool is_quiet, is_completed_quiet;
  const Graph *before = partition_quietly(ctx, graph, &plain, &is_quiet);
  if (before && !implies_any(plain.notes)) {
    *trial = plain;
    return is_quiet ? before : NULL;
  }
  completed.completes = true;
  completed.before = before ? plain.notes : NULL;
  const Graph *placed =
      partition_quietly(ctx, graph, &completed, &is_completed_quiet);
  bool completes =
      placed &&
      (!before || (completed.is_changed &&
                   value_bytes(ctx, placed) <= value_bytes(ctx, before)));
  if (!completes && !before) return NULL;
  *trial = completes ? completed : plain;
  if (completes) return is_completed_quiet ? placed : NULL;
  return is_quiet ? before : NULL;
}
