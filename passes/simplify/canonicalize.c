/*
 * canonicalize.c -- give one form to what can be written in several ways.
 *
 *     %1 = mul %0, 1                 (%0)
 *     %2 = rename %0 {T -> S}        %2 = rename %0 {T -> U}
 *     %3 = rename %2 {S -> U}   =>
 *     %4 = div %0, 8                 %4 = mul %0, 0.125
 *
 * A rule must keep every bit of every finite value, except that x + 0 may lose
 * the sign of a zero.  A division by a constant becomes a multiplication where
 * the reciprocal is exact.  A value replaces a node only where both have the
 * same type, so that users need no change.
 *
 * requires: logical types     keeps: values, result types
 * breaks: use counts          cost: O(nodes)
 */
#include "passes/rewrite.h"

#include <math.h>
#include <stdlib.h>

static bool is_const_value(const Rewrite *rewrite, Value value, double wanted) {
  double got;
  return value_const(rewrite->to, value, &got) && got == wanted;
}

/* Replaces the node if the value has its type. */
static bool canonicalize_replace(Rewrite *rewrite, int id, Value value) {
  const Node *node = rewrite->from->nodes.data[id];
  if (!type_equal(node->types[0], graph_type(rewrite->to, value))) return false;
  rewrite_set(rewrite, (Value){id, 0}, value);
  return true;
}

static bool exact_reciprocal(double value) {
  int exponent;
  return isfinite(value) && value != 0 &&
         fabs(frexp(value, &exponent)) == 0.5 && abs(exponent) < 100;
}

static bool canonicalize_div(Rewrite *rewrite, int id, const Value *in) {
  const Node *node = rewrite->from->nodes.data[id];
  const Type *divisor = graph_type(rewrite->to, in[1]);
  double value;
  if (is_const_value(rewrite, in[1], 1) &&
      canonicalize_replace(rewrite, id, in[0]))
    return true;
  if (!value_const(rewrite->to, in[1], &value) || !exact_reciprocal(value) ||
      divisor->rank > 0 || dtype_class(divisor->dtype) != CLASS_FLOAT)
    return false;
  Value factor = graph_const(rewrite->to, divisor->dtype, 1 / value);
  Value now = graph_append_typed(rewrite->to, OP_mul, (Value[]){in[0], factor},
                                 2, NULL, node->types, 1, NULL);
  return canonicalize_replace(rewrite, id, now);
}

static bool canonicalize_pow(Rewrite *rewrite, int id, const Value *in) {
  const Node *node = rewrite->from->nodes.data[id];
  if (is_const_value(rewrite, in[1], 1))
    return canonicalize_replace(rewrite, id, in[0]);
  if (!is_const_value(rewrite, in[1], 2) ||
      !type_equal(graph_type(rewrite->to, in[0]), node->types[0]))
    return false;
  return canonicalize_replace(rewrite, id,
                              graph_op2(rewrite->to, OP_mul, in[0], in[0]));
}

static bool rule_mul(Rewrite *rewrite, int id, const Value *in) {
  return (is_const_value(rewrite, in[1], 1) &&
          canonicalize_replace(rewrite, id, in[0])) ||
         (is_const_value(rewrite, in[0], 1) &&
          canonicalize_replace(rewrite, id, in[1]));
}

static bool rule_add(Rewrite *rewrite, int id, const Value *in) {
  return (is_const_value(rewrite, in[1], 0) &&
          canonicalize_replace(rewrite, id, in[0])) ||
         (is_const_value(rewrite, in[0], 0) &&
          canonicalize_replace(rewrite, id, in[1]));
}

static bool rule_sub(Rewrite *rewrite, int id, const Value *in) {
  return is_const_value(rewrite, in[1], 0) &&
         canonicalize_replace(rewrite, id, in[0]);
}

static bool rule_neg(Rewrite *rewrite, int id, const Value *in) {
  const Node *inner = value_op(rewrite->to, in[0], OP_neg);
  return inner && canonicalize_replace(rewrite, id, inner->inputs[0]);
}

static bool rule_select(Rewrite *rewrite, int id, const Value *in) {
  if (is_const_value(rewrite, in[0], 1) &&
      canonicalize_replace(rewrite, id, in[1]))
    return true;
  if (is_const_value(rewrite, in[0], 0) &&
      canonicalize_replace(rewrite, id, in[2]))
    return true;
  return value_equal(in[1], in[2]) && canonicalize_replace(rewrite, id, in[1]);
}

/* Every value of `from` is one of `to`. */
static bool cast_is_exact(DType from, DType to) {
  if (from == to || from == DT_bool) return true;
  int a = dtype_size_bytes(from), b = dtype_size_bytes(to);
  bool from_float = dtype_class(from) == CLASS_FLOAT;
  bool to_float = dtype_class(to) == CLASS_FLOAT;
  if (from_float && to_float) return (to == DT_f64 || to == DT_f32) && b > a;
  if (!from_float && to_float)
    return (to == DT_f64 && a <= 4) || (to == DT_f32 && a <= 2);
  return !to_float && !from_float && b > a;
}

/* From f32 to f32: what the program typed stays until `precision` has seen
 * it. */
static bool is_f32_pin(const Rewrite *rewrite, Value value, DType to) {
  return pass_precision_of(rewrite->ctx)->compute != DT_f32 && to == DT_f32 &&
         graph_type(rewrite->to, value)->dtype == DT_f32;
}

static bool canonicalize_cast(Rewrite *rewrite, int id, const Value *in) {
  const Node *node = rewrite->from->nodes.data[id];
  DType to = node->types[0]->dtype;
  if (is_f32_pin(rewrite, in[0], to)) return false;
  if (canonicalize_replace(rewrite, id, in[0])) return true;
  const Node *inner = graph_node(rewrite->to, in[0]);
  if (inner->op == OP_const) {
    double value = node_float(inner, ATTR_value, 0);
    bool holds = to == DT_f32 || to == DT_f64 ||
                 (dtype_class(to) == CLASS_INT && value == floor(value) &&
                  fabs(value) < 100);
    return holds && canonicalize_replace(rewrite, id,
                                         graph_const(rewrite->to, to, value));
  }
  if (inner->op != OP_cast) return false;
  Value source = inner->inputs[0];
  if (!cast_is_exact(graph_type(rewrite->to, source)->dtype,
                     inner->types[0]->dtype))
    return false;
  return canonicalize_replace(rewrite, id, graph_cast(rewrite->to, source, to));
}

static Name renamed_dim(const Node *node, Name dim) {
  int n;
  const Name *from = node_names(node, ATTR_from, &n);
  const Name *to = node_names(node, ATTR_to, &n);
  for (int i = 0; i < n; i++)
    if (from[i] == dim) return to[i];
  return dim;
}

static bool canonicalize_rename(Rewrite *rewrite, int id, const Value *in) {
  const Node *node = rewrite->from->nodes.data[id];
  if (canonicalize_replace(rewrite, id, in[0])) return true;
  const Node *inner = value_op(rewrite->to, in[0], OP_rename);
  if (!inner) return false;
  const Type *type = graph_type(rewrite->to, inner->inputs[0]);
  Name from[MAX_RANK], to[MAX_RANK];
  int n = 0;
  for (int d = 0; d < type->rank; d++) {
    from[n] = type->dims[d].name;
    to[n] = renamed_dim(node, renamed_dim(inner, from[n]));
    n += from[n] != to[n];
  }
  if (n == 0) return canonicalize_replace(rewrite, id, inner->inputs[0]);
  Attrs attrs = {0};
  attrs_names(&attrs, ATTR_from, from, n);
  attrs_names(&attrs, ATTR_to, to, n);
  return canonicalize_replace(rewrite, id,
                              graph_append_typed(rewrite->to, OP_rename,
                                                 inner->inputs, 1, &attrs,
                                                 node->types, 1, NULL));
}

static bool canonicalize_transpose(Rewrite *rewrite, int id, const Value *in) {
  const Node *node = rewrite->from->nodes.data[id];
  if (canonicalize_replace(rewrite, id, in[0])) return true;
  const Node *inner = value_op(rewrite->to, in[0], OP_transpose);
  if (!inner) return false;
  if (canonicalize_replace(rewrite, id, inner->inputs[0])) return true;
  return canonicalize_replace(
      rewrite, id,
      graph_transpose_to(rewrite->to, inner->inputs[0], node->types[0]));
}

static bool rule_broadcast(Rewrite *rewrite, int id, const Value *in) {
  return canonicalize_replace(rewrite, id, in[0]);
}

typedef bool CanonicalizeRule(Rewrite *rewrite, int id, const Value *in);
static CanonicalizeRule *const rules[N_OPS] = {
    [OP_mul] = rule_mul,
    [OP_add] = rule_add,
    [OP_sub] = rule_sub,
    [OP_div] = canonicalize_div,
    [OP_pow] = canonicalize_pow,
    [OP_neg] = rule_neg,
    [OP_select] = rule_select,
    [OP_cast] = canonicalize_cast,
    [OP_rename] = canonicalize_rename,
    [OP_transpose] = canonicalize_transpose,
    [OP_broadcast] = rule_broadcast,
};

static bool canonicalize_rule(Rewrite *rewrite, int id, void *user) {
  (void)user;
  const Node *node = rewrite->from->nodes.data[id];
  CanonicalizeRule *function = rules[node->op];
  Value few[REWRITE_FEW];
  return function &&
         function(rewrite, id, rewrite_read_inputs(rewrite, id, few));
}

Graph *pass_canonicalize(PassContext *ctx, const Graph *graph) {
  return rewrite_graph(ctx, graph, canonicalize_rule, NULL);
}
