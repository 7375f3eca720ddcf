/*
 * completion.c -- fills in the placements that constraints imply for values
 * which no line of the plan places.
 *
 *     plan: shard y: T over tensor
 *     %2 = dot %0, %1 {over = [C]}             [T, F; sum@tensor]
 *     %3 = add %2, %x                     =>   %2 is reduced and scattered
 *     %4 = constraint %3 {to = [T], ...}       along T, %x is sharded along T
 *
 * The walk of `partition` propagates placements forward, from operands to
 * results.  A value before a pin needs more: its target, the dims that a
 * constraint shards, which go backward from results to operands, and forward
 * from there to other readers, until nothing changes.  They pass operators that
 * keep a dim (elementwise ones, views, reductions, normalisations) and end at
 * inputs, at other constraints and at contractions, whose strategies are
 * compared.  A constraint that does nothing, because the placements that follow
 * from the operands are the pinned ones, has no target: a line that says what
 * holds anyway changes nothing.  A target is weaker than a constraint, than a
 * line about a name and than a placement that follows from the operands: it
 * shards dims that nothing else shards.  Whether a graph is completed at all is
 * decided by what its ranks send (partition.c).
 *
 * Xu et al. 2021, "GSPMD: General and Scalable Parallelization for ML
 * Computation Graphs", section 3.5.
 */
#include "ir/place/shardrule.h"
#include "passes/spmd/follow_pins.h"
#include "passes/spmd/placement.h"
#include "passes/spmd/resharding.h"

/* ---- targets ---- */

static AxisSet target_axes(const AxisList *target) {
  AxisSet axes = 0;
  for (int d = 0; d < MAX_RANK; d++) axes |= axis_list_set(target[d]);
  return axes;
}

/* A pin of the value shards dim `d` in another way. */
static bool is_pinned_otherwise(const Partition *p, int id, int d,
                                AxisList axes) {
  int pin = pin_first(&p->pins, id);
  if (!pin) return false;
  const Graph *graph = p->rewrite.from;
  const Type *want = constrained_type(p, graph->nodes.data[pin],
                                      graph->nodes.data[id]->types[0]);
  return want->dims[d].split != axes;
}

/* The value gets this target along a dim, if it has none and can have it. */
static bool add_target(Partition *p, Value value, Name dim, AxisList axes) {
  const Node *node = graph_node(p->rewrite.from, value);
  const Type *type = node->types[0];
  int d = type_find(type, dim);
  if (node->op == OP_input || node->op == OP_constraint ||
      node->n_results != 1 || node->phase != PHASE_forward || d < 0 ||
      type->dims[d].size % axis_list_shards(axes, p->mesh) != 0 ||
      is_pinned_otherwise(p, value.node, d, axes))
    return false;
  AxisList **target = &p->targets[value.node];
  if (!*target) *target = ARENA_ARRAY(p->ctx->scratch, AxisList, MAX_RANK);
  if ((*target)[d] || target_axes(*target) & axis_list_set(axes)) return false;
  (*target)[d] = axes;
  return true;
}

/* Constraints have their own axes as target. */
static void add_constraint_target(Partition *p, int id) {
  const Node *node = p->rewrite.from->nodes.data[id];
  const Type *want = constrained_type(p, node, node->types[0]);
  AxisList *target = ARENA_ARRAY(p->ctx->scratch, AxisList, MAX_RANK);
  for (int d = 0; d < want->rank; d++) {
    target[d] = want->dims[d].split;
    if (target[d])
      add_target(p, node->inputs[0], want->dims[d].name, target[d]);
  }
  p->targets[id] = target;
}

/* The target of a value: that of its pin, else that of its node. */
static const AxisList *target_of(const Partition *p, Value value) {
  int pin = pin_first(&p->pins, value.node);
  while (pin > 0 &&
         !value_equal(p->rewrite.from->nodes.data[pin]->inputs[0], value))
    pin = p->pins.next[pin];
  return pin > 0 && p->targets[pin] ? p->targets[pin] : p->targets[value.node];
}

/* ---- propagation ---- */

static bool keeps_dims(const Node *node) {
  return node->phase == PHASE_forward && node->n_results == 1 &&
         (op_is(node->op, OPCLASS_elementwise) ||
          op_is(node->op, OPCLASS_view) ||
          op_is(node->op, OPCLASS_data_movement) ||
          op_is(node->op, OPCLASS_reduction) ||
          op_is(node->op, OPCLASS_normalisation));
}

static bool passes_dim(const Partition *p, const ShardDim *dim, AxisList axes) {
  return dim->treatment == SHARD_pass && dim->name && dim->result_name &&
         dim->even_size % axis_list_shards(axes, p->mesh) == 0;
}

static bool propagate_backward(Partition *p, int id, const ShardRule *rule) {
  const Node *node = p->rewrite.from->nodes.data[id];
  const AxisList *target = p->targets[id];
  bool changed = false;
  for (int d = 0; target && d < node->types[0]->rank; d++) {
    int at = shard_rule_result(rule, node->types[0]->dims[d].name);
    if (!target[d] || at < 0 || !passes_dim(p, &rule->dims[at], target[d]))
      continue;
    for (int i = 0; i < node->n_inputs; i++)
      changed |= add_target(p, node->inputs[i], rule->dims[at].name, target[d]);
  }
  return changed;
}

static bool propagate_forward(Partition *p, int id, const ShardRule *rule) {
  const Graph *graph = p->rewrite.from;
  const Node *node = graph->nodes.data[id];
  bool changed = false;
  for (int i = 0; i < node->n_inputs; i++) {
    const AxisList *target = target_of(p, node->inputs[i]);
    const Type *type = graph_type(graph, node->inputs[i]);
    for (int d = 0; target && d < type->rank; d++) {
      int at = shard_rule_input(rule, type->dims[d].name);
      if (target[d] && at >= 0 && passes_dim(p, &rule->dims[at], target[d]))
        changed |= add_target(p, (Value){id, 0}, rule->dims[at].result_name,
                              target[d]);
    }
  }
  return changed;
}

static bool has_any_target(const Partition *p, int id) {
  const Node *node = p->rewrite.from->nodes.data[id];
  bool has_any = p->targets[id] != NULL;
  for (int i = 0; i < node->n_inputs && !has_any; i++)
    has_any = target_of(p, node->inputs[i]) != NULL;
  return has_any;
}

static bool propagate_targets(Partition *p, int id, bool is_forward) {
  const Node *node = p->rewrite.from->nodes.data[id];
  if (!keeps_dims(node) || node->op == OP_constraint || !has_any_target(p, id))
    return false;
  ShardCall call = shard_call(p->rewrite.from, node);
  ShardRule rule;
  shard_rule(&call, &rule);
  return is_forward ? propagate_forward(p, id, &rule)
                    : propagate_backward(p, id, &rule);
}

/* The pin had something to do, as a run without targets noted. */
static bool is_active(const Partition *p, int id) {
  const Node *node = p->rewrite.from->nodes.data[id];
  const Map *before = p->trial->before;
  const ConstraintNote *note =
      before && pin_is_at(&p->pins, id) ? map_get(before, node) : NULL;
  return !note || !type_equal(note->have, note->want);
}

void find_targets(Partition *p) {
  const Graph *graph = p->rewrite.from;
  int n = graph->nodes.n;
  bool changed = false;
  if (!p->trial->completes) return;
  p->targets = ARENA_ARRAY(p->ctx->scratch, AxisList *, n);
  for (int id = 0; id < n; id++) {
    const Node *node = graph->nodes.data[id];
    if (node->op != OP_constraint || node->phase != PHASE_forward ||
        !is_active(p, id))
      continue;
    add_constraint_target(p, id);
    changed = true;
  }
  while (changed) {
    changed = false;
    for (int id = n - 1; id >= 0; id--)
      changed |= propagate_targets(p, id, false);
    for (int id = 0; id < n; id++) changed |= propagate_targets(p, id, true);
  }
}

/* ---- placing ---- */

/* The type of node `id`'s value in the placement of its target; NULL: it has
 * that already. */
static const Type *targeted_type(const Partition *p, int id, const Type *type) {
  const Type *logical = p->rewrite.from->nodes.data[id]->types[0];
  const AxisList *target = p->targets[id];
  Type *want = NULL;
  AxisSet used = 0;
  for (int d = 0; d < type->rank; d++)
    used |= axis_list_set(type->dims[d].split);
  for (int d = 0; d < type->rank; d++) {
    int at = type_find(logical, type->dims[d].name);
    AxisSet axes = at < 0 ? 0 : axis_list_set(target[at]);
    if (!axes || type->dims[d].split || axes & used) continue;
    if (!want) want = type_copy(p->ctx->module->arena, type);
    used |= axes;
    want->dims[d].split = target[at];
    want->partial &= (AxisSet)~axes;
    if (!want->partial) want->partial_kind = REDUCE_sum;
  }
  return want;
}

/* Its only reader adds the partial sum to others and has a target of its own,
 * so that one reduction serves all terms. */
static bool is_reduced_later(const Partition *p, int id) {
  const Graph *graph = p->rewrite.from;
  int first = p->first_reader[id];
  if (p->first_reader[id + 1] - first != 1) return false;
  const Node *reader = graph->nodes.data[p->readers[first]];
  ShardCall call = shard_call(graph, reader);
  return reader->op == OP_constraint ||
         (reader->phase == PHASE_forward && p->targets[p->readers[first]] &&
          op_is(reader->op, OPCLASS_elementwise) &&
          shard_linearity(&call) == LINEAR_all);
}

Value place_by_target(Partition *p, int id, Value value) {
  const Type *type = graph_type(p->rewrite.to, value);
  if (!p->targets || !p->targets[id] || pin_first(&p->pins, id) ||
      is_computed(p->rewrite.to, value) ||
      (type->partial && is_reduced_later(p, id)))
    return value;
  const Type *want = targeted_type(p, id, type);
  if (!want) return value;
  p->trial->is_changed = true;
  return reshard(p, value, want, id);
}
