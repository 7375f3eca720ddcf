/*
 * attention.c -- replace attention that is written out by one operator.
 *
 *     %3 = dot %q, %k {over = [D]}
 *     %4 = mul %3, 0.125
 *     %5 = select (ge T S), %4, -inf       =>   %7:2 = attention %q, %k, %v
 *     %6 = softmax %5 {over = [S]}                {over = [D], query = T,
 *     %7 = dot %6, %v {over = [S]}                 key = S, scale, causal}
 *
 * The pass runs before autodiff, because the gradient of the written form saves
 * all T x S scores.  The scale may stand on either side of the mask; without a
 * mask the attention is not causal.  Casts between the parts are dropped, as
 * kernels compute scores in f32.  The pattern matches only if nothing else uses
 * its parts.  A pin inside it, which the one operator could not obey, keeps it
 * as it is written, unless the result is placed alike.
 *
 * requires: canonical graph     keeps: types, the path of the last contraction
 * breaks: node ids              cost: O(nodes)
 */
#include "passes/rewrite.h"

#include <math.h>

typedef struct AttentionMatch {
  Value q, k, v;
  Name over, query, key;
  double scale;
  bool is_causal;
} AttentionMatch;

typedef struct AttentionMatcher {
  const PassContext *ctx;
  const Graph *graph;
  const int *uses;
  GraphPins pins;
  const Node *pinned; /* the last pin of a value that was looked through */
  int stage;          /* of all five nodes */
} AttentionMatcher;

/* The node that computes the value in this stage, through casts and, in bodies
 * of scans, constraints, if the value has one use. */
static const Node *sole_producer(AttentionMatcher *m, Value *value) {
  for (;;) {
    if (m->uses[value->node] != 1) return NULL;
    const Node *node = graph_node(m->graph, *value);
    if (node->stage != m->stage) return NULL;
    int pin = pin_first(&m->pins, value->node);
    if (pin) m->pinned = m->graph->nodes.data[pin];
    if (node->op == OP_constraint)
      m->pinned = node;
    else if (node->op != OP_cast)
      return node;
    *value = node->inputs[0];
  }
}

/* The line that shards a dim of the result: its pin's, or that of the name. */
static const PlanShard *result_shard(const Plan *plan, const PlanPin *pin,
                                     Name path, Name dim) {
  return pin ? plan_placed_dim(pin, dim) : plan_named_dim(plan, path, dim);
}

/* Is each dim of the result sharded as the constraint does it? */
static bool places_alike(const Plan *plan, const Node *constraint,
                         const Node *node) {
  const PlanPin *pin = plan_find_placement(plan, node->path);
  const Type *result = node->types[0];
  int n, n_axes, n_left = 0;
  if (node_has(constraint, ATTR_partial) || (pin && pin->n_partial))
    return false;
  const Name *to = node_names(constraint, ATTR_to, &n);
  const Name *axes = node_names(constraint, ATTR_axes, &n_axes);
  const int64_t *sizes = node_ints(constraint, ATTR_sizes, &n);
  for (int i = 0; i < n; i++) {
    const PlanShard *shard = result_shard(plan, pin, node->path, to[i]);
    bool is_same =
        shard && type_find(result, to[i]) >= 0 && shard->n_axes == sizes[i];
    for (int k = 0; is_same && k < shard->n_axes; k++)
      is_same = shard->axes[k] == axes[k];
    if (!is_same) return false;
    axes += sizes[i];
  }
  for (int d = 0; d < result->rank; d++) {
    const PlanShard *shard =
        result_shard(plan, pin, node->path, result->dims[d].name);
    n_left += shard && shard->n_axes > 0;
  }
  return n_left == n;
}

/* A pin inside asks for what the pin of the result does not say. */
static bool has_inner_pin(const AttentionMatcher *m, const Node *result) {
  const Plan *plan = m->ctx->plan;
  if (!m->pinned || (plan && places_alike(plan, m->pinned, result)))
    return false;
  diag(m->ctx->module->diags, DIAG_pin_in_attention, m->pinned->span,
       m->pinned->path);
  return true;
}

/* Drops multiplications and divisions by constants, from `value` inwards. */
static Value strip_attention_scale(AttentionMatcher *m, Value value,
                                   double *scale) {
  for (;;) {
    const Node *node = sole_producer(m, &value);
    double factor;
    if (!node) return value;
    if (node->op == OP_mul && value_const(m->graph, node->inputs[1], &factor)) {
      *scale *= factor;
      value = node->inputs[0];
    } else if (node->op == OP_mul &&
               value_const(m->graph, node->inputs[0], &factor)) {
      *scale *= factor;
      value = node->inputs[1];
    } else if (node->op == OP_div &&
               value_const(m->graph, node->inputs[1], &factor)) {
      *scale /= factor;
      value = node->inputs[0];
    } else {
      return value;
    }
  }
}

static Name iota_dim(const AttentionMatcher *m, Value value) {
  const Node *node = value_op(m->graph, value, OP_iota);
  return node ? node_name(node, ATTR_dim) : NULL;
}

/* select(T >= S, x, -inf), with S the key. */
static bool match_mask(const AttentionMatcher *m, const Node *select,
                       AttentionMatch *match) {
  double fill;
  if (!value_const(m->graph, select->inputs[2], &fill) || !isinf(fill) ||
      fill > 0)
    return false;
  const Node *cond = graph_node(m->graph, select->inputs[0]);
  if (cond->op != OP_ge && cond->op != OP_le) return false;
  bool is_ge = cond->op == OP_ge;
  match->query = iota_dim(m, cond->inputs[is_ge ? 0 : 1]);
  Name key = iota_dim(m, cond->inputs[is_ge ? 1 : 0]);
  match->is_causal = true;
  return match->query && key == match->key;
}

/* The one dim of q that k does not have; if several, the one that the key
 * was renamed from. */
static Name find_query_dim(const AttentionMatcher *m,
                           const AttentionMatch *match) {
  const Type *q = graph_type(m->graph, match->q);
  const Type *k = graph_type(m->graph, match->k);
  Name found = NULL;
  int n_found = 0;
  for (int d = 0; d < q->rank; d++) {
    if (type_find(k, q->dims[d].name) >= 0) continue;
    found = q->dims[d].name;
    n_found++;
  }
  if (n_found == 1) return found;
  const Node *view = value_op(m->graph, match->k, OP_rename);
  if (!view) return NULL;
  int n;
  const Name *from = node_names(view, ATTR_from, &n);
  const Name *to = node_names(view, ATTR_to, &n);
  for (int i = 0; i < n; i++)
    if (to[i] == match->key && type_find(q, from[i]) >= 0) return from[i];
  return NULL;
}

/* q has query, k and v have key, and no other dim distinguishes them. */
static bool attention_dims_fit(const AttentionMatcher *m,
                               const AttentionMatch *match) {
  const Type *q = graph_type(m->graph, match->q);
  const Type *k = graph_type(m->graph, match->k);
  const Type *v = graph_type(m->graph, match->v);
  if (type_find(q, match->query) < 0 || type_find(k, match->query) >= 0 ||
      type_find(v, match->query) >= 0 || type_find(q, match->key) >= 0 ||
      type_find(k, match->key) < 0 || type_find(v, match->key) < 0)
    return false;
  for (int d = 0; d < k->rank; d++) {
    Name dim = k->dims[d].name;
    if (dim != match->key && type_find(q, dim) < 0) return false;
  }
  int at = type_find(v, match->over);
  return at >= 0 && v->dims[at].size == type_size(q, match->over) &&
         dtype_class(q->dtype) == CLASS_FLOAT && q->dtype == k->dtype &&
         q->dtype == v->dtype;
}

static bool match_scores(AttentionMatcher *m, Value value,
                         AttentionMatch *match) {
  match->scale = 1;
  value = strip_attention_scale(m, value, &match->scale);
  const Node *node = sole_producer(m, &value);
  if (!node) return false;
  if (node->op == OP_select) {
    if (match->scale <= 0 || !match_mask(m, node, match)) return false;
    value = strip_attention_scale(m, node->inputs[1], &match->scale);
    node = sole_producer(m, &value);
  }
  if (!node || node->op != OP_dot) return false;
  int n;
  const Name *over = node_names(node, ATTR_over, &n);
  if (n != 1) return false;
  match->over = over[0];
  bool first_has_key =
      type_find(graph_type(m->graph, node->inputs[0]), match->key) >= 0;
  match->q = node->inputs[first_has_key ? 1 : 0];
  match->k = node->inputs[first_has_key ? 0 : 1];
  if (!match->is_causal) match->query = find_query_dim(m, match);
  return match->query && attention_dims_fit(m, match);
}

static bool match_attention(AttentionMatcher *m, const Node *node,
                            AttentionMatch *match) {
  int n;
  if (node->op != OP_dot) return false;
  const Name *over = node_names(node, ATTR_over, &n);
  if (n != 1) return false;
  for (int i = 0; i < 2; i++) {
    m->pinned = NULL;
    m->stage = node->stage;
    *match = (AttentionMatch){.key = over[0], .v = node->inputs[1 - i]};
    Value p = node->inputs[i];
    const Node *softmax = sole_producer(m, &p);
    if (!softmax || softmax->op != OP_softmax) continue;
    const Name *rows = node_names(softmax, ATTR_over, &n);
    if (n == 1 && rows[0] == match->key &&
        match_scores(m, softmax->inputs[0], match))
      return true;
  }
  return false;
}

static bool attention_rule(Rewrite *rewrite, int id, void *user) {
  const Node *node = rewrite->from->nodes.data[id];
  AttentionMatch match;
  AttentionMatcher *m = user;
  m->pinned = NULL;
  if (!match_attention(m, node, &match) || has_inner_pin(m, node)) return false;
  Attrs attrs = {0};
  attrs_names(&attrs, ATTR_over, &match.over, 1);
  attrs_name(&attrs, ATTR_query, match.query);
  attrs_name(&attrs, ATTR_key, match.key);
  attrs_float(&attrs, ATTR_scale, match.scale);
  attrs_int(&attrs, ATTR_causal, match.is_causal);
  Value inputs[3] = {rewrite_get(rewrite, match.q),
                     rewrite_get(rewrite, match.k),
                     rewrite_get(rewrite, match.v)};
  Graph *to = rewrite->to;
  Value o = graph_append(to, OP_attention, inputs, 3, &attrs);
  if (!type_same_dims(graph_type(to, o), node->types[0])) return false;
  o = graph_cast(to, o, node->types[0]->dtype);
  if (!type_equal(graph_type(to, o), node->types[0]))
    o = graph_transpose_to(to, o, node->types[0]);
  rewrite_set(rewrite, (Value){id, 0}, o);
  return true;
}

/* The absorbed parts are left without users. */
Graph *pass_attention(PassContext *ctx, const Graph *graph) {
  AttentionMatcher matcher = {.ctx = ctx,
                              .graph = graph,
                              .uses = graph_reader_counts(graph, ctx->scratch),
                              .pins = graph_pins(graph, ctx->scratch)};
  return pass_dce(ctx, rewrite_graph(ctx, graph, attention_rule, &matcher));
}
