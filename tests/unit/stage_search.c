// links: planner passes price ir support
/*
 * stage_search.c -- tests how the search cuts a chain into stages and how long
 * it thinks that schedules of them take.
 */
#include "planner/stages/stage_cuts.h"
#include "tests/unit/values.h"

TestSuite(stage_search, .fini = modules_destroy);

enum { MOST_TEST_PIECES = 9 };

typedef struct TestCosts {
  StageCosts costs;
  StageCost to[MOST_TEST_PIECES + 1];
  Bytes sent[MOST_TEST_PIECES];
  MessageRate rates[MOST_TEST_PIECES];
} TestCosts;

/* Pieces of these times; each keeps so many bytes of a micro-batch. */
static void set_costs(TestCosts *t, int n, const Ps *times, Bytes saved) {
  *t = (TestCosts){0};
  for (int i = 0; i < n; i++) {
    StageCost *to = &t->to[i + 1];
    *to = t->to[i];
    to->forward += times[i];
    to->input_grad += times[i];
    to->weight_grad += times[i];
    to->saved += saved;
  }
  t->costs = (StageCosts){.n = n,
                          .to = t->to,
                          .sent = t->sent,
                          .sent_back = t->sent,
                          .rates = t->rates};
}

static StagePlay play_of(Arena *arena, const char *schedule, int groups,
                         int chunks, int microbatches) {
  StageShape shape = {pipeline_schedule_find(schedule), groups, groups * chunks,
                      microbatches};
  StagePlay play;
  cr_assert(shape.schedule);
  cr_assert(stage_play_create(arena, &shape, NULL, 0, &play));
  return play;
}

/* ---- steps ---- */

static Ps step_of(const char *schedule, int groups, int chunks,
                  int microbatches, Ps latency) {
  const Ps times[] = {6, 6, 6, 6, 6, 6, 6, 6};
  TestCosts t;
  int ends[MOST_TEST_PIECES];
  Arena *arena = module_create()->arena;
  StagePlay play = play_of(arena, schedule, groups, chunks, microbatches);
  set_costs(&t, 8, times, 1);
  for (int g = 0; g < groups; g++) t.rates[g].latency = latency;
  cr_assert(stage_cuts(arena, &play, &t.costs, NULL, 1000, ends));
  return stage_play_step(arena, &play, &t.costs, ends);
}

/* Of 4 groups with 8 micro-batches; F = I = W = 12, or 6 in halves. */
Test(stage_search, steps_have_the_waits_of_their_schedules) {
  enum { F = 12, WORK = 8 * 3 * F };
  cr_expect_eq(step_of("1f1b", 4, 1, 8, 0), WORK + 9 * F);
  cr_expect_eq(step_of("fthenb", 4, 1, 8, 0), WORK + 9 * F);
  cr_expect_eq(step_of("interleaved", 4, 2, 8, 0), WORK + 9 * F / 2);
  cr_expect_eq(step_of("zbh1", 4, 1, 8, 0), WORK + 3 * F);
  cr_expect_eq(step_of("gpipe", 4, 1, 8, 0), WORK + 8 * F + 12 * F);
}

/* Many micro-batches are not all played. */
Test(stage_search, each_further_micro_batch_takes_its_time) {
  enum { F = 12 };
  cr_expect_eq(step_of("1f1b", 4, 1, 1024, 0) - step_of("1f1b", 4, 1, 512, 0),
               512 * 3 * F);
  cr_expect_eq(step_of("naive", 4, 1, 64, 0), 64 * 4 * 3 * F);
}

/* A group waits for each message of a micro-batch that goes through. */
Test(stage_search, messages_take_their_time) {
  cr_expect_eq(step_of("naive", 4, 1, 1, 5) - step_of("naive", 4, 1, 1, 0),
               2 * 3 * 5);
  cr_expect_gt(step_of("1f1b", 4, 1, 8, 5), step_of("1f1b", 4, 1, 8, 0));
}

/* Rank 0 of zbh2 receives before calls that run beside the message. */
Test(stage_search, messages_run_beside_calls_behind_their_receive) {
  Ps late = step_of("zbh1", 4, 1, 16, 3) - step_of("zbh1", 4, 1, 16, 0);
  Ps early = step_of("zbh2", 4, 1, 16, 3) - step_of("zbh2", 4, 1, 16, 0);
  cr_expect_lt(early, late, "%lld, %lld", (long long)early, (long long)late);
}

/* A message waits for the one before it: links, and not calls, are slowest. */
Test(stage_search, messages_follow_each_other) {
  enum { F = 12, SLOW = 10 * F };
  Ps few = step_of("zbv", 2, 2, 8, SLOW), many = step_of("zbv", 2, 2, 16, SLOW);
  cr_expect_geq(many - few, 8 * SLOW);
}

/* The stage that ends last sums its gradients when all calls are over. */
Test(stage_search, sums_follow_the_last_call) {
  const Ps times[] = {6, 6, 6, 6, 6, 6, 6, 6};
  Arena *arena = module_create()->arena;
  TestCosts t;
  set_costs(&t, 8, times, 0);
  static const int ends[] = {2, 4, 6, 8};
  StagePlay play = play_of(arena, "1f1b", 4, 1, 8);
  Ps before = stage_play_step(arena, &play, &t.costs, ends);
  for (int i = 1; i <= 8; i++) t.to[i].bulk = 50 * i;
  cr_expect_eq(stage_play_step(arena, &play, &t.costs, ends), before + 100);
}

/* ---- cuts ---- */

typedef struct Walk {
  const StagePlay *play;
  const StageCosts *costs;
  Bytes memory;
  const bool *is_pinned; /* by piece: a stage ends behind it */
  Ps best;               /* of the slowest stage */
} Walk;

static Ps stage_time(const StageCosts *costs, int first, int end) {
  StageCost cost = stage_cost(costs, first, end);
  return cost.forward + cost.input_grad + cost.weight_grad;
}

/* All cuts of the pieces from `first` on into stages from `stage` on. */
static void walk_cuts(Walk *w, int stage, int first, Ps slowest) {
  int n = w->costs->n, left = w->play->shape.stages - stage;
  if (left == 0 && first == n && slowest < w->best) w->best = slowest;
  for (int end = first + 1; left > 0 && end <= n; end++) {
    if (end > first + 1 && w->is_pinned[end - 2]) break;
    StageCost cost = stage_cost(w->costs, first, end);
    Ps time = stage_time(w->costs, first, end);
    if (cost.saved * w->play->frames[stage] <= w->memory)
      walk_cuts(w, stage + 1, end, time > slowest ? time : slowest);
  }
}

static void expect_best_cuts(Arena *arena, int seed) {
  Ps times[MOST_TEST_PIECES];
  TestCosts t;
  int ends[MOST_TEST_PIECES];
  uint64_t key = random_key((uint64_t)seed, "cuts");
  int n = 2 + (int)random_below(key, 0, MOST_TEST_PIECES - 1);
  int groups = 2 + (int)random_below(key, 1, (uint64_t)n - 1);
  for (int i = 0; i < n; i++) times[i] = (Ps)random_below(key, 2 + i, 20);
  set_costs(&t, n, times, (Bytes)random_below(key, 20, 3));
  StagePlay play = play_of(arena, "1f1b", groups, 1, 8);
  bool is_pinned[MOST_TEST_PIECES] = {false};
  for (int i = 0; i + 1 < n; i++)
    is_pinned[i] = seed % 2 == 1 && random_below(key, 30 + i, 5) == 0;
  Walk walk = {&play, &t.costs, 1 + (Bytes)random_below(key, 21, 12), is_pinned,
               INT64_MAX};
  walk_cuts(&walk, 0, 0, 0);
  bool is_cut =
      stage_cuts(arena, &play, &t.costs, is_pinned, walk.memory, ends);
  cr_assert_eq(is_cut, walk.best < INT64_MAX, "seed %d", seed);
  Ps slowest = 0;
  for (int s = 0; is_cut && s < groups; s++) {
    int first = s > 0 ? ends[s - 1] : 0;
    Ps time = stage_time(&t.costs, first, ends[s]);
    cr_assert_gt(ends[s], first, "seed %d", seed);
    for (int i = first; i + 1 < ends[s]; i++)
      cr_assert_not(is_pinned[i], "seed %d: no end behind %d", seed, i);
    if (time > slowest) slowest = time;
  }
  if (is_cut) {
    cr_assert_eq(ends[groups - 1], n, "seed %d", seed);
    cr_assert_leq(slowest, walk.best + walk.best / 1000 + 1, "seed %d", seed);
  }
}

Test(stage_search, cuts_are_the_best_of_all) {
  Arena *arena = module_create()->arena;
  for (int seed = 0; seed < 2000; seed++) expect_best_cuts(arena, seed);
}

Test(stage_search, stages_are_equal_where_they_can_be) {
  const Ps times[] = {9, 1, 1, 1, 1, 1, 1};
  TestCosts t;
  int ends[3];
  Arena *arena = module_create()->arena;
  StagePlay play = play_of(arena, "1f1b", 3, 1, 4);
  set_costs(&t, 7, times, 1);
  cr_assert(stage_cuts(arena, &play, &t.costs, NULL, 1000, ends));
  cr_expect_eq(ends[0], 1);
  cr_expect_eq(ends[1], 4);
  cr_expect_eq(ends[2], 7);
}

/* The first stage of 1f1b keeps the most micro-batches. */
Test(stage_search, memory_moves_cuts_forward) {
  const Ps times[] = {1, 1, 1, 1, 1, 1};
  TestCosts t;
  int ends[2];
  Arena *arena = module_create()->arena;
  StagePlay play = play_of(arena, "1f1b", 2, 1, 4);
  set_costs(&t, 6, times, 10);
  cr_assert(stage_cuts(arena, &play, &t.costs, NULL, 40, ends));
  cr_expect_eq(ends[0], 2);
  cr_expect_not(stage_cuts(arena, &play, &t.costs, NULL, 30, ends));
}
