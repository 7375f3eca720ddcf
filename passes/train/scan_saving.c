/*
 * scan_saving.c -- marks the values inside of scans that the plan's lines
 * `remat` and `keep` name, for ir/ops/grad_scan.c, which chooses what a forward
 * scan stacks for the backward one.
 *
 *     plan: remat rnn.z
 *     %4 = exp %3 "rnn.z"   =>   %4 = exp %3 {recompute = 1} "rnn.z"
 *
 * The outputs of the body are stored anyway and get no mark.  A line that names
 * all of a scan is left to the pass `remat`, which clones the scan.  The marks
 * live within the pass `autodiff`.
 */
#include "passes/train/scan_saving.h"

static const PlanPin *line_of(const PassContext *ctx, const Node *node) {
  return node->op == OP_input ? NULL : plan_find_saving(ctx->plan, node->path);
}

static bool is_named_inside(const PassContext *ctx, const Graph *body) {
  for (int id = 0; id < body->nodes.n; id++) {
    const Node *node = body->nodes.data[id];
    if (line_of(ctx, node) || (node->body && is_named_inside(ctx, node->body)))
      return true;
  }
  return false;
}

static bool is_result_of(const Graph *body, int id) {
  for (int i = 0; i < body->outputs.n; i++)
    if (body->outputs.data[i].value.node == id) return true;
  return false;
}

static bool mark_rule(Rewrite *rewrite, int id, void *user) {
  (void)user;
  PassContext *ctx = rewrite->ctx;
  const Node *node = rewrite->from->nodes.data[id];
  const PlanPin *line =
      is_result_of(rewrite->from, id) ? NULL : line_of(ctx, node);
  Graph *body = node->op == OP_scan ? scan_saving_mark(ctx, node) : node->body;
  if (!line && body == node->body) return false;
  Attrs attrs = node_attrs(node);
  if (line) attrs_int(&attrs, ATTR_recompute, line->says == SAYS_remat);
  Value first = graph_append_typed(rewrite->to, node->op,
                                   rewrite_inputs(rewrite, id), node->n_inputs,
                                   &attrs, node->types, node->n_results, body);
  for (int r = 0; r < node->n_results; r++)
    rewrite_set(rewrite, (Value){id, r}, (Value){first.node, r});
  return true;
}

Graph *scan_saving_mark(PassContext *ctx, const Node *scan) {
  if (!ctx->plan || !ctx->plan->saved) return scan->body;
  const PlanPin *line = plan_find_saving(ctx->plan, scan->path);
  bool is_again = line && line->says == SAYS_remat;
  if (is_again || !is_named_inside(ctx, scan->body)) return scan->body;
  return rewrite_graph(ctx, scan->body, mark_rule, NULL);
}

static void drop_mark(const Graph *graph, Node *node) {
  int n = 0;
  if (!node_has(node, ATTR_recompute)) return;
  Attr *attrs = ARENA_ARRAY(graph->module->arena, Attr, node->n_attrs);
  for (int i = 0; i < node->n_attrs; i++)
    if (node->attrs[i].key != ATTR_recompute) attrs[n++] = node->attrs[i];
  node->attrs = attrs;
  node->n_attrs = n;
}

void scan_saving_drop_marks(Graph *graph) {
  graph->hashed_nodes = 0;
  for (int id = 0; id < graph->nodes.n; id++) {
    Node *node = graph->nodes.data[id];
    drop_mark(graph, node);
    if (node->body) scan_saving_drop_marks(node->body);
  }
}
