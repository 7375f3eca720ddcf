/*
 * placed_units.h -- declares how the program of a plan places units.
 */
#ifndef PRICE_UNITS_PLACED_UNITS_H
#define PRICE_UNITS_PLACED_UNITS_H

#include "price/units/assignment.h"
#include "price/units/units.h"

typedef struct PlacedUnits {
  const char *reason;            /* why no assignment says it; or NULL */
  const Mesh *mesh;              /* without the axis of micro-batches */
  const Assignment *assignments; /* by unit */
  bool recomputes;               /* all blocks of repeats */
  const bool *is_mixed;          /* by unit: not all of it is placed so */
} PlacedUnits;

/* Reads the placements of a final graph of the whole program. */
PlacedUnits units_placed(Arena *arena, const Units *units, const Plan *plan,
                         const Graph *graph);
/* Reads those of the final graphs of stages with equal meshes. */
PlacedUnits units_placed_in_stages(Arena *arena, const Units *units,
                                   const Plan *plan, int n,
                                   const Graph *const *graphs);

/* Returns the same key for a path of the whole program and for that of the
 * block of the units which stands for its block. */
uint64_t units_path_key(const UnitRepeats *repeats, const char *path,
                        bool is_whole);

#endif
