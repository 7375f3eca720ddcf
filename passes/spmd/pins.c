/*
 * pins.c -- brings values into the placements that pins about their paths ask
 * for, and reports pins that do not hold.
 */
#include "ir/shardrule.h"
#include "passes/spmd/partition.h"

#include <string.h>

/* The nodes of one path are parts of one operator; the user knows the value of
 * the last. */
void find_pinned_values(Partition *p) {
  const Graph *graph = p->rewrite.from;
  p->pinned = map_create(p->ctx->scratch);
  for (int id = 0; p->plan->placements.n > 0 && id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    if (node->phase != PHASE_forward || node->op == OP_input ||
        node->n_results != 1 || !node->path ||
        !plan_find_placement(p->plan, node->path))
      continue;
    map_put(p->pinned, node->path, (void *)(intptr_t)(id + 1));
  }
}

/* The axes of a dim: those that the pin names, then its micro-batches. */
static AxisList pinned_axes(const Partition *p, const PlanShard *shard,
                            AxisList has) {
  AxisList axes = 0;
  AxisSet sequential = mesh_sequential(p->mesh);
  for (int i = 0; shard && i < shard->n_axes; i++)
    axes = axis_list_append(axes, mesh_find(p->mesh, shard->axes[i]));
  for (int i = 0; i < axis_list_length(has); i++)
    if (sequential >> axis_list_at(has, i) & 1)
      axes = axis_list_append(axes, axis_list_at(has, i));
  return axes;
}

/* The dim that the axis shards, or NULL. */
static const Dim *dim_over_axis(const Type *type, int axis) {
  for (int d = 0; d < type->rank; d++)
    if (axis_list_set(type->dims[d].split) >> axis & 1) return &type->dims[d];
  return NULL;
}

/* The forward node that reads the value of node `id` and is not linear, or
 * NULL.  A cast is computed after the sum. */
static const Node *find_reader_of_sum(const Partition *p, int id) {
  const Graph *from = p->rewrite.from;
  for (int i = p->first_reader[id]; i < p->first_reader[id + 1]; i++) {
    const Node *reader = from->nodes.data[p->readers[i]];
    if (reader->phase != PHASE_forward || reader->op == OP_cast ||
        op_has(reader->op, OP_FLAG_exact))
      continue;
    ShardCall call = shard_call(from, reader);
    if (shard_linearity(&call) == LINEAR_no) return reader;
  }
  return NULL;
}

/* A pin `partial` that cannot hold is reported. */
static bool check_partial_pin(Partition *p, int id, const Type *have,
                              const PlanPlacement *pin) {
  const Node *node = p->rewrite.from->nodes.data[id];
  Diags *diags = p->ctx->module->diags;
  if (pin->n_partial == 0) return true;
  for (int i = 0; i < pin->n_partial; i++) {
    const Dim *dim = dim_over_axis(have, mesh_find(p->mesh, pin->partial[i]));
    if (!dim) continue;
    Diag *d = diag(diags, DIAG_partial_pin, pin->span, node->path,
                   pin->partial[i], dim->name);
    diag_note(d, node->span, "it is computed here");
    diag_help(d, "a value becomes partial where its operator sums over a "
                 "sharded dimension, or where it is replicated");
    return false;
  }
  const Node *reader = find_reader_of_sum(p, id);
  if (!reader) return true;
  Diag *d = diag(diags, DIAG_partial_reader, pin->span, node->path,
                 pin->partial[0], op_info(reader->op)->name);
  diag_note(d, reader->span, "it is read here");
  diag_help(d, "pin a value after which only linear operators come");
  return false;
}

Value place_as_pinned(Partition *p, int id, Value value) {
  const Node *node = p->rewrite.from->nodes.data[id];
  if (!p->pinned || p->plan->replicates_data || !node->path ||
      (intptr_t)map_get(p->pinned, node->path) != id + 1)
    return value;
  const PlanPlacement *placement = plan_find_placement(p->plan, node->path);
  const Type *have = graph_type(p->rewrite.to, value);
  if (!check_partial_pin(p, id, have, placement)) return value;
  Type *want = type_copy(p->ctx->module->arena, have);
  for (int d = 0; d < want->rank; d++)
    want->dims[d].split = pinned_axes(
        p, plan_placed_dim(placement, want->dims[d].name), have->dims[d].split);
  want->partial &= mesh_sequential(p->mesh);
  for (int i = 0; i < placement->n_partial; i++)
    want->partial |= (AxisSet)(1u << mesh_find(p->mesh, placement->partial[i]));
  if (!want->partial) want->partial_kind = REDUCE_sum;
  return reshard(p, value, want, id);
}

/* Pins name no micro-batches, and no axes that ZeRO adds. */
static bool is_implied_axis(const Partition *p, int axis) {
  return p->mesh->axes[axis].is_sequential ||
         (p->plan->zero >= 3 && zero_all_axes(p) >> axis & 1);
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
      int axis = axis_list_at(list, i);
      bool is_named = shard && n < shard->n_axes &&
                      shard->axes[n] == p->mesh->axes[axis].name;
      if (!is_named && !is_implied_axis(p, axis)) return false;
      n += is_named;
    }
    if (shard && n < shard->n_axes) return false;
  }
  AxisSet partial = 0;
  for (int i = 0; i < placement->n_partial; i++)
    partial |= (AxisSet)(1u << mesh_find(p->mesh, placement->partial[i]));
  return !partial || partial == (type->partial & ~mesh_sequential(p->mesh));
}

/* An average, "ema/PATH", has the placement of its parameter. */
static Name path_of_node(const Graph *graph, const Node *node) {
  if (node->op != OP_input) return node->path;
  const GraphInput *input = &graph->inputs.data[node_int(node, ATTR_index, 0)];
  const char *slash = input->role == ROLE_ema ? strchr(input->path, '/') : NULL;
  return slash ? name_intern(graph->module->names, slash + 1) : input->path;
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

/* The value was resharded: another node of its path holds the pin. */
static bool is_held(const Partition *p, const Graph *graph, Name path,
                    const PlanPlacement *placement) {
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    if (node->phase == PHASE_forward && node->path == path &&
        placed_as_pinned(p, placement, node->types[0]))
      return true;
  }
  return false;
}

void check_placements(const Partition *p, const Graph *graph, Map *told) {
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
    if (is_held(p, graph, path, placement)) continue;
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
    int axis = axis_list_at(list, i);
    bool is_named = n < n_wanted && wanted[n] == p->mesh->axes[axis].name;
    if (!is_named && !is_implied_axis(p, axis)) return false;
    n += is_named;
  }
  return n == n_wanted;
}

void check_named_pins(const Partition *p) {
  const Graph *graph = p->rewrite.to, *from = p->rewrite.from;
  bool has_errors = diags_errors(p->ctx->module->diags) > 0;
  for (int i = 0; i < p->plan->shards.n && !has_errors; i++) {
    const PlanShard *pin = &p->plan->shards.data[i];
    bool is_last = plan_find_shard(p->plan, pin->dim) == pin;
    if (!is_last || pin->dim == p->plan->batch_dim) continue;
    for (int id = 0; id < from->nodes.n; id++) {
      if (from->nodes.data[id]->n_results != 1) continue;
      Value value = rewrite_get(&p->rewrite, (Value){id, 0});
      const Node *node = graph_node(graph, value);
      bool counts = node->phase == PHASE_forward && node->n_results == 1 &&
                    node->path && *node->path && is_placed(graph, value.node);
      if (!counts || holds_named_pin(p, node, pin)) continue;
      Text type = text_create(p->ctx->scratch);
      type_print(&type, node->types[0], p->mesh);
      diag(p->ctx->module->diags, DIAG_placement, pin->span,
           path_of_node(graph, node), text_string(&type));
      break;
    }
  }
}

AxisList plan_line_axes(const Partition *p, const Dim *dim) {
  const PlanShard *line = plan_find_shard(p->plan, dim->name);
  AxisList axes = 0;
  if (!line || dim->name == p->plan->batch_dim) return 0;
  for (int i = 0; i < line->n_axes; i++)
    axes = axis_list_append(axes, mesh_find(p->mesh, line->axes[i]));
  return axes;
}
