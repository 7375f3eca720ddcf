/*
 * core_distance.c -- measures how far cores are apart, as the time that a cache
 * line takes between them: about 60 ns where they share a cache, 330 ns where
 * they do not.
 *
 * The host of a virtual machine moves its cores, for seconds or minutes.  What
 * each of them computes alone then takes as long as before, and what two
 * threads compute together does not: a step of charlstm on two threads took 16
 * or 25 ms.
 */
#include "tools/tune/core_distance.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

enum { TRIPS = 4000, TIMES = 5, PATIENCE = 1 << 26 };

typedef struct Line {
  _Alignas(64) atomic_int turn; /* 2 i: of the first core, in trip i */
  _Alignas(64) int cpu[2];
  bool
      is_lost[2]; /* the other core did not answer: something else runs there */
  int64_t ns;
} Line;

static bool wait_for(Line *line, int turn) {
  for (int i = 0; i < PATIENCE; i++)
    if (atomic_load(&line->turn) == turn) return true;
  return false;
}

static int64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static bool pin(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  return sched_setaffinity(0, sizeof set, &set) == 0;
}

/* The core `which` of the two takes every other turn. */
static void take_turns(Line *line, int which) {
  int64_t begin = 0;
  bool is_lost = !pin(line->cpu[which]);
  for (int i = 0; i < TRIPS && !is_lost; i++) {
    int turn = 2 * i + which;
    is_lost = !wait_for(line, turn);
    if (i == 1) begin = now_ns(); /* both threads run */
    if (!is_lost) atomic_store(&line->turn, turn + 1);
  }
  line->is_lost[which] = is_lost;
  if (which == 0) line->ns = (now_ns() - begin) / (TRIPS - 1);
}

static void *first_core(void *line) {
  take_turns(line, 0);
  return NULL;
}

static void *last_core(void *line) {
  take_turns(line, 1);
  return NULL;
}

/* 0: not measured. */
static int64_t measure_once(int first, int last) {
  Line line = {.cpu = {first, last}};
  pthread_t threads[2];
  if (pthread_create(&threads[0], NULL, first_core, &line) != 0) return 0;
  bool has_both = pthread_create(&threads[1], NULL, last_core, &line) == 0;
  pthread_join(threads[0], NULL);
  if (has_both) pthread_join(threads[1], NULL);
  return has_both && !line.is_lost[0] && !line.is_lost[1] ? line.ns : 0;
}

int64_t core_distance_ns(void) {
  cpu_set_t allowed;
  int first = -1, last = -1;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return 0;
  for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    if (first < 0) first = cpu;
    last = cpu;
  }
  int64_t least = 0;
  for (int i = 0; first != last && i < TIMES; i++) {
    int64_t ns = measure_once(first, last);
    if (ns > 0 && (least == 0 || ns < least)) least = ns;
  }
  return least;
}
