/*
 * experts.h -- for the suites that walk the operators: indices of dispatch and
 * combine that belong together, and a graph of all of them as a model has it.
 */
#ifndef TESTS_OPS_EXPERTS_H
#define TESTS_OPS_EXPERTS_H

#include "tests/unit/values.h"

static inline bool op_has_slots(Op op) {
  return op == OP_dispatch || op == OP_combine;
}

/* Fills in the second and third operand of a dispatch or combine: random
 * choices, and what route and route_inverse make of them. */
static inline void expert_indices(const Graph *of, const Node *node,
                                  Tensor *slot, Tensor *token, uint64_t key) {
  Graph *graph = graph_like(of);
  Name none = name_intern(of->module->names, "");
  Attrs attrs = {0};
  int n, n_to;
  const Name *over = node_names(node, ATTR_over, &n);
  const Name *to = node_names(node, ATTR_to, &n_to);
  attrs_names(&attrs, ATTR_over, over, n);
  attrs_names(&attrs, ATTR_to, to, n_to);
  int64_t sizes[] = {type_size(token->type, to[0]),
                     type_size(token->type, to[1])};
  attrs_ints(&attrs, ATTR_sizes, sizes, 2);
  Value choice = graph_input(graph, ROLE_data, none, slot->type);
  Value slots = graph_append(graph, OP_route, &choice, 1, &attrs);
  Value inverse = graph_append(graph, OP_route_inverse, &slots, 1, &attrs);
  graph_output(graph, ROLE_metric, none, slots);
  graph_output(graph, ROLE_metric, none,
               graph_transpose_to(graph, inverse, token->type));
  Tensor choices =
      tensor_random(of->module->arena, slot->type, key, 0, (double)sizes[0]);
  Tensor *results = run(graph, INTERP_f64, &choices);
  slot->data = results[0].data;
  token->data = results[1].data;
}

/* Two of E = 4 experts for each of T = 9 tokens, with too few slots: weights
 * [B, T, J] times what came back of x [B, T, C] scaled by 1 + E. */
static inline Graph *expert_graph(Module *module, Role role, const char *p_type,
                                  const char *x_type) {
  static const char order[] = "over=J,T to=E,S sizes=4,4";
  Graph *graph = make_graph(module);
  Value p = make_input(graph, role, "p", p_type);
  Value x = make_input(graph, role, "x", x_type);
  Value best = make1(graph, "topk", "dim=E to=J sizes=2", p);
  Value slot = make1(graph, "route", order, (Value){best.node, 1});
  Value token = make1(graph, "route_inverse", order, slot);
  Value in[] = {x, slot, token};
  Value t = make(graph, "dispatch", "over=J,T to=E,S", in, 3);
  Value factor = make(graph, "iota", "dim=E sizes=4", NULL, 0);
  factor = graph_cast(graph, factor, graph_type(graph, x)->dtype);
  Value one = graph_const(graph, graph_type(graph, x)->dtype, 1);
  t = graph_op2(graph, OP_mul, t, graph_op2(graph, OP_add, factor, one));
  Value out[] = {t, slot, token};
  Value y = make(graph, "combine", "over=J,T to=E,S", out, 3);
  y = make1(graph, "sum", "over=J", graph_op2(graph, OP_mul, best, y));
  if (role == ROLE_param) {
    y = make1(graph, "sum", "over=B,T,C", graph_op2(graph, OP_mul, y, y));
    make_output(graph, ROLE_loss, "loss", y);
    return graph;
  }
  make_output(graph, ROLE_metric, "values", best);
  make_output(graph, ROLE_metric, "choice", (Value){best.node, 1});
  make_output(graph, ROLE_metric, "slot", slot);
  make_output(graph, ROLE_metric, "token", token);
  make_output(graph, ROLE_metric, "tokens", t);
  make_output(graph, ROLE_metric, "result", y);
  return graph;
}

#endif
