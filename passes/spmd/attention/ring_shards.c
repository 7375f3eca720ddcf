/*
 * ring_shards.c -- cuts sequences into shards and halves of shards for ring
 * attention, and chooses what each shard sees in a turn.
 */
#include "passes/spmd/attention/ring.h"

/* ---- shards ---- */

Name ring_inner_name(const Ring *r, Name dim) {
  return name_format(r->to->module->names, "%s^", dim);
}

/* Where padding becomes elements, `axes` says that the dim must be sharded. */
Value ring_split(const Ring *r, Value value, Name dim) {
  Name names[] = {r->shards, ring_inner_name(r, dim)};
  int64_t size = type_size(graph_type(r->to, value), dim);
  int64_t sizes[] = {r->n, (size + r->n - 1) / r->n};
  int64_t pad = r->n * sizes[1] - size;
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dim, dim);
  attrs_names(&attrs, ATTR_to, names, 2);
  attrs_ints(&attrs, ATTR_sizes, sizes, 2);
  if (pad > 0) {
    attrs_ints(&attrs, ATTR_pad, &pad, 1);
    attrs_names(&attrs, ATTR_axes, r->line->axes, r->line->n_axes);
  }
  return graph_append(r->to, OP_split_dim, &value, 1, &attrs);
}

Value ring_merge(const Ring *r, Value value, Name dim, const Type *like) {
  Name names[] = {r->shards, ring_inner_name(r, dim)};
  int64_t each = type_size(graph_type(r->to, value), names[1]);
  int64_t pad = r->n * each - type_size(like, dim);
  Attrs attrs = {0};
  attrs_names(&attrs, ATTR_from, names, 2);
  attrs_name(&attrs, ATTR_dim, dim);
  if (pad > 0) attrs_ints(&attrs, ATTR_pad, &pad, 1);
  value = graph_cast(r->to, value, like->dtype);
  value = graph_append(r->to, OP_merge_dims, &value, 1, &attrs);
  return graph_transpose_to(r->to, value, like);
}

void ring_rotate(const Ring *r, Value *values, int n) {
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

/* i32[dim]: the numbers of its elements. */
static Value number_elements(const Ring *r, Name dim, int64_t size) {
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dim, dim);
  attrs_ints(&attrs, ATTR_sizes, &size, 1);
  return graph_append(r->to, OP_iota, NULL, 0, &attrs);
}

/* bool[dim]: from this element on.  Integers might be taken for sizes
 * (verify/resize.h), floats are not. */
static Value is_from(const Ring *r, Name dim, int64_t size, int64_t first) {
  Value index = graph_cast(r->to, number_elements(r, dim, size), DT_f32);
  return graph_op2(r->to, OP_ge, index,
                   graph_const(r->to, DT_f32, (double)first));
}

Value ring_where_seen(const Ring *r, int64_t turn, Value value, double other) {
  if (!r->is_causal || turn == 0) return value;
  Value seen = is_from(r, r->shards, r->n, turn);
  DType dtype = graph_type(r->to, value)->dtype;
  Value masked = graph_op3(r->to, OP_select, seen, value,
                           graph_const(r->to, dtype, other));
  return graph_transpose_to(r->to, masked, graph_type(r->to, value));
}

Value ring_pick(const Ring *r, Value condition, Value a, Value b, Value like) {
  Value value = graph_op3(r->to, OP_select, condition, a, b);
  return graph_transpose_to(r->to, value, graph_type(r->to, like));
}

/* ---- keys of shards with padding ---- */

static Value integer_const(const Ring *r, int64_t value) {
  return graph_const(r->to, DT_i32, (double)value);
}

Value ring_count_keys(const Ring *r, int64_t turn) {
  Graph *to = r->to;
  int64_t each = (r->n_keys + r->n - 1) / r->n;
  Value shard = number_elements(r, r->shards, r->n);
  for (int64_t i = 0; i < turn; i++)
    shard = graph_op2(to, OP_sub, shard, integer_const(r, 1));
  if (turn > 0)
    shard = graph_op3(to, OP_select, is_from(r, r->shards, r->n, turn), shard,
                      graph_op2(to, OP_add, shard, integer_const(r, r->n)));
  Value first = graph_op2(to, OP_mul, shard, integer_const(r, each));
  Value left = graph_op2(to, OP_sub, integer_const(r, r->n_keys), first);
  left = graph_op2(to, OP_maximum, left, integer_const(r, 0));
  return graph_op2(to, OP_minimum, left, integer_const(r, each));
}

/* ---- halves of shards in zigzag order ---- */

Value ring_split_halves(const Ring *r, Value value, Name dim) {
  Name block = ring_inner_name(r, dim);
  Name names[] = {r->halves, ring_inner_name(r, block)};
  int64_t sizes[] = {2, type_size(graph_type(r->to, value), block) / 2};
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dim, block);
  attrs_names(&attrs, ATTR_to, names, 2);
  attrs_ints(&attrs, ATTR_sizes, sizes, 2);
  return graph_append(r->to, OP_split_dim, &value, 1, &attrs);
}

Value ring_join_halves(const Ring *r, Value value, Name dim) {
  Name block = ring_inner_name(r, dim);
  Name names[] = {r->halves, ring_inner_name(r, block)};
  Attrs attrs = {0};
  attrs_names(&attrs, ATTR_from, names, 2);
  attrs_name(&attrs, ATTR_dim, block);
  return graph_append(r->to, OP_merge_dims, &value, 1, &attrs);
}

Value ring_half(const Ring *r, Value value, int index) {
  Value operands[] = {value, graph_const(r->to, DT_i32, index)};
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dim, r->halves);
  return graph_append(r->to, OP_gather, operands, 2, &attrs);
}

Value ring_exchange_halves(const Ring *r, Value value) {
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dim, r->halves);
  return graph_append(r->to, OP_reverse, &value, 1, &attrs);
}

RingHalfTurn ring_half_turn(const Ring *r, int64_t turn) {
  return (RingHalfTurn){is_from(r, r->shards, r->n, turn),
                        is_from(r, r->halves, 2, 1)};
}

Value ring_half_queries(const Ring *r, const RingHalfTurn *turn, Value value) {
  Value halves = ring_split_halves(r, value, r->query);
  return ring_pick(r, turn->is_before, halves, ring_half(r, halves, 1), halves);
}

Value ring_half_keys(const Ring *r, const RingHalfTurn *turn, Value value) {
  Value halves = ring_split_halves(r, value, r->key);
  return ring_pick(r, turn->is_before, ring_half(r, halves, 0),
                   ring_exchange_halves(r, halves), halves);
}
