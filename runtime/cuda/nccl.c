/*
 * nccl.c -- makes collectives between GPUs by NCCL, found at run time.
 *
 * A group has a communicator for each queue that its collectives use, and a
 * queue has a stream.  The messages from one rank to another have a
 * communicator of two; those that a rank sends have a stream, and those that it
 * receives. All are made at start, in the order of the tables of groups and of
 * pairs, which are the same on all ranks, whatever their own programs use.  The
 * ids of communicators travel over the host's comm.  A collective is one NCCL
 * group call on the stream of its queue: it waits there for an event of the
 * compute stream, and the reader of its results makes the compute stream wait
 * for an event of this one.  Every rank launches in the order of its program,
 * which is one order on all ranks.  The host never waits for a collective; it
 * learns of trouble while it waits for the device, where communicators are
 * asked for errors and deadlines are seen to.
 *
 * NCCL adds in an order that depends on the number of ranks, their topology and
 * the size, not on time; all ranks get the same bits.  It is not the ascending
 * order of the other transports, so losses agree with theirs to rounding only.
 *
 * Programs for GPUs add 16-bit floats in f32 (passes/spmd/placement.c), so sums
 * of 16-bit floats are refused.  Times of collectives are not recorded.
 */
#include "runtime/comm/comm.h"
#include "runtime/cuda/cuda.h"

#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define START_DEADLINE_NS (INT64_C(120) * 1000000000) /* all ranks come up */
#define CONFIG_MAGIC      0xcafebeefu
#define CONFIG_VERSION    21800u

typedef struct Group {
  const DnnGroup *digits;
  bool has_queue[DNN_N_QUEUES];
  NcclComm comms[DNN_N_QUEUES]; /* NULL: not a member, or after an abort */
} Group;

/* The messages that this rank sends or receives on one way. */
typedef struct Way {
  int from, to;
  NcclComm comm; /* NULL: after an abort */
} Way;

typedef struct NcclState {
  Comm *comm, *host;
  CudaState *cuda;
  Nccl nccl;
  Group *groups;
  int n_groups;
  Way *ways;
  int n_ways;
  CuEvent ready;  /* of the compute stream, for the current collective */
  CuEvent *ended; /* by id of the collective */
  int n_ids;
  bool is_started; /* all communicators are there */
} NcclState;

/* ---- errors ---- */

static int n_comms(const NcclState *state) {
  return state->n_groups * DNN_N_QUEUES + state->n_ways;
}

/* All communicators, those of one group after the other. */
static NcclComm *comm_at(NcclState *state, int i) {
  if (i >= state->n_groups * DNN_N_QUEUES)
    return &state->ways[i - state->n_groups * DNN_N_QUEUES].comm;
  return &state->groups[i / DNN_N_QUEUES].comms[i % DNN_N_QUEUES];
}

static void abort_all(NcclState *state) {
  for (int i = 0; i < n_comms(state); i++) {
    NcclComm *comm = comm_at(state, i);
    if (*comm) (void)state->nccl.CommAbort(*comm);
    *comm = NULL;
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
  int64_t limit = recorder && state->is_started
                      ? atomic_load(&recorder->deadline_ns)
                      : START_DEADLINE_NS;
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
static Status nccl_finish_call(NcclState *state, NcclComm comm, CuEnum error,
                               const char *what) {
  int64_t since = clock_ns();
  while (error == NCCL_IN_PROGRESS) {
    CuEnum failed = state->nccl.CommGetAsyncError(comm, &error);
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
  for (int i = 0; i < n_comms(state); i++) {
    CuEnum error = 0;
    NcclComm comm = *comm_at(state, i);
    if (!comm) continue;
    CuEnum failed = state->nccl.CommGetAsyncError(comm, &error);
    if (failed || (error && error != NCCL_IN_PROGRESS))
      return nccl_error(state, failed ? failed : error, "a collective");
  }
  return is_late(state, since_ns) ? nccl_late(state, since_ns) : STATUS_OK;
}

/* ---- collectives ---- */

/* NCCL's numbers; check_reduction lets no dtype without one pass. */
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

/* A collective on its communicator. */
typedef struct Launch {
  const Nccl *nccl;
  const DnnCollective *what;
  NcclComm comm;
  CuStream stream;
  int size, index; /* of the communicator; ours in it */
} Launch;

/* Data that is only moved goes as bytes, so that it may have any dtype. */
static CuEnum send_bytes(const Launch *l, const CommPart *part, int64_t at,
                         int64_t n, int to) {
  int64_t item = dtype_bytes(l->what->dtype);
  return l->nccl->Send((const char *)part->from + at * item, (size_t)(n * item),
                       NCCL_Uint8, to, l->comm, l->stream);
}

static CuEnum receive_bytes(const Launch *l, const CommPart *part, int64_t at,
                            int64_t n, int from) {
  int64_t item = dtype_bytes(l->what->dtype);
  return l->nccl->Recv((char *)part->to + at * item, (size_t)(n * item),
                       NCCL_Uint8, from, l->comm, l->stream);
}

static CuEnum exchange_shards(const Launch *l, const CommPart *part) {
  int64_t shard = part->count / l->size;
  CuEnum error = 0;
  for (int i = 0; i < l->size && !error; i++) {
    error = send_bytes(l, part, i * shard, shard, i);
    if (error && error != NCCL_IN_PROGRESS) return error;
    error = receive_bytes(l, part, i * shard, shard, i);
    if (error == NCCL_IN_PROGRESS) error = 0;
  }
  return error;
}

static CuEnum permute_part(const Launch *l, const CommPart *part) {
  int to = comm_target(l->what, l->index),
      from = comm_origin(l->what, l->index);
  CuEnum error = to >= 0 ? send_bytes(l, part, 0, part->count, to) : 0;
  if (error && error != NCCL_IN_PROGRESS) return error;
  return from >= 0 ? receive_bytes(l, part, 0, part->count, from) : 0;
}

static CuEnum launch_part(const Launch *l, const CommPart *part) {
  const DnnCollective *what = l->what;
  int64_t item = dtype_bytes(what->dtype);
  size_t count = (size_t)part->count, shard = count / (size_t)l->size;
  CuEnum dtype = (CuEnum)nccl_dtypes[what->dtype];
  CuEnum reduce = nccl_reductions[what->reduce];
  switch ((DnnCollectiveKind)what->kind) {
  case DNN_ALL_REDUCE:
    return l->nccl->AllReduce(part->from, part->to, count, dtype, reduce,
                              l->comm, l->stream);
  case DNN_REDUCE_SCATTER:
    return l->nccl->ReduceScatter(part->from, part->to, shard, dtype, reduce,
                                  l->comm, l->stream);
  case DNN_ALL_GATHER:
    return l->nccl->AllGather(part->from, part->to, shard * (size_t)item,
                              NCCL_Uint8, l->comm, l->stream);
  case DNN_ALL_TO_ALL: return exchange_shards(l, part);
  case DNN_BROADCAST:
    return l->nccl->Broadcast(part->from, part->to, count * (size_t)item,
                              NCCL_Uint8, what->peer, l->comm, l->stream);
  case DNN_PERMUTE: return permute_part(l, part);
  case DNN_SEND: return send_bytes(l, part, 0, part->count, !l->index);
  case DNN_RECV: return receive_bytes(l, part, 0, part->count, !l->index);
  }
  UNREACHABLE();
}

static Status launch_parts(NcclState *state, const Launch *l,
                           const CommPart *parts) {
  CuEnum error = state->nccl.GroupStart();
  for (int i = 0; i < l->what->n_parts && !error; i++) {
    if (parts[i].count == 0) continue;
    error = launch_part(l, &parts[i]);
    if (error == NCCL_IN_PROGRESS) error = 0; /* until the group's end */
  }
  CuEnum end = state->nccl.GroupEnd();
  return nccl_finish_call(state, l->comm, error ? error : end, "a collective");
}

/* NCCL has no integers of 16 bits, and would count bools: partition casts
 * around such reductions (Target.reduce_dtype).  It rounds a sum of 16-bit
 * floats anew at each rank, which a plan must ask for. */
static Status check_reduction(const DnnCollective *what) {
  bool is_count = what->reduce == REDUCE_sum && what->dtype == DNN_bool;
  bool is_known = nccl_dtypes[what->dtype] != NCCL_none && !is_count;
  if (what->kind != DNN_ALL_REDUCE && what->kind != DNN_REDUCE_SCATTER)
    return STATUS_OK;
  if (is_known) return STATUS_OK;
  return status_make(STATUS_unavailable,
                     "reductions of %s between GPUs are not supported yet",
                     dtype_label(what->dtype));
}

static NcclComm comm_of_way(const NcclState *state, int from, int to) {
  for (int i = 0; i < state->n_ways; i++)
    if (state->ways[i].from == from && state->ways[i].to == to)
      return state->ways[i].comm;
  UNREACHABLE();
}

static Launch launch_of_message(NcclState *state, const DnnCollective *what) {
  bool is_send = what->kind == DNN_SEND;
  int own = state->comm->rank, other = own + what->peer;
  return (Launch){
      .nccl = &state->nccl,
      .what = what,
      .comm = comm_of_way(state, is_send ? own : other, is_send ? other : own),
      .stream = state->cuda->comm[is_send ? CUDA_SENDS : CUDA_RECEIPTS],
      .size = 2,
      .index = !is_send};
}

static Launch launch_of(NcclState *state, const DnnCollective *what) {
  if (comm_is_message(what)) return launch_of_message(state, what);
  Group *group = find_group(state, what->group);
  ASSERT(group);
  return (Launch){.nccl = &state->nccl,
                  .what = what,
                  .comm = group->comms[what->queue],
                  .stream = state->cuda->comm[what->queue],
                  .size = what->group->size,
                  .index = group_index(what->group, state->comm->rank)};
}

static Status nccl_start(Comm *comm, const DnnCollective *what,
                         const CommPart *parts) {
  NcclState *state = comm->state;
  CudaState *cuda = state->cuda;
  state->host->recorder = comm->recorder;
  TRY(comm_check(what));
  TRY(check_reduction(what));
  ASSERT(what->id >= 0 && what->id < state->n_ids);
  Launch launch = launch_of(state, what);
  if (!launch.comm)
    return status_make(STATUS_lost, "NCCL was stopped by an earlier failure");
  CU_TRY(cuda, "a collective", cuEventRecord, state->ready, cuda->compute);
  CU_TRY(cuda, "a collective", cuStreamWaitEvent, launch.stream, state->ready,
         0);
  TRY(launch_parts(state, &launch, parts));
  CU_TRY(cuda, "a collective", cuEventRecord, state->ended[what->id],
         launch.stream);
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

static Status nccl_transfer(Comm *comm, void *data, int64_t bytes, int from,
                            int to) {
  Comm *host = host_of(comm);
  return host->transfer(host, data, bytes, from, to);
}

static Status nccl_vote_start(Comm *comm, const CommVote *own) {
  Comm *host = host_of(comm);
  return host->vote_start(host, own);
}

static Status nccl_vote_wait(Comm *comm, CommVote *out) {
  Comm *host = host_of(comm);
  return host->vote_wait(host, out);
}

/* The device goes first and takes its communicators with it. */
static void nccl_close(Comm *comm) {
  Comm *host = host_of(comm);
  host->close(host);
}

/* ---- beginning and end ---- */

static void release_comm(NcclState *state, NcclComm *comm, bool is_idle) {
  if (!*comm) return;
  if (is_idle &&
      nccl_finish_call(state, *comm, state->nccl.CommFinalize(*comm), "the end")
              .code == STATUS_ok)
    (void)state->nccl.CommDestroy(*comm);
  else if (*comm)
    (void)state->nccl.CommAbort(*comm);
  *comm = NULL;
}

static void nccl_release(void *user) {
  NcclState *state = user;
  CudaState *cuda = state->cuda;
  bool is_idle = true;
  for (int q = 0; q < CUDA_N_STREAMS; q++)
    is_idle = is_idle && cuda->driver.cuStreamQuery(cuda->comm[q]) == 0;
  for (int i = 0; i < n_comms(state); i++)
    release_comm(state, comm_at(state, i), is_idle);
  for (int i = 0; i < state->n_ids; i++)
    if (state->ended[i]) cuda->driver.cuEventDestroy_v2(state->ended[i]);
  if (state->ready) cuda->driver.cuEventDestroy_v2(state->ready);
  dylib_close(state->nccl.library);
}

static Status init_comm(NcclState *state, int size, NcclId id, int index,
                        NcclComm *comm) {
  NcclConfig config = {.size = sizeof config,
                       .magic = CONFIG_MAGIC,
                       .version = CONFIG_VERSION,
                       .cga_cluster = INT_MIN,
                       .min_ctas = INT_MIN,
                       .max_ctas = INT_MIN,
                       .split_share = INT_MIN};
  CuEnum error = state->nccl.CommInitRankConfig(comm, size, id, index, &config);
  return nccl_finish_call(state, *comm, error, "ncclCommInitRankConfig");
}

/* Gathers the ids that some ranks have made; all ranks call this. */
static Status gather_ids(NcclState *state, Arena *arena, bool makes_one,
                         NcclId **out) {
  Comm *host = state->host;
  NcclId id;
  memset(&id, 0, sizeof id);
  CuEnum error = makes_one ? state->nccl.GetUniqueId(&id) : 0;
  if (error) return nccl_error(state, error, "ncclGetUniqueId");
  *out = ARENA_ARRAY(arena, NcclId, host->world);
  return host->gather(host, &id, sizeof id, *out);
}

/* All ranks call this, those too that are in no such group. */
static Status join_group(NcclState *state, Arena *arena, Group *group,
                         NcclComm *comm) {
  const DnnGroup *digits = group->digits;
  int rank = state->host->rank;
  bool is_member = group_has(digits, rank);
  int index = is_member ? group_index(digits, rank) : -1;
  NcclId *all = NULL;
  TRY(gather_ids(state, arena, index == 0, &all));
  if (!is_member) return STATUS_OK;
  int first = group_rank(digits, rank, 0);
  return init_comm(state, digits->size, all[first], index, comm);
}

static Status join_way(NcclState *state, int from, int to, const NcclId *all) {
  int rank = state->host->rank;
  if (rank != from && rank != to) return STATUS_OK;
  Way *way = &state->ways[state->n_ways++];
  *way = (Way){.from = from, .to = to};
  return init_comm(state, 2, all[from], rank == to, &way->comm);
}

/* All ranks call this.  A rank joins the pair with the lowest ranks first, so
 * that no circle of ranks waits for each other. */
static Status join_pairs(NcclState *state, Arena *arena,
                         const DnnPairs *pairs) {
  int number = state->host->rank - pairs->first;
  NcclId *all = NULL;
  TRY(gather_ids(state, arena, number >= 0 && number < pairs->ranks, &all));
  for (int k = 0; k < pairs->ranks; k++) {
    int from = pairs->first + k;
    TRY(join_way(state, from, from + pairs->peer, all));
  }
  return STATUS_OK;
}

/* Ids may move with the registers of a call. */
static int32_t greatest_id(const DnnEntryPoint *entry, const DnnInstr *instr) {
  const DnnCollective *what = instr->detail;
  int64_t id = instr->n_numbers > 0 ? instr->numbers[0] : what->id;
  if (what->pieces) id += what->n_ids - 1;
  for (int k = 0;
       instr->number_advances && k < instr->n_loops && k < DNN_N_REGISTERS;
       k++) {
    int64_t most = 0;
    for (int i = 0; i < entry->n_calls; i++)
      if (entry->calls[i].registers[k] > most)
        most = entry->calls[i].registers[k];
    id += most * instr->number_advances[k];
  }
  return (int32_t)id;
}

static void count_ids(NcclState *state, const DnnProgram *program) {
  for (int c = 0; c < program->n_entry_points; c++) {
    const DnnEntryPoint *entry = &program->entry_points[c];
    for (int i = 0; i < entry->n_instrs; i++) {
      if (entry->instrs[i].op != DNN_OP_COLLECTIVE) continue;
      int32_t id = greatest_id(entry, &entry->instrs[i]);
      if (id >= state->n_ids) state->n_ids = id + 1;
    }
  }
}

/* The groups of the bundle, in their order, their queues, and how many ids
 * there are. */
static void collect_groups(NcclState *state, Arena *arena,
                           const DnnProgram *program) {
  state->n_groups = program->n_groups;
  state->groups = ARENA_ARRAY(arena, Group, program->n_groups);
  state->ways = ARENA_ARRAY(arena, Way, 2 * program->n_pairs);
  for (int i = 0; i < program->n_groups; i++) {
    state->groups[i].digits = &program->groups[i];
    for (int q = 0; q < DNN_N_QUEUES; q++)
      state->groups[i].has_queue[q] = program->group_queues[i] >> q & 1;
  }
  count_ids(state, program);
  if (program->plain) count_ids(state, program->plain->program);
}

static Status make_events(NcclState *state, Arena *arena) {
  CU_TRY(state->cuda, NULL, cuEventCreate, &state->ready, CU_NO_TIMING);
  state->ended = ARENA_ARRAY(arena, CuEvent, state->n_ids);
  for (int i = 0; i < state->n_ids; i++)
    CU_TRY(state->cuda, NULL, cuEventCreate, &state->ended[i], CU_NO_TIMING);
  return STATUS_OK;
}

/* False if some rank failed, which all then know. */
static Status are_all_ready(Comm *host, Arena *arena, bool is_ready,
                            bool *out) {
  bool *all = ARENA_ARRAY(arena, bool, host->world);
  TRY(host->gather(host, &is_ready, sizeof is_ready, all));
  *out = true;
  for (int i = 0; i < host->world; i++) *out = *out && all[i];
  return STATUS_OK;
}

static Status join_all(NcclState *state, Arena *arena,
                       const DnnProgram *program) {
  for (int i = 0; i < state->n_groups * DNN_N_QUEUES; i++) {
    Group *group = &state->groups[i / DNN_N_QUEUES];
    if (group->has_queue[i % DNN_N_QUEUES])
      TRY(join_group(state, arena, group, comm_at(state, i)));
  }
  for (int i = 0; i < program->n_pairs; i++)
    TRY(join_pairs(state, arena, &program->pairs[i]));
  state->is_started = true;
  return STATUS_OK;
}

/* NCCL takes two ranks of one host and GPU for a mistake, so that ranks which
 * share one must seem to be hosts of their own, which talk over the loopback.
 */
static void share_gpus(const Comm *host) {
  static const char *const defaults[][2] = {{"NCCL_NET", "Socket"},
                                            {"NCCL_SOCKET_IFNAME", "lo"},
                                            {"NCCL_IB_DISABLE", "1"},
                                            {"NCCL_MAX_CTAS", "2"}};
  char id[32];
  snprintf(id, sizeof id, "dnn-rank-%d", host->rank);
  setenv("NCCL_HOSTID", id, 0);
  for (int i = 0; i < ARRAY_LENGTH(defaults); i++)
    setenv(defaults[i][0], defaults[i][1], 0);
}

static Status load_and_collect(NcclState *state, Arena *arena,
                               const DnnProgram *program) {
  if (cuda_shares_gpus()) share_gpus(state->host);
  TRY(cuda_load_nccl(&state->nccl));
  state->cuda->user = state;
  state->cuda->before_close = nccl_release;
  collect_groups(state, arena, program);
  return make_events(state, arena);
}

/* A rank that has no NCCL says so before any communicator is made; the others
 * then return without an error of their own.  After a failure inside NCCL,
 * which has the status `lost`, other ranks wait there and can agree on
 * nothing. */
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
                 .transfer = nccl_transfer,
                 .vote_start = nccl_vote_start,
                 .vote_wait = nccl_vote_wait,
                 .close = nccl_close,
                 .recorder = host->recorder,
                 .state = state};
  state->comm = comm;
  state->host = host;
  state->cuda = device->state;
  Status own = load_and_collect(state, arena, device->program);
  bool all_ready;
  TRY(are_all_ready(host, arena, own.code == STATUS_ok, &all_ready));
  if (!all_ready) return own;
  TRY(join_all(state, arena, device->program));
  state->cuda->poll = nccl_poll;
  *out = comm;
  return STATUS_OK;
}
