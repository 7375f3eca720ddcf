/*
 * follow_pins.h -- declares how pins are followed: those of values, which are
 * constraints of the graph, and those of names.
 */
#ifndef PASSES_SPMD_FOLLOW_PINS_H
#define PASSES_SPMD_FOLLOW_PINS_H

#include "passes/spmd/partition.h"

/* ---- place_constraint.c ---- */

/* Returns whether both are about one statement. */
bool span_equal(Span a, Span b);
/* Returns the path of the value that a constraint is about, also where it is
 * the one of the gradient. */
Name constraint_path(Names *names, const Node *constraint);
/* Returns the type of an operand in the placement of the constraint `node`, or
 * in the one that a trial has in place of it. */
const Type *constrained_type(const Partition *p, const Node *node,
                             const Type *have);
/* Reshards the operand of a constraint. */
void place_constraint(Partition *p, int id);
/* Reshards the results of node `id` as its pins say, for all readers, once:
 * when the node is placed or when `is_read`. */
void place_pins(Partition *p, int id, bool is_read);

/* ---- named_pins.c ---- */

/* Returns the axes that a line about its name gives a dim; none for the batch
 * dim. */
AxisList plan_line_axes(const Partition *p, const Dim *dim);
/* Returns whether the axes are those of a line, in its order, and beside them
 * only those of ZeRO and of micro-batches, which lines do not name. */
bool has_line_axes(const Partition *p, AxisList split, AxisList line);
/* Reports a pin `partial` of constraint `id` that cannot hold; false then. */
bool check_partial_constraint(Partition *p, int id, const Type *have);
/* Reports the pins about names that do not hold in the new graph. */
void check_named_pins(const Partition *p);

#endif
