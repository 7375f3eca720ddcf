/*
 * mpi.c -- joins ranks in processes by Open MPI.
 *
 * The main thread appends collectives to queues, in an order that is the same
 * on all ranks, and one other thread runs them (mpi_queues.c): mpi_reduce.c
 * makes all-reduces, mpi_moves.c the other collectives, mpi_messages.c sends
 * and receives, and mpi_heartbeats.c finds lost ranks.  The host-side helpers
 * are collectives too, in a queue of their own, so that a vote keeps no
 * collective waiting.  Messages wait only for earlier ones between the same two
 * ranks.
 */
#include "runtime/comm/mpi.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
  AFTER_LAUNCHER_S = 2, /* it knows who is late, and is first to say so */
  SMALLEST_CHUNK = 16 << 10,
  ALL_CHUNKS = 4 << 20, /* of one slot, if that leaves SMALLEST_CHUNK */
  FIRST_JOBS = 256,     /* made at the start, so that steps make none */
  HOST_ID = -1
};

/* ---- jobs ---- */

static void make_jobs(Mpi *mpi, int n) {
  Job *jobs = ARENA_ARRAY(mpi->arena, Job, n);
  for (int i = 0; i < n; i++) {
    jobs[i].next = mpi->unused;
    mpi->unused = &jobs[i];
  }
}

static Job *take_unused(Mpi *mpi) {
  if (!mpi->unused) make_jobs(mpi, FIRST_JOBS);
  Job *job = mpi->unused;
  const FlightRecorder *recorder = mpi->comm->recorder;
  mpi->unused = job->next;
  memset(job, 0, sizeof *job);
  job->step = recorder ? atomic_load(&recorder->step) : 0;
  return job;
}

static Work *make_work(Mpi *mpi, int queue) {
  Work *work = ARENA_NEW(mpi->arena, Work);
  work->mpi = mpi;
  work->queue = queue;
  return work;
}

/* The queue of the messages to or from a rank. */
static Work *work_of_message(Mpi *mpi, const DnnCollective *what) {
  int peer = mpi->place.rank + what->peer;
  int queue = WORK_MESSAGES + 2 * peer + (what->kind == DNN_RECV);
  ASSERT(peer >= 0 && peer < mpi->place.world);
  if (mpi->works[queue]) return mpi->works[queue];
  Work *work = make_work(mpi, queue);
  for (int i = 0; i < MPI_N_SLOTS; i++)
    work->slots[i].requests = ARENA_ARRAY(mpi->arena, void *, 2);
  pthread_mutex_lock(&mpi->mutex);
  mpi->works[queue] = work;
  if (queue >= mpi->n_works) atomic_store(&mpi->n_works, queue + 1);
  pthread_mutex_unlock(&mpi->mutex);
  return work;
}

static Job *post_job(Mpi *mpi, Work *work, Job *job) {
  pthread_mutex_lock(&mpi->mutex);
  if (work->first)
    work->last->next = job;
  else
    work->first = job;
  work->last = job;
  pthread_cond_signal(&mpi->to_thread);
  pthread_mutex_unlock(&mpi->mutex);
  return job;
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
  pthread_mutex_unlock(&mpi->mutex);
  job->next = mpi->unused;
  mpi->unused = job;
}

/* ---- collectives ---- */

/* Where the collective of this id is kept until its wait. */
static Job **place_of_id(Mpi *mpi, int32_t id) {
  ASSERT(id >= 0);
  if (id >= mpi->n_ids) {
    int32_t n = id < FIRST_JOBS ? FIRST_JOBS : 2 * id;
    Job **more = ARENA_ARRAY(mpi->arena, Job *, n);
    if (mpi->n_ids > 0)
      memcpy(more, mpi->by_id, sizeof(Job *) * (size_t)mpi->n_ids);
    mpi->by_id = more;
    mpi->n_ids = n;
  }
  return &mpi->by_id[id];
}

static Status mpi_start(Comm *comm, const DnnCollective *what,
                        const CommPart *parts) {
  TRY(comm_check(what));
  Mpi *mpi = comm->state;
  Job **place = place_of_id(mpi, what->id), *job = take_unused(mpi);
  ASSERT(!*place);
  job->what = what;
  job->parts = parts;
  if (comm->recorder) {
    job->path = atomic_load(&comm->recorder->path);
    job->instr = atomic_load(&comm->recorder->instr);
    job->microbatch = atomic_load(&comm->recorder->microbatch);
  }
  Work *work = comm_is_message(what) ? work_of_message(mpi, what)
                                     : mpi->works[what->queue];
  *place = post_job(mpi, work, job);
  return STATUS_OK;
}

static Status mpi_wait(Comm *comm, int32_t id) {
  Mpi *mpi = comm->state;
  Job **place = place_of_id(mpi, id), *job = *place;
  *place = NULL;
  if (job) wait_for_job(mpi, job); /* else its result had an earlier reader */
  return STATUS_OK;
}

static int find_done(Mpi *mpi, const int32_t *ids, int n) {
  for (int i = 0; i < n; i++) {
    const Job *job = *place_of_id(mpi, ids[i]);
    if (job && job->is_done) return i;
  }
  return -1;
}

static Status mpi_wait_any(Comm *comm, const int32_t *ids, int n, int *out) {
  Mpi *mpi = comm->state;
  FlightRecorder *recorder = mpi->comm->recorder;
  pthread_mutex_lock(&mpi->mutex);
  *out = find_done(mpi, ids, n);
  if (*out < 0) {
    atomic_store(&mpi->main_waits, true);
    if (recorder) atomic_store(&recorder->waits_since, clock_ns());
    while ((*out = find_done(mpi, ids, n)) < 0)
      pthread_cond_wait(&mpi->to_main, &mpi->mutex);
    if (recorder) atomic_store(&recorder->waits_since, 0);
    atomic_store(&mpi->main_waits, false);
  }
  pthread_mutex_unlock(&mpi->mutex);
  return STATUS_OK;
}

/* ---- what ranks agree upon ---- */

/* A collective of all ranks, or of two of them, over bytes; `peer` as in
 * DnnCollective. */
static Job *post_own(Mpi *mpi, DnnCollectiveKind kind, int peer, void *data,
                     int64_t bytes) {
  Job *job = take_unused(mpi);
  job->own_count = bytes;
  job->own = (DnnCollective){.kind = (uint8_t)kind,
                             .dtype = DNN_u8,
                             .id = HOST_ID,
                             .peer = peer,
                             .n_parts = 1,
                             .group = &mpi->all,
                             .counts = &job->own_count};
  job->own_part = comm_in_place(&job->own, mpi->place.rank, data, bytes);
  job->what = &job->own;
  job->parts = &job->own_part;
  return post_job(mpi, mpi->works[WORK_HOST], job);
}

static Status mpi_gather(Comm *comm, const void *data, int64_t bytes,
                         void *all) {
  memmove((char *)all + comm->rank * bytes, data, (size_t)bytes);
  wait_for_job(comm->state, post_own(comm->state, DNN_ALL_GATHER, 0, all,
                                     bytes * comm->world));
  return STATUS_OK;
}

static Status mpi_broadcast(Comm *comm, void *data, int64_t bytes, int root) {
  wait_for_job(comm->state,
               post_own(comm->state, DNN_BROADCAST, root, data, bytes));
  return STATUS_OK;
}

static Status mpi_transfer(Comm *comm, void *data, int64_t bytes, int from,
                           int to) {
  bool sends = comm->rank == from;
  wait_for_job(comm->state,
               post_own(comm->state, sends ? DNN_SEND : DNN_RECV,
                        (sends ? to : from) - comm->rank, data, bytes));
  return STATUS_OK;
}

static Status mpi_vote_start(Comm *comm, const CommVote *own) {
  Mpi *mpi = comm->state;
  int slot = (int)(mpi->n_votes++ % COMM_MOST_VOTES);
  CommVote *votes = &mpi->votes[slot * comm->world];
  ASSERT(!mpi->vote_jobs[slot]);
  votes[comm->rank] = *own;
  mpi->vote_jobs[slot] = post_own(mpi, DNN_ALL_GATHER, 0, votes,
                                  comm->world * (int64_t)sizeof *own);
  return STATUS_OK;
}

static Status mpi_vote_wait(Comm *comm, CommVote *out) {
  Mpi *mpi = comm->state;
  int slot = (int)(mpi->n_waited++ % COMM_MOST_VOTES);
  const CommVote *votes = &mpi->votes[slot * comm->world];
  ASSERT(mpi->vote_jobs[slot]);
  wait_for_job(mpi, mpi->vote_jobs[slot]);
  mpi->vote_jobs[slot] = NULL;
  *out = votes[0];
  for (int i = 1; i < comm->world; i++) comm_add_vote(out, &votes[i]);
  return STATUS_OK;
}

static Status mpi_barrier(Comm *comm) {
  Mpi *mpi = comm->state;
  wait_for_job(mpi, post_own(mpi, DNN_ALL_GATHER, 0, mpi->marks, comm->world));
  return STATUS_OK;
}

/* The communication thread takes them at its next tick. */
static void mpi_watch(Comm *comm, const DnnProgram *program) {
  Mpi *mpi = comm->state;
  for (int i = 0; i < program->n_groups; i++)
    comm_add_peers(&program->groups[i], comm->rank, mpi->is_wanted);
  for (int i = 0; i < program->n_pairs; i++)
    comm_add_pairs(&program->pairs[i], comm->rank, mpi->is_wanted);
  atomic_store(&mpi->has_wanted, true);
}

static void mpi_close(Comm *comm) {
  Mpi *mpi = comm->state;
  Job *stop = take_unused(mpi);
  stop->is_stop = true;
  post_job(mpi, mpi->works[WORK_HOST], stop);
  pthread_join(mpi->thread, NULL);
  dylib_close(mpi->dylib);
}

/* ---- creation ---- */

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

/* $DNN_MPI_CHUNK_BYTES: the largest message, for tests. */
static int64_t chunk_limit(void) {
  const char *text = getenv("DNN_MPI_CHUNK_BYTES");
  int64_t bytes = text ? strtoll(text, NULL, 10) : 0;
  return bytes >= 8 && bytes < MPI_LARGEST_CHUNK ? bytes / 8 * 8
                                                 : MPI_LARGEST_CHUNK;
}

/* Settings of Open MPI that its own environment or command line may replace.
 * Beyond its eager limit, a message over TCP waits for an answer of its
 * receiver before it is sent, and a link stands still: with the limit that is
 * the default, collectives reached 55 % of 1 Gbit/s, with this one 95 %. */
static void set_parameters(void) {
  char limit[32];
  snprintf(limit, sizeof limit, "%d", MPI_LARGEST_CHUNK + MPI_LARGEST_HEADER);
  setenv("OMPI_MCA_btl_tcp_eager_limit", limit, 0);
  setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
}

static void make_slots(Mpi *mpi, Arena *arena) {
  int64_t world = mpi->place.world;
  int64_t chunk = ALL_CHUNKS / (2 * world + 1) / 64 * 64;
  if (chunk < SMALLEST_CHUNK) chunk = SMALLEST_CHUNK;
  mpi->message_bytes = chunk_limit();
  if (chunk > mpi->message_bytes) chunk = mpi->message_bytes;
  mpi->chunk_bytes = chunk;
  mpi->works = ARENA_ARRAY(arena, Work * _Atomic, WORK_MESSAGES + 2 * world);
  mpi->n_works = WORK_MESSAGES;
  for (int q = 0; q < WORK_MESSAGES; q++) {
    mpi->works[q] = make_work(mpi, q);
    for (int i = 0; i < MPI_N_SLOTS; i++) {
      char *data = ARENA_ARRAY(arena, char, (2 * world + 1) * chunk);
      mpi->works[q]->slots[i] =
          (Slot){.in = data,
                 .out = data + world * chunk,
                 .own = data + 2 * world * chunk,
                 .members = ARENA_ARRAY(arena, const void *, world),
                 .requests = ARENA_ARRAY(arena, void *, 2 * world)};
      mpi->comm->buffer_bytes += (2 * world + 1) * chunk;
    }
  }
}

/* The launcher lets all ranks have the cores that it has itself.  Another one
 * may give each rank cores of its own, so that only those of the machine can be
 * compared with the number of ranks. */
static bool shares_cores(RankPlace place) {
  cpu_set_t set;
  if (getenv("DNN_LAUNCHER") && sched_getaffinity(0, sizeof set, &set) == 0)
    return place.local_world > CPU_COUNT(&set);
  long n = sysconf(_SC_NPROCESSORS_ONLN);
  return n > 0 && place.local_world > n;
}

static Status start_thread(Mpi *mpi) {
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_mutex_init(&mpi->mutex, NULL);
  pthread_cond_init(&mpi->to_thread, &attributes);
  pthread_cond_init(&mpi->to_main, &attributes);
  pthread_condattr_destroy(&attributes);
  int error = pthread_create(&mpi->thread, NULL, mpi_run_thread, mpi);
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
                 .wait_any = mpi_wait_any,
                 .barrier = mpi_barrier,
                 .broadcast = mpi_broadcast,
                 .gather = mpi_gather,
                 .transfer = mpi_transfer,
                 .vote_start = mpi_vote_start,
                 .vote_wait = mpi_vote_wait,
                 .watch = mpi_watch,
                 .close = mpi_close,
                 .state = mpi};
  mpi->comm = comm;
  mpi->arena = arena;
  mpi->place = place;
  mpi->shares_cores = shares_cores(place);
  mpi->all = group_of_all(0, place.world);
  mpi->votes = ARENA_ARRAY(arena, CommVote, COMM_MOST_VOTES * place.world);
  mpi->marks = ARENA_ARRAY(arena, unsigned char, place.world);
  mpi->peers = ARENA_ARRAY(arena, Peer, place.world);
  mpi->is_peer = ARENA_ARRAY(arena, unsigned char, place.world);
  mpi->is_wanted = ARENA_ARRAY(arena, unsigned char, place.world);
  mpi->limit_ns = (limit_s + AFTER_LAUNCHER_S) * 1000000000;
  TRY(load_mpi(mpi));
  set_parameters();
  make_slots(mpi, arena);
  make_jobs(mpi, FIRST_JOBS);
  (void)place_of_id(mpi, 0);
  TRY(start_thread(mpi));
  *out = comm;
  return STATUS_OK;
}
