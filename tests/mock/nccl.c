/*
 * nccl.c -- implements NCCL for the mock: collectives between processes through
 * shared memory.  Work that waits for other ranks is asked again instead of
 * blocking, so the runtime's deadlines and aborts can be tried.  Ranks that
 * mean different collectives get an error, where NCCL would hang, and so do
 * those that break a rule of nccl_rules.c.
 */
#include "tests/mock/nccl.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* The operations of a group call. */
enum { MAX_OPERATIONS = 2048 };
typedef struct Group {
  int n;
  Operation operations[];
} Group;

static Operation pending[MAX_OPERATIONS];
static int n_pending, group_depth;
static CuStream pending_stream;

CuEnum ncclGetVersion(int *version) {
  MOCK_ENTER();
  *version = 22809;
  return 0;
}

CuEnum ncclGetUniqueId(NcclId *id) {
  MOCK_ENTER();
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  memset(id, 0, sizeof *id);
  snprintf(id->bytes, sizeof id->bytes, "/dnn-mock-%ld-%ld", (long)getpid(),
           now.tv_nsec);
  return 0;
}

static uint64_t hash_text(const char *text, uint64_t hash) {
  for (; *text; text++) hash = (hash ^ (unsigned char)*text) * 1099511628211u;
  return hash;
}

/* NCCL takes ranks of one host and device for one GPU, and a host for another
 * where $NCCL_HOSTID says so. */
static Member this_process(void) {
  const char *host = getenv("NCCL_HOSTID");
  char device[16];
  snprintf(device, sizeof device, "/%d", mock_device());
  return (Member){
      .process = getpid(),
      .gpu = hash_text(device, hash_text(host ? host : "host", 14695981039u))};
}

static Shared *attach(const char *name, int ranks, int rank) {
  int file = shm_open(name, O_RDWR | O_CREAT, 0600);
  if (file < 0) return NULL;
  void *map = MAP_FAILED;
  if (ftruncate(file, sizeof(Shared)) == 0)
    map =
        mmap(NULL, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (map == MAP_FAILED) return NULL;
  Shared *shared = map;
  shared->members[rank] = this_process();
  if (atomic_fetch_add(&shared->attached, 1) == ranks - 1) shm_unlink(name);
  return shared;
}

CuEnum ncclCommInitRankConfig(NcclComm *handle, int ranks, NcclId id, int rank,
                              NcclConfig *config) {
  MOCK_ENTER();
  if (ranks > MAX_RANKS || rank >= ranks || config->magic != 0xcafebeefu ||
      config->blocking != 0 || id.bytes[0] != '/')
    return NCCL_INVALID_ARGUMENT;
  Shared *shared = attach(id.bytes, ranks, rank);
  if (!shared) return 2;
  MockComm *comm = calloc(1, sizeof *comm);
  *comm = (MockComm){.shared = shared,
                     .ranks = ranks,
                     .rank = rank,
                     .id = hash_text(id.bytes, 14695981039u)};
  rules_add(comm);
  *handle = comm;
  return NCCL_IN_PROGRESS;
}

/* NCCL connects two ranks when both have launched their first message with each
 * other, and the host of the first one waits until then. */
static bool is_connecting(const MockComm *comm) {
  Shared *shared = comm->shared;
  for (int q = 0; q < comm->ranks; q++)
    if (atomic_load(&shared->has_messages[comm->rank][q]) &&
        !atomic_load(&shared->has_messages[q][comm->rank]))
      return true;
  return false;
}

/* Members come and go: in progress until all are there. */
CuEnum ncclCommGetAsyncError(NcclComm handle, CuEnum *error) {
  MOCK_ENTER();
  MockComm *comm = rules_live(handle, __func__);
  if (!comm) return NCCL_INVALID_USAGE;
  /* How often it is asked before is chance. */
  bool is_ready = comm->is_checked && !is_connecting(comm);
  CuEnum injected = is_ready ? mock_enter("asyncError") : 0;
  if (injected) comm->error = injected;
  *error = comm->error;
  if (*error) return 0;
  if (atomic_load(&comm->shared->has_failed)) {
    *error = NCCL_INVALID_USAGE;
  } else if (atomic_load(&comm->shared->attached) < comm->ranks) {
    *error = NCCL_IN_PROGRESS;
  } else if (!comm->is_checked) {
    comm->is_checked = true;
    *error = comm->error = rules_members(comm);
  } else if (!is_ready) {
    *error = NCCL_IN_PROGRESS;
  }
  return 0;
}

CuEnum ncclCommFinalize(NcclComm handle) {
  MOCK_ENTER();
  MockComm *comm = rules_live(handle, __func__);
  if (!comm) return NCCL_INVALID_USAGE;
  if (comm->n_enqueued > 0)
    fprintf(stderr, "mock: a communicator is finalized before %d operations\n",
            comm->n_enqueued);
  comm->is_finalized = true;
  return 0;
}

CuEnum ncclCommDestroy(NcclComm handle) {
  MOCK_ENTER();
  MockComm *comm = rules_live(handle, __func__);
  if (!comm) return NCCL_INVALID_USAGE;
  if (!comm->is_finalized)
    fprintf(stderr, "mock: a communicator is destroyed before its end\n");
  munmap(comm->shared, sizeof(Shared));
  comm->state = COMM_DESTROYED;
  return 0;
}

/* Work that is still enqueued ends at once. */
CuEnum ncclCommAbort(NcclComm handle) {
  MOCK_ENTER();
  MockComm *comm = rules_live(handle, __func__);
  if (!comm) return NCCL_INVALID_USAGE;
  comm->state = COMM_ABORTED;
  return 0;
}

size_t nccl_dtype_bytes(CuEnum dtype) {
  return dtype == 0 || dtype == 1   ? 1
         : dtype == 6 || dtype == 9 ? 2
         : dtype == 4 || dtype == 8 ? 8
                                    : 4;
}

/* Adds up element i of all chunks, from `first` on. */
#define JOIN(name, type, sum_type, LOAD, STORE)                                \
  static void join_##name(const Operation *o, size_t first, type *to,          \
                          size_t n) {                                          \
    for (size_t i = 0; i < n; i++) {                                           \
      size_t at = first + i;                                                   \
      sum_type sum = LOAD(((const type *)o->comm->shared->chunks[0])[at]);     \
      for (int q = 1; q < o->comm->ranks; q++) {                               \
        sum_type x = LOAD(((const type *)o->comm->shared->chunks[q])[at]);     \
        sum = o->reduce == 2   ? (x > sum ? x : sum)                           \
              : o->reduce == 3 ? (x < sum ? x : sum)                           \
                               : sum + x;                                      \
      }                                                                        \
      to[i] = STORE(sum);                                                      \
    }                                                                          \
  }
#define AS_IT_IS(x) (x)
JOIN(i8, int8_t, int32_t, AS_IT_IS, (int8_t))
JOIN(u8, uint8_t, int32_t, AS_IT_IS, (uint8_t))
JOIN(i32, int32_t, int32_t, AS_IT_IS, AS_IT_IS)
JOIN(i64, int64_t, int64_t, AS_IT_IS, AS_IT_IS)
JOIN(f32, float, float, AS_IT_IS, AS_IT_IS)
JOIN(f64, double, double, AS_IT_IS, AS_IT_IS)
JOIN(f16, uint16_t, float, f16_to_float, f16_from_float)
JOIN(bf16, uint16_t, float, bf16_to_float, bf16_from_float)

static void join(const Operation *o, size_t first, char *to, size_t n) {
  void *at = to;
  switch (o->dtype) {
  case 0: join_i8(o, first, at, n); return;
  case 1: join_u8(o, first, at, n); return;
  case 2: join_i32(o, first, at, n); return;
  case 4: join_i64(o, first, at, n); return;
  case 6: join_f16(o, first, at, n); return;
  case 7: join_f32(o, first, at, n); return;
  case 8: join_f64(o, first, at, n); return;
  case 9: join_bf16(o, first, at, n); return;
  default: abort(); /* no reduction of such a dtype */
  }
}

static void arrive(MockComm *comm) {
  atomic_fetch_add(&comm->shared->arrived, 1);
  comm->points++;
}

static bool all_arrived(const MockComm *comm) {
  return atomic_load(&comm->shared->arrived) >= comm->points * comm->ranks;
}

/* Elements [done, done + n) of this rank's source, end to end: one range, or of
 * a reduce-scatter one for each rank. */
static void give(const Operation *o, size_t n) {
  mock_open_memory();
  size_t size = nccl_dtype_bytes(o->dtype), ranges = 1;
  if (o->kind == REDUCE_SCATTER) ranges = (size_t)o->comm->ranks;
  char *chunk = o->comm->shared->chunks[o->comm->rank];
  for (size_t i = 0; i < ranges; i++)
    memcpy(chunk + i * n * size, o->from + (i * o->count + o->done) * size,
           n * size);
}

static void take(const Operation *o, size_t n) {
  mock_open_memory();
  size_t size = nccl_dtype_bytes(o->dtype);
  char *to = o->to + o->done * size;
  const Shared *shared = o->comm->shared;
  switch (o->kind) {
  case ALL_REDUCE: join(o, 0, to, n); return;
  case REDUCE_SCATTER: join(o, (size_t)o->comm->rank * n, to, n); return;
  case BROADCAST: memcpy(to, shared->chunks[o->peer], n * size); return;
  default:
    for (int q = 0; q < o->comm->ranks; q++)
      memcpy(to + (size_t)q * o->count * size, shared->chunks[q], n * size);
  }
}

static Meaning meaning_of(const Operation *o) {
  Meaning meaning;
  memset(&meaning, 0, sizeof meaning);
  meaning.count = o->count;
  meaning.kind = o->kind;
  meaning.dtype = o->dtype;
  meaning.reduce = o->reduce;
  if (o->kind == BROADCAST) meaning.root = (CuEnum)o->peer;
  return meaning;
}

static bool all_mean(const Operation *o) {
  Meaning own = meaning_of(o);
  for (int q = 0; q < o->comm->ranks; q++)
    if (memcmp(&o->comm->shared->meanings[q], &own, sizeof own) != 0)
      return false;
  return true;
}

/* Each chunk: give mine, all have given, take, all have taken. */
static bool run_joined(Operation *o) {
  Shared *shared = o->comm->shared;
  size_t most =
      CHUNK_BYTES / nccl_dtype_bytes(o->dtype) / (size_t)o->comm->ranks;
  while (o->done < o->count || o->stage > 0) {
    size_t n = o->count - o->done < most ? o->count - o->done : most;
    if (o->stage == 0) {
      shared->meanings[o->comm->rank] = meaning_of(o);
      give(o, n);
      arrive(o->comm);
    } else if (!all_arrived(o->comm)) {
      return false;
    } else if (o->stage == 1) {
      if (!all_mean(o)) {
        fprintf(stderr, "mock: ranks mean different collectives\n");
        atomic_store(&shared->has_failed, 1);
      }
      take(o, n);
      arrive(o->comm);
    } else {
      o->done += n;
    }
    o->stage = (o->stage + 1) % 3;
  }
  return true;
}

/* Ends when the receiver has taken all: NCCL promises no buffer. */
static bool run_send(Operation *o) {
  Mailbox *box = &o->comm->shared->mailboxes[o->comm->rank][o->peer];
  while (o->done < o->count) {
    if (atomic_load(&box->is_full)) return false;
    size_t left = o->count - o->done;
    box->bytes = left < MAILBOX_BYTES ? left : MAILBOX_BYTES;
    box->total = o->count;
    mock_open_memory();
    memcpy(box->data, o->from + o->done, box->bytes);
    o->done += box->bytes;
    atomic_store(&box->is_full, 1);
  }
  return !atomic_load(&box->is_full);
}

static bool run_receive(Operation *o) {
  Mailbox *box = &o->comm->shared->mailboxes[o->peer][o->comm->rank];
  while (o->done < o->count) {
    if (!atomic_load(&box->is_full)) return false;
    if (box->total != o->count) {
      fprintf(stderr, "mock: %zu bytes are sent and %zu received\n", box->total,
              o->count);
      atomic_store(&o->comm->shared->has_failed, 1);
      return true;
    }
    mock_open_memory();
    memcpy(o->to + o->done, box->data, box->bytes);
    o->done += box->bytes;
    atomic_store(&box->is_full, 0);
  }
  return true;
}

/* A message between the same two ranks in the same direction goes before it. */
static bool must_wait(const Group *group, int i) {
  const Operation *o = &group->operations[i];
  for (int k = 0; k < i; k++) {
    const Operation *before = &group->operations[k];
    if (!before->is_over && before->kind == o->kind && before->peer == o->peer)
      return true;
  }
  return false;
}

static bool end_group(Group *group) {
  for (int i = 0; i < group->n; i++) group->operations[i].comm->n_enqueued--;
  return true;
}

/* Sends and receives of a group run at the same time, other operations one
 * after the other.  After an error the work does not end until it is aborted,
 * as a kernel of NCCL does not. */
static bool run_group(MockWork *work) {
  Group *group = work->more;
  bool is_over = true, may_join = true;
  for (int i = 0; i < group->n; i++) {
    Operation *o = &group->operations[i];
    bool is_joined = o->kind != SEND && o->kind != RECEIVE;
    if (o->comm->state == COMM_ABORTED) return end_group(group);
    if (o->comm->error || atomic_load(&o->comm->shared->has_failed))
      return false;
    if (o->is_over || (is_joined ? !may_join : must_wait(group, i))) continue;
    o->is_over = o->kind == SEND      ? run_send(o)
                 : o->kind == RECEIVE ? run_receive(o)
                                      : run_joined(o);
    if (!o->is_over) is_over = false;
    if (is_joined && !o->is_over) may_join = false;
  }
  for (int i = 0; i < group->n; i++)
    is_over = is_over && group->operations[i].is_over;
  return is_over && end_group(group);
}

/* The other side of a message may have to end it before it goes on. */
static bool is_of_messages(const Group *group) {
  for (int i = 0; i < group->n; i++)
    if (group->operations[i].kind != group->operations[0].kind) return false;
  return group->operations[0].kind == SEND ||
         group->operations[0].kind == RECEIVE;
}

static CuEnum enqueue_pending(void) {
  if (n_pending == 0) return 0;
  size_t bytes = sizeof(Operation) * (size_t)n_pending;
  Group *group = calloc(1, sizeof *group + bytes);
  group->n = n_pending;
  memcpy(group->operations, pending, bytes);
  n_pending = 0;
  CuEnum error = rules_launch(group->operations, group->n,
                              mock_stream_number(pending_stream));
  if (error) {
    free(group);
    return error;
  }
  for (int i = 0; i < group->n; i++) {
    const Operation *o = &group->operations[i];
    o->comm->n_enqueued++;
    if (o->kind == SEND || o->kind == RECEIVE)
      atomic_store(&o->comm->shared->has_messages[o->comm->rank][o->peer],
                   true);
  }
  MockWork work = {.run = run_group,
                   .what = "collective",
                   .is_message = is_of_messages(group),
                   .more = group};
  return mock_enqueue(pending_stream, &work);
}

static bool is_in_memory(const void *at, size_t bytes) {
  return mock_in_memory((unsigned long long)(uintptr_t)at, bytes);
}

/* `from_count`, `to_count`: elements that it reads and writes. */
static CuEnum add_operation(Operation operation, size_t from_count,
                            size_t to_count, NcclComm handle, CuStream stream) {
  MockComm *comm = rules_live(handle, "a collective");
  if (!comm) return NCCL_INVALID_USAGE;
  size_t size = nccl_dtype_bytes(operation.dtype);
  operation.comm = comm;
  if (atomic_load(&operation.comm->shared->attached) < operation.comm->ranks)
    return NCCL_INVALID_USAGE;
  if (!operation.comm->stream) operation.comm->stream = stream;
  if (operation.comm->stream != stream) return NCCL_INVALID_ARGUMENT;
  CuEnum error = rules_overlap(&operation);
  if (error) return error;
  if (from_count && !is_in_memory(operation.from, from_count * size))
    return NCCL_INVALID_ARGUMENT;
  if (to_count && !is_in_memory(operation.to, to_count * size))
    return NCCL_INVALID_ARGUMENT;
  if (n_pending == MAX_OPERATIONS ||
      (n_pending > 0 && stream != pending_stream))
    return NCCL_INVALID_ARGUMENT;
  pending[n_pending++] = operation;
  pending_stream = stream;
  return group_depth > 0 ? 0 : enqueue_pending();
}

CuEnum ncclGroupStart(void) {
  MOCK_ENTER();
  group_depth++;
  return 0;
}

CuEnum ncclGroupEnd(void) {
  MOCK_ENTER();
  if (group_depth == 0) {
    fprintf(stderr, "mock: ncclGroupEnd without ncclGroupStart\n");
    return NCCL_INVALID_USAGE;
  }
  if (--group_depth > 0) return 0;
  CuEnum error = enqueue_pending();
  return error ? error : NCCL_IN_PROGRESS;
}

CuEnum ncclAllReduce(const void *from, void *to, size_t count, CuEnum dtype,
                     CuEnum reduce, NcclComm comm, CuStream stream) {
  MOCK_ENTER();
  return add_operation((Operation){.kind = ALL_REDUCE,
                                   .from = from,
                                   .to = to,
                                   .count = count,
                                   .dtype = dtype,
                                   .reduce = reduce},
                       count, count, comm, stream);
}

CuEnum ncclReduceScatter(const void *from, void *to, size_t count, CuEnum dtype,
                         CuEnum reduce, NcclComm comm, CuStream stream) {
  MOCK_ENTER();
  MockComm *live = rules_live(comm, __func__);
  if (!live) return NCCL_INVALID_USAGE;
  size_t ranks = (size_t)live->ranks;
  return add_operation((Operation){.kind = REDUCE_SCATTER,
                                   .from = from,
                                   .to = to,
                                   .count = count,
                                   .dtype = dtype,
                                   .reduce = reduce},
                       count * ranks, count, comm, stream);
}

CuEnum ncclAllGather(const void *from, void *to, size_t count, CuEnum dtype,
                     NcclComm comm, CuStream stream) {
  MOCK_ENTER();
  MockComm *live = rules_live(comm, __func__);
  if (!live) return NCCL_INVALID_USAGE;
  size_t ranks = (size_t)live->ranks;
  return add_operation((Operation){.kind = ALL_GATHER,
                                   .from = from,
                                   .to = to,
                                   .count = count,
                                   .dtype = dtype},
                       count, count * ranks, comm, stream);
}

CuEnum ncclBroadcast(const void *from, void *to, size_t count, CuEnum dtype,
                     int root, NcclComm comm, CuStream stream) {
  MOCK_ENTER();
  return add_operation((Operation){.kind = BROADCAST,
                                   .from = from,
                                   .to = to,
                                   .count = count,
                                   .dtype = dtype,
                                   .peer = root},
                       count, count, comm, stream);
}

/* Messages are bytes here. */
CuEnum ncclSend(const void *from, size_t count, CuEnum dtype, int to,
                NcclComm comm, CuStream stream) {
  MOCK_ENTER();
  if (dtype != NCCL_Uint8) return NCCL_INVALID_ARGUMENT;
  return add_operation((Operation){.kind = SEND,
                                   .from = from,
                                   .count = count,
                                   .dtype = dtype,
                                   .peer = to},
                       count, 0, comm, stream);
}

CuEnum ncclRecv(void *to, size_t count, CuEnum dtype, int from, NcclComm comm,
                CuStream stream) {
  MOCK_ENTER();
  if (dtype != NCCL_Uint8) return NCCL_INVALID_ARGUMENT;
  return add_operation((Operation){.kind = RECEIVE,
                                   .to = to,
                                   .count = count,
                                   .dtype = dtype,
                                   .peer = from},
                       0, count, comm, stream);
}

const char *ncclGetErrorString(CuEnum error) {
  return error == NCCL_INVALID_ARGUMENT ? "invalid argument"
         : error == NCCL_INVALID_USAGE  ? "invalid usage"
                                        : "failure of the mock";
}
