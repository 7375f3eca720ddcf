/*
 * mpi_moves.c -- makes the collectives over Open MPI that are not all-reduce.
 *
 * Shards go from member to member in rounds of one chunk, MPI_N_SLOTS of them
 * in flight, so that buffers do not grow with shards, nor messages beyond the
 * ints in which MPI counts.  The owner of a shard makes its reduction in
 * ascending rank order.  A broadcast goes along a chain from its root, each
 * round one member further, so that its time does not grow with the number of
 * ranks.
 */
#include "runtime/comm/mpi.h"

#include <string.h>

static bool has_shards(const Work *work) {
  int kind = work->what->kind;
  return kind == DNN_REDUCE_SCATTER || kind == DNN_ALL_GATHER ||
         kind == DNN_ALL_TO_ALL;
}

/* Elements that one message may come from. */
static int64_t move_length(const Work *work, int part) {
  int64_t n = work->what->counts[part];
  return has_shards(work) ? n / work->group.size : n;
}

static const char *source_of(const Work *work, const Slot *slot, int shard) {
  bool is_shard = !has_shards(work) || work->what->kind == DNN_ALL_GATHER;
  int64_t begin = is_shard ? 0 : shard * move_length(work, slot->part);
  return (const char *)work->parts[slot->part].from +
         (begin + slot->at) * work->item;
}

static char *destination_of(const Work *work, const Slot *slot, int shard) {
  bool is_shard = !has_shards(work) || work->what->kind == DNN_REDUCE_SCATTER;
  int64_t begin = is_shard ? 0 : shard * move_length(work, slot->part);
  return (char *)work->parts[slot->part].to + (begin + slot->at) * work->item;
}

static char *received_shard(const Work *work, const Slot *slot, int member) {
  return slot->in + member * work->mpi->chunk_bytes;
}

/* ---- the messages of a round ---- */

static void exchange_shards(Work *work, Slot *slot) {
  int size = work->group.size, own = work->group.index;
  bool is_reduced = work->what->kind == DNN_REDUCE_SCATTER;
  for (int i = 1; i < size; i++) {
    int peer = (own + i) % size;
    mpi_receive(work, slot,
                is_reduced ? received_shard(work, slot, peer)
                           : destination_of(work, slot, peer),
                slot->n, peer, PHASE_scatter);
  }
  for (int i = 1; i < size; i++) {
    int peer = (own + i) % size;
    mpi_send(work, slot, source_of(work, slot, peer), slot->n, peer,
             PHASE_scatter);
  }
  char *to = destination_of(work, slot, own);
  const char *from = source_of(work, slot, own);
  if (!is_reduced && to != from)
    memmove(to, from, (size_t)(slot->n * work->item));
}

static void permute(Work *work, Slot *slot) {
  int own = work->group.index;
  int to = comm_target(work->what, own), from = comm_origin(work->what, own);
  char *data = destination_of(work, slot, 0);
  if (to == own) {
    memcpy(data, source_of(work, slot, 0), (size_t)(slot->n * work->item));
    return;
  }
  if (from >= 0) mpi_receive(work, slot, data, slot->n, from, PHASE_scatter);
  if (to >= 0)
    mpi_send(work, slot, source_of(work, slot, 0), slot->n, to, PHASE_scatter);
}

/* The member at which a chain begins. */
static int chain_root(const Work *work) {
  int own = work->group.index;
  return work->what->kind == DNN_BROADCAST ? work->what->peer
         : work->what->kind == DNN_SEND    ? own
                                           : !own;
}

/* Receives a chunk from the member before. */
static void chain_receive(Work *work, Slot *slot) {
  int size = work->group.size, own = work->group.index;
  if (own != chain_root(work))
    mpi_receive(work, slot, destination_of(work, slot, 0), slot->n,
                (own + size - 1) % size, PHASE_scatter);
  else if (work->what->kind == DNN_BROADCAST)
    memmove(destination_of(work, slot, 0), source_of(work, slot, 0),
            (size_t)(slot->n * work->item));
}

/* Sends the chunk that has arrived to the member after. */
static void chain_send(Work *work, Slot *slot) {
  int size = work->group.size, own = work->group.index, next = (own + 1) % size;
  bool is_root = own == chain_root(work);
  if (next != chain_root(work))
    mpi_send(work, slot,
             is_root ? source_of(work, slot, 0) : destination_of(work, slot, 0),
             slot->n, next, PHASE_scatter);
}

static bool is_chain(const Work *work) {
  int kind = work->what->kind;
  return kind == DNN_BROADCAST || kind == DNN_SEND || kind == DNN_RECV;
}

/* ---- rounds ---- */

/* The next chunk of the parts; false: there is none. */
static bool take_chunk(Work *work, Slot *slot) {
  int64_t bytes =
      has_shards(work) ? work->mpi->chunk_bytes : work->mpi->message_bytes;
  int64_t chunk = bytes / work->item;
  while (work->part < work->what->n_parts &&
         work->at >= move_length(work, work->part)) {
    work->part++;
    work->at = 0;
  }
  slot->n = 0;
  if (work->part == work->what->n_parts) return false;
  int64_t left = move_length(work, work->part) - work->at;
  slot->part = work->part;
  slot->at = work->at;
  slot->n = left < chunk ? left : chunk;
  work->at += slot->n;
  return true;
}

static void reduce_chunk(Work *work, Slot *slot) {
  int own = work->group.index;
  for (int i = 0; i < work->group.size; i++)
    slot->members[i] = i == own ? (const void *)source_of(work, slot, own)
                                : received_shard(work, slot, i);
  comm_combine(work->what, slot->members, destination_of(work, slot, own),
               slot->n);
}

static void begin_round(Work *work, Slot *slot) {
  slot->round = work->step;
  if (is_chain(work))
    chain_receive(work, slot);
  else if (work->what->kind == DNN_PERMUTE)
    permute(work, slot);
  else
    exchange_shards(work, slot);
}

void mpi_begin_moves(Work *work) {
  work->part = 0;
  work->at = 0;
}

/* Chains have two messages to a chunk, of which the second follows the first:
 * a slot that has sent its chunk has `begin` set. */
Progress mpi_step_moves(Work *work) {
  Slot *slot = &work->slots[work->step % MPI_N_SLOTS];
  if (!mpi_is_over(work, slot)) return PROGRESS_none;
  if (slot->n > 0 && is_chain(work) && !slot->begin) {
    slot->begin = 1;
    chain_send(work, slot);
    return PROGRESS_some;
  }
  if (slot->n > 0 && work->what->kind == DNN_REDUCE_SCATTER)
    reduce_chunk(work, slot);
  slot->begin = 0;
  if (take_chunk(work, slot)) {
    begin_round(work, slot);
    work->step++;
    return PROGRESS_some;
  }
  work->step++;
  bool is_last = true;
  for (int i = 0; i < MPI_N_SLOTS; i++)
    is_last = is_last && work->slots[i].n == 0;
  return is_last ? PROGRESS_done : PROGRESS_some;
}
