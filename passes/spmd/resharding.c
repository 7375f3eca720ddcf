/*
 * resharding.c -- brings a value into the placement that a reader asks for.
 *
 *     %2 = sum %1 : f32[; sum@data]
 *     output loss %2                 =>   %3 = all_reduce %2 {axes = [data]}
 *                                         output loss %3
 */
#include "passes/spmd/placement.h"
#include "passes/spmd/resharding.h"

typedef struct GraphPlace {
  Name path;
  Phase phase;
  Span span;
} GraphPlace;

/* The nodes appended next get the path, phase and span of a value; the result
 * is what they got before. */
static GraphPlace graph_move_to(Graph *graph, Value value) {
  GraphPlace before = {graph->path, graph->phase, graph->span};
  const Node *node = graph_node(graph, value);
  graph->path = node->path;
  graph->phase = node->phase;
  graph->span = node->span;
  return before;
}

static void graph_move_back(Graph *graph, GraphPlace before) {
  graph->path = before.path;
  graph->phase = before.phase;
  graph->span = before.span;
}

/* Notes how `value`, as it was before, got the placement of `to`. */
static void note_reshard(Partition *p, Value value, const Type *to) {
  const Type *from = graph_type(p->rewrite.to, value);
  vec_push(p->ctx->module->arena, &p->trial->reshards,
           ((ReshardNote){from, to, reduced_dtype(p, value)}));
}

Value reduce_partial(Partition *p, Value value) {
  Graph *to = p->rewrite.to;
  if (!graph_type(to, value)->partial) return value;
  intptr_t known = (intptr_t)map_get(p->reduced, value_key(value));
  if (known) return (Value){(int)known - 1, 0};
  GraphPlace before = graph_move_to(to, value);
  AxisSet sequential = mesh_sequential(p->mesh);
  Value now = reduce_over(p, value, sequential, OP_accumulate);
  Value before_ranks = now;
  now = reduce_ranks(p, now, (AxisSet)~sequential);
  if (graph_type(to, before_ranks)->partial)
    note_reshard(p, before_ranks, graph_type(to, now));
  graph_move_back(to, before);
  map_put(p->reduced, value_key(value), (void *)(intptr_t)(now.node + 1));
  return now;
}

/* The nodes that a value is computed from, each once. */
typedef struct Cone {
  int n;
  int ids[64];
} Cone;

/* Scalars are everywhere; false if there is no room. */
static bool add_to_cone(const Graph *graph, Value value, Cone *cone) {
  if (graph_type(graph, value)->rank == 0) return true;
  for (int i = 0; i < cone->n; i++)
    if (cone->ids[i] == value.node) return true;
  if (cone->n == ARRAY_LENGTH(cone->ids)) return false;
  cone->ids[cone->n++] = value.node;
  return true;
}

static bool may_be_in_cone(const Node *node) {
  return node->n_results == 1 && op_has(node->op, OP_FLAG_fuses) &&
         !op_has(node->op, OP_FLAG_lookup) &&
         !op_is(node->op, OPCLASS_reduction);
}

/* The nearest nodes first: the residual stream leads through all layers, but a
 * matmul is never far. */
bool is_computed(const Graph *graph, Value value) {
  Cone cone = {0};
  add_to_cone(graph, value, &cone);
  for (int at = 0; at < cone.n; at++) {
    const Node *node = graph->nodes.data[cone.ids[at]];
    if (!may_be_in_cone(node)) return false;
    if (op_is(node->op, OPCLASS_random)) continue;
    for (int i = 0; i < node->n_inputs; i++)
      if (!add_to_cone(graph, node->inputs[i], &cone)) return false;
  }
  return true;
}

/* Computes the value again with the splits of `want` (by dim name); `copies`
 * has what was computed again so far, by value_key: id plus one. */
static Value localise(Partition *p, Value value, const Type *want,
                      Map *copies) {
  Graph *to = p->rewrite.to;
  intptr_t known = (intptr_t)map_get(copies, value_key(value));
  if (known) return (Value){(int)known - 1, 0};
  const Node *node = graph_node(to, value);
  const Type *type = node->types[value.result];
  Type *local = type_copy(p->ctx->module->arena, type);
  bool changed = false;
  for (int d = 0; d < local->rank; d++) {
    int at = type_find(want, local->dims[d].name);
    if (at < 0 || local->dims[d].split == want->dims[at].split) continue;
    local->dims[d].split = want->dims[at].split;
    changed = true;
  }
  if (!changed) return value;
  Value inputs[4];
  ASSERT(node->n_inputs <= ARRAY_LENGTH(inputs));
  for (int i = 0; i < node->n_inputs; i++)
    inputs[i] = localise(p, node->inputs[i], want, copies);
  Attrs attrs = node_attrs(node);
  const Type *types[1] = {local};
  Value now = graph_append_typed(to, node->op, inputs, node->n_inputs, &attrs,
                                 types, 1, NULL);
  map_put(copies, value_key(value), (void *)(intptr_t)(now.node + 1));
  return now;
}

/* The samples of a rank are not one shard of the batch, but one of each
 * micro-batch. */
static void report_collected(const Partition *p, Value value, Name dim) {
  const Graph *to = p->rewrite.to;
  const Node *node = graph_node(to, value);
  Name path = graph_path(to, value.node);
  diag(p->ctx->module->diags, DIAG_not_supported, node->span,
       arena_printf(p->ctx->scratch,
                    "'%s' has the dimension '%s' of the batch after all "
                    "micro-batches, in a stage with a mesh of its own",
                    path && *path ? path : op_info(node->op)->name, dim));
}

Value collect_microbatches(Partition *p, Value value, const Type *want) {
  const Type *type = graph_type(p->rewrite.to, value);
  AxisSet sequential = mesh_sequential(p->mesh);
  for (int d = 0; d < type->rank; d++) {
    AxisList ranks = 0, time = 0, split = type->dims[d].split;
    for (int i = 0; i < axis_list_length(split); i++) {
      int axis = axis_list_at(split, i);
      AxisList *to = sequential >> axis & 1 ? &time : &ranks;
      *to = axis_list_append(*to, axis);
    }
    int at = want ? type_find(want, type->dims[d].name) : -1;
    bool stays = at >= 0 && axis_list_set(want->dims[at].split) & sequential;
    if (time && !stays && ranks && p->plan->divides_microbatches) {
      report_collected(p, value, type->dims[d].name);
      return value;
    }
    if (time && !stays)
      value = change_shards(p, OP_collect_microbatches, value, d, ranks, time);
  }
  return value;
}

/* Each rank takes its shard of the value that it has, one dim after the other.
 */
static Value take_shards(Partition *p, Value value, const Type *want) {
  Graph *to = p->rewrite.to;
  for (int d = 0; d < want->rank; d++) {
    const Type *type = graph_type(to, value);
    int at = type_find(type, want->dims[d].name);
    if (at < 0 || type->dims[at].split == want->dims[d].split) continue;
    AxisList split = want->dims[d].split, axes;
    bool continues = axis_list_continues(split, type->dims[at].split, &axes);
    ASSERT(continues);
    value = shard_dim(p, value, at, split, axes);
  }
  return value;
}

/* How a value gets from one placement to another. */
typedef enum Way {
  WAY_none,
  WAY_local, /* reduced, where it is partial, and then sliced */
  WAY_chain, /* its shards move */
} Way;

static Way find_way(const Partition *p, const Type *have, const Type *want) {
  AxisSet reduced = have->partial & (AxisSet)~want->partial, sliced = 0;
  bool is_same = !reduced;
  bool moves = (want->partial & ~have->partial) || (reduced && want->partial);
  for (int d = 0; d < have->rank; d++) {
    const Dim *dim = &want->dims[type_find(want, have->dims[d].name)];
    AxisList more;
    if (dim->split == have->dims[d].split) continue;
    is_same = false;
    if (!axis_list_continues(dim->split, have->dims[d].split, &more) ||
        !shards_are_aligned(p, &have->dims[d], dim))
      moves = true;
    else
      sliced |= axis_list_set(more);
  }
  if (moves || sliced & reduced) return WAY_chain;
  return is_same ? WAY_none : WAY_local;
}

/* The type of the value in the placement of `want`, whose dims may be stored in
 * another order. */
static Type *placed_like(Partition *p, const Type *have, const Type *want) {
  Type *type = type_copy(p->ctx->module->arena, have);
  for (int d = 0; d < type->rank; d++)
    type->dims[d].split = want->dims[type_find(want, type->dims[d].name)].split;
  type->partial = want->partial;
  type->partial_kind = have->partial ? have->partial_kind : want->partial_kind;
  if (!type->partial) type->partial_kind = REDUCE_sum;
  return type;
}

static void report_chain(Partition *p, int id, const Type *have,
                         const Type *want, const char *reason) {
  const Node *node = p->rewrite.from->nodes.data[id];
  const char *path =
      node->path && *node->path ? node->path : op_info(node->op)->name;
  for (int d = 0; d < have->rank; d++) {
    const Dim *dim = &have->dims[d];
    AxisList more;
    if (axis_list_continues(want->dims[type_find(want, dim->name)].split,
                            dim->split, &more))
      continue;
    Diag *diag = report_unsupported_shard(p, path, dim, node->span, false);
    diag_note(diag, SPAN_NONE, "%s", reason);
    if (node->op == OP_route)
      diag_help(
          diag,
          "with group = %s each element of it has capacity slots of its own",
          dim->name);
    return;
  }
  diag(p->ctx->module->diags, DIAG_reshard_unsupported, node->span, path,
       reason);
}

/* Micro-batches do not wait for each other: their axes never move. */
static bool moves_microbatches(const Partition *p, const Type *have,
                               const Type *want) {
  AxisSet sequential = mesh_sequential(p->mesh);
  for (int d = 0; d < have->rank; d++) {
    AxisSet before = axis_list_set(have->dims[d].split);
    int at = type_find(want, have->dims[d].name);
    if ((before ^ axis_list_set(want->dims[at].split)) & sequential)
      return true;
  }
  return ((have->partial ^ want->partial) & sequential) != 0;
}

static Value follow_chain(Partition *p, Value value, const Type *want, int id) {
  Graph *to = p->rewrite.to;
  ReshardStep steps[MAX_RESHARD_STEPS];
  const char *reason = "micro-batches would wait for each other";
  GraphPlace before = graph_move_to(to, value);
  AxisSet time = graph_type(to, value)->partial & (AxisSet)~want->partial &
                 mesh_sequential(p->mesh);
  value = reduce_over(p, value, time, OP_accumulate);
  const Type *have = graph_type(to, value);
  want = placed_like(p, have, want);
  bool moves_time = moves_microbatches(p, have, want);
  int n = moves_time ? -1 : reshard_chain(p, have, want, steps);
  if (n > 0) note_reshard(p, value, want);
  if (n >= 0) value = reshard_emit(p, value, steps, n);
  graph_move_back(to, before);
  if (n < 0 && !moves_time) reason = reshard_reason(p, have, want);
  if (n < 0) report_chain(p, id, have, want, reason);
  return value;
}

static Value reshard_by_chain(Partition *p, Value value, const Type *want,
                              int id);

/* From ZeRO 2 on shards are accumulated, not gradients.  One reader may want
 * the sums of micro-batches, another one those of all. */
static Value reshard_before_sum(Partition *p, Value value, const Type *want,
                                AxisSet time, int id) {
  Graph *to = p->rewrite.to;
  Type *first = placed_like(p, graph_type(to, value), want);
  first->partial |= time;
  value = reshard_by_chain(p, value, first, id);
  if (!want->partial) return reduce_partial(p, value);
  GraphPlace before = graph_move_to(to, value);
  value = reduce_over(p, value, time, OP_accumulate);
  graph_move_back(to, before);
  return value;
}

/* The key of a value in a placement of it. */
static Name reshard_key(Partition *p, Value value, const Type *placed) {
  Text text = text_create(p->ctx->scratch);
  text_printf(&text, "%d.%d ", value.node, value.result);
  type_print(&text, placed, p->mesh);
  return name_intern(p->ctx->module->names, text_string(&text));
}

Value find_reshard(Partition *p, Value value, const Type *placed) {
  intptr_t known =
      (intptr_t)map_get(p->resharded, reshard_key(p, value, placed));
  return known ? (Value){(int)known - 1, 0} : VALUE_NONE;
}

void remember_reshard(Partition *p, Value value, Value now) {
  const Type *placed = graph_type(p->rewrite.to, now);
  map_put(p->resharded, reshard_key(p, value, placed),
          (void *)(intptr_t)(now.node + 1));
}

/* One chain serves all readers that want this placement. */
static Value reshard_by_chain(Partition *p, Value value, const Type *want,
                              int id) {
  const Type *have = graph_type(p->rewrite.to, value);
  AxisSet time = p->plan->zero >= 2 ? have->partial & (AxisSet)~want->partial &
                                          mesh_sequential(p->mesh)
                                    : 0;
  const Type *placed = placed_like(p, have, want);
  Value known = find_reshard(p, value, placed);
  if (value_is(known)) return known;
  Value now = time ? reshard_before_sum(p, value, want, time, id)
                   : follow_chain(p, value, want, id);
  if (!value_equal(now, value))
    map_put(p->resharded, reshard_key(p, value, placed),
            (void *)(intptr_t)(now.node + 1));
  return now;
}

Value reshard(Partition *p, Value value, const Type *want, int id) {
  Graph *to = p->rewrite.to;
  const Type *have = graph_type(to, value);
  Way way = find_way(p, have, want);
  if (way == WAY_none) return value;
  if (way == WAY_chain) return reshard_by_chain(p, value, want, id);
  if (have->partial & ~want->partial) value = reduce_partial(p, value);
  if (find_way(p, graph_type(to, value), want) == WAY_none) return value;
  if (!is_computed(to, value)) return take_shards(p, value, want);
  return localise(p, value, want, map_create(p->ctx->scratch));
}
