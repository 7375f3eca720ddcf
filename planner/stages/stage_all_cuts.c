/*
 * stage_all_cuts.c -- finds the cuts of a small model with the fewest bytes.
 *
 * The dynamic program looks for the fastest cuts in a memory.  Where estimates
 * say that nothing fits, those with the smallest ones are the next best.
 */
#include "planner/stages/stage_peak.h"
#include "planner/stages/staged.h"

enum {
  MOST_CUTS = 600, /* of one assignment and schedule */
  MOST_KEPT = 64   /* of these: the smallest */
};

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

void stage_add_cuts(StageSearch *s, const StagePlay *play,
                    const StagedPlan *like) {
  KeptCuts kept = {0};
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
