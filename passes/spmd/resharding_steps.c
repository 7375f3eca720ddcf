/*
 * resharding_steps.c -- appends the steps of a resharding chain as nodes.
 *
 * Collectives work on equal shards that lie end to end, so the sharded dim is
 * split into the shards and the elements of one, and the shards come to the
 * front, where a collective joins or divides them:
 *
 *     %1 : f32[B, T:8@seq, C]
 *     ->  split_dim {dim = T, to = [T~, T], sizes = [4, 2]}
 *         : f32[B, T~:4@seq, T:2, C]        a rank has one element of T~
 *         all_gather {dim = T~, axes = [seq]}
 *         : f32[T~:4, B, T:2, C]
 *         transpose, merge_dims {from = [T~, T], dim = T}
 *         : f32[B, T:8, C]
 *
 * Where the dim is the outermost, the transpose is none and all else are views.
 * Shards of unequal size have padding: split_dim counts it, and where the dim
 * is replicated, a pad makes room for it and a slice drops it.
 */
#include "passes/spmd/border.h"
#include "passes/spmd/placement.h"
#include "passes/spmd/resharding.h"
#include "passes/spmd/zero.h"

static Value append_typed(Partition *p, Op op, Value value, const Attrs *attrs,
                          const Type *type) {
  return graph_append_typed(p->rewrite.to, op, &value, 1, attrs, &type, 1,
                            NULL);
}

/* ---- shards as a dim of their own ---- */

Name shards_name(const Partition *p, const Type *type, Name dim) {
  Name name = name_format(p->ctx->module->names, "%s~", dim);
  while (type_find(type, name) >= 0)
    name = name_format(p->ctx->module->names, "%s~", name);
  return name;
}

static void padding_attr(const Partition *p, Attrs *attrs, int64_t pad) {
  if (pad > 0)
    attrs_ints(attrs, ATTR_pad, arena_copy(p->ctx->scratch, &pad, sizeof pad),
               1);
}

Value split_shards(Partition *p, Value value, int d, int64_t n) {
  const Dim *whole = &graph_type(p->rewrite.to, value)->dims[d];
  int64_t each = (whole->size + n - 1) / n;
  if (!whole->split) value = append_padding(p, value, d, n * each);
  const Type *from = graph_type(p->rewrite.to, value);
  Type *type = type_create(p->ctx->module->arena, from->dtype, from->rank + 1);
  type->partial = from->partial;
  type->partial_kind = from->partial_kind;
  for (int i = 0; i < from->rank; i++) type->dims[i + (i > d)] = from->dims[i];
  Dim dim = from->dims[d];
  type->dims[d] = (Dim){shards_name(p, from, dim.name), n, dim.split};
  type->dims[d + 1] = (Dim){dim.name, each, 0};
  Name names[] = {type->dims[d].name, dim.name};
  int64_t sizes[] = {n, each};
  Attrs attrs = {0};
  padding_attr(p, &attrs, n * each - dim.size);
  attrs_name(&attrs, ATTR_dim, dim.name);
  attrs_names(&attrs, ATTR_to, names, 2);
  attrs_ints(&attrs, ATTR_sizes, sizes, 2);
  return append_typed(p, OP_split_dim, value, &attrs, type);
}

Value merge_shards(Partition *p, Value value, int d, int64_t size) {
  const Type *from = graph_type(p->rewrite.to, value);
  Type *type = type_create(p->ctx->module->arena, from->dtype, from->rank - 1);
  type->partial = from->partial;
  type->partial_kind = from->partial_kind;
  for (int i = 0; i < type->rank; i++) type->dims[i] = from->dims[i + (i > d)];
  Dim shards = from->dims[d], dim = from->dims[d + 1];
  int64_t all = shards.size * dim.size;
  type->dims[d] = (Dim){dim.name, shards.split ? size : all, shards.split};
  Name names[] = {shards.name, dim.name};
  Attrs attrs = {0};
  padding_attr(p, &attrs, all - type->dims[d].size);
  attrs_names(&attrs, ATTR_from, names, 2);
  attrs_name(&attrs, ATTR_dim, dim.name);
  value = append_typed(p, OP_merge_dims, value, &attrs, type);
  return shards.split ? value : drop_padding(p, value, d, size);
}

/* A copy of the type with dim `from` moved to place `to`. */
static Type *move_dim(Arena *arena, const Type *type, int from, int to) {
  Type *moved = type_copy(arena, type);
  int at = 0;
  for (int i = 0; i < type->rank; i++) {
    if (at == to) at++;
    if (i != from) moved->dims[at++] = type->dims[i];
  }
  moved->dims[to] = type->dims[from];
  return moved;
}

Value transpose_dim(Partition *p, Value value, int from, int to) {
  if (from == to) return value;
  const Type *type = graph_type(p->rewrite.to, value);
  Type *moved = move_dim(p->ctx->module->arena, type, from, to);
  Name names[MAX_RANK];
  for (int i = 0; i < moved->rank; i++) names[i] = moved->dims[i].name;
  Attrs attrs = {0};
  attrs_names(&attrs, ATTR_order, names, moved->rank);
  return append_typed(p, OP_transpose, value, &attrs, moved);
}

Value shard_dim(Partition *p, Value value, int d, AxisList split,
                AxisList axes) {
  const Type *type = graph_type(p->rewrite.to, value);
  int64_t size = type->dims[d].size, n = axis_list_shards(split, p->mesh);
  if (type->dims[d].split || size % n == 0)
    return change_shards(p, OP_shard, value, d, split, axes);
  value = append_padding(p, value, d, (size + n - 1) / n * n);
  value = change_shards(p, OP_shard, value, d, split, axes);
  return merge_shards(p, split_shards(p, value, d, n), d, size);
}

/* ---- steps ---- */

static Value emit_all_gather(Partition *p, Value value,
                             const ReshardStep *step) {
  int d = step->from_dim;
  Dim whole = graph_type(p->rewrite.to, value)->dims[d];
  AxisList split = whole.split;
  value = split_shards(p, value, d, axis_list_shards(split, p->mesh));
  Type *type =
      move_dim(p->ctx->module->arena, graph_type(p->rewrite.to, value), d, 0);
  type->dims[0].split = axis_list_head(split, axis_list_length(split) -
                                                  axis_list_length(step->axes));
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dim, type->dims[0].name);
  axis_list_attr(p, &attrs, step->axes);
  value = append_typed(p, OP_all_gather, value, &attrs, type);
  return merge_shards(p, transpose_dim(p, value, 0, d), d, whole.size);
}

static Value emit_reduce_scatter(Partition *p, Value value,
                                 const ReshardStep *step) {
  int d = step->to_dim;
  const Type *from = graph_type(p->rewrite.to, value);
  AxisList split = axis_list_join(from->dims[d].split, step->axes);
  ReduceKind kind = from->partial_kind;
  int64_t size = from->dims[d].size;
  value = split_shards(p, value, d, axis_list_shards(split, p->mesh));
  Type *type =
      type_copy(p->ctx->module->arena, graph_type(p->rewrite.to, value));
  type->dims[d].split = split;
  type->partial &= (AxisSet)~step->group;
  if (!type->partial) type->partial_kind = REDUCE_sum;
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dim, type->dims[d].name);
  axis_list_attr(p, &attrs, step->axes);
  attrs_name(&attrs, ATTR_reduce,
             name_intern(p->ctx->module->names, reduce_name(kind)));
  value = transpose_dim(p, value, d, 0);
  value = append_typed(p, OP_reduce_scatter, value, &attrs, type);
  return merge_shards(p, value, d, size);
}

static Value emit_all_to_all(Partition *p, Value value,
                             const ReshardStep *step) {
  const Graph *to = p->rewrite.to;
  const Type *type = graph_type(to, value);
  Dim from = type->dims[step->from_dim], to_dim = type->dims[step->to_dim];
  AxisList to_split = axis_list_join(to_dim.split, step->axes);
  value =
      split_shards(p, value, step->to_dim, axis_list_shards(to_split, p->mesh));
  int d = type_find(graph_type(to, value), from.name);
  value = split_shards(p, value, d, axis_list_shards(from.split, p->mesh));
  int gains = step->to_dim + (step->to_dim > d);
  Type *placed = type_copy(p->ctx->module->arena, graph_type(to, value));
  placed->dims[d].split = axis_list_head(
      from.split, axis_list_length(from.split) - axis_list_length(step->axes));
  placed->dims[gains].split = to_split;
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dim, placed->dims[d].name);
  attrs_names(&attrs, ATTR_to, &placed->dims[gains].name, 1);
  axis_list_attr(p, &attrs, step->axes);
  value = transpose_dim(p, value, gains, 0);
  value = append_typed(p, OP_all_to_all, value, &attrs,
                       move_dim(p->ctx->module->arena, placed, d, 0));
  value = transpose_dim(p, value, 0, d);
  if (d < gains) {
    value = merge_shards(p, value, gains, to_dim.size);
    return merge_shards(p, value, d, from.size);
  }
  value = merge_shards(p, value, d, from.size);
  return merge_shards(p, value, gains, to_dim.size);
}

/* The value where the mask is true, else 0.  The operands of a select are all
 * partial, which a constant cannot be: then the mask is a factor. */
static Value keep_where(Partition *p, Value mask, Value value,
                        const Type *type) {
  Graph *to = p->rewrite.to;
  DType dtype = type->dtype;
  if (!type->partial) {
    Value operands[] = {mask, value, graph_const(to, dtype, 0)};
    return graph_append_typed(to, OP_select, operands, 3, NULL, &type, 1, NULL);
  }
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dtype,
             name_intern(p->ctx->module->names, dtype_name(dtype)));
  Value factor = append_typed(
      p, OP_cast, mask, &attrs,
      type_with_dtype(p->ctx->module->arena, graph_type(to, mask), dtype));
  Value operands[] = {factor, value};
  return graph_append_typed(to, OP_mul, operands, 2, NULL, &type, 1, NULL);
}

/* The first member keeps the value and the others hold zeros: as many copies
 * as the group has members, all but the first zero, added up. */
static Value emit_zero_fill(Partition *p, Value value,
                            const ReshardStep *step) {
  Graph *to = p->rewrite.to;
  Arena *arena = p->ctx->module->arena;
  const Type *from = graph_type(to, value);
  Name copies = name_intern(p->ctx->module->names, "copies");
  copies = shards_name(p, from, copies);
  int64_t n = axis_list_shards(step->axes, p->mesh);
  Type *index = type_create(arena, DT_i32, 1);
  index->dims[0] = (Dim){copies, n, step->axes};
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dim, copies);
  attrs_ints(&attrs, ATTR_sizes, &n, 1);
  const Type *types[1] = {index};
  Value first =
      graph_append_typed(to, OP_iota, NULL, 0, &attrs, types, 1, NULL);
  types[0] = type_with_dtype(arena, index, DT_bool);
  Value pair[] = {first, graph_const(to, DT_i32, 0)};
  first = graph_append_typed(to, OP_eq, pair, 2, NULL, types, 1, NULL);
  Type *all = type_create(arena, from->dtype, from->rank + 1);
  all->partial = from->partial;
  all->partial_kind = from->partial_kind;
  all->dims[0] = index->dims[0];
  for (int i = 0; i < from->rank; i++) all->dims[i + 1] = from->dims[i];
  value = keep_where(p, first, value, all);
  Attrs over = {0};
  attrs_names(&over, ATTR_over, &copies, 1);
  return append_typed(p, OP_sum, value, &over, type_copy(arena, step->type));
}

static Value emit_slice(Partition *p, Value value, const ReshardStep *step) {
  const Type *from = graph_type(p->rewrite.to, value);
  AxisList split = axis_list_join(from->dims[step->to_dim].split, step->axes);
  return shard_dim(p, value, step->to_dim, split, step->axes);
}

static Value emit_all_reduce(Partition *p, Value value,
                             const ReshardStep *step) {
  return reduce_ranks(p, value, step->group);
}

/* ---- chains ---- */

typedef Value EmitStep(Partition *p, Value value, const ReshardStep *step);
static EmitStep *const emitters[N_RESHARD_KINDS] = {
    [RESHARD_slice] = emit_slice,
    [RESHARD_zero_fill] = emit_zero_fill,
    [RESHARD_all_gather] = emit_all_gather,
    [RESHARD_reduce_scatter] = emit_reduce_scatter,
    [RESHARD_all_to_all] = emit_all_to_all,
    [RESHARD_all_reduce] = emit_all_reduce,
};

/* Shards would move between micro-batches, also where those of ranks that come
 * before them in the dim are joined: a micro-batch has only its own part of
 * each rank's shard. */
static bool joins_microbatches(const Partition *p, const ReshardStep *step) {
  return step->kind != RESHARD_slice &&
         (step->from_dim >= 0 || step->to_dim >= 0) &&
         axis_list_set(step->axes) & mesh_sequential(p->mesh);
}

static const char *why_not(const Partition *p, const ReshardStep *step) {
  if (joins_microbatches(p, step))
    return "micro-batches would wait for each other";
  if (!emitters[step->kind]) return "shards would move between ranks";
  if (step->kind == RESHARD_all_to_all && step->axes != step->to_axes)
    return "the axes would change their order";
  return NULL;
}

/* Room for the dims of its shards. */
static bool has_room(const Type *type) {
  return type->rank + 2 <= MAX_RANK;
}

/* The cheapest chain; -1: there is none of steps that can be emitted. */
static int find_chain(Partition *p, const Type *from, const Type *to,
                      ReshardStep *out) {
  const char *reason;
  int n = reshard_steps(p->table, from, to, out, &reason);
  return n > 0 && !has_room(from) ? -1 : n;
}

/* The value in the shards that both placements have: gathers lead there, and
 * from there each rank takes its own. */
static const Type *common_placement(Partition *p, const Type *from,
                                    const Type *to) {
  Type *type = type_copy(p->ctx->module->arena, from);
  for (int d = 0; d < type->rank; d++) {
    Dim *dim = &type->dims[d];
    AxisList a = from->dims[d].split, b = to->dims[d].split;
    int n = 0;
    while (n < axis_list_length(a) && n < axis_list_length(b) &&
           axis_list_at(a, n) == axis_list_at(b, n))
      n++;
    dim->split = axis_list_head(a, n);
    if (!shards_are_aligned(p, dim, &from->dims[d]) ||
        !shards_are_aligned(p, dim, &to->dims[d]))
      dim->split = 0;
  }
  return type;
}

int reshard_chain(Partition *p, const Type *from, const Type *to,
                  ReshardStep *out) {
  int n = find_chain(p, from, to, out);
  if (n >= 0) return n;
  ReshardStep rest[MAX_RESHARD_STEPS];
  const Type *common = common_placement(p, from, to);
  n = find_chain(p, from, common, out);
  int n_rest = n < 0 ? -1 : find_chain(p, common, to, rest);
  if (n_rest < 0 || n + n_rest > MAX_RESHARD_STEPS) return -1;
  for (int i = 0; i < n_rest; i++) out[n + i] = rest[i];
  return n + n_rest;
}

/* The first step of the cheapest of all chains that cannot be emitted. */
const char *reshard_reason(Partition *p, const Type *from, const Type *to) {
  ReshardStep steps[MAX_RESHARD_STEPS];
  Resharding *all = reshard_create(p->ctx->scratch, p->mesh);
  const char *reason, *why = NULL;
  int n = reshard_steps(all, from, to, steps, &reason);
  for (int i = 0; i < n && !why; i++) why = why_not(p, &steps[i]);
  if (n < 0) return reason;
  return why ? why : "it has too many dimensions";
}

static Value emit_step(Partition *p, Value value, const ReshardStep *step) {
  DType dtype = graph_type(p->rewrite.to, value)->dtype;
  if (step->kind == RESHARD_reduce_scatter) value = cast_summand(p, value);
  value = emitters[step->kind](p, value, step);
  return cast_placed(p, value, dtype);
}

Value reshard_emit(Partition *p, Value value, const ReshardStep *steps, int n) {
  for (int i = 0; i < n; i++) {
    ReshardStep parts[2];
    const Type *type = graph_type(p->rewrite.to, value);
    int n_parts = divide_at_border(p, type, &steps[i], parts);
    for (int k = 0; k < n_parts; k++) value = emit_step(p, value, &parts[k]);
  }
  return value;
}

/* ---- sums ---- */

/* Padding may be this part of a shard. */
#define MOST_PADDING 16

/* The dim along which the gradient is scattered inside, or -1. */
static int dim_inside(const Partition *p, const Type *type, AxisList inside) {
  int64_t each, all = type_local_elements(type, p->mesh);
  int64_t n = axis_list_shards(inside, p->mesh);
  int d = dim_to_spread(p, type, inside, false, &each);
  return d >= 0 && each * n - all <= all / MOST_PADDING ? d : -1;
}

Value reduce_ranks(Partition *p, Value value, AxisSet axes) {
  const Node *node = graph_node(p->rewrite.to, value);
  const Type *type = node->types[value.result];
  AxisSet across = type->partial & axes & border_axes(p);
  AxisSet inside = type->partial & axes & (AxisSet)~across;
  AxisList list = axis_list_of_set(inside);
  int d = across && inside && node->phase == PHASE_weight_gradient &&
                  type->rank + 1 < MAX_RANK
              ? dim_inside(p, type, list)
              : -1;
  if (d < 0) return reduce_over(p, value, axes, OP_all_reduce);
  ReshardStep steps[] = {
      {RESHARD_reduce_scatter, inside, list, 0, -1, d, 0, NULL},
      {RESHARD_all_reduce, across, axis_list_of_set(across), 0, -1, -1, 0,
       NULL},
      {RESHARD_all_gather, inside, list, 0, d, -1, 0, NULL}};
  return reshard_emit(p, value, steps, ARRAY_LENGTH(steps));
}
