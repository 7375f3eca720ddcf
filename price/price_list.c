/*
 * price_list.c -- makes a program of the simulator of an entry point: each
 * launch with its time, each collective with its latency and loads, in the
 * order in which the timeline calls segments.
 *
 *     run %3 dot                     run 3 us (launch), run 80 us (product)
 *     start %4 all_reduce on 0  =>   start 0 on queue 0
 *     run %5 fused                   run 3 us (launch), run 20 us (fused)
 *     wait %4 before %6              wait 0
 *
 * Calls of one segment that follow each other are a loop.  All ranks execute
 * one program.  The ranks of each group of the cluster are a class: their
 * launches take the time of their device.
 *
 * A rank waits at the end of a step for all that it has started, so nothing is
 * under way when it begins the next one: with one class every step takes as
 * long as the first, or, where the gap before a transfer counts, the second.
 * Several classes begin a step at different times, so the first steps are left
 * out.
 */
#include "price/price_list.h"

#include "price/collectives.h"
#include "price/fold.h"

enum {
  STEPS_OF_SEVERAL = 5, /* the last two ends are a step apart */
  STEPS_WITH_GAPS = 2   /* the first transfer follows those of a step before */
};

typedef VEC(SimAction) Actions;

/* The run of a collective that a wait is for. */
typedef struct Started {
  int kind, id;
  int64_t number; /* of its starts, from 1 */
} Started;

typedef struct LoopAround {
  int64_t trips;
  VEC(int64_t) starts; /* by kind: before the loop */
} LoopAround;

typedef struct Pricing {
  Arena *arena;
  const InstructionList *list;
  const CostModel *models;   /* by class */
  VEC(const Graph *) graphs; /* that of the list, then of the loops around */
  VEC(LoopAround) loops;
  int64_t trips;    /* of all of them */
  Actions *actions; /* by class */
  Collectives collectives;
  Map *started; /* by node: Started */
  Price *price;
} Pricing;

static void add_action(Pricing *p, int class, SimAction action) {
  vec_push(p->arena, &p->actions[class], action);
}

static void add_run(Pricing *p, int class, CostTerm part, Ps time, int id) {
  if (time > 0)
    add_action(
        p, class,
        (SimAction){
            .kind = SIM_run, .duration = time, .term = (int)part, .id = id});
}

static const Graph *graph_here(const Pricing *p) {
  return p->graphs.data[p->graphs.n - 1];
}

/* ---- launches ---- */

typedef LaunchCost CostOf(const CostModel *model, const Graph *graph, int node);

static void price_run(Pricing *p, CostOf *cost_of, int node, int id) {
  Price *price = p->price;
  for (int c = 0; c < price->n_classes; c++) {
    LaunchCost cost = cost_of(&p->models[c], graph_here(p), node);
    add_run(p, c, COST_launch, cost.launch, id);
    add_run(p, c, cost.part, cost.time, id);
    if (c > 0) continue;
    price->launches += (cost.launch + cost.time) * p->trips;
    if (!cost.is_measured) continue;
    price->n_measured += p->trips;
    price->measured += cost.time * p->trips;
  }
  price->n_launches += p->trips;
}

/* ---- collectives ---- */

static CostTerm part_of_collective(Op op) {
#define MESSAGE(name, kind, elements)                                          \
  if (op == OP_##name) return COST_##name;
#include "ir/ops.def"
  UNREACHABLE();
}

SimTransfer price_message(Arena *arena, const CostModel *model,
                          const ClusterSlice *slice, const Mesh *mesh, Op op,
                          AxisSet axes, Bytes sent) {
  Collectives alone = {.arena = arena,
                       .mesh = mesh,
                       .slice = slice,
                       .models = model,
                       .n_classes = 1};
  int found =
      collectives_find(&alone, op, part_of_collective(op), axes, sent, 0);
  return alone.transfers.data[alone.kinds.data[found].transfer_of[0]];
}

SimTransfer price_transfer(Arena *arena, const CostModel *model,
                           const ClusterSlice *slice, const Graph *graph,
                           int id) {
  const Node *node = graph->nodes.data[id];
  AxisSet axes = axis_list_set(collective_axes(&graph->mesh, node));
  return price_message(arena, model, slice, &graph->mesh, node->op, axes,
                       node_sent_bytes(graph, id));
}

static void price_start(Pricing *p, const Instruction *instruction, int id) {
  const Graph *graph = graph_here(p);
  const Node *node = graph->nodes.data[instruction->node];
  AxisSet axes = axis_list_set(collective_axes(&graph->mesh, node));
  Bytes sent = node_sent_bytes(graph, instruction->node);
  int found =
      collectives_find(&p->collectives, node->op, part_of_collective(node->op),
                       axes, sent, instruction->queue);
  CollectiveKind *kind = &p->collectives.kinds.data[found];
  Started *started = ARENA_NEW(p->arena, Started);
  *started = (Started){found, id, ++kind->n_starts};
  map_put(p->started, node, started);
  for (int c = 0; c < p->price->n_classes; c++)
    add_action(p, c,
               (SimAction){.kind = SIM_start,
                           .transfer = kind->transfer_of[c],
                           .queue = instruction->queue,
                           .id = id});
  p->price->sent += sent * p->trips;
  p->price->n_transfers += p->trips;
}

static void price_wait(Pricing *p, const Instruction *instruction) {
  const Node *node = graph_here(p)->nodes.data[instruction->collective];
  const Started *started = map_get(p->started, node);
  ASSERT(started);
  const CollectiveKind *kind = &p->collectives.kinds.data[started->kind];
  for (int c = 0; c < p->price->n_classes; c++)
    add_action(p, c,
               (SimAction){.kind = SIM_wait,
                           .transfer = kind->transfer_of[c],
                           .back = kind->n_starts - started->number,
                           .id = started->id});
}

/* ---- loops ---- */

static void enter_loop(Pricing *p, const Graph *graph, int64_t trips) {
  vec_push(p->arena, &p->graphs, graph);
  LoopAround loop = {.trips = trips};
  for (int k = 0; k < p->collectives.kinds.n; k++)
    vec_push(p->arena, &loop.starts, p->collectives.kinds.data[k].n_starts);
  vec_push(p->arena, &p->loops, loop);
  p->trips *= loop.trips;
  for (int c = 0; c < p->price->n_classes; c++)
    add_action(p, c, (SimAction){.kind = SIM_loop, .trips = loop.trips});
}

/* All iterations start as much as the first. */
static void leave_loop(Pricing *p) {
  const LoopAround *loop = &p->loops.data[--p->loops.n];
  for (int k = 0; k < p->collectives.kinds.n; k++) {
    CollectiveKind *kind = &p->collectives.kinds.data[k];
    int64_t before = k < loop->starts.n ? loop->starts.data[k] : 0;
    kind->n_starts += (kind->n_starts - before) * (loop->trips - 1);
  }
  p->trips /= loop->trips;
  p->graphs.n--;
  for (int c = 0; c < p->price->n_classes; c++)
    add_action(p, c, (SimAction){.kind = SIM_end});
}

static void price_segment(Pricing *p, const ProgramSegment *segment) {
  for (int i = segment->begin; i < segment->end; i++) {
    const Instruction *instruction = &p->list->instructions.data[i];
    const Graph *graph = graph_here(p);
    switch (instruction->kind) {
    case INSTRUCTION_run:
      price_run(p, cost_launch, instruction->node, i);
      break;
    case INSTRUCTION_start: price_start(p, instruction, i); break;
    case INSTRUCTION_wait: price_wait(p, instruction); break;
    case INSTRUCTION_clear:
      price_run(p, cost_clear, instruction->node, i);
      break;
    case INSTRUCTION_loop:
      enter_loop(p, graph->nodes.data[instruction->node]->body,
                 instruction->trips);
      break;
    case INSTRUCTION_end: leave_loop(p); break;
    case N_INSTRUCTIONS: UNREACHABLE();
    }
  }
}

static void price_timeline(Pricing *p, const EntryPoint *entry) {
  for (int at = 0; at < entry->timeline.n;) {
    const ProgramCall *call = &entry->timeline.data[at];
    int n = entry_point_repeats(entry, at);
    if (n > 1) enter_loop(p, p->list->graph, n);
    price_segment(p, entry_point_segment(entry, call));
    if (n > 1) leave_loop(p);
    at += n;
  }
}

/* ---- classes ---- */

static void find_classes(Pricing *p, const CostModel *model,
                         const ClusterSlice *slice) {
  Price *price = p->price;
  ASSERT(slice->n == mesh_ranks(&p->list->graph->mesh));
  int n = price->n_classes = slice->n_groups;
  CostModel *models = ARENA_ARRAY(p->arena, CostModel, n);
  price->classes = ARENA_ARRAY(p->arena, PriceClass, n);
  for (int i = 0; i < n; i++) {
    const SliceGroup *of = &slice->groups[i];
    models[i] = *model;
    if (i > 0) {
      cost_model_of(of->group->device, &models[i]);
      cost_share_machine(&models[i], of->group, of->n);
    }
    models[i].group = (int)(of->group - slice->cluster->groups);
    price->classes[i] = (PriceClass){
        .group = of->group, .model = &models[i], .ranks = (int)of->n};
  }
  p->models = models;
  p->actions = ARENA_ARRAY(p->arena, Actions, n);
}

/* On the clocks of the simulator. */
static Ps last_begin(const SimClassResult *result, int n_steps) {
  return n_steps > 1 ? result->step_ends[n_steps - 2] : 0;
}

static void read_class(PriceClass *class, const SimClassResult *result,
                       int n_steps) {
  class->begin = last_begin(result, n_steps);
  class->step = result->step_ends[n_steps - 1] - class->begin;
  for (int part = 0; part < N_COST_PARTS; part++) {
    class->compute += result->compute[part];
    class->exposed += result->exposed[part];
    class->parts[part] += result->compute[part] + result->exposed[part];
    class->parts[COST_interference] += result->taken[part];
  }
}

static void read_result(Price *price, const SimResult *result, int n_steps) {
  Ps begin = INT64_MAX; /* of the first class */
  for (int c = 0; c < price->n_classes; c++) {
    PriceClass *class = &price->classes[c];
    const PriceClass *slowest = &price->classes[price->slowest];
    read_class(class, &result->classes[c], n_steps);
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

/* ---- public ---- */

static void run_program(Pricing *p, SimTell *tell, void *user) {
  Price *price = p->price;
  int n_queues = p->list->queues.n, n_classes = price->n_classes;
  SimClass *classes = ARENA_ARRAY(p->arena, SimClass, n_classes);
  for (int c = 0; c < n_classes; c++) {
    const Actions *actions = &p->actions[c];
    classes[c] = (SimClass){actions->n, n_queues, actions->data};
    if (!tell)
      classes[c].actions = fold_actions(p->arena, actions->data, actions->n,
                                        &classes[c].n_actions);
  }
  price->n_actions = p->actions[0].n;
  price->n_folded = classes[0].n_actions;
  SimProgram program = {.n_classes = n_classes,
                        .n_transfers = p->collectives.transfers.n,
                        .n_links = collectives_links(&p->collectives, n_queues),
                        .n_terms = N_COST_PARTS,
                        .classes = classes,
                        .transfers = p->collectives.transfers.data};
  int n_steps = n_classes > 1            ? STEPS_OF_SEVERAL
                : sim_has_gaps(&program) ? STEPS_WITH_GAPS
                                         : 1;
  Spans spans = {.arena = p->arena};
  SimResult result =
      simulate(p->arena, &program, n_steps, tell ? keep_span : NULL, &spans);
  ASSERT(!result.is_stuck && result.is_idle);
  read_result(price, &result, n_steps);
  if (tell) tell_spans(&spans, &result, price, n_steps, tell, user);
}

Price price_program(Arena *arena, const EntryPoint *entry,
                    const CostModel *model, const ClusterSlice *slice,
                    SimTell *tell, void *user) {
  const InstructionList *list = entry_point_stage(entry)->instructions;
  Price price = {0};
  Pricing p = {.arena = arena,
               .list = list,
               .trips = 1,
               .started = map_create(arena),
               .price = &price};
  find_classes(&p, model, slice);
  p.collectives = (Collectives){.arena = arena,
                                .mesh = &list->graph->mesh,
                                .slice = slice,
                                .models = p.models,
                                .n_classes = price.n_classes};
  vec_push(arena, &p.graphs, list->graph);
  price_timeline(&p, entry);
  run_program(&p, tell, user);
  return price;
}
