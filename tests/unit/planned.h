/*
 * planned.h -- loads a model and makes the plan that its pins and a command
 * line ask for.
 */
#ifndef TESTS_UNIT_PLANNED_H
#define TESTS_UNIT_PLANNED_H

#include "frontend/frontend.h"

typedef struct Planned {
  Model *model;     /* NULL after mistakes */
  const Plan *plan; /* NULL: after mistakes, or nothing asks for one */
  const Pins *pins;
} Planned;

/* `ranks` and `microbatches` are those of the command line; 0: not given. */
static inline Planned load_planned(Module *module,
                                   const FrontendOptions *options,
                                   int64_t ranks, int64_t microbatches) {
  LoadedModel loaded = frontend_load(module, options);
  Planned out = {.model = loaded.model, .pins = loaded.pins};
  Pins *pins = loaded.pins;
  if (!pins) return out;
  if (ranks > 0) pins->ranks = pin_number(ranks);
  if (microbatches > 0) pins->microbatches = pin_number(microbatches);
  out.plan = pins_ask(pins) ? plan_make(module, pins) : NULL;
  return diags_errors(module->diags) > 0 ? (Planned){0} : out;
}

#endif
