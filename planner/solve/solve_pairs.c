/*
 * solve_pairs.c -- takes the method that a problem needs, and writes problems
 * as the general engine has them.
 *
 *     elimination     tables of up to 4,096 entries: most programs
 *     engine          wider ones, as cells that read the two cells before
 *
 * The engine ends at values that are proved to be within a thousandth of the
 * least sum, or after a number of nodes, so equal problems have equal values.
 */
#include "planner/solve/solve_pairs.h"

#include <string.h>

#define MOST_ENTRIES ((int64_t)1 << 12)

/* ---- the engine ---- */

typedef struct Engine {
  Arena *arena;
  const PairProblem *p;
  int shift;    /* of all costs, so that sums do not overflow */
  Map *written; /* costs -> costs of the engine */
  bool is_close;
} Engine;

static int64_t n_entries(const PairProblem *p, const PairCosts *pair) {
  return (int64_t)p->n_values[pair->a] * p->n_values[pair->b];
}

/* Saturates at the most that the engine may add up. */
static void add_largest(FactorCost *sum, const int64_t *costs, int64_t n) {
  int64_t most = 0;
  for (int64_t i = 0; i < n; i++)
    if (costs[i] > most && costs[i] < ELIMINATE_MOST) most = costs[i];
  *sum += most / 256; /* of any number of tables */
}

/* Returns the least shift with which all sums are below FACTOR_MOST_COST. */
static int shift_of(const PairProblem *p) {
  FactorCost sum = 0;
  int shift = 0;
  for (int i = 0; i < p->n; i++) add_largest(&sum, p->costs[i], p->n_values[i]);
  for (int i = 0; i < p->n_pairs; i++)
    add_largest(&sum, p->pairs[i].costs, n_entries(p, &p->pairs[i]));
  while (sum >> shift >= FACTOR_MOST_COST / 512) shift++;
  return shift;
}

/* Equal blocks share costs. */
static const FactorCost *write_costs(Engine *e, const int64_t *costs,
                                     int64_t n) {
  FactorCost *out = map_get(e->written, costs);
  if (out) return out;
  out = ARENA_ARRAY(e->arena, FactorCost, n);
  for (int64_t i = 0; i < n; i++)
    out[i] =
        costs[i] >= ELIMINATE_MOST ? FACTOR_FORBIDDEN : costs[i] >> e->shift;
  map_put(e->written, costs, out);
  return out;
}

static FactorProblem *write_problem(Engine *e) {
  const PairProblem *p = e->p;
  FactorProblem *out = factor_create(e->arena);
  for (int i = 0; i < p->n; i++)
    factor_add_variable(out, p->n_values[i],
                        write_costs(e, p->costs[i], p->n_values[i]));
  for (int i = 0; i < p->n_pairs; i++) {
    const PairCosts *pair = &p->pairs[i];
    factor_add_pair(out, pair->a, pair->b,
                    write_costs(e, pair->costs, n_entries(p, pair)));
  }
  return out;
}

static void note_better(void *user, FactorCost cost, FactorCost bound) {
  enum { PART = 1000 };
  Engine *e = user;
  e->is_close = cost < FACTOR_FORBIDDEN && cost - bound <= cost / PART;
}

static bool is_close(void *user) {
  return ((const Engine *)user)->is_close;
}

bool solve_by_engine(Arena *scratch, const PairProblem *problem, int *values,
                     int64_t *out_bound) {
  enum { NODES = 400 };
  Arena *arena = arena_beside(scratch);
  Engine e = {.arena = arena,
              .p = problem,
              .shift = shift_of(problem),
              .written = map_create(arena)};
  FactorBudget budget = {
      .nodes = NODES, .stop = is_close, .better = note_better, .user = &e};
  FactorResult result = factor_solve(arena, write_problem(&e), &budget);
  for (int i = 0; i < problem->n && result.values; i++)
    values[i] = result.values[i];
  bool is_solved = result.values != NULL;
  *out_bound = is_solved && result.bound > 0 ? result.bound << e.shift : 0;
  arena_destroy(arena);
  return is_solved;
}

/* ---- duals ---- */

static int64_t least_cost(const int64_t *costs, int64_t n) {
  int64_t least = costs[0];
  for (int64_t i = 1; i < n; i++)
    if (costs[i] < least) least = costs[i];
  return least;
}

int64_t sum_of_leasts(const PairProblem *p) {
  int64_t sum = 0;
  for (int i = 0; i < p->n; i++) sum += least_cost(p->costs[i], p->n_values[i]);
  for (int i = 0; i < p->n_pairs && sum < ELIMINATE_MOST; i++)
    sum += least_cost(p->pairs[i].costs, n_entries(p, &p->pairs[i]));
  return sum < ELIMINATE_MOST ? sum : ELIMINATE_MOST;
}

/* Shorter numbers make a shorter file; a bound of so many bits loses about a
 * millionth. */
static int shift_for_file(const PairProblem *p, int64_t enough) {
  enum { BITS = 30 };
  int64_t about = sum_of_leasts(p);
  int shift = shift_of(p);
  if (about < enough) about = enough;
  while (about >> shift >= (int64_t)1 << BITS) shift++;
  return shift;
}

/* Whoever checks has costs that differ in the last digits, so no step may
 * compare costs. */
static FactorBudget budget_for_duals(int64_t enough) {
  FactorBudget budget = {
      .nodes = 1, .has_duals = true, .is_rough = true, .enough = enough};
  for (int i = 0; i < N_FACTOR_PARTS; i++)
    budget.without[i] = i != FACTOR_degree && i != FACTOR_messages;
  return budget;
}

PairDuals solve_for_duals(Arena *arena, const PairProblem *problem,
                          int64_t enough) {
  Arena *scratch = arena_beside(arena);
  Engine e = {.arena = scratch,
              .p = problem,
              .shift = shift_for_file(problem, enough),
              .written = map_create(scratch)};
  int64_t unit = (int64_t)1 << e.shift;
  FactorBudget budget =
      budget_for_duals(enough > 0 ? (enough + unit - 1) >> e.shift : 0);
  FactorResult result = factor_solve(arena, write_problem(&e), &budget);
  PairDuals out = {result.duals, e.shift, 0};
  if (out.duals && out.duals->bound < FACTOR_MOST_SUM)
    out.bound = out.duals->bound * unit;
  arena_destroy(scratch);
  return out;
}

/* ---- what is known ---- */

/* Equal blocks share their costs, which are read once. */
static uint64_t hash_costs(Arena *scratch, const PairProblem *p) {
  Map *known = map_create(scratch);
  uint64_t hash = 61;
  for (int i = 0; i < p->n + p->n_pairs; i++) {
    const PairCosts *pair = &p->pairs[i - p->n];
    const int64_t *costs = i < p->n ? p->costs[i] : pair->costs;
    int64_t n = i < p->n ? p->n_values[i] : n_entries(p, pair);
    uintptr_t of = (uintptr_t)map_get(known, costs);
    if (!of) of = (uintptr_t)hash_bytes(costs, (size_t)n * sizeof *costs, 67);
    map_put(known, costs, (void *)of);
    hash = hash_mix(hash, (uint64_t)of);
  }
  return hash | 1;
}

/* Other weightings and levels of ZeRO mostly have the same sums in part. */
static bool solve_once(Arena *arena, PairShape *shape,
                       const PairProblem *problem, int *values) {
  Arena *scratch = arena_beside(arena);
  const void *key = (const void *)(uintptr_t)hash_costs(scratch, problem);
  if (!shape->by_engine) shape->by_engine = map_create(arena);
  const int *known = map_get(shape->by_engine, key);
  int64_t bound;
  bool is_solved = known || solve_by_engine(scratch, problem, values, &bound);
  size_t n_bytes = (size_t)problem->n * sizeof *values;
  if (known)
    memcpy(values, known, n_bytes);
  else if (is_solved)
    map_put(shape->by_engine, key, arena_copy(arena, values, n_bytes));
  arena_destroy(scratch);
  return is_solved;
}

/* ---- either ---- */

bool solve_pairs(Arena *arena, PairSolver *solver, PairShape *shape,
                 const PairProblem *problem, int *values) {
  SolveMethod method = SOLVED_by_elimination;
  bool is_solved = !solver->engine_alone && !shape->is_wide &&
                   eliminate(arena, problem, MOST_ENTRIES, values) >= 0;
  if (!is_solved) {
    shape->is_wide = true;
    method = SOLVED_by_engine;
    is_solved = solve_once(arena, shape, problem, values);
  }
  solver->n_solved[method] += is_solved;
  return is_solved;
}
