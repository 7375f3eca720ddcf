/*
 * place_constraint.c -- brings the operand of a `constraint` into the placement
 * of its pin, and drops the node.
 *
 *     %1 = dot %x, %w : f32[B, T, C; sum@tensor]
 *     %2 = constraint %1 {axes = [tensor], sizes = [1], to = [T]}
 *  => %2 = reduce_scatter %1 ... : f32[B, T@tensor, C]
 *
 * A constraint that no node reads stands for all readers of its operand.
 */
#include "passes/spmd/follow_pins.h"
#include "passes/spmd/placement.h"
#include "passes/spmd/resharding.h"

#include <string.h>

bool span_equal(Span a, Span b) {
  return a.source == b.source && a.begin == b.begin && a.end == b.end;
}

Name constraint_path(Names *names, const Node *constraint) {
  static const char prefix[] = "grad.";
  size_t n = sizeof prefix - 1;
  bool is_gradient = constraint->phase != PHASE_forward && constraint->path &&
                     strncmp(constraint->path, prefix, n) == 0;
  return is_gradient ? name_intern(names, constraint->path + n)
                     : constraint->path;
}

static bool is_left_out(const Partition *p, const Node *constraint) {
  return p->trial->left_out.source &&
         span_equal(p->trial->left_out, constraint->span);
}

static bool has_axes(const Partition *p, const Node *node, AttrKey attr) {
  int n = 0;
  const Name *names = node_has(node, attr) ? node_names(node, attr, &n) : NULL;
  for (int i = 0; i < n; i++)
    if (mesh_find(p->mesh, names[i]) < 0) return false;
  return true;
}

/* The gradient of a value that goes on to the next stage may be made there: it
 * is a message, and the axes of the line are those of the stage before. */
static bool is_of_other_stage(const Partition *p, const Node *constraint) {
  return !has_axes(p, constraint, ATTR_axes) ||
         !has_axes(p, constraint, ATTR_partial);
}

/* Appends the micro-batches of the operand, which pins do not name. */
static AxisList constrained_axes(const Partition *p, AxisList axes,
                                 AxisList has) {
  AxisSet sequential = mesh_sequential(p->mesh);
  for (int i = 0; i < axis_list_length(has); i++)
    if (sequential >> axis_list_at(has, i) & 1)
      axes = axis_list_append(axes, axis_list_at(has, i));
  return axes;
}

static AxisSet constrained_partial(const Partition *p, const Node *node) {
  int n = 0;
  const Name *names =
      node_has(node, ATTR_partial) ? node_names(node, ATTR_partial, &n) : NULL;
  AxisSet axes = 0;
  for (int i = 0; i < n; i++)
    axes |= (AxisSet)(1u << mesh_find(p->mesh, names[i]));
  return axes;
}

/* The gradient of a value has its shards already, and is a partial sum: it is
 * reduced where it is read, as without the pin. */
static bool stays_partial_gradient(const Node *node, const Type *have,
                                   const Type *want) {
  bool is_gradient = node->phase == PHASE_input_gradient ||
                     node->phase == PHASE_weight_gradient;
  for (int d = 0; is_gradient && d < have->rank; d++)
    is_gradient = have->dims[d].split == want->dims[d].split;
  return is_gradient;
}

/* The placement that a trial has in place of the constraint. */
static const Type *replaced_type(const Partition *p, const Node *node,
                                 const Type *have) {
  const Map *instead = p->trial->instead;
  const Type *other =
      instead ? map_get(instead, constraint_path(p->ctx->module->names, node))
              : NULL;
  if (!other) return have;
  Type *want = type_copy(p->ctx->module->arena, have);
  AxisSet sequential = mesh_sequential(p->mesh);
  for (int d = 0; d < want->rank; d++) {
    int at = type_find(other, have->dims[d].name);
    AxisList axes =
        at < 0 ? 0 : axis_list_without(other->dims[at].split, sequential);
    want->dims[d].split = constrained_axes(p, axes, have->dims[d].split);
  }
  want->partial &= sequential;
  if (stays_partial_gradient(node, have, want)) want->partial = have->partial;
  if (!want->partial) want->partial_kind = REDUCE_sum;
  return want;
}

/* A gradient that gains shards is scattered in each micro-batch, and its shards
 * are accumulated; another one is reduced once. */
static bool scatters(const Type *have, const Type *want) {
  AxisSet axes = 0;
  for (int d = 0; d < want->rank; d++)
    axes |= axis_list_set(want->dims[d].split);
  return (axes & have->partial) != 0;
}

const Type *constrained_type(const Partition *p, const Node *node,
                             const Type *have) {
  if (is_of_other_stage(p, node)) return have;
  if (is_left_out(p, node)) return replaced_type(p, node, have);
  Type *want = type_copy(p->ctx->module->arena, have);
  int n, n_axes;
  const Name *to = node_names(node, ATTR_to, &n);
  const Name *axes = node_names(node, ATTR_axes, &n_axes);
  const int64_t *sizes = node_ints(node, ATTR_sizes, &n);
  for (int d = 0; d < want->rank; d++)
    want->dims[d].split = constrained_axes(p, 0, have->dims[d].split);
  for (int i = 0; i < n; i++) {
    AxisList list = 0;
    for (int64_t k = 0; k < sizes[i]; k++)
      list = axis_list_append(list, mesh_find(p->mesh, *axes++));
    int d = type_find(have, to[i]);
    want->dims[d].split = constrained_axes(p, list, have->dims[d].split);
  }
  want->partial &= mesh_sequential(p->mesh);
  want->partial |= constrained_partial(p, node);
  if (node->phase == PHASE_update && !scatters(have, want)) want->partial = 0;
  if (stays_partial_gradient(node, have, want)) want->partial = have->partial;
  if (!want->partial) want->partial_kind = REDUCE_sum;
  return want;
}

/* Micro-batches have one size. */
static bool has_even_microbatches(Partition *p, const Type *type, Span pin) {
  AxisSet sequential = mesh_sequential(p->mesh);
  for (int d = 0; d < type->rank; d++) {
    AxisList split = type->dims[d].split;
    int64_t shards = axis_list_shards(split, p->mesh);
    if (type->dims[d].size % shards == 0 ||
        !(axis_list_set(split) & sequential))
      continue;
    report_uneven(p, &type->dims[d], shards, pin);
    return false;
  }
  return true;
}

/* The body of a scan may be placed more than once: the last time counts. */
static void note_constraint(Partition *p, const Node *node, const Type *have,
                            const Type *want) {
  Arena *arena = p->ctx->module->arena;
  ConstraintNote note = {node, have, want};
  if (!p->trial->notes) p->trial->notes = map_create(arena);
  map_put(p->trial->notes, node, arena_copy(arena, &note, sizeof note));
}

void place_constraint(Partition *p, int id) {
  const Node *node = p->rewrite.from->nodes.data[id];
  Value value = rewrite_get(&p->rewrite, node->inputs[0]);
  const Type *have = graph_type(p->rewrite.to, value);
  const Type *want = constrained_type(p, node, have);
  note_constraint(p, node, p->summed[id] ? p->summed[id] : have, want);
  if ((is_left_out(p, node) || is_of_other_stage(p, node) ||
       check_partial_constraint(p, id, have)) &&
      has_even_microbatches(p, want, node->span))
    value = reshard(p, value, want, id);
  for (int d = 0; d < node->types[0]->rank; d++)
    value = transpose_dim(p, value,
                          type_find(graph_type(p->rewrite.to, value),
                                    node->types[0]->dims[d].name),
                          d);
  rewrite_set(&p->rewrite, (Value){id, 0}, value);
}

static bool is_any_partial(const Partition *p, int id) {
  const Node *node = p->rewrite.from->nodes.data[id];
  bool is_partial = false;
  for (int r = 0; r < node->n_results; r++)
    is_partial |=
        graph_type(p->rewrite.to, rewrite_get(&p->rewrite, (Value){id, r}))
            ->partial != 0;
  return is_partial;
}

/* A partial sum is reduced, and scattered, where it is read first, as it is
 * without the pin. */
void place_pins(Partition *p, int id, bool is_read) {
  if (!pin_first(&p->pins, id) || p->is_pinned[id] ||
      (!is_read && is_any_partial(p, id)))
    return;
  p->is_pinned[id] = true;
  for (int pin = pin_first(&p->pins, id); pin > 0; pin = p->pins.next[pin]) {
    Value operand = p->rewrite.from->nodes.data[pin]->inputs[0];
    rewrite_at(&p->rewrite, pin);
    place_constraint(p, pin);
    rewrite_set(&p->rewrite, operand,
                rewrite_get(&p->rewrite, (Value){pin, 0}));
  }
}
