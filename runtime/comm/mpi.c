/*
 * mpi.c -- ranks in processes, joined by Open MPI.
 *
 * One thread makes every MPI call, so that collectives go on while the main
 * thread computes, and so that MPI needs no locks.  It is fed jobs in order,
 * which is the same order on all ranks, and does one after the other.
 *
 * All-reduce, in rounds of one chunk per rank:
 *
 *     reduce-scatter   every rank sends chunk q to rank q, which adds the W
 *                      contributions in ascending rank order
 *     all-gather       rank q sends the sum to everybody
 *
 * Every element is added once, by one rank, in one order: replicas are equal
 * bit for bit, and no result depends on timing.  Two rounds are in flight, so
 * that adding overlaps sending.  Chunks that lie in one tensor are sent from
 * and received into their place; only those across a border are copied.
 *
 * Open MPI notices a dead rank but not a silent one.  So the same thread sends
 * a beat to both neighbours every second, and ends the process when one has
 * been silent for 8 s, when the main thread has waited beyond its deadline or
 * when the launcher has gone: a report of where we are, then _exit, because
 * after that no collective can be trusted to return.
 */
#include "runtime/comm/mpi.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum {
  THREAD_FUNNELED = 1,
  SUCCESS = 0,
  EXIT_LOST = 3,
  AFTER_LAUNCHER_S = 2, /* it knows who is late, and is first to say so */
  SMALLEST_CHUNK = 16 << 10,
  ALL_CHUNKS = 4 << 20, /* of one slot, if that leaves SMALLEST_CHUNK */
  TAG_BEAT = 1 << 28,
  TAG_HOST = (1 << 28) + 1
};
static const int64_t beat_ns = 1000000000, silent_ns = 8000000000,
                     tick_ns = 100000000;

/* ---- the end of a run that cannot go on ---- */

_Noreturn static void give_up(Mpi *mpi, int lost, const char *why) {
  Watch *watch = mpi->comm->watch;
  if (watch) {
    watch_report(watch, why);
    if (lost >= 0) watch_tell(watch, "lost %d", lost);
    watch_tell(watch, "ended %d", EXIT_LOST);
  } else {
    message_print("rank %d: %s\n", mpi->place.rank, why);
  }
  mpi_end_daemon(&mpi->place);
  _exit(EXIT_LOST);
}

static void check(Mpi *mpi, int code, const char *doing) {
  if (code == SUCCESS) return;
  char text[512] = "", why[640];
  int n = 0;
  mpi->api.Error_string(code, text, &n);
  snprintf(why, sizeof why, "MPI failed while it %s: %s", doing, text);
  give_up(mpi, -1, why);
}

/* ---- beats ---- */

static void listen_to(Mpi *mpi, Neighbour *neighbour) {
  check(mpi,
        mpi->api.Irecv(&neighbour->in, sizeof(Beat), mpi->api.byte,
                       neighbour->rank, TAG_BEAT, mpi->api.world,
                       &neighbour->receive),
        "listened for a beat");
}

static bool test(Mpi *mpi, void **request) {
  int flag = 0;
  check(mpi, mpi->api.Test(request, &flag, NULL), "tested a message");
  return flag;
}

static void send_beats(Mpi *mpi, int64_t now) {
  const Watch *watch = mpi->comm->watch;
  mpi->last_beat_ns = now;
  for (int i = 0; i < mpi->n_neighbours; i++) {
    Neighbour *neighbour = &mpi->neighbours[i];
    if (neighbour->send && !test(mpi, &neighbour->send)) continue;
    if (watch)
      neighbour->out =
          (Beat){atomic_load(&watch->step), atomic_load(&watch->instr)};
    check(mpi,
          mpi->api.Isend(&neighbour->out, sizeof(Beat), mpi->api.byte,
                         neighbour->rank, TAG_BEAT, mpi->api.world,
                         &neighbour->send),
          "sent a beat");
  }
}

static void hear_beats(Mpi *mpi, int64_t now) {
  for (int i = 0; i < mpi->n_neighbours; i++) {
    Neighbour *neighbour = &mpi->neighbours[i];
    Beat last = neighbour->in;
    while (test(mpi, &neighbour->receive)) {
      neighbour->heard_ns = now;
      last = neighbour->in;
      listen_to(mpi, neighbour);
    }
    neighbour->in = last;
    int64_t silence =
        now - (neighbour->heard_ns ? neighbour->heard_ns : mpi->started_ns);
    if (silence < (neighbour->heard_ns ? silent_ns : mpi->limit_ns)) continue;
    char why[200];
    snprintf(why, sizeof why,
             "lost rank %d: nothing heard of it for %.1f s; it was at step "
             "%lld, instruction %lld",
             neighbour->rank, (double)silence * 1e-9, (long long)last.step,
             (long long)last.instr);
    give_up(mpi, neighbour->rank, why);
  }
}

static void check_deadline(Mpi *mpi, int64_t now) {
  Watch *watch = mpi->comm->watch;
  if (!watch) return;
  if (watch_launcher_is_gone(watch)) {
    if (watch->local_rank == 0) give_up(mpi, -1, "the launcher has gone");
    _exit(EXIT_LOST);
  }
  int64_t since = atomic_load(&watch->waits_since);
  int64_t deadline = atomic_load(&watch->deadline_ns);
  if (!since || !deadline || now - since < deadline) return;
  const Neighbour *n = &mpi->neighbours[0];
  char why[200];
  snprintf(why, sizeof why,
           "no progress for %.0f s; rank %d is at step %lld, instruction %lld",
           (double)(now - since) * 1e-9, n->rank, (long long)n->in.step,
           (long long)n->in.instr);
  give_up(mpi, -1, why);
}

static void tick(Mpi *mpi) {
  int64_t now = clock_ns();
  if (now - mpi->last_tick_ns < tick_ns) return;
  /* If we were stopped ourselves, silence means nothing. */
  if (now - mpi->last_tick_ns > 2 * beat_ns)
    for (int i = 0; i < mpi->n_neighbours; i++)
      if (mpi->neighbours[i].heard_ns) mpi->neighbours[i].heard_ns = now;
  mpi->last_tick_ns = now;
  if (now - mpi->last_beat_ns >= beat_ns) send_beats(mpi, now);
  hear_beats(mpi, now);
  check_deadline(mpi, now);
}

/* ---- messages ---- */

/* While the main thread computes, polling would take its core: then sleep,
 * longer and longer up to 0.2 ms. */
static void pause_polling(Mpi *mpi, int n_polls) {
  if (atomic_load_explicit(&mpi->main_waits, memory_order_relaxed)) {
    sched_yield();
    return;
  }
  int64_t sleep_ns = 10000 + (int64_t)n_polls * 5000;
  if (sleep_ns > 200000) sleep_ns = 200000;
  nanosleep(&(struct timespec){.tv_nsec = sleep_ns}, NULL);
}

void mpi_finish(Mpi *mpi, void **requests, int n) {
  for (int polls = 0;; polls++) {
    int flag = 0;
    check(mpi, mpi->api.Testall(n, requests, &flag, NULL), "waited");
    if (flag) return;
    tick(mpi);
    pause_polling(mpi, polls);
  }
}

void mpi_send(Mpi *mpi, const void *data, int64_t bytes, int to, int tag,
              void **request) {
  check(mpi,
        mpi->api.Isend(data, (int)bytes, mpi->api.byte, to, tag, mpi->api.world,
                       request),
        "sent");
}

void mpi_receive(Mpi *mpi, void *data, int64_t bytes, int from, int tag,
                 void **request) {
  check(mpi,
        mpi->api.Irecv(data, (int)bytes, mpi->api.byte, from, tag,
                       mpi->api.world, request),
        "received");
}

/* ---- all-reduce ---- */

int mpi_tag(const Reduction *r, const Slot *slot, Phase phase) {
  return (r->what->id & 0xfffff) << 6 | (slot->round & 0xf) << 2 | (int)phase;
}

int mpi_member(const Reduction *r, int index) {
  return r->group.base + index * r->group.stride;
}

/* Elements of member `index` in the round; may be none. */
static int64_t slice_of(const Slot *slot, int index, int64_t *out_begin) {
  int64_t begin = slot->begin + index * slot->slice;
  int64_t end = begin + slot->slice;
  if (begin > slot->end) begin = slot->end;
  if (end > slot->end) end = slot->end;
  *out_begin = begin;
  return end - begin;
}

void mpi_exchange_headers(const Reduction *r, Slot *slot) {
  Mpi *mpi = r->mpi;
  const Watch *watch = mpi->comm->watch;
  int size = r->group.size, index = r->group.index;
  int64_t kind = r->what->kind == DNN_RECV ? DNN_SEND : r->what->kind;
  mpi->header_out = (Header){r->what->id, kind, r->what->dtype, r->n * r->item,
                             watch ? atomic_load(&watch->step) : 0};
  int tag = mpi_tag(r, slot, PHASE_header);
  mpi_send(mpi, &mpi->header_out, sizeof(Header),
           mpi_member(r, (index + 1) % size), tag,
           &slot->requests[slot->n_requests++]);
  mpi_receive(mpi, &mpi->header_in, sizeof(Header),
              mpi_member(r, (index + size - 1) % size), tag,
              &slot->requests[slot->n_requests++]);
}

void mpi_check_header(const Reduction *r) {
  const Header *in = &r->mpi->header_in, *out = &r->mpi->header_out;
  if (memcmp(in, out, sizeof *in) == 0) return;
  char why[300];
  int size = r->group.size;
  snprintf(why, sizeof why,
           "ranks disagree: this one is at step %lld, collective %lld of %lld "
           "bytes, rank %d at step %lld, collective %lld of %lld bytes",
           (long long)out->step, (long long)out->id, (long long)out->bytes,
           mpi_member(r, (r->group.index + size - 1) % size),
           (long long)in->step, (long long)in->id, (long long)in->bytes);
  give_up(r->mpi, -1, why);
}

static void begin_scatter(const Reduction *r, Slot *slot) {
  Mpi *mpi = r->mpi;
  int tag = mpi_tag(r, slot, PHASE_scatter);
  int64_t own_begin, own = slice_of(slot, r->group.index, &own_begin);
  slot->n_requests = 0;
  if (slot->round == 0) mpi_exchange_headers(r, slot);
  for (int i = 1; i < r->group.size; i++) {
    int peer = (r->group.index + i) % r->group.size;
    if (own > 0)
      mpi_receive(mpi, slot->in + peer * mpi->chunk_bytes, own * r->item,
                  mpi_member(r, peer), tag,
                  &slot->requests[slot->n_requests++]);
  }
  for (int i = 1; i < r->group.size; i++) {
    int peer = (r->group.index + i) % r->group.size;
    int64_t begin, n = slice_of(slot, peer, &begin);
    if (n == 0) continue;
    char *data = comm_direct(r->what, r->parts, begin, n);
    if (!data) {
      data = slot->out + peer * mpi->chunk_bytes;
      comm_copy(r->what, r->parts, begin, n, data, true);
    }
    mpi_send(mpi, data, n * r->item, mpi_member(r, peer), tag,
             &slot->requests[slot->n_requests++]);
  }
}

/* The sum of the own slice, in ascending order; result: where it lies. */
static char *add_up(const Reduction *r, Slot *slot, int64_t begin, int64_t n) {
  char *own = comm_direct(r->what, r->parts, begin, n);
  bool is_direct = own != NULL;
  if (!own) {
    own = slot->own;
    comm_copy(r->what, r->parts, begin, n, own, true);
  }
  char *sum = r->group.index == 0 ? own : slot->in;
  for (int i = 1; i < r->group.size; i++)
    comm_reduce(r->what, sum,
                i == r->group.index ? own : slot->in + i * r->mpi->chunk_bytes,
                n);
  if (sum != own && is_direct) memcpy(own, sum, (size_t)(n * r->item));
  if (!is_direct) comm_copy(r->what, r->parts, begin, n, sum, false);
  return sum;
}

static void begin_gather(const Reduction *r, Slot *slot) {
  Mpi *mpi = r->mpi;
  mpi_finish(mpi, slot->requests, slot->n_requests);
  if (slot->round == 0) mpi_check_header(r);
  int tag = mpi_tag(r, slot, PHASE_gather);
  int64_t own_begin, own = slice_of(slot, r->group.index, &own_begin);
  slot->n_requests = 0;
  for (int i = 1; i < r->group.size; i++) {
    int peer = (r->group.index + i) % r->group.size;
    int64_t begin, n = slice_of(slot, peer, &begin);
    if (n == 0) continue;
    char *data = comm_direct(r->what, r->parts, begin, n);
    if (!data) data = slot->out + peer * mpi->chunk_bytes;
    mpi_receive(mpi, data, n * r->item, mpi_member(r, peer), tag,
                &slot->requests[slot->n_requests++]);
  }
  if (own == 0) return;
  char *sum = add_up(r, slot, own_begin, own);
  for (int i = 1; i < r->group.size; i++)
    mpi_send(mpi, sum, own * r->item,
             mpi_member(r, (r->group.index + i) % r->group.size), tag,
             &slot->requests[slot->n_requests++]);
}

static void finish_gather(const Reduction *r, Slot *slot) {
  mpi_finish(r->mpi, slot->requests, slot->n_requests);
  slot->n_requests = 0;
  for (int peer = 0; peer < r->group.size; peer++) {
    int64_t begin, n = slice_of(slot, peer, &begin);
    if (peer == r->group.index || n == 0 ||
        comm_direct(r->what, r->parts, begin, n))
      continue;
    comm_copy(r->what, r->parts, begin, n,
              slot->out + peer * r->mpi->chunk_bytes, false);
  }
}

static void run_all_reduce(Mpi *mpi, const Job *job) {
  Reduction r = {.mpi = mpi,
                 .what = job->what,
                 .parts = job->parts,
                 .group = comm_group(job->what, mpi->place.rank),
                 .item = dtype_bytes(job->what->dtype),
                 .n = comm_count(job->what)};
  if (r.group.size == 1 || r.n == 0) return;
  int64_t slice = mpi->chunk_bytes / r.item;
  int64_t per_round = slice * r.group.size;
  int n_rounds = (int)((r.n + per_round - 1) / per_round);
  for (int i = 0; i < n_rounds; i++) {
    Slot *slot = &mpi->slots[i % 2];
    if (i >= 2) finish_gather(&r, slot);
    slot->round = i;
    slot->begin = i * per_round;
    slot->end = slot->begin + per_round < r.n ? slot->begin + per_round : r.n;
    slot->slice = (slot->end - slot->begin + r.group.size - 1) / r.group.size;
    begin_scatter(&r, slot);
    if (i >= 1) begin_gather(&r, &mpi->slots[(i - 1) % 2]);
  }
  begin_gather(&r, &mpi->slots[(n_rounds - 1) % 2]);
  if (n_rounds > 1) finish_gather(&r, &mpi->slots[n_rounds % 2]);
  finish_gather(&r, &mpi->slots[(n_rounds - 1) % 2]);
}

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
      run_all_reduce(mpi, job);
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
  if (mpi->api.Init_thread(NULL, NULL, THREAD_FUNNELED, &provided) != SUCCESS)
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
    listen_to(mpi, &mpi->neighbours[i]);
  return STATUS_OK;
}

/* Waits for a job or, for a tenth of a second, for nothing. */
static Job *next_job(Mpi *mpi) {
  pthread_mutex_lock(&mpi->mutex);
  if (mpi->n_run == mpi->n_posted) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += tick_ns;
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

/* From here on everybody beats: the long patience of the start is over. */
static void meet_first(Mpi *mpi) {
  int64_t none = 0;
  run_gather(mpi, &none, sizeof none, mpi->slots[0].own);
  for (int i = 0; i < mpi->n_neighbours; i++)
    mpi->neighbours[i].heard_ns = clock_ns();
}

static void *communicate(void *user) {
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
    tick(mpi);
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

static Job *post(Mpi *mpi, Job job) {
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

static void wait_for(Mpi *mpi, Job *job) {
  Watch *watch = mpi->comm->watch;
  pthread_mutex_lock(&mpi->mutex);
  if (!job->is_done) {
    atomic_store(&mpi->main_waits, true);
    if (watch) atomic_store(&watch->waits_since, clock_ns());
    while (!job->is_done) pthread_cond_wait(&mpi->to_main, &mpi->mutex);
    if (watch) atomic_store(&watch->waits_since, 0);
    atomic_store(&mpi->main_waits, false);
  }
  job->is_free = true;
  pthread_mutex_unlock(&mpi->mutex);
}

static Status mpi_start(Comm *comm, const DnnCollective *what,
                        const CommPart *parts) {
  TRY(comm_check(what));
  post(comm->state,
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
    wait_for(mpi, job);
    return STATUS_OK;
  }
  return STATUS_OK; /* its result had an earlier reader */
}

static Status mpi_gather(Comm *comm, const void *data, int64_t bytes,
                         void *all) {
  wait_for(comm->state, post(comm->state, (Job){.kind = JOB_gather,
                                                .data = (void *)data,
                                                .bytes = bytes,
                                                .all = all}));
  return STATUS_OK;
}

static Status mpi_broadcast(Comm *comm, void *data, int64_t bytes, int root) {
  wait_for(comm->state, post(comm->state, (Job){.kind = JOB_broadcast,
                                                .data = data,
                                                .bytes = bytes,
                                                .root = root}));
  return STATUS_OK;
}

static Status mpi_barrier(Comm *comm) {
  wait_for(comm->state, post(comm->state, (Job){.kind = JOB_vote}));
  return STATUS_OK;
}

static Status mpi_vote_start(Comm *comm, int64_t value) {
  Mpi *mpi = comm->state;
  ASSERT(!mpi->vote);
  mpi->vote = post(mpi, (Job){.kind = JOB_vote, .value = value});
  return STATUS_OK;
}

static Status mpi_vote_wait(Comm *comm, int64_t *out_greatest) {
  Mpi *mpi = comm->state;
  ASSERT(mpi->vote);
  wait_for(mpi, mpi->vote);
  *out_greatest = mpi->vote->value;
  mpi->vote = NULL;
  return STATUS_OK;
}

static void mpi_close(Comm *comm) {
  Mpi *mpi = comm->state;
  wait_for(mpi, post(mpi, (Job){.kind = JOB_stop}));
  pthread_join(mpi->thread, NULL);
  dylib_close(mpi->dylib);
}

static Status load(Mpi *mpi) {
  static const char *const names[] = {"libmpi.so.40", NULL};
  Status status = dylib_open("DNN_MPI_LIB", names, &mpi->dylib);
  if (status.code != STATUS_ok)
    return status_make(STATUS_unavailable,
                       "%s; several ranks need Open MPI (apt-get install "
                       "openmpi-bin)",
                       status.message);
  Api *api = &mpi->api;
  void *symbol;
  bool is_whole = true;
#define MPI(name, parameters)                                                  \
  symbol = dylib_symbol(mpi->dylib, "MPI_" #name);                             \
  memcpy(&api->name, &symbol, sizeof symbol);                                  \
  is_whole = is_whole && symbol;
#include "runtime/comm/mpi.def"
  api->world = dylib_symbol(mpi->dylib, "ompi_mpi_comm_world");
  api->byte = dylib_symbol(mpi->dylib, "ompi_mpi_byte");
  api->errors_return = dylib_symbol(mpi->dylib, "ompi_mpi_errors_return");
  if (is_whole && api->world && api->byte && api->errors_return)
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
  int error = pthread_create(&mpi->thread, NULL, communicate, mpi);
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
  TRY(load(mpi));
  make_slots(mpi, arena);
  TRY(start_thread(mpi));
  *out = comm;
  return STATUS_OK;
}
