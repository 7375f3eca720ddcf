/*
 * fold.c -- compute scalar operators on constants at compile time.
 *
 *     %0 = const {value = 64.0} : f32[]
 *     %1 = sqrt %0                        =>   %1 = const {value = 8.0} : f32[]
 *
 * The interpreter computes a graph of one operator in double.  A constant is
 * rounded once, where it is used, so that a run in f64 sees no f32.  Where a
 * rounding could decide (comparisons, floor, casts to integers), a node is
 * folded only if f32 gives the same result.  Kernels compute constants of 16
 * bits and fewer.  Nor is a sum, product or quotient folded that exact mode
 * would take for another number, as a constant that is no short fraction times
 * 0.3: `dnnc verify` compares folded graphs with those that are not.
 *
 * requires: any graph     keeps: values, to a rounding     breaks: use counts
 * cost: O(nodes)
 */
#include "interp/exact.h"
#include "interp/interp.h"
#include "passes/rewrite.h"

static bool fold_applies(const Rewrite *rewrite, const Node *node,
                         const Value *in) {
  for (int i = 0; i <= node->n_inputs; i++) {
    const Type *type =
        i < node->n_inputs ? graph_type(rewrite->to, in[i]) : node->types[0];
    if (dtype_class(type->dtype) == CLASS_FLOAT && type->dtype != DT_f32 &&
        type->dtype != DT_f64)
      return false;
    if (i < node->n_inputs && !value_op(rewrite->to, in[i], OP_const))
      return false;
  }
  return true;
}

/* A small change of an operand may be a large one of the result. */
static bool is_discontinuous(const Node *node) {
  return dtype_class(node->types[0]->dtype) != CLASS_FLOAT ||
         op_has(node->op, OP_FLAG_jumps);
}

static double fold_compute(const Rewrite *rewrite, Graph *one,
                           InterpNumber number) {
  Tensor out = {0};
  interp_run(one, number, rewrite->ctx->scratch, NULL, &out, NULL);
  return out.data[0];
}

/* Exact mode computes with the constants themselves. */
static bool is_exact(const Rewrite *rewrite, const Node *node, Graph *one,
                     double value) {
  if (node->op != OP_add && node->op != OP_sub && node->op != OP_mul &&
      node->op != OP_div)
    return true;
  if (dtype_class(node->types[0]->dtype) != CLASS_FLOAT) return true;
  Tensor out = {0};
  interp_run(one, INTERP_exact, rewrite->ctx->scratch, NULL, &out, NULL);
  return exact_equal(out.exact[0],
                     exact_constant(node->types[0]->dtype, value));
}

static bool fold_rule(Rewrite *rewrite, int id, void *user) {
  (void)user;
  const Node *node = rewrite->from->nodes.data[id];
  if (node->n_inputs == 0 || node->n_inputs > 3) return false;
  if (!op_is(node->op, OPCLASS_elementwise) || node->types[0]->rank > 0)
    return false;
  Value few[REWRITE_FEW];
  const Value *in = rewrite_read_inputs(rewrite, id, few);
  if (!fold_applies(rewrite, node, in)) return false;
  Graph *one = graph_create(rewrite->to->module, rewrite->from->name);
  Value args[3];
  for (int i = 0; i < node->n_inputs; i++)
    args[i] =
        graph_const(one, graph_type(rewrite->to, in[i])->dtype,
                    node_float(graph_node(rewrite->to, in[i]), ATTR_value, 0));
  Value result = graph_copy_node(one, rewrite->from, id, args, false);
  graph_output(one, ROLE_result, rewrite->from->name, result);
  double value = fold_compute(rewrite, one, INTERP_f64);
  if (is_discontinuous(node) && fold_compute(rewrite, one, INTERP_f32) != value)
    return false;
  if (!is_exact(rewrite, node, one, value)) return false;
  rewrite_set(rewrite, (Value){id, 0},
              graph_const(rewrite->to, node->types[0]->dtype, value));
  return true;
}

Graph *pass_fold(PassContext *ctx, const Graph *graph) {
  return rewrite_graph(ctx, graph, fold_rule, NULL);
}
