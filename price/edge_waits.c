/*
 * edge_waits.c -- finds where a segment waits for messages between stages.
 *
 * A program waits for what it receives before the first instruction that has a
 * byte of it (codegen/select_messages.c), so what a segment starts before, as
 * sums of gradients, is under way meanwhile.  It waits for what it sent before
 * the first instruction that writes there again.  Until buffers are assigned
 * the bytes are not known, and a segment waits when it begins.
 */
#include "price/edge_waits.h"

static int value_at(const ProgramStage *stage, Value value) {
  return stage->assignment->first_value[value.node] + value.result;
}

static bool bytes_meet(const ProgramStage *stage, Value a, Value b) {
  const BufferAssignment *in = stage->assignment;
  int i = value_at(stage, a), k = value_at(stage, b);
  return in->offset[i] < in->offset[k] + in->bytes[k] &&
         in->offset[k] < in->offset[i] + in->bytes[i];
}

static bool node_has_bytes(const ProgramStage *stage, int id, Value of,
                           LinkDirection direction) {
  const Node *node = stage->graph->nodes.data[id];
  for (int r = 0; r < node->n_results; r++)
    if (bytes_meet(stage, (Value){id, r}, of)) return true;
  for (int i = 0; direction == LINK_in && i < node->n_inputs; i++)
    if (bytes_meet(stage, node->inputs[i], of)) return true;
  return false;
}

/* The first instruction that has bytes of the value; the end if none has. */
static int first_use(const ProgramStage *stage, const ProgramSegment *segment,
                     Value of, LinkDirection direction) {
  const InstructionList *list = stage->instructions;
  for (int at = segment->begin; at < segment->end; at++) {
    const Instruction *in = &list->instructions.data[at];
    if (in->kind != INSTRUCTION_wait &&
        node_has_bytes(stage, in->node, of, direction))
      return at;
    if (in->kind == INSTRUCTION_loop) at = instructions_loop_end(list, at);
  }
  return segment->end;
}

static int place_of(const ProgramStage *stage, const ProgramSegment *segment,
                    const ProgramEdge *edge, LinkDirection direction) {
  if (!stage->assignment) return segment->begin;
  if (direction == LINK_out) {
    const GraphOutput *sent =
        graph_find_output(stage->graph, ROLE_send, edge->path);
    return sent ? first_use(stage, segment, sent->value, direction)
                : segment->begin;
  }
  const GraphInput *received =
      graph_find_input(stage->graph, ROLE_receive, edge->path);
  return received ? first_use(stage, segment, received->value, direction)
                  : segment->begin;
}

static void insert_wait(Arena *arena, EdgeWaits *waits, EdgeWait wait) {
  vec_push(arena, waits, wait);
  int at = waits->n - 1;
  for (; at > 0 && waits->data[at - 1].instruction > wait.instruction; at--)
    waits->data[at] = waits->data[at - 1];
  waits->data[at] = wait;
}

EdgeWaits edge_waits_of(Arena *arena, const EntryPoint *entry,
                        const ProgramStage *stage,
                        const ProgramSegment *segment) {
  EdgeWaits waits = {0};
  for (int e = 0; e < entry->edges.n; e++) {
    const ProgramEdge *edge = &entry->edges.data[e];
    bool is_used[] = {[LINK_out] = segment_writes_edge(stage, segment, edge),
                      [LINK_in] = segment_reads_edge(stage, segment, edge)};
    for (int d = 0; d < N_LINK_DIRECTIONS; d++) {
      LinkDirection direction = (LinkDirection)d;
      if (is_used[d])
        insert_wait(arena, &waits,
                    (EdgeWait){e, place_of(stage, segment, edge, direction),
                               direction});
    }
  }
  return waits;
}
