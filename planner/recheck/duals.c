/*
 * duals.c -- adds up what prices and messages prove.
 *
 * A pair's message moves cost from a value of a variable to the pair; a price
 * of memory moves the limit to the values that use it.  Neither makes the cost
 * of an allowed assignment larger.  So the least of each variable and of each
 * pair add up to a bound.  A value whose own least is as much above as the best
 * cost is cannot belong to anything better.
 *
 * Sums are in units of 2^-32 and in 128 bits, so nothing is rounded.
 */
#include "planner/recheck/duals_graph.h"

enum { PRICE_UNIT_BITS = 32 };
#define MOST_MOVED ((FactorCost)1 << 58)
#define NEVER      ((Int128)1 << 120)
#define MOST_SUM   ((Int128)1 << 118)

typedef struct Sum {
  DualGraph *g;
  const FactorDuals *duals;
  Arena *scratch;
  bool **is_named; /* by variable and value: messages are about it */
  Int128 *prices;  /* before each row */
  Int128 **costs;  /* by variable and value: what is left of it */
  Int128 **above;  /* how far it is above the bound, beside its own cost */
  Int128 total;    /* NEVER: nothing is allowed */
} Sum;

static Int128 units(FactorCost cost) {
  return cost == NO_COST ? NEVER
                         : (Int128)cost * ((Int128)1 << PRICE_UNIT_BITS);
}

static Int128 plus(Int128 a, Int128 b) {
  return a >= MOST_SUM || b >= MOST_SUM ? NEVER : a + b;
}

/* ---- prices ---- */

static const char *add_prices(Sum *s, const FactorStage *stage) {
  const FactorDuals *d = s->duals;
  s->prices = ARENA_ARRAY(s->scratch, Int128, s->g->n_rows + 1);
  for (int k = 0; k < d->n_times; k++) {
    int row = dual_rows_find(s->g, d->times[k]);
    if (row < 0) return "a price has no time";
    if (stage->prices[k] < 0) return "a price is negative";
    s->prices[row + 1] += stage->prices[k];
  }
  for (int row = 0; row < s->g->n_rows; row++)
    s->prices[row + 1] += s->prices[row];
  if (s->prices[s->g->n_rows] >= (Int128)1 << 61) return "prices are too large";
  return NULL;
}

/* Returns what the usages of a value cost; few bits are lost where that is a
 * great deal. */
static Int128 paid_by(const Sum *s, int variable, int value) {
  const DualVariable *v = &s->g->variables[variable];
  Int128 sum = 0, most = (Int128)1 << 90;
  for (int k = 0; k < v->pieces.n; k++) {
    const DualPiece *piece = &v->pieces.data[k];
    Int128 price = s->prices[piece->end] - s->prices[piece->begin];
    Int128 usage = piece->usages[value];
    if (price == 0 || usage == 0) continue;
    if (usage > most / price) return most;
    sum += usage * price;
    if (sum > most) return most;
  }
  return sum;
}

static void add_variable(Sum *s, int variable) {
  const DualVariable *v = &s->g->variables[variable];
  s->costs[variable] = ARENA_ARRAY(s->scratch, Int128, v->n);
  s->above[variable] = ARENA_ARRAY(s->scratch, Int128, v->n);
  Int128 least = NEVER;
  for (int i = 0; i < v->n; i++) {
    if (!v->is_left[i]) continue;
    Int128 paid = paid_by(s, variable, i);
    s->costs[variable][i] = v->is_gone ? paid : plus(units(v->costs[i]), paid);
    if (paid < least) least = paid;
  }
  if (v->is_gone && v->pieces.n > 0) s->total = plus(s->total, least);
}

/* ---- messages ---- */

/* Takes the messages of one end of a pair from its values.  Those of values
 * that went in an earlier stage are there, too. */
static const FactorCost *take(Sum *s, int variable, const FactorCost *from,
                              const FactorCost *end, Int128 *out) {
  for (int i = 0; i < s->g->variables[variable].n; i++) {
    if (!s->is_named[variable][i]) continue;
    if (from == end || *from > MOST_MOVED || *from < -MOST_MOVED) return NULL;
    out[i] = units(*from++);
    s->costs[variable][i] = plus(s->costs[variable][i], -out[i]);
  }
  return from;
}

/* Adds the least cost of a pair, and what each of its values costs more. */
static void add_pair(Sum *s, const DualTable *table, int a,
                     Int128 *const moved[2]) {
  int b = table->of[table->of[0] == a];
  const DualVariable *u = &s->g->variables[a], *v = &s->g->variables[b];
  Int128 least = NEVER;
  Int128 *of_a = ARENA_ARRAY(s->scratch, Int128, u->n);
  Int128 *of_b = ARENA_ARRAY(s->scratch, Int128, v->n);
  for (int i = 0; i < u->n; i++) of_a[i] = NEVER;
  for (int j = 0; j < v->n; j++) of_b[j] = NEVER;
  for (int i = 0; i < u->n; i++)
    for (int j = 0; j < v->n; j++) {
      if (!u->is_left[i] || !v->is_left[j]) continue;
      Int128 cost = plus(units(*dual_cell(s->g, table, a, i, j)),
                         moved[0][i] + moved[1][j]);
      if (cost < of_a[i]) of_a[i] = cost;
      if (cost < of_b[j]) of_b[j] = cost;
      if (cost < least) least = cost;
    }
  s->total = plus(s->total, least);
  for (int i = 0; i < u->n; i++)
    s->above[a][i] = plus(s->above[a][i], plus(of_a[i], -least));
  for (int j = 0; j < v->n; j++)
    s->above[b][j] = plus(s->above[b][j], plus(of_b[j], -least));
}

static const char *add_pairs(Sum *s, const FactorStage *stage) {
  const FactorDuals *d = s->duals;
  const FactorCost *at = stage->moved, *end = at + d->n_moved;
  bool *is_seen = ARENA_ARRAY(s->scratch, bool, s->g->tables.n);
  for (int k = 0; k < d->n_pairs; k++) {
    const int *of = d->pairs[k];
    for (int side = 0; side < 2; side++)
      if (of[side] < 0 || of[side] >= s->g->n ||
          s->g->variables[of[side]].is_gone)
        return "a message has no variable";
    const DualTable *table =
        of[0] == of[1] ? NULL : dual_graph_find(s->g, of[0], of[1]);
    if (!table || is_seen[table - s->g->tables.data])
      return "a message has no pair";
    is_seen[table - s->g->tables.data] = true;
    Int128 *moved[2];
    for (int side = 0; side < 2 && at; side++) {
      moved[side] =
          ARENA_ARRAY(s->scratch, Int128, s->g->variables[of[side]].n);
      at = take(s, of[side], at, end, moved[side]);
    }
    if (!at) return "messages are missing or too large";
    add_pair(s, table, of[0], moved);
  }
  if (at != end) return "there are too many messages";
  for (int k = 0; k < s->g->tables.n; k++)
    if (!s->g->tables.data[k].is_gone && !is_seen[k])
      return "a pair has no messages";
  return NULL;
}

/* ---- a stage ---- */

/* Adds the least cost of each variable; a value without a partner is none. */
static void add_leasts(Sum *s) {
  for (int i = 0; i < s->g->n; i++) {
    const DualVariable *v = &s->g->variables[i];
    if (v->is_gone) continue;
    Int128 least = NEVER;
    for (int k = 0; k < v->n; k++)
      if (v->is_left[k] && s->above[i][k] < MOST_SUM && s->costs[i][k] < least)
        least = s->costs[i][k];
    s->total = plus(s->total, least);
    for (int k = 0; k < v->n; k++)
      if (v->is_left[k])
        s->above[i][k] = plus(s->above[i][k], plus(s->costs[i][k], -least));
  }
}

/* Removes what the duals say costs `best` or more, if it does. */
static const char *remove_dear(Sum *s, const FactorStage *stage) {
  Int128 best = units(s->duals->best);
  for (int k = 0; k < stage->n_removed; k++) {
    int variable = stage->removed[k][0], value = stage->removed[k][1];
    if (variable < 0 || variable >= s->g->n || value < 0 ||
        value >= s->g->variables[variable].n ||
        s->g->variables[variable].is_gone ||
        !s->g->variables[variable].is_left[value])
      return "there is no such value";
    if (s->total < MOST_SUM && plus(s->total, s->above[variable][value]) < best)
      return "a value may be cheaper than the best";
    dual_graph_remove(s->g, variable, value);
  }
  return NULL;
}

static const char *add_up(Sum *s, const FactorStage *stage) {
  s->costs = arena_alloc(s->scratch, sizeof(Int128 *) * (size_t)s->g->n);
  s->above = arena_alloc(s->scratch, sizeof(Int128 *) * (size_t)s->g->n);
  s->total = units(s->g->constant);
  const char *fault = add_prices(s, stage);
  for (int i = 0; i < s->g->n && !fault; i++) add_variable(s, i);
  if (!fault) fault = add_pairs(s, stage);
  if (fault) return fault;
  add_leasts(s);
  if (s->total < MOST_SUM) s->total -= s->g->limit * s->prices[s->g->n_rows];
  return remove_dear(s, stage);
}

/* Returns the sum rounded down. */
static FactorCost bound_of(const Sum *s) {
  Int128 sum = s->total >> PRICE_UNIT_BITS;
  if (s->total >= MOST_SUM || sum > FACTOR_MOST_SUM) return FACTOR_MOST_SUM;
  return sum < -FACTOR_MOST_SUM ? -FACTOR_MOST_SUM : (FactorCost)sum;
}

static const char *add_stages(DualGraph *g, const FactorDuals *duals,
                              FactorCost *out_bound) {
  const char *fault = NULL;
  bool **is_named = arena_alloc(g->arena, sizeof(bool *) * (size_t)g->n);
  for (int i = 0; i < g->n; i++)
    is_named[i] = arena_copy(g->arena, g->variables[i].is_left,
                             (size_t)g->variables[i].n * sizeof(bool));
  for (int k = 0; k < duals->n_stages && !fault; k++) {
    Sum sum = {.g = g, .duals = duals, .is_named = is_named};
    sum.scratch = arena_beside(g->arena);
    fault = add_up(&sum, &duals->stages[k]);
    *out_bound = g->has_none ? FACTOR_MOST_SUM : bound_of(&sum);
    arena_destroy(sum.scratch);
    if (g->has_none) break;
  }
  return fault;
}

DualsCheck recheck_duals(Arena *arena, const FactorProblem *problem,
                         const FactorDuals *duals) {
  DualsCheck check = {.step = -1, .bound = -FACTOR_MOST_SUM};
  Arena *scratch = arena_beside(arena);
  DualGraph *g = dual_graph_create(scratch, problem);
  if (!g) check.fault = "sums of costs are too large";
  for (int k = 0; g && k < duals->n_steps && !g->has_none && !check.fault;
       k++) {
    check.fault = dual_step(g, &duals->steps[k]);
    if (check.fault) check.step = k;
  }
  if (g && (g->has_none || g->constant == NO_COST)) {
    check.bound = FACTOR_MOST_SUM;
  } else if (!check.fault) {
    check.fault = add_stages(g, duals, &check.bound);
  }
  if (!check.fault &&
      duals->bound > (check.bound < duals->best ? check.bound : duals->best))
    check.fault = "the sums are less than the bound";
  arena_destroy(scratch);
  return check;
}
