/*
 * value_origins.c -- finds what each value of a graph is made of.
 *
 *     %3, %4 = fused %0, %1       %3 may be made of %0 alone
 *
 * A result of a kernel is made of those operands that its body leads to it.
 */
#include "price/units/value_origins.h"

int origins_index(const ValueOrigins *o, Value value) {
  return o->first[value.node] + value.result;
}

static uint64_t *set_of(const ValueOrigins *o, int value) {
  return o->before + (int64_t)value * o->n_words;
}

const uint64_t *origins_set(const ValueOrigins *o, int value) {
  return set_of(o, value);
}

bool origins_has(const uint64_t *set, int at) {
  return set[at / 64] >> (at % 64) & 1;
}

static void put(uint64_t *set, int at) {
  set[at / 64] |= (uint64_t)1 << (at % 64);
}

/* ---- inside of kernels ---- */

int origins_input(const Node *node) {
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

bool origins_read(const ValueOrigins *o, int id, int r, int input,
                  Name without) {
  const Node *node = o->graph->nodes.data[id];
  const Graph *body = node->op == OP_fused ? node->body : NULL;
  if (!body) return true;
  bool *marks = ARENA_ARRAY(o->arena, bool, body->nodes.n + 1);
  for (int k = 0; k < body->nodes.n; k++)
    marks[k] = body->nodes.data[k]->op == OP_input &&
               origins_input(body->nodes.data[k]) == input;
  spread(body, marks, without);
  return marks[body->outputs.data[r].value.node];
}

/* Returns whether result `r` is made of another result. */
static bool is_made_of_result(const ValueOrigins *o, int id, int r, int other) {
  const Node *node = o->graph->nodes.data[id];
  const Graph *body = node->op == OP_fused ? node->body : NULL;
  if (!body) return false;
  int from = body->outputs.data[other].value.node;
  bool *marks = ARENA_ARRAY(o->arena, bool, body->nodes.n + 1);
  if (body->outputs.data[r].value.node == from) return false;
  marks[from] = true;
  spread(body, marks, NULL);
  return marks[body->outputs.data[r].value.node];
}

/* ---- of all values ---- */

static void add_input(ValueOrigins *o, int to, const Node *node) {
  Role role = o->graph->inputs.data[origins_input(node)].role;
  o->has_params[to] = role == ROLE_param || role == ROLE_state;
  o->has_data[to] = role == ROLE_data;
}

static void add_operand(ValueOrigins *o, int to, Value operand) {
  int from = origins_index(o, operand);
  Phase phase = o->graph->nodes.data[operand.node]->phase;
  o->has_params[to] |= o->has_params[from];
  o->has_data[to] |= o->has_data[from];
  if (!(o->phases >> phase & 1)) return;
  uint64_t *set = set_of(o, to), *more = set_of(o, from);
  for (int w = 0; w < o->n_words; w++) set[w] |= more[w];
  put(set, from);
}

static void find_before(ValueOrigins *o) {
  for (int id = 0; id < o->graph->nodes.n; id++) {
    const Node *node = o->graph->nodes.data[id];
    for (int r = 0; r < node->n_results; r++) {
      int to = o->first[id] + r;
      if (node->op == OP_input) add_input(o, to, node);
      for (int i = 0; i < node->n_inputs; i++)
        if (origins_read(o, id, r, i, NULL))
          add_operand(o, to, node->inputs[i]);
      for (int q = 0; q < node->n_results; q++)
        if (is_made_of_result(o, id, r, q))
          put(set_of(o, to), o->first[id] + q);
    }
  }
}

const ValueOrigins *value_origins(Arena *arena, const Graph *graph,
                                  unsigned phases) {
  int *first = ARENA_ARRAY(arena, int, graph->nodes.n + 1), n = 0;
  for (int id = 0; id < graph->nodes.n; id++) {
    first[id] = n;
    n += graph->nodes.data[id]->n_results;
  }
  ValueOrigins *out = ARENA_NEW(arena, ValueOrigins);
  *out = (ValueOrigins){.arena = arena,
                        .graph = graph,
                        .phases = phases,
                        .n = n,
                        .n_words = n / 64 + 1,
                        .first = first,
                        .has_params = ARENA_ARRAY(arena, bool, n + 1),
                        .has_data = ARENA_ARRAY(arena, bool, n + 1)};
  out->before = ARENA_ARRAY(arena, uint64_t, (int64_t)n * out->n_words + 1);
  find_before(out);
  return out;
}
