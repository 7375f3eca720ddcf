/*
 * strategies.c -- lists how an operator can be shared out over the axes of a
 * mesh.
 *
 *     dot x [B, C], w [C, F] {over = [C]} on mesh(t = 2):
 *       nothing         x [B, C],      w [C, F]      -> [B, F]
 *       B over t        x [B@t, C],    w [C, F]      -> [B@t, F]
 *       C over t        x [B, C@t],    w [C@t, F]    -> [B, F; sum@t]
 *       F over t        x [B, C],      w [C, F@t]    -> [B, F@t]
 *       x partial       x [B, C; sum@t], w [C, F]    -> [B, F; sum@t]
 *       w partial       x [B, C], w [C, F; sum@t]    -> [B, F; sum@t]
 *
 * Dims and what becomes of them come from shardrule.c.
 */
#include "ir/place/strategies.h"

typedef struct Assignment {
  const Mesh *mesh;
  const ShardRule *rule;
  AxisList splits[MAX_SHARD_DIMS];
  AxisSet partial;
  int partial_input;
} Assignment;

/* ---- placements of an assignment ---- */

static const Type *strategy_input(const Assignment *a, int i, Arena *arena) {
  Type *type = type_copy_logical(arena, a->rule->call->inputs[i]);
  for (int j = 0; j < type->rank; j++)
    type->dims[j].split =
        a->splits[shard_rule_input(a->rule, type->dims[j].name)];
  if (a->partial_input < 0 || a->partial_input == i) type->partial = a->partial;
  return type;
}

/* Is a result without this dim reduced over the axes of the dim? */
static bool leaves_partial(const ShardDim *dim, const Type *result) {
  bool has = dim->result_name && type_find(result, dim->result_name) >= 0;
  return !has && dim->treatment != SHARD_pass;
}

static const Type *strategy_result(const Assignment *a, int r, Arena *arena) {
  const ShardRule *rule = a->rule;
  Type *type = type_copy_logical(arena, rule->call->results[r]);
  for (int j = 0; j < type->rank; j++)
    type->dims[j].split =
        a->splits[shard_rule_result(rule, type->dims[j].name)];
  type->partial = a->partial;
  for (int d = 0; d < rule->n; d++) {
    const ShardDim *dim = &rule->dims[d];
    if (!a->splits[d] || !leaves_partial(dim, type)) continue;
    type->partial |= axis_list_set(a->splits[d]);
    if (dim->treatment == SHARD_max) type->partial_kind = REDUCE_max;
    if (dim->treatment == SHARD_min) type->partial_kind = REDUCE_min;
  }
  return type;
}

static Strategy strategy_of(const Assignment *a, Arena *arena) {
  const ShardCall *call = a->rule->call;
  const Type **inputs = ARENA_ARRAY(arena, const Type *, call->n_inputs);
  const Type **results = ARENA_ARRAY(arena, const Type *, call->n_results);
  DimAxes *dims = ARENA_ARRAY(arena, DimAxes, MAX_AXES);
  Strategy s = {.inputs = inputs,
                .results = results,
                .dims = dims,
                .partial = a->partial,
                .partial_input = a->partial_input};
  for (int i = 0; i < call->n_inputs; i++)
    inputs[i] = strategy_input(a, i, arena);
  for (int i = 0; i < call->n_results; i++)
    results[i] = strategy_result(a, i, arena);
  for (int d = 0; d < a->rule->n; d++) {
    if (!a->splits[d]) continue;
    dims[s.n_dims++] = (DimAxes){a->rule->dims[d].name, a->splits[d]};
    if (a->rule->dims[d].treatment == SHARD_positions)
      s.positions |= axis_list_set(a->splits[d]);
  }
  return s;
}

/* ---- what a row allows ---- */

static bool may_shard(const Mesh *mesh, const ShardDim *dim, AxisList axes) {
  if (!axes) return true;
  if (dim->treatment == SHARD_replicate) return false;
  return dim->even_size == 0 ||
         dim->even_size % axis_list_shards(axes, mesh) == 0;
}

/* Maxima of partial sums are no partial sums. */
static bool has_extremum(const Assignment *a) {
  for (int d = 0; d < a->rule->n; d++) {
    ShardTreatment treatment = a->rule->dims[d].treatment;
    if (a->splits[d] && (treatment == SHARD_max || treatment == SHARD_min))
      return true;
  }
  return false;
}

/* ---- enumeration ---- */

typedef struct StrategyWalk {
  Assignment now;
  Arena *scratch;
  EachStrategy *each;
  void *user;
  bool is_done;
} StrategyWalk;

static void walk_axes(StrategyWalk *w, int axis);

/* The axis at place `at` of a list. */
static AxisList list_insert(AxisList list, int at, int axis) {
  AxisList low = list & ((1u << 4 * at) - 1), high = list >> 4 * at;
  return low | (AxisList)(axis + 1) << 4 * at | high << 4 * (at + 1);
}

static void walk_dim(StrategyWalk *w, int axis, int d) {
  AxisList before = w->now.splits[d];
  for (int at = axis_list_length(before); at >= 0 && !w->is_done; at--) {
    w->now.splits[d] = list_insert(before, at, axis);
    if (may_shard(w->now.mesh, &w->now.rule->dims[d], w->now.splits[d]))
      walk_axes(w, axis + 1);
  }
  w->now.splits[d] = before;
}

/* Operand `input` is partial over the axis; -1: all are. */
static void walk_partial(StrategyWalk *w, int axis, int input) {
  Assignment *a = &w->now;
  AxisSet before = a->partial;
  int input_before = a->partial_input;
  if (before && input_before != input) return;
  a->partial |= (AxisSet)(1u << axis);
  a->partial_input = input;
  walk_axes(w, axis + 1);
  a->partial = before;
  a->partial_input = input_before;
}

static void walk_partials(StrategyWalk *w, int axis) {
  const ShardCall *call = w->now.rule->call;
  Linearity linearity = shard_linearity(call);
  if (call->n_inputs == 0 || linearity == LINEAR_no) return;
  if (linearity == LINEAR_all) {
    walk_partial(w, axis, -1);
    return;
  }
  int n = linearity == LINEAR_each ? call->n_inputs : 1;
  for (int i = 0; i < n; i++) walk_partial(w, axis, i);
}

static void offer_strategy(StrategyWalk *w) {
  if (w->now.partial && has_extremum(&w->now)) return;
  Arena *arena = arena_beside(w->scratch);
  Strategy strategy = strategy_of(&w->now, arena);
  w->is_done = !w->each(w->user, &strategy);
  arena_destroy(arena);
}

static void walk_axes(StrategyWalk *w, int axis) {
  if (w->is_done) return;
  if (axis == w->now.mesh->n_axes) {
    offer_strategy(w);
    return;
  }
  walk_axes(w, axis + 1);
  if (w->now.mesh->axes[axis].is_sequential) return;
  for (int d = 0; d < w->now.rule->n; d++) walk_dim(w, axis, d);
  walk_partials(w, axis);
}

void shard_strategies(const Mesh *mesh, const ShardCall *call, Arena *scratch,
                      EachStrategy *each, void *user) {
  if (!op_info(call->op)->infer) return;
  ShardRule *rule = ARENA_NEW(scratch, ShardRule);
  shard_rule(call, rule);
  StrategyWalk walk = {.scratch = scratch, .each = each, .user = user};
  walk.now.mesh = mesh;
  walk.now.rule = rule;
  walk_axes(&walk, 0);
}

/* ---- one strategy ---- */

static const char *dim_mistake(const Assignment *a, const DimAxes *want, int at,
                               AxisSet used, Arena *arena) {
  const char *op = op_info(a->rule->call->op)->name;
  if (at < 0)
    return arena_printf(arena, "'%s' has no dimension '%s'", op, want->dim);
  const ShardDim *dim = &a->rule->dims[at];
  if (a->splits[at])
    return arena_printf(arena, "'%s' is sharded twice", want->dim);
  for (int i = 0; i < a->mesh->n_axes; i++)
    if (axis_list_set(want->axes) & used & (1u << i))
      return arena_printf(arena, "axis '%s' shards two dims of '%s'",
                          a->mesh->axes[i].name, op);
  if (dim->treatment == SHARD_replicate)
    return arena_printf(arena, "'%s' needs dimension '%s' replicated", op,
                        want->dim);
  if (!may_shard(a->mesh, dim, want->axes))
    return arena_printf(
        arena,
        "'%s' keeps shards of '%s' only where their number divides "
        "%ld, and %ld does not",
        op, want->dim, (long)dim->even_size,
        (long)axis_list_shards(want->axes, a->mesh));
  return NULL;
}

const Strategy *strategy_for(const Mesh *mesh, const ShardCall *call,
                             const DimAxes *dims, int n_dims, Arena *arena,
                             const char **out_reason) {
  ShardRule *rule = ARENA_NEW(arena, ShardRule);
  Assignment a = {.mesh = mesh, .rule = rule};
  AxisSet used = 0;
  *out_reason = NULL;
  if (!op_info(call->op)->infer) {
    *out_reason = arena_printf(arena, "'%s' has no strategies of its own",
                               op_info(call->op)->name);
    return NULL;
  }
  shard_rule(call, rule);
  for (int i = 0; i < n_dims; i++) {
    int at = shard_rule_input(rule, dims[i].dim);
    *out_reason = dim_mistake(&a, &dims[i], at, used, arena);
    if (*out_reason) return NULL;
    a.splits[at] = dims[i].axes;
    used |= axis_list_set(dims[i].axes);
  }
  Strategy *result = ARENA_NEW(arena, Strategy);
  *result = strategy_of(&a, arena);
  return result;
}
