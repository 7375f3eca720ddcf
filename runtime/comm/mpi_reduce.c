/*
 * mpi_reduce.c -- makes all-reduces over Open MPI, in rounds of one chunk per
 * rank:
 *
 *     reduce-scatter   every rank sends chunk q to rank q, which adds the W
 *                      contributions in ascending rank order
 *     all-gather       rank q sends the sum to every rank
 *
 * Every element is added once, by one rank, in one order: replicas are equal
 * bit for bit, and no result depends on timing.  MPI_N_SLOTS rounds are in
 * flight, each in either phase, so that adding overlaps sending and a link
 * never waits for the slowest message of a round.  A chunk inside one tensor is
 * sent from and received into its place; only one that spans tensors is copied.
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

static void begin_scatter(Work *work, Slot *slot) {
  int size = work->group.size, own_index = work->group.index;
  int64_t own_begin, own = slice_of(slot, own_index, &own_begin);
  for (int i = 1; i < size; i++) {
    int peer = (own_index + i) % size;
    if (own > 0)
      mpi_receive(work, slot, slot->in + peer * work->mpi->chunk_bytes, own,
                  peer, PHASE_scatter);
  }
  for (int i = 1; i < size; i++) {
    int peer = (own_index + i) % size;
    int64_t begin, n = slice_of(slot, peer, &begin);
    if (n == 0) continue;
    const char *data = comm_source(work->what, work->parts, begin, n);
    if (!data) {
      char *out = slot->out + peer * work->mpi->chunk_bytes;
      comm_copy_out(work->what, work->parts, begin, n, out);
      data = out;
    }
    mpi_send(work, slot, data, n, peer, PHASE_scatter);
  }
}

/* The sum of the own slice, in ascending order; result: where it lies. */
static char *add_up(Work *work, Slot *slot, int64_t begin, int64_t n) {
  const char *own = comm_source(work->what, work->parts, begin, n);
  char *sum = comm_destination(work->what, work->parts, begin, n);
  bool is_direct = sum != NULL;
  if (!own) {
    comm_copy_out(work->what, work->parts, begin, n, slot->own);
    own = slot->own;
  }
  if (!is_direct) sum = slot->own;
  for (int i = 0; i < work->group.size; i++)
    slot->members[i] =
        i == work->group.index ? own : slot->in + i * work->mpi->chunk_bytes;
  comm_combine(work->what, slot->members, sum, n);
  if (!is_direct) comm_copy_in(work->what, work->parts, begin, n, sum);
  return sum;
}

static void begin_gather(Work *work, Slot *slot) {
  int size = work->group.size, own_index = work->group.index;
  int64_t own_begin, own = slice_of(slot, own_index, &own_begin);
  for (int i = 1; i < size; i++) {
    int peer = (own_index + i) % size;
    int64_t begin, n = slice_of(slot, peer, &begin);
    if (n == 0) continue;
    char *data = comm_destination(work->what, work->parts, begin, n);
    if (!data) data = slot->out + peer * work->mpi->chunk_bytes;
    mpi_receive(work, slot, data, n, peer, PHASE_gather);
  }
  if (own == 0) return;
  char *sum = add_up(work, slot, own_begin, own);
  for (int i = 1; i < size; i++)
    mpi_send(work, slot, sum, own, (own_index + i) % size, PHASE_gather);
}

static void finish_gather(Work *work, Slot *slot) {
  for (int peer = 0; peer < work->group.size; peer++) {
    int64_t begin, n = slice_of(slot, peer, &begin);
    if (peer == work->group.index || n == 0 ||
        comm_destination(work->what, work->parts, begin, n))
      continue;
    comm_copy_in(work->what, work->parts, begin, n,
                 slot->out + peer * work->mpi->chunk_bytes);
  }
}

static void set_round(Work *work, Slot *slot, int64_t round) {
  int64_t size = work->group.size;
  int64_t per_round = work->mpi->chunk_bytes / work->item * size;
  slot->round = round;
  slot->begin = round * per_round;
  slot->end =
      slot->begin + per_round < work->n ? slot->begin + per_round : work->n;
  slot->slice = (slot->end - slot->begin + size - 1) / size;
}

void mpi_begin_all_reduce(Work *work) {
  int64_t slice = work->mpi->chunk_bytes / work->item;
  int64_t per_round = slice * work->group.size;
  work->n_rounds = (work->n + per_round - 1) / per_round;
  work->n_scattered = work->n_gathered = work->n_finished = 0;
}

static Slot *slot_of(Work *work, int64_t round) {
  return &work->slots[round % MPI_N_SLOTS];
}

/* The oldest round in each phase goes on where its messages have arrived: it
 * ends, or its gather begins; then the next scatter begins if a slot is free.
 */
Progress mpi_step_all_reduce(Work *work) {
  Progress progress = PROGRESS_none;
  if (work->n_finished < work->n_gathered &&
      mpi_is_over(work, slot_of(work, work->n_finished))) {
    finish_gather(work, slot_of(work, work->n_finished++));
    progress = PROGRESS_some;
  }
  if (work->n_gathered < work->n_scattered &&
      mpi_is_over(work, slot_of(work, work->n_gathered))) {
    begin_gather(work, slot_of(work, work->n_gathered++));
    progress = PROGRESS_some;
  }
  if (work->n_scattered < work->n_rounds &&
      work->n_scattered < work->n_finished + MPI_N_SLOTS) {
    Slot *slot = slot_of(work, work->n_scattered);
    set_round(work, slot, work->n_scattered++);
    begin_scatter(work, slot);
    progress = PROGRESS_some;
  }
  return work->n_finished == work->n_rounds ? PROGRESS_done : progress;
}
