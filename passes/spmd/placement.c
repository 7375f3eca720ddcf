/*
 * placement.c -- appends single operators that change a placement, and finds
 * the pin behind a placement for a message.
 *
 *     %1 : f32[B:8; sum@data]   ->   all_reduce %1 {axes = [data]} : f32[B:8]
 *
 * Where the transport of a target does not reduce a dtype, as 16-bit floats
 * that NCCL would round at every rank, another one is sent
 * (Target.reduce_dtype):
 *
 *     %1 : bf16[B:8; sum@data]
 *     ->  cast %1 : f32, all_reduce, cast : bf16[B:8]
 */
#include "passes/spmd/placement.h"

Type *type_copy(Arena *arena, const Type *type) {
  Type *copy = type_create(arena, type->dtype, type->rank);
  copy->partial = type->partial;
  copy->partial_kind = type->partial_kind;
  for (int d = 0; d < type->rank; d++) copy->dims[d] = type->dims[d];
  return copy;
}

static void axes_attr(const Partition *p, Attrs *attrs, AxisSet set) {
  Name *names = ARENA_ARRAY(p->ctx->scratch, Name, MAX_AXES);
  int n = 0;
  for (int a = 0; a < p->mesh->n_axes; a++)
    if (set >> a & 1) names[n++] = p->mesh->axes[a].name;
  attrs_names(attrs, ATTR_axes, names, n);
}

Value cast_placed(Partition *p, Value value, DType dtype) {
  const Type *type = graph_type(p->rewrite.to, value);
  if (type->dtype == dtype) return value;
  Attrs attrs = {0};
  Names *names = p->ctx->module->names;
  attrs_name(&attrs, ATTR_dtype, name_intern(names, dtype_name(dtype)));
  if (type->partial)
    attrs_name(&attrs, ATTR_reduce,
               name_intern(names, reduce_name(type->partial_kind)));
  const Type *types[1] = {type_with_dtype(p->ctx->module->arena, type, dtype)};
  return graph_append_typed(p->rewrite.to, OP_cast, &value, 1, &attrs, types, 1,
                            NULL);
}

/* A parameter, or what is looked up in one. */
static bool reads_parameter(const Graph *graph, Value value) {
  const Node *node = graph_node(graph, value);
  while (node->op == OP_gather || node->op == OP_cast || node->op == OP_after ||
         op_is(node->op, OPCLASS_view))
    node = graph_node(graph, node->inputs[0]);
  return node->op == OP_input &&
         graph->inputs.data[node_int(node, ATTR_index, 0)].role == ROLE_param;
}

/* Rows of a parameter that one rank holds, or a parameter that one rank adds:
 * the other ranks have zeros. */
static bool is_held_by_one(const Graph *graph, const Node *sum) {
  const Node *masked = graph_node(graph, sum->inputs[0]);
  return masked->op == OP_select && reads_parameter(graph, masked->inputs[1]);
}

/* The terms are products of 16-bit operands, or 16-bit values, or parameters:
 * no statistics, and nothing that the model computes in f32.  A partial operand
 * says what its result adds up. */
static bool adds_16bit(const Graph *graph, Value value, int depth) {
  const Node *node = graph_node(graph, value);
  bool is_first = true;
  if (dtype_is_16bit(node->types[value.result]->dtype)) return true;
  for (int i = 0; i < node->n_inputs; i++) {
    if (!graph_type(graph, node->inputs[i])->partial) continue;
    is_first = false;
    if (depth == 0 || !adds_16bit(graph, node->inputs[i], depth - 1))
      return false;
  }
  if (!is_first) return true;
  if (node->op == OP_sum) return is_held_by_one(graph, node);
  return node->op == OP_dot &&
         dtype_is_16bit(graph_type(graph, node->inputs[0])->dtype) &&
         dtype_is_16bit(graph_type(graph, node->inputs[1])->dtype);
}

/* The line `reduce = bf16` is about sums of values and of their gradients over
 * axes that shard no batch. */
AxisList rank_axes(const Partition *p, const PlanShard *shard) {
  AxisList list = 0;
  for (int i = 0; shard && i < shard->n_axes; i++) {
    int axis = mesh_find(p->mesh, shard->axes[i]);
    if (!p->mesh->axes[axis].is_sequential) list = axis_list_append(list, axis);
  }
  return list;
}

AxisSet batch_axes(const Partition *p) {
  return axis_list_set(rank_axes(p, plan_batch_shard(p->plan)));
}

static bool is_sent_in_bf16(const Partition *p, Value value) {
  enum { DEPTH = 16 };
  const Node *node = graph_node(p->rewrite.to, value);
  const Type *type = node->types[value.result];
  bool is_value =
      node->phase == PHASE_forward || node->phase == PHASE_input_gradient;
  return p->plan->reduces_bf16 && is_value && type->rank > 0 &&
         (type->dtype == DT_f32 || type->dtype == DT_bf16) &&
         type->partial_kind == REDUCE_sum &&
         !(type->partial & (mesh_sequential(p->mesh) | batch_axes(p))) &&
         adds_16bit(p->rewrite.to, value, DEPTH);
}

DType gradient_sum_dtype(const Partition *p, const Node *node,
                         const Type *type) {
  bool is_sum = node->phase == PHASE_weight_gradient && type->rank > 0 &&
                type->partial_kind == REDUCE_sum &&
                type->partial & ~mesh_sequential(p->mesh);
  return is_sum ? plan_compressed_dtype(p->plan, type->dtype) : type->dtype;
}

DType reduced_dtype(const Partition *p, Value value) {
  const Node *node = graph_node(p->rewrite.to, value);
  const Type *type = node->types[value.result];
  const Target *target = p->ctx->target;
  if (is_sent_in_bf16(p, value)) return DT_bf16;
  DType compressed = gradient_sum_dtype(p, node, type);
  if (compressed != type->dtype) return compressed;
  return target && target->reduce_dtype
             ? target->reduce_dtype(type->dtype, type->partial_kind)
             : type->dtype;
}

static bool is_product_of(const Graph *graph, Value value, DType dtype) {
  const Node *node = graph_node(graph, value);
  return node->op == OP_dot &&
         graph_type(graph, node->inputs[0])->dtype == dtype &&
         graph_type(graph, node->inputs[1])->dtype == dtype;
}

/* A matmul of 16-bit operands writes the rounded result itself. */
static Value round_dot(Partition *p, Value value, DType dtype) {
  const Node *node = graph_node(p->rewrite.to, value);
  Attrs attrs = node_attrs(node);
  attrs_name(&attrs, ATTR_dtype,
             name_intern(p->ctx->module->names, dtype_name(dtype)));
  const Type *types[1] = {
      type_with_dtype(p->ctx->module->arena, node->types[0], dtype)};
  return graph_append_typed(p->rewrite.to, OP_dot, node->inputs, node->n_inputs,
                            &attrs, types, 1, NULL);
}

Value cast_summand(Partition *p, Value value) {
  DType dtype = reduced_dtype(p, value);
  bool is_rounded = dtype_is_16bit(dtype) &&
                    graph_type(p->rewrite.to, value)->dtype == DT_f32;
  if (is_rounded && is_product_of(p->rewrite.to, value, dtype))
    return round_dot(p, value, dtype);
  return cast_placed(p, value, dtype);
}

Value reduce_over(Partition *p, Value value, AxisSet axes, Op op) {
  Graph *to = p->rewrite.to;
  const Type *type = graph_type(to, value);
  DType dtype = type->dtype;
  axes &= type->partial;
  if (!axes) return value;
  if (op == OP_all_reduce) value = cast_summand(p, value);
  type = graph_type(to, value);
  Type *reduced = type_copy(p->ctx->module->arena, type);
  reduced->partial &= (AxisSet)~axes;
  if (!reduced->partial) reduced->partial_kind = REDUCE_sum;
  Attrs attrs = {0};
  axes_attr(p, &attrs, axes);
  attrs_name(
      &attrs, ATTR_reduce,
      name_intern(p->ctx->module->names, reduce_name(type->partial_kind)));
  const Type *types[1] = {reduced};
  value = graph_append_typed(to, op, &value, 1, &attrs, types, 1, NULL);
  return cast_placed(p, value, dtype);
}

void axis_list_attr(const Partition *p, Attrs *attrs, AxisList list) {
  Name axes[MAX_AXES];
  int n = axis_list_length(list);
  for (int i = 0; i < n; i++)
    axes[i] = p->mesh->axes[axis_list_at(list, i)].name;
  attrs_names(attrs, ATTR_axes, arena_copy(p->ctx->scratch, axes, sizeof axes),
              n);
}

Value change_shards(Partition *p, Op op, Value value, int d, AxisList split,
                    AxisList axes) {
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

const Type *with_microbatches(const Partition *p, const Type *have,
                              const Type *want, AxisSet partial) {
  AxisSet sequential = mesh_sequential(p->mesh);
  Type *type = type_copy(p->ctx->module->arena, want);
  for (int d = 0; d < have->rank; d++) {
    AxisList ranks = type->dims[d].split, split = have->dims[d].split, time = 0;
    for (int i = 0; i < axis_list_length(split); i++)
      if (sequential >> axis_list_at(split, i) & 1)
        time = axis_list_append(time, axis_list_at(split, i));
    type->dims[d].split = p->plan->divides_microbatches
                              ? axis_list_join(time, ranks)
                              : axis_list_join(ranks, time);
  }
  type->partial |= partial & sequential;
  if (type->partial) type->partial_kind = have->partial_kind;
  return type_equal(type, have) ? have : type;
}

bool range_is_supported(Op op) {
  return op == OP_gather || op == OP_scatter_add;
}

/* ---- messages ---- */

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
  for (int i = plan->pins.n - 1; i >= 0; i--) {
    const PlanPin *pin = &plan->pins.data[i];
    for (int k = 0; k < pin->n_shards && pin_is_placement(pin); k++) {
      if (!shards_over(p, &pin->shards[k], dim->split)) continue;
      if (pin->shards[k].dim == dim->name) return pin->span;
      if (!any.source) any = pin->span;
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

void report_uneven(Partition *p, const Dim *dim, int64_t shards, Span place) {
  enum { MOST_SHARDS = 64 };
  Arena *scratch = p->ctx->scratch;
  const char *list = "1";
  for (int i = 2; i <= MOST_SHARDS && i <= dim->size; i++)
    if (dim->size % i == 0) list = arena_printf(scratch, "%s, %d", list, i);
  Diag *d = diag(p->ctx->module->diags, DIAG_shard_uneven, place, dim->name,
                 (long)dim->size, (long)shards);
  diag_help(d, "shard counts that divide %s: %s", dim->name, list);
}

Diag *report_unsupported_shard(Partition *p, Name path, const Dim *dim,
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
