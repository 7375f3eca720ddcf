/*
 * program.c -- makes an entry point of a list of instructions.
 *
 *     clear %9                     segment 0    call 0
 *     loop microbatches 2
 *       run %5 dot                 segment 1    call 1, micro-batch 0
 *       run %9 accumulate                       call 1, micro-batch 1
 *     end
 *     run %11 fused                segment 2    call 2
 *
 * The loop of micro-batches is where segments meet; its brackets are in none.
 * Calls of it are all micro-batches, one after the other.
 */
#include "ir/program.h"

#include "ir/place/mesh_place.h"

/* ---- segments ---- */

ProgramSegments graph_segments(Arena *arena, const Graph *ordered) {
  ProgramSegments segments = {0};
  int n = ordered->nodes.n;
  ProgramSegment here = {0};
  for (bool reads = false; here.first_node < n || !reads; reads = !reads) {
    here.end_node = here.first_node;
    while (here.end_node < n &&
           node_is_per_microbatch(ordered, here.end_node) == reads)
      here.end_node++;
    here.n_registers = reads ? REGISTER_microbatch + 1 : 0;
    here.kind = reads             ? TOKEN_forward
                : segments.n == 0 ? TOKEN_once
                                  : TOKEN_update;
    vec_push(arena, &segments, here);
    here.first_node = here.end_node;
  }
  return segments;
}

bool segment_is_of_microbatch(const ProgramSegment *segment) {
  return segment->n_registers > REGISTER_microbatch;
}

int segment_order(TokenKind kind) {
  static const int order[N_TOKENS] = {[TOKEN_forward] = 1,
                                      [TOKEN_backward] = 2,
                                      [TOKEN_input_grad] = 2,
                                      [TOKEN_weight_grad] = 3,
                                      [TOKEN_update] = 4};
  return order[kind];
}

int stage_registers(const ProgramStage *stage) {
  int n = REGISTER_slot + 1;
  for (int s = 0; s < stage->segments.n; s++)
    if (stage->segments.data[s].n_registers > n)
      n = stage->segments.data[s].n_registers;
  return n;
}

int stage_places(const ProgramStage *stage, ProgramRegister number) {
  switch (number) {
  case REGISTER_frame: return stage->n_frames;
  case REGISTER_slot: return stage->n_slots;
  case REGISTER_input_frame: return stage->n_input_frames;
  case REGISTER_weight_frame: return stage->n_weight_frames;
  case REGISTER_version:
  case REGISTER_new_version:
    return stage->n_versions > 0 ? stage->n_versions : 1;
  case REGISTER_batch: return stage->n_batches > 0 ? stage->n_batches : 1;
  case REGISTER_microbatch:
  case N_REGISTERS: break;
  }
  UNREACHABLE();
}

int stage_most_places(const ProgramStage *stage) {
  int most = 1;
  for (int r = REGISTER_frame; r <= REGISTER_weight_frame; r++)
    if (stage_places(stage, (ProgramRegister)r) > most)
      most = stage_places(stage, (ProgramRegister)r);
  return most;
}

int64_t assignment_advance(const BufferAssignment *assignment, int value,
                           ProgramRegister number) {
  return assignment->moves_with[value] == number &&
                 number != REGISTER_microbatch
             ? assignment->move_bytes[value]
             : 0;
}

bool segment_reads_edge(const ProgramStage *stage,
                        const ProgramSegment *segment,
                        const ProgramEdge *edge) {
  if (edge->to != stage->number) return false;
  if (edge->to_kind == segment->kind && edge->to_part == segment->part)
    return true;
  for (int s = 0; s < stage->segments.n; s++)
    if (stage->segments.data[s].kind == edge->to_kind &&
        stage->segments.data[s].part == edge->to_part)
      return false;
  return true;
}

/* A node of the segment has bytes that the value has, too. */
static bool writes_bytes_of(const ProgramStage *stage,
                            const ProgramSegment *segment, Value value) {
  const BufferAssignment *a = stage->assignment;
  int at = a->first_value[value.node] + value.result;
  for (int id = segment->first_node; id < segment->end_node; id++) {
    const Node *node = stage->graph->nodes.data[id];
    for (int r = 0; r < node->n_results; r++) {
      int v = a->first_value[id] + r;
      if (a->offset[v] < a->offset[at] + a->bytes[at] &&
          a->offset[at] < a->offset[v] + a->bytes[v])
        return true;
    }
  }
  return false;
}

bool segment_writes_edge(const ProgramStage *stage,
                         const ProgramSegment *segment,
                         const ProgramEdge *edge) {
  if (edge->from != stage->number) return false;
  if (edge->from_kind == segment->kind && edge->from_part == segment->part)
    return true;
  if (!stage->assignment) return false;
  const GraphOutput *sent =
      graph_find_output(stage->graph, ROLE_send, edge->path);
  return sent && writes_bytes_of(stage, segment, sent->value);
}

/* The place of the next loop of micro-batches, or the end of the list. */
static int next_loop(const InstructionList *list, int from) {
  const Instruction *in = list->instructions.data;
  int at = from;
  while (at < list->instructions.n &&
         !(in[at].kind == INSTRUCTION_loop && in[at].node < 0))
    at++;
  return at;
}

/* The brackets of the loop of micro-batches are in no segment. */
static void divide_list(const InstructionList *list,
                        ProgramSegments *segments) {
  int at = 0;
  for (int s = 0; s < segments->n; s++) {
    ProgramSegment *segment = &segments->data[s];
    bool reads = segment_is_of_microbatch(segment);
    segment->begin = at + reads;
    segment->end =
        reads ? instructions_loop_end(list, at) : next_loop(list, at);
    at = segment->end + reads;
  }
  ASSERT(at == list->instructions.n);
}

int segment_calls(const ProgramStage *stage, const ProgramSegment *segment) {
  return segment_is_of_microbatch(segment)
             ? mesh_microbatches(&stage->graph->mesh)
             : 1;
}

EntryPoint entry_point_of_list(Arena *arena, EntryPointId id,
                               const InstructionList *list) {
  EntryPoint entry = {.id = id, .name = entry_point_name(id)};
  ProgramStage stage = {.n_ranks = mesh_ranks(&list->graph->mesh),
                        .graph = list->graph,
                        .instructions = list,
                        .n_frames = 1,
                        .n_slots = 1,
                        .n_input_frames = 1,
                        .n_weight_frames = 1,
                        .segments = graph_segments(arena, list->graph)};
  divide_list(list, &stage.segments);
  for (int s = 0; s < stage.segments.n; s++) {
    int n = segment_calls(&stage, &stage.segments.data[s]);
    for (int k = 0; k < n; k++)
      vec_push(arena, &entry.timeline,
               (ProgramCall){.kind = CALL_segment,
                             .segment = s,
                             .edge = -1,
                             .registers = {[REGISTER_microbatch] = k},
                             .is_first = k == 0});
  }
  vec_push(arena, &entry.stages, stage);
  return entry;
}

/* ---- looking at it ---- */

ProgramStage *entry_point_stage(const EntryPoint *entry) {
  ASSERT(entry->stages.n == 1);
  return &entry->stages.data[0];
}

const ProgramSegment *entry_point_segment(const EntryPoint *entry,
                                          const ProgramCall *call) {
  ASSERT(call->kind == CALL_segment);
  return &entry->stages.data[call->stage].segments.data[call->segment];
}

int64_t entry_point_arena_bytes(const EntryPoint *entry) {
  int64_t most = 0;
  for (int i = 0; i < entry->stages.n; i++)
    if (entry->stages.data[i].assignment->arena_bytes > most)
      most = entry->stages.data[i].assignment->arena_bytes;
  return most;
}

int64_t entry_point_host_bytes(const EntryPoint *entry) {
  int64_t most = 0;
  for (int i = 0; i < entry->stages.n; i++)
    if (entry->stages.data[i].assignment->host_bytes > most)
      most = entry->stages.data[i].assignment->host_bytes;
  return most;
}

int entry_point_repeats(const EntryPoint *entry, int at) {
  const ProgramCall *calls = entry->timeline.data;
  int n = 1;
  if (calls[at].kind != CALL_segment) return 1;
  while (at + n < entry->timeline.n && calls[at + n].kind == CALL_segment &&
         calls[at + n].stage == calls[at].stage &&
         calls[at + n].segment == calls[at].segment)
    n++;
  return n;
}

const EntryPoint *rank_program_find(const RankProgram *program,
                                    EntryPointId id) {
  for (int i = 0; i < program->n_entry_points; i++)
    if (program->entry_points[i].id == id) return &program->entry_points[i];
  return NULL;
}

const PipelineEdge *program_pipeline_edges(Arena *arena,
                                           const ProgramEdges *from) {
  PipelineEdge *edges = ARENA_ARRAY(arena, PipelineEdge, from->n);
  for (int e = 0; e < from->n; e++) {
    const ProgramEdge *edge = &from->data[e];
    edges[e] = (PipelineEdge){.from = edge->from_kind,
                              .to = edge->to_kind,
                              .from_stage = edge->from,
                              .to_stage = edge->to,
                              .from_part = edge->from_part,
                              .to_part = edge->to_part,
                              .name = edge->path,
                              .bytes = edge->bytes,
                              .dtype = edge->dtype};
  }
  return edges;
}
