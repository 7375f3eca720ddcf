/*
 * bfs.c -- yields the breadth-first schedule (Lamy-Poirier 2023): rank r of p
 * has the stages r, p + r, 2p + r and so on.
 *
 *     0F0,0F1,2F0,2F1,2B0,2B1,0B0,0B1
 *     1F0,1F1,3F0,3F1,3B0,3B1,1B0,1B1
 *
 * A rank takes all micro-batches through each of its stages, one after the
 * other, and back.  Each stage then computes without a break, so that its
 * weights are gathered, and its gradients reduced, once a pass.  Backward
 * passes ascend too, so gradients are added in the order of one rank.
 */
#include "ir/pipeline/schedules.h"

void schedule_bfs(Arena *arena, const PipelineShape *shape, Tokens *lists) {
  int p = shape->ranks, v = shape->stages / p;
  for (int r = 0; r < p; r++)
    for (int i = 0; i < 2 * v; i++)
      for (int m = 0; m < shape->microbatches; m++)
        schedule_add(arena, &lists[r], i < v ? TOKEN_forward : TOKEN_backward,
                     (i < v ? i : 2 * v - 1 - i) * p + r, m);
}
