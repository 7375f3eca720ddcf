/*
 * stage_small.c -- prices the smallest plans of a small program, where no plan
 * that was priced fits.
 *
 * Only the packed arena says whether a plan fits, and estimates of a few small
 * values are far off.  A small program packs in a millisecond, so here plans
 * are compared under all cuts, inside of kernels too, and all numbers of
 * micro-batches, and many are priced, those with the fewest bytes first.
 */
#include "planner/stages/stage_peak.h"
#include "planner/stages/staged.h"

enum {
  NODES_OF_ALL = 24000, /* of the programs that are priced */
  MOST_SMALL_PRICES = 96,
  FEWEST_SMALL_PRICES = 16,
  MOST_ILLEGAL_PRICES = 8, /* before a legal one */
  MOST_CUTS = 600,         /* of one assignment and schedule */
  MOST_KEPT = 64,          /* of these: the smallest */
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

/* ---- all cuts ---- */

static bool keeps_pins(const StageSearch *s, const int *ends, int n) {
  int stage = 0;
  for (int i = 0; i + 1 < s->chain.n && s->ends.is_pinned; i++) {
    if (!s->ends.is_pinned[i]) continue;
    while (stage < n && ends[stage] < i + 1) stage++;
    if (stage == n || ends[stage] != i + 1) return false;
  }
  return true;
}

/* The next ones in order; the last stage ends with the model. */
static bool next_ends(int *ends, int n, int n_pieces) {
  int stage = n - 2;
  while (stage >= 0 && ends[stage] == n_pieces - (n - 1 - stage)) stage--;
  if (stage < 0) return false;
  ends[stage]++;
  for (int k = stage + 1; k < n - 1; k++) ends[k] = ends[k - 1] + 1;
  return true;
}

/* Those with the fewest bytes, the smallest first. */
typedef struct KeptCuts {
  StagedPlan plans[MOST_KEPT];
  int n;
} KeptCuts;

static void keep(StageSearch *s, const StagedPlan *plan, KeptCuts *kept) {
  int at = kept->n;
  while (at > 0 && kept->plans[at - 1].peak > plan->peak) at--;
  if (at == MOST_KEPT) return;
  if (kept->n < MOST_KEPT) kept->n++;
  for (int i = kept->n - 1; i > at; i--) kept->plans[i] = kept->plans[i - 1];
  kept->plans[at] = *plan;
  kept->plans[at].ends = arena_copy(s->arena, plan->ends,
                                    sizeof(int) * (size_t)plan->shape.stages);
}

/* Returns in how many ways so many stages have the pieces in order, up to
 * MOST_CUTS + 1. */
static int count_cuts(int n_pieces, int n_stages) {
  int64_t n = 1;
  for (int i = 1; i < n_stages && n <= MOST_CUTS; i++)
    n = n * (n_pieces - i) / i;
  return n <= MOST_CUTS ? (int)n : MOST_CUTS + 1;
}

/* Where there are too many cuts: those of the dynamic program in this memory.
 */
static void keep_one(StageSearch *s, const StagePlay *play,
                     const StagedPlan *like, KeptCuts *kept) {
  int *ends = ARENA_ARRAY(s->arena, int, like->shape.stages);
  StagedPlan plan = *like;
  plan.ends = s->ends.of_stages ? s->ends.of_stages : ends;
  if (!s->ends.of_stages && !stage_cuts(s->arena, play, plan.costs,
                                        s->ends.is_pinned, s->memory, ends))
    return;
  plan.peak = stage_play_peak(s->arena, play, plan.costs, plan.ends);
  keep(s, &plan, kept);
}

static void keep_all(StageSearch *s, const StagePlay *play,
                     const StagedPlan *like, KeptCuts *kept) {
  int n = like->shape.stages;
  Arena *own = arena_beside(s->arena);
  int *ends = ARENA_ARRAY(own, int, n);
  StagedPlan plan = *like;
  for (int stage = 0; stage < n; stage++) ends[stage] = stage + 1;
  ends[n - 1] = s->chain.n;
  plan.ends = ends;
  do {
    s->n_estimates++;
    if (!keeps_pins(s, ends, n)) continue;
    plan.peak = stage_play_peak(own, play, plan.costs, ends);
    keep(s, &plan, kept);
  } while (next_ends(ends, n, s->chain.n));
  arena_destroy(own);
}

void stage_add_cuts(StageSearch *s, const StagedPlan *like) {
  const StagePlay *play = stage_play_of(s, &like->shape);
  KeptCuts kept = {0};
  if (!play) return;
  if (s->ends.of_stages ||
      count_cuts(s->chain.n, like->shape.stages) > MOST_CUTS)
    keep_one(s, play, like, &kept);
  else
    keep_all(s, play, like, &kept);
  for (int i = 0; i < kept.n; i++) {
    StagedPlan *one = &kept.plans[i];
    one->step = stage_play_step(s->arena, play, one->costs, one->ends);
    vec_push(s->arena, &s->plans, *one);
  }
}

/* ---- prices ---- */

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
