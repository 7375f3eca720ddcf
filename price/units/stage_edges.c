/*
 * stage_edges.c -- finds the values that a border of stages may cross.
 *
 *     %4 = add %3, %2           may cross: it goes on alone
 *     %5 = layernorm %4         stays: %4 is read on beside it
 *     %6 = dot %5, %0
 *     %7 = add %4, %6
 *
 * Stages are cut where one value alone goes on that parameters have a part in.
 * A value x goes on beside another one wherever its reader is behind a border,
 * and so crosses none, if what x is made of is read again by or behind each of
 * its readers:
 *
 *     y --> ... --> x --> reader --> ... --> o
 *      \------------------------------------/
 *
 * Backward passes are cut like the forward pass, at the gradients of the same
 * values.  There, a value that is only added to others may be a part of such a
 * gradient, so it may cross.  The answer errs on that side everywhere.
 */
#include "price/units/stage_groups.h"

#include <string.h>

#include "ir/list/instructions.h"

typedef struct Crossing {
  Arena *arena;
  const Graph *graph;
  Phase phase;
  int n, n_words;              /* values; words of a set of them */
  const int *first;            /* by node: its first value */
  uint64_t *before;            /* by value: those of the phase it is made of */
  bool *has_params, *has_data; /* by value: what it is made of */
} Crossing;

static int value_at(const Crossing *c, Value value) {
  return c->first[value.node] + value.result;
}

static uint64_t *set_of(const Crossing *c, int value) {
  return c->before + (int64_t)value * c->n_words;
}

static bool has(const uint64_t *set, int at) {
  return set[at / 64] >> (at % 64) & 1;
}

/* ---- inside of kernels ---- */

static int input_index(const Node *node) {
  return (int)node_int(node, ATTR_index, 0);
}

/* Marks what a mark leads to inside of a kernel.  What has the path `without`
 * is left out; NULL: nothing. */
static void spread(const Graph *body, bool *marks, Name without) {
  for (int k = 0; k < body->nodes.n; k++) {
    const Node *node = body->nodes.data[k];
    if (without && graph_path(body, k) == without) marks[k] = false;
    for (int i = 0; i < node->n_inputs; i++)
      if (!without || graph_path(body, k) != without)
        marks[k] |= marks[node->inputs[i].node];
  }
}

/* Returns whether result `r` of a node is made of operand `input`. */
static bool is_made_of(const Crossing *c, int id, int r, int input,
                       Name without) {
  const Node *node = c->graph->nodes.data[id];
  const Graph *body = node->op == OP_fused ? node->body : NULL;
  if (!body) return true;
  bool *marks = ARENA_ARRAY(c->arena, bool, body->nodes.n + 1);
  for (int k = 0; k < body->nodes.n; k++)
    marks[k] = body->nodes.data[k]->op == OP_input &&
               input_index(body->nodes.data[k]) == input;
  spread(body, marks, without);
  return marks[body->outputs.data[r].value.node];
}

/* Returns whether result `r` is made of another result. */
static bool is_made_of_result(const Crossing *c, int id, int r, int other) {
  const Node *node = c->graph->nodes.data[id];
  const Graph *body = node->op == OP_fused ? node->body : NULL;
  if (!body) return false;
  int from = body->outputs.data[other].value.node;
  bool *marks = ARENA_ARRAY(c->arena, bool, body->nodes.n + 1);
  if (body->outputs.data[r].value.node == from) return false;
  marks[from] = true;
  spread(body, marks, NULL);
  return marks[body->outputs.data[r].value.node];
}

/* The path of what makes a value. */
static Name path_of(const Crossing *c, Value value) {
  const Node *node = c->graph->nodes.data[value.node];
  if (node->op != OP_fused) return node->path;
  const Value made = node->body->outputs.data[value.result].value;
  return graph_path(node->body, made.node);
}

/* ---- what values are made of ---- */

static void add_input(Crossing *c, int to, const Node *node) {
  Role role = c->graph->inputs.data[input_index(node)].role;
  c->has_params[to] = role == ROLE_param || role == ROLE_state;
  c->has_data[to] = role == ROLE_data;
}

static void add_operand(Crossing *c, int to, Value operand) {
  int from = value_at(c, operand);
  c->has_params[to] |= c->has_params[from];
  c->has_data[to] |= c->has_data[from];
  if (c->graph->nodes.data[operand.node]->phase != c->phase) return;
  uint64_t *set = set_of(c, to), *more = set_of(c, from);
  for (int w = 0; w < c->n_words; w++) set[w] |= more[w];
  set[from / 64] |= (uint64_t)1 << (from % 64);
}

static void find_before(Crossing *c) {
  for (int id = 0; id < c->graph->nodes.n; id++) {
    const Node *node = c->graph->nodes.data[id];
    for (int r = 0; r < node->n_results; r++) {
      int to = c->first[id] + r;
      if (node->op == OP_input) add_input(c, to, node);
      for (int i = 0; i < node->n_inputs; i++)
        if (is_made_of(c, id, r, i, NULL)) add_operand(c, to, node->inputs[i]);
      for (int q = 0; q < node->n_results; q++)
        if (is_made_of_result(c, id, r, q))
          set_of(c, to)[(c->first[id] + q) / 64] |=
              (uint64_t)1 << ((c->first[id] + q) % 64);
    }
  }
}

/* ---- a value beside another one ---- */

/* Returns whether the operand goes on beside x: x is made of it, and it is no
 * other form of x. */
static bool is_beside(const Crossing *c, Value operand, Value x) {
  int at = value_at(c, operand);
  return has(set_of(c, value_at(c, x)), at) && c->has_params[at] &&
         c->has_data[at] && type_elements(graph_type(c->graph, operand)) > 1 &&
         path_of(c, operand) != path_of(c, x);
}

/* Returns whether value `result` of a node, or one that is made of it, is made
 * directly of a value beside x. */
static bool meets_another(const Crossing *c, int id, int result, Value x) {
  int from = c->first[id] + result;
  for (int other = id; other < c->graph->nodes.n; other++) {
    const Node *node = c->graph->nodes.data[other];
    if (node->phase != c->phase) continue;
    for (int r = 0; r < node->n_results; r++) {
      int at = c->first[other] + r;
      if (at != from && !has(set_of(c, at), from)) continue;
      for (int i = 0; i < node->n_inputs; i++)
        if (is_beside(c, node->inputs[i], x) &&
            is_made_of(c, other, r, i, path_of(c, x)))
          return true;
    }
  }
  return false;
}

static bool only_moves(const Graph *graph, int id) {
  Op op = graph->nodes.data[id]->op;
  return op == OP_add || op == OP_cast || node_is_view(graph, id);
}

/* Returns whether a node does no more to operand `input` than add to it. */
static bool only_adds(const Crossing *c, int id, int input) {
  const Node *node = c->graph->nodes.data[id];
  if (node->op != OP_fused) return only_moves(c->graph, id);
  const Graph *body = node->body;
  bool *marks = ARENA_ARRAY(c->arena, bool, body->nodes.n + 1);
  for (int k = 0; k < body->nodes.n; k++) {
    const Node *of = body->nodes.data[k];
    marks[k] = of->op == OP_input && input_index(of) == input;
    for (int i = 0; i < of->n_inputs && only_moves(body, k); i++)
      marks[k] |= marks[of->inputs[i].node];
  }
  for (int r = 0; r < body->outputs.n; r++)
    if (marks[body->outputs.data[r].value.node]) return true;
  return false;
}

/* All that a kernel makes of x is behind what reads it.  Results of a single
 * operator are behind the same. */
static bool stays_at_reader(const Crossing *c, int id, int input, Value x) {
  const Node *node = c->graph->nodes.data[id];
  bool is_single = node->op != OP_fused, stays = !is_single;
  if (c->phase != PHASE_forward && only_adds(c, id, input)) return false;
  for (int r = 0; r < node->n_results; r++) {
    if (!is_made_of(c, id, r, input, NULL)) continue;
    bool meets = meets_another(c, id, r, x);
    stays = is_single ? stays || meets : stays && meets;
  }
  return stays;
}

static bool may_cross(const Crossing *c, Value x) {
  bool is_read = false;
  for (int id = x.node + 1; id < c->graph->nodes.n; id++) {
    const Node *node = c->graph->nodes.data[id];
    if (node->phase != c->phase) continue;
    for (int i = 0; i < node->n_inputs; i++) {
      if (!value_equal(node->inputs[i], x)) continue;
      is_read = true;
      if (!stays_at_reader(c, id, i, x)) return true;
    }
  }
  return !is_read;
}

/* ---- edges ---- */

static Crossing crossing_of(Arena *scratch, const Graph *graph, Phase phase) {
  int *first = ARENA_ARRAY(scratch, int, graph->nodes.n + 1), n = 0;
  for (int id = 0; id < graph->nodes.n; id++) {
    first[id] = n;
    n += graph->nodes.data[id]->n_results;
  }
  Crossing c = {.arena = scratch,
                .graph = graph,
                .phase = phase,
                .n = n,
                .n_words = n / 64 + 1,
                .first = first,
                .has_params = ARENA_ARRAY(scratch, bool, n + 1),
                .has_data = ARENA_ARRAY(scratch, bool, n + 1)};
  c.before = ARENA_ARRAY(scratch, uint64_t, (int64_t)n * c.n_words + 1);
  find_before(&c);
  return c;
}

const bool *unit_edges_cross(Arena *arena, const Units *units) {
  static const Phase phases[] = {PHASE_forward, PHASE_input_gradient};
  bool *out = ARENA_ARRAY(arena, bool, units->edges.n + 1);
  Arena *scratch = arena_beside(arena);
  for (int i = 0; i < units->edges.n; i++) out[i] = true;
  for (int p = 0; p < ARRAY_LENGTH(phases); p++) {
    Crossing c = crossing_of(scratch, units->graph, phases[p]);
    for (int i = 0; i < units->edges.n; i++) {
      Value value = units->edges.data[i].value;
      if (units->graph->nodes.data[value.node]->phase == phases[p])
        out[i] = may_cross(&c, value);
    }
  }
  arena_destroy(scratch);
  return out;
}

/* ---- units ---- */

static const char *forward_path(const Node *node) {
  static const char prefix[] = "grad.";
  size_t n = sizeof prefix - 1;
  if (node->op == OP_fused || !node->path) return "";
  return strncmp(node->path, prefix, n) == 0 ? node->path + n : node->path;
}

bool unit_is_in_one_stage(const Units *units, int unit) {
  const PlanUnit *of = units->units.data[unit];
  const char *path = NULL;
  for (int i = 0; i < of->kernels.n; i++) {
    int id = of->kernels.data[i].id;
    const char *own = forward_path(units->graph->nodes.data[id]);
    if (!node_is_launched(units->graph, id)) continue;
    if (!path) path = own;
    if (!*own || strcmp(path, own) != 0) return false;
  }
  return path != NULL;
}
