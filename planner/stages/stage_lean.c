/*
 * stage_lean.c -- prices the plans with stages that are estimated to need the
 * fewest bytes.
 *
 * An assignment in little memory is not one that is fastest, so the walk is
 * repeated: in twice the memory until some plan is estimated to fit, then
 * between.
 *
 * Only the packed arena says whether a plan fits, and estimates of a few small
 * values are far off.  A small program packs in a millisecond, so where none of
 * these fits, its plans are compared under all cuts, inside of kernels too, and
 * all numbers of micro-batches, and many are priced, those with the fewest
 * bytes first.
 */
#include "planner/stages/stage_peak.h"
#include "planner/stages/staged.h"

enum {
  MOST_ROUNDS = 14,     /* of twice the memory */
  CLOSER_ROUNDS = 2,    /* between */
  MOST_LEAN_PRICES = 6, /* by estimates, the smallest first */
  NODES_OF_ALL = 24000, /* of the programs that are priced */
  MOST_SMALL_PRICES = 96,
  FEWEST_SMALL_PRICES = 16,
  MOST_ILLEGAL_PRICES = 8, /* before a legal one */
  MOST_ESTIMATES = 15000   /* of a walk */
};

/* ---- small programs ---- */

/* In what memory assignments are looked for, over that of a rank. */
static const double shares[] = {1, 0.5, 2, 8};

static int small_prices(const Pricing *p) {
  int n = NODES_OF_ALL / (p->input->train->nodes.n + 1);
  return n < MOST_SMALL_PRICES ? n : MOST_SMALL_PRICES;
}

bool stage_is_small(const Pricing *p) {
  return small_prices(p) >= FEWEST_SMALL_PRICES;
}

static int next_small(const StageSearch *s, const bool *is_taken) {
  int best = -1;
  Bytes memory = s->p->input->memory;
  for (int i = 0; i < s->plans.n; i++)
    if (!is_taken[i] && s->plans.data[i].peak / MOST_TIMES_OVER <= memory &&
        (best < 0 || s->plans.data[i].peak < s->plans.data[best].peak))
      best = i;
  return best;
}

static bool fits(const Scored *scored) {
  return scored && scored->price.is_legal && price_missing(&scored->price) == 0;
}

/* Returns the first plan that fits. */
static const StagedPlan *price_smallest(StageSearch *s) {
  Pricing *p = s->p;
  bool *is_taken = ARENA_ARRAY(s->arena, bool, s->plans.n + 1);
  int n_illegal = 0;
  bool has_legal = false;
  while (!pricing_is_over(p) &&
         (has_legal || n_illegal < MOST_ILLEGAL_PRICES)) {
    int at = next_small(s, is_taken);
    if (at < 0) break;
    is_taken[at] = true;
    int before = p->n_priced;
    Candidate c = stage_candidate(s, &s->plans.data[at]);
    const Scored *scored = pricing_one(p, &c);
    if (fits(scored)) return &s->plans.data[at];
    has_legal |= scored && scored->price.is_legal;
    n_illegal += p->n_priced > before && !scored->price.is_legal;
  }
  return NULL;
}

const StagedPlan *stage_price_small(StageSearch *s, Bytes memory) {
  const SearchInput *input = s->p->input;
  if (memory > INT64_MAX / 16) return NULL; /* there is no limit */
  s->chain = stage_chain_of(s->arena, input->paths, s->units, BORDERS_all);
  s->values = stage_values_of(s->arena, s->units, &s->chain);
  s->ends = stage_ends_of(s->arena, &s->pins, &s->chain);
  s->plans.n = 0;
  s->best = INT64_MAX / 4;
  s->takes_all_cuts = true;
  for (int i = 0; i < (int)ARRAY_LENGTH(shares) && !s->ends.lost; i++) {
    s->memory = (Bytes)((double)memory * shares[i]);
    s->most_estimates = s->n_estimates + MOST_ESTIMATES;
    stage_walk(s);
  }
  s->takes_all_cuts = false;
  int most = s->p->most, end = s->p->n_priced + small_prices(s->p);
  s->p->most = end < input->most_candidates ? end : input->most_candidates;
  const StagedPlan *first = price_smallest(s);
  s->p->most = most;
  return first;
}

/* ---- all programs ---- */

static bool is_stopped(const StageSearch *s) {
  const SearchHost *host = s->p->input->host;
  return host->is_stopped(host->user);
}

/* Adds plans.  Returns whether some is estimated to fit. */
static bool walk_in(StageSearch *s, Bytes memory) {
  int n = s->plans.n;
  s->memory = memory;
  stage_walk(s);
  return s->plans.n > n;
}

static void walk_lean(StageSearch *s) {
  Bytes memory = s->p->input->memory / 2 + 1, less = 0;
  int n = 0;
  while (!walk_in(s, memory)) {
    if (++n == MOST_ROUNDS || memory > INT64_MAX / 8 || is_stopped(s)) return;
    less = memory;
    memory *= 2;
  }
  for (int i = 0; i < CLOSER_ROUNDS && !is_stopped(s); i++) {
    Bytes middle = less + (memory - less) / 2;
    *(walk_in(s, middle) ? &memory : &less) = middle;
  }
}

/* The smallest plan that is not taken.  Equal estimates are of one program. */
static int next_lean(const StageSearch *s, const bool *is_taken) {
  int best = -1;
  for (int i = 0; i < s->plans.n; i++) {
    const StagedPlan *plan = &s->plans.data[i];
    bool is_known = is_taken[i];
    for (int k = 0; k < s->plans.n && !is_known; k++)
      is_known = is_taken[k] && s->plans.data[k].peak == plan->peak &&
                 s->plans.data[k].step == plan->step;
    if (!is_known && (best < 0 || plan->peak < s->plans.data[best].peak))
      best = i;
  }
  return best;
}

void price_staged_lean(StageSearch *s) {
  Pricing *p = s->p;
  walk_lean(s);
  bool *is_taken = ARENA_ARRAY(s->arena, bool, s->plans.n + 1);
  int end = p->n_priced + MOST_LEAN_PRICES;
  for (int at; p->n_priced < end && !pricing_is_over(p) &&
               (at = next_lean(s, is_taken)) >= 0;) {
    Candidate c = stage_candidate(s, &s->plans.data[at]);
    is_taken[at] = true;
    pricing_one(p, &c);
  }
  bool fits = p->best && price_missing(&p->best->price) == 0;
  if (!fits && stage_is_small(p)) stage_price_small(s, p->input->memory);
}
