/*
 * partition.c -- the pass `partition`: decides whether values around pins
 * get the placements that the pins imply, partitions the graph, and warns of
 * costly pins.
 *
 * Without a pin of a value there is nothing to decide.
 *
 * Training does the micro-batches of its plan, or that is a mistake.  An
 * evaluation does them to save memory alone: where an output of its graph
 * cannot be added up over them, it does the batch of a rank at once.
 */
#include "passes/spmd/partition.h"
#include "passes/spmd/partition_trials.h"

static bool has_constraints(const Graph *graph) {
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    if (node->op == OP_constraint ||
        (node->body && has_constraints(node->body)))
      return true;
  }
  return false;
}

const Graph *partition_decide(PassContext *ctx, const Graph *graph,
                              PartitionTrial *trial) {
  const Plan *plan = ctx->plan;
  if (!plan || (plan->ranks <= 1 && plan->microbatches <= 1))
    return rewrite_graph(ctx, graph, NULL, NULL);
  const Graph *placed =
      has_constraints(graph) ? choose_completion(ctx, graph, trial) : NULL;
  return placed ? placed : partition_graph(ctx, graph, trial);
}

/* The graph without the sequential axis. */
static const Graph *partition_at_once(const PassContext *ctx,
                                      const Graph *graph) {
  PassContext own = *ctx;
  Plan *plan = arena_copy(ctx->scratch, ctx->plan, sizeof *plan);
  PartitionTrial trial = {0};
  plan_drop_time(plan);
  own.plan = plan;
  return partition_decide(&own, graph, &trial);
}

static Graph *partition_and_warn(PassContext *ctx, const Graph *graph) {
  PartitionTrial trial = {0};
  if (ctx->plan && ctx->plan->microbatches > 1 && !ctx->is_training) {
    bool is_quiet;
    const Graph *divided = partition_quietly(ctx, graph, &trial, &is_quiet);
    if (!divided) return (Graph *)partition_at_once(ctx, graph);
    if (is_quiet && !has_constraints(graph)) return (Graph *)divided;
    trial = (PartitionTrial){0};
  }
  const Graph *placed = partition_decide(ctx, graph, &trial);
  bool is_doubted = ctx->plan && !ctx->plan->is_certified &&
                    (ctx->plan->ranks > 1 || ctx->plan->microbatches > 1);
  if (is_doubted && !ctx->is_trial && has_constraints(graph) &&
      ctx->is_training && diags_errors(ctx->module->diags) == 0)
    warn_of_costly_pins(ctx, graph, placed, &trial);
  return (Graph *)placed;
}

Graph *pass_partition(PassContext *ctx, const Graph *graph) {
  Graph *placed = partition_and_warn(ctx, graph);
  check_stage(ctx, placed);
  return placed;
}
