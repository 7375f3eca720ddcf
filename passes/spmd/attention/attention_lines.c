/*
 * attention_lines.c -- reads what a plan says about sequences for the line
 * `attention`, and reports why that line cannot hold.
 */
#include "passes/spmd/attention/attention.h"

int64_t sequence_shards(const Plan *plan, Name dim) {
  const PlanShard *line =
      dim == plan->batch_dim ? NULL : plan_find_shard(plan, dim);
  const Mesh *mesh = plan_mesh(plan);
  int64_t n = 1;
  for (int i = 0; line && i < line->n_axes; i++)
    n *= mesh->axes[mesh_find(mesh, line->axes[i])].size;
  return n;
}

/* The reason why an attention is not computed as the line says. */
static DiagId why_missed(const Graph *graph, const Node *missed,
                         const Plan *plan) {
  Name query = node_name(missed, ATTR_query), key = node_name(missed, ATTR_key);
  int64_t n_queries = type_size(graph_type(graph, missed->inputs[0]), query);
  int64_t n_keys = type_size(graph_type(graph, missed->inputs[1]), key);
  if (sequence_shards(plan, query) <= 1) return DIAG_attention_replicated;
  bool is_causal = node_int(missed, ATTR_causal, 0) != 0;
  return is_causal && n_queries != n_keys ? DIAG_attention_sizes
                                          : DIAG_attention_placed;
}

static const Node *find_scan_over(const Graph *graph, const Plan *plan) {
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    if (node->op != OP_scan) continue;
    if (sequence_shards(plan, node_name(node, ATTR_dim)) > 1) return node;
  }
  return NULL;
}

void report_no_attention(PassContext *ctx, const Graph *graph,
                         const Node *missed) {
  const Plan *plan = ctx->plan;
  Diags *diags = ctx->module->diags;
  const Node *scan = find_scan_over(graph, plan);
  const char *word = plan_attention_name(plan->attention);
  if (scan) {
    Diag *d = diag(diags, DIAG_attention_scan, plan->attention_span, word,
                   node_name(scan, ATTR_dim));
    diag_note(d, scan->span, "the scan is here");
  } else if (missed) {
    Name query = node_name(missed, ATTR_query);
    DiagId id = why_missed(graph, missed, plan);
    Diag *d = diag(diags, id, plan->attention_span, word, query);
    diag_note(d, missed->span, "the attention is here");
    if (id == DIAG_attention_replicated)
      diag_help(d, "add a line: shard %s over AXIS", query);
  } else {
    diag(diags, DIAG_attention_none, plan->attention_span, word);
  }
}
