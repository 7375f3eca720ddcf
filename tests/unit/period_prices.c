// links: price interp ir runtime support
/*
 * period_prices.c -- tests the price of stages with replicas that run batches
 * in turn, or the micro-batches of each batch: steps that follow from the work
 * of the fullest rank, and sums of gradients that all replicas of a stage come
 * to.
 */
#include "price/price_list.h"
#include "tests/unit/stage_graphs.h"

TestSuite(period_prices, .fini = modules_destroy);

/* A launch takes 1 us, and nothing else any time.  A forward pass has 1 of them
 * and `n_more`, a backward pass 3, an update 1. */
enum { LAUNCH = 1000000, BACKWARD = 3, UPDATE = 1 };

typedef struct PeriodCase {
  int n, replicas[4], more[4];
} PeriodCase;

static const Cluster *cluster_of_nodes(Arena *arena) {
  Level *level = ARENA_NEW(arena, Level);
  *level = (Level){.name = "node",
                   .count = 16,
                   .link = 1000000000000,
                   .links = 1,
                   .kind = LINK_switch,
                   .oversubscription = {1, 1}};
  ClusterGroup *group = ARENA_NEW(arena, ClusterGroup);
  *group = (ClusterGroup){.n_levels = 1, .levels = level};
  Cluster *cluster = ARENA_NEW(arena, Cluster);
  *cluster = (Cluster){.name = "one", .n_groups = 1, .groups = group};
  return cluster;
}

static CostModel model_of(Bytes transport, uint32_t without) {
  CostModel model = {.rates = {.is_gpu = true,
                               .units = 1,
                               .bandwidth = 1e18,
                               .memory_share = 1,
                               .sustained = 1,
                               .launch = LAUNCH,
                               .transport = (double)transport},
                     .transport = TRANSPORT_mpi,
                     .without = without};
  model.rates.flops[DT_f32] = 1e18;
  return model;
}

/* With m micro-batches under 2bw, where m is not 0, else under pipedream. */
static int make_programs(const PeriodCase *one, int m, StageChain *chain,
                         EntryPoint *entries) {
  int n_ranks = 0;
  *chain = (StageChain){.n = one->n,
                        .n_microbatches = m > 0 ? m : 1,
                        .has_versions = true,
                        .sums_replicas = true};
  for (int s = 0; s < one->n; s++) {
    chain->n_replicas[s] = one->replicas[s];
    chain->n_more[s] = one->more[s];
    chain->first_rank[s] = n_ranks;
    n_ranks += one->replicas[s];
  }
  stage_chain_make(chain);
  ProgramParts parts = stage_chain_parts(chain, m > 0 ? "2bw" : "pipedream");
  parts.has_versions = true;
  parts.has_two = m > 0;
  cr_assert(program_timeline(chain->module->arena, &parts, entries));
  return n_ranks;
}

static Price price_shared(const PeriodCase *one, int m, Bytes transport,
                          uint32_t without) {
  StageChain chain;
  EntryPoint entries[16];
  PriceProgram programs[16];
  int n = make_programs(one, m, &chain, entries);
  for (int r = 0; r < n; r++) programs[r] = (PriceProgram){&entries[r], {r, 1}};
  Arena *arena = chain.module->arena;
  ClusterSlice slice = cluster_slice(arena, cluster_of_nodes(arena), 0, n);
  CostModel model = model_of(transport, without);
  return price_programs(arena, programs, n, &model, &slice, NULL, NULL);
}

static Price price_case(const PeriodCase *one, Bytes transport,
                        uint32_t without) {
  return price_shared(one, 0, transport, without);
}

/* ---- steps ---- */

enum { FREE = 1u << COST_message | 1u << COST_all_reduce };

/* Launches of a rank of the stage for each batch of the pipeline, times their
 * number in a period. */
static int work_of(const PeriodCase *one, int stage, int n_batches) {
  int own = 1 + one->more[stage] + BACKWARD + UPDATE;
  return own * n_batches / one->replicas[stage];
}

/* The rank that works most never waits, and all others wait for it.  So it is
 * where the forward passes that PipeDream's rule runs ahead are enough. */
Test(period_prices, the_fullest_rank_has_no_idle_time) {
  static const struct {
    PeriodCase one;
    int n_batches;
  } cases[] = {
      {{2, {1, 1}, {0}}, 1},       {{3, {1, 1, 1}, {0}}, 1},
      {{2, {3, 1}, {10}}, 3}, /* 15 of 3 replicas, and 5 */
      {{2, {3, 1}, {4}}, 3},  /* 9 of 3 replicas, and 5 */
      {{2, {2, 1}, {5}}, 2},       {{2, {4, 1}, {15}}, 4},
      {{3, {2, 2, 1}, {5, 5}}, 2}, {{2, {2, 2}, {0}}, 2},
      {{2, {3, 1}, {0, 2}}, 3},
  };
  for (int i = 0; i < ARRAY_LENGTH(cases); i++) {
    const PeriodCase *one = &cases[i].one;
    Price price = price_case(one, 1000000000, FREE);
    int n_batches = cases[i].n_batches, most = 0, c = 0;
    cr_assert_eq(price.n_stuck, 0, "case %d", i);
    cr_expect_eq(price.n_batches, n_batches, "case %d", i);
    for (int s = 0; s < one->n; s++)
      if (work_of(one, s, n_batches) > most) most = work_of(one, s, n_batches);
    cr_expect_eq(price.step, (Ps)most * LAUNCH / n_batches, "case %d: %lld", i,
                 (long long)price.step);
    for (int s = 0; s < one->n; s++)
      for (int r = 0; r < one->replicas[s]; r++, c++) {
        const PriceClass *class = &price.classes[c];
        cr_expect_eq(class->compute,
                     (Ps)work_of(one, s, n_batches) * LAUNCH / n_batches,
                     "case %d, rank %d", i, c);
        Ps idle = price.step - class->compute - class->exposed;
        cr_expect(idle >= 0 && idle <= 1, "case %d, rank %d", i, c);
      }
    cr_expect_eq(c, price.n_classes);
    modules_destroy();
  }
}

/* A replica runs m / r micro-batches of a batch; each backward pass adds to the
 * sum, which one launch has cleared. */
static int shared_work(const PeriodCase *one, int stage, int m) {
  int own = 1 + one->more[stage] + BACKWARD + 1;
  return own * m / one->replicas[stage] + UPDATE + 1;
}

/* A step is at least the work of the fullest rank, and where forward passes
 * ahead hide the sums of others it is no more. */
Test(period_prices, replicas_share_out_micro_batches) {
  static const struct {
    PeriodCase one;
    int m;
  } cases[] = {
      {{2, {1, 1}, {0}}, 4},       {{3, {1, 1, 1}, {0}}, 6},
      {{2, {3, 1}, {14}}, 6},      {{2, {3, 1}, {4}}, 6},
      {{2, {2, 1}, {8}}, 4},       {{2, {1, 2}, {0, 1}}, 4},
      {{3, {2, 2, 1}, {8, 8}}, 8},
  };
  for (int i = 0; i < ARRAY_LENGTH(cases); i++) {
    const PeriodCase *one = &cases[i].one;
    int m = cases[i].m, most = 0, c = 0;
    Price price = price_shared(one, m, 1000000000, FREE);
    cr_assert_eq(price.n_stuck, 0, "case %d", i);
    cr_expect_eq(price.n_batches, 1, "case %d", i);
    for (int s = 0; s < one->n; s++)
      if (shared_work(one, s, m) > most) most = shared_work(one, s, m);
    cr_expect_eq(price.step, (Ps)most * LAUNCH, "case %d: %lld", i,
                 (long long)price.step);
    for (int s = 0; s < one->n; s++)
      for (int r = 0; r < one->replicas[s]; r++, c++)
        cr_expect_eq(price.classes[c].compute,
                     (Ps)shared_work(one, s, m) * LAUNCH,
                     "case %d, rank %d: %lld", i, c,
                     (long long)price.classes[c].compute);
    modules_destroy();
  }
}

/* Replicas of the fuller stage make steps shorter, until the other stage is the
 * fuller one. */
Test(period_prices, more_replicas_are_faster) {
  Ps before = 0;
  for (int r = 1; r <= 4; r++) {
    Ps step = price_case(&(PeriodCase){2, {r, 1}, {10}}, 1000000000, FREE).step;
    cr_expect(r == 1 || (r <= 3 ? step < before : step == before),
              "%d replicas: %lld", r, (long long)step);
    before = step;
    modules_destroy();
  }
}

/* ---- sums ---- */

/* The sum of 16 bytes over r ranks is one transfer for all of them, which no
 * rank begins before all have come: a period takes so much longer. */
Test(period_prices, replicas_wait_for_the_sum_of_their_gradients) {
  static const PeriodCase cases[] = {{2, {2, 1}, {10}}, {2, {3, 1}, {20}}};
  for (int i = 0; i < ARRAY_LENGTH(cases); i++) {
    const PeriodCase *one = &cases[i];
    Price free = price_case(one, 1000000, FREE);
    Price sums = price_case(one, 1000000, 1u << COST_message);
    int r = one->replicas[0];
    Ps longer = (sums.step - free.step) * r;
    /* A ring has 2 (r - 1) turns with a part of the 4 floats, at 1 byte a us.
     */
    Ps ring = (Ps)2 * (r - 1) * ((4 + r - 1) / r) * 4 * LAUNCH;
    cr_expect(longer >= ring && longer < ring + ring / 10,
              "%d replicas: a period takes %lld longer, a ring %lld", r,
              (long long)longer, (long long)ring);
    cr_expect_eq(sums.classes[0].parts[COST_all_reduce],
                 sums.classes[r - 1].parts[COST_all_reduce]);
    modules_destroy();
  }
}
