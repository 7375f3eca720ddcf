// links: planner ir support
/*
 * eliminate.c -- compares the elimination of variables with a walk over all
 * values, on random problems, some of which repeat equal blocks.
 */
#include "planner/solve/eliminate.h"
#include "tests/unit/values.h"

TestSuite(eliminate, .fini = modules_destroy);

enum { MOST_VARS = 9, MOST_PAIRS = 40 };

typedef struct Case {
  Arena *arena;
  uint64_t key, draw;
  int n, n_pairs;
  int n_values[MOST_VARS];
  const int64_t *costs[MOST_VARS];
  PairCosts pairs[MOST_PAIRS];
} Case;

static int below(Case *c, int n) {
  return (int)random_below(c->key, c->draw++, (uint64_t)n);
}

static const int64_t *random_costs(Case *c, int n) {
  int64_t *costs = ARENA_ARRAY(c->arena, int64_t, n);
  for (int i = 0; i < n; i++) costs[i] = below(c, 50);
  return costs;
}

static void add_pair(Case *c, int a, int b, const int64_t *costs) {
  if (a == b || c->n_pairs == MOST_PAIRS) return;
  c->pairs[c->n_pairs++] = (PairCosts){a, b, costs};
}

static void make_random(Case *c) {
  c->n = 1 + below(c, 7);
  for (int i = 0; i < c->n; i++) {
    c->n_values[i] = 1 + below(c, 3);
    c->costs[i] = random_costs(c, c->n_values[i]);
  }
  for (int i = below(c, 10); i > 0; i--) {
    int a = below(c, c->n), b = below(c, c->n);
    add_pair(c, a, b, random_costs(c, c->n_values[a] * c->n_values[b]));
  }
}

/* Blocks of three variables, joined by two edges each. */
static void make_blocks(Case *c) {
  int size[3];
  const int64_t *costs[3], *pairs[5];
  for (int i = 0; i < 3; i++) {
    size[i] = 1 + below(c, 3);
    costs[i] = random_costs(c, size[i]);
  }
  static const int ends[5][2] = {{0, 1}, {1, 2}, {2, 0}, {2, 3}, {3, 1}};
  for (int i = 0; i < 5; i++)
    pairs[i] = random_costs(c, size[ends[i][0] % 3] * size[ends[i][1] % 3]);
  c->n = MOST_VARS;
  for (int i = 0; i < c->n; i++) {
    c->n_values[i] = size[i % 3];
    c->costs[i] = costs[i % 3];
  }
  for (int block = 0; block < c->n; block += 3)
    for (int i = 0; i < 5; i++)
      if (block + ends[i][0] < c->n && block + ends[i][1] < c->n)
        add_pair(c, block + ends[i][0], block + ends[i][1], pairs[i]);
}

static int64_t sum_of(const Case *c, const int *values) {
  int64_t sum = 0;
  for (int i = 0; i < c->n; i++) sum += c->costs[i][values[i]];
  for (int i = 0; i < c->n_pairs; i++) {
    const PairCosts *p = &c->pairs[i];
    sum += p->costs[values[p->a] * c->n_values[p->b] + values[p->b]];
  }
  return sum;
}

static int64_t least_of_all(const Case *c) {
  int values[MOST_VARS] = {0};
  int64_t least = INT64_MAX;
  for (int at = 0; at < c->n;) {
    int64_t sum = sum_of(c, values);
    if (sum < least) least = sum;
    for (at = 0; at < c->n && ++values[at] == c->n_values[at]; at++)
      values[at] = 0;
  }
  return least;
}

static void check(uint64_t seed, void (*make)(Case *)) {
  Module *module = module_create();
  Case c = {.arena = module->arena, .key = random_key(seed, "eliminate")};
  int values[MOST_VARS];
  make(&c);
  PairProblem problem = {c.n, c.n_values, c.costs, c.n_pairs, c.pairs};
  int64_t found = eliminate(module->arena, &problem, 1 << 20, values);
  cr_expect_eq(found, least_of_all(&c), "seed %d", (int)seed);
  cr_expect_eq(sum_of(&c, values), found, "values of seed %d", (int)seed);
}

Test(eliminate, random_problems) {
  for (uint64_t seed = 0; seed < 300; seed++) check(seed, make_random);
}

Test(eliminate, repeated_blocks) {
  for (uint64_t seed = 0; seed < 100; seed++) check(seed, make_blocks);
}

Test(eliminate, tables_that_are_too_large) {
  Module *module = module_create();
  Case c = {.arena = module->arena, .key = 1};
  int values[MOST_VARS];
  make_blocks(&c);
  for (int i = 0; i < c.n; i++) c.n_values[i] = 1;
  PairProblem problem = {c.n, c.n_values, c.costs, c.n_pairs, c.pairs};
  cr_expect_geq(eliminate(module->arena, &problem, 1, values), 0);
  static const int64_t costs[4];
  int n_values[3] = {2, 2, 2};
  const int64_t *own[3] = {costs, costs, costs};
  PairCosts pairs[3] = {{0, 1, costs}, {1, 2, costs}, {2, 0, costs}};
  PairProblem circle = {3, n_values, own, 3, pairs};
  cr_expect_eq(eliminate(module->arena, &circle, 3, values), -1);
  cr_expect_eq(eliminate(module->arena, &circle, 4, values), 0);
}

/* Small tables make it lower, never higher; the values are always some. */
Test(eliminate, what_is_below_is_never_above) {
  int n_lower = 0;
  for (uint64_t seed = 0; seed < 300; seed++) {
    Module *module = module_create();
    Case c = {.arena = module->arena, .key = random_key(seed, "eliminate")};
    int values[MOST_VARS];
    make_random(&c);
    PairProblem problem = {c.n, c.n_values, c.costs, c.n_pairs, c.pairs};
    int64_t least = least_of_all(&c);
    for (int64_t most = 1; most <= 81; most *= 3) {
      int64_t below = eliminate_below(module->arena, &problem, most, values);
      cr_expect_leq(below, least, "seed %d, %d entries", (int)seed, (int)most);
      cr_expect_geq(sum_of(&c, values), least);
      if (eliminate(module->arena, &problem, most, values) >= 0)
        cr_expect_eq(below, least, "seed %d, all tables fit", (int)seed);
      n_lower += below < least;
    }
  }
  cr_expect_gt(n_lower, 0);
}
