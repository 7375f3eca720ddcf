/*
 * rounds.c -- the bound and the labelling take turns.
 */
#include "planner/factor/solver.h"

/* Keeps the prices of the best bound. */
static void note_bound(Solver *s) {
  FactorCost bound = messages_bound(s->messages);
  if (bound <= s->bound) return;
  for (int row = 0; row < s->core->n_rows; row++)
    s->prices[row] = s->messages->prices[row];
  for (int row = 0; row < s->core->n_rows && !s->has_fixed; row++)
    s->root_prices[row] = s->prices[row];
  solver_raise(s, bound);
}

/* Takes values out that only dearer labellings than the best have. */
static void fix_values(Solver *s) {
  Messages *m = s->messages;
  if (s->budget->without[FACTOR_fixing] || m->has_none) return;
  for (int v = 0; v < s->core->n_values; v++)
    if (m->marginals[v] >= s->cost && !m->is_out[v])
      m->is_out[v] = s->has_fixed = true;
}

static void sweep(Solver *s) {
  messages_sweep(s->messages);
  note_bound(s);
  fix_values(s);
  if (!s->messages->has_none) messages_read(s->messages, s->reading);
  note_bound(s);
  s->work += 3 * s->core->entries;
  s->nodes++;
}

/* Returns how far the bound can rise. With prices an early best cost may be far
 * too high: then it is an eighth of the bound, as for steps of prices. */
static FactorCost gap_of(const Solver *s) {
  FactorCost size = s->bound < 0 ? -s->bound : s->bound;
  FactorCost gap = s->cost < COST_LIMIT ? s->cost - s->bound : size;
  return s->has_prices && gap > size / 8 ? size / 8 : gap;
}

/* Raises the bound by some sweeps, each with new prices.  Where the bound
 * falls, shorter steps begin at the best prices. */
void rounds_raise(Solver *s, int n_sweeps) {
  FactorCost before = s->bound;
  bool has_rows = s->core->n_rows > 0 && s->has_prices;
  for (int i = 0; i < n_sweeps && !solver_must_stop(s); i++) {
    sweep(s);
    if (s->messages->has_none) return;
    if (has_rows) multipliers_step(s);
  }
  if (!has_rows || s->bound > before + gap_of(s) / 100) return;
  if (s->scale > 256) s->scale -= s->scale / 3;
  for (int row = 0; row < s->core->n_rows; row++)
    s->messages->prices[row] = s->prices[row];
  messages_price(s->messages);
}

void rounds_walk(Solver *s, int64_t work) {
  int64_t end = s->work + work;
  if (s->budget->without[FACTOR_neighbourhoods]) return;
  while (s->work < end && solver_count(s)) neighbourhood(s);
}

bool rounds_is_better(const Solver *s, const Labelling *a, const Labelling *b) {
  bool is_over[] = {a->cost.over > 0, b->cost.over > 0};
  if (is_over[0] != is_over[1]) return is_over[1];
  return solver_worth(s, a->cost) < solver_worth(s, b->cost);
}

static void exchange(Solver *s) {
  Labelling *labelling = s->labelling;
  s->labelling = s->other_labelling;
  s->other_labelling = labelling;
}

/* Reads a labelling off messages for which memory is twice as dear as it is: it
 * comes near the limit, and walking on makes it cheaper. */
static void decode_dear(Solver *s) {
  Messages *m = s->messages;
  int n = s->core->n_rows;
  int64_t *prices = s->usages; /* not in use now */
  for (int row = 0; row < n; row++) {
    prices[row] = m->prices[row];
    m->prices[row] = 2 * s->prices[row];
  }
  messages_price(m);
  for (int i = 0; i < 3 && !m->has_none; i++) messages_sweep(m);
  s->work += 6 * s->core->entries;
  decode(s, true);
  for (int row = 0; row < n; row++) m->prices[row] = prices[row];
  messages_price(m);
}

void rounds_start(Solver *s, bool is_dear) {
  if (is_dear)
    decode_dear(s);
  else
    decode(s, false);
}

/* Starts a second labelling from the messages, and goes on with the better one.
 */
static void start_again(Solver *s, int64_t work, bool is_dear) {
  bool has_labelling = s->labelling->values[0] >= 0;
  s->other_labelling->weight = s->labelling->weight;
  exchange(s);
  rounds_start(s, is_dear);
  rounds_walk(s, work);
  if (has_labelling && rounds_is_better(s, s->other_labelling, s->labelling))
    exchange(s);
}

/* Walks on. Two rounds of three begin at what the messages say now, with half
 * of the work: a labelling that has been walked on for long leads nowhere else.
 */
static void improve(Solver *s, int64_t work, int round) {
  int64_t start = s->work;
  if (round % 3 < 2) start_again(s, work / 2, round % 3 == 1);
  rounds_walk(s, start + work - s->work);
}

/* Sends messages without prices until they tell little. */
void rounds_begin(Solver *s) {
  FactorCost before;
  do {
    before = s->bound;
    for (int i = 0; i < 5 && !solver_must_stop(s); i++) sweep(s);
  } while (!solver_must_stop(s) && !s->messages->has_none &&
           s->bound - before > (s->bound < 0 ? -s->bound : s->bound) / 100);
}

/* Looks at nodes for this much work. */
void rounds_branch(Solver *s, Branches *branches, int64_t work) {
  int64_t end = s->work + work;
  while (branches_step(branches) && s->work < end && solver_count(s)) continue;
}

/* Returns whether the bound has risen little since it was `before`. */
bool rounds_is_steady(const Solver *s, FactorCost before) {
  return s->bound - before <= gap_of(s) / 200;
}

/* The bound and the labelling get equal shares of the work.  Where sweeps no
 * longer raise the bound, branches take its share. */
void rounds_run(Solver *s, int64_t end) {
  Branches *branches = NULL;
  int n_steady = 0;
  for (int round = 0; s->work < end && !solver_must_stop(s); round++) {
    int64_t before = s->work;
    FactorCost bound = s->bound;
    if (branches)
      rounds_branch(s, branches, BRANCH_WORK);
    else
      rounds_raise(s, 10);
    if (solver_must_stop(s)) return;
    int64_t work = s->work - before;
    improve(s, n_steady > 0 ? 2 * work : work / 3, round);
    n_steady = rounds_is_steady(s, bound) ? n_steady + 1 : 0;
    if (n_steady >= STEADY_ROUNDS && !branches &&
        !s->budget->without[FACTOR_branching] && !solver_must_stop(s))
      branches = branches_create(s->arena, s);
  }
  if (branches) branches_leave(branches);
}
