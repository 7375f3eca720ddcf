/*
 * select_messages.c -- makes the calls of an entry point, and the launches of
 * messages between its stages: a small segment for each edge, which sends,
 * receives or copies its value, and the waits of the segments that make and
 * read it.
 *
 *     send 0            segment  COLLECTIVE send, edge 0, id 0
 *     receive 1         segment  COLLECTIVE receive, edge 1, id 1 + slot
 *     pass 2            segment  COPY
 *     run %5 dot        WAIT id 1 + slot     before the first reader of edge 1
 *                       WAIT id 0            before what writes edge 0 again
 *
 * A message starts where its call stands and goes on beside what follows.  A
 * receive has an id for each slot, so that several may be under way; a send has
 * one, since its value has bytes for one micro-batch, or is in a frame.
 */
#include "codegen/select.h"

MessageIds *message_ids(Arena *arena, const EntryPoint *entry) {
  MessageIds *ids = ARENA_NEW(arena, MessageIds);
  ids->first = ARENA_ARRAY(arena, int, entry->edges.n);
  for (int e = 0; e < entry->edges.n; e++) {
    ids->first[e] = ids->n;
    ids->n += entry->edges.data[e].n_slots * entry->edges.data[e].n_ids;
  }
  return ids;
}

static Value output_of(const Graph *graph, Name path) {
  for (int i = 0; i < graph->outputs.n; i++)
    if (graph->outputs.data[i].role == ROLE_send &&
        graph->outputs.data[i].path == path)
      return graph->outputs.data[i].value;
  UNREACHABLE();
}

static Value input_of(const Graph *graph, Name path) {
  for (int i = 0; i < graph->inputs.n; i++)
    if (graph->inputs.data[i].role == ROLE_receive &&
        graph->inputs.data[i].path == path)
      return graph->inputs.data[i].value;
  UNREACHABLE();
}

static const ProgramStage *find_stage(const EntryPoint *entry, int number) {
  for (int s = 0; s < entry->stages.n; s++)
    if (entry->stages.data[s].number == number) return &entry->stages.data[s];
  return NULL;
}

static int value_at(const ProgramStage *stage, Value value) {
  return stage->assignment->first_value[value.node] + value.result;
}

/* ---- waits ---- */

/* Bytes of the arena, of the first frame or slot. */
typedef struct Bytes {
  int64_t begin, end;
} Bytes;

static Bytes bytes_of(const ProgramStage *stage, Value value) {
  int at = value_at(stage, value);
  int64_t begin = stage->assignment->offset[at];
  return (Bytes){begin, begin + stage->assignment->bytes[at]};
}

static bool bytes_meet(Bytes a, Bytes b) {
  return a.begin < b.end && b.begin < a.end;
}

static bool reads_bytes(const ProgramStage *stage, int id, Bytes bytes) {
  const Node *node = stage->graph->nodes.data[id];
  for (int i = 0; i < node->n_inputs; i++)
    if (bytes_meet(bytes_of(stage, node->inputs[i]), bytes)) return true;
  return false;
}

static bool writes_bytes(const ProgramStage *stage, int id, Bytes bytes) {
  for (int r = 0; r < stage->graph->nodes.data[id]->n_results; r++)
    if (bytes_meet(bytes_of(stage, (Value){id, r}), bytes)) return true;
  return false;
}

/* The ids of a message are moved by its slot. */
static void add_id(Arena *arena, Launch *launch, int first, int64_t advance) {
  vec_push(arena, &launch->numbers, first);
  for (int r = 0; r < launch->n_loops; r++)
    vec_push(arena, &launch->number_advances, r == REGISTER_slot ? advance : 0);
}

static void add_wait(MessageWaits *w, int e, int n_slots, LaunchList *out) {
  int n_ids = w->entry->edges.data[e].n_ids;
  Launch *launch = ARENA_NEW(w->arena, Launch);
  *launch = (Launch){.op = DNN_OP_WAIT,
                     .phase = 4,
                     .kernel = -1,
                     .n_loops = w->segment->n_registers,
                     .path = w->entry->edges.data[e].path};
  add_id(w->arena, launch, w->ids->first[e], n_slots > 1 ? n_ids : 0);
  if (n_ids > 1) add_id(w->arena, launch, n_ids, 0);
  vec_push(w->arena, out, launch);
  w->is_waited[e] = true;
}

void message_waits_begin(MessageWaits *waits, const ProgramSegment *segment) {
  waits->segment = segment;
  waits->is_waited = ARENA_ARRAY(waits->arena, bool, waits->entry->edges.n);
}

void message_waits_add(MessageWaits *w, int id, LaunchList *out) {
  for (int e = 0; e < w->entry->edges.n; e++) {
    const ProgramEdge *edge = &w->entry->edges.data[e];
    const ProgramStage *from = find_stage(w->entry, edge->from),
                       *to = find_stage(w->entry, edge->to);
    if ((from && to) || w->is_waited[e]) continue;
    if (to == w->stage) {
      Bytes bytes = bytes_of(to, input_of(to->graph, edge->path));
      bool uses = reads_bytes(to, id, bytes) || writes_bytes(to, id, bytes);
      if (uses) add_wait(w, e, edge->n_slots, out);
    } else if (from == w->stage) {
      Bytes bytes = bytes_of(from, output_of(from->graph, edge->path));
      if (writes_bytes(from, id, bytes)) add_wait(w, e, 1, out);
    }
  }
}

/* ---- messages ---- */

static int registers_of(const ProgramEdge *edge, const ProgramStage *stage) {
  return edge->is_of_step ? 0 : stage_registers(stage);
}

/* In a pass the slot is that of the reader, so what it copies has none. */
static void add_buffer(Arena *arena, Launch *launch, const ProgramStage *stage,
                       Value value) {
  const BufferAssignment *assignment = stage->assignment;
  int at = value_at(stage, value);
  vec_push(arena, &launch->buffers, assignment->offset[at]);
  for (int r = 0; r < launch->n_loops; r++)
    vec_push(arena, &launch->advances,
             assignment_advance(assignment, at, (ProgramRegister)r));
}

static Launch begin_message(const ProgramEdge *edge, const ProgramStage *stage,
                            DnnOpcode op) {
  return (Launch){.op = op,
                  .phase = 4,
                  .kernel = -1,
                  .n_loops = registers_of(edge, stage),
                  .path = edge->path};
}

static Launch make_copy(Arena *arena, const EntryPoint *entry,
                        const ProgramEdge *edge) {
  const ProgramStage *from = find_stage(entry, edge->from),
                     *to = find_stage(entry, edge->to);
  Launch launch = begin_message(edge, from, DNN_OP_COPY);
  Value sent = output_of(from->graph, edge->path);
  ASSERT(from->assignment->moves_with[value_at(from, sent)] != REGISTER_slot);
  add_buffer(arena, &launch, from, sent);
  add_buffer(arena, &launch, to, input_of(to->graph, edge->path));
  vec_push(arena, &launch.numbers, edge->bytes);
  launch.bytes_moved = 2 * (double)edge->bytes;
  return launch;
}

/* The pieces of all ranks of this side. */
static void add_pieces(Arena *arena, const ProgramEdge *edge, bool is_send,
                       Launch *launch) {
  int n = edge->pieces.n;
  DnnPiece *pieces = ARENA_ARRAY(arena, DnnPiece, n);
  for (int i = 0; i < n; i++) {
    const EdgePiece *piece = &edge->pieces.data[i];
    int from = edge->from_rank + piece->from, to = edge->to_rank + piece->to;
    pieces[i] = (DnnPiece){.rank = is_send ? from : to,
                           .peer = is_send ? to - from : from - to,
                           .n_runs = piece->n_runs,
                           .run = piece->run,
                           .at = is_send ? piece->from_at : piece->to_at};
  }
  launch->collective.n_pieces = n;
  if (n > 0) launch->collective.pieces = pieces;
}

static Launch make_message(Arena *arena, const EntryPoint *entry,
                           const ProgramCall *call, const MessageIds *ids) {
  const ProgramEdge *edge = &entry->edges.data[call->edge];
  const ProgramStage *stage = &entry->stages.data[call->stage];
  bool is_send = call->kind == CALL_send;
  Launch launch = begin_message(edge, stage, DNN_OP_COLLECTIVE);
  Value value = is_send ? output_of(stage->graph, edge->path)
                        : input_of(stage->graph, edge->path);
  add_buffer(arena, &launch, stage, value);
  const Type *type = graph_type(stage->graph, value);
  vec_push(arena, &launch.counts,
           type_local_elements(type, &stage->graph->mesh));
  add_id(arena, &launch, ids->first[call->edge],
         !is_send && edge->n_slots > 1 ? edge->n_ids : 0);
  launch.bytes_moved = (double)edge->bytes;
  launch.collective = (DnnCollective){.kind = is_send ? DNN_SEND : DNN_RECV,
                                      .dtype = (DnnDtype)edge->dtype,
                                      .queue = DNN_QUEUE_BLOCKING,
                                      .id = ids->first[call->edge],
                                      .peer = call->peer,
                                      .edge = call->edge,
                                      .n_ids = edge->n_ids,
                                      .n_parts = 1};
  add_pieces(arena, edge, is_send, &launch);
  return launch;
}

static void select_message(Arena *arena, const EntryPoint *entry,
                           const ProgramCall *call, const MessageIds *ids,
                           LaunchList *out) {
  const ProgramEdge *edge = &entry->edges.data[call->edge];
  Launch launch = call->kind == CALL_pass
                      ? make_copy(arena, entry, edge)
                      : make_message(arena, entry, call, ids);
  vec_push(arena, &out->segments,
           (DnnSegment){.begin = out->n,
                        .n = 1,
                        .n_registers = launch.n_loops,
                        .stage = entry->stages.data[call->stage].number});
  vec_push(arena, out, arena_copy(arena, &launch, sizeof launch));
}

/* ---- calls ---- */

_Static_assert((int)N_REGISTERS == DNN_N_REGISTERS &&
                   (int)REGISTER_microbatch == DNN_REGISTER_MICROBATCH &&
                   (int)REGISTER_frame == DNN_REGISTER_FRAME &&
                   (int)REGISTER_slot == DNN_REGISTER_SLOT &&
                   (int)REGISTER_new_version == DNN_REGISTER_NEW_VERSION,
               "program.h of ir and of runtime have the same registers");

_Static_assert((int)PERIOD_group == DNN_PERIOD_GROUP &&
                   (int)PERIOD_missing == DNN_PERIOD_MISSING,
               "program.h of ir and of runtime have the same words");

/* A segment of a message: in a period an edge may have several peers. */
typedef struct MessagePlace {
  ProgramCallKind kind;
  int edge, peer, segment;
} MessagePlace;

/* Where the segments of an entry point are in its launches. */
typedef struct SegmentPlaces {
  const int *of_stage; /* [n_stages]: the first one */
  VEC(MessagePlace) messages;
} SegmentPlaces;

static int place_of_call(const ProgramCall *call, const SegmentPlaces *places) {
  if (call->kind == CALL_segment)
    return places->of_stage[call->stage] + call->segment;
  for (int i = 0; i < places->messages.n; i++) {
    const MessagePlace *place = &places->messages.data[i];
    if (place->kind == call->kind && place->edge == call->edge &&
        place->peer == call->peer)
      return place->segment;
  }
  return -1;
}

static void add_messages(Arena *arena, const EntryPoint *entry,
                         const MessageIds *ids, SegmentPlaces *places,
                         LaunchList *out) {
  for (int i = 0; i < entry->timeline.n; i++) {
    const ProgramCall *call = &entry->timeline.data[i];
    if (call->kind == CALL_segment || place_of_call(call, places) >= 0)
      continue;
    MessagePlace place = {call->kind, call->edge, call->peer, out->segments.n};
    select_message(arena, entry, call, ids, out);
    vec_push(arena, &places->messages, place);
  }
}

static void add_period_call(Arena *arena, const ProgramCall *from,
                            LaunchList *out) {
  DnnPeriodCall call = {.unit = from->unit,
                        .replica = from->replica,
                        .when = (int32_t)from->when,
                        .begins = from->begins};
  for (int r = 0; r < N_REGISTERS; r++) {
    call.divisors[r] = from->rings[r].divisor;
    call.shifts[r] = from->rings[r].shift;
    call.factors[r] = from->rings[r].factor;
    call.moduli[r] = from->rings[r].n;
  }
  vec_push(arena, &out->periods, call);
}

static void add_calls(Arena *arena, const EntryPoint *entry,
                      const SegmentPlaces *places, LaunchList *out) {
  for (int i = 0; i < entry->timeline.n; i++) {
    const ProgramCall *from = &entry->timeline.data[i];
    DnnCall call = {.segment = place_of_call(from, places),
                    .is_first = from->is_first};
    for (int r = 0; r < N_REGISTERS && !entry->is_period; r++)
      call.registers[r] = from->registers[r];
    vec_push(arena, &out->calls, call);
    if (entry->is_period) add_period_call(arena, from, out);
  }
}

void select_calls(Arena *arena, const EntryPoint *entry, const MessageIds *ids,
                  const int *first_segment, LaunchList *out) {
  SegmentPlaces places = {.of_stage = first_segment};
  add_messages(arena, entry, ids, &places, out);
  add_calls(arena, entry, &places, out);
}
