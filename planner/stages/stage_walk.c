/*
 * stage_walk.c -- walks over groups of ranks, meshes, micro-batches and
 * schedules.
 *
 * All units are assigned on the mesh of one stage as if it had the whole model,
 * which the search without stages does as it is: what is fastest there is what
 * each stage does fastest for its part.
 */
#include "planner/stages/staged.h"

enum {
  MOST_CHUNKS = 4,
  MOST_STAGES = 64,
  ESTIMATES_A_PRICE = 2000, /* a price takes as long as a thousand or more */
  MOST_WORSE = 2            /* numbers of micro-batches in a row */
};

#define NONE (INT64_MAX / 4)

/* ---- schedules ---- */

static bool is_same_shape(const StageShape *a, const StageShape *b) {
  return a->schedule == b->schedule && a->groups == b->groups &&
         a->stages == b->stages && a->microbatches == b->microbatches;
}

const StagePlay *stage_play_of(StageSearch *s, const StageShape *shape) {
  for (int i = 0; i < s->plays.n; i++)
    if (is_same_shape(&s->plays.data[i]->shape, shape))
      return s->plays.data[i]->pipeline ? s->plays.data[i] : NULL;
  StagePlay *play = ARENA_NEW(s->arena, StagePlay);
  if (!stage_play_create(s->arena, shape,
                         (const StagePlay *const *)s->plays.data, s->plays.n,
                         play))
    *play = (StagePlay){.shape = *shape};
  vec_push(s->arena, &s->plays, play);
  return play->pipeline ? play : NULL;
}

bool stage_estimate(StageSearch *s, StagedPlan *plan) {
  const StagePlay *play = stage_play_of(s, &plan->shape);
  int *ends = ARENA_ARRAY(s->arena, int, plan->shape.stages);
  if (!play) return false;
  if (!plan->ends) plan->ends = s->ends.of_stages;
  if (!plan->ends && !stage_cuts(s->arena, play, plan->costs, s->ends.is_pinned,
                                 s->memory, ends))
    return false;
  if (!plan->ends) plan->ends = ends;
  plan->peak = stage_play_peak(s->arena, play, plan->costs, plan->ends);
  if (plan->peak > s->memory) return false;
  plan->step = stage_play_step(s->arena, play, plan->costs, plan->ends);
  return true;
}

/* ---- proposals ---- */

static void add_shape(StageSearch *s, const StagedPlan *like,
                      const PipelineSchedule *schedule, int chunks) {
  StagedPlan plan = *like;
  plan.chunks = chunks;
  plan.shape.schedule = schedule;
  plan.shape.stages = plan.shape.groups * chunks;
  if (plan.shape.stages > s->chain.n ||
      (plan.shape.stages > MOST_STAGES && !s->pins.needs_stages) ||
      !stage_pins_allow_schedule(&s->pins, schedule, plan.shape.groups, chunks))
    return;
  s->n_estimates++;
  if (s->takes_all_cuts) {
    const StagePlay *play = stage_play_of(s, &plan.shape);
    if (play) stage_add_cuts(s, play, &plan);
    return;
  }
  if (!stage_estimate(s, &plan)) return;
  if (plan.step < s->best && !s->p->input->is_lean) s->best = plan.step;
  vec_push(s->arena, &s->plans, plan);
}

/* All work in equal parts, without waits. */
static Ps least_time(const StageCosts *costs, const StageShape *shape) {
  StageCost all = stage_cost(costs, 0, costs->n);
  return (all.forward + all.input_grad + all.weight_grad) / shape->groups *
             shape->microbatches +
         all.update / shape->groups;
}

/* Schedules that keep values of fewer micro-batches, or wait less, than the
 * first one that suits. */
static void add_proposal(StageSearch *s, const Proposal *proposal, int groups) {
  const SearchInput *input = s->p->input;
  StageCostsRequest request = {&s->chain, s->values, &s->of, input->slice,
                               input->target};
  StageCosts *costs = ARENA_NEW(s->arena, StageCosts);
  *costs = stage_costs_of(s->arena, &request, proposal);
  StagedPlan plan = {.proposal = proposal, .costs = costs};
  plan.shape.groups = groups;
  plan.shape.microbatches = (int)proposal->microbatches;
  if (least_time(costs, &plan.shape) > s->best / 8 * 9) return;
  for (int i = 0; i < pipeline_schedule_count(); i++) {
    const PipelineSchedule *schedule = pipeline_schedule(i);
    if (!schedule->is_compiled) continue;
    bool is_chunked = schedule->args == PIPELINE_ARGS_chunks;
    if (schedule->placement == PLACEMENT_vee) {
      add_shape(s, &plan, schedule, 2);
      continue;
    }
    if (is_chunked && s->pins.schedule == schedule) {
      add_shape(s, &plan, schedule, s->pins.chunks);
      continue;
    }
    for (int chunks = is_chunked ? 2 : 1;
         chunks <= (is_chunked ? MOST_CHUNKS : 1); chunks *= 2)
      add_shape(s, &plan, schedule, chunks);
  }
}

/* ---- the walk ---- */

typedef struct PlaceWalk {
  StageSearch *s;
  int groups;
} PlaceWalk;

static unsigned zeros_of(const StageSearch *s) {
  const Pins *pins = s->p->input->pins;
  if (pins && pins->zero.is_set) return 1u << pins->zero.value;
  return s->of.ranks > 1 ? 0xfu : 1u;
}

static int64_t times(int64_t a, int64_t b) {
  return a > INT64_MAX / 4 / b ? INT64_MAX / 4 : a * b;
}

/* A stage has its part of the work and of the bytes. */
static void propose_for(PlaceWalk *w, const SpacePlace *place,
                        int64_t microbatches) {
  StageSearch *s = w->s;
  int last = (1 << place->mesh->n_axes) - 1;
  for (int axes = last; axes >= 0; axes--) {
    Proposals found = {0};
    ProposeRequest request = {.of = &s->of,
                              .place = place,
                              .microbatches = microbatches,
                              .batch_axes = axes,
                              .zeros = zeros_of(s),
                              .may_recompute = s->p->space.n_remats > 0,
                              .memory = times(s->memory, w->groups),
                              .worth = times(s->best, w->groups),
                              .solver = s->p->solver};
    propose(s->arena, &request, &found);
    for (int i = 0; i < found.list.n; i++)
      if (found.list.data[i].fits)
        add_proposal(s,
                     arena_copy(s->arena, &found.list.data[i],
                                sizeof found.list.data[i]),
                     w->groups);
  }
}

/* The least estimate of the plans from one on. */
static Ps least_step(const StageSearch *s, int first) {
  Ps least = NONE;
  for (int i = first; i < s->plans.n; i++)
    if (s->plans.data[i].step < least) least = s->plans.data[i].step;
  return least;
}

/* Returns the least estimate of its plans. */
static Ps try_count(PlaceWalk *w, const SpacePlace *place, int64_t m) {
  int first = w->s->plans.n;
  propose_for(w, place, m);
  return least_step(w->s, first);
}

/* Whoever stops the search gets the best of what it has found.  The budget
 * counts estimates, so that equal searches find equal plans. */
static bool is_over(StageSearch *s) {
  const SearchInput *input = s->p->input;
  if (s->takes_all_cuts && s->n_estimates >= s->most_estimates) return true;
  s->p->ends_early |=
      s->n_estimates / ESTIMATES_A_PRICE >= input->most_candidates;
  return s->p->ends_early || input->host->is_stopped(input->host->user);
}

/* Few micro-batches on many groups wait too long, but for lines that ask for
 * these. */
static bool may_be_count(const PlaceWalk *w, int64_t m) {
  bool is_asked = w->s->pins.needs_stages || w->s->pins.schedule;
  bool may_be = m >= 1 && (is_asked || 2 * m >= w->groups);
  return may_be && !is_over(w->s);
}

/* Returns the next divisor upwards or downwards.  Returns 0 if there is none.
 */
static int64_t next_divisor(int64_t batch, int64_t m, int step) {
  for (m += step; m > 0 && m <= batch; m += step)
    if (batch % m == 0) return m;
  return 0;
}

static bool is_power_of_two(int64_t m) {
  return (m & (m - 1)) == 0;
}

/* Tries the other divisors of the batch beside the best power of two, of places
 * that may be worth it. */
static void try_beside(PlaceWalk *w, const SpacePlace *place, int64_t batch,
                       int64_t best, Ps step) {
  if (step > w->s->best / 8 * 9) return;
  for (int up = -1; up <= 1; up += 2) {
    Ps last = step;
    int64_t m = next_divisor(batch, best, up);
    while (may_be_count(w, m) && !is_power_of_two(m)) {
      Ps found = try_count(w, place, m);
      if (found >= last) break;
      last = found;
      m = next_divisor(batch, m, up);
    }
  }
}

/* Many micro-batches wait least and keep least; fewer compute faster, up to
 * some number. */
static void visit_place(void *user, const SpacePlace *place) {
  PlaceWalk *w = user;
  const Pins *pins = w->s->p->input->pins;
  int64_t batch = pins ? pins->batch : 1;
  if (pins && pins->microbatches.is_set) {
    propose_for(w, place, pins->microbatches.value);
    return;
  }
  for (int64_t m = 1; m <= batch && w->s->takes_all_cuts; m++)
    if (batch % m == 0 && !is_over(w->s)) propose_for(w, place, m);
  if (w->s->takes_all_cuts) return;
  int64_t most = 1, best_count = 0;
  while (batch % (2 * most) == 0) most *= 2;
  Ps best = NONE;
  if (most == 1) most = batch; /* no power of two */
  for (int64_t m = most, n_worse = 0;
       n_worse < MOST_WORSE && may_be_count(w, m) && batch % m == 0; m /= 2) {
    Ps found = try_count(w, place, m);
    n_worse = found < best || best == NONE ? 0 : n_worse + 1;
    if (found >= best) continue;
    best = found;
    best_count = m;
  }
  if (best_count > 0) try_beside(w, place, batch, best_count, best);
}

void stage_walk(StageSearch *s) {
  const SearchInput *input = s->p->input;
  int n_spaces;
  const SpaceInfo *spaces = spaces_all(&n_spaces);
  int most = s->pins.groups > MOST_STAGE_GROUPS ? (int)s->pins.groups
                                                : MOST_STAGE_GROUPS;
  for (int groups = 2; groups <= most && groups <= s->chain.n; groups++) {
    if (!stage_pins_allow_groups(&s->pins, input->ranks, groups)) continue;
    PlaceWalk walk = {s, groups};
    ClusterSlice *slice = ARENA_NEW(s->arena, ClusterSlice);
    *slice = cluster_slice(s->arena, input->cluster, input->slice->first,
                           input->ranks / groups);
    s->of = (SpaceRequest){.arena = s->arena,
                           .units = s->units,
                           .slice = slice,
                           .model = input->model,
                           .ranks = input->ranks / groups,
                           .pins = s->pins.of_stage,
                           .chains = mesh_chains_create(s->arena)};
    spaces_visit(spaces, n_spaces, &s->of, visit_place, &walk);
    if (input->host->estimated)
      input->host->estimated(input->host->user, s->n_estimates, groups);
  }
}
