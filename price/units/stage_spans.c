/*
 * stage_spans.c -- finds what runs while a saved value is stored, in any plan
 * with stages.
 *
 *     x --> f --> g --> loss gradient --> g' --> f' --> reader of x
 *
 * A stage begins behind the one value that the stage before it sends, and its
 * backward pass behind the gradient that the stage behind it sends back.  So
 * kernels that are made of x and lead to the gradient of the loss, and those
 * that are made of this gradient and lead to a reader of x in the backward
 * pass, run one after the other, whatever the stages: two of one stage on its
 * stream, two of different stages on either side of a border.  Only kernels of
 * a single operator that run for each micro-batch count: a border may divide
 * others.
 */
#include "price/units/stage_groups.h"

#include "ir/list/instructions.h"
#include "price/units/value_origins.h"

typedef struct Spanning {
  Arena *arena;
  const Units *units;
  const ValueOrigins *origins;
  int source; /* value: the gradient of the loss, of which most others are made
               */
  VEC(SpanKernel) kernels;
} Spanning;

static const Graph *graph_of(const Spanning *s) {
  return s->units->graph;
}

static bool is_before(const Spanning *s, int value, int later) {
  return origins_has(origins_set(s->origins, later), value);
}

/* ---- kernels ---- */

static bool runs_each_time(const PlanUnit *unit, const UnitKernel *kernel) {
  for (int d = 0; d < kernel->dims->n; d++)
    if (unit->batch >> kernel->loop[d] & 1) return true;
  return false;
}

static bool is_single(const Spanning *s, const PlanUnit *unit,
                      const UnitKernel *kernel) {
  const Node *node = graph_of(s)->nodes.data[kernel->id];
  return (node->phase == PHASE_forward ||
          node->phase == PHASE_input_gradient) &&
         node->op != OP_fused && node_is_launched(graph_of(s), kernel->id) &&
         runs_each_time(unit, kernel);
}

static void list_kernels(Spanning *s) {
  for (int u = 0; u < s->units->units.n; u++) {
    const PlanUnit *unit = s->units->units.data[u];
    for (int i = 0; i < unit->kernels.n; i++)
      if (is_single(s, unit, &unit->kernels.data[i]))
        vec_push(s->arena, &s->kernels, ((SpanKernel){u, i}));
  }
}

static int node_of(const Spanning *s, const SpanKernel *kernel) {
  return s->units->units.data[kernel->unit]->kernels.data[kernel->kernel].id;
}

/* ---- the gradient of the loss ---- */

/* Returns how many values of the backward pass are made of this one; 0: it is
 * made of another one itself. */
static int count_behind(const Spanning *s, int value) {
  const Graph *graph = graph_of(s);
  int n = 0;
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    for (int r = 0; r < node->n_results; r++) {
      int at = s->origins->first[id] + r;
      if (node->phase != PHASE_input_gradient) continue;
      if (is_before(s, at, value)) return 0;
      n += is_before(s, value, at);
    }
  }
  return n;
}

static int find_source(const Spanning *s) {
  const Graph *graph = graph_of(s);
  int best = -1, most = 0;
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    for (int r = 0; r < node->n_results; r++) {
      int n = node->phase == PHASE_input_gradient
                  ? count_behind(s, s->origins->first[id] + r)
                  : 0;
      if (n <= most) continue;
      most = n;
      best = s->origins->first[id] + r;
    }
  }
  return best;
}

/* ---- what runs between a value and its reader ---- */

static bool is_forward(const Spanning *s, int node) {
  return graph_of(s)->nodes.data[node]->phase == PHASE_forward;
}

/* Fills in the kernels between, by number.  Returns how many there are. */
static int find_between(const Spanning *s, int value, int reader, bool *out) {
  int n = 0;
  for (int k = 0; k < s->kernels.n; k++) {
    int node = node_of(s, &s->kernels.data[k]), own = s->origins->first[node];
    out[k] = is_forward(s, node)
                 ? is_before(s, value, own) && is_before(s, own, s->source)
                 : is_before(s, s->source, own) && is_before(s, own, reader);
    n += out[k];
  }
  return n;
}

static bool reads(const Graph *graph, const Node *node, Value value) {
  for (int i = 0; i < node->n_inputs; i++)
    if (value_equal(units_stored_value(graph, node->inputs[i]), value))
      return true;
  return false;
}

/* Each reader bounds how long the value is stored; the one with the most before
 * it is taken. */
static const bool *between_of(const Spanning *s, Value value) {
  const Graph *graph = graph_of(s);
  bool *best = ARENA_ARRAY(s->arena, bool, s->kernels.n + 1);
  int own = origins_index(s->origins, value), most = 0;
  if (!s->origins->has_params[own]) return best;
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    bool is_backward = node->phase == PHASE_input_gradient ||
                       node->phase == PHASE_weight_gradient;
    if (!is_backward || !node_is_launched(graph, id) ||
        !reads(graph, node, value))
      continue;
    for (int r = 0; r < node->n_results; r++) {
      int reader = s->origins->first[id] + r;
      bool *between = ARENA_ARRAY(s->arena, bool, s->kernels.n + 1);
      if (!is_before(s, own, reader)) continue;
      int n = find_between(s, own, reader, between);
      if (n <= most) continue;
      most = n;
      best = between;
    }
  }
  return best;
}

const StageSpans *unit_stage_spans(Arena *arena, const Units *units) {
  StageSpans *out = ARENA_NEW(arena, StageSpans);
  Spanning s = {.arena = arena, .units = units};
  Arena *scratch = arena_beside(arena);
  s.origins = value_origins(scratch, units->graph,
                            1u << PHASE_forward | 1u << PHASE_input_gradient);
  s.source = find_source(&s);
  if (s.source >= 0) list_kernels(&s);
  for (int u = 0; u < units->units.n && s.source >= 0; u++) {
    const PlanUnit *unit = units->units.data[u];
    for (int i = 0; i < unit->saved.n; i++)
      vec_push(arena, &out->spans,
               ((StageSpan){u, i, between_of(&s, unit->saved.data[i].value)}));
  }
  out->n_kernels = s.kernels.n;
  out->kernels = s.kernels.data;
  arena_destroy(scratch);
  return out;
}
