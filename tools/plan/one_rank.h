/*
 * one_rank.h -- declares the program of a single rank, whose kernels the search
 * places, and the space that a bound is of.
 */
#ifndef TOOLS_PLAN_ONE_RANK_H
#define TOOLS_PLAN_ONE_RANK_H

#include "driver/trial.h"
#include "price/units/bound_walk.h"
#include "tools/commands/tools.h"

typedef struct OneRank {
  const Graph *kernels; /* the final training graph; of equal blocks a few */
  UnitRepeats repeats;
  const Cluster *cluster;
  const ClusterSlice *slice; /* the ranks that plans are for */
  const CostModel *model;
  const Target *target;
  Bytes memory; /* that a rank may have */
  int64_t ranks;
  int64_t most_microbatches; /* that statistics allow; 0: any number */
} OneRank;

/* Compiles a loaded model without a plan.  Returns false after mistakes. */
bool one_rank_compile(Tool *tool, const Compilation *loaded,
                      const PriceRequest *request, int64_t ranks, OneRank *out);

/* Fills in all but the step.  Of `pins`, which may be NULL, those narrow the
 * space of which a restriction says so.  Returns why loads are no bounds, or
 * NULL. */
const char *one_rank_bound(Arena *arena, const OneRank *program,
                           const Pins *pins, unsigned restrictions,
                           BoundRequest *out);

#endif
