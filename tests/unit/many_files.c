// links: runtime
/*
 * many_files.c -- tests sources of several files: patterns, records and streams
 * that go on in the next file, files that differ, and tokens of every width.
 */
#include "runtime/data/reader.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void exhausted(void *user) {
  (void)user;
  abort();
}

typedef struct Files {
  Memory *memory;
  Arena *arena;
  char folder[64];
} Files;

static Files files_create(void) {
  Files files = {.memory = memory_create(exhausted, NULL),
                 .folder = "/tmp/many-[?]-XXXXXX"};
  files.arena = arena_create(files.memory);
  cr_assert(mkdtemp(files.folder));
  return files;
}

static void files_destroy(Files *files) {
  char command[100];
  snprintf(command, sizeof command, "rm -r '%s'", files->folder);
  cr_assert(system(command) == 0);
  memory_destroy(files->memory);
}

static void put(const Files *files, const char *name, const void *bytes,
                size_t n) {
  char path[200];
  snprintf(path, sizeof path, "%s/%s", files->folder, name);
  FILE *file = fopen(path, "wb");
  cr_assert(file && fwrite(bytes, 1, n, file) == n && fclose(file) == 0);
}

/* An array of `n` numbers from `first` on, of this dtype and shape. */
static void put_npy(const Files *files, const char *name, const char *shape,
                    int first, int n) {
  char bytes[512];
  int begin = snprintf(bytes + 10, 400,
                       "{'descr': '|u1', 'fortran_order': False, 'shape': %s, "
                       "}\n",
                       shape);
  memcpy(bytes, "\x93NUMPY\1\0", 8);
  bytes[8] = (char)begin;
  bytes[9] = 0;
  for (int i = 0; i < n; i++) bytes[10 + begin + i] = (char)(first + i);
  put(files, name, bytes, (size_t)(10 + begin + n));
}

static Status open_files(const Files *files, SourceKind source,
                         const char *number, const char *const *names, int n,
                         Reader *out) {
  static DnnField field;
  InputSearch search = {.folder = files->folder};
  field = (DnnField){.path = "d.x",
                     .source = (uint8_t)source,
                     .number = number,
                     .dtype = DNN_f32,
                     .scale = 1};
  return reader_open(files->arena, &field, names, n, &search, 2, false, out);
}

/* The values are first, first + 1, ...; read in pieces of every length. */
static void check_range(const Reader *reader, int first, int n) {
  double got[1024];
  char raw[8192];
  cr_assert_eq(reader->n, n);
  for (int length = 1; length <= n; length += 1 + n / 8)
    for (int at = 0; at + length <= n; at++) {
      cr_assert_eq(reader_read(reader, at, length, raw, got).code, STATUS_ok);
      for (int i = 0; i < length; i++)
        cr_assert_eq(got[i], first + at + i, "value %d", at + i);
    }
}

static void check_refused(const Files *files, SourceKind source,
                          const char *number, const char *const *names, int n,
                          const char *wanted) {
  Reader reader;
  Status status = open_files(files, source, number, names, n, &reader);
  cr_expect(status.code != STATUS_ok && strstr(status.message, wanted),
            "'%s', not '%s'", status.message ? status.message : "no failure",
            wanted);
  reader_close(&reader);
}

/* A folder whose name has the characters of patterns is no pattern. */
Test(many_files, patterns_are_sorted) {
  Files files = files_create();
  put(&files, "b-10.txt", "\4\5", 2);
  put(&files, "b-2.txt", "\6", 1);
  put(&files, "a[1].txt", "\1\2\3", 3);
  Reader reader;
  const char *const names[] = {"a[1].txt", "b-*.txt"};
  cr_assert_eq(open_files(&files, SOURCE_bytes, NULL, names, 2, &reader).code,
               STATUS_ok);
  check_range(&reader, 1, 6);
  int64_t at = 5;
  const Reader *part = reader_part(&reader, &at);
  cr_expect(at == 0 && strstr(part->file.path, "/b-2.txt"));
  reader_close(&reader);
  const char *const none[] = {"a[1].txt", "c-*.txt"};
  check_refused(&files, SOURCE_bytes, NULL, none, 2, "no file fits 'c-*.txt'");
  files_destroy(&files);
}

Test(many_files, records_of_many_arrays) {
  Files files = files_create();
  char name[32];
  for (int i = 0; i < 100; i++) { /* more than are open at a time */
    snprintf(name, sizeof name, "x-%02d.npy", i);
    put_npy(&files, name, i % 2 ? "(1, 2)" : "(2, 2)",
            i / 2 * 6 % 96 + i % 2 * 4, i % 2 ? 2 : 4);
  }
  Reader reader;
  const char *const names[] = {"x-0?.npy", "x-1[0-5].npy"};
  cr_assert_eq(open_files(&files, SOURCE_npy, NULL, names, 2, &reader).code,
               STATUS_ok);
  check_range(&reader, 0, 48);
  cr_expect_eq(reader.record_items, 2);
  reader_close(&reader);
  const char *const all[] = {"x-*.npy"};
  cr_assert_eq(open_files(&files, SOURCE_npy, NULL, all, 1, &reader).code,
               STATUS_ok);
  cr_expect_eq(reader.n, 300);
  double got[4];
  char raw[32];
  cr_assert_eq(reader_read(&reader, 94, 4, raw, got).code, STATUS_ok);
  cr_expect(got[0] == 94 && got[1] == 95 && got[2] == 0 && got[3] == 1);
  /* A file that takes the place of one that was read is refused. */
  put_npy(&files, "y.npy", "(2, 2)", 0, 4);
  char command[200];
  snprintf(command, sizeof command, "cd '%s' && mv y.npy x-00.npy",
           files.folder);
  cr_assert(system(command) == 0);
  Status status = reader_read(&reader, 0, 4, raw, got);
  cr_expect(status.code != STATUS_ok &&
            strstr(status.message, "was replaced while it was read"));
  reader_close(&reader);
  files_destroy(&files);
}

Test(many_files, files_that_differ) {
  Files files = files_create();
  put_npy(&files, "a.npy", "(1, 6)", 0, 6);
  put_npy(&files, "b.npy", "(1, 2, 3)", 0, 6);
  put_npy(&files, "c.npy", "(2, 3)", 0, 6);
  const char *const shapes[] = {"a.npy", "b.npy"};
  check_refused(&files, SOURCE_npy, NULL, shapes, 2,
                "/b.npy' holds u8[2, 3], but '");
  const char *const sizes[] = {"a.npy", "a.npy", "c.npy"};
  check_refused(&files, SOURCE_npy, NULL, sizes, 3,
                "/c.npy' holds u8[3], but '");
  unsigned char tokens[1028] = {0};
  memcpy(tokens, (uint32_t[]){20240520, 1, 2}, 12);
  put(&files, "short.bin", tokens, 1028);
  memcpy(tokens, (uint32_t[]){20240801, 7, 1}, 12);
  put(&files, "long.bin", tokens, 1028);
  const char *const widths[] = {"short.bin", "long.bin"};
  check_refused(&files, SOURCE_tokens, NULL, widths, 2,
                "/long.bin' holds u32, but '");
  files_destroy(&files);
}

Test(many_files, tokens_of_every_width) {
  Files files = files_create();
  uint32_t tokens[256 + 5] = {20240801, 7, 5};
  for (int i = 0; i < 5; i++) tokens[256 + i] = 100000u + (uint32_t)i;
  put(&files, "x.bin", tokens, sizeof tokens);
  put(&files, "bare.bin", tokens + 256, 20);
  put(&files, "odd.bin", tokens + 256, 19);
  Reader reader;
  const char *const twice[] = {"x.bin"}, *const bare[] = {"bare.bin"};
  cr_assert_eq(open_files(&files, SOURCE_tokens, NULL, twice, 1, &reader).code,
               STATUS_ok);
  check_range(&reader, 100000, 5);
  reader_close(&reader);
  cr_assert_eq(open_files(&files, SOURCE_tokens, "u32", bare, 1, &reader).code,
               STATUS_ok);
  check_range(&reader, 100000, 5);
  reader_close(&reader);
  cr_assert_eq(open_files(&files, SOURCE_tokens, "u16", bare, 1, &reader).code,
               STATUS_ok);
  cr_expect_eq(reader.n, 10);
  reader_close(&reader);
  check_refused(&files, SOURCE_tokens, NULL, bare, 1, "is not a token file");
  check_refused(&files, SOURCE_tokens, "u16", twice, 1,
                "has a header that names its dtype");
  const char *const odd[] = {"odd.bin"};
  check_refused(&files, SOURCE_tokens, "u32", odd, 1,
                "has 19 bytes, which are no tokens of 32 bits");
  files_destroy(&files);
}
