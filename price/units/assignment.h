/*
 * assignment.h -- declares how a unit is placed, and the numbers that all have
 * in common who price units.
 *
 * An assignment gives each axis of a mesh a loop dim of the unit, whose shards
 * it makes, or none: then the ranks along the axis do the same work.
 */
#ifndef PRICE_UNITS_ASSIGNMENT_H
#define PRICE_UNITS_ASSIGNMENT_H

#include <stdint.h>

enum { MOST_MESH_AXES = 3, NO_LOOP = -1 };

typedef struct Assignment {
  int8_t loop[MOST_MESH_AXES]; /* by axis of the mesh, outermost first */
} Assignment;

/* Stands for axes that shard the batch: each unit may have others. */
enum { ANY_AXES = -1 };

enum {
  N_ZERO_LEVELS = 4,
  N_LOAD_LINKS = 4 /* that are counted, as cost_links numbers them */
};

#endif
