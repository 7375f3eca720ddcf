/*
 * mpi_queues.c -- runs the collectives of all queues on one thread, which makes
 * every MPI call, so that they proceed while the main thread computes and MPI
 * needs no locks.
 *
 * A queue has one collective or message at work.  Each is a sequence of steps
 * that begin transfers once those before have ended.  The thread asks the
 * queues by turns, so a small message does not wait for a large one in another
 * queue.
 */
#include "runtime/comm/mpi.h"

#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { THREAD_FUNNELED = 1 };

/* ---- one collective ---- */

static void begin_job(Work *work, Job *job) {
  work->job = job;
  work->what = job->what;
  work->parts = job->parts;
  work->group = comm_group(job->what, work->mpi->place.rank);
  work->item = dtype_bytes(job->what->dtype);
  work->n = comm_count(job->what);
  work->step = 0;
  work->begin_ns = clock_ns();
  for (int i = 0; i < MPI_N_SLOTS; i++)
    work->slots[i].n = work->slots[i].begin = work->slots[i].n_requests = 0;
  mpi_exchange_headers(work);
  if (job->what->kind == DNN_ALL_REDUCE)
    mpi_begin_all_reduce(work);
  else
    mpi_begin_moves(work);
}

/* Its transfers may be over before it is known whether all meant the same. What
 * is received is looked at after its header: MPI would complain first where it
 * is too long. */
static Progress step_job(Work *work) {
  bool has_header = mpi_check_header(work);
  if (!has_header && work->queue >= WORK_MESSAGES &&
      work->what->kind == DNN_RECV)
    return PROGRESS_none;
  if (work->step < 0) return has_header ? PROGRESS_done : PROGRESS_none;
  if (work->group.size == 1) {
    comm_alone(work->what, work->parts);
    return PROGRESS_done;
  }
  Progress progress = work->what->kind == DNN_ALL_REDUCE
                          ? mpi_step_all_reduce(work)
                          : mpi_step_moves(work);
  if (progress != PROGRESS_done || has_header) return progress;
  work->step = -1;
  return PROGRESS_some;
}

static void add_event(Comm *comm, const DnnCollective *what, int64_t begin) {
  CommEvents *events = comm->events;
  if (!events || what->id < 0) return;
  int32_t n = atomic_load(&events->n);
  if (n >= events->capacity) return;
  events->data[n] =
      (CommEvent){what->id, begin, clock_ns(), comm_payload(what)};
  atomic_store(&events->n, n + 1);
}

/* Runs a collective that the main thread knows nothing about. */
static void run_alone(Mpi *mpi, Job *job) {
  Work *work = mpi->works[WORK_HOST];
  begin_job(work, job);
  for (int polls = 0;;) {
    Progress progress = step_job(work);
    if (progress == PROGRESS_done) break;
    mpi_tick(mpi);
    if (progress == PROGRESS_none)
      mpi_pause(mpi, polls++);
    else
      polls = 0;
  }
  work->job = NULL;
}

/* Everybody waits for everybody. */
static void meet_all(Mpi *mpi) {
  static const DnnCollective nothing = {
      .kind = DNN_ALL_GATHER, .dtype = DNN_u8, .id = -1};
  DnnCollective what = nothing;
  Job job = {.what = &what, .parts = &job.own_part, .own_count = mpi->all.size};
  what.group = &mpi->all;
  what.n_parts = 1;
  what.counts = &job.own_count;
  job.own_part =
      comm_in_place(&what, mpi->place.rank, mpi->marks, job.own_count);
  run_alone(mpi, &job);
}

/* ---- the thread ---- */

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
  mpi_begin_heartbeats(mpi);
  return STATUS_OK;
}

static bool has_jobs(const Mpi *mpi) {
  for (int q = 0; q < mpi->n_works; q++)
    if (mpi->works[q] && mpi->works[q]->first) return true;
  return false;
}

static bool is_working(const Mpi *mpi) {
  for (int q = 0; q < mpi->n_works; q++)
    if (mpi->works[q] && mpi->works[q]->job) return true;
  return false;
}

static void wait_for_jobs(Mpi *mpi) {
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_nsec += MPI_TICK_NS;
  until.tv_sec += until.tv_nsec / 1000000000;
  until.tv_nsec %= 1000000000;
  pthread_cond_timedwait(&mpi->to_thread, &mpi->mutex, &until);
}

/* Takes the next job of every queue that has none at work; without any it waits
 * for one or, for a tenth of a second, for nothing.  False: there is none. */
static bool take_jobs(Mpi *mpi) {
  bool works = is_working(mpi);
  pthread_mutex_lock(&mpi->mutex);
  if (!works && !has_jobs(mpi)) wait_for_jobs(mpi);
  for (int q = 0; q < mpi->n_works; q++) {
    Work *work = mpi->works[q];
    if (!work || work->job || !work->first) continue;
    work->taken = work->first;
    work->first = work->first->next;
  }
  pthread_mutex_unlock(&mpi->mutex);
  for (int q = 0; q < mpi->n_works; q++) {
    Work *work = mpi->works[q];
    Job *job = work ? work->taken : NULL;
    if (!job) continue;
    work->taken = NULL;
    works = true;
    if (job->is_stop)
      work->job = job;
    else
      begin_job(work, job);
  }
  return works;
}

static void finish_job(Work *work) {
  Mpi *mpi = work->mpi;
  add_event(mpi->comm, work->what, work->begin_ns);
  pthread_mutex_lock(&mpi->mutex);
  work->job->is_done = true;
  pthread_cond_broadcast(&mpi->to_main);
  pthread_mutex_unlock(&mpi->mutex);
  work->job = NULL;
}

/* A step of each queue; false: the stop was reached, and the others have
 * nothing left. */
static bool step_queues(Mpi *mpi, Progress *out) {
  bool is_stopped = false, is_busy = false;
  *out = PROGRESS_none;
  for (int q = 0; q < mpi->n_works; q++) {
    Work *work = mpi->works[q];
    if (!work || !work->job) continue;
    if (work->job->is_stop) {
      is_stopped = true;
      continue;
    }
    is_busy = true;
    Progress progress = step_job(work);
    if (progress == PROGRESS_done) finish_job(work);
    if (progress != PROGRESS_none) *out = PROGRESS_some;
  }
  return !is_stopped || is_busy;
}

/* struct sched_attr of the kernel, sched_setattr(2). */
typedef struct SchedAttr {
  uint32_t size, policy;
  uint64_t flags;
  int32_t nice;
  uint32_t priority;
  uint64_t runtime_ns, deadline_ns, period_ns;
} SchedAttr;

/* The main thread computes on the same core.  A thread that sleeps between
 * messages would wait for the end of the other one's slice, 3 ms, each time:
 * 16 MB of an all-reduce took 89 ms beside matmuls, and 16 ms with this.  It
 * gets no more of the core, but sooner.  Linux before 6.12 has no slices for
 * single threads and ignores it. */
static void ask_for_short_slices(void) {
  enum { SLICE_NS = 100000 };
  SchedAttr attr = {.size = sizeof attr};
  if (syscall(SYS_sched_getattr, 0, &attr, sizeof attr, 0) != 0) return;
  attr.runtime_ns = SLICE_NS;
  if (attr.policy == SCHED_OTHER) syscall(SYS_sched_setattr, 0, &attr, 0);
}

void *mpi_run_thread(void *user) {
  Mpi *mpi = user;
  prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);
  ask_for_short_slices();
  Status status = start_mpi(mpi);
  if (status.code == STATUS_ok) meet_all(mpi);
  mpi_expect_heartbeats(mpi);
  pthread_mutex_lock(&mpi->mutex);
  mpi->start_status = status;
  mpi->is_started = true;
  pthread_cond_broadcast(&mpi->to_main);
  pthread_mutex_unlock(&mpi->mutex);
  if (status.code != STATUS_ok) return NULL;
  for (int polls = 0;;) {
    bool has_work = take_jobs(mpi);
    Progress progress;
    mpi_tick(mpi);
    if (!step_queues(mpi, &progress)) break;
    if (has_work && progress == PROGRESS_none)
      mpi_pause(mpi, polls++);
    else
      polls = 0;
  }
  /* Ranks that leave early must not look lost to the others. */
  meet_all(mpi);
  mpi->api.Finalize();
  return NULL;
}
