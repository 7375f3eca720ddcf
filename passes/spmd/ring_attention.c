/*
 * ring_attention.c -- writes attention over a sharded sequence as turns, in
 * each of which a rank sees the keys and values of one shard.
 *
 *     plan: shard T over seq (2 ranks), attention = ring
 *
 *     %3 = attention %q, %k, %v {query = T, key = S, causal}
 *  =>
 *     %4 = split_dim %q {dim = T, to = [T~, T^]}          k and v alike by S
 *     %7, %8 = attention %4, %5, %6 {causal}              own keys
 *     %9, %10 = permute %5, %6 {dim = T~, shift = 1}      the neighbour's keys
 *     %11, %12 = attention %4, %9, %10
 *     %13 = select (T~ >= 1), %12, -inf                   lse: none are later
 *     the sum of %7 and %11, weighted by exp of %8 and %13
 *
 * The shards are a dim of the graph, along which `permute` rotates elements, so
 * all of it has a meaning on one device.  In the first turn the mask is the
 * causal one within a shard; in turn j shard i sees all of shard i - j, or none
 * of it where that number is negative.  Parts of rows are joined by their
 * log-sum-exp, with a running maximum, sum and output (Liu, Zaharia and Abbeel
 * 2023, "Ring Attention with Blockwise Transformers").
 *
 * The gradient rotates keys and values again, so that no rank stores those of
 * others.  The gradients of a shard's keys and values travel with them and are
 * added up; a rank deals with its own keys last, when they have come home.  So
 * n ranks exchange k and v n - 1 times in each pass, dk and dv n - 1 times.
 *
 * requires: logical types     keeps: types, paths     breaks: node ids
 * cost: O(nodes + turns)
 */
#include <math.h>

#include "passes/spmd/partition.h"

typedef struct Ring {
  Graph *to;
  const Node *node;
  Name query, key, shards; /* `shards`: the dim that numbers them */
  const PlanShard *line;   /* shards the queries */
  int64_t n;
  bool is_causal;
} Ring;

typedef struct RingWalk {
  const Node *missed; /* attention whose queries no line shards */
  bool is_found;
} RingWalk;

/* ---- shards ---- */

/* The elements of a shard have a name of their own, because lines about the dim
 * are not about them. */
static Name name_in_shard(const Ring *r, Name dim) {
  return name_format(r->to->module->names, "%s^", dim);
}

static Value split_blocks(const Ring *r, Value value, Name dim) {
  Name names[] = {r->shards, name_in_shard(r, dim)};
  int64_t size = type_size(graph_type(r->to, value), dim);
  int64_t sizes[] = {r->n, size / r->n};
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dim, dim);
  attrs_names(&attrs, ATTR_to, names, 2);
  attrs_ints(&attrs, ATTR_sizes, sizes, 2);
  return graph_append(r->to, OP_split_dim, &value, 1, &attrs);
}

/* The value with its shards joined, in the dtype and dim order of `like`. */
static Value merge_blocks(const Ring *r, Value value, Name dim,
                          const Type *like) {
  Name names[] = {r->shards, name_in_shard(r, dim)};
  Attrs attrs = {0};
  attrs_names(&attrs, ATTR_from, names, 2);
  attrs_name(&attrs, ATTR_dim, dim);
  value = graph_cast(r->to, value, like->dtype);
  value = graph_append(r->to, OP_merge_dims, &value, 1, &attrs);
  return graph_transpose_to(r->to, value, like);
}

/* Each shard gets the values of the one before it, the first those of the
 * last. */
static void rotate(const Ring *r, Value *values, int n) {
  const Type *types[2];
  Attrs attrs = {0};
  for (int i = 0; i < n; i++) types[i] = graph_type(r->to, values[i]);
  attrs_name(&attrs, ATTR_dim, r->shards);
  attrs_names(&attrs, ATTR_axes, r->line->axes, r->line->n_axes);
  attrs_int(&attrs, ATTR_shift, 1);
  Value first =
      graph_append_typed(r->to, OP_permute, values, n, &attrs, types, n, NULL);
  for (int i = 0; i < n; i++) values[i] = (Value){first.node, i};
}

/* The value, but `other` in the shards that see no keys in this turn. */
static Value where_seen(const Ring *r, int64_t turn, Value value,
                        double other) {
  if (!r->is_causal || turn == 0) return value;
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dim, r->shards);
  attrs_ints(&attrs, ATTR_sizes, &r->n, 1);
  Value shard = graph_append(r->to, OP_iota, NULL, 0, &attrs);
  Value seen =
      graph_op2(r->to, OP_ge, shard, graph_const(r->to, DT_i32, (double)turn));
  DType dtype = graph_type(r->to, value)->dtype;
  Value masked = graph_op3(r->to, OP_select, seen, value,
                           graph_const(r->to, dtype, other));
  return graph_transpose_to(r->to, masked, graph_type(r->to, value));
}

static Attrs turn_attrs(const Ring *r, int64_t turn) {
  Attrs attrs = node_attrs(r->node);
  attrs_name(&attrs, ATTR_query, name_in_shard(r, r->query));
  attrs_name(&attrs, ATTR_key, name_in_shard(r, r->key));
  if (turn > 0) attrs_int(&attrs, ATTR_causal, 0);
  return attrs;
}

/* Sums over turns are f32 where operands are short. */
static Value in_sum_dtype(const Ring *r, Value value) {
  DType dtype = graph_type(r->to, value)->dtype;
  return dtype_size_bytes(dtype) < 4 ? graph_cast(r->to, value, DT_f32) : value;
}

/* ---- forward ---- */

/* Rows of which some keys were seen: the maximum, the sum of exp(score -
 * maximum), and that of its products with v. */
typedef struct RingRows {
  Value max, sum, out;
} RingRows;

static RingRows join_rows(const Ring *r, RingRows rows, Value o, Value lse) {
  Graph *to = r->to;
  Value max = graph_op2(to, OP_maximum, rows.max, lse);
  Value before = graph_op1(to, OP_exp, graph_op2(to, OP_sub, rows.max, max));
  Value now = graph_op1(to, OP_exp, graph_op2(to, OP_sub, lse, max));
  Value sum = graph_op2(to, OP_mul, rows.sum, before);
  Value out = graph_op2(to, OP_mul, rows.out, before);
  return (RingRows){
      .max = max,
      .sum = graph_op2(to, OP_add, sum, now),
      .out = graph_op2(to, OP_add, out, graph_op2(to, OP_mul, o, now))};
}

static void ring_forward(const Ring *r, const Value *inputs, Value *results) {
  Graph *to = r->to;
  Value q = split_blocks(r, inputs[0], r->query);
  Value kv[2] = {split_blocks(r, inputs[1], r->key),
                 split_blocks(r, inputs[2], r->key)};
  RingRows rows = {VALUE_NONE, VALUE_NONE, VALUE_NONE};
  for (int64_t turn = 0; turn < r->n; turn++) {
    if (turn > 0) rotate(r, kv, 2);
    Attrs attrs = turn_attrs(r, turn);
    Value o =
        graph_append(to, OP_attention, (Value[]){q, kv[0], kv[1]}, 3, &attrs);
    Value lse = where_seen(r, turn, (Value){o.node, 1}, -INFINITY);
    o = in_sum_dtype(r, o);
    Value one = graph_const(to, graph_type(to, lse)->dtype, 1);
    rows = turn > 0 ? join_rows(r, rows, o, lse) : (RingRows){lse, one, o};
  }
  Value o = graph_op2(to, OP_div, rows.out, rows.sum);
  Value lse = graph_op2(to, OP_add, rows.max, graph_op1(to, OP_log, rows.sum));
  results[0] = merge_blocks(r, o, r->query, r->node->types[0]);
  results[1] = merge_blocks(r, lse, r->query, r->node->types[1]);
}

/* ---- backward ---- */

static Value ring_add(const Ring *r, Value sum, Value term) {
  return value_is(sum) ? graph_op2(r->to, OP_add, sum, term) : term;
}

/* Adds to dq, and to the gradients of the keys and values at hand. */
static void ring_turn_grad(const Ring *r, int64_t turn, const Value *operands,
                           Value *dq, Value *dkv) {
  Attrs attrs = turn_attrs(r, turn);
  Value first = graph_append(r->to, OP_attention_grad, operands, 6, &attrs);
  Value made[3];
  for (int i = 0; i < 3; i++) {
    Value part = in_sum_dtype(r, (Value){first.node, i});
    made[i] = where_seen(r, turn, part, 0);
  }
  *dq = ring_add(r, *dq, made[0]);
  for (int i = 0; i < 2; i++) dkv[i] = ring_add(r, dkv[i], made[i + 1]);
}

static void ring_backward(const Ring *r, const Value *inputs, Value *results) {
  Value own[2], kv[2], queries[6], operands[6];
  for (int i = 0; i < 6; i++) {
    bool is_key = i == 1 || i == 2;
    queries[i] = split_blocks(r, inputs[i], is_key ? r->key : r->query);
  }
  for (int i = 0; i < 2; i++) kv[i] = own[i] = queries[i + 1];
  Value dq = VALUE_NONE, dkv[2] = {VALUE_NONE, VALUE_NONE};
  for (int64_t i = 1; i <= r->n; i++) {
    int64_t turn = i % r->n;
    if (turn > 0) rotate(r, kv, 2);
    if (i > 1) rotate(r, dkv, 2);
    const Value *now = turn > 0 ? kv : own;
    for (int k = 0; k < 6; k++)
      operands[k] = k == 1 || k == 2 ? now[k - 1] : queries[k];
    ring_turn_grad(r, turn, operands, &dq, dkv);
  }
  const Type *const *types = r->node->types;
  results[0] = merge_blocks(r, dq, r->query, types[0]);
  for (int i = 0; i < 2; i++)
    results[i + 1] = merge_blocks(r, dkv[i], r->key, types[i + 1]);
}

/* ---- the pass ---- */

static int64_t line_shards(const Plan *plan, const PlanShard *line) {
  const Mesh *mesh = plan_mesh(plan);
  int64_t n = 1;
  for (int i = 0; line && i < line->n_axes; i++)
    n *= mesh->axes[mesh_find(mesh, line->axes[i])].size;
  return n;
}

static bool ring_begin(const Rewrite *rewrite, int id, Ring *out) {
  const Node *node = rewrite->from->nodes.data[id];
  const Plan *plan = rewrite->ctx->plan;
  Name query = node_name(node, ATTR_query), key = node_name(node, ATTR_key);
  const PlanShard *line =
      query == plan->batch_dim ? NULL : plan_find_shard(plan, query);
  int64_t n = line_shards(plan, line);
  int64_t t = type_size(graph_type(rewrite->from, node->inputs[0]), query);
  int64_t s = type_size(graph_type(rewrite->from, node->inputs[1]), key);
  bool is_causal = node_int(node, ATTR_causal, 0) != 0;
  *out =
      (Ring){.to = rewrite->to,
             .node = node,
             .query = query,
             .key = key,
             .shards = name_format(rewrite->ctx->module->names, "%s~", query),
             .line = line,
             .n = n,
             .is_causal = is_causal};
  return n > 1 && t % n == 0 && s % n == 0 && (!is_causal || t == s);
}

static bool ring_rule(Rewrite *rewrite, int id, void *user) {
  RingWalk *walk = user;
  const Node *node = rewrite->from->nodes.data[id];
  Ring ring;
  Value results[3];
  if (!op_has(node->op, OP_FLAG_attends)) return false;
  if (!ring_begin(rewrite, id, &ring)) {
    walk->missed = node;
    return false;
  }
  walk->is_found = true;
  rewrite_at(rewrite, id);
  (node->op == OP_attention ? ring_forward : ring_backward)(
      &ring, rewrite_inputs(rewrite, id), results);
  for (int i = 0; i < node->n_results; i++)
    rewrite_set(rewrite, (Value){id, i}, results[i]);
  return true;
}

static const Node *find_scan_over(const Graph *graph, const Plan *plan) {
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    if (node->op != OP_scan) continue;
    Name dim = node_name(node, ATTR_dim);
    if (dim != plan->batch_dim &&
        line_shards(plan, plan_find_shard(plan, dim)) > 1)
      return node;
  }
  return NULL;
}

void report_no_attention(PassContext *ctx, const Graph *graph,
                         const Node *missed) {
  const Plan *plan = ctx->plan;
  Diags *diags = ctx->module->diags;
  const Node *scan = find_scan_over(graph, plan);
  const char *word = plan_attention_name(plan->attention);
  if (scan) {
    Diag *d = diag(diags, DIAG_attention_scan, plan->attention_span, word,
                   node_name(scan, ATTR_dim));
    diag_note(d, scan->span, "the scan is here");
  } else if (missed) {
    Name query = node_name(missed, ATTR_query);
    bool is_sharded = line_shards(plan, plan_find_shard(plan, query)) > 1;
    Diag *d = diag(
        diags, is_sharded ? DIAG_attention_uneven : DIAG_attention_replicated,
        plan->attention_span, word, query);
    diag_note(d, missed->span, "the attention is here");
    if (!is_sharded) diag_help(d, "add a line: shard %s over AXIS", query);
  } else {
    diag(diags, DIAG_attention_none, plan->attention_span, word);
  }
}

Graph *pass_ring_attention(PassContext *ctx, const Graph *graph) {
  const Plan *plan = ctx->plan;
  RingWalk walk = {0};
  if (!plan || plan->attention != ATTENTION_ring || plan->replicates_data)
    return rewrite_graph(ctx, graph, NULL, NULL);
  Graph *now = rewrite_graph(ctx, graph, ring_rule, &walk);
  if (!walk.is_found) report_no_attention(ctx, graph, walk.missed);
  return now;
}
