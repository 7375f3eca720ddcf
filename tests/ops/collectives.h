/*
 * collectives.h -- what every transport must do: each kind of collective, in
 * groups along every ordered list of axes of a mesh, with parts of one element,
 * of odd sizes and of more than one chunk, and in every dtype.  Called on every
 * rank.
 */
#ifndef TESTS_OPS_COLLECTIVES_H
#define TESTS_OPS_COLLECTIVES_H

#include "runtime/comm/comm.h"

#include <string.h>

enum { COLLECTIVE_PARTS = 2, COLLECTIVE_AXES = 3 };

/* A mesh of ranks; axes are numbered row-major and independently of group.c. */
typedef struct CollectiveMesh {
  int n_axes, sizes[COLLECTIVE_AXES];
  int first; /* rank */
} CollectiveMesh;

/* An ordered list of its axes. */
typedef struct CollectiveAxes {
  int n, axes[COLLECTIVE_AXES];
} CollectiveAxes;

static inline int mesh_stride(const CollectiveMesh *mesh, int axis) {
  int stride = 1;
  for (int a = axis + 1; a < mesh->n_axes; a++) stride *= mesh->sizes[a];
  return stride;
}

static inline int mesh_world(const CollectiveMesh *mesh) {
  return mesh_stride(mesh, -1);
}

static inline DnnGroup axes_group(const CollectiveMesh *mesh,
                                  const CollectiveAxes *axes) {
  DnnGroup group = {.first = mesh->first,
                    .ranks = mesh_world(mesh),
                    .size = 1,
                    .n_digits = axes->n};
  for (int i = 0; i < axes->n; i++) {
    int axis = axes->axes[i];
    group.digits[i] = (DnnDigit){mesh->sizes[axis], mesh_stride(mesh, axis)};
    group.size *= mesh->sizes[axis];
  }
  return group;
}

/* The members of the group of `rank` by counting through the axes, the last of
 * the list fastest; the result is the index of `rank`. */
static inline int axes_members(const CollectiveMesh *mesh,
                               const CollectiveAxes *axes, int rank,
                               int *members) {
  int at[COLLECTIVE_AXES] = {0}, size = 1, own = -1;
  for (int i = 0; i < axes->n; i++) size *= mesh->sizes[axes->axes[i]];
  for (int m = 0; m < size; m++) {
    int member = 0;
    for (int a = 0; a < mesh->n_axes; a++) {
      int stride = mesh_stride(mesh, a);
      int place = (rank - mesh->first) / stride % mesh->sizes[a];
      for (int i = 0; i < axes->n; i++)
        if (axes->axes[i] == a) place = at[i];
      member += place * stride;
    }
    members[m] = mesh->first + member;
    if (members[m] == rank) own = m;
    for (int i = axes->n - 1; i >= 0; i--) {
      if (++at[i] < mesh->sizes[axes->axes[i]]) break;
      at[i] = 0;
    }
  }
  return own;
}

/* One collective of the suite, for the rank that runs it. */
typedef struct CollectiveCase {
  Arena *arena;
  Comm *comm;
  const DnnCollective *what;
  int members[64], index;
  const char *label;
} CollectiveCase;

/* The first value of element i of a part on member `rank`; all differ. */
static inline int32_t collective_value(int rank, int part, int64_t i) {
  return (int32_t)(rank * 100000000 + part * 10000000 + i);
}

/* The bytes of an element that stands for this number: the number itself, or a
 * hash of it where it has no room. */
static inline uint64_t collective_bits(DnnDtype dtype, int64_t value) {
  int bits = 8 * (int)dtype_bytes(dtype);
  if (bits == 64) return (uint64_t)value;
  return (uint64_t)value * UINT64_C(0x9e3779b97f4a7c15) >> (64 - bits);
}

static inline void collective_put(DnnDtype dtype, char *to, int64_t i,
                                  int64_t value) {
  uint64_t bits = collective_bits(dtype, value);
  int64_t item = dtype_bytes(dtype);
  memcpy(to + i * item, &bits, (size_t)item);
}

static inline uint64_t collective_get(DnnDtype dtype, const char *from,
                                      int64_t i) {
  uint64_t bits = 0;
  int64_t item = dtype_bytes(dtype);
  memcpy(&bits, from + i * item, (size_t)item);
  return bits;
}

/* It asks for one order of launches, and adds in an order of its own. */
static inline bool collective_is_nccl(const Comm *comm) {
  return strcmp(comm->name, "nccl") == 0;
}

/* A destination that nobody wrote to has this value. */
enum { COLLECTIVE_UNTOUCHED = -7 };

static inline bool collective_shards_source(int kind) {
  return kind == DNN_ALL_GATHER;
}

static inline bool collective_shards_result(int kind) {
  return kind == DNN_REDUCE_SCATTER;
}

static inline bool collective_has_place(int kind) {
  return kind == DNN_ALL_REDUCE || kind == DNN_REDUCE_SCATTER ||
         kind == DNN_ALL_GATHER || kind == DNN_BROADCAST;
}

static inline int collective_size(const DnnCollective *what) {
  return what->group ? what->group->size : 2;
}

/* The value that element i of the destination must have in the end. */
static inline int64_t collective_wanted(const CollectiveCase *c, int part,
                                        int64_t i) {
  const DnnCollective *what = c->what;
  int size = collective_size(what), origin = -1;
  int64_t piece = what->counts[part] / size, sum = 0;
  int from = piece ? (int)(i / piece) : 0;
  switch (what->kind) {
  case DNN_REDUCE_SCATTER: i += c->index * piece; /* fall through */
  case DNN_ALL_REDUCE:
    for (int q = 0; q < size; q++)
      sum += collective_value(c->members[q], part, i);
    return sum;
  case DNN_ALL_GATHER: return collective_value(c->members[from], part, i);
  case DNN_ALL_TO_ALL:
    return collective_value(c->members[from], part,
                            i % piece + c->index * piece);
  case DNN_PERMUTE:
    for (int q = 0; q < size; q++) {
      int to =
          what->targets ? what->targets[q] : (q + what->peer + size) % size;
      if (to == c->index) origin = q;
    }
    if (origin < 0) return COLLECTIVE_UNTOUCHED;
    return collective_value(c->members[origin], part, i);
  case DNN_RECV: return collective_value(c->comm->rank + what->peer, part, i);
  case DNN_BROADCAST: return collective_value(c->members[what->peer], part, i);
  default: return COLLECTIVE_UNTOUCHED;
  }
}

typedef struct CollectiveData {
  char *source[COLLECTIVE_PARTS], *result[COLLECTIVE_PARTS];
  int64_t n_source[COLLECTIVE_PARTS], n_result[COLLECTIVE_PARTS];
  CommPart parts[COLLECTIVE_PARTS];
} CollectiveData;

static inline CollectiveData *collective_data(const CollectiveCase *c,
                                              bool in_place) {
  const DnnCollective *what = c->what;
  CollectiveData *data = ARENA_NEW(c->arena, CollectiveData);
  for (int p = 0; p < what->n_parts; p++) {
    int64_t item = dtype_bytes(what->dtype);
    int64_t n = what->counts[p], piece = n / collective_size(what), first = 0;
    char *full = ARENA_ARRAY(c->arena, char, (n + 1) * item);
    for (int64_t i = 0; i < n; i++)
      collective_put(what->dtype, full, i,
                     collective_value(c->comm->rank, p, i));
    data->n_source[p] = collective_shards_source(what->kind) ? piece : n;
    data->n_result[p] = collective_shards_result(what->kind) ? piece : n;
    if (collective_shards_source(what->kind)) first = c->index * piece;
    data->source[p] = full + first * item;
    if (in_place) {
      data->result[p] = collective_shards_result(what->kind)
                            ? full + c->index * piece * item
                            : full;
    } else {
      data->result[p] = ARENA_ARRAY(c->arena, char, (n + 1) * item);
      for (int64_t i = 0; i < n; i++)
        collective_put(what->dtype, data->result[p], i, COLLECTIVE_UNTOUCHED);
    }
    data->parts[p] = (CommPart){data->source[p], data->result[p], n};
    if (in_place) data->parts[p] = comm_in_place(what, c->comm->rank, full, n);
  }
  return data;
}

static inline Status collective_differs(const CollectiveCase *c, const char *of,
                                        int part, int64_t i, const char *data,
                                        int64_t value) {
  DnnDtype dtype = c->what->dtype;
  uint64_t got = collective_get(dtype, data, i);
  uint64_t wanted = collective_bits(dtype, value);
  if (got == wanted) return STATUS_OK;
  return status_make(STATUS_invalid,
                     "%s, rank %d: collective %d of kind %d on %d ranks (%s): "
                     "%s of part %d, element %lld of %s is %lld, not %lld",
                     c->comm->name, c->comm->rank, c->what->id, c->what->kind,
                     collective_size(c->what), c->label, of, part, (long long)i,
                     dtype_label(dtype), (long long)got, (long long)wanted);
}

static inline Status collective_compare(const CollectiveCase *c,
                                        const CollectiveData *data,
                                        bool in_place) {
  const DnnCollective *what = c->what;
  for (int p = 0; p < what->n_parts; p++) {
    for (int64_t i = 0; i < data->n_result[p]; i++)
      TRY(collective_differs(c, "result", p, i, data->result[p],
                             collective_wanted(c, p, i)));
    int64_t first =
        collective_shards_source(what->kind) ? c->index * data->n_source[p] : 0;
    for (int64_t i = 0; !in_place && i < data->n_source[p]; i++)
      TRY(collective_differs(c, "source", p, i, data->source[p],
                             collective_value(c->comm->rank, p, first + i)));
  }
  return STATUS_OK;
}

/* Programs are constants: other ranks may look at ours until they have left. */
static inline Status collective_run(const CollectiveCase *given,
                                    const DnnCollective *of, bool in_place) {
  CollectiveCase c = *given;
  c.what = arena_copy(c.arena, of, sizeof *of);
  CollectiveData *data = collective_data(&c, in_place);
  TRY(c.comm->start(c.comm, c.what, data->parts));
  TRY(c.comm->wait(c.comm, of->id));
  return collective_compare(&c, data, in_place);
}

/* From each member to the one before it, one pair at a time. */
static inline Status collective_pairs(const CollectiveCase *c,
                                      DnnCollective what) {
  for (int i = 1; i < what.group->size; i++) {
    what.id++;
    DnnCollective message = what;
    message.kind = c->index == i ? DNN_SEND : DNN_RECV;
    message.peer = c->members[c->index == i ? i - 1 : i] - c->comm->rank;
    message.edge = i;
    message.group = NULL;
    if (c->index == i || c->index == i - 1)
      TRY(collective_run(c, &message, false));
  }
  return STATUS_OK;
}

/* A shift either way; and a list that leaves out the last member, reverses the
 * others and, where they are odd, sends from the middle to itself. */
static inline Status collective_permutes(const CollectiveCase *c,
                                         DnnCollective what) {
  int size = what.group->size;
  int32_t *targets = ARENA_ARRAY(c->arena, int32_t, size);
  for (int i = 0; i < size; i++) targets[i] = i + 1 < size ? size - 2 - i : -1;
  what.kind = DNN_PERMUTE;
  for (int shift = -1; shift <= 2; shift++) {
    what.id++;
    what.peer = shift;
    what.targets = shift == 2 ? targets : NULL;
    TRY(collective_run(c, &what, false));
  }
  return STATUS_OK;
}

/* Collectives of `kind`; DNN_SEND: messages between two, and permutes. */
static inline Status collective_kind(const CollectiveCase *c,
                                     DnnCollective what, int32_t *id) {
  int size = what.group->size;
  what.id = *id += size + 4;
  if (what.kind == DNN_BROADCAST) what.peer = size - 1;
  if (what.kind == DNN_SEND) {
    TRY(collective_pairs(c, what));
    what.id = *id += size + 4;
    what.peer = 0;
    return collective_permutes(c, what);
  }
  TRY(collective_run(c, &what, false));
  what.id++;
  return collective_has_place(what.kind) ? collective_run(c, &what, true)
                                         : STATUS_OK;
}

static inline Status collective_kinds(const CollectiveCase *c,
                                      const DnnGroup *group, int32_t *id) {
  static const int64_t pieces[][COLLECTIVE_PARTS] = {
      {1, 1}, {7, 300}, {0, 5}, {20001, 3}};
  for (int k = 0; k < ARRAY_LENGTH(pieces); k++) {
    int64_t *counts = ARENA_ARRAY(c->arena, int64_t, COLLECTIVE_PARTS);
    for (int p = 0; p < COLLECTIVE_PARTS; p++)
      counts[p] = group->size * pieces[k][p];
    DnnCollective what = {.dtype = DNN_i64,
                          .queue = (uint8_t)(k % DNN_N_QUEUES),
                          .group = group,
                          .n_parts = COLLECTIVE_PARTS,
                          .counts = counts};
    for (int kind = DNN_ALL_REDUCE; kind <= DNN_SEND; kind++) {
      what.kind = (uint8_t)kind;
      TRY(collective_kind(c, what, id));
    }
  }
  return STATUS_OK;
}

/* Those that only move elements, in every dtype. */
static inline Status collective_moves(const CollectiveCase *c,
                                      const DnnGroup *group, int32_t *id) {
  int64_t *counts = ARENA_ARRAY(c->arena, int64_t, COLLECTIVE_PARTS);
  counts[0] = 7 * group->size;
  counts[1] = 30 * group->size;
  for (int dtype = 0; dtype < N_DNN_DTYPES; dtype++)
    for (int kind = DNN_ALL_GATHER; kind <= DNN_SEND; kind++) {
      DnnCollective what = {.kind = (uint8_t)kind,
                            .dtype = (DnnDtype)dtype,
                            .group = group,
                            .n_parts = COLLECTIVE_PARTS,
                            .counts = counts};
      TRY(collective_kind(c, what, id));
    }
  return STATUS_OK;
}

/* A thousand collectives of several kinds, started and not waited for, in both
 * queues: half of the ranks start them in another order between queues, and all
 * wait for them in no order. */
static inline Status collective_many(const CollectiveCase *given,
                                     const DnnGroup *group, int32_t *id) {
  enum { N = 1000 };
  static const uint8_t kinds[] = {DNN_ALL_REDUCE, DNN_REDUCE_SCATTER,
                                  DNN_ALL_GATHER, DNN_BROADCAST};
  CollectiveCase c = *given;
  int64_t *count = ARENA_NEW(c.arena, int64_t);
  *count = 3 * group->size;
  DnnCollective *what = ARENA_ARRAY(c.arena, DnnCollective, N);
  CollectiveData **data = ARENA_ARRAY(c.arena, CollectiveData *, N);
  for (int k = 0; k < N; k++) {
    int i = c.comm->rank % 2 && !collective_is_nccl(c.comm) ? k ^ 1 : k;
    what[i] = (DnnCollective){.kind = kinds[i / 2 % ARRAY_LENGTH(kinds)],
                              .dtype = DNN_i64,
                              .queue = (uint8_t)(i % DNN_N_QUEUES),
                              .id = *id + 1 + i,
                              .group = group,
                              .n_parts = 1,
                              .counts = count};
    c.what = &what[i];
    data[i] = collective_data(&c, true);
    TRY(c.comm->start(c.comm, c.what, data[i]->parts));
  }
  for (int k = 0; k < N; k++) {
    int i = k * 7 % N;
    c.what = &what[i];
    TRY(c.comm->wait(c.comm, what[i].id));
    TRY(collective_compare(&c, data[i], true));
  }
  *id += N;
  return STATUS_OK;
}

/* Sums and greatest values in every dtype: floats are such that the order and
 * the number of roundings show, integers such that sums of the narrow ones
 * wrap. */
static inline double reduced_value(DnnDtype dtype, int rank, int64_t i) {
  static const double values[] = {8192.0, 1.0,       257.0,   0.000732421875,
                                  -255.0, 0.0078125, -8192.0, 3.0};
  static const int integers[N_DNN_DTYPES][4] = {
      [DNN_bool] = {1, 0, 0, 1},         [DNN_u8] = {200, 3, 255, 100},
      [DNN_i8] = {100, -128, 127, -3},   [DNN_i16] = {30000, -32768, 32767, -2},
      [DNN_i32] = {70000, -9, 65536, 1}, [DNN_i64] = {70000, -9, 65536, 1}};
  if (!dtype_is_float(dtype)) return integers[dtype][(rank * 3 + i) % 4];
  return values[(rank * 3 + i) % ARRAY_LENGTH(values)] * (double)(1 + i % 7);
}

/* Returns whether the transport reduces so: no program has tensors of 8-bit
 * floats, and what NCCL does not reduce alike is sent in another dtype. */
static inline bool collective_may_reduce(const Comm *comm, DnnDtype dtype,
                                         int reduce) {
  if (dtype == DNN_f8e4m3 || dtype == DNN_f8e5m2) return false;
  if (!collective_is_nccl(comm)) return true;
  if (dtype == DNN_i16) return false;
  return reduce != REDUCE_sum || dtype != DNN_bool;
}

/* An integer as it is stored; a bool is `or`. */
static inline int64_t reduced_integer(DnnDtype dtype, double x) {
  int64_t value = (int64_t)x;
  switch ((DnnDtypeIndex)dtype) {
  case DNN_bool: return value != 0;
  case DNN_u8: return value & 255;
  case DNN_i8: return ((value + 128) & 255) - 128;
  case DNN_i16: return ((value + 32768) & 65535) - 32768;
  default: return value;
  }
}

/* In ascending order of ranks, in the dtype or, of 16-bit floats, in f32. */
static inline double reduced_wanted(const CollectiveCase *c, int64_t i) {
  DnnDtype dtype = c->what->dtype;
  bool is_16bit = dtype == DNN_f16 || dtype == DNN_bf16;
  int ranks[64], n = c->what->group->size;
  for (int k = 0; k < n; k++) {
    int at = k;
    for (; at > 0 && ranks[at - 1] > c->members[k]; at--)
      ranks[at] = ranks[at - 1];
    ranks[at] = c->members[k];
  }
  double sum = 0;
  for (int k = 0; k < n; k++) {
    uint64_t bits;
    number_store(dtype, &bits, reduced_value(dtype, ranks[k], i));
    double x = number_load(dtype, &bits);
    if (c->what->reduce != REDUCE_sum)
      sum = k == 0 || (c->what->reduce == REDUCE_max ? x > sum : x < sum) ? x
                                                                          : sum;
    else if (is_16bit || dtype == DNN_f32)
      sum = (float)sum + (float)x;
    else
      sum += x;
  }
  if (!dtype_is_float(dtype)) return (double)reduced_integer(dtype, sum);
  uint64_t bits;
  number_store(dtype, &bits, sum);
  return number_load(dtype, &bits);
}

/* How far a sum may be from the wanted one: NCCL adds in an order of its own,
 * and rounds 16-bit floats at each rank. */
static inline double reduced_tolerance(const CollectiveCase *c, int64_t i) {
  DnnDtype dtype = c->what->dtype;
  double magnitude = 0;
  if (!collective_is_nccl(c->comm)) return 0;
  if (dtype != DNN_f16 && dtype != DNN_bf16) return 0.05;
  for (int k = 0; k < c->what->group->size; k++) {
    double x = reduced_value(dtype, c->members[k], i);
    magnitude += x < 0 ? -x : x;
  }
  return magnitude * c->what->group->size / (dtype == DNN_f16 ? 2048 : 256);
}

static inline Status collective_dtype(const CollectiveCase *given,
                                      DnnCollective of) {
  enum { N = 600 };
  CollectiveCase c = *given;
  const int64_t counts[] = {N * of.group->size};
  int64_t n = counts[0], item = dtype_bytes(of.dtype), begin = 0, end = n;
  of.n_parts = 1;
  of.counts = arena_copy(c.arena, counts, sizeof counts);
  c.what = arena_copy(c.arena, &of, sizeof of);
  CommPart *part = ARENA_NEW(c.arena, CommPart);
  char *data = ARENA_ARRAY(c.arena, char, n *item);
  *part = comm_in_place(c.what, c.comm->rank, data, n);
  for (int64_t i = 0; i < n; i++)
    number_store(of.dtype, data + i * item,
                 reduced_value(of.dtype, c.comm->rank, i));
  Status started = c.comm->start(c.comm, c.what, part);
  if (!collective_may_reduce(c.comm, of.dtype, of.reduce))
    return started.code == STATUS_unavailable
               ? STATUS_OK
               : status_make(STATUS_invalid, "%s reduces %s", c.comm->name,
                             dtype_label(of.dtype));
  TRY(started);
  TRY(c.comm->wait(c.comm, of.id));
  if (of.kind == DNN_REDUCE_SCATTER) {
    begin = c.index * (int64_t)N;
    end = begin + N;
  }
  for (int64_t i = begin; i < end; i++) {
    double got = number_load(of.dtype, data + i * item);
    double wanted = reduced_wanted(&c, i);
    double limit = reduced_tolerance(&c, i);
    if (!(got - wanted <= limit && wanted - got <= limit))
      return status_make(STATUS_invalid,
                         "%s, rank %d of %d: reduction %d of %s (%s): element "
                         "%lld is %.9g, not %.9g",
                         c.comm->name, c.comm->rank, c.comm->world, of.reduce,
                         dtype_label(of.dtype), c.label, (long long)i, got,
                         wanted);
  }
  return STATUS_OK;
}

static inline Status collective_dtypes(const CollectiveCase *c,
                                       const DnnGroup *group, int32_t *id) {
  for (int dtype = 0; dtype < N_DNN_DTYPES; dtype++)
    for (int kind = DNN_ALL_REDUCE; kind <= DNN_REDUCE_SCATTER; kind++)
      for (int reduce = 0; reduce < N_REDUCTIONS; reduce++) {
        DnnCollective what = {.kind = (uint8_t)kind,
                              .reduce = (uint8_t)reduce,
                              .dtype = (DnnDtype)dtype,
                              .id = ++*id,
                              .group = group};
        TRY(collective_dtype(c, what));
      }
  return STATUS_OK;
}

static inline Status collective_axes(Arena *arena, Comm *comm,
                                     const CollectiveMesh *mesh,
                                     const CollectiveAxes *axes, int32_t *id) {
  CollectiveCase c = {.arena = arena_beside(arena), .comm = comm};
  DnnGroup *group = ARENA_NEW(c.arena, DnnGroup);
  *group = axes_group(mesh, axes);
  c.index = axes_members(mesh, axes, comm->rank, c.members);
  Text label = text_create(c.arena);
  for (int i = 0; i < mesh->n_axes; i++)
    text_printf(&label, "%s%d", i ? "x" : "mesh ", mesh->sizes[i]);
  for (int i = 0; i < axes->n; i++)
    text_printf(&label, "%s%d", i ? ", " : ", axes ", axes->axes[i]);
  c.label = text_string(&label);
  TRY(collective_kinds(&c, group, id));
  TRY(collective_dtypes(&c, group, id));
  if (axes->n == 1) TRY(collective_moves(&c, group, id));
  if (axes->n == 1) TRY(collective_many(&c, group, id));
  TRY(comm->barrier(comm)); /* until then others may look at ours */
  arena_destroy(c.arena);
  return STATUS_OK;
}

/* Every ordered list of different axes that begins with `axes`. */
static inline Status collective_lists(Arena *arena, Comm *comm,
                                      const CollectiveMesh *mesh,
                                      CollectiveAxes axes, int32_t *id) {
  if (axes.n > 0) TRY(collective_axes(arena, comm, mesh, &axes, id));
  for (int a = 0; a < mesh->n_axes; a++) {
    bool is_there = false;
    for (int i = 0; i < axes.n; i++) is_there |= axes.axes[i] == a;
    if (is_there) continue;
    CollectiveAxes longer = axes;
    longer.axes[longer.n++] = a;
    TRY(collective_lists(arena, comm, mesh, longer, id));
  }
  return STATUS_OK;
}

static const CollectiveMesh collective_meshes[] = {
    {1, {1}, 0},    {1, {2}, 0}, {1, {3}, 0},    {1, {4}, 0},
    {2, {2, 2}, 0}, {1, {5}, 0}, {2, {2, 3}, 0}, {3, {2, 2, 2}, 0}};
/* A mesh of some of five ranks, and one beside it. */
static const CollectiveMesh collective_beside[] = {{1, {3}, 0}, {1, {2}, 3}};

static inline Status collectives_check(Arena *arena, Comm *comm) {
  int32_t id = 0;
  for (int i = 0; i < ARRAY_LENGTH(collective_meshes); i++)
    if (mesh_world(&collective_meshes[i]) == comm->world)
      TRY(collective_lists(arena, comm, &collective_meshes[i],
                           (CollectiveAxes){0}, &id));
  for (int i = 0; i < ARRAY_LENGTH(collective_beside) && comm->world == 5;
       i++) {
    const CollectiveMesh *mesh = &collective_beside[i];
    if (comm->rank >= mesh->first &&
        comm->rank < mesh->first + mesh_world(mesh))
      TRY(collective_lists(arena, comm, mesh, (CollectiveAxes){0}, &id));
  }
  return STATUS_OK;
}

#endif
