/*
 * unit_tables.h -- declares the loads of all units and edges of a program on
 * one mesh as tables over the assignments that each unit may have.
 */
#ifndef PLANNER_UNIT_TABLES_H
#define PLANNER_UNIT_TABLES_H

#include "planner/unit_pins.h"

typedef struct TableRequest {
  LoadRequest loads;
  /* The axes that shard the batch of every unit; ANY_AXES: each may differ.
   * Micro-batches of other shards would wait for each other. */
  int batch_axes;
  /* Lines of a person; or NULL.  A unit that cannot keep them has all
   * assignments. */
  const UnitPins *pins;
  /* Where a unit has others, leave out assignments whose shards of a dim, but
   * that of the batch, are padded by more than an eighth: large models have
   * many and few are fast. */
  bool pads_little;
} TableRequest;

/* Units that are equal but for their paths share one. */
typedef struct UnitShape {
  int n_values;
  const Assignment *values;
  const Load *loads; /* by value, of all units that the unit stands for */
} UnitShape;

typedef struct EdgeTable {
  /* [value of `from` * n_values of `to` + value of `to`] */
  const EdgeLoad *loads;
} EdgeTable;

typedef struct UnitTables {
  const UnitShape **unit; /* by unit */
  const EdgeTable **edge; /* by edge */
  bool is_partial;        /* some unit has more assignments */
} UnitTables;

/* Returns NULL if some unit cannot be assigned. */
const UnitTables *unit_tables(Arena *arena, const TableRequest *request);

#endif
