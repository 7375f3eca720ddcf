/*
 * stage_peak.h -- declares the arena of the ranks of a plan with stages, by
 * estimates.
 */
#ifndef PLANNER_STAGES_STAGE_PEAK_H
#define PLANNER_STAGES_STAGE_PEAK_H

#include "ir/program.h"
#include "planner/stages/stage_play.h"

/* Returns the parts of the arena of each group of ranks. */
ArenaParts *stage_arenas(Arena *arena, const StagePlay *play,
                         const StageCosts *costs, const int *ends);

#endif
