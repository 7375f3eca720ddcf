/*
 * program_actions.c -- makes lists of the simulator of an entry point: each
 * launch with its time, each collective with its latency and loads, in the
 * order in which the timeline calls segments.
 *
 *     run %3 dot                     run 3 us (launch), run 80 us (product)
 *     start %4 all_reduce on 0  =>   start 0 on queue 0
 *     run %5 fused                   run 3 us (launch), run 20 us (fused)
 *     wait %4 before %6              wait 0
 *
 * Calls of one segment that follow each other are a loop.
 */
#include "price/program_actions.h"

/* The run of a collective that a wait is for. */
typedef struct Started {
  int kind, id;
  int64_t number; /* of its starts, from 1 */
} Started;

typedef struct LoopAround {
  int64_t trips;
  VEC(int64_t) starts; /* by kind: before the loop */
} LoopAround;

/* A stage, of which a segment is followed. */
typedef struct Walk {
  ProgramActions *of;
  int stage;
  const InstructionList *list;
  VEC(const Graph *) graphs; /* that of the list, then of the loops around */
  VEC(LoopAround) loops;
  int64_t trips; /* of all of them */
  Collectives collectives;
  Map *started; /* by node: Started */
  /* [class * n_instructions + instruction]; NULL: not known yet. */
  const LaunchCost **costs;
} Walk;

static void add_action(Walk *w, int class, SimAction action) {
  vec_push(w->of->arena, &w->of->actions[class], action);
}

static void add_run(Walk *w, int class, CostTerm part, Ps time, int id) {
  if (time > 0)
    add_action(
        w, class,
        (SimAction){
            .kind = SIM_run, .duration = time, .term = (int)part, .id = id});
}

static const Graph *graph_here(const Walk *w) {
  return w->graphs.data[w->graphs.n - 1];
}

static int n_classes(const Walk *w) {
  return w->of->slice.n_groups;
}

static int id_of(const Walk *w, int instruction) {
  return w->of->first_id[w->stage] + instruction;
}

/* ---- launches ---- */

typedef LaunchCost CostOf(const CostModel *model, const Graph *graph, int node);

/* A segment is called many times, and each call costs the same. */
static const LaunchCost *cost_of_launch(Walk *w, int class, CostOf *cost_of,
                                        int instruction) {
  const Instruction *in = &w->list->instructions.data[instruction];
  const LaunchCost **known =
      &w->costs[class * w->list->instructions.n + instruction];
  if (*known) return *known;
  LaunchCost cost = cost_of(&w->of->models[class], graph_here(w), in->node);
  return *known = arena_copy(w->of->arena, &cost, sizeof cost);
}

static void add_launch(Walk *w, CostOf *cost_of, int instruction) {
  ProgramFigures *figures = &w->of->figures;
  for (int c = 0; c < n_classes(w); c++) {
    const LaunchCost *cost = cost_of_launch(w, c, cost_of, instruction);
    add_run(w, c, COST_launch, cost->launch, id_of(w, instruction));
    add_run(w, c, cost->part, cost->time, id_of(w, instruction));
    if (c > 0) continue;
    figures->launches += (cost->launch + cost->time) * w->trips;
    if (!cost->is_measured) continue;
    figures->n_measured += w->trips;
    figures->measured += cost->time * w->trips;
  }
  figures->n_launches += w->trips;
}

/* ---- collectives ---- */

static void add_start(Walk *w, int at) {
  const Instruction *in = &w->list->instructions.data[at];
  const Graph *graph = graph_here(w);
  const Node *node = graph->nodes.data[in->node];
  AxisSet axes = axis_list_set(collective_axes(&graph->mesh, node));
  Bytes sent = node_sent_bytes(graph, in->node);
  int queue = w->of->queue_of[w->stage][in->queue];
  int found = collectives_find(&w->collectives, node->op,
                               collectives_part(node->op), axes, sent, queue);
  CollectiveKind *kind = &w->collectives.kinds.data[found];
  Started *started = ARENA_NEW(w->of->arena, Started);
  *started = (Started){found, id_of(w, at), ++kind->n_starts};
  map_put(w->started, node, started);
  for (int c = 0; c < n_classes(w); c++)
    add_action(w, c,
               (SimAction){.kind = SIM_start,
                           .transfer = kind->transfer_of[c],
                           .queue = queue,
                           .id = started->id});
  w->of->figures.sent += sent * w->trips;
  w->of->figures.n_transfers += w->trips;
}

static void add_wait(Walk *w, const Instruction *in) {
  const Node *node = graph_here(w)->nodes.data[in->collective];
  const Started *started = map_get(w->started, node);
  ASSERT(started);
  const CollectiveKind *kind = &w->collectives.kinds.data[started->kind];
  for (int c = 0; c < n_classes(w); c++)
    add_action(w, c,
               (SimAction){.kind = SIM_wait,
                           .transfer = kind->transfer_of[c],
                           .back = kind->n_starts - started->number,
                           .id = started->id});
}

/* ---- loops ---- */

static void enter_loop(Walk *w, const Graph *graph, int64_t trips) {
  vec_push(w->of->arena, &w->graphs, graph);
  LoopAround loop = {.trips = trips};
  for (int k = 0; k < w->collectives.kinds.n; k++)
    vec_push(w->of->arena, &loop.starts, w->collectives.kinds.data[k].n_starts);
  vec_push(w->of->arena, &w->loops, loop);
  w->trips *= loop.trips;
  for (int c = 0; c < n_classes(w); c++)
    add_action(w, c, (SimAction){.kind = SIM_loop, .trips = loop.trips});
}

/* All iterations start as much as the first. */
static void leave_loop(Walk *w) {
  const LoopAround *loop = &w->loops.data[--w->loops.n];
  for (int k = 0; k < w->collectives.kinds.n; k++) {
    CollectiveKind *kind = &w->collectives.kinds.data[k];
    int64_t before = k < loop->starts.n ? loop->starts.data[k] : 0;
    kind->n_starts += (kind->n_starts - before) * (loop->trips - 1);
  }
  w->trips /= loop->trips;
  w->graphs.n--;
  for (int c = 0; c < n_classes(w); c++)
    add_action(w, c, (SimAction){.kind = SIM_end});
}

static void add_instruction(Walk *w, int at) {
  const Instruction *in = &w->list->instructions.data[at];
  switch (in->kind) {
  case INSTRUCTION_run: add_launch(w, cost_launch, at); break;
  case INSTRUCTION_clear: add_launch(w, cost_clear, at); break;
  case INSTRUCTION_start: add_start(w, at); break;
  case INSTRUCTION_wait: add_wait(w, in); break;
  case INSTRUCTION_loop:
    enter_loop(w, graph_here(w)->nodes.data[in->node]->body, in->trips);
    break;
  case INSTRUCTION_end: leave_loop(w); break;
  case N_INSTRUCTIONS: UNREACHABLE();
  }
}

/* ---- calls ---- */

static void add_segment(Walk *w, const ProgramSegment *segment, int n_calls) {
  if (n_calls > 1) enter_loop(w, w->list->graph, n_calls);
  for (int i = segment->begin; i < segment->end; i++) add_instruction(w, i);
  if (n_calls > 1) leave_loop(w);
}

static Walk *begin_walks(ProgramActions *p) {
  const EntryPoint *entry = p->entry;
  Walk *walks = ARENA_ARRAY(p->arena, Walk, entry->stages.n);
  for (int s = 0; s < entry->stages.n; s++) {
    const InstructionList *list = entry->stages.data[s].instructions;
    walks[s] = (Walk){
        .of = p,
        .stage = s,
        .list = list,
        .trips = 1,
        .started = map_create(p->arena),
        .costs = ARENA_ARRAY(p->arena, const LaunchCost *,
                             (size_t)list->instructions.n * p->slice.n_groups)};
    walks[s].collectives = (Collectives){.arena = p->arena,
                                         .mesh = &list->graph->mesh,
                                         .slice = &p->slice,
                                         .models = p->models,
                                         .n_classes = p->slice.n_groups,
                                         .program = p->program,
                                         .links = p->links,
                                         .transfers = p->transfers};
    vec_push(p->arena, &walks[s].graphs, list->graph);
  }
  return walks;
}

void program_actions_fill(ProgramActions *p) {
  const EntryPoint *entry = p->entry;
  Walk *walks = begin_walks(p);
  for (int at = 0; at < entry->timeline.n;) {
    const ProgramCall *call = &entry->timeline.data[at];
    int n = entry_point_repeats(entry, at);
    add_segment(&walks[call->stage], entry_point_segment(entry, call), n);
    at += n;
  }
}

/* ---- queues ---- */

typedef VEC(InstructionQueue) Queues;

/* Stages of a rank share queues of one kind and process group. */
static int find_queue(Arena *arena, Queues *queues, InstructionQueue queue) {
  for (int q = 0; q < queues->n; q++)
    if (queues->data[q].kind == queue.kind &&
        queues->data[q].axes == queue.axes)
      return q;
  vec_push(arena, queues, queue);
  return queues->n - 1;
}

void program_actions_prepare(ProgramActions *p) {
  int n_stages = p->entry->stages.n, id = 0;
  Queues queues = {0};
  p->queue_of = ARENA_ARRAY(p->arena, int *, n_stages);
  p->first_id = ARENA_ARRAY(p->arena, int, n_stages);
  p->actions = ARENA_ARRAY(p->arena, SimActions, p->slice.n_groups);
  for (int s = 0; s < n_stages; s++) {
    const InstructionList *list = p->entry->stages.data[s].instructions;
    p->first_id[s] = id;
    id += list->instructions.n;
    p->queue_of[s] = ARENA_ARRAY(p->arena, int, list->queues.n);
    for (int q = 0; q < list->queues.n; q++)
      p->queue_of[s][q] = find_queue(p->arena, &queues, list->queues.data[q]);
  }
  p->n_queues = queues.n;
}
