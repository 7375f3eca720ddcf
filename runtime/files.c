/*
 * files.c -- input files: found, unpacked where they are compressed, read at
 * any place.
 *
 * A plain file is read with pread, a sample at a time: it costs no memory, and
 * a file that shrinks while the program runs is an error instead of a signal.
 */
#include "runtime/runtime.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

enum { FIRST_BYTES = 4096 };
static const int64_t most_unpacked = (int64_t)64 << 30;

static Status try_open(const char *path, int *out_fd) {
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return status_errno(errno, "cannot open '%s'", path);
  struct stat info;
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    close(fd);
    return status_make(STATUS_invalid, "'%s' is not a regular file", path);
  }
  *out_fd = fd;
  return STATUS_OK;
}

const char *input_locate(Arena *arena, const char *name, const char *folder,
                         const char *model_dir) {
  const char *folders[] = {folder, "", model_dir};
  for (int i = 0; i < ARRAY_LENGTH(folders); i++) {
    if (!folders[i]) continue;
    const char *path = !*folders[i] || name[0] == '/'
                           ? name
                           : arena_printf(arena, "%s/%s", folders[i], name);
    if (file_exists(path)) return path;
  }
  return NULL;
}

bool input_exists(Arena *arena, const char *name, const InputSearch *search) {
  return input_locate(arena, name, search->folder, search->model_dir) != NULL;
}

static Status find(Arena *arena, const char *name, const InputSearch *search,
                   const char **out_path, int *out_fd) {
  const char *folder = search->folder, *model_dir = search->model_dir;
  *out_path = input_locate(arena, name, folder, model_dir);
  if (*out_path) return try_open(*out_path, out_fd);
  return status_make(
      STATUS_invalid,
      "no file '%s': looked in %s%sthe current directory%s%s (--data DIR names "
      "another place)",
      name, folder ? folder : "", folder ? ", " : "",
      model_dir && *model_dir ? " and " : "",
      model_dir && *model_dir ? model_dir : "");
}

typedef struct Unpacked {
  unsigned char *data;
  int64_t n, capacity;
} Unpacked;

/* Own growth: a compressed file of 1 GB must not leave its halves behind in an
 * arena. */
static bool make_room(Unpacked *out, int64_t n) {
  if (out->capacity - out->n >= n) return true;
  int64_t capacity =
      out->capacity * 2 > out->n + n ? out->capacity * 2 : out->n + n;
  unsigned char *data = realloc(out->data, (size_t)capacity);
  if (!data) return false;
  out->data = data;
  out->capacity = capacity;
  return true;
}

/* Stops one byte behind what the first bytes announce. */
static Status unpack(const char *path, gzFile packed,
                     int64_t (*limit)(const unsigned char *bytes, int64_t n),
                     Unpacked *out) {
  int64_t most = most_unpacked;
  for (int64_t want = FIRST_BYTES;;) {
    if (want > most + 1 - out->n) want = most + 1 - out->n;
    if (want <= 0)
      return status_make(STATUS_invalid,
                         "'%s' holds more than it says (%lld bytes)", path,
                         (long long)most);
    if (!make_room(out, want))
      return status_make(STATUS_io, "no memory to unpack '%s'", path);
    int n = gzread(packed, out->data + out->n, (unsigned)want);
    if (n < 0) {
      int code;
      return status_make(STATUS_invalid, "'%s' is damaged: %s", path,
                         gzerror(packed, &code));
    }
    if (n == 0) break;
    if (out->n == 0 && limit) most = limit(out->data, n);
    out->n += n;
    want = (int64_t)1 << 20;
  }
  int code;
  const char *why = gzerror(packed, &code);
  if (code != Z_OK && code != Z_STREAM_END)
    return status_make(STATUS_invalid, "'%s' is damaged: %s", path, why);
  return STATUS_OK;
}

static Status open_packed(const char *path, int fd,
                          int64_t (*limit)(const unsigned char *, int64_t),
                          InputFile *out) {
  gzFile packed = gzdopen(fd, "rb"); /* owns fd from now on */
  if (!packed) {
    close(fd);
    return status_make(STATUS_io, "no memory to unpack '%s'", path);
  }
  Unpacked unpacked = {0};
  Status status = unpack(path, packed, limit, &unpacked);
  gzclose(packed);
  if (status.code != STATUS_ok) {
    free(unpacked.data);
    return status;
  }
  *out = (InputFile){path, -1, unpacked.data, unpacked.n};
  return STATUS_OK;
}

Status input_open(Arena *arena, const char *name, const InputSearch *search,
                  int64_t (*limit)(const unsigned char *bytes, int64_t n),
                  InputFile *out) {
  const char *path = name;
  int fd = -1;
  *out = (InputFile){.fd = -1};
  TRY(find(arena, name, search, &path, &fd));
  size_t length = strlen(path);
  if (length > 3 && strcmp(path + length - 3, ".gz") == 0)
    return open_packed(path, fd, limit, out);
  struct stat info;
  if (fstat(fd, &info) != 0) {
    close(fd);
    return status_errno(errno, "cannot read '%s'", path);
  }
  *out = (InputFile){path, fd, NULL, info.st_size};
  return STATUS_OK;
}

Status input_read(const InputFile *file, int64_t at, void *to, int64_t n) {
  if (at < 0 || n < 0 || at > file->n || n > file->n - at)
    return status_make(STATUS_invalid, "'%s' is too short", file->path);
  if (file->bytes) memcpy(to, file->bytes + at, (size_t)n);
  while (!file->bytes && n > 0) {
    ssize_t got = pread(file->fd, to, (size_t)n, at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return status_errno(errno, "cannot read '%s'", file->path);
    if (got == 0)
      return status_make(STATUS_io, "'%s' has become shorter", file->path);
    to = (char *)to + got;
    at += got;
    n -= got;
  }
  return STATUS_OK;
}

void input_close(InputFile *file) {
  if (file->fd >= 0) close(file->fd);
  free((void *)file->bytes);
  *file = (InputFile){.fd = -1};
}
