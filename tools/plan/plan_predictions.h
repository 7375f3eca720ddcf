/*
 * plan_predictions.h -- declares the comments behind the lines of a plan.
 */
#ifndef TOOLS_PLAN_PLAN_PREDICTIONS_H
#define TOOLS_PLAN_PLAN_PREDICTIONS_H

#include "driver/trial.h"
#include "price/units/bound_walk.h"

/* Returns the text of a plan with predictions behind its lines about paths.
 * `pins` were read from this text, and the trial is of them; `space` has the
 * units.  Returns the text as it is where no assignment says the plan. */
const char *plan_with_predictions(Arena *arena, const char *text,
                                  const Pins *pins, const Trial *trial,
                                  const BoundRequest *space);

#endif
