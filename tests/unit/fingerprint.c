// links: runtime support
/*
 * fingerprint.c -- tests which bytes of a data file are hashed, and the
 * messages about a file that a checkpoint was not trained on.
 */
#include "runtime/data/fingerprint.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MB = 1000000 };

static void no_memory(void *user) {
  (void)user;
  _exit(3);
}

static Arena *arena_new(void) {
  return arena_create(memory_create(no_memory, NULL));
}

/* ---- blocks ---- */

typedef struct File {
  char path[40];
  int fd;
} File;

/* Holes: it takes no room. */
static File file_of(int64_t bytes) {
  File file = {.path = "/tmp/dnn-fingerprint-XXXXXX"};
  file.fd = mkstemp(file.path);
  cr_assert(file.fd >= 0 && ftruncate(file.fd, bytes) == 0);
  return file;
}

static void file_remove(File *file) {
  close(file->fd);
  unlink(file->path);
}

static uint64_t hash_of(const File *file, int64_t bytes) {
  int64_t size;
  uint64_t hash;
  Status status = data_hash_file(arena_new(), file->path, &size, &hash);
  cr_assert_eq(status.code, STATUS_ok, "%s", status.message);
  cr_assert_eq(size, bytes);
  return hash;
}

/* Returns whether another byte at `at` makes another hash; the byte is
 * restored. */
static bool is_seen(const File *file, int64_t bytes, int64_t at) {
  uint64_t before = hash_of(file, bytes);
  cr_assert_eq(pwrite(file->fd, "x", 1, at), 1);
  bool is_other = hash_of(file, bytes) != before;
  cr_assert_eq(pwrite(file->fd, "", 1, at), 1);
  cr_assert_eq(hash_of(file, bytes), before);
  return is_other;
}

Test(blocks, a_short_file_is_hashed_whole) {
  const int64_t sizes[] = {1, MB - 1, MB, MB + 1, 66 * (int64_t)MB};
  for (int i = 0; i < ARRAY_LENGTH(sizes); i++) {
    File file = file_of(sizes[i]);
    const int64_t places[] = {0, sizes[i] / 2, sizes[i] / 3, sizes[i] - 1};
    for (int j = 0; j < ARRAY_LENGTH(places); j++)
      cr_assert(is_seen(&file, sizes[i], places[j]), "byte %lld of %lld",
                (long long)places[j], (long long)sizes[i]);
    file_remove(&file);
  }
  File empty = file_of(0), zero = file_of(1);
  cr_assert_neq(hash_of(&empty, 0), hash_of(&zero, 1));
  file_remove(&empty);
  file_remove(&zero);
}

/* Block i of 66 begins at floor(i (size - 1 MB) / 65). */
Test(blocks, a_long_file_is_hashed_at_66_places) {
  const int64_t size = INT64_C(5000000007);
  const int tried[] = {0, 1, 31, 64, 65};
  File file = file_of(size);
  for (int i = 0; i < ARRAY_LENGTH(tried); i++) {
    int64_t at = tried[i] * (size - MB) / 65;
    cr_assert(is_seen(&file, size, at), "first byte of block %d", tried[i]);
    cr_assert(is_seen(&file, size, at + MB - 1), "last byte of block %d",
              tried[i]);
    if (at > 0) cr_assert_not(is_seen(&file, size, at - 1));
    if (at + MB < size) cr_assert_not(is_seen(&file, size, at + MB));
  }
  file_remove(&file);
}

Test(blocks, what_is_no_file_is_refused) {
  int64_t size;
  uint64_t hash;
  cr_assert_eq(data_hash_file(arena_new(), "/dev/zero", &size, &hash).code,
               STATUS_invalid);
  cr_assert_eq(data_hash_file(arena_new(), "/nowhere/f", &size, &hash).code,
               STATUS_io);
}

/* ---- comparing ---- */

#define HELP "\nhelp: --data-changed resumes with the data as it is now"

typedef struct Case {
  StoredText now[3];
  const char *message; /* NULL: the same data */
} Case;

#define A                                                                      \
  { "data:a.csv", "12 00000000000000aa" }
#define B                                                                      \
  { "data:b.csv", "30 00000000000000bb" }

static const StoredText saved[] = {A, B, {"format", "dnnc"}};

static const Case cases[] = {
    {{A, B}, NULL},
    {{{"data:a.csv", "12 00000000000000aa"},
      {"data:c.csv", "30 00000000000000bb"}},
     NULL},
    {{{"data:a.csv", "13 00000000000000aa"}, B},
     "data file 'a.csv' is not what the checkpoint was trained on: it had 12 "
     "bytes and has 13" HELP},
    {{{"data:a.csv", "12 00000000000000ab"}, B},
     "data file 'a.csv' is not what the checkpoint was trained on: it has the "
     "same size (12 bytes), but other content" HELP},
    {{{"data:a.csv", "12 00000000000000ab"},
      {"data:b.csv", "31 00000000000000bb"}},
     "data file 'a.csv' is not what the checkpoint was trained on: it has the "
     "same size (12 bytes), but other content (1 more differ)" HELP},
    {{A, B, {"data:new.csv", "7 00000000000000cc"}},
     "the checkpoint was not trained on data file 'new.csv'" HELP},
    {{A},
     "the checkpoint was trained on data file 'b.csv', which the model does "
     "not read" HELP},
};

Test(compare, differences_are_named) {
  StoredFile file = {.name = "model.safetensors", .fd = -1};
  file.header.metadata = (StoredText *)saved;
  file.header.n_metadata = ARRAY_LENGTH(saved);
  Checkpoint checkpoint = {
      .files = &file, .n_files = 1, .is_own = true, .has_save = true};
  for (int i = 0; i < ARRAY_LENGTH(cases); i++) {
    int n = 0;
    while (n < 3 && cases[i].now[n].key) n++;
    Status status =
        data_compare(arena_new(), &checkpoint, cases[i].now, n, false);
    if (cases[i].message)
      cr_assert_str_eq(status.message, cases[i].message);
    else
      cr_assert_eq(status.code, STATUS_ok, "%s", status.message);
    cr_assert_eq(status.code, cases[i].message ? STATUS_invalid : STATUS_ok);
  }
  freopen("/dev/null", "w", stderr);
  for (int i = 0; i < ARRAY_LENGTH(cases); i++)
    cr_assert_eq(
        data_compare(arena_new(), &checkpoint, cases[i].now, 1, true).code,
        STATUS_ok);
  checkpoint.has_save = false; /* an older one */
  cr_assert_eq(
      data_compare(arena_new(), &checkpoint, cases[2].now, 2, false).code,
      STATUS_ok);
}
