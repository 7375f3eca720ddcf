/*
 * fewer_ranks.c -- says whether the first kinds of machines alone are faster
 * than all ranks together.
 *
 *     mixed.cluster, GNMT-8: 32 ranks take 239.1 ms, 16 of 'new' 97.1 ms
 *
 * Plans are searched for all ranks.  Where machines are unlike, slow ones may
 * take more time than they save, so data parallelism on the first groups is
 * priced, too: one plan for each group.
 */
#include "tools/commands/planning.h"

/* Returns whether nobody asked for a number of ranks: pins then have that of
 * the cluster. */
static bool may_take_fewer(const Planning *planning) {
  const Pins *pins = planning->input.pins;
  return planning->tool->options.ranks <= 0 && planning->input.slice &&
         !(pins && pins->is_given);
}

void planning_print_fewer(Planning *planning, Ps step, Text *out) {
  const ClusterSlice *all = planning->input.slice;
  Arena *arena = planning->tool->arena;
  int64_t ranks = 0, best = 0;
  Ps least = step;
  if (!may_take_fewer(planning)) return;
  for (int g = 0; g + 1 < all->n_groups; g++) {
    ranks += all->groups[g].n;
    const char *text = arena_printf(
        arena, "mesh {\n  data = %lld\n}\n\nplan {\n}\n", (long long)ranks);
    CandidatePrice price;
    planning_price_whole(planning, 1, &text, &price);
    if (!price.is_legal || price.peak > price.memory || price.step >= least)
      continue;
    least = price.step;
    best = ranks;
  }
  if (best > 0)
    text_printf(out,
                "\ndata parallelism on the first %lld ranks alone takes %s: "
                "--ranks %lld plans for these",
                (long long)best, inspect_ms(arena, least), (long long)best);
}
