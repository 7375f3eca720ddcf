/*
 * elimination.h -- declares the search that assigns every unit of a program by
 * elimination, over meshes, ZeRO, micro-batches and recomputation.
 */
#ifndef PLANNER_ELIMINATION_H
#define PLANNER_ELIMINATION_H

#include "planner/pricing.h"

typedef struct EliminationResult {
  const char *reason; /* why there are no candidates; or NULL */
  int n;
  const Candidate *candidates; /* by their estimates, the best first */
  const Bytes *peaks;          /* estimates of the bytes of each */
} EliminationResult;

/* Returns plans that are estimated to fit into `memory`. */
EliminationResult eliminate_plans(const Space *space, Bytes memory, int most);

/* ---- eliminated.c ---- */

/* Prices plans that elimination finds, and better neighbours of the best.  The
 * bytes of proposals are estimates: where none fits, they are asked to fit into
 * less.  Returns false if no plan fits. */
bool price_eliminated(Pricing *p, const Candidates *starts);

#endif
