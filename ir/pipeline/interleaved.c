/*
 * interleaved.c -- yields the interleaved schedule of Megatron-LM (Narayanan et
 * al. 2021): rank r of p has the stages r, p + r, 2p + r and so on.
 *
 *     0F0,0F1,2F0,2F1,0F2,2B0,0F3,2B1,2F2,0B0,2F3,0B1,2B2,2B3,0B2,0B3
 *     1F0,1F1,3F0,3B0,3F1,3B1,1F2,1B0,1F3,1B1,3F2,3B2,3F3,3B3,1B2,1B3
 *
 * Micro-batches come in groups of g: as many equal groups as have at least p.
 * A rank takes a group through each of its stages, one after the other, and
 * then the next group; backward passes do the same with the stages reversed.
 * Rank r begins with (v - 1) g + 2 (p - 1 - r) forward passes.  Then one
 * forward and one backward pass alternate.
 */
#include "ir/pipeline/schedules.h"

int schedule_group(const PipelineShape *shape) {
  int n_groups = shape->microbatches / shape->ranks;
  return shape->microbatches / (n_groups > 1 ? n_groups : 1);
}

const char *schedule_needs_groups(Arena *arena, const PipelineShape *shape) {
  int p = shape->ranks, m = shape->microbatches;
  int n_groups = m / p > 1 ? m / p : 1;
  if (m % n_groups == 0 || shape->stages == p) return NULL;
  return arena_printf(arena,
                      "micro-batches that make %d equal groups, one for every "
                      "%d of them; %d do not",
                      n_groups, p, m);
}

void schedule_add_grouped(Arena *arena, const PipelineShape *shape,
                          Tokens *list, int rank, TokenKind kind, int at) {
  int p = shape->ranks, v = shape->stages / p;
  /* One stage a rank: groups change nothing. */
  int g = v > 1 ? schedule_group(shape) : 1;
  int chunk = at % (g * v) / g;
  if (kind != TOKEN_forward) chunk = v - 1 - chunk;
  schedule_add(arena, list, kind, chunk * p + rank, at / (g * v) * g + at % g);
}

void schedule_interleaved(Arena *arena, const PipelineShape *shape,
                          Tokens *lists) {
  int p = shape->ranks, v = shape->stages / p, n = v * shape->microbatches;
  for (int r = 0; r < p; r++) {
    int ahead = (v - 1) * schedule_group(shape) + 2 * (p - 1 - r);
    for (int i = 0; i < ahead + n; i++) {
      if (i < n)
        schedule_add_grouped(arena, shape, &lists[r], r, TOKEN_forward, i);
      if (i >= ahead)
        schedule_add_grouped(arena, shape, &lists[r], r, TOKEN_backward,
                             i - ahead);
    }
  }
}
