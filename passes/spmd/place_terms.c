/*
 * place_terms.c -- places nodes that work on the terms of a sum over ranks
 * (attribute `terms`): the compression of gradients.
 *
 *     %3 = add %g, %e {terms = 1} : f32[C, F]
 *     => %2 = accumulate %g : f32[C, F; sum@data]
 *        %3 = add %2, %e {terms = 1} : f32[C, F; sum@data]
 *
 * for a gradient %g : f32[C, F; sum@data, time] and an input %e, which gets the
 * placement of %2.
 *
 * Micro-batches are added up, ranks are not.  What is no partial sum and is
 * added to one becomes one: the first rank has it, others have zeros.
 */
#include "passes/spmd/placement.h"
#include "passes/spmd/resharding.h"

bool works_on_terms(const Node *node) {
  return node_has(node, ATTR_terms);
}

/* The first reader of an input. */
static const Node *first_reader(const Partition *p, int id) {
  int first = p->first_reader[id];
  return first < p->first_reader[id + 1]
             ? p->rewrite.from->nodes.data[p->readers[first]]
             : NULL;
}

const Type *place_term_input(Partition *p, int id) {
  const Node *reader = first_reader(p, id);
  if (!reader || !works_on_terms(reader)) return NULL;
  Type *type = type_copy(p->ctx->module->arena,
                         p->rewrite.from->nodes.data[id]->types[0]);
  if (reader->op != OP_add) return type;
  AxisSet sequential = mesh_sequential(p->mesh);
  const Type *gradient =
      graph_type(p->rewrite.to, rewrite_get(&p->rewrite, reader->inputs[0]));
  for (int d = 0; d < type->rank; d++) {
    int at = type_find(gradient, type->dims[d].name);
    ASSERT(at >= 0);
    type->dims[d].split =
        axis_list_without(gradient->dims[at].split, sequential);
  }
  type->partial = gradient->partial & (AxisSet)~sequential;
  return type;
}

/* The operand that is a partial sum over the most axes, or NULL. */
static const Type *widest_sum(const Partition *p, const Value *inputs, int n) {
  const Type *widest = NULL;
  for (int i = 0; i < n; i++) {
    const Type *type = graph_type(p->rewrite.to, inputs[i]);
    if (type->partial && (!widest || type->partial & ~widest->partial))
      widest = type;
  }
  return widest;
}

/* Axes over which an operand has shards. */
static AxisSet axes_of_shards(const Type *type) {
  AxisSet axes = 0;
  for (int d = 0; d < type->rank; d++)
    axes |= axis_list_set(type->dims[d].split);
  return axes;
}

/* A factor that is a partial sum over axes that shard the other one is added up
 * over these alone, so that the product stays a sum over the others. */
static void settle_factors(Partition *p, Value *inputs) {
  for (int i = 0; i < 2; i++) {
    const Type *other = graph_type(p->rewrite.to, inputs[!i]);
    inputs[i] = reduce_over(p, inputs[i], axes_of_shards(other), OP_all_reduce);
  }
}

void settle_terms(Partition *p, int id, Value *inputs) {
  const Node *node = p->rewrite.from->nodes.data[id];
  AxisSet sequential = mesh_sequential(p->mesh);
  for (int i = 0; i < node->n_inputs; i++)
    inputs[i] = collect_microbatches(
        p, reduce_over(p, inputs[i], sequential, OP_accumulate), NULL);
  if (node->op == OP_dot) settle_factors(p, inputs);
  const Type *sum = widest_sum(p, inputs, node->n_inputs);
  if (!sum || (node->op != OP_add && node->op != OP_sub)) return;
  for (int i = 0; i < node->n_inputs; i++) {
    const Type *type = graph_type(p->rewrite.to, inputs[i]);
    Type *want = type_copy(p->ctx->module->arena, type);
    for (int d = 0; d < want->rank; d++) {
      int at = type_find(sum, want->dims[d].name);
      if (at >= 0) want->dims[d].split = sum->dims[at].split;
    }
    want->partial = sum->partial;
    inputs[i] = reshard(p, inputs[i], want, id);
  }
}
