/*
 * pace.c -- sleeps in place of launches.
 *
 *     launches        30 us  30 us  30 us  400 us        start
 *     stream is at    30     60     90     490           490 us
 *     sleeps                 to 60         to 490        to 490
 *
 * The stream of a rank has a time of its own, to which each launch adds.  A
 * sleep ends at that time, absolute, so one that ends late shortens the next:
 * the debt is carried on, and the error does not grow with the number of
 * launches.  Short launches are added up before it is worth to sleep.  Before
 * anything that other ranks or the host see, the stream's time must have come.
 */
#include "runtime/exec/pace.h"

#include "runtime/recorder/recorder.h"

#include <errno.h>
#include <sys/prctl.h>
#include <time.h>

enum {
  PS_PER_NS = 1000,
  NS_PER_S = 1000000000,
  AHEAD_NS = 50000,  /* a shorter sleep costs more than it is right */
  BLOCKED_NS = 20000 /* a wait that takes less found its transfer ended */
};

static int64_t due_ns(const Pace *pace) {
  return pace->origin_ns + pace->due_ps / PS_PER_NS;
}

static void sleep_until(int64_t ns) {
  struct timespec until = {.tv_sec = ns / NS_PER_S, .tv_nsec = ns % NS_PER_S};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
    ;
}

void pace_begin(Pace *pace) {
  int64_t now = clock_ns();
  if (pace->origin_ns) {
    pace->due_ps += (now - pace->left_ns) * PS_PER_NS;
    return;
  }
  /* The system may end a sleep later by this, 50 us where nobody asks. */
  prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);
  pace->origin_ns = now;
}

void pace_add(Pace *pace, int64_t ps) {
  pace->due_ps += ps;
  if (due_ns(pace) - clock_ns() > AHEAD_NS) sleep_until(due_ns(pace));
}

void pace_reach(Pace *pace) {
  if (due_ns(pace) > clock_ns()) sleep_until(due_ns(pace));
}

/* A transfer that had ended before keeps the debt. */
void pace_waited(Pace *pace, int64_t begin_ns) {
  int64_t now = clock_ns();
  if (now - begin_ns > BLOCKED_NS && now > due_ns(pace))
    pace->due_ps = (now - pace->origin_ns) * PS_PER_NS;
}

void pace_end(Pace *pace) {
  pace_reach(pace);
  pace->left_ns = clock_ns();
}
