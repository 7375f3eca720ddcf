/*
 * comm.c -- finds the rank of this process, and implements the groups and
 * arithmetic that transports share.
 */
#include "runtime/comm/comm.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* Names of rank, world, local rank and local world, by kind of launcher. */
typedef struct Variables {
  const char *name[4];
} Variables;

static bool read_number(const char *name, int *out) {
  const char *text = name ? getenv(name) : NULL;
  if (!text || !*text) return false;
  char *end;
  long value = strtol(text, &end, 10);
  if (*end || value < 0 || value > INT_MAX) return false;
  *out = (int)value;
  return true;
}

RankPlace comm_place(void) {
  static const Variables rows[] = {
      {{"DNN_RANK", "DNN_WORLD", "DNN_LOCAL_RANK", "DNN_LOCAL_WORLD"}},
      {{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"}},
      {{"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}},
      {{"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"}},
      {{"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", NULL}},
  };
  for (int i = 0; i < ARRAY_LENGTH(rows); i++) {
    RankPlace place = {.local_world = 1};
    const char *const *name = rows[i].name;
    if (!read_number(name[0], &place.rank) ||
        !read_number(name[1], &place.world) || place.rank >= place.world)
      continue;
    if (!read_number(name[2], &place.local_rank)) place.local_rank = 0;
    if (!read_number(name[3], &place.local_world)) place.local_world = 1;
    return place;
  }
  return (RankPlace){0, 1, 0, 1};
}

static CommGroup comm_group_of(const DnnGroup *digits, int rank) {
  return (CommGroup){.digits = *digits,
                     .rank = rank,
                     .size = digits->size,
                     .index = group_index(digits, rank)};
}

CommGroup comm_group(const DnnCollective *what, int rank) {
  if (what->kind != DNN_SEND && what->kind != DNN_RECV)
    return comm_group_of(what->group, rank);
  DnnGroup two =
      group_of_two(rank, group_rank(what->group, rank, what->peer));
  return comm_group_of(&two, rank);
}

int comm_member(const CommGroup *group, int index) {
  return group_rank(&group->digits, group->rank, index);
}

int64_t comm_count(const DnnCollective *what) {
  int64_t n = 0;
  for (int i = 0; i < what->n_parts; i++) n += what->counts[i];
  return n;
}

/* A NaN of any rank is the result, as in kernels. */
#define IS_NAN(x) ((x) != (x))
#define REDUCE(type)                                                           \
  static void reduce_##type(ReduceKind kind, void *sum_bytes,                  \
                            const void *x_bytes, int64_t n) {                  \
    type *restrict sum = sum_bytes;                                            \
    const type *restrict x = x_bytes;                                          \
    if (kind == REDUCE_sum)                                                    \
      for (int64_t i = 0; i < n; i++) sum[i] = sum[i] + x[i];                  \
    else if (kind == REDUCE_max)                                               \
      for (int64_t i = 0; i < n; i++)                                          \
        sum[i] = x[i] > sum[i] || IS_NAN(x[i]) ? x[i] : sum[i];                \
    else                                                                       \
      for (int64_t i = 0; i < n; i++)                                          \
        sum[i] = x[i] < sum[i] || IS_NAN(x[i]) ? x[i] : sum[i];                \
  }
/* 16-bit floats are added in f32. */
#define REDUCE_16BIT(type)                                                     \
  static void reduce_##type(ReduceKind kind, void *sum_bytes,                  \
                            const void *x_bytes, int64_t n) {                  \
    uint16_t *restrict sum = sum_bytes;                                        \
    const uint16_t *restrict x = x_bytes;                                      \
    for (int64_t i = 0; i < n; i++) {                                          \
      float a = type##_to_float(sum[i]), b = type##_to_float(x[i]);            \
      float c = kind == REDUCE_sum   ? a + b                                   \
                : kind == REDUCE_max ? (b > a || IS_NAN(b) ? b : a)            \
                                     : (b < a || IS_NAN(b) ? b : a);           \
      sum[i] = type##_from_float(c);                                           \
    }                                                                          \
  }
REDUCE_16BIT(bf16)
REDUCE_16BIT(f16)
REDUCE(int32_t)
REDUCE(int64_t)
REDUCE(float)
REDUCE(double)

typedef void ReduceFn(ReduceKind kind, void *sum, const void *x, int64_t n);

/* By the `reduce` column of dtype.def; NULL: not supported yet. */
#define reduce_none NULL
static ReduceFn *const reduce_functions[] = {
#define DTYPE(name, size_bytes, class, c_type, safetensors, npy, digits,       \
              least, greatest, reduce, ...)                                    \
  [DNN_##name] = reduce_##reduce,
#include "support/dtype.def"
};

Status comm_check(const DnnCollective *what) {
  bool has_shards = what->kind == DNN_REDUCE_SCATTER ||
                    what->kind == DNN_ALL_GATHER ||
                    what->kind == DNN_ALL_TO_ALL;
  for (int i = 0; i < what->n_parts; i++)
    ASSERT(!has_shards || what->counts[i] % what->group->size == 0);
  ASSERT(what->peer >= 0 && what->peer < what->group->size);
  if (what->kind != DNN_ALL_REDUCE && what->kind != DNN_REDUCE_SCATTER)
    return STATUS_OK;
  if (reduce_functions[what->dtype]) return STATUS_OK;
  return status_make(STATUS_unavailable,
                     "sums of %s between ranks are not supported yet",
                     dtype_label(what->dtype));
}

void comm_reduce(const DnnCollective *what, void *sum, const void *x,
                 int64_t n) {
  reduce_functions[what->dtype]((ReduceKind)what->reduce, sum, x, n);
}

void *comm_direct(const DnnCollective *what, const CommPart *parts,
                  int64_t begin, int64_t n) {
  int64_t item = dtype_bytes(what->dtype);
  for (int i = 0; i < what->n_parts; i++) {
    if (begin < parts[i].count)
      return begin + n <= parts[i].count ? (char *)parts[i].data + begin * item
                                         : NULL;
    begin -= parts[i].count;
  }
  return NULL;
}

void comm_copy(const DnnCollective *what, const CommPart *parts, int64_t begin,
               int64_t n, void *flat, bool to_flat) {
  int64_t item = dtype_bytes(what->dtype);
  char *at = flat;
  for (int i = 0; i < what->n_parts && n > 0; i++) {
    if (begin >= parts[i].count) {
      begin -= parts[i].count;
      continue;
    }
    int64_t here = parts[i].count - begin;
    if (here > n) here = n;
    char *data = (char *)parts[i].data + begin * item;
    memcpy(to_flat ? at : data, to_flat ? data : at, (size_t)(here * item));
    at += here * item;
    n -= here;
    begin = 0;
  }
}
