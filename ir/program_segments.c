/*
 * program_segments.c -- divides the graph of a stage of several into segments.
 *
 *     %2 = exp %1                    once
 *     %5 = receive "s"               (level 1)
 *     %6 = mul %2, %5                once, part 1
 *     %7 = dot %0, %6                forward
 *     %8 = dot %7, %6                backward
 *     %9 = accumulate %8             backward
 *     %10 = fused %9                 update, part 1: it follows from %6
 *
 * list_schedule has put the nodes of a segment side by side, behind those of
 * the backward pass all that reads them.  A part of the step ends where a node
 * follows from a message that those before it do without. So a rank sends what
 * one part makes before it waits for what the next one needs.
 */
#include "ir/place/mesh_place.h"
#include "ir/program.h"

/* The edge of a received value.  Returns NULL for other inputs. */
static const ProgramEdge *received(const Graph *graph, int id, int stage,
                                   const ProgramEdges *edges) {
  const Node *node = graph->nodes.data[id];
  if (node->op != OP_input) return NULL;
  const GraphInput *input = &graph->inputs.data[node_int(node, ATTR_index, 0)];
  for (int e = 0; e < edges->n && input->role == ROLE_receive; e++)
    if (edges->data[e].to == stage && edges->data[e].path == input->path)
      return &edges->data[e];
  return NULL;
}

/* By node: level of the last message of the step that it follows from. */
static int *find_levels(Arena *arena, const Graph *graph, int stage,
                        const ProgramEdges *edges) {
  int *levels = ARENA_ARRAY(arena, int, graph->nodes.n);
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    const ProgramEdge *edge = received(graph, id, stage, edges);
    if (edge) levels[id] = edge->level;
    for (int i = 0; i < node->n_inputs; i++) {
      int level = levels[node->inputs[i].node];
      if (level > levels[id]) levels[id] = level;
    }
  }
  return levels;
}

/* By node: it follows from a message that is sent after the micro-batches. */
static bool *find_late(Arena *arena, const Graph *graph, int stage,
                       const ProgramEdges *edges) {
  bool *is_late = ARENA_ARRAY(arena, bool, graph->nodes.n);
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    const ProgramEdge *edge = received(graph, id, stage, edges);
    is_late[id] = edge && edge->is_after;
    for (int i = 0; i < node->n_inputs; i++)
      is_late[id] |= is_late[node->inputs[i].node];
  }
  return is_late;
}

static bool is_after_microbatches(const ProgramSegment *segment) {
  return segment->kind != TOKEN_once;
}

static void start_segment(Arena *arena, ProgramSegments *segments,
                          TokenKind kind, int part, int node) {
  bool is_of_step = token_info(kind)->is_of_step;
  if (segments->n > 0) segments->data[segments->n - 1].end_node = node;
  vec_push(arena, segments,
           (ProgramSegment){.kind = kind,
                            .part = is_of_step ? part : 0,
                            .first_node = node,
                            .end_node = node,
                            .n_registers = is_of_step ? 0 : REGISTER_slot + 1});
}

/* An input stays in the segment of the node before it. */
ProgramSegments stage_segments(Arena *arena, const Graph *ordered, int stage,
                               const ProgramEdges *edges) {
  ProgramSegments segments = {0};
  const int *levels = find_levels(arena, ordered, stage, edges);
  const bool *is_late = find_late(arena, ordered, stage, edges);
  start_segment(arena, &segments, TOKEN_once, 0, 0);
  for (int id = 0; id < ordered->nodes.n; id++) {
    const Node *node = ordered->nodes.data[id];
    const ProgramSegment *last = &segments.data[segments.n - 1];
    bool is_after = is_after_microbatches(last) || is_late[id];
    TokenKind kind = is_after ? TOKEN_update : TOKEN_once;
    if (node->op == OP_input) continue;
    if (node_is_per_microbatch(ordered, id))
      kind = node->phase == PHASE_forward && last->kind != TOKEN_backward
                 ? TOKEN_forward
                 : TOKEN_backward;
    bool is_later_part =
        token_info(kind)->is_of_step && levels[id] > last->part;
    if (kind != last->kind || is_later_part)
      start_segment(arena, &segments, kind, levels[id], id);
  }
  const ProgramSegment *last = &segments.data[segments.n - 1];
  if (last->kind != TOKEN_update)
    start_segment(arena, &segments, TOKEN_update, 0, ordered->nodes.n);
  segments.data[segments.n - 1].end_node = ordered->nodes.n;
  return segments;
}
