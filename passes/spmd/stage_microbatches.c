/*
 * stage_microbatches.c -- marks what a stage runs for each micro-batch, where
 * the plan has one, and refuses what cannot run for each.
 *
 * A stage does what it does once a step before its micro-batches or after them.
 * So what runs for each of them cannot follow from a value that another stage
 * sends after them; such a graph is refused.
 *
 * A plan of one micro-batch has no axis by which types tell what runs for it.
 * These nodes get the attribute `per_microbatch`, and the three parts of a
 * stage are the same however many micro-batches there are:
 *
 *     %0 = input receive "y"              %0 = input receive "y"
 *     %2 = mul %0, %1 : f32[B:8]      =>  %2 = mul %0, %1 {per_microbatch = 1}
 *     %3 = sum %2 : f32[]                 %3 = sum %2 {per_microbatch = 1}
 *     %4 = finite %3 @update              %4 = finite %3 @update
 *
 * requires: partitioned graph     keeps: node ids     breaks: nothing
 * cost: O(nodes)
 */
#include "passes/spmd/partition.h"

#include "ir/place/mesh_place.h"

static const GraphInput *input_at(const Graph *graph, int id) {
  const Node *node = graph->nodes.data[id];
  return node->op == OP_input
             ? &graph->inputs.data[node_int(node, ATTR_index, 0)]
             : NULL;
}

/* By node: a value that is received after all micro-batches and that it follows
 * from, as number of its edge plus 1; 0 means none. */
static int *find_late(const PassContext *ctx, const Graph *graph) {
  int *late = ARENA_ARRAY(ctx->scratch, int, graph->nodes.n);
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    const GraphInput *input = input_at(graph, id);
    const StageEdge *edge = input ? stage_edge_received(ctx->cut, input) : NULL;
    if (edge && edge->is_after)
      late[id] = (int)(edge - ctx->cut->edges.data) + 1;
    for (int i = 0; i < node->n_inputs && !late[id]; i++)
      late[id] = late[node->inputs[i].node];
  }
  return late;
}

static void report_late(const PassContext *ctx, const Graph *graph, int id,
                        int late) {
  const StageEdge *edge = &ctx->cut->edges.data[late - 1];
  const Node *node = graph->nodes.data[id];
  diag(ctx->module->diags, DIAG_stage_late, node->span,
       *graph_path(graph, id) ? graph_path(graph, id) : op_info(node->op)->name,
       edge->path, edge->from);
}

/* Values that follow from the input differ between micro-batches.  Where each
 * has an update of its own, they read parameters of different versions. */
static bool differs(const PassContext *ctx, const GraphInput *input) {
  const StageEdge *edge = stage_edge_received(ctx->cut, input);
  return input->role == ROLE_data || (edge && !edge->is_of_step) ||
         ctx->cut->has_versions;
}

/* By node: it runs for the one micro-batch of the plan. */
static bool *find_work(const PassContext *ctx, const Graph *graph,
                       const int *late) {
  bool *is_work = ARENA_ARRAY(ctx->scratch, bool, graph->nodes.n);
  bool *follows = ARENA_ARRAY(ctx->scratch, bool, graph->nodes.n);
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    const GraphInput *input = input_at(graph, id);
    follows[id] = input && differs(ctx, input);
    for (int i = 0; i < node->n_inputs; i++)
      follows[id] |= follows[node->inputs[i].node];
    is_work[id] =
        !input && follows[id] && !late[id] && node->phase != PHASE_update;
  }
  return is_work;
}

/* A value of a micro-batch is sent with it. */
static void check_sends(const PassContext *ctx, const Graph *graph,
                        const int *late) {
  for (int i = 0; i < graph->outputs.n; i++) {
    const GraphOutput *output = &graph->outputs.data[i];
    const StageEdge *edge = stage_edge_sent(ctx->cut, output);
    int id = output->value.node;
    if (!edge || edge->is_of_step || !late[id]) continue;
    report_late(ctx, graph, id, late[id]);
    return;
  }
}

void check_stage(const PassContext *ctx, const Graph *placed) {
  if (!ctx->cut || diags_errors(ctx->module->diags) > 0) return;
  const int *late = find_late(ctx, placed);
  if (!mesh_sequential(&placed->mesh)) {
    check_sends(ctx, placed, late);
    return;
  }
  for (int id = 0; id < placed->nodes.n; id++) {
    if (!late[id] || !node_is_per_microbatch(placed, id)) continue;
    report_late(ctx, placed, id, late[id]);
    return;
  }
}

/* Forward passes of a stage that sends their results run ahead. */
static bool runs_ahead(const PassContext *ctx, const Graph *graph) {
  for (int i = 0; i < graph->outputs.n; i++) {
    const GraphOutput *output = &graph->outputs.data[i];
    if (stage_edge_sent(ctx->cut, output) &&
        graph_node(graph, output->value)->phase == PHASE_forward)
      return true;
  }
  return false;
}

/* Lets the backward pass add up what forward passes make, such as statistics:
 * where those of the next batch come before the update that reads the sum, it
 * must not hold parts of theirs. */
static Graph *add_later(PassContext *ctx, const Graph *graph) {
  Rewrite rewrite = rewrite_begin(ctx, graph);
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    Value made = rewrite_copy(&rewrite, id);
    if (node_joins_microbatches(node) && node->phase == PHASE_forward)
      rewrite.to->nodes.data[made.node]->phase = PHASE_weight_gradient;
  }
  return rewrite_end(&rewrite);
}

Graph *pass_stage_microbatches(PassContext *ctx, const Graph *graph) {
  if (!ctx->cut) return NULL;
  if (mesh_sequential(&graph->mesh))
    return ctx->cut->has_versions && runs_ahead(ctx, graph)
               ? add_later(ctx, graph)
               : NULL;
  return repeat_nodes(ctx, graph, find_work(ctx, graph, find_late(ctx, graph)));
}
