// links: planner passes price ir support
/*
 * rank_cuts.c -- compares how the search cuts a chain into stages of different
 * numbers of ranks with all cuts and ranks of small chains.
 */
#include "planner/stages/rank_cuts.h"
#include "tests/unit/values.h"

TestSuite(rank_cuts, .fini = modules_destroy);

enum { MOST_TEST_PIECES = 5, MOST_TEST_RANKS = 5, MOST_TEST_OPTIONS = 5 };

typedef struct TestCase {
  RankCutsRequest request;
  RankOption options[MOST_TEST_OPTIONS];
  StageCosts costs[MOST_TEST_OPTIONS];
  StageCost to[MOST_TEST_OPTIONS][MOST_TEST_PIECES + 1];
  bool may_begin[MOST_TEST_OPTIONS][MOST_TEST_RANKS + 1];
  int frames[MOST_TEST_RANKS];
  Ps message[MOST_TEST_PIECES];
} TestCase;

/* Depends on all that a message may depend on. */
static Ps message(void *user, int piece, int from, int first, int to) {
  const TestCase *t = user;
  return t->message[piece] * (1 + (from + 2 * first + 3 * to) % 3);
}

static void set_case(TestCase *t, uint64_t seed) {
  uint64_t key = random_key(seed, "rank cuts");
  int at = 0;
#define RANDOM(n) ((int)random_below(key, at++, (uint64_t)(n)))
  *t = (TestCase){0};
  int pieces = 1 + RANDOM(MOST_TEST_PIECES),
      ranks = 1 + RANDOM(MOST_TEST_RANKS);
  int n_options = 1 + RANDOM(MOST_TEST_OPTIONS), few = 1 + RANDOM(3);
  for (int o = 0; o < n_options; o++) {
    int part = 1 + RANDOM(ranks), hurry = 1 + RANDOM(3);
    for (int i = 0; i < pieces; i++) {
      StageCost *to = &t->to[o][i + 1];
      *to = t->to[o][i];
      to->forward += hurry * RANDOM(20) / part;
      to->input_grad += hurry * RANDOM(20) / part;
      to->weight_grad += RANDOM(9);
      to->bulk += RANDOM(30);
      to->update += RANDOM(9);
      to->state += RANDOM(4);
      to->gradient += RANDOM(3);
      to->saved += RANDOM(4);
    }
    t->costs[o] =
        (StageCosts){.n = pieces, .to = t->to[o], .transient = RANDOM(5)};
    for (int r = 0; r < ranks; r++) t->may_begin[o][r] = RANDOM(8) > 0;
    t->options[o] = (RankOption){
        part, &t->costs[o], t->may_begin[o], 5 + RANDOM(60), 0, NULL};
  }
  for (int k = 0; k < MOST_TEST_RANKS; k++)
    t->frames[k] = k < few ? k + 1 : few;
  for (int i = 0; i < pieces; i++) t->message[i] = RANDOM(12);
  t->request = (RankCutsRequest){.over = 1,
                                 .n_pieces = pieces,
                                 .n_ranks = ranks,
                                 .most_stages = ranks,
                                 .microbatches = 1 + RANDOM(8),
                                 .n_options = n_options,
                                 .options = t->options,
                                 .frames = t->frames,
                                 .message = message,
                                 .user = t};
#undef RANDOM
}

/* ---- all stages ---- */

typedef struct Walk {
  const RankCutsRequest *r;
  Ps cap; /* 0: the slowest stage counts, else the sum of all */
  Ps best;
} Walk;

/* Where the stage before ended, in pieces and ranks, its option, the time that
 * it takes alone, and that of those before it. */
typedef struct Place {
  int piece, rank, before;
  Ps alone, so_far;
} Place;

static Ps joined(const Walk *w, Ps a, Ps b) {
  if (w->cap > 0) return a + b;
  return a > b ? a : b;
}

static void walk_stages(Walk *w, int left, Place at) {
  const RankCutsRequest *r = w->r;
  if (left == 0) {
    bool is_whole = at.piece == r->n_pieces && at.rank == r->n_ranks;
    if (w->cap > 0 && at.alone > w->cap) return;
    Ps all = joined(w, at.so_far, at.alone);
    if (is_whole && all < w->best) w->best = all;
    return;
  }
  for (int o = 0; o < r->n_options; o++) {
    int end_rank = at.rank + r->options[o].ranks;
    if (end_rank > r->n_ranks || !r->options[o].may_begin[at.rank]) continue;
    for (int end = at.piece + 1; end <= r->n_pieces; end++) {
      Place next = {end, end_rank, o, rank_stage_time(r, o, at.piece, end), 0};
      if (!rank_stage_fits(r, o, at.piece, end, left - 1)) continue;
      if (at.before >= 0) {
        int first = at.rank - r->options[at.before].ranks;
        Ps alone = at.alone +
                   2 * r->message(r->user, at.piece - 1, at.before, first, o);
        if (w->cap > 0 && alone > w->cap) continue;
        next.so_far = joined(w, at.so_far, alone);
      }
      walk_stages(w, left - 1, next);
    }
  }
}

static Ps least_of_all(const RankCutsRequest *r, int n_stages, Ps cap) {
  Walk walk = {r, cap, INT64_MAX};
  walk_stages(&walk, n_stages, (Place){.before = -1});
  return walk.best;
}

/* ---- what is found ---- */

/* Returns the time of these stages, each of which must be allowed. */
static Ps time_of(const RankCutsRequest *r, int n, const RankedStage *stages,
                  Ps cap) {
  Walk walk = {r, cap, 0};
  Ps all = 0;
  int piece = 0, rank = 0;
  for (int s = 0; s < n; s++) {
    int o = stages[s].option;
    cr_assert_eq(stages[s].first_rank, rank);
    cr_assert(r->options[o].may_begin[rank]);
    cr_assert_gt(stages[s].end, piece);
    cr_assert(rank_stage_fits(r, o, piece, stages[s].end, n - 1 - s));
    Ps alone = rank_stage_time(r, o, piece, stages[s].end);
    if (s + 1 < n)
      alone += 2 * r->message(r->user, stages[s].end - 1, o, rank,
                              stages[s + 1].option);
    all = joined(&walk, all, alone);
    piece = stages[s].end;
    rank += r->options[o].ranks;
  }
  cr_assert_eq(piece, r->n_pieces);
  cr_assert_eq(rank, r->n_ranks);
  return all;
}

static int expect_best(Arena *arena, uint64_t seed) {
  TestCase *t = ARENA_NEW(arena, TestCase);
  RankedStage stages[MOST_TEST_RANKS];
  set_case(t, seed);
  RankCuts *cuts = rank_cuts_create(arena, &t->request),
           *sums = rank_cuts_create(arena, &t->request);
  int n_found = 0;
  for (int n = 1; n <= t->request.most_stages; n++) {
    Ps slowest = rank_cuts_find(cuts, n, 0, stages);
    cr_assert_eq(slowest, least_of_all(&t->request, n, 0), "seed %d, %d stages",
                 (int)seed, n);
    if (slowest == INT64_MAX) continue;
    n_found++;
    cr_assert_eq(time_of(&t->request, n, stages, 0), slowest);
    Ps cap = slowest + slowest / 4 + 1;
    Ps sum = rank_cuts_find(sums, n, cap, stages);
    cr_assert_eq(sum, least_of_all(&t->request, n, cap), "seed %d, %d stages",
                 (int)seed, n);
    cr_assert_eq(time_of(&t->request, n, stages, cap), sum);
  }
  return n_found;
}

Test(rank_cuts, no_other_stages_are_faster) {
  int n_found = 0, n_none = 0;
  for (uint64_t seed = 0; seed < 2000; seed++) {
    int n = expect_best(module_create()->arena, seed);
    n_found += n;
    n_none += n == 0;
    modules_destroy();
  }
  cr_expect_gt(n_found, 1500);
  cr_expect_gt(n_none, 100);
}
