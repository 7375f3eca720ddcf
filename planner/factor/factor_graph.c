/*
 * factor_graph.c -- keeps variables, edges and labels together while a problem
 * shrinks.
 */
#include "planner/factor/factor_graph.h"

#include <string.h>

int factor_graph_other(const Edge *edge, int variable) {
  return edge->of[edge->of[0] == variable];
}

FactorCost *factor_graph_at(const FactorGraph *g, const Edge *edge,
                            int variable, int value, int other_value) {
  int64_t n = g->variables[edge->of[1]].n;
  return edge->of[0] == variable ? &edge->costs[value * n + other_value]
                                 : &edge->costs[other_value * n + value];
}

static int find_edge(const FactorGraph *g, int a, int b) {
  if (g->variables[a].edges.n > g->variables[b].edges.n) {
    int c = a;
    a = b;
    b = c;
  }
  const Variable *v = &g->variables[a];
  for (int k = 0; k < v->edges.n; k++)
    if (factor_graph_other(&g->edges.data[v->edges.data[k]], a) == b)
      return v->edges.data[k];
  return -1;
}

static void add_costs(FactorGraph *g, Edge *edge, int a, int b,
                      const FactorCost *costs) {
  int n = g->variables[b].n;
  for (int i = 0; i < g->variables[a].n; i++)
    for (int j = 0; j < n; j++) {
      FactorCost *at = factor_graph_at(g, edge, a, i, j);
      FactorCost sum = *at + costs[(int64_t)i * n + j];
      *at = sum >= COST_LIMIT ? COST_NEVER : sum;
    }
}

void factor_graph_add_edge(FactorGraph *g, int a, int b, FactorCost *costs) {
  int known = find_edge(g, a, b);
  if (known >= 0) {
    add_costs(g, &g->edges.data[known], a, b, costs);
    return;
  }
  vec_push(g->arena, &g->variables[a].edges, g->edges.n);
  vec_push(g->arena, &g->variables[b].edges, g->edges.n);
  vec_push(g->arena, &g->edges, (Edge){{a, b}, costs, false});
}

void factor_graph_remove_edge(FactorGraph *g, int edge) {
  Edge *gone = &g->edges.data[edge];
  for (int side = 0; side < 2; side++) {
    Variable *v = &g->variables[gone->of[side]];
    int n = 0;
    for (int k = 0; k < v->edges.n; k++)
      if (v->edges.data[k] != edge) v->edges.data[n++] = v->edges.data[k];
    v->edges.n = n;
  }
  gone->is_gone = true;
}

/* Removes values from a table, in place. */
static void shrink(const FactorGraph *g, Edge *edge, int variable,
                   const bool *keep) {
  int64_t rows = g->variables[edge->of[0]].n, n = g->variables[edge->of[1]].n;
  FactorCost *to = edge->costs;
  for (int64_t i = 0; i < rows; i++) {
    if (edge->of[0] == variable) {
      if (!keep[i]) continue;
      memmove(to, edge->costs + i * n, (size_t)n * sizeof *to);
      to += n;
    } else {
      for (int64_t j = 0; j < n; j++)
        if (keep[j]) *to++ = edge->costs[i * n + j];
    }
  }
}

void factor_graph_note(FactorGraph *g, FactorStepKind kind, int variable,
                       int value, int other, int64_t time) {
  if (!g->is_noted) return;
  FactorStep note = {kind, variable, value, other, time};
  if (value >= 0) note.value = g->variables[variable].labels[value];
  vec_push(g->arena, &g->notes, note);
}

void factor_graph_keep(FactorGraph *g, int variable, const bool *keep) {
  Variable *v = &g->variables[variable];
  for (int k = 0; k < v->edges.n; k++)
    shrink(g, &g->edges.data[v->edges.data[k]], variable, keep);
  int n = 0;
  for (int i = 0; i < v->n; i++) {
    if (!keep[i]) continue;
    v->labels[n] = v->labels[i];
    v->costs[n] = v->costs[i];
    for (int k = 0; k < v->pieces.n; k++)
      v->pieces.data[k].usages[n] = v->pieces.data[k].usages[i];
    n++;
  }
  v->n = n;
  v->is_merged = false;
  if (n == 0) g->has_none = true;
}

void factor_graph_remove(FactorGraph *g, int variable, Step step) {
  Variable *v = &g->variables[variable];
  ASSERT(v->edges.n == 0 && v->pieces.n == 0);
  for (int k = 0; k < step.n_others; k++) {
    const Variable *other = &g->variables[step.others[k]];
    step.n[k] = other->n;
    step.labels[k] =
        arena_copy(g->arena, other->labels, (size_t)other->n * sizeof(int));
  }
  step.variable = variable;
  v->n = 0;
  vec_push(g->arena, &g->steps, step);
}

static int find_label(const int *labels, int n, int label) {
  for (int i = 0; i < n; i++)
    if (labels[i] == label) return i;
  UNREACHABLE();
}

void factor_graph_restore(const FactorGraph *g, int *labels) {
  for (int i = g->steps.n - 1; i >= 0; i--) {
    const Step *step = &g->steps.data[i];
    int at = 0;
    for (int k = 0; k < step->n_others; k++)
      at = (k ? at * step->n[k] : 0) +
           find_label(step->labels[k], step->n[k], labels[step->others[k]]);
    labels[step->variable] = step->choice[at];
  }
}

/* ---- from a problem ---- */

/* The least and the largest finite cost of a table; the largest is below the
 * least if there is none. */
typedef struct Range {
  FactorCost least, most;
} Range;

static Range range_of(const FactorCost *costs, int64_t n) {
  Range range = {FACTOR_FORBIDDEN, INT64_MIN};
  for (int64_t i = 0; i < n; i++) {
    if (costs[i] >= FACTOR_FORBIDDEN) continue;
    if (costs[i] < range.least) range.least = costs[i];
    if (costs[i] > range.most) range.most = costs[i];
  }
  return range;
}

static int64_t n_cells(const FactorProblem *problem, const ProblemPair *pair) {
  const ProblemVariable *variables = problem->variables.data;
  return (int64_t)variables[pair->of[0]].n_values *
         variables[pair->of[1]].n_values;
}

/* Returns the sum of what tables cost at most above their least cost, none more
 * than `cap`; with the cap COST_NEVER the sum of largest absolute values. */
static Wide sum_ranges(const Range *ranges, int64_t n, FactorCost cap) {
  Wide sum = 0;
  for (int64_t i = 0; i < n; i++) {
    Wide least = ranges[i].least, most = ranges[i].most;
    if (most < least) continue;
    Wide range = most - least;
    if (cap == COST_NEVER)
      range = most > -least ? most : -least;
    else if (range > cap)
      range = cap;
    sum += range;
  }
  return sum;
}

/* Finds the cap by which sums stay below FACTOR_MOST_COST. */
static FactorCost find_cap(Arena *scratch, const FactorProblem *problem) {
  int64_t n = problem->variables.n;
  Range *ranges = ARENA_ARRAY(scratch, Range, n + problem->pairs.n);
  for (int64_t i = 0; i < n; i++)
    ranges[i] = range_of(problem->variables.data[i].costs,
                         problem->variables.data[i].n_values);
  for (int64_t i = 0; i < problem->pairs.n; i++) {
    const ProblemPair *pair = &problem->pairs.data[i];
    ranges[n + i] = range_of(pair->costs, n_cells(problem, pair));
  }
  n += problem->pairs.n;
  if (sum_ranges(ranges, n, COST_NEVER) < FACTOR_MOST_COST) return COST_NEVER;
  FactorCost cap = FACTOR_MOST_COST;
  while (sum_ranges(ranges, n, cap) >= FACTOR_MOST_COST) cap /= 2;
  return cap;
}

/* Copies costs; with a cap the least one goes outside. */
static void copy_costs(FactorGraph *g, FactorCost *to, const FactorCost *from,
                       int64_t n) {
  bool is_capped = g->cap < COST_NEVER;
  Range range = is_capped ? range_of(from, n) : (Range){0, 0};
  if (is_capped && range.most >= range.least) g->outside += range.least;
  for (int64_t i = 0; i < n; i++) {
    Wide cost = (Wide)from[i] - range.least;
    if (from[i] >= FACTOR_FORBIDDEN)
      to[i] = COST_NEVER;
    else
      to[i] = cost < g->cap ? (FactorCost)cost : g->cap;
  }
}

static void add_variable(FactorGraph *g, int variable,
                         const ProblemVariable *from) {
  Variable *v = &g->variables[variable];
  v->n = from->n_values;
  v->labels = ARENA_ARRAY(g->arena, int, v->n);
  v->costs = ARENA_ARRAY(g->arena, FactorCost, v->n);
  for (int i = 0; i < v->n; i++) v->labels[i] = i;
  copy_costs(g, v->costs, from->costs, v->n);
}

static void add_pair(FactorGraph *g, const FactorProblem *problem,
                     const ProblemPair *pair) {
  int64_t n = n_cells(problem, pair);
  FactorCost *costs = ARENA_ARRAY(g->arena, FactorCost, n);
  copy_costs(g, costs, pair->costs, n);
  factor_graph_add_edge(g, pair->of[0], pair->of[1], costs);
}

/* Removes the values that cost too much alone. */
static void remove_forbidden(FactorGraph *g, int variable, bool *keep) {
  Variable *v = &g->variables[variable];
  bool all = true;
  for (int i = 0; i < v->n; i++) {
    keep[i] = v->costs[i] < COST_LIMIT;
    all &= keep[i];
    if (!keep[i])
      factor_graph_note(g, FACTOR_STEP_forbidden, variable, i, 0, 0);
  }
  if (!all) factor_graph_keep(g, variable, keep);
}

FactorGraph *factor_graph_create(Arena *arena, const FactorProblem *problem) {
  FactorGraph *g = ARENA_NEW(arena, FactorGraph);
  g->arena = arena;
  g->limit = problem->limit < INT64_MAX / 4 ? problem->limit : INT64_MAX / 4;
  Arena *scratch = arena_beside(arena);
  g->cap = find_cap(scratch, problem);
  arena_destroy(scratch);
  g->n_variables = problem->variables.n;
  g->variables = ARENA_ARRAY(arena, Variable, g->n_variables);
  for (int i = 0; i < g->n_variables; i++)
    add_variable(g, i, &problem->variables.data[i]);
  for (int i = 0; i < problem->pairs.n; i++)
    add_pair(g, problem, &problem->pairs.data[i]);
  return g;
}

void factor_graph_remove_forbidden(FactorGraph *g) {
  int most = 1;
  for (int i = 0; i < g->n_variables; i++)
    most = g->variables[i].n > most ? g->variables[i].n : most;
  bool *keep = ARENA_ARRAY(g->arena, bool, most);
  for (int i = 0; i < g->n_variables && !g->has_none; i++)
    remove_forbidden(g, i, keep);
}
