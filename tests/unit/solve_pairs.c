// links: planner ir support
/*
 * solve_pairs.c -- compares the general engine with the elimination of
 * variables, and checks which of them a problem goes to.
 */
#include "planner/solve/solve_pairs.h"
#include "tests/unit/values.h"

TestSuite(solve_pairs, .fini = modules_destroy);

enum { SIDE = 6, MOST_VARS = SIDE * SIDE, MOST_PAIRS = 2 * MOST_VARS };

typedef struct Case {
  Arena *arena;
  uint64_t key, draw;
  int64_t most; /* cost, but for those that cannot be */
  int n, n_pairs;
  int n_values[MOST_VARS];
  const int64_t *costs[MOST_VARS];
  PairCosts pairs[MOST_PAIRS];
} Case;

static int below(Case *c, int n) {
  return (int)random_below(c->key, c->draw++, (uint64_t)n);
}

/* One cost of `forbids` cannot be; 0: all can. */
static const int64_t *random_costs(Case *c, int n, int forbids) {
  int64_t *costs = ARENA_ARRAY(c->arena, int64_t, n);
  for (int i = 0; i < n; i++)
    costs[i] =
        forbids && below(c, forbids) == 0
            ? ELIMINATE_MOST
            : (int64_t)random_below(c->key, c->draw++, (uint64_t)c->most);
  return costs;
}

static void add_pair(Case *c, int a, int b) {
  c->pairs[c->n_pairs++] =
      (PairCosts){a, b, random_costs(c, c->n_values[a] * c->n_values[b], 12)};
}

static Case make_case(Module *module, uint64_t seed, int n, int n_values,
                      int64_t most) {
  Case c = {.arena = module->arena,
            .key = random_key(seed, "pairs"),
            .n = n,
            .most = most};
  for (int i = 0; i < n; i++) {
    c.n_values[i] = n_values > 4 ? n_values : 1 + below(&c, n_values);
    c.costs[i] = random_costs(&c, c.n_values[i], 0);
  }
  return c;
}

static PairProblem problem_of(const Case *c) {
  return (PairProblem){c->n, c->n_values, c->costs, c->n_pairs, c->pairs};
}

/* Elimination needs a table of SIDE variables. */
static void make_grid(Case *c) {
  for (int i = 0; i < MOST_VARS; i++) {
    if (i % SIDE < SIDE - 1) add_pair(c, i, i + 1);
    if (i + SIDE < MOST_VARS) add_pair(c, i, i + SIDE);
  }
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

/* Values within a thousandth, a bound that is none too high. */
static void check(const Case *c, uint64_t seed) {
  int exact[MOST_VARS], values[MOST_VARS];
  int64_t bound;
  PairProblem problem = problem_of(c);
  int64_t least = eliminate(c->arena, &problem, 1 << 20, exact);
  bool is_solved = solve_by_engine(c->arena, &problem, values, &bound);
  cr_assert_geq(least, 0);
  if (least >= ELIMINATE_MOST) {
    cr_expect(!is_solved, "seed %d has no values", (int)seed);
    return;
  }
  cr_assert(is_solved, "seed %d", (int)seed);
  int64_t sum = sum_of(c, values);
  cr_expect_geq(sum, least, "seed %d", (int)seed);
  cr_expect_leq(sum - least, least / 999, "seed %d", (int)seed);
  cr_expect_leq(bound, least, "bound of seed %d", (int)seed);
}

Test(solve_pairs, engine_finds_what_elimination_finds) {
  for (uint64_t seed = 0; seed < 300; seed++) {
    Module *module = module_create();
    Case c = make_case(module, seed, 7, 4, 100000);
    for (int i = below(&c, 16); i > 0; i--) {
      int a = below(&c, c.n), b = below(&c, c.n);
      if (a != b) add_pair(&c, a, b);
    }
    check(&c, seed);
  }
}

/* A shape knows values by the costs that they were found for. */
Test(solve_pairs, one_shape_with_other_costs) {
  PairSolver engine = {.engine_alone = true};
  PairShape shape = {0};
  Module *module = module_create();
  for (int i = 0; i < 20; i++) {
    Case c = make_case(module, (uint64_t)i, 8, 5, 100000);
    int values[MOST_VARS];
    for (int k = 0; k + 1 < c.n; k++) add_pair(&c, k, k + 1);
    PairProblem problem = problem_of(&c);
    int64_t least = eliminate(c.arena, &problem, 1 << 20, values);
    cr_assert(solve_pairs(module->arena, &engine, &shape, &problem, values));
    cr_expect_leq(sum_of(&c, values) - least, least / 999, "costs %d", i);
  }
}

/* Costs whose sum would overflow are divided first. */
Test(solve_pairs, engine_takes_large_costs) {
  for (uint64_t seed = 0; seed < 30; seed++) {
    Module *module = module_create();
    Case c = make_case(module, seed, 7, 4, ELIMINATE_MOST / 16);
    for (int i = 0; i + 1 < c.n; i++) add_pair(&c, i, i + 1);
    check(&c, seed);
  }
}

Test(solve_pairs, engine_takes_what_is_too_wide) {
  PairSolver both = {0}, engine = {.engine_alone = true};
  for (uint64_t seed = 0; seed < 5; seed++) {
    Module *module = module_create();
    Case c = make_case(module, seed, MOST_VARS, 5, 100000);
    int values[MOST_VARS], again[MOST_VARS];
    PairShape grid = {0}, chain = {0}, alone = {0};
    make_grid(&c);
    PairProblem problem = problem_of(&c);
    check(&c, seed);
    cr_expect_eq(eliminate(c.arena, &problem, 1 << 12, values), -1);
    cr_expect(solve_pairs(c.arena, &both, &grid, &problem, values));
    cr_expect(solve_pairs(c.arena, &both, &grid, &problem, again));
    cr_expect_eq(memcmp(values, again, sizeof values), 0);
    problem.n_pairs = SIDE;
    cr_expect(solve_pairs(c.arena, &both, &chain, &problem, values));
    cr_expect(solve_pairs(c.arena, &engine, &alone, &problem, again));
    c.n_pairs = SIDE;
    cr_expect_leq(sum_of(&c, again) - sum_of(&c, values),
                  sum_of(&c, values) / 999);
  }
  cr_expect_eq(both.n_solved[SOLVED_by_elimination], 5);
  cr_expect_eq(both.n_solved[SOLVED_by_engine], 10);
  cr_expect_eq(engine.n_solved[SOLVED_by_elimination], 0);
  cr_expect_eq(engine.n_solved[SOLVED_by_engine], 5);
}
