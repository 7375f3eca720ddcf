/*
 * fthenb.c -- yields the schedule of GPipe (Huang et al. 2019): all forward
 * passes, then all backward passes.  Backward passes ascend too, so gradients
 * are added in the order of one rank.
 *
 *     0F0,0F1,0B0,0B1
 *     1F0,1F1,1B0,1B1
 */
#include "ir/pipeline/schedules.h"

void schedule_fthenb(Arena *arena, const PipelineShape *shape, Tokens *lists) {
  for (int s = 0; s < shape->stages; s++) {
    for (int m = 0; m < shape->microbatches; m++)
      schedule_add(arena, &lists[s], TOKEN_forward, s, m);
    for (int m = 0; m < shape->microbatches; m++)
      schedule_add(arena, &lists[s], TOKEN_backward, s, m);
  }
}
