/*
 * mpi_heartbeats.c -- finds lost ranks by heartbeats, and ends a run that
 * cannot continue.
 *
 * Open MPI notices a dead rank but not a silent one.  So the communication
 * thread sends a heartbeat to both neighbours every second.  It ends the
 * process when a neighbour has been silent for 8 s, when the main thread has
 * waited beyond its deadline or when the launcher is gone: it prints the flight
 * recorder and calls _exit, because no collective can be trusted to return
 * after that.
 */
#include "runtime/comm/mpi.h"

#include <stdio.h>
#include <unistd.h>

enum { EXIT_LOST = 3, TAG_HEARTBEAT = 1 << 28 };
static const int64_t heartbeat_ns = 1000000000, silent_ns = 8000000000;

/* ---- the end of a run that cannot continue ---- */

void mpi_give_up(Mpi *mpi, int lost, const char *why) {
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

void mpi_check(Mpi *mpi, int code, const char *doing) {
  if (code == MPI_SUCCESS) return;
  char text[512] = "", why[640];
  int n = 0;
  mpi->api.Error_string(code, text, &n);
  snprintf(why, sizeof why, "MPI failed while it %s: %s", doing, text);
  mpi_give_up(mpi, -1, why);
}

/* ---- heartbeats ---- */

void mpi_listen_to(Mpi *mpi, Neighbour *neighbour) {
  mpi_check(mpi,
            mpi->api.Irecv(&neighbour->in, sizeof(Heartbeat), mpi->api.byte,
                           neighbour->rank, TAG_HEARTBEAT, mpi->api.world,
                           &neighbour->receive),
            "listened for a heartbeat");
}

static bool test_request(Mpi *mpi, void **request) {
  int flag = 0;
  mpi_check(mpi, mpi->api.Test(request, &flag, NULL), "tested a message");
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
    mpi_check(mpi,
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
    mpi_give_up(mpi, neighbour->rank, why);
  }
}

static void check_deadline(Mpi *mpi, int64_t now) {
  FlightRecorder *recorder = mpi->comm->recorder;
  if (!recorder) return;
  if (recorder_launcher_is_gone(recorder)) {
    if (recorder->local_rank == 0)
      mpi_give_up(mpi, -1, "the launcher has gone");
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
  mpi_give_up(mpi, -1, why);
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
