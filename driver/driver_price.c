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
#include "price/price_servers.h"

#include <string.h>

static bool check_model(const Compilation *c, bool has_training) {
  if (has_training)
    return driver_check_compiled_ranks(c) && driver_check_one_target(c);
  diag(c->module->diags, DIAG_no_train, SPAN_NONE, c->model->name);
  return false;
}

/* ---- nodes of instructions ---- */

static void find_nodes_of_stage(Arena *arena, const ProgramStage *stage,
                                PricedNode *out) {
  const InstructionList *list = stage->instructions;
  VEC(PricedNode) around = {0};
  PricedNode top = {.stage = stage, .graph = list->graph, .outer = -1};
  for (int i = 0; i < list->instructions.n; i++) {
    const Instruction *in = &list->instructions.data[i];
    PricedNode here = around.n > 0 ? around.data[around.n - 1] : top;
    if (in->kind == INSTRUCTION_end) {
      around.n--;
      continue;
    }
    if (in->node >= 0) {
      out[i] = here;
      out[i].node = here.graph->nodes.data[in->node];
      out[i].id = in->node;
      out[i].is_clear = in->kind == INSTRUCTION_clear;
      if (here.outer < 0) out[i].outer = in->node;
      if (in->kind == INSTRUCTION_loop) {
        here.graph = out[i].node->body;
        here.outer = out[i].outer;
      }
    }
    if (in->kind == INSTRUCTION_loop) vec_push(arena, &around, here);
  }
}

/* The instructions of the stages, then the calls, and a node for servers. */
static void find_nodes(Arena *arena, PricedProgram *p) {
  static const ProgramEdge of_servers = {.path = "servers",
                                         .to_kind = TOKEN_update};
  const EntryPoint *step = p->step;
  int n = 0, n_calls = step->timeline.n;
  for (int s = 0; s < step->stages.n; s++)
    n += step->stages.data[s].instructions->instructions.n;
  p->nodes = ARENA_ARRAY(arena, PricedNode, n + n_calls + 1);
  n = 0;
  for (int s = 0; s < step->stages.n; s++) {
    find_nodes_of_stage(arena, &step->stages.data[s], &p->nodes[n]);
    n += step->stages.data[s].instructions->instructions.n;
  }
  for (int i = 0; i < n_calls; i++) {
    const ProgramCall *call = &step->timeline.data[i];
    if (call->kind != CALL_segment)
      p->nodes[n + i] = (PricedNode){.stage = &step->stages.data[call->stage],
                                     .id = -1,
                                     .outer = -1,
                                     .edge = &step->edges.data[call->edge]};
  }
  p->nodes[n + n_calls] = (PricedNode){.stage = &step->stages.data[0],
                                       .id = -1,
                                       .outer = -1,
                                       .edge = &of_servers};
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

/* ---- the price ---- */

static Bytes input_bytes(const Graph *graph, Role role) {
  Bytes bytes = 0;
  for (int i = 0; i < graph->inputs.n; i++) {
    const GraphInput *input = &graph->inputs.data[i];
    const Type *type = graph_type(graph, input->value);
    if (input->role == role)
      bytes += type_elements(type) * dtype_size_bytes(type->dtype);
  }
  return bytes;
}

/* A push has the inputs of the update that workers compute, a reply what the
 * workers have a copy of. */
static PricedServer priced_server(const EntryPoint *update) {
  const Graph *graph = update->stages.data[0].graph;
  return (PricedServer){.update = update,
                        .push = input_bytes(graph, ROLE_push),
                        .reply = input_bytes(graph, ROLE_param) +
                                 input_bytes(graph, ROLE_state) +
                                 input_bytes(graph, ROLE_ema)};
}

/* The programs are that of the workers, and one of each server. */
static Price price_with_servers(const Priced *p, const PlanServers *of,
                                SimTell *tell, void *user) {
  Arena *arena = p->c->module->arena;
  PricedServer *servers = ARENA_ARRAY(arena, PricedServer, of->n);
  for (int s = 0; s < of->n; s++)
    servers[s] = priced_server(p->programs[1 + s].step);
  PricedServers all = {.workers = {p->programs[0].step, p->programs[0].ranks},
                       .n = of->n,
                       .servers = servers,
                       .staleness = of->staleness};
  return price_servers(arena, &all, &p->model, &p->slice, tell, user);
}

static Price price_step(const Priced *p, SimTell *tell, void *user) {
  Arena *arena = p->c->module->arena;
  const PlanServers *servers = plan_servers(p->c->plan);
  if (servers) return price_with_servers(p, servers, tell, user);
  PriceProgram *programs = ARENA_ARRAY(arena, PriceProgram, p->n_programs);
  for (int i = 0; i < p->n_programs; i++)
    programs[i] = (PriceProgram){p->programs[i].step, p->programs[i].ranks};
  return price_programs(arena, programs, p->n_programs, &p->model, &p->slice,
                        tell, user);
}

static void add_spans(Arena *arena, Priced *p) {
  Spans spans = {.arena = arena};
  p->price = price_step(p, note_span, &spans);
  if (p->price.n_stuck > 0) return;
  for (int i = 0; i < p->n_programs; i++) find_nodes(arena, &p->programs[i]);
  p->n_classes = p->price.n_classes;
  for (int c = 0; c < p->n_classes; c++) {
    PricedClass *class = class_of_span(&spans, c);
    check_spans(&p->price.classes[c], class);
    class->nodes = priced_program(p, c)->nodes;
  }
  p->classes = spans.classes.data;
}

/* ---- programs ---- */

/* False: some ranks have no training step. */
static bool find_programs(Priced *p) {
  Arena *arena = p->c->module->arena;
  p->n_programs = p->c->classes.n;
  p->programs = ARENA_ARRAY(arena, PricedProgram, p->n_programs);
  for (int i = 0; i < p->n_programs; i++) {
    const ProgramClass *of = &p->c->classes.data[i];
    const EntryPoint *largest = driver_largest_of(&of->program);
    p->programs[i] =
        (PricedProgram){.program = &of->program,
                        .step = rank_program_find(&of->program, ENTRY_train),
                        .ranks = {of->first_rank, of->n_ranks},
                        .peak = largest ? entry_point_arena_bytes(largest) : 0};
    if (!p->programs[i].step) return false;
    if (p->programs[i].peak > p->peak) p->peak = p->programs[i].peak;
  }
  return p->n_programs > 0;
}

static const char *call_text(Arena *arena, const EntryPoint *entry,
                             const ProgramCall *call) {
  const ProgramStage *stage = &entry->stages.data[call->stage];
  if (call->kind != CALL_segment)
    return arena_printf(arena, "a message of %s",
                        entry->edges.data[call->edge].path);
  TokenKind kind = stage->segments.data[call->segment].kind;
  if (token_info(kind)->is_of_step)
    return arena_printf(arena, "%d%s", stage->number, token_info(kind)->text);
  return arena_printf(arena, "%d%s%d", stage->number, token_info(kind)->text,
                      call->registers[REGISTER_microbatch]);
}

/* A program whose proof holds never comes here. */
static void report_stuck(const Priced *p) {
  Module *module = p->c->module;
  for (int i = 0; i < p->price.n_stuck; i++) {
    PriceWait wait = p->price.stuck[i];
    const EntryPoint *step = priced_program(p, wait.class)->step;
    diag(module->diags, DIAG_schedule_deadlock, SPAN_NONE,
         (int)p->price.classes[wait.class].first_rank,
         call_text(module->arena, step, &step->timeline.data[wait.call]));
  }
}

/* A swap between a GPU and its host takes what `host_link` says. */
static bool check_links(const Compilation *c, const Priced *p) {
  const Plan *plan = c->plan;
  for (int g = 0; plan && plan->offloaded && g < p->slice.n_groups; g++) {
    const ClusterDevice *device = p->slice.groups[g].group->device;
    if (strcmp(device->target, "cpu") == 0 ||
        device->values[DEVICE_host_link] > 0)
      continue;
    const PlanPin *line = map_value_at(plan->offloaded, 0);
    diag(c->module->diags, DIAG_not_supported, line->span,
         "the price of 'offload' on a device without 'host_link'");
    return false;
  }
  return true;
}

/* ---- public ---- */

const PricedProgram *priced_program(const Priced *p, int class) {
  return &p->programs[p->price.classes[class].program];
}

const char *priced_node_path(const PricedNode *at) {
  return at->edge ? at->edge->path : priced_path(at->node);
}

const char *priced_node_name(const PricedNode *at) {
  return at->edge ? "message" : op_info(at->node->op)->name;
}

Phase priced_node_phase(const PricedNode *at) {
  if (!at->edge) return (Phase)at->node->phase;
  switch (at->edge->to_kind) {
  case TOKEN_forward: return PHASE_forward;
  case TOKEN_update: return PHASE_update;
  default: return at->edge->is_of_step ? PHASE_forward : PHASE_input_gradient;
  }
}

Bytes priced_node_sent(const PricedNode *at) {
  return at->edge ? at->edge->bytes : node_sent_bytes(at->graph, at->id);
}

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

void priced_show_class(Priced *p, int class) {
  p->shown = class;
  p->step = priced_program(p, class)->step;
  p->stage = &p->step->stages.data[0];
}

bool priced_show_stage(Priced *p, int number) {
  for (int c = 0; c < p->price.n_classes; c++) {
    const EntryPoint *step = priced_program(p, c)->step;
    for (int s = 0; s < step->stages.n; s++) {
      if (step->stages.data[s].number != number) continue;
      priced_show_class(p, c);
      p->stage = &step->stages.data[s];
      return true;
    }
  }
  return false;
}

const PricedClass *priced_shown(const Priced *p) {
  return p->n_classes > 0 ? &p->classes[p->shown] : NULL;
}

Ps priced_length(const StreamSpan *span) {
  return span->end - span->begin;
}

const char *priced_devices(Arena *arena, const Priced *p) {
  Text names = text_create(arena);
  const ClusterGroup *last = NULL;
  for (int i = 0; i < p->price.n_classes; i++) {
    const ClusterGroup *group = p->price.classes[i].group;
    if (group != last)
      text_printf(&names, "%s%s", last ? ", " : "", group->device->name);
    last = group;
  }
  return text_string(&names);
}

/* ---- queues ---- */

int priced_queues(const Priced *p, int class) {
  return p->price.classes[class].n_queues;
}

static const char *message_queue_name(Arena *arena, const PriceQueue *queue) {
  return arena_printf(arena, "%s rank %+d",
                      queue->direction == LINK_out ? "to" : "from",
                      queue->peer);
}

const char *priced_queue_name(Arena *arena, const Priced *p, int class,
                              int queue) {
  const PriceQueue *of = &p->price.classes[class].queues[queue];
  const Mesh *mesh = &p->stage->graph->mesh;
  if (of->peer != 0) return message_queue_name(arena, of);
  Text name = text_create(arena);
  text_add(&name, queue_name(of->queue.kind));
  AxisSet axes = axis_list_set(of->queue.axes);
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

/* Steps fill the pipeline, one for each stage, before some that count
 * (price_list.c).  Spans of a period of several batches are not those of a
 * step. */
static bool check_periods(const Compilation *c, bool wants_spans) {
  enum { MOST_STAGES = SIM_MOST_STEPS - 8 };
  if (!c->plan) return true;
  if (c->plan->stages.n > MOST_STAGES)
    return !driver_refuse_versions(c, "the price of so many stages");
  if (!wants_spans || !plan_has_versions(c->module->arena, c->plan))
    return true;
  for (int s = 0; s < c->plan->stages.n; s++) {
    const PlanStage *stage = &c->plan->stages.data[s];
    if (stage->n_ranks == 1) continue;
    Diag *d = diag(c->module->diags, DIAG_not_supported, stage->span,
                   arena_printf(c->module->arena,
                                "the timeline of replicas under the schedule "
                                "'%s'",
                                c->plan->schedule));
    diag_help(d,
              "'dnnc simulate' without '--trace' says how long a step takes");
    return false;
  }
  return true;
}

bool driver_price(const Compilation *c, const PriceRequest *request,
                  Priced *out) {
  Module *module = c->module;
  *out = (Priced){.c = c,
                  .cluster = request->cluster ? request->cluster : c->cluster,
                  .pinned = c->plan ? c->plan->memory_bytes : 0};
  out->model.profile = request->profile;
  out->model.without = request->without;
  out->model.curves = request->curves;
  if (!check_model(c, find_programs(out)) ||
      !check_periods(c, request->wants_spans))
    return false;
  out->slice =
      cluster_slice(module->arena, out->cluster, request->first_rank, c->ranks);
  if (!driver_cost_model(c, &out->slice, &out->model) || !check_links(c, out))
    return false;
  if (out->model.transport != TRANSPORT_mpi &&
      driver_refuse_servers(c, "a transport other than MPI"))
    return false;
  double begin = driver_seconds();
  if (request->wants_spans)
    add_spans(module->arena, out);
  else
    out->price = price_step(out, NULL, NULL);
  if (out->price.n_stuck > 0) {
    report_stuck(out);
    return false;
  }
  priced_show_class(out, out->price.slowest);
  if (request->wants_spans && out->price.servers &&
      out->price.classes[out->price.slowest].step != out->price.step &&
      driver_refuse_servers(c, "a step over time of workers with different "
                               "clocks"))
    return false;
  out->memory = least_memory(out);
  driver_end_station(c->options, "price", begin);
  if (out->model.profile) note_cores(out);
  return true;
}
