/*
 * fingerprint.c -- computes which data files a run was trained on, and compares
 * them with those of a checkpoint.
 *
 * A checkpoint holds, for each data file that the model names, a text
 *
 *     "data:train.csv": "48120 9c1d5f0a4be27763"
 *
 * with the file's size on disk (compressed, if it is) and a hash: XXH3 of
 * blocks of 1 MB (10^6 bytes), each seeded with the hash of the block before,
 * the first with the size.  A file of at most 66 MB is hashed completely; a
 * longer one in 66 blocks, the first, the last and 64 evenly spaced between
 * them: block i begins at byte floor(i (size - 1 MB) / 65). So a hash reads at
 * most 66 MB, and a change elsewhere that leaves the size the same is not seen.
 */
#include "runtime/data/data.h"
#include "runtime/data/fingerprint.h"
#include "runtime/data/pictures.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BLOCK = 1000000, N_BLOCKS = 66, LONGEST_NAME = 1000 };

/* ---- hashes ---- */

static Status read_block(int fd, const char *path, int64_t at, int64_t n,
                         unsigned char *to) {
  while (n > 0) {
    ssize_t got = pread(fd, to, (size_t)n, at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return status_errno(errno, "cannot read '%s'", path);
    if (got == 0)
      return status_make(STATUS_io, "'%s' has become shorter", path);
    to += got;
    at += got;
    n -= got;
  }
  return STATUS_OK;
}

static Status hash_blocks(int fd, const char *path, int64_t size,
                          unsigned char *block, uint64_t *out) {
  bool is_short = size <= (int64_t)N_BLOCKS * BLOCK;
  int64_t n = is_short ? (size + BLOCK - 1) / BLOCK : N_BLOCKS;
  int64_t span = size - BLOCK;
  *out = hash_bytes(&size, sizeof size, 0);
  for (int64_t i = 0; i < n; i++) {
    int64_t at = is_short ? i * BLOCK
                          : span / (N_BLOCKS - 1) * i +
                                span % (N_BLOCKS - 1) * i / (N_BLOCKS - 1);
    int64_t bytes = size - at < BLOCK ? size - at : BLOCK;
    TRY(read_block(fd, path, at, bytes, block));
    *out = hash_bytes(block, (size_t)bytes, *out);
  }
  return STATUS_OK;
}

Status data_hash_file(Arena *arena, const char *path, int64_t *out_bytes,
                      uint64_t *out_hash) {
  struct stat info;
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return status_errno(errno, "cannot open '%s'", path);
  Status status = STATUS_OK;
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode))
    status = status_make(STATUS_invalid, "'%s' is not a regular file", path);
  if (status.code == STATUS_ok) {
    Arena *scratch = arena_beside(arena);
    unsigned char *block = ARENA_ARRAY(scratch, unsigned char, BLOCK);
    *out_bytes = info.st_size;
    status = hash_blocks(fd, path, info.st_size, block, out_hash);
    arena_destroy(scratch);
  }
  close(fd);
  return status;
}

/* ---- all files of a program ---- */

/* Characters that JSON would change are left out. */
static const char *key_of(Arena *arena, const char *name) {
  size_t n = strlen(name);
  if (n > LONGEST_NAME) name += n - LONGEST_NAME;
  char *key = arena_printf(arena, "data:%s", name);
  for (char *p = key; *p;) {
    int length = text_utf8_length(p);
    if (length == 0) *p = '?';
    p += length > 0 ? length : 1;
  }
  return key;
}

static int by_key(const void *a, const void *b) {
  return strcmp(((const StoredText *)a)->key, ((const StoredText *)b)->key);
}

typedef VEC(StoredText) Texts;

static Status add_file(Arena *arena, const DnnProgram *program,
                       const char *folder, const char *name, Texts *out) {
  const char *key = key_of(arena, name);
  for (int i = 0; i < out->n; i++)
    if (strcmp(out->data[i].key, key) == 0) return STATUS_OK;
  const char *path = input_locate(arena, name, folder, program->model_dir);
  int64_t bytes;
  uint64_t hash;
  if (!path) return status_make(STATUS_invalid, "no file '%s'", name);
  TRY(data_hash_file(arena, path, &bytes, &hash));
  const char *value = arena_printf(arena, "%lld %016llx", (long long)bytes,
                                   (unsigned long long)hash);
  vec_push(arena, out, (StoredText){key, value});
  return STATUS_OK;
}

/* Reading all pictures would take too long: their names, classes and sizes. */
static Status add_pictures(Arena *arena, const DnnProgram *program,
                           const char *folder, const char *const *names, int n,
                           Texts *out) {
  InputSearch search = {
      .folder = folder, .model_dir = program->model_dir, .follows_links = true};
  for (int i = 0; i < n; i++) {
    const char *key = key_of(arena, names[i]);
    int64_t bytes = 0;
    uint64_t hash = 0;
    bool is_there = false;
    for (int k = 0; k < out->n; k++)
      is_there = is_there || strcmp(out->data[k].key, key) == 0;
    if (is_there) continue;
    Arena *scratch = arena_beside(arena);
    PictureList list;
    Status status = pictures_list(scratch, &names[i], 1, &search, &list);
    for (int64_t k = 0; status.code == STATUS_ok && k < list.n; k++) {
      const Picture *picture = &list.items[k];
      struct stat info = {0};
      char path[PATH_MAX];
      snprintf(path, sizeof path, "%s/%s", picture->folder, picture->name);
      if (stat(path, &info) != 0) info.st_size = 0;
      int64_t size = info.st_size;
      const char *word = picture->word ? picture->word : "";
      bytes += size;
      hash = hash_bytes(&size, sizeof size, hash);
      hash = hash_bytes(picture->name, strlen(picture->name), hash);
      hash = hash_bytes(word, strlen(word), hash);
    }
    arena_destroy(scratch);
    TRY(status);
    const char *value = arena_printf(arena, "%lld %016llx", (long long)bytes,
                                     (unsigned long long)hash);
    vec_push(arena, out, (StoredText){key, value});
  }
  return STATUS_OK;
}

static Status add_files(Arena *arena, const DnnProgram *program,
                        const char *folder, const char *const *names, int n,
                        Texts *out) {
  InputSearch search = {.folder = folder, .model_dir = program->model_dir};
  const char *const *files;
  int n_files;
  TRY(input_expand(arena, names, n, &search, &files, &n_files));
  for (int i = 0; i < n_files; i++)
    TRY(add_file(arena, program, folder, files[i], out));
  return STATUS_OK;
}

Status data_fingerprint(Arena *arena, const DnnProgram *program,
                        const char *folder, StoredText **out, int *out_n) {
  Texts texts = {0};
  for (int i = 0; i < program->n_data; i++)
    for (int j = 0; j < program->data[i].n_fields; j++) {
      const DnnField *field = &program->data[i].fields[j];
      bool is_pictures =
          field->source == SOURCE_images || field->source == SOURCE_labels;
      Status (*add)(Arena *, const DnnProgram *, const char *,
                    const char *const *, int, Texts *) =
          is_pictures ? add_pictures : add_files;
      TRY(add(arena, program, folder, field->files, field->n_files, &texts));
      TRY(add(arena, program, folder, field->eval_files, field->n_eval_files,
              &texts));
      if (field->classes_file)
        TRY(add_file(arena, program, folder, field->classes_file, &texts));
    }
  if (texts.n > 0)
    qsort(texts.data, (size_t)texts.n, sizeof *texts.data, by_key);
  *out = texts.data;
  *out_n = texts.n;
  return STATUS_OK;
}

/* ---- comparing ---- */

typedef struct Comparison {
  const StoredText *saved, *now;
  int n_saved, n_now;
  int n_different;
  Text first; /* what is different, of the first file */
} Comparison;

static void report_difference(Comparison *c, bool is_allowed,
                              const char *what) {
  if (is_allowed) message_print("warning: %s\n", what);
  if (c->n_different++ == 0) text_add(&c->first, what);
}

static bool has_value(const StoredText *texts, int n, const char *value) {
  for (int i = 0; i < n; i++)
    if (is_data_key(texts[i].key) && strcmp(texts[i].value, value) == 0)
      return true;
  return false;
}

/* A file under another name is the same data. */
static void compare_one(Arena *arena, Comparison *c, const StoredText *now,
                        bool is_allowed) {
  const char *name = strchr(now->key, ':') + 1;
  const char *old = stored_text(c->saved, c->n_saved, now->key);
  long long old_bytes = old ? strtoll(old, NULL, 10) : 0;
  long long bytes = strtoll(now->value, NULL, 10);
  if (old && strcmp(old, now->value) == 0) return;
  if (!old && has_value(c->saved, c->n_saved, now->value)) return;
  if (!old)
    report_difference(
        c, is_allowed,
        arena_printf(arena, "the checkpoint was not trained on data file '%s'",
                     name));
  else if (old_bytes != bytes)
    report_difference(
        c, is_allowed,
        arena_printf(arena,
                     "data file '%s' is not what the checkpoint was trained "
                     "on: it had %lld bytes and has %lld",
                     name, old_bytes, bytes));
  else
    report_difference(
        c, is_allowed,
        arena_printf(arena,
                     "data file '%s' is not what the checkpoint was trained "
                     "on: it has the same size (%lld bytes), but other "
                     "content",
                     name, bytes));
}

static void compare_all(Arena *arena, Comparison *c, bool is_allowed) {
  for (int i = 0; i < c->n_now; i++)
    compare_one(arena, c, &c->now[i], is_allowed);
  for (int i = 0; i < c->n_saved; i++) {
    const StoredText *saved = &c->saved[i];
    if (!is_data_key(saved->key) || stored_text(c->now, c->n_now, saved->key) ||
        has_value(c->now, c->n_now, saved->value))
      continue;
    report_difference(
        c, is_allowed,
        arena_printf(arena,
                     "the checkpoint was trained on data file '%s', which "
                     "the model does not read",
                     strchr(saved->key, ':') + 1));
  }
}

Status data_compare(Arena *arena, const Checkpoint *checkpoint,
                    const StoredText *now, int n, bool is_allowed) {
  const StoredHeader *header = &checkpoint->files[0].header;
  if (!checkpoint->has_save) {
    if (n > 0)
      message_print(
          "note: '%s' does not say what data it was trained on: a change "
          "would not be seen\n",
          checkpoint->given);
    return STATUS_OK;
  }
  Comparison c = {.saved = header->metadata,
                  .n_saved = header->n_metadata,
                  .now = now,
                  .n_now = n,
                  .first = text_create(arena)};
  compare_all(arena, &c, is_allowed);
  if (c.n_different == 0 || is_allowed) return STATUS_OK;
  const char *more =
      c.n_different > 1
          ? arena_printf(arena, " (%d more differ)", c.n_different - 1)
          : "";
  return status_make(
      STATUS_invalid,
      "%s%s\nhelp: --data-changed resumes with the data as it is "
      "now",
      text_string(&c.first), more);
}
