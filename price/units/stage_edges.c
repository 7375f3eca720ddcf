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
#include "price/units/value_origins.h"

/* The path of what makes a value. */
static Name path_of(const ValueOrigins *c, Value value) {
  const Node *node = c->graph->nodes.data[value.node];
  if (node->op != OP_fused) return node->path;
  const Value made = node->body->outputs.data[value.result].value;
  return graph_path(node->body, made.node);
}

/* ---- a value beside another one ---- */

/* Returns whether the operand goes on beside x: x is made of it, and it is no
 * other form of x. */
static bool is_beside(const ValueOrigins *c, Value operand, Value x) {
  int at = origins_index(c, operand);
  return origins_has(origins_set(c, origins_index(c, x)), at) &&
         c->has_params[at] && c->has_data[at] &&
         type_elements(graph_type(c->graph, operand)) > 1 &&
         path_of(c, operand) != path_of(c, x);
}

/* Returns whether value `result` of a node, or one that is made of it, is made
 * directly of a value beside x. */
static bool meets_another(const ValueOrigins *c, int id, int result, Value x) {
  int from = c->first[id] + result;
  for (int other = id; other < c->graph->nodes.n; other++) {
    const Node *node = c->graph->nodes.data[other];
    if (!(c->phases >> node->phase & 1)) continue;
    for (int r = 0; r < node->n_results; r++) {
      int at = c->first[other] + r;
      if (at != from && !origins_has(origins_set(c, at), from)) continue;
      for (int i = 0; i < node->n_inputs; i++)
        if (is_beside(c, node->inputs[i], x) &&
            origins_read(c, other, r, i, path_of(c, x)))
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
static bool only_adds(const ValueOrigins *c, int id, int input) {
  const Node *node = c->graph->nodes.data[id];
  if (node->op != OP_fused) return only_moves(c->graph, id);
  const Graph *body = node->body;
  bool *marks = ARENA_ARRAY(c->arena, bool, body->nodes.n + 1);
  for (int k = 0; k < body->nodes.n; k++) {
    const Node *of = body->nodes.data[k];
    marks[k] = of->op == OP_input && origins_input(of) == input;
    for (int i = 0; i < of->n_inputs && only_moves(body, k); i++)
      marks[k] |= marks[of->inputs[i].node];
  }
  for (int r = 0; r < body->outputs.n; r++)
    if (marks[body->outputs.data[r].value.node]) return true;
  return false;
}

/* All that a kernel makes of x is behind what reads it.  Results of a single
 * operator are behind the same. */
static bool stays_at_reader(const ValueOrigins *c, int id, int input, Value x) {
  const Node *node = c->graph->nodes.data[id];
  bool is_single = node->op != OP_fused, stays = !is_single;
  if (!(c->phases >> PHASE_forward & 1) && only_adds(c, id, input))
    return false;
  for (int r = 0; r < node->n_results; r++) {
    if (!origins_read(c, id, r, input, NULL)) continue;
    bool meets = meets_another(c, id, r, x);
    stays = is_single ? stays || meets : stays && meets;
  }
  return stays;
}

static bool may_cross(const ValueOrigins *c, Value x) {
  bool is_read = false;
  for (int id = x.node + 1; id < c->graph->nodes.n; id++) {
    const Node *node = c->graph->nodes.data[id];
    if (!(c->phases >> node->phase & 1)) continue;
    for (int i = 0; i < node->n_inputs; i++) {
      if (!value_equal(node->inputs[i], x)) continue;
      is_read = true;
      if (!stays_at_reader(c, id, i, x)) return true;
    }
  }
  return !is_read;
}

/* ---- edges ---- */

const bool *unit_edges_cross(Arena *arena, const Units *units) {
  static const Phase phases[] = {PHASE_forward, PHASE_input_gradient};
  bool *out = ARENA_ARRAY(arena, bool, units->edges.n + 1);
  Arena *scratch = arena_beside(arena);
  for (int i = 0; i < units->edges.n; i++) out[i] = true;
  for (int p = 0; p < ARRAY_LENGTH(phases); p++) {
    const ValueOrigins *c =
        value_origins(scratch, units->graph, 1u << phases[p]);
    for (int i = 0; i < units->edges.n; i++) {
      Value value = units->edges.data[i].value;
      if (units->graph->nodes.data[value.node]->phase == phases[p])
        out[i] = may_cross(c, value);
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
