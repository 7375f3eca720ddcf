/*
 * stage_borders.h -- declares the other ends of lines `stage`.
 */
#ifndef TOOLS_EXPLAIN_STAGE_BORDERS_H
#define TOOLS_EXPLAIN_STAGE_BORDERS_H

#include "planner/stages/stage_chain.h"
#include "tools/explain/explain.h"

typedef struct StageBorders {
  Explanation *e;
  const StageChain *chain;
  const int *ends; /* by stage: the piece behind its last one */
} StageBorders;

/* Adds an alternative for each end of a stage one border earlier and later.
 * Returns why there is none, or NULL. */
const char *explain_add_borders(const StageBorders *borders);

#endif
