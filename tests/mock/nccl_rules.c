/*
 * nccl_rules.c -- checks what NCCL demands of its callers and cannot always
 * check itself: communicators that are alive, GPUs of their own, buffers that
 * are disjoint or in place, and one order of launches.
 *
 * Any two ranks must launch the communicators that both are in, in the same
 * order.  Each keeps, for every other process, a hash of its launches with that
 * process.  A launch publishes the hash in the communicator, and whoever of the
 * two launches later compares; so the rule is checked without waiting, and also
 * where a real NCCL would hang.
 */
#include "tests/mock/nccl.h"

#include <unistd.h>

enum { MAX_COMMS = 512, MAX_PROCESSES = 64 };

static MockComm *comms[MAX_COMMS];
static int n_comms;

/* The launches of this process with another one. */
typedef struct Peer {
  int64_t process;
  uint64_t hash;
} Peer;

static Peer peers[MAX_PROCESSES];
static int n_peers;

static CuEnum broken(MockComm *comm, const char *rule) {
  fprintf(stderr, "mock: rank %d of communicator %08x: %s\n", comm->rank,
          (unsigned)comm->id, rule);
  return NCCL_INVALID_USAGE;
}

/* ---- communicators ---- */

void rules_add(MockComm *comm) {
  if (n_comms == MAX_COMMS) abort();
  comms[n_comms++] = comm;
}

MockComm *rules_live(NcclComm handle, const char *function) {
  for (int i = 0; i < n_comms; i++) {
    if (comms[i] != handle) continue;
    if (comms[i]->state == COMM_LIVE) return comms[i];
    fprintf(stderr, "mock: %s of a communicator that was %s\n", function,
            comms[i]->state == COMM_ABORTED ? "aborted" : "destroyed");
    return NULL;
  }
  fprintf(stderr, "mock: %s of no communicator\n", function);
  return NULL;
}

CuEnum rules_members(const MockComm *comm) {
  const Member *members = comm->shared->members;
  for (int i = 0; i < comm->ranks; i++)
    for (int k = 0; k < i; k++)
      if (members[i].gpu == members[k].gpu)
        return broken((MockComm *)(uintptr_t)comm, "two ranks have one GPU");
  return 0;
}

/* ---- buffers ---- */

CuEnum rules_overlap(const Operation *o) {
  size_t bytes = o->count * nccl_dtype_bytes(o->dtype);
  size_t all = bytes * (size_t)o->comm->ranks;
  size_t shard = bytes * (size_t)o->comm->rank;
  size_t n_from = bytes, n_to = bytes;
  const char *from = o->from, *to = o->to, *in_place = o->to;
  if (o->kind == SEND || o->kind == RECEIVE) return 0;
  if (o->kind == ALL_GATHER) {
    n_to = all;
    in_place = to + shard;
  } else if (o->kind == REDUCE_SCATTER) {
    n_from = all;
    in_place = to - shard;
  }
  if (from == in_place || from + n_from <= to || to + n_to <= from) return 0;
  return broken(o->comm, "source and destination overlap");
}

/* ---- order ---- */

static Peer *find_peer(int64_t process) {
  for (int i = 0; i < n_peers; i++)
    if (peers[i].process == process) return &peers[i];
  if (n_peers == MAX_PROCESSES) abort();
  peers[n_peers] = (Peer){.process = process, .hash = 1};
  return &peers[n_peers++];
}

/* True if the other rank has launched as many with us, and in another order. */
static bool differs(const OrderEntry *other, int64_t n, uint64_t hash) {
  if (atomic_load(&other->n) != n) return false;
  uint64_t found = atomic_load(&other->hash);
  return found != hash && atomic_load(&other->n) == n;
}

static CuEnum launch_with(MockComm *comm, int q) {
  Peer *peer = find_peer(comm->shared->members[q].process);
  int64_t n = ++comm->joined[q];
  OrderEntry *mine = &comm->shared->order[comm->rank][q][n % ORDER_ENTRIES];
  atomic_store(&mine->n, 0);
  atomic_store(&mine->hash, peer->hash);
  atomic_store(&mine->n, n);
  bool is_wrong = differs(
      &comm->shared->order[q][comm->rank][n % ORDER_ENTRIES], n, peer->hash);
  peer->hash = (peer->hash ^ comm->id) * UINT64_C(0x9e3779b97f4a7c15);
  peer->hash ^= peer->hash >> 29;
  if (!is_wrong) return 0;
  atomic_store(&comm->shared->has_failed, 1);
  return broken(comm, "another rank launches in another order");
}

static bool takes_part(const Operation *operations, int n, const MockComm *comm,
                       int q) {
  for (int i = 0; i < n; i++) {
    const Operation *o = &operations[i];
    bool is_joined = o->kind != SEND && o->kind != RECEIVE;
    if (o->comm == comm && (is_joined || o->peer == q)) return true;
  }
  return false;
}

static void log_launch(const Operation *o, int stream, int of, int n) {
  static const char *const names[] = {"all_reduce", "reduce_scatter",
                                      "all_gather", "broadcast",
                                      "send",       "receive"};
  mock_log("nccl %08x rank %d of %d stream %d call %d of %d %s count %zu "
           "dtype %u peer %d",
           (unsigned)o->comm->id, o->comm->rank, o->comm->ranks, stream, of, n,
           names[o->kind], o->count, o->dtype, o->peer);
}

CuEnum rules_launch(const Operation *operations, int n, int stream) {
  for (int i = 0; i < n; i++) {
    MockComm *comm = operations[i].comm;
    bool is_first = true;
    log_launch(&operations[i], stream, i + 1, n);
    for (int k = 0; k < i; k++) is_first &= operations[k].comm != comm;
    if (!is_first) continue;
    for (int q = 0; q < comm->ranks; q++) {
      if (q == comm->rank || !takes_part(operations, n, comm, q)) continue;
      CuEnum error = launch_with(comm, q);
      if (error) return error;
    }
  }
  return 0;
}
