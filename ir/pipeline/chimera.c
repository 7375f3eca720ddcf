/*
 * chimera.c -- yields Chimera (Li and Hoefler 2021): rank r of p has the stages
 * r and p - 1 - r, so every stage is on two ranks, each for a half of the
 * micro-batches.
 *
 *     0F0,0F1,3F2,3B2,3F3,3B3,0B0,0B1
 *     1F0,2F2,1F1,2F3,2B2,1B0,2B3,1B1
 *     1F2,2F0,1F3,2F1,2B0,1B2,2B1,1B3
 *     0F2,0F3,3F0,3B0,3F1,3B1,0B2,0B3
 *
 * Micro-batches are taken p at a time.  The first half of them passes the ranks
 * from rank 0 to the last one, the second half from the last one to rank 0.
 * Count slots in which a rank makes a call: F of the i-th of a half passes
 * stage s in slot s + 2 i, and B in slot 2p - 1 - s + 2 i.  Where p is even no
 * two calls of a rank share a slot.  The next p micro-batches follow after 2p
 * slots.
 */
#include "ir/pipeline/schedules.h"

const char *schedule_needs_halves(Arena *arena, const PipelineShape *shape) {
  int p = shape->ranks, m = shape->microbatches;
  if (p % 2 != 0)
    return arena_printf(arena, "an even number of ranks, not %d", p);
  if (m % p == 0) return NULL;
  return arena_printf(arena,
                      "as many micro-batches as ranks, or a multiple of that; "
                      "there are %d on %d ranks",
                      m, p);
}

/* Adds what a stage does in a slot, for one half of the micro-batches. */
static void add_slot(Arena *arena, const PipelineShape *shape, Tokens *list,
                     int stage, int slot, bool goes_up) {
  int p = shape->ranks;
  const TokenKind kinds[] = {TOKEN_forward, TOKEN_backward};
  const int begins[] = {stage, 2 * p - 1 - stage};
  for (int k = 0; k < 2; k++) {
    int at = slot - begins[k];
    if (at < 0 || at % 2 != 0 || at % (2 * p) >= p) continue;
    int m = at / (2 * p) * p + at % (2 * p) / 2 + (goes_up ? p / 2 : 0);
    if (m < shape->microbatches) schedule_add(arena, list, kinds[k], stage, m);
  }
}

void schedule_chimera(Arena *arena, const PipelineShape *shape, Tokens *lists) {
  int p = shape->ranks, n_slots = 2 * shape->microbatches + p;
  for (int r = 0; r < p; r++)
    for (int slot = 0; slot < n_slots; slot++) {
      add_slot(arena, shape, &lists[r], r, slot, false);
      add_slot(arena, shape, &lists[r], p - 1 - r, slot, true);
    }
}
