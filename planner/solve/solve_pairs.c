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

#include "planner/factor/factor.h"

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

/* ---- either ---- */

static bool solve_by(Arena *scratch, SolveMethod method,
                     const PairProblem *problem, int *values) {
  int64_t bound;
  return method == SOLVED_by_engine
             ? solve_by_engine(scratch, problem, values, &bound)
             : eliminate(scratch, problem, MOST_ENTRIES, values) >= 0;
}

bool solve_pairs(Arena *scratch, PairSolver *solver, const PairProblem *problem,
                 int *values) {
  SolveMethod first =
      solver->engine_alone ? SOLVED_by_engine : SOLVED_by_elimination;
  for (SolveMethod method = first; method < N_SOLVE_METHODS; method++) {
    if (!solve_by(scratch, method, problem, values)) continue;
    solver->n_solved[method]++;
    return true;
  }
  return false;
}
