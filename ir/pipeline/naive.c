/*
 * naive.c -- yields the schedule that has one micro-batch under way at a time.
 *
 *     0F0,0B0,0F1,0B1
 *     1F0,1B0,1F1,1B1
 */
#include "ir/pipeline/schedules.h"

void schedule_naive(Arena *arena, const PipelineShape *shape, Tokens *lists) {
  for (int s = 0; s < shape->stages; s++)
    for (int m = 0; m < shape->microbatches; m++) {
      schedule_add(arena, &lists[s], TOKEN_forward, s, m);
      schedule_add(arena, &lists[s], TOKEN_backward, s, m);
    }
}
