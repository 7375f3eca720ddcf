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

/* Without prices the bound is soon steady, and branches prove the rest where
 * memory decides little.  So that is tried first, for little work. */
static void run(Solver *s) {
  enum { FIRST_WORK = 1 << 29 }; /* about half a second */
  rounds_begin(s);
  s->has_prices = false;
  if (!s->budget->without[FACTOR_unpriced]) rounds_run(s, s->work + FIRST_WORK);
  s->has_prices = !s->budget->without[FACTOR_multipliers];
  lanes_run(s);
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
