/*
 * named_pins.c -- reports pins about names that do not hold.
 */
#include "ir/place/shardrule.h"
#include "passes/spmd/follow_pins.h"
#include "passes/spmd/resharding.h"
#include "passes/spmd/zero.h"

#include <string.h>

/* The dim that the axis shards, or NULL. */
static const Dim *dim_over_axis(const Type *type, int axis) {
  for (int d = 0; d < type->rank; d++)
    if (axis_list_set(type->dims[d].split) >> axis & 1) return &type->dims[d];
  return NULL;
}

/* The forward node that reads the value of constraint `id` and is not linear,
 * or NULL.  A cast is computed after the sum. */
static const Node *find_reader_of_sum(const Partition *p, int id) {
  const Graph *from = p->rewrite.from;
  if (pin_is_at(&p->pins, id)) id = from->nodes.data[id]->inputs[0].node;
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

bool check_partial_constraint(Partition *p, int id, const Type *have) {
  const Node *node = p->rewrite.from->nodes.data[id];
  const PlanPin *pin = plan_find_placement(p->plan, node->path);
  Diags *diags = p->ctx->module->diags;
  if (!pin || pin->n_partial == 0) return true;
  for (int i = 0; i < pin->n_partial; i++) {
    const Dim *dim = dim_over_axis(have, mesh_find(p->mesh, pin->partial[i]));
    if (!dim) continue;
    Diag *d = diag(diags, DIAG_partial_pin, pin->span, node->path,
                   pin->partial[i], dim->name);
    diag_note(d, graph_node(p->rewrite.from, node->inputs[0])->span,
              "it is computed here");
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

/* Pins name no micro-batches, and no axes that ZeRO adds. */
static bool is_implied_axis(const Partition *p, int axis) {
  return p->mesh->axes[axis].is_sequential ||
         (zero_all_axes(p) >> axis & 1) != 0;
}

bool has_line_axes(const Partition *p, AxisList split, AxisList line) {
  int n = 0, n_wanted = axis_list_length(line);
  for (int i = 0; i < axis_list_length(split); i++) {
    int axis = axis_list_at(split, i);
    bool is_named = n < n_wanted && axis_list_at(line, n) == axis;
    if (!is_named && !is_implied_axis(p, axis)) return false;
    n += is_named;
  }
  return n == n_wanted;
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

/* A pin of a dim name holds for every value that has the dim.  `node`: of the
 * old graph, as a constraint is dropped in the new one; `type`: of its result
 * there. */
static bool holds_named_pin(const Partition *p, const Node *node,
                            const Type *type, const PlanShard *pin) {
  int d = type_find(type, pin->dim);
  if (d < 0 || is_axis_taken(p, pin, type)) return true;
  Name path = path_of_node(p->rewrite.from, node);
  if (plan_find_placement(p->plan, path)) return true;
  if (node->op == OP_input && plan_named_dim(p->plan, path, pin->dim) != pin)
    return true;
  return has_line_axes(p, type->dims[d].split,
                       plan_line_axes(p, &type->dims[d]));
}

/* The value of an old node is one that pins of dim names are about. */
static bool is_value_of_plan(const Partition *p, int id) {
  const Node *old = p->rewrite.from->nodes.data[id];
  if (old->n_results != 1 || old->phase != PHASE_forward) return false;
  Value value = rewrite_get(&p->rewrite, (Value){id, 0});
  const Node *node = graph_node(p->rewrite.to, value);
  return node->phase == PHASE_forward && node->n_results == 1 && node->path &&
         *node->path;
}

static void check_named_pin(const Partition *p, const PlanShard *pin,
                            const int *ids, int n) {
  const Graph *graph = p->rewrite.to, *from = p->rewrite.from;
  for (int i = 0; i < n; i++) {
    const Node *old = from->nodes.data[ids[i]];
    Value value = rewrite_get(&p->rewrite, (Value){ids[i], 0});
    const Type *type = graph_type(graph, value);
    if (holds_named_pin(p, old, type, pin) || !is_placed(graph, value.node))
      continue;
    Text text = text_create(p->ctx->scratch);
    type_print(&text, type, p->mesh);
    diag(p->ctx->module->diags, DIAG_placement, pin->span,
         path_of_node(from, old), text_string(&text));
    return;
  }
}

void check_named_pins(const Partition *p) {
  int n = 0, *ids = NULL; /* those that count, once there is a pin */
  bool has_errors = diags_errors(p->ctx->module->diags) > 0;
  for (int i = 0; i < p->plan->shards.n && !has_errors; i++) {
    const PlanShard *pin = &p->plan->shards.data[i];
    bool is_last = plan_find_shard(p->plan, pin->dim) == pin;
    if (!is_last || pin->dim == p->plan->batch_dim) continue;
    if (!ids) {
      ids = ARENA_ARRAY(p->ctx->scratch, int, p->rewrite.from->nodes.n);
      for (int id = 0; id < p->rewrite.from->nodes.n; id++)
        if (is_value_of_plan(p, id)) ids[n++] = id;
    }
    check_named_pin(p, pin, ids, n);
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
