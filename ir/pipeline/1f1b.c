/*
 * 1f1b.c -- yields the schedule of PipeDream-flush (Narayanan et al. 2021):
 * stage s runs p - 1 - s forward passes ahead, then one forward and one
 * backward pass in turn.
 *
 *     0F0,0F1,0B0,0F2,0B1,0B2
 *     1F0,1B0,1F1,1B1,1F2,1B2
 */
#include "ir/pipeline/schedules.h"

const char *schedule_needs_stages(Arena *arena, const PipelineShape *shape) {
  if (shape->microbatches >= shape->stages) return NULL;
  return arena_printf(arena,
                      "at least as many micro-batches as stages; there are "
                      "%d stages, and 'microbatches' is %d",
                      shape->stages, shape->microbatches);
}

void schedule_1f1b(Arena *arena, const PipelineShape *shape, Tokens *lists) {
  int m = shape->microbatches;
  for (int s = 0; s < shape->stages; s++) {
    int ahead = shape->stages - 1 - s < m ? shape->stages - 1 - s : m;
    for (int i = 0; i < ahead; i++)
      schedule_add(arena, &lists[s], TOKEN_forward, s, i);
    for (int i = 0; i < m; i++) {
      if (ahead + i < m)
        schedule_add(arena, &lists[s], TOKEN_forward, s, ahead + i);
      schedule_add(arena, &lists[s], TOKEN_backward, s, i);
    }
  }
}
