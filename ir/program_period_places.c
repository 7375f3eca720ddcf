/*
 * program_period_places.c -- counts the frames, slots and versions of stages
 * that run in periods.
 *
 * Places are rings: unit k of replica k mod r of a stage has place k / r mod n,
 * of as many as are in use at a time on any of its ranks.
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

/* From the version that a unit reads to the newest that is made before its
 * backward pass ends. */
static int count_versions(const Periods *p, int stage) {
  int group = period_group(p, stage), most = 1;
  int end = (p->stages[0].n_ahead + 2) * p->n_units * period_group(p, 0);
  for (int unit = 0; unit < end; unit++) {
    int n = unit / group - (int)period_version(&p->rules, stage, unit) + 1;
    if (n > most) most = n;
  }
  return most;
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
