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

int main(void) {
  Arena *arena = arena_create(memory_create(no_memory, NULL));
  Comm *comm;
  Status status = comm_create(arena, 120, &comm);
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
