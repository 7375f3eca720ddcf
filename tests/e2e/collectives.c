/*
 * collectives.c -- runs the suite of tests/ops/collectives.h on the ranks that
 * mpirun has started, or with an argument one of:
 *
 *     disagree   ranks that start a queue in different orders
 *     passes     a scalar passes bulk transfers in the other queue
 *     large      collectives of more than 2 GiB
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/ops/collectives.h"

static _Noreturn void no_memory(void *user) {
  (void)user;
  abort();
}

/* Two sums of one queue, in another order on rank 1; does not return. */
static _Noreturn void disagree(Comm *comm) {
  static const int64_t counts[] = {1000};
  static float data[2][1000];
  DnnGroup all = group_of_all(0, comm->world);
  for (int i = 0; i < 2; i++) {
    int32_t id = comm->rank == 1 ? 1 - i : i;
    DnnCollective what = {.dtype = DNN_f32,
                          .id = id,
                          .group = &all,
                          .n_parts = 1,
                          .counts = counts};
    CommPart part = comm_in_place(&what, comm->rank, data[i], 1000);
    (void)comm->start(comm, &what, &part);
    (void)comm->wait(comm, id);
  }
  exit(0);
}

/* A sum over all ranks, in place. */
static DnnCollective sum_of(const DnnGroup *all, int32_t id, DnnQueue queue,
                            const int64_t *count) {
  return (DnnCollective){.kind = DNN_ALL_REDUCE,
                         .dtype = DNN_f32,
                         .queue = (uint8_t)queue,
                         .id = id,
                         .group = all,
                         .n_parts = 1,
                         .counts = count};
}

static Status start_in_place(Comm *comm, const DnnCollective *what,
                             CommPart *part, float *data) {
  *part = comm_in_place(what, comm->rank, data, what->counts[0]);
  return comm->start(comm, what, part);
}

static int64_t end_of(const CommEvents *events, int32_t id) {
  for (int32_t i = 0; i < events->n; i++)
    if (events->data[i].id == id) return events->data[i].end_ns;
  return 0;
}

enum { LARGE_SUM = 4 << 20, TRIALS = 20 };

/* Two bulk transfers, and a scalar that was started after the first and, on
 * rank 0 alone, after the second: the other ranks start the second when they
 * have the scalar.  So the scalar ends before the second whatever the timing;
 * were it queued behind bulk transfers, nothing would end.  Whether it has
 * passed the first, which is under way, depends on when ranks run:
 * *out_has_passed. */
static Status pass_once(Comm *comm, const DnnGroup *all, float *data,
                        bool *out_has_passed) {
  static const int64_t large = LARGE_SUM, one = 1;
  CommEvent events[8];
  CommEvents list = {.data = events, .capacity = 8};
  float *second = data + LARGE_SUM, *scalar = data + 2 * LARGE_SUM;
  DnnCollective what[] = {sum_of(all, 0, DNN_QUEUE_BULK, &large),
                          sum_of(all, 1, DNN_QUEUE_BULK, &large),
                          sum_of(all, 2, DNN_QUEUE_BLOCKING, &one)};
  CommPart parts[3];
  *scalar = (float)(comm->rank + 1);
  TRY(comm->barrier(comm));
  comm->events = &list;
  TRY(start_in_place(comm, &what[0], &parts[0], data));
  if (comm->rank == 0) TRY(start_in_place(comm, &what[1], &parts[1], second));
  TRY(start_in_place(comm, &what[2], &parts[2], scalar));
  TRY(comm->wait(comm, 2));
  if (comm->rank != 0) TRY(start_in_place(comm, &what[1], &parts[1], second));
  TRY(comm->wait(comm, 0));
  TRY(comm->wait(comm, 1));
  TRY(comm->barrier(comm));
  comm->events = NULL;
  if (*scalar != (float)(comm->world * (comm->world + 1) / 2))
    return status_make(STATUS_invalid, "the sum of scalars is wrong");
  if (list.n != 3 || end_of(&list, 2) >= end_of(&list, 1))
    return status_make(STATUS_invalid, "a scalar waited for a bulk transfer");
  *out_has_passed = end_of(&list, 2) < end_of(&list, 0);
  return STATUS_OK;
}

static Status check_passes(Arena *arena, Comm *comm) {
  DnnGroup all = group_of_all(0, comm->world);
  float *data = ARENA_ARRAY(arena, float, 2 * LARGE_SUM + 1);
  bool has_passed = false;
  for (int i = 0; i < TRIALS; i++) {
    bool passes = false;
    TRY(pass_once(comm, &all, data, &passes));
    has_passed = has_passed || passes;
  }
  return has_passed ? STATUS_OK
                    : status_make(STATUS_invalid,
                                  "no scalar passed a transfer under way");
}

enum { PERIOD = 1 << 20, N_PERIODS = 2048 };
static const int64_t large_bytes = ((int64_t)N_PERIODS + 1) * PERIOD;

/* More than 2 GiB of addresses, of which all periods but the last are the same
 * memory; every element of it is `first`, and of the last `last`. */
static float *map_large(float first, float last) {
  char *data = mmap(NULL, (size_t)large_bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  int fd = memfd_create("period", MFD_CLOEXEC);
  if (data == MAP_FAILED || fd < 0 || ftruncate(fd, PERIOD)) abort();
  for (int64_t i = 0; i < N_PERIODS; i++)
    if (mmap(data + i * PERIOD, PERIOD, PROT_READ | PROT_WRITE,
             MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
      abort();
  float *values = (float *)(void *)data;
  for (int64_t i = 0; i < PERIOD / 4; i++) {
    values[i] = first;
    values[large_bytes / 4 - 1 - i] = last;
  }
  return values;
}

static Status run_large(Comm *comm, DnnCollective what, float *from,
                        float first, float last) {
  float *to = map_large(0, 0);
  CommPart part = {from, to, what.counts[0]};
  TRY(comm->start(comm, &what, &part));
  TRY(comm->wait(comm, what.id));
  int64_t end = what.counts[0] - 1, least = end - PERIOD / 4 + 1;
  bool is_right = true;
  for (int64_t i = 0; i < PERIOD / 4; i++)
    is_right = is_right && to[i] == first && to[least + i] == last;
  TRY(comm->barrier(comm));
  munmap(to, (size_t)large_bytes);
  return is_right
             ? STATUS_OK
             : status_make(STATUS_invalid,
                           "large collective %d: a result is wrong", what.id);
}

/* Positions and counts beyond 2^31 bytes, at the cost of a few megabytes. */
static Status check_large(Comm *comm) {
  DnnGroup all = group_of_all(0, comm->world);
  int64_t count = large_bytes / (int64_t)sizeof(float);
  float own = (float)(comm->rank + 1), *from = map_large(own, 10 * own);
  DnnCollective what = sum_of(&all, 0, DNN_QUEUE_BULK, &count);
  float sum = (float)(comm->world * (comm->world + 1) / 2);
  TRY(run_large(comm, what, from, sum, 10 * sum));
  what.kind = DNN_PERMUTE;
  what.id = what.peer = 1;
  float before = (float)((comm->rank + comm->world - 1) % comm->world + 1);
  return run_large(comm, what, from, before, 10 * before);
}

int main(int argc, char **argv) {
  Arena *arena = arena_create(memory_create(no_memory, NULL));
  Comm *comm;
  Status status = comm_create(arena, 120, &comm);
  if (status.code == STATUS_ok && argc > 1 && !strcmp(argv[1], "disagree"))
    disagree(comm);
  if (status.code == STATUS_ok) {
    const char *check = argc > 1 ? argv[1] : "";
    status = !strcmp(check, "passes")  ? check_passes(arena, comm)
             : !strcmp(check, "large") ? check_large(comm)
                                       : collectives_check(arena, comm);
    if (status.code == STATUS_ok) comm->close(comm);
  }
  if (status.code != STATUS_ok) {
    fprintf(stderr, "%s\n", status.message);
    exit(1);
  }
  printf("holds on %d ranks over %s\n", comm->world, comm->name);
  return 0;
}
