// links: runtime
/*
 * collectives.c -- runs the suite of tests/ops/collectives.h on ranks in
 * threads and on one rank; tests/e2e/collectives.sh runs it over MPI.
 */
#include <criterion/criterion.h>

#include <pthread.h>
#include <unistd.h>

#include "tests/ops/collectives.h"

TestSuite(collectives, .timeout = 200);

typedef struct Rank {
  Comm *comm;
  Memory *memory;
  Status status;
} Rank;

static void no_memory(void *user) {
  (void)user;
  _exit(3);
}

static void *rank_run(void *user) {
  Rank *rank = user;
  rank->status = collectives_check(arena_create(rank->memory), rank->comm);
  rank->comm->close(rank->comm);
  return NULL;
}

static void check_world(int world, bool rendezvous, uint64_t seed) {
  Memory *memory = memory_create(no_memory, NULL);
  Arena *arena = arena_create(memory);
  Rank *ranks = ARENA_ARRAY(arena, Rank, world);
  pthread_t *threads = ARENA_ARRAY(arena, pthread_t, world);
  Comm *comms;
  cr_assert_eq(comm_local_create(arena, world, rendezvous, seed, &comms).code,
               STATUS_ok);
  for (int r = 0; r < world; r++) {
    ranks[r].comm = &comms[r];
    ranks[r].memory = memory_create(no_memory, NULL);
    pthread_create(&threads[r], NULL, rank_run, &ranks[r]);
  }
  for (int r = 0; r < world; r++) pthread_join(threads[r], NULL);
  for (int r = 0; r < world; r++) {
    cr_expect_eq(ranks[r].status.code, STATUS_ok, "%s",
                 ranks[r].status.message);
    memory_destroy(ranks[r].memory);
  }
  memory_destroy(memory);
}

Test(collectives, of_threads) {
  for (int world = 2; world <= 8; world += world == 6 ? 2 : 1)
    for (uint64_t seed = 0; seed < 4; seed++)
      check_world(world, seed % 2, seed);
}

Test(collectives, of_one_rank) {
  Memory *memory = memory_create(no_memory, NULL);
  Arena *arena = arena_create(memory);
  Comm *comm;
  (void)comm_self_create(arena, (RankPlace){.world = 1}, 0, &comm);
  Status status = collectives_check(arena, comm);
  cr_assert_eq(status.code, STATUS_ok, "%s", status.message);
  memory_destroy(memory);
}
