/*
 * stage_moves.c -- writes plans with stages as candidates, and goes from one to
 * faster ones beside it.
 */
#include "planner/proposal_text.h"
#include "planner/space.h"
#include "planner/stages/staged.h"

#include <stdlib.h>

/* ---- candidates ---- */

static const char *schedule_text(const StageSearch *s, const StagedPlan *plan) {
  const PipelineSchedule *schedule = plan->shape.schedule;
  if (s->pins.schedule) return s->pins.pins->schedule; /* as written */
  if (schedule->args != PIPELINE_ARGS_chunks) return schedule->name;
  return arena_printf(s->arena, "%s(v = %d)", schedule->name, plan->chunks);
}

/* Else the batch takes each axis that no line names, of units that are whole on
 * all ranks, too. */
static void add_batch_line(const StageSearch *s, const Proposal *proposal,
                           const char *const *names, Text *out) {
  const Pins *pins = s->p->input->pins;
  int n = 0;
  if (!pins || !pins->batch_dim || proposal->batch_axes < 0) return;
  text_printf(out, "  shard %s over ", pins->batch_dim);
  for (int a = 0; a < proposal->place.mesh->n_axes; a++)
    if (proposal->batch_axes >> a & 1)
      text_printf(out, "%s%s", n++ ? ", " : "(", names[a]);
  text_add(out, n ? ")\n" : "none\n");
}

static const char *stage_lines(const StageSearch *s, const StagedPlan *plan,
                               const char *const *names) {
  Text out = text_create(s->arena);
  add_batch_line(s, plan->proposal, names, &out);
  if (s->ends.of_stages) {
    text_add(&out, stage_pins_lines(s->arena, &s->pins));
    return text_string(&out);
  }
  for (int stage = 0; stage + 1 < plan->shape.stages; stage++) {
    int piece = plan->ends[stage] - 1;
    const char *written = s->ends.texts ? s->ends.texts[piece] : NULL;
    text_printf(&out, "  cut after %s\n",
                written ? written : s->chain.ends[piece]);
  }
  return text_string(&out);
}

/* A written mesh may have axes of size 1, which assignments know nothing of. */
static void set_axes(const StageSearch *s, const StagedPlan *plan,
                     const char **names, Candidate *out) {
  const Mesh *mesh = plan->proposal->place.mesh;
  const Pins *pins = s->pins.of_stage;
  bool is_written = pins && pins_have_mesh(pins);
  int64_t ranks = s->p->input->ranks / plan->shape.groups;
  out->n_axes = is_written ? pins->axes.n : mesh->n_axes;
  for (int a = 0; a < out->n_axes; a++)
    out->sizes[a] =
        is_written ? pinned_axis_size(pins, ranks, a) : mesh->axes[a].size;
  out->axis_names = names;
  if (!is_written) return;
  const char **written = ARENA_ARRAY(s->arena, const char *, MAX_AXES);
  for (int a = 0; a < out->n_axes; a++) written[a] = pins->axes.data[a].name;
  out->axis_names = written;
}

/* The names of the axes that an assignment is over. */
static const char **mesh_names(const StageSearch *s, const Proposal *proposal) {
  const char **names = ARENA_ARRAY(s->arena, const char *, MAX_AXES);
  if (s->pins.of_stage && pins_have_mesh(s->pins.of_stage))
    for (int a = 0; a < proposal->place.mesh->n_axes; a++)
      names[a] = proposal->place.mesh->axes[a].name;
  else
    proposal_axis_names(s->arena, s->units, proposal, names);
  return names;
}

Candidate stage_candidate(const StageSearch *s, const StagedPlan *plan) {
  const Proposal *proposal = plan->proposal;
  const char **names = mesh_names(s, proposal);
  Candidate c = {
      .groups = plan->shape.groups,
      .schedule = schedule_text(s, plan),
      .cuts = stage_lines(s, plan, names),
      .zero = proposal->zero,
      .microbatches = plan->shape.microbatches,
      .remats = proposal->recomputes ? (1u << s->p->space.n_remats) - 1 : 0,
      .lines = proposal_lines(s->arena, s->units, s->p->input->paths, proposal,
                              names),
      .proposal = proposal};
  set_axes(s, plan, names, &c);
  return c;
}

/* ---- moves ---- */

static void add_move(StageSearch *s, StagedPlan plan, StagedPlans *out) {
  if (stage_estimate(s, &plan)) vec_push(s->arena, out, plan);
}

static void move_cuts(StageSearch *s, const StagedPlan *from,
                      StagedPlans *out) {
  int n = from->shape.stages;
  if (s->ends.of_stages) return;
  for (int stage = 0; stage + 1 < n; stage++)
    for (int step = -1; step <= 1; step += 2) {
      int *ends = arena_copy(s->arena, from->ends, sizeof *ends * (size_t)n);
      bool is_pinned = s->ends.is_pinned && s->ends.is_pinned[ends[stage] - 1];
      ends[stage] += step;
      bool is_empty = ends[stage] <= (stage > 0 ? ends[stage - 1] : 0) ||
                      ends[stage] >= ends[stage + 1];
      StagedPlan plan = *from;
      plan.ends = ends;
      if (!is_empty && !is_pinned) add_move(s, plan, out);
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
