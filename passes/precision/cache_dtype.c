/*
 * cache_dtype.c -- store a decode cache in 16 bits when every reader rounds it.
 *
 *     %0 = input f32[S, D] cache "k"       %0 = input bf16[S, D] cache "k"
 *     %2 = cast %0 : bf16                  %3 = update_slice %0, %1, t
 *     %3 = update_slice %2, %1, t    =>    %4 = dot %q, %3
 *     %4 = dot %q, %3                      output cache "k" %3
 *     %5 = cast %3 : f32
 *     output cache "k" %5
 *
 * `precision` rounds the operands of a contraction and leaves graph inputs in
 * f32.  Where every reader of a cache rounds it to one dtype, and the new value
 * of the cache has that dtype too, the cache is stored in it.  Casts of the
 * complete cache in both directions would be most of the cost of a token.
 *
 * requires: after precision and cse     keeps: values, other inputs
 * breaks: types of decode caches        cost: O(nodes)
 */
#include "passes/rewrite.h"

/* By graph input: the dtype that it is stored in. */
static DType *find_cache_dtypes(PassContext *ctx, const Graph *graph) {
  int n = graph->inputs.n;
  DType *dtype = ARENA_ARRAY(ctx->scratch, DType, n);
  int *input_of = ARENA_ARRAY(ctx->scratch, int, graph->nodes.n);
  bool *is_rounded = ARENA_ARRAY(ctx->scratch, bool, n);
  for (int id = 0; id < graph->nodes.n; id++) input_of[id] = -1;
  for (int i = 0; i < n; i++) {
    const GraphInput *input = &graph->inputs.data[i];
    dtype[i] = graph_type(graph, input->value)->dtype;
    is_rounded[i] = input->role == ROLE_decode_cache && dtype[i] == DT_f32;
    input_of[input->value.node] = i;
  }
  /* The new value of a cache decides the dtype; its readers must agree. */
  DType *wanted = ARENA_ARRAY(ctx->scratch, DType, n);
  for (int i = 0; i < n; i++) wanted[i] = DT_f32;
  InputIndex inputs = graph_index_inputs(graph, ctx->scratch);
  for (int i = 0; i < graph->outputs.n; i++) {
    const GraphOutput *output = &graph->outputs.data[i];
    const GraphInput *input =
        input_indexed(&inputs, output->role, output->path);
    const Node *node = graph_node(graph, output->value);
    if (input && output->role == ROLE_decode_cache && node->op == OP_cast)
      wanted[input - graph->inputs.data] =
          graph_type(graph, node->inputs[0])->dtype;
    if (input_of[output->value.node] >= 0)
      is_rounded[input_of[output->value.node]] = false;
  }
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    for (int k = 0; k < node->n_inputs; k++) {
      int i = input_of[node->inputs[k].node];
      if (i >= 0)
        is_rounded[i] &=
            node->op == OP_cast && node->types[0]->dtype == wanted[i];
    }
  }
  for (int i = 0; i < n; i++)
    if (is_rounded[i] && wanted[i] != DT_f32 &&
        dtype_class(wanted[i]) == CLASS_FLOAT &&
        dtype_size_bytes(wanted[i]) < dtype_size_bytes(DT_f32))
      dtype[i] = wanted[i];
  return dtype;
}

static bool cache_dtype_rule(Rewrite *rewrite, int id, void *user) {
  const DType *dtype = user;
  const Graph *from = rewrite->from;
  const Node *node = from->nodes.data[id];
  Graph *to = rewrite->to;
  if (node->op == OP_input) {
    int64_t input = node_int(node, ATTR_index, 0);
    if (dtype[input] == node->types[0]->dtype) return false;
    rewrite_at(rewrite, id);
    rewrite_set(rewrite, (Value){id, 0},
                rewrite_input(to, &from->inputs.data[input],
                              type_with_dtype(to->module->arena, node->types[0],
                                              dtype[input])));
    return true;
  }
  if (node->op != OP_cast) return false;
  Value input = rewrite_get(rewrite, node->inputs[0]);
  if (graph_node(to, input)->op != OP_input ||
      graph_type(to, input)->dtype != node->types[0]->dtype)
    return false;
  rewrite_set(rewrite, (Value){id, 0},
              input); /* of a cache that is stored rounded */
  return true;
}

static bool has_decode_cache(const Graph *graph) {
  for (int i = 0; i < graph->inputs.n; i++)
    if (graph->inputs.data[i].role == ROLE_decode_cache) return true;
  return false;
}

Graph *pass_cache_dtype(PassContext *ctx, const Graph *graph) {
  if (!has_decode_cache(graph)) return NULL;
  DType *dtype = find_cache_dtypes(ctx, graph);
  Rewrite rewrite = rewrite_begin(ctx, graph);
  for (int id = 0; id < graph->nodes.n; id++)
    if (!cache_dtype_rule(&rewrite, id, dtype)) rewrite_copy(&rewrite, id);
  InputIndex inputs = graph_index_inputs(graph, ctx->scratch);
  for (int i = 0; i < graph->outputs.n; i++) {
    const GraphOutput *output = &graph->outputs.data[i];
    Value value = output->value;
    const GraphInput *input =
        input_indexed(&inputs, output->role, output->path);
    if (input && dtype[input - graph->inputs.data] !=
                     graph_type(graph, output->value)->dtype)
      value = graph_node(graph, value)->inputs[0]; /* before the cast */
    graph_output(rewrite.to, output->role, output->path,
                 rewrite_get(&rewrite, value));
  }
  return rewrite.to;
}
