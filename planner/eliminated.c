/*
 * eliminated.c -- prices the plans that elimination finds, as whole programs,
 * until enough of them fit.
 */
#include "planner/descent/descent.h"
#include "planner/elimination.h"

/* How far the bytes of a program lie from their estimate. */
typedef struct Correction {
  Candidate of;
  double factor;
} Correction;

typedef struct Corrections {
  VEC(Correction) list;
} Corrections;

static bool has_equal_settings(const Candidate *a, const Candidate *b) {
  return a->n_axes == b->n_axes && a->sizes[0] == b->sizes[0] &&
         a->zero == b->zero && a->microbatches == b->microbatches &&
         a->remats == b->remats && a->layers == b->layers;
}

/* Returns 0 if nothing is known. */
static double factor_of(const Corrections *corrections, const Candidate *c) {
  for (int i = corrections->list.n - 1; i >= 0; i--)
    if (has_equal_settings(&corrections->list.data[i].of, c))
      return corrections->list.data[i].factor;
  return 0;
}

/* How many whole programs are priced: few of large ones. */
static int whole_prices(const Pricing *p) {
  enum { NODES = 25000, FEWEST = 14, MOST = 150 };
  int n = NODES / (p->input->train->nodes.n + 1);
  return n < FEWEST ? FEWEST : n > MOST ? MOST : n;
}

/* Prices what elimination finds in so much memory, up to `end` candidates in
 * all.  Returns whether one fits.  Those are left out that would not fit by the
 * bytes of equal settings, or are far slower than the best. */
static bool price_found(Pricing *p, Bytes memory, int end,
                        Corrections *corrections) {
  enum { MOST_FOUND = 48 };
  EliminationResult found = eliminate_plans(&p->space, memory, MOST_FOUND);
  int n_fit = 0, enough = (end - p->n_priced) / 2;
  p->units = found.reason
                 ? arena_printf(p->arena, "no operator placed by itself (%s)",
                                found.reason)
                 : "operators and values over meshes of up to 2 axes on all "
                   "ranks where tables stay small, under some weightings, "
                   "with shards of windows whole and kernels not split";
  for (int i = 0; i < found.n && p->n_priced < end && !pricing_is_over(p);
       i++) {
    if (n_fit > 0 && end - p->n_priced <= enough) break;
    const Candidate *c = &found.candidates[i];
    double estimate = (double)found.peaks[i];
    if (estimate * factor_of(corrections, c) > (double)p->input->memory)
      continue;
    const Scored *scored = pricing_one(p, c);
    if (!scored || !scored->price.is_legal) continue;
    double factor = (double)scored->price.peak / estimate;
    vec_push(p->arena, &corrections->list, ((Correction){*c, factor}));
    n_fit += price_missing(&scored->price) == 0;
  }
  return n_fit > 0;
}

bool price_eliminated(Pricing *p, const Candidates *starts) {
  enum { MOST_ROUNDS_OF_MEMORY = 4 };
  Bytes memory = p->input->memory;
  Corrections corrections = {0};
  bool fits = false;
  int at_once = whole_prices(p), most = p->most;
  if (!p->input->kernels) return false;
  p->prices_whole = true;
  /* So that there is a plan if a signal comes. */
  if (starts->n > 0) pricing_one(p, &starts->data[0]);
  for (int i = 0; i < MOST_ROUNDS_OF_MEMORY && !fits && !pricing_is_over(p);
       i++) {
    fits = price_found(p, memory, p->n_priced + at_once / 2, &corrections);
    memory -= memory / 5;
  }
  if (fits && p->n_priced + at_once / 2 < most)
    p->most = p->n_priced + at_once / 2;
  if (fits) climb_from_best(p);
  p->prices_whole = false;
  return fits;
}
