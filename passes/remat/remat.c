/*
 * remat.c -- compute forward values again for the backward pass, which then
 * need not be stored until it reads them: rematerialisation (Chen et al. 2016,
 * "Training Deep Nets with Sublinear Memory Cost").
 *
 *     %2 = exp %1                  %2 = exp %1
 *     %3 = dot %2, %0              %3 = dot %2, %0
 *     %4 = ...                =>   %4 = ...
 *     %5 = mul %4, %2 @dgrad       %5 = after %1, %4 @dgrad
 *                                  %6 = exp %5 @dgrad
 *                                  %7 = mul %4, %6 @dgrad
 *
 * A forward value is computed again if a line `remat` of the plan names it, if
 * its schedule recomputes stages, or if a collective gathered it in the forward
 * pass; a line `keep`, and levels 1
 * and 2 of ZeRO for parameters, prevent the latter.  What was gathered last in
 * the forward pass and is read first in the backward pass stays.  Its clone
 * reads what the forward pass has stored, and clones of the operands that are
 * computed again as well, collectives included.  Clones are made once for all
 * readers.  Random masks repeat, because their numbers are keyed by position.
 *
 * The operands of a clone wait for an anchor (remat_places.c): `after` is a
 * view of its first operand and has an edge from the second, so that neither
 * fusing nor scheduling moves a clone into the forward pass.  In the same way a
 * parameter that ranks share is gathered shortly before its reader, and once
 * for each micro-batch; nodes between the gather and the reader, whose types do
 * not show that they are in the loop, have the attribute `per_microbatch`. What
 * the update, or a node behind a sum over micro-batches, reads of such a
 * parameter or of a clone from parameters is computed once more, after the
 * loop, and what another stage receives of it is gathered once more before the
 * loop.
 *
 * Values inside a scan are not dealt with here: `autodiff` writes their
 * recomputation into the backward scan (passes/train/scan_saving.c), and
 * `partition` leaves gathers in a scan for a line (scan_hoist.c).
 *
 * requires: placements, phases     keeps: placements, values of outputs
 * breaks: node ids; originals that only the backward pass read have no users
 * cost: O(nodes)
 */
#include "passes/remat/remat.h"

/* ---- what is computed again ---- */

static bool is_backward(const Node *node) {
  return node->phase == PHASE_input_gradient ||
         node->phase == PHASE_weight_gradient;
}

/* Puts the shards of a gathered value in place, or rounds it. */
static bool follows_gather(const Remat *r, const Node *node) {
  bool moves = op_is(node->op, OPCLASS_view) ||
               op_is(node->op, OPCLASS_data_movement) || node->op == OP_cast;
  return moves && node->n_inputs == 1 &&
         r->saving[node->inputs[0].node] == SAVING_again;
}

static bool is_persistent(Role role) {
  return role == ROLE_param || role == ROLE_ema || role == ROLE_state ||
         role == ROLE_step || role == ROLE_seed;
}

static bool follows_from_parameters(const Remat *r, const Node *node) {
  if (node->op == OP_input)
    return is_persistent(
        r->graph->inputs.data[node_int(node, ATTR_index, 0)].role);
  for (int i = 0; i < node->n_inputs; i++)
    if (!r->is_stored[node->inputs[i].node]) return false;
  return true;
}

static Saving saving_of(const Remat *r, int node_id) {
  const Node *node = r->graph->nodes.data[node_id];
  if (node->op == OP_input || node->phase != PHASE_forward)
    return SAVING_default;
  const PlanPin *line =
      r->ctx->plan ? plan_find_saving(r->ctx->plan, node->path) : NULL;
  if (line) return line->says == SAYS_remat ? SAVING_again : SAVING_kept;
  if (r->ctx->plan && plan_recomputes(r->ctx->plan)) return SAVING_again;
  bool is_gather = node->op == OP_all_gather;
  if (is_gather && r->is_kept[node_id]) return SAVING_kept;
  if (is_gather && r->keeps_parameters && follows_from_parameters(r, node))
    return SAVING_kept;
  return is_gather || follows_gather(r, node) ? SAVING_again : SAVING_default;
}

static void choose_savings(Remat *r) {
  Arena *arena = r->ctx->scratch;
  const Plan *plan = r->ctx->plan;
  r->saving = ARENA_ARRAY(arena, Saving, r->n);
  r->is_stored = ARENA_ARRAY(arena, bool, r->n);
  r->first_backward = r->n;
  r->keeps_parameters = plan && plan->zero > 0 && plan->zero < 3;
  for (int id = 0; id < r->n; id++) {
    const Node *node = r->graph->nodes.data[id];
    r->is_stored[id] = follows_from_parameters(r, node);
    r->saving[id] = saving_of(r, id);
    if (is_backward(node) && r->first_backward == r->n) r->first_backward = id;
  }
}

/* A clone is read by the backward pass, or by another clone. */
static void find_backward_readers(Remat *r) {
  r->reader = ARENA_ARRAY(r->ctx->scratch, int, r->n);
  for (int id = 0; id < r->n; id++) r->reader[id] = r->n;
  for (int id = r->n - 1; id >= 0; id--) {
    const Node *node = r->graph->nodes.data[id];
    int at = is_backward(node) ? id : r->reader[id];
    for (int i = 0; i < node->n_inputs && at < r->n; i++) {
      int from = node->inputs[i].node;
      if (r->saving[from] == SAVING_again && at < r->reader[from])
        r->reader[from] = at;
    }
  }
}

/* ---- messages ---- */

typedef enum LineUse {
  LINE_unused = 1, /* a line `remat` without effect so far */
  LINE_used
} LineUse;

static const PlanPin *remat_line(const Remat *r, const Node *node) {
  const PlanPin *line = plan_find_saving(r->ctx->plan, node->path);
  return line && line->says == SAYS_remat ? line : NULL;
}

/* The gradient of a scan computes values of the forward body again. */
static void find_uses_in_scan(const Remat *r, const Graph *body, Map *uses) {
  for (int id = 0; id < body->nodes.n; id++) {
    const Node *node = body->nodes.data[id];
    const PlanPin *line = remat_line(r, node);
    if (node->body) find_uses_in_scan(r, node->body, uses);
    if (line) map_put(uses, line, (void *)(intptr_t)LINE_used);
  }
}

/* The lines `remat` that have no effect.  Those of a plan with stages may have
 * one in the graph of another stage. */
static void report_lines(const Remat *r) {
  if (r->ctx->cut || !r->ctx->plan || !r->ctx->plan->saved ||
      r->first_backward == r->n)
    return;
  Map *uses = map_create(r->ctx->scratch);
  const Map *by_path = r->ctx->plan->saved;
  for (int i = 0; i < map_size(by_path); i++) {
    const PlanPin *line = map_value_at(by_path, i);
    if (line->says == SAYS_remat)
      map_put(uses, line, (void *)(intptr_t)LINE_unused);
  }
  for (int id = 0; id < r->n; id++) {
    const PlanPin *line = remat_line(r, r->graph->nodes.data[id]);
    if (line && r->reader[id] < r->n)
      map_put(uses, line, (void *)(intptr_t)LINE_used);
  }
  for (int id = 0; id < r->n; id++) {
    const Node *node = r->graph->nodes.data[id];
    if (node->op == OP_scan && is_backward(node))
      find_uses_in_scan(r, node->body, uses);
  }
  for (int i = 0; i < map_size(uses); i++) {
    const PlanPin *line = map_key_at(uses, i);
    if ((intptr_t)map_value_at(uses, i) == LINE_unused)
      diag(r->ctx->module->diags, DIAG_remat_not_saved, line->span);
  }
}

/* ---- the new graph ---- */

typedef struct RematEmit {
  Remat *r;
  Rewrite rewrite;
  Value **clones; /* by old node, as in Rewrite.map; NULL: not yet */
  /* Likewise of what is computed outside of the loop: for the update, and for
   * other stages. */
  Value **after_loop, **before_loop;
  bool *is_held; /* by old node: follows from a gather that waits */
  bool *is_sum;  /* by old node: follows from a sum over micro-batches */
  Map *held;     /* by value of the new graph: `after`, plus 1 ... */
  int anchor;    /* ... for this anchor */
  AxisSet time;
} RematEmit;

/* Nothing in its types says that it runs for each micro-batch, and an operand
 * of it does. */
static bool needs_mark(const RematEmit *e, const Node *node,
                       const Value *inputs) {
  const Graph *to = e->rewrite.to;
  bool follows = false;
  if (!e->time || op_has(node->op, OP_FLAG_joins_microbatches)) return false;
  for (int i = 0; i < node->n_inputs; i++) {
    if (type_uses_axes(graph_type(to, inputs[i]), e->time)) return false;
    const Node *from = graph_node(to, inputs[i]);
    follows |= !op_has(from->op, OP_FLAG_joins_microbatches) &&
               node_is_per_microbatch(to, inputs[i].node);
  }
  for (int i = 0; i < node->n_results; i++)
    if (type_uses_axes(node->types[i], e->time)) return false;
  return follows;
}

static Value append_like(RematEmit *e, int id, const Value *inputs) {
  const Node *node = e->r->graph->nodes.data[id];
  Attrs attrs = node_attrs(node);
  if (needs_mark(e, node, inputs)) attrs_int(&attrs, ATTR_per_microbatch, 1);
  return graph_append_typed(e->rewrite.to, node->op, inputs, node->n_inputs,
                            &attrs, node->types, node->n_results, node->body);
}

/* Inputs may come earlier than they did. */
static void emit_data(RematEmit *e, int id) {
  if (e->r->graph->nodes.data[id]->op == OP_input &&
      !value_is(rewrite_find(&e->rewrite, (Value){id, 0})))
    rewrite_copy(&e->rewrite, id);
}

/* The value, for readers that wait for the anchor of a place. */
static Value hold_value(RematEmit *e, Value value, int place) {
  Graph *to = e->rewrite.to;
  int anchor = e->r->anchor[place];
  const Node *node = graph_node(to, value);
  bool is_free = op_is(node->op, OPCLASS_source) && node->op != OP_input;
  if (anchor < 0) anchor = e->r->first_data;
  if (anchor < 0 || is_free) return value;
  emit_data(e, anchor);
  if (anchor != e->anchor) e->held = map_create(e->r->ctx->scratch);
  e->anchor = anchor;
  intptr_t known = (intptr_t)map_get(e->held, value_key(value));
  if (known) return (Value){(int)known - 1, 0};
  Value operands[] = {value, rewrite_get(&e->rewrite, (Value){anchor, 0})};
  const Type *type = graph_type(to, value);
  Value held =
      graph_append_typed(to, OP_after, operands, 2, NULL, &type, 1, NULL);
  map_put(e->held, value_key(value), (void *)(intptr_t)(held.node + 1));
  return held;
}

static Value cloned_value(const RematEmit *e, Value old) {
  Value *clones = e->clones[old.node];
  return clones ? clones[old.result] : VALUE_NONE;
}

static void emit_clone(RematEmit *e, int id, int place) {
  const Node *node = e->r->graph->nodes.data[id];
  Arena *arena = e->r->ctx->scratch;
  Value *inputs = ARENA_ARRAY(arena, Value, node->n_inputs);
  bool waits = false;
  rewrite_at(&e->rewrite, id);
  e->rewrite.to->phase = PHASE_input_gradient;
  for (int i = 0; i < node->n_inputs; i++) {
    inputs[i] = cloned_value(e, node->inputs[i]);
    waits |= value_is(inputs[i]);
  }
  for (int i = 0; i < node->n_inputs; i++) {
    if (value_is(inputs[i])) continue;
    inputs[i] = rewrite_get(&e->rewrite, node->inputs[i]);
    if (!waits) inputs[i] = hold_value(e, inputs[i], place);
  }
  Value first = append_like(e, id, inputs);
  e->clones[id] = ARENA_ARRAY(arena, Value, node->n_results);
  for (int i = 0; i < node->n_results; i++)
    e->clones[id][i] = (Value){first.node, i};
}

/* Computes a value that follows from parameters once more, in this phase:
 * `once` has what is there already.  `is_repeated`: whether that is needed. */
static Value value_once(RematEmit *e, Value old, Value **once, Phase phase,
                        bool (*is_repeated)(const RematEmit *e, int id)) {
  Graph *to = e->rewrite.to;
  int id = old.node;
  const Node *node = e->r->graph->nodes.data[id];
  if (!e->r->is_stored[id] || !is_repeated(e, id))
    return rewrite_get(&e->rewrite, old);
  if (once[id]) return once[id][old.result];
  Value *inputs = ARENA_ARRAY(e->r->ctx->scratch, Value, node->n_inputs);
  for (int i = 0; i < node->n_inputs; i++)
    inputs[i] = value_once(e, node->inputs[i], once, phase, is_repeated);
  rewrite_at(&e->rewrite, id);
  to->phase = phase;
  Attrs attrs = node_attrs(node);
  Value first = graph_append_typed(to, node->op, inputs, node->n_inputs, &attrs,
                                   node->types, node->n_results, node->body);
  once[id] = ARENA_ARRAY(e->r->ctx->scratch, Value, node->n_results);
  for (int i = 0; i < node->n_results; i++)
    once[id][i] = (Value){first.node, i};
  return once[id][old.result];
}

static bool is_in_loop(const RematEmit *e, int id) {
  Value now = rewrite_find(&e->rewrite, (Value){id, 0});
  return node_is_per_microbatch(e->rewrite.to, now.node);
}

/* The value, for a node of the update: what is computed in each micro-batch is
 * computed once more, after all of them. */
static Value value_after_loop(RematEmit *e, Value old) {
  return value_once(e, old, e->after_loop, PHASE_update, is_in_loop);
}

static bool is_held(const RematEmit *e, int id) {
  return e->is_held[id];
}

/* The value, for another stage: it may not wait for a micro-batch, as the
 * gather for the readers of this stage does. */
static Value value_before_loop(RematEmit *e, Value old) {
  return value_once(e, old, e->before_loop, PHASE_forward, is_held);
}

static Value operand_value(RematEmit *e, int id, Value old) {
  const Node *node = e->r->graph->nodes.data[id];
  if (e->is_sum[id] || node->phase == PHASE_update)
    return value_after_loop(e, old);
  Value clone = is_backward(node) ? cloned_value(e, old) : VALUE_NONE;
  return value_is(clone) ? clone : rewrite_get(&e->rewrite, old);
}

/* Notes what the node follows from. */
static void follow_inputs(RematEmit *e, int id) {
  const Graph *graph = e->r->graph;
  const Node *node = graph->nodes.data[id];
  for (int i = 0; i < node->n_inputs; i++) {
    int from = node->inputs[i].node;
    e->is_held[id] |= e->is_held[from];
    e->is_sum[id] |= e->is_sum[from] || op_has(graph->nodes.data[from]->op,
                                               OP_FLAG_joins_microbatches);
  }
}

/* Copies a node; one of the backward pass reads clones. */
static void emit_node(RematEmit *e, int id) {
  const Node *node = e->r->graph->nodes.data[id];
  if (value_is(rewrite_find(&e->rewrite, (Value){id, 0}))) return;
  if (node->op == OP_input) {
    rewrite_copy(&e->rewrite, id);
    return;
  }
  Value *inputs = ARENA_ARRAY(e->r->ctx->scratch, Value, node->n_inputs);
  follow_inputs(e, id);
  for (int i = 0; i < node->n_inputs; i++)
    inputs[i] = operand_value(e, id, node->inputs[i]);
  rewrite_at(&e->rewrite, id);
  Value first =
      needs_mark(e, node, inputs)
          ? append_like(e, id, inputs)
          : graph_copy_node(e->rewrite.to, e->r->graph, id, inputs, false);
  for (int i = 0; i < node->n_results; i++)
    rewrite_set(&e->rewrite, (Value){id, i}, (Value){first.node, i});
}

/* The operands of a gather of parameters follow from inputs alone, so it may
 * come earlier. */
static void emit_with_operands(RematEmit *e, int id) {
  const Node *node = e->r->graph->nodes.data[id];
  if (value_is(rewrite_find(&e->rewrite, (Value){id, 0}))) return;
  for (int i = 0; i < node->n_inputs; i++)
    emit_with_operands(e, node->inputs[i].node);
  emit_node(e, id);
}

static void emit_gather(RematEmit *e, int id, int place) {
  Value from = e->r->graph->nodes.data[id]->inputs[0];
  if (value_is(rewrite_find(&e->rewrite, (Value){id, 0}))) return;
  emit_with_operands(e, from.node);
  rewrite_at(&e->rewrite, id);
  Value held = hold_value(e, rewrite_get(&e->rewrite, from), place);
  e->is_held[id] = graph_node(e->rewrite.to, held)->op == OP_after;
  rewrite_set(&e->rewrite, (Value){id, 0}, append_like(e, id, &held));
}

static void emit_outputs(RematEmit *e) {
  for (int i = 0; i < e->r->graph->outputs.n; i++) {
    const GraphOutput *output = &e->r->graph->outputs.data[i];
    bool is_sent = output->role == ROLE_send;
    graph_output(e->rewrite.to, output->role, output->path,
                 is_sent ? value_before_loop(e, output->value)
                         : rewrite_get(&e->rewrite, output->value));
  }
}

static Graph *emit_graph(Remat *r) {
  RematEmit e = {.r = r,
                 .rewrite = rewrite_begin(r->ctx, r->graph),
                 .clones = ARENA_ARRAY(r->ctx->scratch, Value *, r->n),
                 .after_loop = ARENA_ARRAY(r->ctx->scratch, Value *, r->n),
                 .before_loop = ARENA_ARRAY(r->ctx->scratch, Value *, r->n),
                 .is_held = ARENA_ARRAY(r->ctx->scratch, bool, r->n),
                 .is_sum = ARENA_ARRAY(r->ctx->scratch, bool, r->n),
                 .anchor = -1,
                 .time = mesh_sequential(&r->graph->mesh)};
  for (int id = 0; id < r->n; id++) {
    for (int at = r->first_event[id]; at; at = r->events.data[at - 1].next) {
      const RematEvent *event = &r->events.data[at - 1];
      if (event->is_clone)
        emit_clone(&e, event->id, id);
      else
        emit_gather(&e, event->id, id);
    }
    emit_node(&e, id);
  }
  emit_outputs(&e);
  return e.rewrite.to;
}

Remat remat_decide(PassContext *ctx, const Graph *graph) {
  Remat r = {.ctx = ctx, .graph = graph, .n = graph->nodes.n};
  r.is_kept = ARENA_ARRAY(ctx->scratch, bool, r.n);
  choose_savings(&r);
  find_backward_readers(&r);
  if (remat_keep_last_gathers(&r)) {
    choose_savings(&r);
    find_backward_readers(&r);
  }
  remat_find_anchors(&r);
  remat_find_places(&r);
  return r;
}

Graph *pass_remat(PassContext *ctx, const Graph *graph) {
  Remat r = remat_decide(ctx, graph);
  report_lines(&r);
  if (r.events.n == 0) return rewrite_graph(ctx, graph, NULL, NULL);
  return emit_graph(&r);
}
