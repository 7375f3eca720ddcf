/*
 * duals_graph.c -- variables, values and tables of a problem whose steps are
 * made again.
 */
#include "planner/recheck/duals_graph.h"

/* Sums of costs fit into 64 bits, and those of their 2^-32 into 128. */
#define MOST_SUM ((Int128)1 << 60)

FactorCost dual_plus(FactorCost a, FactorCost b) {
  return a == NO_COST || b == NO_COST ? NO_COST : a + b;
}

DualTable *dual_graph_find(const DualGraph *g, int a, int b) {
  const DualVariable *v = &g->variables[a];
  for (int k = 0; k < v->tables.n; k++) {
    DualTable *table = &g->tables.data[v->tables.data[k]];
    if (!table->is_gone && (table->of[0] == b || table->of[1] == b))
      return table;
  }
  return NULL;
}

FactorCost *dual_cell(const DualGraph *g, const DualTable *table, int a,
                      int value, int other_value) {
  int64_t n = g->variables[table->of[1]].n;
  return table->of[0] == a ? &table->costs[value * n + other_value]
                           : &table->costs[other_value * n + value];
}

DualTable *dual_graph_table(DualGraph *g, int a, int b) {
  DualVariable *u = &g->variables[a], *v = &g->variables[b];
  DualTable *known = u->tables.n < v->tables.n ? dual_graph_find(g, a, b)
                                               : dual_graph_find(g, b, a);
  if (known) return known;
  DualTable table = {{a, b}, NULL, false};
  table.costs = ARENA_ARRAY(g->arena, FactorCost, (int64_t)u->n * v->n);
  vec_push(g->arena, &u->tables, g->tables.n);
  vec_push(g->arena, &v->tables, g->tables.n);
  vec_push(g->arena, &g->tables, table);
  return &g->tables.data[g->tables.n - 1];
}

void dual_graph_remove(DualGraph *g, int variable, int value) {
  DualVariable *v = &g->variables[variable];
  v->is_left[value] = false;
  if (--v->n_left == 0) g->has_none = true;
}

/* Adds costs, and notes the largest finite one. */
static void copy(FactorCost *to, const FactorCost *from, int64_t n,
                 Int128 *most) {
  for (int64_t i = 0; i < n; i++) {
    Int128 size = from[i] < 0 ? -(Int128)from[i] : from[i];
    if (from[i] >= FACTOR_FORBIDDEN) {
      to[i] = NO_COST;
      continue;
    }
    to[i] = dual_plus(to[i], from[i]);
    *most = size > *most ? size : *most;
  }
}

static void add_variable(DualGraph *g, int variable, const FactorCost *costs,
                         Int128 *sum) {
  DualVariable *v = &g->variables[variable];
  v->n_left = v->n;
  v->costs = ARENA_ARRAY(g->arena, FactorCost, v->n);
  v->is_left = ARENA_ARRAY(g->arena, bool, v->n);
  for (int i = 0; i < v->n; i++) v->is_left[i] = true;
  Int128 most = 0;
  copy(v->costs, costs, v->n, &most);
  *sum += most;
}

/* Adds a pair's costs to the table of its variables. */
static void add_pair(DualGraph *g, const FactorProblem *problem, int pair,
                     Int128 *sum) {
  int of[2];
  const FactorCost *costs = factor_pair(problem, pair, of);
  DualTable *table = dual_graph_table(g, of[0], of[1]);
  int64_t n = g->variables[of[1]].n, n_rows = g->variables[of[0]].n;
  Int128 most = 0;
  if (table->of[0] == of[0]) copy(table->costs, costs, n_rows * n, &most);
  for (int i = 0; i < n_rows && table->of[0] != of[0]; i++)
    for (int j = 0; j < n; j++)
      copy(dual_cell(g, table, of[0], i, j), &costs[i * n + j], 1, &most);
  *sum += most;
}

DualGraph *dual_graph_create(Arena *arena, const FactorProblem *problem) {
  DualGraph *g = ARENA_NEW(arena, DualGraph);
  Int128 sum = 0;
  g->arena = arena;
  g->n = factor_n_variables(problem);
  g->variables = ARENA_ARRAY(arena, DualVariable, g->n);
  for (int i = 0; i < g->n; i++)
    add_variable(g, i, factor_variable(problem, i, &g->variables[i].n), &sum);
  for (int i = 0; i < factor_n_pairs(problem); i++)
    add_pair(g, problem, i, &sum);
  dual_rows_create(g, problem);
  return sum < MOST_SUM ? g : NULL;
}
