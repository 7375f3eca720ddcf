/*
 * early_update.h -- declares where each stage decides alone about its updates.
 */
#ifndef PASSES_TRAIN_EARLY_UPDATE_H
#define PASSES_TRAIN_EARLY_UPDATE_H

#include "passes/passes.h"

/* Returns whether each stage updates its parameters when it has its own
 * gradients, and says so.  Where the schedule lets it and something needs the
 * gradients of all stages, a warning says what.  `graph` is the joint graph
 * with gradients, whose nodes have their stages. */
bool early_update_holds(const PassContext *ctx, const Graph *graph);
/* Returns the stage that updates what has this stage, both counted from 1; what
 * has none is in the last one, as stages_cut has it. */
uint16_t early_update_stage(const PassContext *ctx, uint16_t stage);

#endif
