/*
 * mpi.c -- joins ranks in processes by Open MPI.
 *
 * One thread makes every MPI call, so that collectives proceed while the main
 * thread computes, and so that MPI needs no locks.  It takes jobs in order,
 * which is the same order on all ranks, and runs one after the other.
 *
 * mpi_reduce.c makes all-reduces, mpi_moves.c the other collectives, and
 * mpi_messages.c sends, receives and finds lost ranks.
 */
#include "runtime/comm/mpi.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

enum {
  THREAD_FUNNELED = 1,
  AFTER_LAUNCHER_S = 2, /* it knows who is late, and is first to say so */
  SMALLEST_CHUNK = 16 << 10,
  ALL_CHUNKS = 4 << 20, /* of one slot, if that leaves SMALLEST_CHUNK */
  TAG_HOST = (1 << 28) + 1
};

/* ---- host-side jobs ---- */

/* Everybody gets everybody's bytes. */
static void run_gather(Mpi *mpi, const void *data, int64_t bytes, char *all) {
  int rank = mpi->place.rank, world = mpi->place.world;
  void **requests = mpi->slots[0].requests;
  int n = 0;
  memmove(all + rank * bytes, data, (size_t)bytes);
  for (int i = 1; i < world; i++) {
    int peer = (rank + i) % world;
    mpi_receive(mpi, all + peer * bytes, bytes, peer, TAG_HOST, &requests[n++]);
  }
  for (int i = 1; i < world; i++)
    mpi_send(mpi, data, bytes, (rank + i) % world, TAG_HOST, &requests[n++]);
  mpi_finish(mpi, requests, n);
}

/* Along a chain from the root, chunk by chunk, so that the time does not grow
 * with the number of ranks. */
static void run_broadcast(Mpi *mpi, const Job *job) {
  int rank = mpi->place.rank, world = mpi->place.world;
  int next = (rank + 1) % world, previous = (rank + world - 1) % world;
  void *sending = NULL;
  for (int64_t at = 0; at < job->bytes; at += MPI_LARGEST_CHUNK) {
    int64_t n = job->bytes - at;
    if (n > MPI_LARGEST_CHUNK) n = MPI_LARGEST_CHUNK;
    char *data = (char *)job->data + at;
    if (rank != job->root) {
      void *request;
      mpi_receive(mpi, data, n, previous, TAG_HOST, &request);
      mpi_finish(mpi, &request, 1);
    }
    if (next == job->root) continue;
    if (sending) mpi_finish(mpi, &sending, 1);
    mpi_send(mpi, data, n, next, TAG_HOST, &sending);
  }
  if (sending) mpi_finish(mpi, &sending, 1);
}

static void run_vote(Mpi *mpi, Job *job) {
  int64_t *all = (int64_t *)(void *)mpi->slots[0].own; /* >= 16 KB */
  int64_t own = job->value;
  run_gather(mpi, &own, sizeof own, (char *)all);
  for (int i = 0; i < mpi->place.world; i++)
    if (all[i] > job->value) job->value = all[i];
}

static void add_event(Comm *comm, int32_t id, int64_t begin) {
  CommEvents *events = comm->events;
  if (!events) return;
  int32_t n = atomic_load(&events->n);
  if (n >= events->capacity) return;
  events->data[n] = (CommEvent){id, begin, clock_ns()};
  atomic_store(&events->n, n + 1);
}

static void run_job(Mpi *mpi, Job *job) {
  int64_t begin = clock_ns();
  switch (job->kind) {
  case JOB_collective:
    if (job->what->kind == DNN_ALL_REDUCE)
      mpi_run_all_reduce(mpi, job->what, job->parts);
    else
      mpi_run_moves(mpi, job->what, job->parts);
    add_event(mpi->comm, job->what->id, begin);
    break;
  case JOB_broadcast: run_broadcast(mpi, job); break;
  case JOB_gather: run_gather(mpi, job->data, job->bytes, job->all); break;
  case JOB_vote: run_vote(mpi, job); break;
  case JOB_stop: break;
  }
}

/* ---- the communication thread ---- */

static Status start_mpi(Mpi *mpi) {
  int provided, rank, size;
  if (mpi->api.Init_thread(NULL, NULL, THREAD_FUNNELED, &provided) !=
      MPI_SUCCESS)
    return status_make(STATUS_unavailable, "MPI does not start");
  mpi->api.Comm_set_errhandler(mpi->api.world, mpi->api.errors_return);
  mpi->api.Comm_rank(mpi->api.world, &rank);
  mpi->api.Comm_size(mpi->api.world, &size);
  if (rank != mpi->place.rank || size != mpi->place.world)
    return status_make(STATUS_invalid,
                       "MPI says rank %d of %d, the environment %d of %d: "
                       "start the ranks with mpirun or srun --mpi=pmix",
                       rank, size, mpi->place.rank, mpi->place.world);
  mpi->started_ns = mpi->last_tick_ns = clock_ns();
  int next = (rank + 1) % size, previous = (rank + size - 1) % size;
  mpi->neighbours[mpi->n_neighbours++].rank = next;
  if (previous != next) mpi->neighbours[mpi->n_neighbours++].rank = previous;
  for (int i = 0; i < mpi->n_neighbours; i++)
    mpi_listen_to(mpi, &mpi->neighbours[i]);
  return STATUS_OK;
}

/* Waits for a job or, for a tenth of a second, for nothing. */
static Job *next_job(Mpi *mpi) {
  pthread_mutex_lock(&mpi->mutex);
  if (mpi->n_run == mpi->n_posted) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += MPI_TICK_NS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&mpi->to_thread, &mpi->mutex, &until);
  }
  Job *job =
      mpi->n_run < mpi->n_posted ? &mpi->jobs[mpi->n_run % MPI_MAX_JOBS] : NULL;
  pthread_mutex_unlock(&mpi->mutex);
  return job;
}

static void finish_job(Mpi *mpi, Job *job) {
  pthread_mutex_lock(&mpi->mutex);
  job->is_done = true;
  mpi->n_run++;
  pthread_cond_broadcast(&mpi->to_main);
  pthread_mutex_unlock(&mpi->mutex);
}

/* From here on everybody heartbeats: the long patience of the start is over. */
static void meet_first(Mpi *mpi) {
  int64_t none = 0;
  run_gather(mpi, &none, sizeof none, mpi->slots[0].own);
  for (int i = 0; i < mpi->n_neighbours; i++)
    mpi->neighbours[i].heard_ns = clock_ns();
}

static void *run_communication(void *user) {
  Mpi *mpi = user;
  prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);
  Status status = start_mpi(mpi);
  if (status.code == STATUS_ok) meet_first(mpi);
  pthread_mutex_lock(&mpi->mutex);
  mpi->start_status = status;
  mpi->is_started = true;
  pthread_cond_broadcast(&mpi->to_main);
  pthread_mutex_unlock(&mpi->mutex);
  if (status.code != STATUS_ok) return NULL;
  for (bool is_running = true; is_running;) {
    Job *job = next_job(mpi);
    mpi_tick(mpi);
    if (!job) continue;
    is_running = job->kind != JOB_stop;
    run_job(mpi, job);
    finish_job(mpi, job);
  }
  /* Ranks that leave early must not look lost to the others. */
  int64_t none = 0;
  run_gather(mpi, &none, sizeof none, mpi->slots[0].own);
  mpi->api.Finalize();
  return NULL;
}

/* ---- the side of the main thread ---- */

static Job *post_job(Mpi *mpi, Job job) {
  pthread_mutex_lock(&mpi->mutex);
  Job *place = &mpi->jobs[mpi->n_posted % MPI_MAX_JOBS];
  ASSERT(mpi->n_posted - mpi->n_run < MPI_MAX_JOBS);
  ASSERT(mpi->n_posted < MPI_MAX_JOBS || place->is_free);
  *place = job;
  mpi->n_posted++;
  pthread_cond_signal(&mpi->to_thread);
  pthread_mutex_unlock(&mpi->mutex);
  return place;
}

static void wait_for_job(Mpi *mpi, Job *job) {
  FlightRecorder *recorder = mpi->comm->recorder;
  pthread_mutex_lock(&mpi->mutex);
  if (!job->is_done) {
    atomic_store(&mpi->main_waits, true);
    if (recorder) atomic_store(&recorder->waits_since, clock_ns());
    while (!job->is_done) pthread_cond_wait(&mpi->to_main, &mpi->mutex);
    if (recorder) atomic_store(&recorder->waits_since, 0);
    atomic_store(&mpi->main_waits, false);
  }
  job->is_free = true;
  pthread_mutex_unlock(&mpi->mutex);
}

static Status mpi_start(Comm *comm, const DnnCollective *what,
                        const CommPart *parts) {
  TRY(comm_check(what));
  post_job(comm->state,
           (Job){.kind = JOB_collective, .what = what, .parts = parts});
  return STATUS_OK;
}

/* The jobs not waited for are few: buckets of one step. */
static Status mpi_wait(Comm *comm, int32_t id) {
  Mpi *mpi = comm->state;
  int64_t oldest =
      mpi->n_posted > MPI_MAX_JOBS ? mpi->n_posted - MPI_MAX_JOBS : 0;
  for (int64_t i = mpi->n_posted - 1; i >= oldest; i--) {
    Job *job = &mpi->jobs[i % MPI_MAX_JOBS];
    if (job->kind != JOB_collective || job->is_free || job->what->id != id)
      continue;
    wait_for_job(mpi, job);
    return STATUS_OK;
  }
  return STATUS_OK; /* its result had an earlier reader */
}

static Status mpi_gather(Comm *comm, const void *data, int64_t bytes,
                         void *all) {
  wait_for_job(comm->state, post_job(comm->state, (Job){.kind = JOB_gather,
                                                        .data = (void *)data,
                                                        .bytes = bytes,
                                                        .all = all}));
  return STATUS_OK;
}

static Status mpi_broadcast(Comm *comm, void *data, int64_t bytes, int root) {
  wait_for_job(comm->state, post_job(comm->state, (Job){.kind = JOB_broadcast,
                                                        .data = data,
                                                        .bytes = bytes,
                                                        .root = root}));
  return STATUS_OK;
}

static Status mpi_barrier(Comm *comm) {
  wait_for_job(comm->state, post_job(comm->state, (Job){.kind = JOB_vote}));
  return STATUS_OK;
}

static Status mpi_vote_start(Comm *comm, int64_t value) {
  Mpi *mpi = comm->state;
  ASSERT(!mpi->vote);
  mpi->vote = post_job(mpi, (Job){.kind = JOB_vote, .value = value});
  return STATUS_OK;
}

static Status mpi_vote_wait(Comm *comm, int64_t *out_greatest) {
  Mpi *mpi = comm->state;
  ASSERT(mpi->vote);
  wait_for_job(mpi, mpi->vote);
  *out_greatest = mpi->vote->value;
  mpi->vote = NULL;
  return STATUS_OK;
}

static void mpi_close(Comm *comm) {
  Mpi *mpi = comm->state;
  wait_for_job(mpi, post_job(mpi, (Job){.kind = JOB_stop}));
  pthread_join(mpi->thread, NULL);
  dylib_close(mpi->dylib);
}

static Status load_mpi(Mpi *mpi) {
  static const char *const names[] = {"libmpi.so.40", NULL};
  Status status = dylib_open("DNN_MPI_LIB", names, &mpi->dylib);
  if (status.code != STATUS_ok)
    return status_make(STATUS_unavailable,
                       "%s; several ranks need Open MPI (apt-get install "
                       "openmpi-bin)",
                       status.message);
  Api *api = &mpi->api;
  void *symbol;
  bool is_complete = true;
#define MPI(name, parameters)                                                  \
  symbol = dylib_symbol(mpi->dylib, "MPI_" #name);                             \
  memcpy(&api->name, &symbol, sizeof symbol);                                  \
  is_complete = is_complete && symbol;
#include "runtime/comm/mpi.def"
  api->world = dylib_symbol(mpi->dylib, "ompi_mpi_comm_world");
  api->byte = dylib_symbol(mpi->dylib, "ompi_mpi_byte");
  api->errors_return = dylib_symbol(mpi->dylib, "ompi_mpi_errors_return");
  if (is_complete && api->world && api->byte && api->errors_return)
    return STATUS_OK;
  return status_make(STATUS_unavailable, "'%s' is not Open MPI 4",
                     dylib_path(mpi->dylib));
}

static void make_slots(Mpi *mpi, Arena *arena) {
  int64_t world = mpi->place.world;
  int64_t chunk = ALL_CHUNKS / (2 * world + 1) / 64 * 64;
  if (chunk > MPI_LARGEST_CHUNK) chunk = MPI_LARGEST_CHUNK;
  if (chunk < SMALLEST_CHUNK) chunk = SMALLEST_CHUNK;
  mpi->chunk_bytes = chunk;
  for (int i = 0; i < 2; i++) {
    char *data = ARENA_ARRAY(arena, char, (2 * world + 1) * chunk);
    mpi->slots[i] =
        (Slot){.in = data,
               .out = data + world * chunk,
               .own = data + 2 * world * chunk,
               .members = ARENA_ARRAY(arena, const void *, world),
               .requests = ARENA_ARRAY(arena, void *, 2 * world + 2)};
  }
  mpi->comm->buffer_bytes = 2 * (2 * world + 1) * chunk;
}

static Status start_thread(Mpi *mpi) {
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_mutex_init(&mpi->mutex, NULL);
  pthread_cond_init(&mpi->to_thread, &attributes);
  pthread_cond_init(&mpi->to_main, &attributes);
  pthread_condattr_destroy(&attributes);
  int error = pthread_create(&mpi->thread, NULL, run_communication, mpi);
  if (error) return status_errno(error, "cannot start a thread");
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_sec += mpi->limit_ns / 1000000000;
  pthread_mutex_lock(&mpi->mutex);
  while (!mpi->is_started && error != ETIMEDOUT)
    error = pthread_cond_timedwait(&mpi->to_main, &mpi->mutex, &until);
  bool is_started = mpi->is_started;
  pthread_mutex_unlock(&mpi->mutex);
  if (is_started) return mpi->start_status;
  return status_make(STATUS_lost,
                     "the other ranks have not joined rank %d through MPI "
                     "within the limit of --start-timeout",
                     mpi->place.rank);
}

Status comm_mpi_create(Arena *arena, RankPlace place, int64_t limit_s,
                       Comm **out) {
  Mpi *mpi = ARENA_NEW(arena, Mpi);
  Comm *comm = ARENA_NEW(arena, Comm);
  *comm = (Comm){.name = "mpi",
                 .rank = place.rank,
                 .world = place.world,
                 .local_rank = place.local_rank,
                 .local_world = place.local_world,
                 .start = mpi_start,
                 .wait = mpi_wait,
                 .barrier = mpi_barrier,
                 .broadcast = mpi_broadcast,
                 .gather = mpi_gather,
                 .vote_start = mpi_vote_start,
                 .vote_wait = mpi_vote_wait,
                 .close = mpi_close,
                 .state = mpi};
  mpi->comm = comm;
  mpi->place = place;
  mpi->limit_ns = (limit_s + AFTER_LAUNCHER_S) * 1000000000;
  TRY(load_mpi(mpi));
  make_slots(mpi, arena);
  TRY(start_thread(mpi));
  *out = comm;
  return STATUS_OK;
}
