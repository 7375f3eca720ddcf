/*
 * critical_path.c -- walks back from the end of a step to its begin.
 *
 *     a launch, a wait for a collective    to its begin, on the same ranks
 *     a wait for a message                 to when both ranks had come to it,
 *                                          on those that came last
 *     a message behind another one         to the end of that one
 *
 * Steps follow each other alike, so what is before the begin of the last step
 * of some ranks is as at its end.
 */
#include "tools/show/critical_path.h"

#include <string.h>

/* ---- by phase ---- */

static void add_span(PhaseTimes *times, const PricedNode *at, bool is_wait,
                     Ps time) {
  if (is_wait && at->edge)
    times->messages += time;
  else if (is_wait)
    times->transfers += time;
  else
    times->kernels[priced_node_phase(at)] += time;
}

PhaseTimes phase_times(const Priced *p, int class) {
  const PricedClass *of = &p->classes[class];
  PhaseTimes out = {0};
  for (int i = 0; i < of->stream.n; i++) {
    const StreamSpan *span = &of->stream.data[i];
    add_span(&out, &of->nodes[span->instruction], span->is_wait,
             priced_length(span));
  }
  return out;
}

Ps phase_times_sum(const PhaseTimes *times) {
  Ps sum = times->transfers + times->messages;
  for (int i = 0; i < N_PHASES; i++) sum += times->kernels[i];
  return sum;
}

/* ---- messages of a class ---- */

/* A class with its messages. */
typedef struct ClassWalk {
  const EntryPoint *step;
  int first_call;             /* identifier of the first call */
  const QueueSpan **messages; /* by call; NULL: not started by this class */
} ClassWalk;

typedef struct PathWalk {
  const Priced *p;
  ClassWalk *classes;
  PhaseTimes *stages;
  int class;
  Ps at; /* on the clock of the spans */
  Ps left;
} PathWalk;

static ClassWalk class_walk(Arena *arena, const Priced *p, int class) {
  ClassWalk out = {.step = priced_program(p, class)->step};
  const PricedClass *spans = &p->classes[class];
  for (int s = 0; s < out.step->stages.n; s++)
    out.first_call += out.step->stages.data[s].instructions->instructions.n;
  out.messages =
      ARENA_ARRAY(arena, const QueueSpan *, out.step->timeline.n + 1);
  for (int i = 0; i < spans->queues.n; i++) {
    const QueueSpan *span = &spans->queues.data[i];
    if (spans->nodes[span->instruction].edge)
      out.messages[span->instruction - out.first_call] = span;
  }
  return out;
}

static bool has_stage(const EntryPoint *step, int number) {
  for (int s = 0; s < step->stages.n; s++)
    if (step->stages.data[s].number == number) return true;
  return false;
}

/* The message of the same edge and micro-batch, as the other class has it. */
static const QueueSpan *other_side(const PathWalk *w, const ProgramCall *call,
                                   int *out_class) {
  const EntryPoint *own = w->classes[w->class].step;
  const ProgramEdge *edge = &own->edges.data[call->edge];
  bool is_sent = call->kind == CALL_send;
  for (int c = 0; c < w->p->price.n_classes; c++) {
    const ClassWalk *other = &w->classes[c];
    if (w->p->price.classes[c].step <= 0 ||
        !has_stage(other->step, is_sent ? edge->to : edge->from))
      continue;
    for (int i = 0; i < other->step->timeline.n; i++) {
      const ProgramCall *of = &other->step->timeline.data[i];
      if (of->kind != (is_sent ? CALL_receive : CALL_send) ||
          of->edge != call->edge || !other->messages[i] ||
          of->registers[REGISTER_microbatch] !=
              call->registers[REGISTER_microbatch])
        continue;
      *out_class = c;
      return other->messages[i];
    }
  }
  return NULL;
}

/* ---- the walk ---- */

/* Goes back to a moment that is before the present one; returns how long ago
 * it is, as far as the step goes. */
static Ps go_back(PathWalk *w, Ps to) {
  Ps time = w->at - to;
  if (time > w->left) time = w->left;
  w->left -= time;
  w->at = to;
  return time;
}

/* The begin of a transfer in the queue of a class.  It may be of the step
 * before. */
static Ps begin_before(const PathWalk *w, const QueueSpan *span, int class) {
  Ps begin = span->begin, step = w->p->price.classes[class].step;
  while (begin >= w->at && step > 0) begin -= step;
  return begin;
}

static const QueueSpan *span_before(const PathWalk *w, const QueueSpan *span) {
  const PricedClass *class = &w->p->classes[w->class];
  for (const QueueSpan *at = span; at > class->queues.data;) {
    at--;
    if (at->queue == span->queue) return at->end == w->at ? at : NULL;
  }
  return NULL;
}

/* Follows a message that ends now.  `own`: in the queue of this class, or NULL
 * where the sender alone has it. */
static void follow_message(PathWalk *w, int call_at, const QueueSpan *own) {
  while (w->left > 0) {
    const ClassWalk *class = &w->classes[w->class];
    const ProgramCall *call = &class->step->timeline.data[call_at];
    int reader = class->step->edges.data[call->edge].to, other_class = w->class;
    const QueueSpan *other = other_side(w, call, &other_class);
    if (!own && !other) return;
    Ps begin = own ? begin_before(w, own, w->class) : INT64_MIN;
    Ps there = other ? begin_before(w, other, other_class) : INT64_MIN;
    const QueueSpan *last = own;
    if (there >= begin) {
      w->class = other_class;
      last = other;
      begin = there;
    }
    w->stages[reader].messages += go_back(w, begin);
    own = span_before(w, last);
    if (!own || !w->p->classes[w->class].nodes[own->instruction].edge) return;
    call_at = own->instruction - w->classes[w->class].first_call;
  }
}

/* The span that ends last of those that begin before. */
static const StreamSpan *find_span(const PricedClass *class, Ps at) {
  int low = 0, high = class->stream.n - 1;
  while (low < high) {
    int middle = (low + high + 1) / 2;
    if (class->stream.data[middle].begin < at)
      low = middle;
    else
      high = middle - 1;
  }
  return &class->stream.data[low];
}

/* Into the last step of the class. */
static void repeat_step(PathWalk *w) {
  const PriceClass *class = &w->p->price.classes[w->class];
  while (w->at <= class->begin) w->at += class->step;
  while (w->at > class->begin + class->step) w->at -= class->step;
}

static void walk_span(PathWalk *w) {
  repeat_step(w);
  const PricedClass *class = &w->p->classes[w->class];
  const StreamSpan *span = find_span(class, w->at);
  const PricedNode *at = &class->nodes[span->instruction];
  Ps before = w->left;
  if (span->is_wait && at->edge && span->end == w->at) {
    int call = span->instruction - w->classes[w->class].first_call;
    follow_message(w, call, w->classes[w->class].messages[call]);
  }
  if (w->left < before) return;
  int number = at->edge && span->is_wait ? at->edge->to : at->stage->number;
  add_span(&w->stages[number], at, span->is_wait, go_back(w, span->begin));
}

void critical_path(const Priced *p, int n_stages, PhaseTimes *out) {
  Arena *arena = p->c->module->arena;
  const PriceClass *slowest = &p->price.classes[p->price.slowest];
  PathWalk w = {.p = p,
                .stages = out,
                .class = p->price.slowest,
                .at = slowest->begin + slowest->step,
                .left = slowest->step};
  memset(out, 0, sizeof *out * (size_t)n_stages);
  w.classes = ARENA_ARRAY(arena, ClassWalk, p->price.n_classes);
  for (int c = 0; c < p->price.n_classes; c++)
    w.classes[c] = class_walk(arena, p, c);
  while (w.left > 0) {
    Ps before = w.left;
    walk_span(&w);
    ASSERT(w.left < before);
  }
}
