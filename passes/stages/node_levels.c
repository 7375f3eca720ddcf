/*
 * node_levels.c -- finds the nodes of a stage that must stay apart.
 *
 *     %3 = sum %2                     its part of the norm, which is sent
 *     %4 = input receive "norm"       the norm, which follows from %3
 *     %5 = mul %2, %4                 may be in no kernel with %3
 *
 * No path in the graph of the stage leads from %3 to %4, so that passes that
 * join nodes cannot see it.  They ask for numbers: what runs once a step has
 * the level of the messages that it needs, and what is sent before the
 * micro-batches stays apart from what comes after them.  The forward pass of a
 * micro-batch stays apart from its backward pass, which is called later, and
 * input gradients from weight gradients where they are called apart.
 */
#include "passes/stages/stages.h"

#include "ir/place/mesh_place.h"

/* Computes elements of its operands that any kernel may compute. */
static bool can_wait(const Graph *graph, int id) {
  const Node *node = graph->nodes.data[id];
  return op_has(node->op, OP_FLAG_fuses) &&
         !op_is(node->op, OPCLASS_reduction) &&
         !node_is_per_microbatch(graph, id);
}

/* A node that nobody reads before a later message waits for it: a moment is
 * not decayed into a value of its own, but in the kernel of the update. */
static void raise_levels(Arena *arena, const Graph *graph, int *levels) {
  int n = graph->nodes.n;
  int *lowest = ARENA_ARRAY(arena, int, n); /* level of its readers; -1: none */
  for (int id = 0; id < n; id++) lowest[id] = -1;
  for (int i = 0; i < graph->outputs.n; i++)
    lowest[graph->outputs.data[i].value.node] = 0;
  for (int id = n - 1; id >= 0; id--) {
    const Node *node = graph->nodes.data[id];
    if (lowest[id] > levels[id] && can_wait(graph, id)) levels[id] = lowest[id];
    int level = node_is_per_microbatch(graph, id) ? 0 : levels[id];
    for (int i = 0; i < node->n_inputs; i++) {
      int *of_input = &lowest[node->inputs[i].node];
      if (*of_input < 0 || level < *of_input) *of_input = level;
    }
  }
}

int *stage_node_levels(Arena *arena, const StageCut *cut, const Graph *graph) {
  int *levels = ARENA_ARRAY(arena, int, graph->nodes.n);
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    const StageEdge *edge = NULL;
    if (node->op == OP_input)
      edge = stage_edge_received(
          cut, &graph->inputs.data[node_int(node, ATTR_index, 0)]);
    if (edge) levels[id] = edge->level;
    for (int i = 0; i < node->n_inputs; i++)
      if (levels[node->inputs[i].node] > levels[id])
        levels[id] = levels[node->inputs[i].node];
  }
  if (cut) raise_levels(arena, graph, levels);
  return levels;
}

/* By node: something that is sent before the micro-batches follows from it. */
static bool *find_early(Arena *arena, const StageCut *cut, const Graph *graph) {
  bool *is_early = ARENA_ARRAY(arena, bool, graph->nodes.n);
  for (int i = 0; i < graph->outputs.n; i++) {
    const StageEdge *edge = stage_edge_sent(cut, &graph->outputs.data[i]);
    if (edge && edge->is_of_step && !edge->is_after)
      is_early[graph->outputs.data[i].value.node] = true;
  }
  for (int id = graph->nodes.n - 1; id >= 0; id--)
    for (int i = 0; i < graph->nodes.data[id]->n_inputs && is_early[id]; i++)
      is_early[graph->nodes.data[id]->inputs[i].node] = true;
  return is_early;
}

TokenKind *stage_segment_kinds(Arena *arena, const StageCut *cut,
                               const Graph *graph) {
  if (!cut->splits_backward) return microbatch_kinds(arena, graph, NULL);
  bool *is_sent = ARENA_ARRAY(arena, bool, graph->nodes.n);
  for (int i = 0; i < graph->outputs.n; i++) {
    const StageEdge *edge = stage_edge_sent(cut, &graph->outputs.data[i]);
    if (edge && !edge->is_of_step)
      is_sent[graph->outputs.data[i].value.node] = true;
  }
  return microbatch_kinds(arena, graph, is_sent);
}

/* The stage of a graph is that of its edges.  Returns -1 if it has none. */
static int stage_of(const StageCut *cut, const Graph *graph) {
  for (int i = 0; i < graph->inputs.n; i++) {
    const StageEdge *edge = stage_edge_received(cut, &graph->inputs.data[i]);
    if (edge) return edge->to;
  }
  for (int i = 0; i < graph->outputs.n; i++) {
    const StageEdge *edge = stage_edge_sent(cut, &graph->outputs.data[i]);
    if (edge) return edge->from;
  }
  return -1;
}

ProgramSegments stage_graph_segments(Arena *arena, const StageCut *cut,
                                     const Graph *ordered) {
  ProgramEdges edges = stage_program_edges(arena, cut);
  return stage_segments(arena, ordered, stage_of(cut, ordered), &edges,
                        cut->splits_backward);
}

int *stage_node_parts(Arena *arena, const StageCut *cut, const Graph *graph) {
  if (!cut) return ARENA_ARRAY(arena, int, graph->nodes.n);
  const TokenKind *kinds = stage_segment_kinds(arena, cut, graph);
  int *parts = stage_node_levels(arena, cut, graph);
  const bool *is_early = find_early(arena, cut, graph);
  for (int id = 0; id < graph->nodes.n; id++)
    parts[id] = kinds[id] == TOKEN_once ? 2 * parts[id] + is_early[id]
                                        : -segment_order(kinds[id]);
  for (int id = 0; id < graph->nodes.n; id++)
    parts[id] += segment_order(TOKEN_update);
  return parts;
}
