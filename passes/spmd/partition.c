/*
 * partition.c -- act on the plan: split what it shards, let the operators'
 * rules carry the placements forward, reduce where a whole value is needed.
 *
 *     plan: shard B over data
 *     %0 = input : f32[B:128, P]        %0 = input : f32[B:128@data, P]
 *     %2 = sum %1 {over = [B, P]}  =>   %2 = sum %1 : f32[; sum@data]
 *     output loss %2                    %3 = all_reduce %2 {axes = [data]}
 *                                       output loss %3
 *
 * Only inputs are placed by hand.  Everything else follows: a rule either
 * takes its inputs as they are or asks for one in another placement, and the
 * conversion is inserted there, once for each value.  A partial value stays
 * partial through linear operators, so the two gradients of a tied parameter
 * are added before the one reduction.  Over a sequential axis (micro-batches)
 * the reduction is `accumulate`, and it comes first.  A state with the batch
 * dim lies there for all micro-batches: each takes its piece of it (`shard`),
 * and puts its piece of the new one to the others (`collect_microbatches`) for
 * the update.
 *
 * What the plan may not ask for yet is said by name: sharded parameters, dims
 * that an operator needs whole, pieces of unequal size, ZeRO.
 *
 * requires: whole types     promises: whole outputs     cost: O(nodes)
 */
#include "passes/rewrite.h"

typedef struct Partition {
  Rewrite rewrite;
  PassContext *ctx;
  const Plan *plan;
  const Mesh *mesh;
  Map *whole; /* value of the new graph -> its whole version's node + 1 */
} Partition;

static Type *type_copy(Arena *arena, const Type *type) {
  Type *copy = type_create(arena, type->dtype, type->rank);
  copy->partial = type->partial;
  copy->partial_kind = type->partial_kind;
  for (int d = 0; d < type->rank; d++) copy->dims[d] = type->dims[d];
  return copy;
}

/* ---- inputs ---- */

/* The line that says how this dim of this input is cut, or NULL. */
static const PlanShard *find_shard(const Partition *p, Name path, Name dim) {
  const PlanPlacement *placement = plan_find_placement(p->plan, path);
  return placement ? plan_placed_dim(placement, dim)
                   : plan_named_dim(p->plan, path, dim);
}

/* The axes of a line, without those that a later line of this tensor takes. */
static AxisList free_axes(const Partition *p, const PlanShard *const *lines,
                          const Type *type, int d, Name path) {
  AxisList list = 0;
  for (int i = 0; i < lines[d]->n_axes; i++) {
    Name name = lines[d]->axes[i];
    int axis = mesh_find(p->mesh, name);
    ASSERT(axis >= 0);
    int by = plan_axis_taken(lines, type->rank, d, name);
    if (by >= 0)
      diag(p->ctx->module->diags, DIAG_axis_taken, lines[d]->span,
           type->dims[d].name, type->dims[by].name, path, name);
    else
      list = axis_list_append(list, axis);
  }
  return list;
}

/* Micro-batches cut the pieces that the ranks have of the batch dim. */
static AxisList add_time(const Partition *p, AxisList list, Name dim) {
  AxisSet timed = mesh_sequential(p->mesh);
  if (dim != p->plan->batch_dim) return list;
  for (int a = 0; a < p->mesh->n_axes; a++)
    if (timed >> a & 1 && !(axis_list_set(list) >> a & 1))
      list = axis_list_append(list, a);
  return list;
}

static void report_uneven(Partition *p, const Dim *dim, int64_t pieces,
                          Span place) {
  enum { MOST_PIECES = 64 };
  Arena *scratch = p->ctx->scratch;
  const char *list = "1";
  for (int i = 2; i <= MOST_PIECES && i <= dim->size; i++)
    if (dim->size % i == 0) list = arena_printf(scratch, "%s, %d", list, i);
  Diag *d = diag(p->ctx->module->diags, DIAG_shard_uneven, place, dim->name,
                 (long)dim->size, (long)pieces);
  diag_help(d, "shard counts that divide %s: %s", dim->name, list);
}

static const Type *place_input(Partition *p, const GraphInput *input,
                               const Type *type, Span span) {
  Diags *diags = p->ctx->module->diags;
  Type *placed = type_copy(p->ctx->module->arena, type);
  const PlanShard *lines[MAX_RANK];
  for (int d = 0; d < type->rank; d++)
    lines[d] = find_shard(p, input->path, type->dims[d].name);
  for (int d = 0; d < placed->rank; d++) {
    Dim *dim = &placed->dims[d];
    if (!lines[d] && dim->name != p->plan->batch_dim) continue;
    AxisList axes = lines[d] ? free_axes(p, lines, type, d, input->path) : 0;
    bool is_data = input->role == ROLE_data;
    if (is_data) axes = add_time(p, axes, dim->name);
    int64_t pieces = axis_list_shards(axes, p->mesh);
    Span place = lines[d] && lines[d]->span.source ? lines[d]->span : span;
    bool may_split =
        is_data || (input->role == ROLE_state &&
                    plan_is_batch(p->plan, input->path, dim->name));
    if (axes && !may_split)
      diag(diags, DIAG_shard_unsupported, place, input->path, dim->name);
    else if (dim->size % pieces != 0)
      report_uneven(p, dim, pieces, place);
    else
      dim->split = axes;
  }
  return placed;
}

/* ---- what must be whole ---- */

static bool cuts_over(const Partition *p, const PlanShard *line,
                      AxisList split) {
  for (int i = 0; i < axis_list_length(split); i++)
    for (int j = 0; j < line->n_axes; j++)
      if (p->mesh->axes[axis_list_at(split, i)].name == line->axes[j])
        return true;
  return false;
}

/* The last written line that cuts over an axis of this dim, one about its name
 * before others: lines about paths, then those about names. */
static Span find_line(const Partition *p, const Dim *dim) {
  const Plan *plan = p->plan;
  Span any = SPAN_NONE;
  for (int i = plan->placements.n - 1; i >= 0; i--) {
    const PlanPlacement *placement = &plan->placements.data[i];
    for (int k = 0; k < placement->n_shards; k++) {
      if (!cuts_over(p, &placement->shards[k], dim->split)) continue;
      if (placement->shards[k].dim == dim->name) return placement->span;
      if (!any.source) any = placement->span;
    }
  }
  for (int i = plan->shards.n - 1; i >= 0; i--) {
    const PlanShard *line = &plan->shards.data[i];
    if (!line->span.source || !cuts_over(p, line, dim->split)) continue;
    if (line->dim == dim->name) return line->span;
    if (!any.source) any = line->span;
  }
  return any;
}

/* In the statement that needs it so, or where that is the update of a slot, in
 * the line of the plan. */
static Diag *report_whole(Partition *p, Name path, const Dim *dim, Span place,
                          bool is_slot) {
  Diags *diags = p->ctx->module->diags;
  Span line = find_line(p, dim);
  bool at_line = is_slot && line.source;
  Diag *d = diag(diags, DIAG_shard_unsupported, at_line ? line : place, path,
                 dim->name);
  if (at_line)
    diag_note(d, place, "'%s' is here", path);
  else if (line.source)
    diag_note(d, line, "it is sharded here");
  return d;
}

/* ---- conversions ---- */

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

/* Not partial any more; the reduction carries path and phase of the value. */
static Value make_whole(Partition *p, Value value) {
  Graph *to = p->rewrite.to;
  if (!graph_type(to, value)->partial) return value;
  intptr_t known = (intptr_t)map_get(p->whole, value_key(value));
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
  map_put(p->whole, value_key(value), (void *)(intptr_t)(now.node + 1));
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

/* The value depends on no input that is stored whole, and on few nodes, so that
 * a rank can compute just its piece of it. */
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

static void axis_names(const Partition *p, Attrs *attrs, AxisList list) {
  Name axes[MAX_AXES];
  int n = axis_list_length(list);
  for (int i = 0; i < n; i++)
    axes[i] = p->mesh->axes[axis_list_at(list, i)].name;
  attrs_names(attrs, ATTR_axes, arena_copy(p->ctx->scratch, axes, sizeof axes),
              n);
}

/* The value, or what cuts it further, in other pieces along dim `d`. */
static Value change_pieces(Partition *p, Op op, Value value, int d,
                           AxisList split, AxisList axes) {
  Type *type =
      type_copy(p->ctx->module->arena, graph_type(p->rewrite.to, value));
  type->dims[d].split = split;
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dim, type->dims[d].name);
  axis_names(p, &attrs, axes);
  const Type *types[1] = {type};
  return graph_append_typed(p->rewrite.to, op, &value, 1, &attrs, types, 1,
                            NULL);
}

/* All micro-batches of a value that they cut, but along dims that `want`, if
 * not NULL, has in their pieces. */
static Value gather_time(Partition *p, Value value, const Type *want) {
  const Type *type = graph_type(p->rewrite.to, value);
  AxisSet timed = mesh_sequential(p->mesh);
  for (int d = 0; d < type->rank; d++) {
    AxisList ranks = 0, time = 0, split = type->dims[d].split;
    for (int i = 0; i < axis_list_length(split); i++) {
      int axis = axis_list_at(split, i);
      AxisList *to = timed >> axis & 1 ? &time : &ranks;
      *to = axis_list_append(*to, axis);
    }
    int at = want ? type_find(want, type->dims[d].name) : -1;
    bool stays = at >= 0 && axis_list_set(want->dims[at].split) & timed;
    if (time && !stays)
      value = change_pieces(p, OP_collect_microbatches, value, d, ranks, time);
  }
  return value;
}

/* Each rank takes its piece of what it has, one dim after the other. */
static Value take_pieces(Partition *p, Value value, const Type *want) {
  Graph *to = p->rewrite.to;
  for (int d = 0; d < want->rank; d++) {
    const Type *type = graph_type(to, value);
    int at = type_find(type, want->dims[d].name);
    if (at < 0 || type->dims[at].split == want->dims[d].split) continue;
    AxisList split = want->dims[d].split, axes;
    bool continues = axis_list_continues(split, type->dims[at].split, &axes);
    ASSERT(continues);
    value = change_pieces(p, OP_shard, value, at, split, axes);
  }
  return value;
}

static Value convert(Partition *p, Value value, const Type *want, int id) {
  Graph *to = p->rewrite.to;
  const Type *have = graph_type(to, value);
  if (have->partial & ~want->partial) {
    value = make_whole(p, value);
    have = graph_type(to, value);
  }
  bool must_cut = false;
  for (int d = 0; d < have->rank; d++) {
    const Dim *dim = &have->dims[d];
    int at = type_find(want, dim->name);
    ASSERT(at >= 0);
    if (dim->split == want->dims[at].split) continue;
    AxisList more;
    if (axis_list_continues(want->dims[at].split, dim->split, &more)) {
      must_cut = true;
      continue;
    }
    const Node *node = p->rewrite.from->nodes.data[id];
    const char *path =
        node->path && *node->path ? node->path : op_info(node->op)->name;
    Diag *d = report_whole(p, path, dim, node->span, false);
    if (node->op == OP_route)
      diag_help(
          d, "with group = %s each element of it has capacity slots of its own",
          dim->name);
    return value;
  }
  if (!must_cut) return value;
  if (!is_computed(to, value)) return take_pieces(p, value, want);
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
      inputs[i] = gather_time(p, make_whole(p, inputs[i]), NULL);
    types[i] = graph_type(to, inputs[i]);
  }
  shard_infer(to, node->op, node->attrs, node->n_attrs, types, node->n_inputs,
              node->types, node->n_results, arena, wanted, results);
  rewrite_at(&p->rewrite, id);
  for (int i = 0; i < node->n_inputs; i++)
    inputs[i] = convert(p, inputs[i], wanted[i], id);
  Attrs attrs = node_attrs(node);
  Value first = graph_append_typed(to, node->op, inputs, node->n_inputs, &attrs,
                                   results, node->n_results, node->body);
  for (int r = 0; r < node->n_results; r++)
    rewrite_set(&p->rewrite, (Value){id, r}, (Value){first.node, r});
}

/* ---- scans ---- */

/* The finest split that some input of the scan gives a dim of this name: what
 * comes in larger pieces, like a carry that begins as zero, is probably to be
 * split in the same way. */
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
static const Type **place_body_inputs(Partition *p, const Node *node,
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

static Partition place_body(Partition *p, const Node *node,
                            const bool *is_partial, const Type *const *types) {
  Partition inner = {.ctx = p->ctx, .plan = p->plan, .mesh = p->mesh};
  inner.rewrite = rewrite_begin(p->ctx, node->body);
  inner.rewrite.to->mesh = *p->mesh;
  inner.whole = map_create(p->ctx->scratch);
  for (int id = 0; id < node->body->nodes.n; id++) {
    const Node *at = node->body->nodes.data[id];
    if (at->op != OP_input) {
      place_node(&inner, id);
      continue;
    }
    int64_t slot = node_int(at, ATTR_index, 0);
    rewrite_at(&inner.rewrite, id);
    rewrite_set(&inner.rewrite, (Value){id, 0},
                rewrite_input(inner.rewrite.to, &node->body->inputs.data[slot],
                              types[slot]));
  }
  for (int i = 0; i < scan_carries(node); i++) {
    Value value = node->body->outputs.data[i].value;
    if (!is_partial[i])
      rewrite_set(&inner.rewrite, value,
                  make_whole(&inner, rewrite_get(&inner.rewrite, value)));
  }
  return inner;
}

/* What a carry adds up, where it does nothing else. */
static Value summand(const Graph *body, int carry) {
  const Node *node = graph_node(body, body->outputs.data[carry].value);
  Value sum = body->inputs.data[carry].value;
  for (int i = 0; i < 2 && node->op == OP_add; i++)
    if (value_equal(node->inputs[i], sum)) return node->inputs[1 - i];
  return VALUE_NONE;
}

/* A carry that begins as zero and only adds up may stay a partial sum. */
static bool stays_partial(const Partition *p, const Node *node,
                          const Value *inputs, int carry) {
  double start;
  return value_is(summand(node->body, carry)) &&
         value_const(p->rewrite.to, inputs[carry], &start) && start == 0;
}

/* What a carry becomes is what it must begin as; true if that is news.  A sum
 * of partial values is partial from the beginning. */
static bool adopt_carries(const Node *node, const Partition *inner,
                          const bool *is_partial, const Type **types) {
  bool changed = false;
  for (int i = 0; i < scan_carries(node); i++) {
    Value more = is_partial[i] ? summand(node->body, i) : VALUE_NONE;
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

/* A loop over positions cannot wait for the other micro-batches. */
static void check_body(const Partition *p, const Graph *body) {
  for (int id = 0; id < body->nodes.n; id++) {
    const Node *node = body->nodes.data[id];
    if (node->op != OP_accumulate) continue;
    diag(p->ctx->module->diags, DIAG_needs_whole_batch, node->span,
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

static Value convert_scan_input(Partition *p, const Node *node, int i,
                                Value value, const Type *inner, int id) {
  const Type *want = inner;
  if (scan_input_role(node, i) == ROLE_slice)
    want = scan_stacked_type(p->ctx->module->arena, inner,
                             node_name(node, ATTR_dim), scan_steps(node));
  double number;
  if (want->partial && value_const(p->rewrite.to, value, &number) &&
      number == 0)
    return partial_zero(p, want);
  return convert(p, value, want, id);
}

/* The body is placed like a graph, with a guess for its carries, until they
 * come out as they went in.  What a position needs of all ranks is reduced
 * there; what is only stacked or added up, after the loop. */
static void place_scan(Partition *p, int id) {
  enum { MOST_TRIES = 8 };
  const Node *node = p->rewrite.from->nodes.data[id];
  Graph *to = p->rewrite.to;
  Value *inputs = rewrite_inputs(&p->rewrite, id);
  for (int i = 0; i < node->n_inputs; i++) inputs[i] = make_whole(p, inputs[i]);
  const Type **types = place_body_inputs(p, node, inputs);
  bool *is_partial = ARENA_ARRAY(p->ctx->scratch, bool, node->n_inputs);
  for (int i = 0; i < scan_carries(node); i++)
    is_partial[i] = stays_partial(p, node, inputs, i);
  Partition inner = place_body(p, node, is_partial, types);
  for (int i = 0;
       i < MOST_TRIES && adopt_carries(node, &inner, is_partial, types); i++)
    inner = place_body(p, node, is_partial, types);
  Graph *body = rewrite_end(&inner.rewrite);
  rewrite_at(&p->rewrite, id);
  check_body(p, body);
  bool is_good = !adopt_carries(node, &inner, is_partial, types);
  for (int i = 0; i < node->n_inputs; i++) {
    inputs[i] = convert_scan_input(p, node, i, inputs[i], types[i], id);
    is_good =
        is_good && (!types[i]->partial || graph_type(to, inputs[i])->partial);
  }
  if (!is_good)
    diag(p->ctx->module->diags, DIAG_scan_placement, node->span, node->path);
  Value first = scan_append(to, scan_form(node), inputs, body);
  for (int r = 0; r < node->n_results; r++)
    rewrite_set(&p->rewrite, (Value){id, r}, (Value){first.node, r});
}

/* A slot is left as it was found: split where its input is. */
static Value place_output(Partition *p, const InputIndex *inputs,
                          const GraphOutput *output) {
  Graph *to = p->rewrite.to;
  Value value = make_whole(p, rewrite_get(&p->rewrite, output->value));
  const GraphInput *slot = input_indexed(inputs, output->role, output->path);
  const Type *want = slot ? graph_type(to, slot->value) : NULL;
  value = gather_time(p, value, want);
  const Type *type = graph_type(to, value);
  if (!want) want = type_logical(p->ctx->module->arena, type);
  for (int d = 0; d < type->rank; d++) {
    int at = type_find(want, type->dims[d].name);
    if (type->dims[d].split && want->dims[at].split != type->dims[d].split) {
      Span span = graph_node(to, slot ? slot->value : value)->span;
      report_whole(p, output->path, &type->dims[d], span, slot != NULL);
      return value;
    }
  }
  return slot ? convert(p, value, want, output->value.node) : value;
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

/* Does a value lie as a pin about its path says?  Time is nobody's pin. */
static bool lies_as_pinned(const Partition *p, const PlanPlacement *placement,
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

static Name path_of(const Graph *graph, const Node *node) {
  if (node->op != OP_input) return node->path;
  return graph->inputs.data[node_int(node, ATTR_index, 0)].path;
}

/* What depends on nothing stored has no place of its own: who reads it
 * computes the piece that it needs. */
static bool is_placed(const Graph *graph, int id) {
  Value value = {id, 0};
  return graph_type(graph, value)->rank == 0 || !is_computed(graph, value);
}

/* Of the nodes of one path, which are parts of one operator, the last that
 * lies otherwise: its value is the one that the user knows. */
static const Node *last_otherwise(const Partition *p, const Graph *graph,
                                  const Node *first,
                                  const PlanPlacement *placement) {
  const Node *last = first;
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    if (node->phase == PHASE_forward && node->path == first->path &&
        !lies_as_pinned(p, placement, node->types[0]))
      last = node;
  }
  return last;
}

/* Placements follow from the inputs; one that a pin wants otherwise is not
 * made yet. */
static void check_placements(const Partition *p, const Graph *graph,
                             Map *told) {
  bool is_body = graph != p->rewrite.to;
  for (int id = 0; p->plan->placements.n > 0 && id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    if (node->phase != PHASE_forward || !node->path) continue;
    if (is_body && node->op == OP_input) continue;
    if (node->body) check_placements(p, node->body, told);
    Name path = path_of(graph, node);
    const PlanPlacement *placement = plan_find_placement(p->plan, path);
    if (!placement || map_has(told, placement) ||
        lies_as_pinned(p, placement, node->types[0]) || !is_placed(graph, id))
      continue;
    map_put(told, placement, (void *)placement);
    node = last_otherwise(p, graph, node, placement);
    Text type = text_create(p->ctx->scratch);
    type_print(&type, node->types[0], p->mesh);
    diag(p->ctx->module->diags, DIAG_placement, placement->span, path,
         text_string(&type));
  }
}

/* Whether another dim of the value is cut over an axis of this line. */
static bool is_taken(const Partition *p, const PlanShard *line,
                     const Type *type) {
  for (int d = 0; d < type->rank; d++) {
    AxisList list = type->dims[d].split;
    if (type->dims[d].name == line->dim) continue;
    for (int i = 0; i < axis_list_length(list); i++)
      for (int j = 0; j < line->n_axes; j++)
        if (p->mesh->axes[axis_list_at(list, i)].name == line->axes[j])
          return true;
  }
  return false;
}

/* A line about a name holds for every value that has it. */
static bool holds_line(const Partition *p, const Node *node,
                       const PlanShard *line) {
  const Type *type = node->types[0];
  int d = type_find(type, line->dim);
  if (d < 0 || is_taken(p, line, type)) return true;
  if (plan_find_placement(p->plan, path_of(p->rewrite.to, node))) return true;
  int n = 0, n_wanted = 0;
  Name wanted[MAX_AXES];
  for (int i = 0; i < line->n_axes; i++)
    if (!p->mesh->axes[mesh_find(p->mesh, line->axes[i])].is_sequential)
      wanted[n_wanted++] = line->axes[i];
  AxisList list = type->dims[d].split;
  for (int i = 0; i < axis_list_length(list); i++) {
    const MeshAxis *axis = &p->mesh->axes[axis_list_at(list, i)];
    if (axis->is_sequential) continue;
    if (n == n_wanted || wanted[n++] != axis->name) return false;
  }
  return n == n_wanted;
}

/* Such a line takes effect at the inputs; where values that have the name are
 * made of others, they lie as those do. */
static void check_lines(const Partition *p) {
  const Graph *graph = p->rewrite.to;
  bool has_errors = diags_errors(p->ctx->module->diags) > 0;
  for (int i = 0; i < p->plan->shards.n && !has_errors; i++) {
    const PlanShard *line = &p->plan->shards.data[i];
    bool is_last = plan_find_shard(p->plan, line->dim) == line;
    if (!is_last || line->dim == p->plan->batch_dim) continue;
    for (int id = 0; id < graph->nodes.n; id++) {
      const Node *node = graph->nodes.data[id];
      bool counts = node->phase == PHASE_forward && node->n_results == 1 &&
                    node->path && *node->path;
      if (!counts || holds_line(p, node, line)) continue;
      Text type = text_create(p->ctx->scratch);
      type_print(&type, node->types[0], p->mesh);
      diag(p->ctx->module->diags, DIAG_placement, line->span,
           path_of(graph, node), text_string(&type));
      break;
    }
  }
}

/* What runs for each micro-batch cannot wait for the sum over all of them. */
static void check_loop(const Partition *p) {
  const Graph *graph = p->rewrite.to;
  bool *follows = ARENA_ARRAY(p->ctx->scratch, bool, graph->nodes.n);
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    for (int i = 0; i < node->n_inputs; i++)
      follows[id] |= follows[node->inputs[i].node];
    if (follows[id] && node_is_per_microbatch(graph, id)) {
      diag(p->ctx->module->diags, DIAG_needs_whole_batch, node->span,
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
  p.whole = map_create(ctx->scratch);
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
  check_loop(&p);
  check_placements(&p, p.rewrite.to, map_create(ctx->scratch));
  check_lines(&p);
  return p.rewrite.to;
}
