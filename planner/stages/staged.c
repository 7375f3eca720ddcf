/*
 * staged.c -- prices the plans with stages that are estimated to be fastest,
 * each form of them first.
 */
#include "planner/stages/stage_ranks.h"
#include "planner/timed/timed.h"

/* ---- whether to look ---- */

static const char *why_not(const Pricing *p, bool needs) {
  const SearchInput *input = p->input;
  const Pins *pins = input->pins;
  if (!input->kernels || !input->paths) return "there is no graph of kernels";
  if (input->ranks < 2) return "there is one rank";
  if (!needs && pins && pins_have_mesh(pins)) return "the mesh is written";
  if (needs && input->slice->n_groups > 1)
    return "there are several groups or islands of machines";
  if (input->slice->n_groups > 1 && input->ranks > MOST_UNEQUAL_RANKS)
    return "there are several groups or islands of machines, with more than "
           "128 ranks";
  return NULL;
}

const char *stage_begin(StageSearch *s) {
  const SearchInput *input = s->p->input;
  s->pins = stage_pins_of(s->arena, input->pins);
  s->memory = input->memory;
  const char *reason = why_not(s->p, s->pins.needs_stages);
  if (reason) return reason;
  s->units = units_of(s->arena, input->kernels,
                      input->pins ? input->pins->batch_dim : NULL,
                      &input->repeats, &reason);
  if (!s->units) return reason;
  reason = units_loop(s->arena, s->units);
  if (reason) return reason;
  s->chain = stage_pins_chain(s->arena, &s->pins, input->paths, s->units);
  s->values = stage_values_of(s->arena, s->units, &s->chain);
  if (s->chain.n < 2) return "no value alone leaves a part of the model";
  s->ends = stage_ends_of(s->arena, &s->pins, &s->chain);
  return s->ends.lost ? "a line about stages has no border" : NULL;
}

/* ---- prices ---- */

enum {
  NODES = 24000, /* of all programs that are priced, about */
  FEWEST_PRICES = 5,
  MOST_PRICES = 16,
  MOST_ROUNDS = 2,  /* of less memory */
  MOST_ILLEGAL = 4, /* before a legal one: no plan with stages is */
  PRICES_ABOVE = 4  /* of plans that are estimated not to fit */
};

/* Estimates of bytes are 5 % off on average. */
#define WIDER 1.1

static bool has_plan(const Pricing *p) {
  return p->best && price_missing(&p->best->price) == 0;
}

/* Plans whose estimates err alike. */
static uint64_t form_of(const StagedPlan *plan) {
  uint64_t form = hash_mix(71, (uint64_t)plan->shape.groups);
  for (int a = 0; a < plan->proposal->place.mesh->n_axes; a++)
    form = hash_mix(form, (uint64_t)plan->proposal->place.mesh->axes[a].size);
  return hash_mix(form, (uint64_t)plan->proposal->zero * 2 +
                            plan->proposal->recomputes);
}

/* Prices over their estimates. */
typedef struct StageError {
  uint64_t form;
  int groups;
  bool splits; /* the backward pass: bytes of these err by another share */
  double step, peak;
} StageError;

typedef struct StageJudge {
  StageSearch *s;
  int most;       /* prices */
  bool *is_taken; /* by plan */
  VEC(StageError) errors;
} StageJudge;

/* Prices over estimates, of the last plan of the form, else of as many groups.
 * Returns NULL if none of these was priced. */
static const StageError *error_of(const StageJudge *j, const StagedPlan *plan) {
  const StageError *of = NULL;
  for (int i = j->errors.n - 1; i >= 0; i--) {
    const StageError *error = &j->errors.data[i];
    if (error->form == form_of(plan)) return error;
    if (!of && error->groups == plan->shape.groups) of = error;
  }
  return of;
}

static double corrected_step(const StageJudge *j, const StagedPlan *plan) {
  const StageError *error = error_of(j, plan);
  return (double)plan->step * (error ? error->step : 1);
}

/* How much slower than the best price an estimate may be.  A large program
 * takes seconds to price: there an estimate that was corrected counts more. */
static double patience(const StageJudge *j, const StagedPlan *plan) {
  const StageError *error = error_of(j, plan);
  if (j->most > FEWEST_PRICES || !error) return 1.1;
  return error->form == form_of(plan) ? 1.02 : 1.03;
}

/* Plans of two forms may be one program. */
static bool is_priced(const StageJudge *j, const StagedPlan *plan) {
  for (int i = 0; i < j->s->plans.n; i++)
    if (j->is_taken[i] && j->s->plans.data[i].step == plan->step &&
        j->s->plans.data[i].peak == plan->peak)
      return true;
  return false;
}

/* Likewise of bytes, of schedules that split the backward pass alike. */
static double peak_error_of(const StageJudge *j, const StagedPlan *plan) {
  double of = 1;
  bool has_groups = false, splits = plan->shape.schedule->splits_backward;
  for (int i = j->errors.n - 1; i >= 0; i--) {
    const StageError *error = &j->errors.data[i];
    if (error->splits != splits) continue;
    if (error->form == form_of(plan)) return error->peak;
    if (has_groups || error->groups != plan->shape.groups) continue;
    has_groups = true;
    of = error->peak;
  }
  return of;
}

/* The plan with the least estimate that may fit, both corrected by the price of
 * its form. */
static int next_plan(const StageJudge *j, double *out_step) {
  int best = -1;
  Bytes memory = j->s->p->input->memory;
  if (j->s->memory > memory) memory = j->s->memory;
  for (int i = 0; i < j->s->plans.n; i++) {
    const StagedPlan *plan = &j->s->plans.data[i];
    double step = corrected_step(j, plan);
    if (best >= 0 && step >= *out_step) continue;
    if ((double)plan->peak * peak_error_of(j, plan) > (double)memory) continue;
    if (is_priced(j, plan)) continue;
    best = i;
    *out_step = step;
  }
  return best;
}

/* Returns the fastest plan with stages that was priced and fits, if it is the
 * best of all. */
static const StagedPlan *price_best(StageSearch *s, int most) {
  Pricing *p = s->p;
  StageJudge j = {.s = s,
                  .most = most,
                  .is_taken = ARENA_ARRAY(s->arena, bool, s->plans.n + 1)};
  const StagedPlan *best = NULL;
  int end = p->n_priced + most, n_illegal = 0;
  bool has_legal = false;
  while (p->n_priced < end && !pricing_is_over(p) &&
         (has_legal || n_illegal < MOST_ILLEGAL)) {
    double step = 0;
    int at = next_plan(&j, &step);
    if (at < 0) break;
    const StagedPlan *plan = &s->plans.data[at];
    if (has_plan(p) && step > patience(&j, plan) * (double)p->best->price.step)
      break;
    const Scored *before = p->best;
    Candidate c = stage_candidate(s, plan);
    const Scored *scored = pricing_one(p, &c);
    j.is_taken[at] = true;
    if (!scored || !scored->price.is_legal) {
      n_illegal++;
      continue;
    }
    has_legal = true;
    StageError error = {form_of(plan), plan->shape.groups,
                        plan->shape.schedule->splits_backward,
                        (double)scored->price.step / (double)plan->step,
                        (double)scored->price.peak / (double)plan->peak};
    vec_push(s->arena, &j.errors, error);
    if (error.peak > 1 && (s->least_over == 0 || error.peak < s->least_over))
      s->least_over = error.peak;
    if (p->best != before) best = plan;
  }
  return best;
}

/* Few of large models. */
static int prices_of(const Pricing *p) {
  int n = NODES / (p->input->train->nodes.n + 1);
  return n < FEWEST_PRICES ? FEWEST_PRICES : n > MOST_PRICES ? MOST_PRICES : n;
}

/* Lets so many more plans be priced. */
static void allow(Pricing *p, int prices) {
  int most = p->input->most_candidates, end = p->n_priced + prices;
  p->most = end < most ? end : most;
}

/* Walks again in other memory, and forgets the plans of before. */
static const StagedPlan *price_again(StageSearch *s, double share, int prices) {
  s->memory = (Bytes)((double)s->memory * share);
  s->plans.n = 0;
  s->least_over = 0;
  s->best = INT64_MAX / 4; /* its plan did not fit */
  stage_walk(s);
  return price_best(s, prices);
}

/* A program whose price is cheap: its smallest plans, then those beside the
 * first one that fits. */
static void price_small(StageSearch *s, int prices) {
  StageSearch small = *s;
  Bytes memory = s->p->input->memory;
  small.plans = (StagedPlans){0};
  small.memory = memory;
  const StagedPlan *first = stage_price_small(&small, memory);
  small.memory = memory;
  allow(s->p, 2 * prices);
  const StagedPlan *best = first ? price_best(&small, prices) : NULL;
  stage_climb(&small, best ? best : first, prices);
}

/* Groups of ranks whose devices are of one kind have stages of equal meshes.
 * Where nothing fits, the walk is repeated in less memory, by as much as the
 * bytes of a plan were above their estimate.  Where nothing is estimated to
 * fit, a few plans are priced whose estimates may be too high. */
static void price_equal(StageSearch *s, int prices) {
  Pricing *p = s->p;
  if (p->input->slice->n_groups > 1) return;
  stage_walk(s);
  allow(p, 2 * prices);
  const StagedPlan *best = price_best(s, prices);
  bool is_none = s->plans.n == 0;
  for (int i = 0; i < MOST_ROUNDS && !has_plan(p) && s->least_over > 1; i++)
    best = price_again(s, 1 / s->least_over, prices);
  if (is_none && !has_plan(p)) best = price_again(s, WIDER, PRICES_ABOVE);
  s->memory = p->input->memory;
  if (has_plan(p) || !stage_is_small(p))
    stage_climb(s, best, prices);
  else
    price_small(s, prices);
}

/* Lines about stages are of equal meshes. */
static void price_fastest(StageSearch *s) {
  int most = s->p->most, prices = prices_of(s->p);
  price_equal(s, prices);
  if (!s->pins.needs_stages && !s->pins.schedule) {
    allow(s->p, 2 * (prices / 2 + 1)); /* without axes of tensors, and with */
    price_ranked(s, prices / 2 + 1);
  }
  s->p->most = most;
}

/* A search for the fewest bytes looks at no such plans. */
static bool may_time(const StageSearch *s) {
  const SearchInput *input = s->p->input;
  return !why_not(s->p, s->pins.needs_stages) && input->host->times &&
         !input->is_lean;
}

const char *price_staged(Pricing *p) {
  StageSearch s = {.p = p, .arena = p->input->arena};
  bool has_one = has_plan(p);
  const char *reason = stage_begin(&s);
  bool has_loads = s.units && !units_loop(s.arena, s.units);
  p->is_timed = reason && !has_loads && may_time(&s);
  if (reason && !p->is_timed) return reason;
  s.best = has_one ? p->best->price.step : INT64_MAX / 4;
  bool prices_whole = p->prices_whole;
  p->prices_whole = true;
  bool is_alike = p->input->slice->n_groups == 1;
  reason = p->is_timed ? price_timed(&s) : NULL;
  if (p->is_timed) {
    p->is_timed = !reason;
  } else if (p->input->is_lean && is_alike)
    price_staged_lean(&s);
  else
    price_fastest(&s);
  if (p->input->lists_stages) stage_list(&s);
  p->prices_whole = prices_whole;
  return reason;
}
