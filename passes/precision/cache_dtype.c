/*
 * cache_dtype.c -- a cache of sampling that is read rounded is kept rounded.
 *
 *     %0 = input f32[S, D] cache "k"       %0 = input bf16[S, D] cache "k"
 *     %2 = cast %0 : bf16                  %3 = update_slice %0, %1, t
 *     %3 = update_slice %2, %1, t             =>    %4 = dot %q, %3
 *     %4 = dot %q, %3                      output cache "k" %3
 *     %5 = cast %3 : f32
 *     output cache "k" %5
 *
 * `precision` rounds what a product reads, and moves rounded rows; slots stay
 * f32 there.  Where every reader of such a slot rounds it to one dtype, and
 * what replaces it has that dtype, the slot has it too: casting the whole cache
 * both ways for every token is most of what a token then costs.
 *
 * requires: after precision and cse     keeps: everything else
 */
#include "passes/rewrite.h"

/* By graph input: the dtype it is kept in. */
static DType *find_dtypes(PassContext *ctx, const Graph *graph) {
  int n = graph->inputs.n;
  DType *dtype = ARENA_ARRAY(ctx->scratch, DType, n);
  int *slot_of = ARENA_ARRAY(ctx->scratch, int, graph->nodes.n);
  bool *is_rounded = ARENA_ARRAY(ctx->scratch, bool, n);
  for (int id = 0; id < graph->nodes.n; id++) slot_of[id] = -1;
  for (int i = 0; i < n; i++) {
    const GraphInput *input = &graph->inputs.data[i];
    dtype[i] = graph_type(graph, input->value)->dtype;
    is_rounded[i] = input->role == ROLE_decode_cache && dtype[i] == DT_f32;
    slot_of[input->value.node] = i;
  }
  /* What replaces it says which dtype; its readers must agree. */
  DType *wanted = ARENA_ARRAY(ctx->scratch, DType, n);
  for (int i = 0; i < n; i++) wanted[i] = DT_f32;
  for (int i = 0; i < graph->outputs.n; i++) {
    const GraphOutput *output = &graph->outputs.data[i];
    const GraphInput *slot =
        graph_find_input(graph, output->role, output->path);
    const Node *node = graph_node(graph, output->value);
    if (slot && output->role == ROLE_decode_cache && node->op == OP_cast)
      wanted[slot - graph->inputs.data] =
          graph_type(graph, node->inputs[0])->dtype;
    if (slot_of[output->value.node] >= 0)
      is_rounded[slot_of[output->value.node]] = false;
  }
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    for (int k = 0; k < node->n_inputs; k++) {
      int i = slot_of[node->inputs[k].node];
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

static bool rule(Rewrite *rewrite, int id, void *user) {
  const DType *dtype = user;
  const Graph *from = rewrite->from;
  const Node *node = from->nodes.data[id];
  Graph *to = rewrite->to;
  if (node->op == OP_input) {
    int64_t slot = node_int(node, ATTR_index, 0);
    if (dtype[slot] == node->types[0]->dtype) return false;
    rewrite_at(rewrite, id);
    rewrite_set(rewrite, (Value){id, 0},
                rewrite_input(to, &from->inputs.data[slot],
                              type_with_dtype(to->module->arena, node->types[0],
                                              dtype[slot])));
    return true;
  }
  if (node->op != OP_cast) return false;
  Value input = rewrite_get(rewrite, node->inputs[0]);
  if (graph_node(to, input)->op != OP_input ||
      graph_type(to, input)->dtype != node->types[0]->dtype)
    return false;
  rewrite_set(rewrite, (Value){id, 0}, input); /* of a slot kept rounded */
  return true;
}

Graph *pass_cache_dtype(PassContext *ctx, const Graph *graph) {
  DType *dtype = find_dtypes(ctx, graph);
  Rewrite rewrite = rewrite_begin(ctx, graph);
  for (int id = 0; id < graph->nodes.n; id++)
    if (!rule(&rewrite, id, dtype)) rewrite_copy(&rewrite, id);
  for (int i = 0; i < graph->outputs.n; i++) {
    const GraphOutput *output = &graph->outputs.data[i];
    Value value = output->value;
    const GraphInput *slot =
        graph_find_input(graph, output->role, output->path);
    if (slot && dtype[slot - graph->inputs.data] !=
                    graph_type(graph, output->value)->dtype)
      value = graph_node(graph, value)->inputs[0]; /* before the cast */
    graph_output(rewrite.to, output->role, output->path,
                 rewrite_get(&rewrite, value));
  }
  return rewrite.to;
}
