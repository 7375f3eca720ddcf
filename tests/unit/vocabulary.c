// links: runtime support
/*
 * vocabulary.c -- tests byte pairs: every recorded text
 * (tests/reference/bpe_gpt2.py, made by tiktoken from the same merges) gives
 * the recorded tokens, and the tokens give the text; so do any bytes; a message
 * about a wrong file names the line.
 */
#include "runtime/data/vocabulary.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static Memory *memory;
static Arena *arena;

static void exhausted(void *user) {
  (void)user;
  abort();
}

static void begin(void) {
  memory = memory_create(exhausted, NULL);
  arena = arena_create(memory);
}

static void end(void) {
  memory_destroy(memory);
}

TestSuite(vocabulary, .init = begin, .fini = end);

static const char *file(const char *name, size_t *out_n) {
  const char *text;
  Status status =
      file_read(arena, arena_printf(arena, "%s/%s", TEST_ROOT, name), 16 << 20,
                &text, out_n);
  cr_assert(status.code == STATUS_ok, "%s", status.message);
  return text;
}

static Vocabulary *gpt2(void) {
  size_t n;
  const char *text = file("data/inputs/gpt2-vocab.bpe", &n);
  Vocabulary *vocabulary;
  Status status =
      vocabulary_read(arena, "gpt2-vocab.bpe", text, (int64_t)n, &vocabulary);
  cr_assert(status.code == STATUS_ok, "%s", status.message);
  return vocabulary;
}

static void expect_back(const Vocabulary *v, const int32_t *tokens, int64_t n,
                        const void *text, int64_t n_text) {
  Text out = text_create(arena);
  for (int64_t i = 0; i < n; i++) {
    int length;
    const unsigned char *bytes = vocabulary_text(v, tokens[i], &length);
    text_add_n(&out, (const char *)bytes, (size_t)length);
  }
  cr_assert_eq(out.n, (size_t)n_text);
  cr_assert(n_text == 0 || memcmp(out.data, text, (size_t)n_text) == 0);
}

static int hex(char c) {
  return c <= '9' ? c - '0' : c - 'a' + 10;
}

Test(vocabulary, recorded_texts) {
  size_t n;
  const char *at = file("tests/reference/bpe_gpt2.txt", &n);
  Vocabulary *v = gpt2();
  cr_assert_eq(vocabulary_size(v), 50257);
  cr_assert_eq(vocabulary_first(v), 50256);
  int lines = 0;
  for (; *at; lines++) {
    unsigned char text[4096];
    int64_t n_text = 0;
    for (; *at != ' '; at += 2)
      text[n_text++] = (unsigned char)(hex(at[0]) << 4 | hex(at[1]));
    int32_t *tokens;
    int64_t count = vocabulary_encode(v, arena, text, n_text, &tokens);
    int64_t i = 0;
    for (char *stop; *at != '\n'; at = stop, i++) {
      long wanted = strtol(at + 1, &stop, 10);
      cr_assert(i < count && tokens[i] == wanted,
                "line %d ('%.*s'), token %lld", lines + 1, (int)n_text,
                (const char *)text, (long long)i);
    }
    cr_assert_eq(i, count);
    expect_back(v, tokens, count, text, n_text);
    at++;
  }
  cr_assert_gt(lines, 150);
}

/* Bytes that are no text, and pieces so long that n * n would be felt. */
Test(vocabulary, any_bytes_come_back) {
  Vocabulary *v = gpt2(), *plain = vocabulary_bytes(arena);
  enum { N = 200000 };
  unsigned char *text = arena_alloc(arena, N);
  int32_t *tokens;
  for (int round = 0; round < 4; round++) {
    for (int i = 0; i < N; i++)
      text[i] = round == 0   ? (unsigned char)random_below(3, (uint64_t)i, 256)
                : round == 1 ? (unsigned char)(0x80 + i % 128)
                : round == 2 ? ' '
                             : (unsigned char)"aab"[i % 3];
    int64_t n = vocabulary_encode(v, arena, text, N, &tokens);
    expect_back(v, tokens, n, text, N);
    n = vocabulary_encode(plain, arena, text, N, &tokens);
    cr_assert_eq(n, N);
    expect_back(plain, tokens, n, text, N);
  }
  cr_assert_eq(vocabulary_encode(v, arena, "", 0, &tokens), 0);
}

/* A byte that begins no character stands alone, neither letter nor space. */
Test(vocabulary, pieces_of_broken_text) {
  static const struct {
    const char *text;
    int first;
  } cases[] = {{"a\xff"
                "b",
                1},
               {"\xff\xfe"
                "b",
                2},
               {" \xc3", 2},
               {"\xc3\xa9\xc3", 2},
               {"\xed\xa0\x80", 3},
               {"\xc0\xa0 x", 2},
               {"\xf4\x90\x80\x80 ", 4},
               {" \xe2\x80\x83x", 1}};
  for (int i = 0; i < ARRAY_LENGTH(cases); i++)
    cr_expect_eq(pretoken_length((const unsigned char *)cases[i].text,
                                 (int64_t)strlen(cases[i].text)),
                 cases[i].first, "case %d", i);
}

Test(vocabulary, wrong_files_are_named) {
  static const struct {
    const char *text, *message;
  } cases[] = {
      {"#version: 0.2\na b\nab c\n", NULL},
      {"a b\r\nab c", NULL},
      {"", NULL},
      {"a b\nab\n", "'x.bpe', line 2: a merge is two tokens"},
      {"a b c\n", "'x.bpe', line 1: a merge is two tokens"},
      {"#v\nab c\n", "'x.bpe', line 2: a token that no line before makes"},
      {"a \n", "'x.bpe', line 1: a token that no line before makes"},
      {"a b\nc d\na b\n", "line 3: it makes a token that is there already"},
      {"\xe4\xbd\xa0 a\n", "line 1: a character that stands for no byte"},
      {"a \xc7\xbf\n", "line 1: a character that stands for no byte"},
  };
  for (int i = 0; i < ARRAY_LENGTH(cases); i++) {
    Vocabulary *v;
    Status status = vocabulary_read(arena, "x.bpe", cases[i].text,
                                    (int64_t)strlen(cases[i].text), &v);
    const char *wanted = cases[i].message;
    cr_expect_eq(status.code, wanted ? STATUS_invalid : STATUS_ok, "case %d",
                 i);
    if (wanted)
      cr_expect(status.message && strstr(status.message, wanted), "case %d: %s",
                i, status.message);
  }
}
