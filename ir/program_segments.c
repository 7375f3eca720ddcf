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

/* ---- passes of a micro-batch ---- */

/* By node: it follows from a gradient that another stage sends. */
static bool *find_gradients(Arena *arena, const Graph *graph) {
  bool *follows = ARENA_ARRAY(arena, bool, graph->nodes.n);
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    follows[id] = node->op == OP_input && node->phase != PHASE_forward;
    for (int i = 0; i < node->n_inputs; i++)
      follows[id] |= follows[node->inputs[i].node];
  }
  return follows;
}

/* By node: a value that the forward pass sends follows from it. */
static bool *find_needed(Arena *arena, const Graph *graph) {
  bool *is_needed = ARENA_ARRAY(arena, bool, graph->nodes.n);
  for (int i = 0; i < graph->outputs.n; i++) {
    const GraphOutput *output = &graph->outputs.data[i];
    int id = output->value.node;
    if (output->role == ROLE_send)
      is_needed[id] |= graph->nodes.data[id]->phase == PHASE_forward;
  }
  for (int id = graph->nodes.n - 1; id >= 0; id--) {
    const Node *node = graph->nodes.data[id];
    for (int i = 0; i < node->n_inputs && is_needed[id]; i++)
      is_needed[node->inputs[i].node] = true;
  }
  return is_needed;
}

/* The nodes that are of the backward pass, or read what is: a value of the
 * forward pass may be computed from a gradient, such as one that is both.  A
 * node that both passes read may have been merged into one of the backward
 * pass; where the forward pass sends what follows from it, it is of that. */
static bool *find_backward(Arena *arena, const Graph *graph) {
  bool *is_back = ARENA_ARRAY(arena, bool, graph->nodes.n);
  const bool *follows = find_gradients(arena, graph);
  const bool *is_needed = find_needed(arena, graph);
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    if (!node_is_per_microbatch(graph, id)) continue;
    is_back[id] =
        node->phase != PHASE_forward && (follows[id] || !is_needed[id]);
    for (int i = 0; i < node->n_inputs; i++)
      is_back[id] |= is_back[node->inputs[i].node];
  }
  return is_back;
}

/* Weight gradients and what reads them, unless an input gradient reads it or it
 * is sent. */
static bool *find_weight_grads(Arena *arena, const Graph *graph,
                               const bool *is_back, const bool *is_sent) {
  bool *is_weight = ARENA_ARRAY(arena, bool, graph->nodes.n);
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    if (!is_back[id] || is_sent[id]) continue;
    is_weight[id] =
        node->phase == PHASE_weight_gradient || node->phase == PHASE_update;
    for (int i = 0; i < node->n_inputs && node->phase == PHASE_forward; i++)
      is_weight[id] |= is_weight[node->inputs[i].node];
  }
  for (int id = graph->nodes.n - 1; id >= 0; id--) {
    const Node *node = graph->nodes.data[id];
    for (int i = 0; i < node->n_inputs && is_back[id] && !is_weight[id]; i++)
      is_weight[node->inputs[i].node] = false;
  }
  return is_weight;
}

TokenKind *microbatch_kinds(Arena *arena, const Graph *graph,
                            const bool *is_sent) {
  TokenKind *kinds = ARENA_ARRAY(arena, TokenKind, graph->nodes.n);
  const bool *is_back = find_backward(arena, graph);
  const bool *is_weight =
      is_sent ? find_weight_grads(arena, graph, is_back, is_sent) : NULL;
  for (int id = 0; id < graph->nodes.n; id++)
    kinds[id] = !node_is_per_microbatch(graph, id) ? TOKEN_once
                : !is_back[id]                     ? TOKEN_forward
                : !is_weight                       ? TOKEN_backward
                : is_weight[id]                    ? TOKEN_weight_grad
                                                   : TOKEN_input_grad;
  return kinds;
}

/* By node: it makes what is sent for each micro-batch. */
static bool *find_sent(Arena *arena, const Graph *graph, int stage,
                       const ProgramEdges *edges) {
  bool *is_sent = ARENA_ARRAY(arena, bool, graph->nodes.n);
  for (int e = 0; e < edges->n; e++) {
    const ProgramEdge *edge = &edges->data[e];
    if (edge->from != stage || edge->is_of_step) continue;
    const GraphOutput *output = graph_find_output(graph, ROLE_send, edge->path);
    is_sent[output->value.node] = true;
  }
  return is_sent;
}

/* ---- segments ---- */

static bool is_after_microbatches(const ProgramSegment *segment) {
  return segment->kind != TOKEN_once;
}

/* A node of a micro-batch comes behind those of a later segment where it
 * overwrites what they read. */
static TokenKind later_kind(TokenKind last, TokenKind own) {
  bool is_behind =
      !token_info(last)->is_of_step && segment_order(last) > segment_order(own);
  return is_behind ? last : own;
}

static void start_segment(Arena *arena, ProgramSegments *segments,
                          TokenKind kind, int part, int node, int n_registers) {
  bool is_of_step = token_info(kind)->is_of_step;
  if (segments->n > 0) segments->data[segments->n - 1].end_node = node;
  vec_push(arena, segments,
           (ProgramSegment){.kind = kind,
                            .part = is_of_step ? part : 0,
                            .first_node = node,
                            .end_node = node,
                            .n_registers = is_of_step ? 0 : n_registers});
}

/* A swap in starts ahead of its reader: it is of the segment of the next
 * launch.
 */
static int node_of_segment(const Graph *graph, int id) {
  if (graph->nodes.data[id]->op != OP_swap_in) return id;
  while (graph->nodes.data[id]->op == OP_swap_in ||
         !node_is_launched(graph, id))
    id++;
  return id;
}

/* An input stays in the segment of the node before it. */
ProgramSegments stage_segments(Arena *arena, const Graph *ordered, int stage,
                               const ProgramEdges *edges,
                               bool splits_backward) {
  ProgramSegments segments = {0};
  int n_registers =
      splits_backward ? REGISTER_weight_frame + 1 : REGISTER_slot + 1;
  const TokenKind *kinds = microbatch_kinds(
      arena, ordered,
      splits_backward ? find_sent(arena, ordered, stage, edges) : NULL);
  const int *levels = find_levels(arena, ordered, stage, edges);
  const bool *is_late = find_late(arena, ordered, stage, edges);
  start_segment(arena, &segments, TOKEN_once, 0, 0, 0);
  for (int id = 0; id < ordered->nodes.n; id++) {
    const Node *node = ordered->nodes.data[id];
    const ProgramSegment *last = &segments.data[segments.n - 1];
    if (node->op == OP_input) continue;
    int like = node_of_segment(ordered, id);
    bool is_after = is_after_microbatches(last) || is_late[like];
    TokenKind kind = is_after ? TOKEN_update : TOKEN_once;
    if (kinds[like] != TOKEN_once) kind = later_kind(last->kind, kinds[like]);
    bool is_later_part =
        token_info(kind)->is_of_step && levels[like] > last->part;
    if (kind != last->kind || is_later_part)
      start_segment(arena, &segments, kind, levels[like], id, n_registers);
  }
  const ProgramSegment *last = &segments.data[segments.n - 1];
  if (last->kind != TOKEN_update)
    start_segment(arena, &segments, TOKEN_update, 0, ordered->nodes.n, 0);
  segments.data[segments.n - 1].end_node = ordered->nodes.n;
  return segments;
}
