/*
 * mpi_messages.c -- sends and receives messages over Open MPI, and compares
 * what the members of a group have begun.
 */
#include "runtime/comm/mpi.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
  TAG_HEADER = (1 << 28) + 1,
  TAG_MESSAGE = TAG_HEADER + DNN_N_QUEUES,
  SHARED_POLLS = 10 /* before a rank that waits gives up a shared core */
};

/* While the main thread computes, polling would take its core, and where ranks
 * share cores that of another rank: then sleep, longer and longer up to 0.2 ms.
 */
void mpi_pause(Mpi *mpi, int n_polls) {
  bool waits = atomic_load_explicit(&mpi->main_waits, memory_order_relaxed);
  if (waits && (!mpi->shares_cores || n_polls < SHARED_POLLS)) {
    sched_yield();
    return;
  }
  if (waits) n_polls -= SHARED_POLLS;
  int64_t sleep_ns = 10000 + (int64_t)n_polls * 5000;
  if (sleep_ns > 200000) sleep_ns = 200000;
  nanosleep(&(struct timespec){.tv_nsec = sleep_ns}, NULL);
}

/* ---- messages ---- */

static bool is_message(const Work *work) {
  return work->queue >= WORK_MESSAGES;
}

/* Parts that follow each other in one tag; wraps around.  Messages between two
 * ranks go one after the other, so one tag does for all. */
static int message_tag(const Work *work, const Slot *slot, Phase phase) {
  if (is_message(work)) return TAG_MESSAGE;
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

static Header own_header(const Work *work) {
  const DnnCollective *what = work->what;
  Header header;
  memset(&header, 0, sizeof header);
  header.id = is_message(work) ? what->edge : what->id;
  header.kind = what->kind == DNN_RECV ? DNN_SEND : what->kind;
  header.dtype = what->dtype;
  header.bytes = work->n * work->item;
  header.step = work->job->step;
  header.microbatch = work->job->microbatch;
  if (work->job->path)
    snprintf(header.path, sizeof header.path, "%s", work->job->path);
  return header;
}

static void receive_header(Work *work, int member, int tag) {
  Mpi *mpi = work->mpi;
  mpi_check(mpi,
            mpi->api.Irecv(&work->header_in, sizeof(Header), mpi->api.byte,
                           comm_member(&work->group, member), tag,
                           mpi->api.world, &work->headers[work->n_headers++]),
            "received");
}

static void send_header(Work *work, int member, int tag) {
  Mpi *mpi = work->mpi;
  mpi_check(mpi,
            mpi->api.Isend(&work->header_out, sizeof(Header), mpi->api.byte,
                           comm_member(&work->group, member), tag,
                           mpi->api.world, &work->headers[work->n_headers++]),
            "sent");
}

/* The tag does not name the collective, so that another one is received. */
void mpi_exchange_headers(Work *work) {
  int size = work->group.size, index = work->group.index;
  int tag = TAG_HEADER + work->queue;
  work->n_headers = 0;
  work->has_header = size == 1 || work->queue == WORK_HOST;
  if (work->has_header) return;
  work->header_out = own_header(work);
  if (is_message(work) && work->what->kind == DNN_SEND) {
    send_header(work, !index, TAG_MESSAGE);
  } else if (is_message(work)) {
    receive_header(work, !index, TAG_MESSAGE);
  } else {
    receive_header(work, (index + size - 1) % size, tag);
    send_header(work, (index + 1) % size, tag);
  }
}

/* Parts of a step have no number of a micro-batch, and a program may receive
 * for one what another sends for all. */
static bool headers_agree(const Header *a, const Header *b) {
  bool has_both = a->microbatch > 0 && b->microbatch > 0;
  return a->id == b->id && a->kind == b->kind && a->dtype == b->dtype &&
         a->bytes == b->bytes && a->step == b->step &&
         (!has_both || a->microbatch == b->microbatch);
}

static void describe_message(FixedText *text, const Header *header) {
  fixed_printf(text, "'%s' at step %lld", header->path,
               (long long)header->step);
  if (header->microbatch > 0)
    fixed_printf(text, " in micro-batch %lld",
                 (long long)header->microbatch - 1);
  fixed_printf(text, " (edge %lld, %lld bytes of %s)", (long long)header->id,
               (long long)header->bytes, dtype_label((DnnDtype)header->dtype));
}

_Noreturn static void disagree(Work *work, const Header *in,
                               const Header *out) {
  char data[600];
  FixedText why = fixed_text(data, sizeof data);
  int size = work->group.size;
  int other = comm_member(&work->group, (work->group.index + size - 1) % size);
  if (is_message(work)) {
    fixed_printf(&why, "messages disagree: this rank receives ");
    describe_message(&why, out);
    fixed_printf(&why, ", rank %d sends ", other);
    describe_message(&why, in);
  } else {
    fixed_printf(&why,
                 "ranks disagree: this one is at step %lld, collective %lld of "
                 "%lld bytes, rank %d at step %lld, collective %lld of %lld "
                 "bytes",
                 (long long)out->step, (long long)out->id,
                 (long long)out->bytes, other, (long long)in->step,
                 (long long)in->id, (long long)in->bytes);
  }
  mpi_give_up(work->mpi, data);
}

bool mpi_check_header(Work *work) {
  Mpi *mpi = work->mpi;
  if (work->has_header) return true;
  int flag = 0;
  mpi_check(mpi, mpi->api.Testall(work->n_headers, work->headers, &flag, NULL),
            "waited");
  if (!flag) return false;
  work->has_header = true;
  bool is_sender = is_message(work) && work->what->kind == DNN_SEND;
  if (is_sender || headers_agree(&work->header_in, &work->header_out))
    return true;
  disagree(work, &work->header_in, &work->header_out);
}
