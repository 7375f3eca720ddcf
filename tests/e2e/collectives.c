/*
 * collectives.c -- runs the suite of tests/ops/collectives.h on the ranks that
 * mpirun has started.
 */
#include <stdio.h>
#include <stdlib.h>

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

int main(int argc, char **argv) {
  Arena *arena = arena_create(memory_create(no_memory, NULL));
  Comm *comm;
  Status status = comm_create(arena, 120, &comm);
  if (status.code == STATUS_ok && argc > 1 && !strcmp(argv[1], "disagree"))
    disagree(comm);
  if (status.code == STATUS_ok) {
    status = collectives_check(arena, comm);
    if (status.code == STATUS_ok) comm->close(comm);
  }
  if (status.code != STATUS_ok) {
    fprintf(stderr, "%s\n", status.message);
    exit(1);
  }
  printf("holds on %d ranks over %s\n", comm->world, comm->name);
  return 0;
}
