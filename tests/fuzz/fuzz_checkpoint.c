/*
 * fuzz_checkpoint.c -- throws damaged checkpoints at their reader (libFuzzer);
 * run.sh builds and starts it.
 *
 * Random bytes never get past the first brace, so the mutator works on fields:
 * it writes a header from a short program of choices (names twice, gaps, sizes
 * that overflow, escapes, the mark of a save) or an index, and then may damage
 * a byte.  A mark is read as it was written, and not at all once it was
 * altered.
 */
#include "runtime/checkpoint/checkpoint.h"

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

/* The texts of a mark as they are in a header, some of them altered. */
static size_t write_mark(char *to, size_t room, unsigned seed) {
  static const char *const values[] = {"0",  "-1", "18446744073709551616",
                                       "0x", "",   "00001/00000"};
  SaveMarkTexts texts_room;
  StoredText texts[2 + SAVE_MARK_TEXTS] = {{"format", "dnnc"},
                                           {"data:a.csv", "12 00ff"}};
  SaveMark mark = {.step = (int64_t)(seed >> 5),
                   .seed = seed % 3,
                   .save = (uint64_t)seed * 0x9e3779b97f4a7c15u,
                   .file = (int)(seed % 4),
                   .n_files = 3};
  int n_texts = save_mark_texts(&mark, &texts_room, texts, 2);
  size_t n = (size_t)snprintf(to, room, "\"total_size\":\"4\"");
  for (int i = 0; i < n_texts && n < room; i++) {
    const char *value = (seed >> 8) % 16 == (unsigned)i
                            ? pick(&seed, values, ARRAY_LENGTH(values))
                            : texts[i].value;
    n += (size_t)snprintf(to + n, room - n, ",\"%s\":\"%s\"", texts[i].key,
                          value);
  }
  return n < room ? n : 0;
}

static size_t write_index(char *to, size_t room, unsigned seed) {
  size_t n = (size_t)snprintf(to, room, "{\"metadata\":{");
  n += write_mark(to + n, room - n, seed);
  n += (size_t)snprintf(
      to + n, room - n,
      "},\"weight_map\":{\"a\":\"x.safetensors\",\"b.w\":\"%s\""
      "}}",
      seed & 1 ? "../y" : "y.safetensors");
  return n < room ? n : 0;
}

static size_t write_header(char *to, size_t room, unsigned seed) {
  size_t n = 0;
  int64_t at = 0;
  unsigned count = seed % 5;
  to[n++] = '{';
  if (seed & 64) {
    n += (size_t)snprintf(to + n, room - n, "\"__metadata__\":{");
    n += write_mark(to + n, room - n, seed);
    n += (size_t)snprintf(to + n, room - n, "},");
  }
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
  if (max < 1024 || seed % 4 == 0) return LLVMFuzzerMutate(data, n, max);
  data[0] = (uint8_t)(seed >> 8);
  n = 1 + (data[0] & 1 ? write_index((char *)data + 1, max - 1, seed)
                       : write_header((char *)data + 1, max - 1, seed));
  if (seed % 4 == 1) data[1 + (seed >> 3) % (n - 1)] ^= (uint8_t)(seed >> 20);
  return n;
}

static const char *value_of(const StoredText *texts, int n, const char *key) {
  const char *value = stored_text(texts, n, key);
  return value ? value : "";
}

/* Texts whose lengths we accept are written as they were read. */
static void try_mark(const StoredText *texts, int n) {
  static const char *const keys[] = {"step", "seed", "save", "file", "check"};
  SaveMark mark;
  if (!save_mark_read(texts, n, &mark)) return;
  if (mark.step < 0 || mark.file < 0 || mark.file > mark.n_files) abort();
  if (!mark.has_save || n > 16) return;
  StoredText again[16 + SAVE_MARK_TEXTS];
  SaveMarkTexts room;
  int n_again = 0;
  for (int i = 0; i < n; i++)
    if (is_data_key(texts[i].key)) again[n_again++] = texts[i];
  n_again = save_mark_texts(&mark, &room, again, n_again);
  bool is_same = true;
  for (int i = 0; i < 4; i++) {
    const char *value = "";
    for (int j = 0; j < n_again; j++)
      if (strcmp(again[j].key, keys[i]) == 0) value = again[j].value;
    is_same = is_same && strcmp(value, value_of(texts, n, keys[i])) == 0;
  }
  const char *check = value_of(texts, n, "check");
  if (is_same && strtoull(check, NULL, 16) != strtoull(room.check, NULL, 16))
    abort();
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
    if (data[0] & 1) {
      if (safetensors_parse_index(arena, text, n - 1, &index).code == STATUS_ok)
        try_mark(index.metadata, index.n_metadata);
    } else if (safetensors_parse(arena, text, n - 1, (data[0] >> 1) * 4,
                                 &header)
                   .code == STATUS_ok) {
      try_mark(header.metadata, header.n_metadata);
    }
  }
  free(text);
  memory_destroy(memory);
  return 0;
}
