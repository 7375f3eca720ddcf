/*
 * incremental_decoding.c -- makes a net over T positions run one at a time.
 *
 *     %0 = input : i32[B, T] data "tok"          %0 = input : i32[B, T:1]
 *     %3 = ... : f32[B, T, H, D]                 %3 = ... : f32[B, T:1, H, D]
 *     %4 = rename %3 : f32[B, S, H, D]     =>    %4 = put cache, %3, t
 *     %5 = dot %2, %4 {over = [D]}               %5 = dot %2, %4 {over = [D]}
 *                                                output cache %4
 *
 * What the net computes for position t may depend on tokens up to t only.  That
 * is found by following the dims, not by knowing models:
 *
 * - A value that depends on tokens has T; its row t is computed from row t of
 *   its operands wherever the sharding rule of the operator lets a split T
 *   through untouched: cut into single rows no rank needs another's.
 * - Renaming T to S makes all positions visible to each.  There the rows are
 *   kept in a cache, which `sample` fills for all positions of its window and
 *   `decode` for the one that it computes.
 * - A value with T and S may be used up along S (softmax, a product over S)
 * only if what lies after t has no part in it: a select by T >= S (or T > S, or
 *   such a condition and another) has put -inf there, softmax makes that zero,
 *   and zero times the rest of a cache is zero.
 * - What depends on no token but has T (positions, learned or rotary) gives its
 *   row t: of operators that let T through the row of the operands, else the
 *   row of the whole.
 *
 * - A `scan` over T goes position by position already: it is run for one, and
 *   its carries are kept from token to token.  `begin` puts what they begin
 *   with there.
 *
 * Anything else mixes positions, and the first such value is named.
 *
 * requires: a forward graph as the front end builds it     cost: O(nodes)
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

typedef struct Known {
  bool is_live; /* depends on the tokens */
  bool has_time;
  Name key; /* the S, or NULL */
  Future future;
} Known;

typedef struct Cache {
  DecodeCache slot;
  Value from; /* what is renamed, in the old graph; of a carry VALUE_NONE */
  Value to;   /* what replaces the slot, in the new graph */
} Cache;

typedef struct Incremental {
  PassContext *ctx;
  const Graph *from;
  Graph *to;
  Graph *probe; /* its mesh has one axis as long as T */
  Name time;
  int64_t length;
  Known *known;         /* by node */
  Value **whole, **row; /* by node and result, in the new graph */
  Value position;       /* scalar */
  VEC(Cache) caches;
  int blame;       /* node that mixes positions; -1: none */
  const char *why; /* what it does */
} Incremental;

/* ---- types ---- */

static bool has_dim(const Type *type, Name dim) {
  return dim && type_find(type, dim) >= 0;
}

static const Type *split_along(const Incremental *inc, const Type *type,
                               Name dim) {
  Type *copy = type_create(inc->ctx->scratch, type->dtype, type->rank);
  for (int d = 0; d < type->rank; d++) {
    copy->dims[d] = type->dims[d];
    copy->dims[d].split =
        type->dims[d].name == dim ? axis_list_append(0, 0) : 0;
  }
  return copy;
}

/* The operator treats every position along `dim` by itself. */
static bool passes_along(const Incremental *inc, int id, Name dim) {
  const Node *node = inc->from->nodes.data[id];
  Arena *arena = inc->ctx->scratch;
  const Type **inputs = ARENA_ARRAY(arena, const Type *, node->n_inputs);
  const Type **wanted = ARENA_ARRAY(arena, const Type *, node->n_inputs);
  const Type **results = ARENA_ARRAY(arena, const Type *, node->n_results);
  for (int i = 0; i < node->n_inputs; i++)
    inputs[i] = split_along(inc, graph_type(inc->from, node->inputs[i]), dim);
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

/* ---- what is known ---- */

static bool mixes(Incremental *inc, int id, const char *why) {
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
static bool is_causal(const Incremental *inc, const Node *node, Name key) {
  bool time_first = node->op == OP_ge || node->op == OP_gt;
  if (!time_first && node->op != OP_le && node->op != OP_lt) return false;
  return is_iota(inc, node->inputs[!time_first], inc->time) &&
         is_iota(inc, node->inputs[time_first], key);
}

/* The condition is false wherever S > T: one operand of its `and`s is.  Users
 * follow their operands, so one pass from the last to the first visits a
 * shared operand once. */
static bool looks_back(const Incremental *inc, Value condition, Name key) {
  bool *is_reached = ARENA_ARRAY(inc->ctx->scratch, bool, condition.node + 1);
  int n_open = 1;
  is_reached[condition.node] = true;
  for (int id = condition.node; n_open > 0; id--) {
    if (!is_reached[id]) continue;
    n_open--;
    const Node *node = inc->from->nodes.data[id];
    if (is_causal(inc, node, key)) return true;
    for (int i = 0; node->op == OP_and && i < 2; i++) {
      bool *reached = &is_reached[node->inputs[i].node];
      n_open += !*reached;
      *reached = true;
    }
  }
  return false;
}

static Future future_of(const Incremental *inc, Value value, Name key) {
  const Known *known = &inc->known[value.node];
  double number;
  if (known->is_live) return known->key == key ? known->future : FUTURE_open;
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
                              Name key, Future a, Future b);

static Future future_same(const Incremental *inc, const Node *node, Name key,
                          Future a, Future b) {
  (void)inc, (void)node, (void)key, (void)b;
  return a;
}

static Future future_select(const Incremental *inc, const Node *node, Name key,
                            Future a, Future b) {
  (void)a;
  Future c = future_of(inc, node->inputs[2], key);
  if (c == FUTURE_open) return FUTURE_open;
  return b == c || looks_back(inc, node->inputs[0], key) ? c : FUTURE_open;
}

static Future future_mul(const Incremental *inc, const Node *node, Name key,
                         Future a, Future b) {
  (void)key;
  if (a == FUTURE_zero || b == FUTURE_zero) return FUTURE_zero;
  if (a == FUTURE_hidden && is_positive(inc, node->inputs[1])) return a;
  return b == FUTURE_hidden && is_positive(inc, node->inputs[0]) ? b
                                                                 : FUTURE_open;
}

static Future future_div(const Incremental *inc, const Node *node, Name key,
                         Future a, Future b) {
  (void)key, (void)b;
  return a == FUTURE_zero ||
                 (a == FUTURE_hidden && is_positive(inc, node->inputs[1]))
             ? a
             : FUTURE_open;
}

/* Of finite numbers and -inf: -inf wins. */
static Future future_add(const Incremental *inc, const Node *node, Name key,
                         Future a, Future b) {
  (void)inc, (void)node, (void)key;
  return a == FUTURE_hidden || b == FUTURE_hidden ? FUTURE_hidden : FUTURE_open;
}

static Future future_sub(const Incremental *inc, const Node *node, Name key,
                         Future a, Future b) {
  (void)inc, (void)node, (void)key, (void)b;
  return a == FUTURE_hidden ? a : FUTURE_open;
}

static Future future_dot(const Incremental *inc, const Node *node, Name key,
                         Future a, Future b) {
  (void)inc, (void)node, (void)key;
  return a == FUTURE_zero || b == FUTURE_zero ? FUTURE_zero : FUTURE_open;
}

/* Of all other operators the future is open. */
static FutureFunction *const future_functions[N_OPS] = {
    [OP_cast] = future_same,      [OP_stop_gradient] = future_same,
    [OP_copy] = future_same,      [OP_rename] = future_same,
    [OP_transpose] = future_same, [OP_select] = future_select,
    [OP_mul] = future_mul,        [OP_div] = future_div,
    [OP_add] = future_add,        [OP_sub] = future_sub,
    [OP_dot] = future_dot,
};

static Future future_kept(const Incremental *inc, const Node *node, Name key) {
  FutureFunction *function = future_functions[node->op];
  if (!function) return FUTURE_open;
  Future a = future_of(inc, node->inputs[0], key);
  Future b =
      node->n_inputs > 1 ? future_of(inc, node->inputs[1], key) : FUTURE_open;
  return function(inc, node, key, a, b);
}

static bool is_over(const Node *node, Name dim) {
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

/* The operator uses S up, or mixes its positions: that is allowed only where
 * the future has no part. */
static bool use_up(Incremental *inc, int id, Known *out) {
  const Node *node = inc->from->nodes.data[id];
  Future a = future_of(inc, node->inputs[0], out->key);
  bool is_one = is_over(node, out->key) && node->n_inputs == 1;
  if (node->op == OP_softmax && is_one && a == FUTURE_hidden) {
    out->future = FUTURE_zero;
    return true;
  }
  bool is_gone =
      (is_one && a != FUTURE_open && a == neutral_future[node->op]) ||
      (node->op == OP_dot && is_over(node, out->key) &&
       (a == FUTURE_zero ||
        future_of(inc, node->inputs[1], out->key) == FUTURE_zero));
  out->key = NULL;
  out->future = FUTURE_open;
  return is_gone || mixes(inc, id, "looks at positions that come later");
}

static bool is_cache(const Incremental *inc, int id) {
  const Node *node = inc->from->nodes.data[id];
  return node->op == OP_rename && !has_dim(node->types[0], inc->time) &&
         has_dim(graph_type(inc->from, node->inputs[0]), inc->time);
}

/* Of a scan over T: a carry that it hands on, the value at the last position.
 */
static bool is_last_carry(const Incremental *inc, Value value) {
  const Node *node = node_of(inc, value);
  return node->op == OP_scan && value.result < scan_carries(node);
}

/* The dim that T is renamed to. */
static Name renamed_time(const Incremental *inc, const Node *node) {
  int n;
  const Name *from = node_names(node, ATTR_from, &n);
  const Name *to = node_names(node, ATTR_to, &n);
  for (int i = 0; i < n; i++)
    if (from[i] == inc->time) return to[i];
  UNREACHABLE();
}

/* What the inputs know together; false: too much. */
static bool join_known(Incremental *inc, int id, Known *out) {
  const Node *node = inc->from->nodes.data[id];
  for (int i = 0; i < node->n_inputs; i++) {
    const Known *in = &inc->known[node->inputs[i].node];
    if (!in->is_live) continue;
    out->is_live = true;
    if (is_last_carry(inc, node->inputs[i]))
      return mixes(inc, id, "waits for the last position");
    if (in->key && out->key && in->key != out->key)
      return mixes(inc, id, "sees all positions under two names");
    if (in->key) out->key = in->key;
  }
  return true;
}

/* Slices have T; whatever else a position sees must be the same for all texts.
 */
static bool analyse_scan(Incremental *inc, int id, Known *out) {
  const Node *node = inc->from->nodes.data[id];
  if (node_name(node, ATTR_dim) != inc->time)
    return mixes(inc, id, "runs over another dimension, with all positions");
  if (scan_is_reversed(node)) return mixes(inc, id, "runs from the last one");
  if (out->key) return mixes(inc, id, "sees all positions at each");
  for (int i = 0; i < node->n_inputs; i++)
    if (inc->known[node->inputs[i].node].is_live &&
        scan_input_role(node, i) != ROLE_slice)
      return mixes(inc, id, "sees other positions at each");
  out->has_time = true;
  return true;
}

static bool analyse_node(Incremental *inc, int id) {
  const Node *node = inc->from->nodes.data[id];
  Known *out = &inc->known[id];
  if (!join_known(inc, id, out)) return false;
  if (!out->is_live) return true;
  if (op_has(node->op, OP_FLAG_causal)) return analyse_scan(inc, id, out);
  for (int i = 0; i < node->n_inputs; i++)
    out->has_time |= has_dim(graph_type(inc->from, node->inputs[i]), inc->time);
  if (is_cache(inc, id)) {
    if (out->key) return mixes(inc, id, "renames positions twice");
    *out = (Known){.is_live = true, .key = renamed_time(inc, node)};
    return true;
  }
  if (out->has_time && !passes_along(inc, id, inc->time))
    return mixes(inc, id, "mixes positions");
  if (out->key && passes_along(inc, id, out->key))
    out->future = future_kept(inc, node, out->key);
  else if (out->key)
    return use_up(inc, id, out);
  return true;
}

static bool analyse(Incremental *inc) {
  for (int id = 0; id < inc->from->nodes.n; id++) {
    const Node *node = inc->from->nodes.data[id];
    if (node->op == OP_input) {
      const GraphInput *input =
          &inc->from->inputs.data[node_int(node, ATTR_index, 0)];
      bool is_live = input->role == ROLE_data;
      inc->known[id] = (Known){.is_live = is_live, .has_time = is_live};
    } else if (!analyse_node(inc, id)) {
      return false;
    }
  }
  for (int i = 0; i < inc->from->outputs.n; i++) {
    const GraphOutput *output = &inc->from->outputs.data[i];
    const Known *known = &inc->known[output->value.node];
    if (output->role != ROLE_result)
      return mixes(inc, output->value.node, "is kept as a state");
    if (!known->is_live || !known->has_time || known->key ||
        is_last_carry(inc, output->value))
      return mixes(inc, output->value.node, "is the result, without positions");
  }
  return inc->caches.n == 0; /* nothing was built yet */
}

/* ---- building ---- */

static Name name_of(Incremental *inc, const char *text) {
  return name_intern(inc->ctx->module->names, text);
}

static void set_place(Incremental *inc, int id) {
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
    Name path = name_of(inc, SAMPLE_POSITION);
    inc->position = graph_input(inc->to, ROLE_data, path,
                                type_scalar(inc->ctx->module->arena, DT_i32));
  }
  return inc->position;
}

/* The position, with T of size 1. */
static Value position_row(Incremental *inc) {
  Attrs attrs = {0};
  int64_t one = 1;
  attrs_names(&attrs, ATTR_to, &inc->time, 1);
  attrs_ints(&attrs, ATTR_sizes, &one, 1);
  Value at = position(inc);
  return graph_append(inc->to, OP_broadcast, &at, 1, &attrs);
}

/* Row t of a value that does not depend on tokens. */
static Value gather_row(Incremental *inc, Value whole) {
  Name rows = name_of(inc, "sample.rows"); /* no user's name */
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dim, rows);
  Value inputs[2] = {rename_dim(inc, whole, inc->time, rows),
                     position_row(inc)};
  return graph_append(inc->to, OP_gather, inputs, 2, &attrs);
}

static Value row_of(Incremental *inc, Value value);

/* The node with its operands' rows; false if its types come out otherwise. */
static void append_row(Incremental *inc, int id) {
  const Node *node = inc->from->nodes.data[id];
  Value *inputs = ARENA_ARRAY(inc->ctx->scratch, Value, node->n_inputs);
  for (int i = 0; i < node->n_inputs; i++)
    inputs[i] = row_of(inc, node->inputs[i]);
  set_place(inc, id);
  Value first = graph_copy_node(inc->to, inc->from, id, inputs, true);
  for (int r = 0; r < node->n_results; r++)
    inc->row[id][r] = (Value){first.node, r};
}

/* Of a value without tokens; wholes of all of them are there already. */
static Value row_of(Incremental *inc, Value value) {
  Value *row = &inc->row[value.node][value.result];
  if (value_is(*row)) return *row;
  ASSERT(!inc->known[value.node].is_live);
  const Node *node = node_of(inc, value);
  Value whole = inc->whole[value.node][value.result];
  if (!has_dim(graph_type(inc->from, value), inc->time)) return *row = whole;
  if (node->op == OP_iota && node_name(node, ATTR_dim) == inc->time)
    return *row = graph_cast(inc->to, position_row(inc), node->types[0]->dtype);
  if (node->n_inputs > 0 && node->op != OP_rename &&
      passes_along(inc, value.node, inc->time)) {
    append_row(inc, value.node);
    return *row;
  }
  return *row = gather_row(inc, whole);
}

/* Without the T of size 1: merged with a neighbour, which moves nothing. */
static Value drop_time(Incremental *inc, Value row) {
  const Type *type = graph_type(inc->to, row);
  int at = type_find(type, inc->time);
  if (type->rank == 1) return graph_reduce(inc->to, OP_sum, row, &inc->time, 1);
  Name other = type->dims[at + 1 < type->rank ? at + 1 : at - 1].name;
  Name merged = name_of(inc, "sample.merged");
  Name from[2] = {inc->time, other};
  if (at + 1 == type->rank) from[0] = other, from[1] = inc->time;
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
    if (from[i] == inc->time) continue;
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
static Value write_cache(Incremental *inc, Name key, Value row, Value cache) {
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dim, key);
  Value inputs[3] = {cache, row, position(inc)};
  return graph_append(inc->to, OP_update_slice, inputs, 3, &attrs);
}

/* Several values may have one path: a list is renamed at once. */
static Name cache_path(Incremental *inc, const char *path) {
  Names *names = inc->ctx->module->names;
  Name name = name_format(names, "cache/%s", path);
  for (int n = 1, i = 0; i < inc->caches.n; i++) {
    if (inc->caches.data[i].slot.path != name) continue;
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
        !type_equal(type, graph_type(inc->from, other->slot.value)))
      continue;
    inc->row[id][0] = other->to;
    return;
  }
  set_place(inc, id);
  Cache cache = {.slot = {cache_path(inc, node->path), {id, 0}, false},
                 .from = node->inputs[0]};
  Value slot = graph_input(inc->to, ROLE_decode_cache, cache.slot.path, type);
  Value row = drop_time(inc, row_of(inc, node->inputs[0]));
  set_place(inc, id);
  cache.to = write_cache(inc, renamed_time(inc, node),
                         rename_others(inc, node, row), slot);
  inc->row[id][0] = cache.to;
  vec_push(inc->ctx->scratch, &inc->caches, cache);
}

/* Carries are slots, slices have one position. */
static void append_scan(Incremental *inc, int id) {
  const Node *node = inc->from->nodes.data[id];
  Arena *arena = inc->ctx->module->arena;
  Value *inputs = ARENA_ARRAY(inc->ctx->scratch, Value, node->n_inputs);
  int n_carries = scan_carries(node), first = inc->caches.n;
  for (int i = 0; i < node->n_inputs; i++) {
    const GraphInput *inner = &node->body->inputs.data[i];
    const Type *type = graph_type(node->body, inner->value);
    set_place(inc, id);
    if (inner->role == ROLE_carry) {
      const char *path = arena_printf(arena, "%s.%s", node->path, inner->path);
      Cache cache = {.slot = {cache_path(inc, path), node->inputs[i], true},
                     .from = VALUE_NONE};
      inputs[i] =
          graph_input(inc->to, ROLE_decode_cache, cache.slot.path, type);
      vec_push(inc->ctx->scratch, &inc->caches, cache);
    } else if (inner->role == ROLE_slice) {
      inputs[i] =
          graph_transpose_to(inc->to, row_of(inc, node->inputs[i]),
                             scan_stacked_type(arena, type, inc->time, 1));
    } else {
      inputs[i] = row_of(inc, node->inputs[i]);
    }
  }
  set_place(inc, id);
  Value last = scan_append(inc->to, (ScanForm){.dim = inc->time, .steps = 1},
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
  set_place(inc, id);
  if (!inc->known[id].is_live) {
    inc->whole[id][0] = rewrite_input(inc->to, like, node->types[0]);
    return;
  }
  Type *type = type_create(inc->ctx->module->arena, node->types[0]->dtype,
                           node->types[0]->rank);
  for (int d = 0; d < type->rank; d++) {
    type->dims[d] = node->types[0]->dims[d];
    if (type->dims[d].name == inc->time) type->dims[d].size = 1;
  }
  inc->row[id][0] = rewrite_input(inc->to, like, type);
}

static void copy_whole(Incremental *inc, int id) {
  const Node *node = inc->from->nodes.data[id];
  Value *inputs = ARENA_ARRAY(inc->ctx->scratch, Value, node->n_inputs);
  for (int i = 0; i < node->n_inputs; i++)
    inputs[i] = inc->whole[node->inputs[i].node][node->inputs[i].result];
  set_place(inc, id);
  Value first = graph_copy_node(inc->to, inc->from, id, inputs, false);
  for (int r = 0; r < node->n_results; r++)
    inc->whole[id][r] = (Value){first.node, r};
}

static void build(Incremental *inc) {
  for (int id = 0; id < inc->from->nodes.n; id++) {
    if (inc->from->nodes.data[id]->op == OP_input)
      copy_input(inc, id);
    else if (!inc->known[id].is_live)
      copy_whole(inc, id);
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
    graph_output(inc->to, ROLE_decode_cache, inc->caches.data[i].slot.path,
                 inc->caches.data[i].to);
}

/* ---- public ---- */

static bool find_time(Incremental *inc) {
  const GraphInput *tokens = NULL;
  for (int i = 0; i < inc->from->inputs.n; i++) {
    const GraphInput *input = &inc->from->inputs.data[i];
    if (input->role != ROLE_data) continue;
    if (tokens) return false;
    tokens = input;
  }
  const Type *type = tokens ? graph_type(inc->from, tokens->value) : NULL;
  if (!type || type->rank != 2) return false;
  inc->time = type->dims[1].name;
  inc->length = type->dims[1].size;
  return inc->length > 1;
}

static void start(Incremental *inc, PassContext *ctx, const Graph *net) {
  int n = net->nodes.n;
  inc->to = graph_like(net);
  inc->probe = graph_like(net);
  inc->probe->mesh = (Mesh){
      .n_axes = 1, .axes = {{.name = inc->time, .size = (int32_t)inc->length}}};
  inc->known = ARENA_ARRAY(ctx->scratch, Known, n);
  inc->whole = ARENA_ARRAY(ctx->scratch, Value *, n);
  inc->row = ARENA_ARRAY(ctx->scratch, Value *, n);
  for (int id = 0; id < n; id++) {
    int results = net->nodes.data[id]->n_results;
    inc->whole[id] = ARENA_ARRAY(ctx->scratch, Value, results);
    inc->row[id] = ARENA_ARRAY(ctx->scratch, Value, results);
    for (int r = 0; r < results; r++)
      inc->whole[id][r] = inc->row[id][r] = VALUE_NONE;
  }
}

static void finish(Incremental *inc, DecodeGraphs *out) {
  PassContext *ctx = inc->ctx;
  *out = (DecodeGraphs){.step = inc->to, .n_caches = inc->caches.n};
  out->caches = ARENA_ARRAY(ctx->module->arena, DecodeCache, out->n_caches);
  for (int i = 0; i < out->n_caches; i++) {
    const DecodeCache *slot = &inc->caches.data[i].slot;
    out->caches[i] = *slot;
    out->has_carries |= slot->is_carry;
  }
}

bool decode_split(PassContext *ctx, const Graph *net, DecodeGraphs *out,
                  Text *out_why) {
  Incremental inc = {
      .ctx = ctx, .from = net, .blame = -1, .position = VALUE_NONE};
  if (!find_time(&inc)) {
    text_add(out_why, "its input is not i32[B, T]");
    return false;
  }
  start(&inc, ctx, net);
  if (!analyse(&inc)) {
    const Node *node = net->nodes.data[inc.blame];
    text_printf(out_why, "'%s' %s along '%s'",
                *node->path ? node->path : op_info(node->op)->name, inc.why,
                inc.time);
    return false;
  }
  build(&inc);
  finish(&inc, out);
  return true;
}

/* As the compiled step keeps it. */
static const Type *type_kept(const Graph *compiled, const DecodeCache *cache) {
  const GraphInput *slot =
      graph_find_input(compiled, ROLE_decode_cache, cache->path);
  ASSERT(slot);
  return graph_type(compiled, slot->value);
}

DecodeFinish decode_finish(PassContext *ctx, const Graph *net,
                           const DecodeGraphs *graphs, const PassResult *step) {
  Rewrite rewrite = rewrite_begin(ctx, net);
  for (int id = 0; id < net->nodes.n; id++) rewrite_copy(&rewrite, id);
  Graph *prefill = rewrite_end(&rewrite), *init = step->decode_init;
  if (!init && graphs->has_carries) init = graph_like(net);
  for (int i = 0; i < graphs->n_caches; i++) {
    const DecodeCache *cache = &graphs->caches[i];
    const Type *type = type_kept(step->graph, cache);
    if (cache->is_carry)
      weight_precompute_add(ctx, init, net, cache->value, cache->path,
                            type->dtype);
    if (graphs->has_carries) continue;
    rewrite_at(&rewrite, cache->value.node);
    Value value = rewrite_get(&rewrite, cache->value);
    graph_input(prefill, ROLE_decode_cache, cache->path, type);
    graph_output(prefill, ROLE_decode_cache, cache->path,
                 graph_cast(prefill, value, type->dtype));
  }
  return (DecodeFinish){prefill, init};
}
