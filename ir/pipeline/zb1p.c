/*
 * zb1p.c -- yields ZB1P, which is ZB-H1 (Qi et al. 2023) over the stages and
 * groups of the interleaved schedule.
 *
 *     0F0,0F1,2F0,2F1,2I0,2W0,2I1,2W1,0I0,0W0,0I1,0W1
 *     1F0,1F1,3F0,3I0,3F1,3I1,3W0,1I0,3W1,1I1,1W0,1W1
 *
 * The backward pass comes in two parts: I, on which the stage before waits, and
 * W, on which nobody waits.  Rank r begins with (v - 1) g + p - 1 - r forward
 * passes, so many fewer than the interleaved schedule as W takes no time of the
 * others.  Then F and I alternate.  From its r-th I on a rank computes the
 * oldest W that is left behind each I, so every rank keeps (v - 1) g + p
 * micro-batches of stages, and the later ranks have W left for the end.
 */
#include "ir/pipeline/schedules.h"

void schedule_zb1p(Arena *arena, const PipelineShape *shape, Tokens *lists) {
  int p = shape->ranks, v = shape->stages / p, n = v * shape->microbatches;
  for (int r = 0; r < p; r++) {
    Tokens *list = &lists[r];
    int ahead = (v - 1) * schedule_group(shape) + p - 1 - r, n_weights = 0;
    for (int i = 0; i < ahead + n; i++) {
      int back = i - ahead;
      if (i < n) schedule_add_grouped(arena, shape, list, r, TOKEN_forward, i);
      if (back < 0) continue;
      schedule_add_grouped(arena, shape, list, r, TOKEN_input_grad, back);
      if (back >= r)
        schedule_add_grouped(arena, shape, list, r, TOKEN_weight_grad,
                             n_weights++);
    }
    while (n_weights < n)
      schedule_add_grouped(arena, shape, list, r, TOKEN_weight_grad,
                           n_weights++);
  }
}
