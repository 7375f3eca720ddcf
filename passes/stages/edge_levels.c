/*
 * edge_levels.c -- finds when an edge of the step is sent, and its level: how
 * many messages of the step stand one after the other up to this one.
 *
 *     0 -> 1 a parameter                 1
 *     1 -> 0 its share of the gradient   2: follows from the parameter
 *     0 -> 1 the running norm            3: adds the gradient
 *     1 -> 0 the total norm              4
 *
 * A rank that works off what it does once a step in the order of these levels
 * never waits for a rank that waits for it.
 *
 * A message of the step is sent before the micro-batches or after them: after,
 * if it follows from a value with the batch dim.
 *
 * The walk takes the stages in turns, each as far as the levels of what it
 * receives are known.
 */
#include "passes/stages/stages.h"

typedef struct Levels {
  StageCut *cut;
  Map *edges;      /* path -> edge, plus 1 */
  bool *is_known;  /* by edge: its value is */
  int *before;     /* by edge: messages of the step before it */
  int **levels;    /* by stage and node */
  bool **is_after; /* by stage and node: it follows from micro-batches */
  Name batch_dim;
  int *n_done; /* by stage: nodes */
} Levels;

static int edge_of(const Levels *l, Name path) {
  return (int)(intptr_t)map_get(l->edges, path) - 1;
}

static bool has_batch(const Levels *l, const Node *node) {
  for (int r = 0; r < node->n_results; r++)
    if (l->batch_dim && type_find(node->types[r], l->batch_dim) >= 0)
      return true;
  return false;
}

/* Returns false if the value of a receive is not known yet. */
static bool visit(Levels *l, int stage) {
  const Graph *graph = l->cut->graphs.data[stage];
  int id = l->n_done[stage], level = 0;
  const Node *node = graph->nodes.data[id];
  bool is_after = has_batch(l, node);
  for (int i = 0; i < node->n_inputs; i++) {
    int from = node->inputs[i].node;
    if (l->levels[stage][from] > level) level = l->levels[stage][from];
    is_after |= l->is_after[stage][from];
  }
  if (node->op == OP_input) {
    const GraphInput *input =
        &graph->inputs.data[node_int(node, ATTR_index, 0)];
    int at = input->role == ROLE_receive ? edge_of(l, input->path) : -1;
    const StageEdge *edge = at >= 0 ? &l->cut->edges.data[at] : NULL;
    if (edge && !l->is_known[at]) return false;
    if (edge) level = l->before[at] + edge->is_of_step;
    if (edge) is_after = edge->is_after || !edge->is_of_step;
  }
  l->levels[stage][id] = level;
  l->is_after[stage][id] = is_after;
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
    l->cut->edges.data[edge].is_after = l->cut->edges.data[edge].is_of_step &&
                                        l->is_after[stage][output->value.node];
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

void stages_find_levels(Arena *scratch, Name batch_dim, StageCut *cut) {
  int n = cut->graphs.n;
  Levels l = {.cut = cut,
              .edges = map_create(scratch),
              .batch_dim = batch_dim,
              .is_known = ARENA_ARRAY(scratch, bool, cut->edges.n),
              .before = ARENA_ARRAY(scratch, int, cut->edges.n),
              .levels = ARENA_ARRAY(scratch, int *, n),
              .is_after = ARENA_ARRAY(scratch, bool *, n),
              .n_done = ARENA_ARRAY(scratch, int, n)};
  for (int i = 0; i < cut->edges.n; i++)
    map_put(l.edges, cut->edges.data[i].path, (void *)(intptr_t)(i + 1));
  for (int s = 0; s < n; s++) {
    int n_nodes = cut->graphs.data[s]->nodes.n;
    l.levels[s] = ARENA_ARRAY(scratch, int, n_nodes);
    l.is_after[s] = ARENA_ARRAY(scratch, bool, n_nodes);
  }
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

static const StageEdge *find_edge(const StageCut *cut, Name path) {
  for (int i = 0; i < cut->edges.n; i++)
    if (cut->edges.data[i].path == path) return &cut->edges.data[i];
  return NULL;
}

const StageEdge *stage_edge_received(const StageCut *cut,
                                     const GraphInput *input) {
  bool is_received = cut && input->role == ROLE_receive;
  return is_received ? find_edge(cut, input->path) : NULL;
}

bool stage_receives_late(const StageCut *cut, const Graph *graph, int id) {
  const Node *node = graph->nodes.data[id];
  if (node->op != OP_input) return false;
  const GraphInput *input = &graph->inputs.data[node_int(node, ATTR_index, 0)];
  const StageEdge *edge = stage_edge_received(cut, input);
  return edge && edge->is_after;
}

const StageEdge *stage_edge_sent(const StageCut *cut,
                                 const GraphOutput *output) {
  bool is_sent = cut && output->role == ROLE_send;
  return is_sent ? find_edge(cut, output->path) : NULL;
}

ProgramEdges stage_program_edges(Arena *arena, const StageCut *cut) {
  ProgramEdges edges = {0};
  for (int e = 0; e < cut->edges.n; e++) {
    const StageEdge *edge = &cut->edges.data[e];
    vec_push(arena, &edges,
             (ProgramEdge){.from = edge->from,
                           .to = edge->to,
                           .path = edge->path,
                           .is_of_step = edge->is_of_step,
                           .is_after = edge->is_after,
                           .level = edge->level});
  }
  return edges;
}
