/*
 * price_list.c -- prices programs that run at one time: their lists are run on
 * the simulator.
 *
 * A rank waits at the end of a step for all that it has started, so nothing is
 * under way when it begins the next one: with one class every step takes as
 * long as the first, or, where the gap before a transfer counts, the second.
 * Several classes begin a step at different times, so the first steps are left
 * out.  So are those that fill the pipeline, where the lists are periods of
 * endless ones: the price is that of the steady state.
 */
#include "price/price_list.h"

#include "price/fold.h"
#include "price/program_actions.h"

enum {
  STEPS_OF_SEVERAL = 5, /* the last two ends are a step apart */
  STEPS_WITH_GAPS = 2   /* the first transfer follows those of a step before */
};

typedef struct Pricing {
  Arena *arena;
  const ClusterSlice *slice;
  const CostModel *models; /* by group of the slice */
  int n_programs;
  ProgramActions *programs;
  SharedLinks links;
  SimTransfers transfers;
  Price price;
} Pricing;

bool price_has_part(const Price *price, CostTerm part) {
  if (part == COST_swap) return price->parts[COST_swap] > 0;
  if (part == COST_server) return price->servers != NULL;
  return part != COST_message || price->has_messages;
}

/* ---- one collective ---- */

/* Alone on its links.  `n_classes`: of ranks that come to it at different
 * times. */
static SimTransfer price_alone(Arena *arena, const CostModel *models,
                               const ClusterSlice *slice, int n_classes,
                               int class, const Mesh *mesh, Op op, AxisSet axes,
                               Bytes sent) {
  SimTransfers transfers = {0};
  SharedLinks links =
      shared_links_of(arena, slice, &(RankRange){0, slice->n}, 1, 1,
                      cost_counts(models, COST_contention));
  Collectives alone = {.arena = arena,
                       .mesh = mesh,
                       .slice = slice,
                       .models = models,
                       .n_classes = n_classes,
                       .n_programs = 1,
                       .links = &links,
                       .transfers = &transfers};
  int found = collectives_find(&alone, op, collectives_part(op), axes, sent, 0);
  return transfers.data[alone.kinds.data[found].transfer_of[class]];
}

SimTransfer price_message(Arena *arena, const CostModel *model,
                          const ClusterSlice *slice, const Mesh *mesh, Op op,
                          AxisSet axes, Bytes sent) {
  return price_alone(arena, model, slice, 1, 0, mesh, op, axes, sent);
}

SimTransfer price_message_of_group(Arena *arena, const CostModel *models,
                                   const ClusterSlice *slice, int group,
                                   const Mesh *mesh, Op op, AxisSet axes,
                                   Bytes sent) {
  return price_alone(arena, models, slice, slice->n_groups, group, mesh, op,
                     axes, sent);
}

SimTransfer price_transfer(Arena *arena, const CostModel *model,
                           const ClusterSlice *slice, const Graph *graph,
                           int id) {
  const Node *node = graph->nodes.data[id];
  AxisSet axes = axis_list_set(collective_axes(&graph->mesh, node));
  return price_message(arena, model, slice, &graph->mesh, node->op, axes,
                       node_sent_bytes(graph, id));
}

/* ---- classes ---- */

const CostModel *price_models(Arena *arena, const CostModel *model,
                              const ClusterSlice *slice) {
  CostModel *models = ARENA_ARRAY(arena, CostModel, slice->n_groups);
  for (int i = 0; i < slice->n_groups; i++) {
    const SliceGroup *of = &slice->groups[i];
    models[i] = *model;
    if (i > 0) {
      cost_model_of(of->group->device, &models[i]);
      cost_share_machine(&models[i], of->group, of->n);
    }
    models[i].group = (int)(of->group - slice->cluster->groups);
  }
  return models;
}

/* The models of the groups of a part of the slice, which follow each other. */
static const CostModel *models_of_part(const Pricing *p,
                                       const ClusterSlice *part) {
  int i = 0;
  while (p->slice->groups[i].group != part->groups[0].group) i++;
  return &p->models[i];
}

static ClusterSlice slice_of(const Pricing *p, int64_t first, int64_t n) {
  return cluster_slice(p->arena, p->slice->cluster, p->slice->first + first, n);
}

/* In a period each replica of a stage is a program. */
static void find_members(Pricing *p, const PriceProgram *program, int index) {
  ProgramActions *of = &p->programs[index];
  const ProgramStage *stage = &of->entry->stages.data[0];
  bool has_replicas = of->entry->is_period && stage->n_ranks > 1;
  of->n_replicas = has_replicas ? stage->n_ranks : 1;
  of->replica = has_replicas ? of->entry->timeline.data[0].replica : 0;
  ASSERT(program->ranks.n * of->n_replicas == mesh_ranks(&stage->graph->mesh));
  of->first = of->replica > 0 ? &p->programs[index - of->replica] : NULL;
  of->members = of->slice;
  if (has_replicas)
    of->members =
        slice_of(p, program->ranks.first - of->replica, of->n_replicas);
  of->models_of_members = models_of_part(p, &of->members);
}

static void begin_program(Pricing *p, const PriceProgram *program, int index) {
  ProgramActions *of = &p->programs[index];
  *of = (ProgramActions){
      .arena = p->arena,
      .entry = program->entry,
      .program = index,
      .slice = slice_of(p, program->ranks.first, program->ranks.n),
      .links = &p->links,
      .transfers = &p->transfers};
  of->models = models_of_part(p, &of->slice);
  find_members(p, program, index);
  program_actions_prepare(of);
}

static void find_classes(Pricing *p, const PriceProgram *programs) {
  Price *price = &p->price;
  for (int i = 0; i < p->n_programs; i++)
    price->n_classes += p->programs[i].slice.n_groups;
  PriceClass *class = price->classes =
      ARENA_ARRAY(p->arena, PriceClass, price->n_classes);
  for (int i = 0; i < p->n_programs; i++)
    for (int g = 0; g < p->programs[i].slice.n_groups; g++) {
      const SliceGroup *of = &p->programs[i].slice.groups[g];
      *class ++ =
          (PriceClass){.program = i,
                       .first_rank = programs[i].ranks.first + of->first,
                       .group = of->group,
                       .model = &p->programs[i].models[g],
                       .ranks = (int)of->n,
                       .n_queues = p->programs[i].queues.n,
                       .queues = p->programs[i].queues.data};
    }
}

/* ---- messages ---- */

static MessageSide side_of_message(const Pricing *p,
                                   const PriceProgram *programs, int program,
                                   int peer, LinkDirection direction) {
  const ProgramActions *of = &p->programs[program];
  return (MessageSide){.program = program,
                       .ranks = programs[program].ranks,
                       .slice = &of->slice,
                       .models = of->models,
                       .queue = program_message_queue(of, peer, direction)};
}

/* The first program that runs a stage, and how many of its replicas do; -1:
 * none. */
static int programs_of_stage(const Pricing *p, int number, int *out_n) {
  for (int i = 0; i < p->n_programs; i++)
    if (program_find_stage(p->programs[i].entry, number) >= 0) {
      *out_n = p->programs[i].n_replicas;
      return i;
    }
  return -1;
}

static int greatest_divisor(int a, int b) {
  return b == 0 ? a : greatest_divisor(b, a % b);
}

/* Replicas exchange if some unit is of both. */
static void add_messages_of(Pricing *p, const PriceProgram *programs,
                            const ProgramEdge *edge, const EdgePrograms *of,
                            MessageTransfers *messages) {
  int step = greatest_divisor(of->n_from, of->n_to);
  for (int i = 0; i < of->n_from; i++)
    for (int k = i % step; k < of->n_to; k += step) {
      int from = of->from + i, to = of->to + k;
      int peer = (int)(programs[to].ranks.first - programs[from].ranks.first);
      MessageSide sender = side_of_message(p, programs, from, peer, LINK_out);
      MessageSide receiver = side_of_message(p, programs, to, -peer, LINK_in);
      messages[of->first + i * of->n_to + k] =
          messages_add(p->arena, p->slice, &p->links, &sender, &receiver, edge,
                       &p->transfers);
    }
}

/* Edges between two programs are messages; all programs have one list. */
static void add_messages(Pricing *p, const PriceProgram *programs) {
  const EntryPoint *entry = programs[0].entry;
  EdgePrograms *edges = ARENA_ARRAY(p->arena, EdgePrograms, entry->edges.n);
  int n = 0;
  for (int e = 0; e < entry->edges.n; e++) {
    const ProgramEdge *edge = &entry->edges.data[e];
    EdgePrograms *of = &edges[e];
    of->from = programs_of_stage(p, edge->from, &of->n_from);
    of->to = programs_of_stage(p, edge->to, &of->n_to);
    of->first = n;
    if (of->from < 0 || of->to < 0) of->n_from = of->n_to = 0;
    n += of->n_from * of->n_to;
  }
  MessageTransfers *messages = ARENA_ARRAY(p->arena, MessageTransfers, n + 1);
  for (int e = 0; e < entry->edges.n; e++) {
    if (edges[e].n_from == 0 || edges[e].from == edges[e].to) continue;
    add_messages_of(p, programs, &entry->edges.data[e], &edges[e], messages);
    p->price.has_messages = true;
  }
  for (int i = 0; i < p->n_programs; i++) {
    p->programs[i].edges = edges;
    p->programs[i].messages = messages;
  }
}

/* ---- results ---- */

/* On the clocks of the simulator. */
static Ps last_begin(const SimClassResult *result, int n_steps) {
  return n_steps > 1 ? result->step_ends[n_steps - 2] : 0;
}

/* Adds the last step of a class. */
static void read_class(PriceClass *class, const SimClassResult *result,
                       int n_steps) {
  class->begin = last_begin(result, n_steps);
  class->step += result->step_ends[n_steps - 1] - class->begin;
  for (int part = 0; part < N_COST_PARTS; part++) {
    class->compute += result->compute[part];
    class->exposed += result->exposed[part];
    class->parts[part] += result->compute[part] + result->exposed[part];
    class->parts[COST_interference] += result->taken[part];
  }
}

static void read_result(Price *price, const SimResult *result, int n_steps) {
  for (int c = 0; c < price->n_classes; c++)
    read_class(&price->classes[c], &result->classes[c], n_steps);
}

static void find_slowest(Price *price) {
  Ps begin = INT64_MAX; /* of the first class */
  for (int c = 0; c < price->n_classes; c++) {
    PriceClass *class = &price->classes[c];
    const PriceClass *slowest = &price->classes[price->slowest];
    if (class->begin < begin) begin = class->begin;
    if (class->step > slowest->step ||
        (class->step == slowest->step && class->compute > slowest->compute))
      price->slowest = c;
  }
  for (int c = 0; c < price->n_classes; c++) price->classes[c].begin -= begin;
  const PriceClass *slowest = &price->classes[price->slowest];
  price->step = slowest->step;
  for (int part = 0; part < N_COST_PARTS; part++)
    price->parts[part] = slowest->parts[part];
  price->compute = slowest->compute;
  price->exposed = slowest->exposed;
}

/* Times are those of a batch: several periods were read, which may have several
 * batches. */
static void divide_times(Price *price, int n) {
  for (int c = 0; c < price->n_classes; c++) {
    PriceClass *class = &price->classes[c];
    class->begin /= n;
    class->step /= n;
    class->compute /= n;
    class->exposed /= n;
    for (int part = 0; part < N_COST_PARTS; part++) class->parts[part] /= n;
  }
}

static void read_figures(Price *price, const ProgramFigures *figures) {
  price->sent = figures->sent;
  price->n_launches = figures->n_launches;
  price->n_transfers = figures->n_transfers;
  price->n_measured = figures->n_measured;
  price->measured = figures->measured;
  price->launches = figures->launches;
}

/* ---- spans ---- */

typedef struct Spans {
  Arena *arena;
  VEC(SimSpan) spans;
} Spans;

static void keep_span(void *user, const SimSpan *span) {
  Spans *spans = user;
  vec_push(spans->arena, &spans->spans, *span);
}

/* The last step of each class.  Times count from when the first class begins
 * its own. */
static void tell_spans(const Spans *spans, const SimResult *result,
                       const Price *price, int n_steps, SimTell *tell,
                       void *user) {
  for (int i = 0; i < spans->spans.n; i++) {
    SimSpan span = spans->spans.data[i];
    Ps own = last_begin(&result->classes[span.class], n_steps);
    Ps begin = own - price->classes[span.class].begin;
    if (span.begin < own) continue;
    span.begin -= begin;
    span.end -= begin;
    tell(user, &span);
  }
}

/* ---- a deadlock ---- */

static PriceWait wait_of_class(const Pricing *p, const SimResult *result,
                               int class) {
  int program = p->price.classes[class].program, first = 0;
  while (p->price.classes[first].program != program) first++;
  int call = program_actions_call(&p->programs[program], class - first,
                                  result->classes[class].waits_at);
  return (PriceWait){class, call};
}

/* Each class that waits leads to one that has to go on first: in the end to
 * those of a cycle. */
static void read_stuck(Pricing *p, const SimResult *result) {
  const SimClassResult *classes = result->classes;
  int n = p->price.n_classes, at = 0;
  PriceWait *stuck = ARENA_ARRAY(p->arena, PriceWait, n);
  while (classes[at].waits_for < 0) at++;
  for (int i = 0; i < n && classes[at].waits_on >= 0; i++)
    at = classes[at].waits_on;
  int class = at;
  do {
    stuck[p->price.n_stuck++] = wait_of_class(p, result, class);
    class = classes[class].waits_on;
  } while (class >= 0 && class != at && p->price.n_stuck < n);
  p->price.stuck = stuck;
}

/* ---- public ---- */

static SimClass *sim_classes(const Pricing *p, bool are_folded) {
  SimClass *classes = ARENA_ARRAY(p->arena, SimClass, p->price.n_classes);
  SimClass *class = classes;
  for (int i = 0; i < p->n_programs; i++)
    for (int g = 0; g < p->programs[i].slice.n_groups; g++, class ++) {
      const SimActions *actions = &p->programs[i].actions[g];
      *class = (SimClass){.n_actions = actions->n,
                          .n_queues = p->links.n_queues,
                          .actions = actions->data};
      if (are_folded)
        class->actions = fold_actions(p->arena, actions->data, actions->n,
                                      &class->n_actions);
    }
  return classes;
}

/* A rank may go ahead of another one in one period and wait in the next, where
 * batches go in turn over replicas: their mean counts. */
static int count_runs(const Pricing *p, bool tells) {
  enum { RUNS_OF_REPLICAS = 4 };
  return p->price.n_batches > 1 && !tells ? RUNS_OF_REPLICAS : 1;
}

static int count_steps(const Pricing *p, const SimProgram *program,
                       int n_runs) {
  const EntryPoint *entry = p->programs[0].entry;
  int most = SIM_MOST_STEPS - (n_runs - 1);
  int n = entry->is_period         ? entry->lead + STEPS_OF_SEVERAL
          : p->price.n_classes > 1 ? STEPS_OF_SEVERAL
          : sim_has_gaps(program)  ? STEPS_WITH_GAPS
                                   : 1;
  if (n_runs > 1) n += STEPS_OF_SEVERAL;
  return n < most ? n : most;
}

static void read_programs(Pricing *p) {
  Price *price = &p->price;
  find_slowest(price);
  for (int c = 0; c < price->n_classes; c++)
    price->classes[c].sent =
        p->programs[price->classes[c].program].figures.sent;
  const PriceClass *slowest = &price->classes[price->slowest];
  read_figures(price, &p->programs[slowest->program].figures);
}

static void run_programs(Pricing *p, SimTell *tell, void *user) {
  Price *price = &p->price;
  const EntryPoint *entry = p->programs[0].entry;
  const SimClass *classes = sim_classes(p, !tell);
  price->n_actions = p->programs[0].actions[0].n;
  price->n_folded = classes[0].n_actions;
  price->n_batches = entry->is_period ? entry->n_units / entry->batch_units : 1;
  SimProgram program = {.n_classes = price->n_classes,
                        .n_transfers = p->transfers.n,
                        .n_links = shared_links_count(&p->links),
                        .n_terms = N_COST_PARTS,
                        .classes = classes,
                        .transfers = p->transfers.data};
  int n_runs = count_runs(p, tell != NULL);
  int n_steps = count_steps(p, &program, n_runs);
  Spans spans = {.arena = p->arena};
  for (int run = 0; run < n_runs; run++) {
    SimResult result = simulate(p->arena, &program, n_steps + run,
                                tell ? keep_span : NULL, &spans);
    if (result.is_stuck) {
      program.classes = sim_classes(p, false);
      result = simulate(p->arena, &program, n_steps, NULL, NULL);
      read_stuck(p, &result);
      return;
    }
    ASSERT(result.is_idle || entry->is_period);
    read_result(price, &result, n_steps + run);
    if (run < n_runs - 1) continue;
    if (n_runs * price->n_batches > 1)
      divide_times(price, n_runs * price->n_batches);
    read_programs(p);
    if (tell) tell_spans(&spans, &result, price, n_steps, tell, user);
  }
}

Price price_programs(Arena *arena, const PriceProgram *programs, int n,
                     const CostModel *model, const ClusterSlice *slice,
                     SimTell *tell, void *user) {
  int n_queues = 1;
  RankRange *ranks = ARENA_ARRAY(arena, RankRange, n);
  Pricing p = {.arena = arena,
               .slice = slice,
               .models = price_models(arena, model, slice),
               .n_programs = n,
               .programs = ARENA_ARRAY(arena, ProgramActions, n)};
  for (int i = 0; i < n; i++) {
    ranks[i] = programs[i].ranks;
    begin_program(&p, &programs[i], i);
    if (p.programs[i].queues.n > n_queues) n_queues = p.programs[i].queues.n;
  }
  p.links = shared_links_of(arena, slice, ranks, n, n_queues,
                            cost_counts(model, COST_contention));
  find_classes(&p, programs);
  add_messages(&p, programs);
  for (int i = 0; i < n; i++) program_actions_fill(&p.programs[i]);
  run_programs(&p, tell, user);
  return p.price;
}

Price price_program(Arena *arena, const EntryPoint *entry,
                    const CostModel *model, const ClusterSlice *slice,
                    SimTell *tell, void *user) {
  PriceProgram program = {entry, {0, slice->n}};
  return price_programs(arena, &program, 1, model, slice, tell, user);
}
