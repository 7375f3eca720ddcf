/*
 * partial_values.c -- decides where a partial sum is reduced, before the
 * readers of it are placed one by one.
 *
 *     dy [B, T; sum@model], xhat [B, T@model], gamma [C]
 *
 * Readers that are linear in dy would keep it partial, and the product with
 * xhat would reduce it.  A reader that needs shards decides for all of them: dy
 * is reduced and scattered once; if none needs shards, it is reduced once for
 * all readers.  A cast that reads the sum needs what its pin says and what its
 * readers need, so that the sum is scattered before it is rounded.  And a term
 * that is broadcast, such as a bias, does not end a partial sum: the first rank
 * of the group adds it.  Where the sum is reduced for another reader already,
 * as logits are for their maximum, or would be reduced for all readers of the
 * result, the term is added to the reduced sum.
 */
#include "passes/spmd/follow_pins.h"
#include "passes/spmd/placement.h"
#include "passes/spmd/resharding.h"

void index_readers(Partition *p) {
  const Graph *graph = p->rewrite.from;
  Arena *arena = p->ctx->scratch;
  int n = graph->nodes.n;
  p->pins = graph_pins(graph, arena);
  p->is_pinned = ARENA_ARRAY(arena, bool, n);
  p->summed = ARENA_ARRAY(arena, const Type *, n);
  p->first_reader = ARENA_ARRAY(arena, int, n + 2);
  for (int id = 0; id < n; id++) {
    const Node *node = graph->nodes.data[id];
    for (int i = 0; i < node->n_inputs && !pin_is_at(&p->pins, id); i++)
      p->first_reader[node->inputs[i].node + 2]++;
  }
  for (int id = 0; id < n; id++)
    p->first_reader[id + 2] += p->first_reader[id + 1];
  p->readers = ARENA_ARRAY(arena, int, p->first_reader[n + 1] + 1);
  for (int id = 0; id < n; id++) {
    const Node *node = graph->nodes.data[id];
    for (int i = 0; i < node->n_inputs && !pin_is_at(&p->pins, id); i++)
      p->readers[p->first_reader[node->inputs[i].node + 1]++] = id;
  }
}

/* The shards that an operand of this reader has over axes of the partial sum,
 * along dims of it; NULL: none. */
static const Type *shards_of_reader(Partition *p, const Node *reader,
                                    const Type *partial) {
  for (int i = 0; i < reader->n_inputs; i++) {
    Value other = reader->inputs[i];
    if (!value_is(rewrite_find(&p->rewrite, other))) continue;
    const Type *type =
        graph_type(p->rewrite.to, rewrite_get(&p->rewrite, other));
    for (int d = 0; d < type->rank; d++) {
      int at = type_find(partial, type->dims[d].name);
      AxisList split = type->dims[d].split;
      if (at < 0 || partial->dims[at].split ||
          !(axis_list_set(split) & partial->partial) ||
          axis_list_set(split) & ~partial->partial)
        continue;
      Type *want = type_copy(p->ctx->module->arena, partial);
      want->dims[at].split = split;
      want->partial &= (AxisSet)~axis_list_set(split);
      if (!want->partial) want->partial_kind = REDUCE_sum;
      return want;
    }
  }
  return NULL;
}

static const Type *shards_of_readers(Partition *p, int id, const Type *partial);

/* The shards over axes of the partial sum that the pin of node `id`, which
 * reads it, asks for, or NULL. */
static const Type *shards_of_pin(Partition *p, int id, const Type *partial) {
  int pin = pin_first(&p->pins, id);
  if (!pin) return NULL;
  const Type *want =
      constrained_type(p, p->rewrite.from->nodes.data[pin], partial);
  AxisSet axes = 0;
  for (int d = 0; d < want->rank; d++)
    axes |= axis_list_set(want->dims[d].split);
  if (!(axes & partial->partial)) return NULL;
  p->summed[pin] = partial;
  return want;
}

/* The shards of the partial sum that node `id`, which reads it, needs, or NULL.
 * A cast needs those of its pin and, where placements are completed, of its
 * readers: the sum is reduced before it is rounded. */
static const Type *shards_for(Partition *p, int id, const Type *partial) {
  const Node *node = p->rewrite.from->nodes.data[id];
  if (node->op == OP_scan) return NULL;
  if (node->op != OP_cast) return shards_of_reader(p, node, partial);
  const Type *want = shards_of_pin(p, id, partial);
  if (want || pin_first(&p->pins, id) || !p->targets) return want;
  return shards_of_readers(p, id, partial);
}

/* The shards that one of the readers of node `id` needs. */
static const Type *shards_of_readers(Partition *p, int id,
                                     const Type *partial) {
  const Type *want = NULL;
  for (int i = p->first_reader[id]; i < p->first_reader[id + 1] && !want; i++)
    want = shards_for(p, p->readers[i], partial);
  return want;
}

/* Several readers, and none that adds up batches: reducing the value now is one
 * reduction, and later may be one for each reader. */
static bool is_reduced_once(const Partition *p, const Node *node,
                            const Type *type) {
  const PlanPin *pin = plan_find_placement(p->plan, node->path);
  bool is_on_path =
      node->phase == PHASE_forward || node->phase == PHASE_input_gradient;
  return is_on_path && type->rank > 0 && !(pin && pin->n_partial > 0) &&
         !(type->partial & (mesh_sequential(p->mesh) | batch_axes(p)));
}

/* A pin or a node decides that does not read the value itself, or not first. */
static bool has_distant_readers(const Partition *p, int id) {
  int first = p->first_reader[id], n = p->first_reader[id + 1] - first;
  if (n != 1) return n > 1;
  int reader = p->readers[first];
  return p->rewrite.from->nodes.data[reader]->op == OP_cast &&
         (p->targets || pin_first(&p->pins, reader));
}

void settle_partial(Partition *p, Value old, int id) {
  Value value = rewrite_get(&p->rewrite, old);
  const Type *type = graph_type(p->rewrite.to, value);
  if (!type->partial || !has_distant_readers(p, old.node)) return;
  const Type *want = shards_of_readers(p, old.node, type);
  if (want)
    rewrite_set(&p->rewrite, old, reshard(p, value, want, id));
  else if (p->first_reader[old.node + 1] - p->first_reader[old.node] > 1 &&
           is_reduced_once(p, p->rewrite.from->nodes.data[old.node], type))
    rewrite_set(&p->rewrite, old, reduce_partial(p, value));
}

/* Every dim of `small` is one of `large`, which has more; no scalar, such as
 * the epsilon of a variance. */
static bool is_broadcast(const Type *small, const Type *large) {
  for (int d = 0; d < small->rank; d++)
    if (type_find(large, small->dims[d].name) < 0) return false;
  return small->rank > 0 && small->rank < large->rank;
}

/* Something besides the readers that are placed already would shard the sum of
 * node `id` over axes over which it is partial: a pin, a line about a name or a
 * target. */
static bool may_be_scattered(const Partition *p, int id, const Type *partial) {
  const Type *logical = p->rewrite.from->nodes.data[id]->types[0];
  const AxisList *target = p->targets ? p->targets[id] : NULL;
  AxisSet axes = 0;
  for (int d = 0; d < logical->rank; d++)
    axes |= axis_list_set(plan_line_axes(p, &logical->dims[d])) |
            (target ? axis_list_set(target[d]) : 0);
  int pin = pin_first(&p->pins, id);
  const Type *want =
      pin ? constrained_type(p, p->rewrite.from->nodes.data[pin], partial)
          : NULL;
  for (int d = 0; want && d < want->rank; d++)
    axes |= axis_list_set(want->dims[d].split);
  return (axes & partial->partial) != 0;
}

/* The result of node `id` would be reduced in full as soon as it is read, if it
 * were partial like its operand `sum`: it may as well be reduced before. */
static bool is_reduced_next(Partition *p, int id, const Type *sum) {
  const Node *node = p->rewrite.from->nodes.data[id];
  int first = p->first_reader[id], end = p->first_reader[id + 1];
  if (end - first < 2 || !is_reduced_once(p, node, sum) ||
      may_be_scattered(p, id, sum))
    return false;
  for (int i = first; i < end; i++) {
    const Node *reader = p->rewrite.from->nodes.data[p->readers[i]];
    if (reader->op == OP_constraint || shards_of_reader(p, reader, sum))
      return false;
  }
  return true;
}

/* The sum is reduced for another reader, over axes of tensors alone. */
static bool is_reduced_already(const Partition *p, Value value) {
  const Type *type = graph_type(p->rewrite.to, value);
  return type->partial && map_has(p->reduced, value_key(value)) &&
         !(type->partial & (mesh_sequential(p->mesh) | batch_axes(p)));
}

static bool is_scalar_sum(const Type *type) {
  return type->rank == 0 && type->partial_kind == REDUCE_sum;
}

/* The sum of two scalars of the update, as the norm adds up over the tensors:
 * each becomes a partial sum over the axes of both, which costs nothing, so
 * that all are reduced once, at the end. */
static void join_scalar_sums(Partition *p, int id, Value *inputs) {
  const Type *a = graph_type(p->rewrite.to, inputs[0]);
  const Type *b = graph_type(p->rewrite.to, inputs[1]);
  AxisSet axes = a->partial | b->partial;
  if (!is_scalar_sum(a) || !is_scalar_sum(b) || axes & mesh_sequential(p->mesh))
    return;
  for (int i = 0; i < 2; i++) {
    const Type *type = graph_type(p->rewrite.to, inputs[i]);
    if (type->partial == axes) continue;
    Type *want = type_copy(p->ctx->module->arena, type);
    want->partial = axes;
    inputs[i] = reshard(p, inputs[i], want, id);
  }
}

void keep_partial(Partition *p, int id, Value *inputs) {
  const Node *node = p->rewrite.from->nodes.data[id];
  if (node->op == OP_add && node->phase == PHASE_update)
    join_scalar_sums(p, id, inputs);
  bool is_move = node->n_inputs == 1 && op_has(node->op, OP_FLAG_exact);
  if (is_move && is_reduced_already(p, inputs[0]))
    inputs[0] = reduce_partial(p, inputs[0]);
  if (node->n_inputs != 2 || op_info(node->op)->linear != LINEAR_all ||
      node->phase == PHASE_update)
    return;
  for (int i = 0; i < 2; i++) {
    const Type *sum = graph_type(p->rewrite.to, inputs[i]);
    const Type *term = graph_type(p->rewrite.to, inputs[1 - i]);
    AxisSet used = 0;
    for (int d = 0; d < term->rank; d++)
      used |= axis_list_set(term->dims[d].split);
    bool is_reduced = map_has(p->reduced, value_key(inputs[i]));
    if (!sum->partial || sum->partial_kind != REDUCE_sum || is_reduced ||
        term->partial ||
        sum->partial & (used | mesh_sequential(p->mesh) | batch_axes(p)) ||
        !is_broadcast(term, sum) || is_reduced_next(p, id, sum))
      continue;
    Type *want = type_copy(p->ctx->module->arena, term);
    want->partial = sum->partial;
    inputs[1 - i] = reshard(p, inputs[1 - i], want, id);
  }
}
