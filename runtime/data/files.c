/*
 * files.c -- finds input files, unpacks compressed ones and reads at any place.
 *
 * A plain file is read with pread, a sample at a time: it costs no memory, and
 * a file that shrinks while the program runs is an error instead of a signal. A
 * compressed file is unpacked as far as it is read if its first bytes tell its
 * size, else all of it; text streams.  The unpacked size is bounded, and long
 * work ends when a signal asks for it.
 */
#include "runtime/data/data.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

enum { FIRST_BYTES = 4096, STEP = 1 << 16, INFLATION = 1032 };
/* In memory at all; of a file that does not tell its size, what a compressed
 * byte may become, and what any may. */
static const int64_t most_unpacked = (int64_t)4 << 30;
static const int64_t most_each = 128, most_small = (int64_t)64 << 20;

/* A compressed file, unpacked as far as somebody has read it. */
struct Packed {
  gzFile file;
  unsigned char *data;
  int64_t n, capacity; /* of data */
  int64_t most;        /* bytes that it may unpack to */
  const int *signals;  /* as in InputSearch */
};

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

/* ---- links ---- */

static bool is_below(const char *real, const char *folder) {
  char own[PATH_MAX];
  if (!folder || !realpath(*folder ? folder : ".", own)) return false;
  size_t n = strlen(own);
  return n == 1 ||
         (strncmp(real, own, n) == 0 && (real[n] == '/' || real[n] == '\0'));
}

static Status check_real(const char *path, const char *real,
                         const InputSearch *search) {
  if (is_below(real, search->folder) || is_below(real, "") ||
      is_below(real, search->model_dir))
    return STATUS_OK;
  return status_make(STATUS_invalid,
                     "'%.150s' leads through a link to '%.150s', outside the "
                     "folders of the model, the data and the run; "
                     "--follow-links allows it",
                     path, real);
}

/* Checks the file that was opened, so that nobody can exchange it meanwhile. */
static Status check_links(const char *path, int fd, const InputSearch *search) {
  char name[32], real[PATH_MAX];
  if (search->follows_links) return STATUS_OK;
  snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
  if (!realpath(name, real) && !realpath(path, real))
    return status_errno(errno, "cannot open '%s'", path);
  return check_real(path, real, search);
}

Status input_check_links(const char *path, const InputSearch *search) {
  char part[PATH_MAX], real[PATH_MAX];
  if (search->follows_links || strlen(path) >= sizeof part) return STATUS_OK;
  snprintf(part, sizeof part, "%s", path);
  /* For a path that does not exist yet, check the folder above it. */
  while (!realpath(*part ? part : ".", real)) {
    char *slash = strrchr(part, '/');
    if (!*part || errno == EACCES) return STATUS_OK; /* opening will fail */
    *(slash ? slash : part) = '\0';
  }
  return check_real(path, real, search);
}

/* ---- finding ---- */

static const char *nearest_input(Arena *arena, const char *name,
                                 const InputSearch *search) {
  const char *folders[] = {search->folder, "", search->model_dir};
  const char *nearest = NULL;
  for (int i = 0; i < ARRAY_LENGTH(folders) && !nearest; i++)
    if (folders[i])
      nearest = file_nearest(
          arena, !*folders[i] || name[0] == '/'
                     ? name
                     : arena_printf(arena, "%s/%s", folders[i], name));
  return nearest ? arena_printf(arena, "; did you mean '%s'?", nearest) : "";
}

static Status find_input(Arena *arena, const char *name,
                         const InputSearch *search, const char **out_path,
                         int *out_fd) {
  const char *folder = search->folder, *model_dir = search->model_dir;
  *out_path = input_locate(arena, name, folder, model_dir);
  if (*out_path) {
    TRY(try_open(*out_path, out_fd));
    Status status = check_links(*out_path, *out_fd, search);
    if (status.code != STATUS_ok) close(*out_fd);
    return status;
  }
  return status_make(
      STATUS_invalid,
      "no file '%s': looked in %s%sthe current directory%s%s (--data DIR names "
      "another place)%s",
      name, folder ? folder : "", folder ? ", " : "",
      model_dir && *model_dir ? " and " : "",
      model_dir && *model_dir ? model_dir : "",
      nearest_input(arena, name, search));
}

/* ---- unpacking ---- */

/* The signal itself is left for whoever ends the process. */
static Status check_signals(const int *signals, const char *path) {
  if (!signals || *signals <= 0) return STATUS_OK;
  struct pollfd item = {.fd = *signals, .events = POLLIN};
  if (poll(&item, 1, 0) <= 0) return STATUS_OK;
  return status_make(STATUS_stopped, "stopped by a signal while reading '%s'",
                     path);
}

/* Own growth: a compressed file of 1 GB must not leave its halves in an
 * arena. */
static bool make_room(Packed *packed, int64_t n, int64_t most) {
  if (packed->capacity >= n) return true;
  int64_t capacity = 2 * packed->capacity > n ? 2 * packed->capacity : n;
  if (capacity > most && n <= most) capacity = most;
  unsigned char *data = realloc(packed->data, (size_t)capacity);
  if (!data) return false;
  packed->data = data;
  packed->capacity = capacity;
  return true;
}

static Status damaged_input(const char *path, Packed *packed) {
  int code;
  const char *why = gzerror(packed->file, &code);
  return status_make(STATUS_invalid, "'%s' is damaged: %s", path, why);
}

/* At most `n` bytes; 0 at the end. */
static Status unpack_some(const char *path, Packed *packed, void *to, int64_t n,
                          int64_t *out_n) {
  TRY(check_signals(packed->signals, path));
  int got = gzread(packed->file, to, (unsigned)(n < STEP ? n : STEP));
  int code;
  gzerror(packed->file, &code);
  if (got < 0 || (got == 0 && code != Z_OK && code != Z_STREAM_END))
    return damaged_input(path, packed);
  *out_n = got;
  return STATUS_OK;
}

/* Until `want` bytes of at most `most` are there, or the file ends. */
static Status unpack_to(const char *path, Packed *packed, int64_t want,
                        int64_t most) {
  while (packed->n < want) {
    int64_t step = most - packed->n < STEP ? most - packed->n : STEP;
    int64_t got = 0;
    if (!make_room(packed, packed->n + step, most))
      return status_make(STATUS_io, "no memory to unpack '%s'", path);
    TRY(unpack_some(path, packed, packed->data + packed->n, step, &got));
    if (got == 0) break;
    packed->n += got;
  }
  return STATUS_OK;
}

static Status too_large(const char *path, int64_t most) {
  return status_make(STATUS_invalid,
                     "'%s' unpacks to more than %lld MiB, which is the most "
                     "that is unpacked of it; unpack it with gunzip",
                     path, (long long)(most >> 20));
}

static Status too_short(const char *path, int64_t n, int64_t present) {
  return status_make(STATUS_invalid,
                     "'%s' is too short: its header announces %lld bytes, but "
                     "at most %lld are there",
                     path, (long long)n, (long long)present);
}

static Status holds_more(const char *path, int64_t n) {
  return status_make(STATUS_invalid,
                     "'%s' holds more than the %lld bytes that its header "
                     "announces",
                     path, (long long)n);
}

/* The size that the first bytes announce; the rest is unpacked when it is read.
 * A deflated byte becomes at most 1,032. */
static Status open_announced(InputFile *out, int64_t n_packed,
                             InputLimit *limit) {
  Packed *packed = out->packed;
  TRY(unpack_to(out->path, packed, FIRST_BYTES, FIRST_BYTES));
  out->n = limit(packed->data, packed->n);
  if (out->n < packed->n) return holds_more(out->path, out->n);
  if (out->n > n_packed * INFLATION)
    return too_short(out->path, out->n, n_packed * INFLATION);
  return out->n > most_unpacked ? too_large(out->path, most_unpacked)
                                : STATUS_OK;
}

static Status open_unpacked(InputFile *out) {
  Packed *packed = out->packed;
  int64_t most = packed->most < most_unpacked ? packed->most : most_unpacked;
  TRY(unpack_to(out->path, packed, most + 1, most + 1));
  if (packed->n > most) return too_large(out->path, most);
  out->n = packed->n;
  return STATUS_OK;
}

static Status open_packed(Arena *arena, const char *path, int fd, int64_t n,
                          const InputSearch *search, InputLimit *limit,
                          InputFile *out) {
  Packed *packed = ARENA_NEW(arena, Packed);
  *packed =
      (Packed){.file = gzdopen(fd, "rb"),
               .most = n * most_each > most_small ? n * most_each : most_small,
               .signals = search->signals};
  if (!packed->file) {
    close(fd);
    return status_make(STATUS_io, "no memory to unpack '%s'", path);
  }
  gzbuffer(packed->file, 1 << 16);
  *out = (InputFile){.path = path, .fd = -1, .packed = packed};
  Status status = limit == input_streams ? STATUS_OK
                  : limit                ? open_announced(out, n, limit)
                                         : open_unpacked(out);
  if (status.code != STATUS_ok) input_close(out);
  return status;
}

int64_t input_streams(const unsigned char *bytes, int64_t n) {
  (void)bytes;
  return n;
}

Status input_open_path(const char *path, const InputSearch *search,
                       InputFile *out) {
  int fd = -1;
  struct stat info;
  *out = (InputFile){.fd = -1};
  TRY(try_open(path, &fd));
  Status status = check_links(path, fd, search);
  if (status.code == STATUS_ok && fstat(fd, &info) != 0)
    status = status_errno(errno, "cannot read '%s'", path);
  if (status.code != STATUS_ok) {
    close(fd);
    return status;
  }
  *out = (InputFile){.path = path, .fd = fd, .n = info.st_size};
  return STATUS_OK;
}

Status input_open(Arena *arena, const char *name, const InputSearch *search,
                  InputLimit *limit, InputFile *out) {
  const char *path = name;
  int fd = -1;
  *out = (InputFile){.fd = -1};
  TRY(find_input(arena, name, search, &path, &fd));
  struct stat info;
  if (fstat(fd, &info) != 0) {
    close(fd);
    return status_errno(errno, "cannot read '%s'", path);
  }
  size_t length = strlen(path);
  if (length > 3 && strcmp(path + length - 3, ".gz") == 0)
    return open_packed(arena, path, fd, info.st_size, search, limit, out);
  *out = (InputFile){.path = path,
                     .fd = fd,
                     .device = (uint64_t)info.st_dev,
                     .number = (uint64_t)info.st_ino,
                     .n = info.st_size,
                     .signals = search->signals};
  return STATUS_OK;
}

/* ---- reading ---- */

static Status read_packed(const InputFile *file, int64_t at, void *to,
                          int64_t n) {
  Packed *packed = file->packed;
  TRY(unpack_to(file->path, packed, at + n, file->n));
  if (packed->n < at + n) return too_short(file->path, file->n, packed->n);
  if (n > 0) memcpy(to, packed->data + at, (size_t)n);
  unsigned char more;
  int64_t got = 0;
  if (packed->n == file->n && at + n == file->n)
    TRY(unpack_some(file->path, packed, &more, 1, &got));
  return got > 0 ? holds_more(file->path, file->n) : STATUS_OK;
}

static Status read_plain(const InputFile *file, int fd, int64_t at, void *to,
                         int64_t n) {
  while (n > 0) {
    ssize_t got = pread(fd, to, (size_t)n, at);
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

/* Another file under this name was not checked. */
static Status read_released(const InputFile *file, int64_t at, void *to,
                            int64_t n) {
  int fd;
  struct stat info;
  TRY(try_open(file->path, &fd));
  bool is_same = fstat(fd, &info) == 0 &&
                 (uint64_t)info.st_dev == file->device &&
                 (uint64_t)info.st_ino == file->number;
  Status status =
      is_same ? read_plain(file, fd, at, to, n)
              : status_make(STATUS_io, "'%s' was replaced while it was read",
                            file->path);
  close(fd);
  return status;
}

Status input_read(const InputFile *file, int64_t at, void *to, int64_t n) {
  if (at < 0 || n < 0 || at > file->n || n > file->n - at)
    return status_make(STATUS_invalid, "'%s' is too short", file->path);
  if (file->packed) return read_packed(file, at, to, n);
  if (file->fd < 0) return read_released(file, at, to, n);
  return read_plain(file, file->fd, at, to, n);
}

Status input_next(const InputFile *file, int64_t at, void *to, int64_t n,
                  int64_t *out_n) {
  *out_n = 0;
  if (file->packed) {
    if (at > file->packed->most)
      return too_large(file->path, file->packed->most);
    return unpack_some(file->path, file->packed, to, n, out_n);
  }
  TRY(check_signals(file->signals, file->path));
  if (n > file->n - at) n = file->n - at;
  TRY(input_read(file, at, to, n));
  *out_n = n;
  return STATUS_OK;
}

void input_release(InputFile *file) {
  if (file->fd >= 0) close(file->fd);
  file->fd = -1;
}

void input_close(InputFile *file) {
  if (file->fd >= 0) close(file->fd);
  if (file->packed) {
    gzclose(file->packed->file);
    free(file->packed->data);
  }
  *file = (InputFile){.fd = -1, .path = file->path};
}
