/*
 * stop.c -- a signal ends a rank that has nothing to save at once, in the
 * middle of whatever it does: a thread waits for it, removes what is half
 * written and leaves.
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
  watch_tell(&run->watch, "ended %d", code);
  usleep(OTHERS_US);
  _exit(code);
}

void stop_at_once(Run *run) {
  run->is_watched =
      pthread_create(&run->watcher, NULL, wait_for_signal, run) == 0;
}

void stop_watching(Run *run) {
  if (!run->is_watched) return;
  pthread_cancel(run->watcher);
  pthread_join(run->watcher, NULL);
  run->is_watched = false;
}
