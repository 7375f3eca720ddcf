// links: planner support
/*
 * factor.c -- compares the general engine with a walk over all values, on small
 * random problems: a third of them has no values that are allowed.
 */
#include "planner/factor/factor.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>

#include "support/random.h"

enum { MOST_VARIABLES = 7, MOST_VALUES = 4, MOST_PAIRS = 24, MOST_USAGES = 14 };
enum { N_TIMES = 12, N_CASES = 1000 };
#define NONE INT64_MAX /* the cost of what is forbidden */

typedef struct Usage {
  int variable, begin, end;
  int64_t of[MOST_VALUES];
} Usage;

typedef struct Case {
  uint64_t key, draw;
  int n, n_pairs, n_usages;
  int n_values[MOST_VARIABLES];
  FactorCost costs[MOST_VARIABLES][MOST_VALUES];
  int pairs[MOST_PAIRS][2];
  FactorCost pair_costs[MOST_PAIRS][MOST_VALUES * MOST_VALUES];
  Usage usages[MOST_USAGES];
  int64_t limit;
} Case;

/* The least cost of all values within the limit, and the least peak. */
typedef struct Walk {
  FactorCost cost; /* NONE: none */
  int64_t peak;    /* INT64_MAX: none */
} Walk;

static _Noreturn void no_memory(void *user) {
  (void)user;
  abort();
}

static int draw(Case *c, int n) {
  return (int)random_below(c->key, c->draw++, (uint64_t)n);
}

static FactorCost draw_cost(Case *c, int forbidden_percent) {
  if (draw(c, 100) < forbidden_percent) return FACTOR_FORBIDDEN + draw(c, 2);
  return draw(c, 3) ? draw(c, 30) : 0;
}

static void draw_usage(Case *c, Usage *usage) {
  usage->variable = draw(c, c->n);
  usage->begin = draw(c, N_TIMES);
  usage->end = usage->begin + draw(c, N_TIMES - usage->begin + 1);
  for (int v = 0; v < MOST_VALUES; v++) usage->of[v] = draw(c, 9);
}

static void draw_case(Case *c, uint64_t seed) {
  *c = (Case){.key = random_key(seed, "factor"), .limit = INT64_MAX};
  c->n = 1 + draw(c, MOST_VARIABLES);
  for (int i = 0; i < c->n; i++) {
    c->n_values[i] = 1 + draw(c, MOST_VALUES);
    for (int v = 0; v < c->n_values[i]; v++) c->costs[i][v] = draw_cost(c, 3);
  }
  c->n_pairs = c->n > 1 ? draw(c, MOST_PAIRS + 1) : 0;
  int forbidden = draw(c, 4) * 8;
  for (int k = 0; k < c->n_pairs; k++) {
    c->pairs[k][0] = draw(c, c->n);
    c->pairs[k][1] = (c->pairs[k][0] + 1 + draw(c, c->n - 1)) % c->n;
    for (int i = 0; i < MOST_VALUES * MOST_VALUES; i++)
      c->pair_costs[k][i] = draw_cost(c, forbidden);
  }
  c->n_usages = draw(c, MOST_USAGES + 1);
  for (int k = 0; k < c->n_usages; k++) draw_usage(c, &c->usages[k]);
}

static FactorCost cost_of(const Case *c, const int *values) {
  FactorCost sum = 0;
  for (int i = 0; i < c->n; i++) {
    if (c->costs[i][values[i]] >= FACTOR_FORBIDDEN) return NONE;
    sum += c->costs[i][values[i]];
  }
  for (int k = 0; k < c->n_pairs; k++) {
    int a = c->pairs[k][0], b = c->pairs[k][1];
    FactorCost cost = c->pair_costs[k][values[a] * c->n_values[b] + values[b]];
    if (cost >= FACTOR_FORBIDDEN) return NONE;
    sum += cost;
  }
  return sum;
}

static int64_t peak_of(const Case *c, const int *values) {
  int64_t peak = 0;
  for (int time = 0; time < N_TIMES; time++) {
    int64_t sum = 0;
    for (int k = 0; k < c->n_usages; k++)
      if (c->usages[k].begin <= time && time < c->usages[k].end)
        sum += c->usages[k].of[values[c->usages[k].variable]];
    peak = sum > peak ? sum : peak;
  }
  return peak;
}

static Walk walk(const Case *c) {
  Walk found = {NONE, INT64_MAX};
  int values[MOST_VARIABLES] = {0}, at = 0;
  while (at < c->n) {
    FactorCost cost = cost_of(c, values);
    int64_t peak = peak_of(c, values);
    if (cost < NONE && peak < found.peak) found.peak = peak;
    if (peak <= c->limit && cost < found.cost) found.cost = cost;
    for (at = 0; at < c->n && ++values[at] == c->n_values[at]; at++)
      values[at] = 0;
  }
  return found;
}

/* Sets a limit that a third of the cases cannot keep to. */
static void draw_limit(Case *c, uint64_t seed) {
  Walk all = walk(c);
  if (all.peak == INT64_MAX)
    c->limit = 20;
  else if (seed % 4 == 0 && all.peak > 0)
    c->limit = all.peak - 1;
  else
    c->limit = all.peak + draw(c, 8);
}

static FactorProblem *make_problem(Arena *arena, const Case *c) {
  FactorProblem *problem = factor_create(arena);
  for (int i = 0; i < c->n; i++)
    factor_add_variable(problem, c->n_values[i], c->costs[i]);
  for (int k = 0; k < c->n_pairs; k++)
    factor_add_pair(problem, c->pairs[k][0], c->pairs[k][1], c->pair_costs[k]);
  for (int k = 0; k < c->n_usages; k++)
    factor_add_usage(problem, c->usages[k].variable, c->usages[k].begin,
                     c->usages[k].end, c->usages[k].of);
  factor_limit(problem, c->limit);
  return problem;
}

/* Returns whether the result is right. */
static bool check(const Case *c, const FactorResult *result, const Walk *all,
                  const FactorProblem *problem) {
  if (result->outcome == FACTOR_none) return all->cost == NONE;
  if (all->cost < NONE && result->bound > all->cost) return false;
  if (!result->values) return result->outcome == FACTOR_unknown;
  if (cost_of(c, result->values) != result->cost ||
      peak_of(c, result->values) > c->limit)
    return false;
  if (factor_cost(problem, result->values) != result->cost ||
      factor_peak(problem, result->values) != peak_of(c, result->values))
    return false;
  return result->outcome == FACTOR_proved ? result->cost == all->cost
                                          : result->cost >= all->cost;
}

/* Solves all cases; counts those that are decided, and those without values. */
static void solve_all(const FactorBudget *budget, int n_cases, int *out_decided,
                      int *out_none) {
  *out_decided = *out_none = 0;
  for (int seed = 0; seed < n_cases; seed++) {
    Memory *memory = memory_create(no_memory, NULL);
    Arena *arena = arena_create(memory);
    Case *c = ARENA_NEW(arena, Case);
    draw_case(c, (uint64_t)seed);
    draw_limit(c, (uint64_t)seed);
    Walk all = walk(c);
    FactorProblem *problem = make_problem(arena, c);
    FactorResult result = factor_solve(arena, problem, budget);
    cr_assert(check(c, &result, &all, problem),
              "seed %d: outcome %d, cost %lld, bound %lld, least cost %lld",
              seed, result.outcome, (long long)result.cost,
              (long long)result.bound, (long long)all.cost);
    *out_decided +=
        result.outcome == FACTOR_proved || result.outcome == FACTOR_none;
    *out_none += result.outcome == FACTOR_none;
    memory_destroy(memory);
  }
}

Test(factor, random_problems) {
  FactorBudget budget = {.nodes = 20000};
  int n_decided, n_none;
  solve_all(&budget, N_CASES, &n_decided, &n_none);
  cr_expect_eq(n_decided, N_CASES, "%d are decided", n_decided);
  cr_expect(n_none > N_CASES / 3 && n_none < N_CASES / 2, "%d have none",
            n_none);
}

/* Whatever is left out, costs and bounds are right. */
Test(factor, without_parts) {
  for (int part = 0; part < N_FACTOR_PARTS; part++) {
    FactorBudget budget = {.nodes = 300};
    int n_decided, n_none;
    budget.without[part] = true;
    solve_all(&budget, 150, &n_decided, &n_none);
  }
  FactorBudget budget = {.nodes = 300};
  int n_decided, n_none;
  for (int part = 0; part < N_FACTOR_PARTS; part++)
    budget.without[part] = part != FACTOR_messages &&
                           part != FACTOR_branching &&
                           part != FACTOR_multipliers;
  solve_all(&budget, 300, &n_decided, &n_none);
  cr_expect(n_decided > 150, "%d are decided", n_decided);
}

/* A budget of nodes gives the same values each time; more is never worse. */
Test(factor, same_values) {
  Memory *memory = memory_create(no_memory, NULL);
  Arena *arena = arena_create(memory);
  Case *c = ARENA_NEW(arena, Case);
  draw_case(c, 77);
  c->limit = 20;
  FactorCost before = FACTOR_FORBIDDEN;
  for (int nodes = 1; nodes < 200; nodes *= 3) {
    FactorBudget budget = {.nodes = nodes};
    FactorProblem *problem = make_problem(arena, c);
    FactorResult a = factor_solve(arena, problem, &budget);
    FactorResult b = factor_solve(arena, problem, &budget);
    cr_expect_eq(a.cost, b.cost);
    cr_expect_eq(a.bound, b.bound);
    cr_expect_eq(a.nodes, b.nodes);
    cr_expect(a.cost <= before);
    before = a.cost;
  }
  memory_destroy(memory);
}

/* ---- threads ---- */

typedef struct Item {
  void (*work)(void *of, int i);
  void *of;
  int i;
} Item;

static void *do_item(void *user) {
  Item *item = user;
  item->work(item->of, item->i);
  return NULL;
}

/* Gives each item a thread of its own. */
static void on_threads(void *user, int n, void (*work)(void *of, int i),
                       void *of) {
  enum { MOST_ITEMS = 8 };
  pthread_t threads[MOST_ITEMS];
  Item items[MOST_ITEMS];
  cr_assert(n <= MOST_ITEMS);
  for (int i = 0; i < n; i++) {
    items[i] = (Item){work, of, i};
    cr_assert_eq(pthread_create(&threads[i], NULL, do_item, &items[i]), 0);
  }
  for (int i = 0; i < n; i++) pthread_join(threads[i], NULL);
  ++*(int *)user;
}

/* The last item first. */
static void backwards(void *user, int n, void (*work)(void *of, int i),
                      void *of) {
  for (int i = n - 1; i >= 0; i--) work(of, i);
  ++*(int *)user;
}

/* Makes a problem that few nodes leave open: many pairs, little memory. */
static FactorProblem *make_open(Arena *arena, uint64_t seed) {
  enum { N = 24, N_OPEN_PAIRS = 90 };
  FactorProblem *problem = factor_create(arena);
  Case *c = ARENA_NEW(arena, Case);
  c->key = random_key(seed, "open");
  for (int i = 0; i < N; i++) {
    FactorCost *costs = ARENA_ARRAY(arena, FactorCost, MOST_VALUES);
    int64_t *usages = ARENA_ARRAY(arena, int64_t, MOST_VALUES);
    for (int v = 0; v < MOST_VALUES; v++) {
      costs[v] = draw(c, 300);
      usages[v] = draw(c, 50);
    }
    factor_add_variable(problem, MOST_VALUES, costs);
    int begin = draw(c, N_TIMES);
    factor_add_usage(problem, i, begin, begin + 1 + draw(c, N_TIMES), usages);
  }
  for (int k = 0; k < N_OPEN_PAIRS; k++) {
    int a = draw(c, N), b = (a + 1 + draw(c, N - 1)) % N;
    FactorCost *costs =
        ARENA_ARRAY(arena, FactorCost, MOST_VALUES * MOST_VALUES);
    for (int i = 0; i < MOST_VALUES * MOST_VALUES; i++)
      costs[i] = draw_cost(c, 5) * 10;
    factor_add_pair(problem, a, b, costs);
  }
  factor_limit(problem, 150 + 10 * draw(c, 15));
  return problem;
}

static void expect_equal(Arena *arena, const FactorResult *a,
                         const FactorResult *b, int n) {
  cr_expect_eq(a->outcome, b->outcome);
  cr_expect_eq(a->cost, b->cost);
  cr_expect_eq(a->bound, b->bound);
  cr_expect_eq(a->nodes, b->nodes);
  cr_assert_eq(!a->values, !b->values);
  for (int i = 0; a->values && i < n; i++)
    cr_expect_eq(a->values[i], b->values[i]);
  cr_assert_eq(!a->duals, !b->duals);
  if (!a->duals) return;
  Text texts[2] = {text_create(arena), text_create(arena)};
  factor_duals_print(&texts[0], a->duals);
  factor_duals_print(&texts[1], b->duals);
  cr_expect_str_eq(text_string(&texts[0]), text_string(&texts[1]));
}

/* Threads and the order of items change nothing. */
Test(factor, same_on_threads) {
  int n_rounds = 0, n_open = 0;
  for (int seed = 0; seed < 16; seed++) {
    Memory *memory = memory_create(no_memory, NULL);
    Arena *arena = arena_create(memory);
    FactorProblem *problem = make_open(arena, (uint64_t)seed);
    FactorBudget budget = {.nodes = 100 + 20 * seed, .user = &n_rounds};
    budget.without[FACTOR_unpriced] = true; /* so that lanes begin at once */
    budget.has_duals = seed % 4 == 0;
    FactorResult alone = factor_solve(arena, problem, &budget);
    cr_expect(alone.nodes <= budget.nodes);
    cr_expect(!alone.values ||
              factor_cost(problem, alone.values) == alone.cost);
    budget.side_by_side = on_threads;
    FactorResult threads = factor_solve(arena, problem, &budget);
    budget.side_by_side = backwards;
    FactorResult turned = factor_solve(arena, problem, &budget);
    expect_equal(arena, &alone, &threads, factor_n_variables(problem));
    expect_equal(arena, &alone, &turned, factor_n_variables(problem));
    n_open += alone.outcome == FACTOR_found;
    memory_destroy(memory);
  }
  cr_expect(n_rounds > 60 && n_open > 5, "%d rounds, %d open", n_rounds,
            n_open);
}

/* Solves one variable with these costs, n times in one problem. */
static FactorResult solve_copies(Arena *arena, const FactorCost costs[2],
                                 int n) {
  FactorProblem *problem = factor_create(arena);
  for (int i = 0; i < n; i++) factor_add_variable(problem, 2, costs);
  FactorBudget budget = {.nodes = 10};
  FactorResult result = factor_solve(arena, problem, &budget);
  cr_assert_not_null(result.values);
  cr_expect_eq(factor_cost(problem, result.values), result.cost);
  return result;
}

/* Sums that do not fit saturate; those that do are right to the last digit. */
Test(factor, large_sums) {
  Memory *memory = memory_create(no_memory, NULL);
  Arena *arena = arena_create(memory);
  FactorCost costs[2] = {FACTOR_FORBIDDEN - 1, FACTOR_FORBIDDEN - 2};
  FactorCost below[2] = {-FACTOR_FORBIDDEN, 5 - FACTOR_FORBIDDEN};
  for (int n = 1; n <= 40; n += 13) {
    FactorResult result = solve_copies(arena, costs, n);
    cr_expect_eq(result.outcome, FACTOR_proved);
    cr_expect_eq(result.cost, n * (FACTOR_FORBIDDEN - 2));
    cr_expect_eq(result.bound, result.cost);
    result = solve_copies(arena, below, n);
    cr_expect_eq(result.outcome, FACTOR_proved);
    cr_expect_eq(result.cost, -n * FACTOR_FORBIDDEN);
  }
  FactorResult result = solve_copies(arena, costs, 100);
  cr_expect_eq(result.outcome, FACTOR_found);
  cr_expect_eq(result.cost, FACTOR_MOST_SUM);
  cr_expect_eq(result.bound, FACTOR_MOST_SUM);
  memory_destroy(memory);
}

/* Costs that are large against their number: bounds hold, and what is called
 * proved is the least cost. */
Test(factor, large_costs) {
  int n_proved = 0;
  for (int seed = 0; seed < 200; seed++) {
    Memory *memory = memory_create(no_memory, NULL);
    Arena *arena = arena_create(memory);
    Case *c = ARENA_NEW(arena, Case);
    draw_case(c, (uint64_t)seed);
    FactorCost scale = FACTOR_FORBIDDEN / (seed % 2 ? 30 : 300);
    for (int i = 0; i < c->n; i++)
      for (int v = 0; v < c->n_values[i]; v++)
        if (c->costs[i][v] < FACTOR_FORBIDDEN) c->costs[i][v] *= scale;
    for (int k = 0; k < c->n_pairs; k++)
      for (int i = 0; i < MOST_VALUES * MOST_VALUES; i++)
        if (c->pair_costs[k][i] < FACTOR_FORBIDDEN)
          c->pair_costs[k][i] *= scale;
    draw_limit(c, (uint64_t)seed);
    Walk all = walk(c);
    FactorBudget budget = {.nodes = 2000};
    FactorProblem *problem = make_problem(arena, c);
    FactorResult result = factor_solve(arena, problem, &budget);
    cr_assert(check(c, &result, &all, problem), "seed %d", seed);
    n_proved += result.outcome == FACTOR_proved;
    memory_destroy(memory);
  }
  cr_expect(n_proved > 40, "%d are proved", n_proved);
}
