/*
 * program_period_places.c -- counts the frames, slots and versions of stages
 * that run in periods, and proves their unrolled lists.
 *
 * Places are rings: unit k of replica k mod r of a stage has place k / r mod n,
 * of as many as are in use at a time on any of its ranks.  Replicas add up
 * their gradients before an update.  In the proof they do so by messages to the
 * first one and back, so none may go on before all have come.
 */
#include "ir/program_periods.h"

/* ---- frames and slots ---- */

/* By unit: the place of its token in the unrolled list of a rank, or -1. */
static int *places_of(const Periods *p, int rank, TokenKind kind, int edge) {
  const Tokens *list = &p->all->lists[rank];
  int *places = ARENA_ARRAY(p->arena, int, p->all->n_microbatches);
  for (int k = 0; k < p->all->n_microbatches; k++) places[k] = -1;
  for (int i = 0; i < list->n; i++)
    if (list->data[i].kind == kind && (edge < 0 || list->data[i].edge == edge))
      places[list->data[i].microbatch] = i;
  return places;
}

/* Places of a ring that has the value of each unit from one token to another.
 */
static int count_alive(const Periods *p, int rank, const int *first,
                       const int *last) {
  int m = p->all->n_microbatches, n = 1;
  int stride = period_stride(p, p->ranks[rank].stage);
  for (int k = p->ranks[rank].replica; k < m; k += stride)
    while (k + n * stride < m && first[k + n * stride] < last[k]) n++;
  return n;
}

static TokenKind receive_kind(const ProgramEdge *edge) {
  return edge->from_kind == TOKEN_forward ? TOKEN_receive_forward
                                          : TOKEN_receive_backward;
}

static void count_of_rank(Periods *p, int rank) {
  ProgramStage *stage = &p->stages[p->ranks[rank].stage];
  int n = count_alive(p, rank, places_of(p, rank, TOKEN_forward, -1),
                      places_of(p, rank, TOKEN_backward, -1));
  if (n > stage->n_frames) stage->n_frames = n;
  for (int e = 0; e < p->edges->n; e++) {
    ProgramEdge *edge = &p->edges->data[e];
    if (edge->to != stage->number) continue;
    n = count_alive(p, rank, places_of(p, rank, receive_kind(edge), e),
                    places_of(p, rank, edge->last_kind, -1));
    if (n > edge->n_slots) edge->n_slots = n;
    if (n > stage->n_slots) stage->n_slots = n;
  }
}

/* ---- versions ---- */

static int at_least_0(int n) {
  return n > 0 ? n : 0;
}

int period_version(const Periods *p, int stage, int unit) {
  const ProgramStage *first = &p->stages[0], *own = &p->stages[stage];
  int group = period_group(p, stage), group_of_first = period_group(p, 0);
  if (p->in->has_two) return at_least_0(unit / group - 1);
  if (!p->in->is_vertical) return at_least_0(unit / group - own->n_ahead);
  return at_least_0(unit / group_of_first - first->n_ahead) *
         (group_of_first / group);
}

/* From the version that a unit reads to the newest that is made before its
 * backward pass ends. */
static int count_versions(const Periods *p, int stage) {
  int group = period_group(p, stage), most = 1;
  int end = (p->stages[0].n_ahead + 2) * p->n_units * period_group(p, 0);
  for (int unit = 0; unit < end; unit++) {
    int n = unit / group - period_version(p, stage, unit) + 1;
    if (n > most) most = n;
  }
  return most;
}

/* A version is made before the forward pass that reads it. */
static bool makes_versions(const Periods *p, int stage) {
  int group = period_group(p, stage);
  int ahead = p->stages[stage].n_ahead * period_stride(p, stage);
  for (int unit = 0; unit < p->all->n_microbatches; unit++)
    if (period_version(p, stage, unit) > at_least_0(unit - ahead) / group)
      return false;
  return true;
}

/* A batch of which several micro-batches run ahead has its data, and what runs
 * once for it, beside those of the one before. */
void period_places(Periods *p) {
  for (int s = 0; s < p->in->n_stages; s++) {
    ProgramStage *stage = &p->stages[s];
    stage->n_frames = stage->n_slots = 1;
    stage->n_input_frames = stage->n_weight_frames = 1;
    stage->n_versions = count_versions(p, s);
    if (p->in->has_two) stage->n_batches = stage->n_ahead > 0 ? 2 : 1;
  }
  for (int e = 0; e < p->edges->n; e++) p->edges->data[e].n_slots = 1;
  for (int rank = 0; rank < p->n_ranks; rank++) count_of_rank(p, rank);
}

/* ---- the proof ---- */

typedef VEC(RendezvousUse) Uses;

static void add_uses(const Periods *p, int rank, const int *first,
                     const int *last, int base, int n, Uses *uses) {
  int stride = period_stride(p, p->ranks[rank].stage);
  for (int k = p->ranks[rank].replica; k < p->all->n_microbatches; k += stride)
    vec_push(p->arena, uses,
             (RendezvousUse){.place = base + k / stride % n,
                             .first = first[k],
                             .last = last[k]});
}

static Uses find_uses(const Periods *p, int rank) {
  const ProgramStage *stage = &p->stages[p->ranks[rank].stage];
  Uses uses = {0};
  int base = stage->n_frames;
  add_uses(p, rank, places_of(p, rank, TOKEN_forward, -1),
           places_of(p, rank, TOKEN_backward, -1), 0, stage->n_frames, &uses);
  for (int e = 0; e < p->edges->n; e++) {
    const ProgramEdge *edge = &p->edges->data[e];
    int n = edge->n_slots > 1 ? stage->n_slots : 1;
    if (edge->to != stage->number) continue;
    add_uses(p, rank, places_of(p, rank, receive_kind(edge), e),
             places_of(p, rank, edge->last_kind, -1), base, n, &uses);
    base += n;
  }
  return uses;
}

typedef VEC(RendezvousAction) Actions;

/* Messages of a sum have numbers behind those of all others. */
static void add_sum(const Periods *p, const PeriodSum *sum, Actions *actions) {
  int s = p->ranks[sum->rank].stage, n = p->stages[s].n_ranks;
  int first = p->first_of[s];
  int64_t number = (int64_t)1 << 40;
  number += 2 * ((int64_t)sum->group * p->n_ranks);
  for (int turn = 0; turn < 2; turn++)
    for (int i = 1; i < n; i++) {
      int other = sum->rank == first ? first + i : first;
      if (sum->rank != first && sum->rank != first + i) continue;
      bool is_send = (sum->rank == first) == (turn == 1);
      vec_push(p->arena, actions,
               (RendezvousAction){.kind = is_send ? RENDEZVOUS_send
                                                  : RENDEZVOUS_receive,
                                  .peer = other,
                                  .message = number + 2 * (first + i) + turn});
    }
}

/* Puts the sums of a rank between its actions. */
static void insert_sums(const Periods *p, int rank, RendezvousClass *class,
                        Uses *uses) {
  Actions actions = {0};
  int *place = ARENA_ARRAY(p->arena, int, class->n_actions + 1);
  int next = 0;
  for (int i = 0; i <= class->n_actions; i++) {
    for (; next < p->sums.n &&
           (p->sums.data[next].rank < rank ||
            (p->sums.data[next].rank == rank && p->sums.data[next].at <= i));
         next++)
      if (p->sums.data[next].rank == rank)
        add_sum(p, &p->sums.data[next], &actions);
    place[i] = actions.n;
    if (i < class->n_actions) vec_push(p->arena, &actions, class->actions[i]);
  }
  RendezvousNeed *needs = arena_copy(p->arena, class->needs,
                                     (size_t) class->n_needs * sizeof *needs);
  for (int i = 0; i < class->n_needs; i++) {
    if (needs[i].before >= 0) needs[i].before = place[needs[i].before];
    needs[i].after = place[needs[i].after];
  }
  for (int i = 0; i < uses->n; i++) {
    RendezvousUse *use = &uses->data[i];
    if (use->first >= 0) use->first = place[use->first];
    if (use->last >= 0) use->last = place[use->last];
  }
  class->actions = actions.data;
  class->n_actions = actions.n;
  class->needs = needs;
  class->uses = uses->data;
  class->n_uses = uses->n;
}

static void report(Periods *p, const RendezvousResult *result) {
  Diag *d = diag(p->in->diags, DIAG_stages_hang, p->in->span,
                 entry_point_name(p->in->id),
                 rendezvous_verdict_text(result->verdict));
  for (int i = 0; i < result->n_places && p->sums.n == 0; i++) {
    const Token *token = rendezvous_token(p->all, result->places[i]);
    diag_note(d, SPAN_NONE, "rank %d: %s", result->places[i].class,
              token ? token_text(p->arena, p->all, token) : "the end");
  }
}

bool period_prove(Periods *p) {
  const RendezvousProgram *program = pipeline_rendezvous(p->arena, p->all, 1);
  RendezvousClass *classes =
      arena_copy(p->arena, program->classes,
                 (size_t)p->n_ranks * sizeof *program->classes);
  for (int rank = 0; rank < p->n_ranks; rank++) {
    Uses uses = find_uses(p, rank);
    insert_sums(p, rank, &classes[rank], &uses);
    ASSERT(makes_versions(p, p->ranks[rank].stage));
  }
  RendezvousProgram with_sums = {p->n_ranks, classes};
  RendezvousResult result =
      rendezvous_check(p->arena, &with_sums, RENDEZVOUS_all);
  if (result.verdict == RENDEZVOUS_fine) return true;
  report(p, &result);
  return false;
}
