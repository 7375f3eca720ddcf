/*
 * stage_paths.h -- declares which paths a line `stage N: PATHS` has.
 *
 *     unit, adaptive_avgpool     linear[0..1]     linear[2]
 */
#ifndef PLANNER_STAGES_STAGE_PATHS_H
#define PLANNER_STAGES_STAGE_PATHS_H

#include "planner/stages/stage_chain.h"

/* Returns by stage the fewest paths, from the outside in, that mean its part of
 * the model: stage s ends after piece ends[s] - 1.  Returns NULL if there are
 * none. */
const char **stage_paths(Arena *arena, const PlanPaths *paths,
                         const StageChain *chain, const int *ends,
                         int n_stages);

#endif
