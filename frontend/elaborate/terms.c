/*
 * terms.c -- splits a scalar into a sum of terms that an evaluation divides
 * once.
 *
 * A mean over counted elements, such as a cross entropy with labels to ignore,
 * is a sum divided by a count that depends on the batch. The mean of such means
 * depends on how the samples were divided into batches, so the operator records
 * both (elab_ratio), and a scalar is split as far as it is linear in such
 * ratios, with factors known at compile time:
 *
 *     %9 = cross_entropy + 0.1 * mse      terms: 1 * %sum / %count,
 *                                                1 * mean over samples of
 *                                                    (0.1 * mse)
 *
 * The rest is one term of its own: a mean over a batch, weighted by samples.
 */
#include "frontend/elaborate/emit.h"
#include "frontend/elaborate/output.h"

#include <math.h>

ExprValue elab_ratio(Elab *e, ExprValue value, ExprValue sum, ExprValue count) {
  if (!expr_value_is_tensor(value) || !expr_value_is_tensor(sum) ||
      !expr_value_is_tensor(count))
    return POISON;
  vec_push(e->arena, &e->ratios,
           (Ratio){value.tensor, sum.tensor, count.tensor});
  return value;
}

static const Ratio *find_ratio(const Elab *e, int node) {
  int from = 0, to = e->ratios.n;
  while (from < to) {
    int at = (from + to) / 2;
    if (e->ratios.data[at].value.node < node)
      from = at + 1;
    else
      to = at;
  }
  bool is_found = from < e->ratios.n && e->ratios.data[from].value.node == node;
  return is_found ? &e->ratios.data[from] : NULL;
}

/* A constant, or a cast of one. */
static bool is_constant(const Elab *e, Value value, double *out) {
  const Node *node = graph_node(e->graph, value);
  if (node->op == OP_cast && !dtype_is_16bit(node->types[0]->dtype))
    node = graph_node(e->graph, node->inputs[0]);
  if (node->op != OP_const) return false;
  *out = node_float(node, ATTR_value, 0);
  return isfinite(*out);
}

/* A linear function's factor is its value at 1, with the constants that the
 * other operands are; an operator says in which operands it is linear. */
static bool linear_factors(const Elab *e, const Node *node, double out[2]) {
  out[0] = out[1] = 1;
  if (node->op == OP_cast)
    return dtype_class(graph_type(e->graph, node->inputs[0])->dtype) ==
               CLASS_FLOAT &&
           !dtype_is_16bit(node->types[0]->dtype);
  if (!op_info(node->op)->is_pointwise) return false;
  double number = 0;
  switch (op_info(node->op)->linear) {
  case LINEAR_no: return false;
  case LINEAR_all:
    out[0] = op_value(node->op, 1, 0, 0);
    out[1] = op_value(node->op, 0, 1, 0);
    return true;
  case LINEAR_each:
    if (is_constant(e, node->inputs[1], &number)) break;
    if (!is_constant(e, node->inputs[0], &number)) return false;
    out[0] = 0, out[1] = op_value(node->op, number, 1, 0);
    return true;
  case LINEAR_first:
    if (!is_constant(e, node->inputs[1], &number) || number == 0) return false;
    break;
  }
  out[0] = op_value(node->op, 1, number, 0), out[1] = 0;
  return true;
}

typedef struct Terms {
  Elab *e;
  int n;           /* nodes */
  double *factors; /* by node: of its result in the scalar */
  bool *is_read, *is_rest;
  int n_ratios;
} Terms;

/* From the scalar down: a linear node passes its factor to its inputs. */
static void terms_walk(Terms *t) {
  t->factors[t->n - 1] = 1;
  t->is_read[t->n - 1] = true;
  for (int id = t->n - 1; id >= 0; id--) {
    const Node *node = t->e->graph->nodes.data[id];
    double factors[2];
    if (!t->is_read[id]) continue;
    if (find_ratio(t->e, id)) {
      t->n_ratios++;
      continue;
    }
    t->is_rest[id] = node->n_results != 1 || node->n_inputs > 2 ||
                     !linear_factors(t->e, node, factors);
    for (int i = 0; !t->is_rest[id] && i < node->n_inputs; i++) {
      if (factors[i] == 0) continue;
      t->is_read[node->inputs[i].node] = true;
      t->factors[node->inputs[i].node] += factors[i] * t->factors[id];
    }
  }
}

static ExprValue rest_of(Terms *t) {
  Elab *e = t->e;
  ExprValue rest = {.kind = EXPR_VALUE_none};
  for (int id = 0; id < t->n; id++) {
    if (!t->is_read[id] || !t->is_rest[id]) continue;
    ExprValue leaf = expr_value_tensor((Value){id, 0}, false);
    if (t->factors[id] != 1)
      leaf = pointwise2(e, OP_mul, leaf, expr_value_float(t->factors[id]));
    rest =
        rest.kind == EXPR_VALUE_none ? leaf : pointwise2(e, OP_add, rest, leaf);
  }
  return rest;
}

static Name put_out(Elab *e, Name name, const char *what, int at, Value value) {
  Name path = at < 0 ? name_format(e->names, "%s.%s", name, what)
                     : name_format(e->names, "%s.%s[%d]", name, what, at);
  graph_output(e->graph, ROLE_metric, path, value);
  return path;
}

/* The rest comes first: it appends nodes, which the walk must not see. */
static void put_out_terms(Terms *t, Name name, Metric *out) {
  Elab *e = t->e;
  ExprValue rest = rest_of(t);
  bool has_rest = expr_value_is_tensor(rest);
  if (expr_value_is_poison(rest)) return;
  out->parts = ARENA_ARRAY(e->arena, MetricPart, t->n_ratios + 1);
  for (int id = 0; id < t->n; id++) {
    const Ratio *ratio = t->is_read[id] ? find_ratio(e, id) : NULL;
    if (!ratio) continue;
    int at = t->n_ratios == 1 ? -1 : out->n_parts;
    out->parts[out->n_parts++] =
        (MetricPart){.sum = put_out(e, name, "sum", at, ratio->sum),
                     .count = put_out(e, name, "count", at, ratio->count),
                     .factor = t->factors[id]};
  }
  if (has_rest)
    out->parts[out->n_parts++] = (MetricPart){
        .sum = put_out(e, name, "rest", -1, rest.tensor), .factor = 1};
}

void elab_terms(Elab *e, Name name, ExprValue val, bool is_loss, Metric *out) {
  int n = e->ratios.n ? val.tensor.node + 1 : 0;
  Terms t = {.e = e,
             .n = n,
             .factors = ARENA_ARRAY(e->arena, double, n),
             .is_read = ARENA_ARRAY(e->arena, bool, n),
             .is_rest = ARENA_ARRAY(e->arena, bool, n)};
  out->name = name;
  out->n_parts = 0;
  if (n) terms_walk(&t);
  if (t.n_ratios) {
    e->graph->path = name;
    put_out_terms(&t, name, out);
    return;
  }
  out->parts = ARENA_ARRAY(e->arena, MetricPart, 1);
  out->parts[out->n_parts++] = (MetricPart){.sum = name, .factor = 1};
  if (!is_loss) graph_output(e->graph, ROLE_metric, name, val.tensor);
}
