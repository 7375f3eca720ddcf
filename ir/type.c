/*
 * type.c -- builds and compares types, meshes and placements.
 *
 * A type is immutable once built, so every function that changes one thing
 * returns a copy, and passes may share types freely.
 */
#include "ir/ir.h"

#include <string.h>

/* ---- meshes ---- */

int mesh_ranks(const Mesh *mesh) {
  int64_t ranks = 1;
  for (int i = 0; i < mesh->n_axes; i++) {
    if (!mesh->axes[i].is_sequential) ranks *= mesh->axes[i].size;
  }
  ASSERT(ranks > 0 && ranks <= INT32_MAX);
  return (int)ranks;
}

int mesh_find(const Mesh *mesh, Name axis) {
  for (int i = 0; i < mesh->n_axes; i++) {
    if (mesh->axes[i].name == axis) return i;
  }
  return -1;
}

/* ---- lists of axes ---- */

AxisList axis_list_append(AxisList list, int axis) {
  int length = axis_list_length(list);
  ASSERT(axis >= 0 && axis < MAX_AXES && length < MAX_AXES);
  return list | (AxisList)(axis + 1) << (4 * length);
}

AxisList axis_list_join(AxisList first, AxisList rest) {
  for (; rest; rest >>= 4)
    first = axis_list_append(first, (int)(rest & 15) - 1);
  return first;
}

AxisList axis_list_head(AxisList list, int n) {
  return n >= 8 ? list : list & ((1u << 4 * n) - 1);
}

AxisList axis_list_without(AxisList list, AxisSet axes) {
  AxisList rest = 0;
  for (; list; list >>= 4) {
    int axis = (int)(list & 15) - 1;
    if (!(axes >> axis & 1)) rest = axis_list_append(rest, axis);
  }
  return rest;
}

AxisList axis_list_of_set(AxisSet axes) {
  AxisList list = 0;
  for (int a = 0; a < MAX_AXES; a++)
    if (axes >> a & 1) list = axis_list_append(list, a);
  return list;
}

int axis_list_length(AxisList list) {
  int length = 0;
  for (; list; list >>= 4) length++;
  return length;
}

int axis_list_at(AxisList list, int index) {
  int axis = (int)(list >> (4 * index) & 15) - 1;
  ASSERT(axis >= 0);
  return axis;
}

bool axis_list_continues(AxisList list, AxisList first, AxisList *out_rest) {
  int n_bits = 4 * axis_list_length(first);
  *out_rest = n_bits < 32 ? list >> n_bits : 0;
  return (list & ~(n_bits < 32 ? ~(AxisList)0 << n_bits : 0)) == first;
}

AxisSet axis_list_set(AxisList list) {
  AxisSet set = 0;
  for (; list; list >>= 4) set |= (AxisSet)(1u << ((list & 15) - 1));
  return set;
}

int64_t axis_list_shards(AxisList list, const Mesh *mesh) {
  int64_t pieces = 1;
  for (; list; list >>= 4) {
    int axis = (int)(list & 15) - 1;
    ASSERT(mesh && axis < mesh->n_axes);
    pieces *= mesh->axes[axis].size;
  }
  return pieces;
}

const char *reduce_name(ReduceKind kind) {
  static const char *const names[] = {
#define REDUCTION(name, ...) #name,
#include "support/reductions.def"
  };
  ASSERT((unsigned)kind < N_REDUCTIONS);
  return names[kind];
}

/* ---- types ---- */

Type *type_create(Arena *arena, DType dtype, int rank) {
  ASSERT(rank >= 0 && rank <= MAX_RANK);
  Type *type = arena_alloc(arena, sizeof(Type) + (size_t)rank * sizeof(Dim));
  type->dtype = dtype;
  type->rank = (uint8_t)rank;
  return type;
}

const Type *type_scalar(Arena *arena, DType dtype) {
  return type_create(arena, dtype, 0);
}

static Type *copy_type(Arena *arena, const Type *type) {
  return arena_copy(arena, type, sizeof(Type) + type->rank * sizeof(Dim));
}

bool type_equal(const Type *a, const Type *b) {
  if (a == b) return true;
  if (a->dtype != b->dtype || a->partial != b->partial) return false;
  if (a->partial && a->partial_kind != b->partial_kind) return false;
  if (!type_same_shape(a, b)) return false;
  for (int i = 0; i < a->rank; i++) {
    if (a->dims[i].split != b->dims[i].split) return false;
  }
  return true;
}

uint64_t type_hash(const Type *type) {
  uint64_t h = hash_mix((uint64_t)type->dtype << 8 | type->rank, type->partial);
  for (int d = 0; d < type->rank; d++) {
    h = hash_mix(h, (uintptr_t)type->dims[d].name);
    h = hash_mix(h, (uint64_t)type->dims[d].size);
    h = hash_mix(h, type->dims[d].split);
  }
  return h;
}

bool type_same_shape(const Type *a, const Type *b) {
  if (a->rank != b->rank) return false;
  for (int i = 0; i < a->rank; i++) {
    if (a->dims[i].name != b->dims[i].name) return false;
    if (a->dims[i].size != b->dims[i].size) return false;
  }
  return true;
}

bool type_same_dims(const Type *a, const Type *b) {
  if (a->rank != b->rank) return false;
  for (int i = 0; i < a->rank; i++) {
    int j = type_find(b, a->dims[i].name);
    if (j < 0 || a->dims[i].size != b->dims[j].size) return false;
  }
  return true;
}

int64_t type_size(const Type *type, Name dim) {
  int index = type_find(type, dim);
  ASSERT(index >= 0);
  return type->dims[index].size;
}

int64_t type_elements(const Type *type) {
  int64_t n = 1;
  for (int i = 0; i < type->rank; i++) n *= type->dims[i].size;
  return n;
}

bool type_is_replicated(const Type *type) {
  if (type->partial) return false;
  for (int i = 0; i < type->rank; i++) {
    if (type->dims[i].split) return false;
  }
  return true;
}

const Type *type_with_dtype(Arena *arena, const Type *type, DType dtype) {
  if (type->dtype == dtype) return type;
  Type *result = copy_type(arena, type);
  result->dtype = dtype;
  return result;
}

static bool name_is_one_of(Name name, const Name *names, int n) {
  for (int i = 0; i < n; i++) {
    if (names[i] == name) return true;
  }
  return false;
}

const Type *type_without(Arena *arena, const Type *type, const Name *dims,
                         int n) {
  Type *result = copy_type(arena, type);
  result->rank = 0;
  for (int i = 0; i < type->rank; i++) {
    if (name_is_one_of(type->dims[i].name, dims, n)) continue;
    result->dims[result->rank++] = type->dims[i];
  }
  return result;
}

const Type *type_logical(Arena *arena, const Type *type) {
  return type_is_replicated(type) ? type : type_copy_logical(arena, type);
}

Type *type_copy_logical(Arena *arena, const Type *type) {
  Type *result = copy_type(arena, type);
  result->partial = 0;
  result->partial_kind = REDUCE_sum;
  for (int i = 0; i < type->rank; i++) result->dims[i].split = 0;
  return result;
}

int64_t type_local_size(const Type *type, const Mesh *mesh, int dim_index) {
  ASSERT(dim_index >= 0 && dim_index < type->rank);
  const Dim *dim = &type->dims[dim_index];
  if (!dim->split) return dim->size;
  int64_t pieces = axis_list_shards(dim->split, mesh);
  return (dim->size + pieces - 1) / pieces;
}

int64_t type_local_elements(const Type *type, const Mesh *mesh) {
  int64_t n = 1;
  for (int i = 0; i < type->rank; i++) n *= type_local_size(type, mesh, i);
  return n;
}

/* ---- printing ---- */

static bool name_is_word(const char *name) {
  if (!*name || (*name >= '0' && *name <= '9')) return false;
  for (; *name; name++) {
    bool letter = (*name >= 'a' && *name <= 'z') ||
                  (*name >= 'A' && *name <= 'Z') || *name == '_';
    if (!letter && !(*name >= '0' && *name <= '9')) return false;
  }
  return true;
}

void name_print(Text *out, Name name) {
  if (name_is_word(name)) {
    text_add(out, name);
  } else {
    text_add_json(out, name);
  }
}

static void print_axis(Text *out, int axis, const Mesh *mesh) {
  if (mesh && axis < mesh->n_axes) {
    name_print(out, mesh->axes[axis].name);
  } else {
    text_printf(out, "%d", axis);
  }
}

static void print_axes(Text *out, AxisList list, const Mesh *mesh) {
  int n = axis_list_length(list);
  text_add(out, n > 1 ? "@(" : "@");
  for (int i = 0; i < n; i++) {
    if (i) text_add(out, ", ");
    print_axis(out, axis_list_at(list, i), mesh);
  }
  if (n > 1) text_add(out, ")");
}

void type_print(Text *out, const Type *type, const Mesh *mesh) {
  text_printf(out, "%s[", dtype_name(type->dtype));
  for (int i = 0; i < type->rank; i++) {
    if (i) text_add(out, ", ");
    name_print(out, type->dims[i].name);
    text_printf(out, ":%lld", (long long)type->dims[i].size);
    if (type->dims[i].split) print_axes(out, type->dims[i].split, mesh);
  }
  if (type->partial) {
    AxisList axes = 0;
    for (int i = 0; i < MAX_AXES; i++) {
      if (type->partial >> i & 1) axes = axis_list_append(axes, i);
    }
    text_printf(out, "; %s", reduce_name(type->partial_kind));
    print_axes(out, axes, mesh);
  }
  text_add(out, "]");
}
