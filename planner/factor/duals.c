/*
 * duals.c -- says why no values cost less than the bound: how the problem
 * shrank, then stages of prices and messages.
 *
 * A stage has prices and messages of the best bound of some sweeps, the first
 * one from the best prices that the solver had before it fixed values.  Values
 * that cost no less than the best labelling by these go, and the next stage
 * does without them.  planner/recheck/duals.c adds it all up.
 */
#include "planner/factor/solver.h"

enum { MOST_STAGES = 6, MOST_ROUNDS = 12, N_SWEEPS = 10 };

typedef struct Maker {
  Arena *arena; /* of what stays */
  const FactorGraph *g;
  Solver *s;
  FactorDuals *duals;
  VEC(FactorStage) stages;
  FactorCost bound;  /* of the stage */
  FactorCost *moved; /* at the bound */
  FactorCost *theta;
  int64_t *prices;
} Maker;

/* ---- a stage ---- */

/* Keeps prices and messages if their bound is better. */
static void note_bound(Maker *k) {
  const Messages *m = k->s->messages;
  const Core *core = k->s->core;
  if (messages_bound(m) <= k->bound) return;
  k->bound = messages_bound(m);
  for (int at = 0; at < core->n_messages; at++) k->moved[at] = m->moved[at];
  for (int v = 0; v < core->n_values; v++) k->theta[v] = m->theta[v];
  for (int row = 0; row < core->n_rows; row++) k->prices[row] = m->prices[row];
  k->s->bound = k->bound;
}

static void set_prices(Solver *s, const int64_t *prices) {
  for (int row = 0; row < s->core->n_rows; row++)
    s->messages->prices[row] = prices[row];
  messages_price(s->messages);
}

/* Whoever asks needs no higher bound. */
static bool is_enough(const Maker *k) {
  FactorCost enough = k->s->budget->enough;
  return enough > 0 && k->bound >= enough;
}

/* Raises the bound by some sweeps.  Returns whether it rose. */
static bool raise_bound(Maker *k) {
  Solver *s = k->s;
  FactorCost before = k->bound;
  for (int i = 0; i < N_SWEEPS && !is_enough(k); i++) {
    messages_sweep(s->messages);
    note_bound(k);
    if (s->messages->has_none) return false;
    messages_read(s->messages, s->reading);
    note_bound(k);
    if (s->messages->has_none) return false;
    if (s->core->n_rows > 0) multipliers_step(s);
  }
  FactorCost gap = s->cost < COST_LIMIT ? s->cost - k->bound : k->bound;
  return k->bound > before + (gap < 0 ? -gap : gap) / 100;
}

/* Finds prices and messages of a high bound; where it does not rise, steps
 * become shorter. */
static void find_messages(Maker *k) {
  Solver *s = k->s;
  k->bound = s->bound = -COST_NEVER;
  k->moved = ARENA_ARRAY(k->arena, FactorCost, s->core->n_messages);
  k->prices = ARENA_ARRAY(k->arena, int64_t, s->core->n_rows);
  s->scale = 1 << 20;
  for (int row = 0; row < s->core->n_rows; row++) s->steps[row] = 0;
  for (int steady = 0, round = 0; steady < 4 && round < MOST_ROUNDS; round++) {
    bool has_risen = raise_bound(k);
    if (is_enough(k)) return;
    if (has_risen) continue;
    if (s->messages->has_none || k->bound >= s->cost) return;
    steady++;
    s->scale -= s->scale / 3;
    set_prices(s, k->prices);
  }
}

static FactorCost reduced(const Maker *k, const CoreEdge *edge, int i, int j) {
  FactorCost cost = edge->costs[(int64_t)i * edge->n[1] + j];
  const bool *is_out = k->s->messages->is_out;
  if (is_out[k->s->core->first[edge->of[0]] + i]) return COST_NEVER;
  if (is_out[k->s->core->first[edge->of[1]] + j]) return COST_NEVER;
  if (cost >= COST_LIMIT) return COST_NEVER;
  return cost + k->moved[edge->at[0] + i] + k->moved[edge->at[1] + j];
}

/* Adds what each value of an edge's ends costs there at least, above the least
 * of all. */
static void add_edge(const Maker *k, const CoreEdge *edge, FactorCost *above,
                     Arena *scratch) {
  FactorCost least = COST_NEVER;
  FactorCost *of[2];
  for (int side = 0; side < 2; side++) {
    of[side] = ARENA_ARRAY(scratch, FactorCost, edge->n[side]);
    for (int v = 0; v < edge->n[side]; v++) of[side][v] = COST_NEVER;
  }
  for (int i = 0; i < edge->n[0]; i++)
    for (int j = 0; j < edge->n[1]; j++) {
      FactorCost cost = reduced(k, edge, i, j);
      if (cost < of[0][i]) of[0][i] = cost;
      if (cost < of[1][j]) of[1][j] = cost;
      if (cost < least) least = cost;
    }
  for (int side = 0; side < 2; side++)
    for (int v = 0; v < edge->n[side]; v++) {
      FactorCost *sum = &above[k->s->core->first[edge->of[side]] + v];
      *sum = of[side][v] >= COST_LIMIT ? COST_NEVER
                                       : cost_plus(*sum, of[side][v] - least);
    }
}

/* Returns how far each value's cost is above the bound at least. */
static FactorCost *add_above(const Maker *k, Arena *scratch) {
  const Core *core = k->s->core;
  FactorCost *above = ARENA_ARRAY(scratch, FactorCost, core->n_values);
  for (int i = 0; i < core->n_variables; i++) {
    FactorCost least = COST_NEVER;
    const FactorCost *theta = k->theta + core->first[i];
    const bool *is_out = k->s->messages->is_out + core->first[i];
    for (int v = 0; v < core->n[i]; v++)
      if (!is_out[v] && theta[v] < least) least = theta[v];
    for (int v = 0; v < core->n[i]; v++)
      above[core->first[i] + v] = theta[v] - least;
  }
  for (int e = 0; e < core->n_edges; e++)
    add_edge(k, &core->edges[e], above, scratch);
  return above;
}

/* Removes the values that cost too much.  Returns how many went. */
static int remove_dear(Maker *k, FactorStage *stage) {
  const Core *core = k->s->core;
  bool *is_out = k->s->messages->is_out;
  Arena *scratch = arena_beside(k->arena);
  const FactorCost *above = add_above(k, scratch);
  int(*removed)[2] =
      arena_alloc(k->arena, sizeof(int[2]) * (size_t)core->n_values);
  for (int i = 0; i < core->n_variables; i++)
    for (int v = 0; v < core->n[i]; v++) {
      int at = core->first[i] + v;
      if (is_out[at] || cost_plus(k->bound, above[at]) < k->s->cost) continue;
      is_out[at] = true;
      removed[stage->n_removed][0] = core->variables[i];
      removed[stage->n_removed++][1] =
          k->g->variables[core->variables[i]].labels[v];
    }
  stage->removed = (const int(*)[2])removed;
  arena_destroy(scratch);
  return stage->n_removed;
}

static void add_stages(Maker *k) {
  Solver *s = k->s;
  Messages *m = s->messages;
  for (int v = 0; v < s->core->n_values; v++)
    m->is_out[v] = s->core->costs[v] >= COST_LIMIT;
  set_prices(s, s->root_prices);
  k->theta = ARENA_ARRAY(k->arena, FactorCost, s->core->n_values);
  bool is_last = false;
  while (!is_last) {
    find_messages(k);
    FactorStage stage = {.prices = k->prices, .moved = k->moved};
    is_last = m->has_none || s->cost >= COST_LIMIT ||
              s->budget->without[FACTOR_fixing] ||
              k->stages.n + 1 == MOST_STAGES || remove_dear(k, &stage) == 0;
    vec_push(k->arena, &k->stages, stage);
  }
}

/* ---- all ---- */

static void name_core(Maker *k) {
  const Core *core = k->s->core;
  FactorDuals *d = k->duals;
  int64_t *times = ARENA_ARRAY(k->arena, int64_t, core->n_rows);
  int(*pairs)[2] =
      arena_alloc(k->arena, sizeof(int[2]) * (size_t)core->n_edges);
  for (int row = 0; row < core->n_rows; row++)
    times[row] = k->g->times[core->rows[row]];
  for (int e = 0; e < core->n_edges; e++)
    for (int side = 0; side < 2; side++)
      pairs[e][side] = core->variables[core->edges[e].of[side]];
  d->n_times = core->n_rows;
  d->times = times;
  d->n_pairs = core->n_edges;
  d->pairs = (const int(*)[2])pairs;
  d->n_moved = core->n_messages;
}

FactorDuals *duals_make(Arena *arena, const FactorGraph *g, Solver *s) {
  FactorDuals *d = ARENA_NEW(arena, FactorDuals);
  d->bound = d->best = FACTOR_MOST_SUM;
  d->n_steps = g->notes.n;
  d->steps =
      arena_copy(arena, g->notes.data, (size_t)g->notes.n * sizeof(FactorStep));
  if (!s) return d;
  Maker k = {.arena = arena, .g = g, .s = s, .duals = d};
  name_core(&k);
  add_stages(&k);
  d->n_stages = k.stages.n;
  d->stages = k.stages.data;
  if (s->cost < COST_LIMIT) d->best = s->cost;
  d->bound = k.bound >= COST_LIMIT || k.bound > d->best ? d->best : k.bound;
  return d;
}
