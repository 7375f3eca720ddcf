/*
 * replica_means.c -- updates the parameters of a stage with the mean gradient
 * of its replicas, where each of them runs complete batches in turn, or with
 * the sum of them, where they share out the micro-batches of a batch.
 *
 *     %4 = dot %0, %1                 %4 = dot %0, %1
 *     %5 = sub %2, %4 @update   =>    %5 = rename %4 : [; sum@data]
 *                                     %6 = all_reduce %5
 *                                     %7 = div %6, 3
 *                                     %8 = sub %2, %7 @update
 *
 * The graph of the stage is that of one rank on a mesh over which nothing is
 * sharded: its replicas differ in their batches, which only the timeline knows
 * (ir/program_periods.c).  So each value of a pass that the update reads is a
 * term of a sum, gradients and the loss that must be finite.  Outputs are those
 * of the own batch.
 *
 * Where batches end inside of a group of replicas, those without one have terms
 * of 0.  A gradient is divided by the number of replicas nevertheless.  What
 * states are made of, as statistics are, is divided by the number of those that
 * have a batch: each has a 1 in its passes, which is 0 where there are none.
 *
 * With several micro-batches the term is what a replica has accumulated over
 * its own ones.  The gradient of a micro-batch is its part of that of the
 * batch, so nothing is divided, and the loss and what states are made of are
 * those of the batch, too:
 *
 *     %4 = accumulate %3          %4 = accumulate %3
 *     %5 = sub %2, %4 @update =>  %5 = rename %4 : [; sum@data]
 *                                 %6 = all_reduce %5
 *                                 %7 = sub %2, %6 @update
 *
 * requires: marks of stage_microbatches     keeps: outputs
 * cost: O(nodes)
 */
#include "passes/rewrite.h"
#include "passes/spmd/placement.h"
#include "passes/stages/stages.h"

typedef struct Means {
  Rewrite rewrite;
  AxisSet axes;
  int n;         /* replicas */
  bool *follows; /* by old node: from a state */
  /* By old node, of its first result, and whether it is for a state;
   * VALUE_NONE. */
  Value *mean[2];
  Value present; /* number of replicas that have a batch; VALUE_NONE */
} Means;

static AxisSet replica_axes(const Mesh *mesh) {
  AxisSet axes = 0;
  for (int a = 0; a < mesh->n_axes; a++)
    if (!mesh->axes[a].is_sequential && mesh->axes[a].size > 1)
      axes |= (AxisSet)(1u << a);
  return axes;
}

static bool is_over_replicas(const Graph *graph, const Type *type) {
  AxisSet axes = replica_axes(&graph->mesh);
  bool is_placed = (type->partial & axes) != 0;
  for (int d = 0; d < type->rank; d++)
    is_placed |= (axis_list_set(type->dims[d].split) & axes) != 0;
  return is_placed;
}

/* Reports what is sharded over replicas. */
static bool check_types(PassContext *ctx, const Graph *graph) {
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    for (int r = 0; r < node->n_results; r++) {
      if (!is_over_replicas(graph, node->types[r])) continue;
      diag(ctx->module->diags, DIAG_not_supported, node->span,
           arena_printf(ctx->module->arena,
                        "shards of '%s' over replicas that run batches in turn",
                        graph_path(graph, id)));
      return false;
    }
  }
  return true;
}

static Value append(Means *m, Op op, const Value *inputs, int n,
                    const Attrs *attrs, const Type *type) {
  return graph_append_typed(m->rewrite.to, op, inputs, n, attrs, &type, 1,
                            NULL);
}

/* The value as a term of a sum over replicas. */
static Value make_term(Means *m, Value from, ReduceKind kind) {
  Type *term =
      type_copy(m->rewrite.ctx->module->arena, graph_type(m->rewrite.to, from));
  Attrs attrs = {0};
  term->partial = m->axes;
  term->partial_kind = kind;
  attrs_names(&attrs, ATTR_from, NULL, 0);
  attrs_names(&attrs, ATTR_to, NULL, 0);
  return append(m, OP_rename, &from, 1, &attrs, term);
}

static Value make_sum(Means *m, Value term, const Type *type,
                      const char *reduce) {
  Arena *arena = m->rewrite.ctx->module->arena;
  const Mesh *mesh = &m->rewrite.from->mesh;
  Attrs attrs = {0};
  Name axes[MAX_AXES];
  int n = 0;
  for (int a = 0; a < mesh->n_axes; a++)
    if (m->axes >> a & 1) axes[n++] = mesh->axes[a].name;
  attrs_names(&attrs, ATTR_axes, arena_copy(arena, axes, sizeof axes), n);
  attrs_name(&attrs, ATTR_reduce,
             name_intern(m->rewrite.ctx->module->names, reduce));
  return append(m, OP_all_reduce, &term, 1, &attrs, type);
}

static Value make_const(Means *m, DType dtype, double value, bool is_of_pass) {
  Attrs attrs = {0};
  attrs_float(&attrs, ATTR_value, value);
  attrs_name(&attrs, ATTR_dtype,
             name_intern(m->rewrite.ctx->module->names, dtype_name(dtype)));
  if (is_of_pass) attrs_int(&attrs, ATTR_per_microbatch, 1);
  return append(m, OP_const, NULL, 0, &attrs,
                type_create(m->rewrite.ctx->module->arena, dtype, 0));
}

/* The number of replicas that have a batch. */
static Value count_present(Means *m) {
  if (value_is(m->present)) return m->present;
  m->rewrite.to->phase = PHASE_forward;
  Value one = make_const(m, DT_f32, 1, true);
  m->rewrite.to->phase = PHASE_weight_gradient;
  const Type *type = graph_type(m->rewrite.to, one);
  return m->present = make_sum(m, make_term(m, one, REDUCE_sum), type, "sum");
}

static Value cast_to(Means *m, Value value, DType dtype) {
  const Type *type = graph_type(m->rewrite.to, value);
  return type->dtype == dtype ? value : graph_cast(m->rewrite.to, value, dtype);
}

/* The sum is of the backward pass, so that a bucket may have it. */
static Value make_mean(Means *m, int reader, Value from, bool is_of_state) {
  const Type *type = graph_type(m->rewrite.to, from);
  rewrite_at(&m->rewrite, reader);
  m->rewrite.to->phase = PHASE_weight_gradient;
  Value term = make_term(m, from, REDUCE_sum);
  Value sum = make_sum(m, term, type, "sum"), by = VALUE_NONE;
  if (is_of_state) by = count_present(m);
  rewrite_at(&m->rewrite, reader);
  by = is_of_state ? cast_to(m, by, type->dtype)
                   : make_const(m, type->dtype, m->n, false);
  Value operands[2] = {sum, by};
  return append(m, OP_div, operands, 2, NULL, type);
}

static bool is_float(DType dtype) {
  return dtype == DT_f32 || dtype == DT_f64 || dtype_is_16bit(dtype);
}

/* The mean of what a node of an update reads of a pass. */
static Value read_value(Means *m, int reader, Value old) {
  const Graph *from = m->rewrite.from;
  Value value = rewrite_get(&m->rewrite, old);
  if (!node_is_per_microbatch(from, old.node)) return value;
  if (old.result > 0 || !is_float(graph_type(from, old)->dtype)) {
    diag(m->rewrite.ctx->module->diags, DIAG_not_supported,
         from->nodes.data[reader]->span,
         arena_printf(m->rewrite.ctx->module->arena,
                      "the mean of '%s' over replicas",
                      graph_path(from, old.node)));
    return value;
  }
  bool is_of_state = m->follows[reader];
  Value *mean = &m->mean[is_of_state][old.node];
  if (!value_is(*mean)) *mean = make_mean(m, reader, value, is_of_state);
  return *mean;
}

static void copy_update(Means *m, int id) {
  const Node *node = m->rewrite.from->nodes.data[id];
  Value *inputs =
      ARENA_ARRAY(m->rewrite.ctx->scratch, Value, node->n_inputs + 1);
  for (int i = 0; i < node->n_inputs; i++)
    inputs[i] = read_value(m, id, node->inputs[i]);
  rewrite_at(&m->rewrite, id);
  Value made =
      graph_copy_node(m->rewrite.to, m->rewrite.from, id, inputs, false);
  for (int r = 0; r < node->n_results; r++)
    rewrite_set(&m->rewrite, (Value){id, r}, (Value){made.node, r});
}

static bool is_state(const Graph *graph, const Node *node) {
  return node->op == OP_input &&
         graph->inputs.data[node_int(node, ATTR_index, 0)].role == ROLE_state;
}

/* ---- replicas that share out micro-batches ---- */

/* Adds up what each replica has made of its own micro-batches.  A value of
 * each micro-batch, collected, is 0 for those of others (list_joined). */
static void add_joined(Means *m, int id) {
  const Node *node = m->rewrite.from->nodes.data[id];
  rewrite_copy(&m->rewrite, id);
  rewrite_at(&m->rewrite, id);
  for (int r = 0; r < node->n_results; r++) {
    Value own = rewrite_get(&m->rewrite, (Value){id, r});
    const Type *type = graph_type(m->rewrite.to, own);
    const Type *part = graph_type(m->rewrite.from, node->inputs[r]);
    bool is_sum = node->op != OP_accumulate;
    ReduceKind kind = is_sum ? REDUCE_sum : part->partial_kind;
    Value term = make_term(m, own, kind);
    rewrite_set(&m->rewrite, (Value){id, r},
                make_sum(m, term, type, reduce_name(kind)));
  }
}

static Graph *add_parts(PassContext *ctx, const Graph *graph) {
  Means m = {.rewrite = rewrite_begin(ctx, graph),
             .axes = replica_axes(&graph->mesh)};
  for (int id = 0; id < graph->nodes.n; id++)
    if (node_joins_microbatches(graph->nodes.data[id]))
      add_joined(&m, id);
    else
      rewrite_copy(&m.rewrite, id);
  return rewrite_end(&m.rewrite);
}

Graph *pass_replica_means(PassContext *ctx, const Graph *graph) {
  if (!ctx->cut || !ctx->cut->has_versions || mesh_ranks(&graph->mesh) == 1)
    return NULL;
  if (diags_errors(ctx->module->diags) > 0 || !check_types(ctx, graph))
    return NULL;
  if (mesh_sequential(&graph->mesh)) return add_parts(ctx, graph);
  Means m = {.rewrite = rewrite_begin(ctx, graph),
             .axes = replica_axes(&graph->mesh),
             .n = mesh_ranks(&graph->mesh),
             .follows = ARENA_ARRAY(ctx->scratch, bool, graph->nodes.n),
             .present = VALUE_NONE};
  for (int k = 0; k < ARRAY_LENGTH(m.mean); k++) {
    m.mean[k] = ARENA_ARRAY(ctx->scratch, Value, graph->nodes.n);
    for (int id = 0; id < graph->nodes.n; id++) m.mean[k][id] = VALUE_NONE;
  }
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    m.follows[id] = is_state(graph, node);
    for (int i = 0; i < node->n_inputs; i++)
      m.follows[id] |= m.follows[node->inputs[i].node];
    if (node->phase == PHASE_update && node->op != OP_input)
      copy_update(&m, id);
    else
      rewrite_copy(&m.rewrite, id);
  }
  return rewrite_end(&m.rewrite);
}
