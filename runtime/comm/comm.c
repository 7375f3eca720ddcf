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

void comm_add_vote(CommVote *all, const CommVote *next) {
  if (next->greatest > all->greatest) all->greatest = next->greatest;
  for (int i = 0; i < COMM_VOTE_SUMS; i++) all->sums[i] += next->sums[i];
}

bool comm_is_message(const DnnCollective *what) {
  return what->kind == DNN_SEND || what->kind == DNN_RECV;
}

CommGroup comm_group(const DnnCollective *what, int rank) {
  if (!comm_is_message(what)) return comm_group_of(what->group, rank);
  DnnGroup two = group_of_two(rank, rank + what->peer);
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

int64_t comm_payload(const DnnCollective *what) {
  return comm_count(what) * dtype_bytes(what->dtype);
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
    int size = c->group->size, k = 1;                                          \
    const type *x = (const type *)lowest_member(c, 0) + c->at;                 \
    if (c->kind == REDUCE_sum && size > 1) {                                   \
      const type *y = (const type *)lowest_member(c, k++) + c->at;             \
      for (int i = 0; i < c->n; i++) sum[i] = LOAD(x[i]) + LOAD(y[i]);         \
    } else {                                                                   \
      for (int i = 0; i < c->n; i++) sum[i] = LOAD(x[i]);                      \
    }                                                                          \
    for (; k < size; k++) {                                                    \
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
#define IS_TRUE(x)  ((x) != 0)
COMBINE(bool, uint8_t, int32_t, IS_TRUE, IS_TRUE)
COMBINE(uint8_t, uint8_t, int32_t, AS_IT_IS, (uint8_t))
COMBINE(int8_t, int8_t, int32_t, AS_IT_IS, (int8_t))
COMBINE(int16_t, int16_t, int32_t, AS_IT_IS, (int16_t))
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
  ASSERT(what->queue < DNN_N_QUEUES);
  ASSERT(!comm_is_message(what) || what->peer != 0);
  ASSERT(what->kind != DNN_BROADCAST ||
         (what->peer >= 0 && what->peer < what->group->size));
  if (what->kind != DNN_ALL_REDUCE && what->kind != DNN_REDUCE_SCATTER)
    return STATUS_OK;
  if (combine_functions[what->dtype]) return STATUS_OK;
  return status_make(STATUS_unavailable,
                     "reductions of %s between ranks are not supported yet",
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

CommPart comm_in_place(const DnnCollective *what, int rank, void *data,
                       int64_t count) {
  char *own = data;
  if (what->kind == DNN_REDUCE_SCATTER || what->kind == DNN_ALL_GATHER)
    own += group_index(what->group, rank) * (count / what->group->size) *
           dtype_bytes(what->dtype);
  return (CommPart){.from = what->kind == DNN_ALL_GATHER ? own : data,
                    .to = what->kind == DNN_REDUCE_SCATTER ? own : data,
                    .count = count};
}

void comm_alone(const DnnCollective *what, const CommPart *parts) {
  if (what->kind == DNN_PERMUTE && comm_target(what, 0) < 0) return;
  for (int i = 0; i < what->n_parts; i++)
    memmove(parts[i].to, parts[i].from,
            (size_t)(what->counts[i] * dtype_bytes(what->dtype)));
}

int comm_target(const DnnCollective *what, int index) {
  int size = what->group->size;
  if (what->targets) return what->targets[index];
  return ((index + what->peer) % size + size) % size;
}

int comm_origin(const DnnCollective *what, int index) {
  for (int i = 0; i < what->group->size; i++)
    if (comm_target(what, i) == index) return i;
  return -1;
}

/* The part and place in it of n elements from `begin` on; -1: in several. */
static int find_part(const DnnCollective *what, const CommPart *parts,
                     int64_t *begin, int64_t n) {
  for (int i = 0; i < what->n_parts; i++) {
    if (*begin < parts[i].count) return *begin + n <= parts[i].count ? i : -1;
    *begin -= parts[i].count;
  }
  return -1;
}

const void *comm_source(const DnnCollective *what, const CommPart *parts,
                        int64_t begin, int64_t n) {
  int part = find_part(what, parts, &begin, n);
  if (part < 0) return NULL;
  return (const char *)parts[part].from + begin * dtype_bytes(what->dtype);
}

void *comm_destination(const DnnCollective *what, const CommPart *parts,
                       int64_t begin, int64_t n) {
  int part = find_part(what, parts, &begin, n);
  if (part < 0) return NULL;
  return (char *)parts[part].to + begin * dtype_bytes(what->dtype);
}

/* Out of the sources into `out`, or from `in` into the destinations. */
static void copy_parts(const DnnCollective *what, const CommPart *parts,
                       int64_t begin, int64_t n, char *out, const char *in) {
  int64_t item = dtype_bytes(what->dtype), done = 0;
  for (int i = 0; i < what->n_parts && n > 0; i++) {
    if (begin >= parts[i].count) {
      begin -= parts[i].count;
      continue;
    }
    int64_t here = parts[i].count - begin;
    if (here > n) here = n;
    if (out)
      memcpy(out + done, (const char *)parts[i].from + begin * item,
             (size_t)(here * item));
    else
      memcpy((char *)parts[i].to + begin * item, in + done,
             (size_t)(here * item));
    done += here * item;
    n -= here;
    begin = 0;
  }
}

void comm_copy_out(const DnnCollective *what, const CommPart *parts,
                   int64_t begin, int64_t n, void *flat) {
  copy_parts(what, parts, begin, n, flat, NULL);
}

void comm_copy_in(const DnnCollective *what, const CommPart *parts,
                  int64_t begin, int64_t n, const void *flat) {
  copy_parts(what, parts, begin, n, NULL, flat);
}
