/*
 * program_check.c -- checks an entry point: the head of entry_point_check in
 * program.h names the rules.
 *
 * One walk over the timeline.  It knows which segments have been called, for
 * which micro-batches, which messages have come, and which micro-batch has each
 * frame.
 */
#include "ir/place/mesh_place.h"
#include "ir/program.h"

#include <stdarg.h>

typedef struct StageCheck {
  const ProgramStage *stage;
  int number;      /* in the entry point */
  int *n_calls;    /* by segment, so far */
  bool *is_called; /* [segment * n_microbatches + microbatch] */
  /* By register, and number of the frame or slot: the micro-batch that has it,
   * plus 1. */
  int *holders[N_REGISTERS];
} StageCheck;

typedef struct EntryCheck {
  Arena *scratch;
  const EntryPoint *entry;
  int n_microbatches;
  StageCheck *stages;
  int *n_messages; /* by edge, so far */
  bool *has_come;  /* [edge * n_microbatches + microbatch] */
  Text *out;
  int n_errors;
} EntryCheck;

/* `stage`: index in the entry point.  The message has its number. */
static void PRINTF_LIKE(3, 4)
    violated(EntryCheck *c, int stage, const char *format, ...) {
  c->n_errors++;
  if (!c->out) return;
  va_list args;
  va_start(args, format);
  text_printf(c->out, "stage %d: %s\n", c->stages[stage].stage->number,
              arena_vprintf(c->scratch, format, args));
  va_end(args);
}

/* ---- segments ---- */

static void check_segments(EntryCheck *c, int number) {
  const ProgramStage *stage = c->stages[number].stage;
  int node = 0, place = 0;
  for (int s = 0; s < stage->segments.n; s++) {
    const ProgramSegment *segment = &stage->segments.data[s];
    bool reads = segment_is_of_microbatch(segment);
    place += reads; /* a bracket */
    if (segment->first_node != node || segment->begin != place)
      violated(c, number,
               "segment %d begins at node %d and instruction %d, not %d, %d", s,
               segment->first_node, segment->begin, node, place);
    node = segment->end_node;
    place = segment->end + reads;
  }
  if (node != stage->graph->nodes.n ||
      place != stage->instructions->instructions.n)
    violated(c, number, "its segments end at node %d and instruction %d", node,
             place);
}

/* Segment `before` has done what comes before a call of `segment`. */
static bool has_come(const EntryCheck *c, const StageCheck *s, int before,
                     int segment, int microbatch) {
  const ProgramSegment *segments = s->stage->segments.data;
  bool is_same = segment_is_of_microbatch(&segments[before]) &&
                 segment_is_of_microbatch(&segments[segment]);
  return is_same
             ? s->is_called[before * c->n_microbatches + microbatch]
             : s->n_calls[before] == segment_calls(s->stage, &segments[before]);
}

/* Reports that a call comes before one of segment `before`. */
static void violated_order(EntryCheck *c, const StageCheck *s, int before,
                           int segment, int microbatch) {
  const ProgramSegment *segments = s->stage->segments.data;
  int missing = 0;
  if (segment_is_of_microbatch(&segments[segment]) ||
      !segment_is_of_microbatch(&segments[before])) {
    violated(c, s->number,
             "segment %d is called for micro-batch %d before segment %d",
             segment, microbatch, before);
    return;
  }
  while (s->is_called[before * c->n_microbatches + missing]) missing++;
  violated(c, s->number,
           "segment %d is called before segment %d of micro-batch %d", segment,
           before, missing);
}

/* The stage has no segment of a micro-batch up to the kind `last` that comes
 * after this one. */
static bool is_last_until(const ProgramStage *stage, TokenKind kind,
                          TokenKind last) {
  for (int s = 0; s < stage->segments.n; s++) {
    const ProgramSegment *other = &stage->segments.data[s];
    if (segment_is_of_microbatch(other) &&
        segment_order(other->kind) > segment_order(kind) &&
        segment_order(other->kind) <= segment_order(last))
      return false;
  }
  return segment_order(kind) <= segment_order(last);
}

/* A frame is taken by the first call that has it, a slot by the first message;
 * the last call of a micro-batch leaves it. */
static void check_place(EntryCheck *c, const StageCheck *s,
                        const ProgramCall *call, ProgramRegister number,
                        bool is_last) {
  static const char *const words[N_REGISTERS] = {
      [REGISTER_frame] = "frame",
      [REGISTER_slot] = "slot",
      [REGISTER_input_frame] = "frame of input gradients",
      [REGISTER_weight_frame] = "frame of weight gradients"};
  const char *word = words[number];
  int place = call->registers[number], *holders = s->holders[number];
  int microbatch = call->registers[REGISTER_microbatch];
  if (place < 0 || place >= stage_places(s->stage, number)) {
    violated(c, s->number, "it has no %s %d", word, place);
    return;
  }
  if (holders[place] && holders[place] != microbatch + 1)
    violated(c, s->number, "%s %d of micro-batch %d is used for %d", word,
             place, holders[place] - 1, microbatch);
  holders[place] = is_last ? 0 : microbatch + 1;
}

/* The last segment of a micro-batch that may read what it received. */
static TokenKind last_reader(const EntryCheck *c, const StageCheck *s) {
  TokenKind last = TOKEN_forward;
  for (int e = 0; e < c->entry->edges.n; e++) {
    const ProgramEdge *edge = &c->entry->edges.data[e];
    if (edge->to == s->stage->number && edge->n_slots > 1 &&
        segment_order(edge->last_kind) > segment_order(last))
      last = edge->last_kind;
  }
  return last;
}

/* A call of the stage leaves the slot: passes may have left nothing that reads
 * what it receives. */
static bool leaves_slot(const EntryCheck *c, const StageCheck *s) {
  TokenKind last = last_reader(c, s);
  for (int n = 0; n < s->stage->segments.n; n++) {
    const ProgramSegment *segment = &s->stage->segments.data[n];
    if (segment_is_of_microbatch(segment) &&
        is_last_until(s->stage, segment->kind, last))
      return true;
  }
  return false;
}

static void check_places(EntryCheck *c, StageCheck *s, const ProgramCall *call,
                         TokenKind kind) {
  check_place(c, s, call, REGISTER_frame,
              is_last_until(s->stage, kind, TOKEN_weight_grad));
  if (s->stage->n_slots > 1 && is_last_until(s->stage, kind, last_reader(c, s)))
    check_place(c, s, call, REGISTER_slot, true);
  if (stage_registers(s->stage) <= REGISTER_weight_frame) return;
  if (kind != TOKEN_weight_grad)
    check_place(c, s, call, REGISTER_input_frame,
                is_last_until(s->stage, kind, TOKEN_input_grad));
  if (kind != TOKEN_forward)
    check_place(c, s, call, REGISTER_weight_frame,
                is_last_until(s->stage, kind, TOKEN_weight_grad));
}

static void check_call(EntryCheck *c, const ProgramCall *call) {
  StageCheck *s = &c->stages[call->stage];
  int n = call->segment, k = call->registers[REGISTER_microbatch];
  if (n < 0 || n >= s->stage->segments.n) {
    violated(c, s->number, "it has no segment %d", n);
    return;
  }
  const ProgramSegment *segment = &s->stage->segments.data[n];
  if (k < 0 || k >= segment_calls(s->stage, segment)) {
    violated(c, s->number, "segment %d has no micro-batch %d", n, k);
    return;
  }
  bool *is_called = &s->is_called[n * c->n_microbatches + k];
  if (*is_called)
    violated(c, s->number, "segment %d is called twice for micro-batch %d", n,
             k);
  if (call->is_first != (s->n_calls[n] == 0))
    violated(c, s->number,
             "the wrong call of segment %d is marked as the first", n);
  for (int before = 0; before < n; before++)
    if (!has_come(c, s, before, n, k)) violated_order(c, s, before, n, k);
  *is_called = true;
  s->n_calls[n]++;
  if (segment->n_registers > REGISTER_frame)
    check_places(c, s, call, segment->kind);
}

static void check_counts(EntryCheck *c, int number) {
  const StageCheck *s = &c->stages[number];
  for (int n = 0; n < s->stage->segments.n; n++) {
    int wanted = segment_calls(s->stage, &s->stage->segments.data[n]);
    if (s->n_calls[n] != wanted)
      violated(c, number, "segment %d is called %d times, not %d", n,
               s->n_calls[n], wanted);
  }
}

/* ---- messages ---- */

static StageCheck *find_stage(const EntryCheck *c, int number) {
  for (int s = 0; s < c->entry->stages.n; s++)
    if (c->entry->stages.data[s].number == number) return &c->stages[s];
  return NULL;
}

/* "edge 3 ('x', stage 0 to stage 1)" */
static const char *edge_name(const EntryCheck *c, int e) {
  const ProgramEdge *edge = &c->entry->edges.data[e];
  return arena_printf(c->scratch, "edge %d ('%s', stage %d to stage %d)", e,
                      edge->path, edge->from, edge->to);
}

static int message_count(const EntryCheck *c, const ProgramEdge *edge) {
  return edge->is_of_step ? 1 : c->n_microbatches;
}

/* The segment comes before all others of its stage that have this place in a
 * step, or is one of them: both are in the order of kinds, then parts. */
static bool is_until(const ProgramSegment *segment, TokenKind kind, int part) {
  if (segment_order(segment->kind) != segment_order(kind))
    return segment_order(segment->kind) < segment_order(kind);
  return !token_info(kind)->is_of_step || segment->part <= part;
}

/* The segments that make the value of micro-batch `k` have been called. */
static void check_writers(EntryCheck *c, const StageCheck *s, int e, int k) {
  const ProgramEdge *edge = &c->entry->edges.data[e];
  for (int n = 0; n < s->stage->segments.n; n++) {
    const ProgramSegment *segment = &s->stage->segments.data[n];
    if (!is_until(segment, edge->from_kind, edge->from_part)) continue;
    bool is_done = edge->is_of_step || !segment_is_of_microbatch(segment)
                       ? s->n_calls[n] == segment_calls(s->stage, segment)
                       : s->is_called[n * c->n_microbatches + k];
    if (!is_done)
      violated(c, s->number, "%s leaves before segment %d, micro-batch %d",
               edge_name(c, e), n, k);
  }
}

/* Nothing that reads it has. */
static void check_readers(EntryCheck *c, const StageCheck *s, int e, int k) {
  const ProgramEdge *edge = &c->entry->edges.data[e];
  for (int n = 0; n < s->stage->segments.n; n++) {
    const ProgramSegment *segment = &s->stage->segments.data[n];
    bool is_reader = segment->kind == edge->to_kind
                         ? !edge->is_of_step || segment->part >= edge->to_part
                         : !is_until(segment, edge->to_kind, edge->to_part);
    bool is_called = edge->is_of_step || !segment_is_of_microbatch(segment)
                         ? s->n_calls[n] > 0
                         : s->is_called[n * c->n_microbatches + k];
    if (is_reader && is_called)
      violated(c, s->number, "%s arrives after segment %d, micro-batch %d",
               edge_name(c, e), n, k);
  }
}

static void check_message(EntryCheck *c, const ProgramCall *call) {
  int e = call->edge, k = call->registers[REGISTER_microbatch];
  if (e < 0 || e >= c->entry->edges.n) {
    violated(c, call->stage, "there is no edge %d", e);
    return;
  }
  const ProgramEdge *edge = &c->entry->edges.data[e];
  StageCheck *from = find_stage(c, edge->from), *to = find_stage(c, edge->to);
  ProgramCallKind wanted = from && to ? CALL_pass
                           : from     ? CALL_send
                                      : CALL_receive;
  const StageCheck *own = from ? from : to;
  if (!own || call->kind != wanted || own->number != call->stage) {
    violated(c, call->stage, "%s has another message here", edge_name(c, e));
    return;
  }
  if (k < 0 || k >= message_count(c, edge)) {
    violated(c, call->stage, "%s has no micro-batch %d", edge_name(c, e), k);
    return;
  }
  bool *is_here = &c->has_come[e * c->n_microbatches + k];
  if (*is_here)
    violated(c, call->stage, "%s has micro-batch %d twice", edge_name(c, e), k);
  if (call->is_first != (c->n_messages[e] == 0))
    violated(c, call->stage, "the wrong message of %s is marked",
             edge_name(c, e));
  *is_here = true;
  c->n_messages[e]++;
  if (from) check_writers(c, from, e, k);
  if (to) check_readers(c, to, e, k);
  if (to && edge->n_slots > 1 && leaves_slot(c, to))
    check_place(c, to, call, REGISTER_slot, false);
}

static void check_edges(EntryCheck *c) {
  for (int e = 0; e < c->entry->edges.n; e++) {
    const ProgramEdge *edge = &c->entry->edges.data[e];
    const StageCheck *own = find_stage(c, edge->from);
    if (!own) own = find_stage(c, edge->to);
    if (own && c->n_messages[e] != message_count(c, edge))
      violated(c, own->number, "%s has %d messages, not %d", edge_name(c, e),
               c->n_messages[e], message_count(c, edge));
  }
}

/* ---- all of it ---- */

static EntryCheck begin_check(Arena *scratch, const EntryPoint *entry) {
  EntryCheck c = {.scratch = scratch,
                  .entry = entry,
                  .stages = ARENA_ARRAY(scratch, StageCheck, entry->stages.n)};
  c.n_microbatches = mesh_microbatches(&entry->stages.data[0].graph->mesh);
  c.n_messages = ARENA_ARRAY(scratch, int, entry->edges.n);
  c.has_come = ARENA_ARRAY(scratch, bool, entry->edges.n *c.n_microbatches);
  for (int i = 0; i < entry->stages.n; i++) {
    const ProgramStage *stage = &entry->stages.data[i];
    int n = stage->segments.n;
    c.stages[i] = (StageCheck){
        .stage = stage,
        .number = i,
        .n_calls = ARENA_ARRAY(scratch, int, n),
        .is_called = ARENA_ARRAY(scratch, bool, n *c.n_microbatches)};
    for (int r = REGISTER_frame; r < N_REGISTERS; r++)
      c.stages[i].holders[r] =
          ARENA_ARRAY(scratch, int, stage_places(stage, (ProgramRegister)r));
  }
  return c;
}

bool entry_point_check(const EntryPoint *entry, Text *out_errors) {
  /* program_periods proves a period by unrolling it. */
  if (entry->stages.n == 0 || entry->is_period) return true;
  Arena *scratch = arena_beside(entry->stages.data[0].graph->module->arena);
  EntryCheck c = begin_check(scratch, entry);
  c.out = out_errors;
  for (int i = 0; i < entry->stages.n; i++) check_segments(&c, i);
  for (int k = 0; k < entry->timeline.n; k++) {
    const ProgramCall *call = &entry->timeline.data[k];
    ASSERT(call->stage >= 0 && call->stage < entry->stages.n);
    if (call->kind == CALL_segment)
      check_call(&c, call);
    else
      check_message(&c, call);
  }
  for (int i = 0; i < entry->stages.n; i++) check_counts(&c, i);
  check_edges(&c);
  arena_destroy(scratch);
  return c.n_errors == 0;
}
