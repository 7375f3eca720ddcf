/*
 * unit_cuts.c -- finds the transfers that no other kernel of their phase can
 * hide.
 *
 *     a --> [transfer] --> b --> c        every kernel is before or behind it
 *
 *     a --> [transfer] --> b -----> d     c may run meanwhile
 *      \--> c ---------------------/
 *
 * Phases are the forward pass and the chain of input gradients: weight
 * gradients can run beside a transfer of the backward pass, but not before the
 * gradients that they depend on.  So a cut of the backward pass splits it.
 */
#include "ir/list/instructions.h"
#include "price/units/units.h"

typedef struct Cuts {
  const Graph *graph;
  Units *units;
  int n_words;
  uint64_t *before; /* by node: a bit for each that it depends on, and itself */
  VEC(int) kernels[2]; /* of each phase */
} Cuts;

static uint64_t *before(const Cuts *c, int id) {
  return c->before + (int64_t)id * c->n_words;
}

static bool is_before(const Cuts *c, int id, int later) {
  return before(c, later)[id / 64] >> (id % 64) & 1;
}

static void find_before(Cuts *c) {
  for (int id = 0; id < c->graph->nodes.n; id++) {
    const Node *node = c->graph->nodes.data[id];
    uint64_t *own = before(c, id);
    own[id / 64] |= (uint64_t)1 << (id % 64);
    for (int i = 0; i < node->n_inputs; i++) {
      const uint64_t *of = before(c, node->inputs[i].node);
      for (int w = 0; w < c->n_words; w++) own[w] |= of[w];
    }
  }
}

static int phase_of(const Node *node) {
  return node->phase == PHASE_forward          ? 0
         : node->phase == PHASE_input_gradient ? 1
                                               : -1;
}

static void find_kernels(Arena *arena, Cuts *c) {
  for (int id = 0; id < c->graph->nodes.n; id++) {
    int phase = phase_of(c->graph->nodes.data[id]);
    if (phase >= 0 && node_is_launched(c->graph, id))
      vec_push(arena, &c->kernels[phase], id);
  }
}

static bool reads(const Node *node, Value value) {
  for (int i = 0; i < node->n_inputs; i++)
    if (value_equal(node->inputs[i], value)) return true;
  return false;
}

/* Returns whether each kernel is before the value or behind a reader of it in
 * the unit; some reader is in the phase. */
static bool is_cut(const Cuts *c, int phase, Value value,
                   const PlanUnit *readers) {
  bool is_read = false;
  for (int k = 0; k < readers->kernels.n; k++) {
    const Node *node = c->graph->nodes.data[readers->kernels.data[k].id];
    is_read |= phase_of(node) == phase && reads(node, value);
  }
  for (int i = 0; i < c->kernels[phase].n && is_read; i++) {
    int id = c->kernels[phase].data[i];
    bool is_known = is_before(c, id, value.node);
    for (int k = 0; k < readers->kernels.n && !is_known; k++) {
      int reader = readers->kernels.data[k].id;
      is_known = reads(c->graph->nodes.data[reader], value) &&
                 is_before(c, reader, id);
    }
    if (!is_known) return false;
  }
  return is_read;
}

/* A sum before or inside of a kernel. */
static bool is_sum_cut(const Cuts *c, const UnitSum *sum) {
  int phase = phase_of(c->graph->nodes.data[sum->kernel]);
  for (int i = 0; phase >= 0 && i < c->kernels[phase].n; i++) {
    int id = c->kernels[phase].data[i];
    if (!is_before(c, id, sum->before) && !is_before(c, sum->kernel, id))
      return false;
  }
  return phase >= 0;
}

/* ---- splits ---- */

static bool is_behind(const Cuts *c, const UnitEdge *edge, int id) {
  const PlanUnit *readers = c->units->units.data[edge->to];
  for (int k = 0; k < readers->kernels.n; k++) {
    int reader = readers->kernels.data[k].id;
    if (reads(c->graph->nodes.data[reader], edge->value) &&
        is_before(c, reader, id))
      return true;
  }
  return false;
}

static UnitSide side_of(const Cuts *c, const UnitEdge *edge,
                        const PlanUnit *unit) {
  bool is_head = true, is_rest = true;
  for (int k = 0; k < unit->kernels.n; k++) {
    int id = unit->kernels.data[k].id;
    const Node *node = c->graph->nodes.data[id];
    if (node->phase == PHASE_forward || !node_is_launched(c->graph, id))
      continue;
    is_rest &= is_behind(c, edge, id);
    if (node->phase == PHASE_input_gradient)
      is_head &= is_before(c, id, edge->value.node);
  }
  return is_rest ? SIDE_rest : is_head ? SIDE_head : SIDE_both;
}

static UnitSplit split_at(Arena *arena, const Cuts *c, int at) {
  const Units *units = c->units;
  const UnitEdge *edge = &units->edges.data[at];
  UnitSide *sides = ARENA_ARRAY(arena, UnitSide, units->units.n + 1);
  bool *is_head = ARENA_ARRAY(arena, bool, units->edges.n + 1);
  for (int u = 0; u < units->units.n; u++)
    sides[u] = side_of(c, edge, units->units.data[u]);
  for (int i = 0; i < units->edges.n; i++)
    is_head[i] =
        is_before(c, units->edges.data[i].value.node, edge->value.node);
  return (UnitSplit){at, sides, is_head};
}

/* Where a block stands for many, the cut in each would be another one. */
static void find_splits(Arena *arena, Cuts *c) {
  for (int i = 0; i < c->units->edges.n; i++) {
    const UnitEdge *edge = &c->units->edges.data[i];
    if (edge->is_backward && edge->is_cut && edge->times == 1)
      vec_push(arena, &c->units->splits, split_at(arena, c, i));
  }
}

void units_find_cuts(Arena *arena, Units *units) {
  Arena *scratch = arena_beside(arena);
  Cuts c = {.graph = units->graph,
            .units = units,
            .n_words = units->graph->nodes.n / 64 + 1};
  c.before = ARENA_ARRAY(scratch, uint64_t,
                         (int64_t)units->graph->nodes.n * c.n_words + 1);
  find_before(&c);
  find_kernels(scratch, &c);
  for (int i = 0; i < units->edges.n; i++) {
    UnitEdge *edge = &units->edges.data[i];
    edge->is_cut =
        is_cut(&c, edge->is_backward, edge->value, units->units.data[edge->to]);
  }
  for (int u = 0; u < units->units.n; u++)
    for (int i = 0; i < units->units.data[u]->sums.n; i++) {
      UnitSum *sum = &units->units.data[u]->sums.data[i];
      sum->is_cut = is_sum_cut(&c, sum);
    }
  find_splits(arena, &c);
  arena_destroy(scratch);
}
