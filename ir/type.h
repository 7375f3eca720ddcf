/*
 * type.h -- declares types: dtypes, named dims, meshes and placements.
 */
#ifndef IR_TYPE_H
#define IR_TYPE_H

#include "support/support.h"
#include "support/tables.h"

/* ---- dtype ---- */

typedef enum DType {
#define DTYPE(name, ...) DT_##name,
#include "support/dtype.def"
  N_DTYPES
} DType;
typedef enum DTypeClass { CLASS_BOOL, CLASS_INT, CLASS_FLOAT } DTypeClass;

const char *dtype_name(DType dtype);
int dtype_size_bytes(DType dtype);
DTypeClass dtype_class(DType dtype);
bool dtype_find(const char *name, DType *out_dtype);
/* Returns the wider of two: bool < integers < floats, then by bytes; of one
 * class and size the least that holds both: i16 for i8 and u8, f32 for bf16 and
 * f16. */
DType dtype_promote(DType a, DType b);
/* Returns whether this is a 16-bit float.  The next one also takes f32:
 * `precision` rounds from and to these. */
bool dtype_is_16bit(DType dtype);
bool dtype_is_rounded(DType dtype);
/* Returns the nearest float of this dtype (ties to even).  Beyond the largest
 * finite one it is an infinity, or NaN in f8e4m3, which has no infinity. */
double dtype_round(DType dtype, double x);
/* Rounds towards zero to a value of an integer dtype (or bool); beyond its
 * range returns the end of it. */
int64_t dtype_integer(DType dtype, double x);
/* Returns the greatest number of an integer dtype. */
int64_t dtype_largest_integer(DType dtype);
/* Returns the dtype in which a pass numbers the n elements of a dim: i32 if it
 * holds their positions, else i64. */
DType dtype_of_positions(int64_t n);

/* ---- mesh and placement ---- */

#define MAX_AXES 7
#define MAX_RANK 12

/* Named axes, outermost first (the last varies fastest over ranks).  A
 * sequential axis is not made of ranks: its shards are done one after the
 * other (micro-batches), so a sum over it is accumulation. */
typedef struct MeshAxis {
  Name name;
  int32_t size;
  bool is_sequential;
} MeshAxis;

typedef struct Mesh {
  int n_axes;
  MeshAxis axes[MAX_AXES];
} Mesh;

/* Returns the number of ranks: the product of the non-sequential axes. */
int mesh_ranks(const Mesh *mesh);
/* Returns the index of the axis of this name in the mesh.  Returns -1 if there
 * is none. */
int mesh_find(const Mesh *mesh, Name axis);

/* An ordered list of mesh axes, outermost first: four bits each, axis index
 * plus one, the first in the lowest bits; 0 is the empty list. */
typedef uint32_t AxisList;
/* A set of mesh axes: bit i is axis i. */
typedef uint8_t AxisSet;

AxisList axis_list_append(AxisList list, int axis);
int axis_list_length(AxisList list);
int axis_list_at(AxisList list, int index);
AxisSet axis_list_set(AxisList list);
/* Returns the axes of `first`, then those of `rest`. */
AxisList axis_list_join(AxisList first, AxisList rest);
/* Returns the first `n` axes. */
AxisList axis_list_head(AxisList list, int n);
/* Returns the axes that are not in the set, in their order. */
AxisList axis_list_without(AxisList list, AxisSet axes);
/* Returns the axes of the set, ascending. */
AxisList axis_list_of_set(AxisSet axes);
/* Returns whether `list` is `first`, then *out_rest: it shards the shards of
 * `first`. */
bool axis_list_continues(AxisList list, AxisList first, AxisList *out_rest);
int64_t axis_list_shards(AxisList list, const Mesh *mesh);

const char *reduce_name(ReduceKind kind);

/* ---- type.c ---- */

/* One dim: its logical size and the axes that shard it; a shard has
 * ceil(size / shards) elements. */
typedef struct Dim {
  Name name;
  int64_t size;
  AxisList split;
} Dim;

/* Dim order is storage order (row-major) and has no meaning for operators.
 * `partial`: the value is the reduction of what the ranks (or micro-batches)
 * along these axes hold.  Types are immutable and shared freely. */
typedef struct Type {
  DType dtype;
  uint8_t rank;
  AxisSet partial;
  ReduceKind partial_kind;
  Dim dims[];
} Type;

/* Returns a type that is to be filled in. */
Type *type_create(Arena *arena, DType dtype, int rank);
const Type *type_scalar(Arena *arena, DType dtype);
/* Returns whether two types are equal in all that they have. */
bool type_equal(const Type *a, const Type *b);
/* Returns a hash for tables in memory: names count by their addresses, which
 * change from run to run. */
uint64_t type_hash(const Type *type);
/* Returns whether names, sizes and order of dims are equal. */
bool type_same_shape(const Type *a, const Type *b);
/* Names and sizes as sets; order, placement and dtype ignored. */
bool type_same_dims(const Type *a, const Type *b);
static inline int type_find(const Type *type, Name dim) { /* index or -1 */
  for (int i = 0; i < type->rank; i++)
    if (type->dims[i].name == dim) return i;
  return -1;
}
int64_t type_size(const Type *type,
                  Name dim); /* logical; asserts it is there */
/* Returns the logical number of elements. */
int64_t type_elements(const Type *type);
/* Returns whether no dim is split and nothing is partial. */
bool type_is_replicated(const Type *type);
/* Copies with one thing changed. */
const Type *type_with_dtype(Arena *arena, const Type *type, DType dtype);
const Type *type_without(Arena *arena, const Type *type, const Name *dims,
                         int n);
/* Returns the type without any placement. */
const Type *type_logical(Arena *arena, const Type *type);
/* Returns a new type of these dims that is neither sharded nor partial. */
Type *type_copy_logical(Arena *arena, const Type *type);
/* Returns the size of a dim of the shard on a rank under a mesh: of the largest
 * shard, where they are uneven. */
int64_t type_local_size(const Type *type, const Mesh *mesh, int dim_index);
int64_t type_local_elements(const Type *type, const Mesh *mesh);
/* Appends the type as "f32[B:128@data, H1:512; sum@data]"; the mesh may be NULL
 * for a type without placement. */
void type_print(Text *out, const Type *type, const Mesh *mesh);
/* Appends a name as IR text has it: quoted where it is not a word. */
void name_print(Text *out, Name name);

#endif
