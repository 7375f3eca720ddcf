/*
 * unit_pins.h -- declares what lines of a person say about the assignments of
 * units.
 *
 *     shard F over tensor             F of every unit over tensor
 *     shard mlp!dot: B over data      of this unit B over data, the rest whole
 */
#ifndef PLANNER_UNIT_PINS_H
#define PLANNER_UNIT_PINS_H

#include "ir/plan/pins.h"
#include "planner/loads.h"

typedef struct UnitPins UnitPins;

/* Returns what the lines about names, products, windows, parameters and data
 * say on this mesh; other lines say nothing about units.  Axes are those of the
 * mesh by their names. */
const UnitPins *unit_pins_of(Arena *arena, const Units *units, const Pins *pins,
                             const Mesh *mesh);
/* Returns whether the assignment keeps the lines.  `pins` may be NULL. */
bool unit_pins_allow(const UnitPins *pins, int unit, Assignment assignment);
/* Returns a hash of what they say about the unit. */
uint64_t unit_pins_hash(const UnitPins *pins, int unit);

#endif
