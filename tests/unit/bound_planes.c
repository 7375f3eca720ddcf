// links: price ir support
/*
 * bound_planes.c -- compares the best weights of a bound with random ones.
 */
#include "price/units/bound_planes.h"
#include "tests/unit/values.h"

TestSuite(bound_planes, .fini = modules_destroy);

enum { MOST_TEST_PLANES = 12, MEMORY = 1000, N_OTHERS = 400 };

typedef struct Weighted {
  double of[N_BOUND_EXTREMES], per_byte;
} Weighted;

/* The least mean of all assignments, with bytes beyond memory at their price.
 */
static double least_mean(const BoundPlanes *planes, const Weighted *w) {
  double least = INFINITY;
  for (int i = 0; i < planes->list.n; i++) {
    const BoundLoads *loads = &planes->list.data[i];
    double sum = w->per_byte * (loads->bytes - MEMORY);
    for (int e = 0; e < N_BOUND_EXTREMES; e++) sum += w->of[e] * loads->of[e];
    if (sum < least) least = sum;
  }
  return least;
}

static BoundPlanes random_planes(Arena *arena, const BoundSetting *setting,
                                 uint64_t key) {
  BoundPlanes out = {.setting = setting, .memory = MEMORY};
  int at = 0, n = 1 + (int)random_below(key, at++, MOST_TEST_PLANES);
  for (int i = 0; i < n; i++) {
    BoundLoads loads;
    for (int e = 0; e < N_BOUND_EXTREMES; e++) {
      double load = (double)random_below(key, at++, 1000);
      loads.of[e] = 1 + (random_below(key, at++, 3) == 0 ? 100 * load : load);
    }
    loads.bytes = 500 + (double)random_below(key, at++, 1000);
    vec_push(arena, &out.list, loads);
  }
  return out;
}

static bool suits(const BoundSetting *setting, int extreme) {
  BoundWeights w = {.split = -1};
  bound_set_extreme(&w, extreme);
  return bound_weights_suit(&w, setting->groups);
}

static Weighted random_weights(const BoundSetting *setting, uint64_t key,
                               int number, double per_byte) {
  Weighted out = {.per_byte = 0};
  int at = number * 20;
  double sum = 0;
  for (int e = 0; e < N_BOUND_EXTREMES; e++) {
    double share = 1 + (double)random_below(key, at++, 100);
    if (suits(setting, e) && random_below(key, at++, 2)) out.of[e] = share;
    sum += out.of[e];
  }
  if (sum <= 0) out.of[0] = sum = 1;
  for (int e = 0; e < N_BOUND_EXTREMES; e++) out.of[e] /= sum;
  out.per_byte = per_byte * (double)random_below(key, at++, 100) / 50;
  return out;
}

/* A mean by the sums of weights, as those who ask for an answer have them. */
static double mean_by_parts(const BoundLoads *loads, const BoundWeights *w) {
  const int *of = w->of;
  double forward = of[BOUND_forward_stream] + of[BOUND_forward_link];
  double sum = of[BOUND_all_link] * loads->of[N_BOUND_EXTREMES - 1];
  /* Loads of a pass alone, where each extreme is the sum of two. */
  for (int e = 0; e < N_BOUND_EXTREMES - 1; e++)
    sum += (double)of[bound_extremes[e][0]] * of[bound_extremes[e][1]] /
           (forward > 0 ? forward : 1) * loads->of[e];
  return sum / BOUND_ONE;
}

/* Makes each extreme the sum of a load of either pass. */
static void make_sums(BoundPlanes *planes, uint64_t key) {
  for (int i = 0; i < planes->list.n; i++) {
    double of[N_BOUND_WEIGHTS];
    for (int k = 0; k < N_BOUND_WEIGHTS; k++)
      of[k] = 1 + (double)random_below(key, 900 + i * 10 + k, 1000);
    for (int e = 0; e < N_BOUND_EXTREMES - 1; e++)
      planes->list.data[i].of[e] =
          of[bound_extremes[e][0]] + of[bound_extremes[e][1]];
    planes->list.data[i].of[N_BOUND_EXTREMES - 1] = of[BOUND_all_link];
  }
}

Test(bound_planes, no_weights_are_better) {
  static const Mesh mesh = {0};
  Arena *arena = module_create()->arena;
  for (uint64_t seed = 0; seed < 300; seed++) {
    uint64_t key = random_key(seed, "planes");
    BoundSetting setting = {.mesh = &mesh, .groups = seed % 3 == 0 ? 2 : 1};
    BoundPlanes planes = random_planes(arena, &setting, key);
    BoundWeights best = {.split = -1};
    double most = bound_planes_best(arena, &planes, &best);
    for (int i = 0; i < N_OTHERS && most < INFINITY; i++) {
      Weighted w =
          random_weights(&setting, key, 50 + i, i % 2 ? best.per_byte : 0);
      cr_assert(least_mean(&planes, &w) <= most * (1 + 1e-9),
                "seed %d: weights %d give more than %g", (int)seed, i, most);
    }
    cr_assert(bound_weights_suit(&best, setting.groups));
  }
}

Test(bound_planes, the_weights_give_it) {
  static const Mesh mesh = {0};
  Arena *arena = module_create()->arena;
  int n_mixed = 0;
  for (uint64_t seed = 0; seed < 300; seed++) {
    uint64_t key = random_key(seed, "sums");
    BoundSetting setting = {.mesh = &mesh, .groups = 1};
    BoundPlanes planes = random_planes(arena, &setting, key);
    BoundWeights best = {.split = -1};
    make_sums(&planes, key);
    double most = bound_planes_best(arena, &planes, &best), least = INFINITY;
    int all = best.of[BOUND_all_link] + best.of[BOUND_forward_stream] +
              best.of[BOUND_forward_link];
    cr_assert_eq(all, BOUND_ONE);
    for (int i = 0; i < planes.list.n; i++) {
      const BoundLoads *loads = &planes.list.data[i];
      double mean =
          mean_by_parts(loads, &best) + best.per_byte * (loads->bytes - MEMORY);
      if (mean < least) least = mean;
    }
    /* Memory that no assignment fits into has no price here. */
    if (most < INFINITY)
      cr_assert(least >= most - 20 && least <= most + 20, "seed %d: %g, not %g",
                (int)seed, least, most);
    n_mixed += best.of[BOUND_forward_stream] > 0 &&
               best.of[BOUND_forward_stream] < BOUND_ONE;
  }
  cr_assert(n_mixed > 100, "%d mixed", n_mixed);
}
