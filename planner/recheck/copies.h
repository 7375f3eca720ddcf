/*
 * copies.h -- declares all units and edges of the whole program, of which Units
 * has a few blocks of each repeat, and which of them cost the same.
 */
#ifndef PLANNER_RECHECK_COPIES_H
#define PLANNER_RECHECK_COPIES_H

#include "price/units/units.h"

typedef struct EdgeCopy {
  int from, to; /* copies of units */
  int edge;     /* of Units */
} EdgeCopy;

typedef struct Copies {
  int n;
  const int *unit; /* of Units, by copy */
  int n_edges;
  const EdgeCopy *edges;
} Copies;

/* Returns NULL if an edge joins blocks of which it is not known what lies
 * between them. */
const Copies *copies_of(Arena *arena, const Units *units);

/* Units of one kind differ in nothing but their paths; so do edges. */
typedef struct Kinds {
  int n_units, n_edges;
  const int *of_unit, *of_edge;       /* kind, by unit and by edge */
  const int *first_unit, *first_edge; /* by kind: one that has it */
} Kinds;

/* `crosses`: by edge, in which those of one kind do not differ either; or
 * NULL. */
const Kinds *kinds_of(Arena *arena, const Units *units, const bool *crosses);

#endif
