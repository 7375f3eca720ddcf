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

static void check_world(int world, const LocalOptions *options) {
  Memory *memory = memory_create(no_memory, NULL);
  Arena *arena = arena_create(memory);
  Rank *ranks = ARENA_ARRAY(arena, Rank, world);
  pthread_t *threads = ARENA_ARRAY(arena, pthread_t, world);
  Comm *comms;
  cr_assert_eq(comm_local_create(arena, world, options, &comms).code,
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
    for (uint64_t seed = 0; seed < 2; seed++)
      check_world(world, &(LocalOptions){.seed = seed,
                                         .jitter_ns = 100 * (int64_t)seed,
                                         .latency_ns = 3});
}

/* ---- orders and times ---- */

static const DnnGroup three = {
    .ranks = 3, .size = 3, .n_digits = 1, .digits = {{3, 1}}};
static const int64_t thousand[] = {1000};

static DnnCollective sum_in(DnnQueue queue, int32_t id) {
  return (DnnCollective){.kind = DNN_ALL_REDUCE,
                         .dtype = DNN_f32,
                         .queue = (uint8_t)queue,
                         .id = id,
                         .group = &three,
                         .n_parts = 1,
                         .counts = thousand};
}

/* The findings of a rank; it fills in those that its test asks for. */
typedef struct Finding {
  Comm *comm;
  Status status;
  float data[3][1000];
  int64_t times[4];
  bool is_visible;
} Finding;

static Status start_sum(Finding *finding, const DnnCollective *what,
                        CommPart *part, int data) {
  *part = (CommPart){finding->data[data], finding->data[data], 1000};
  return finding->comm->start(finding->comm, what, part);
}

/* Runs three ranks; the findings lie in `memory`. */
static Finding *run_three(Memory *memory, const LocalOptions *options,
                          void *(*run)(void *finding)) {
  Arena *arena = arena_create(memory);
  Finding *findings = ARENA_ARRAY(arena, Finding, 3);
  pthread_t threads[3];
  Comm *comms;
  (void)comm_local_create(arena, 3, options, &comms);
  for (int r = 0; r < 3; r++) {
    findings[r].comm = &comms[r];
    for (int i = 0; i < 1000; i++) findings[r].data[0][i] = 1;
    pthread_create(&threads[r], NULL, run, &findings[r]);
  }
  for (int r = 0; r < 3; r++) pthread_join(threads[r], NULL);
  return findings;
}

static void *start_by_rank(void *user) {
  Finding *finding = user;
  int32_t first = finding->comm->rank == 1;
  DnnCollective what[] = {sum_in(DNN_QUEUE_BULK, first),
                          sum_in(DNN_QUEUE_BULK, !first)};
  CommPart parts[2];
  finding->status = start_sum(finding, &what[0], &parts[0], 0);
  if (finding->status.code == STATUS_ok)
    finding->status = start_sum(finding, &what[1], &parts[1], 1);
  if (finding->status.code == STATUS_ok)
    finding->status = finding->comm->wait(finding->comm, 1);
  finding->comm->close(finding->comm);
  return NULL;
}

Test(local, a_queue_in_two_orders_is_a_deadlock) {
  Memory *memory = memory_create(no_memory, NULL);
  Finding *findings = run_three(memory, &(LocalOptions){0}, start_by_rank);
  for (int r = 0; r < 3; r++)
    cr_expect_eq(findings[r].status.code, STATUS_lost);
  memory_destroy(memory);
}

static int64_t hundred_by_rank(void *user, int rank, const DnnInstr *instr) {
  (void)user, (void)instr;
  return 100 * (rank + 1);
}

static void slow_between_1_and_2(void *user, int from, int to,
                                 int64_t *latency_ns, double *bytes_per_ns) {
  (void)user, (void)bytes_per_ns;
  if (from == 1 && to == 2) *latency_ns = 7;
}

/* A large sum, then a small one in the other queue and one in the same. */
static void *take_times(void *user) {
  Finding *finding = user;
  Comm *comm = finding->comm;
  static const int64_t one[] = {1};
  DnnCollective large = sum_in(DNN_QUEUE_BULK, 1);
  DnnCollective small = sum_in(DNN_QUEUE_BLOCKING, 2);
  DnnCollective last = sum_in(DNN_QUEUE_BULK, 3);
  small.counts = last.counts = one;
  CommPart parts[3];
  DnnInstr instr = {0};
  comm->computed(comm, &instr);
  (void)start_sum(finding, &large, &parts[0], 0);
  comm->computed(comm, &instr);
  (void)start_sum(finding, &small, &parts[1], 1);
  (void)start_sum(finding, &last, &parts[2], 2);
  finding->times[0] = comm_local_now(comm);
  (void)comm->wait(comm, 2);
  finding->times[1] = comm_local_now(comm);
  (void)comm->wait(comm, 1);
  finding->times[2] = comm_local_now(comm);
  finding->status = comm->wait(comm, 3);
  finding->times[3] = comm_local_now(comm);
  comm->close(comm);
  return NULL;
}

Test(local, times_are_those_of_links) {
  LocalOptions options = {.latency_ns = 5,
                          .bytes_per_ns = 2,
                          .link = slow_between_1_and_2,
                          .compute_ns = hundred_by_rank};
  Memory *memory = memory_create(no_memory, NULL);
  Finding *findings = run_three(memory, &options, take_times);
  /* All have started the large sum at 300 and the small one at 600; each is
   * four messages over the slowest link, of a third of the bytes.  The last
   * one begins when its queue is free. */
  int64_t large = 300 + 4 * 7 + 4 * 4000 / 3 / 2;
  int64_t small = 600 + 4 * 7 + 4 * 4 / 3 / 2;
  int64_t last = large + 4 * 7 + 4 * 4 / 3 / 2;
  for (int r = 0; r < 3; r++) {
    cr_expect_eq(findings[r].status.code, STATUS_ok);
    cr_expect_eq(findings[r].times[0], 200 * (r + 1));
    cr_expect_eq(findings[r].times[1], small, "%ld", findings[r].times[1]);
    cr_expect_eq(findings[r].times[2], large, "%ld", findings[r].times[2]);
    cr_expect_eq(findings[r].times[3], last, "%ld", findings[r].times[3]);
  }
  memory_destroy(memory);
}

Test(local, jitter_depends_on_the_seed_alone) {
  int64_t ends[8];
  int n_different = 0;
  for (int run = 0; run < 24; run++) {
    LocalOptions options = {.seed = (uint64_t)(run % 8), .jitter_ns = 1000};
    Memory *memory = memory_create(no_memory, NULL);
    Finding *findings = run_three(memory, &options, take_times);
    if (run < 8) ends[run] = findings[0].times[2];
    cr_expect_eq(findings[1].times[2], ends[run % 8]);
    n_different += run > 0 && run < 8 && ends[run] != ends[0];
    memory_destroy(memory);
  }
  cr_expect_geq(n_different, 5);
}

/* After the barrier all have started; nobody has waited yet. */
static void *look_before_the_wait(void *user) {
  Finding *finding = user;
  Comm *comm = finding->comm;
  DnnCollective what = sum_in(DNN_QUEUE_BULK, 1);
  CommPart part;
  (void)start_sum(finding, &what, &part, 0);
  (void)comm->barrier(comm);
  finding->is_visible = finding->data[0][999] == 3;
  (void)comm->barrier(comm);
  finding->status = comm->wait(comm, 1);
  if (finding->data[0][999] != 3)
    finding->status = status_make(STATUS_invalid, "no sum");
  comm->close(comm);
  return NULL;
}

Test(local, sums_are_there_early_or_late) {
  int n_visible = 0;
  for (uint64_t seed = 0; seed < 16; seed++) {
    Memory *memory = memory_create(no_memory, NULL);
    Finding *findings =
        run_three(memory, &(LocalOptions){.seed = seed}, look_before_the_wait);
    n_visible += findings[0].is_visible;
    for (int r = 0; r < 3; r++) {
      cr_expect_eq(findings[r].status.code, STATUS_ok);
      cr_expect_eq(findings[r].is_visible, findings[0].is_visible);
    }
    memory_destroy(memory);
  }
  cr_expect(n_visible > 2 && n_visible < 14, "%d of 16", n_visible);
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
