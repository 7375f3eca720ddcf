/*
 * solve.c -- the order in which the parts of the engine work.
 */
#include "planner/factor/factor.h"

#include "planner/factor/factor_graph.h"
#include "planner/factor/solver.h"

const char *factor_part_name(FactorPart part) {
  static const char *const names[] = {
#define PART(name, text) #name,
#include "planner/factor/parts.def"
  };
  return names[part];
}

/* Keeps the prices of the best bound. */
static void note_bound(Solver *s) {
  FactorCost bound = messages_bound(s->messages);
  if (bound <= s->bound) return;
  for (int row = 0; row < s->core->n_rows; row++)
    s->prices[row] = s->messages->prices[row];
  for (int row = 0; row < s->core->n_rows && !s->has_fixed; row++)
    s->root_prices[row] = s->prices[row];
  solver_raise(s, bound);
}

/* Takes values out that only dearer labellings than the best have. */
static void fix_values(Solver *s) {
  Messages *m = s->messages;
  if (s->budget->without[FACTOR_fixing] || m->has_none) return;
  for (int v = 0; v < s->core->n_values; v++)
    if (m->marginals[v] >= s->cost && !m->is_out[v])
      m->is_out[v] = s->has_fixed = true;
}

static void sweep(Solver *s) {
  messages_sweep(s->messages);
  note_bound(s);
  fix_values(s);
  if (!s->messages->has_none) messages_read(s->messages, s->reading);
  note_bound(s);
  s->work += 3 * s->core->entries;
  s->nodes++;
}

/* Raises the bound by some sweeps, each with new prices.  Where the bound
 * falls, shorter steps begin at the best prices. */
static void raise_bound(Solver *s, int n_sweeps) {
  FactorCost before = s->bound;
  bool has_rows = s->core->n_rows > 0 && s->has_prices;
  for (int i = 0; i < n_sweeps && !solver_must_stop(s); i++) {
    sweep(s);
    if (s->messages->has_none) return;
    if (has_rows) multipliers_step(s);
  }
  if (!has_rows || s->bound > before + (s->cost - s->bound) / 100) return;
  if (s->scale > 256) s->scale -= s->scale / 3;
  for (int row = 0; row < s->core->n_rows; row++)
    s->messages->prices[row] = s->prices[row];
  messages_price(s->messages);
}

static void walk(Solver *s, int64_t work) {
  int64_t end = s->work + work;
  if (s->budget->without[FACTOR_neighbourhoods]) return;
  while (s->work < end && solver_count(s)) neighbourhood(s);
}

static bool is_better(const Solver *s, const Labelling *a, const Labelling *b) {
  bool is_over[] = {a->cost.over > 0, b->cost.over > 0};
  if (is_over[0] != is_over[1]) return is_over[1];
  return solver_worth(s, a->cost) < solver_worth(s, b->cost);
}

static void exchange(Solver *s) {
  Labelling *labelling = s->labelling;
  s->labelling = s->other_labelling;
  s->other_labelling = labelling;
}

/* Reads a labelling off messages for which memory is twice as dear as it is: it
 * comes near the limit, and walking on makes it cheaper. */
static void decode_dear(Solver *s) {
  Messages *m = s->messages;
  int n = s->core->n_rows;
  int64_t *prices = s->usages; /* not in use now */
  for (int row = 0; row < n; row++) {
    prices[row] = m->prices[row];
    m->prices[row] = 2 * s->prices[row];
  }
  messages_price(m);
  for (int i = 0; i < 3 && !m->has_none; i++) messages_sweep(m);
  s->work += 6 * s->core->entries;
  decode(s, true);
  for (int row = 0; row < n; row++) m->prices[row] = prices[row];
  messages_price(m);
}

/* Starts a second labelling from the messages, and goes on with the better one.
 */
static void start_again(Solver *s, int64_t work, bool is_dear) {
  bool has_labelling = s->labelling->values[0] >= 0;
  s->other_labelling->weight = s->labelling->weight;
  exchange(s);
  if (is_dear)
    decode_dear(s);
  else
    decode(s, false);
  walk(s, work);
  if (has_labelling && is_better(s, s->other_labelling, s->labelling))
    exchange(s);
}

/* Walks on. Two rounds of three begin at what the messages say now, with half
 * of the work: a labelling that has been walked on for long leads nowhere else.
 */
static void improve(Solver *s, int64_t work, int round) {
  int64_t start = s->work;
  if (round % 3 < 2) start_again(s, work / 2, round % 3 == 1);
  walk(s, start + work - s->work);
}

/* Sends messages without prices until they tell little. */
static void begin(Solver *s) {
  FactorCost before;
  do {
    before = s->bound;
    for (int i = 0; i < 5 && !solver_must_stop(s); i++) sweep(s);
  } while (!solver_must_stop(s) && !s->messages->has_none &&
           s->bound - before > (s->bound < 0 ? -s->bound : s->bound) / 100);
}

/* Looks at nodes for this much work. */
static void look_at_branches(Solver *s, Branches *branches, int64_t work) {
  int64_t end = s->work + work;
  while (branches_step(branches) && s->work < end && solver_count(s)) continue;
}

/* Returns whether the bound has risen little since it was `before`. */
static bool is_steady(const Solver *s, FactorCost before) {
  FactorCost size = s->bound < 0 ? -s->bound : s->bound;
  FactorCost gap = s->cost < COST_LIMIT ? s->cost - s->bound : size;
  return s->bound - before <= gap / 200;
}

/* The bound and the labelling get equal shares of the work.  Where sweeps no
 * longer raise the bound, branches take its share. */
static void run_until(Solver *s, int64_t end) {
  enum { STEADY_ROUNDS = 8, FIRST_WORK = 1 << 20 };
  Branches *branches = NULL;
  int n_steady = 0;
  for (int round = 0; s->work < end && !solver_must_stop(s); round++) {
    int64_t before = s->work;
    FactorCost bound = s->bound;
    if (branches)
      look_at_branches(s, branches, FIRST_WORK);
    else
      raise_bound(s, 10);
    if (solver_must_stop(s)) return;
    int64_t work = s->work - before;
    improve(s, n_steady > 0 ? 2 * work : work / 3, round);
    n_steady = is_steady(s, bound) ? n_steady + 1 : 0;
    if (n_steady >= STEADY_ROUNDS && !branches &&
        !s->budget->without[FACTOR_branching] && !solver_must_stop(s))
      branches = branches_create(s->arena, s);
  }
  if (branches) branches_leave(branches);
}

/* Without prices the bound is soon steady, and branches prove the rest where
 * memory decides little.  So that is tried first, for little work. */
static void run(Solver *s) {
  enum { FIRST_WORK = 1 << 29 }; /* about half a second */
  begin(s);
  s->has_prices = false;
  if (!s->budget->without[FACTOR_unpriced]) run_until(s, s->work + FIRST_WORK);
  s->has_prices = !s->budget->without[FACTOR_multipliers];
  run_until(s, INT64_MAX);
}

/* Finds the values of all variables of the problem. */
static const int *restore(Arena *arena, const FactorGraph *g, const Core *core,
                          const int *best) {
  int *values = ARENA_ARRAY(arena, int, g->n_variables);
  for (int i = 0; i < core->n_variables; i++) {
    const Variable *v = &g->variables[core->variables[i]];
    values[core->variables[i]] = v->labels[best[i]];
  }
  factor_graph_restore(g, values);
  return values;
}

/* Adds what the graph left outside.  With a cap the cost of the values is more
 * than the sum of what is left of costs, so it is added up again. */
static void add_outside(FactorResult *result, const FactorProblem *problem,
                        const FactorGraph *g) {
  if (g->cap == COST_NEVER) return;
  result->bound = factor_saturate(result->bound + g->outside);
  if (!result->values) return;
  result->cost = factor_cost(problem, result->values);
  if (result->bound < result->cost || result->cost == FACTOR_MOST_SUM)
    result->outcome = FACTOR_found;
}

static FactorResult make_result(Arena *arena, const FactorProblem *problem,
                                const Solver *s, const FactorGraph *g) {
  const Core *core = s->core;
  FactorResult result = {.nodes = s->nodes,
                         .n_variables = core->n_variables,
                         .n_pairs = core->n_edges,
                         .n_rows = core->n_rows};
  bool has_values = s->cost < COST_LIMIT;
  result.cost = has_values ? s->cost : FACTOR_FORBIDDEN;
  result.bound = s->bound < result.cost ? s->bound : result.cost;
  if (s->is_proved)
    result.outcome = has_values ? FACTOR_proved : FACTOR_none;
  else
    result.outcome = has_values ? FACTOR_found : FACTOR_unknown;
  if (has_values) result.values = restore(arena, g, core, s->best);
  add_outside(&result, problem, g);
  return result;
}

FactorResult factor_solve(Arena *arena, const FactorProblem *problem,
                          const FactorBudget *budget) {
  FactorResult result = {.outcome = FACTOR_none, .cost = FACTOR_FORBIDDEN};
  Arena *scratch = arena_beside(arena);
  FactorGraph *g = factor_graph_create(scratch, problem);
  rows_create(g, problem);
  g->is_noted = budget->has_duals && g->cap == COST_NEVER;
  g->is_rough = budget->is_rough;
  factor_graph_remove_forbidden(g);
  if (!g->has_none) factor_graph_reduce(g, budget->without);
  if (!g->has_none) {
    Solver *s = solver_create(scratch, core_create(scratch, g), budget);
    s->has_cap = g->cap < COST_NEVER;
    if (s->core->n_variables > 0) {
      run(s);
    } else {
      solver_better(s, s->core->constant);
      solver_raise(s, s->core->constant);
    }
    result = make_result(arena, problem, s, g);
    if (g->is_noted) result.duals = duals_make(arena, g, s);
  }
  if (g->has_none && g->is_noted) result.duals = duals_make(arena, g, NULL);
  arena_destroy(scratch);
  return result;
}
