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

/* Loop nests of operators that are no part of a region; NULL: a region. */
static LowerFunction *const functions[N_OPS] = {
#define NEST(op, function) [OP_##op] = lower_##function,
#include "ir/ops.def"
};

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
  LowerFunction *function = functions[node->op];
  const Graph *body = node->op == OP_fused ? node->body : NULL;
  if (!function && !body && !lower_is_regional(node->op)) return NULL;
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
