/*
 * ema_weights.c -- evaluation and sampling read moving averages: where training
 * keeps the average of a parameter, the average is read in its place.
 *
 *     %0 = input : f32[C] param "w"   =>   %0 = input : f32[C] ema "ema/w"
 *
 * requires: the final graph of training     keeps: everything but these inputs
 */
#include "passes/rewrite.h"

typedef struct Average {
  const Graph *trained;
  InputIndex inputs; /* of `trained` */
} Average;

static bool read_average(Rewrite *rewrite, int id, void *user) {
  const Average *average = user;
  const Graph *from = rewrite->from;
  Module *module = rewrite->to->module;
  const Node *node = from->nodes.data[id];
  if (node->op != OP_input) return false;
  GraphInput input = from->inputs.data[node_int(node, ATTR_index, 0)];
  if (input.role != ROLE_param) return false;
  input.path = name_format(module->names, "ema/%s", input.path);
  input.role = ROLE_ema;
  const GraphInput *kept =
      input_indexed(&average->inputs, ROLE_ema, input.path);
  if (!kept) return false;
  rewrite_at(rewrite, id);
  Value value = rewrite_input(rewrite->to, &input,
                              graph_type(average->trained, kept->value));
  rewrite_set(rewrite, (Value){id, 0},
              graph_cast(rewrite->to, value, node->types[0]->dtype));
  return true;
}

Graph *ema_weights_read(PassContext *ctx, const Graph *graph,
                        const Graph *trained) {
  Average average = {trained, graph_index_inputs(trained, ctx->scratch)};
  return rewrite_graph(ctx, graph, read_average, &average);
}
