/*
 * ring_attention.c -- writes attention over a sharded sequence as turns, in
 * each of which a rank sees the keys and values of one shard.
 *
 *     plan: shard T over seq (2 ranks), attention = ring
 *
 *     %3 = attention %q, %k, %v {query = T, key = S, causal}
 *  =>
 *     %4 = split_dim %q {dim = T, to = [T~, T^]}          k and v alike by S
 *     %7, %8, %9 = attention %4, %5, %6 {causal, relative}     own keys
 *     %10, %11 = permute %5, %6 {dim = T~, shift = 1}     the neighbour's keys
 *     %12, %13, %14 = attention %4, %10, %11 {relative}
 *     %15 = select (T~ >= 1), %13, -inf      maximum: no later keys
 *     the sum of %7 and %12, weighted by %9 exp(%8) and %14 exp(%15)
 *
 * The shards are a dim of the graph, along which `permute` rotates elements, so
 * all of it has a meaning on one device.  In the first turn the mask is the
 * causal one within a shard; in turn j shard i sees all of shard i - j, or none
 * of it where that number is negative.  Parts of rows are joined by their
 * maxima and sums, with a running maximum, sum and output (Liu, Zaharia and
 * Abbeel 2023, "Ring Attention with Blockwise Transformers").
 *
 * A causal sequence is brought into zigzag order where that is possible
 * (zigzag.c).  Then a shard has an early and a late half, and the first turn is
 * as before.  In turn j shard i gets the keys of shard s = i - j modulo n:
 *
 *     s < i: all queries see the early half of the keys
 *     s > i: the late queries see all keys
 *
 * Both are two attentions of a half by a half, which are one operator with a
 * dim for the two; selects bring each its queries and keys.  So no rank
 * computes what the mask empties, and all have equal work.
 *
 * Where the ranks do not divide the sequence, the shards have zeros as padding.
 * It comes after all elements, so that a causal mask hides its keys; without
 * one attention is told how many keys of each shard count, none perhaps.  Rows
 * of padding are computed and dropped.
 *
 * The gradient rotates keys and values again, so that no rank stores those of
 * others.  The gradients of a shard's keys and values travel with them and are
 * added up; a rank deals with its own keys last, when they have come home.  So
 * n ranks exchange k and v n - 1 times in each pass, dk and dv n - 1 times.
 *
 * requires: logical types     keeps: types, paths     breaks: node ids
 * cost: O(nodes + turns)
 */
#include <float.h>
#include <math.h>

#include "passes/spmd/attention/attention.h"
#include "passes/spmd/attention/ring.h"
#include "passes/spmd/attention/zigzag.h"

typedef struct RingWalk {
  const Zigzag *zigzag; /* NULL: sequences have their own order */
  const Node *missed;   /* attention whose queries no line shards */
  bool is_found;
} RingWalk;

/* ---- turns ---- */

static Attrs turn_attrs(const Ring *r, int64_t turn) {
  Attrs attrs = node_attrs(r->node);
  attrs_name(&attrs, ATTR_query, ring_inner_name(r, r->query));
  attrs_name(&attrs, ATTR_key, ring_inner_name(r, r->key));
  if (turn > 0) attrs_int(&attrs, ATTR_causal, 0);
  if (r->node->op == OP_attention) attrs_int(&attrs, ATTR_relative, 1);
  return attrs;
}

/* Returns the attributes of a turn for halves of shards. */
static Attrs half_attrs(const Ring *r, int64_t turn) {
  Attrs attrs = turn_attrs(r, turn);
  attrs_name(&attrs, ATTR_query,
             ring_inner_name(r, ring_inner_name(r, r->query)));
  attrs_name(&attrs, ATTR_key, ring_inner_name(r, ring_inner_name(r, r->key)));
  return attrs;
}

/* Sums over turns are f32 where operands are short. */
static Value in_sum_dtype(const Ring *r, Value value) {
  DType dtype = graph_type(r->to, value)->dtype;
  return dtype_size_bytes(dtype) < 4 ? graph_cast(r->to, value, DT_f32) : value;
}

static Value ring_add(const Ring *r, Value sum, Value term) {
  return value_is(sum) ? graph_op2(r->to, OP_add, sum, term) : term;
}

/* ---- forward ---- */

/* Rows of which some keys were seen: the maximum, -inf where none was, the sum
 * of exp(score - maximum), and that of its products with v.  One log-sum-exp in
 * place of maximum and sum would lose the sum beside a large maximum. */
typedef struct RingRows {
  Value max, sum, out;
} RingRows;

/* Guards a bound that alters only rows in which no key was seen: nothing is
 * subtracted from -inf, or divided by 0. */
static Value at_least(const Ring *r, Value value, double bound) {
  Attrs attrs = {0};
  attrs_int(&attrs, ATTR_guard, 1);
  Value operands[] = {
      value, graph_const(r->to, graph_type(r->to, value)->dtype, bound)};
  return graph_append(r->to, OP_maximum, operands, 2, &attrs);
}

/* `o` is divided by the sum of its row, as attention gives it. */
static RingRows join_rows(const Ring *r, RingRows rows, RingRows o) {
  Graph *to = r->to;
  Value max = graph_op2(to, OP_maximum, rows.max, o.max);
  Value base = at_least(r, max, -FLT_MAX);
  Value before = graph_op1(to, OP_exp, graph_op2(to, OP_sub, rows.max, base));
  Value now = graph_op1(to, OP_exp, graph_op2(to, OP_sub, o.max, base));
  now = graph_op2(to, OP_mul, o.sum, now);
  Value sum = graph_op2(to, OP_mul, rows.sum, before);
  Value out = graph_op2(to, OP_mul, rows.out, before);
  return (RingRows){
      .max = max,
      .sum = graph_op2(to, OP_add, sum, now),
      .out = graph_op2(to, OP_add, out, graph_op2(to, OP_mul, o.out, now))};
}

/* Rows have halves.  Where the late queries see all keys, both results are
 * theirs. */
static RingRows join_half_turn(const Ring *r, int64_t turn, Value q,
                               const Value *kv, RingRows rows) {
  Graph *to = r->to;
  RingHalfTurn at = ring_half_turn(r, turn);
  Attrs attrs = half_attrs(r, turn);
  Value operands[] = {ring_half_queries(r, &at, q),
                      ring_half_keys(r, &at, kv[0]),
                      ring_half_keys(r, &at, kv[1])};
  Value made = graph_append(to, OP_attention, operands, 3, &attrs);
  Value o = in_sum_dtype(r, made), max = {made.node, 1}, sum = {made.node, 2};
  Value none = graph_const(to, graph_type(to, max)->dtype, -INFINITY);
  Value has_row = graph_op2(to, OP_or, at.is_before, at.is_late);
  Value seen = ring_pick(r, has_row, max, none, max);
  rows = join_rows(r, rows, (RingRows){seen, sum, o});
  Value is_after = graph_op1(to, OP_not, at.is_before);
  Value has_both = graph_op2(to, OP_and, is_after, at.is_late);
  seen = ring_pick(r, has_both, ring_half(r, max, 0), none, max);
  sum = ring_half(r, sum, 0);
  return join_rows(r, rows, (RingRows){seen, sum, ring_half(r, o, 0)});
}

static RingRows join_turn(const Ring *r, int64_t turn, Value q, const Value *kv,
                          RingRows rows) {
  Graph *to = r->to;
  Attrs attrs = turn_attrs(r, turn);
  Value operands[4] = {q, kv[0], kv[1]};
  if (r->counts_keys) operands[3] = ring_count_keys(r, turn);
  Value o =
      graph_append(to, OP_attention, operands, 3 + r->counts_keys, &attrs);
  Value max = ring_where_seen(r, turn, (Value){o.node, 1}, -INFINITY);
  RingRows now = {max, {o.node, 2}, in_sum_dtype(r, o)};
  if (turn > 0) return join_rows(r, rows, now);
  if (r->is_zigzag) {
    Value *parts[] = {&now.max, &now.sum, &now.out};
    for (int i = 0; i < 3; i++)
      *parts[i] = ring_split_halves(r, *parts[i], r->query);
  }
  now.out = graph_op2(to, OP_mul, now.out, now.sum);
  return now;
}

static void ring_forward(const Ring *r, const Value *inputs, Value *results) {
  Graph *to = r->to;
  Value q = ring_split(r, inputs[0], r->query);
  Value kv[2] = {ring_split(r, inputs[1], r->key),
                 ring_split(r, inputs[2], r->key)};
  RingRows rows = {VALUE_NONE, VALUE_NONE, VALUE_NONE};
  for (int64_t turn = 0; turn < r->n; turn++) {
    if (turn > 0) ring_rotate(r, kv, 2);
    rows = (turn > 0 && r->is_zigzag ? join_half_turn : join_turn)(r, turn, q,
                                                                   kv, rows);
  }
  Value sum = at_least(r, rows.sum, 1);
  Value made[] = {graph_op2(to, OP_div, rows.out, sum),
                  graph_op2(to, OP_add, at_least(r, rows.max, -FLT_MAX),
                            graph_op1(to, OP_log, sum))};
  for (int i = 0; i < 2; i++) {
    if (r->is_zigzag) made[i] = ring_join_halves(r, made[i], r->query);
    results[i] = ring_merge(r, made[i], r->query, r->node->types[i]);
  }
}

/* ---- backward ---- */

/* Adds to dq, and to the gradients of the keys and values at hand. */
static void ring_turn_grad(const Ring *r, int64_t turn, const Value *operands,
                           Value *dq, Value *dkv) {
  Attrs attrs = turn_attrs(r, turn);
  Value all[7], made[3];
  for (int i = 0; i < 6; i++) all[i] = operands[i];
  if (r->counts_keys) all[6] = ring_count_keys(r, turn);
  Value first =
      graph_append(r->to, OP_attention_grad, all, 6 + r->counts_keys, &attrs);
  for (int i = 0; i < 3; i++) {
    Value part = in_sum_dtype(r, (Value){first.node, i});
    made[i] = ring_where_seen(r, turn, part, 0);
  }
  *dq = ring_add(r, *dq, made[0]);
  for (int i = 0; i < 2; i++) dkv[i] = ring_add(r, dkv[i], made[i + 1]);
}

/* Computes the gradients of a turn for halves: late queries that see all keys
 * add up both results, and so do early keys that all queries see. */
static void half_turn_grad(const Ring *r, int64_t turn, const Value *operands,
                           Value *dq, Value *dkv) {
  Graph *to = r->to;
  RingHalfTurn at = ring_half_turn(r, turn);
  Attrs attrs = half_attrs(r, turn);
  Value halves[6];
  for (int i = 0; i < 6; i++)
    halves[i] = (i == 1 || i == 2 ? ring_half_keys
                                  : ring_half_queries)(r, &at, operands[i]);
  Value first = graph_append(to, OP_attention_grad, halves, 6, &attrs);
  for (int i = 0; i < 3; i++) {
    Value part = in_sum_dtype(r, (Value){first.node, i});
    Value both = graph_reduce(to, OP_sum, part, &r->halves, 1);
    Value zero = graph_const(to, graph_type(to, part)->dtype, 0);
    Value *sum = i == 0 ? dq : &dkv[i - 1];
    if (i == 0) {
      both = ring_pick(r, at.is_late, both, zero, part);
      part = ring_pick(r, at.is_before, part, both, part);
    } else {
      both = ring_pick(r, at.is_late, zero, both, part);
      part =
          ring_pick(r, at.is_before, both, ring_exchange_halves(r, part), part);
    }
    *sum = ring_add(r, *sum, ring_join_halves(r, part, i ? r->key : r->query));
  }
}

static void ring_backward(const Ring *r, const Value *inputs, Value *results) {
  Value own[2], kv[2], queries[6], operands[6];
  for (int i = 0; i < 6; i++) {
    bool is_key = i == 1 || i == 2;
    queries[i] = ring_split(r, inputs[i], is_key ? r->key : r->query);
  }
  for (int i = 0; i < 2; i++) kv[i] = own[i] = queries[i + 1];
  Value dq = VALUE_NONE, dkv[2] = {VALUE_NONE, VALUE_NONE};
  for (int64_t i = 1; i <= r->n; i++) {
    int64_t turn = i % r->n;
    if (turn > 0) ring_rotate(r, kv, 2);
    if (i > 1) ring_rotate(r, dkv, 2);
    const Value *now = turn > 0 ? kv : own;
    for (int k = 0; k < 6; k++)
      operands[k] = k == 1 || k == 2 ? now[k - 1] : queries[k];
    (turn > 0 && r->is_zigzag ? half_turn_grad
                              : ring_turn_grad)(r, turn, operands, &dq, dkv);
  }
  const Type *const *types = r->node->types;
  results[0] = ring_merge(r, dq, r->query, types[0]);
  for (int i = 0; i < 2; i++)
    results[i + 1] = ring_merge(r, dkv[i], r->key, types[i + 1]);
}

/* ---- the pass ---- */

/* Reads all but the graph that is written; false: not supported. */
static bool ring_read(const PassContext *ctx, const Graph *from,
                      const Node *node, Ring *out) {
  const Plan *plan = ctx->plan;
  Names *names = ctx->module->names;
  Name query = node_name(node, ATTR_query), key = node_name(node, ATTR_key);
  int64_t n = sequence_shards(plan, query);
  int64_t t = type_size(graph_type(from, node->inputs[0]), query);
  int64_t s = type_size(graph_type(from, node->inputs[1]), key);
  bool is_causal = node_int(node, ATTR_causal, 0) != 0;
  *out = (Ring){.node = node,
                .query = query,
                .key = key,
                .shards = name_format(names, "%s~", query),
                .halves = name_format(names, "%s/2", query),
                .line = plan_find_shard(plan, query),
                .n = n,
                .n_keys = s,
                .is_causal = is_causal,
                .counts_keys = !is_causal && s % n != 0};
  return n > 1 && (!is_causal || t == s);
}

static bool ring_rule(Rewrite *rewrite, int id, void *user) {
  RingWalk *walk = user;
  const Node *node = rewrite->from->nodes.data[id];
  Ring ring;
  Value results[3];
  if (!op_has(node->op, OP_FLAG_attends)) return false;
  if (!ring_read(rewrite->ctx, rewrite->from, node, &ring)) {
    walk->missed = node;
    return false;
  }
  walk->is_found = true;
  ring.to = rewrite->to;
  ring.is_zigzag =
      ring.is_causal && walk->zigzag && zigzag_has(walk->zigzag, ring.query);
  rewrite_at(rewrite, id);
  (node->op == OP_attention ? ring_forward : ring_backward)(
      &ring, rewrite_inputs(rewrite, id), results);
  for (int i = 0; i < node->n_results; i++)
    rewrite_set(rewrite, (Value){id, i}, results[i]);
  return true;
}

/* Says why ranks compute what a causal mask empties. */
static void warn_of_order(const PassContext *ctx, const Ring *ring,
                          const char *reason, const Node *at) {
  const Plan *plan = ctx->plan;
  if (!ctx->is_training) return;
  Diag *d = diag(ctx->module->diags, DIAG_attention_order, plan->attention_span,
                 plan_attention_name(plan->attention), ring->query, reason);
  if (at) diag_note(d, at->span, "it is computed here");
}

/* The sequence of the first causal attention, if it may be in zigzag order. */
static bool find_zigzag(PassContext *ctx, const Graph *graph, Zigzag *out) {
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id], *at;
    Ring ring;
    const char *reason;
    if (node->op != OP_attention || !ring_read(ctx, graph, node, &ring) ||
        !ring.is_causal)
      continue;
    if (zigzag_find(ctx, graph, node, ring.n, out, &reason, &at)) return true;
    warn_of_order(ctx, &ring, reason, at);
    return false;
  }
  return false;
}

Graph *pass_ring_attention(PassContext *ctx, const Graph *graph) {
  const Plan *plan = ctx->plan;
  RingWalk walk = {0};
  Zigzag zigzag;
  if (!plan || plan->attention != ATTENTION_ring || plan->replicates_data)
    return rewrite_graph(ctx, graph, NULL, NULL);
  if (find_zigzag(ctx, graph, &zigzag)) {
    graph = zigzag_graph(ctx, graph, &zigzag);
    walk.zigzag = &zigzag;
  }
  Graph *now = rewrite_graph(ctx, graph, ring_rule, &walk);
  if (!walk.is_found) report_no_attention(ctx, graph, walk.missed);
  return now;
}
