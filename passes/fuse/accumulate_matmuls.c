/*
 * accumulate_matmuls.c -- let matmuls add the gradients of micro-batches up.
 *
 *     %4 = dot %0, %3 {over = [B]} : f32[I, O; sum@time]
 *     %5 = accumulate %4 {axes = [time]} : f32[I, O]
 *   =>
 *     %4 = dot %0, %3 {over = [B], axes = [time]} : f32[I, O]
 *
 * The matmul writes its result in the first micro-batch and adds to it in the
 * others, so no value of the size of a parameter is stored beside the sum
 * (Megatron-LM calls this gradient accumulation fusion).  Only `accumulate` may
 * read the product, and its dtype has more than 16 bits, as a sum that is
 * rounded at another place is another one.
 *
 * requires: fused graph     keeps: values, placements     cost: O(nodes)
 */
#include "passes/rewrite.h"

typedef struct MatmulSums {
  const Value *sum_of; /* by node: the result of `accumulate` it becomes */
} MatmulSums;

bool matmul_can_add(const Graph *graph, int id, const int *n_uses) {
  const Node *node = graph->nodes.data[id];
  const Type *type = node->types[0];
  return node->op == OP_dot && n_uses[id] == 1 &&
         type->partial_kind == REDUCE_sum && !dtype_is_16bit(type->dtype);
}

int *graph_count_uses(const Graph *graph, Arena *arena) {
  int *n_uses = ARENA_ARRAY(arena, int, graph->nodes.n);
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    for (int i = 0; i < node->n_inputs; i++) n_uses[node->inputs[i].node]++;
  }
  for (int i = 0; i < graph->outputs.n; i++)
    n_uses[graph->outputs.data[i].value.node]++;
  return n_uses;
}

static void add_matmul(Rewrite *rewrite, int id, Value sum) {
  const Node *node = rewrite->from->nodes.data[id];
  const Node *adds = rewrite->from->nodes.data[sum.node];
  Attrs attrs = node_attrs(node);
  int n = 0;
  const Name *axes = node_names(adds, ATTR_axes, &n);
  attrs_names(&attrs, ATTR_axes, axes, n);
  rewrite_at(rewrite, id);
  Value value = graph_append_typed(rewrite->to, OP_dot,
                                   rewrite_inputs(rewrite, id), node->n_inputs,
                                   &attrs, &adds->types[sum.result], 1, NULL);
  rewrite_set(rewrite, sum, value);
}

/* Appends the node with the parts that no matmul adds up, if any. */
static void add_rest(Rewrite *rewrite, int id, const Value *sum_of) {
  const Node *node = rewrite->from->nodes.data[id];
  Arena *scratch = rewrite->ctx->scratch;
  Value *inputs = ARENA_ARRAY(scratch, Value, node->n_inputs);
  const Type **types = ARENA_ARRAY(scratch, const Type *, node->n_inputs);
  int *parts = ARENA_ARRAY(scratch, int, node->n_inputs), n = 0;
  for (int i = 0; i < node->n_inputs; i++) {
    if (sum_of[node->inputs[i].node].node == id) continue;
    inputs[n] = rewrite_get(rewrite, node->inputs[i]);
    types[n] = node->types[i];
    parts[n++] = i;
  }
  if (n == 0) return;
  Attrs attrs = node_attrs(node);
  rewrite_at(rewrite, id);
  Value value = graph_append_typed(rewrite->to, node->op, inputs, n, &attrs,
                                   types, n, NULL);
  for (int i = 0; i < n; i++)
    rewrite_set(rewrite, (Value){id, parts[i]}, (Value){value.node, i});
}

static bool add_up(Rewrite *rewrite, int id, void *user) {
  const MatmulSums *sums = user;
  if (sums->sum_of[id].node >= 0) {
    add_matmul(rewrite, id, sums->sum_of[id]);
    return true;
  }
  if (rewrite->from->nodes.data[id]->op != OP_accumulate) return false;
  add_rest(rewrite, id, sums->sum_of);
  return true;
}

Graph *pass_accumulate_matmuls(PassContext *ctx, const Graph *graph) {
  int *n_uses = graph_count_uses(graph, ctx->scratch);
  Value *sum_of = ARENA_ARRAY(ctx->scratch, Value, graph->nodes.n);
  for (int id = 0; id < graph->nodes.n; id++) sum_of[id] = VALUE_NONE;
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    for (int i = 0; node->op == OP_accumulate && i < node->n_inputs; i++)
      if (matmul_can_add(graph, node->inputs[i].node, n_uses))
        sum_of[node->inputs[i].node] = (Value){id, i};
  }
  MatmulSums sums = {sum_of};
  return rewrite_graph(ctx, graph, add_up, &sums);
}
