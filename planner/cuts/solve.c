/*
 * solve.c -- chooses stages and their replicas by PipeDream's recurrence.
 *
 * A[i][j][m], what a minibatch takes at least between the states i and j on m
 * machines of a level, is the least of one stage on all of them and of
 *
 *     max( A[i][k][m - m'], stage of k to j on m', cut at k, cut at j )
 *
 * for all k between them.  For each level but the last all A are computed, and
 * A[i][j][all machines] is what a machine of the next level takes for a stage.
 * Only states within each other are ends of a stage: PipeDream's code subtracts
 * sums of others too, which gave it negative times.
 *
 * Plans from one state are solved three times: on a chain of states, which
 * gives a cost that is reached; on all of them, without what costs more; and
 * again for the fewest stages among those plans that cost no more than the
 * best.
 *
 * cost: O(states^2 machines^2), with levels O(states^3 machines^2)
 */
#include <math.h>
#include <string.h>

#include "planner/cuts/cuts.h"
#include "support/base.h"

typedef struct Solver {
  Arena *arena;
  const CutStates *states;
  const CutLevel *levels;
  int n_levels;
  CutSync sync;
  /* By level: seconds of one machine from a state to another, at [end * n +
   * begin]; infinite where the first is not in the second.  With one level
   * there is no table. */
  double **work;
} Solver;

/* ---- a stage ---- */

/* Returns what fmax does, which gcc calls a library for. */
static double larger(double a, double b) {
  return a > b ? a : b;
}

static double sums_work(const CutStates *states, int begin, int end) {
  if (!cut_state_within(states, begin, end)) return INFINITY;
  return (double)(states->states[end].compute_ns -
                  states->states[begin].compute_ns) *
         1e-9;
}

static double stage_work(const Solver *solver, int level, int begin, int end) {
  if (!solver->work) return sums_work(solver->states, begin, end);
  return solver->work[level][(int64_t)end * solver->states->n + begin];
}

/* Returns seconds for the sum of the gradients of a stage over m machines. */
static double stage_sync(const Solver *solver, int level, int begin, int end,
                         int m) {
  const CutState *states = solver->states->states;
  double bytes =
      (double)(states[end].parameter_bytes - states[begin].parameter_bytes);
  double passes = solver->sync == CUT_sum4 ? 4 : 2;
  return passes * (m - 1) * bytes / (solver->levels[level].bandwidth * m);
}

static double combine(CutSync sync, double work, double sum, int m) {
  return (sync == CUT_max ? larger(work, sum) : work + sum) / m;
}

/* Returns how many machines of the level below send a part of a sum each, as
 * PipeDream's code has it for the first stage of a level alone. */
static int senders(const Solver *solver, int level) {
  return level > 0 ? solver->levels[level - 1].machines : 1;
}

/* Returns the cost of the first stage of a level. */
static double first_stage(const Solver *solver, int level, int begin, int end,
                          int m) {
  double sum = stage_sync(solver, level, begin, end, m);
  return combine(solver->sync, stage_work(solver, level, begin, end),
                 sum / senders(solver, level), m);
}

static double transfer(const Solver *solver, int level, int state) {
  return 2 * (double)solver->states->states[state].out_bytes /
         solver->levels[level].bandwidth;
}

/* Returns the cost of a later stage with its cuts. */
static double next_stage(const Solver *solver, int level, int begin, int end,
                         int m) {
  double cut =
      larger(transfer(solver, level, begin), transfer(solver, level, end));
  double cost = combine(solver->sync, stage_work(solver, level, begin, end),
                        stage_sync(solver, level, begin, end, m), m);
  return larger(cost, cut / m);
}

/* ---- plans from one state to another ---- */

typedef struct Choice {
  int from; /* the state where the last stage begins */
  uint16_t replicas, n_stages;
} Choice;

/* A search for plans from `begin` to `end` on all machines of a level. */
typedef struct Row {
  const Solver *solver;
  int level, machines, begin, end;
  const bool *only; /* by state: may be a cut; NULL means all */
  double floor,
      limit; /* lower costs count as `floor`, higher ones are left out */
  /* By state and machines, [state * machines + m - 1]. */
  double *cost;
  Choice *choice;
  int *least; /* by state: machines that a plan needs; 0 if there is none */
} Row;

/* Sums of work are compared with products, which are rounded. */
static const double slack = 1 + 1e-9;
/* Plans this close cost the same: sums are rounded in another order. */
static const double tie = 1 + 1e-12;

/* Returns how many machines a plan leaves at least for what follows `state`. */
static int machines_after(const Row *row, int state) {
  if (state == row->end) return 0;
  double machine_s = row->limit * slack;
  for (int level = 0; level < row->level; level++)
    machine_s *= row->solver->levels[level].machines;
  double seconds = sums_work(row->solver->states, state, row->end);
  if (!(seconds > machine_s)) return 1;
  double n = ceil(seconds / machine_s);
  return n < row->machines ? (int)n : row->machines;
}

/* Improves the plans to `end` on at most `most` machines by those whose last
 * stage begins at `from`. */
static void row_add_stage(Row *row, int from, int end, int most) {
  double work = stage_work(row->solver, row->level, from, end);
  int least = row->least[from];
  if (work > row->limit * (most - least) * slack) return;
  const double *before = &row->cost[(int64_t)from * row->machines];
  const Choice *choices = &row->choice[(int64_t)from * row->machines];
  double *best = &row->cost[(int64_t)end * row->machines];
  Choice *chosen = &row->choice[(int64_t)end * row->machines];
  for (int replicas = 1; replicas + least <= most; replicas++) {
    if (work > row->limit * replicas * slack) continue;
    double stage = next_stage(row->solver, row->level, from, end, replicas);
    if (stage > row->limit) continue;
    for (int rest = least; replicas + rest <= most; rest++) {
      int m = replicas + rest - 1;
      double cost = larger(before[rest - 1], stage);
      if (!(cost <= best[m])) continue;
      uint16_t n_stages = (uint16_t)(choices[rest - 1].n_stages + 1);
      if (cost == best[m] && n_stages >= chosen[m].n_stages) continue;
      best[m] = cost;
      chosen[m] = (Choice){from, (uint16_t)replicas, n_stages};
    }
  }
}

/* Solves the plans to a state, after those to all states in it. */
static void row_solve_state(Row *row, int end) {
  const CutStates *states = row->solver->states;
  double *best = &row->cost[(int64_t)end * row->machines];
  Choice *chosen = &row->choice[(int64_t)end * row->machines];
  row->least[end] = 0;
  if (row->only && !row->only[end]) return;
  if (!cut_state_within(states, row->begin, end) ||
      !cut_state_within(states, end, row->end))
    return;
  int most = row->machines - machines_after(row, end);
  for (int m = 1; m <= most; m++) {
    double cost = larger(
        row->floor, first_stage(row->solver, row->level, row->begin, end, m));
    /* A plan of the same cost may be found, but no other one. */
    best[m - 1] = cost <= row->limit ? cost : row->limit;
    chosen[m - 1] =
        (Choice){row->begin, (uint16_t)m, cost <= row->limit ? 1 : UINT16_MAX};
  }
  for (int from = row->begin + 1; from < end; from++)
    if (row->least[from] && row->least[from] < most)
      row_add_stage(row, from, end, most);
  for (int m = most; m >= 1; m--) {
    if (chosen[m - 1].n_stages == UINT16_MAX)
      best[m - 1] = INFINITY;
    else
      row->least[end] = m;
  }
  for (int m = most + 1; m <= row->machines; m++) best[m - 1] = INFINITY;
}

/* Returns the least cost on all machines. */
static double row_solve(Row *row, const bool *only, double floor,
                        double limit) {
  row->only = only;
  row->floor = floor;
  row->limit = limit;
  memset(row->least, 0, (size_t)(row->end + 1) * sizeof(int));
  for (int end = row->begin + 1; end <= row->end; end++)
    row_solve_state(row, end);
  ASSERT(row->least[row->end] > 0);
  return row->cost[(int64_t)row->end * row->machines + row->machines - 1];
}

/* Marks states of which each is within the next, about as many as can be. */
static const bool *find_chain(Arena *scratch, const Row *row) {
  bool *chain = ARENA_ARRAY(scratch, bool, row->end + 1);
  const CutStates *states = row->solver->states;
  int last = row->begin;
  for (int state = last + 1; state <= row->end; state++)
    if (cut_state_within(states, last, state) &&
        cut_state_within(states, state, row->end)) {
      chain[state] = true;
      last = state;
    }
  return chain;
}

static Row row_create(Arena *scratch, const Solver *solver, int level,
                      int begin, int end) {
  int machines = solver->levels[level].machines;
  int64_t n = (int64_t)(end + 1) * machines;
  return (Row){.solver = solver,
               .level = level,
               .machines = machines,
               .begin = begin,
               .end = end,
               .cost = ARENA_ARRAY(scratch, double, n),
               .choice = ARENA_ARRAY(scratch, Choice, n),
               .least = ARENA_ARRAY(scratch, int, end + 1)};
}

/* ---- all plans of a level ---- */

static void sums_table(Solver *solver) {
  int n = solver->states->n;
  for (int end = 0; end < n; end++)
    for (int begin = 0; begin < n; begin++)
      solver->work[0][(int64_t)end * n + begin] =
          begin < end ? sums_work(solver->states, begin, end) : INFINITY;
}

/* Puts the lesser of best and the larger of before and `stage`, for each begin.
 */
static void improve(double *restrict best, const double *restrict before,
                    double stage, int n) {
  for (int i = 0; i < n; i++) {
    double cost = before[i] > stage ? before[i] : stage;
    best[i] = cost < best[i] ? cost : best[i];
  }
}

/* Fills in what a machine of level + 1 takes for each stage: all rows at a
 * time, without choices.  Costs of one end lie at [m - 1][begin]. */
static void solve_level(const Solver *solver, int level) {
  int n = solver->states->n, machines = solver->levels[level].machines;
  int64_t each = (int64_t)machines * n; /* costs of one end */
  Arena *scratch = arena_beside(solver->arena);
  double *costs = ARENA_ARRAY(scratch, double, each *n);
  for (int end = 0; end < n; end++) {
    double *best = &costs[end * each];
    for (int m = 1; m <= machines; m++)
      for (int begin = 0; begin < n; begin++)
        best[(int64_t)(m - 1) * n + begin] =
            begin < end ? first_stage(solver, level, begin, end, m) : INFINITY;
    for (int from = 1; from < end; from++) {
      if (isinf(stage_work(solver, level, from, end))) continue;
      const double *before = &costs[from * each];
      for (int m = 1; m < machines; m++) {
        double stage = next_stage(solver, level, from, end, m);
        for (int rest = 1; m + rest <= machines; rest++)
          improve(&best[(int64_t)(m + rest - 1) * n],
                  &before[(int64_t)(rest - 1) * n], stage, from);
      }
    }
    memcpy(&solver->work[level + 1][(int64_t)end * n],
           &best[(int64_t)(machines - 1) * n], (size_t)n * sizeof(double));
  }
  arena_destroy(scratch);
}

/* ---- the plan ---- */

static CutStage price_stage(const Solver *solver, int level, bool is_first,
                            int begin, int end, int m) {
  CutStage stage = {.begin = begin, .end = end, .replicas = m};
  stage.compute_s = stage_work(solver, level, begin, end) / m;
  stage.sync_s = stage_sync(solver, level, begin, end, m) / m;
  if (is_first) {
    stage.sync_s /= senders(solver, level);
    stage.cost_s = first_stage(solver, level, begin, end, m);
    return stage;
  }
  stage.receive_s = transfer(solver, level, begin) / m;
  stage.send_s = transfer(solver, level, end) / m;
  stage.cost_s = next_stage(solver, level, begin, end, m);
  return stage;
}

/* Returns the stages that a solved row has chosen. */
static CutStage *row_stages(Arena *arena, const Row *row, int *out_n) {
  int m = row->machines, at = row->end;
  int n = row->choice[(int64_t)at * m + m - 1].n_stages;
  CutStage *stages = ARENA_ARRAY(arena, CutStage, n);
  for (int s = n; s-- > 0;) {
    Choice choice = row->choice[(int64_t)at * row->machines + m - 1];
    stages[s] = price_stage(row->solver, row->level, s == 0, choice.from, at,
                            choice.replicas);
    at = choice.from;
    m -= choice.replicas;
  }
  ASSERT(at == row->begin && m == 0);
  *out_n = n;
  return stages;
}

/* Finds the stages between two states, and those inside their replicas.  The
 * least cost is known for all levels but the last. */
static const CutStage *find_stages(const Solver *solver, int level, int begin,
                                   int end, int *out_n, double *out_seconds) {
  Arena *scratch = arena_beside(solver->arena);
  Row row = row_create(scratch, solver, level, begin, end);
  double least;
  if (level + 1 < solver->n_levels) {
    least = stage_work(solver, level + 1, begin, end);
  } else {
    least = first_stage(solver, level, begin, end, row.machines);
    least = row_solve(&row, find_chain(scratch, &row), 0, least);
    least = row_solve(&row, NULL, 0, least);
  }
  *out_seconds = least;
  row_solve(&row, NULL, least * tie, least * tie);
  CutStage *stages = row_stages(solver->arena, &row, out_n);
  arena_destroy(scratch);
  double inner_s;
  for (int s = 0; level > 0 && s < *out_n; s++)
    stages[s].inner = find_stages(solver, level - 1, stages[s].begin,
                                  stages[s].end, &stages[s].n_inner, &inner_s);
  return stages;
}

/* Returns the cost of one stage on all machines of every level. */
static double data_parallel(const Solver *solver) {
  int all = solver->states->n - 1;
  double seconds = sums_work(solver->states, 0, all);
  for (int level = 0; level < solver->n_levels; level++) {
    int m = solver->levels[level].machines;
    double sum = stage_sync(solver, level, 0, all, m);
    seconds = combine(solver->sync, seconds, sum / senders(solver, level), m);
  }
  return seconds;
}

int cut_most_states(const CutLevel *levels, int n_levels) {
  int most = CUT_MOST_STATES;
  for (int l = 0; l + 1 < n_levels; l++) {
    int fits = (int)sqrt((double)(1 << 25) / levels[l].machines);
    if (fits > CUT_MOST_STATES_LEVELS) fits = CUT_MOST_STATES_LEVELS;
    if (fits < most) most = fits;
  }
  return most;
}

CutPlan cut_solve(Arena *arena, const CutStates *states, const CutLevel *levels,
                  int n_levels, CutSync sync) {
  ASSERT(states->n > 1 && n_levels > 0);
  for (int l = 0; l < n_levels; l++)
    ASSERT(levels[l].machines > 0 && levels[l].bandwidth > 0 &&
           levels[l].machines <= CUT_MOST_MACHINES);
  Arena *scratch = arena_beside(arena);
  Solver solver = {arena, states, levels, n_levels, sync, NULL};
  if (n_levels > 1) {
    solver.work = ARENA_ARRAY(scratch, double *, n_levels);
    for (int l = 0; l < n_levels; l++)
      solver.work[l] =
          ARENA_ARRAY(scratch, double, (int64_t)states->n * states->n);
    sums_table(&solver);
    for (int l = 0; l + 1 < n_levels; l++) solve_level(&solver, l);
  }
  CutPlan plan = {.one_machine_s = sums_work(states, 0, states->n - 1),
                  .data_parallel_s = data_parallel(&solver)};
  plan.stages = find_stages(&solver, n_levels - 1, 0, states->n - 1,
                            &plan.n_stages, &plan.seconds);
  arena_destroy(scratch);
  return plan;
}
