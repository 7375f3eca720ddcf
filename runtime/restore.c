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
static const char index_name[] = "model.safetensors.index.json";
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

static Status open_plain(int folder, const char *name, int *out_fd,
                         int64_t *out_n) {
  struct stat info;
  int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
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
                        const char *name, StoredFile *out) {
  int64_t n = 0;
  *out = (StoredFile){.name = name, .fd = -1};
  Status status = open_plain(folder, name, &out->fd, &n);
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

static const StoredTensor *find_tensor(const Checkpoint *checkpoint,
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
    if (!find_tensor(checkpoint, map[i].key, &file) ||
        strcmp(file->name, map[i].value) != 0)
      return status_make(STATUS_io, "'%s/%s' has no tensor '%s'",
                         checkpoint->path, map[i].value, map[i].key);
  }
  return STATUS_OK;
}

static Status open_indexed(Arena *arena, int folder, int fd, int64_t n,
                           Checkpoint *out) {
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
    TRY(open_file(arena, folder, out->path, map[i].value, file));
  }
  if (out->n_files == 0)
    return status_make(STATUS_io, "'%s/%s' names no file", out->path,
                       index_name);
  TRY(make_places(arena, out));
  return check_map(out, map, n_map);
}

static Status open_files(Arena *arena, int folder, Checkpoint *out) {
  int fd;
  int64_t n;
  if (open_plain(folder, index_name, &fd, &n).code == STATUS_ok)
    return open_indexed(arena, folder, fd, n, out);
  out->files = ARENA_NEW(arena, StoredFile);
  out->n_files = 1;
  TRY(open_file(arena, folder, out->path, single_name, &out->files[0]));
  return make_places(arena, out);
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

Status checkpoint_open(Arena *arena, const char *path, Checkpoint *out) {
  *out = (Checkpoint){.path = path};
  int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0)
    return status_make(STATUS_invalid, "cannot open checkpoint '%s': %s", path,
                       strerror(errno));
  Status status = open_files(arena, folder, out);
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

/* ---- checking ---- */

static bool is_wanted(const DnnTensor *tensor, bool is_resume) {
  if (tensor->role == DNN_PARAM || tensor->role == DNN_STATE) return true;
  return is_resume && (tensor->role == DNN_MOMENT || tensor->role == DNN_EMA ||
                       tensor->role == DNN_SCALE);
}

/* The tensor of the file that fills `tensor`, or NULL. An average that was not
 * saved begins as the parameter. */
static const StoredTensor *stored_for(const Checkpoint *checkpoint,
                                      const DnnTensor *tensor, bool is_resume,
                                      const StoredFile **out_file) {
  bool is_average = tensor->role == DNN_EMA;
  if (!is_wanted(tensor, is_resume) && !is_average) return NULL;
  const StoredTensor *found = find_tensor(checkpoint, tensor->path, out_file);
  if (!found && is_average && !is_resume &&
      strncmp(tensor->path, "ema/", 4) == 0)
    found = find_tensor(checkpoint, tensor->path + 4, out_file);
  return found;
}

static Status check_tensor(const Checkpoint *checkpoint, const StoredFile *file,
                           const StoredTensor *stored,
                           const DnnTensor *tensor) {
  bool is_equal =
      stored->dtype == tensor->dtype && stored->rank == tensor->rank;
  for (int i = 0; is_equal && i < tensor->rank; i++)
    is_equal = stored->size[i] == tensor->size[i];
  if (is_equal) return STATUS_OK;
  char have[256] = "", want[256] = "";
  size_t a = 0, b = 0;
  for (int i = 0; i < stored->rank && a < sizeof have - 24; i++)
    a += (size_t)snprintf(have + a, sizeof have - a, "%s%lld", i ? ", " : "",
                          (long long)stored->size[i]);
  for (int i = 0; i < tensor->rank && b < sizeof want - 24; i++)
    b += (size_t)snprintf(want + b, sizeof want - b, "%s%lld", i ? ", " : "",
                          (long long)tensor->size[i]);
  return status_make(
      STATUS_invalid, "'%s/%s': tensor '%s' is %s[%s], the model has %s[%s]",
      checkpoint->path, file->name, tensor->path, dtype_label(stored->dtype),
      have, dtype_label(tensor->dtype), want);
}

static Status check_hash(const Checkpoint *checkpoint, const StoredFile *file,
                         const StoredTensor *stored, unsigned char *piece) {
  char key[4200], text[HASH_DIGITS + 1];
  snprintf(key, sizeof key, "xxh3:%s", stored->name);
  const char *expected = find_metadata(&file->header, key);
  if (!expected && !checkpoint->is_own) return STATUS_OK;
  uint64_t hash = 0;
  for (int64_t at = stored->begin; at < stored->end; at += HASH_PIECE) {
    int64_t n = stored->end - at < HASH_PIECE ? stored->end - at : HASH_PIECE;
    Status status = read_exactly(file->fd, piece, n, file->data_begin + at);
    if (status.code != STATUS_ok)
      return status_make(status.code, "'%s/%s', tensor '%s': %s",
                         checkpoint->path, file->name, stored->name,
                         status.message);
    hash = hash_bytes(piece, (size_t)n, hash);
  }
  snprintf(text, sizeof text, "%0*llx", HASH_DIGITS, (unsigned long long)hash);
  if (expected && strcmp(text, expected) == 0) return STATUS_OK;
  return status_make(STATUS_io,
                     "'%s/%s': tensor '%s' is damaged (its hash is not the one "
                     "in the header)",
                     checkpoint->path, file->name, stored->name);
}

Status checkpoint_verify(Arena *arena, const Checkpoint *checkpoint,
                         const DnnProgram *program, bool is_resume) {
  unsigned char *piece = ARENA_ARRAY(arena, unsigned char, HASH_PIECE);
  if (is_resume && !checkpoint->is_own)
    return status_make(STATUS_io,
                       "'%s' does not say that dnnc wrote it; --load takes its "
                       "parameters",
                       checkpoint->path);
  for (int i = 0; i < program->n_tensors; i++) {
    const DnnTensor *tensor = &program->tensors[i];
    const StoredFile *file = NULL;
    const StoredTensor *stored =
        stored_for(checkpoint, tensor, is_resume, &file);
    if (!stored && is_wanted(tensor, is_resume))
      return status_make(STATUS_invalid, "'%s' has no tensor '%s'",
                         checkpoint->path, tensor->path);
    if (!stored) continue;
    TRY(check_tensor(checkpoint, file, stored, tensor));
    TRY(check_hash(checkpoint, file, stored, piece));
  }
  return STATUS_OK;
}

/* ---- loading ---- */

typedef struct Load {
  const Checkpoint *checkpoint; /* NULL: not rank 0 */
  Device *device;
  Comm *comm;
  unsigned char *piece;
} Load;

static Status load_tensor(const Load *load, const DnnTensor *tensor,
                          const StoredFile *file, const StoredTensor *stored) {
  int64_t n = tensor_elements(tensor) * dtype_bytes(tensor->dtype);
  if (tensor_local_elements(tensor) != tensor_elements(tensor))
    return status_make(STATUS_unavailable,
                       "checkpoints of split tensors ('%s') are not supported "
                       "yet",
                       tensor->path);
  for (int64_t at = 0; at < n; at += HASH_PIECE) {
    int64_t here = n - at < HASH_PIECE ? n - at : HASH_PIECE;
    if (load->checkpoint)
      TRY(read_exactly(file->fd, load->piece, here,
                       file->data_begin + stored->begin + at));
    TRY(load->comm->broadcast(load->comm, load->piece, here, 0));
    TRY(load->device->write(load->device, tensor->offset + at, load->piece,
                            here));
  }
  return STATUS_OK;
}

Status checkpoint_load(Arena *arena, const Checkpoint *checkpoint,
                       const DnnProgram *program, Device *device, Comm *comm,
                       bool is_resume) {
  Load load = {checkpoint, device, comm,
               ARENA_ARRAY(arena, unsigned char, HASH_PIECE)};
  for (int i = 0; i < program->n_tensors; i++) {
    const DnnTensor *tensor = &program->tensors[i];
    const StoredFile *file = NULL;
    const StoredTensor *stored = NULL;
    if (checkpoint) stored = stored_for(checkpoint, tensor, is_resume, &file);
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

static Status open_and_verify(Memory *memory, Arena *arena, const char *path,
                              const DnnProgram *program, bool is_resume,
                              Checkpoint *out) {
  Arena *scratch = arena_create(memory);
  Status status = checkpoint_open(arena, path, out);
  if (status.code == STATUS_ok) {
    status = checkpoint_verify(scratch, out, program, is_resume);
    if (status.code != STATUS_ok) checkpoint_close(out);
  }
  arena_destroy(scratch);
  return status;
}

Status checkpoint_find(Memory *memory, Arena *arena, const char *folder,
                       const DnnProgram *program, bool is_resume,
                       Checkpoint *out, bool *out_found) {
  Status first = STATUS_OK;
  int64_t step = read_latest(folder);
  if (step < 0) step = step_below(folder, INT64_MAX);
  *out_found = false;
  for (; step >= 0; step = step_below(folder, step)) {
    const char *path =
        arena_printf(arena, "%s/step-%08lld", folder, (long long)step);
    Status status =
        open_and_verify(memory, arena, path, program, is_resume, out);
    if (status.code == STATUS_ok) {
      *out_found = true;
      if (first.code != STATUS_ok)
        fprintf(stderr, "warning: going back to '%s'\n", path);
      return STATUS_OK;
    }
    fprintf(stderr, "warning: passing over a checkpoint: %s\n", status.message);
    if (first.code == STATUS_ok) first = status;
  }
  if (first.code == STATUS_ok) return STATUS_OK;
  return status_make(STATUS_io, "'%s' has no whole checkpoint", folder);
}

Status checkpoint_locate(Memory *memory, Arena *arena, const char *path,
                         const DnnProgram *program, Checkpoint *out) {
  bool found;
  if (read_latest(path) < 0 && step_below(path, INT64_MAX) < 0)
    return open_and_verify(memory, arena, path, program, false, out);
  TRY(checkpoint_find(memory, arena, path, program, false, out, &found));
  return found ? STATUS_OK
               : status_make(STATUS_invalid, "'%s' has no checkpoint", path);
}
