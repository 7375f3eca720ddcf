/*
 * duals.c -- solves random problems by the engine, and asks the recheck whether
 * the duals prove their bound.
 *
 *     recheck_duals [--damage] [FIRST [LAST]]
 *     random 53 0 51 holds
 *
 * A line has the least cost, the number of the case, the bound of the duals and
 * what the recheck says; a case without values has the largest number as its
 * cost.  With --damage the text of the duals is changed at random, 40 times
 * each: it may be refused, and what holds is still true.  faults.py links it
 * with faulty copies of the engine.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "planner/recheck/duals.h"
#include "support/random.h"

enum { N_CASES = 160, N_TIMES = 16, MOST_VALUES = 5 };

typedef struct Draw {
  Arena *arena;
  uint64_t key, n_drawn;
  FactorProblem *problem;
  int n, n_values[32];
} Draw;

static _Noreturn void no_memory(void *user) {
  (void)user;
  abort();
}

static int draw(Draw *d, int n) {
  return (int)random_below(d->key, d->n_drawn++, (uint64_t)n);
}

static FactorCost *draw_costs(Draw *d, int n, int most, int forbidden) {
  FactorCost *costs = ARENA_ARRAY(d->arena, FactorCost, n);
  for (int i = 0; i < n; i++)
    costs[i] = draw(d, 100) < forbidden ? FACTOR_FORBIDDEN : draw(d, most);
  return costs;
}

static void add_pair(Draw *d, int a, int b, int forbidden) {
  int n = d->n_values[a] * d->n_values[b];
  factor_add_pair(d->problem, a, b, draw_costs(d, n, 60, forbidden));
}

/* Adds a pair that allows one value of b for each of a, or costs that are sums.
 */
static void add_special_pair(Draw *d, int a, int b, bool is_sum) {
  int n = d->n_values[a], m = d->n_values[b];
  FactorCost *costs = draw_costs(d, n * m, 40, 0);
  for (int i = 0; i < n; i++) {
    int allowed = draw(d, m);
    for (int j = 0; j < m; j++) {
      if (is_sum)
        costs[i * m + j] = 7 * i + (j * 11) % 5;
      else if (j != allowed)
        costs[i * m + j] = FACTOR_FORBIDDEN;
    }
  }
  factor_add_pair(d->problem, a, b, costs);
}

static void add_usage(Draw *d, int variable) {
  int begin = draw(d, N_TIMES - 1), end = begin + 1 + draw(d, N_TIMES - begin);
  int64_t *usages = ARENA_ARRAY(d->arena, int64_t, MOST_VALUES);
  for (int v = 0; v < MOST_VALUES; v++) usages[v] = draw(d, 40);
  factor_add_usage(d->problem, variable, begin, end, usages);
}

/* Sets a limit between what the smallest values take and what any take. */
static void set_limit(Draw *d) {
  int64_t least = INT64_MAX;
  int *values = ARENA_ARRAY(d->arena, int, d->n);
  for (int tries = 0; tries < 60; tries++) {
    for (int i = 0; i < d->n; i++) values[i] = draw(d, d->n_values[i]);
    int64_t peak = factor_peak(d->problem, values);
    least = peak < least ? peak : least;
  }
  factor_limit(d->problem, least - (least > 20 ? draw(d, 15) : 0));
}

static FactorProblem *draw_problem(Arena *arena, int number) {
  Draw *d = ARENA_NEW(arena, Draw);
  d->arena = arena;
  d->key = random_key((uint64_t)number, "duals");
  d->problem = factor_create(arena);
  d->n = 5 + draw(d, 12);
  for (int i = 0; i < d->n; i++) {
    d->n_values[i] = 2 + draw(d, MOST_VALUES - 1);
    factor_add_variable(d->problem, d->n_values[i],
                        draw_costs(d, d->n_values[i], 50, i % 5 ? 0 : 10));
  }
  int forbidden = number % 3 * 8;
  for (int i = 1; i < d->n; i++) {
    int parent = draw(d, i);
    if (draw(d, 5))
      add_pair(d, parent, i, forbidden);
    else
      add_special_pair(d, parent, i, draw(d, 2));
  }
  for (int k = number % 5 * d->n / 3; k > 0; k--) {
    int a = draw(d, d->n), b = (a + 1 + draw(d, d->n - 1)) % d->n;
    add_pair(d, a, b, forbidden);
  }
  for (int k = number % 4 * d->n / 2; k > 0; k--) add_usage(d, draw(d, d->n));
  if (number % 4) set_limit(d);
  return d->problem;
}

/* Reads and checks duals. */
static DualsCheck check(Arena *arena, const FactorProblem *problem,
                        const char *text, size_t n, FactorDuals **out) {
  Status status = recheck_duals_read(arena, "duals", text, n, out);
  if (status.code == STATUS_ok) return recheck_duals(arena, problem, *out);
  return (DualsCheck){.fault = status.message, .step = -1};
}

/* Changes a digit, removes some bytes, or the end. */
static size_t damage(Draw *d, char *text, size_t n) {
  size_t at = (size_t)draw(d, (int)n), some = 1 + (size_t)draw(d, 6);
  int kind = draw(d, 8);
  if (kind == 0) return at;
  if (kind == 1 && at + some < n) {
    memmove(text + at, text + at + some, n - at - some);
    return n - some;
  }
  while (at < n && (text[at] < '0' || text[at] > '9')) at++;
  if (at < n) text[at] = (char)('0' + draw(d, 10));
  return n;
}

/* Returns how many damaged duals hold; one of more than the least cost is
 * wrong. */
static int check_damaged(Arena *arena, int number, const FactorProblem *problem,
                         FactorCost least, const Text *text) {
  Draw d = {.key = random_key((uint64_t)number, "damage")};
  int n_held = 0;
  for (int i = 0; i < 40; i++) {
    char *damaged = arena_copy(arena, text->data, text->n);
    FactorDuals *duals;
    size_t n = damage(&d, damaged, text->n);
    DualsCheck said = check(arena, problem, damaged, n, &duals);
    if (!said.fault && duals->bound > least) {
      printf("case %d, damage %d: %" PRId64 " holds, %" PRId64
             " is the least cost\n",
             number, i, duals->bound, least);
      exit(1);
    }
    n_held += !said.fault;
  }
  return n_held;
}

/* Returns how many damaged duals hold. */
static int solve(int number, bool is_damaged) {
  Memory *memory = memory_create(no_memory, NULL);
  Arena *arena = arena_create(memory);
  FactorProblem *problem = draw_problem(arena, number);
  /* Prices are in all duals where memory is short, if they begin at once. */
  FactorBudget budget = {
      .nodes = 20000, .has_duals = true, .without = {[FACTOR_unpriced] = true}};
  FactorResult result = factor_solve(arena, problem, &budget);
  FactorCost least = result.values ? result.cost : FACTOR_MOST_SUM;
  Text text = text_create(arena);
  FactorDuals *duals;
  int n_held = 0;
  factor_duals_print(&text, result.duals);
  DualsCheck said = check(arena, problem, text.data, text.n, &duals);
  if (is_damaged)
    n_held = check_damaged(arena, number, problem, least, &text);
  else
    printf("random %" PRId64 " %d %" PRId64 " %s\n", least, number,
           result.duals->bound, said.fault ? "refused" : "holds");
  if (said.fault && getenv("DNNC_SAY"))
    fprintf(stderr, "case %d, step %d: %s\n", number, said.step, said.fault);
  memory_destroy(memory);
  return n_held;
}

int main(int argc, char **argv) {
  bool is_damaged = argc > 1 && !strcmp(argv[1], "--damage");
  argv += is_damaged;
  argc -= is_damaged;
  int first = argc > 1 ? atoi(argv[1]) : 0, n_held = 0;
  int last = argc > 2 ? atoi(argv[2]) : first + N_CASES - 1;
  for (int i = first; i <= last; i++) n_held += solve(i, is_damaged);
  if (is_damaged)
    printf("%d of %d damaged duals hold\n", n_held, 40 * (last - first + 1));
  return 0;
}
