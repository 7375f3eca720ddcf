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

enum { EXIT_LOST = 3, TAG_HEARTBEAT = 1 << 28 };
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

/* ---- messages ---- */

/* While the main thread computes, polling would take its core: then sleep,
 * longer and longer up to 0.2 ms. */
static void pause_polling(Mpi *mpi, int n_polls) {
  if (atomic_load_explicit(&mpi->main_waits, memory_order_relaxed)) {
    sched_yield();
    return;
  }
  int64_t sleep_ns = 10000 + (int64_t)n_polls * 5000;
  if (sleep_ns > 200000) sleep_ns = 200000;
  nanosleep(&(struct timespec){.tv_nsec = sleep_ns}, NULL);
}

void mpi_finish(Mpi *mpi, void **requests, int n) {
  for (int polls = 0;; polls++) {
    int flag = 0;
    check_mpi(mpi, mpi->api.Testall(n, requests, &flag, NULL), "waited");
    if (flag) return;
    mpi_tick(mpi);
    pause_polling(mpi, polls);
  }
}

void mpi_send(Mpi *mpi, const void *data, int64_t bytes, int to, int tag,
              void **request) {
  check_mpi(mpi,
            mpi->api.Isend(data, (int)bytes, mpi->api.byte, to, tag,
                           mpi->api.world, request),
            "sent");
}

void mpi_receive(Mpi *mpi, void *data, int64_t bytes, int from, int tag,
                 void **request) {
  check_mpi(mpi,
            mpi->api.Irecv(data, (int)bytes, mpi->api.byte, from, tag,
                           mpi->api.world, request),
            "received");
}

/* ---- what a collective of several ranks sends ---- */

int mpi_tag(const Reduction *r, const Slot *slot, Phase phase) {
  return (r->what->id & 0xfffff) << 6 | (slot->round & 0xf) << 2 | (int)phase;
}

int mpi_member(const Reduction *r, int index) {
  return comm_member(&r->group, index);
}

void mpi_exchange_headers(const Reduction *r, Slot *slot) {
  Mpi *mpi = r->mpi;
  const FlightRecorder *recorder = mpi->comm->recorder;
  int size = r->group.size, index = r->group.index;
  int64_t kind = r->what->kind == DNN_RECV ? DNN_SEND : r->what->kind;
  mpi->header_out = (Header){r->what->id, kind, r->what->dtype, r->n * r->item,
                             recorder ? atomic_load(&recorder->step) : 0};
  int tag = mpi_tag(r, slot, PHASE_header);
  mpi_send(mpi, &mpi->header_out, sizeof(Header),
           mpi_member(r, (index + 1) % size), tag,
           &slot->requests[slot->n_requests++]);
  mpi_receive(mpi, &mpi->header_in, sizeof(Header),
              mpi_member(r, (index + size - 1) % size), tag,
              &slot->requests[slot->n_requests++]);
}

void mpi_check_header(const Reduction *r) {
  const Header *in = &r->mpi->header_in, *out = &r->mpi->header_out;
  if (memcmp(in, out, sizeof *in) == 0) return;
  char why[300];
  int size = r->group.size;
  snprintf(why, sizeof why,
           "ranks disagree: this one is at step %lld, collective %lld of %lld "
           "bytes, rank %d at step %lld, collective %lld of %lld bytes",
           (long long)out->step, (long long)out->id, (long long)out->bytes,
           mpi_member(r, (r->group.index + size - 1) % size),
           (long long)in->step, (long long)in->id, (long long)in->bytes);
  give_up(r->mpi, -1, why);
}
