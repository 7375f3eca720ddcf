/*
 * offload_graph.c -- makes the graph with the swaps that offload.c has decided
 * on: nodes keep their order, and readers of a window get views of its swap in.
 */
#include "passes/buffers/offload.h"

typedef struct OffloadEmit {
  const Offload *o;
  Rewrite rewrite;
  Value *outs, *ins; /* by swap: its node; `swapped` once that is there */
  int *first_in, *first_wait; /* by old node: the first swap, plus 1 ... */
  int *next_in, *next_wait;   /* ... and by swap the next one */
  Map *views;                 /* by view of the old graph and swap in: plus 1 */
  AxisSet time;
} OffloadEmit;

/* Marks a node beside one that runs for each micro-batch. */
static void mark_like(const OffloadEmit *e, Attrs *attrs, const Type *type,
                      int like) {
  if (node_is_per_microbatch(e->o->graph, like) &&
      !type_uses_axes(type, e->time))
    attrs_int(attrs, ATTR_per_microbatch, 1);
}

static Value append_swap(OffloadEmit *e, Op op, Value from, int like) {
  Graph *to = e->rewrite.to;
  const Type *type = graph_type(to, from);
  Attrs attrs = {0};
  mark_like(e, &attrs, type, like);
  return graph_append_typed(to, op, &from, 1, &attrs, &type, 1, NULL);
}

/* Inputs may come earlier than they did. */
static void emit_input(OffloadEmit *e, int id) {
  const Node *node = e->o->graph->nodes.data[id];
  if (node->op != OP_input ||
      value_is(rewrite_find(&e->rewrite, (Value){id, 0})))
    return;
  rewrite_copy(&e->rewrite, id);
  int index = (int)node_int(node, ATTR_index, 0);
  e->rewrite.to->inputs.data[e->rewrite.to->inputs.n - 1].is_on_host =
      e->o->is_on_host[index];
}

/* ---- swaps ---- */

static void emit_out(OffloadEmit *e, int out) {
  const OffloadOut *of = &e->o->outs.data[out];
  rewrite_at(&e->rewrite, of->value.node);
  e->outs[out] = append_swap(e, OP_swap_out,
                             rewrite_get(&e->rewrite, of->value), of->producer);
}

/* An output stays the swap itself, whose bytes are those that persist. */
static void emit_wait(OffloadEmit *e, int out) {
  const OffloadOut *of = &e->o->outs.data[out];
  rewrite_at(&e->rewrite, of->value.node);
  if (of->output < 0) e->rewrite.to->phase = PHASE_forward;
  Value ended = append_swap(e, OP_swapped, e->outs[out], of->producer);
  if (of->output < 0) e->outs[out] = ended;
}

static void emit_in(OffloadEmit *e, int in) {
  const OffloadIn *of = &e->o->ins.data[in];
  emit_input(e, of->value.node);
  Value from =
      of->out >= 0 ? e->outs[of->out] : rewrite_get(&e->rewrite, of->value);
  rewrite_at(&e->rewrite, of->value.node);
  e->rewrite.to->phase = offload_phase(e->o, of->reader);
  if (of->out < 0)
    e->rewrite.to->path =
        e->o->graph->inputs
            .data[node_int(e->o->graph->nodes.data[of->value.node], ATTR_index,
                           0)]
            .path;
  e->ins[in] = append_swap(e, OP_swap_in, from, of->reader);
}

/* ---- readers ---- */

/* The value for a reader: of a swap in, through the views of the old one. */
static Value swapped_value(OffloadEmit *e, Value value, int in) {
  const Graph *graph = e->o->graph;
  if (!node_is_view(graph, value.node)) return e->ins[in];
  uint64_t key = ((uint64_t)value.node << 32) + (uint64_t)in + 1;
  intptr_t known = (intptr_t)map_get(e->views, (void *)(uintptr_t)key);
  if (known) return (Value){(int)known - 1, 0};
  const Node *node = graph->nodes.data[value.node];
  Value *inputs = ARENA_ARRAY(e->o->ctx->scratch, Value, node->n_inputs);
  inputs[0] = swapped_value(e, node->inputs[0], in);
  for (int i = 1; i < node->n_inputs; i++)
    inputs[i] = rewrite_get(&e->rewrite, node->inputs[i]);
  rewrite_at(&e->rewrite, value.node);
  Attrs attrs = node_attrs(node);
  mark_like(e, &attrs, node->types[0], e->o->ins.data[in].reader);
  Value view =
      graph_append_typed(e->rewrite.to, node->op, inputs, node->n_inputs,
                         &attrs, node->types, node->n_results, NULL);
  map_put(e->views, (void *)(uintptr_t)key, (void *)(intptr_t)(view.node + 1));
  return view;
}

static bool reads_swap(const Offload *o, int id) {
  const Node *node = o->graph->nodes.data[id];
  if (!node_is_launched(o->graph, id)) return false;
  for (int i = 0; i < node->n_inputs; i++) {
    Value root = offload_root(o->graph, node->inputs[i]);
    if (offload_find_in(o, root, id) >= 0) return true;
  }
  return false;
}

static void emit_reader(OffloadEmit *e, int id) {
  const Graph *graph = e->o->graph;
  const Node *node = graph->nodes.data[id];
  Value *inputs = ARENA_ARRAY(e->o->ctx->scratch, Value, node->n_inputs);
  for (int i = 0; i < node->n_inputs; i++) {
    Value root = offload_root(graph, node->inputs[i]);
    int in = offload_find_in(e->o, root, id);
    inputs[i] = in < 0 ? rewrite_get(&e->rewrite, node->inputs[i])
                       : swapped_value(e, node->inputs[i], in);
  }
  rewrite_at(&e->rewrite, id);
  Value first = graph_copy_node(e->rewrite.to, graph, id, inputs, false);
  for (int r = 0; r < node->n_results; r++)
    rewrite_set(&e->rewrite, (Value){id, r}, (Value){first.node, r});
}

/* ---- views ---- */

static void need_view(const Graph *graph, bool *is_needed, Value value) {
  if (!node_is_view(graph, value.node) || is_needed[value.node]) return;
  const Node *node = graph->nodes.data[value.node];
  is_needed[value.node] = true;
  for (int i = 0; i < node->n_inputs; i++)
    need_view(graph, is_needed, node->inputs[i]);
}

/* A view without readers would keep the bytes that it shows. */
static bool *find_needed_views(const Offload *o) {
  const Graph *graph = o->graph;
  bool *is_needed = ARENA_ARRAY(o->ctx->scratch, bool, o->n);
  for (int id = 0; id < o->n; id++) {
    const Node *node = graph->nodes.data[id];
    if (!node_is_launched(graph, id)) continue;
    for (int i = 0; i < node->n_inputs; i++) {
      Value input = node->inputs[i];
      if (offload_find_in(o, offload_root(graph, input), id) < 0) {
        need_view(graph, is_needed, input);
        continue;
      }
      /* Its copy waits for what the view waits for. */
      for (; node_is_view(graph, input.node);
           input = graph->nodes.data[input.node]->inputs[0])
        for (int k = 1; k < graph->nodes.data[input.node]->n_inputs; k++)
          need_view(graph, is_needed, graph->nodes.data[input.node]->inputs[k]);
    }
  }
  for (int i = 0; i < graph->outputs.n; i++)
    need_view(graph, is_needed, graph->outputs.data[i].value);
  return is_needed;
}

/* ---- the whole ---- */

static void index_places(OffloadEmit *e) {
  const Offload *o = e->o;
  Arena *arena = o->ctx->scratch;
  e->first_in = ARENA_ARRAY(arena, int, o->n + 1);
  e->first_wait = ARENA_ARRAY(arena, int, o->n + 1);
  e->next_in = ARENA_ARRAY(arena, int, o->ins.n + 1);
  e->next_wait = ARENA_ARRAY(arena, int, o->outs.n + 1);
  for (int i = o->ins.n - 1; i >= 0; i--) {
    int *first = &e->first_in[o->ins.data[i].at];
    e->next_in[i] = *first;
    *first = i + 1;
  }
  for (int i = o->outs.n - 1; i >= 0; i--) {
    int *first = &e->first_wait[o->outs.data[i].until];
    e->next_wait[i] = *first;
    *first = i + 1;
  }
}

static void emit_before(OffloadEmit *e, int id) {
  for (int at = e->first_wait[id]; at; at = e->next_wait[at - 1])
    emit_wait(e, at - 1);
  for (int at = e->first_in[id]; at; at = e->next_in[at - 1])
    emit_in(e, at - 1);
}

static void emit_outputs(OffloadEmit *e) {
  const Graph *graph = e->o->graph;
  int *out_of = ARENA_ARRAY(e->o->ctx->scratch, int, graph->outputs.n);
  for (int i = 0; i < e->o->outs.n; i++)
    if (e->o->outs.data[i].output >= 0)
      out_of[e->o->outs.data[i].output] = i + 1;
  for (int i = 0; i < graph->outputs.n; i++) {
    const GraphOutput *output = &graph->outputs.data[i];
    graph_output(e->rewrite.to, output->role, output->path,
                 out_of[i] ? e->outs[out_of[i] - 1]
                           : rewrite_get(&e->rewrite, output->value));
  }
}

static Graph *make_graph(const Offload *o) {
  Arena *arena = o->ctx->scratch;
  OffloadEmit e = {.o = o,
                   .rewrite = rewrite_begin(o->ctx, o->graph),
                   .outs = ARENA_ARRAY(arena, Value, o->outs.n),
                   .ins = ARENA_ARRAY(arena, Value, o->ins.n),
                   .views = map_create(arena),
                   .time = mesh_sequential(&o->graph->mesh)};
  int next_out = 0;
  e.rewrite.n_same = -1; /* inputs change */
  index_places(&e);
  const bool *is_needed = find_needed_views(o);
  for (int id = 0; id < o->n; id++) {
    emit_before(&e, id);
    if (o->graph->nodes.data[id]->op == OP_input)
      emit_input(&e, id);
    else if (node_is_view(o->graph, id) && !is_needed[id])
      continue;
    else if (reads_swap(o, id))
      emit_reader(&e, id);
    else
      rewrite_copy(&e.rewrite, id);
    while (next_out < o->outs.n && o->outs.data[next_out].producer == id)
      emit_out(&e, next_out++);
  }
  emit_before(&e, o->n);
  emit_outputs(&e);
  return e.rewrite.to;
}

/* All inputs that persist in host memory are marked there. */
static bool is_any(const Offload *o) {
  bool is_any = o->outs.n > 0;
  for (int i = 0; i < o->graph->inputs.n; i++) is_any |= o->is_on_host[i];
  return is_any;
}

/* The driver warns about the stages of a plan together. */
Graph *pass_offload(PassContext *ctx, const Graph *graph) {
  if (!ctx->plan || !ctx->plan->offloaded) return NULL;
  Offload o = offload_decide(ctx, graph);
  Graph *made = is_any(&o) ? make_graph(&o) : NULL;
  const Graph *final = made ? made : graph;
  if (ctx->is_training && !ctx->is_trial && !ctx->cut)
    offload_report(ctx->module, ctx->plan, &final, 1);
  return made;
}
