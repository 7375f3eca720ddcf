/*
 * fuzz_files.c -- throws damaged mapping files and vocabularies at their
 * readers (libFuzzer); run.sh builds and starts it.  A map that is understood
 * prints to text that is understood as the same; whatever a vocabulary holds,
 * the bytes of any text come back from its tokens.
 */
#include "frontend/tensormap.h"
#include "runtime/vocabulary.h"

#include <stdlib.h>
#include <string.h>

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

/* The first byte chooses the reader. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  if (n == 0) return 0;
  Memory *memory = memory_create(exhausted, NULL);
  if (!memory) return 0;
  Arena *arena = arena_create(memory);
  Module module = {memory, arena, names_create(arena), diags_create(arena)};
  char *text = arena_alloc(arena, n); /* with a NUL behind it */
  memcpy(text, data + 1, n - 1);
  if (data[0] & 1)
    try_vocabulary(arena, text, n - 1);
  else
    try_map(&module, text, n - 1);
  memory_destroy(memory);
  return 0;
}
