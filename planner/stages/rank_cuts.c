/*
 * rank_cuts.c -- a dynamic program from the last piece and rank back to the
 * first ones.
 *
 *     best[k][piece][rank][option]   k stages have the pieces and the ranks
 *                                    from these on, the first of them `option`
 *
 * Stages are counted from the last one, so the same tables serve all numbers of
 * stages: how many micro-batches a stage keeps depends on those behind it.
 */
#include "planner/stages/rank_cuts.h"

#define NEVER INT64_MAX

typedef struct Entry {
  Ps time;
  int16_t end, next; /* of the first stage; option of the one behind it */
} Entry;

struct RankCuts {
  const RankCutsRequest *r;
  Ps cap;         /* that the entries are of; -1: none yet */
  int n_filled;   /* numbers of stages */
  Entry *entries; /* [k - 1][piece][rank][option] */
  Ps *least;      /* [k - 1][piece][rank]: of all options */
};

/* ---- stages ---- */

Ps rank_stage_time(const RankCutsRequest *r, int option, int first, int end) {
  StageCost cost = stage_cost(r->options[option].costs, first, end);
  return cost.forward + cost.input_grad + cost.weight_grad +
         (cost.bulk + cost.update) / r->microbatches;
}

bool rank_stage_fits(const RankCutsRequest *r, int option, int first, int end,
                     int place) {
  const RankOption *of = &r->options[option];
  StageCost cost = stage_cost(of->costs, first, end);
  return cost.state + cost.gradient + cost.saved * r->frames[place] +
             of->costs->transient <=
         of->memory * r->over;
}

/* ---- tables ---- */

static size_t place_of(const RankCuts *c, int k, int piece, int rank) {
  return ((size_t)(k - 1) * (size_t)(c->r->n_pieces + 1) + (size_t)piece) *
             (size_t)(c->r->n_ranks + 1) +
         (size_t)rank;
}

static Entry *entry_of(const RankCuts *c, int k, int piece, int rank,
                       int option) {
  return &c->entries[place_of(c, k, piece, rank) * (size_t)c->r->n_options +
                     (size_t)option];
}

RankCuts *rank_cuts_create(Arena *arena, const RankCutsRequest *request) {
  size_t n = (size_t)request->most_stages * (size_t)(request->n_pieces + 1) *
             (size_t)(request->n_ranks + 1);
  RankCuts *c = ARENA_NEW(arena, RankCuts);
  *c = (RankCuts){.r = request,
                  .cap = -1,
                  .entries = arena_alloc(arena, sizeof(Entry) * n *
                                                    (size_t)request->n_options),
                  .least = arena_alloc(arena, sizeof(Ps) * n)};
  return c;
}

static Ps join(const RankCuts *c, Ps time, Ps behind) {
  if (c->cap == 0) return time > behind ? time : behind;
  return time > c->cap || behind == NEVER ? NEVER : time + behind;
}

/* The first stage ends with piece `end`, and others follow. */
static void join_next(RankCuts *c, int k, int rank, int option, int end,
                      Ps time, Entry *best) {
  int next_rank = rank + c->r->options[option].ranks;
  if (join(c, time, c->least[place_of(c, k - 1, end, next_rank)]) >= best->time)
    return;
  for (int o = 0; o < c->r->n_options; o++) {
    Ps behind = entry_of(c, k - 1, end, next_rank, o)->time;
    if (join(c, time, behind) >= best->time) continue;
    Ps message = c->r->message(c->r->user, end - 1, option, rank, o);
    Ps all = join(c, time + 2 * message, behind);
    if (all < best->time) *best = (Entry){all, (int16_t)end, (int16_t)o};
  }
}

/* More pieces take more time and more memory. */
static void fill_entry(RankCuts *c, int k, int first, int rank, int option) {
  const RankCutsRequest *r = c->r;
  Entry *best = entry_of(c, k, first, rank, option);
  int last = r->n_pieces - (k - 1), next_rank = rank + r->options[option].ranks;
  bool ends = next_rank == r->n_ranks;
  *best = (Entry){.time = NEVER};
  if (!r->options[option].may_begin[rank] || next_rank > r->n_ranks ||
      ends != (k == 1))
    return;
  for (int end = k == 1 ? last : first + 1; end <= last; end++) {
    Ps time = rank_stage_time(r, option, first, end);
    if (time >= best->time || (c->cap > 0 && time > c->cap) ||
        !rank_stage_fits(r, option, first, end, k - 1))
      return;
    if (k == 1)
      *best = (Entry){time, (int16_t)end, -1};
    else
      join_next(c, k, rank, option, end, time, best);
  }
}

static void fill(RankCuts *c, int k) {
  const RankCutsRequest *r = c->r;
  for (int first = 0; first + k <= r->n_pieces; first++)
    for (int rank = 0; rank < r->n_ranks; rank++) {
      Ps *least = &c->least[place_of(c, k, first, rank)];
      *least = NEVER;
      for (int o = 0; o < r->n_options; o++) {
        fill_entry(c, k, first, rank, o);
        Ps time = entry_of(c, k, first, rank, o)->time;
        if (time < *least) *least = time;
      }
    }
}

/* ---- stages that are found ---- */

static void read_stages(const RankCuts *c, int n_stages, int option,
                        RankedStage *out) {
  int first = 0, rank = 0;
  for (int k = n_stages; k > 0; k--) {
    const Entry *entry = entry_of(c, k, first, rank, option);
    *out++ = (RankedStage){option, rank, entry->end};
    first = entry->end;
    rank += c->r->options[option].ranks;
    option = entry->next;
  }
}

Ps rank_cuts_find(RankCuts *c, int n_stages, Ps cap, RankedStage *out) {
  ASSERT(n_stages > 0 && n_stages <= c->r->most_stages && cap >= 0);
  if (n_stages > c->r->n_pieces || n_stages > c->r->n_ranks) return NEVER;
  if (c->cap != cap) c->n_filled = 0;
  c->cap = cap;
  while (c->n_filled < n_stages) fill(c, ++c->n_filled);
  Ps least = NEVER;
  int best = -1;
  for (int o = 0; o < c->r->n_options; o++) {
    Ps time = entry_of(c, n_stages, 0, 0, o)->time;
    if (time >= least) continue;
    least = time;
    best = o;
  }
  if (best >= 0) read_stages(c, n_stages, best, out);
  return least;
}
