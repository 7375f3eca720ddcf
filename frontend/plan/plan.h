/*
 * plan.h -- declares how plans of a loaded model are read: from a plan file, or
 * from the model's own blocks.
 */
#ifndef FRONTEND_PLAN_PLAN_H
#define FRONTEND_PLAN_PLAN_H

#include "frontend/frontend.h"
#include "frontend/elaborate/elaborate.h"

/* Returns a reader of plans of this model.  `graph` is the training graph or
 * the net alone, `walk` what made it. */
PlanReader *plan_reader_create(Elab *e, const Model *model, const Elab *walk,
                               const Graph *graph, Name batch_dim);

#endif
