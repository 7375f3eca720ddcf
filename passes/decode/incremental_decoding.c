/*
 * incremental_decoding.c -- turn a net over T tokens into one that computes one
 * token from decode caches.
 *
 *     %0 = input : i32[B, T] data "tok"          %0 = input : i32[B, T:1]
 *     %3 = ... : f32[B, T, H, D]                 %3 = ... : f32[B, T:1, H, D]
 *     %4 = rename %3 : f32[B, S, H, D]     =>    %4 = update_slice cache, %3, t
 *     %5 = dot %2, %4 {over = [D]}               %5 = dot %2, %4 {over = [D]}
 *                                                output cache %4
 *
 * The result at token position t may depend on tokens up to t only.  The pass
 * proves this by following the dims, without knowledge of models:
 *
 * - A value that depends on tokens has T.  An operator computes its row t from
 *   row t of its operands if its sharding rule lets a sharded T through: with
 *   one row on each rank, no rank needs the row of another.
 * - A rename of T to S makes all token positions visible to each.  Its rows
 *   become a decode cache: `prefill` fills all rows of its window, and `decode`
 *   writes the row of its token.
 * - A value with T and S may be reduced along S (softmax, a contraction over S)
 *   only if token positions after t have no part in it: a select by T >= S (or
 *   T > S, or such a condition and another) has put -inf there, softmax turns
 *   -inf into zero, and zero times the rest of a cache is zero.
 * - A value that depends on no token but has T (learned or rotary position
 *   encodings) gives its row t: an operator that lets T through reads the rows
 *   of its operands, for others the row is gathered from the full value.
 * - A `scan` over T runs for one iteration, and its carries become decode
 *   caches.  `decode_init` writes their initial values.
 *
 * Any other value mixes token positions; the message names the first one.
 *
 * requires: a forward graph as the front end builds it     keeps: the net
 * cost: O(nodes)
 */
#include "passes/decode/incremental_decoding.h"

#include "passes/decode/weight_precompute.h"
#include "passes/rewrite.h"

#include <math.h>

typedef enum Future { /* of a value with T and S: its part at S > T */
                      FUTURE_open,
                      FUTURE_hidden, /* -inf */
                      FUTURE_zero
} Future;

typedef struct TokenFacts {
  bool has_tokens; /* depends on the tokens */
  bool has_token_dim;
  Name key_dim; /* the S, or NULL */
  Future future;
} TokenFacts;

typedef struct Cache {
  DecodeCache cache;
  Value from; /* what is renamed, in the old graph; of a carry VALUE_NONE */
  Value to;   /* the cache's new value, in the new graph */
} Cache;

typedef struct Incremental {
  PassContext *ctx;
  const Graph *from;
  Graph *to;
  Graph *probe; /* its mesh has one axis as long as T */
  Name token_dim;
  int64_t length;
  TokenFacts *facts;   /* by node */
  Value **full, **row; /* by node and result, in the new graph */
  Value position;      /* scalar */
  VEC(Cache) caches;
  int blame;       /* node that mixes token positions; -1: none */
  const char *why; /* what it does */
} Incremental;

/* ---- types ---- */

static bool has_dim(const Type *type, Name dim) {
  return dim && type_find(type, dim) >= 0;
}

static const Type *type_split_along(const Incremental *inc, const Type *type,
                                    Name dim) {
  Type *copy = type_create(inc->ctx->scratch, type->dtype, type->rank);
  for (int d = 0; d < type->rank; d++) {
    copy->dims[d] = type->dims[d];
    copy->dims[d].split =
        type->dims[d].name == dim ? axis_list_append(0, 0) : 0;
  }
  return copy;
}

/* The operator computes every row along `dim` from the same rows of its
 * operands. */
static bool is_rowwise(const Incremental *inc, int id, Name dim) {
  const Node *node = inc->from->nodes.data[id];
  Arena *arena = inc->ctx->scratch;
  const Type **inputs = ARENA_ARRAY(arena, const Type *, node->n_inputs);
  const Type **wanted = ARENA_ARRAY(arena, const Type *, node->n_inputs);
  const Type **results = ARENA_ARRAY(arena, const Type *, node->n_results);
  for (int i = 0; i < node->n_inputs; i++)
    inputs[i] =
        type_split_along(inc, graph_type(inc->from, node->inputs[i]), dim);
  shard_infer(inc->probe, node->op, node->attrs, node->n_attrs, inputs,
              node->n_inputs, node->types, node->n_results, arena, wanted,
              results);
  for (int i = 0; i < node->n_inputs; i++)
    if (!type_equal(inputs[i], wanted[i])) return false;
  for (int r = 0; r < node->n_results; r++) {
    int at = type_find(results[r], dim);
    if (results[r]->partial || at < 0 || !results[r]->dims[at].split)
      return false;
  }
  return true;
}

/* ---- facts ---- */

static bool blame_node(Incremental *inc, int id, const char *why) {
  if (inc->blame < 0) {
    inc->blame = id;
    inc->why = why;
  }
  return false;
}

static const Node *node_of(const Incremental *inc, Value value) {
  return graph_node(inc->from, value);
}

static bool is_iota(const Incremental *inc, Value value, Name dim) {
  const Node *node = node_of(inc, value);
  while (node->op == OP_cast) node = node_of(inc, node->inputs[0]);
  return node->op == OP_iota && node_name(node, ATTR_dim) == dim;
}

/* A comparison that is false wherever S > T. */
static bool is_causal(const Incremental *inc, const Node *node, Name key_dim) {
  bool time_first = node->op == OP_ge || node->op == OP_gt;
  if (!time_first && node->op != OP_le && node->op != OP_lt) return false;
  return is_iota(inc, node->inputs[!time_first], inc->token_dim) &&
         is_iota(inc, node->inputs[time_first], key_dim);
}

/* The condition is false wherever S > T: one operand of its `and`s is.  Users
 * follow their operands, so one pass from the last to the first visits a
 * shared operand once. */
static bool hides_future(const Incremental *inc, Value condition,
                         Name key_dim) {
  bool *is_reached = ARENA_ARRAY(inc->ctx->scratch, bool, condition.node + 1);
  int n_open = 1;
  is_reached[condition.node] = true;
  for (int id = condition.node; n_open > 0; id--) {
    if (!is_reached[id]) continue;
    n_open--;
    const Node *node = inc->from->nodes.data[id];
    if (is_causal(inc, node, key_dim)) return true;
    for (int i = 0; node->op == OP_and && i < 2; i++) {
      bool *reached = &is_reached[node->inputs[i].node];
      n_open += !*reached;
      *reached = true;
    }
  }
  return false;
}

static Future future_of(const Incremental *inc, Value value, Name key_dim) {
  const TokenFacts *facts = &inc->facts[value.node];
  double number;
  if (facts->has_tokens)
    return facts->key_dim == key_dim ? facts->future : FUTURE_open;
  if (!value_const(inc->from, value, &number)) return FUTURE_open;
  if (number == 0) return FUTURE_zero;
  return isinf(number) && number < 0 ? FUTURE_hidden : FUTURE_open;
}

static bool is_positive(const Incremental *inc, Value value) {
  double number;
  return value_const(inc->from, value, &number) && number > 0 && !isinf(number);
}

/* The future of the result of a node that keeps S, from those of its first two
 * operands. */
typedef Future FutureFunction(const Incremental *inc, const Node *node,
                              Name key_dim, Future a, Future b);

static Future future_same(const Incremental *inc, const Node *node,
                          Name key_dim, Future a, Future b) {
  (void)inc, (void)node, (void)key_dim, (void)b;
  return a;
}

static Future future_select(const Incremental *inc, const Node *node,
                            Name key_dim, Future a, Future b) {
  (void)a;
  Future c = future_of(inc, node->inputs[2], key_dim);
  if (c == FUTURE_open) return FUTURE_open;
  return b == c || hides_future(inc, node->inputs[0], key_dim) ? c
                                                               : FUTURE_open;
}

static Future future_mul(const Incremental *inc, const Node *node, Name key_dim,
                         Future a, Future b) {
  (void)key_dim;
  if (a == FUTURE_zero || b == FUTURE_zero) return FUTURE_zero;
  if (a == FUTURE_hidden && is_positive(inc, node->inputs[1])) return a;
  return b == FUTURE_hidden && is_positive(inc, node->inputs[0]) ? b
                                                                 : FUTURE_open;
}

static Future future_div(const Incremental *inc, const Node *node, Name key_dim,
                         Future a, Future b) {
  (void)key_dim, (void)b;
  return a == FUTURE_zero ||
                 (a == FUTURE_hidden && is_positive(inc, node->inputs[1]))
             ? a
             : FUTURE_open;
}

/* Among finite numbers and -inf, -inf wins. */
static Future future_add(const Incremental *inc, const Node *node, Name key_dim,
                         Future a, Future b) {
  (void)inc, (void)node, (void)key_dim;
  return a == FUTURE_hidden || b == FUTURE_hidden ? FUTURE_hidden : FUTURE_open;
}

static Future future_sub(const Incremental *inc, const Node *node, Name key_dim,
                         Future a, Future b) {
  (void)inc, (void)node, (void)key_dim, (void)b;
  return a == FUTURE_hidden ? a : FUTURE_open;
}

static Future future_dot(const Incremental *inc, const Node *node, Name key_dim,
                         Future a, Future b) {
  (void)inc, (void)node, (void)key_dim;
  return a == FUTURE_zero || b == FUTURE_zero ? FUTURE_zero : FUTURE_open;
}

/* The rule of an operator; without one its result is FUTURE_open. */
static FutureFunction *const future_functions[N_OPS] = {
    [OP_cast] = future_same,      [OP_stop_gradient] = future_same,
    [OP_copy] = future_same,      [OP_rename] = future_same,
    [OP_transpose] = future_same, [OP_select] = future_select,
    [OP_mul] = future_mul,        [OP_div] = future_div,
    [OP_add] = future_add,        [OP_sub] = future_sub,
    [OP_dot] = future_dot,
};

static Future future_kept(const Incremental *inc, const Node *node,
                          Name key_dim) {
  FutureFunction *function = future_functions[node->op];
  if (!function) return FUTURE_open;
  Future a = future_of(inc, node->inputs[0], key_dim);
  Future b = node->n_inputs > 1 ? future_of(inc, node->inputs[1], key_dim)
                                : FUTURE_open;
  return function(inc, node, key_dim, a, b);
}

static bool reduces_dim(const Node *node, Name dim) {
  int n;
  const Name *over = node_names(node, ATTR_over, &n);
  for (int i = 0; i < n; i++)
    if (over[i] == dim) return true;
  return false;
}

/* A reduction does not see a future that is its neutral element. */
static const Future neutral_future[N_OPS] = {
    [OP_sum] = FUTURE_zero,
    [OP_max] = FUTURE_hidden,
    [OP_logsumexp] = FUTURE_hidden,
};

/* The operator reduces S, or mixes its rows: this is allowed only where the
 * future has no part in the result. */
static bool consume_keys(Incremental *inc, int id, TokenFacts *out) {
  const Node *node = inc->from->nodes.data[id];
  Future a = future_of(inc, node->inputs[0], out->key_dim);
  bool is_one = reduces_dim(node, out->key_dim) && node->n_inputs == 1;
  if (node->op == OP_softmax && is_one && a == FUTURE_hidden) {
    out->future = FUTURE_zero;
    return true;
  }
  bool is_gone =
      (is_one && a != FUTURE_open && a == neutral_future[node->op]) ||
      (node->op == OP_dot && reduces_dim(node, out->key_dim) &&
       (a == FUTURE_zero ||
        future_of(inc, node->inputs[1], out->key_dim) == FUTURE_zero));
  out->key_dim = NULL;
  out->future = FUTURE_open;
  return is_gone || blame_node(inc, id, "reads later token positions");
}

static bool is_cache(const Incremental *inc, int id) {
  const Node *node = inc->from->nodes.data[id];
  return node->op == OP_rename && !has_dim(node->types[0], inc->token_dim) &&
         has_dim(graph_type(inc->from, node->inputs[0]), inc->token_dim);
}

/* The last value of a carry of a scan over T. */
static bool is_last_carry(const Incremental *inc, Value value) {
  const Node *node = node_of(inc, value);
  return node->op == OP_scan && value.result < scan_carries(node);
}

/* The dim that T is renamed to. */
static Name renamed_token_dim(const Incremental *inc, const Node *node) {
  int n;
  const Name *from = node_names(node, ATTR_from, &n);
  const Name *to = node_names(node, ATTR_to, &n);
  for (int i = 0; i < n; i++)
    if (from[i] == inc->token_dim) return to[i];
  UNREACHABLE();
}

/* Joins the facts of the inputs; false: they contradict each other. */
static bool join_facts(Incremental *inc, int id, TokenFacts *out) {
  const Node *node = inc->from->nodes.data[id];
  for (int i = 0; i < node->n_inputs; i++) {
    const TokenFacts *in = &inc->facts[node->inputs[i].node];
    if (!in->has_tokens) continue;
    out->has_tokens = true;
    if (is_last_carry(inc, node->inputs[i]))
      return blame_node(inc, id, "reads the result of the last token position");
    if (in->key_dim && out->key_dim && in->key_dim != out->key_dim)
      return blame_node(inc, id, "reads all token positions under two names");
    if (in->key_dim) out->key_dim = in->key_dim;
  }
  return true;
}

/* Slices have T; every other operand of the body must not depend on tokens. */
static bool analyse_scan(Incremental *inc, int id, TokenFacts *out) {
  const Node *node = inc->from->nodes.data[id];
  if (node_name(node, ATTR_dim) != inc->token_dim)
    return blame_node(
        inc, id, "runs over another dimension and reads all token positions");
  if (scan_is_reversed(node))
    return blame_node(inc, id,
                      "runs from the last token position to the first");
  if (out->key_dim)
    return blame_node(inc, id, "reads all token positions in each iteration");
  for (int i = 0; i < node->n_inputs; i++)
    if (inc->facts[node->inputs[i].node].has_tokens &&
        scan_input_role(node, i) != ROLE_slice)
      return blame_node(inc, id,
                        "reads other token positions in each iteration");
  out->has_token_dim = true;
  return true;
}

static bool analyse_node(Incremental *inc, int id) {
  const Node *node = inc->from->nodes.data[id];
  TokenFacts *out = &inc->facts[id];
  /* Each token has numbers of its own, by its position in the window. */
  if (op_is(node->op, OPCLASS_random) &&
      has_dim(node->types[0], inc->token_dim))
    return blame_node(inc, id, "makes random numbers");
  if (!join_facts(inc, id, out)) return false;
  if (!out->has_tokens) return true;
  if (op_has(node->op, OP_FLAG_causal)) return analyse_scan(inc, id, out);
  for (int i = 0; i < node->n_inputs; i++)
    out->has_token_dim |=
        has_dim(graph_type(inc->from, node->inputs[i]), inc->token_dim);
  if (is_cache(inc, id)) {
    if (out->key_dim)
      return blame_node(inc, id, "renames token positions twice");
    *out = (TokenFacts){.has_tokens = true,
                        .key_dim = renamed_token_dim(inc, node)};
    return true;
  }
  if (out->has_token_dim && !is_rowwise(inc, id, inc->token_dim))
    return blame_node(inc, id, "mixes token positions");
  if (out->key_dim && is_rowwise(inc, id, out->key_dim))
    out->future = future_kept(inc, node, out->key_dim);
  else if (out->key_dim)
    return consume_keys(inc, id, out);
  return true;
}

static bool analyse_tokens(Incremental *inc) {
  for (int id = 0; id < inc->from->nodes.n; id++) {
    const Node *node = inc->from->nodes.data[id];
    if (node->op == OP_input) {
      const GraphInput *input =
          &inc->from->inputs.data[node_int(node, ATTR_index, 0)];
      bool has_tokens = input->role == ROLE_data;
      inc->facts[id] =
          (TokenFacts){.has_tokens = has_tokens, .has_token_dim = has_tokens};
    } else if (!analyse_node(inc, id)) {
      return false;
    }
  }
  for (int i = 0; i < inc->from->outputs.n; i++) {
    const GraphOutput *output = &inc->from->outputs.data[i];
    const TokenFacts *facts = &inc->facts[output->value.node];
    if (output->role != ROLE_result)
      return blame_node(inc, output->value.node, "is stored as a state");
    if (!facts->has_tokens || !facts->has_token_dim || facts->key_dim ||
        is_last_carry(inc, output->value))
      return blame_node(
          inc, output->value.node,
          "is the result, but has no row for each token position");
  }
  return inc->caches.n == 0; /* nothing was built yet */
}

/* ---- building ---- */

static Name intern_name(Incremental *inc, const char *text) {
  return name_intern(inc->ctx->module->names, text);
}

static void incremental_at(Incremental *inc, int id) {
  const Node *node = inc->from->nodes.data[id];
  inc->to->span = node->span;
  inc->to->path = node->path;
  inc->to->phase = node->phase;
}

static Value rename_dim(Incremental *inc, Value value, Name from, Name to) {
  Attrs attrs = {0};
  attrs_names(&attrs, ATTR_from, &from, 1);
  attrs_names(&attrs, ATTR_to, &to, 1);
  return graph_append(inc->to, OP_rename, &value, 1, &attrs);
}

/* Asked for by those who need it only. */
static Value position(Incremental *inc) {
  if (!value_is(inc->position)) {
    Name path = intern_name(inc, SAMPLE_POSITION);
    inc->position = graph_input(inc->to, ROLE_data, path,
                                type_scalar(inc->ctx->module->arena, DT_i32));
  }
  return inc->position;
}

/* The token position, with T of size 1. */
static Value position_as_row(Incremental *inc) {
  Attrs attrs = {0};
  int64_t one = 1;
  attrs_names(&attrs, ATTR_to, &inc->token_dim, 1);
  attrs_ints(&attrs, ATTR_sizes, &one, 1);
  Value at = position(inc);
  return graph_append(inc->to, OP_broadcast, &at, 1, &attrs);
}

/* Row t of a value that does not depend on tokens. */
static Value gather_row(Incremental *inc, Value full) {
  Name rows = intern_name(inc, "sample.rows"); /* no user's name */
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dim, rows);
  Value inputs[2] = {rename_dim(inc, full, inc->token_dim, rows),
                     position_as_row(inc)};
  return graph_append(inc->to, OP_gather, inputs, 2, &attrs);
}

static Value row_of(Incremental *inc, Value value);

/* The node with its operands' rows; false if its types come out otherwise. */
static void append_row(Incremental *inc, int id) {
  const Node *node = inc->from->nodes.data[id];
  Value *inputs = ARENA_ARRAY(inc->ctx->scratch, Value, node->n_inputs);
  for (int i = 0; i < node->n_inputs; i++)
    inputs[i] = row_of(inc, node->inputs[i]);
  incremental_at(inc, id);
  Value first = graph_copy_node(inc->to, inc->from, id, inputs, true);
  for (int r = 0; r < node->n_results; r++)
    inc->row[id][r] = (Value){first.node, r};
}

/* The row of a value that depends on no token; the full values of all of them
 * are built already. */
static Value row_of(Incremental *inc, Value value) {
  Value *row = &inc->row[value.node][value.result];
  if (value_is(*row)) return *row;
  ASSERT(!inc->facts[value.node].has_tokens);
  const Node *node = node_of(inc, value);
  Value full = inc->full[value.node][value.result];
  if (!has_dim(graph_type(inc->from, value), inc->token_dim))
    return *row = full;
  if (node->op == OP_iota && node_name(node, ATTR_dim) == inc->token_dim)
    return *row =
               graph_cast(inc->to, position_as_row(inc), node->types[0]->dtype);
  if (node->n_inputs > 0 && node->op != OP_rename &&
      is_rowwise(inc, value.node, inc->token_dim)) {
    append_row(inc, value.node);
    return *row;
  }
  return *row = gather_row(inc, full);
}

/* Drops T of size 1: it is merged with a neighbour, which is a view. */
static Value drop_token_dim(Incremental *inc, Value row) {
  const Type *type = graph_type(inc->to, row);
  int at = type_find(type, inc->token_dim);
  if (type->rank == 1)
    return graph_reduce(inc->to, OP_sum, row, &inc->token_dim, 1);
  Name other = type->dims[at + 1 < type->rank ? at + 1 : at - 1].name;
  Name merged = intern_name(inc, "sample.merged");
  Name from[2] = {inc->token_dim, other};
  if (at + 1 == type->rank) from[0] = other, from[1] = inc->token_dim;
  Attrs attrs = {0};
  attrs_names(&attrs, ATTR_from, from, 2);
  attrs_name(&attrs, ATTR_dim, merged);
  Value value = graph_append(inc->to, OP_merge_dims, &row, 1, &attrs);
  return rename_dim(inc, value, merged, other);
}

/* Other dims that the same node renames. */
static Value rename_others(Incremental *inc, const Node *node, Value value) {
  int n, kept = 0;
  const Name *from = node_names(node, ATTR_from, &n);
  const Name *to = node_names(node, ATTR_to, &n);
  Name a[MAX_RANK], b[MAX_RANK];
  for (int i = 0; i < n; i++) {
    if (from[i] == inc->token_dim) continue;
    a[kept] = from[i];
    b[kept++] = to[i];
  }
  if (kept == 0) return value;
  Attrs attrs = {0};
  attrs_names(&attrs, ATTR_from, a, kept);
  attrs_names(&attrs, ATTR_to, b, kept);
  return graph_append(inc->to, OP_rename, &value, 1, &attrs);
}

/* The cache with this row in it. */
static Value write_cache(Incremental *inc, Name key_dim, Value row,
                         Value cache) {
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dim, key_dim);
  Value inputs[3] = {cache, row, position(inc)};
  return graph_append(inc->to, OP_update_slice, inputs, 3, &attrs);
}

/* Several values may have one path: a list is renamed at once. */
static Name cache_path(Incremental *inc, const char *path) {
  Names *names = inc->ctx->module->names;
  Name name = name_format(names, "cache/%s", path);
  for (int n = 1, i = 0; i < inc->caches.n; i++) {
    if (inc->caches.data[i].cache.path != name) continue;
    name = name_format(names, "cache/%s#%d", path, n++);
    i = -1;
  }
  return name;
}

static void append_cache(Incremental *inc, int id) {
  const Node *node = inc->from->nodes.data[id];
  const Type *type = node->types[0];
  for (int i = 0; i < inc->caches.n; i++) {
    const Cache *other = &inc->caches.data[i];
    if (!value_equal(other->from, node->inputs[0]) ||
        !type_equal(type, graph_type(inc->from, other->cache.value)))
      continue;
    inc->row[id][0] = other->to;
    return;
  }
  incremental_at(inc, id);
  Cache cache = {.cache = {cache_path(inc, node->path), {id, 0}, false},
                 .from = node->inputs[0]};
  Value old = graph_input(inc->to, ROLE_decode_cache, cache.cache.path, type);
  Value row = drop_token_dim(inc, row_of(inc, node->inputs[0]));
  incremental_at(inc, id);
  cache.to = write_cache(inc, renamed_token_dim(inc, node),
                         rename_others(inc, node, row), old);
  inc->row[id][0] = cache.to;
  vec_push(inc->ctx->scratch, &inc->caches, cache);
}

/* Carries are decode caches, slices have one row. */
static void append_scan(Incremental *inc, int id) {
  const Node *node = inc->from->nodes.data[id];
  Arena *arena = inc->ctx->module->arena;
  Value *inputs = ARENA_ARRAY(inc->ctx->scratch, Value, node->n_inputs);
  int n_carries = scan_carries(node), first = inc->caches.n;
  for (int i = 0; i < node->n_inputs; i++) {
    const GraphInput *inner = &node->body->inputs.data[i];
    const Type *type = graph_type(node->body, inner->value);
    incremental_at(inc, id);
    if (inner->role == ROLE_carry) {
      const char *path = arena_printf(arena, "%s.%s", node->path, inner->path);
      Cache cache = {.cache = {cache_path(inc, path), node->inputs[i], true},
                     .from = VALUE_NONE};
      inputs[i] =
          graph_input(inc->to, ROLE_decode_cache, cache.cache.path, type);
      vec_push(inc->ctx->scratch, &inc->caches, cache);
    } else if (inner->role == ROLE_slice) {
      inputs[i] =
          graph_transpose_to(inc->to, row_of(inc, node->inputs[i]),
                             scan_stacked_type(arena, type, inc->token_dim, 1));
    } else {
      inputs[i] = row_of(inc, node->inputs[i]);
    }
  }
  incremental_at(inc, id);
  Value last =
      scan_append(inc->to, (ScanForm){.dim = inc->token_dim, .steps = 1},
                  inputs, node->body);
  for (int r = 0; r < node->n_results; r++) {
    Value value = {last.node, r};
    if (r < n_carries)
      inc->caches.data[first + r].to = value;
    else
      inc->row[id][r] = value;
  }
}

static void copy_input(Incremental *inc, int id) {
  const Node *node = inc->from->nodes.data[id];
  const GraphInput *like =
      &inc->from->inputs.data[node_int(node, ATTR_index, 0)];
  incremental_at(inc, id);
  if (!inc->facts[id].has_tokens) {
    inc->full[id][0] = rewrite_input(inc->to, like, node->types[0]);
    return;
  }
  Type *type = type_create(inc->ctx->module->arena, node->types[0]->dtype,
                           node->types[0]->rank);
  for (int d = 0; d < type->rank; d++) {
    type->dims[d] = node->types[0]->dims[d];
    if (type->dims[d].name == inc->token_dim) type->dims[d].size = 1;
  }
  inc->row[id][0] = rewrite_input(inc->to, like, type);
}

static void copy_full(Incremental *inc, int id) {
  const Node *node = inc->from->nodes.data[id];
  Value *inputs = ARENA_ARRAY(inc->ctx->scratch, Value, node->n_inputs);
  for (int i = 0; i < node->n_inputs; i++)
    inputs[i] = inc->full[node->inputs[i].node][node->inputs[i].result];
  incremental_at(inc, id);
  Value first = graph_copy_node(inc->to, inc->from, id, inputs, false);
  for (int r = 0; r < node->n_results; r++)
    inc->full[id][r] = (Value){first.node, r};
}

static void build_decode(Incremental *inc) {
  for (int id = 0; id < inc->from->nodes.n; id++) {
    if (inc->from->nodes.data[id]->op == OP_input)
      copy_input(inc, id);
    else if (!inc->facts[id].has_tokens)
      copy_full(inc, id);
    else if (is_cache(inc, id))
      append_cache(inc, id);
    else if (inc->from->nodes.data[id]->op == OP_scan)
      append_scan(inc, id);
    else
      append_row(inc, id);
  }
  for (int i = 0; i < inc->from->outputs.n; i++) {
    const GraphOutput *output = &inc->from->outputs.data[i];
    graph_output(inc->to, output->role, output->path,
                 row_of(inc, output->value));
  }
  for (int i = 0; i < inc->caches.n; i++)
    graph_output(inc->to, ROLE_decode_cache, inc->caches.data[i].cache.path,
                 inc->caches.data[i].to);
}

/* ---- public ---- */

static bool find_token_dim(Incremental *inc) {
  const GraphInput *tokens = NULL;
  for (int i = 0; i < inc->from->inputs.n; i++) {
    const GraphInput *input = &inc->from->inputs.data[i];
    if (input->role != ROLE_data) continue;
    if (tokens) return false;
    tokens = input;
  }
  const Type *type = tokens ? graph_type(inc->from, tokens->value) : NULL;
  if (!type || type->rank != 2) return false;
  inc->token_dim = type->dims[1].name;
  inc->length = type->dims[1].size;
  return inc->length > 1;
}

static void incremental_create(Incremental *inc, PassContext *ctx,
                               const Graph *net) {
  int n = net->nodes.n;
  inc->to = graph_like(net);
  inc->probe = graph_like(net);
  inc->probe->mesh =
      (Mesh){.n_axes = 1,
             .axes = {{.name = inc->token_dim, .size = (int32_t)inc->length}}};
  inc->facts = ARENA_ARRAY(ctx->scratch, TokenFacts, n);
  inc->full = ARENA_ARRAY(ctx->scratch, Value *, n);
  inc->row = ARENA_ARRAY(ctx->scratch, Value *, n);
  for (int id = 0; id < n; id++) {
    int results = net->nodes.data[id]->n_results;
    inc->full[id] = ARENA_ARRAY(ctx->scratch, Value, results);
    inc->row[id] = ARENA_ARRAY(ctx->scratch, Value, results);
    for (int r = 0; r < results; r++)
      inc->full[id][r] = inc->row[id][r] = VALUE_NONE;
  }
}

static void incremental_result(Incremental *inc, DecodeGraphs *out) {
  PassContext *ctx = inc->ctx;
  *out = (DecodeGraphs){.step = inc->to, .n_caches = inc->caches.n};
  out->caches = ARENA_ARRAY(ctx->module->arena, DecodeCache, out->n_caches);
  for (int i = 0; i < out->n_caches; i++) {
    const DecodeCache *cache = &inc->caches.data[i].cache;
    out->caches[i] = *cache;
    out->has_carries |= cache->is_carry;
  }
}

bool decode_split(PassContext *ctx, const Graph *net, DecodeGraphs *out,
                  Text *out_why) {
  Incremental inc = {
      .ctx = ctx, .from = net, .blame = -1, .position = VALUE_NONE};
  if (!find_token_dim(&inc)) {
    text_add(out_why, "its input is not i32[B, T]");
    return false;
  }
  incremental_create(&inc, ctx, net);
  if (!analyse_tokens(&inc)) {
    const Node *node = net->nodes.data[inc.blame];
    text_printf(out_why, "'%s' %s along '%s'",
                *node->path ? node->path : op_info(node->op)->name, inc.why,
                inc.token_dim);
    return false;
  }
  build_decode(&inc);
  incremental_result(&inc, out);
  return true;
}

/* Finds a cache as the compiled decode graph reads it. */
static FilledCache find_cache(const CompiledDecode *compiled, Name path,
                              const Type **out_type) {
  const GraphInput *input = NULL;
  int s = -1;
  while (!input && ++s < compiled->n_graphs)
    input = graph_find_input(compiled->graphs[s], ROLE_decode_cache, path);
  ASSERT(input);
  *out_type = graph_type(compiled->graphs[s], input->value);
  return (FilledCache){path, (*out_type)->dtype,
                       compiled->n_graphs > 1 ? s + 1 : 0};
}

/* Lets the net fill a cache of this type. */
static void fill_in_prefill(Rewrite *rewrite, Value value,
                            const FilledCache *cache, const Type *type) {
  Graph *prefill = rewrite->to;
  rewrite_at(rewrite, value.node);
  Value now = rewrite_get(rewrite, value);
  prefill->stage = cache->stage;
  graph_input(prefill, ROLE_decode_cache, cache->path, type);
  prefill->stage = 0;
  graph_output(prefill, ROLE_decode_cache, cache->path,
               graph_cast(prefill, now, cache->dtype));
}

DecodeFinish decode_finish(PassContext *ctx, const Graph *net,
                           const DecodeGraphs *graphs,
                           const CompiledDecode *compiled) {
  Rewrite rewrite = rewrite_begin(ctx, net);
  for (int id = 0; id < net->nodes.n; id++) rewrite_copy(&rewrite, id);
  Graph *prefill = rewrite_end(&rewrite), *init = compiled->decode_init;
  if (!init && graphs->has_carries) init = graph_like(net);
  for (int i = 0; i < graphs->n_caches; i++) {
    const DecodeCache *cache = &graphs->caches[i];
    const Type *type;
    FilledCache filled = find_cache(compiled, cache->path, &type);
    if (cache->is_carry)
      weight_precompute_add(ctx, init, net, cache->value, &filled);
    if (!graphs->has_carries)
      fill_in_prefill(&rewrite, cache->value, &filled, type);
  }
  return (DecodeFinish){prefill, init};
}
