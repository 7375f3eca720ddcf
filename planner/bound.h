/*
 * bound.h -- declares a time below the step of every plan of the searched space
 * that fits.
 */
#ifndef PLANNER_BOUND_H
#define PLANNER_BOUND_H

#include "planner/unit_tables.h"
#include "price/units/bound_weights.h"

typedef struct BoundRequest {
  const Units *units;
  const ClusterSlice *slice;
  const CostModel *model;
  int64_t ranks, batch;
  int64_t microbatches; /* 0: powers of two that divide the batch */
  unsigned zeros;       /* a bit for each level */
  bool may_recompute;   /* all blocks of repeats */
  Bytes memory;         /* of a rank */
  Ps step;              /* of a plan of the space; the bound is no higher */
  bool (*is_stopped)(void *user); /* or NULL; if so there is no bound */
  void *user;
} BoundRequest;

typedef struct Bound {
  const char *reason; /* why there is none; or NULL */
  Ps time;
  /* The setting whose plans may be that fast. */
  const Mesh *mesh;
  int64_t microbatches;
  int zero;
  bool recomputes;
  BoundWeights weights;
} Bound;

Bound plan_bound(Arena *arena, const BoundRequest *request);

#endif
