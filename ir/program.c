/*
 * program.c -- makes an entry point of a list of instructions, and checks one.
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

#include <stdarg.h>

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

static int count_calls(const ProgramStage *stage,
                       const ProgramSegment *segment) {
  return segment_is_of_microbatch(segment)
             ? mesh_microbatches(&stage->graph->mesh)
             : 1;
}

EntryPoint entry_point_of_list(Arena *arena, EntryPointId id,
                               const InstructionList *list) {
  EntryPoint entry = {.id = id, .name = entry_point_name(id)};
  ProgramStage stage = {.graph = list->graph,
                        .instructions = list,
                        .n_frames = 1,
                        .segments = graph_segments(arena, list->graph)};
  divide_list(list, &stage.segments);
  for (int s = 0; s < stage.segments.n; s++) {
    int n = count_calls(&stage, &stage.segments.data[s]);
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

/* ---- the check ---- */

typedef struct StageCheck {
  Arena *scratch;
  const ProgramStage *stage;
  int number, n_microbatches;
  int *n_calls;    /* by segment, so far */
  bool *is_called; /* [segment * n_microbatches + microbatch] */
  Text *out;
  int n_errors;
} StageCheck;

static void PRINTF_LIKE(2, 3) violated(StageCheck *c, const char *format, ...) {
  c->n_errors++;
  if (!c->out) return;
  va_list args;
  va_start(args, format);
  text_printf(c->out, "stage %d: %s\n", c->number,
              arena_vprintf(c->scratch, format, args));
  va_end(args);
}

static void check_segments(StageCheck *c) {
  const ProgramStage *stage = c->stage;
  int node = 0, place = 0;
  for (int s = 0; s < stage->segments.n; s++) {
    const ProgramSegment *segment = &stage->segments.data[s];
    bool reads = segment_is_of_microbatch(segment);
    place += reads; /* a bracket */
    if (segment->first_node != node || segment->begin != place)
      violated(c, "segment %d begins at node %d and instruction %d, not %d, %d",
               s, segment->first_node, segment->begin, node, place);
    node = segment->end_node;
    place = segment->end + reads;
  }
  if (node != stage->graph->nodes.n ||
      place != stage->instructions->instructions.n)
    violated(c, "its segments end at node %d and instruction %d", node, place);
}

/* Segment `before` has done what comes before a call of `segment`. */
static bool has_come(const StageCheck *c, int before, int segment,
                     int microbatch) {
  const ProgramSegment *segments = c->stage->segments.data;
  bool is_same = segment_is_of_microbatch(&segments[before]) &&
                 segment_is_of_microbatch(&segments[segment]);
  return is_same
             ? c->is_called[before * c->n_microbatches + microbatch]
             : c->n_calls[before] == count_calls(c->stage, &segments[before]);
}

static void check_call(StageCheck *c, const ProgramCall *call) {
  int s = call->segment, k = call->registers[REGISTER_microbatch];
  if (s < 0 || s >= c->stage->segments.n) {
    violated(c, "it has no segment %d", s);
    return;
  }
  if (k < 0 || k >= count_calls(c->stage, &c->stage->segments.data[s])) {
    violated(c, "segment %d has no micro-batch %d", s, k);
    return;
  }
  bool *is_called = &c->is_called[s * c->n_microbatches + k];
  if (*is_called)
    violated(c, "segment %d is called twice for micro-batch %d", s, k);
  if (call->is_first != (c->n_calls[s] == 0))
    violated(c, "the wrong call of segment %d is marked as the first", s);
  for (int before = 0; before < s; before++)
    if (!has_come(c, before, s, k))
      violated(c, "segment %d is called for micro-batch %d before segment %d",
               s, k, before);
  *is_called = true;
  c->n_calls[s]++;
}

static void check_counts(StageCheck *c) {
  for (int s = 0; s < c->stage->segments.n; s++) {
    int wanted = count_calls(c->stage, &c->stage->segments.data[s]);
    if (c->n_calls[s] != wanted)
      violated(c, "segment %d is called %d times, not %d", s, c->n_calls[s],
               wanted);
  }
}

bool entry_point_check(const EntryPoint *entry, Text *out_errors) {
  int n_errors = 0;
  for (int i = 0; i < entry->stages.n; i++) {
    const ProgramStage *stage = &entry->stages.data[i];
    Arena *scratch = arena_beside(stage->graph->module->arena);
    int n = stage->segments.n, m = mesh_microbatches(&stage->graph->mesh);
    StageCheck c = {.scratch = scratch,
                    .stage = stage,
                    .number = i,
                    .n_microbatches = m,
                    .n_calls = ARENA_ARRAY(scratch, int, n),
                    .is_called = ARENA_ARRAY(scratch, bool, n *m),
                    .out = out_errors};
    check_segments(&c);
    for (int k = 0; k < entry->timeline.n; k++)
      if (entry->timeline.data[k].kind == CALL_segment &&
          entry->timeline.data[k].stage == i)
        check_call(&c, &entry->timeline.data[k]);
    check_counts(&c);
    n_errors += c.n_errors;
    arena_destroy(scratch);
  }
  return n_errors == 0;
}
