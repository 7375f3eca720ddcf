/*
 * unit_cuts.c -- finds the transfers that no other kernel of their phase can
 * hide.
 *
 *     a --> [transfer] --> b --> c        every kernel is before or behind it
 *
 *     a --> [transfer] --> b -----> d     c may run meanwhile
 *      \--> c ---------------------/
 *
 * Some kernels are beside everything and hardly work, as those of a loss that
 * balances experts.  They are light: cuts are those of the program without
 * them, and with cuts their time does not count.
 *
 * Phases are the forward pass and the chain of input gradients: weight
 * gradients can run beside a transfer of the backward pass, but not before the
 * gradients that they depend on.  So a cut of the backward pass splits it.
 */
#include "ir/list/instructions.h"
#include "ir/work.h"
#include "price/units/units.h"

#include <string.h>

typedef struct Cuts {
  const Graph *graph;
  Units *units;
  int n_words;
  uint64_t *before; /* by node: a bit for each that it depends on, and itself */
  bool *is_light;   /* by node */
  double *work;     /* by node: about how much, of kernels */
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

/* Returns whether a kernel is before the value or behind a reader of it in the
 * unit. */
static bool is_ordered(const Cuts *c, int id, Value value,
                       const PlanUnit *readers) {
  if (is_before(c, id, value.node)) return true;
  for (int k = 0; k < readers->kernels.n; k++) {
    int reader = readers->kernels.data[k].id;
    if (!c->is_light[reader] && reads(c->graph->nodes.data[reader], value) &&
        is_before(c, reader, id))
      return true;
  }
  return false;
}

/* Returns whether all kernels are ordered that are not light; some reader is in
 * the phase. */
static bool is_cut(const Cuts *c, int phase, Value value,
                   const PlanUnit *readers) {
  bool is_read = false;
  for (int k = 0; k < readers->kernels.n; k++) {
    int id = readers->kernels.data[k].id;
    const Node *node = c->graph->nodes.data[id];
    is_read |=
        phase_of(node) == phase && !c->is_light[id] && reads(node, value);
  }
  for (int i = 0; i < c->kernels[phase].n && is_read; i++) {
    int id = c->kernels[phase].data[i];
    if (!c->is_light[id] && !is_ordered(c, id, value, readers)) return false;
  }
  return is_read && !c->is_light[value.node];
}

/* A sum before or inside of a kernel. */
static bool is_sum_cut(const Cuts *c, const UnitSum *sum) {
  int phase = phase_of(c->graph->nodes.data[sum->kernel]);
  if (c->is_light[sum->kernel] || c->is_light[sum->before]) return false;
  for (int i = 0; phase >= 0 && i < c->kernels[phase].n; i++) {
    int id = c->kernels[phase].data[i];
    if (!c->is_light[id] && !is_before(c, id, sum->before) &&
        !is_before(c, sum->kernel, id))
      return false;
  }
  return phase >= 0;
}

/* ---- light kernels ---- */

/* An estimate in bytes: the products of most devices do about so many
 * operations while a byte moves. */
static double work_of(const Cuts *c, int id) {
  enum { OPERATIONS_OF_A_BYTE = 128 };
  Work work = node_work(c->graph, id);
  return (double)(work.read + work.written) +
         (double)work.flops / OPERATIONS_OF_A_BYTE;
}

/* "mlp.dot" of "block[3].mlp.dot": equal blocks have equal ones. */
static const char *path_in_block(const Cuts *c, int id) {
  const char *path = c->graph->nodes.data[id]->path;
  const char *end = strstr(path, "].");
  return end ? end + 2 : path;
}

/* Marks the kernels beside the value, if each of them hardly works. */
static void mark_beside(Cuts *c, int phase, const UnitEdge *edge, double most) {
  const PlanUnit *readers = c->units->units.data[edge->to];
  bool are_small = true;
  for (int pass = 0; pass < 2 && are_small; pass++)
    for (int i = 0; i < c->kernels[phase].n && are_small; i++) {
      int id = c->kernels[phase].data[i];
      if (is_ordered(c, id, edge->value, readers)) continue;
      if (pass == 0) are_small = c->work[id] <= most;
      if (pass == 1) c->is_light[id] = true;
    }
}

/* A kernel is light in all blocks or in none. */
static double mark_like(Cuts *c, int phase) {
  double work = 0;
  for (int i = 0; i < c->kernels[phase].n; i++) {
    int id = c->kernels[phase].data[i];
    for (int k = 0; k < c->kernels[phase].n && !c->is_light[id]; k++) {
      int other = c->kernels[phase].data[k];
      c->is_light[id] =
          c->is_light[other] &&
          strcmp(path_in_block(c, id), path_in_block(c, other)) == 0;
    }
    if (c->is_light[id]) work += c->work[id];
  }
  return work;
}

/* Light kernels have little work each, and in all. */
static void find_light(Arena *scratch, Cuts *c, int phase) {
  enum { PART_OF_LARGEST = 128, PART_OF_ALL = 64 };
  bool *others = c->is_light;
  double all = 0, largest = 0;
  size_t n = (size_t)c->graph->nodes.n;
  c->is_light = ARENA_ARRAY(scratch, bool, n + 1);
  for (int i = 0; i < c->kernels[phase].n; i++) {
    double work = c->work[c->kernels[phase].data[i]];
    all += work;
    if (work > largest) largest = work;
  }
  for (int i = 0; i < c->units->edges.n; i++) {
    const UnitEdge *edge = &c->units->edges.data[i];
    if (edge->is_backward == phase)
      mark_beside(c, phase, edge, largest / PART_OF_LARGEST);
  }
  if (mark_like(c, phase) > all / PART_OF_ALL)
    memset(c->is_light, 0, n * sizeof(bool));
  for (size_t i = 0; i < n; i++) c->is_light[i] |= others[i];
}

static void find_all_light(Arena *scratch, Cuts *c) {
  c->is_light = ARENA_ARRAY(scratch, bool, c->graph->nodes.n + 1);
  c->work = ARENA_ARRAY(scratch, double, c->graph->nodes.n + 1);
  for (int phase = 0; phase < 2; phase++) {
    for (int i = 0; i < c->kernels[phase].n; i++) {
      int id = c->kernels[phase].data[i];
      c->work[id] = work_of(c, id);
    }
    find_light(scratch, c, phase);
  }
  for (int u = 0; u < c->units->units.n; u++) {
    PlanUnit *unit = c->units->units.data[u];
    for (int i = 0; i < unit->kernels.n; i++)
      unit->kernels.data[i].is_light = c->is_light[unit->kernels.data[i].id];
  }
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
  find_all_light(scratch, &c);
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
