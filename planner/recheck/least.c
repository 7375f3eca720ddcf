/*
 * least.c -- eliminates variables in an order that depends on sizes alone.
 *
 * Each table is in the bucket of that of its variables which is eliminated
 * first.  A bucket is emptied into one table over the other variables:
 *
 *     bucket of b: f(a, b), g(b, c)    t(a, c) = min over b of own(b) + f + g
 *
 * which goes to the bucket of a or of c.  In each table the variable of its
 * bucket varies fastest, so that its values lie side by side.
 *
 * Most buckets of a program with equal blocks hold what another one held.  Such
 * a table is taken over: tables are equal if their bytes are, less the least
 * cost, which is added up apart.
 */
#include "planner/recheck/least.h"

#include <string.h>

enum { MOST_AROUND = 12 };

/* A table of a bucket. */
typedef struct Input {
  int pair;       /* or -1 */
  bool is_turned; /* the pair's */
  int step;       /* else: the step that made it */
  /* By variable around, as the step lists them: what its next value adds. */
  int64_t stride[MOST_AROUND];
} Input;

typedef struct Step {
  int var, n_around;
  int around[MOST_AROUND]; /* the last one is eliminated first */
  int64_t n_entries;
  VEC(Input) inputs;
  uint64_t shape; /* equal for steps of equal sizes and strides */
} Step;

struct LeastOrder {
  int n;
  const int *n_values;
  Step *steps;
};

/* ---- the order ---- */

typedef VEC(int) Vars;

typedef struct Ordering {
  Arena *arena;
  const int *n_values;
  int n;
  int64_t most;
  Vars *around;     /* by variable: those that share a table with it */
  int64_t *entries; /* of the table that its elimination leaves; 0: not known */
  int *when;        /* by variable: its step; -1: none yet */
} Ordering;

static bool has(const Vars *vars, int var) {
  for (int i = 0; i < vars->n; i++)
    if (vars->data[i] == var) return true;
  return false;
}

static void add_neighbour(Ordering *o, int var, int other) {
  if (var == other || has(&o->around[var], other)) return;
  vec_push(o->arena, &o->around[var], other);
  o->entries[var] = 0;
}

static void drop(Vars *vars, int var) {
  for (int i = 0; i < vars->n; i++)
    if (vars->data[i] == var) vars->data[i--] = vars->data[--vars->n];
}

static int64_t entries_of(Ordering *o, int var) {
  const Vars *around = &o->around[var];
  if (o->entries[var] > 0) return o->entries[var];
  int64_t n = around->n > MOST_AROUND ? INT64_MAX : 1;
  for (int i = 0; i < around->n && n <= o->most; i++)
    n *= o->n_values[around->data[i]];
  return o->entries[var] = n;
}

/* Returns the variable that leaves the smallest table.  Returns -1 if each one
 * is too large. */
static int next_var(Ordering *o) {
  int best = -1;
  for (int var = 0; var < o->n; var++)
    if (o->when[var] < 0 && entries_of(o, var) <= o->most &&
        (best < 0 || o->entries[var] < o->entries[best]))
      best = var;
  return best;
}

/* Those around a variable share a table from then on. */
static void take_out(Ordering *o, int var, Step *step) {
  const Vars *around = &o->around[var];
  *step = (Step){.var = var, .n_around = around->n};
  for (int i = 0; i < around->n; i++) {
    step->around[i] = around->data[i];
    drop(&o->around[around->data[i]], var);
    o->entries[around->data[i]] = 0;
    for (int k = 0; k < around->n; k++)
      add_neighbour(o, around->data[i], around->data[k]);
  }
}

/* ---- buckets ---- */

static void sort_around(const Ordering *o, Step *step) {
  step->n_entries = 1;
  for (int i = 0; i < step->n_around; i++) {
    int var = step->around[i], at = i;
    step->n_entries *= o->n_values[var];
    for (; at > 0 && o->when[step->around[at - 1]] < o->when[var]; at--)
      step->around[at] = step->around[at - 1];
    step->around[at] = var;
  }
}

static void set_stride(const Step *step, Input *input, int var,
                       int64_t stride) {
  for (int i = 0; i < step->n_around; i++)
    if (step->around[i] == var) input->stride[i] = stride;
}

static void put_pair(const Ordering *o, Step *steps, int at,
                     const LeastPair *pair) {
  bool is_turned = o->when[pair->a] < o->when[pair->b];
  int var = is_turned ? pair->a : pair->b;
  Step *step = &steps[o->when[var]];
  Input input = {.pair = at, .is_turned = is_turned};
  set_stride(step, &input, is_turned ? pair->b : pair->a, o->n_values[var]);
  vec_push(o->arena, &step->inputs, input);
}

/* The table that a step makes goes to the bucket of its last variable. */
static void put_made(const Ordering *o, Step *steps, int at) {
  const Step *made = &steps[at];
  if (made->n_around == 0) return;
  Step *step = &steps[o->when[made->around[made->n_around - 1]]];
  Input input = {.pair = -1, .step = at};
  int64_t stride = 1;
  for (int i = made->n_around - 1; i >= 0; i--) {
    set_stride(step, &input, made->around[i], stride);
    stride *= o->n_values[made->around[i]];
  }
  vec_push(o->arena, &step->inputs, input);
}

static uint64_t shape_of(const Ordering *o, const Step *step) {
  uint64_t hash = hash_mix(71, (uint64_t)o->n_values[step->var]);
  for (int i = 0; i < step->n_around; i++)
    hash = hash_mix(hash, (uint64_t)o->n_values[step->around[i]]);
  for (int t = 0; t < step->inputs.n; t++)
    for (int i = 0; i < step->n_around; i++)
      hash = hash_mix(hash, (uint64_t)step->inputs.data[t].stride[i]);
  return hash;
}

const LeastOrder *least_order(Arena *arena, int n, const int *n_values,
                              int n_pairs, const LeastPair *pairs,
                              int64_t most_entries) {
  Ordering o = {.arena = arena,
                .n_values = n_values,
                .n = n,
                .most = most_entries,
                .around = ARENA_ARRAY(arena, Vars, n + 1),
                .entries = ARENA_ARRAY(arena, int64_t, n + 1),
                .when = ARENA_ARRAY(arena, int, n + 1)};
  Step *steps = ARENA_ARRAY(arena, Step, n + 1);
  for (int i = 0; i < n; i++) o.when[i] = -1;
  for (int i = 0; i < n_pairs; i++) {
    add_neighbour(&o, pairs[i].a, pairs[i].b);
    add_neighbour(&o, pairs[i].b, pairs[i].a);
  }
  for (int i = 0; i < n; i++) {
    int var = next_var(&o);
    if (var < 0) return NULL;
    take_out(&o, var, &steps[i]);
    o.when[var] = i;
  }
  for (int i = 0; i < n; i++) sort_around(&o, &steps[i]);
  for (int i = 0; i < n_pairs; i++) put_pair(&o, steps, i, &pairs[i]);
  for (int i = 0; i < n; i++) {
    steps[i].shape = shape_of(&o, &steps[i]);
    put_made(&o, steps, i);
  }
  LeastOrder *out = ARENA_NEW(arena, LeastOrder);
  *out = (LeastOrder){n, n_values, steps};
  return out;
}

/* ---- a sum ---- */

/* The table that a step leaves. */
typedef struct Made {
  const int64_t *costs;
  const uint16_t *best; /* the value of the variable, by entry */
  int64_t least;        /* has been taken from the costs */
  uint64_t id;          /* equal for equal costs */
} Made;

typedef struct Summing {
  Arena *arena;
  const LeastOrder *order;
  const int64_t *const *own;
  const PairTable *const *pairs;
  const Made **made; /* by step */
  Map *known;        /* what a bucket holds -> Made */
} Summing;

static const int64_t *costs_of(const Summing *s, const Input *input) {
  if (input->pair < 0) return s->made[input->step]->costs;
  const PairTable *pair = s->pairs[input->pair];
  return input->is_turned ? pair->turned : pair->costs;
}

static uint64_t id_of(const Summing *s, const Input *input) {
  return input->pair < 0 ? s->made[input->step]->id
                         : (uint64_t)(uintptr_t)costs_of(s, input);
}

/* One entry after the other: where the variables around stand, and what each
 * input has there for the values of the variable. */
typedef struct Cursor {
  const int64_t **costs; /* by input */
  int at[MOST_AROUND];
} Cursor;

static void move_on(const Summing *s, const Step *step, Cursor *cursor) {
  for (int i = step->n_around - 1; i >= 0; i--) {
    int n = s->order->n_values[step->around[i]];
    int by = ++cursor->at[i] < n ? 1 : 1 - n;
    for (int t = 0; t < step->inputs.n; t++)
      cursor->costs[t] += by * step->inputs.data[t].stride[i];
    if (cursor->at[i] < n) return;
    cursor->at[i] = 0;
  }
}

static int64_t least_of(const int64_t *sums, int n, uint16_t *out_best) {
  int64_t least = sums[0];
  *out_best = 0;
  for (int v = 1; v < n; v++)
    if (sums[v] < least) least = sums[v];
  while (sums[*out_best] != least) ++*out_best;
  return least < LEAST_MOST ? least : LEAST_MOST;
}

static const Made *empty(Summing *s, const Step *step) {
  int n = s->order->n_values[step->var];
  int64_t *costs = ARENA_ARRAY(s->arena, int64_t, step->n_entries);
  uint16_t *best = ARENA_ARRAY(s->arena, uint16_t, step->n_entries);
  int64_t *sums = ARENA_ARRAY(s->arena, int64_t, n), least = LEAST_MOST;
  Cursor cursor = {
      .costs = ARENA_ARRAY(s->arena, const int64_t *, step->inputs.n + 1)};
  for (int t = 0; t < step->inputs.n; t++)
    cursor.costs[t] = costs_of(s, &step->inputs.data[t]);
  for (int64_t e = 0; e < step->n_entries; e++) {
    memcpy(sums, s->own[step->var], (size_t)n * sizeof *sums);
    for (int t = 0; t < step->inputs.n; t++)
      for (int v = 0; v < n; v++) sums[v] += cursor.costs[t][v];
    costs[e] = least_of(sums, n, &best[e]);
    if (costs[e] < least) least = costs[e];
    move_on(s, step, &cursor);
  }
  for (int64_t e = 0; e < step->n_entries; e++) costs[e] -= least;
  Made *made = ARENA_NEW(s->arena, Made);
  *made =
      (Made){costs, best, least,
             hash_bytes(costs, (size_t)step->n_entries * sizeof *costs, 73)};
  return made;
}

static const Made *empty_once(Summing *s, const Step *step) {
  uint64_t hash = hash_mix(step->shape, (uint64_t)(uintptr_t)s->own[step->var]);
  for (int t = 0; t < step->inputs.n; t++)
    hash = hash_mix(hash, id_of(s, &step->inputs.data[t]));
  const void *key = (const void *)(uintptr_t)(hash | 1);
  const Made *made = map_get(s->known, key);
  if (made) return made;
  made = empty(s, step);
  map_put(s->known, key, (void *)made);
  return made;
}

/* Reads the values back from the last step to the first. */
static void read_values(const Summing *s, int *out_values) {
  for (int i = s->order->n - 1; i >= 0; i--) {
    const Step *step = &s->order->steps[i];
    int64_t entry = 0;
    for (int k = 0; k < step->n_around; k++)
      entry = entry * s->order->n_values[step->around[k]] +
              out_values[step->around[k]];
    out_values[step->var] = s->made[i]->best[entry];
  }
}

int64_t least_sum(Arena *scratch, const LeastOrder *order,
                  const int64_t *const *costs, const PairTable *const *pairs,
                  int *out_values) {
  Summing s = {.arena = scratch,
               .order = order,
               .own = costs,
               .pairs = pairs,
               .made = ARENA_ARRAY(scratch, const Made *, order->n + 1),
               .known = map_create(scratch)};
  int64_t sum = 0;
  for (int i = 0; i < order->n; i++) {
    s.made[i] = empty_once(&s, &order->steps[i]);
    sum += s.made[i]->least;
  }
  read_values(&s, out_values);
  return sum;
}
