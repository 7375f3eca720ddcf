/*
 * duals_steps.c -- makes the steps of duals again, each after a look at why it
 * loses nothing.
 */
#include "planner/recheck/duals_graph.h"

static int other_of(const DualTable *table, int variable) {
  return table->of[table->of[0] == variable];
}

static bool has_value(const DualGraph *g, int variable, int value) {
  return value >= 0 && value < g->variables[variable].n &&
         g->variables[variable].is_left[value];
}

/* Lists the tables of a variable that are not gone. */
static int list_tables(const DualGraph *g, int variable, DualTable **out,
                       int most) {
  const DualVariable *v = &g->variables[variable];
  int n = 0;
  for (int k = 0; k < v->tables.n; k++) {
    DualTable *table = &g->tables.data[v->tables.data[k]];
    if (table->is_gone) continue;
    if (n < most) out[n] = table;
    n++;
  }
  return n;
}

/* ---- values ---- */

static const char *step_partner(DualGraph *g, const FactorStep *s) {
  const DualTable *table = dual_graph_find(g, s->variable, s->other);
  if (!table) return "there is no such pair";
  for (int j = 0; j < g->variables[s->other].n; j++)
    if (g->variables[s->other].is_left[j] &&
        *dual_cell(g, table, s->variable, s->value, j) != NO_COST)
      return "the value has a partner";
  dual_graph_remove(g, s->variable, s->value);
  return NULL;
}

/* Returns whether w takes no more than v wherever memory may be short. */
static bool is_no_larger(DualGraph *g, int variable, int w, int v) {
  dual_rows_split(g, variable);
  const DualVariable *of = &g->variables[variable];
  for (int k = 0; k < of->pieces.n; k++) {
    const DualPiece *piece = &of->pieces.data[k];
    if (g->n_short[piece->begin] < g->n_short[piece->end] &&
        piece->usages[w] > piece->usages[v])
      return false;
  }
  return true;
}

static const char *step_dominated(DualGraph *g, const FactorStep *s) {
  const DualVariable *of = &g->variables[s->variable];
  int v = s->value, w = s->other;
  if (!has_value(g, s->variable, w) || w == v) return "there is no such value";
  if (!is_no_larger(g, s->variable, w, v)) return "the other value is larger";
  if (of->costs[w] == NO_COST) return "the other value is forbidden";
  Int128 more =
      of->costs[v] == NO_COST ? 0 : (Int128)of->costs[w] - of->costs[v];
  for (int k = 0; k < of->tables.n; k++) {
    const DualTable *table = &g->tables.data[of->tables.data[k]];
    int other = other_of(table, s->variable);
    bool has_one = false;
    Int128 most = 0;
    for (int j = 0; j < g->variables[other].n && !table->is_gone; j++) {
      FactorCost of_v = *dual_cell(g, table, s->variable, v, j);
      FactorCost of_w = *dual_cell(g, table, s->variable, w, j);
      if (!g->variables[other].is_left[j] || of_v == NO_COST) continue;
      if (of_w == NO_COST) return "the other value lacks a partner";
      if (!has_one || (Int128)of_w - of_v > most) most = (Int128)of_w - of_v;
      has_one = true;
    }
    if (!has_one && !table->is_gone) { /* nor has this one any */
      more = 0;
      break;
    }
    more += most;
  }
  if (more > 0 && of->costs[v] != NO_COST) return "the other value is dearer";
  dual_graph_remove(g, s->variable, v);
  return NULL;
}

static const char *step_memory(DualGraph *g, const FactorStep *s) {
  const DualVariable *v = &g->variables[s->variable];
  int row = dual_rows_find(g, s->time);
  if (row < 0 || !v->is_counted) return "usages are not added up";
  for (int k = 0; k < v->pieces.n; k++) {
    const DualPiece *piece = &v->pieces.data[k];
    if (row < piece->begin || row >= piece->end) continue;
    if (g->least[row] - piece->least + piece->usages[s->value] <= g->limit)
      break;
    dual_graph_remove(g, s->variable, s->value);
    return NULL;
  }
  return "memory is left for the value";
}

static const char *step_forbidden(DualGraph *g, const FactorStep *s) {
  if (g->variables[s->variable].costs[s->value] != NO_COST)
    return "the value is not forbidden";
  dual_graph_remove(g, s->variable, s->value);
  return NULL;
}

/* ---- pairs ---- */

static int first_left(const DualVariable *v) {
  int first = 0;
  while (!v->is_left[first]) first++;
  return first;
}

static const char *step_separate(DualGraph *g, const FactorStep *s) {
  DualTable *table = dual_graph_find(g, s->variable, s->other);
  if (!table) return "there is no such pair";
  DualVariable *a = &g->variables[s->variable], *b = &g->variables[s->other];
  int i0 = first_left(a), j0 = first_left(b);
  FactorCost corner = *dual_cell(g, table, s->variable, i0, j0);
  if (corner == NO_COST) return "the pair forbids values";
  for (int i = 0; i < a->n; i++)
    for (int j = 0; j < b->n; j++) {
      FactorCost of = *dual_cell(g, table, s->variable, i, j);
      FactorCost row = *dual_cell(g, table, s->variable, i, j0);
      FactorCost column = *dual_cell(g, table, s->variable, i0, j);
      if (!a->is_left[i] || !b->is_left[j]) continue;
      if (of == NO_COST || row == NO_COST || column == NO_COST)
        return "the pair forbids values";
      if (of != row + column - corner) return "the pair is no sum";
    }
  for (int i = 0; i < a->n; i++)
    if (a->is_left[i])
      a->costs[i] =
          dual_plus(a->costs[i], *dual_cell(g, table, s->variable, i, j0));
  for (int j = 0; j < b->n; j++)
    if (b->is_left[j])
      b->costs[j] = dual_plus(
          b->costs[j], *dual_cell(g, table, s->variable, i0, j) - corner);
  table->is_gone = true;
  return NULL;
}

/* ---- variables ---- */

/* Finds the one value of `y` that each value of `x` allows. */
static const char *find_map(const DualGraph *g, const DualTable *table, int x,
                            int y, int *out_map) {
  const DualVariable *from = &g->variables[x], *to = &g->variables[y];
  for (int i = 0; i < from->n; i++) {
    out_map[i] = -1;
    for (int j = 0; j < to->n && from->is_left[i]; j++) {
      if (!to->is_left[j] || *dual_cell(g, table, x, i, j) == NO_COST) continue;
      if (out_map[i] >= 0) return "a value allows two values";
      out_map[i] = j;
    }
    if (from->is_left[i] && out_map[i] < 0) return "a value allows no value";
  }
  return NULL;
}

/* Adds the tables of y to x. */
static void move_tables(DualGraph *g, int x, int y, const int *map) {
  for (int k = 0; k < g->variables[y].tables.n; k++) {
    int at = g->variables[y].tables.data[k];
    DualTable from = g->tables.data[at];
    int other = other_of(&from, y);
    if (from.is_gone) continue;
    g->tables.data[at].is_gone = true;
    const DualTable *to = dual_graph_table(g, x, other);
    for (int i = 0; i < g->variables[x].n; i++)
      for (int j = 0; j < g->variables[other].n && map[i] >= 0; j++) {
        FactorCost *cell = dual_cell(g, to, x, i, j);
        *cell = dual_plus(*cell, *dual_cell(g, &from, y, map[i], j));
      }
  }
}

static const char *step_join(DualGraph *g, const FactorStep *s) {
  int x = s->other, y = s->variable;
  DualTable *table = dual_graph_find(g, x, y);
  if (!table) return "there is no such pair";
  DualVariable *from = &g->variables[y], *to = &g->variables[x];
  int *map = ARENA_ARRAY(g->arena, int, to->n);
  const char *fault = find_map(g, table, x, y, map);
  if (fault) return fault;
  for (int i = 0; i < to->n; i++)
    if (map[i] >= 0)
      to->costs[i] = dual_plus(
          to->costs[i],
          dual_plus(from->costs[map[i]], *dual_cell(g, table, x, i, map[i])));
  table->is_gone = true;
  move_tables(g, x, y, map);
  for (int k = 0; k < from->pieces.n; k++) {
    DualPiece piece = from->pieces.data[k];
    Int128 *usages = ARENA_ARRAY(g->arena, Int128, to->n);
    for (int i = 0; i < to->n; i++)
      usages[i] = map[i] >= 0 ? piece.usages[map[i]] : 0;
    piece.usages = usages;
    vec_push(g->arena, &to->pieces, piece);
  }
  if (from->pieces.n > 0) to->is_disjoint = to->is_counted = false;
  from->pieces.n = 0;
  from->is_gone = true;
  return NULL;
}

/* Returns the least cost over the values of a variable by those of others. */
static FactorCost least_over(const DualGraph *g, int variable,
                             DualTable *const *tables, const int *values,
                             int n) {
  const DualVariable *v = &g->variables[variable];
  FactorCost least = NO_COST;
  for (int i = 0; i < v->n; i++) {
    FactorCost sum = v->costs[i];
    for (int k = 0; k < n; k++)
      sum = dual_plus(sum, *dual_cell(g, tables[k], variable, i, values[k]));
    if (v->is_left[i] && sum < least) least = sum;
  }
  return least;
}

/* Gives the costs over a variable to its one or two neighbours. */
static void eliminate(DualGraph *g, int variable, DualTable *const *tables,
                      int n) {
  int others[2] = {0}, values[2] = {0};
  DualVariable *of[2] = {0};
  for (int k = 0; k < n; k++) {
    others[k] = other_of(tables[k], variable);
    of[k] = &g->variables[others[k]];
  }
  DualTable copies[2], *kept[2] = {&copies[0], &copies[1]};
  for (int k = 0; k < n; k++) {
    copies[k] = *tables[k]; /* making a table may move the others */
    tables[k]->is_gone = true;
  }
  if (n == 0)
    g->constant =
        dual_plus(g->constant, least_over(g, variable, kept, values, 0));
  for (values[0] = 0; n == 1 && values[0] < of[0]->n; values[0]++)
    if (of[0]->is_left[values[0]])
      of[0]->costs[values[0]] = dual_plus(
          of[0]->costs[values[0]], least_over(g, variable, kept, values, 1));
  if (n < 2) return;
  const DualTable *to = dual_graph_table(g, others[0], others[1]);
  for (values[0] = 0; values[0] < of[0]->n; values[0]++)
    for (values[1] = 0; values[1] < of[1]->n; values[1]++) {
      if (!of[0]->is_left[values[0]] || !of[1]->is_left[values[1]]) continue;
      FactorCost *cell = dual_cell(g, to, others[0], values[0], values[1]);
      *cell = dual_plus(*cell, least_over(g, variable, kept, values, 2));
    }
}

static const char *step_eliminate(DualGraph *g, const FactorStep *s) {
  DualTable *tables[2];
  int n = list_tables(g, s->variable, tables, 2);
  const DualVariable *v = &g->variables[s->variable];
  if (n > 2) return "the variable has more than two pairs";
  int first = first_left(v);
  for (int i = 0; i < v->n; i++)
    if (v->is_left[i] && (!is_no_larger(g, s->variable, i, first) ||
                          !is_no_larger(g, s->variable, first, i)))
      return "its usages differ";
  eliminate(g, s->variable, tables, n);
  g->variables[s->variable].is_gone = true;
  return NULL;
}

static const char *step_single(DualGraph *g, const FactorStep *s) {
  DualVariable *v = &g->variables[s->variable];
  if (v->n_left != 1) return "the variable has several values";
  int value = first_left(v);
  for (int k = 0; k < v->tables.n; k++) {
    DualTable *table = &g->tables.data[v->tables.data[k]];
    DualVariable *other = &g->variables[other_of(table, s->variable)];
    for (int j = 0; j < other->n && !table->is_gone; j++)
      if (other->is_left[j])
        other->costs[j] = dual_plus(
            other->costs[j], *dual_cell(g, table, s->variable, value, j));
    table->is_gone = true;
  }
  g->constant = dual_plus(g->constant, v->costs[value]);
  v->is_gone = true;
  return NULL;
}

const char *dual_step(DualGraph *g, const FactorStep *s) {
  typedef const char *StepFunction(DualGraph *, const FactorStep *);
  static StepFunction *const functions[N_FACTOR_STEPS] = {
      [FACTOR_STEP_forbidden] = step_forbidden,
      [FACTOR_STEP_partner] = step_partner,
      [FACTOR_STEP_dominated] = step_dominated,
      [FACTOR_STEP_memory] = step_memory,
      [FACTOR_STEP_separate] = step_separate,
      [FACTOR_STEP_join] = step_join,
      [FACTOR_STEP_eliminate] = step_eliminate,
      [FACTOR_STEP_single] = step_single};
  bool has_other = s->kind == FACTOR_STEP_partner ||
                   s->kind == FACTOR_STEP_separate ||
                   s->kind == FACTOR_STEP_join;
  bool is_value = s->kind <= FACTOR_STEP_memory;
  if (s->kind == FACTOR_STEP_rows) {
    dual_rows_add_up(g);
    return NULL;
  }
  if ((unsigned)s->kind >= N_FACTOR_STEPS) return "there is no such step";
  if (s->variable < 0 || s->variable >= g->n ||
      g->variables[s->variable].is_gone)
    return "there is no such variable";
  if (has_other && (s->other < 0 || s->other >= g->n ||
                    s->other == s->variable || g->variables[s->other].is_gone))
    return "there is no other variable";
  if (is_value && !has_value(g, s->variable, s->value))
    return "there is no such value";
  return functions[s->kind](g, s);
}
