/*
 * mpi_moves.c -- makes the collectives over Open MPI that are not all-reduce.
 *
 * Shards go from member to member, chunk by chunk, so that buffers do not grow
 * with them.  The owner of a shard makes its sum in ascending rank order.
 */
#include "runtime/comm/mpi.h"

#include <string.h>

static char *shard_of(const Reduction *r, int part, int member) {
  int64_t n = r->what->counts[part] / r->group.size;
  return (char *)r->parts[part].data + member * n * r->item;
}

static char *received_shard(const Reduction *r, const Slot *slot, int member) {
  return slot->in + member * r->mpi->chunk_bytes;
}

static void add_up(const Reduction *r, const Slot *slot, char *own, int64_t n) {
  for (int i = 0; i < r->group.size; i++)
    slot->members[i] = i == r->group.index ? own : received_shard(r, slot, i);
  comm_combine(r->what, slot->members, own, n);
}

/* Elements [at, at + n) of each shard of a part, between all members. */
static void exchange_chunk(const Reduction *r, Slot *slot, int part, int64_t at,
                           int64_t n) {
  int size = r->group.size, own = r->group.index;
  int64_t bytes = n * r->item, from = at * r->item;
  bool is_gather = r->what->kind == DNN_ALL_GATHER;
  int tag = mpi_tag(r, slot, PHASE_scatter);
  slot->n_requests = 0;
  for (int i = 1; i < size; i++) {
    int peer = (own + i) % size;
    mpi_receive(r->mpi,
                is_gather ? shard_of(r, part, peer) + from
                          : received_shard(r, slot, peer),
                bytes, mpi_member(r, peer), tag,
                &slot->requests[slot->n_requests++]);
  }
  for (int i = 1; i < size; i++) {
    int peer = (own + i) % size;
    mpi_send(r->mpi, shard_of(r, part, is_gather ? own : peer) + from, bytes,
             mpi_member(r, peer), tag, &slot->requests[slot->n_requests++]);
  }
  mpi_finish(r->mpi, slot->requests, slot->n_requests);
  if (r->what->kind == DNN_REDUCE_SCATTER)
    add_up(r, slot, shard_of(r, part, own) + from, n);
  for (int i = 0; r->what->kind == DNN_ALL_TO_ALL && i < size; i++)
    if (i != own)
      memcpy(shard_of(r, part, i) + from, received_shard(r, slot, i),
             (size_t)bytes);
}

/* Along a chain from the first to the last of the group. */
static void pass_along(const Reduction *r, Slot *slot, int part, int64_t at,
                       int64_t n) {
  const DnnCollective *what = r->what;
  int size = r->group.size, own = r->group.index;
  int first = what->kind == DNN_BROADCAST ? what->peer
              : what->kind == DNN_SEND    ? own
                                          : !own;
  char *data = (char *)r->parts[part].data + at * r->item;
  int next = (own + 1) % size, previous = (own + size - 1) % size;
  int tag = mpi_tag(r, slot, PHASE_scatter);
  void *request;
  if (own != first) {
    mpi_receive(r->mpi, data, n * r->item, mpi_member(r, previous), tag,
                &request);
    mpi_finish(r->mpi, &request, 1);
  }
  if (next == first) return;
  mpi_send(r->mpi, data, n * r->item, mpi_member(r, next), tag, &request);
  mpi_finish(r->mpi, &request, 1);
}

void mpi_run_moves(Mpi *mpi, const DnnCollective *what, const CommPart *parts) {
  Reduction r = {.mpi = mpi,
                 .what = what,
                 .parts = parts,
                 .group = comm_group(what, mpi->place.rank),
                 .item = dtype_bytes(what->dtype),
                 .n = comm_count(what)};
  if (r.group.size == 1) return;
  Slot *slot = &mpi->slots[0];
  bool is_passed = what->kind == DNN_BROADCAST || what->kind == DNN_SEND ||
                   what->kind == DNN_RECV;
  int64_t chunk = mpi->chunk_bytes / r.item;
  slot->round = 0;
  slot->n_requests = 0;
  mpi_exchange_headers(&r, slot);
  mpi_finish(mpi, slot->requests, slot->n_requests);
  mpi_check_header(&r);
  for (int part = 0; part < what->n_parts; part++) {
    int64_t n =
        is_passed ? what->counts[part] : what->counts[part] / r.group.size;
    for (int64_t at = 0; at < n; at += chunk, slot->round++) {
      int64_t here = n - at < chunk ? n - at : chunk;
      (is_passed ? pass_along : exchange_chunk)(&r, slot, part, at, here);
    }
  }
}
