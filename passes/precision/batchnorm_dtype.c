/*
 * batchnorm_dtype.c -- choose the dtype in which batch statistics are computed.
 *
 *     batchnorm %x, %mean, %var {...}   =>   batchnorm ... {..., dtype = f64}
 *
 * A gradient through batch normalisation subtracts means from the values that
 * they are means of.  An error of a mean is the same for all elements of a
 * channel: rounded to f32, such errors add up in every sum below.  A target
 * says where f64 is free, as on CPUs, where memory limits these loops.
 *
 * requires: a graph without gradients     keeps: values, to a rounding
 * breaks: nothing                         cost: O(nodes)
 */
#include "passes/rewrite.h"

static bool batchnorm_dtype_rule(Rewrite *rewrite, int id, void *user) {
  (void)user;
  const Node *node = rewrite->from->nodes.data[id];
  const Target *target = rewrite->ctx->target;
  if (node->op != OP_batchnorm || !target || !target->has_free_f64 ||
      node_has(node, ATTR_dtype))
    return false;
  Attrs attrs = node_attrs(node);
  attrs_name(&attrs, ATTR_dtype,
             name_intern(rewrite->to->module->names, "f64"));
  Value *inputs = rewrite_inputs(rewrite, id);
  Value first =
      graph_append_typed(rewrite->to, OP_batchnorm, inputs, node->n_inputs,
                         &attrs, node->types, node->n_results, NULL);
  for (int r = 0; r < node->n_results; r++)
    rewrite_set(rewrite, (Value){id, r}, (Value){first.node, r});
  return true;
}

Graph *pass_batchnorm_dtype(PassContext *ctx, const Graph *graph) {
  return rewrite_graph(ctx, graph, batchnorm_dtype_rule, NULL);
}
