/*
 * neighbourhoods.c -- changes a labelling for the better.
 *
 * A neighbourhood is a set of variables: some that stand near each other in the
 * graph or use memory in the same row.  All others keep their values; these are
 * solved by elimination, where memory costs what its rows do, times 0, 1 or
 * another factor.  Values are then chosen one after the other, as memory
 * allows.
 */
#include "planner/factor/eliminate.h"
#include "planner/factor/solver.h"

typedef struct Neighbourhood {
  Solver *s;
  Arena *scratch;
  int n;
  int *variables; /* in the core */
  int *numbers;   /* of all variables, -1: not in it */
  int *sizes, *old;
} Neighbourhood;

static void include(Neighbourhood *h, int variable) {
  if (h->numbers[variable] >= 0) return;
  h->numbers[variable] = h->n;
  h->variables[h->n++] = variable;
}

/* Adds neighbours of what is in it, in order, from `from` on. */
static void grow(Neighbourhood *h, int from, int most) {
  const Core *core = h->s->core;
  for (int i = from; i < h->n && h->n < most; i++) {
    int variable = h->variables[i], begin = core->edge_begins[variable];
    int n = core->edge_begins[variable + 1] - begin;
    int skip = n > 0 ? solver_random(h->s, n) : 0;
    for (int k = 0; k < n && k < 12 && h->n < most; k++) {
      const CoreEdge *edge =
          &core->edges[core->edge_lists[begin + (k + skip) % n]];
      include(h, edge->of[edge->of[0] == variable]);
    }
  }
}

/* Finds a variable that uses memory where another one does. */
static int find_rival(Solver *s, int variable) {
  const Core *core = s->core;
  int n = core->piece_begins[variable + 1] - core->piece_begins[variable];
  if (n == 0) return solver_random(s, core->n_variables);
  const CorePiece *own =
      &core->pieces[core->piece_begins[variable] + solver_random(s, n)];
  for (int tries = 0; tries < 20; tries++) {
    int other = solver_random(s, core->n_variables);
    for (int k = core->piece_begins[other]; k < core->piece_begins[other + 1];
         k++)
      if (core->pieces[k].begin < own->end && own->begin < core->pieces[k].end)
        return other;
  }
  return solver_random(s, core->n_variables);
}

/* Returns a variable that uses memory in a row. */
static int find_user(Solver *s, int row) {
  const Core *core = s->core;
  for (int tries = 0; tries < 100; tries++) {
    int variable = solver_random(s, core->n_variables);
    for (int k = core->piece_begins[variable];
         k < core->piece_begins[variable + 1]; k++) {
      const CorePiece *piece = &core->pieces[k];
      if (piece->begin <= row && row < piece->end &&
          piece->usages[s->labelling->values[variable]] > 0)
        return variable;
    }
  }
  return solver_random(s, core->n_variables);
}

/* Returns a variable where something can be won. */
static int find_seed(Solver *s) {
  int seed = solver_random(s, s->core->n_variables);
  if (s->labelling->cost.over > 0 && solver_random(s, 2))
    return find_user(s, labelling_worst_row(s->labelling));
  FactorCost most = solver_gap(s, seed);
  for (int tries = solver_random(s, 8); tries > 0; tries--) {
    int other = solver_random(s, s->core->n_variables);
    FactorCost gap = solver_gap(s, other);
    if (gap <= most) continue;
    most = gap;
    seed = other;
  }
  return seed;
}

static void pick_variables(Neighbourhood *h) {
  Solver *s = h->s;
  int n = s->core->n_variables;
  int most = 8 << solver_random(s, 8), n_seeds = 1 + solver_random(s, 4);
  if (most > n) most = n;
  int seed = find_seed(s);
  for (int i = 0; i < n_seeds && h->n < most; i++) {
    int from = h->n;
    include(h, i == 0 ? seed : find_rival(s, seed));
    grow(h, from, most * (i + 1) / n_seeds);
  }
}

static Cost local_cost(const Neighbourhood *h) {
  const Core *core = h->s->core;
  const int *values = h->s->labelling->values;
  Cost cost = {0};
  for (int i = 0; i < h->n; i++) {
    int variable = h->variables[i];
    cost_add(&cost, core->costs[core->first[variable] + values[variable]]);
    for (int k = core->edge_begins[variable];
         k < core->edge_begins[variable + 1]; k++) {
      const CoreEdge *edge = &core->edges[core->edge_lists[k]];
      int other = edge->of[edge->of[0] == variable];
      if (h->numbers[other] >= 0 && other < variable) continue;
      cost_add(&cost, edge->costs[(int64_t)values[edge->of[0]] * edge->n[1] +
                                  values[edge->of[1]]]);
    }
  }
  cost.over = h->s->labelling->most[1] > 0 ? h->s->labelling->most[1] : 0;
  return cost;
}

/* Adds the costs of an edge to a variable whose value is fixed. */
static void add_fixed(FactorCost *costs, const CoreEdge *edge, int side,
                      int other_value) {
  int64_t stride = side == 0 ? edge->n[1] : 1;
  const FactorCost *cells =
      edge->costs +
      (side == 0 ? other_value : (int64_t)other_value * edge->n[1]);
  for (int v = 0; v < edge->n[side]; v++)
    costs[v] += cells[v * stride] < COST_AVOID ? cells[v * stride] : COST_AVOID;
}

/* Fills in what each value costs, at prices of `factor` quarters. */
static void fill_costs(const Neighbourhood *h, FactorCost *costs, int variable,
                       int factor) {
  const Core *core = h->s->core;
  for (int v = 0; v < core->n[variable]; v++) {
    FactorCost cost = core->costs[core->first[variable] + v];
    FactorCost paid = messages_paid(h->s->messages, variable, v);
    costs[v] = (cost < COST_AVOID ? cost : COST_AVOID) + paid / 4 * factor;
  }
}

static Elimination *make_elimination(const Neighbourhood *h, int factor) {
  const Core *core = h->s->core;
  Elimination *e = elimination_create(h->scratch, h->n, h->sizes);
  for (int i = 0; i < h->n; i++) {
    int variable = h->variables[i];
    fill_costs(h, e->costs[i], variable, factor);
    e->held[i] = h->old[i];
    for (int k = core->edge_begins[variable];
         k < core->edge_begins[variable + 1]; k++) {
      const CoreEdge *edge = &core->edges[core->edge_lists[k]];
      int side = edge->of[1] == variable, other = edge->of[!side];
      if (h->numbers[other] < 0)
        add_fixed(e->costs[i], edge, side, h->s->labelling->values[other]);
      else if (side == 0)
        elimination_add(e, i, h->numbers[other], edge->n[1], 1, edge->costs);
    }
  }
  return e;
}

static int choose(void *user, int variable, const FactorCost *costs) {
  Neighbourhood *h = user;
  const Solver *s = h->s;
  FactorCost least = COST_NEVER;
  int best = 0;
  for (int v = 0; v < h->sizes[variable]; v++) {
    if (costs[v] >= least) continue;
    Cost cost = {.sum = costs[v]};
    cost.over = labelling_over(s->labelling, h->variables[variable], v);
    FactorCost worth = solver_worth(s, cost);
    if (worth >= least) continue;
    least = worth;
    best = v;
  }
  labelling_put(s->labelling, h->variables[variable], best);
  return best;
}

static void solve(Neighbourhood *h) {
  static const int factors[] = {0, 2, 3, 4, 4, 4, 5, 8};
  Solver *s = h->s;
  Elimination *e = make_elimination(h, factors[solver_random(s, 8)]);
  int *values = ARENA_ARRAY(h->scratch, int, h->n);
  e->most = (int64_t)1 << (8 + solver_random(s, 7));
  e->choose = choose;
  e->user = h;
  for (int i = 0; i < h->n; i++) labelling_take(s->labelling, h->variables[i]);
  elimination_solve(e, values);
  for (int i = 0; i < h->n; i++)
    if (s->labelling->values[h->variables[i]] < 0)
      labelling_put(s->labelling, h->variables[i], values[i]);
  s->work += e->work + 100 * h->n + (int64_t)h->n * h->n / 4;
}

/* Makes the limit dearer while the labelling exceeds it, and cheaper otherwise,
 * so that labellings stay near it on either side. */
static void weigh(Solver *s) {
  if (s->labelling->cost.over > 0)
    s->labelling->weight += s->labelling->weight < (int64_t)1 << 60
                                ? s->labelling->weight / 16 + 1
                                : 0;
  else
    s->labelling->weight -= s->labelling->weight / 32;
}

void neighbourhood(Solver *s) {
  const Core *core = s->core;
  Arena *scratch = arena_beside(s->arena);
  Neighbourhood h = {.s = s, .scratch = scratch, .numbers = s->numbers};
  h.variables = ARENA_ARRAY(scratch, int, core->n_variables);
  pick_variables(&h);
  h.sizes = ARENA_ARRAY(scratch, int, h.n);
  h.old = ARENA_ARRAY(scratch, int, h.n);
  for (int i = 0; i < h.n; i++) {
    h.sizes[i] = core->n[h.variables[i]];
    h.old[i] = s->labelling->values[h.variables[i]];
  }
  Cost before = local_cost(&h);
  solve(&h);
  Cost after = local_cost(&h);
  if (solver_worth(s, before) < solver_worth(s, after)) {
    for (int i = 0; i < h.n; i++) labelling_take(s->labelling, h.variables[i]);
    for (int i = 0; i < h.n; i++)
      labelling_put(s->labelling, h.variables[i], h.old[i]);
  } else {
    s->labelling->cost.sum += after.sum - before.sum;
    s->labelling->cost.n_forbidden += after.n_forbidden - before.n_forbidden;
    s->labelling->cost.over = after.over;
    if (cost_is_allowed(s->labelling->cost))
      solver_better(s, s->labelling->cost.sum);
  }
  for (int i = 0; i < h.n; i++) h.numbers[h.variables[i]] = -1;
  if (core->n_rows > 0) weigh(s);
  arena_destroy(scratch);
}
