/*
 * stop.c -- ends a rank that has nothing to save at once when a signal comes: a
 * thread waits for the signal, removes the unfinished file and calls _exit.
 */
#include "runtime/rank/run.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

enum {
  EXIT_interrupted = 130,
  EXIT_terminated = 143,
  OTHERS_US = 50000 /* until every rank has said that it ends */
};

static void *wait_for_signal(void *user) {
  Run *run = user;
  struct pollfd item = {.fd = run->signals, .events = POLLIN};
  Stop stop = STOP_none;
  while (stop == STOP_none)
    if (poll(&item, 1, -1) > 0) stop = run_pending_stop(run);
  const char *path = atomic_load(&run->leftover);
  int code = stop == STOP_interrupt ? EXIT_interrupted : EXIT_terminated;
  if (path) unlink(path);
  recorder_tell(&run->recorder, "ended %d", code);
  usleep(OTHERS_US);
  _exit(code);
}

void stop_at_once(Run *run) {
  run->has_signal_thread =
      pthread_create(&run->signal_thread, NULL, wait_for_signal, run) == 0;
}

void stop_signal_thread(Run *run) {
  if (!run->has_signal_thread) return;
  pthread_cancel(run->signal_thread);
  pthread_join(run->signal_thread, NULL);
  run->has_signal_thread = false;
}
