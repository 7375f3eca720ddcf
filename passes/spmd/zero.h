/*
 * zero.h -- declares where parameters, gradients and optimizer state lie: by
 * ZeRO and by the lines about them.
 */
#ifndef PASSES_SPMD_ZERO_H
#define PASSES_SPMD_ZERO_H

#include "passes/spmd/partition.h"

/* ---- zero.c ---- */

/* Returns the dim over which axes that a value is replicated or partial over
 * spread it best: that leaves a rank the fewest elements (*out_elements), and
 * among nearly equal ones has contiguous shards, or is the largest.  Returns -1
 * if no dim makes it smaller. */
int dim_to_spread(const Partition *p, const Type *type, AxisList axes,
                  bool prefers_largest, int64_t *out_elements);
/* Adds a parameter, or its average, in the placement that it has without ZeRO.
 */
void zero_add_parameter(Partition *p, Name path, const Type *type);
/* Returns the placement of an input that belongs to the parameter of this path.
 */
const Type *zero_input(const Partition *p, Role role, Name path,
                       const Type *type);
/* Returns the path of the parameter that a node of the update is about. Returns
 * NULL if it is about none. */
Name update_path(Names *names, Name node_path);
/* Returns the placement to which a partial gradient is reduced for a node of
 * the update.  Returns NULL if ZeRO does not shard it. */
const Type *zero_gradient(const Partition *p, Name node_path, const Type *type);
/* Returns the axes over which ZeRO may shard parameters. */
AxisSet zero_all_axes(const Partition *p);
/* Returns the axes over which ZeRO shards the parameter of this path.  Readers
 * of the parameter gather it over these axes. */
AxisSet zero_axes_of(const Partition *p, Name path);

/* ---- update_lines.c ---- */

/* The line about the path of an input, or NULL; of optimizer state, whose
 * parameter has this path, the line about it before one about the parameter. */
const PlanPin *find_input_line(const Partition *p, const GraphInput *input,
                               Name path);
/* The line about the optimizer state of a parameter, or NULL. */
const PlanPin *find_state_line(const Partition *p, Name parameter);
/* The placement to which a gradient, partial or not, is brought for a node of
 * the update, or NULL: neither a line nor ZeRO shards it. */
const Type *updating_gradient(const Partition *p, Name node_path,
                              const Type *type);

#endif
