/*
 * stage_moves.c -- writes plans with stages as candidates, and goes from one to
 * faster ones beside it.
 */
#include "planner/proposal_text.h"
#include "planner/stages/staged.h"

#include <stdlib.h>

/* ---- candidates ---- */

static const char *schedule_text(const StageSearch *s, const StagedPlan *plan) {
  const PipelineSchedule *schedule = plan->shape.schedule;
  if (schedule->args != PIPELINE_ARGS_chunks) return schedule->name;
  return arena_printf(s->arena, "%s(v = %d)", schedule->name, plan->chunks);
}

static const char *cut_lines(const StageSearch *s, const StagedPlan *plan) {
  Text out = text_create(s->arena);
  for (int stage = 0; stage + 1 < plan->shape.stages; stage++)
    text_printf(&out, "  cut after %s\n", s->chain.ends[plan->ends[stage] - 1]);
  return text_string(&out);
}

Candidate stage_candidate(const StageSearch *s, const StagedPlan *plan) {
  const Proposal *proposal = plan->proposal;
  const Mesh *mesh = proposal->place.mesh;
  const char **names = ARENA_ARRAY(s->arena, const char *, MAX_AXES);
  proposal_axis_names(s->arena, s->units, proposal, names);
  Candidate c = {
      .n_axes = mesh->n_axes,
      .groups = plan->shape.groups,
      .schedule = schedule_text(s, plan),
      .cuts = cut_lines(s, plan),
      .zero = proposal->zero,
      .microbatches = plan->shape.microbatches,
      .remats = proposal->recomputes ? (1u << s->p->space.n_remats) - 1 : 0,
      .axis_names = names,
      .lines = proposal_lines(s->arena, s->units, s->p->input->paths, proposal,
                              names),
      .proposal = proposal};
  for (int a = 0; a < mesh->n_axes; a++) c.sizes[a] = mesh->axes[a].size;
  return c;
}

/* ---- moves ---- */

typedef VEC(StagedPlan) StagedPlans;

static void add_move(StageSearch *s, StagedPlan plan, StagedPlans *out) {
  if (stage_estimate(s, &plan)) vec_push(s->arena, out, plan);
}

static void move_cuts(StageSearch *s, const StagedPlan *from,
                      StagedPlans *out) {
  int n = from->shape.stages;
  for (int stage = 0; stage + 1 < n; stage++)
    for (int step = -1; step <= 1; step += 2) {
      int *ends = arena_copy(s->arena, from->ends, sizeof *ends * (size_t)n);
      ends[stage] += step;
      bool is_empty = ends[stage] <= (stage > 0 ? ends[stage - 1] : 0) ||
                      ends[stage] >= ends[stage + 1];
      StagedPlan plan = *from;
      plan.ends = ends;
      if (!is_empty) add_move(s, plan, out);
    }
}

static void change_schedule(StageSearch *s, const StagedPlan *from,
                            StagedPlans *out) {
  for (int i = 0; i < s->plans.n; i++)
    if (s->plans.data[i].costs == from->costs &&
        (s->plans.data[i].shape.schedule != from->shape.schedule ||
         s->plans.data[i].chunks != from->chunks))
      vec_push(s->arena, out, s->plans.data[i]);
}

static int compare_steps(const void *a, const void *b) {
  const StagedPlan *x = a, *y = b;
  return x->step != y->step ? (x->step < y->step ? -1 : 1) : 0;
}

/* Prices the moves in the order of their estimates.  Returns the plan of the
 * best one that is faster; NULL: none is. */
static const StagedPlan *best_move(StageSearch *s, StagedPlans *moves,
                                   int end) {
  Pricing *p = s->p;
  const StagedPlan *best = NULL;
  if (moves->n > 0)
    qsort(moves->data, (size_t)moves->n, sizeof *moves->data, compare_steps);
  for (int i = 0; i < moves->n && p->n_priced < end && !pricing_is_over(p);
       i++) {
    const Scored *before = p->best;
    Candidate c = stage_candidate(s, &moves->data[i]);
    if (pricing_known(p, &c)) continue;
    pricing_one(p, &c);
    if (p->best != before) best = &moves->data[i];
  }
  return best;
}

void stage_climb(StageSearch *s, const StagedPlan *from, int most) {
  int end = s->p->n_priced + most;
  while (from && s->p->n_priced < end) {
    StagedPlans moves = {0};
    change_schedule(s, from, &moves);
    move_cuts(s, from, &moves);
    from = best_move(s, &moves, end);
  }
}
