/*
 * outer_shards.c -- stores the dim along which lines about values move shards
 * outermost, in training.
 *
 *     plan: shard y: B over data, T over tensor
 *     %2 = constraint %1 {...} : f32[B, T, C]   =>   ... : f32[T, B, C]
 *
 * Collectives work on shards that lie end to end (resharding_steps.c).  Where
 * the sharded dim is the outermost one, shards are that already; else a
 * transpose stands before each scatter and after each gather.  Matmuls and
 * reductions of rows take either order.
 *
 * The dim is one that constraints shard and no line about its name does, so
 * that it is gathered between them.  It is not the batch, whose shards stay
 * where they are, nor the innermost dim, along which kernels read rows.  Of
 * several it is the one that most constraints shard.  Data is transposed as it
 * comes in, and outputs get their own order back; all other nodes infer their
 * types again.  Where an operator needs the dim in its place, as a loop or a
 * convolution does, the graph stays as it is.
 *
 * requires: logical types     keeps: values, types but for the order of dims
 * breaks: node ids            cost: O(nodes)
 */
#include "passes/rewrite.h"

/* ---- the dim ---- */

static bool is_moved(const PassContext *ctx, const Node *node, Name dim) {
  const Type *type = node->types[0];
  int at = type_find(type, dim);
  return at >= 0 && at < type->rank - 1 &&
         !plan_is_batch(ctx->plan, node->path, dim) &&
         !plan_named_dim(ctx->plan, node->path, dim);
}

/* The dim that most constraints shard, or NULL. */
static Name find_moved_dim(const PassContext *ctx, const Graph *graph) {
  Map *counts = map_create(ctx->scratch);
  Name best = NULL;
  intptr_t most = 0;
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    if (node->op != OP_constraint) continue;
    int n;
    const Name *dims = node_names(node, ATTR_to, &n);
    for (int i = 0; i < n; i++) {
      if (!is_moved(ctx, node, dims[i])) continue;
      intptr_t count = (intptr_t)map_get(counts, dims[i]) + 1;
      map_put(counts, dims[i], (void *)count);
      if (count <= most) continue;
      best = dims[i];
      most = count;
    }
  }
  return best;
}

/* The operator joins the dim with another, slides along it, or is a loop, whose
 * body has types of its own. */
static bool needs_order(const Graph *graph, const Node *node, Name dim) {
  bool has_kernel = op_is(node->op, OPCLASS_contraction) &&
                    node->op != OP_dot && !op_has(node->op, OP_FLAG_attends);
  bool is_ordered = node->op == OP_split_dim || node->op == OP_merge_dims ||
                    op_is(node->op, OPCLASS_window) || has_kernel;
  for (int i = 0; is_ordered && i < node->n_inputs; i++)
    if (type_find(graph_type(graph, node->inputs[i]), dim) >= 0) return true;
  return node->op == OP_scan;
}

/* ---- the walk ---- */

static const Type *type_with_first(Arena *arena, const Type *type, Name dim) {
  int first = type_find(type, dim), n = 0;
  if (first <= 0) return type;
  Type *moved = type_create(arena, type->dtype, type->rank);
  moved->dims[n++] = type->dims[first];
  for (int d = 0; d < type->rank; d++)
    if (d != first) moved->dims[n++] = type->dims[d];
  return moved;
}

/* The value with the dim in front. */
static Value transpose_to_first(Rewrite *rewrite, Value value,
                                const Type *logical, Name dim) {
  Arena *arena = rewrite->ctx->module->arena;
  return graph_transpose_to(rewrite->to, value,
                            type_with_first(arena, logical, dim));
}

static void append_reordered(Rewrite *rewrite, int id, Name dim) {
  const Graph *from = rewrite->from;
  const Node *node = from->nodes.data[id];
  Value first;
  if (node->op == OP_input) {
    first = rewrite_copy(rewrite, id);
    if (from->inputs.data[node_int(node, ATTR_index, 0)].role == ROLE_data)
      first = transpose_to_first(rewrite, first, node->types[0], dim);
    rewrite_set(rewrite, (Value){id, 0}, first);
    return;
  }
  Value *inputs = rewrite_inputs(rewrite, id);
  if (node->op == OP_transpose)
    first = transpose_to_first(rewrite, inputs[0], node->types[0], dim);
  else
    first = graph_copy_node(rewrite->to, from, id, inputs, true);
  rewrite_set(rewrite, (Value){id, 0}, first);
  for (int r = 1; r < node->n_results; r++)
    rewrite_set(rewrite, (Value){id, r}, (Value){first.node, r});
}

Graph *pass_outer_shards(PassContext *ctx, const Graph *graph) {
  Name dim = ctx->plan ? find_moved_dim(ctx, graph) : NULL;
  for (int id = 0; dim && id < graph->nodes.n; id++)
    if (needs_order(graph, graph->nodes.data[id], dim)) dim = NULL;
  if (!dim) return rewrite_graph(ctx, graph, NULL, NULL);
  Rewrite rewrite = rewrite_begin(ctx, graph);
  for (int id = 0; id < graph->nodes.n; id++) {
    rewrite_at(&rewrite, id);
    append_reordered(&rewrite, id, dim);
  }
  for (int i = 0; i < graph->outputs.n; i++) {
    const GraphOutput *output = &graph->outputs.data[i];
    Value value = rewrite_get(&rewrite, output->value);
    rewrite_at(&rewrite, output->value.node);
    graph_output(rewrite.to, output->role, output->path,
                 graph_transpose_to(rewrite.to, value,
                                    graph_type(graph, output->value)));
  }
  return rewrite.to;
}
