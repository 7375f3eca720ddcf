/*
 * edge_levels.c -- finds the level of each edge of the step: how many messages
 * of the step stand one after the other up to this one.
 *
 *     0 -> 1 a parameter                 1
 *     1 -> 0 its share of the gradient   2: follows from the parameter
 *     0 -> 1 the running norm            3: adds the gradient
 *     1 -> 0 the total norm              4
 *
 * A rank that works off what it does once a step in the order of these levels
 * never waits for a rank that waits for it.
 *
 * The walk takes the stages in turns, each as far as the levels of what it
 * receives are known.
 */
#include "passes/stages/stages.h"

typedef struct Levels {
  StageCut *cut;
  Map *edges;     /* path -> edge, plus 1 */
  bool *is_known; /* by edge: its value is */
  int *before;    /* by edge: messages of the step before it */
  int **levels;   /* by stage and node */
  int *n_done;    /* by stage: nodes */
} Levels;

static int edge_of(const Levels *l, Name path) {
  return (int)(intptr_t)map_get(l->edges, path) - 1;
}

/* Returns false if the value of a receive is not known yet. */
static bool visit(Levels *l, int stage) {
  const Graph *graph = l->cut->graphs.data[stage];
  int id = l->n_done[stage], level = 0;
  const Node *node = graph->nodes.data[id];
  for (int i = 0; i < node->n_inputs; i++)
    if (l->levels[stage][node->inputs[i].node] > level)
      level = l->levels[stage][node->inputs[i].node];
  if (node->op == OP_input) {
    const GraphInput *input =
        &graph->inputs.data[node_int(node, ATTR_index, 0)];
    int edge = input->role == ROLE_receive ? edge_of(l, input->path) : -1;
    if (edge >= 0 && !l->is_known[edge]) return false;
    if (edge >= 0)
      level = l->before[edge] + l->cut->edges.data[edge].is_of_step;
  }
  l->levels[stage][id] = level;
  l->n_done[stage]++;
  return true;
}

static void send(Levels *l, int stage) {
  const Graph *graph = l->cut->graphs.data[stage];
  for (int i = 0; i < graph->outputs.n; i++) {
    const GraphOutput *output = &graph->outputs.data[i];
    if (output->role != ROLE_send || output->value.node >= l->n_done[stage])
      continue;
    int edge = edge_of(l, output->path);
    l->is_known[edge] = true;
    l->before[edge] = l->levels[stage][output->value.node];
  }
}

/* True if the stage came further. */
static bool take_turn(Levels *l, int stage) {
  int n = l->cut->graphs.data[stage]->nodes.n, before = l->n_done[stage];
  while (l->n_done[stage] < n && visit(l, stage)) continue;
  if (l->n_done[stage] == before) return false;
  send(l, stage);
  return true;
}

void stages_find_levels(Arena *scratch, StageCut *cut) {
  int n = cut->graphs.n;
  Levels l = {.cut = cut,
              .edges = map_create(scratch),
              .is_known = ARENA_ARRAY(scratch, bool, cut->edges.n),
              .before = ARENA_ARRAY(scratch, int, cut->edges.n),
              .levels = ARENA_ARRAY(scratch, int *, n),
              .n_done = ARENA_ARRAY(scratch, int, n)};
  for (int i = 0; i < cut->edges.n; i++)
    map_put(l.edges, cut->edges.data[i].path, (void *)(intptr_t)(i + 1));
  for (int s = 0; s < n; s++)
    l.levels[s] = ARENA_ARRAY(scratch, int, cut->graphs.data[s]->nodes.n);
  for (bool any = true; any;) {
    any = false;
    for (int s = 0; s < n; s++) any |= take_turn(&l, s);
  }
  for (int i = 0; i < cut->edges.n; i++) {
    StageEdge *edge = &cut->edges.data[i];
    ASSERT(l.is_known[i]);
    edge->level = edge->is_of_step ? l.before[i] + 1 : 0;
  }
}
