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
 * Calls of one segment that follow each other are a loop.  A message is started
 * where the timeline says so, by both sides, or by its sender where it goes
 * ahead.  A call waits for a message before the instruction that reads it, and
 * for the last one of a value before the instruction that writes it again.
 *
 * A period of an endless list is run again and again: step t has unit t * units
 * + `unit` of each call.  Messages of units before the first one that all ranks
 * have are left out in the first steps, so that both sides have the same ones.
 * Where stages have replicas, the unit says which of them exchange a message:
 * each pair has a transfer of its own.
 */
#include "price/program_actions.h"

#include "ir/place/mesh_place.h"
#include "price/edge_waits.h"

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

/* At most SIM_LONGEST, as a step. */
static void add_time(Ps *to, Ps time, int64_t times) {
  Ps left = SIM_LONGEST - *to;
  *to += time > left / times ? left : time * times;
}

static void add_launch(Walk *w, CostOf *cost_of, int instruction) {
  ProgramFigures *figures = &w->of->figures;
  for (int c = 0; c < n_classes(w); c++) {
    const LaunchCost *cost = cost_of_launch(w, c, cost_of, instruction);
    add_run(w, c, COST_launch, cost->launch, id_of(w, instruction));
    add_run(w, c, cost->part, cost->time, id_of(w, instruction));
    if (c > 0) continue;
    add_time(&figures->launches, cost->launch + cost->time, w->trips);
    if (!cost->is_measured) continue;
    figures->n_measured += w->trips;
    add_time(&figures->measured, cost->time, w->trips);
  }
  figures->n_launches += w->trips;
}

/* ---- collectives and swaps ---- */

/* A device without a link of its own, as a CPU, copies in its stream. */
static bool has_host_link(const Walk *w) {
  return w->of->models[0].rates.is_gpu && w->of->models[0].rates.host_link > 0;
}

static Bytes swapped_bytes(const Graph *graph, const Node *node) {
  return type_local_elements(node->types[0], &graph->mesh) *
         dtype_size_bytes(node->types[0]->dtype);
}

static void add_start(Walk *w, int at) {
  const Instruction *in = &w->list->instructions.data[at];
  const Graph *graph = graph_here(w);
  const Node *node = graph->nodes.data[in->node];
  AxisSet axes = axis_list_set(collective_axes(&graph->mesh, node));
  bool is_swap = op_is(node->op, OPCLASS_swap);
  Bytes sent =
      is_swap ? swapped_bytes(graph, node) : node_sent_bytes(graph, in->node);
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
  if (is_swap) return;
  w->of->figures.sent += sent * w->trips;
  w->of->figures.n_transfers += w->trips;
}

static void add_wait(Walk *w, const Instruction *in) {
  const Node *node = graph_here(w)->nodes.data[in->collective];
  if (op_is(node->op, OPCLASS_swap) && !has_host_link(w)) return;
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
  case INSTRUCTION_swap:
    if (has_host_link(w))
      add_start(w, at);
    else
      add_launch(w, cost_launch, at);
    break;
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

/* ---- messages ---- */

/* The messages of an edge, as this program has started them: in a period those
 * that one replica sends to it. */
typedef struct EdgeState {
  int64_t n_started;
  /* In a period: unit of its last message so far, if there is one, else of that
   * of the period before. */
  int last_unit;
  bool is_started;
  /* Number of the start that is still to be waited for, or 0, and its
   * identifier: of what is received by micro-batch, of what is sent the last
   * one. */
  int64_t *numbers;
  int *ids;
} EdgeState;

typedef struct Timeline {
  ProgramActions *of;
  Walk *walks;
  int n_senders;                       /* of an edge, at most */
  EdgeState *edges[N_LINK_DIRECTIONS]; /* out: sent; [edge * n_senders + i] */
  const EdgeWaits ***waits; /* [stage][segment]; NULL: not known yet */
} Timeline;

static EdgeState *state_of(const Timeline *t, int edge, LinkDirection direction,
                           int unit) {
  int sender = direction == LINK_in ? unit % t->of->edges[edge].n_from : 0;
  return &t->edges[direction][edge * t->n_senders + sender];
}

/* The message of a unit that this program sends or receives. */
static const MessageTransfers *message_of(const Timeline *t, int edge,
                                          LinkDirection direction, int unit) {
  const EdgePrograms *of = &t->of->edges[edge];
  int from =
      direction == LINK_out ? t->of->program - of->from : unit % of->n_from;
  int to = direction == LINK_in ? t->of->program - of->to : unit % of->n_to;
  return &t->of->messages[of->first + from * of->n_to + to];
}

static int transfer_of_edge(const Timeline *t, int edge,
                            LinkDirection direction, int unit, int class) {
  const MessageTransfers *message = message_of(t, edge, direction, unit);
  return (direction == LINK_out ? message->of_sender
                                : message->of_receiver)[class];
}

/* The receiver does not start a message that goes ahead, and waits for the next
 * one. */
static bool goes_ahead(const Timeline *t) {
  return message_goes_ahead(t->of->models);
}

/* The first step that exchanges the message of a unit, of a period.  The unit
 * may be that of the period before. */
static int first_step(const EntryPoint *entry, int unit) {
  int n = entry->n_units;
  return entry->is_period ? entry->lead - (unit + n) / n + 1 : 0;
}

static void add_message(Timeline *t, int at, LinkDirection direction) {
  const ProgramCall *call = &t->of->entry->timeline.data[at];
  EdgeState *state = state_of(t, call->edge, direction, call->unit);
  bool starts = direction == LINK_out || !goes_ahead(t);
  int slot = direction == LINK_in ? call->registers[REGISTER_microbatch] : 0;
  state->last_unit = call->unit;
  state->is_started = true;
  state->numbers[slot] = ++state->n_started;
  state->ids[slot] = t->of->first_call_id + at;
  for (int c = 0; c < t->of->slice.n_groups && starts; c++) {
    int transfer = transfer_of_edge(t, call->edge, direction, call->unit, c);
    if (transfer == NO_TRANSFER) continue;
    vec_push(t->of->arena, &t->of->actions[c],
             (SimAction){
                 .kind = SIM_start,
                 .transfer = transfer,
                 .queue = program_message_queue(t->of, call->peer, direction),
                 .id = state->ids[slot],
                 .from_step = first_step(t->of->entry, call->unit)});
  }
  t->of->figures.n_transfers++;
  if (direction == LINK_out)
    t->of->figures.sent +=
        message_of(t, call->edge, direction, call->unit)->sent;
}

static void add_message_wait(Timeline *t, int edge, LinkDirection direction,
                             int slot) {
  EdgeState *state = state_of(t, edge, direction, 0);
  int64_t number = state->numbers[slot];
  if (number == 0) return;
  bool is_next = direction == LINK_in && goes_ahead(t);
  int64_t back = is_next ? 0 : state->n_started - number;
  for (int c = 0; c < t->of->slice.n_groups; c++) {
    int transfer = transfer_of_edge(t, edge, direction, 0, c);
    if (transfer == NO_TRANSFER) continue;
    vec_push(t->of->arena, &t->of->actions[c],
             (SimAction){.kind = SIM_wait,
                         .transfer = transfer,
                         .back = back,
                         .id = state->ids[slot]});
  }
  state->numbers[slot] = 0;
}

static int greatest_divisor(int a, int b) {
  return b == 0 ? a : greatest_divisor(b, a % b);
}

/* Units from one message of two replicas to the next. */
static int units_of_pair(const EdgePrograms *of) {
  return of->n_from / greatest_divisor(of->n_from, of->n_to) * of->n_to;
}

/* In a period: for the message of a unit, or for the last one that was sent. */
static void add_period_wait(Timeline *t, int edge, LinkDirection direction,
                            int unit) {
  const EntryPoint *entry = t->of->entry;
  const EdgeState *state = state_of(t, edge, direction, unit);
  bool is_sent = direction == LINK_out;
  bool is_last = is_sent || goes_ahead(t); /* or the next one */
  int last = state->last_unit - (state->is_started ? 0 : entry->n_units);
  int from_step = first_step(entry, is_sent ? last : unit);
  int of = is_sent ? state->last_unit : unit;
  for (int c = 0; c < t->of->slice.n_groups; c++) {
    int transfer = transfer_of_edge(t, edge, direction, of, c);
    if (transfer == NO_TRANSFER) continue;
    vec_push(t->of->arena, &t->of->actions[c],
             (SimAction){.kind = SIM_wait,
                         .transfer = transfer,
                         .back = is_last
                                     ? 0
                                     : (last - unit) /
                                           units_of_pair(&t->of->edges[edge]),
                         .id = state->ids[0],
                         .from_step = from_step});
  }
}

/* A value that passes between stages of one rank is copied. */
static void add_pass(Timeline *t, int at) {
  const ProgramCall *call = &t->of->entry->timeline.data[at];
  const ProgramEdge *edge = &t->of->entry->edges.data[call->edge];
  Walk *walk = &t->walks[call->stage];
  int id = t->of->first_call_id + at;
  for (int c = 0; c < t->of->slice.n_groups; c++) {
    const CostModel *model = &t->of->models[c];
    if (cost_counts(model, COST_launch))
      add_run(walk, c, COST_launch, model->rates.launch, id);
    if (cost_counts(model, COST_fused))
      add_run(walk, c, COST_fused, cost_bytes(model, 2 * (double)edge->bytes),
              id);
  }
  t->of->figures.n_launches++;
}

/* ---- calls ---- */

static const EdgeWaits *waits_of(Timeline *t, int stage, int segment) {
  const EntryPoint *entry = t->of->entry;
  const ProgramStage *of = &entry->stages.data[stage];
  const EdgeWaits **known = &t->waits[stage][segment];
  if (*known) return *known;
  EdgeWaits waits =
      edge_waits_of(t->of->arena, entry, of, &of->segments.data[segment]);
  return *known = arena_copy(t->of->arena, &waits, sizeof waits);
}

/* A value of another micro-batch may be under way to its reader. */
static void add_edge_waits(Timeline *t, const EdgeWaits *waits, int *next,
                           int instruction, int microbatch, int unit) {
  while (*next < waits->n && waits->data[*next].instruction == instruction) {
    const EdgeWait *wait = &waits->data[(*next)++];
    const ProgramEdge *edge = &t->of->entry->edges.data[wait->edge];
    bool is_copied =
        wait->direction == LINK_out && message_is_copied(t->of->models, edge);
    if (t->of->entry->is_period && !is_copied)
      add_period_wait(t, wait->edge, wait->direction, unit);
    else if (t->of->entry->is_period)
      continue;
    else if (wait->direction == LINK_in)
      add_message_wait(t, wait->edge, LINK_in,
                       edge->is_of_step ? 0 : microbatch);
    else if (!message_is_copied(t->of->models, edge))
      add_message_wait(t, wait->edge, LINK_out, 0);
  }
}

static void add_segment(Timeline *t, const ProgramCall *call,
                        const EdgeWaits *waits) {
  const ProgramSegment *segment = entry_point_segment(t->of->entry, call);
  int next = 0, microbatch = call->registers[REGISTER_microbatch];
  for (int at = segment->begin; at <= segment->end; at++) {
    add_edge_waits(t, waits, &next, at, microbatch, call->unit);
    if (at < segment->end) add_instruction(&t->walks[call->stage], at);
  }
}

/* Returns how many calls were added: without messages, those of one segment
 * that follow each other are a loop. */
static int add_segments(Timeline *t, int at) {
  const EntryPoint *entry = t->of->entry;
  const ProgramCall *call = &entry->timeline.data[at];
  if (entry->is_period && call->when == PERIOD_missing) return 1;
  const EdgeWaits *waits = waits_of(t, call->stage, call->segment);
  Walk *walk = &t->walks[call->stage];
  bool is_single = waits->n > 0 || entry->is_period;
  int n = is_single ? 1 : entry_point_repeats(entry, at);
  if (n > 1) enter_loop(walk, walk->list->graph, n);
  add_segment(t, call, waits);
  if (n > 1) leave_loop(walk);
  return n;
}

/* ---- the timeline ---- */

static int microbatches_of(const EntryPoint *entry) {
  int most = 1;
  for (int s = 0; s < entry->stages.n; s++) {
    int n = mesh_microbatches(&entry->stages.data[s].graph->mesh);
    if (n > most) most = n;
  }
  return most;
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
    walks[s].collectives =
        (Collectives){.arena = p->arena,
                      .mesh = &list->graph->mesh,
                      .slice = &p->members,
                      .models = p->models_of_members,
                      .n_classes = p->members.n_groups,
                      .program = p->program,
                      .n_programs = p->n_replicas,
                      .first = p->first ? p->first->collectives : NULL,
                      .links = p->links,
                      .transfers = p->transfers};
    vec_push(p->arena, &walks[s].graphs, list->graph);
  }
  p->collectives = &walks[0].collectives;
  return walks;
}

static Timeline begin_timeline(ProgramActions *p) {
  Timeline t = {.of = p, .walks = begin_walks(p), .n_senders = 1};
  int n = microbatches_of(p->entry), n_edges = p->entry->edges.n;
  for (int e = 0; e < n_edges; e++)
    if (p->edges[e].n_from > t.n_senders) t.n_senders = p->edges[e].n_from;
  int n_states = n_edges * t.n_senders;
  t.waits = ARENA_ARRAY(p->arena, const EdgeWaits **, p->entry->stages.n);
  for (int s = 0; s < p->entry->stages.n; s++)
    t.waits[s] = ARENA_ARRAY(p->arena, const EdgeWaits *,
                             p->entry->stages.data[s].segments.n);
  for (int d = 0; d < N_LINK_DIRECTIONS; d++) {
    t.edges[d] = ARENA_ARRAY(p->arena, EdgeState, n_states);
    for (int i = 0; i < n_states; i++) {
      t.edges[d][i].numbers = ARENA_ARRAY(p->arena, int64_t, n);
      t.edges[d][i].ids = ARENA_ARRAY(p->arena, int, n);
    }
  }
  return t;
}

/* Returns how many calls were added. */
static int add_calls(Timeline *t, int at) {
  const EntryPoint *entry = t->of->entry;
  const ProgramCall *call = &entry->timeline.data[at];
  switch (call->kind) {
  case CALL_send: add_message(t, at, LINK_out); return 1;
  case CALL_receive: add_message(t, at, LINK_in); return 1;
  case CALL_pass: add_pass(t, at); return 1;
  case CALL_segment: break;
  }
  return add_segments(t, at);
}

static void note_begin(ProgramActions *p, int call) {
  for (int c = 0; c < p->slice.n_groups; c++)
    p->call_begin[c * p->entry->timeline.n + call] = p->actions[c].n;
}

/* The last messages of a period are those before the first ones. */
static void find_last_units(Timeline *t) {
  const EntryPoint *entry = t->of->entry;
  for (int at = 0; at < entry->timeline.n && entry->is_period; at++) {
    const ProgramCall *call = &entry->timeline.data[at];
    if (call->kind == CALL_segment) continue;
    LinkDirection direction = call->kind == CALL_send ? LINK_out : LINK_in;
    EdgeState *state = state_of(t, call->edge, direction, call->unit);
    state->last_unit = call->unit;
    state->ids[0] = t->of->first_call_id + at;
  }
}

/* A rank waits at the end of a step for all that it has started. */
void program_actions_fill(ProgramActions *p) {
  Timeline t = begin_timeline(p);
  int n_calls = p->entry->timeline.n;
  find_last_units(&t);
  p->call_begin = ARENA_ARRAY(p->arena, int, n_calls * p->slice.n_groups);
  for (int at = 0; at < n_calls;) {
    note_begin(p, at);
    int end = at + add_calls(&t, at);
    while (++at < end) note_begin(p, at);
  }
  for (int e = 0; e < p->entry->edges.n && !p->entry->is_period; e++)
    add_message_wait(&t, e, LINK_out, 0);
}

int program_actions_call(const ProgramActions *p, int class, int action) {
  const int *begin = &p->call_begin[class * p->entry->timeline.n];
  int at = p->entry->timeline.n - 1;
  while (at > 0 && begin[at] > action) at--;
  return at;
}

int program_find_stage(const EntryPoint *entry, int number) {
  int s = 0;
  while (s < entry->stages.n && entry->stages.data[s].number != number) s++;
  return s < entry->stages.n ? s : -1;
}

/* ---- queues ---- */

/* Stages of a rank share queues of one kind and process group. */
static int find_queue(const ProgramActions *p, PriceQueue like) {
  int q = 0;
  while (q < p->queues.n && (p->queues.data[q].queue.kind != like.queue.kind ||
                             p->queues.data[q].queue.axes != like.queue.axes ||
                             p->queues.data[q].peer != like.peer ||
                             p->queues.data[q].direction != like.direction))
    q++;
  return q;
}

static int add_queue(ProgramActions *p, PriceQueue queue) {
  int q = find_queue(p, queue);
  if (q == p->queues.n) vec_push(p->arena, &p->queues, queue);
  return q;
}

int program_message_queue(const ProgramActions *p, int peer,
                          LinkDirection direction) {
  return find_queue(p, (PriceQueue){.peer = peer, .direction = direction});
}

static void add_message_queues(ProgramActions *p) {
  for (int at = 0; at < p->entry->timeline.n; at++) {
    const ProgramCall *call = &p->entry->timeline.data[at];
    if (call->kind == CALL_send)
      add_queue(p, (PriceQueue){.peer = call->peer, .direction = LINK_out});
    if (call->kind == CALL_receive)
      add_queue(p, (PriceQueue){.peer = call->peer, .direction = LINK_in});
  }
}

void program_actions_prepare(ProgramActions *p) {
  int n_stages = p->entry->stages.n, id = 0;
  p->queue_of = ARENA_ARRAY(p->arena, int *, n_stages);
  p->first_id = ARENA_ARRAY(p->arena, int, n_stages);
  p->actions = ARENA_ARRAY(p->arena, SimActions, p->slice.n_groups);
  for (int s = 0; s < n_stages; s++) {
    const InstructionList *list = p->entry->stages.data[s].instructions;
    p->first_id[s] = id;
    id += list->instructions.n;
    p->queue_of[s] = ARENA_ARRAY(p->arena, int, list->queues.n);
    for (int q = 0; q < list->queues.n; q++)
      p->queue_of[s][q] =
          add_queue(p, (PriceQueue){.queue = list->queues.data[q]});
  }
  p->first_call_id = id;
  add_message_queues(p);
}
