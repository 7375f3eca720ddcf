/*
 * place_call.c -- appends an operator with the placements that its sharding
 * rule gives, after its operands are resharded as the rule wants them, and
 * reshards the operands of an operator that names the axes of its dim.
 */
#include "passes/spmd/placement.h"
#include "passes/spmd/resharding.h"

Value append_placed(Partition *p, int id, Op op, const Attrs *attrs,
                    Value *inputs, int n_inputs, const Type *const *logical,
                    const Type *const *results, int n_results) {
  rewrite_at(&p->rewrite, id);
  mask_operands(p, op, attrs, inputs, n_inputs, logical, n_results);
  return graph_append_typed(p->rewrite.to, op, inputs, n_inputs, attrs, results,
                            n_results, p->rewrite.from->nodes.data[id]->body);
}

Value place_call(Partition *p, int id, Op op, const Attrs *attrs,
                 const Value *inputs, int n_inputs, const Type *const *logical,
                 int n_results) {
  Graph *to = p->rewrite.to;
  Arena *scratch = p->ctx->scratch;
  const Type **types = ARENA_ARRAY(scratch, const Type *, n_inputs);
  const Type **wanted = ARENA_ARRAY(scratch, const Type *, n_inputs);
  const Type **results = ARENA_ARRAY(scratch, const Type *, n_results);
  Value *placed =
      arena_copy(scratch, inputs, sizeof *inputs * (size_t)n_inputs);
  for (int i = 0; i < n_inputs; i++) types[i] = graph_type(to, inputs[i]);
  shard_infer(to, op, attrs ? attrs->items : NULL, attrs ? attrs->n : 0, types,
              n_inputs, logical, n_results, p->ctx->module->arena, wanted,
              results);
  for (int i = 0; i < n_inputs; i++)
    placed[i] = reshard(p, inputs[i], wanted[i], id);
  return append_placed(p, id, op, attrs, placed, n_inputs, logical, results,
                       n_results);
}

Value place_inferred(Partition *p, int id, Op op, const Value *inputs,
                     int n_inputs, const Attrs *attrs) {
  Graph *to = p->rewrite.to;
  const Type **types = ARENA_ARRAY(p->ctx->scratch, const Type *, n_inputs);
  const Type *results[MAX_RANK];
  for (int i = 0; i < n_inputs; i++) types[i] = graph_type(to, inputs[i]);
  OpCall call = {
      .op = op, .n_inputs = n_inputs, .types = types, .attrs = attrs};
  int n_results = op_infer(to->module, &call, to->span, results);
  ASSERT(n_results == 1);
  return place_call(p, id, op, attrs, inputs, n_inputs, results, 1);
}

void place_on_axes(Partition *p, int id, Value *inputs) {
  const Node *node = p->rewrite.from->nodes.data[id];
  Graph *to = p->rewrite.to;
  Name dim = node_name(node, ATTR_dim);
  int n = 0;
  AxisList split = 0;
  const Name *axes = node_names(node, ATTR_axes, &n);
  for (int i = 0; i < n; i++)
    split = axis_list_append(split, mesh_find(p->mesh, axes[i]));
  for (int i = 0; i < node->n_inputs; i++) {
    Type *want = type_copy(p->ctx->module->arena, graph_type(to, inputs[i]));
    for (int d = 0; d < want->rank; d++)
      want->dims[d].split =
          want->dims[d].name == dim
              ? split
              : axis_list_without(want->dims[d].split, axis_list_set(split));
    if (want->partial & axis_list_set(split)) {
      want->partial = 0;
      want->partial_kind = REDUCE_sum;
    }
    inputs[i] = mask_padding(p, reshard(p, inputs[i], want, id), dim);
  }
}
