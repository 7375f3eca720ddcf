/*
 * stage_matrix.c -- runs the training step of an emitted program on ranks that
 * are delayed at random, as threads of one process or over MPI.
 * stage_matrix.sh links it in front of the program with --wrap=rank_main.
 *
 *     rank-0000 threads SEED          all ranks; a send waits for its receive
 *     mpirun -n 4 rank-0000 mpi SEED  one rank a process
 *
 * After the seed may stand by how many us a launch is late at most, and that
 * one of how many is. Each rank prints its number and a hash of what it keeps.
 */
#include "runtime/exec/exec.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { STEPS = 3, PERIODS = 12, CHUNK = 1 << 16 };

static uint64_t key, delayed = 6, longest_ns = 4000000;
static _Thread_local uint64_t n_launches;

static void no_memory(void *user) {
  (void)user;
  exit(3);
}

/* One launch of `delayed` is late. */
static void delay(Comm *comm, const DnnInstr *instr) {
  (void)instr;
  uint64_t at = (uint64_t)comm->rank << 40 | n_launches++ << 1;
  if (random_below(key, at, delayed) > 0) return;
  int64_t ns = (int64_t)random_below(key, at | 1, longest_ns);
  nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
}

/* Bytes of floats near 1, and of tokens 0 and 1, which depend on the tensor and
 * the rank. */
static Status fill(Device *device, const DnnTensor *tensor, uint64_t number) {
  float chunk[CHUNK / 4];
  int32_t tokens[CHUNK / 4];
  bool is_value = tensor->role == DNN_PARAM || tensor->role == DNN_DATA;
  bool has_tokens = tensor->dtype == DNN_i32;
  if (!is_value || tensor->offset < 0 ||
      (tensor->dtype != DNN_f32 && !has_tokens))
    return STATUS_OK;
  for (int64_t at = 0; at < tensor->bytes; at += CHUNK) {
    int64_t n = tensor->bytes - at < CHUNK ? tensor->bytes - at : CHUNK;
    for (int i = 0; i < CHUNK / 4; i++) {
      uint64_t drawn = random_below(number, (uint64_t)(at + i), 1000);
      chunk[i] = (float)drawn * 1e-3f;
      tokens[i] = (int32_t)(drawn % 2);
    }
    TRY(device->write(device, tensor->offset + at,
                      has_tokens ? (void *)tokens : (void *)chunk, n));
  }
  return STATUS_OK;
}

static Status add_bytes(Device *device, int64_t at, int64_t bytes,
                        uint64_t *hash) {
  unsigned char chunk[CHUNK];
  for (int64_t done = 0; done < bytes; done += CHUNK) {
    int64_t n = bytes - done < CHUNK ? bytes - done : CHUNK;
    TRY(device->read(device, at + done, chunk, n));
    for (int64_t i = 0; i < n; i++) *hash = (*hash ^ chunk[i]) * 1099511628211u;
  }
  return STATUS_OK;
}

/* By tensor, whichever memory has it. */
static Status print_hash(const DnnProgram *program, Device *device, int rank) {
  uint64_t hash = 1469598103934665603u;
  for (int i = 0; i < program->n_tensors; i++) {
    const DnnTensor *tensor = &program->tensors[i];
    int n = tensor->n_slots > 1 ? tensor->n_slots : 1;
    for (int k = 0; k < n && tensor->offset >= 0; k++)
      TRY(add_bytes(device, tensor->offset + k * tensor->slot_bytes,
                    tensor->bytes, &hash));
  }
  printf("rank %d: %016llx\n", rank, (unsigned long long)hash);
  return STATUS_OK;
}

static Status no_step(void *user, const DnnPeriodCall *call, int64_t unit,
                      int64_t step) {
  (void)user;
  (void)call;
  (void)unit;
  (void)step;
  return STATUS_OK;
}

/* Stages that keep versions of their parameters run twice from filling to
 * draining. */
static Status run_train(Exec *exec, const DnnEntryPoint *train) {
  for (int t = 1; t <= STEPS && !train->periods; t++)
    TRY(exec_run(exec, train, t));
  for (int round = 0; round < 2 && train->periods; round++) {
    for (int64_t t = -train->lead; t < PERIODS; t++)
      TRY(exec_period(exec, train,
                      &(ExecPeriod){.number = t,
                                    .n = PERIODS * train->period_units,
                                    .first = 1,
                                    .end_call = train->n_calls,
                                    .begin = no_step}));
    TRY(exec_finish(exec));
  }
  return STATUS_OK;
}

static Status run_rank(const DnnBundle *bundle, Arena *arena, Comm *comm) {
  const DnnProgram *program = bundle_program(bundle, comm->rank);
  const DnnEntryPoint *train = &program->entry_points[0];
  FlightRecorder recorder = {0};
  Device *device;
  recorder_open(&recorder, comm->rank, comm->local_rank);
  comm->recorder = &recorder;
  comm->computed = delay;
  TRY(device_create(program->target, arena, &device));
  device->rank = comm->rank;
  TRY(device->open(device, program, comm->local_rank));
  for (int i = 0; i < program->n_tensors; i++)
    TRY(fill(device, &program->tensors[i], 1000 + (uint64_t)i));
  for (int i = 0; i < train->n_tensors; i++)
    TRY(fill(device, &train->tensors[i], 2000 + (uint64_t)i));
  Exec *exec = exec_create(arena, program, device, comm, &recorder);
  TRY(run_train(exec, train));
  TRY(print_hash(program, device, comm->rank));
  device->close(device);
  return STATUS_OK;
}

typedef struct Rank {
  const DnnBundle *bundle;
  Comm *comm;
  int code;
} Rank;

static void *rank_thread(void *user) {
  Rank *rank = user;
  Memory *memory = memory_create(no_memory, NULL);
  Status status = run_rank(rank->bundle, arena_create(memory), rank->comm);
  rank->code = status.code == STATUS_ok ? 0 : 3;
  if (rank->code)
    fprintf(stderr, "rank %d: %s\n", rank->comm->rank, status.message);
  rank->comm->close(rank->comm);
  memory_destroy(memory);
  return NULL;
}

static int run_threads(const DnnBundle *bundle, Arena *arena) {
  enum { MOST = 64 };
  pthread_t threads[MOST];
  Rank ranks[MOST];
  Comm *comms;
  int code = 0;
  LocalOptions options = {
      .seed = key, .rendezvous = true, .latency_ns = 1000, .jitter_ns = 100000};
  if (bundle->world > MOST ||
      comm_local_create(arena, bundle->world, &options, &comms).code !=
          STATUS_ok)
    return 3;
  for (int r = 0; r < bundle->world; r++) {
    ranks[r] = (Rank){.bundle = bundle, .comm = &comms[r]};
    pthread_create(&threads[r], NULL, rank_thread, &ranks[r]);
  }
  for (int r = 0; r < bundle->world; r++) {
    pthread_join(threads[r], NULL);
    code |= ranks[r].code;
  }
  return code;
}

static int run_process(const DnnBundle *bundle, Arena *arena) {
  Comm *comm;
  Status status = comm_create(arena, 60, &comm);
  if (status.code != STATUS_ok) {
    fprintf(stderr, "%s\n", status.message);
    return 3;
  }
  Rank rank = {.bundle = bundle, .comm = comm};
  rank_thread(&rank);
  return rank.code;
}

int __wrap_rank_main(int argc, char **argv, const DnnBundle *bundle);
int __wrap_rank_main(int argc, char **argv, const DnnBundle *bundle) {
  if (argc != 3 && argc != 5) return 2;
  key = strtoull(argv[2], NULL, 10);
  if (argc == 5) {
    longest_ns = strtoull(argv[3], NULL, 10) * 1000;
    delayed = strtoull(argv[4], NULL, 10);
  }
  Memory *memory = memory_create(no_memory, NULL);
  Arena *arena = arena_create(memory);
  bool are_threads = strcmp(argv[1], "threads") == 0;
  int code = (are_threads ? run_threads : run_process)(bundle, arena);
  memory_destroy(memory);
  return code;
}
