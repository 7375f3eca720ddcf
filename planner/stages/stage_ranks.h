/*
 * stage_ranks.h -- declares the search for stages of different numbers of
 * ranks, of several kinds of devices, of several islands.
 *
 *     stage 0: unit   on 0..14 as (data = 15)
 *     stage 1: linear on 15
 *
 *     micro-batches x ZeRO x recomputation   options (rank_options.h)
 *     each number of stages                  cuts and ranks (rank_cuts.h)
 *     each schedule                          step (stage_play.h)
 *     the fastest of these                   priced whole
 */
#ifndef PLANNER_STAGES_STAGE_RANKS_H
#define PLANNER_STAGES_STAGE_RANKS_H

#include "planner/stages/staged.h"

enum { MOST_UNEQUAL_RANKS = 128 }; /* tables grow with the ranks */

/* Prices such plans that may be faster than the best one; none of more
 * ranks. */
void price_ranked(StageSearch *search, int most);

#endif
