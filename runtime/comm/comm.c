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
  DnnGroup two = group_of_two(rank, group_rank(what->group, rank, what->peer));
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

/* How a block of elements is combined: `n` of them, of as many members as the
 * group has. */
enum { BLOCK = 512 };

typedef struct Combine {
  const DnnGroup *group;
  ReduceKind kind;
  const void *const *members;
  int64_t at; /* the block's first element */
  int n;
} Combine;

static const void *lowest_member(const Combine *c, int k) {
  return c->members[group_ascending(c->group, k)];
}

/* A NaN of any rank is the result, as in kernels. */
#define IS_NAN(x) ((x) != (x))
#define COMBINE(name, type, sum_type, LOAD, STORE)                             \
  static void combine_##name(const Combine *c, void *to) {                     \
    sum_type sum[BLOCK];                                                       \
    const type *x = (const type *)lowest_member(c, 0) + c->at;                 \
    for (int i = 0; i < c->n; i++) sum[i] = LOAD(x[i]);                        \
    for (int k = 1; k < c->group->size; k++) {                                 \
      x = (const type *)lowest_member(c, k) + c->at;                           \
      if (c->kind == REDUCE_sum)                                               \
        for (int i = 0; i < c->n; i++) sum[i] = sum[i] + LOAD(x[i]);           \
      else                                                                     \
        for (int i = 0; i < c->n; i++) {                                       \
          sum_type b = LOAD(x[i]);                                             \
          bool is_better = c->kind == REDUCE_max ? b > sum[i] : b < sum[i];    \
          if (is_better || IS_NAN(b)) sum[i] = b;                              \
        }                                                                      \
    }                                                                          \
    for (int i = 0; i < c->n; i++) ((type *)to)[c->at + i] = STORE(sum[i]);    \
  }
#define AS_IT_IS(x) (x)
COMBINE(int32_t, int32_t, int32_t, AS_IT_IS, AS_IT_IS)
COMBINE(int64_t, int64_t, int64_t, AS_IT_IS, AS_IT_IS)
COMBINE(float, float, float, AS_IT_IS, AS_IT_IS)
COMBINE(double, double, double, AS_IT_IS, AS_IT_IS)
/* 16-bit floats are added in f32 and rounded once, so that a sum does not
 * depend on how many ranks it comes from. */
COMBINE(bf16, uint16_t, float, bf16_to_float, bf16_from_float)
COMBINE(f16, uint16_t, float, f16_to_float, f16_from_float)

typedef void CombineFn(const Combine *combine, void *to);

/* By the `reduce` column of dtype.def; NULL: not supported yet. */
#define combine_none NULL
static CombineFn *const combine_functions[] = {
#define DTYPE(name, size_bytes, class, c_type, safetensors, npy, digits,       \
              least, greatest, reduce, ...)                                    \
  [DNN_##name] = combine_##reduce,
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
  if (combine_functions[what->dtype]) return STATUS_OK;
  return status_make(STATUS_unavailable,
                     "sums of %s between ranks are not supported yet",
                     dtype_label(what->dtype));
}

void comm_combine(const DnnCollective *what, const void *const *members,
                  void *to, int64_t n) {
  Combine c = {.group = what->group,
               .kind = (ReduceKind)what->reduce,
               .members = members};
  for (; c.at < n; c.at += BLOCK) {
    c.n = (int)(n - c.at < BLOCK ? n - c.at : BLOCK);
    combine_functions[what->dtype](&c, to);
  }
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
