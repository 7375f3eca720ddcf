/*
 * collectives.c -- times each kind of collective on the ranks that mpirun has
 * started:
 *
 *     collectives KIND BYTES REPEATS [MBIT]
 *
 * BYTES is the size of the whole data, KIND a name of `kinds` below or all,
 * MBIT the rate of the links in each direction or 0.  The result is checked
 * once.  Rank 0 prints the median time of REPEATS, the bytes that each rank
 * sends, and how much of the link in one direction these took; every rank
 * receives as many. tools/network.sh starts it.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/comm/comm.h"

enum { N_IDS = 1000 };

typedef struct Kind {
  const char *name;
  DnnCollectiveKind kind;
  double passes; /* data that a rank sends: passes (W - 1) / W */
} Kind;

static const Kind kinds[] = {{"all-reduce", DNN_ALL_REDUCE, 2},
                             {"reduce-scatter", DNN_REDUCE_SCATTER, 1},
                             {"all-gather", DNN_ALL_GATHER, 1},
                             {"all-to-all", DNN_ALL_TO_ALL, 1},
                             {"permute", DNN_PERMUTE, 0}};

static _Noreturn void no_memory(void *user) {
  (void)user;
  abort();
}

static _Noreturn void fail(const char *why) {
  fprintf(stderr, "%s\n", why);
  exit(1);
}

static int compare_doubles(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Element i on a rank at the start: small integers, whose sums are exact. */
static float value(int rank, int64_t i) {
  return (float)((rank + 1) * (1 + i % 1021));
}

static float wanted(const Kind *kind, const Comm *comm, int64_t n, int64_t i) {
  int world = comm->world;
  int64_t shard = n / world, owner = i / shard;
  switch (kind->kind) {
  case DNN_ALL_REDUCE:
  case DNN_REDUCE_SCATTER:
    return (float)(world * (world + 1) / 2 * (1 + i % 1021));
  case DNN_ALL_GATHER: return value((int)owner, i);
  case DNN_ALL_TO_ALL: return value((int)owner, i % shard + comm->rank * shard);
  default: return value((comm->rank + world - 1) % world, i);
  }
}

static void check(const Kind *kind, const Comm *comm, const float *to,
                  int64_t n) {
  int64_t shard = n / comm->world, begin = 0, end = n;
  if (kind->kind == DNN_REDUCE_SCATTER) begin = comm->rank * shard;
  if (kind->kind == DNN_REDUCE_SCATTER) end = begin + shard;
  for (int64_t i = begin; i < end; i++)
    if (to[i] != wanted(kind, comm, n, i)) fail("a result is wrong");
}

/* The time of one collective, in seconds. */
static double run_once(Comm *comm, DnnCollective *what, CommPart part) {
  static int32_t id;
  what->id = id++ % N_IDS;
  (void)comm->barrier(comm);
  int64_t begin = clock_ns();
  Status status = comm->start(comm, what, &part);
  if (status.code == STATUS_ok) status = comm->wait(comm, what->id);
  if (status.code != STATUS_ok) fail(status.message);
  double seconds = (double)(clock_ns() - begin) * 1e-9, slowest = 0;
  double *all = malloc(sizeof(double) * (size_t)comm->world);
  (void)comm->gather(comm, &seconds, sizeof seconds, all);
  for (int i = 0; i < comm->world; i++) slowest = fmax(slowest, all[i]);
  free(all);
  return slowest;
}

static void measure(Arena *arena, Comm *comm, const Kind *kind, int64_t bytes,
                    int repeats, double mbit) {
  int64_t n = bytes / (int64_t)sizeof(float) / comm->world * comm->world;
  DnnGroup all = group_of_all(0, comm->world);
  DnnCollective what = {.kind = (uint8_t)kind->kind,
                        .dtype = DNN_f32,
                        .queue = DNN_QUEUE_BULK,
                        .peer = kind->kind == DNN_PERMUTE,
                        .group = &all,
                        .n_parts = 1,
                        .counts = &n};
  float *from = ARENA_ARRAY(arena, float, n), *to = from;
  bool has_place = kind->kind != DNN_PERMUTE && kind->kind != DNN_ALL_TO_ALL;
  if (!has_place) to = ARENA_ARRAY(arena, float, n);
  CommPart part = {from, to, n};
  if (has_place) part = comm_in_place(&what, comm->rank, from, n);
  for (int64_t i = 0; i < n; i++) from[i] = value(comm->rank, i);
  run_once(comm, &what, part);
  check(kind, comm, to, n);
  double *times = ARENA_ARRAY(arena, double, repeats);
  for (int i = 0; i < repeats; i++) times[i] = run_once(comm, &what, part);
  qsort(times, (size_t)repeats, sizeof *times, compare_doubles);
  double world = comm->world, time = times[repeats / 2];
  double sent = (double)n * sizeof(float);
  if (kind->passes > 0) sent *= kind->passes * (world - 1) / world;
  double rate = sent * 8e-6 / time;
  if (comm->rank != 0) return;
  printf("%-14s %d ranks %10lld bytes, sends %10.0f: %9.3f ms (%.3f to %.3f), "
         "%6.0f Mbit/s each way",
         kind->name, comm->world, (long long)n * 4, sent, time * 1e3,
         times[0] * 1e3, times[repeats - 1] * 1e3, rate);
  if (mbit > 0) printf(", %3.0f %% of the link", 100 * rate / mbit);
  printf("\n");
}

int main(int argc, char **argv) {
  Arena *arena = arena_create(memory_create(no_memory, NULL));
  if (argc < 4) fail("usage: collectives KIND|all BYTES REPEATS [MBIT]");
  Comm *comm;
  Status status = comm_create(arena, 60, &comm);
  if (status.code != STATUS_ok) fail(status.message);
  for (int i = 0; i < ARRAY_LENGTH(kinds); i++)
    if (!strcmp(argv[1], "all") || !strcmp(argv[1], kinds[i].name))
      measure(arena, comm, &kinds[i], atoll(argv[2]), atoi(argv[3]),
              argc > 4 ? atof(argv[4]) : 0);
  comm->close(comm);
  return 0;
}
