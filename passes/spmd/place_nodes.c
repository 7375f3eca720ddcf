/*
 * place_nodes.c -- shard the inputs by the plan, propagate placements by the
 * operators' rules, and insert resharding.
 *
 *     plan: shard B over data
 *     %0 = input : f32[B:128, P]        %0 = input : f32[B:128@data, P]
 *     %2 = sum %1 {over = [B, P]}  =>   %2 = sum %1 : f32[; sum@data]
 *     output loss %2                    %3 = all_reduce %2 {axes = [data]}
 *                                       output loss %3
 *
 * The plan places inputs and values.  Every other placement follows in one
 * walk: a rule takes its operands as they are, or asks for one in another
 * placement, which the cheapest chain of resharding steps (ir/place/reshard.h)
 * gives it, once for each value.  Where that would move shards, the strategies
 * of the operator are compared (strategy_choice.c).  A partial value stays
 * partial through linear operators, so the two gradients of a tied parameter
 * are added before the one reduction.  Over a sequential axis (micro-batches)
 * the reduction is `accumulate`.  A state with the batch dim is stored for all
 * micro-batches: each micro-batch takes its shard, and the update collects the
 * new shards of all micro-batches.  ZeRO is a placement as well (zero.c).
 *
 * Messages name what is not supported yet: micro-batches of unequal size, and
 * micro-batches that would wait for each other.
 *
 * requires: logical types     promises: outputs that are not partial
 * breaks: node ids            cost: O(nodes)
 */
#include "passes/spmd/attention/attention.h"
#include "passes/spmd/follow_pins.h"
#include "passes/spmd/partition.h"
#include "passes/spmd/placement.h"
#include "passes/spmd/resharding.h"
#include "passes/spmd/strategy.h"
#include "passes/spmd/windows.h"
#include "passes/spmd/zero.h"

#include <string.h>

/* ---- inputs ---- */

/* The axes of a pin, without those that a later pin of this tensor takes. */
static AxisList free_axes(const Partition *p, const PlanShard *const *pins,
                          const Type *type, int d, Name path) {
  AxisList list = 0;
  for (int i = 0; i < pins[d]->n_axes; i++) {
    Name name = pins[d]->axes[i];
    int axis = mesh_find(p->mesh, name);
    ASSERT(axis >= 0);
    int by = plan_axis_taken(pins, type->rank, d, name);
    if (by >= 0)
      diag(p->ctx->module->diags, DIAG_axis_taken, pins[d]->span,
           type->dims[d].name, type->dims[by].name, path, name);
    else
      list = axis_list_append(list, axis);
  }
  return list;
}

/* Micro-batches shard the ranks' shards of the batch dim. */
static AxisList add_microbatch_axes(const Partition *p, AxisList list,
                                    Name dim) {
  AxisSet sequential = mesh_sequential(p->mesh);
  AxisList time = axis_list_of_set(sequential & (AxisSet)~axis_list_set(list));
  if (dim != p->plan->batch_dim) return list;
  return p->plan->divides_microbatches ? axis_list_join(time, list)
                                       : axis_list_join(list, time);
}

/* The warning about padding, once for each line and size; none where it rounds
 * to nothing. */
static void warn_of_padding(Partition *p, Name name, const Dim *dim,
                            Span place) {
  int64_t shards = axis_list_shards(dim->split, p->mesh);
  int64_t each = (dim->size + shards - 1) / shards;
  if (!p->ctx->is_training || each * shards == dim->size) return;
  int64_t all = each * shards;
  int64_t waste = (100 * (all - dim->size) + all / 2) / all;
  int64_t empty = shards - (dim->size + each - 1) / each;
  if (waste == 0 && empty == 0) return;
  Name key =
      name_format(p->ctx->module->names, "%s:%ld", name, (long)dim->size);
  if (map_has(p->warned, key)) return;
  map_put(p->warned, key, (void *)key);
  Diag *d = diag(p->ctx->module->diags, DIAG_shard_padding, place, name,
                 (long)dim->size, (long)shards, (long)each, (long)waste);
  if (empty > 0) diag_help(d, "ranks without an element: %ld", (long)empty);
}

/* The parameter that an optimizer's state or an average belongs to: what
 * follows the slash in "adamw.m/PATH"; else the path itself. */
static Name path_of_owner(const Partition *p, const GraphInput *input) {
  const char *slash =
      input->role == ROLE_optimizer_state || input->role == ROLE_ema
          ? strchr(input->path, '/')
          : NULL;
  return slash ? name_intern(p->ctx->module->names, slash + 1) : input->path;
}

/* Every rank has all of the batch, in micro-batches if there are several. */
static const Type *place_replicated_data(const Partition *p, bool is_data,
                                         const Type *type) {
  Type *placed = type_copy(p->ctx->module->arena, type);
  for (int d = 0; is_data && d < placed->rank; d++)
    placed->dims[d].split = add_microbatch_axes(p, 0, placed->dims[d].name);
  return placed;
}

/* A value of another stage is placed as data are, by the lines about names of
 * dims.  One of the step that has the batch dim is complete. */
static const Type *place_input(Partition *p, const GraphInput *input,
                               const Type *type, Span span) {
  Type *placed = type_copy(p->ctx->module->arena, type);
  const PlanShard *pins[MAX_RANK];
  const StageEdge *edge = stage_edge_received(p->ctx->cut, input);
  bool is_data = input->role == ROLE_data || edge;
  bool is_of_batch = is_data || input->role == ROLE_batch_rows;
  if (edge && edge->is_of_step && type_find(type, p->plan->batch_dim) >= 0)
    return placed;
  if (p->plan->replicates_data && is_of_batch)
    return place_replicated_data(p, is_data, type);
  Name path = path_of_owner(p, input);
  const PlanPin *line = edge ? NULL : find_input_line(p, input, path);
  for (int d = 0; d < type->rank; d++)
    pins[d] = line   ? plan_placed_dim(line, type->dims[d].name)
              : edge ? plan_find_shard(p->plan, type->dims[d].name)
                     : plan_named_dim(p->plan, path, type->dims[d].name);
  for (int d = 0; d < placed->rank; d++) {
    Dim *dim = &placed->dims[d];
    bool is_batch = dim->name == p->plan->batch_dim;
    if (!pins[d] && !is_batch) continue;
    if (is_batch && input->role == ROLE_decode_cache) continue;
    AxisList axes = pins[d] ? free_axes(p, pins, type, d, path) : 0;
    if (is_data) axes = add_microbatch_axes(p, axes, dim->name);
    int64_t shards = axis_list_shards(axes, p->mesh);
    Span place = pins[d] && pins[d]->span.source ? pins[d]->span : span;
    bool is_uneven = dim->size % shards != 0;
    if (is_uneven && axis_list_set(axes) & mesh_sequential(p->mesh))
      report_uneven(p, dim, shards, place);
    else
      dim->split = axes;
    warn_of_padding(p, pins[d] ? pins[d]->dim : dim->name, dim, place);
  }
  if (input->role == ROLE_param || input->role == ROLE_ema)
    zero_add_parameter(p, path, placed);
  if (input->role == ROLE_param) map_put(p->parameters, path, placed);
  bool is_closed = line && pin_is_of_update(line); /* the line says all */
  return is_closed ? placed : zero_input(p, input->role, path, placed);
}

/* ---- nodes ---- */

/* A dim that a line of the plan shards is sharded in every value that has it: a
 * pointwise operator whose operands all have all of it computes its shard. */
static void apply_lines(const Partition *p, const Node *node,
                        const Type *result, const Type **wanted) {
  if (!op_info(node->op)->is_pointwise || node->phase == PHASE_update ||
      p->plan->replicates_data)
    return;
  AxisSet used = result->partial;
  for (int d = 0; d < result->rank; d++)
    used |= axis_list_set(result->dims[d].split);
  for (int d = 0; d < result->rank; d++) {
    AxisList axes =
        result->dims[d].split ? 0 : plan_line_axes(p, &result->dims[d]);
    if (!axes || axis_list_set(axes) & used) continue;
    used |= axis_list_set(axes);
    for (int i = 0; i < node->n_inputs; i++) {
      int at = type_find(wanted[i], result->dims[d].name);
      if (at < 0) continue;
      Type *sharded = type_copy(p->ctx->module->arena, wanted[i]);
      sharded->dims[at].split = axes;
      wanted[i] = sharded;
    }
  }
}

/* The type with dim `d` in the shards that its line asks for; NULL: it has
 * these, or another dim has the axes. */
static Type *shard_by_line(const Partition *p, const Type *type, int d) {
  AxisList split = type->dims[d].split;
  AxisList axes = plan_line_axes(p, &type->dims[d]);
  AxisSet others = 0;
  for (int i = 0; i < type->rank; i++)
    if (i != d) others |= axis_list_set(type->dims[i].split);
  if (!axes || has_line_axes(p, split, axes) || axis_list_set(axes) & others)
    return NULL;
  Type *want = type_copy(p->ctx->module->arena, type);
  want->dims[d].split = axes;
  want->partial &= (AxisSet)~axis_list_set(axes);
  if (!want->partial) want->partial_kind = REDUCE_sum;
  return want;
}

/* A line places the value itself. */
static bool has_line(const Partition *p, int id) {
  Name path = p->rewrite.from->nodes.data[id]->path;
  return pin_first(&p->pins, id) ||
         (p->is_body && plan_find_placement(p->plan, path));
}

/* Other results are computed in full, and a rank keeps its shard: of a partial
 * sum over the axes, the reduced one.  Lines about the operator or about values
 * before it may have left other shards, which then move; a dim that gives an
 * axis up may leave it to one before. */
static Value place_by_lines(Partition *p, int id, Value value) {
  const Node *node = p->rewrite.from->nodes.data[id];
  const Type *type = graph_type(p->rewrite.to, value), *want = type;
  if (node->phase != PHASE_forward || p->plan->replicates_data ||
      has_line(p, id) || is_computed(p->rewrite.to, value))
    return value;
  for (int d = 0; d < type->rank;) {
    const Type *moved = shard_by_line(p, want, d);
    d = moved ? 0 : d + 1;
    if (moved) want = moved;
  }
  return want == type ? value : reshard(p, value, want, id);
}

/* Reshards the operands as the best strategy wants them, where the operator's
 * own rule would move shards.  Result: axes over which a look-up works on a
 * range of indices.  Fills `results` with the types that follow from the
 * operands; `out_stay`: those are as the rule wants them, and did not move. */
static AxisSet place_operands(Partition *p, int id, Value *inputs,
                              const Type **results, bool *out_stay) {
  const Node *node = p->rewrite.from->nodes.data[id];
  Graph *to = p->rewrite.to;
  Arena *scratch = p->ctx->scratch;
  const Type **types = ARENA_ARRAY(scratch, const Type *, node->n_inputs);
  const Type **wanted = ARENA_ARRAY(scratch, const Type *, node->n_inputs);
  AxisSet positions = 0;
  for (int i = 0; i < node->n_inputs; i++) types[i] = graph_type(to, inputs[i]);
  shard_infer(to, node->op, node->attrs, node->n_attrs, types, node->n_inputs,
              node->types, node->n_results, p->ctx->module->arena, wanted,
              results);
  *out_stay = true;
  for (int i = 0; i < node->n_inputs; i++) *out_stay &= wanted[i] == types[i];
  bool is_pinned = place_by_operator_line(p, id, types, wanted, &positions);
  if (!is_pinned && !choose_strategy(p, id, inputs, types, wanted, &positions))
    apply_lines(p, node, results[0], wanted);
  for (int i = 0; i < node->n_inputs; i++) {
    inputs[i] = reshard(p, inputs[i], wanted[i], id);
    *out_stay &= graph_type(to, inputs[i]) == types[i];
  }
  return positions;
}

static void place_permute(Partition *p, int id, Value *inputs) {
  const Node *node = p->rewrite.from->nodes.data[id];
  Graph *to = p->rewrite.to;
  const Type **types =
      ARENA_ARRAY(p->ctx->module->arena, const Type *, node->n_inputs);
  place_on_axes(p, id, inputs);
  for (int i = 0; i < node->n_inputs; i++) types[i] = graph_type(to, inputs[i]);
  rewrite_at(&p->rewrite, id);
  Attrs attrs = node_attrs(node);
  Value first = graph_append_typed(to, OP_permute, inputs, node->n_inputs,
                                   &attrs, types, node->n_results, NULL);
  for (int r = 0; r < node->n_results; r++)
    rewrite_set(&p->rewrite, (Value){id, r}, (Value){first.node, r});
}

/* The placement in which its parameter is updated of a gradient whose shards
 * must move for that; NULL: they stay.  So the gradient moves, and not the new
 * parameter and each part of the optimizer's state. */
static const Type *gradient_of_parameter(const Partition *p, Name node_path,
                                         const Type *type) {
  Name path = update_path(p->ctx->module->names, node_path);
  const Type *parameter = path ? map_get(p->parameters, path) : NULL;
  bool moves = false;
  if (!parameter || parameter->rank != type->rank || find_state_line(p, path))
    return NULL;
  parameter = zero_input(p, ROLE_param, path, parameter);
  Type *want = type_copy(p->ctx->module->arena, type);
  for (int d = 0; d < type->rank; d++) {
    AxisList more, split = type->dims[d].split;
    int at = type_find(parameter, type->dims[d].name);
    if (at < 0 || axis_list_set(split) & mesh_sequential(p->mesh)) return NULL;
    want->dims[d].split = parameter->dims[at].split;
    moves |= !axis_list_continues(want->dims[d].split, split, &more);
  }
  return moves ? want : NULL;
}

/* The node adds up what the norm is made of over tensors. */
static bool adds_to_norm(const Partition *p, const Node *node, Value value) {
  bool is_sum = node->op == OP_add ||
                (node->op == OP_cast && node_has(node, ATTR_reduce));
  return is_sum && graph_type(p->rewrite.to, value)->rank == 0 &&
         graph_node(p->rewrite.to, value)->phase == PHASE_update;
}

/* The update works on reduced gradients, also where it is linear: the norm
 * needs them reduced anyway.  It is made once for all micro-batches. */
static Value place_gradient(Partition *p, int id, int input, Value value) {
  const Graph *from = p->rewrite.from;
  const Node *node = from->nodes.data[id];
  if (adds_to_norm(p, node, value)) return value;
  const Node *before = graph_node(from, node->inputs[input]);
  const Type *type = graph_type(p->rewrite.to, value);
  bool is_new = before->phase != PHASE_update && before->op != OP_input;
  const Type *want =
      type->partial || is_new ? updating_gradient(p, node->path, type) : NULL;
  value = want ? reshard(p, value, want, id) : reduce_partial(p, value);
  if (is_new) {
    type = graph_type(p->rewrite.to, value);
    want = gradient_of_parameter(p, node->path, type);
    if (want) value = reshard(p, value, want, id);
  }
  return collect_microbatches(p, value, NULL);
}

/* Its first value.  Where no operand moves, the placements that place_operands
 * inferred hold, and are not inferred again. */
static Value place_operator(Partition *p, int id, Value *inputs) {
  const Node *node = p->rewrite.from->nodes.data[id];
  const Type **results =
      ARENA_ARRAY(p->ctx->scratch, const Type *, node->n_results);
  bool stay;
  AxisSet positions = place_operands(p, id, inputs, results, &stay);
  rewrite_at(&p->rewrite, id);
  if (positions) return place_by_range(p, id, inputs, positions);
  Attrs attrs = node_attrs(node);
  if (stay)
    return append_placed(p, id, node->op, &attrs, inputs, node->n_inputs,
                         node->types, results, node->n_results);
  return place_call(p, id, node->op, &attrs, inputs, node->n_inputs,
                    node->types, node->n_results);
}

static void place_unpinned(Partition *p, int id) {
  const Node *node = p->rewrite.from->nodes.data[id];
  rewrite_at(&p->rewrite, id);
  bool has_terms = works_on_terms(node);
  for (int i = 0; i < node->n_inputs && !has_terms; i++)
    settle_partial(p, node->inputs[i], id);
  Value *inputs = rewrite_inputs(&p->rewrite, id);
  if (has_terms) {
    settle_terms(p, id, inputs);
    rewrite_set(&p->rewrite, (Value){id, 0}, place_operator(p, id, inputs));
    return;
  }
  if (node->op == OP_permute) {
    place_permute(p, id, inputs);
    return;
  }
  if (node->op == OP_split_dim && node_has(node, ATTR_pad))
    place_on_axes(p, id, inputs);
  keep_partial(p, id, inputs);
  for (int i = 0; i < node->n_inputs && node->phase == PHASE_update; i++)
    inputs[i] = place_gradient(p, id, i, inputs[i]);
  if (place_by_heads(p, id, inputs)) return;
  if (slides_over_shards(p, id, inputs)) {
    rewrite_set(&p->rewrite, (Value){id, 0},
                place_by_lines(p, id, place_windows(p, id, inputs)));
    return;
  }
  Value first = place_operator(p, id, inputs);
  for (int r = 0; r < node->n_results; r++)
    rewrite_set(&p->rewrite, (Value){id, r}, (Value){first.node, r});
  if (node->n_results > 1) return;
  rewrite_set(&p->rewrite, (Value){id, 0},
              place_by_target(p, id, place_by_lines(p, id, first)));
}

void place_node(Partition *p, int id) {
  const Node *node = p->rewrite.from->nodes.data[id];
  Op op = node->op;
  if (pin_is_at(&p->pins, id)) return; /* placed with its operand */
  for (int i = 0; i < node->n_inputs; i++)
    place_pins(p, node->inputs[i].node, true);
  rewrite_at(&p->rewrite, id);
  if (op == OP_scan)
    place_scan(p, id);
  else if (op == OP_constraint)
    place_constraint(p, id);
  else
    place_unpinned(p, id);
  place_pins(p, id, false);
}

/* The placement of a value that another stage receives is that which it has
 * there. */
static const Type *place_sent(Partition *p, const GraphOutput *output) {
  const Node *node = graph_node(p->rewrite.from, output->value);
  GraphInput received = {.role = ROLE_receive, .path = output->path};
  return place_input(p, &received, node->types[output->value.result],
                     node->span);
}

/* A persistent buffer keeps the sharding of its input. */
static Value place_output(Partition *p, const InputIndex *inputs,
                          const GraphOutput *output) {
  Graph *to = p->rewrite.to;
  place_pins(p, output->value.node, true);
  Value value = rewrite_get(&p->rewrite, output->value);
  const GraphInput *kept = input_indexed(inputs, output->role, output->path);
  const Type *want = kept ? graph_type(to, kept->value) : NULL;
  if (!want || !want->partial) value = reduce_partial(p, value);
  if (stage_edge_sent(p->ctx->cut, output)) {
    want = place_sent(p, output);
    rewrite_at(&p->rewrite, output->value.node);
  }
  value = collect_microbatches(p, value, want);
  const Type *type = graph_type(to, value);
  if (!want) want = type_logical(p->ctx->module->arena, type);
  return reshard(p, value, want, output->value.node);
}

static void place_outputs(Partition *p) {
  const Graph *from = p->rewrite.from;
  InputIndex inputs = graph_index_inputs(p->rewrite.to, p->ctx->scratch);
  for (int i = 0; i < from->outputs.n; i++) {
    const GraphOutput *output = &from->outputs.data[i];
    graph_output(p->rewrite.to, output->role, output->path,
                 place_output(p, &inputs, output));
  }
}

/* A node that runs for each micro-batch cannot wait for the sum over all of
 * them. */
static void check_microbatch_loop(PassContext *ctx, const Graph *graph) {
  bool *follows = ARENA_ARRAY(ctx->scratch, bool, graph->nodes.n);
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    for (int i = 0; i < node->n_inputs; i++)
      follows[id] |= follows[node->inputs[i].node];
    if (follows[id] && node_is_per_microbatch(graph, id)) {
      Diag *d = diag(ctx->module->diags, DIAG_needs_full_batch, node->span,
                     node->path && *node->path ? node->path
                                               : op_info(node->op)->name);
      diag_help(d, "sums that follow from data alone are computed before the "
                   "micro-batches; this one depends on parameters or states");
      return;
    }
    follows[id] |= op_has(node->op, OP_FLAG_joins_microbatches);
  }
}

static void check_heads(const Partition *p) {
  const Graph *graph = p->rewrite.from;
  const Node *missed = NULL;
  if (p->plan->attention != ATTENTION_ulysses || p->plan->replicates_data ||
      p->has_heads || diags_errors(p->ctx->module->diags) > 0)
    return;
  if (p->ctx->cut && !graph_has_op(graph, OP_attention)) return;
  for (int id = 0; id < graph->nodes.n && !missed; id++)
    if (graph->nodes.data[id]->op == OP_attention)
      missed = graph->nodes.data[id];
  report_no_attention(p->ctx, graph, missed);
}

Graph *partition_graph(PassContext *ctx, const Graph *graph,
                       PartitionTrial *trial) {
  const Plan *plan = ctx->plan;
  Partition p = {.ctx = ctx, .plan = plan, .trial = trial};
  trial->reshards.n = 0;
  p.rewrite = rewrite_begin(ctx, graph);
  p.rewrite.to->mesh = *plan_mesh(plan);
  p.mesh = &p.rewrite.to->mesh;
  p.table = reshard_create_plain(ctx->scratch, p.mesh);
  p.reduced = map_create(ctx->scratch);
  p.resharded = map_create(ctx->scratch);
  p.zero = map_create(ctx->scratch);
  p.parameters = map_create(ctx->scratch);
  p.by_heads = map_create(ctx->scratch);
  p.warned = map_create(ctx->scratch);
  p.strategies = strategy_memo_create(ctx->scratch);
  index_readers(&p);
  find_targets(&p);
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    if (diags_errors(ctx->module->diags) > 0)
      return rewrite_graph(ctx, graph, NULL, NULL);
    if (node->op != OP_input) {
      place_node(&p, id);
      continue;
    }
    const GraphInput *input =
        &graph->inputs.data[node_int(node, ATTR_index, 0)];
    rewrite_at(&p.rewrite, id);
    const Type *placed = place_term_input(&p, id);
    if (!placed) placed = place_input(&p, input, node->types[0], node->span);
    rewrite_set(&p.rewrite, (Value){id, 0},
                rewrite_input(p.rewrite.to, input, placed));
  }
  check_heads(&p);
  place_outputs(&p);
  Graph *placed = sum_over_full_batch(ctx, p.rewrite.to);
  check_microbatch_loop(ctx, placed);
  if (!plan->replicates_data) {
    check_named_pins(&p);
    check_operator_lines(&p);
  }
  return repeat_between_microbatches(ctx, placed);
}
