/*
 * program_period_proof.c -- proves the timelines of periods, as they are made,
 * from filling to draining with two periods in between.
 *
 *     rank 0   F0  send y0  F1  send y1  receive g0  B0  U0  F2 ...
 *     slot of w, read       0            0           0   0   1
 *     slot of w, made                                    1
 *
 * Every rank's list is unrolled: each call with its unit, and what its rings
 * make of that.  Then two things can go wrong.  Messages of two ranks may not
 * be the same ones or wait for each other, which rendezvous_check finds;
 * replicas add up their gradients by messages to the first one and back, so
 * none goes on before all have come.  And a call may find something else in a
 * place than what it should read: a rank works in the order of its list, so one
 * walk over it knows what each place holds.  The places are the frames of
 * passes, the data of batches, the slots of received values, a place for each
 * value that is sent, the versions of the parameters, the gradients, and the
 * state of the optimizer.
 *
 * The buffers are not assigned yet.  So a value that is sent must be both in
 * its frame and in a place that its next call writes again.
 *
 * cost: O(calls * edges) for each unrolled period, and that of rendezvous_check
 */
#include "ir/program_periods.h"

enum { PERIODS_PROVED = 3, NOTHING = -1 };

/* A call with its unit. */
typedef struct Made {
  const ProgramCall *call;
  int64_t unit;
} Made;
typedef VEC(Made) MadeCalls;

typedef VEC(RendezvousAction) Actions;
typedef VEC(int) Numbers;

typedef struct Proof {
  Arena *arena;
  const PeriodRules *rules;
  const EntryPoint *entries;
  int n_ranks, n_edges;
  int64_t n_units; /* in all */
  MadeCalls *lists;
  Numbers *made_of; /* by rank and action: number of the call in its list */
} Proof;

static const ProgramStage *stage_of(const Proof *p, int rank) {
  return &p->entries[rank].stages.data[0];
}

int64_t period_version(const PeriodRules *rules, int stage, int64_t unit) {
  const ProgramStage *of = &rules->stages[rules->is_vertical ? 0 : stage];
  int group = period_group_of(rules, stage);
  int group_of_first = period_group_of(rules, of->number);
  int64_t ahead = rules->has_two ? 1 : of->n_ahead;
  int64_t updates = unit / group_of_first - ahead;
  return updates > 0 ? updates * (group_of_first / group) : 0;
}

/* ---- unrolled ---- */

static void unroll(Proof *p, int rank, int64_t n_periods) {
  const EntryPoint *entry = &p->entries[rank];
  for (int64_t t = -entry->lead; t < n_periods; t++)
    for (int i = 0; i < entry->timeline.n; i++) {
      const ProgramCall *call = &entry->timeline.data[i];
      int64_t unit = t * entry->n_units + call->unit;
      if (program_call_is_due(call, unit, p->n_units))
        vec_push(p->arena, &p->lists[rank], (Made){call, unit});
    }
}

/* Replicas end inside of a group. */
static void unroll_all(Proof *p) {
  const EntryPoint *entry = &p->entries[0];
  int64_t n_periods = 2 * (int64_t)entry->lead + PERIODS_PROVED;
  bool has_replicas = entry->n_units > 1 && !p->rules->has_two;
  p->n_units = n_periods * entry->n_units - has_replicas;
  for (int rank = 0; rank < p->n_ranks; rank++) unroll(p, rank, n_periods);
}

/* ---- messages ---- */

static const ProgramSegment *segment_of(const Proof *p, int rank,
                                        const ProgramCall *call) {
  return entry_point_segment(&p->entries[rank], call);
}

static bool is_update(const Proof *p, int rank, const ProgramCall *call) {
  return call->kind == CALL_segment &&
         segment_of(p, rank, call)->kind == TOKEN_update;
}

static void add_action(Proof *p, int rank, int made, RendezvousAction action,
                       Actions *actions) {
  vec_push(p->arena, actions, action);
  vec_push(p->arena, &p->made_of[rank], made);
}

/* The sums of the gradients of replicas, before an update.  Their messages have
 * numbers after those of all others. */
static void add_sum(Proof *p, int rank, int made, Actions *actions) {
  const Made *update = &p->lists[rank].data[made];
  int n = stage_of(p, rank)->n_ranks, replica = update->call->replica;
  int first = rank - replica;
  int64_t group = update->unit - replica + p->entries[rank].n_units;
  for (int turn = 0; turn < 2; turn++)
    for (int i = 1; i < n; i++) {
      if (replica != 0 && replica != i) continue;
      bool is_send = (replica == 0) == (turn == 1);
      int64_t number = 2 * (group * p->n_ranks + first + i) + turn;
      add_action(p, rank, made,
                 (RendezvousAction){.kind = is_send ? RENDEZVOUS_send
                                                    : RENDEZVOUS_receive,
                                    .peer = replica == 0 ? first + i : first,
                                    .message = ((int64_t)1 << 40) + number},
                 actions);
    }
}

static void add_message(Proof *p, int rank, int made, Actions *actions) {
  const ProgramCall *call = p->lists[rank].data[made].call;
  int64_t unit = p->lists[rank].data[made].unit;
  const ProgramEdge *edge = &p->entries[rank].edges.data[call->edge];
  add_action(p, rank, made,
             (RendezvousAction){.kind = call->kind == CALL_send
                                            ? RENDEZVOUS_send
                                            : RENDEZVOUS_receive,
                                .peer = rank + call->peer,
                                .message = unit * p->n_edges + call->edge,
                                .bytes = edge->bytes,
                                .dtype = edge->dtype},
             actions);
}

/* Stages lie on the ranks from 0 on, in one order or another. */
static RendezvousResult check_messages(Proof *p) {
  RendezvousClass *classes = ARENA_ARRAY(p->arena, RendezvousClass, p->n_ranks);
  for (int rank = 0; rank < p->n_ranks; rank++) {
    Actions actions = {0};
    for (int i = 0; i < p->lists[rank].n; i++) {
      const ProgramCall *call = p->lists[rank].data[i].call;
      if (call->kind != CALL_segment)
        add_message(p, rank, i, &actions);
      else if (is_update(p, rank, call))
        add_sum(p, rank, i, &actions);
    }
    classes[rank] = (RendezvousClass){
        .n_ranks = 1, .n_actions = actions.n, .actions = actions.data};
  }
  return rendezvous_check(p->arena, &(RendezvousProgram){p->n_ranks, classes},
                          RENDEZVOUS_all);
}

/* ---- places ---- */

/* Behind these come two kinds for each edge: what is received, and sent. */
typedef enum PlaceKind {
  PLACE_frame,
  PLACE_data,
  PLACE_version,
  PLACE_gradient,
  PLACE_state,
  N_PLACES
} PlaceKind;

/* The contents of the places of a rank. */
typedef struct Memory {
  const Proof *p;
  const ProgramStage *stage;
  int rank;
  int *n;          /* by kind */
  int64_t **holds; /* by kind: a unit, or a number of updates */
  bool has_data, has_update;
  bool keeps_values; /* the update reads what the forward pass has left */
  bool is_wrong;
} Memory;

static bool is_place(Memory *m, int kind, int64_t place) {
  bool is_there = place >= 0 && place < m->n[kind];
  m->is_wrong |= !is_there;
  return is_there;
}

static void must_hold(Memory *m, int kind, int64_t place, int64_t value) {
  if (is_place(m, kind, place) && m->holds[kind][place] != value)
    m->is_wrong = true;
}

static void put(Memory *m, int kind, int64_t place, int64_t value) {
  if (is_place(m, kind, place)) m->holds[kind][place] = value;
}

static int received_kind(int edge) {
  return N_PLACES + 2 * edge;
}
static int sent_kind(int edge) {
  return N_PLACES + 2 * edge + 1;
}

static void make_places(Memory *m, int kind, int n, int64_t value) {
  m->n[kind] = n;
  m->holds[kind] = ARENA_ARRAY(m->p->arena, int64_t, n);
  for (int i = 0; i < n; i++) m->holds[kind][i] = value;
}

/* The stage reads data, or what runs once for a batch leaves something. */
static bool has_data(const Proof *p, const ProgramStage *stage) {
  const ProgramSegment *first = &stage->segments.data[0];
  bool has = false;
  for (int i = 0; i < stage->graph->inputs.n; i++)
    has |= stage->graph->inputs.data[i].role == ROLE_data;
  if (!p->rules->has_two || first->kind != TOKEN_once) return has;
  for (int id = first->first_node; id < first->end_node; id++)
    has |= stage->graph->nodes.data[id]->op != OP_input;
  return has;
}

static TokenKind kind_of_node(const ProgramStage *stage, int id) {
  int s = 0;
  while (id >= stage->segments.data[s].end_node) s++;
  return stage->segments.data[s].kind;
}

static bool keeps_values(const ProgramStage *stage) {
  const Graph *graph = stage->graph;
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    if (node->op == OP_input || kind_of_node(stage, id) != TOKEN_update)
      continue;
    for (int i = 0; i < node->n_inputs; i++) {
      int from = node->inputs[i].node;
      if (graph->nodes.data[from]->op != OP_input &&
          kind_of_node(stage, from) == TOKEN_forward)
        return true;
    }
  }
  return false;
}

static Memory make_memory(const Proof *p, int rank) {
  const ProgramStage *stage = stage_of(p, rank);
  int n_kinds = N_PLACES + 2 * p->n_edges;
  Memory m = {.p = p,
              .stage = stage,
              .rank = rank,
              .n = ARENA_ARRAY(p->arena, int, n_kinds),
              .holds = ARENA_ARRAY(p->arena, int64_t *, n_kinds)};
  bool has_two = p->rules->has_two;
  make_places(&m, PLACE_frame, stage->n_frames, NOTHING);
  make_places(&m, PLACE_data, has_two ? stage->n_batches : stage->n_frames,
              NOTHING);
  make_places(&m, PLACE_version, stage->n_versions, NOTHING);
  make_places(&m, PLACE_gradient, has_two ? p->rules->m : 1, NOTHING);
  make_places(&m, PLACE_state, 1, 0);
  m.holds[PLACE_version][0] = 0;
  for (int e = 0; e < p->n_edges; e++) {
    const ProgramEdge *edge = &p->entries[rank].edges.data[e];
    bool has_slots = edge->n_slots > 1;
    make_places(&m, received_kind(e), has_slots ? stage->n_slots : 1, NOTHING);
    make_places(&m, sent_kind(e), 1, NOTHING);
  }
  m.has_data = has_data(p, stage);
  m.keeps_values = keeps_values(stage);
  for (int i = 0; i < stage->segments.n; i++)
    m.has_update |= stage->segments.data[i].kind == TOKEN_update;
  return m;
}

static int64_t register_of(const Made *made, ProgramRegister number) {
  return program_ring_at(&made->call->rings[number], made->unit);
}

/* ---- what calls read and leave ---- */

/* The place of the data of a batch, and its number: all of a pass depend on a
 * frame, or several passes on one batch. */
static void find_data(const Memory *m, const Made *made, int64_t *out_place,
                      int64_t *out_value) {
  bool has_two = m->p->rules->has_two;
  *out_place = register_of(made, has_two ? REGISTER_batch : REGISTER_frame);
  *out_value = has_two ? made->unit / m->p->rules->m : made->unit;
}

/* A replica without a unit of a group leaves zeros for it, and what is added up
 * begins with zeros. */
static int64_t zeros_of(int64_t unit) {
  return NOTHING - 1 - unit;
}

static int64_t gradient_place(const Memory *m, int64_t unit) {
  return m->p->rules->has_two ? unit % m->p->rules->m : 0;
}

static int64_t slot_of(const Memory *m, int e, const Made *made) {
  bool has_slots = m->p->entries[m->rank].edges.data[e].n_slots > 1;
  return has_slots ? register_of(made, REGISTER_slot) : 0;
}

/* Values of edges that the pass reads, and those that it leaves. */
static void walk_edges(Memory *m, const Made *made, TokenKind kind) {
  const EntryPoint *entry = &m->p->entries[m->rank];
  for (int e = 0; e < entry->edges.n; e++) {
    const ProgramEdge *edge = &entry->edges.data[e];
    bool is_last = kind == edge->last_kind;
    if (edge->to == m->stage->number && (kind == edge->to_kind || is_last))
      must_hold(m, received_kind(e), slot_of(m, e, made), made->unit);
    if (edge->from == m->stage->number && kind == edge->from_kind)
      put(m, sent_kind(e), 0, made->unit);
  }
}

static void walk_pass(Memory *m, const Made *made, TokenKind kind) {
  const PeriodRules *rules = m->p->rules;
  int64_t frame = register_of(made, REGISTER_frame), place, value;
  find_data(m, made, &place, &value);
  if (m->has_data) must_hold(m, PLACE_data, place, value);
  if (m->has_update)
    must_hold(m, PLACE_version, register_of(made, REGISTER_version),
              period_version(rules, m->stage->number, made->unit));
  walk_edges(m, made, kind);
  if (kind == TOKEN_forward) {
    put(m, PLACE_frame, frame, made->unit);
    return;
  }
  must_hold(m, PLACE_frame, frame, made->unit);
  place = gradient_place(m, made->unit);
  if (rules->has_two)
    must_hold(m, PLACE_gradient, place,
              zeros_of(made->unit - made->unit % rules->m));
  put(m, PLACE_gradient, place, made->unit);
}

/* The gradients of the own units of a group make a version out of the newest.
 */
static void walk_update(Memory *m, const Made *made) {
  const PeriodRules *rules = m->p->rules;
  int group = period_group_of(rules, m->stage->number);
  int64_t first = made->unit - made->call->replica, number = first / group;
  int n = rules->has_two ? rules->m : 1, stride = m->stage->n_ranks;
  for (int i = 0; i < n; i += stride) {
    int64_t unit = made->unit + i;
    must_hold(m, PLACE_gradient, gradient_place(m, unit),
              unit < m->p->n_units ? unit : zeros_of(unit));
  }
  if (m->keeps_values && !rules->has_two && made->unit < m->p->n_units)
    must_hold(m, PLACE_frame, register_of(made, REGISTER_frame), made->unit);
  m->is_wrong |= first % group != 0;
  must_hold(m, PLACE_state, 0, number);
  must_hold(m, PLACE_version, register_of(made, REGISTER_version), number);
  put(m, PLACE_state, 0, number + 1);
  put(m, PLACE_version, register_of(made, REGISTER_new_version), number + 1);
}

static void walk_segment(Memory *m, const Made *made) {
  TokenKind kind = segment_of(m->p, m->rank, made->call)->kind;
  int64_t place, value;
  switch (kind) {
  case TOKEN_once:
    find_data(m, made, &place, &value);
    put(m, PLACE_data, place, value);
    return;
  case TOKEN_clear:
    for (int i = 0; i < m->n[PLACE_gradient]; i++)
      put(m, PLACE_gradient, i, zeros_of(made->unit));
    return;
  case TOKEN_update: walk_update(m, made); return;
  default: walk_pass(m, made, kind); return;
  }
}

static void walk_message(Memory *m, const Made *made) {
  const ProgramCall *call = made->call;
  const ProgramEdge *edge = &m->p->entries[m->rank].edges.data[call->edge];
  if (call->kind == CALL_receive) {
    m->is_wrong |= edge->to != m->stage->number;
    put(m, received_kind(call->edge), slot_of(m, call->edge, made), made->unit);
    return;
  }
  m->is_wrong |= edge->from != m->stage->number;
  must_hold(m, sent_kind(call->edge), 0, made->unit);
  if (edge->from_kind == TOKEN_forward)
    must_hold(m, PLACE_frame, register_of(made, REGISTER_frame), made->unit);
}

/* The run goes on with the newest version, which it copies to the first slot.
 */
static void walk_end(Memory *m) {
  if (!m->has_update) return;
  int group = period_group_of(m->p->rules, m->stage->number);
  int64_t n = (m->p->n_units + group - 1) / group;
  must_hold(m, PLACE_state, 0, n);
  must_hold(m, PLACE_version, n % m->stage->n_versions, n);
}

/* Returns the first call that finds something else than it should; the number
 * of calls: the end does.  Returns -1 if none does. */
static int walk(const Proof *p, int rank) {
  const MadeCalls *list = &p->lists[rank];
  Memory m = make_memory(p, rank);
  for (int i = 0; i < list->n; i++) {
    if (list->data[i].call->kind == CALL_segment)
      walk_segment(&m, &list->data[i]);
    else
      walk_message(&m, &list->data[i]);
    if (m.is_wrong) return i;
  }
  walk_end(&m);
  return m.is_wrong ? list->n : -1;
}

/* ---- the proof ---- */

/* Places of the result have the numbers of unrolled calls. */
static void add_place(const Proof *p, int rank, int made, PeriodFault *fault) {
  const MadeCalls *list = &p->lists[rank];
  bool is_call = made >= 0 && made < list->n;
  PeriodFaultPlace place = {.rank = rank,
                            .call = is_call ? list->data[made].call : NULL,
                            .unit = is_call ? list->data[made].unit : 0};
  if (fault->n_places < PERIOD_FAULT_PLACES)
    fault->places[fault->n_places++] = place;
}

PeriodFault period_prove(Arena *arena, const EntryPoint *entries, int n,
                         const PeriodRules *rules) {
  Proof p = {.arena = arena,
             .rules = rules,
             .entries = entries,
             .n_ranks = n,
             .n_edges = entries[0].edges.n,
             .lists = ARENA_ARRAY(arena, MadeCalls, n),
             .made_of = ARENA_ARRAY(arena, Numbers, n)};
  unroll_all(&p);
  RendezvousResult result = check_messages(&p);
  PeriodFault fault = {.verdict = result.verdict};
  for (int i = 0; i < result.n_places; i++) {
    RendezvousPlace place = result.places[i];
    const Numbers *made = &p.made_of[place.class];
    bool is_end = place.action < 0 || place.action >= made->n;
    add_place(&p, place.class, is_end ? -1 : made->data[place.action], &fault);
  }
  for (int rank = 0; rank < n && fault.verdict == RENDEZVOUS_fine; rank++) {
    int at = walk(&p, rank);
    if (at < 0) continue;
    fault.verdict = RENDEZVOUS_clash;
    add_place(&p, rank, at, &fault);
  }
  return fault;
}
