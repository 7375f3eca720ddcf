/*
 * decompose.c -- rewrite operators that the target has no kernel for.
 *
 *     %1 = softmax %0 {over = [S]}   =>   max, sub, exp, sum, div
 *
 * The rules stand beside their operators in ir/ops/.  A rule may use operators
 * that decompose in turn, so the walk is repeated until nothing changes.  Two
 * cases are rewritten on every target, because no kernel needs to know them:
 *
 *     scatter_add without summed dims      a select on the index
 *     merge_dims of dims that are apart    a transpose, then a view
 *
 * requires: logical types     keeps: result types, paths     breaks: node ids
 * cost: O(nodes) a round
 */
#include "passes/rewrite.h"

#include <string.h>

/* Rules may give their results in another dim order or dtype. */
static Value conform_to_type(Graph *graph, Value value, const Type *type) {
  value = graph_cast(graph, value, type->dtype);
  if (type_equal(graph_type(graph, value), type)) return value;
  return graph_transpose_to(graph, value, type);
}

static bool is_16bit_type(const Type *type) {
  return dtype_class(type->dtype) == CLASS_FLOAT &&
         dtype_size_bytes(type->dtype) < 4;
}

/* The steps of one operator compute in f32, whatever it reads and writes.
 * Attention does so by itself: it has contractions of 16-bit operands. */
static Value *inputs_in_f32(Rewrite *rewrite, int id) {
  const Node *node = rewrite->from->nodes.data[id];
  Value *inputs = rewrite_inputs(rewrite, id);
  if (op_is(node->op, OPCLASS_contraction)) return inputs;
  for (int i = 0; i < node->n_inputs; i++)
    if (is_16bit_type(graph_type(rewrite->to, inputs[i])))
      inputs[i] = graph_cast(rewrite->to, inputs[i], DT_f32);
  return inputs;
}

/* A 16-bit result in memory would be rounded at every addition to it. */
static bool sum_in_f32(Rewrite *rewrite, int id) {
  const Node *node = rewrite->from->nodes.data[id];
  const Type *type = node->types[0];
  if (!is_16bit_type(type) ||
      (node->op != OP_scatter_add && node->op != OP_conv_input_grad))
    return false;
  Module *module = rewrite->to->module;
  Attrs attrs = node_attrs(node);
  attrs_name(&attrs, ATTR_dtype, name_intern(module->names, "f32"));
  const Type *sum_type = type_with_dtype(module->arena, type, DT_f32);
  Value sum =
      graph_append_typed(rewrite->to, node->op, rewrite_inputs(rewrite, id), 2,
                         &attrs, &sum_type, 1, NULL);
  rewrite_set(rewrite, (Value){id, 0},
              graph_cast(rewrite->to, sum, type->dtype));
  return true;
}

/* Partition places attention by heads, and then writes it out. */
static bool is_placed_first(const PassContext *ctx, Op op) {
  return ctx->plan && ctx->plan->attention == ATTENTION_ulysses &&
         !ctx->plan->replicates_data && op_has(op, OP_FLAG_attends);
}

static bool decompose_by_row(Rewrite *rewrite, int id) {
  const Node *node = rewrite->from->nodes.data[id];
  const Target *target = rewrite->ctx->target;
  const OpInfo *info = op_info(node->op);
  if (!info->decompose || is_placed_first(rewrite->ctx, node->op)) return false;
  if (target && target->has_kernel &&
      target->has_kernel(target, rewrite->from, id))
    return false;
  Value results[8];
  ASSERT(node->n_results <= ARRAY_LENGTH(results));
  info->decompose(rewrite->to, rewrite->from, id, inputs_in_f32(rewrite, id),
                  results);
  for (int r = 0; r < node->n_results; r++)
    rewrite_set(rewrite, (Value){id, r},
                conform_to_type(rewrite->to, results[r], node->types[r]));
  return true;
}

/* x where the new dim's index equals the given one, else 0. */
static bool scatter_as_select(Rewrite *rewrite, int id) {
  const Node *node = rewrite->from->nodes.data[id];
  int n_over = 0, n;
  if (node_has(node, ATTR_over)) node_names(node, ATTR_over, &n_over);
  if (node->op != OP_scatter_add || n_over > 0) return false;
  Value *in = rewrite_inputs(rewrite, id);
  Graph *to = rewrite->to;
  Value position = graph_positions(to, node_name(node, ATTR_dim),
                                   node_ints(node, ATTR_sizes, &n)[0]);
  /* A narrow index does not hold all positions. */
  DType dtype = dtype_promote(graph_type(to, in[1])->dtype,
                              graph_type(to, position)->dtype);
  Value is_here = graph_op2(to, OP_eq, graph_cast(to, in[1], dtype),
                            graph_cast(to, position, dtype));
  Value zero = graph_const(to, graph_type(to, in[0])->dtype, 0);
  Value now = graph_op3(to, OP_select, is_here, in[0], zero);
  rewrite_set(rewrite, (Value){id, 0},
              conform_to_type(to, now, node->types[0]));
  return true;
}

static bool merge_as_view(Rewrite *rewrite, int id) {
  const Node *node = rewrite->from->nodes.data[id];
  if (node->op != OP_merge_dims || node_is_view(rewrite->from, id))
    return false;
  Graph *to = rewrite->to;
  Value input = rewrite_inputs(rewrite, id)[0];
  const Type *type = graph_type(to, input), *result = node->types[0];
  int n;
  const Name *from = node_names(node, ATTR_from, &n);
  Type *order = type_create(to->module->arena, type->dtype, type->rank);
  int at = 0;
  for (int d = 0; d < result->rank; d++) {
    int i = type_find(type, result->dims[d].name);
    bool is_merged = i < 0;
    for (int k = 0; k < n; k++) is_merged |= from[k] == result->dims[d].name;
    for (int k = 0; is_merged && k < n; k++)
      order->dims[at++] = type->dims[type_find(type, from[k])];
    if (!is_merged) order->dims[at++] = type->dims[i];
  }
  ASSERT(at == type->rank);
  input = graph_transpose_to(to, input, order);
  Value now = graph_copy_node(to, rewrite->from, id, &input, false);
  ASSERT(node_is_view(to, now.node));
  rewrite_set(rewrite, (Value){id, 0}, now);
  return true;
}

/* Shards of a dim under the plan, micro-batches included (they shard the batch
 * dim unless a pin names them). */
static int64_t count_shards(const Plan *plan, Name dim) {
  const Mesh *mesh = plan_mesh(plan);
  int64_t shards = 1;
  bool has_microbatch_axis = false;
  for (int i = 0; i < plan->shards.n; i++) {
    const PlanShard *shard = &plan->shards.data[i];
    for (int k = 0; k < shard->n_axes; k++) {
      int axis = mesh_find(mesh, shard->axes[k]);
      if (axis < 0) continue;
      has_microbatch_axis |= mesh->axes[axis].is_sequential;
      if (shard->dim == dim) shards *= mesh->axes[axis].size;
    }
  }
  return dim == plan->batch_dim && !has_microbatch_axis
             ? shards * plan->microbatches
             : shards;
}

/* The word of the model for the group: a name, where it has one. */
static const char *group_word(Arena *arena, Span span) {
  const char *text = span.source ? span_text(arena, span) : "";
  const char *at = strstr(text, "group = ");
  size_t n = at ? strcspn(at + 8, ",) \n") : 0;
  bool is_name = n > 0 && (at[8] < '0' || at[8] > '9');
  return is_name ? arena_printf(arena, "%.*s", (int)n, at + 8) : "group";
}

static Span batch_line(const Plan *plan, Name batch) {
  const PlanShard *shard = plan_find_shard(plan, batch);
  return shard ? shard->span : SPAN_NONE;
}

/* Statistics cross ranks, but a micro-batch cannot wait for the next one. */
static bool check_batchnorm_shards(Rewrite *rewrite, int id) {
  const Node *node = rewrite->from->nodes.data[id];
  const Plan *plan = rewrite->ctx->plan;
  if (node->op != OP_batchnorm || !plan) return true;
  int n;
  Name batch = node_names(node, ATTR_over, &n)[0];
  int64_t size = type_size(node->types[0], batch);
  int64_t shards = count_shards(plan, batch);
  int64_t local = (size + shards - 1) / shards;
  int64_t group = node_int(node, ATTR_group, size);
  if (plan->microbatches <= 1 || shards == 1 || local % group == 0) return true;
  Diag *d = diag(rewrite->ctx->module->diags, DIAG_batchnorm_split, node->span,
                 node->path[0] ? node->path : "batchnorm", (long long)group,
                 batch, (long long)local);
  while (group % local != 0) local--;
  if (batch_line(plan, batch).source)
    diag_note(d, batch_line(plan, batch), "this line shards '%s'", batch);
  diag_help(d, "%s = %lld keeps the samples of each group in one micro-batch",
            group_word(rewrite->ctx->scratch, node->span), (long long)local);
  return false;
}

static bool decompose_rule(Rewrite *rewrite, int id, void *user) {
  if (!check_batchnorm_shards(rewrite, id)) return false;
  bool changed = scatter_as_select(rewrite, id) || sum_in_f32(rewrite, id) ||
                 merge_as_view(rewrite, id) || decompose_by_row(rewrite, id);
  *(bool *)user |= changed;
  return changed;
}

Graph *pass_decompose(PassContext *ctx, const Graph *graph) {
  bool changed;
  Graph *now;
  do {
    changed = false;
    now = rewrite_graph(ctx, graph, decompose_rule, &changed);
    graph = now;
  } while (changed);
  return now;
}
