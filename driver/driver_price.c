/*
 * driver_price.c -- prices the training step of a compiled model on a cluster,
 * and says where on the streams of the ranks each instruction stands.
 *
 *     run %3 dot             0 .. 3 us launch, 3 .. 83 us product
 *     start %4 all_reduce    queue 0: 83 .. 103 us
 *     run %5 fused           83 .. 86 us launch, 86 .. 98 us fused
 *     wait %4                98 .. 103 us waits for all_reduce
 *
 * The simulator tells of launches and transfers alone.  A wait lies between
 * two of them: the program is followed once more, and a wait ends with the last
 * transfer that its collective has started.  A launch takes longer beside a
 * transfer; the same program priced without interference tells by how much.
 */
#include "driver/driver_price.h"

#include <string.h>

static bool check_model(const Compilation *c) {
  if (c->trained)
    return driver_check_compiled_ranks(c) && driver_check_one_target(c);
  diag(c->module->diags, DIAG_no_train, SPAN_NONE, c->model->name);
  return false;
}

/* ---- nodes of instructions ---- */

static void find_nodes(Arena *arena, Priced *p) {
  const InstructionList *list = p->stage->instructions;
  VEC(PricedNode) around = {0};
  PricedNode top = {.graph = list->graph, .outer = -1};
  p->nodes = ARENA_ARRAY(arena, PricedNode, list->instructions.n);
  for (int i = 0; i < list->instructions.n; i++) {
    const Instruction *in = &list->instructions.data[i];
    PricedNode here = around.n > 0 ? around.data[around.n - 1] : top;
    if (in->kind == INSTRUCTION_end) {
      around.n--;
      continue;
    }
    if (in->node >= 0) {
      p->nodes[i] =
          (PricedNode){here.graph, here.graph->nodes.data[in->node], in->node,
                       here.outer < 0 ? in->node : here.outer};
      if (in->kind == INSTRUCTION_loop)
        here = (PricedNode){.graph = p->nodes[i].node->body,
                            .outer = p->nodes[i].outer};
    }
    if (in->kind == INSTRUCTION_loop) vec_push(arena, &around, here);
  }
}

/* ---- spans as the simulator gives them ---- */

typedef struct RawSpan {
  int id;
  Ps begin, end;
} RawSpan;

typedef struct RawClass {
  VEC(RawSpan) stream;
  VEC(QueueSpan) queues;
} RawClass;

typedef struct RawSpans {
  Arena *arena;
  VEC(RawClass) classes;
} RawSpans;

static void note_span(void *user, int class, int queue, int id, Ps begin,
                      Ps end) {
  RawSpans *spans = user;
  while (spans->classes.n <= class)
    vec_push(spans->arena, &spans->classes, (RawClass){0});
  RawClass *raw = &spans->classes.data[class];
  if (queue < 0)
    vec_push(spans->arena, &raw->stream, (RawSpan){id, begin, end});
  else
    vec_push(spans->arena, &raw->queues, (QueueSpan){id, queue, begin, end});
}

static RawSpans price_with_spans(Arena *arena, const Priced *p,
                                 uint32_t without, Price *out) {
  RawSpans spans = {.arena = arena};
  CostModel model = p->model;
  model.without |= without;
  *out = price_program(arena, p->step, &model, &p->slice, note_span, &spans);
  return spans;
}

/* ---- the program, followed once more ---- */

typedef struct Ends {
  VEC(Ps) data;
} Ends;

typedef struct Follow {
  Arena *arena;
  const Priced *p;
  const InstructionList *list;
  const RawClass *raw;
  const RawClass *alone; /* launches without interference */
  PricedClass *out;
  LaunchCost *launches; /* by instruction */
  Map *start_of;        /* node of a collective -> its start, plus 1 */
  Ends *ends;           /* by start: of the transfers, in their order */
  int *n_started;
  int next; /* span of the stream */
  Ps now;
} Follow;

static void add_stream_span(Follow *f, int instruction, CostTerm part) {
  ASSERT(f->next < f->raw->stream.n);
  const RawSpan *span = &f->raw->stream.data[f->next];
  const RawSpan *alone = &f->alone->stream.data[f->next++];
  ASSERT(span->id == instruction && span->begin == f->now);
  StreamSpan out = {.instruction = instruction,
                    .part = part,
                    .begin = span->begin,
                    .end = span->end,
                    .taken = (span->end - span->begin) -
                             (alone->end - alone->begin)};
  f->now = span->end;
  vec_push(f->arena, &f->out->stream, out);
}

/* A launch that takes no time has no span. */
static void follow_launch(Follow *f, int i) {
  const LaunchCost *cost = &f->launches[i];
  if (cost->launch > 0) add_stream_span(f, i, COST_launch);
  if (cost->time > 0) add_stream_span(f, i, cost->part);
}

static CostTerm collective_part(Op op) {
  int term = cost_term_find(op_info(op)->name);
  return term < 0 ? COST_all_reduce : (CostTerm)term;
}

static void follow_wait(Follow *f, int i) {
  const Instruction *wait = &f->list->instructions.data[i];
  const Graph *graph = f->p->nodes[i].graph;
  const Node *node = graph->nodes.data[wait->collective];
  int start = (int)(intptr_t)map_get(f->start_of, node) - 1;
  ASSERT(start >= 0 && f->n_started[start] > 0);
  Ps end = f->ends[start].data.data[f->n_started[start] - 1];
  if (end <= f->now) return;
  StreamSpan span = {.instruction = start,
                     .part = collective_part(node->op),
                     .is_wait = true,
                     .begin = f->now,
                     .end = end};
  f->now = end;
  vec_push(f->arena, &f->out->stream, span);
}

static void follow_range(Follow *f, int from, int to) {
  for (int i = from; i < to; i++) {
    const Instruction *in = &f->list->instructions.data[i];
    const PricedNode *at = &f->p->nodes[i];
    switch (in->kind) {
    case INSTRUCTION_run:
    case INSTRUCTION_clear: follow_launch(f, i); break;
    case INSTRUCTION_start:
      map_put(f->start_of, at->node, (void *)(intptr_t)(i + 1));
      f->n_started[i]++;
      break;
    case INSTRUCTION_wait: follow_wait(f, i); break;
    case INSTRUCTION_loop: {
      int end = instructions_loop_end(f->list, i);
      for (int64_t k = 0; k < in->trips; k++) follow_range(f, i + 1, end);
      i = end;
      break;
    }
    case INSTRUCTION_end:
    case N_INSTRUCTIONS: UNREACHABLE();
    }
  }
}

static void follow_class(Arena *arena, Priced *p, const PriceClass *class,
                         const RawClass *raw, const RawClass *alone,
                         PricedClass *out) {
  const InstructionList *list = p->stage->instructions;
  int n = list->instructions.n;
  Follow f = {.arena = arena,
              .p = p,
              .list = list,
              .raw = raw,
              .alone = alone,
              .out = out,
              .now = class->begin,
              .launches = ARENA_ARRAY(arena, LaunchCost, n),
              .start_of = map_create(arena),
              .ends = ARENA_ARRAY(arena, Ends, n),
              .n_started = ARENA_ARRAY(arena, int, n)};
  for (int i = 0; i < raw->queues.n; i++) {
    const QueueSpan *span = &raw->queues.data[i];
    vec_push(arena, &f.ends[span->instruction].data, span->end);
    vec_push(arena, &out->queues, *span);
  }
  for (int i = 0; i < n; i++) {
    const PricedNode *at = &p->nodes[i];
    InstructionKind kind = list->instructions.data[i].kind;
    if (kind == INSTRUCTION_run)
      f.launches[i] = cost_launch(class->model, at->graph, at->id);
    if (kind == INSTRUCTION_clear)
      f.launches[i] = cost_clear(class->model, at->graph, at->id);
  }
  for (int i = 0; i < p->step->timeline.n; i++) {
    const ProgramSegment *segment =
        entry_point_segment(p->step, &p->step->timeline.data[i]);
    follow_range(&f, segment->begin, segment->end);
  }
  ASSERT(f.next == raw->stream.n && f.now == class->begin + class->step);
}

/* The intervals of a class add up to the parts of its step. */
static void check_parts(const PriceClass *class, const PricedClass *spans) {
  Ps parts[N_COST_PARTS] = {0};
  for (int i = 0; i < spans->stream.n; i++) {
    const StreamSpan *span = &spans->stream.data[i];
    parts[span->part] += priced_length(span) - span->taken;
    parts[COST_interference] += span->taken;
  }
  for (int i = 0; i < N_COST_PARTS; i++) ASSERT(parts[i] == class->parts[i]);
}

static void add_spans(Arena *arena, Priced *p) {
  Price alone_price;
  RawSpans spans = price_with_spans(arena, p, 0, &p->price);
  RawSpans alone = price_with_spans(arena, p, (uint32_t)1 << COST_interference,
                                    &alone_price);
  find_nodes(arena, p);
  p->n_classes = spans.classes.n;
  p->classes = ARENA_ARRAY(arena, PricedClass, p->n_classes);
  for (int c = 0; c < p->n_classes; c++) {
    follow_class(arena, p, &p->price.classes[c], &spans.classes.data[c],
                 &alone.classes.data[c], &p->classes[c]);
    check_parts(&p->price.classes[c], &p->classes[c]);
  }
}

/* ---- public ---- */

const char *priced_path(const Node *node) {
  static const char *const prefixes[] = {"grad.", "optimizer."};
  const char *path = node->path ? node->path : "";
  for (int i = 0; i < ARRAY_LENGTH(prefixes); i++)
    if (node->phase != PHASE_forward &&
        strncmp(path, prefixes[i], strlen(prefixes[i])) == 0)
      return path + strlen(prefixes[i]);
  return path;
}

PriceRequest priced_request(const Priced *p) {
  return (PriceRequest){.cluster = p->cluster,
                        .first_rank = p->slice.first,
                        .profile = p->model.profile,
                        .curves = p->model.curves,
                        .without = p->model.without};
}

const PricedClass *priced_slowest(const Priced *p) {
  return p->n_classes > 0 ? &p->classes[p->price.slowest] : NULL;
}

Ps priced_length(const StreamSpan *span) {
  return span->end - span->begin;
}

const char *priced_devices(Arena *arena, const Priced *p) {
  Text names = text_create(arena);
  for (int i = 0; i < p->price.n_classes; i++)
    text_printf(&names, "%s%s", i ? ", " : "",
                p->price.classes[i].group->device->name);
  return text_string(&names);
}

const char *priced_queue_name(Arena *arena, const Priced *p, int queue) {
  const InstructionQueue *of = &p->stage->instructions->queues.data[queue];
  const Mesh *mesh = &p->stage->graph->mesh;
  Text name = text_create(arena);
  text_add(&name, queue_name(of->kind));
  AxisSet axes = axis_list_set(of->axes);
  for (int a = 0, n = 0; a < mesh->n_axes; a++)
    if (axes >> a & 1)
      text_printf(&name, "%s%s", n++ ? "," : " of ", mesh->axes[a].name);
  return text_string(&name);
}

/* A profile of other machines gives nothing, which looks like a mistake. */
static void note_cores(const Priced *p) {
  int cores = profile_cores(p->model.profile);
  if (p->price.n_measured > 0 || cores == 0 || cores == p->model.rates.units)
    return;
  diag(p->c->module->diags, DIAG_profile_cores, SPAN_NONE, cores,
       p->cluster->name, p->model.rates.units);
}

/* The least of a rank that the program has. */
static Bytes least_memory(const Priced *p) {
  Bytes least = p->pinned > 0 ? p->pinned : INT64_MAX;
  for (int i = 0; i < p->price.n_classes; i++) {
    Bytes usable = device_usable_memory(p->price.classes[i].group->device);
    if (usable < least) least = usable;
  }
  return least;
}

bool driver_price(const Compilation *c, const PriceRequest *request,
                  Priced *out) {
  Module *module = c->module;
  *out = (Priced){.c = c,
                  .cluster = request->cluster ? request->cluster : c->cluster,
                  .step = driver_training_step(c),
                  .peak = driver_arena_bytes(c),
                  .pinned = c->plan ? c->plan->memory_bytes : 0};
  out->model.profile = request->profile;
  out->model.without = request->without;
  out->model.curves = request->curves;
  if (!check_model(c)) return false;
  out->stage = entry_point_stage(out->step);
  out->slice =
      cluster_slice(module->arena, out->cluster, request->first_rank, c->ranks);
  if (!driver_cost_model(c, &out->slice, &out->model)) return false;
  double begin = driver_seconds();
  if (request->wants_spans)
    add_spans(module->arena, out);
  else
    out->price = price_program(module->arena, out->step, &out->model,
                               &out->slice, NULL, NULL);
  out->memory = least_memory(out);
  driver_end_station(c->options, "price", begin);
  if (out->model.profile) note_cores(out);
  return true;
}
