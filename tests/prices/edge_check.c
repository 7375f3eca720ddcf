/*
 * edge_check.c -- adds up the reshardings of a plan, one by one and from types
 * alone, and compares them with the collectives that `partition` has made.
 *
 * Graphs with scans are left out, whose bodies are placed several times, and so
 * are permutes, which operators on windows and turns of attention need.
 */
#include "passes/spmd/partition_trials.h"
#include "planner/tables.h"
#include "tests/prices/prices.h"

/* Counts bytes as a step of a chain does: with all micro-batches. */
static Bytes sent_in_step(const Graph *graph, int id) {
  Bytes sent = node_sent_bytes(graph, id);
  return node_is_per_microbatch(graph, id)
             ? sent * mesh_microbatches(&graph->mesh)
             : sent;
}

static Bytes sent_in_graph(const Graph *graph, Op op, AxisSet axes) {
  Bytes sent = 0;
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    if (node->op == op &&
        axis_list_set(collective_axes(&graph->mesh, node)) == axes)
      sent += sent_in_step(graph, id);
  }
  return sent;
}

static Bytes all_sent(const Graph *graph) {
  Bytes sent = 0;
  for (int id = 0; id < graph->nodes.n; id++)
    if (graph->nodes.data[id]->op != OP_permute)
      sent += sent_in_step(graph, id);
  return sent;
}

static bool has_scan(const Graph *graph) {
  for (int id = 0; id < graph->nodes.n; id++)
    if (graph->nodes.data[id]->op == OP_scan) return true;
  return false;
}

static bool are_sums_equal(const PlanSum *sum, const Graph *placed) {
  Bytes sent = 0;
  for (int i = 0; i < sum->transfers.n; i++) {
    const TransferSum *of = &sum->transfers.data[i];
    if (of->sent != sent_in_graph(placed, of->op, of->axes)) return false;
    sent += of->sent;
  }
  return sent == all_sent(placed);
}

EdgeAnswer check_edges(PlanTables *tables, const PassContext *ctx,
                       const Graph *planning) {
  PassContext own = *ctx;
  PartitionTrial trial = {0};
  PlanSum sum = {0};
  EdgeAnswer answer = EDGES_equal;
  if (has_scan(planning)) return EDGES_not_compared;
  Arena *arena = arena_beside(ctx->module->arena);
  own.module = module_apart(ctx->module, arena);
  own.scratch = arena;
  const Graph *placed = partition_decide(&own, planning, &trial);
  Resharding *chains = reshard_create_plain(arena, &placed->mesh);
  if (diags_errors(own.module->diags) > 0) answer = EDGES_not_compared;
  for (int i = 0; i < trial.reshards.n && answer == EDGES_equal; i++) {
    const ReshardNote *note = &trial.reshards.data[i];
    if (!plan_tables_reshard(tables, arena, chains, &placed->mesh, note->from,
                             note->to, note->reduced, &sum))
      answer = EDGES_not_compared;
  }
  if (answer == EDGES_equal && !are_sums_equal(&sum, placed))
    answer = EDGES_differ;
  arena_destroy(arena);
  return answer;
}
