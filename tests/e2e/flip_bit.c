/*
 * flip_bit.c -- simulates a fault of memory in a rank that it is preloaded
 * into. When the file $FLIP_BIT appears, every run of RUN equal words MARK in
 * what the process may write gets one bit flipped, and the file is removed.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { RUN = 512 };
static const uint32_t MARK = 0x3f800000; /* 1.0 */

static int flip_in(uint32_t *at, uint32_t *end) {
  int n_equal = 0, n_flipped = 0;
  for (; at < end; at++) {
    n_equal = *at == MARK ? n_equal + 1 : 0;
    if (n_equal != RUN) continue;
    *at ^= 1;
    n_flipped++;
    n_equal = 0;
  }
  return n_flipped;
}

static int flip_all(void) {
  char line[4400], mode[5];
  unsigned long begin, end;
  int n = 0;
  FILE *maps = fopen("/proc/self/maps", "r");
  while (maps && fgets(line, sizeof line, maps))
    if (sscanf(line, "%lx-%lx %4s", &begin, &end, mode) == 3 &&
        mode[0] == 'r' && mode[1] == 'w' && mode[3] == 'p')
      n += flip_in((uint32_t *)begin, (uint32_t *)end);
  if (maps) fclose(maps);
  return n;
}

static void *wait_and_flip(void *path) {
  while (access(path, F_OK) != 0) usleep(2000);
  if (flip_all() == 0) fprintf(stderr, "flip_bit: no mark was found\n");
  unlink(path);
  return NULL;
}

__attribute__((constructor)) static void start(void) {
  pthread_t thread;
  char *path = getenv("FLIP_BIT");
  unsetenv("LD_PRELOAD");
  if (path && pthread_create(&thread, NULL, wait_and_flip, path) == 0)
    pthread_detach(thread);
}
