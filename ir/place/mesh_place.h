/*
 * mesh_place.h -- which part of a logical tensor a rank holds in a micro-batch,
 * computed from the placement of its type and the coordinates of the rank on
 * the mesh alone.
 *
 * A dim that several axes shard is cut into as many equal runs as the product
 * of their sizes, the first axis of the list outermost.  A run has
 * ceil(size / shards) elements; the last ones may be short or empty, and what
 * they lack is padding.
 */
#ifndef IR_PLACE_MESH_PLACE_H
#define IR_PLACE_MESH_PLACE_H

#include "ir/ir.h"

/* Coordinates on a mesh, by axis: where a rank stands, and which micro-batch it
 * does. */
typedef struct MeshPlace {
  const Mesh *mesh;
  int at[MAX_AXES];
} MeshPlace;

/* Returns place number `index` of a mesh, on which the last axis varies
 * fastest.  Ranks count over the axes that are made of ranks, micro-batches
 * over the sequential ones. */
MeshPlace mesh_place(const Mesh *mesh, int rank, int microbatch);
int mesh_microbatches(const Mesh *mesh);
/* Returns whether two places differ on axes of the set at most. */
bool mesh_same_group(const MeshPlace *a, const MeshPlace *b, AxisSet axes);

/* Returns the number of the run that this place holds of a dim with this split.
 */
int64_t shard_number(const MeshPlace *place, AxisList split);
/* Returns the first logical element of the run along dim `d` of a type with a
 * placement, and how many of its elements are not padding. */
int64_t shard_begin(const MeshPlace *place, const Type *type, int d);
int64_t shard_valid(const MeshPlace *place, const Type *type, int d);

/* Returns the type of what a rank holds: local sizes, the splits kept so that a
 * node can ask for its global positions. */
const Type *type_local(Arena *arena, const Type *type, const Mesh *mesh);
/* Returns whether some shard of the type has padding. */
bool type_is_uneven(const Type *type, const Mesh *mesh);
/* Returns whether a split or a partial sum of the type is over one of these
 * axes. */
bool type_uses_axes(const Type *type, AxisSet axes);
AxisSet mesh_sequential(const Mesh *mesh);
/* Returns whether the node runs once for each micro-batch. */
bool node_is_per_microbatch(const Graph *graph, int id);
/* Returns whether the node runs for each micro-batch and its result is complete
 * after the last: a collective that joins micro-batches, or a matmul that adds
 * to its result. */
bool node_joins_microbatches(const Node *node);
/* Returns, by node and in `arena`, whether it runs once and a value that
 * follows from it is read for each micro-batch. */
bool *nodes_before_microbatches(const Graph *graph, Arena *arena);

/* Returns where element `index` of the local tensor lies in the logical one,
 * both row-major.  Returns -1 if it is padding. */
int64_t local_to_logical(const MeshPlace *place, const Type *type,
                         int64_t index);
/* Returns where a logical element lies in the local tensor; `logical` is an
 * index into the dims of `like` by name.  Returns -1 if this place does not
 * hold it. */
int64_t logical_to_local(const MeshPlace *place, const Type *type,
                         const Type *like, int64_t logical);

#endif
