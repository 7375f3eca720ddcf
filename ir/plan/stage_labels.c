/*
 * stage_labels.c -- finds the stage of each node of a forward graph.
 *
 *     stage 0: wte, block[0]      stage 1: block[1]
 *
 *     %0 = input param "wte"                  stage 0
 *     %1 = gather %0, %7      "embed"         stage 0: what reads it
 *     %2 = dot %1, %8         "block[0].q"    stage 0
 *     %3 = positions                          none: it depends on no parameter
 *     %4 = dot %2, %9         "block[1].q"    stage 1
 *     %5 = mean %4            "loss"          stage 1: what it reads
 *
 * A node that has a stage keeps it.  Another one has the stage of the line that
 * names its path; where an operator has the path of a state, as the one that
 * makes its next value has, the line means the operator.  If no line does, it
 * has the lowest stage of its readers, or without readers in a stage the
 * highest of its operands.  A parameter or state has the lowest stage of its
 * readers then. A node that depends on data, step, seed and constants alone has
 * no stage: each stage that reads it computes it again.
 *
 * Values go up in stage numbers, but for parameters and states, which are sent
 * once a step.
 */
#include "ir/plan/plan.h"

typedef struct Labels {
  const Graph *graph;
  const Map *stage_of;
  uint16_t *stage;  /* by node; 0: none yet */
  bool *is_trained; /* by node: depends on a parameter or state */
} Labels;

static bool is_buffer(const Graph *graph, const Node *node) {
  return !role_is_of_step(
      graph->inputs.data[node_int(node, ATTR_index, 0)].role);
}

static uint16_t stage_of_path(const Map *stage_of, Name path) {
  return path ? (uint16_t)(intptr_t)map_get(stage_of, path) : 0;
}

/* A scan has the stage of its path, else of the first named path in it. */
static uint16_t named_stage(const Map *stage_of, const Graph *graph, int id) {
  const Node *node = graph->nodes.data[id];
  bool is_input = node->op == OP_input;
  Name path = is_input ? graph->inputs.data[node_int(node, ATTR_index, 0)].path
                       : graph_path(graph, id);
  uint16_t stage = stage_of_path(stage_of, path);
  for (int i = 0; node->body && !stage && i < node->body->nodes.n; i++)
    if (node->body->nodes.data[i]->op != OP_input)
      stage = named_stage(stage_of, node->body, i);
  return stage;
}

/* The paths of operators. */
static Map *find_operators(const Labels *l, Arena *arena) {
  Map *paths = map_create(arena);
  for (int id = 0; id < l->graph->nodes.n; id++) {
    Name path = graph_path(l->graph, id);
    if (l->graph->nodes.data[id]->op != OP_input && path)
      map_put(paths, path, (void *)path);
  }
  return paths;
}

static void label_names(Labels *l, Arena *arena) {
  const Map *operators = find_operators(l, arena);
  for (int id = 0; id < l->graph->nodes.n; id++) {
    const Node *node = l->graph->nodes.data[id];
    bool is_input = node->op == OP_input;
    bool is_trained = is_input && is_buffer(l->graph, node);
    for (int i = 0; i < node->n_inputs; i++)
      is_trained |= l->is_trained[node->inputs[i].node];
    l->is_trained[id] = is_trained;
    if (node->stage)
      l->stage[id] = node->stage;
    else if (is_trained &&
             !(is_input && map_has(operators, graph_path(l->graph, id))))
      l->stage[id] = named_stage(l->stage_of, l->graph, id);
  }
}

/* Gives what has no stage yet the lowest one of what reads it.  `is_input`:
 * inputs, else all other nodes. */
static void label_by_readers(Labels *l, Arena *arena, bool is_input) {
  int n = l->graph->nodes.n;
  uint16_t *least = ARENA_ARRAY(arena, uint16_t, n);
  for (int id = n - 1; id >= 0; id--) {
    const Node *node = l->graph->nodes.data[id];
    if (!l->stage[id] && l->is_trained[id] &&
        (node->op == OP_input) == is_input)
      l->stage[id] = least[id];
    for (int i = 0; i < node->n_inputs && l->stage[id]; i++) {
      uint16_t *of = &least[node->inputs[i].node];
      if (!*of || l->stage[id] < *of) *of = l->stage[id];
    }
  }
}

/* A node that nothing with a stage reads has the highest stage of its
 * operands. */
static void label_by_operands(Labels *l) {
  for (int id = 0; id < l->graph->nodes.n; id++) {
    const Node *node = l->graph->nodes.data[id];
    bool is_open = !l->stage[id] && l->is_trained[id] && node->op != OP_input;
    for (int i = 0; i < node->n_inputs && is_open; i++) {
      uint16_t stage = l->stage[node->inputs[i].node];
      if (stage > l->stage[id]) l->stage[id] = stage;
    }
  }
}

/* Whatever is left hangs together with nothing that a line names. */
static void label_rest(Labels *l) {
  for (int id = 0; id < l->graph->nodes.n; id++)
    if (!l->stage[id] && l->is_trained[id]) l->stage[id] = 1;
}

static bool find_fault(const Labels *l, StageFault *out) {
  for (int id = 0; id < l->graph->nodes.n; id++) {
    const Node *node = l->graph->nodes.data[id];
    for (int i = 0; i < node->n_inputs && l->stage[id]; i++) {
      int from = node->inputs[i].node;
      if (l->graph->nodes.data[from]->op == OP_input ||
          l->stage[from] <= l->stage[id])
        continue;
      *out = (StageFault){from, id, l->stage[from], l->stage[id]};
      return true;
    }
  }
  return false;
}

const uint16_t *stage_labels(Arena *arena, const Graph *graph,
                             const Map *stage_of, StageFault *out_fault) {
  int n = graph->nodes.n;
  Labels l = {graph, stage_of, ARENA_ARRAY(arena, uint16_t, n),
              ARENA_ARRAY(arena, bool, n)};
  label_names(&l, arena);
  label_by_readers(&l, arena, false);
  label_by_operands(&l);
  label_by_readers(&l, arena, false);
  label_by_readers(&l, arena, true);
  label_rest(&l);
  return find_fault(&l, out_fault) ? NULL : l.stage;
}
