/*
 * pages.c -- asks the system for memory in large pages, of which a processor
 * needs fewer translations.
 *
 * A refusal costs speed only: madvise changes nothing then.
 */
#include "runtime/cpu/cpu.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#define LARGE_PAGE ((uintptr_t)2 << 20)
/* A library's scratch for a thread; the least and most that the heap gets. */
#define THREAD_BYTES ((int64_t)8 << 20)
#define LEAST_BYTES  ((int64_t)64 << 20)
#define MOST_BYTES   ((int64_t)1 << 30)
#define PROBE_BYTES  ((size_t)4 << 20)

Status pages_map(int64_t bytes, void **out) {
  size_t n = (size_t)(bytes > 0 ? bytes : 1);
  char memory[MEMORY_TEXT];
  void *data =
      mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED)
    return status_errno(errno, "no memory for %s",
                        text_memory(memory, (double)bytes, 1));
  if (n >= 2 * LARGE_PAGE) madvise(data, n, MADV_HUGEPAGE);
  *out = data;
  return STATUS_OK;
}

void pages_enlarge_heap(int n_threads) {
#ifdef __GLIBC__
  int64_t bytes = n_threads * THREAD_BYTES;
  if (bytes < LEAST_BYTES) bytes = LEAST_BYTES;
  if (bytes > MOST_BYTES) bytes = MOST_BYTES;
  mallopt(M_ARENA_MAX, 1);             /* threads take from this heap, too */
  mallopt(M_MMAP_THRESHOLD, 32 << 20); /* the most that it takes */
  mallopt(M_TRIM_THRESHOLD, INT_MAX);  /* what is freed stays */
  mallopt(M_TOP_PAD, (int)bytes);      /* the heap grows by as much */
  char *begin = malloc(PROBE_BYTES), *end = sbrk(0);
  if (begin && begin < end && end - begin >= bytes) {
    uintptr_t first =
        ((uintptr_t)begin + LARGE_PAGE - 1) / LARGE_PAGE * LARGE_PAGE;
    uintptr_t last = (uintptr_t)end / LARGE_PAGE * LARGE_PAGE;
    madvise((void *)first, last - first, MADV_HUGEPAGE);
  }
  free(begin);
#else
  (void)n_threads;
#endif
}
