/*
 * mpi_messages.c -- sends and receives messages over Open MPI, and compares
 * what the members of a group have begun.
 */
#include "runtime/comm/mpi.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { TAG_HEADER = (1 << 28) + 1 };

/* While the main thread computes, polling would take its core: then sleep,
 * longer and longer up to 0.2 ms. */
void mpi_pause(Mpi *mpi, int n_polls) {
  if (atomic_load_explicit(&mpi->main_waits, memory_order_relaxed)) {
    sched_yield();
    return;
  }
  int64_t sleep_ns = 10000 + (int64_t)n_polls * 5000;
  if (sleep_ns > 200000) sleep_ns = 200000;
  nanosleep(&(struct timespec){.tv_nsec = sleep_ns}, NULL);
}

/* ---- messages ---- */

/* Parts that follow each other in one tag; wraps around. */
static int message_tag(const Work *work, const Slot *slot, Phase phase) {
  return (work->what->id & 0xfffff) << 6 | (int)(slot->round & 0xf) << 2 |
         (int)phase;
}

/* MPI counts in int: messages are chunks, which are smaller. */
static int message_bytes(const Work *work, int64_t n) {
  ASSERT(n * work->item <= work->mpi->message_bytes);
  return (int)(n * work->item);
}

void mpi_send(Work *work, Slot *slot, const void *data, int64_t n, int member,
              Phase phase) {
  Mpi *mpi = work->mpi;
  mpi_check(mpi,
            mpi->api.Isend(data, message_bytes(work, n), mpi->api.byte,
                           comm_member(&work->group, member),
                           message_tag(work, slot, phase), mpi->api.world,
                           &slot->requests[slot->n_requests++]),
            "sent");
}

void mpi_receive(Work *work, Slot *slot, void *data, int64_t n, int member,
                 Phase phase) {
  Mpi *mpi = work->mpi;
  mpi_check(mpi,
            mpi->api.Irecv(data, message_bytes(work, n), mpi->api.byte,
                           comm_member(&work->group, member),
                           message_tag(work, slot, phase), mpi->api.world,
                           &slot->requests[slot->n_requests++]),
            "received");
}

bool mpi_is_over(Work *work, Slot *slot) {
  Mpi *mpi = work->mpi;
  int flag = 1;
  if (slot->n_requests > 0)
    mpi_check(mpi,
              mpi->api.Testall(slot->n_requests, slot->requests, &flag, NULL),
              "waited");
  if (flag) slot->n_requests = 0;
  return flag;
}

/* ---- what the members of a group mean ---- */

/* The tag does not name the collective, so that another one is received. */
void mpi_exchange_headers(Work *work) {
  Mpi *mpi = work->mpi;
  const FlightRecorder *recorder = mpi->comm->recorder;
  int size = work->group.size, index = work->group.index;
  int tag = TAG_HEADER + (int)work->queue;
  int64_t kind = work->what->kind == DNN_RECV ? DNN_SEND : work->what->kind;
  work->header_out =
      (Header){work->what->id, kind, work->what->dtype, work->n * work->item,
               recorder ? atomic_load(&recorder->step) : 0};
  work->has_header = size == 1 || work->what->id < 0;
  if (work->has_header) return;
  mpi_check(mpi,
            mpi->api.Irecv(&work->header_in, sizeof(Header), mpi->api.byte,
                           comm_member(&work->group, (index + size - 1) % size),
                           tag, mpi->api.world, &work->headers[0]),
            "received");
  mpi_check(mpi,
            mpi->api.Isend(&work->header_out, sizeof(Header), mpi->api.byte,
                           comm_member(&work->group, (index + 1) % size), tag,
                           mpi->api.world, &work->headers[1]),
            "sent");
}

bool mpi_check_header(Work *work) {
  Mpi *mpi = work->mpi;
  const Header *in = &work->header_in, *out = &work->header_out;
  if (work->has_header) return true;
  int flag = 0;
  mpi_check(mpi, mpi->api.Testall(2, work->headers, &flag, NULL), "waited");
  if (!flag) return false;
  work->has_header = true;
  if (memcmp(in, out, sizeof *in) == 0) return true;
  char why[300];
  int size = work->group.size;
  snprintf(why, sizeof why,
           "ranks disagree: this one is at step %lld, collective %lld of %lld "
           "bytes, rank %d at step %lld, collective %lld of %lld bytes",
           (long long)out->step, (long long)out->id, (long long)out->bytes,
           comm_member(&work->group, (work->group.index + size - 1) % size),
           (long long)in->step, (long long)in->id, (long long)in->bytes);
  mpi_give_up(mpi, why);
}
