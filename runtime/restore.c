/*
 * restore.c -- finds, checks and reads checkpoints.
 *
 * Only plain names below the folder are opened, no links, regular files only.
 * A checkpoint is chosen after all of it has been checked, hashes included, so
 * that falling back to an older one is possible; the second reading, which
 * fills the arena, comes from memory as a rule.
 */
#include "runtime/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { INDEX_LIMIT = 100 << 20, HASH_DIGITS = 16, MAX_FILES = 1024 };
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

/* `follow`: O_NOFOLLOW, or 0 for what the user named. */
static Status open_plain(int folder, const char *name, int follow, int *out_fd,
                         int64_t *out_n) {
  struct stat info;
  int fd = openat(folder, name, O_RDONLY | follow | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return status_errno(errno, "cannot open");
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    close(fd);
    return status_make(STATUS_invalid, "not a regular file");
  }
  *out_fd = fd;
  *out_n = info.st_size;
  return STATUS_OK;
}

/* A text of at most `limit` bytes from a file, in the arena. */
static Status read_text(Arena *arena, int fd, int64_t at, int64_t n,
                        int64_t limit, const char **out) {
  if (n > limit) return status_make(STATUS_invalid, "its header is too long");
  char *text = arena_alloc(arena, (size_t)n + 1);
  TRY(read_exactly(fd, text, n, at));
  *out = text;
  return STATUS_OK;
}

static Status read_header(Arena *arena, int64_t n_bytes, StoredFile *file) {
  unsigned char length[8];
  const char *text;
  if (n_bytes < 8) return status_make(STATUS_invalid, "it is truncated");
  TRY(read_exactly(file->fd, length, 8, 0));
  uint64_t n = 0;
  for (int i = 0; i < 8; i++) n |= (uint64_t)length[i] << (8 * i);
  if (n > (uint64_t)(n_bytes - 8))
    return status_make(STATUS_invalid, "it is truncated: its header would end "
                                       "behind its last byte");
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
    return status_make(STATUS_io, "'%s/%s': %s", path, name, status.message);
  return STATUS_OK;
}

static int compare_key(const void *key, const void *text) {
  return strcmp(key, ((const StoredText *)text)->key);
}

static const char *find_metadata(const StoredHeader *header, const char *key) {
  const StoredText *found =
      bsearch(key, header->metadata, (size_t)header->n_metadata,
              sizeof *header->metadata, compare_key);
  return found ? found->value : NULL;
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
      return status_make(STATUS_io, "'%s': tensor '%s' is in two files",
                         out->path, out->places[i].tensor->name);
  return STATUS_OK;
}

static Status check_map(const Checkpoint *checkpoint, const StoredText *map,
                        int n_map) {
  for (int i = 0; i < n_map; i++) {
    const StoredFile *file = NULL;
    if (!checkpoint_tensor(checkpoint, map[i].key, &file) ||
        strcmp(file->name, map[i].value) != 0)
      return status_make(STATUS_io, "'%s/%s' has no tensor '%s'",
                         checkpoint->path, map[i].value, map[i].key);
  }
  return STATUS_OK;
}

static Status open_indexed(Arena *arena, int folder, const char *index_name,
                           int fd, int64_t n, Checkpoint *out) {
  const char *text = NULL;
  StoredText *map = NULL;
  int n_map = 0;
  Status status = read_text(arena, fd, 0, n, INDEX_LIMIT, &text);
  close(fd);
  if (status.code == STATUS_ok)
    status = safetensors_parse_index(arena, text, (size_t)n, &map, &n_map);
  if (status.code != STATUS_ok)
    return status_make(STATUS_io, "'%s/%s': %s", out->path, index_name,
                       status.message);
  out->files = ARENA_ARRAY(arena, StoredFile, MAX_FILES);
  for (int i = 0; i < n_map; i++) {
    bool is_known = false;
    for (int j = 0; j < out->n_files && !is_known; j++)
      is_known = strcmp(out->files[j].name, map[i].value) == 0;
    if (is_known) continue;
    if (out->n_files == MAX_FILES)
      return status_make(STATUS_io, "'%s/%s' names more than %d files",
                         out->path, index_name, MAX_FILES);
    StoredFile *file = &out->files[out->n_files++];
    TRY(open_file(arena, folder, out->path, map[i].value, O_NOFOLLOW, file));
  }
  if (out->n_files == 0)
    return status_make(STATUS_io, "'%s/%s' names no file", out->path,
                       index_name);
  TRY(make_places(arena, out));
  return check_map(out, map, n_map);
}

static Status open_single(Arena *arena, int folder, const char *name,
                          int follow, Checkpoint *out) {
  out->files = ARENA_NEW(arena, StoredFile);
  out->n_files = 1;
  TRY(open_file(arena, folder, out->path, name, follow, &out->files[0]));
  return make_places(arena, out);
}

/* `name`: an index, a file of tensors, or NULL for what the folder has. */
static Status open_files(Arena *arena, int folder, const char *name,
                         Checkpoint *out) {
  int fd;
  int64_t n;
  size_t length = name ? strlen(name) : 0;
  bool is_index = length > 5 && strcmp(name + length - 5, ".json") == 0;
  if (name && !is_index) return open_single(arena, folder, name, 0, out);
  int follow = name ? 0 : O_NOFOLLOW;
  if (!name) name = TENSOR_INDEX_NAME;
  Status status = open_plain(folder, name, follow, &fd, &n);
  if (status.code == STATUS_ok)
    return open_indexed(arena, folder, name, fd, n, out);
  if (is_index)
    return status_make(STATUS_io, "'%s/%s': %s", out->path, name,
                       status.message);
  return open_single(arena, folder, single_name, O_NOFOLLOW, out);
}

uint64_t checkpoint_check(int64_t step, uint64_t seed) {
  uint64_t words[2] = {(uint64_t)step, seed};
  return hash_bytes(words, sizeof words, 0);
}

/* Step and seed of our own checkpoints. */
static Status read_position(Checkpoint *out) {
  const StoredHeader *header = &out->files[0].header;
  const char *format = find_metadata(header, "format");
  const char *step = find_metadata(header, "step");
  const char *seed = find_metadata(header, "seed");
  const char *check = find_metadata(header, "check");
  char expected[HASH_DIGITS + 1];
  out->is_own = format && strcmp(format, "dnnc") == 0;
  if (!out->is_own) return STATUS_OK;
  if (step && seed && check) {
    out->step = strtoll(step, NULL, 10);
    out->seed = strtoull(seed, NULL, 10);
    snprintf(expected, sizeof expected, "%0*llx", HASH_DIGITS,
             (unsigned long long)checkpoint_check(out->step, out->seed));
    if (strcmp(check, expected) == 0) return STATUS_OK;
  }
  return status_make(STATUS_io, "'%s/%s': its step or seed is damaged",
                     out->path, out->files[0].name);
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
    return status_make(STATUS_invalid, "cannot open checkpoint '%s': %s", path,
                       strerror(errno));
  Status status = open_files(arena, folder, name, out);
  close(folder);
  if (status.code != STATUS_ok) {
    checkpoint_close(out);
    return status;
  }
  status = read_position(out);
  if (status.code != STATUS_ok) checkpoint_close(out);
  return status;
}

void checkpoint_close(Checkpoint *checkpoint) {
  for (int i = 0; i < checkpoint->n_files; i++)
    if (checkpoint->files[i].fd >= 0) close(checkpoint->files[i].fd);
  checkpoint->n_files = 0;
}

Status checkpoint_read(const StoredFile *file, const StoredTensor *tensor,
                       int64_t at, void *to, int64_t n) {
  return read_exactly(file->fd, to, n, file->data_begin + tensor->begin + at);
}

/* ---- loading ---- */

typedef struct Load {
  Arena *arena;
  const Checkpoint *checkpoint; /* NULL: not rank 0 */
  Device *device;
  Comm *comm;
  unsigned char *piece, *raw; /* PIECE_ELEMENTS of 8 bytes */
} Load;

enum { PIECE_ELEMENTS = 1 << 17 };

/* Elements of a tensor, in the dtype of the program. */
static Status read_piece(const Load *load, const DnnTensor *tensor,
                         const StoredFile *file, const StoredTensor *stored,
                         int64_t at, int64_t n) {
  int64_t item = dtype_bytes(stored->dtype);
  bool is_equal = stored->dtype == tensor->dtype;
  void *to = is_equal ? load->piece : load->raw;
  TRY(checkpoint_read(file, stored, at * item, to, n * item));
  if (!is_equal)
    reals_cast(stored->dtype, load->raw, tensor->dtype, load->piece, n);
  return STATUS_OK;
}

/* All ranks learn of all elements; each keeps its piece. */
static Status load_tensor(const Load *load, const DnnTensor *tensor,
                          const StoredFile *file, const StoredTensor *stored) {
  int64_t n = tensor_elements(tensor), item = dtype_bytes(tensor->dtype);
  bool is_split = tensor_is_split(tensor);
  Arena *scratch = is_split ? arena_beside(load->arena) : NULL;
  unsigned char *whole =
      is_split ? ARENA_ARRAY(scratch, unsigned char, n *item) : NULL;
  Status status = STATUS_OK;
  for (int64_t at = 0; at < n && status.code == STATUS_ok;
       at += PIECE_ELEMENTS) {
    int64_t here = n - at < PIECE_ELEMENTS ? n - at : PIECE_ELEMENTS;
    if (load->checkpoint)
      status = read_piece(load, tensor, file, stored, at, here);
    if (status.code == STATUS_ok)
      status = load->comm->broadcast(load->comm, load->piece, here * item, 0);
    if (status.code != STATUS_ok) break;
    if (is_split)
      memcpy(whole + at * item, load->piece, (size_t)(here * item));
    else
      status = load->device->write(load->device, tensor->offset + at * item,
                                   load->piece, here * item);
  }
  if (is_split && status.code == STATUS_ok)
    status = tensor_write_piece(scratch, load->device, tensor, whole);
  if (is_split) arena_destroy(scratch);
  return status;
}

Status checkpoint_load(Arena *arena, const Checkpoint *checkpoint,
                       const DnnProgram *program, Device *device, Comm *comm,
                       bool is_resume) {
  Load load = {arena,
               checkpoint,
               device,
               comm,
               ARENA_ARRAY(arena, unsigned char, PIECE_ELEMENTS * 8),
               ARENA_ARRAY(arena, unsigned char, PIECE_ELEMENTS * 8)};
  for (int i = 0; i < program->n_tensors; i++) {
    const DnnTensor *tensor = &program->tensors[i];
    const StoredFile *file = NULL;
    const StoredTensor *stored = NULL;
    if (checkpoint)
      stored = checkpoint_tensor_for(checkpoint, tensor, is_resume, &file);
    uint8_t is_there = stored != NULL;
    TRY(comm->broadcast(comm, &is_there, 1, 0));
    if (is_there) TRY(load_tensor(&load, tensor, file, stored));
  }
  return STATUS_OK;
}

/* ---- choosing ---- */

/* What `latest` says, or -1. */
static int64_t read_latest(const char *folder) {
  char path[4096], name[64] = "";
  int64_t step = -1;
  int n = snprintf(path, sizeof path, "%s/latest", folder);
  if (n < 0 || n >= (int)sizeof path) return -1;
  int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return -1;
  ssize_t got = read(fd, name, sizeof name - 1);
  close(fd);
  if (got > 0) name[strcspn(name, "\n")] = '\0';
  return is_step_name(name, &step) ? step : -1;
}

/* The greatest step of the folder that is below `below`, or -1. */
static int64_t step_below(const char *folder, int64_t below) {
  DIR *list = opendir(folder);
  int64_t best = -1, step;
  if (!list) return -1;
  for (struct dirent *entry; (entry = readdir(list));)
    if (is_step_name(entry->d_name, &step) && step < below && step > best)
      best = step;
  closedir(list);
  return best;
}

Status checkpoint_open_newest(Arena *arena, const char *path, Checkpoint *out) {
  int64_t step = read_latest(path);
  if (step < 0) step = step_below(path, INT64_MAX);
  if (step >= 0)
    path = arena_printf(arena, "%s/step-%08lld", path, (long long)step);
  return checkpoint_open(arena, path, out);
}

/* What does not fit is listed on standard error, unless `list` is NULL. */
static Status check(Arena *scratch, const Checkpoint *checkpoint,
                    const DnnProgram *program, Fitting fitting, Text *list) {
  bool is_resume = fitting == FITTING_resume;
  int unhashed = 0;
  if (is_resume && !checkpoint->is_own)
    return status_make(STATUS_io,
                       "'%s' does not say that dnnc wrote it; --load takes its "
                       "parameters",
                       checkpoint->given);
  TRY(checkpoint_fit(scratch, checkpoint, program, fitting, list));
  TRY(checkpoint_verify(scratch, checkpoint, program, is_resume, &unhashed));
  if (unhashed > 0)
    fprintf(stderr,
            "note: '%s' has no hashes of %d tensors: damaged values would not "
            "be seen\n",
            checkpoint->given, unhashed);
  return STATUS_OK;
}

/* `says`: list on standard error what does not fit. */
static Status open_and_verify(Memory *memory, Arena *arena, const char *path,
                              const DnnProgram *program, Fitting fitting,
                              bool says, Checkpoint *out) {
  Arena *scratch = arena_create(memory);
  Text list = text_create(scratch);
  Status status = checkpoint_open(arena, path, out);
  if (status.code == STATUS_ok) {
    status = check(scratch, out, program, fitting, &list);
    if (says) fputs(text_string(&list), stderr);
    if (status.code != STATUS_ok) checkpoint_close(out);
  }
  arena_destroy(scratch);
  return status;
}

Status checkpoint_find(Memory *memory, Arena *arena, const char *folder,
                       const DnnProgram *program, Fitting fitting,
                       Checkpoint *out, bool *out_found) {
  Status first = STATUS_OK;
  int64_t step = read_latest(folder);
  if (step < 0) step = step_below(folder, INT64_MAX);
  *out_found = false;
  for (; step >= 0; step = step_below(folder, step)) {
    const char *path =
        arena_printf(arena, "%s/step-%08lld", folder, (long long)step);
    bool is_first = first.code == STATUS_ok;
    Status status =
        open_and_verify(memory, arena, path, program, fitting, is_first, out);
    if (status.code == STATUS_ok) {
      *out_found = true;
      if (!is_first) fprintf(stderr, "warning: going back to '%s'\n", path);
      return STATUS_OK;
    }
    fprintf(stderr, "warning: passing over a checkpoint: %s\n", status.message);
    if (is_first) first = status;
  }
  /* What belongs to another model is the user's mistake, not the disk's. */
  if (first.code != STATUS_io) return first;
  return status_make(STATUS_io, "'%s' has no whole checkpoint", folder);
}

Status checkpoint_locate(Memory *memory, Arena *arena, const char *path,
                         const DnnProgram *program, Fitting fitting,
                         Checkpoint *out) {
  bool found;
  if (read_latest(path) < 0 && step_below(path, INT64_MAX) < 0)
    return open_and_verify(memory, arena, path, program, fitting, true, out);
  TRY(checkpoint_find(memory, arena, path, program, fitting, out, &found));
  return found ? STATUS_OK
               : status_make(STATUS_invalid, "'%s' has no checkpoint", path);
}
