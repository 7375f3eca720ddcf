/*
 * eliminate.c -- eliminates the variables of a sum of tables.
 *
 *     f(a, b) + g(b, c) + h(c, d)
 *     b: t(a, c) = min over b of f(a, b) + g(b, c), and the b that does it
 *     c: u(a, d) = min over c of t(a, c) + h(c, d) ...
 *
 * Next comes the variable whose elimination makes the smallest table.  Then the
 * values are read back from the last one to the first.
 *
 * Where that table would be too large, the tables of the variable may be
 * eliminated in groups, as if it could have another value in each
 * (mini-buckets: Dechter and Rish, 2003).  The sum is then too low, if
 * anything.
 *
 * Equal blocks of a program have equal tables, so most eliminations have been
 * done before: a table is known by its contents, less its least entry, which is
 * added up apart.  What has come through some equal blocks is soon the same
 * table after each of them.
 */
#include "planner/solve/eliminate.h"

#include <string.h>

enum { MOST_WIDTH = 12 };
#define TOO_MANY ((int64_t)1 << 40) /* entries of a table */

typedef struct SumTable {
  int n;
  int vars[MOST_WIDTH]; /* ascending */
  const int64_t *costs; /* the last variable varies fastest */
  uint64_t id;          /* equal tables have equal ones */
  bool is_used;         /* a later table has it */
} SumTable;

/* The table that an elimination makes. */
typedef struct Made {
  const int64_t *costs;
  const uint16_t *best;
  uint64_t id;
  int64_t least; /* has been taken from the costs */
} Made;

typedef struct Step {
  int var;
  SumTable around;      /* variables that are left */
  const uint16_t *best; /* by entry of `around` */
} Step;

typedef VEC(int) IntList;

typedef struct Elimination {
  Arena *arena;
  const PairProblem *p;
  int64_t most;
  bool may_split;         /* where tables would have more entries */
  const int64_t *nothing; /* costs of a variable that another group has */
  VEC(SumTable) tables;
  IntList *of_var; /* tables of each variable */
  bool *is_gone;
  int64_t *made_entries; /* of the table that a variable would leave, or 0 */
  VEC(Step) steps;
  Map *known;  /* what is eliminated -> Made */
  Map *turned; /* costs of a pair -> the same, turned */
  int64_t least;
} Elimination;

/* ---- tables ---- */

static const void *key_of(uint64_t hash) {
  return (const void *)(uintptr_t)(hash ? hash : 1);
}

static uint64_t id_of(const void *costs) {
  return hash_mix(7, (uint64_t)(uintptr_t)costs);
}

static void put(Elimination *e, const SumTable *table) {
  vec_push(e->arena, &e->tables, *table);
  for (int i = 0; i < table->n; i++)
    vec_push(e->arena, &e->of_var[table->vars[i]], e->tables.n - 1);
}

static const int64_t *turn(Elimination *e, const PairCosts *pair) {
  int na = e->p->n_values[pair->a], nb = e->p->n_values[pair->b];
  int64_t *turned = map_get(e->turned, pair->costs);
  if (turned) return turned;
  turned = ARENA_ARRAY(e->arena, int64_t, na * nb);
  for (int i = 0; i < na; i++)
    for (int k = 0; k < nb; k++) turned[k * na + i] = pair->costs[i * nb + k];
  map_put(e->turned, pair->costs, turned);
  return turned;
}

static void put_pair(Elimination *e, const PairCosts *pair) {
  bool is_turned = pair->a > pair->b;
  SumTable table = {.n = 2, .costs = is_turned ? turn(e, pair) : pair->costs};
  table.vars[is_turned] = pair->a;
  table.vars[!is_turned] = pair->b;
  table.id = id_of(table.costs);
  put(e, &table);
}

/* Adds the variables of a table, but for `var`.  Returns false if they are too
 * many. */
static bool add_around(const SumTable *table, int var, SumTable *out) {
  for (int k = 0; k < table->n; k++) {
    int other = table->vars[k], at = 0;
    if (other == var) continue;
    while (at < out->n && out->vars[at] < other) at++;
    if (at < out->n && out->vars[at] == other) continue;
    if (out->n == MOST_WIDTH) return false;
    for (int j = out->n++; j > at; j--) out->vars[j] = out->vars[j - 1];
    out->vars[at] = other;
  }
  return true;
}

static int64_t entries(const Elimination *e, const SumTable *table) {
  int64_t n = 1;
  for (int i = 0; i < table->n && n < TOO_MANY; i++)
    n *= e->p->n_values[table->vars[i]];
  return n;
}

/* ---- a step ---- */

/* A table of the variable, with what an index of each variable adds. */
typedef struct Walked {
  const int64_t *costs;
  int64_t stride[MOST_WIDTH], of_var; /* by variable around */
} Walked;

static Walked walked(const Elimination *e, const SumTable *table,
                     const SumTable *around, int var) {
  Walked out = {.costs = table->costs};
  int64_t stride = 1;
  for (int k = table->n - 1; k >= 0; k--) {
    for (int j = 0; j < around->n; j++)
      if (around->vars[j] == table->vars[k]) out.stride[j] = stride;
    if (table->vars[k] == var) out.of_var = stride;
    stride *= e->p->n_values[table->vars[k]];
  }
  return out;
}

/* Tables that are eliminated together. */
typedef struct Group {
  int var;
  const int64_t *own; /* costs of its values */
  IntList tables;     /* their numbers */
  Walked *walks;      /* by table */
  SumTable around;    /* the variables that they have beside it */
} Group;

/* A row of entries: those that differ in the last variable around alone. */
typedef struct Row {
  int64_t n, *sums; /* sums: scratch */
  int64_t *least;
  uint16_t *best;
} Row;

static void add_to_row(const Row *row, const int64_t *costs, int64_t stride) {
  if (stride == 0)
    for (int64_t i = 0; i < row->n; i++) row->sums[i] += costs[0];
  else if (stride == 1)
    for (int64_t i = 0; i < row->n; i++) row->sums[i] += costs[i];
  else
    for (int64_t i = 0; i < row->n; i++) row->sums[i] += costs[i * stride];
}

static void keep_less(const Row *row, uint16_t value) {
  for (int64_t i = 0; i < row->n; i++) {
    bool is_less = row->sums[i] < row->least[i];
    row->least[i] = is_less ? row->sums[i] : row->least[i];
    row->best[i] = is_less ? value : row->best[i];
  }
}

/* The least over the values of `var` for each entry of a row.  Rows are walked
 * for one value after the other, so that neighbours are read together. */
static void least_of_row(const Elimination *e, const Group *group,
                         const int64_t *offsets, int last, const Row *row) {
  const Walked *tables = group->walks;
  for (int64_t i = 0; i < row->n; i++) row->least[i] = INT64_MAX;
  for (int v = 0; v < e->p->n_values[group->var]; v++) {
    for (int64_t i = 0; i < row->n; i++) row->sums[i] = group->own[v];
    for (int t = 0; t < group->tables.n; t++)
      add_to_row(row, tables[t].costs + offsets[t] + v * tables[t].of_var,
                 last < 0 ? 0 : tables[t].stride[last]);
    keep_less(row, (uint16_t)v);
  }
  for (int64_t i = 0; i < row->n; i++)
    if (row->least[i] > ELIMINATE_MOST) row->least[i] = ELIMINATE_MOST;
}

/* Moves to the next choice of the variables around but the last. */
static void next_row(const Elimination *e, const Group *group, int *at,
                     int64_t *offsets) {
  const SumTable *around = &group->around;
  for (int j = around->n - 2; j >= 0; j--) {
    int size = e->p->n_values[around->vars[j]];
    int step = ++at[j] < size ? 1 : 1 - size;
    for (int t = 0; t < group->tables.n; t++)
      offsets[t] += step * group->walks[t].stride[j];
    if (at[j] < size) return;
    at[j] = 0;
  }
}

/* The least of all entries is taken from each. */
static Made least_table(Elimination *e, const Group *group) {
  const SumTable *around = &group->around;
  int64_t n = entries(e, around), least = INT64_MAX;
  int64_t *costs = ARENA_ARRAY(e->arena, int64_t, n);
  uint16_t *best = ARENA_ARRAY(e->arena, uint16_t, n);
  int64_t *offsets = ARENA_ARRAY(e->arena, int64_t, group->tables.n + 1);
  int at[MOST_WIDTH] = {0}, last = around->n - 1;
  Row row = {.n = last < 0 ? 1 : e->p->n_values[around->vars[last]]};
  row.sums = ARENA_ARRAY(e->arena, int64_t, row.n);
  for (int64_t i = 0; i < n; i += row.n) {
    row.least = costs + i;
    row.best = best + i;
    least_of_row(e, group, offsets, last, &row);
    next_row(e, group, at, offsets);
  }
  for (int64_t i = 0; i < n; i++)
    if (costs[i] < least) least = costs[i];
  for (int64_t i = 0; i < n; i++) costs[i] -= least;
  uint64_t id = hash_bytes(costs, (size_t)n * sizeof *costs, 11);
  return (Made){costs, best, id, least};
}

/* All that an elimination depends on: the costs of the variable, the tables and
 * how they share variables. */
static uint64_t hash_group(const Elimination *e, const Group *group) {
  const SumTable *around = &group->around;
  uint64_t hash = hash_mix(id_of(group->own), (uint64_t)around->n);
  for (int j = 0; j < around->n; j++)
    hash = hash_mix(hash, (uint64_t)e->p->n_values[around->vars[j]]);
  for (int t = 0; t < group->tables.n; t++) {
    const SumTable *table = &e->tables.data[group->tables.data[t]];
    hash =
        hash_mix(hash_mix(hash, table->id), (uint64_t)group->walks[t].of_var);
    for (int j = 0; j < around->n; j++)
      hash = hash_mix(hash, (uint64_t)group->walks[t].stride[j]);
  }
  return hash;
}

static void eliminate_group(Elimination *e, Group *group) {
  group->walks = ARENA_ARRAY(e->arena, Walked, group->tables.n + 1);
  for (int t = 0; t < group->tables.n; t++) {
    SumTable *table = &e->tables.data[group->tables.data[t]];
    group->walks[t] = walked(e, table, &group->around, group->var);
    table->is_used = true;
  }
  const void *key = key_of(hash_group(e, group));
  Made *made = map_get(e->known, key);
  if (!made) {
    made = ARENA_NEW(e->arena, Made);
    *made = least_table(e, group);
    map_put(e->known, key, made);
  }
  SumTable left = group->around;
  left.costs = made->costs;
  left.id = made->id;
  left.is_used = false;
  e->least += made->least;
  vec_push(e->arena, &e->steps, ((Step){group->var, left, made->best}));
  for (int j = 0; j < left.n; j++) e->made_entries[left.vars[j]] = 0;
  put(e, &left);
}

/* Takes tables of the variable for as long as what they leave is small.  Those
 * made last come first, as they are the largest. */
static Group take_group(Elimination *e, int var) {
  Group group = {.var = var};
  for (int i = e->of_var[var].n - 1; i >= 0; i--) {
    int table = e->of_var[var].data[i];
    SumTable wider = group.around;
    if (e->tables.data[table].is_used) continue;
    bool is_small = add_around(&e->tables.data[table], var, &wider) &&
                    entries(e, &wider) <= e->most;
    if (!is_small && group.tables.n > 0) continue;
    group.around = wider;
    vec_push(e->arena, &group.tables, table);
  }
  return group;
}

static bool has_table(const Elimination *e, int var) {
  for (int i = 0; i < e->of_var[var].n; i++)
    if (!e->tables.data[e->of_var[var].data[i]].is_used) return true;
  return false;
}

/* The first group has the costs of the variable. */
static void eliminate_var(Elimination *e, int var) {
  const int64_t *own = e->p->costs[var];
  do {
    Group group = take_group(e, var);
    group.own = own;
    eliminate_group(e, &group);
    own = e->nothing;
  } while (has_table(e, var));
  e->is_gone[var] = true;
}

/* ---- the order ---- */

/* Returns the entries of the table that a variable would leave. */
static int64_t would_leave(Elimination *e, int var) {
  SumTable around = {0};
  bool is_narrow = true;
  if (e->made_entries[var] > 0) return e->made_entries[var];
  for (int i = 0; i < e->of_var[var].n && is_narrow; i++) {
    const SumTable *table = &e->tables.data[e->of_var[var].data[i]];
    is_narrow = table->is_used || add_around(table, var, &around);
  }
  e->made_entries[var] = is_narrow ? entries(e, &around) : TOO_MANY;
  return e->made_entries[var];
}

/* Returns -1 if every table would be too large. */
static int next_var(Elimination *e) {
  int best = -1;
  int64_t least = INT64_MAX;
  for (int var = 0; var < e->p->n; var++) {
    if (e->is_gone[var]) continue;
    int64_t n = would_leave(e, var);
    if ((n > e->most && !e->may_split) || n >= least) continue;
    least = n;
    best = var;
  }
  return best;
}

static void read_back(const Elimination *e, int *values) {
  for (int i = e->steps.n - 1; i >= 0; i--) {
    const Step *step = &e->steps.data[i];
    int64_t at = 0;
    for (int j = 0; j < step->around.n; j++)
      at = at * e->p->n_values[step->around.vars[j]] +
           values[step->around.vars[j]];
    values[step->var] = step->best[at];
  }
}

static int most_values(const PairProblem *p) {
  int most = 0;
  for (int i = 0; i < p->n; i++)
    if (p->n_values[i] > most) most = p->n_values[i];
  return most;
}

static int64_t eliminate_all(Elimination *e) {
  Arena *arena = e->arena;
  const PairProblem *problem = e->p;
  e->nothing = ARENA_ARRAY(arena, int64_t, most_values(problem) + 1);
  e->of_var = ARENA_ARRAY(arena, IntList, problem->n + 1);
  e->is_gone = ARENA_ARRAY(arena, bool, problem->n + 1);
  e->made_entries = ARENA_ARRAY(arena, int64_t, problem->n + 1);
  e->known = map_create(arena);
  e->turned = map_create(arena);
  for (int i = 0; i < problem->n_pairs; i++) put_pair(e, &problem->pairs[i]);
  for (int i = 0; i < problem->n; i++) {
    int var = next_var(e);
    if (var < 0) return -1;
    eliminate_var(e, var);
  }
  return e->least;
}

static int64_t solve(Arena *scratch, const PairProblem *problem, int64_t most,
                     bool may_split, int *values) {
  Elimination e = {.arena = arena_beside(scratch),
                   .p = problem,
                   .most = most,
                   .may_split = may_split};
  int64_t least = eliminate_all(&e);
  if (least >= 0) read_back(&e, values);
  arena_destroy(e.arena);
  return least;
}

int64_t eliminate(Arena *scratch, const PairProblem *problem,
                  int64_t most_entries, int *values) {
  return solve(scratch, problem, most_entries, false, values);
}

int64_t eliminate_below(Arena *scratch, const PairProblem *problem,
                        int64_t most_entries, int *values) {
  return solve(scratch, problem, most_entries, true, values);
}
