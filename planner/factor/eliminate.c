/*
 * eliminate.c -- minimises over variables one after the other.
 *
 * The next variable is the one whose new table takes the fewest operations.  If
 * that are too many, the variable with most tables keeps its value, and the
 * tables lose it.
 */
#include "planner/factor/eliminate.h"

enum { GONE = -1 };

typedef struct Bucket {
  int variable, n;
  int *tables;
} Bucket;

Elimination *elimination_create(Arena *arena, int n, const int *sizes) {
  Elimination *e = ARENA_NEW(arena, Elimination);
  e->arena = arena;
  e->n = n;
  e->sizes = sizes;
  e->costs = ARENA_ARRAY(arena, FactorCost *, n);
  e->held = ARENA_ARRAY(arena, int, n);
  e->lists = ARENA_ARRAY(arena, Numbers, n);
  for (int i = 0; i < n; i++)
    e->costs[i] = ARENA_ARRAY(arena, FactorCost, sizes[i]);
  return e;
}

static void add_table(Elimination *e, Table table) {
  for (int k = 0; k < table.n; k++)
    vec_push(e->arena, &e->lists[table.scope[k]], e->tables.n);
  vec_push(e->arena, &e->tables, table);
}

void elimination_add(Elimination *e, int a, int b, int64_t stride_a,
                     int64_t stride_b, const FactorCost *costs) {
  add_table(e, (Table){.n = 2,
                       .scope = {a, b},
                       .strides = {stride_a, stride_b},
                       .cells = costs,
                       .may_forbid = true});
}

static void drop_gone(Elimination *e, int variable) {
  Numbers *list = &e->lists[variable];
  int n = 0;
  for (int k = 0; k < list->n; k++)
    if (!e->tables.data[list->data[k]].is_gone) list->data[n++] = list->data[k];
  list->n = n;
}

/* Finds the variables beside one in its tables.  Returns -1 if there are too
 * many. */
static int find_scope(const Elimination *e, int variable, int out[MOST_SCOPE]) {
  const Numbers *list = &e->lists[variable];
  int n = 0;
  for (int k = 0; k < list->n; k++) {
    const Table *table = &e->tables.data[list->data[k]];
    for (int s = 0; s < table->n; s++) {
      int other = table->scope[s], at = 0;
      while (at < n && out[at] != other) at++;
      if (other == variable || at < n) continue;
      if (n == MOST_SCOPE) return -1;
      out[n++] = other;
    }
  }
  return n;
}

/* Returns the operations that the table of a variable takes. */
static int64_t score_of(Elimination *e, int variable) {
  int scope[MOST_SCOPE];
  drop_gone(e, variable);
  int n = find_scope(e, variable, scope);
  int64_t score = e->sizes[variable];
  if (n < 0) return INT64_MAX;
  for (int k = 0; k < n; k++)
    if (__builtin_mul_overflow(score, e->sizes[scope[k]], &score))
      return INT64_MAX;
  return score;
}

static int64_t stride_in(const Table *table, int variable) {
  for (int k = 0; k < table->n; k++)
    if (table->scope[k] == variable) return table->strides[k];
  return 0;
}

/* Adds a table's costs for each value of a variable, from an offset on. */
static void add_cells(FactorCost *sums, int n, const Table *table,
                      int64_t offset, int64_t stride) {
  const FactorCost *cells = table->cells + offset;
  FactorCost most = table->may_forbid ? COST_AVOID : COST_NEVER;
  for (int v = 0; v < n; v++) {
    FactorCost cost = cells[v * stride];
    sums[v] += cost < most ? cost : most;
  }
}

/* A table of a bucket while the values of the other variables run. */
typedef struct Cursor {
  const Table *table;
  int64_t offset, stride;      /* stride: of the variable that goes */
  int64_t strides[MOST_SCOPE]; /* of the others */
} Cursor;

static Cursor *make_cursors(Elimination *e, const Bucket *bucket,
                            const Table *to) {
  Cursor *cursors = ARENA_ARRAY(e->arena, Cursor, bucket->n);
  for (int k = 0; k < bucket->n; k++) {
    Cursor *c = &cursors[k];
    c->table = &e->tables.data[bucket->tables[k]];
    c->stride = stride_in(c->table, bucket->variable);
    for (int s = 0; s < to->n; s++)
      c->strides[s] = stride_in(c->table, to->scope[s]);
  }
  return cursors;
}

/* Moves to the next values of the others; the last one runs fastest. */
static void advance(const Elimination *e, const Table *to, int *at,
                    Cursor *cursors, int n) {
  for (int s = to->n - 1; s >= 0; s--) {
    int size = e->sizes[to->scope[s]], step = ++at[s] < size ? 1 : 1 - size;
    for (int k = 0; k < n; k++)
      cursors[k].offset += step * cursors[k].strides[s];
    if (step == 1) return;
    at[s] = 0;
  }
}

/* Computes the least cost over a variable for all values of the others. */
static void minimise(Elimination *e, const Bucket *bucket, const Table *to,
                     int64_t n_cells, FactorCost *cells) {
  int n = e->sizes[bucket->variable], at[MOST_SCOPE] = {0};
  const FactorCost *costs = e->costs[bucket->variable];
  FactorCost *sums = ARENA_ARRAY(e->arena, FactorCost, n);
  Cursor *cursors = make_cursors(e, bucket, to);
  for (int64_t cell = 0; cell < n_cells; cell++) {
    for (int v = 0; v < n; v++) sums[v] = costs[v];
    for (int k = 0; k < bucket->n; k++)
      add_cells(sums, n, cursors[k].table, cursors[k].offset,
                cursors[k].stride);
    FactorCost least = sums[0];
    for (int v = 1; v < n; v++) least = sums[v] < least ? sums[v] : least;
    cells[cell] = least;
    advance(e, to, at, cursors, bucket->n);
  }
  e->work += n_cells * n * (bucket->n + 1);
}

static Bucket make_bucket(Elimination *e, int variable) {
  const Numbers *list = &e->lists[variable];
  Bucket bucket = {variable, list->n, NULL};
  bucket.tables =
      arena_copy(e->arena, list->data, (size_t)list->n * sizeof(int));
  return bucket;
}

static Bucket eliminate(Elimination *e, int variable) {
  Bucket bucket = make_bucket(e, variable);
  Table to = {0};
  int64_t n_cells = 1;
  to.n = find_scope(e, variable, to.scope);
  for (int s = to.n - 1; s >= 0; s--) {
    to.strides[s] = n_cells;
    n_cells *= e->sizes[to.scope[s]];
  }
  FactorCost *cells = ARENA_ARRAY(e->arena, FactorCost, n_cells);
  minimise(e, &bucket, &to, n_cells, cells);
  to.cells = cells;
  for (int k = 0; k < bucket.n; k++)
    e->tables.data[bucket.tables[k]].is_gone = true;
  if (to.n == 1) {
    for (int64_t v = 0; v < n_cells; v++) e->costs[to.scope[0]][v] += cells[v];
  } else if (to.n > 1) {
    add_table(e, to);
  }
  return bucket;
}

/* Gives a variable its value for good: its tables lose it. */
static void hold(Elimination *e, int variable) {
  Bucket bucket = make_bucket(e, variable);
  for (int k = 0; k < bucket.n; k++) {
    Table table = e->tables.data[bucket.tables[k]], less = table;
    e->tables.data[bucket.tables[k]].is_gone = true;
    less.n = 0;
    less.cells += e->held[variable] * stride_in(&table, variable);
    for (int s = 0; s < table.n; s++) {
      if (table.scope[s] == variable) continue;
      less.scope[less.n] = table.scope[s];
      less.strides[less.n++] = table.strides[s];
    }
    if (less.n == 1)
      add_cells(e->costs[less.scope[0]], e->sizes[less.scope[0]], &less, 0,
                less.strides[0]);
    else
      add_table(e, less);
  }
  e->n_held++;
}

static int find_widest(const Elimination *e, const int64_t *scores) {
  int widest = -1;
  for (int i = 0; i < e->n; i++)
    if (scores[i] != GONE && (widest < 0 || e->lists[i].n > e->lists[widest].n))
      widest = i;
  return widest;
}

static int find_next(const Elimination *e, const int64_t *scores) {
  int next = -1;
  for (int i = 0; i < e->n; i++)
    if (scores[i] != GONE && (next < 0 || scores[i] < scores[next])) next = i;
  return next;
}

static void score_again(Elimination *e, const Bucket *bucket, int64_t *scores) {
  for (int k = 0; k < bucket->n; k++) {
    const Table *table = &e->tables.data[bucket->tables[k]];
    for (int s = 0; s < table->n; s++)
      if (scores[table->scope[s]] != GONE)
        scores[table->scope[s]] = score_of(e, table->scope[s]);
  }
}

static void choose_value(Elimination *e, const Bucket *bucket, int *values) {
  int variable = bucket->variable, n = e->sizes[variable];
  FactorCost *sums =
      arena_copy(e->arena, e->costs[variable], (size_t)n * sizeof *sums);
  for (int k = 0; k < bucket->n; k++) {
    const Table *table = &e->tables.data[bucket->tables[k]];
    int64_t offset = 0;
    for (int s = 0; s < table->n; s++)
      if (table->scope[s] != variable)
        offset += values[table->scope[s]] * table->strides[s];
    add_cells(sums, n, table, offset, stride_in(table, variable));
  }
  values[variable] = e->choose(e->user, variable, sums);
}

void elimination_solve(Elimination *e, int *out_values) {
  int64_t *scores = ARENA_ARRAY(e->arena, int64_t, e->n);
  Bucket *buckets = ARENA_ARRAY(e->arena, Bucket, e->n);
  int n_buckets = 0;
  for (int i = 0; i < e->n; i++) scores[i] = score_of(e, i);
  for (int left = e->n; left > 0; left--) {
    int next = find_next(e, scores);
    bool is_held = scores[next] > e->most;
    Bucket bucket;
    if (is_held) {
      next = find_widest(e, scores);
      bucket = make_bucket(e, next);
      hold(e, next);
      out_values[next] = e->held[next];
    } else {
      bucket = buckets[n_buckets++] = eliminate(e, next);
    }
    scores[next] = GONE;
    score_again(e, &bucket, scores);
  }
  for (int k = n_buckets - 1; k >= 0; k--)
    choose_value(e, &buckets[k], out_values);
}
