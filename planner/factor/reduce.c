/*
 * reduce.c -- shrinks a problem without losing its least cost.
 *
 * Each rule looks at one variable and its edges.  What a rule changes comes
 * into a queue again, until no rule finds anything:
 *
 *   consistency   a value without an allowed partner on some edge goes
 *   dominance     value v goes if there is w with no larger usages and
 *                 cost(w) - cost(v) + sum over edges of the largest difference
 *                 of their rows <= 0 (dead-end elimination, Desmet 1992)
 *   separation    an edge that is a sum f(x) + g(y) goes into both variables
 *   contraction   y that has one allowed value for each of x joins x, with its
 *                 edges and usages
 *   degree        a variable with two neighbours or less and no usages becomes
 *                 an edge between them
 *
 * Between two runs of the queue, rows.c removes values that no memory is left
 * for, and usages in rows that cannot exceed the limit.
 */
#include "planner/factor/factor_graph.h"

enum {
  MOST_DOMINANCE = 1 << 24, /* operations for one variable */
  MOST_JOINED = 1 << 24     /* the same, of a variable of two neighbours */
};

typedef struct Reduction {
  FactorGraph *g;
  const bool *without;
  int *queue; /* a ring */
  int begin, n;
  Arena *scratch; /* cleared after each variable */
} Reduction;

static void touch(Reduction *r, int variable) {
  Variable *v = &r->g->variables[variable];
  if (v->is_waiting || v->n == 0) return;
  v->is_waiting = true;
  r->queue[(r->begin + r->n++) % r->g->n_variables] = variable;
}

static void touch_neighbours(Reduction *r, int variable) {
  const Variable *v = &r->g->variables[variable];
  for (int k = 0; k < v->edges.n; k++)
    touch(r, factor_graph_other(&r->g->edges.data[v->edges.data[k]], variable));
}

static void add_cost(FactorCost *sum, FactorCost cost) {
  *sum = cost_plus(*sum, cost);
}

static bool *all_kept(Reduction *r, int n) {
  bool *keep = ARENA_ARRAY(r->scratch, bool, n);
  for (int i = 0; i < n; i++) keep[i] = true;
  return keep;
}

static void keep_values(Reduction *r, int variable, const bool *keep) {
  factor_graph_keep(r->g, variable, keep);
  touch(r, variable);
  touch_neighbours(r, variable);
}

/* ---- consistency ---- */

static bool has_partner(const FactorGraph *g, const Edge *edge, int variable,
                        int value) {
  int n = g->variables[factor_graph_other(edge, variable)].n;
  for (int j = 0; j < n; j++)
    if (*factor_graph_at(g, edge, variable, value, j) < COST_LIMIT) return true;
  return false;
}

/* Removes values of a variable; its neighbours are looked at in their turn. */
static bool reduce_consistency(Reduction *r, int variable) {
  FactorGraph *g = r->g;
  Variable *v = &g->variables[variable];
  bool *keep = all_kept(r, v->n), all = true;
  for (int i = 0; i < v->n; i++) {
    keep[i] = v->costs[i] < COST_LIMIT;
    if (!keep[i])
      factor_graph_note(g, FACTOR_STEP_forbidden, variable, i, 0, 0);
    for (int k = 0; k < v->edges.n && keep[i]; k++) {
      const Edge *edge = &g->edges.data[v->edges.data[k]];
      keep[i] = has_partner(g, edge, variable, i);
      if (!keep[i])
        factor_graph_note(g, FACTOR_STEP_partner, variable, i,
                          factor_graph_other(edge, variable), 0);
    }
    all &= keep[i];
  }
  if (!all) keep_values(r, variable, keep);
  return !all;
}

/* ---- dominance ---- */

/* Returns whether w never takes more than v does. */
static bool is_smaller(const Variable *of, int w, int v) {
  for (int k = 0; k < of->pieces.n; k++)
    if (of->pieces.data[k].usages[w] > of->pieces.data[k].usages[v])
      return false;
  return true;
}

/* Returns the largest difference of the rows of w and v in an edge. */
static FactorCost largest_difference(const FactorGraph *g, const Edge *edge,
                                     int variable, int w, int v) {
  int n = g->variables[factor_graph_other(edge, variable)].n;
  int64_t stride = edge->of[0] == variable ? 1 : g->variables[edge->of[1]].n;
  const FactorCost *of_w = factor_graph_at(g, edge, variable, w, 0);
  const FactorCost *of_v = factor_graph_at(g, edge, variable, v, 0);
  FactorCost most = -COST_NEVER;
  for (int j = 0; j < n; j++) {
    FactorCost cost = of_v[j * stride];
    if (cost >= COST_LIMIT) continue;
    if (of_w[j * stride] >= COST_LIMIT) return COST_NEVER;
    if (of_w[j * stride] - cost > most) most = of_w[j * stride] - cost;
  }
  return most;
}

/* Returns whether v can go, because w does all that v does. */
static bool is_dominated(const FactorGraph *g, int variable, int w, int v) {
  const Variable *of = &g->variables[variable];
  if (!is_smaller(of, w, v)) return false;
  FactorCost sum = of->costs[w] - of->costs[v];
  for (int k = 0; k < of->edges.n; k++) {
    FactorCost most = largest_difference(g, &g->edges.data[of->edges.data[k]],
                                         variable, w, v);
    if (most >= COST_LIMIT) return false;
    sum += most;
  }
  return sum <= 0;
}

static bool reduce_dominance(Reduction *r, int variable) {
  FactorGraph *g = r->g;
  Variable *v = &g->variables[variable];
  int64_t work = 0;
  for (int k = 0; k < v->edges.n; k++)
    work += g->variables[factor_graph_other(&g->edges.data[v->edges.data[k]],
                                            variable)]
                .n;
  if (v->n < 2 || work * v->n * v->n > MOST_DOMINANCE) return false;
  bool *keep = all_kept(r, v->n), all = true;
  for (int i = 0; i < v->n; i++)
    for (int j = 0; j < v->n && keep[i]; j++)
      if (j != i && keep[j] && is_dominated(g, variable, j, i)) {
        keep[i] = false;
        all = false;
        factor_graph_note(g, FACTOR_STEP_dominated, variable, i, v->labels[j],
                          0);
      }
  if (!all) keep_values(r, variable, keep);
  return !all;
}

/* ---- edges that are sums ---- */

static bool is_sum(const FactorGraph *g, const Edge *edge) {
  int n = g->variables[edge->of[0]].n, m = g->variables[edge->of[1]].n;
  const FactorCost *c = edge->costs;
  for (int i = 0; i < n; i++)
    for (int j = 0; j < m; j++) {
      FactorCost cost = c[(int64_t)i * m + j];
      if (cost >= COST_LIMIT || cost - c[(int64_t)i * m] != c[j] - c[0])
        return false;
    }
  return true;
}

static bool separate_edge(Reduction *r, int at) {
  FactorGraph *g = r->g;
  Edge *edge = &g->edges.data[at];
  if (!is_sum(g, edge)) return false;
  Variable *a = &g->variables[edge->of[0]], *b = &g->variables[edge->of[1]];
  for (int i = 0; i < a->n; i++) a->costs[i] += edge->costs[(int64_t)i * b->n];
  for (int j = 0; j < b->n; j++)
    add_cost(&b->costs[j], edge->costs[j] - edge->costs[0]);
  factor_graph_note(g, FACTOR_STEP_separate, edge->of[0], -1, edge->of[1], 0);
  factor_graph_remove_edge(g, at);
  touch(r, edge->of[0]);
  touch(r, edge->of[1]);
  return true;
}

static bool reduce_sums(Reduction *r, int variable) {
  const Variable *v = &r->g->variables[variable];
  bool has_gone = false;
  for (int k = v->edges.n - 1; k >= 0; k--)
    has_gone |= separate_edge(r, v->edges.data[k]);
  return has_gone;
}

/* ---- contraction ---- */

/* Finds the one value of `to` that each value of `from` allows.  Returns
 * whether there is at most one. */
static bool find_function(const FactorGraph *g, const Edge *edge, int from,
                          int *out_map) {
  int n = g->variables[from].n,
      m = g->variables[factor_graph_other(edge, from)].n;
  for (int i = 0; i < n; i++) {
    out_map[i] = -1;
    for (int j = 0; j < m; j++) {
      if (*factor_graph_at(g, edge, from, i, j) >= COST_LIMIT) continue;
      if (out_map[i] >= 0) return false;
      out_map[i] = j;
    }
    if (out_map[i] < 0) return false; /* consistency removes it first */
  }
  return true;
}

/* Returns whether tables do not grow much when a variable with few values gets
 * the values of another one. */
static bool is_small_join(const FactorGraph *g, int from, int to) {
  const Variable *x = &g->variables[from], *y = &g->variables[to];
  int64_t before = (int64_t)x->n * y->n, after = 0;
  for (int k = 0; k < y->edges.n; k++) {
    int other = factor_graph_other(&g->edges.data[y->edges.data[k]], to);
    if (other == from) continue;
    before += (int64_t)y->n * g->variables[other].n;
    after += (int64_t)x->n * g->variables[other].n;
  }
  return after <= 2 * before;
}

/* Gives an edge of `to` to `from`. */
static void move_edge(Reduction *r, int at, int from, int to, const int *map) {
  FactorGraph *g = r->g;
  Edge edge = g->edges.data[at];
  int other = factor_graph_other(&edge, to), n = g->variables[from].n;
  int m = g->variables[other].n;
  FactorCost *costs = ARENA_ARRAY(g->arena, FactorCost, (int64_t)n * m);
  for (int i = 0; i < n; i++)
    for (int j = 0; j < m; j++)
      costs[(int64_t)i * m + j] = *factor_graph_at(g, &edge, to, map[i], j);
  factor_graph_remove_edge(g, at);
  factor_graph_add_edge(g, from, other, costs);
  touch(r, other);
}

static void move_pieces(FactorGraph *g, int from, int to, const int *map) {
  Variable *x = &g->variables[from], *y = &g->variables[to];
  for (int k = 0; k < y->pieces.n; k++) {
    Piece piece = y->pieces.data[k];
    int64_t *usages = ARENA_ARRAY(g->arena, int64_t, x->n);
    for (int i = 0; i < x->n; i++) usages[i] = piece.usages[map[i]];
    vec_push(g->arena, &x->pieces, (Piece){piece.begin, piece.end, usages});
  }
  if (y->pieces.n > 0) x->is_merged = false;
  y->pieces.n = 0;
}

static void contract(Reduction *r, int at, int from, int to, const int *map) {
  FactorGraph *g = r->g;
  Variable *x = &g->variables[from], *y = &g->variables[to];
  Step step = {.n_others = 1, .others = {from}};
  step.choice = ARENA_ARRAY(g->arena, int, x->n);
  for (int i = 0; i < x->n; i++) {
    FactorCost pair = *factor_graph_at(g, &g->edges.data[at], from, i, map[i]);
    x->costs[i] = cost_plus(x->costs[i], cost_plus(y->costs[map[i]], pair));
    step.choice[i] = y->labels[map[i]];
  }
  factor_graph_note(g, FACTOR_STEP_join, to, -1, from, 0);
  factor_graph_remove_edge(g, at);
  while (y->edges.n > 0)
    move_edge(r, y->edges.data[y->edges.n - 1], from, to, map);
  move_pieces(g, from, to, map);
  factor_graph_remove(g, to, step);
  touch(r, from);
  touch_neighbours(r, from);
}

/* How much has to move if a variable joins another one. */
static int weight_of(const FactorGraph *g, int variable) {
  return g->variables[variable].edges.n + g->variables[variable].pieces.n;
}

/* Contracts one edge of a variable, in either direction. */
static bool reduce_contraction(Reduction *r, int variable) {
  FactorGraph *g = r->g;
  const Variable *v = &g->variables[variable];
  for (int k = 0; k < v->edges.n; k++) {
    int at = v->edges.data[k];
    const Edge *edge = &g->edges.data[at];
    int ends[2] = {variable, factor_graph_other(edge, variable)};
    bool is_light = weight_of(g, ends[0]) < weight_of(g, ends[1]);
    for (int side = 0; side < 2; side++) {
      int from = ends[side ^ is_light], to = ends[!side ^ is_light];
      int *map = ARENA_ARRAY(r->scratch, int, g->variables[from].n);
      if (!is_small_join(g, from, to) || !find_function(g, edge, from, map))
        continue;
      contract(r, at, from, to, map);
      return true;
    }
  }
  return false;
}

/* ---- degree ---- */

/* The cost of each value of a variable with others fixed, and of the best. */
static FactorCost best_value(const FactorGraph *g, int variable,
                             const Edge **edges, const int *others, int n,
                             int *out_value) {
  const Variable *v = &g->variables[variable];
  FactorCost best = COST_NEVER;
  *out_value = 0;
  for (int i = 0; i < v->n; i++) {
    FactorCost sum = v->costs[i];
    for (int k = 0; k < n; k++)
      add_cost(&sum, *factor_graph_at(g, edges[k], variable, i, others[k]));
    if (sum < best) {
      best = sum;
      *out_value = i;
    }
  }
  return best >= COST_LIMIT ? COST_NEVER : best;
}

static bool reduce_degree(Reduction *r, int variable) {
  FactorGraph *g = r->g;
  Variable *v = &g->variables[variable];
  int degree = v->edges.n, n[2] = {1, 1}, at[2] = {0, 0}, value;
  const Edge *edges[2] = {0};
  Step step = {.n_others = degree};
  if (degree > 2 || v->pieces.n > 0) return false;
  for (int k = 0; k < degree; k++) {
    edges[k] = &g->edges.data[v->edges.data[k]];
    step.others[k] = factor_graph_other(edges[k], variable);
    n[k] = g->variables[step.others[k]].n;
  }
  if ((int64_t)n[0] * n[1] * v->n > MOST_JOINED) return false;
  factor_graph_note(g, FACTOR_STEP_eliminate, variable, -1, 0, 0);
  FactorCost *costs = ARENA_ARRAY(g->arena, FactorCost, (int64_t)n[0] * n[1]);
  step.choice = ARENA_ARRAY(g->arena, int, (int64_t)n[0] * n[1]);
  for (at[0] = 0; at[0] < n[0]; at[0]++)
    for (at[1] = 0; at[1] < n[1]; at[1]++) {
      int cell = at[0] * n[1] + at[1];
      costs[cell] = best_value(g, variable, edges, at, degree, &value);
      step.choice[cell] = v->labels[value];
    }
  while (v->edges.n > 0)
    factor_graph_remove_edge(g, v->edges.data[v->edges.n - 1]);
  if (degree == 2)
    factor_graph_add_edge(g, step.others[0], step.others[1], costs);
  for (int i = 0; degree == 1 && i < n[0]; i++)
    add_cost(&g->variables[step.others[0]].costs[i], costs[i]);
  if (degree == 0) add_cost(&g->constant, costs[0]);
  factor_graph_remove(g, variable, step);
  for (int k = 0; k < degree; k++) touch(r, step.others[k]);
  return true;
}

/* Gives the edges of a variable with a single value to its neighbours. */
static bool reduce_single(Reduction *r, int variable) {
  FactorGraph *g = r->g;
  Variable *v = &g->variables[variable];
  if (v->n != 1) return false;
  factor_graph_note(g, FACTOR_STEP_single, variable, -1, 0, 0);
  rows_merge(g, variable);
  while (v->edges.n > 0) {
    int at = v->edges.data[v->edges.n - 1];
    const Edge *edge = &g->edges.data[at];
    int other = factor_graph_other(edge, variable);
    for (int i = 0; i < g->variables[other].n; i++)
      add_cost(&g->variables[other].costs[i],
               *factor_graph_at(g, edge, variable, 0, i));
    factor_graph_remove_edge(g, at);
    touch(r, other);
  }
  Step step = {.choice = ARENA_NEW(g->arena, int)};
  step.choice[0] = v->labels[0];
  add_cost(&g->constant, v->costs[0]);
  factor_graph_remove(g, variable, step);
  return true;
}

/* ---- all ---- */

/* Applies the first rule that finds something; then the variable is in the
 * queue again. */
static void reduce_variable(Reduction *r, int variable) {
  const bool *without = r->without;
  if (!without[FACTOR_consistency] && reduce_consistency(r, variable)) return;
  if (r->g->has_none || reduce_single(r, variable)) return;
  if (!without[FACTOR_contraction] && reduce_contraction(r, variable)) {
    touch(r, variable);
    return;
  }
  if (!without[FACTOR_degree] && (r->g->is_rough || !reduce_sums(r, variable)))
    reduce_degree(r, variable);
}

static void run_queue(Reduction *r) {
  FactorGraph *g = r->g;
  while (r->n > 0 && !g->has_none) {
    int variable = r->queue[r->begin];
    r->begin = (r->begin + 1) % g->n_variables;
    r->n--;
    g->variables[variable].is_waiting = false;
    if (g->variables[variable].n > 0) reduce_variable(r, variable);
    arena_clear(r->scratch);
  }
}

/* Dominance takes longer than the other rules, so it waits until they find
 * nothing. */
static void run_dominance(Reduction *r) {
  FactorGraph *g = r->g;
  for (int i = 0; i < g->n_variables && !g->has_none; i++)
    if (g->variables[i].n > 1) {
      rows_merge(g, i);
      reduce_dominance(r, i);
      arena_clear(r->scratch);
    }
}

void factor_graph_reduce(FactorGraph *g, const bool *without) {
  Arena *scratch = arena_beside(g->arena);
  bool *is_changed = ARENA_ARRAY(scratch, bool, g->n_variables);
  Reduction r = {.g = g, .without = without};
  r.queue = ARENA_ARRAY(scratch, int, g->n_variables);
  r.scratch = arena_beside(g->arena);
  for (int i = 0; i < g->n_variables; i++) touch(&r, i);
  do {
    run_queue(&r);
    if (!without[FACTOR_dominance]) {
      run_dominance(&r);
      if (r.n > 0) continue;
    }
    for (int i = 0; i < g->n_variables; i++) is_changed[i] = false;
    if (!g->has_none) rows_reduce(g, is_changed);
    for (int i = 0; i < g->n_variables; i++) {
      if (!is_changed[i]) continue;
      touch(&r, i);
      touch_neighbours(&r, i);
    }
  } while (r.n > 0 && !g->has_none);
  g->has_none |= g->constant >= COST_LIMIT;
  arena_destroy(r.scratch);
  arena_destroy(scratch);
}
