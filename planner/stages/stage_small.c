/*
 * stage_small.c -- prices the smallest plans of a small program, where no plan
 * that was priced fits.
 *
 * Only the packed arena says whether a plan fits, and estimates of a few small
 * values are far off.  A small program packs in a millisecond, so here plans
 * are compared under all cuts, inside of kernels too, and all numbers of
 * micro-batches, and many are priced, those with the fewest bytes first.
 */
#include "planner/stages/staged.h"

enum {
  NODES_OF_ALL = 24000, /* of the programs that are priced */
  MOST_SMALL_PRICES = 96,
  FEWEST_SMALL_PRICES = 16,
  MOST_ILLEGAL_PRICES = 8, /* before a legal one */
  MOST_ESTIMATES = 15000,  /* of a walk */
  MOST_TIMES_OVER = 2      /* no estimate is as far above the packed bytes */
};

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
