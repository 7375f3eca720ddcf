/*
 * restore.c -- opens a checkpoint and checks its files.
 *
 * Only regular files with plain names below the folder are opened, no links.  A
 * mistake in the content of a file is STATUS_invalid, because the user can
 * correct it; a file that the system cannot read is STATUS_io.
 */
#include "runtime/checkpoint/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { INDEX_LIMIT = 100 << 20, MAX_FILES = 1024 };
static const char single_name[] = "model.safetensors";

/* ---- opening ---- */

static Status read_exactly(int fd, void *to, int64_t n, int64_t at) {
  while (n > 0) {
    ssize_t got = pread(fd, to, (size_t)n, at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return status_errno(errno, "cannot read");
    if (got == 0) return status_make(STATUS_invalid, "it is truncated");
    to = (char *)to + got;
    at += got;
    n -= got;
  }
  return STATUS_OK;
}

static Status open_failed(int error, int follow) {
  if (error == ENOENT)
    return status_make(STATUS_invalid, "there is no such file");
  if (error == ELOOP && follow)
    return status_make(STATUS_invalid,
                       "it is a symbolic link; inside a checkpoint none is "
                       "followed (name the file itself)");
  return status_errno(error, "cannot open");
}

/* `follow`: O_NOFOLLOW, or 0 for what the user named. */
static Status open_plain(int folder, const char *name, int follow, int *out_fd,
                         int64_t *out_n) {
  struct stat info;
  int fd = openat(folder, name, O_RDONLY | follow | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return open_failed(errno, follow);
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    close(fd);
    return status_make(STATUS_invalid, "it is not a regular file");
  }
  *out_fd = fd;
  *out_n = info.st_size;
  return STATUS_OK;
}

/* A text of at most `limit` bytes from a file, in the arena. */
static Status read_text(Arena *arena, int fd, int64_t at, int64_t n,
                        int64_t limit, const char **out) {
  if (n > limit)
    return status_make(STATUS_invalid,
                       "its header takes %lld bytes; at most %lld are read",
                       (long long)n, (long long)limit);
  char *text = arena_alloc(arena, (size_t)n + 1);
  TRY(read_exactly(fd, text, n, at));
  *out = text;
  return STATUS_OK;
}

/* Files that are mistaken for safetensors, by their first bytes. */
static Status other_format(const unsigned char begin[8]) {
  static const struct {
    unsigned char magic[4];
    int n;
    const char *what;
    bool is_torch;
  } formats[] = {
      {{'P', 'K', 3, 4}, 4, "a ZIP archive, as torch.save writes", true},
      {{0x80, 2}, 2, "a pickle, as torch.save once wrote", true},
      {{0x80, 3}, 2, "a pickle, as torch.save once wrote", true},
      {{0x80, 4}, 2, "a pickle, as torch.save once wrote", true},
      {{'G', 'G', 'U', 'F'}, 4, "a GGUF file", false},
      {{0x89, 'H', 'D', 'F'}, 4, "an HDF5 file", false},
      {{0x93, 'N', 'U', 'M'}, 4, "a file of numpy", false},
      {{0x1f, 0x8b}, 2, "compressed with gzip", false},
  };
  for (int i = 0; i < ARRAY_LENGTH(formats); i++) {
    if (memcmp(begin, formats[i].magic, (size_t)formats[i].n) != 0) continue;
    return status_make(
        STATUS_invalid, "it is %s, not a safetensors file%s", formats[i].what,
        formats[i].is_torch
            ? "\nhelp: convert it in Python: import torch, safetensors.torch; "
              "safetensors.torch.save_file({k: v.clone() for k, v in "
              "torch.load('IN.pth', map_location='cpu', weights_only=True)"
              ".items()}, 'OUT.safetensors')"
            : "");
  }
  return STATUS_OK;
}

static Status read_header(Arena *arena, int64_t n_bytes, StoredFile *file) {
  unsigned char length[8];
  const char *text = NULL;
  if (n_bytes < 8)
    return status_make(STATUS_invalid,
                       "it is truncated: it has %lld bytes, and the length of "
                       "its header alone takes 8",
                       (long long)n_bytes);
  TRY(read_exactly(file->fd, length, 8, 0));
  uint64_t n = 0;
  for (int i = 0; i < 8; i++) n |= (uint64_t)length[i] << (8 * i);
  if (n > (uint64_t)(n_bytes - 8) || n > SAFETENSORS_HEADER_LIMIT)
    TRY(other_format(length));
  if (n > (uint64_t)(n_bytes - 8))
    return status_make(STATUS_invalid,
                       "it is truncated or no safetensors file: its header "
                       "would take %llu bytes, but the file has %lld",
                       (unsigned long long)n, (long long)n_bytes);
  TRY(read_text(arena, file->fd, 8, (int64_t)n, SAFETENSORS_HEADER_LIMIT,
                &text));
  file->data_begin = 8 + (int64_t)n;
  return safetensors_parse(arena, text, (size_t)n, n_bytes - file->data_begin,
                           &file->header);
}

static Status open_file(Arena *arena, int folder, const char *path,
                        const char *name, int follow, StoredFile *out) {
  int64_t n = 0;
  *out = (StoredFile){.name = name, .fd = -1};
  Status status = open_plain(folder, name, follow, &out->fd, &n);
  if (status.code == STATUS_ok) status = read_header(arena, n, out);
  if (status.code != STATUS_ok)
    return status_make(status.code, "'%s/%s': %s", path, name, status.message);
  return STATUS_OK;
}

static int compare_name(const void *name, const void *place) {
  return strcmp(name, ((const StoredPlace *)place)->tensor->name);
}

static int by_name(const void *a, const void *b) {
  return compare_name(((const StoredPlace *)a)->tensor->name, b);
}

const StoredTensor *checkpoint_tensor(const Checkpoint *checkpoint,
                                      const char *name,
                                      const StoredFile **out_file) {
  const StoredPlace *found =
      bsearch(name, checkpoint->places, (size_t)checkpoint->n_places,
              sizeof *checkpoint->places, compare_name);
  if (!found) return NULL;
  *out_file = found->file;
  return found->tensor;
}

/* All tensors of all files, by name. */
static Status make_places(Arena *arena, Checkpoint *out) {
  int64_t n = 0;
  for (int i = 0; i < out->n_files; i++) n += out->files[i].header.n_tensors;
  out->places = ARENA_ARRAY(arena, StoredPlace, n);
  for (int i = 0; i < out->n_files; i++)
    for (int j = 0; j < out->files[i].header.n_tensors; j++)
      out->places[out->n_places++] =
          (StoredPlace){&out->files[i].header.tensors[j], &out->files[i]};
  qsort(out->places, (size_t)n, sizeof *out->places, by_name);
  for (int64_t i = 1; i < n; i++)
    if (by_name(&out->places[i - 1], &out->places[i]) == 0)
      return status_make(STATUS_invalid, "'%s': tensor '%s' is in two files",
                         out->path, out->places[i].tensor->name);
  return STATUS_OK;
}

static Status check_map(const Checkpoint *checkpoint, const StoredText *map,
                        int n_map) {
  for (int i = 0; i < n_map; i++) {
    const StoredFile *file = NULL;
    if (!checkpoint_tensor(checkpoint, map[i].key, &file) ||
        strcmp(file->name, map[i].value) != 0)
      return status_make(STATUS_invalid,
                         "'%s/%s' has no tensor '%s', which the index says it "
                         "has",
                         checkpoint->path, map[i].value, map[i].key);
  }
  return STATUS_OK;
}

static Status read_index(Arena *arena, int folder, const char *path,
                         const char *name, int follow, StoredIndex *out) {
  int fd;
  int64_t n;
  const char *text = NULL;
  Status status = open_plain(folder, name, follow, &fd, &n);
  if (status.code == STATUS_ok) {
    status = read_text(arena, fd, 0, n, INDEX_LIMIT, &text);
    close(fd);
  }
  if (status.code == STATUS_ok)
    status = safetensors_parse_index(arena, text, (size_t)n, out);
  if (status.code != STATUS_ok)
    return status_make(status.code, "'%s/%s': %s", path, name, status.message);
  return STATUS_OK;
}

static bool knows_file(const Checkpoint *checkpoint, const char *name) {
  for (int i = 0; i < checkpoint->n_files; i++)
    if (strcmp(checkpoint->files[i].name, name) == 0) return true;
  return false;
}

static Status open_indexed(Arena *arena, int folder, const char *name,
                           int follow, Checkpoint *out) {
  StoredIndex *index = ARENA_NEW(arena, StoredIndex);
  TRY(read_index(arena, folder, out->path, name, follow, index));
  out->index = index;
  out->index_name = name;
  out->files = ARENA_ARRAY(arena, StoredFile, MAX_FILES);
  for (int i = 0; i < index->n_map; i++) {
    const char *value = index->map[i].value;
    if (knows_file(out, value)) continue;
    if (out->n_files == MAX_FILES)
      return status_make(STATUS_invalid, "'%s/%s' names more than %d files",
                         out->path, name, MAX_FILES);
    StoredFile *file = &out->files[out->n_files++];
    TRY(open_file(arena, folder, out->path, value, O_NOFOLLOW, file));
  }
  if (out->n_files == 0)
    return status_make(STATUS_invalid, "'%s/%s' names no file", out->path,
                       name);
  TRY(make_places(arena, out));
  return check_map(out, index->map, index->n_map);
}

static Status open_single(Arena *arena, int folder, const char *name,
                          int follow, Checkpoint *out) {
  out->files = ARENA_NEW(arena, StoredFile);
  out->n_files = 1;
  TRY(open_file(arena, folder, out->path, name, follow, &out->files[0]));
  return make_places(arena, out);
}

/* A link to nowhere is there. */
static bool is_in(int folder, const char *name) {
  return faccessat(folder, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0 ||
         errno != ENOENT;
}

/* `name`: an index, a file of tensors, or NULL for what the folder has.  An
 * index that is there and cannot be read is no reason to take another file. */
static Status open_files(Arena *arena, int folder, const char *name,
                         Checkpoint *out) {
  size_t length = name ? strlen(name) : 0;
  bool is_index = length > 5 && strcmp(name + length - 5, ".json") == 0;
  if (is_index) return open_indexed(arena, folder, name, 0, out);
  if (name) return open_single(arena, folder, name, 0, out);
  if (is_in(folder, TENSOR_INDEX_NAME))
    return open_indexed(arena, folder, TENSOR_INDEX_NAME, O_NOFOLLOW, out);
  if (is_in(folder, single_name))
    return open_single(arena, folder, single_name, O_NOFOLLOW, out);
  return status_make(STATUS_invalid,
                     "'%s' is no checkpoint: it has neither %s nor %s%s",
                     out->path, TENSOR_INDEX_NAME, single_name,
                     is_in(folder, "pytorch_model.bin")
                         ? " (pytorch_model.bin is not read; convert it with "
                           "safetensors.torch.save_file)"
                         : "");
}

/* ---- which save it is ---- */

/* Reads the mark of one file or of the index. */
static Status read_mark(const Checkpoint *checkpoint, const char *name,
                        const StoredText *texts, int n, SaveMark *out) {
  if (save_mark_read(texts, n, out)) return STATUS_OK;
  return status_make(STATUS_invalid,
                     "'%s/%s': its step, seed or identity is damaged",
                     checkpoint->path, name);
}

static bool is_own(const StoredFile *file) {
  const char *format =
      stored_text(file->header.metadata, file->header.n_metadata, "format");
  return format && strcmp(format, "dnnc") == 0;
}

/* Compares a file with the first one, or with the index where that says of
 * which save it is. */
static Status compare_file(const Checkpoint *checkpoint, const StoredFile *file,
                           const SaveMark *mark, const SaveMark *first,
                           const char *first_name) {
  TRY(save_mark_compare(first, first_name, mark, file->name));
  bool is_complete = !checkpoint->index || !mark->has_save ||
                     mark->n_files == checkpoint->n_files;
  if (is_complete) return STATUS_OK;
  return status_make(STATUS_invalid, "'%s' is one of %d files, but there %s %d",
                     file->name, mark->n_files,
                     checkpoint->n_files == 1 ? "is" : "are",
                     checkpoint->n_files);
}

static Status check_marks(Checkpoint *out) {
  SaveMark first = {0}, mark;
  const char *name = out->files[0].name;
  const StoredIndex *index = out->index;
  if (index && stored_text(index->metadata, index->n_metadata, "save")) {
    name = out->index_name;
    TRY(read_mark(out, name, index->metadata, index->n_metadata, &first));
    out->is_own = true;
  } else {
    out->is_own = is_own(&out->files[0]);
  }
  for (int i = 0; i < out->n_files; i++) {
    const StoredFile *file = &out->files[i];
    if (is_own(file) != out->is_own)
      return status_make(STATUS_invalid,
                         "'%s/%s' does not belong to '%s': dnnc wrote only one "
                         "of them",
                         out->path, file->name, name);
    if (!out->is_own) continue;
    TRY(read_mark(out, file->name, file->header.metadata,
                  file->header.n_metadata, &mark));
    if (i == 0 && name == file->name) first = mark;
    Status status = compare_file(out, file, &mark, &first, name);
    if (status.code != STATUS_ok)
      return status_make(status.code, "'%s': %s", out->path, status.message);
  }
  out->step = first.step;
  out->seed = first.seed;
  out->save = first.save;
  out->has_save = first.has_save;
  return STATUS_OK;
}

/* Splits the path of a file into folder and name; of a folder the name is
 * NULL. */
static void split_path(Arena *arena, const char *path, const char **out_folder,
                       const char **out_name) {
  struct stat info;
  *out_folder = path;
  *out_name = NULL;
  if (stat(path, &info) != 0 || S_ISDIR(info.st_mode)) return;
  const char *slash = strrchr(path, '/');
  *out_name = slash ? slash + 1 : path;
  *out_folder = !slash ? "."
                : slash == path
                    ? "/"
                    : arena_printf(arena, "%.*s", (int)(slash - path), path);
}

Status checkpoint_open(Arena *arena, const char *path, Checkpoint *out) {
  const char *name;
  *out = (Checkpoint){.given = path};
  split_path(arena, path, &out->path, &name);
  int folder = open(out->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0)
    return status_make(errno == ENOENT ? STATUS_invalid : STATUS_io,
                       "cannot open checkpoint '%s': %s", path,
                       strerror(errno));
  Status status = open_files(arena, folder, name, out);
  close(folder);
  if (status.code == STATUS_ok) status = check_marks(out);
  if (status.code != STATUS_ok) checkpoint_close(out);
  return status;
}

void checkpoint_close(Checkpoint *checkpoint) {
  for (int i = 0; i < checkpoint->n_files; i++)
    if (checkpoint->files[i].fd >= 0) close(checkpoint->files[i].fd);
  checkpoint->n_files = 0;
}

uint64_t checkpoint_identity(const Checkpoint *checkpoint) {
  uint64_t words[] = {(uint64_t)checkpoint->step, checkpoint->seed,
                      checkpoint->save};
  uint64_t hash = hash_bytes(words, sizeof words, 0);
  for (int i = 0; i < checkpoint->n_places; i++) {
    const StoredTensor *tensor = checkpoint->places[i].tensor;
    int64_t range[] = {checkpoint->places[i].file->data_begin, tensor->begin,
                       tensor->end};
    hash = hash_bytes(tensor->name, strlen(tensor->name), hash);
    hash = hash_bytes(range, sizeof range, hash);
  }
  return hash;
}

Status checkpoint_read(const StoredFile *file, const StoredTensor *tensor,
                       int64_t at, void *to, int64_t n) {
  return read_exactly(file->fd, to, n, file->data_begin + tensor->begin + at);
}
