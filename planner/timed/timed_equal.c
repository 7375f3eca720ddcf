/*
 * timed_equal.c -- stages of equal numbers of ranks from simulated times, under
 * all schedules, those with several stages on each group of ranks among them.
 */
#include "planner/stages/staged.h"
#include "planner/timed/timed.h"

#include <string.h>

enum {
  MOST_TIMED_GROUPS = 64,
  MOST_TIMED_CHUNKS = 4,
  MOST_PER_GROUP = 8 /* micro-batches */
};

typedef struct EqualPlan {
  StagedPlan plan; /* without a proposal */
  RankSetting setting;
  int ranks; /* of a stage */
  bool is_taken;
  Ps price; /* 0: it has none, or does not fit */
} EqualPlan;

typedef struct EqualWalk {
  StageSearch *s;
  TimedNodes *nodes;
  RankLinks links;
  VEC(EqualPlan) plans;
} EqualWalk;

/* ---- estimates ---- */

static const MessageRate *rates_of(EqualWalk *w, int groups, int ranks) {
  MessageRate *out = ARENA_ARRAY(w->s->arena, MessageRate, groups);
  for (int g = 0; g < groups; g++) {
    int64_t to = (g + 1) % groups;
    RankRanges ranges = {(int64_t)g * ranks, ranks, to * ranks, ranks};
    out[g] = *rank_message_rate(&w->links, &ranges);
  }
  return out;
}

static void add_schedule(EqualWalk *w, const EqualPlan *like,
                         const PipelineSchedule *schedule, int chunks) {
  EqualPlan plan = *like;
  plan.plan.chunks = chunks;
  plan.plan.shape.schedule = schedule;
  plan.plan.shape.stages = plan.plan.shape.groups * chunks;
  if (plan.plan.shape.stages > w->s->chain.n ||
      plan.plan.shape.stages > MOST_TIMED_GROUPS ||
      !stage_pins_allow_schedule(&w->s->pins, schedule, plan.plan.shape.groups,
                                 chunks))
    return;
  w->s->n_estimates++;
  if (!stage_estimate(w->s, &plan.plan)) return;
  if (plan.plan.step < w->s->best) w->s->best = plan.plan.step;
  vec_push(w->s->arena, &w->plans, plan);
}

static void add_schedules(EqualWalk *w, const EqualPlan *plan) {
  for (int i = 0; i < pipeline_schedule_count(); i++) {
    const PipelineSchedule *schedule = pipeline_schedule(i);
    bool is_chunked = schedule->args == PIPELINE_ARGS_chunks;
    if (!schedule->is_compiled) continue;
    if (schedule->placement == PLACEMENT_vee) {
      add_schedule(w, plan, schedule, 2);
      continue;
    }
    for (int chunks = is_chunked ? 2 : 1;
         chunks <= (is_chunked ? MOST_TIMED_CHUNKS : 1); chunks *= 2)
      add_schedule(w, plan, schedule, chunks);
  }
}

/* All work in equal parts, without waits. */
static Ps least_time(const StageCosts *costs, int groups, int64_t m) {
  StageCost all = stage_cost(costs, 0, costs->n);
  return (all.forward + all.input_grad + all.weight_grad) / groups * m +
         all.update / groups;
}

static void add_setting(EqualWalk *w, const RankShape *shape, int groups,
                        const RankSetting *setting) {
  const StageCosts *known = timed_costs(w->nodes, shape, setting);
  if (!known ||
      least_time(known, groups, setting->microbatches) > w->s->best / 8 * 9)
    return;
  StageCosts *costs = arena_copy(w->s->arena, known, sizeof *known);
  costs->rates = rates_of(w, groups, shape->ranks);
  EqualPlan plan = {.setting = *setting, .ranks = shape->ranks};
  plan.plan = (StagedPlan){.costs = costs,
                           .shape = {NULL, groups, 0, setting->microbatches}};
  add_schedules(w, &plan);
}

/* ---- the walk ---- */

/* ZeRO 2 and 3 and recomputation save memory alone: they are tried where
 * nothing else fits. */
static void walk_count(EqualWalk *w, const RankShape *shape, int groups,
                       int64_t m) {
  const Pins *pins = w->s->p->input->pins;
  int n = w->s->p->space.n_remats > 0 ? 2 * N_ZERO_LEVELS : N_ZERO_LEVELS;
  int first = w->plans.n;
  for (int i = 0; i < n && (i <= 1 || w->plans.n == first); i++) {
    RankSetting setting = {.microbatches = (int)m,
                           .zero = i % N_ZERO_LEVELS,
                           .recomputes = i >= N_ZERO_LEVELS};
    if (setting.zero > 0 && shape->ranks == 1) continue;
    if (pins && pins->zero.is_set && setting.zero != (int)pins->zero.value)
      continue;
    add_setting(w, shape, groups, &setting);
  }
}

/* Divisors of the batch that differ by a quarter or more: few of these leave a
 * bubble, many take longer for each sample. */
static void walk_groups(EqualWalk *w, const RankShape *shape, int groups) {
  const SearchInput *input = w->s->p->input;
  const Pins *pins = input->pins;
  int64_t batch = pins ? pins->batch : 1;
  if (pins && pins->microbatches.is_set) {
    if (batch % (pins->microbatches.value * shape->ranks) == 0)
      walk_count(w, shape, groups, pins->microbatches.value);
    return;
  }
  int64_t last = 0;
  for (int64_t m = 2; m <= MOST_PER_GROUP * (int64_t)groups; m++) {
    if (batch % (m * shape->ranks) != 0 || 2 * m < groups || 4 * m < 5 * last)
      continue;
    if (input->host->is_stopped(input->host->user)) return;
    walk_count(w, shape, groups, m);
    last = m;
  }
}

static void walk(EqualWalk *w) {
  const SearchInput *input = w->s->p->input;
  RankShapes shapes = {0};
  rank_shapes_list(w->s, &shapes);
  for (int groups = 2; groups <= MOST_TIMED_GROUPS && groups <= w->s->chain.n;
       groups++) {
    if (!stage_pins_allow_groups(&w->s->pins, input->ranks, groups)) continue;
    for (int i = 0; i < shapes.n; i++)
      if (shapes.data[i].ranks == input->ranks / groups &&
          shapes.data[i].may_begin[0]) {
        walk_groups(w, &shapes.data[i], groups);
        break;
      }
    if (input->host->estimated)
      input->host->estimated(input->host->user, w->s->n_estimates, groups);
  }
}

/* The cuts of another plan may suit a setting better than its own, which know
 * nothing of parameters that stages share. */
static EqualPlan with_cuts_of(const EqualWalk *w, const EqualPlan *from,
                              const EqualPlan *plan) {
  EqualPlan cut = *plan;
  if (plan->plan.shape.stages != from->plan.shape.stages) return *plan;
  cut.plan.ends = from->plan.ends;
  bool is_better =
      stage_estimate(w->s, &cut.plan) && cut.plan.step < plan->plan.step;
  return is_better ? cut : *plan;
}

static const EqualPlan *best_of_shape(const EqualWalk *w, const EqualPlan *of) {
  const EqualPlan *best = NULL;
  for (int i = 0; i < w->plans.n; i++) {
    const EqualPlan *plan = &w->plans.data[i];
    if (plan->plan.shape.groups == of->plan.shape.groups &&
        plan->plan.shape.stages == of->plan.shape.stages &&
        (!best || plan->plan.step < best->plan.step))
      best = plan;
  }
  return best;
}

/* Gives the cuts of the best plan of as many stages to those that they suit. */
static void spread_cuts(EqualWalk *w) {
  for (int i = 0; i < w->plans.n && !w->s->ends.of_stages; i++) {
    EqualPlan *plan = &w->plans.data[i];
    *plan = with_cuts_of(w, best_of_shape(w, plan), plan);
  }
}

/* ---- candidates ---- */

static const char *lines_of(const EqualWalk *w, const EqualPlan *plan) {
  const StageSearch *s = w->s;
  if (s->ends.of_stages) return stage_pins_lines(s->arena, &s->pins);
  Text out = text_create(s->arena);
  for (int stage = 0; stage + 1 < plan->plan.shape.stages; stage++) {
    int piece = plan->plan.ends[stage] - 1;
    const char *written = s->ends.texts ? s->ends.texts[piece] : NULL;
    text_printf(&out, "  cut after %s\n",
                written ? written : s->chain.ends[piece]);
  }
  return text_string(&out);
}

static const char *schedule_of(const EqualWalk *w, const EqualPlan *plan) {
  const PipelineSchedule *schedule = plan->plan.shape.schedule;
  const StagePins *pins = &w->s->pins;
  if (pins->schedule) return pins->pins->schedule; /* as written */
  if (schedule->args != PIPELINE_ARGS_chunks) return schedule->name;
  return arena_printf(w->s->arena, "%s(v = %d)", schedule->name,
                      plan->plan.chunks);
}

static Candidate candidate_of(const EqualWalk *w, const EqualPlan *plan) {
  const Pins *pins = w->s->pins.of_stage;
  bool is_written = pins && pins_have_mesh(pins) && pins->axes.n > 0;
  const char **name = ARENA_ARRAY(w->s->arena, const char *, 1);
  *name = is_written ? pins->axes.data[0].name : "data";
  Candidate c = {.groups = plan->plan.shape.groups,
                 .schedule = schedule_of(w, plan),
                 .cuts = lines_of(w, plan),
                 .zero = plan->setting.zero,
                 .microbatches = plan->plan.shape.microbatches,
                 .axis_names = name,
                 .remats = plan->setting.recomputes
                               ? (1u << w->s->p->space.n_remats) - 1
                               : 0};
  if (plan->ranks > 1 || is_written) c.sizes[c.n_axes++] = plan->ranks;
  return c;
}

/* ---- prices ---- */

/* Prices over estimates, by groups. */
typedef struct EqualErrors {
  double of[MOST_TIMED_GROUPS + 1];
} EqualErrors;

static double corrected(const EqualErrors *e, const EqualPlan *plan) {
  double error = e->of[plan->plan.shape.groups];
  return (double)plan->plan.step * (error > 0 ? error : 1);
}

static EqualPlan *next_plan(EqualWalk *w, const EqualErrors *errors) {
  EqualPlan *best = NULL;
  for (int i = 0; i < w->plans.n; i++) {
    EqualPlan *plan = &w->plans.data[i];
    if (plan->is_taken) continue;
    if (!best || corrected(errors, plan) < corrected(errors, best)) best = plan;
  }
  return best;
}

/* Where messages may hang under a schedule with some cuts, they mostly do with
 * any number of micro-batches. */
static void leave_cuts(EqualWalk *w, const EqualPlan *refused) {
  const StagedPlan *of = &refused->plan;
  for (int i = 0; i < w->plans.n; i++) {
    const StagedPlan *plan = &w->plans.data[i].plan;
    size_t n = sizeof *plan->ends * (size_t)plan->shape.stages;
    w->plans.data[i].is_taken |= plan->shape.schedule == of->shape.schedule &&
                                 plan->shape.groups == of->shape.groups &&
                                 plan->shape.stages == of->shape.stages &&
                                 memcmp(plan->ends, of->ends, n) == 0;
  }
}

static void price_plan(EqualWalk *w, EqualPlan *plan, EqualErrors *errors) {
  Candidate c = candidate_of(w, plan);
  const Scored *scored = pricing_one(w->s->p, &c);
  bool is_legal = scored && scored->price.is_legal;
  plan->price = 0;
  if (!is_legal) leave_cuts(w, plan);
  if (!is_legal) return;
  double error = (double)scored->price.step / (double)plan->plan.step;
  errors->of[plan->plan.shape.groups] = error;
  if (price_missing(&scored->price) == 0) plan->price = scored->price.step;
}

static bool is_faster(const EqualPlan *a, const EqualPlan *b) {
  return a->price > 0 && a->price < b->price;
}

static bool may_be_faster(const EqualWalk *w, const EqualErrors *errors,
                          const EqualPlan *plan, double patience) {
  const Pricing *p = w->s->p;
  bool has_one = p->best && price_missing(&p->best->price) == 0;
  return !has_one ||
         corrected(errors, plan) <= patience * (double)p->best->price.step;
}

/* ---- moves ---- */

static bool move_end(const EqualWalk *w, const EqualPlan *from, int stage,
                     int step, EqualPlan *out) {
  const StageSearch *s = w->s;
  int n = from->plan.shape.stages;
  int *ends = arena_copy(s->arena, from->plan.ends, sizeof *ends * (size_t)n);
  int before = stage > 0 ? ends[stage - 1] : 0;
  if (s->ends.is_pinned && s->ends.is_pinned[ends[stage] - 1]) return false;
  ends[stage] += step;
  *out = *from;
  out->plan.ends = ends;
  return ends[stage] > before && ends[stage] < ends[stage + 1] &&
         stage_estimate(w->s, &out->plan);
}

/* With twice or half the micro-batches, another schedule or level of ZeRO. */
static bool is_beside(const EqualPlan *a, const EqualPlan *b) {
  int64_t m = a->plan.shape.microbatches, of = b->plan.shape.microbatches;
  int n = (m != of) +
          (a->plan.shape.schedule != b->plan.shape.schedule ||
           a->plan.chunks != b->plan.chunks) +
          (a->setting.zero != b->setting.zero);
  return a->plan.shape.groups == b->plan.shape.groups && n == 1 &&
         (m == of || m == 2 * of || of == 2 * m);
}

/* Estimates of other micro-batches and schedules are up to a fifth too high.
 * Returns whether there is a faster plan. */
static bool change_setting(EqualWalk *w, EqualPlan *best, int end,
                           EqualErrors *errors) {
  EqualPlan from = *best;
  for (int i = 0; i < w->plans.n; i++) {
    EqualPlan *plan = &w->plans.data[i];
    if (w->s->p->n_priced >= end || pricing_is_over(w->s->p)) break;
    if (!is_beside(plan, &from)) continue;
    EqualPlan beside = with_cuts_of(w, &from, plan);
    if (!may_be_faster(w, errors, &beside, 1.25)) continue;
    price_plan(w, &beside, errors);
    if (is_faster(&beside, best)) *best = beside;
  }
  return is_faster(best, &from);
}

static bool move_cuts(EqualWalk *w, EqualPlan *best, int end,
                      EqualErrors *errors) {
  EqualPlan from = *best;
  for (int i = 0; i < 2 * (from.plan.shape.stages - 1); i++) {
    EqualPlan plan;
    if (w->s->p->n_priced >= end || pricing_is_over(w->s->p)) break;
    if (w->s->ends.of_stages ||
        !move_end(w, &from, i / 2, i % 2 ? 1 : -1, &plan) ||
        !may_be_faster(w, errors, &plan, 1.05))
      continue;
    price_plan(w, &plan, errors);
    if (is_faster(&plan, best)) *best = plan;
  }
  return is_faster(best, &from);
}

/* Goes to plans beside, as long as they are faster. */
static void climb(EqualWalk *w, EqualPlan best, int most, EqualErrors *errors) {
  int end = w->s->p->n_priced + most;
  bool goes_on = true;
  while (goes_on) {
    goes_on = change_setting(w, &best, end, errors);
    goes_on |= move_cuts(w, &best, end, errors);
  }
}

/* The fastest plan that was priced, under another schedule than that of the
 * `other` one; NULL: there is none. */
static const EqualPlan *fastest(const EqualWalk *w, const EqualPlan *other) {
  const EqualPlan *best = NULL;
  for (int i = 0; i < w->plans.n; i++) {
    const EqualPlan *plan = &w->plans.data[i];
    if (plan->price > 0 && (!best || plan->price < best->price) &&
        !(other && plan->plan.shape.schedule == other->plan.shape.schedule))
      best = plan;
  }
  return best;
}

void price_timed_equal(StageSearch *s, TimedNodes *nodes, int most) {
  Pricing *p = s->p;
  EqualWalk w = {.s = s, .nodes = nodes, .links = {s, map_create(s->arena)}};
  EqualErrors errors = {{0}};
  walk(&w);
  spread_cuts(&w);
  for (int n = 0; n < most && !pricing_is_over(p); n++) {
    EqualPlan *plan = next_plan(&w, &errors);
    if (!plan || !may_be_faster(&w, &errors, plan, 1.1)) break;
    plan->is_taken = true;
    price_plan(&w, plan, &errors);
  }
  const EqualPlan *first = fastest(&w, NULL), *second = fastest(&w, first);
  if (first) climb(&w, *first, 2 * most, &errors);
  if (second) climb(&w, *second, 2 * most, &errors);
}
