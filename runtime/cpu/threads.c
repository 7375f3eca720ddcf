/*
 * threads.c -- runs loops on the team of threads that emitted kernels use.
 *
 * Emitted kernels and oneDNN bring an OpenMP library, and both wait for work in
 * its team; a second pool of threads would take their cores.  So the runtime
 * asks the same library, found by name, to run its own loops too.  This file is
 * compiled without OpenMP and links none: if the library is missing, a team is
 * the calling thread.
 */
#include "runtime/cpu/cpu.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* 1000 is what libgomp itself takes where it knows that threads outnumber
 * cores. More is not faster for a program alone.  With libgomp's default, four
 * ranks on two cores with two threads each took 45 times as long. */
bool threads_limit_spinning(void) {
  if (getenv("GOMP_SPINCOUNT") || getenv("OMP_WAIT_POLICY")) return false;
  return setenv("GOMP_SPINCOUNT", "1000", 0) == 0 &&
         dlsym(RTLD_DEFAULT, "GOMP_parallel") != NULL;
}

void threads_open(Threads *threads) {
  static const char *const names[] = {"libgomp.so.1", NULL};
  *threads = (Threads){.n = 1};
  if (dylib_open(NULL, names, &threads->library).code != STATUS_ok) return;
  /* Its threads live on and must not lose the functions they run. */
  void *pin = dlopen(dylib_path(threads->library), RTLD_NOW | RTLD_NODELETE);
  if (pin) dlclose(pin);
  void *parallel = dylib_symbol(threads->library, "GOMP_parallel");
  void *number = dylib_symbol(threads->library, "omp_get_thread_num");
  void *count = dylib_symbol(threads->library, "omp_get_num_threads");
  void *limit = dylib_symbol(threads->library, "omp_get_max_threads");
  if (!parallel || !number || !count || !limit) return;
  memcpy(&threads->parallel, &parallel, sizeof parallel);
  memcpy(&threads->number, &number, sizeof number);
  memcpy(&threads->count, &count, sizeof count);
  int (*max_threads)(void);
  memcpy(&max_threads, &limit, sizeof limit);
  threads->n = max_threads();
  if (threads->n < 1) threads->n = 1;
}

typedef struct Team {
  const Threads *threads;
  ThreadBody *body;
  void *arg;
} Team;

static void enter_team(void *user) {
  const Team *team = user;
  team->body(team->arg, team->threads->number(), team->threads->count());
}

void threads_run(const Threads *threads, ThreadBody *body, void *arg) {
  if (threads->n == 1 || !threads->parallel) {
    body(arg, 0, 1);
    return;
  }
  Team team = {threads, body, arg};
  threads->parallel(enter_team, &team, (unsigned)threads->n, 0);
}

void threads_close(Threads *threads) {
  if (threads->library) dylib_close(threads->library);
  threads->library = NULL;
}

void denormals_flush(void) {
#if defined(__x86_64__)
  _mm_setcsr(_mm_getcsr() | 0x8040); /* flush to zero, denormals are zero */
#elif defined(__aarch64__)
  uint64_t control;
  __asm__ volatile("mrs %0, fpcr" : "=r"(control));
  __asm__ volatile("msr fpcr, %0" : : "r"(control | (1u << 24)));
#endif
}
