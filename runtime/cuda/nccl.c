/*
 * nccl.c -- makes collectives between GPUs by NCCL, found at run time.
 *
 * The id of every group travels over the host's comm; then all ranks make the
 * group's communicator.  A bucket is one NCCL group call on the comm stream:
 * it waits there for an event of the compute stream, and the reader of its
 * results makes the compute stream wait for an event of this one.  The host
 * never waits for a collective; it learns of trouble while it waits for the
 * device, where communicators are asked for errors and deadlines are seen to.
 *
 * NCCL adds in an order that depends on the number of ranks, their topology and
 * the size, not on time; all ranks get the same bits.  It is not the ascending
 * order of the other transports, so losses agree with theirs to rounding only.
 *
 * Only all-reduce is supported yet, and times of collectives are not recorded.
 */
#include "runtime/comm/comm.h"
#include "runtime/cuda/cuda.h"

#include <limits.h>
#include <sched.h>
#include <string.h>

#define START_DEADLINE_NS (INT64_C(120) * 1000000000) /* all ranks come up */
#define CONFIG_MAGIC      0xcafebeefu
#define CONFIG_VERSION    21800u

typedef struct Group {
  const DnnGroup *digits;
  NcclComm comm; /* NULL after an abort */
} Group;

typedef struct NcclState {
  Comm *comm, *host;
  CudaState *cuda;
  Nccl nccl;
  Group *groups;
  int n_groups;
  CuEvent ready;  /* of the compute stream, for the current collective */
  CuEvent *ended; /* by id of the collective */
  int n_ids;
} NcclState;

/* ---- errors ---- */

static void abort_all(NcclState *state) {
  for (int i = 0; i < state->n_groups; i++) {
    if (state->groups[i].comm)
      (void)state->nccl.CommAbort(state->groups[i].comm);
    state->groups[i].comm = NULL;
  }
}

static Status nccl_error(NcclState *state, CuEnum error, const char *what) {
  Status status = status_make(STATUS_lost, "NCCL failed in %s: %s", what,
                              state->nccl.error_text(error));
  abort_all(state);
  return status;
}

static bool is_late(const NcclState *state, int64_t since) {
  const FlightRecorder *recorder = state->comm->recorder;
  int64_t limit =
      recorder ? atomic_load(&recorder->deadline_ns) : START_DEADLINE_NS;
  return limit && clock_ns() - since > limit;
}

static Status nccl_late(NcclState *state, int64_t since) {
  Status status = status_make(
      STATUS_lost, "no progress for %.0f s in a collective between GPUs",
      (double)(clock_ns() - since) * 1e-9);
  abort_all(state);
  return status;
}

/* Waits until a call that does not block has been carried out. */
static Status nccl_finish_call(NcclState *state, Group *group, CuEnum error,
                               const char *what) {
  int64_t since = clock_ns();
  while (error == NCCL_IN_PROGRESS) {
    CuEnum failed = state->nccl.CommGetAsyncError(group->comm, &error);
    if (failed) error = failed;
    if (error != NCCL_IN_PROGRESS) break;
    if (is_late(state, since)) return nccl_late(state, since);
    sched_yield();
  }
  return error ? nccl_error(state, error, what) : STATUS_OK;
}

/* Called by the device while it waits. */
static Status nccl_poll(void *user, int64_t since_ns) {
  NcclState *state = user;
  if (state->comm->recorder)
    atomic_store(&state->comm->recorder->waits_since, since_ns);
  if (!since_ns) return STATUS_OK;
  for (int i = 0; i < state->n_groups; i++) {
    CuEnum error = 0;
    if (!state->groups[i].comm) continue;
    CuEnum failed =
        state->nccl.CommGetAsyncError(state->groups[i].comm, &error);
    if (failed || (error && error != NCCL_IN_PROGRESS))
      return nccl_error(state, failed ? failed : error, "a collective");
  }
  return is_late(state, since_ns) ? nccl_late(state, since_ns) : STATUS_OK;
}

/* ---- collectives ---- */

/* NCCL's numbers; comm_check lets no dtype without one pass. */
static const int nccl_dtypes[] = {
#define DTYPE(name, size_bytes, class, c_type, safetensors, npy, digits,       \
              least, greatest, reduce, nccl, ...)                              \
  [DNN_##name] = NCCL_##nccl,
#include "support/dtype.def"
};

static const CuEnum nccl_reductions[] = {
#define REDUCTION(name, nccl, ...) [REDUCE_##name] = NCCL_##nccl,
#include "support/reductions.def"
};

static Group *find_group(NcclState *state, const DnnGroup *digits) {
  for (int i = 0; i < state->n_groups; i++)
    if (group_equal(state->groups[i].digits, digits)) return &state->groups[i];
  return NULL;
}

static Status all_reduce(NcclState *state, Group *group,
                         const DnnCollective *what, const CommPart *parts) {
  CuEnum error = state->nccl.GroupStart();
  for (int i = 0; i < what->n_parts && !error; i++) {
    error = state->nccl.AllReduce(
        parts[i].from, parts[i].to, (size_t)parts[i].count,
        (CuEnum)nccl_dtypes[what->dtype], nccl_reductions[what->reduce],
        group->comm, state->cuda->comm);
    if (error == NCCL_IN_PROGRESS) error = 0; /* until the group's end */
  }
  CuEnum end = state->nccl.GroupEnd();
  return nccl_finish_call(state, group, error ? error : end, "an all-reduce");
}

static Status nccl_start(Comm *comm, const DnnCollective *what,
                         const CommPart *parts) {
  NcclState *state = comm->state;
  CudaState *cuda = state->cuda;
  state->host->recorder = comm->recorder;
  TRY(comm_check(what));
  if (what->kind != DNN_ALL_REDUCE)
    return status_make(STATUS_unavailable,
                       "this collective between GPUs is not supported yet");
  Group *group = find_group(state, what->group);
  ASSERT(group && what->id >= 0 && what->id < state->n_ids);
  if (!group->comm)
    return status_make(STATUS_lost, "NCCL was stopped by an earlier failure");
  CU_TRY(cuda, "a collective", cuEventRecord, state->ready, cuda->compute);
  CU_TRY(cuda, "a collective", cuStreamWaitEvent, cuda->comm, state->ready, 0);
  TRY(all_reduce(state, group, what, parts));
  CU_TRY(cuda, "a collective", cuEventRecord, state->ended[what->id],
         cuda->comm);
  return STATUS_OK;
}

/* An event that was never recorded holds nobody up. */
static Status nccl_wait(Comm *comm, int32_t id) {
  NcclState *state = comm->state;
  if (id < 0 || id >= state->n_ids) return STATUS_OK;
  CU_TRY(state->cuda, "a collective", cuStreamWaitEvent, state->cuda->compute,
         state->ended[id], 0);
  return STATUS_OK;
}

/* ---- what goes over the host ---- */

static Comm *host_of(Comm *comm) {
  NcclState *state = comm->state;
  state->host->recorder = comm->recorder;
  return state->host;
}

static Status nccl_barrier(Comm *comm) {
  Comm *host = host_of(comm);
  return host->barrier(host);
}

static Status nccl_broadcast(Comm *comm, void *data, int64_t bytes, int root) {
  Comm *host = host_of(comm);
  return host->broadcast(host, data, bytes, root);
}

static Status nccl_gather(Comm *comm, const void *data, int64_t bytes,
                          void *all) {
  Comm *host = host_of(comm);
  return host->gather(host, data, bytes, all);
}

static Status nccl_vote_start(Comm *comm, int64_t value) {
  Comm *host = host_of(comm);
  return host->vote_start(host, value);
}

static Status nccl_vote_wait(Comm *comm, int64_t *out_greatest) {
  Comm *host = host_of(comm);
  return host->vote_wait(host, out_greatest);
}

/* The device goes first and takes its communicators with it. */
static void nccl_close(Comm *comm) {
  Comm *host = host_of(comm);
  host->close(host);
}

/* ---- beginning and end ---- */

static void nccl_release(void *user) {
  NcclState *state = user;
  CudaState *cuda = state->cuda;
  bool is_idle = cuda->driver.cuStreamQuery(cuda->comm) == 0;
  for (int i = 0; i < state->n_groups; i++) {
    Group *group = &state->groups[i];
    if (!group->comm) continue;
    if (is_idle &&
        nccl_finish_call(state, group, state->nccl.CommFinalize(group->comm),
                         "the end")
                .code == STATUS_ok)
      (void)state->nccl.CommDestroy(group->comm);
    else if (group->comm)
      (void)state->nccl.CommAbort(group->comm);
    group->comm = NULL;
  }
  for (int i = 0; i < state->n_ids; i++)
    if (state->ended[i]) cuda->driver.cuEventDestroy_v2(state->ended[i]);
  if (state->ready) cuda->driver.cuEventDestroy_v2(state->ready);
  dylib_close(state->nccl.library);
}

/* All ranks call this, those too that are in no such group. */
static Status join_group(NcclState *state, Arena *arena, Group *group) {
  Comm *host = state->host;
  const DnnGroup *digits = group->digits;
  bool is_member = group_has(digits, host->rank);
  int index = is_member ? group_index(digits, host->rank) : -1;
  NcclId id;
  memset(&id, 0, sizeof id);
  CuEnum error = index == 0 ? state->nccl.GetUniqueId(&id) : 0;
  if (error) return nccl_error(state, error, "ncclGetUniqueId");
  NcclId *all = ARENA_ARRAY(arena, NcclId, host->world);
  TRY(host->gather(host, &id, sizeof id, all));
  if (!is_member) return STATUS_OK;
  NcclConfig config = {.size = sizeof config,
                       .magic = CONFIG_MAGIC,
                       .version = CONFIG_VERSION,
                       .cga_cluster = INT_MIN,
                       .min_ctas = INT_MIN,
                       .max_ctas = INT_MIN,
                       .split_share = INT_MIN};
  int first = group_rank(digits, host->rank, 0);
  error = state->nccl.CommInitRankConfig(&group->comm, digits->size, all[first],
                                         index, &config);
  return nccl_finish_call(state, group, error, "ncclCommInitRankConfig");
}

/* The groups of the program, in its order, and how many ids there are. */
static void collect_groups(NcclState *state, Arena *arena,
                           const DnnProgram *program) {
  state->n_groups = program->n_groups;
  state->groups = ARENA_ARRAY(arena, Group, program->n_groups);
  for (int i = 0; i < program->n_groups; i++)
    state->groups[i].digits = &program->groups[i];
  for (int c = 0; c < program->n_entry_points; c++)
    for (int i = 0; i < program->entry_points[c].n_instrs; i++) {
      const DnnInstr *instr = &program->entry_points[c].instrs[i];
      if (instr->op != DNN_OP_COLLECTIVE) continue;
      const DnnCollective *what = instr->detail;
      if (what->id >= state->n_ids) state->n_ids = what->id + 1;
    }
}

static Status make_events(NcclState *state, Arena *arena) {
  CU_TRY(state->cuda, NULL, cuEventCreate, &state->ready, CU_NO_TIMING);
  state->ended = ARENA_ARRAY(arena, CuEvent, state->n_ids);
  for (int i = 0; i < state->n_ids; i++)
    CU_TRY(state->cuda, NULL, cuEventCreate, &state->ended[i], CU_NO_TIMING);
  return STATUS_OK;
}

Status comm_nccl_create(Arena *arena, Comm *host, Device *device, Comm **out) {
  ASSERT(strcmp(device->name, "cuda") == 0);
  NcclState *state = ARENA_NEW(arena, NcclState);
  Comm *comm = ARENA_NEW(arena, Comm);
  *comm = (Comm){.name = "nccl",
                 .rank = host->rank,
                 .world = host->world,
                 .local_rank = host->local_rank,
                 .local_world = host->local_world,
                 .start = nccl_start,
                 .wait = nccl_wait,
                 .barrier = nccl_barrier,
                 .broadcast = nccl_broadcast,
                 .gather = nccl_gather,
                 .vote_start = nccl_vote_start,
                 .vote_wait = nccl_vote_wait,
                 .close = nccl_close,
                 .recorder = host->recorder,
                 .state = state};
  state->comm = comm;
  state->host = host;
  state->cuda = device->state;
  TRY(cuda_load_nccl(&state->nccl));
  state->cuda->user = state;
  state->cuda->before_close = nccl_release;
  collect_groups(state, arena, device->program);
  TRY(make_events(state, arena));
  for (int i = 0; i < state->n_groups; i++)
    TRY(join_group(state, arena, &state->groups[i]));
  state->cuda->poll = nccl_poll;
  *out = comm;
  return STATUS_OK;
}
