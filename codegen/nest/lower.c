/*
 * lower.c -- lowers a node to a loop nest, with the function for its operator.
 *
 * The example of nest.h, as a region:
 *
 *     %1 = max %0 {over = [S]}          outer T
 *     %2 = sub %0, %1                   stage 0: inner S: r0 = max x
 *     %3 = exp %2                  =>   stage 1: inner S: y = exp(x - r0)
 *     %4 = sum %3 {over = [S]}                            r1 = sum exp(x - r0)
 *     %5 = div %3, %4                   stage 2: inner S: y = y / r1
 *
 * Sizes are local: those of the shard that a rank has of one micro-batch.
 */
#include "codegen/nest/lower.h"

typedef void LowerFunction(Lower *lower);

static LowerFunction *find_lowering(Op op) {
  switch (op) {
  case OP_dot: return lower_dot;
  case OP_scatter_add: return lower_scatter_add;
  case OP_update_slice: return lower_update_slice;
  case OP_concat: return lower_concat;
  case OP_shard: return lower_shard;
  case OP_collect_microbatches: return lower_collect_microbatches;
  case OP_accumulate: return lower_accumulate;
  case OP_route: return lower_route;
  case OP_route_inverse: return lower_route_inverse;
  case OP_conv: return lower_conv;
  case OP_conv_input_grad: return lower_conv_input_grad;
  case OP_conv_weight_grad: return lower_conv_weight_grad;
  case OP_maxpool: return lower_maxpool;
  case OP_maxpool_grad: return lower_maxpool_grad;
  case OP_avgpool: return lower_avgpool;
  case OP_avgpool_grad: return lower_avgpool_grad;
  case OP_adaptive_avgpool: return lower_adaptive_avgpool;
  case OP_adaptive_avgpool_grad: return lower_adaptive_avgpool_grad;
  default: return NULL;
  }
}

static bool is_lowered_as_region(Op op) {
  switch (op) {
  case OP_const:
  case OP_iota:
  case OP_rename:
  case OP_split_dim:
  case OP_merge_dims:
  case OP_transpose:
  case OP_broadcast:
  case OP_cast:
  case OP_copy:
  case OP_sum:
  case OP_max:
  case OP_min:
  case OP_argmax:
  case OP_gather:
  case OP_dispatch:
  case OP_combine:
  case OP_one_hot:
  case OP_slice:
  case OP_reverse:
  case OP_pad:
  case OP_random_keep: return true;
  default: return op_info(op)->is_pointwise;
  }
}

/* A region that holds this node alone. */
static const Graph *region_of_one(const Graph *graph, const Node *node,
                                  int id) {
  Module *module = graph->module;
  Graph *body = graph_like(graph);
  Value inputs[3];
  Name none = name_intern(module->names, "");
  ASSERT(node->n_inputs <= 3);
  for (int i = 0; i < node->n_inputs; i++)
    inputs[i] =
        graph_input(body, ROLE_arg, none, graph_type(graph, node->inputs[i]));
  Value value = graph_copy_node(body, graph, id, inputs, false);
  for (int i = 0; i < node->n_results; i++)
    graph_output(body, ROLE_result, none, (Value){value.node, i});
  return body;
}

static void set_nest_name(Module *module, Nest *nest, const char *stem) {
  nest->name =
      name_format(module->names, "dnn_%s_%012llx", stem,
                  (unsigned long long)nest_hash(nest, module->arena) >> 16);
}

Nest *nest_lower(Module *module, const Graph *graph, int id) {
  const Node *node = graph->nodes.data[id];
  LowerFunction *function = find_lowering(node->op);
  const Graph *body = node->op == OP_fused ? node->body : NULL;
  if (!function && !body && !is_lowered_as_region(node->op)) return NULL;
  const char *stem = op_info(node->op)->name;
  Lower *lower = lower_begin(module, graph, node, stem);
  if (function)
    function(lower);
  else
    lower_region(lower, body ? body : region_of_one(graph, node, id));
  lower_join_loops(lower);
  set_nest_name(module, lower->nest, stem);
  return lower->nest;
}
