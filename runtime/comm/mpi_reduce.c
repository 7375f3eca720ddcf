/*
 * mpi_reduce.c -- makes all-reduces over Open MPI, in rounds of one chunk per
 * rank:
 *
 *     reduce-scatter   every rank sends chunk q to rank q, which adds the W
 *                      contributions in ascending rank order
 *     all-gather       rank q sends the sum to every rank
 *
 * Every element is added once, by one rank, in one order: replicas are equal
 * bit for bit, and no result depends on timing.  Two rounds are in flight, so
 * that adding overlaps sending.  A chunk inside one tensor is sent from and
 * received into its place; only one that spans tensors is copied.
 */
#include "runtime/comm/mpi.h"

#include <string.h>

/* Elements of member `index` in the round; may be none. */
static int64_t slice_of(const Slot *slot, int index, int64_t *out_begin) {
  int64_t begin = slot->begin + index * slot->slice;
  int64_t end = begin + slot->slice;
  if (begin > slot->end) begin = slot->end;
  if (end > slot->end) end = slot->end;
  *out_begin = begin;
  return end - begin;
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

/* The sum of the own slice, in ascending order; result: its address. */
static char *add_up(const Reduction *r, Slot *slot, int64_t begin, int64_t n) {
  char *own = comm_direct(r->what, r->parts, begin, n);
  bool is_direct = own != NULL;
  if (!own) {
    own = slot->own;
    comm_copy(r->what, r->parts, begin, n, own, true);
  }
  for (int i = 0; i < r->group.size; i++)
    slot->members[i] =
        i == r->group.index ? own : slot->in + i * r->mpi->chunk_bytes;
  comm_combine(r->what, slot->members, own, n);
  if (!is_direct) comm_copy(r->what, r->parts, begin, n, own, false);
  return own;
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

void mpi_run_all_reduce(Mpi *mpi, const DnnCollective *what,
                        const CommPart *parts) {
  Reduction r = {.mpi = mpi,
                 .what = what,
                 .parts = parts,
                 .group = comm_group(what, mpi->place.rank),
                 .item = dtype_bytes(what->dtype),
                 .n = comm_count(what)};
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
