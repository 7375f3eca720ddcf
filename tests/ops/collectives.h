/*
 * collectives.h -- what every transport must do: each kind of collective, in
 * groups of all ranks, of neighbours and of ranks further apart, with parts of
 * one element, of odd sizes and of more than one chunk.  Called on every rank.
 */
#ifndef TESTS_OPS_COLLECTIVES_H
#define TESTS_OPS_COLLECTIVES_H

#include "runtime/comm/comm.h"

#include <string.h>

enum { COLLECTIVE_PARTS = 2 };

/* The first value of element i of a part on member `rank`; all differ. */
static inline int32_t collective_value(int rank, int part, int64_t i) {
  return (int32_t)(rank * 100000000 + part * 10000000 + i);
}

/* The value that it must have in the end; -1: any. */
static inline int64_t collective_wanted(const DnnCollective *what, int rank,
                                        int part, int64_t i) {
  CommGroup group = comm_group(what, rank);
  int64_t piece = what->counts[part] / group.size, sum = 0;
  int from = (int)(i / piece);
  switch (what->kind) {
  case DNN_ALL_REDUCE:
  case DNN_REDUCE_SCATTER:
    if (what->kind == DNN_REDUCE_SCATTER && from != group.index) return -1;
    for (int q = 0; q < group.size; q++)
      sum += collective_value(group.base + q * group.stride, part, i);
    return sum;
  case DNN_ALL_GATHER:
    return collective_value(group.base + from * group.stride, part, i);
  case DNN_ALL_TO_ALL:
    return collective_value(group.base + from * group.stride, part,
                            i % piece + group.index * piece);
  case DNN_RECV:
  case DNN_BROADCAST:
    return collective_value(group.base + what->peer * group.stride, part, i);
  default: return collective_value(rank, part, i);
  }
}

/* Programs are constants: other ranks may look at ours until they have left. */
static inline Status collective_run(Arena *arena, Comm *comm,
                                    const DnnCollective *of) {
  const DnnCollective *what = arena_copy(arena, of, sizeof *of);
  CommPart *parts = ARENA_ARRAY(arena, CommPart, COLLECTIVE_PARTS);
  for (int p = 0; p < what->n_parts; p++) {
    int64_t *data = ARENA_ARRAY(arena, int64_t, what->counts[p]);
    parts[p] = (CommPart){data, what->counts[p]};
    for (int64_t i = 0; i < what->counts[p]; i++)
      data[i] = collective_value(comm->rank, p, i);
  }
  TRY(comm->start(comm, what, parts));
  TRY(comm->wait(comm, what->id));
  for (int p = 0; p < what->n_parts; p++)
    for (int64_t i = 0; i < what->counts[p]; i++) {
      int64_t wanted = collective_wanted(what, comm->rank, p, i);
      int64_t got = ((int64_t *)parts[p].data)[i];
      if (wanted >= 0 && got != wanted)
        return status_make(STATUS_invalid,
                           "%s, rank %d: collective %d of %d ranks: part %d, "
                           "element %lld is %lld, not %lld",
                           comm->name, comm->rank, what->kind, what->group_size,
                           p, (long long)i, (long long)got, (long long)wanted);
    }
  return STATUS_OK;
}

/* From each member to the one before it, one pair at a time. */
static inline Status collective_pairs(Arena *arena, Comm *comm,
                                      DnnCollective what) {
  CommGroup group = comm_group(&what, comm->rank);
  for (int i = 1; i < group.size; i++) {
    what.id++;
    what.kind = group.index == i ? DNN_SEND : DNN_RECV;
    what.peer = group.index == i ? i - 1 : i;
    if (group.index == i || group.index == i - 1)
      TRY(collective_run(arena, comm, &what));
  }
  return STATUS_OK;
}

static inline Status collective_kinds(Arena *arena, Comm *comm, int size,
                                      int stride, int32_t *id) {
  static const int64_t pieces[][COLLECTIVE_PARTS] = {
      {1, 1}, {7, 300}, {0, 5}, {70001, 3}};
  for (int k = 0; k < ARRAY_LENGTH(pieces); k++)
    for (int kind = DNN_ALL_REDUCE; kind <= DNN_SEND; kind++) {
      int64_t *counts = ARENA_ARRAY(arena, int64_t, COLLECTIVE_PARTS);
      for (int p = 0; p < COLLECTIVE_PARTS; p++)
        counts[p] = size * pieces[k][p];
      DnnCollective what = {.kind = (uint8_t)kind,
                            .dtype = DNN_i64,
                            .id = *id += size + 1,
                            .group_size = size,
                            .group_stride = stride,
                            .n_parts = COLLECTIVE_PARTS,
                            .counts = counts};
      if (kind == DNN_BROADCAST) what.peer = size - 1;
      TRY(kind == DNN_SEND ? collective_pairs(arena, comm, what)
                           : collective_run(arena, comm, &what));
    }
  return STATUS_OK;
}

static inline Status collectives_check(Arena *arena, Comm *comm) {
  int32_t id = 0;
  int world = comm->world;
  TRY(collective_kinds(arena, comm, world, 1, &id));
  if (world % 2 == 0) {
    TRY(collective_kinds(arena, comm, 2, 1, &id));
    TRY(collective_kinds(arena, comm, 2, world / 2, &id));
  }
  return comm->barrier(comm);
}

#endif
