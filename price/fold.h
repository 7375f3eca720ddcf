/*
 * fold.h -- declares the folding of lists: equal segments that follow each
 * other become a loop, whose iterations the simulator need not run one by one.
 */
#ifndef PRICE_FOLD_H
#define PRICE_FOLD_H

#include "price/simulate.h"

/* Returns a list that takes as long and waits as long, to the picosecond: loops
 * stand for runs of at least four equal segments.  `id` of actions, which the
 * trace alone reads, may differ within a run.  Without such runs it is
 * `actions`.  The list lives in `arena`. */
const SimAction *fold_actions(Arena *arena, const SimAction *actions, int n,
                              int *out_n);

#endif
