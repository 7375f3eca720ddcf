/*
 * driver_price.c -- prices the training step of a compiled model on a cluster,
 * and says where on the streams of the ranks each instruction stands.
 *
 *     run %3 dot             0 .. 3 us launch, 3 .. 83 us product
 *     start %4 all_reduce    queue 0: 83 .. 103 us
 *     run %5 fused           83 .. 86 us launch, 86 .. 98 us fused
 *     wait %4                98 .. 103 us waits for all_reduce
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

/* ---- spans ---- */

typedef struct Spans {
  Arena *arena;
  VEC(PricedClass) classes;
} Spans;

static PricedClass *class_of_span(Spans *spans, int class) {
  while (spans->classes.n <= class)
    vec_push(spans->arena, &spans->classes, (PricedClass){0});
  return &spans->classes.data[class];
}

static void note_span(void *user, const SimSpan *span) {
  Spans *spans = user;
  PricedClass *class = class_of_span(spans, span->class);
  if (span->queue >= 0)
    vec_push(spans->arena, &class->queues,
             (QueueSpan){span->id, span->queue, span->begin, span->end});
  else
    vec_push(spans->arena, &class->stream,
             (StreamSpan){.instruction = span->id,
                          .part = (CostTerm)span->term,
                          .is_wait = span->is_wait,
                          .begin = span->begin,
                          .end = span->end,
                          .taken = span->taken});
}

/* The spans of a class follow each other without a gap, and they add up to the
 * parts of its step. */
static void check_spans(const PriceClass *class, const PricedClass *spans) {
  Ps parts[N_COST_PARTS] = {0}, now = class->begin;
  for (int i = 0; i < spans->stream.n; i++) {
    const StreamSpan *span = &spans->stream.data[i];
    ASSERT(span->begin == now);
    now = span->end;
    parts[span->part] += priced_length(span) - span->taken;
    parts[COST_interference] += span->taken;
  }
  ASSERT(now == class->begin + class->step);
  for (int i = 0; i < N_COST_PARTS; i++) ASSERT(parts[i] == class->parts[i]);
}

static void add_spans(Arena *arena, Priced *p) {
  Spans spans = {.arena = arena};
  p->price =
      price_program(arena, p->step, &p->model, &p->slice, note_span, &spans);
  find_nodes(arena, p);
  p->n_classes = p->price.n_classes;
  for (int c = 0; c < p->n_classes; c++)
    check_spans(&p->price.classes[c], class_of_span(&spans, c));
  p->classes = spans.classes.data;
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
