/*
 * plan.h -- the plan of a model, from a plan file, its own blocks or the
 * command line.
 */
#ifndef FRONTEND_PLAN_PLAN_H
#define FRONTEND_PLAN_PLAN_H

#include "frontend/elaborate/elaborate.h"
#include "ir/model.h"
#include "ir/plan.h"

/* The plan that the options, their plan file or else the blocks of the model
 * ask for, or NULL: one rank, one micro-batch.  `graph` is the training graph
 * or the net alone, `walk` what made it. */
Plan *plan_read(Elab *e, const Model *model, const Elab *walk,
                const Graph *graph, Name batch_dim);

#endif
