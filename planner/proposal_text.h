/*
 * proposal_text.h -- declares the lines of a plan that say what a proposal
 * assigns.
 */
#ifndef PLANNER_PROPOSAL_TEXT_H
#define PLANNER_PROPOSAL_TEXT_H

#include "ir/plan/graph_paths.h"
#include "planner/propose.h"

/* Returns whether the axis shards the batch of most units that it shards. */
bool proposal_shards_batch(const Units *units, const Proposal *proposal,
                           int axis);
/* The names of the axes by what they shard: "data", "sequence", "tensor". */
void proposal_axis_names(Arena *arena, const Units *units,
                         const Proposal *proposal, const char **names);
/* The lines of the block `plan`, a line each, about operators, values and
 * parameters, whose paths are those of `paths`. */
const char *proposal_lines(Arena *arena, const Units *units,
                           const PlanPaths *paths, const Proposal *proposal,
                           const char *const *axis_names);
/* The lines about units that a stage has, and about values between these. */
const char *proposal_lines_of(Arena *arena, const Units *units,
                              const PlanPaths *paths, const Proposal *proposal,
                              const char *const *axis_names,
                              const bool *has_unit);

#endif
