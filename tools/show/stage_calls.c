/*
 * stage_calls.c -- finds the calls of a timeline in the spans of a stream.
 *
 *     stream     run run | wait for a message | run run | run run | ...
 *     timeline   0F0                            0F1       0B0
 *
 * Spans name instructions, which are in a segment of a stage.  A call begins
 * where the segment changes or begins again.  One that waits for a message
 * where it reads it has a part before and one behind.
 */
#include "tools/show/stage_calls.h"

typedef struct CallFinder {
  Arena *arena;
  const EntryPoint *step;
  int at;          /* present call of the timeline; -1: none yet */
  int first, last; /* instructions of its first and last span */
  bool is_over;    /* a wait for a message came since */
  StageCalls calls;
} CallFinder;

/* The segment of an instruction, counted through all stages.  Returns false for
 * messages, and for instructions outside of segments. */
static bool find_segment(const EntryPoint *step, int instruction,
                         int *out_stage, int *out_segment) {
  for (int s = 0; s < step->stages.n; s++) {
    const ProgramStage *stage = &step->stages.data[s];
    int n = stage->instructions->instructions.n;
    for (int k = 0; instruction < n && k < stage->segments.n; k++) {
      const ProgramSegment *segment = &stage->segments.data[k];
      if (instruction < segment->begin || instruction >= segment->end) continue;
      *out_stage = s;
      *out_segment = k;
      return true;
    }
    if (instruction < n) return false;
    instruction -= n;
  }
  return false;
}

/* The next call of the segment in the timeline.  Returns false if there is
 * none. */
static bool find_call(CallFinder *f, int stage, int segment) {
  for (int i = f->at + 1; i < f->step->timeline.n; i++) {
    const ProgramCall *call = &f->step->timeline.data[i];
    if (call->kind != CALL_segment || call->stage != stage ||
        call->segment != segment)
      continue;
    f->at = i;
    return true;
  }
  return false;
}

static void begin_part(CallFinder *f, Ps begin) {
  const ProgramCall *call = &f->step->timeline.data[f->at];
  const ProgramStage *stage = &f->step->stages.data[call->stage];
  TokenKind kind = stage->segments.data[call->segment].kind;
  vec_push(f->arena, &f->calls,
           (StageCall){.stage = stage,
                       .kind = kind,
                       .microbatch = token_info(kind)->is_of_step
                                         ? -1
                                         : call->registers[REGISTER_microbatch],
                       .begin = begin});
}

static bool is_in_call(const CallFinder *f, int stage, int segment,
                       int instruction) {
  if (f->at < 0) return false;
  const ProgramCall *call = &f->step->timeline.data[f->at];
  bool begins_again = f->is_over
                          ? instruction <= f->last
                          : instruction < f->last && instruction <= f->first;
  return call->stage == stage && call->segment == segment && !begins_again;
}

static void add_span(CallFinder *f, const StreamSpan *span) {
  int stage, segment, id = span->instruction;
  if (!find_segment(f->step, id, &stage, &segment)) {
    f->is_over = true;
    return;
  }
  bool is_new =
      !is_in_call(f, stage, segment, id) && find_call(f, stage, segment);
  if (is_new) f->first = id;
  if (is_new || (f->is_over && f->at >= 0)) begin_part(f, span->begin);
  f->last = id;
  f->is_over = false;
  if (f->calls.n > 0) f->calls.data[f->calls.n - 1].end = span->end;
}

StageCalls stage_calls(Arena *arena, const Priced *p, int class) {
  CallFinder f = {
      .arena = arena, .step = priced_program(p, class)->step, .at = -1};
  const PricedClass *spans = &p->classes[class];
  for (int i = 0; i < spans->stream.n; i++)
    add_span(&f, &spans->stream.data[i]);
  return f.calls;
}

/* ---- bars ---- */

const char *call_bar_name(const CallBar *bar) {
  return bar->is_wait ? "wait" : token_info(bar->kind)->text;
}

static void add_bar(Arena *arena, CallBars *bars, CallBar bar, Ps column) {
  CallBar *last = bars->n > 0 ? &bars->data[bars->n - 1] : NULL;
  Ps length = bar.end - bar.begin;
  bar.n = 1;
  bar.longest = length;
  if (length == 0) return;
  if (!last || last->end - last->begin >= column || length >= column) {
    vec_push(arena, bars, bar);
    return;
  }
  CallBar joined = length > last->longest ? bar : *last;
  joined.n = last->n + 1;
  joined.begin = last->begin;
  joined.end = bar.end;
  *last = joined;
}

/* Between calls a stream waits for messages, or copies what stages of one rank
 * send each other, which takes little. */
CallBars call_bars(Arena *arena, const Priced *p, int class, Ps column) {
  const PriceClass *of = &p->price.classes[class];
  StageCalls calls = stage_calls(arena, p, class);
  CallBars out = {0};
  Ps at = of->begin;
  CallBar wait = {.is_wait = true, .stage = -1, .microbatch = -1};
  for (int i = 0; i < calls.n; i++) {
    const StageCall *call = &calls.data[i];
    wait.begin = at;
    wait.end = call->begin;
    add_bar(arena, &out, wait, column);
    add_bar(arena, &out,
            (CallBar){.begin = call->begin,
                      .end = call->end,
                      .kind = call->kind,
                      .stage = call->stage->number,
                      .microbatch = call->microbatch},
            column);
    at = call->end;
  }
  wait.begin = at;
  wait.end = of->begin + of->step;
  add_bar(arena, &out, wait, column);
  return out;
}

/* ---- the bubble ---- */

BubbleTimes bubble_times(Arena *arena, const Priced *p, int class) {
  const PricedClass *spans = &p->classes[class];
  StageCalls calls = stage_calls(arena, p, class);
  Ps first_backward = INT64_MAX, last_forward = INT64_MIN;
  BubbleTimes out = {0};
  for (int i = 0; i < calls.n; i++) {
    const StageCall *call = &calls.data[i];
    if (call->microbatch < 0) continue;
    if (call->kind == TOKEN_forward)
      last_forward = call->end;
    else if (first_backward == INT64_MAX)
      first_backward = call->begin;
  }
  for (int i = 0; i < spans->stream.n; i++) {
    const StreamSpan *span = &spans->stream.data[i];
    if (!span->is_wait || !spans->nodes[span->instruction].edge) continue;
    *(span->begin < first_backward  ? &out.warm_up
      : span->begin >= last_forward ? &out.drain
                                    : &out.steady) += priced_length(span);
  }
  return out;
}
