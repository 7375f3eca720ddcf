/*
 * delays.c -- delays launches of a program at random.  A test links it in front
 * of the program with --wrap=comm_create; $DNNC_DELAYS is a seed and by how
 * many us a launch is late at most: "7:500".  One of six launches is late.
 * With "7:500:2" each one of rank 2 is, by that time.
 */
#include "runtime/comm/comm.h"

#include <stdlib.h>
#include <time.h>

static uint64_t key, longest_ns, n_launches;
static int slow = -1;

static void delay(Comm *comm, const DnnInstr *instr) {
  (void)instr;
  uint64_t at = (uint64_t)comm->rank << 40 | n_launches++ << 1;
  bool is_slow = comm->rank == slow;
  if (!is_slow && random_below(key, at, 6) > 0) return;
  int64_t ns =
      (int64_t)(is_slow ? longest_ns : random_below(key, at | 1, longest_ns));
  nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
}

Status __real_comm_create(Arena *arena, int64_t limit_s, Comm **out);
Status __wrap_comm_create(Arena *arena, int64_t limit_s, Comm **out);
Status __wrap_comm_create(Arena *arena, int64_t limit_s, Comm **out) {
  const char *text = getenv("DNNC_DELAYS");
  char *end;
  TRY(__real_comm_create(arena, limit_s, out));
  if (!text) return STATUS_OK;
  key = strtoull(text, &end, 10);
  longest_ns = strtoull(end + 1, &end, 10) * 1000;
  if (*end == ':') slow = atoi(end + 1);
  (*out)->computed = delay;
  return STATUS_OK;
}
