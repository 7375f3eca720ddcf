/*
 * mock_rules.c -- breaks a rule of NCCL or of the driver on the mock, in two
 * processes: "mock_rules CASE" prints for each rank what its calls returned.
 */
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/mock/nccl.h"

enum { N_RANKS = 2, N_BYTES = 4096 };

typedef struct Rank {
  int index;
  CuStream streams[2];
  NcclComm comms[2]; /* two over both ranks */
  unsigned long long memory;
} Rank;

static NcclId ids[2];
static _Atomic int *is_tried; /* between the ranks */

static CuEnum wait_for_comm(NcclComm comm) {
  CuEnum error = NCCL_IN_PROGRESS;
  while (error == NCCL_IN_PROGRESS) {
    CuEnum failed = ncclCommGetAsyncError(comm, &error);
    if (failed) return failed;
    usleep(100);
  }
  return error;
}

static CuEnum join_comm(const Rank *rank, int i, NcclComm *out) {
  NcclConfig config = {.size = sizeof config, .magic = 0xcafebeefu};
  CuEnum error =
      ncclCommInitRankConfig(out, N_RANKS, ids[i], rank->index, &config);
  return error == NCCL_IN_PROGRESS ? wait_for_comm(*out) : error;
}

static CuEnum open_rank(Rank *rank, int device) {
  CuContext context;
  CuEnum error = cuDevicePrimaryCtxRetain(&context, device);
  for (int i = 0; i < 2 && !error; i++)
    error = cuStreamCreateWithPriority(&rank->streams[i], 1, 0);
  if (!error) error = cuMemAlloc_v2(&rank->memory, N_BYTES);
  for (int i = 0; i < 2 && !error; i++)
    error = join_comm(rank, i, &rank->comms[i]);
  return error;
}

static void *at(const Rank *rank, size_t offset) {
  return (void *)(uintptr_t)(rank->memory + offset);
}

/* Until the work on both streams is done or a communicator has an error. */
static CuEnum finish(const Rank *rank) {
  for (;;) {
    bool is_over = true;
    for (int i = 0; i < 2; i++) {
      CuEnum error = 0;
      CuEnum state = cuStreamQuery(rank->streams[i]);
      if (state != 0 && state != CU_NOT_READY) return state;
      is_over = is_over && state == 0;
      CuEnum failed = ncclCommGetAsyncError(rank->comms[i], &error);
      is_over = is_over && error != NCCL_IN_PROGRESS;
      if (failed || (error && error != NCCL_IN_PROGRESS))
        return failed ? failed : error;
    }
    if (is_over) return 0;
    usleep(100);
  }
}

static CuEnum sum(const Rank *rank, int comm, size_t count) {
  return ncclAllReduce(at(rank, 0), at(rank, 0), count, NCCL_Float32, NCCL_Sum,
                       rank->comms[comm], rank->streams[comm]);
}

/* ---- the cases: what a rank sees ---- */

static CuEnum one_order(Rank *rank) {
  for (int i = 0; i < 200; i++) {
    CuEnum error = sum(rank, i % 3 == 0, 8);
    if (error) return error;
  }
  return finish(rank);
}

/* Rank 1 launches the second communicator first, once. */
static CuEnum two_orders(Rank *rank) {
  for (int i = 0; i < 20; i++) {
    int first = i == 10 && rank->index == 1;
    CuEnum error = sum(rank, first, 8);
    if (!error) error = sum(rank, !first, 8);
    if (error) return error;
  }
  return finish(rank);
}

static CuEnum two_counts(Rank *rank) {
  CuEnum error = sum(rank, 0, rank->index == 0 ? 8 : 9);
  return error ? error : finish(rank);
}

static CuEnum two_roots(Rank *rank) {
  CuEnum error = ncclBroadcast(at(rank, 0), at(rank, 0), 8, NCCL_Float32,
                               rank->index, rank->comms[0], rank->streams[0]);
  return error ? error : finish(rank);
}

/* From rank `from` to the other one, each communicator on its stream. */
static CuEnum message(const Rank *rank, int comm, int from, size_t bytes) {
  return rank->index == from ? ncclSend(at(rank, 0), bytes, NCCL_Uint8, !from,
                                        rank->comms[comm], rank->streams[comm])
                             : ncclRecv(at(rank, 0), bytes, NCCL_Uint8, from,
                                        rank->comms[comm], rank->streams[comm]);
}

static CuEnum two_lengths(Rank *rank) {
  CuEnum error = message(rank, 0, 0, rank->index == 0 ? 100 : 101);
  return error ? error : finish(rank);
}

/* Rank 1 receives when rank 0 has asked for a while whether its send has ended,
 * and whether the two are connected. */
static CuEnum unbuffered(Rank *rank) {
  while (rank->index == 1 && !atomic_load(is_tried)) usleep(100);
  CuEnum error = message(rank, 0, 0, 16);
  if (error || rank->index == 1) return error ? error : finish(rank);
  for (int i = 0; i < 100 && !error; i++) {
    CuEnum state = 0;
    error = ncclCommGetAsyncError(rank->comms[0], &state);
    if (state != NCCL_IN_PROGRESS) error = 98;
    if (cuStreamQuery(rank->streams[0]) != CU_NOT_READY) error = 99;
  }
  atomic_store(is_tried, 1);
  return error ? error : finish(rank);
}

/* Rank 0 waits for the second message alone, which rank 1 sends when the first
 * one has ended. */
static CuEnum first_message(Rank *rank, int from) {
  CuEnum error = message(rank, 0, from, 16);
  if (!error && rank->index == 1) error = cuStreamSynchronize(rank->streams[0]);
  if (!error) error = message(rank, 1, 1, 16);
  if (!error) error = cuStreamSynchronize(rank->streams[1]);
  return error ? error : finish(rank);
}

static CuEnum unwatched_send(Rank *rank) {
  return first_message(rank, 0);
}

static CuEnum unwatched_receipt(Rank *rank) {
  return first_message(rank, 1);
}

static CuEnum overlap(Rank *rank) {
  return ncclAllGather(at(rank, 0), at(rank, 16), 32, NCCL_Uint8,
                       rank->comms[0], rank->streams[0]);
}

static CuEnum two_streams(Rank *rank) {
  CuEnum error = sum(rank, 0, 8);
  if (error) return error;
  rank->comms[1] = rank->comms[0];
  return sum(rank, 1, 8);
}

static CuEnum after_abort(Rank *rank) {
  CuEnum error = ncclCommAbort(rank->comms[0]);
  return error ? error : sum(rank, 0, 8);
}

static CuEnum after_destroy(Rank *rank) {
  CuEnum error = ncclCommFinalize(rank->comms[0]);
  if (!error) error = ncclCommDestroy(rank->comms[0]);
  return error ? error : ncclCommAbort(rank->comms[0]);
}

static CuEnum early_end(Rank *rank) {
  CuEnum error = sum(rank, 0, 8);
  return error ? error : ncclCommFinalize(rank->comms[0]);
}

static CuEnum no_group(Rank *rank) {
  (void)rank;
  return ncclGroupEnd();
}

static CuEnum unwatched(Rank *rank) {
  (void)rank;
  return 0;
}

/* With $DNN_MOCK_FAIL: a fault is what every later call returns. */
static CuEnum lasting(Rank *rank) {
  CuEvent event;
  CuEnum first = cuMemsetD8Async(rank->memory, 0, 16, rank->streams[0]);
  CuEnum second = cuStreamSynchronize(rank->streams[0]);
  CuEnum third = cuEventCreate(&event, 0);
  return first == second && second == third ? first : 0;
}

static const struct {
  const char *name;
  CuEnum (*run)(Rank *);
  bool is_one_gpu;
} cases[] = {
    {"one_order", one_order, false},
    {"two_orders", two_orders, false},
    {"two_counts", two_counts, false},
    {"two_roots", two_roots, false},
    {"two_lengths", two_lengths, false},
    {"unbuffered", unbuffered, false},
    {"unwatched_send", unwatched_send, false},
    {"unwatched_receipt", unwatched_receipt, false},
    {"overlap", overlap, false},
    {"two_streams", two_streams, false},
    {"after_abort", after_abort, false},
    {"after_destroy", after_destroy, false},
    {"early_end", early_end, false},
    {"no_group", no_group, false},
    {"one_gpu", unwatched, true},
    {"lasting", lasting, false},
};

static void run_rank(int c, int index) {
  Rank rank = {.index = index};
  CuEnum error = open_rank(&rank, cases[c].is_one_gpu ? 0 : index);
  if (!error) error = cases[c].run(&rank);
  printf("rank %d: %u\n", index, error);
  fflush(stdout);
  _exit(0);
}

int main(int argc, char **argv) {
  is_tried = mmap(NULL, sizeof *is_tried, PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (is_tried == MAP_FAILED) return 1;
  for (int c = 0; c < ARRAY_LENGTH(cases); c++) {
    if (argc < 2 || strcmp(argv[1], cases[c].name) != 0) continue;
    for (int i = 0; i < 2; i++) {
      ncclGetUniqueId(&ids[i]);
      usleep(10);
    }
    for (int rank = 0; rank < N_RANKS; rank++)
      if (fork() == 0) run_rank(c, rank);
    while (wait(NULL) > 0) {
    }
    return 0;
  }
  fprintf(stderr, "no such case\n");
  return 1;
}
