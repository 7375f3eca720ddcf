/*
 * loops.c -- nested loops over named dims, declared in internal.h.
 */
#include "interp/internal.h"

int64_t type_stride(const Type *type, Name dim) {
  int64_t stride = 1;
  for (int i = type->rank - 1; i >= 0; i--) {
    if (type->dims[i].name == dim) return stride;
    stride *= type->dims[i].size;
  }
  return 0;
}

bool loops_has(const Loops *loops, Name name) {
  for (int i = 0; i < loops->rank; i++) {
    if (loops->names[i] == name) return true;
  }
  return false;
}

void loops_add(Loops *loops, Name name, int64_t size) {
  if (name != NULL && loops_has(loops, name)) return;
  ASSERT(loops->rank < LOOP_DIMS);
  loops->names[loops->rank] = name;
  loops->sizes[loops->rank++] = size;
}

void loops_add_type(Loops *loops, const Type *type) {
  for (int i = 0; i < type->rank; i++) {
    loops_add(loops, type->dims[i].name, type->dims[i].size);
  }
}

void loops_bind(Loops *loops, const Type *type) {
  ASSERT(loops->n_tensors < LOOP_TENSORS);
  int64_t *strides = loops->strides[loops->n_tensors++];
  for (int i = 0; i < loops->rank; i++) {
    strides[i] =
        loops->names[i] == NULL ? 0 : type_stride(type, loops->names[i]);
  }
}

int64_t loops_count(const Loops *loops) {
  int64_t n = 1;
  for (int i = 0; i < loops->rank; i++) n *= loops->sizes[i];
  return n;
}

bool loops_start(Loops *loops) {
  for (int i = 0; i < loops->rank; i++) loops->index[i] = 0;
  for (int t = 0; t < loops->n_tensors; t++) loops->offset[t] = 0;
  return loops_count(loops) > 0;
}

bool loops_carry(Loops *loops) {
  for (int i = loops->rank - 1; loops->index[i] == loops->sizes[i]; i--) {
    loops->index[i] = 0;
    for (int t = 0; t < loops->n_tensors; t++)
      loops->offset[t] -= loops->strides[t][i] * loops->sizes[i];
    if (i == 0) return false;
    loops->index[i - 1]++;
    for (int t = 0; t < loops->n_tensors; t++)
      loops->offset[t] += loops->strides[t][i - 1];
  }
  return true;
}

int64_t *loops_offsets(Loops *loops, int tensor, Arena *arena) {
  int64_t *offsets = ARENA_ARRAY(arena, int64_t, loops_count(loops));
  int64_t n = 0;
  for (bool more = loops_start(loops); more; more = loops_next(loops)) {
    offsets[n++] = loops->offset[tensor];
  }
  return offsets;
}

Loops loops_of_attr(const Node *node, AttrKey key, const Type *type) {
  Loops loops = {0};
  int n;
  const Name *names = node_names(node, key, &n);
  for (int i = 0; i < n; i++)
    loops_add(&loops, names[i], type_size(type, names[i]));
  loops_bind(&loops, type);
  return loops;
}

int64_t interp_position(const InterpCall *call, int d) {
  const Dim *dim = &call->results[0].type->dims[d];
  return call->place ? shard_number(call->place, dim->split) * dim->size : 0;
}
