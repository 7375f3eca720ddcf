/*
 * weights.c -- finds out how a graph reads its parameters, for the optimizer:
 * which ones decay, and which are matrices (dot, conv) of which dims.
 *
 *     p = dropout(w[C -> (H, D)], 0.1)      w: f32[C, F] decay matrix(C)
 *     y = dot(x[C -> (H, D)], p, (H, D))
 *
 * A parameter counts as read by a dot, conv or gather also through operators
 * whose inputs are only parameters and numbers.  The walk back to the parameter
 * undoes renames, splits and merges of dims; all other operators leave the
 * names unchanged. If several contractions read a parameter, the first one
 * decides which dims it contracts.
 */
#include "ir/model/model.h"

#include <string.h>

enum Use { USE_kept, USE_contracted, USE_batched };

/* How a value is read by the nodes after it, by index of its dims. */
typedef struct Reading {
  bool is_weight; /* by a dot, conv or gather */
  bool is_matrix; /* by a dot or conv: `use` is known */
  bool is_gathered;
  uint8_t use[MAX_RANK];
} Reading;

/* ---- values of parameters and numbers only ---- */

/* The random numbers of a dropout count as numbers.  `scan`: the graph is its
 * body, and of the nodes around it `around` says the same; else NULL. */
static bool *find_pure(const Graph *graph, Arena *arena, const Node *scan,
                       const bool *around) {
  bool *pure = ARENA_ARRAY(arena, bool, graph->nodes.n);
  for (int i = 0; i < graph->inputs.n; i++) {
    Role role = graph->inputs.data[i].role;
    pure[graph->inputs.data[i].value.node] =
        role == ROLE_param || role == ROLE_seed || role == ROLE_step ||
        (role == ROLE_arg && around[scan->inputs[i].node]);
  }
  for (int i = 0; i < graph->nodes.n; i++) {
    const Node *node = graph->nodes.data[i];
    if (node->op == OP_input) continue;
    pure[i] = true;
    for (int j = 0; j < node->n_inputs; j++)
      pure[i] = pure[i] && pure[node->inputs[j].node];
  }
  return pure;
}

/* ---- products ---- */

static bool attr_has(const Node *node, AttrKey key, Name name) {
  if (!node_has(node, key)) return false;
  if (attr_kind(key) == ATTRKIND_NAME) return node_name(node, key) == name;
  int n;
  const Name *names = node_names(node, key, &n);
  for (int i = 0; i < n; i++)
    if (names[i] == name) return true;
  return false;
}

static void read_by_product(const Graph *graph, const Node *node, int input,
                            Reading *out) {
  const Type *type = graph_type(graph, node->inputs[input]);
  const Type *other = graph_type(graph, node->inputs[1 - input]);
  out->is_weight = out->is_matrix = true;
  for (int d = 0; d < type->rank; d++) {
    Name dim = type->dims[d].name;
    out->use[d] = node_treats_dim(node, dim)   ? USE_contracted
                  : type_find(other, dim) >= 0 ? USE_batched
                                               : USE_kept;
  }
}

/* ---- other operators: from the reading of the result to that of an input ----
 */

/* The name of an input's dim in the result; of several parts the first. */
static Name name_after(const Node *node, Name dim) {
  int n_from, n_to;
  if (node->op == OP_split_dim && node_name(node, ATTR_dim) == dim)
    return node_names(node, ATTR_to, &n_to)[0];
  if (node->op == OP_merge_dims && attr_has(node, ATTR_from, dim))
    return node_name(node, ATTR_dim);
  if (node->op != OP_rename) return dim;
  const Name *from = node_names(node, ATTR_from, &n_from);
  const Name *to = node_names(node, ATTR_to, &n_to);
  for (int i = 0; i < n_from; i++)
    if (from[i] == dim) return to[i];
  return dim;
}

static void read_through(const Graph *graph, const Node *node, int input,
                         const Reading *result, Reading *out) {
  const Type *type = graph_type(graph, node->inputs[input]);
  out->is_weight |= result->is_weight;
  out->is_gathered |= result->is_gathered;
  if (!result->is_matrix) return;
  out->is_matrix = true;
  for (int d = 0; d < type->rank; d++) {
    int at = type_find(node->types[0], name_after(node, type->dims[d].name));
    out->use[d] = at >= 0 ? result->use[at] : USE_kept;
  }
}

/* ---- the walk ---- */

static void note_param(GraphInput *input, const Reading *reading, int rank) {
  bool keeps_any = false;
  input->has_decay = reading->is_weight;
  for (int d = 0; d < rank && reading->is_matrix; d++) {
    keeps_any |= reading->use[d] == USE_kept;
    if (reading->use[d] == USE_contracted)
      input->contracts |= (uint16_t)(1 << d);
    else if (reading->use[d] == USE_batched)
      input->batches |= (uint16_t)(1 << d);
  }
  if (input->contracts && keeps_any && !reading->is_gathered) return;
  input->contracts = input->batches = 0;
}

static Reading *find_readings(const Graph *graph, Arena *arena,
                              const bool *pure);

/* An argument of a scan is read as its body reads it. */
static void read_in_body(const Node *node, int input, Arena *arena,
                         const bool *pure, Reading *out) {
  if (scan_input_role(node, input) != ROLE_arg) return;
  const bool *inside = find_pure(node->body, arena, node, pure);
  const Reading *readings = find_readings(node->body, arena, inside);
  const Reading *reading = &readings[node->body->inputs.data[input].value.node];
  bool is_matrix = out->is_matrix && !reading->is_matrix;
  Reading before = *out;
  *out = *reading;
  out->is_weight |= before.is_weight;
  out->is_gathered |= before.is_gathered;
  if (!is_matrix) return;
  out->is_matrix = true;
  memcpy(out->use, before.use, sizeof out->use);
}

static Reading *find_readings(const Graph *graph, Arena *arena,
                              const bool *pure) {
  Reading *readings = ARENA_ARRAY(arena, Reading, graph->nodes.n);
  for (int i = graph->nodes.n - 1; i >= 0; i--) {
    const Node *node = graph->nodes.data[i];
    for (int j = 0; j < node->n_inputs; j++) {
      Reading *reading = &readings[node->inputs[j].node];
      if (!pure[node->inputs[j].node]) continue;
      if (op_is(node->op, OPCLASS_contraction)) {
        read_by_product(graph, node, j, reading);
      } else if (node->op == OP_gather && j == 0) {
        reading->is_weight = reading->is_gathered = true;
      } else if (node->op == OP_scan) {
        read_in_body(node, j, arena, pure, reading);
      } else if (pure[i]) {
        read_through(graph, node, j, &readings[i], reading);
      }
    }
  }
  return readings;
}

void weights_mark(Graph *graph, Arena *arena) {
  const bool *pure = find_pure(graph, arena, NULL, NULL);
  const Reading *readings = find_readings(graph, arena, pure);
  for (int i = 0; i < graph->inputs.n; i++) {
    GraphInput *input = &graph->inputs.data[i];
    int node = input->value.node;
    if (input->role == ROLE_param)
      note_param(input, &readings[node],
                 graph->nodes.data[node]->types[0]->rank);
  }
}
