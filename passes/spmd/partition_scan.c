/*
 * partition_scan.c -- places scans: the body like a graph, carries by a fixed
 * point.
 */
#include "passes/spmd/placement.h"
#include "passes/spmd/resharding.h"
#include "passes/spmd/strategy.h"

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

/* No other dim of the type has one of the axes. */
static bool are_free(const Type *type, int dim, AxisList split) {
  for (int d = 0; d < type->rank; d++)
    if (d != dim && axis_list_set(type->dims[d].split) & axis_list_set(split))
      return false;
  return true;
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
      type->dims[d].split = given->dims[type_find(given, dim)].split;
    }
    for (int d = 0; d < type->rank; d++) {
      AxisList more,
          split = split_by_name(p, inputs, node->n_inputs, type->dims[d].name);
      if (axis_list_continues(split, type->dims[d].split, &more) &&
          are_free(type, d, split))
        type->dims[d].split = split;
    }
    types[i] = type;
  }
  return types;
}

/* By input of the scan: the parameter that it is. */
static const Name *find_shown(const Partition *p, const Node *node,
                              const Value *inputs) {
  Name *shown = ARENA_ARRAY(p->ctx->scratch, Name, node->n_inputs);
  for (int i = 0; i < node->n_inputs; i++)
    if (scan_input_role(node, i) == ROLE_arg)
      shown[i] = shown_parameter(p, inputs[i]);
  return shown;
}

/* An input without a name gets that of what it shows, so that collectives on it
 * have one; an argument, which is the value itself, its phase and place too. */
static void name_body_input(Partition *inner, const Node *node, int input,
                            const Node *operand) {
  Graph *to = inner->rewrite.to;
  Role role = scan_input_role(node, input);
  if (role == ROLE_arg) {
    to->phase = operand->phase;
    to->span = operand->span;
  }
  if (to->path && *to->path) return;
  to->path = role == ROLE_carry ? node->path : operand->path;
}

static Partition place_scan_body(Partition *p, const Node *node,
                                 const Value *inputs, const bool *is_partial,
                                 const Type *const *types) {
  Partition inner = {.ctx = p->ctx,
                     .plan = p->plan,
                     .mesh = p->mesh,
                     .table = p->table,
                     .zero = p->zero,
                     .parameters = p->parameters,
                     .strategies = p->strategies,
                     .shown = find_shown(p, node, inputs),
                     .is_body = true,
                     .trial = p->trial};
  inner.rewrite = rewrite_begin(p->ctx, node->body);
  inner.rewrite.to->mesh = *p->mesh;
  inner.reduced = map_create(p->ctx->scratch);
  inner.resharded = map_create(p->ctx->scratch);
  index_readers(&inner);
  find_targets(&inner);
  for (int id = 0; id < node->body->nodes.n; id++) {
    const Node *at = node->body->nodes.data[id];
    if (at->op != OP_input) {
      place_node(&inner, id);
      continue;
    }
    int64_t kept = node_int(at, ATTR_index, 0);
    rewrite_at(&inner.rewrite, id);
    name_body_input(&inner, node, (int)kept,
                    graph_node(p->rewrite.to, inputs[kept]));
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

void place_scan(Partition *p, int id) {
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
  Partition inner = place_scan_body(p, node, inputs, is_partial, types);
  for (int i = 0;
       i < MOST_TRIES && adopt_carry_shardings(node, &inner, is_partial, types);
       i++)
    inner = place_scan_body(p, node, inputs, is_partial, types);
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
  body = hoist_collectives(p, &inner, body, &inputs);
  rewrite_at(&p->rewrite, id);
  Value first = scan_append(to, scan_form(node), inputs, body);
  for (int r = 0; r < node->n_results; r++)
    rewrite_set(&p->rewrite, (Value){id, r}, (Value){first.node, r});
}
