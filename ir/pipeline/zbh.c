/*
 * zbh.c -- yields ZB-H1 and ZB-H2 (Qi et al. 2023): 1f1b whose backward pass
 * comes in two parts, I for the stage before and W for nobody, which fills the
 * ramp.
 *
 *     0F0,0F1,0F2,0F3,0I0,0W0,0I1,0W1,...       zbh1 of 4 ranks
 *     3F0,3I0,3F1,3I1,3F2,3I2,3F3,3I3,3W0,...
 *
 * ZB-H1 has the F and I of 1f1b, so stage s of p keeps no more than p - s
 * micro-batches from F to I, and all ranks keep at most p from F to W.  ZB-H2
 * keeps up to 2p - 1: rank r begins with 2 (p - r) - 1 forward passes, so that
 * no rank waits between its first and its last call.
 *
 * Where W goes depends on the times of F, I and W: of a few orders that keep
 * these bounds, the shortest under these times is taken.
 */
#include "ir/pipeline/trials.h"

/* F and I alone: after lead (p - 1 - r) forward passes on rank r, F and I
 * alternate. */
static Tokens *alternate(Arena *arena, const PipelineShape *shape, int lead) {
  int p = shape->ranks, m = shape->microbatches;
  Tokens *order = ARENA_ARRAY(arena, Tokens, p);
  for (int r = 0; r < p; r++) {
    int ahead = lead * (p - 1 - r);
    for (int i = 0; i < ahead + m; i++) {
      if (i < m) schedule_add(arena, &order[r], TOKEN_forward, r, i);
      if (i >= ahead)
        schedule_add(arena, &order[r], TOKEN_input_grad, r, i - ahead);
    }
  }
  return order;
}

static void play_all(Trials *trials, const Tokens *order) {
  trials_play(trials, order, (TrialRules){.weights = TRIAL_late});
  trials_play(trials, order, (TrialRules){.weights = TRIAL_early});
}

/* With W behind its I this is 1f1b, so it takes no longer than that. */
void schedule_zbh1(Arena *arena, const PipelineShape *shape, Tokens *lists) {
  Trials *trials = trials_begin(arena, shape, shape->ranks);
  Tokens *published = ARENA_ARRAY(arena, Tokens, shape->ranks);
  schedule_zb1p(arena, shape, published);
  trials_play(trials, published, (TrialRules){.weights = TRIAL_given});
  play_all(trials, alternate(arena, shape, 1));
  trials_end(trials, lists);
}

const char *schedule_needs_ramp(Arena *arena, const PipelineShape *shape) {
  int least = 2 * shape->ranks - 1;
  if (shape->microbatches >= least) return NULL;
  return arena_printf(
      arena,
      "at least %d micro-batches to fill the ramp of %d ranks; there %s "
      "%d",
      least, shape->ranks, shape->microbatches == 1 ? "is" : "are",
      shape->microbatches);
}

void schedule_zbh2(Arena *arena, const PipelineShape *shape, Tokens *lists) {
  Trials *trials = trials_begin(arena, shape, 2 * shape->ranks - 1);
  play_all(trials, alternate(arena, shape, 2));
  play_all(trials, alternate(arena, shape, 1));
  trials_play_patterns(trials);
  trials_end(trials, lists);
}
