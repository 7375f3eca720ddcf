/*
 * partition.c -- shard the inputs by the plan, propagate placements by the
 * operators' rules, and insert resharding.
 *
 *     plan: shard B over data
 *     %0 = input : f32[B:128, P]        %0 = input : f32[B:128@data, P]
 *     %2 = sum %1 {over = [B, P]}  =>   %2 = sum %1 : f32[; sum@data]
 *     output loss %2                    %3 = all_reduce %2 {axes = [data]}
 *                                       output loss %3
 *
 * The plan places inputs only, and every other placement follows: a rule takes
 * its operands as they are, or asks for one in another placement, and the
 * resharding is inserted there, once for each value.  A partial value stays
 * partial through linear operators, so the two gradients of a tied parameter
 * are added before the one reduction.  Over a sequential axis (micro-batches)
 * the reduction is `accumulate`, and it comes first.  A state with the batch
 * dim is stored for all micro-batches: each micro-batch takes its shard, and
 * the update collects the new shards of all micro-batches.
 *
 * Messages name what is not supported yet: sharded parameters, sharded dims
 * that an operator needs replicated, shards of unequal size, ZeRO.
 *
 * requires: logical types     promises: outputs that are not partial
 * breaks: node ids            cost: O(nodes)
 */
#include "passes/rewrite.h"

typedef struct Partition {
  Rewrite rewrite;
  PassContext *ctx;
  const Plan *plan;
  const Mesh *mesh;
  Map *
      reduced; /* value of the new graph -> node of its reduced value, plus 1 */
} Partition;

static Type *type_copy(Arena *arena, const Type *type) {
  Type *copy = type_create(arena, type->dtype, type->rank);
  copy->partial = type->partial;
  copy->partial_kind = type->partial_kind;
  for (int d = 0; d < type->rank; d++) copy->dims[d] = type->dims[d];
  return copy;
}

/* ---- inputs ---- */

/* The pin that shards this dim of this input, or NULL. */
static const PlanShard *find_input_pin(const Partition *p, Name path,
                                       Name dim) {
  const PlanPlacement *placement = plan_find_placement(p->plan, path);
  return placement ? plan_placed_dim(placement, dim)
                   : plan_named_dim(p->plan, path, dim);
}

/* The axes of a pin, without those that a later pin of this tensor takes. */
static AxisList free_axes(const Partition *p, const PlanShard *const *pins,
                          const Type *type, int d, Name path) {
  AxisList list = 0;
  for (int i = 0; i < pins[d]->n_axes; i++) {
    Name name = pins[d]->axes[i];
    int axis = mesh_find(p->mesh, name);
    ASSERT(axis >= 0);
    int by = plan_axis_taken(pins, type->rank, d, name);
    if (by >= 0)
      diag(p->ctx->module->diags, DIAG_axis_taken, pins[d]->span,
           type->dims[d].name, type->dims[by].name, path, name);
    else
      list = axis_list_append(list, axis);
  }
  return list;
}

/* Micro-batches shard the ranks' shards of the batch dim. */
static AxisList add_microbatch_axes(const Partition *p, AxisList list,
                                    Name dim) {
  AxisSet sequential = mesh_sequential(p->mesh);
  if (dim != p->plan->batch_dim) return list;
  for (int a = 0; a < p->mesh->n_axes; a++)
    if (sequential >> a & 1 && !(axis_list_set(list) >> a & 1))
      list = axis_list_append(list, a);
  return list;
}

static void report_uneven(Partition *p, const Dim *dim, int64_t shards,
                          Span place) {
  enum { MOST_SHARDS = 64 };
  Arena *scratch = p->ctx->scratch;
  const char *list = "1";
  for (int i = 2; i <= MOST_SHARDS && i <= dim->size; i++)
    if (dim->size % i == 0) list = arena_printf(scratch, "%s, %d", list, i);
  Diag *d = diag(p->ctx->module->diags, DIAG_shard_uneven, place, dim->name,
                 (long)dim->size, (long)shards);
  diag_help(d, "shard counts that divide %s: %s", dim->name, list);
}

static const Type *place_input(Partition *p, const GraphInput *input,
                               const Type *type, Span span) {
  Diags *diags = p->ctx->module->diags;
  Type *placed = type_copy(p->ctx->module->arena, type);
  const PlanShard *pins[MAX_RANK];
  for (int d = 0; d < type->rank; d++)
    pins[d] = find_input_pin(p, input->path, type->dims[d].name);
  for (int d = 0; d < placed->rank; d++) {
    Dim *dim = &placed->dims[d];
    if (!pins[d] && dim->name != p->plan->batch_dim) continue;
    AxisList axes = pins[d] ? free_axes(p, pins, type, d, input->path) : 0;
    bool is_data = input->role == ROLE_data;
    if (is_data) axes = add_microbatch_axes(p, axes, dim->name);
    int64_t shards = axis_list_shards(axes, p->mesh);
    Span place = pins[d] && pins[d]->span.source ? pins[d]->span : span;
    bool may_split =
        is_data || (input->role == ROLE_state &&
                    plan_is_batch(p->plan, input->path, dim->name));
    if (axes && !may_split)
      diag(diags, DIAG_shard_unsupported, place, input->path, dim->name);
    else if (dim->size % shards != 0)
      report_uneven(p, dim, shards, place);
    else
      dim->split = axes;
  }
  return placed;
}

/* ---- operands that must be replicated ---- */

static bool shards_over(const Partition *p, const PlanShard *pin,
                        AxisList split) {
  for (int i = 0; i < axis_list_length(split); i++)
    for (int j = 0; j < pin->n_axes; j++)
      if (p->mesh->axes[axis_list_at(split, i)].name == pin->axes[j])
        return true;
  return false;
}

/* The last written pin that shards over an axis of this dim, one about its name
 * before others: pins of paths, then those of names. */
static Span find_pin(const Partition *p, const Dim *dim) {
  const Plan *plan = p->plan;
  Span any = SPAN_NONE;
  for (int i = plan->placements.n - 1; i >= 0; i--) {
    const PlanPlacement *placement = &plan->placements.data[i];
    for (int k = 0; k < placement->n_shards; k++) {
      if (!shards_over(p, &placement->shards[k], dim->split)) continue;
      if (placement->shards[k].dim == dim->name) return placement->span;
      if (!any.source) any = placement->span;
    }
  }
  for (int i = plan->shards.n - 1; i >= 0; i--) {
    const PlanShard *pin = &plan->shards.data[i];
    if (!pin->span.source || !shards_over(p, pin, dim->split)) continue;
    if (pin->dim == dim->name) return pin->span;
    if (!any.source) any = pin->span;
  }
  return any;
}

/* Reports at the statement that needs the dim replicated, or, where that is the
 * update of a persistent buffer, at the pin. */
static Diag *report_unsupported_shard(Partition *p, Name path, const Dim *dim,
                                      Span place, bool is_kept) {
  Diags *diags = p->ctx->module->diags;
  Span pin = find_pin(p, dim);
  bool at_pin = is_kept && pin.source;
  Diag *d = diag(diags, DIAG_shard_unsupported, at_pin ? pin : place, path,
                 dim->name);
  if (at_pin)
    diag_note(d, place, "'%s' is here", path);
  else if (pin.source)
    diag_note(d, pin, "it is sharded here");
  return d;
}

/* ---- resharding ---- */

static void axes_attr(const Partition *p, Attrs *attrs, AxisSet set) {
  Name *names = ARENA_ARRAY(p->ctx->scratch, Name, MAX_AXES);
  int n = 0;
  for (int a = 0; a < p->mesh->n_axes; a++)
    if (set >> a & 1) names[n++] = p->mesh->axes[a].name;
  attrs_names(attrs, ATTR_axes, names, n);
}

static Value reduce_over(Partition *p, Value value, AxisSet axes, Op op) {
  Graph *to = p->rewrite.to;
  const Type *type = graph_type(to, value);
  axes &= type->partial;
  if (!axes) return value;
  Type *reduced = type_copy(p->ctx->module->arena, type);
  reduced->partial &= (AxisSet)~axes;
  if (!reduced->partial) reduced->partial_kind = REDUCE_sum;
  Attrs attrs = {0};
  axes_attr(p, &attrs, axes);
  attrs_name(
      &attrs, ATTR_reduce,
      name_intern(p->ctx->module->names, reduce_name(type->partial_kind)));
  const Type *types[1] = {reduced};
  return graph_append_typed(to, op, &value, 1, &attrs, types, 1, NULL);
}

/* A collective joins ranks at one stride: axes with another one between them
 * are reduced one run after the other, innermost first. */
static Value reduce_ranks(Partition *p, Value value) {
  AxisSet run = 0, left = graph_type(p->rewrite.to, value)->partial;
  for (int a = p->mesh->n_axes - 1; a >= -1; a--) {
    bool is_part = a >= 0 && left >> a & 1;
    if (is_part) run |= (AxisSet)(1u << a);
    if (is_part || !run) continue;
    value = reduce_over(p, value, run, OP_all_reduce);
    run = 0;
  }
  return value;
}

/* Reduces a partial value; the reduction gets path and phase of the value. */
static Value reduce_partial(Partition *p, Value value) {
  Graph *to = p->rewrite.to;
  if (!graph_type(to, value)->partial) return value;
  intptr_t known = (intptr_t)map_get(p->reduced, value_key(value));
  if (known) return (Value){(int)known - 1, 0};
  const Node *node = graph_node(to, value);
  Name path = to->path;
  Phase phase = to->phase;
  Span span = to->span;
  to->path = node->path;
  to->phase = node->phase;
  to->span = node->span;
  AxisSet sequential = mesh_sequential(p->mesh);
  Value now = reduce_over(p, value, sequential, OP_accumulate);
  now = reduce_ranks(p, now);
  to->path = path;
  to->phase = phase;
  to->span = span;
  map_put(p->reduced, value_key(value), (void *)(intptr_t)(now.node + 1));
  return now;
}

/* The nodes that a value is computed from, each once. */
typedef struct Cone {
  int n;
  int ids[64];
} Cone;

static bool add_to_cone(const Graph *graph, Value value, Cone *cone) {
  const Node *node = graph_node(graph, value);
  if (node->types[0]->rank == 0) return true;
  for (int i = 0; i < cone->n; i++)
    if (cone->ids[i] == value.node) return true;
  if (cone->n == ARRAY_LENGTH(cone->ids) || node->n_results != 1) return false;
  cone->ids[cone->n++] = value.node;
  bool ok = op_has(node->op, OP_FLAG_fuses) &&
            !op_has(node->op, OP_FLAG_lookup) &&
            !op_is(node->op, OPCLASS_reduction);
  if (op_is(node->op, OPCLASS_random)) return ok;
  for (int i = 0; i < node->n_inputs && ok; i++)
    ok = add_to_cone(graph, node->inputs[i], cone);
  return ok;
}

/* The value depends on no replicated input, and on few nodes, so that a rank
 * can compute its shard alone. */
static bool is_computed(const Graph *graph, Value value) {
  Cone cone = {0};
  return add_to_cone(graph, value, &cone);
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

static void axis_list_attr(const Partition *p, Attrs *attrs, AxisList list) {
  Name axes[MAX_AXES];
  int n = axis_list_length(list);
  for (int i = 0; i < n; i++)
    axes[i] = p->mesh->axes[axis_list_at(list, i)].name;
  attrs_names(attrs, ATTR_axes, arena_copy(p->ctx->scratch, axes, sizeof axes),
              n);
}

/* Appends `op`, which changes the shards of the value along dim `d`. */
static Value change_shards(Partition *p, Op op, Value value, int d,
                           AxisList split, AxisList axes) {
  Type *type =
      type_copy(p->ctx->module->arena, graph_type(p->rewrite.to, value));
  type->dims[d].split = split;
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dim, type->dims[d].name);
  axis_list_attr(p, &attrs, axes);
  const Type *types[1] = {type};
  return graph_append_typed(p->rewrite.to, op, &value, 1, &attrs, types, 1,
                            NULL);
}

/* Collects the micro-batches of a value that they shard, except along dims that
 * `want`, if not NULL, shards over them too. */
static Value collect_microbatches(Partition *p, Value value, const Type *want) {
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
    value = change_shards(p, OP_shard, value, at, split, axes);
  }
  return value;
}

static Value reshard(Partition *p, Value value, const Type *want, int id) {
  Graph *to = p->rewrite.to;
  const Type *have = graph_type(to, value);
  if (have->partial & ~want->partial) {
    value = reduce_partial(p, value);
    have = graph_type(to, value);
  }
  bool must_shard = false;
  for (int d = 0; d < have->rank; d++) {
    const Dim *dim = &have->dims[d];
    int at = type_find(want, dim->name);
    ASSERT(at >= 0);
    if (dim->split == want->dims[at].split) continue;
    AxisList more;
    if (axis_list_continues(want->dims[at].split, dim->split, &more)) {
      must_shard = true;
      continue;
    }
    const Node *node = p->rewrite.from->nodes.data[id];
    const char *path =
        node->path && *node->path ? node->path : op_info(node->op)->name;
    Diag *d = report_unsupported_shard(p, path, dim, node->span, false);
    if (node->op == OP_route)
      diag_help(
          d, "with group = %s each element of it has capacity slots of its own",
          dim->name);
    return value;
  }
  if (!must_shard) return value;
  if (!is_computed(to, value)) return take_shards(p, value, want);
  return localise(p, value, want, map_create(p->ctx->scratch));
}

/* ---- nodes ---- */

static void place_scan(Partition *p, int id);

static void place_node(Partition *p, int id) {
  const Node *node = p->rewrite.from->nodes.data[id];
  if (node->op == OP_scan) {
    place_scan(p, id);
    return;
  }
  Graph *to = p->rewrite.to;
  Arena *arena = p->ctx->module->arena, *scratch = p->ctx->scratch;
  Value *inputs = rewrite_inputs(&p->rewrite, id);
  const Type **types = ARENA_ARRAY(scratch, const Type *, node->n_inputs);
  const Type **wanted = ARENA_ARRAY(scratch, const Type *, node->n_inputs);
  const Type **results = ARENA_ARRAY(scratch, const Type *, node->n_results);
  for (int i = 0; i < node->n_inputs; i++) {
    /* The update works on reduced gradients, also where it is linear: the norm
     * needs them reduced anyway.  It is made once for all micro-batches. */
    if (node->phase == PHASE_update)
      inputs[i] = collect_microbatches(p, reduce_partial(p, inputs[i]), NULL);
    types[i] = graph_type(to, inputs[i]);
  }
  shard_infer(to, node->op, node->attrs, node->n_attrs, types, node->n_inputs,
              node->types, node->n_results, arena, wanted, results);
  rewrite_at(&p->rewrite, id);
  for (int i = 0; i < node->n_inputs; i++)
    inputs[i] = reshard(p, inputs[i], wanted[i], id);
  Attrs attrs = node_attrs(node);
  Value first = graph_append_typed(to, node->op, inputs, node->n_inputs, &attrs,
                                   results, node->n_results, node->body);
  for (int r = 0; r < node->n_results; r++)
    rewrite_set(&p->rewrite, (Value){id, r}, (Value){first.node, r});
}

/* ---- scans ---- */

/* The finest sharding that an input of the scan gives a dim of this name: an
 * input with larger shards, like a carry that is zero at first, probably
 * becomes sharded in the same way. */
static AxisList split_by_name(const Partition *p, const Value *inputs, int n,
                              Name dim) {
  AxisList split = 0, more;
  for (int i = 0; i < n; i++) {
    const Type *type = graph_type(p->rewrite.to, inputs[i]);
    int at = type_find(type, dim);
    if (at >= 0 && axis_list_continues(type->dims[at].split, split, &more))
      split = type->dims[at].split;
  }
  return split;
}

/* Placements of the body's inputs, in part a guess. */
static const Type **place_scan_inputs(Partition *p, const Node *node,
                                      const Value *inputs) {
  const Type **types =
      ARENA_ARRAY(p->ctx->scratch, const Type *, node->n_inputs);
  for (int i = 0; i < node->n_inputs; i++) {
    const Type *given = graph_type(p->rewrite.to, inputs[i]);
    Value inner = node->body->inputs.data[i].value;
    Type *type =
        type_copy(p->ctx->module->arena, graph_type(node->body, inner));
    for (int d = 0; d < type->rank; d++) {
      Name dim = type->dims[d].name;
      AxisList more, split = split_by_name(p, inputs, node->n_inputs, dim);
      type->dims[d].split = given->dims[type_find(given, dim)].split;
      if (axis_list_continues(split, type->dims[d].split, &more))
        type->dims[d].split = split;
    }
    types[i] = type;
  }
  return types;
}

static Partition place_scan_body(Partition *p, const Node *node,
                                 const bool *is_partial,
                                 const Type *const *types) {
  Partition inner = {.ctx = p->ctx, .plan = p->plan, .mesh = p->mesh};
  inner.rewrite = rewrite_begin(p->ctx, node->body);
  inner.rewrite.to->mesh = *p->mesh;
  inner.reduced = map_create(p->ctx->scratch);
  for (int id = 0; id < node->body->nodes.n; id++) {
    const Node *at = node->body->nodes.data[id];
    if (at->op != OP_input) {
      place_node(&inner, id);
      continue;
    }
    int64_t kept = node_int(at, ATTR_index, 0);
    rewrite_at(&inner.rewrite, id);
    rewrite_set(&inner.rewrite, (Value){id, 0},
                rewrite_input(inner.rewrite.to, &node->body->inputs.data[kept],
                              types[kept]));
  }
  for (int i = 0; i < scan_carries(node); i++) {
    Value value = node->body->outputs.data[i].value;
    if (!is_partial[i])
      rewrite_set(&inner.rewrite, value,
                  reduce_partial(&inner, rewrite_get(&inner.rewrite, value)));
  }
  return inner;
}

/* The value that a carry adds up, where it does nothing else. */
static Value carry_summand(const Graph *body, int carry) {
  const Node *node = graph_node(body, body->outputs.data[carry].value);
  Value sum = body->inputs.data[carry].value;
  for (int i = 0; i < 2 && node->op == OP_add; i++)
    if (value_equal(node->inputs[i], sum)) return node->inputs[1 - i];
  return VALUE_NONE;
}

/* A carry that is zero at first and only adds up may stay a partial sum. */
static bool stays_partial(const Partition *p, const Node *node,
                          const Value *inputs, int carry) {
  double start;
  return value_is(carry_summand(node->body, carry)) &&
         value_const(p->rewrite.to, inputs[carry], &start) && start == 0;
}

/* A carry must have the same sharding in and out: takes the output's for the
 * input; true if that changed anything. A sum of partial values is partial from
 * the beginning. */
static bool adopt_carry_shardings(const Node *node, const Partition *inner,
                                  const bool *is_partial, const Type **types) {
  bool changed = false;
  for (int i = 0; i < scan_carries(node); i++) {
    Value more = is_partial[i] ? carry_summand(node->body, i) : VALUE_NONE;
    Value value =
        rewrite_get(&inner->rewrite, node->body->outputs.data[i].value);
    const Type *type = graph_type(inner->rewrite.to, value);
    if (value_is(more)) {
      const Type *part =
          graph_type(inner->rewrite.to, rewrite_get(&inner->rewrite, more));
      Type *sum = type_copy(inner->ctx->module->arena, type);
      sum->partial = part->partial;
      sum->partial_kind = part->partial_kind;
      type = sum;
    }
    if (type_equal(type, types[i])) continue;
    types[i] = type;
    changed = true;
  }
  return changed;
}

/* An iteration cannot wait for the other micro-batches. */
static void check_scan_body(const Partition *p, const Graph *body) {
  for (int id = 0; id < body->nodes.n; id++) {
    const Node *node = body->nodes.data[id];
    if (node->op != OP_accumulate) continue;
    diag(p->ctx->module->diags, DIAG_needs_full_batch, node->span,
         node->path && *node->path ? node->path : op_info(node->op)->name);
    return;
  }
}

/* Zero is also the partial sum of zeros. */
static Value partial_zero(Partition *p, const Type *want) {
  Graph *to = p->rewrite.to;
  Value zero = graph_const(to, want->dtype, 0);
  Name dims[MAX_RANK];
  int64_t sizes[MAX_RANK];
  for (int d = 0; d < want->rank; d++) {
    dims[d] = want->dims[d].name;
    sizes[d] = want->dims[d].size;
  }
  Attrs attrs = {0};
  attrs_names(&attrs, ATTR_to, dims, want->rank);
  attrs_ints(&attrs, ATTR_sizes, sizes, want->rank);
  return graph_append_typed(to, OP_broadcast, &zero, 1, &attrs, &want, 1, NULL);
}

static Value reshard_scan_input(Partition *p, const Node *node, int i,
                                Value value, const Type *inner, int id) {
  const Type *want = inner;
  if (scan_input_role(node, i) == ROLE_slice)
    want = scan_stacked_type(p->ctx->module->arena, inner,
                             node_name(node, ATTR_dim), scan_steps(node));
  double number;
  if (want->partial && value_const(p->rewrite.to, value, &number) &&
      number == 0)
    return partial_zero(p, want);
  return reshard(p, value, want, id);
}

/* Places the body like a graph and iterates the carry shardings to a fixed
 * point. Partial values that an iteration reads are reduced in the body; values
 * that are only stacked or added up are reduced after the loop. */
static void place_scan(Partition *p, int id) {
  enum { MOST_TRIES = 8 };
  const Node *node = p->rewrite.from->nodes.data[id];
  Graph *to = p->rewrite.to;
  Value *inputs = rewrite_inputs(&p->rewrite, id);
  for (int i = 0; i < node->n_inputs; i++)
    inputs[i] = reduce_partial(p, inputs[i]);
  const Type **types = place_scan_inputs(p, node, inputs);
  bool *is_partial = ARENA_ARRAY(p->ctx->scratch, bool, node->n_inputs);
  for (int i = 0; i < scan_carries(node); i++)
    is_partial[i] = stays_partial(p, node, inputs, i);
  Partition inner = place_scan_body(p, node, is_partial, types);
  for (int i = 0;
       i < MOST_TRIES && adopt_carry_shardings(node, &inner, is_partial, types);
       i++)
    inner = place_scan_body(p, node, is_partial, types);
  Graph *body = rewrite_end(&inner.rewrite);
  rewrite_at(&p->rewrite, id);
  check_scan_body(p, body);
  bool is_fixed_point = !adopt_carry_shardings(node, &inner, is_partial, types);
  for (int i = 0; i < node->n_inputs; i++) {
    inputs[i] = reshard_scan_input(p, node, i, inputs[i], types[i], id);
    is_fixed_point = is_fixed_point &&
                     (!types[i]->partial || graph_type(to, inputs[i])->partial);
  }
  if (!is_fixed_point)
    diag(p->ctx->module->diags, DIAG_scan_placement, node->span, node->path);
  Value first = scan_append(to, scan_form(node), inputs, body);
  for (int r = 0; r < node->n_results; r++)
    rewrite_set(&p->rewrite, (Value){id, r}, (Value){first.node, r});
}

/* A persistent buffer keeps the sharding of its input. */
static Value place_output(Partition *p, const InputIndex *inputs,
                          const GraphOutput *output) {
  Graph *to = p->rewrite.to;
  Value value = reduce_partial(p, rewrite_get(&p->rewrite, output->value));
  const GraphInput *kept = input_indexed(inputs, output->role, output->path);
  const Type *want = kept ? graph_type(to, kept->value) : NULL;
  value = collect_microbatches(p, value, want);
  const Type *type = graph_type(to, value);
  if (!want) want = type_logical(p->ctx->module->arena, type);
  for (int d = 0; d < type->rank; d++) {
    int at = type_find(want, type->dims[d].name);
    if (type->dims[d].split && want->dims[at].split != type->dims[d].split) {
      Span span = graph_node(to, kept ? kept->value : value)->span;
      report_unsupported_shard(p, output->path, &type->dims[d], span,
                               kept != NULL);
      return value;
    }
  }
  return kept ? reshard(p, value, want, output->value.node) : value;
}

static void place_outputs(Partition *p) {
  const Graph *from = p->rewrite.from;
  InputIndex inputs = graph_index_inputs(p->rewrite.to, p->ctx->scratch);
  for (int i = 0; i < from->outputs.n; i++) {
    const GraphOutput *output = &from->outputs.data[i];
    graph_output(p->rewrite.to, output->role, output->path,
                 place_output(p, &inputs, output));
  }
}

/* Does the value have the placement that a pin of its path asks for? Pins do
 * not name sequential axes. */
static bool placed_as_pinned(const Partition *p, const PlanPlacement *placement,
                             const Type *type) {
  for (int d = 0; d < type->rank; d++) {
    AxisList list = type->dims[d].split;
    const PlanShard *shard = plan_placed_dim(placement, type->dims[d].name);
    int n = 0;
    for (int i = 0; i < axis_list_length(list); i++) {
      const MeshAxis *axis = &p->mesh->axes[axis_list_at(list, i)];
      if (axis->is_sequential) continue;
      if (!shard || n == shard->n_axes || shard->axes[n++] != axis->name)
        return false;
    }
    if (shard && n < shard->n_axes) return false;
  }
  AxisSet partial = 0;
  for (int i = 0; i < placement->n_partial; i++)
    partial |= (AxisSet)(1u << mesh_find(p->mesh, placement->partial[i]));
  return !partial || partial == (type->partial & ~mesh_sequential(p->mesh));
}

static Name path_of_node(const Graph *graph, const Node *node) {
  if (node->op != OP_input) return node->path;
  return graph->inputs.data[node_int(node, ATTR_index, 0)].path;
}

/* A value that depends on nothing stored has no placement of its own: each
 * reader computes the shard that it needs. */
static bool is_placed(const Graph *graph, int id) {
  Value value = {id, 0};
  return graph_type(graph, value)->rank == 0 || !is_computed(graph, value);
}

/* The nodes of one path are parts of one operator. Returns the last whose
 * placement differs from the pin, because the user knows its value. */
static const Node *last_misplaced(const Partition *p, const Graph *graph,
                                  const Node *first,
                                  const PlanPlacement *placement) {
  const Node *last = first;
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    if (node->phase == PHASE_forward && node->path == first->path &&
        !placed_as_pinned(p, placement, node->types[0]))
      last = node;
  }
  return last;
}

/* Placements follow from the inputs; a pin that asks for another one is not
 * supported yet. */
static void check_placements(const Partition *p, const Graph *graph,
                             Map *told) {
  bool is_body = graph != p->rewrite.to;
  for (int id = 0; p->plan->placements.n > 0 && id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    if (node->phase != PHASE_forward || !node->path) continue;
    if (is_body && node->op == OP_input) continue;
    if (node->body) check_placements(p, node->body, told);
    Name path = path_of_node(graph, node);
    const PlanPlacement *placement = plan_find_placement(p->plan, path);
    if (!placement || map_has(told, placement) ||
        placed_as_pinned(p, placement, node->types[0]) || !is_placed(graph, id))
      continue;
    map_put(told, placement, (void *)placement);
    node = last_misplaced(p, graph, node, placement);
    Text type = text_create(p->ctx->scratch);
    type_print(&type, node->types[0], p->mesh);
    diag(p->ctx->module->diags, DIAG_placement, placement->span, path,
         text_string(&type));
  }
}

/* Another dim of the value is sharded over an axis of this pin. */
static bool is_axis_taken(const Partition *p, const PlanShard *pin,
                          const Type *type) {
  for (int d = 0; d < type->rank; d++) {
    AxisList list = type->dims[d].split;
    if (type->dims[d].name == pin->dim) continue;
    for (int i = 0; i < axis_list_length(list); i++)
      for (int j = 0; j < pin->n_axes; j++)
        if (p->mesh->axes[axis_list_at(list, i)].name == pin->axes[j])
          return true;
  }
  return false;
}

/* A pin of a dim name holds for every value that has the dim. */
static bool holds_named_pin(const Partition *p, const Node *node,
                            const PlanShard *pin) {
  const Type *type = node->types[0];
  int d = type_find(type, pin->dim);
  if (d < 0 || is_axis_taken(p, pin, type)) return true;
  if (plan_find_placement(p->plan, path_of_node(p->rewrite.to, node)))
    return true;
  int n = 0, n_wanted = 0;
  Name wanted[MAX_AXES];
  for (int i = 0; i < pin->n_axes; i++)
    if (!p->mesh->axes[mesh_find(p->mesh, pin->axes[i])].is_sequential)
      wanted[n_wanted++] = pin->axes[i];
  AxisList list = type->dims[d].split;
  for (int i = 0; i < axis_list_length(list); i++) {
    const MeshAxis *axis = &p->mesh->axes[axis_list_at(list, i)];
    if (axis->is_sequential) continue;
    if (n == n_wanted || wanted[n++] != axis->name) return false;
  }
  return n == n_wanted;
}

/* Such a pin takes effect at the inputs; other values with the dim follow from
 * their operands. */
static void check_named_pins(const Partition *p) {
  const Graph *graph = p->rewrite.to;
  bool has_errors = diags_errors(p->ctx->module->diags) > 0;
  for (int i = 0; i < p->plan->shards.n && !has_errors; i++) {
    const PlanShard *pin = &p->plan->shards.data[i];
    bool is_last = plan_find_shard(p->plan, pin->dim) == pin;
    if (!is_last || pin->dim == p->plan->batch_dim) continue;
    for (int id = 0; id < graph->nodes.n; id++) {
      const Node *node = graph->nodes.data[id];
      bool counts = node->phase == PHASE_forward && node->n_results == 1 &&
                    node->path && *node->path;
      if (!counts || holds_named_pin(p, node, pin)) continue;
      Text type = text_create(p->ctx->scratch);
      type_print(&type, node->types[0], p->mesh);
      diag(p->ctx->module->diags, DIAG_placement, pin->span,
           path_of_node(graph, node), text_string(&type));
      break;
    }
  }
}

/* A node that runs for each micro-batch cannot wait for the sum over all of
 * them. */
static void check_microbatch_loop(const Partition *p) {
  const Graph *graph = p->rewrite.to;
  bool *follows = ARENA_ARRAY(p->ctx->scratch, bool, graph->nodes.n);
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    for (int i = 0; i < node->n_inputs; i++)
      follows[id] |= follows[node->inputs[i].node];
    if (follows[id] && node_is_per_microbatch(graph, id)) {
      diag(p->ctx->module->diags, DIAG_needs_full_batch, node->span,
           node->path && *node->path ? node->path : op_info(node->op)->name);
      return;
    }
    follows[id] |= op_has(node->op, OP_FLAG_joins_microbatches);
  }
}

Graph *pass_partition(PassContext *ctx, const Graph *graph) {
  const Plan *plan = ctx->plan;
  if (plan && plan->zero > 0)
    diag(ctx->module->diags, DIAG_zero_unsupported, SPAN_NONE, plan->name,
         plan->zero);
  if (!plan || (plan->ranks <= 1 && plan->microbatches <= 1))
    return rewrite_graph(ctx, graph, NULL, NULL);
  Partition p = {.ctx = ctx, .plan = plan};
  p.rewrite = rewrite_begin(ctx, graph);
  p.rewrite.to->mesh = plan->mesh;
  p.mesh = &p.rewrite.to->mesh;
  p.reduced = map_create(ctx->scratch);
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    if (diags_errors(ctx->module->diags) > 0)
      return rewrite_graph(ctx, graph, NULL, NULL);
    if (node->op != OP_input) {
      place_node(&p, id);
      continue;
    }
    const GraphInput *input =
        &graph->inputs.data[node_int(node, ATTR_index, 0)];
    rewrite_at(&p.rewrite, id);
    rewrite_set(
        &p.rewrite, (Value){id, 0},
        rewrite_input(p.rewrite.to, input,
                      place_input(&p, input, node->types[0], node->span)));
  }
  place_outputs(&p);
  check_microbatch_loop(&p);
  check_placements(&p, p.rewrite.to, map_create(ctx->scratch));
  check_named_pins(&p);
  return p.rewrite.to;
}
