/*
 * fuzz_checkpoint.c -- throws damaged checkpoints at their reader (libFuzzer);
 * run.sh builds and starts it.
 *
 * Random bytes never get past the first brace, so the mutator works on fields:
 * it writes a header from a short program of choices (names twice, gaps, sizes
 * that overflow, escapes), and then may damage a byte.
 */
#include "runtime/checkpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

size_t LLVMFuzzerMutate(uint8_t *data, size_t n, size_t max);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t n, size_t max,
                               unsigned seed);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void exhausted(void *user) {
  (void)user;
  abort();
}

static const char *pick(unsigned *seed, const char *const *from, int n) {
  *seed = *seed * 1103515245 + 12345;
  return from[(*seed >> 16) % (unsigned)n];
}

static int write_tensor(char *to, size_t room, unsigned *seed, int64_t *at) {
  static const char *const names[] = {"a",
                                      "b.w",
                                      "block[0].q",
                                      "a",
                                      "\\u0061",
                                      "ema/b.w",
                                      "__metadata__",
                                      "\\u0000",
                                      "\\ud83d\\ude00"};
  static const char *const dtypes[] = {"F32",     "F32", "BF16", "I64",
                                       "F8_E4M3", "C64", ""};
  static const char *const shapes[] = {"",
                                       "4",
                                       "2,2",
                                       "1,4,1",
                                       "0",
                                       "4611686018427387904",
                                       "99999999999999999999",
                                       "-4",
                                       "4.0",
                                       "1,1,1,1,1,1,1,1,1,1,1,1,1"};
  static const char *const jumps[] = {"16", "16", "16", "0", "8", "64"};
  int64_t end = *at + strtoll(pick(seed, jumps, ARRAY_LENGTH(jumps)), NULL, 10);
  int n = snprintf(to, room,
                   "\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],"
                   "\"data_offsets\":[%lld,%lld]}",
                   pick(seed, names, ARRAY_LENGTH(names)),
                   pick(seed, dtypes, ARRAY_LENGTH(dtypes)),
                   pick(seed, shapes, ARRAY_LENGTH(shapes)), (long long)*at,
                   (long long)end);
  *at = end;
  return n < 0 || (size_t)n >= room ? 0 : n;
}

static size_t write_header(char *to, size_t room, unsigned seed) {
  size_t n = 0;
  int64_t at = 0;
  unsigned count = seed % 5;
  n += (size_t)snprintf(to, room, "{%s",
                        seed & 64 ? "\"__metadata__\":{\"step\":\"7\"}," : "");
  for (unsigned i = 0; i <= count; i++) {
    if (i > 0 && n + 1 < room) to[n++] = ',';
    n += (size_t)write_tensor(to + n, room - n, &seed, &at);
  }
  if (n + 1 < room) to[n++] = '}';
  return n;
}

/* The first byte chooses the parser and the size of the data. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t n, size_t max,
                               unsigned seed) {
  if (max < 256 || seed % 4 == 0) return LLVMFuzzerMutate(data, n, max);
  data[0] = (uint8_t)(seed >> 8);
  n = 1 + write_header((char *)data + 1, max - 1, seed);
  if (seed % 4 == 1) data[1 + (seed >> 3) % (n - 1)] ^= (uint8_t)(seed >> 20);
  return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  if (n == 0) return 0;
  Memory *memory = memory_create(exhausted, NULL);
  if (!memory) return 0;
  Arena *arena = arena_create(memory);
  /* A copy of exactly this size, so that reading past it is seen. */
  char *text = malloc(n);
  if (text) {
    memcpy(text, data + 1, n - 1);
    StoredHeader header;
    StoredIndex index;
    if (data[0] & 1)
      safetensors_parse_index(arena, text, n - 1, &index);
    else
      safetensors_parse(arena, text, n - 1, (data[0] >> 1) * 4, &header);
  }
  free(text);
  memory_destroy(memory);
  return 0;
}
