/*
 * ema_weights.c -- let evaluation and sampling read the moving averages of
 * parameters.
 *
 *     %0 = input : f32[C] param "w"   =>   %0 = input : f32[C] ema "ema/w"
 *
 * Where training stores the moving average of a parameter, the graph reads the
 * average in place of the parameter.
 *
 * requires: the final graph of training     keeps: all but these inputs
 * cost: O(nodes)
 */
#include "passes/rewrite.h"

typedef struct EmaWeights {
  const Graph *trained;
  InputIndex inputs; /* of `trained` */
} EmaWeights;

static bool ema_weights_rule(Rewrite *rewrite, int id, void *user) {
  const EmaWeights *ema = user;
  const Graph *from = rewrite->from;
  Module *module = rewrite->to->module;
  const Node *node = from->nodes.data[id];
  if (node->op != OP_input) return false;
  GraphInput input = from->inputs.data[node_int(node, ATTR_index, 0)];
  if (input.role != ROLE_param) return false;
  input.path = name_format(module->names, "ema/%s", input.path);
  input.role = ROLE_ema;
  const GraphInput *stored = input_indexed(&ema->inputs, ROLE_ema, input.path);
  if (!stored) return false;
  rewrite_at(rewrite, id);
  const Type *of_stored = graph_type(ema->trained, stored->value);
  Type *type = type_copy_logical(module->arena, of_stored);
  /* A server may have rows of it. */
  for (int d = 0; d < type->rank; d++) {
    int dim = type_find(node->types[0], type->dims[d].name);
    if (dim >= 0) type->dims[d].size = node->types[0]->dims[dim].size;
  }
  Value value = rewrite_input(rewrite->to, &input, type);
  rewrite_set(rewrite, (Value){id, 0},
              graph_cast(rewrite->to, value, node->types[0]->dtype));
  return true;
}

Graph *ema_weights_read(PassContext *ctx, const Graph *graph,
                        const Graph *trained) {
  EmaWeights ema = {trained, graph_index_inputs(trained, ctx->scratch)};
  return rewrite_graph(ctx, graph, ema_weights_rule, &ema);
}
