// links: runtime support
/*
 * pace.c -- tests the clock of paced runs: what launches add up to, debts,
 * waits and what the host does between two steps.
 */
#include "runtime/exec/pace.h"

#include <criterion/criterion.h>
#include <time.h>

#include "runtime/recorder/recorder.h"

#define US INT64_C(1000000) /* picoseconds */
#define MS (1000 * US)

static void sleep_ms(int ms) {
  nanosleep(&(struct timespec){.tv_nsec = ms * 1000000L}, NULL);
}

static int64_t elapsed_ps(const Pace *pace) {
  return (clock_ns() - pace->origin_ns) * 1000;
}

/* Many launches that are each too short for a sleep. */
Test(pace, short_launches_add_up) {
  Pace pace = {0};
  pace_begin(&pace);
  for (int i = 0; i < 3000; i++) {
    pace_add(&pace, 10 * US);
    cr_assert_geq(elapsed_ps(&pace), pace.due_ps - 50 * US);
  }
  cr_expect_eq(pace.due_ps, 30 * MS);
  pace_end(&pace);
  cr_expect_geq(elapsed_ps(&pace), 30 * MS);
}

/* A late end shortens the next sleep: the end is the sum all the same. */
Test(pace, debts_are_carried_on) {
  Pace pace = {0};
  pace_begin(&pace);
  pace_add(&pace, 1 * MS);
  sleep_ms(5);
  pace_add(&pace, 20 * MS);
  cr_expect_eq(pace.due_ps, 21 * MS);
  pace_add(&pace, 0);
  pace_reach(&pace);
  cr_expect_eq(pace.due_ps, 21 * MS);
}

/* The stream goes on when a transfer has ended, if it had to wait for it. */
Test(pace, waiting_takes_time) {
  Pace pace = {0};
  pace_begin(&pace);
  pace_add(&pace, 1 * MS);
  int64_t begin = clock_ns();
  sleep_ms(8);
  pace_waited(&pace, begin);
  cr_expect_geq(pace.due_ps, 8 * MS);
  cr_expect_leq(pace.due_ps, elapsed_ps(&pace));
  /* A transfer that has ended long ago; another process may get the core just
   * then. */
  int64_t due = pace.due_ps;
  bool is_kept = false;
  for (int i = 0; i < 20 && !is_kept; i++) {
    sleep_ms(2);
    pace.due_ps = due;
    pace_waited(&pace, clock_ns());
    is_kept = pace.due_ps == due;
  }
  cr_expect(is_kept);
}

/* A wait may end before the launches that came before it. */
Test(pace, waiting_beside_launches_takes_none) {
  Pace pace = {0};
  pace_begin(&pace);
  pace.due_ps = 1000 * MS;
  int64_t begin = clock_ns();
  sleep_ms(1);
  pace_waited(&pace, begin);
  cr_expect_eq(pace.due_ps, 1000 * MS);
}

/* Reading data between two steps takes its own time and changes no debt. */
Test(pace, the_host_takes_time_between_steps) {
  Pace pace = {0};
  pace_begin(&pace);
  pace_add(&pace, 2 * MS);
  pace_end(&pace);
  int64_t debt = elapsed_ps(&pace) - pace.due_ps;
  sleep_ms(4);
  pace_begin(&pace);
  cr_expect_geq(pace.due_ps, 6 * MS);
  cr_expect_leq(elapsed_ps(&pace) - pace.due_ps, debt + 5 * MS);
  cr_expect_geq(elapsed_ps(&pace) - pace.due_ps, 0);
}
