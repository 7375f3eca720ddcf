// links: runtime
/*
 * pages.c -- tests that scratch of libraries lies in large pages.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/cpu/cpu.h"

TestSuite(pages, .timeout = 60);

/* The kernel's flags of the mapping that an address is in: "hg" is advice to
 * use huge pages. */
static bool is_in_large_pages(const void *address) {
  FILE *file = fopen("/proc/self/smaps", "r");
  cr_assert(file);
  char line[1024];
  bool is_here = false, found = false;
  while (fgets(line, sizeof line, file)) {
    unsigned long first, last;
    if (sscanf(line, "%lx-%lx ", &first, &last) == 2)
      is_here = (uintptr_t)address >= first && (uintptr_t)address < last;
    if (is_here && !strncmp(line, "VmFlags:", 8))
      found = strstr(line, " hg") != NULL;
  }
  fclose(file);
  return found;
}

static bool has_large_pages(void) {
  if (access("/sys/kernel/mm/transparent_hugepage/enabled", F_OK) == 0)
    return true;
  fprintf(stderr, "skipped: the system has no large pages\n");
  return false;
}

Test(pages, mapped) {
  void *data;
  cr_assert_eq(pages_map((int64_t)64 << 20, &data).code, STATUS_ok);
  if (has_large_pages()) cr_assert(is_in_large_pages((char *)data + (9 << 20)));
}

/* AddressSanitizer brings a malloc of its own. */
#ifdef __SANITIZE_ADDRESS__
#define WHERE_MALLOC_IS_OF_LIBC .disabled = true
#else
#define WHERE_MALLOC_IS_OF_LIBC .disabled = false
#endif

Test(pages, of_the_heap, WHERE_MALLOC_IS_OF_LIBC) {
  enum { BLOCK = 485000, N = 40 };
  if (!has_large_pages()) return;
  cr_assert_not(is_in_large_pages(malloc(BLOCK)));
  pages_enlarge_heap(2);
  int n = 0;
  for (int i = 0; i < N; i++) n += is_in_large_pages(malloc(BLOCK));
  /* All but those that a gap at either end has taken. */
  cr_assert_geq(n, N - 10, "%d of %d", n, N);
}
