/*
 * propose.h -- declares the search over the assignments of all units of a
 * program in one place: a sum is minimised for each setting and weighting of
 * loads.
 */
#ifndef PLANNER_PROPOSE_H
#define PLANNER_PROPOSE_H

#include "planner/solve/solve_pairs.h"
#include "planner/spaces/spaces.h"

typedef struct ProposeRequest {
  const SpaceRequest *of;
  const SpacePlace *place;
  int64_t microbatches;
  int batch_axes;     /* as in TableRequest */
  unsigned zeros;     /* a bit for each level that may be taken */
  bool may_recompute; /* all blocks of repeats */
  bool is_wide;       /* try all weightings, not the few that mostly win */
  Bytes memory;       /* that a rank may have */
  Ps worth;           /* settings that are slower get no more */
  PairSolver *solver; /* or NULL */
} ProposeRequest;

/* One assignment for each unit, and what it is estimated to take. */
typedef struct Proposal {
  SpacePlace place;
  int64_t microbatches;
  int batch_axes; /* as in the request */
  int zero;
  bool recomputes;
  const Assignment *assignments; /* by unit */
  Ps step;
  Bytes peak;
  bool fits;
} Proposal;

typedef struct Proposals {
  VEC(Proposal) list;
  bool has_tables; /* of some setting */
} Proposals;

/* Adds proposals for one place and number of micro-batches, the different ones
 * of several weightings.  Adds none where nothing can fit or be worth a look.
 * Returns the levels of ZeRO at which the parameters may fit. */
unsigned propose(Arena *arena, const ProposeRequest *request, Proposals *out);
/* Returns what a step is estimated to take where each unit has this value of
 * its table. */
Ps propose_estimate(const Units *units, const UnitTables *tables,
                    const int *values, int zero, bool recomputes);

#endif
