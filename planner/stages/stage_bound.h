/*
 * stage_bound.h -- declares the tables by which plans with stages are bounded:
 * those of the whole model on the ranks of one group, without what a group may
 * not have or may hide.
 */
#ifndef PLANNER_STAGES_STAGE_BOUND_H
#define PLANNER_STAGES_STAGE_BOUND_H

#include "planner/unit_tables.h"
#include "price/units/bound_walk.h"

/* Returns NULL if some unit cannot be assigned. */
const UnitTables *stage_bound_tables(Arena *arena, const BoundRequest *request,
                                     const BoundSetting *setting,
                                     MeshChains *chains);

/* The time and bytes that micro-batches need, whatever the stages. */
typedef struct StageFlow {
  Ps chain;     /* of a micro-batch, from its first kernel to its last */
  double bytes; /* that a group stores on average over a step, beyond those of
                   one micro-batch; of a step that takes as long as that of the
                   request */
} StageFlow;

StageFlow stage_bound_flow(Arena *arena, const BoundRequest *request,
                           const BoundSetting *setting,
                           const UnitTables *tables, MeshChains *chains);

#endif
