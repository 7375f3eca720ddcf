/*
 * offload.c -- keeps in host memory what lines `offload` of the plan name:
 * values that the backward pass reads, parameters and optimizer state.
 *
 *     %1 = fused %0                 %1 = fused %0
 *     %2 = dot %1, %w               %2 = swap_out %1
 *     ...                      =>   %3 = dot %1, %w
 *     %9 = dot %8, %1 @wgrad        %4 = swapped %2
 *                                   ...
 *                                   %12 = swap_in %4
 *                                   %13 = dot %11, %12 @wgrad
 *
 * A value has bytes on the device from its producer to the end of its swap out,
 * which is `swapped`, and those of the swap in from there to the last reader.
 * An input that is named persists in host memory, and is swapped in for each of
 * the forward pass, the backward pass and the update that reads it, for each
 * micro-batch where that does; what replaces it is swapped out.
 *
 * The launches have their order already.  A swap out starts right behind its
 * producer.  A swap in starts as early as the limit of bytes under way allows:
 * the `prefetch` of the plan, or of its default the largest value that is
 * swapped.  One that alone is larger is under way alone.  A swap out has to
 * have ended where the limit asks for it, at the latest before the value is
 * swapped in.
 *
 * In a stage of several what is swapped in a segment has ended there, because
 * other stages of the rank may use its bytes next.  A value of a micro-batch
 * has bytes on the host from its forward pass to its last reader, once for each
 * frame, and on the device inside of the segments alone; a value that the stage
 * receives leaves behind its first reader.
 *
 * requires: an ordered graph      keeps: the order, values of outputs
 * breaks: node ids
 * cost: O(nodes), and a sort of the swaps
 */
#include "passes/buffers/offload.h"

#include "passes/stages/stages.h"

#include <stdlib.h>
#include <string.h>

/* ---- what is in host memory ---- */

static const PlanPin *line_of_state(Module *module, const Plan *plan,
                                    const char *path) {
  const char *parameter = strchr(path, '/');
  if (!parameter) return NULL;
  return plan_find_offload(
      plan, plan_update_key(module->names, ABOUT_optimizer, parameter + 1));
}

static const PlanPin *line_of_input(Module *module, const Plan *plan,
                                    const GraphInput *input) {
  if (input->role == ROLE_param) return plan_find_offload(plan, input->path);
  if (input->role == ROLE_optimizer_state)
    return line_of_state(module, plan, input->path);
  return NULL;
}

bool offload_has_input(const PassContext *ctx, const GraphInput *input) {
  return ctx->plan && ctx->plan->offloaded &&
         line_of_input(ctx->module, ctx->plan, input);
}

/* The path of a result is that of the operator in the region that makes it. */
static Name path_of_result(const Graph *graph, Value value) {
  Name path = graph_path(graph, value.node);
  for (const Graph *body = graph_node(graph, value)->body; body;
       body = graph_node(body, value)->body) {
    value = body->outputs.data[value.result].value;
    if (graph_node(body, value)->op == OP_input) break;
    path = graph_path(body, value.node);
  }
  return path;
}

static const PlanPin *line_of_value(const Plan *plan, const Graph *graph,
                                    Value value) {
  const PlanPin *line = plan_find_offload(plan, path_of_result(graph, value));
  return line ? line : plan_find_offload(plan, graph_path(graph, value.node));
}

/* ---- who reads what ---- */

Value offload_root(const Graph *graph, Value value) {
  while (node_is_view(graph, value.node))
    value = graph->nodes.data[value.node]->inputs[0];
  return value;
}

static int64_t bytes_of(const Graph *graph, Value value) {
  const Type *type = graph_type(graph, value);
  return type_local_elements(type, &graph->mesh) *
         dtype_size_bytes(type->dtype);
}

/* Nodes of one window read one swap in: those of a segment of a stage; else
 * those of a pass, or of the update, and there of what runs before the
 * micro-batches, in them, and behind them. */
enum { N_WINDOWS = 9 };

static bool is_stage(const Offload *o) {
  return o->segments.n > 0;
}

static int window_of(const Offload *o, int id, bool is_saved) {
  const Node *node = o->graph->nodes.data[id];
  int pass = node->phase == PHASE_forward  ? 0
             : node->phase == PHASE_update ? 2
                                           : 1;
  if (is_stage(o)) return o->segment[id];
  if (is_saved && pass == 2) pass = 1;
  return 3 * pass + o->segment[id];
}

/* 0 before the micro-batches, 1 in them, 2 behind them. */
static void find_segments(Offload *o) {
  bool was_in = false;
  for (int id = 0; id < o->n; id++) {
    bool is_in = node_is_per_microbatch(o->graph, id);
    was_in |= is_in;
    o->segment[id] = is_in ? 1 : was_in ? 2 : 0;
  }
}

static TokenKind kind_of(const Offload *o, int id) {
  return o->segments.data[o->segment[id]].kind;
}

/* The nodes stand in the order of the segments; what is received for each
 * micro-batch in the forward pass is of that. */
static void find_stage_segments(Offload *o) {
  const StageCut *cut = o->ctx->cut;
  int at = 0, forward = 0;
  o->segments = stage_graph_segments(o->ctx->scratch, cut, o->graph);
  for (int s = 0; s < o->segments.n; s++)
    if (o->segments.data[s].kind == TOKEN_forward) forward = s;
  for (int id = 0; id < o->n; id++) {
    while (id >= o->segments.data[at].end_node) at++;
    o->segment[id] = at;
  }
  for (int i = 0; i < o->graph->inputs.n; i++) {
    const GraphInput *input = &o->graph->inputs.data[i];
    const StageEdge *edge = stage_edge_received(cut, input);
    if (edge && !edge->is_of_step) o->segment[input->value.node] = forward;
  }
}

Phase offload_phase(const Offload *o, int reader) {
  Phase phase = (Phase)o->graph->nodes.data[reader]->phase;
  if (!is_stage(o)) return phase;
  switch (kind_of(o, reader)) {
  case TOKEN_backward:
  case TOKEN_input_grad: return PHASE_input_gradient;
  case TOKEN_weight_grad: return PHASE_weight_gradient;
  case TOKEN_update: return PHASE_update;
  default: return PHASE_forward;
  }
}

static int value_of(const Offload *o, Value value) {
  return o->first_value[value.node] + value.result;
}

/* It is made or received in the step; else it persists. */
static bool is_made(const Offload *o, Value root) {
  const Node *node = graph_node(o->graph, root);
  if (node->op != OP_input) return true;
  Role role = o->graph->inputs.data[node_int(node, ATTR_index, 0)].role;
  return role == ROLE_receive;
}

int offload_find_in(const Offload *o, Value root, int reader) {
  int v = value_of(o, root);
  if (!o->is_swapped[v]) return -1;
  return o->in_of[v * o->n_windows + window_of(o, reader, is_made(o, root))] -
         1;
}

static void add_reader(Offload *o, Value root, int reader) {
  int v = value_of(o, root);
  bool is_saved = is_made(o, root);
  int window = window_of(o, reader, is_saved);
  int first = is_stage(o) ? o->segment[root.node] + 1 : 3;
  if (is_saved && window < first) return; /* the forward pass reads it itself */
  int *in = &o->in_of[v * o->n_windows + window];
  if (*in) return;
  vec_push(o->ctx->scratch, &o->ins,
           (OffloadIn){.value = root,
                       .bytes = bytes_of(o->graph, root),
                       .reader = reader,
                       .at = reader,
                       .out = -1});
  *in = o->ins.n;
}

/* ---- saved values ---- */

typedef struct SavedUse {
  int first_forward, last_forward, first_backward;
  bool is_output; /* other than one that is sent: that is of its segment */
  bool
      is_elsewhere; /* a reader, or itself, is not of the micro-batches alone */
} SavedUse;

static bool is_forward(const Offload *o, int reader) {
  return is_stage(o) ? kind_of(o, reader) == TOKEN_forward
                     : o->graph->nodes.data[reader]->phase == PHASE_forward;
}

static bool is_elsewhere(const Offload *o, int reader, Value root) {
  if (!is_stage(o)) return o->segment[reader] != o->segment[root.node];
  return kind_of(o, root.node) != TOKEN_forward ||
         token_info(kind_of(o, reader))->is_of_step;
}

static void note_reader(const Offload *o, SavedUse *uses, int reader,
                        Value input) {
  Value root = offload_root(o->graph, input);
  SavedUse *use = &uses[value_of(o, root)];
  if (is_forward(o, reader))
    use->last_forward = reader;
  else if (!use->first_backward)
    use->first_backward = reader;
  if (!use->first_forward) use->first_forward = use->last_forward;
  use->is_elsewhere |= is_elsewhere(o, reader, root);
}

static SavedUse *find_uses(const Offload *o) {
  SavedUse *uses = ARENA_ARRAY(o->ctx->scratch, SavedUse, o->n_values);
  for (int id = 0; id < o->n; id++) {
    const Node *node = o->graph->nodes.data[id];
    for (int i = 0; i < node->n_inputs && node_is_launched(o->graph, id); i++)
      note_reader(o, uses, id, node->inputs[i]);
  }
  for (int i = 0; i < o->graph->outputs.n; i++) {
    const GraphOutput *output = &o->graph->outputs.data[i];
    Value root = offload_root(o->graph, output->value);
    uses[value_of(o, root)].is_output |= output->role != ROLE_send;
  }
  return uses;
}

/* A value that is read backward before the forward pass has read it for the
 * last time has bytes on the device all the time. */
static bool is_saved(const SavedUse *use) {
  return use->first_backward > use->last_forward && !use->is_output &&
         !use->is_elsewhere;
}

/* Nothing but its readers tells when a received value is there. */
static int producer_of(const Offload *o, Value value, const SavedUse *use) {
  return graph_node(o->graph, value)->op == OP_input ? use->first_forward
                                                     : value.node;
}

static bool may_be_saved(const Offload *o, int id) {
  const Node *node = o->graph->nodes.data[id];
  return node->phase == PHASE_forward && node->n_results > 0 &&
         (node_is_launched(o->graph, id) ||
          (node->op == OP_input && is_made(o, (Value){id, 0})));
}

static void find_saved(Offload *o) {
  const SavedUse *uses = find_uses(o);
  for (int id = 0; id < o->n; id++) {
    const Node *node = o->graph->nodes.data[id];
    bool may = may_be_saved(o, id);
    for (int r = 0; may && r < node->n_results; r++) {
      Value value = {id, r};
      const SavedUse *use = &uses[value_of(o, value)];
      if (!line_of_value(o->ctx->plan, o->graph, value) || !is_saved(use))
        continue;
      o->is_swapped[value_of(o, value)] = true;
      vec_push(o->ctx->scratch, &o->outs,
               (OffloadOut){.value = value,
                            .bytes = bytes_of(o->graph, value),
                            .producer = producer_of(o, value, use),
                            .last_forward = use->last_forward,
                            .output = -1});
    }
  }
}

/* ---- inputs ---- */

static void find_inputs(Offload *o) {
  const Graph *graph = o->graph;
  o->is_on_host = ARENA_ARRAY(o->ctx->scratch, bool, graph->inputs.n);
  for (int i = 0; i < graph->inputs.n; i++) {
    const GraphInput *input = &graph->inputs.data[i];
    if (!offload_has_input(o->ctx, input)) continue;
    o->is_on_host[i] = o->is_swapped[value_of(o, input->value)] = true;
  }
  for (int i = 0; i < graph->outputs.n; i++) {
    const GraphOutput *output = &graph->outputs.data[i];
    const GraphInput *input =
        output->role == ROLE_param || output->role == ROLE_optimizer_state
            ? graph_find_input(graph, output->role, output->path)
            : NULL;
    if (!input || !o->is_on_host[input - graph->inputs.data] ||
        offload_root(graph, output->value).node == input->value.node)
      continue;
    vec_push(o->ctx->scratch, &o->outs,
             (OffloadOut){.value = output->value,
                          .bytes = bytes_of(graph, output->value),
                          .producer = output->value.node,
                          .last_forward = output->value.node,
                          .output = i});
  }
}

static void find_readers(Offload *o) {
  for (int id = 0; id < o->n; id++) {
    const Node *node = o->graph->nodes.data[id];
    if (!node_is_launched(o->graph, id)) continue;
    for (int i = 0; i < node->n_inputs; i++) {
      Value root = offload_root(o->graph, node->inputs[i]);
      if (o->is_swapped[value_of(o, root)]) add_reader(o, root, id);
    }
  }
}

/* ---- when they are swapped ---- */

static int compare_outs(const void *a, const void *b) {
  const OffloadOut *x = a, *y = b;
  if (x->producer != y->producer) return x->producer - y->producer;
  if (x->value.node != y->value.node) return x->value.node - y->value.node;
  return x->value.result - y->value.result;
}

static int64_t limit_of(const Offload *o) {
  int64_t largest = 0, written = o->ctx->plan->prefetch_bytes;
  if (written > 0 && written != PLAN_PREFETCH_BYTES) return written;
  for (int i = 0; i < o->outs.n; i++)
    if (o->outs.data[i].bytes > largest) largest = o->outs.data[i].bytes;
  for (int i = 0; i < o->ins.n; i++)
    if (o->ins.data[i].bytes > largest) largest = o->ins.data[i].bytes;
  return largest;
}

/* Swap in `i` may start where the first of those before it starts that are
 * under way with it. */
static void place_ins(Offload *o, int64_t limit) {
  for (int i = 0; i < o->ins.n; i++) {
    OffloadIn *in = &o->ins.data[i];
    int64_t bytes = in->bytes;
    int first = i;
    for (; first > 0; first--) {
      const OffloadIn *before = &o->ins.data[first - 1];
      bytes += before->bytes;
      if (bytes > limit || o->segment[before->reader] != o->segment[in->reader])
        break;
    }
    in->at = o->ins.data[first].reader;
    if (in->out < 0) continue;
    const OffloadOut *out = &o->outs.data[in->out];
    if (in->at <= out->last_forward) in->at = out->last_forward + 1;
    if (in->at <= out->producer) in->at = out->producer + 1;
  }
}

/* A swap out has ended before the producer of the first later one that would
 * bring the bytes under way above the limit, and in a stage where its segment
 * ends. */
static void place_waits(Offload *o, int64_t limit) {
  for (int i = 0; i < o->outs.n; i++) {
    OffloadOut *out = &o->outs.data[i];
    int64_t bytes = out->bytes;
    int end = is_stage(o) ? o->segments.data[o->segment[out->producer]].end_node
                          : o->n;
    out->until = end;
    for (int k = i + 1; k < o->outs.n && out->until == end; k++) {
      bytes += o->outs.data[k].bytes;
      int producer = o->outs.data[k].producer;
      if (bytes > limit && producer > out->producer && producer < end)
        out->until = producer;
    }
    for (int k = 0; k < o->ins.n; k++) {
      const OffloadIn *in = &o->ins.data[k];
      bool is_own = in->out == i;
      bool is_later = in->at > out->producer &&
                      o->segment[in->at] == o->segment[out->producer];
      if ((is_own || is_later) && in->at < out->until) out->until = in->at;
    }
  }
}

static void place_swaps(Offload *o) {
  if (o->outs.n > 1)
    qsort(o->outs.data, (size_t)o->outs.n, sizeof(OffloadOut), compare_outs);
  for (int k = 0; k < o->outs.n; k++) {
    const OffloadOut *out = &o->outs.data[k];
    for (int w = 0; w < o->n_windows && out->output < 0; w++) {
      int in = o->in_of[value_of(o, out->value) * o->n_windows + w];
      if (in) o->ins.data[in - 1].out = k;
    }
  }
  int64_t limit = limit_of(o);
  place_ins(o, limit);
  place_waits(o, limit);
}

/* ---- messages ---- */

/* Notes the lines by which values of a final graph are in host memory. */
static void note_lines(Module *module, const Plan *plan, const Graph *graph,
                       Map *used) {
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    const PlanPin *line = NULL;
    if (node->op == OP_swap_out)
      line = line_of_value(plan, graph, node->inputs[0]);
    if (line) map_put(used, line, (void *)line);
  }
  for (int i = 0; i < graph->inputs.n; i++) {
    const PlanPin *line = line_of_input(module, plan, &graph->inputs.data[i]);
    if (line) map_put(used, line, (void *)line);
  }
}

void offload_report(Module *module, const Plan *plan,
                    const Graph *const *graphs, int n) {
  if (!plan || !plan->offloaded) return;
  Arena *scratch = arena_create(module->memory);
  Map *used = map_create(scratch);
  for (int g = 0; g < n; g++) note_lines(module, plan, graphs[g], used);
  for (int i = 0; i < plan->pins.n; i++) {
    const PlanPin *line = &plan->pins.data[i];
    if (line->says == SAYS_offload && !map_has(used, line))
      diag(module->diags, DIAG_offload_not_stored, line->span);
  }
  arena_destroy(scratch);
}

Offload offload_decide(PassContext *ctx, const Graph *graph) {
  Arena *arena = ctx->scratch;
  Offload o = {.ctx = ctx, .graph = graph, .n = graph->nodes.n};
  o.first_value = ARENA_ARRAY(arena, int, o.n);
  for (int id = 0; id < o.n; id++) {
    o.first_value[id] = o.n_values;
    o.n_values += graph->nodes.data[id]->n_results;
  }
  o.is_swapped = ARENA_ARRAY(arena, bool, o.n_values);
  o.segment = ARENA_ARRAY(arena, int, o.n);
  if (ctx->cut)
    find_stage_segments(&o);
  else
    find_segments(&o);
  o.n_windows = is_stage(&o) ? o.segments.n : N_WINDOWS;
  o.in_of = ARENA_ARRAY(arena, int, o.n_values *o.n_windows);
  find_saved(&o);
  find_inputs(&o);
  find_readers(&o);
  place_swaps(&o);
  return o;
}
