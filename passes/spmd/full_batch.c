/*
 * full_batch.c -- computes the sums over the full batch that micro-batches read
 * before the first of them, so that a mean over what counts in the batch is no
 * mean of means.
 *
 *     %0 = input : i32[B:8@(data, time)]
 *     %1 = cast %0 : f32[B:8@(data, time)]
 *     %2 = sum %1 : f32[; sum@(data, time)]
 *     %3 = accumulate %2 : f32[; sum@data]
 *     %4 = all_reduce %3 : f32[]
 *     %5 = mul %x, %4 : f32[B:8@(data, time)]
 *
 * becomes
 *
 *     %0 = input : i32[B:8@data]
 *     %1 = shard %0 {axes = [time]} : i32[B:8@(data, time)]
 *     %2 = cast %0 : f32[B:8@data]
 *     %3 = sum %2 : f32[; sum@data]
 *     %4 = all_reduce %3 : f32[]
 *     %5 = mul %x, %4 : f32[B:8@(data, time)]
 *
 * A rank has its part of the batch at hand, so what follows from data alone
 * needs no micro-batches: its nodes are copied without the axis `time`, and the
 * micro-batches take their shards of the input.  A sum that depends on
 * parameters would need a forward pass of its own; `partition` reports it.
 *
 * The other way round, a value that is the same for all micro-batches but
 * follows from a node that runs for each of them, and is read by another such
 * node, gets the attribute `per_microbatch`: it runs again each time.
 */
#include "passes/spmd/placement.h"

typedef struct FullBatch {
  const Graph *graph;
  AxisSet time;
  bool *is_needed; /* by node: some sum that micro-batches read follows from it
                    */
  Rewrite rewrite;
  Value **full; /* by node, as in Rewrite.map: the value for the full batch */
} FullBatch;

/* ---- what is needed ---- */

/* By node: it depends on no parameter and no state. */
static bool *find_data_nodes(const Graph *graph, Arena *arena) {
  bool *is_data = ARENA_ARRAY(arena, bool, graph->nodes.n);
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    is_data[id] = !node->body;
    if (node->op == OP_input)
      is_data[id] = role_is_of_step(
          graph->inputs.data[node_int(node, ATTR_index, 0)].role);
    for (int i = 0; i < node->n_inputs; i++)
      is_data[id] = is_data[id] && is_data[node->inputs[i].node];
  }
  return is_data;
}

/* Marks the sums over micro-batches that a micro-batch reads, if they follow
 * from data, and what they follow from. */
static bool find_needed(FullBatch *f, Arena *arena) {
  const Graph *graph = f->graph;
  const bool *is_data = find_data_nodes(graph, arena);
  const bool *is_before = nodes_before_microbatches(graph, arena);
  bool is_any = false;
  f->is_needed = ARENA_ARRAY(arena, bool, graph->nodes.n);
  for (int id = graph->nodes.n - 1; id >= 0; id--) {
    const Node *node = graph->nodes.data[id];
    bool is_in_loop = is_before[id] || node_is_per_microbatch(graph, id);
    for (int i = 0; i < node->n_inputs; i++) {
      int from = node->inputs[i].node;
      bool is_sum =
          op_has(graph->nodes.data[from]->op, OP_FLAG_joins_microbatches);
      if (f->is_needed[id]) f->is_needed[from] = true;
      if (!is_in_loop || !is_sum || !is_data[from]) continue;
      f->is_needed[from] = is_any = true;
    }
  }
  return is_any;
}

/* ---- the new graph ---- */

static const Type *full_type(const FullBatch *f, const Type *type) {
  Type *full = type_copy(f->graph->module->arena, type);
  for (int d = 0; d < full->rank; d++)
    full->dims[d].split = axis_list_without(full->dims[d].split, f->time);
  full->partial &= (AxisSet)~f->time;
  if (!full->partial) full->partial_kind = REDUCE_sum;
  return full;
}

/* The shards of a type of a value in larger ones. */
static Value take_shards_of(FullBatch *f, Value value, const Type *type) {
  const Mesh *mesh = &f->graph->mesh;
  Name axes[MAX_AXES];
  for (int d = 0; d < type->rank; d++) {
    int n = 0;
    AxisList rest, has = graph_type(f->rewrite.to, value)->dims[d].split;
    bool continues = axis_list_continues(type->dims[d].split, has, &rest);
    ASSERT(continues);
    for (int i = 0; i < axis_list_length(rest); i++)
      axes[n++] = mesh->axes[axis_list_at(rest, i)].name;
    if (n == 0) continue;
    Type *shard =
        type_copy(f->graph->module->arena, graph_type(f->rewrite.to, value));
    shard->dims[d].split = type->dims[d].split;
    Attrs attrs = {0};
    attrs_name(&attrs, ATTR_dim, type->dims[d].name);
    attrs_names(&attrs, ATTR_axes,
                arena_copy(f->rewrite.ctx->scratch, axes, sizeof axes), n);
    const Type *types[1] = {shard};
    value = graph_append_typed(f->rewrite.to, OP_shard, &value, 1, &attrs,
                               types, 1, NULL);
  }
  return value;
}

/* The type of a value of which shards of all micro-batches can be taken, and
 * those for the full batch: where ranks share out each micro-batch, a dim that
 * no rank shards. */
static const Type *type_of_both(const FullBatch *f, const Type *type) {
  const Type *full = full_type(f, type);
  Type *both = type_copy(f->graph->module->arena, full);
  AxisList rest;
  for (int d = 0; d < both->rank; d++)
    if (!axis_list_continues(type->dims[d].split, both->dims[d].split, &rest))
      both->dims[d].split = 0;
  return type_equal(both, full) ? full : both;
}

/* The shards for the full batch have other samples than those of all
 * micro-batches, where ranks share out each of these: sums are equal. */
static void emit_input(FullBatch *f, int id) {
  const Node *node = f->graph->nodes.data[id];
  const Type *type = node->types[0];
  const GraphInput *input =
      &f->graph->inputs.data[node_int(node, ATTR_index, 0)];
  rewrite_at(&f->rewrite, id);
  Value value = rewrite_input(f->rewrite.to, input, type_of_both(f, type));
  f->full[id][0] = take_shards_of(f, value, full_type(f, type));
  rewrite_set(&f->rewrite, (Value){id, 0}, take_shards_of(f, value, type));
}

static Value full_value(const FullBatch *f, Value old) {
  return f->full[old.node][old.result];
}

/* Copies a node; a second time, for the full batch, if that differs. */
static void emit_both(FullBatch *f, int id) {
  const Node *node = f->graph->nodes.data[id];
  Arena *scratch = f->rewrite.ctx->scratch;
  Value *inputs = ARENA_ARRAY(scratch, Value, node->n_inputs);
  const Type **types = ARENA_ARRAY(scratch, const Type *, node->n_results);
  rewrite_copy(&f->rewrite, id);
  bool differs = false;
  for (int i = 0; i < node->n_inputs; i++) {
    inputs[i] = full_value(f, node->inputs[i]);
    differs |=
        !value_equal(inputs[i], rewrite_get(&f->rewrite, node->inputs[i]));
  }
  for (int r = 0; r < node->n_results; r++) {
    differs |= type_uses_axes(node->types[r], f->time);
    types[r] = full_type(f, node->types[r]);
    f->full[id][r] = rewrite_get(&f->rewrite, (Value){id, r});
  }
  if (!differs) return;
  Attrs attrs = node_attrs(node);
  Value first =
      graph_append_typed(f->rewrite.to, node->op, inputs, node->n_inputs,
                         &attrs, types, node->n_results, NULL);
  for (int r = 0; r < node->n_results; r++)
    f->full[id][r] = (Value){first.node, r};
}

static void emit_node(FullBatch *f, int id) {
  const Node *node = f->graph->nodes.data[id];
  if (!f->is_needed[id]) {
    rewrite_copy(&f->rewrite, id);
  } else if (node->op == OP_input && type_uses_axes(node->types[0], f->time)) {
    emit_input(f, id);
  } else if (op_has(node->op, OP_FLAG_joins_microbatches)) {
    f->full[id][0] = full_value(f, node->inputs[0]);
    rewrite_set(&f->rewrite, (Value){id, 0}, f->full[id][0]);
  } else {
    emit_both(f, id);
  }
}

Graph *sum_over_full_batch(PassContext *ctx, Graph *graph) {
  FullBatch f = {.graph = graph, .time = mesh_sequential(&graph->mesh)};
  if (!f.time || !find_needed(&f, ctx->scratch)) return graph;
  f.rewrite = rewrite_begin(ctx, graph);
  f.full = ARENA_ARRAY(ctx->scratch, Value *, graph->nodes.n);
  for (int id = 0; id < graph->nodes.n; id++)
    f.full[id] =
        ARENA_ARRAY(ctx->scratch, Value, graph->nodes.data[id]->n_results);
  for (int id = 0; id < graph->nodes.n; id++) emit_node(&f, id);
  return rewrite_end(&f.rewrite);
}

/* ---- values between micro-batches ---- */

static bool repeat_rule(Rewrite *rewrite, int id, void *user) {
  const bool *is_repeated = user;
  const Node *node = rewrite->from->nodes.data[id];
  if (!is_repeated[id]) return false;
  Attrs attrs = node_attrs(node);
  attrs_int(&attrs, ATTR_per_microbatch, 1);
  rewrite_at(rewrite, id);
  Value first = graph_append_typed(
      rewrite->to, node->op, rewrite_inputs(rewrite, id), node->n_inputs,
      &attrs, node->types, node->n_results, node->body);
  for (int r = 0; r < node->n_results; r++)
    rewrite_set(rewrite, (Value){id, r}, (Value){first.node, r});
  return true;
}

Graph *repeat_nodes(PassContext *ctx, const Graph *graph, bool *is_repeated) {
  return rewrite_graph(ctx, graph, repeat_rule, is_repeated);
}

Graph *repeat_between_microbatches(PassContext *ctx, Graph *graph) {
  if (!mesh_sequential(&graph->mesh)) return graph;
  int n = graph->nodes.n;
  bool *follows = ARENA_ARRAY(ctx->scratch, bool, n);
  bool *is_repeated = ARENA_ARRAY(ctx->scratch, bool, n);
  const bool *is_before = nodes_before_microbatches(graph, ctx->scratch);
  bool is_any = false;
  for (int id = 0; id < n; id++) {
    const Node *node = graph->nodes.data[id];
    for (int i = 0; i < node->n_inputs; i++)
      follows[id] |= follows[node->inputs[i].node];
    is_repeated[id] = follows[id] && is_before[id];
    is_any |= is_repeated[id];
    if (node_is_per_microbatch(graph, id))
      follows[id] = !op_has(node->op, OP_FLAG_joins_microbatches);
  }
  return is_any ? repeat_nodes(ctx, graph, is_repeated) : graph;
}
