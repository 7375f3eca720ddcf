/*
 * unroll.h -- declares the units and edges of the whole program, of which Units
 * has a few blocks of each repeat.
 */
#ifndef PLANNER_UNROLL_H
#define PLANNER_UNROLL_H

#include "price/units/units.h"

typedef struct UnrolledEdge {
  int from, to; /* of the unrolled units */
  int edge;     /* of Units */
} UnrolledEdge;

/* A unit that stands for several is there as often. */
typedef struct Unrolled {
  int n;
  const int *unit; /* of Units */
  int n_edges;
  const UnrolledEdge *edges;
} Unrolled;

/* Returns NULL if an edge joins blocks that are not neighbours. */
const Unrolled *unroll(Arena *arena, const Units *units);

#endif
