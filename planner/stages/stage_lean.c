/*
 * stage_lean.c -- prices the plans with stages that are estimated to need the
 * fewest bytes.
 *
 * An assignment in little memory is not one that is fastest, so the walk is
 * repeated: in twice the memory until some plan is estimated to fit, then
 * between.  Where none of these fits, those of all cuts follow, of a small
 * program.
 */
#include "planner/stages/staged.h"

enum {
  MOST_ROUNDS = 14,    /* of twice the memory */
  CLOSER_ROUNDS = 2,   /* between */
  MOST_LEAN_PRICES = 6 /* by estimates, the smallest first */
};

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
