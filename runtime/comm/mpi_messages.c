/*
 * mpi_messages.c -- sends and receives messages over Open MPI, and finds lost
 * ranks by heartbeats while it waits for them.
 *
 * Open MPI notices a dead rank but not a silent one.  So the communication
 * thread sends a heartbeat to both neighbours every second.  It ends the
 * process when a neighbour has been silent for 8 s, when the main thread has
 * waited beyond its deadline or when the launcher is gone: it prints the flight
 * recorder and calls _exit, because no collective can be trusted to return
 * after that.
 */
#include "runtime/comm/mpi.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { EXIT_LOST = 3, TAG_HEARTBEAT = 1 << 28, TAG_HEADER = TAG_HEARTBEAT + 1 };
static const int64_t heartbeat_ns = 1000000000, silent_ns = 8000000000;

/* ---- the end of a run that cannot continue ---- */

_Noreturn static void give_up(Mpi *mpi, int lost, const char *why) {
  FlightRecorder *recorder = mpi->comm->recorder;
  if (recorder) {
    recorder_report(recorder, why);
    if (lost >= 0) recorder_tell(recorder, "lost %d", lost);
    recorder_tell(recorder, "ended %d", EXIT_LOST);
  } else {
    message_print("rank %d: %s\n", mpi->place.rank, why);
  }
  mpi_end_daemon(&mpi->place);
  _exit(EXIT_LOST);
}

static void check_mpi(Mpi *mpi, int code, const char *doing) {
  if (code == MPI_SUCCESS) return;
  char text[512] = "", why[640];
  int n = 0;
  mpi->api.Error_string(code, text, &n);
  snprintf(why, sizeof why, "MPI failed while it %s: %s", doing, text);
  give_up(mpi, -1, why);
}

/* ---- heartbeats ---- */

void mpi_listen_to(Mpi *mpi, Neighbour *neighbour) {
  check_mpi(mpi,
            mpi->api.Irecv(&neighbour->in, sizeof(Heartbeat), mpi->api.byte,
                           neighbour->rank, TAG_HEARTBEAT, mpi->api.world,
                           &neighbour->receive),
            "listened for a heartbeat");
}

static bool test_request(Mpi *mpi, void **request) {
  int flag = 0;
  check_mpi(mpi, mpi->api.Test(request, &flag, NULL), "tested a message");
  return flag;
}

static void send_heartbeats(Mpi *mpi, int64_t now) {
  const FlightRecorder *recorder = mpi->comm->recorder;
  mpi->last_heartbeat_ns = now;
  for (int i = 0; i < mpi->n_neighbours; i++) {
    Neighbour *neighbour = &mpi->neighbours[i];
    if (neighbour->send && !test_request(mpi, &neighbour->send)) continue;
    if (recorder)
      neighbour->out = (Heartbeat){atomic_load(&recorder->step),
                                   atomic_load(&recorder->instr)};
    check_mpi(mpi,
              mpi->api.Isend(&neighbour->out, sizeof(Heartbeat), mpi->api.byte,
                             neighbour->rank, TAG_HEARTBEAT, mpi->api.world,
                             &neighbour->send),
              "sent a heartbeat");
  }
}

static void receive_heartbeats(Mpi *mpi, int64_t now) {
  for (int i = 0; i < mpi->n_neighbours; i++) {
    Neighbour *neighbour = &mpi->neighbours[i];
    Heartbeat last = neighbour->in;
    while (test_request(mpi, &neighbour->receive)) {
      neighbour->heard_ns = now;
      last = neighbour->in;
      mpi_listen_to(mpi, neighbour);
    }
    neighbour->in = last;
    int64_t silence =
        now - (neighbour->heard_ns ? neighbour->heard_ns : mpi->started_ns);
    if (silence < (neighbour->heard_ns ? silent_ns : mpi->limit_ns)) continue;
    char why[200];
    snprintf(why, sizeof why,
             "lost rank %d: nothing heard of it for %.1f s; it was at step "
             "%lld, instruction %lld",
             neighbour->rank, (double)silence * 1e-9, (long long)last.step,
             (long long)last.instr);
    give_up(mpi, neighbour->rank, why);
  }
}

static void check_deadline(Mpi *mpi, int64_t now) {
  FlightRecorder *recorder = mpi->comm->recorder;
  if (!recorder) return;
  if (recorder_launcher_is_gone(recorder)) {
    if (recorder->local_rank == 0) give_up(mpi, -1, "the launcher has gone");
    _exit(EXIT_LOST);
  }
  int64_t since = atomic_load(&recorder->waits_since);
  int64_t deadline = atomic_load(&recorder->deadline_ns);
  if (!since || !deadline || now - since < deadline) return;
  const Neighbour *n = &mpi->neighbours[0];
  char why[200];
  snprintf(why, sizeof why,
           "no progress for %.0f s; rank %d is at step %lld, instruction %lld",
           (double)(now - since) * 1e-9, n->rank, (long long)n->in.step,
           (long long)n->in.instr);
  give_up(mpi, -1, why);
}

void mpi_tick(Mpi *mpi) {
  int64_t now = clock_ns();
  if (now - mpi->last_tick_ns < MPI_TICK_NS) return;
  /* If we were stopped ourselves, silence means nothing. */
  if (now - mpi->last_tick_ns > 2 * heartbeat_ns)
    for (int i = 0; i < mpi->n_neighbours; i++)
      if (mpi->neighbours[i].heard_ns) mpi->neighbours[i].heard_ns = now;
  mpi->last_tick_ns = now;
  if (now - mpi->last_heartbeat_ns >= heartbeat_ns) send_heartbeats(mpi, now);
  receive_heartbeats(mpi, now);
  check_deadline(mpi, now);
}

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
  check_mpi(mpi,
            mpi->api.Isend(data, message_bytes(work, n), mpi->api.byte,
                           comm_member(&work->group, member),
                           message_tag(work, slot, phase), mpi->api.world,
                           &slot->requests[slot->n_requests++]),
            "sent");
}

void mpi_receive(Work *work, Slot *slot, void *data, int64_t n, int member,
                 Phase phase) {
  Mpi *mpi = work->mpi;
  check_mpi(mpi,
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
    check_mpi(mpi,
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
  check_mpi(mpi,
            mpi->api.Irecv(&work->header_in, sizeof(Header), mpi->api.byte,
                           comm_member(&work->group, (index + size - 1) % size),
                           tag, mpi->api.world, &work->headers[0]),
            "received");
  check_mpi(mpi,
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
  check_mpi(mpi, mpi->api.Testall(2, work->headers, &flag, NULL), "waited");
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
  give_up(mpi, -1, why);
}
