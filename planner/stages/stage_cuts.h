/*
 * stage_cuts.h -- declares the choice of cuts: which pieces each stage has.
 */
#ifndef PLANNER_STAGES_STAGE_CUTS_H
#define PLANNER_STAGES_STAGE_CUTS_H

#include "planner/stages/stage_play.h"

/* Cuts the chain so that the slowest stage computes a micro-batch as fast as
 * memory allows, and stages are as equal as that leaves them.  Writes to
 * `out_ends`, by stage, the piece behind its last one.  Returns false if there
 * are fewer pieces than stages, or no cuts are known that fit: a group of ranks
 * has an equal part of its memory for each of its stages.  `is_pinned`: by
 * piece, whether a stage has to end behind it, or NULL. */
bool stage_cuts(Arena *arena, const StagePlay *play, const StageCosts *costs,
                const bool *is_pinned, Bytes memory, int *out_ends);

#endif
