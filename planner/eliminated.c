/*
 * eliminated.c -- prices the plans that elimination finds, as whole programs,
 * until enough of them fit.
 *
 *     form                       estimate     price     err       next
 *     data 2 x tensor 4, ZeRO 3  55.8         67.1      by 1.20
 *     data 2 x tensor 4, ZeRO 2  57.8                   by 1.20   69.4
 *     data 8, ZeRO 3             64.3                   unknown   64.3, so this
 *
 * The next one is the fastest by estimates that are corrected by what has been
 * priced: of its form, else of its kind; bytes else by ZeRO and recomputation.
 */
#include "planner/descent/descent.h"
#include "planner/elimination.h"

/* How far the prices of a form, kind or setting lie from their estimates. */
typedef struct Correction {
  uint64_t of;
  double step, peak;
  bool fits;
} Correction;

typedef struct Judging {
  Pricing *p;
  EliminatedPlans plans;
  VEC(Correction) corrections;
  Map *taken; /* numbers of plans + 1 */
  /* Data parallelism does not fit.  Then estimates of steps are corrected and
   * each form is priced once; else errors of a form differ more by its
   * weighting, and the lowest estimates are priced. */
  bool binds;
  Ps worth; /* settings that are estimated to be slower are left out */
  int n_fit;
} Judging;

/* Returns NULL if nothing is known. */
static const Correction *correction_of(const Judging *j, uint64_t of) {
  for (int i = j->corrections.n - 1; i >= 0; i--)
    if (j->corrections.data[i].of == of) return &j->corrections.data[i];
  return NULL;
}

static bool has_fitting(const Judging *j, uint64_t form) {
  for (int i = 0; i < j->corrections.n; i++)
    if (j->corrections.data[i].of == form && j->corrections.data[i].fits)
      return true;
  return false;
}

/* The estimates of a plan as they are mostly priced. */
static EliminatedPlan corrected(const Judging *j, int at) {
  EliminatedPlan plan = j->plans.list.data[at];
  const Correction *of = correction_of(j, plan.form);
  if (!of) of = correction_of(j, plan.kind);
  if (of && j->binds) plan.step = (Ps)((double)plan.step * of->step);
  if (!of) of = correction_of(j, plan.setting);
  if (of) plan.peak = (Bytes)((double)plan.peak * of->peak);
  return plan;
}

static const void *key_of(int at) {
  return (const void *)(intptr_t)(at + 1);
}

/* A plan that is to be priced next. */
typedef struct Choice {
  int at; /* -1: there is none */
  Ps step;
  bool is_new; /* of a form of which no plan fits so far, and it may be faster
                  than all that do */
} Choice;

static bool is_before(const Choice *a, const Choice *b) {
  return a->is_new != b->is_new ? a->is_new : a->step < b->step;
}

/* Plans with higher estimates are seldom faster than the best that fits. */
static Ps worth_of(const Pricing *p) {
  enum { SURE = 32 };
  if (!p->best || price_missing(&p->best->price) > 0) return INT64_MAX / 2;
  return p->best->price.step + p->best->price.step / SURE;
}

/* Plans of two forms may be one program. */
static bool is_priced(const Judging *j, int at) {
  const EliminatedPlan *plans = j->plans.list.data;
  for (int i = 0; i < j->plans.list.n; i++)
    if (map_has(j->taken, key_of(i)) && plans[i].step == plans[at].step &&
        plans[i].peak == plans[at].peak)
      return true;
  return false;
}

/* The fastest one that may fit, new forms first. */
static Choice next_plan(const Judging *j) {
  Ps worth = worth_of(j->p);
  Choice best = {-1, 0, false};
  for (int i = 0; i < j->plans.list.n; i++) {
    if (!j->plans.list.data[i].fits || is_priced(j, i)) continue;
    EliminatedPlan plan = corrected(j, i);
    Choice one = {i, plan.step,
                  j->binds && plan.step < worth && !has_fitting(j, plan.form)};
    if (plan.peak > j->p->input->memory) continue;
    if (best.at < 0 || is_before(&one, &best)) best = one;
  }
  return best;
}

/* A plan that does not fit says how much less its settings must aim at. */
static void price_plan(Judging *j, int at) {
  const EliminatedPlan plan = j->plans.list.data[at];
  const Candidate c = eliminated_candidate(&j->plans, at);
  const Scored *scored = pricing_one(j->p, &c);
  map_put(j->taken, key_of(at), (void *)key_of(at));
  if (!scored || !scored->price.is_legal) return;
  double peak = (double)scored->price.peak / (double)plan.peak;
  double step = (double)scored->price.step / (double)plan.step;
  bool fits = price_missing(&scored->price) == 0;
  const uint64_t keys[] = {plan.setting, plan.kind, plan.form};
  for (int i = 0; i < ARRAY_LENGTH(keys); i++)
    vec_push(j->p->arena, &j->corrections,
             ((Correction){keys[i], step, peak, fits}));
  j->n_fit += fits;
  if (!fits)
    eliminate_in_less(&j->plans, at,
                      (Bytes)((double)j->p->input->memory / peak * 0.99));
}

/* How many whole programs are priced: few of large ones. */
static int whole_prices(const Pricing *p) {
  enum { NODES = 25000, FEWEST = 14, MOST = 150 };
  int n = NODES / (p->input->train->nodes.n + 1);
  return n < FEWEST ? FEWEST : n > MOST ? MOST : n;
}

/* Prices what elimination finds in so much memory, up to `end` candidates in
 * all.  Returns whether one fits. */
static bool price_found(Judging *j, Bytes memory, int end) {
  Pricing *p = j->p;
  j->plans = eliminate_plans(p, memory, j->worth);
  j->taken = map_create(p->arena);
  int enough = (end - p->n_priced) / 2;
  p->units = j->plans.reason
                 ? arena_printf(p->arena, "no operator placed by itself (%s)",
                                j->plans.reason)
                 : "operators and values over meshes of up to 2 axes on all "
                   "ranks where tables stay small, under some weightings, "
                   "with shards of windows whole and kernels not split";
  while (p->n_priced < end && !pricing_is_over(p)) {
    Choice next = next_plan(j);
    bool has_enough = j->n_fit > 0 && end - p->n_priced <= enough;
    if (next.at < 0 || (has_enough && !next.is_new)) break;
    price_plan(j, next.at);
  }
  return j->n_fit > 0;
}

/* Allows so many further prices, of `most` in all. */
static void allow(Pricing *p, int n, int most) {
  p->most = p->n_priced + n < most ? p->n_priced + n : most;
}

/* All sizes of buckets of the best plan.  Gradients of many small parameters
 * may be far from the default, and a climb with few prices tries one other. */
static void improve_sizes(Judging *j, int at_once, int most) {
  Pricing *p = j->p;
  const Scored *from = p->best;
  allow(p, 2 * N_SIZES, most);
  if (try_moves(p, vary_sizes, from) == from) return;
  allow(p, at_once / 2, most);
  climb_from_best(p);
}

/* Goes from the best plan, and from the best one of the bound with half of the
 * prices, to better ones beside them. */
static void improve(Judging *j, int at_once) {
  enum { MOVES = 20, MANY_PRICES = 100 };
  Pricing *p = j->p;
  int most = p->most, n_moves = at_once >= MANY_PRICES ? MOVES : 0;
  allow(p, at_once / 2, most);
  climb_from_best(p);
  improve_sizes(j, at_once, most);
  const Scored *from = p->best;
  allow(p, at_once / 14, most);
  const Scored *bounded = price_bounded(p, &j->plans);
  allow(p, at_once, most);
  int end = p->most;
  allow(p, at_once / 2, end);
  if (bounded) climb_units(p, &j->plans, bounded, n_moves);
  p->most = end;
  climb_units(p, &j->plans, from, n_moves);
  while (from != p->best && p->n_priced < end) {
    from = p->best;
    allow(p, at_once / 4, end);
    climb_from_best(p);
    p->most = end;
    climb_units(p, &j->plans, p->best, n_moves);
  }
}

bool price_eliminated(Pricing *p, const Candidates *starts,
                      bool *out_is_too_large) {
  enum { MOST_ROUNDS_OF_MEMORY = 4 };
  Bytes memory = p->input->memory;
  Judging j = {.p = p, .worth = INT64_MAX / 2};
  bool fits = false;
  int at_once = whole_prices(p);
  if (!p->input->kernels) return false;
  p->prices_whole = true;
  /* So that there is a plan if a signal comes. */
  const Scored *plain = starts->n > 0 ? pricing_one(p, &starts->data[0]) : NULL;
  if (plain && plain->price.is_legal && price_missing(&plain->price) > 0) {
    price_lean_start(p);
    j.binds = true;
    j.worth = worth_of(p);
  }
  for (int i = 0; i < MOST_ROUNDS_OF_MEMORY && !fits && !pricing_is_over(p);
       i++) {
    fits = price_found(&j, memory, p->n_priced + at_once / 2);
    *out_is_too_large |= i == 0 && j.plans.is_too_large;
    if (j.plans.reason) break; /* and less memory has no more */
    memory -= memory / 5;
  }
  if (fits) improve(&j, at_once);
  p->prices_whole = false;
  return fits;
}
