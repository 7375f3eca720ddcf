/*
 * fuzz_files.c -- throws damaged mapping files, vocabularies and data files at
 * their readers (libFuzzer); run.sh builds and starts it.  A map that is
 * understood prints to text that is understood as the same; whatever a
 * vocabulary holds, the bytes of any text come back from its tokens.
 */
#include "convert/tensormap.h"
#include "runtime/data/reader.h"
#include "runtime/data/vocabulary.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void exhausted(void *user) {
  (void)user;
  abort();
}

static const char *printed(Module *module, const char *text, size_t n) {
  Source source = {"fuzz.map", text, n};
  Text out = text_create(module->arena), messages = text_create(module->arena);
  TensorMap *map = tensormap_parse(
      module, arena_copy(module->arena, &source, sizeof source));
  diags_print(module->diags, &messages);
  if (!map) return NULL;
  tensormap_print(&out, map);
  return text_string(&out);
}

static void try_map(Module *module, const char *text, size_t n) {
  const char *once = printed(module, text, n);
  if (!once) return;
  const char *twice = printed(module, once, strlen(once));
  if (!twice || strcmp(once, twice) != 0) abort();
}

/* The file itself is the text. */
static void try_vocabulary(Arena *arena, const char *text, size_t n) {
  Vocabulary *v;
  int32_t *tokens;
  if (vocabulary_read(arena, "fuzz.bpe", text, (int64_t)n, &v).code !=
      STATUS_ok)
    return;
  int64_t count = vocabulary_encode(v, arena, text, (int64_t)n, &tokens);
  size_t at = 0;
  for (int64_t i = 0; i < count; i++) {
    int length;
    const unsigned char *bytes = vocabulary_text(v, tokens[i], &length);
    if (at + (size_t)length > n ||
        memcmp(text + at, bytes, (size_t)length) != 0)
      abort();
    at += (size_t)length;
  }
  if (at != n) abort();
}

/* An array that is taken fills the file, and its header written again says the
 * same. */
static void try_npy(const unsigned char *bytes, int64_t n) {
  NpyHeader header;
  if (npy_parse("fuzz.npy", bytes, n, n, &header).code != STATUS_ok) return;
  if (header.data_begin + header.n * header.format.bytes != n) abort();
  double value;
  unsigned char raw[8];
  if (header.n == 0) return;
  memcpy(raw, bytes + n - header.format.bytes, header.format.bytes);
  numbers_decode(header.format, raw, 1, &value);
}

/* Rows of text from a file that was opened: its numbers and, with an odd first
 * byte, its classes. */
static void try_csv(Arena *arena, const char *text, int64_t n) {
  static const char *const classes[] = {"a", "b", "a \"b\""};
  bool has_classes = n > 0 && (text[0] & 1);
  DnnField field = {.path = "d.x",
                    .dtype = DNN_i32,
                    .scale = 1,
                    .rank = 1,
                    .first_column = 1,
                    .last_column = 1,
                    .header_lines = n > 1 && (text[1] & 1),
                    .n_classes = has_classes ? 3 : 0,
                    .classes = classes};
  InputSearch search = {0};
  int fd = memfd_create("fuzz.csv", 0);
  if (fd < 0 || write(fd, text, (size_t)n) != n) abort();
  Reader reader = {.kind = SOURCE_csv,
                   .file = {.path = "fuzz.csv", .fd = fd, .n = n}};
  if (csv_open(arena, &field, &search, false, &reader).code == STATUS_ok)
    for (int64_t i = 0; i < reader.n; i++)
      if (!value_is_right(&field, 0, reader.numbers[i])) abort();
  reader_close(&reader);
}

/* The first byte chooses the reader. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  if (n == 0) return 0;
  Memory *memory = memory_create(exhausted, NULL);
  if (!memory) return 0;
  Arena *arena = arena_create(memory);
  Module module = {memory, arena, names_create(arena), diags_create(arena)};
  char *text = arena_alloc(arena, n); /* with a NUL behind it */
  memcpy(text, data + 1, n - 1);
  switch (data[0] % 4) {
  case 0: try_map(&module, text, n - 1); break;
  case 1: try_vocabulary(arena, text, n - 1); break;
  case 2: try_npy((unsigned char *)text, (int64_t)n - 1); break;
  default: try_csv(arena, text, (int64_t)n - 1); break;
  }
  memory_destroy(memory);
  return 0;
}
