// links: price interp ir runtime support
/*
 * period_mutants.c -- tests the proof of programs without a flush against an
 * executor that knows nothing of it: ranks that fill, run and drain their
 * periods one call at a time, whose places hold numbers of units and versions,
 * and whose messages have no buffers.  Programs are those of pipedream, its
 * vertical form and 2bw, with replicas, in which lags, slots, orders and edges
 * were changed at random.
 *
 *   DNNC_MUTANTS=FIRST:N runs others than the first 500.
 */
#include <stdlib.h>

#include "ir/program_periods.h"
#include "tests/unit/stage_graphs.h"

TestSuite(period_mutants, .fini = modules_destroy);

enum { MOST_RANKS = 8, MOST_PLACES = 64, MOST_EDGES = 8, EMPTY = -1 };

/* ---- random numbers ---- */

typedef struct Dice {
  uint64_t key, n;
} Dice;

static int roll(Dice *dice, int n) {
  return (int)random_below(dice->key, dice->n++, (uint64_t)n);
}

/* ---- programs ---- */

typedef struct Program {
  StageChain *chain;
  bool has_two, is_vertical;
  int m, n_ranks;
  int first_of[MOST_STAGES]; /* by stage */
  EntryPoint entries[MOST_RANKS];
} Program;

static void make_program(Program *program) {
  StageChain *chain = program->chain;
  chain->has_versions = true;
  chain->n_microbatches = program->m;
  for (int s = 0; s < chain->n; s++) {
    program->first_of[s] = chain->first_rank[s] = program->n_ranks;
    program->n_ranks += chain->n_replicas[s];
  }
  stage_chain_make(chain);
  ProgramParts parts =
      stage_chain_parts(chain, program->has_two ? "2bw" : "pipedream");
  parts.has_versions = true;
  parts.has_two = program->has_two;
  parts.is_vertical = program->is_vertical;
  bool is_made =
      program_timeline(chain->module->arena, &parts, program->entries);
  Text text = text_create(chain->module->arena);
  diags_print(chain->module->diags, &text);
  cr_assert(is_made, "%s", text_string(&text));
}

static void random_program(Dice *dice, Program *program, StageChain *chain) {
  /* Those that vertical can have come first. */
  static const int replicas[][MOST_STAGES] = {{1, 1, 1, 1}, {1, 1, 1, 1},
                                              {2, 1, 1, 1}, {3, 1, 1, 1},
                                              {2, 2, 1, 1}, {1, 2, 1, 1}};
  *chain = (StageChain){.n = 2 + roll(dice, 3)};
  *program = (Program){.chain = chain, .m = 1};
  int form = roll(dice, 4); /* 3: replicas under 2bw */
  const int *of = replicas[0];
  program->has_two = form == 0 || form == 3;
  program->is_vertical = form == 1;
  if (program->is_vertical) of = replicas[roll(dice, 5)];
  if (form == 2) of = replicas[roll(dice, 6)];
  if (form == 3) of = replicas[2 + roll(dice, 4)];
  /* They divide the batch of 24; of the largest all replicas are divisors, and
   * it has all forward passes that run ahead. */
  if (program->has_two) program->m = chain->n + roll(dice, 3);
  if (program->m == 5 || (program->has_two && of[0] + of[1] > 2))
    program->m = 6;
  memcpy(chain->n_replicas, of, sizeof replicas[0]);
  make_program(program);
}

/* ---- the executor ---- */

typedef struct Action {
  const ProgramCall *call;
  int64_t unit;
} Action;

typedef struct Places {
  int n;
  int64_t holds[MOST_PLACES];
} Places;

typedef struct Rank {
  const EntryPoint *entry;
  const ProgramStage *stage;
  int number, at;
  VEC(Action) list;
  Places frames, data, versions, gradients, received[MOST_EDGES];
  int64_t sent[MOST_EDGES], n_updates;
} Rank;

typedef struct Executor {
  const Program *program;
  int64_t n_units;
  bool is_stale;
  Rank ranks[MOST_RANKS];
} Executor;

static const Action *next_action(const Rank *rank) {
  return rank->at < rank->list.n ? &rank->list.data[rank->at] : NULL;
}

static bool is_made(const Executor *e, const ProgramCall *call, int64_t unit) {
  bool has_own = 0 <= unit && unit < e->n_units;
  int64_t of_group = unit - call->replica;
  bool has_group = 0 <= of_group && of_group < e->n_units;
  switch (call->when) {
  case PERIOD_unit: return has_own;
  case PERIOD_group: return has_group;
  default: return has_group && !has_own;
  }
}

static void clear_places(Places *places, int n) {
  cr_assert_leq(n, MOST_PLACES);
  places->n = n;
  for (int i = 0; i < n; i++) places->holds[i] = EMPTY;
}

static void begin_rank(Executor *e, int number, int64_t n_periods) {
  const Program *program = e->program;
  Rank *rank = &e->ranks[number];
  rank->entry = &program->entries[number];
  rank->stage = &rank->entry->stages.data[0];
  rank->number = number;
  for (int64_t t = -rank->entry->lead; t < n_periods; t++)
    for (int i = 0; i < rank->entry->timeline.n; i++) {
      const ProgramCall *call = &rank->entry->timeline.data[i];
      int64_t unit = t * rank->entry->n_units + call->unit;
      if (is_made(e, call, unit))
        vec_push(program->chain->module->arena, &rank->list,
                 (Action){call, unit});
    }
  const ProgramStage *stage = rank->stage;
  clear_places(&rank->frames, stage->n_frames);
  clear_places(&rank->data,
               program->has_two ? stage->n_batches : stage->n_frames);
  clear_places(&rank->versions, stage->n_versions);
  clear_places(&rank->gradients, program->has_two ? program->m : 1);
  rank->versions.holds[0] = 0;
  for (int i = 0; i < rank->entry->edges.n; i++) {
    const ProgramEdge *edge = &rank->entry->edges.data[i];
    clear_places(&rank->received[i], edge->n_slots > 1 ? stage->n_slots : 1);
    rank->sent[i] = EMPTY;
  }
}

static int64_t at_register(const Action *action, ProgramRegister number) {
  ProgramRing ring = action->call->rings[number];
  int64_t turn = action->unit / ring.divisor + ring.shift;
  return turn < 0 ? 0 : turn * ring.factor % ring.n;
}

static int64_t *place(Executor *e, Places *places, int64_t at) {
  static int64_t outside;
  if (at >= 0 && at < places->n) return &places->holds[at];
  e->is_stale = true;
  return &outside;
}

static void read(Executor *e, Places *places, int64_t at, int64_t wanted) {
  if (*place(e, places, at) != wanted) e->is_stale = true;
}

/* w = floor((ranks of this stage and later ones - 1) / replicas of it). */
static int64_t forwards_ahead(const Program *program, int stage) {
  int n = 0;
  for (int s = stage; s < program->chain->n; s++)
    n += program->chain->n_replicas[s];
  return (n - 1) / program->chain->n_replicas[stage];
}

/* The definitions of docs/schedules.md and docs/plan.md, as the number of
 * updates of the stage. */
static int64_t wanted_version(const Program *program, int stage, int64_t unit) {
  const int *replicas = program->chain->n_replicas;
  int64_t version;
  if (program->has_two) {
    version = unit / program->m - 1;
    return version > 0 ? version : 0;
  }
  int from = program->is_vertical ? 0 : stage;
  version = unit / replicas[from] - forwards_ahead(program, from);
  if (version < 0) version = 0;
  return version * replicas[from] / replicas[stage];
}

static int64_t data_of(const Executor *e, const Action *action,
                       int64_t *out_at) {
  bool has_two = e->program->has_two;
  *out_at = at_register(action, has_two ? REGISTER_batch : REGISTER_frame);
  return has_two ? action->unit / e->program->m : action->unit;
}

static int64_t slot(const Rank *rank, int edge, const Action *action) {
  bool has_slots = rank->entry->edges.data[edge].n_slots > 1;
  return has_slots ? at_register(action, REGISTER_slot) : 0;
}

/* Values of this chain: y of the stage before, and the gradient of the own y.
 * Both passes multiply by y. */
static void run_pass(Executor *e, Rank *rank, const Action *action,
                     bool goes_back) {
  int s = rank->stage->number;
  int64_t at, batch = data_of(e, action, &at), unit = action->unit;
  int64_t frame = at_register(action, REGISTER_frame);
  if (s == 0) read(e, &rank->data, at, batch);
  read(e, &rank->versions, at_register(action, REGISTER_version),
       wanted_version(e->program, s, unit));
  for (int i = 0; i < rank->entry->edges.n; i++) {
    const ProgramEdge *edge = &rank->entry->edges.data[i];
    bool is_forward = edge->from < edge->to;
    if (edge->to == s && (is_forward || goes_back))
      read(e, &rank->received[i], slot(rank, i, action), unit);
    if (edge->from == s && is_forward != goes_back) rank->sent[i] = unit;
  }
  if (!goes_back) {
    *place(e, &rank->frames, frame) = unit;
    return;
  }
  read(e, &rank->frames, frame, unit);
  int m = e->program->m, k = (int)(unit % m);
  if (!e->program->has_two) k = 0;
  if (e->program->has_two && rank->gradients.holds[k] != -100 - unit / m)
    e->is_stale = true;
  rank->gradients.holds[k] = unit;
}

static void run_update(Executor *e, Rank *rank, const Action *action) {
  const Program *program = e->program;
  int replicas = rank->stage->n_ranks, m = program->m;
  int64_t first = action->unit - action->call->replica;
  int64_t group = program->has_two ? m : replicas, number = first / group;
  if (first % group) e->is_stale = true;
  if (number != rank->n_updates++) e->is_stale = true;
  for (int k = 0; k < (program->has_two ? m : 1); k += replicas) {
    int64_t unit = action->unit + k;
    int64_t holds = rank->gradients.holds[program->has_two ? unit % m : 0];
    if (holds != (unit < e->n_units ? unit : -100 - unit)) e->is_stale = true;
  }
  read(e, &rank->versions, at_register(action, REGISTER_version), number);
  *place(e, &rank->versions, at_register(action, REGISTER_new_version)) =
      number + 1;
  rank->n_updates = number + 1;
}

static TokenKind kind_of(const Rank *rank, const Action *action) {
  return rank->stage->segments.data[action->call->segment].kind;
}

static void run_segment(Executor *e, Rank *rank, const Action *action) {
  int64_t at, batch;
  switch (kind_of(rank, action)) {
  case TOKEN_once:
    batch = data_of(e, action, &at);
    *place(e, &rank->data, at) = batch;
    break;
  case TOKEN_clear:
    for (int k = 0; k < rank->gradients.n; k++)
      rank->gradients.holds[k] =
          -100 - action->unit / (e->program->has_two ? e->program->m : 1);
    break;
  case TOKEN_forward: run_pass(e, rank, action, false); break;
  case TOKEN_backward: run_pass(e, rank, action, true); break;
  default: run_update(e, rank, action);
  }
}

static bool is_kind(const Action *action, ProgramCallKind kind) {
  return action && action->call->kind == kind;
}

static bool is_sum(const Rank *rank, const Action *action) {
  return is_kind(action, CALL_segment) && rank->stage->n_ranks > 1 &&
         kind_of(rank, action) == TOKEN_update;
}

/* Replicas go on from a sum together. */
static bool step_sum(Executor *e, const Rank *rank) {
  const Action *own = next_action(rank);
  int first = rank->number - own->call->replica, n = rank->stage->n_ranks;
  int64_t group = own->unit - own->call->replica;
  for (int i = 0; i < n; i++) {
    const Rank *other = &e->ranks[first + i];
    const Action *action = next_action(other);
    if (!is_sum(other, action) || action->unit - action->call->replica != group)
      return false;
  }
  for (int i = 0; i < n; i++) {
    Rank *other = &e->ranks[first + i];
    run_update(e, other, next_action(other));
    other->at++;
  }
  return true;
}

/* Both sides have come to the message, whose sides agree (see mismatch). */
static bool step_message(Executor *e, Rank *rank) {
  const Action *sent = next_action(rank);
  Rank *to = &e->ranks[rank->number + sent->call->peer];
  const Action *received = next_action(to);
  if (!is_kind(received, CALL_receive) ||
      to->number + received->call->peer != rank->number)
    return false;
  int edge = sent->call->edge;
  const ProgramEdge *of = &rank->entry->edges.data[edge];
  if (of->from != rank->stage->number || of->to != to->stage->number)
    e->is_stale = true;
  if (rank->sent[edge] != sent->unit) e->is_stale = true;
  if (of->from < of->to)
    read(e, &rank->frames, at_register(sent, REGISTER_frame), sent->unit);
  *place(e, &to->received[edge], slot(to, edge, received)) = received->unit;
  rank->at++;
  to->at++;
  return true;
}

static bool step(Executor *e, Rank *rank) {
  const Action *action = next_action(rank);
  if (!action || is_kind(action, CALL_receive)) return false;
  if (is_kind(action, CALL_send)) return step_message(e, rank);
  if (is_sum(rank, action)) return step_sum(e, rank);
  run_segment(e, rank, action);
  rank->at++;
  return true;
}

/* The messages from one rank to another, as one of both has them; sums
 * go to the first replica and back. */
static const char *sequence(const Executor *e, int from, int to, bool is_sent) {
  const Rank *rank = &e->ranks[is_sent ? from : to];
  int other = is_sent ? to : from;
  Text text = text_create(e->program->chain->module->arena);
  for (int i = 0; i < rank->list.n; i++) {
    const Action *action = &rank->list.data[i];
    const ProgramCall *call = action->call;
    int first = rank->number - call->replica;
    bool is_here = rank->number + call->peer == other;
    if (is_kind(action, is_sent ? CALL_send : CALL_receive) && is_here)
      text_printf(&text, "%d.%lld ", call->edge, (long long)action->unit);
    if (is_sum(rank, action) && other >= first &&
        other < first + rank->stage->n_ranks &&
        (other == first) != (rank->number == first))
      text_printf(&text, "sum%lld ", (long long)action->unit - call->replica);
  }
  return text_string(&text);
}

static bool has_mismatch(const Executor *e) {
  int n = e->program->n_ranks;
  for (int a = 0; a < n; a++)
    for (int b = 0; b < n; b++)
      if (strcmp(sequence(e, a, b, true), sequence(e, a, b, false)) != 0)
        return true;
  return false;
}

/* The next round begins with the newest version of each stage. */
static void check_end(Executor *e, Rank *rank) {
  int group = e->program->has_two ? e->program->m : rank->stage->n_ranks;
  int64_t n = (e->n_units + group - 1) / group;
  if (rank->n_updates != n) e->is_stale = true;
  read(e, &rank->versions, n % rank->stage->n_versions, n);
}

static RendezvousVerdict executor_verdict(const Program *program) {
  Executor *e = ARENA_NEW(program->chain->module->arena, Executor);
  const EntryPoint *first = &program->entries[0];
  int64_t n_periods = 2 * first->lead + 3;
  *e = (Executor){.program = program};
  /* Replicas end inside of a group. */
  e->n_units = n_periods * first->n_units;
  if (!program->has_two && first->n_units > 1) e->n_units--;
  for (int r = 0; r < program->n_ranks; r++) begin_rank(e, r, n_periods);
  if (has_mismatch(e)) return RENDEZVOUS_mismatch;
  for (bool has_moved = true; has_moved;) {
    has_moved = false;
    for (int r = 0; r < program->n_ranks; r++)
      while (step(e, &e->ranks[r])) has_moved = true;
  }
  for (int r = 0; r < program->n_ranks; r++) {
    if (next_action(&e->ranks[r])) return RENDEZVOUS_may_hang;
    check_end(e, &e->ranks[r]);
  }
  return e->is_stale ? RENDEZVOUS_clash : RENDEZVOUS_fine;
}

/* ---- mutants ---- */

typedef struct Mutation {
  Dice *dice;
  Program *program;
  EntryPoint *entry;
  int rank, at;
  ProgramCall *call;
} Mutation;

static void move_call(EntryPoint *entry, int from, int to) {
  ProgramCall *calls = entry->timeline.data;
  ProgramCall call = calls[from];
  int up = from < to ? 1 : -1;
  for (int i = from; i != to; i += up) calls[i] = calls[i + up];
  calls[to] = call;
}

static void drop_call(EntryPoint *entry, int at) {
  move_call(entry, at, entry->timeline.n - 1);
  entry->timeline.n--;
}

/* The other side of a message; NULL: it is a segment, or there is none. */
static ProgramCall *find_other(const Mutation *m, EntryPoint **out_entry) {
  if (m->call->kind == CALL_segment) return NULL;
  *out_entry = &m->program->entries[m->rank + m->call->peer];
  for (int i = 0; i < (*out_entry)->timeline.n; i++) {
    ProgramCall *other = &(*out_entry)->timeline.data[i];
    if (other->kind != CALL_segment && other->kind != m->call->kind &&
        other->edge == m->call->edge && other->unit == m->call->unit)
      return other;
  }
  return NULL;
}

static void mutate_order(Mutation *m) {
  int n = m->entry->timeline.n, far = roll(m->dice, 3) ? 1 : 4;
  int to = m->at + (roll(m->dice, 2) ? 1 + roll(m->dice, far)
                                     : -1 - roll(m->dice, far));
  move_call(m->entry, m->at, to < 0 ? 0 : to >= n ? n - 1 : to);
}

/* A message goes behind the next one, to another rank or from it. */
static void mutate_messages(Mutation *m) {
  const ProgramCall *calls = m->entry->timeline.data;
  if (m->call->kind == CALL_segment) return;
  for (int to = m->at + 1; to < m->entry->timeline.n; to++)
    if (calls[to].kind != CALL_segment &&
        (calls[to].kind != m->call->kind || calls[to].peer != m->call->peer)) {
      move_call(m->entry, m->at, to);
      return;
    }
}

/* Moves a call, or a message on both sides, by a period. */
static void mutate_lag(Mutation *m) {
  int by = (roll(m->dice, 2) ? 1 : -1) * m->entry->n_units;
  EntryPoint *others;
  ProgramCall *other = find_other(m, &others);
  m->call->unit += by;
  if (other && roll(m->dice, 4) > 0) other->unit += by;
}

static int *places_of(ProgramStage *stage, ProgramRegister number) {
  switch (number) {
  case REGISTER_frame: return &stage->n_frames;
  case REGISTER_slot: return &stage->n_slots;
  case REGISTER_batch: return &stage->n_batches;
  default: return &stage->n_versions;
  }
}

static bool is_of_version(ProgramRegister number) {
  return number == REGISTER_version || number == REGISTER_new_version;
}

/* Another number of places in all calls of a rank, of which the arena has as
 * many, or as before; or one call moves on by a place. */
static void mutate_slot(Mutation *m) {
  static const ProgramRegister numbers[] = {
      REGISTER_frame, REGISTER_slot, REGISTER_version, REGISTER_new_version};
  ProgramRegister number = numbers[roll(m->dice, 4)];
  if (m->program->has_two && roll(m->dice, 5) == 0) number = REGISTER_batch;
  int by = roll(m->dice, 2) ? 1 : -1;
  if (roll(m->dice, 2)) {
    m->call->rings[number].shift += by;
    return;
  }
  for (int i = 0; i < m->entry->timeline.n; i++)
    for (int r = 0; r < N_REGISTERS; r++) {
      ProgramRing *ring = &m->entry->timeline.data[i].rings[r];
      bool is_same = r == (int)number || (is_of_version(number) &&
                                          is_of_version((ProgramRegister)r));
      if (is_same && ring->n + by > 0) ring->n += by;
    }
  int *places = places_of(&m->entry->stages.data[0], number);
  if (roll(m->dice, 3) > 0 && *places + by > 0) *places += by;
}

/* Another edge or peer, or no message at all. */
static void mutate_edge(Mutation *m) {
  EntryPoint *others;
  ProgramCall *other = find_other(m, &others);
  int edge = roll(m->dice, m->entry->edges.n);
  switch (roll(m->dice, 4)) {
  case 0:
    if (m->call->kind != CALL_segment) m->call->edge = edge;
    break;
  case 1:
    if (other) m->call->edge = other->edge = edge;
    break;
  case 2: {
    int peer = roll(m->dice, m->program->n_ranks - 1);
    if (peer >= m->rank) peer++;
    if (m->call->kind != CALL_segment) m->call->peer = peer - m->rank;
    break;
  }
  default:
    if (other) drop_call(others, (int)(other - others->timeline.data));
    drop_call(m->entry, m->at);
  }
}

enum { N_MUTATIONS = 7 };

static void mutate(Dice *dice, Program *program, int how) {
  Mutation m = {dice, program, .rank = roll(dice, program->n_ranks)};
  m.entry = &program->entries[m.rank];
  if (m.entry->timeline.n < 2) return;
  bool is_of_message = how > 2;
  for (int i = 0; i < 20; i++) {
    m.at = roll(dice, m.entry->timeline.n);
    m.call = &m.entry->timeline.data[m.at];
    if (!is_of_message || m.call->kind != CALL_segment) break;
  }
  switch (how) {
  case 0: mutate_lag(&m); break;
  case 1: mutate_slot(&m); break;
  case 2: mutate_order(&m); break;
  case 3:
  case 4: mutate_edge(&m); break;
  default: mutate_messages(&m);
  }
}

static const char *program_text(const Program *program) {
  Text text = text_create(program->chain->module->arena);
  for (int r = 0; r < program->n_ranks; r++) {
    entry_point_print(&text, &program->entries[r]);
    for (int i = 0; i < program->entries[r].timeline.n; i++)
      text_printf(&text, " %d", program->entries[r].timeline.data[i].unit);
    text_add(&text, "\n");
  }
  return text_string(&text);
}

static PeriodFault prove(const Program *program) {
  PeriodRules rules = {
      program->has_two, program->is_vertical, program->m,
      ARENA_ARRAY(program->chain->module->arena, ProgramStage, MOST_STAGES)};
  for (int s = 0; s < program->chain->n; s++)
    ((ProgramStage *)rules.stages)[s] =
        program->entries[program->first_of[s]].stages.data[0];
  return period_prove(program->chain->module->arena, program->entries,
                      program->n_ranks, &rules);
}

static RendezvousVerdict try_mutant(int number) {
  StageChain *chain = calloc(1, sizeof *chain);
  Program *program = calloc(1, sizeof *program);
  char name[40];
  snprintf(name, sizeof name, "period %d", number);
  Dice dice = {random_key(48, name), 0};
  random_program(&dice, program, chain);
  for (int n = number % 8 ? 1 + roll(&dice, 3) : 0; n > 0; n--)
    mutate(&dice, program, number % N_MUTATIONS);
  PeriodFault fault = prove(program);
  RendezvousVerdict expected = executor_verdict(program);
  cr_expect_eq(fault.verdict, expected, "mutant %d: %s, not %s\n%s", number,
               rendezvous_verdict_text(fault.verdict),
               rendezvous_verdict_text(expected), program_text(program));
  modules_destroy();
  free(chain);
  free(program);
  return expected;
}

Test(period_mutants, refused_exactly_when_the_executor_fails) {
  int counts[4] = {0}, first = 0, n = 500;
  const char *range = getenv("DNNC_MUTANTS");
  if (range) cr_assert_eq(sscanf(range, "%d:%d", &first, &n), 2);
  for (int i = first; i < first + n; i++) counts[try_mutant(i)]++;
  printf("%d fine, %d mismatches, %d hang, %d read a stale place\n",
         counts[RENDEZVOUS_fine], counts[RENDEZVOUS_mismatch],
         counts[RENDEZVOUS_may_hang], counts[RENDEZVOUS_clash]);
  for (int v = 0; v < 4 && n >= 500; v++) cr_expect_geq(counts[v], 80);
}

/* Each step of a version is one that is stale, and a place less clashes. */
Test(period_mutants, versions_held_are_as_many_as_are_read) {
  static const int held[] = {4, 3, 2, 1};
  StageChain *chain = calloc(1, sizeof *chain);
  Program *program = calloc(1, sizeof *program);
  *chain = (StageChain){.n = 4, .n_replicas = {1, 1, 1, 1}};
  *program = (Program){.chain = chain, .m = 1};
  make_program(program);
  for (int s = 0; s < 4; s++) {
    EntryPoint *entry = &program->entries[s];
    ProgramStage *stage = &entry->stages.data[0];
    cr_expect_eq(stage->n_versions, held[s]);
    if (held[s] == 1) continue;
    stage->n_versions--;
    for (int i = 0; i < entry->timeline.n; i++) {
      entry->timeline.data[i].rings[REGISTER_version].n--;
      entry->timeline.data[i].rings[REGISTER_new_version].n--;
    }
    cr_expect_eq(prove(program).verdict, RENDEZVOUS_clash, "stage %d", s);
    for (int i = 0; i < entry->timeline.n; i++) {
      entry->timeline.data[i].rings[REGISTER_version].n++;
      entry->timeline.data[i].rings[REGISTER_new_version].n++;
    }
    stage->n_versions++;
  }
  cr_expect_eq(prove(program).verdict, RENDEZVOUS_fine);
  free(chain);
  free(program);
}
