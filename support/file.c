/*
 * file.c -- reads and writes complete files.  Reading refuses everything but
 * regular files, because a pipe or a device could block or never end.  Writing
 * replaces a file atomically.
 */
#ifndef __wasi__
#include "support/support.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LONGEST_PATH = 4096, MOST_LISTED = 10000 };

static Status read_all(int fd, const char *path, char *bytes, size_t n) {
  for (size_t done = 0; done < n;) {
    ssize_t got = read(fd, bytes + done, n - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return status_errno(errno, "cannot read '%s'", path);
    if (got == 0)
      return status_make(STATUS_invalid,
                         "'%s' became shorter while it was read", path);
    done += (size_t)got;
  }
  return STATUS_OK;
}

static Status read_open(int fd, Arena *arena, const char *path, size_t limit,
                        const char **out_bytes, size_t *out_n) {
  struct stat info;
  if (fstat(fd, &info) != 0)
    return status_errno(errno, "cannot read '%s'", path);
  if (S_ISDIR(info.st_mode))
    return status_make(STATUS_invalid, "'%s' is a folder", path);
  if (!S_ISREG(info.st_mode))
    return status_make(STATUS_invalid, "'%s' is not a regular file", path);
  if ((uint64_t)info.st_size > limit)
    return status_make(STATUS_invalid,
                       "'%s' has %lld bytes, more than the limit of %zu", path,
                       (long long)info.st_size, limit);
  size_t n = (size_t)info.st_size;
  char *bytes = arena_alloc(arena, n + 1);
  TRY(read_all(fd, path, bytes, n));
  *out_bytes = bytes;
  *out_n = n;
  return STATUS_OK;
}

const char *file_nearest(Arena *arena, const char *path) {
  const char *slash = strrchr(path, '/');
  int n_folder = slash ? (int)(slash - path) + 1 : 0;
  DIR *list =
      opendir(slash ? arena_printf(arena, "%.*s", n_folder, path) : ".");
  if (!list) return NULL;
  VEC(const char *) names = {0};
  for (struct dirent *entry; (entry = readdir(list));)
    if (entry->d_name[0] != '.' && names.n < MOST_LISTED)
      vec_push(arena, &names, arena_strdup(arena, entry->d_name));
  closedir(list);
  const char *nearest = text_nearest(path + n_folder, names.data, names.n);
  return nearest ? arena_printf(arena, "%.*s%s", n_folder, path, nearest)
                 : NULL;
}

static Status cannot_open(Arena *arena, const char *path) {
  int error = errno;
  const char *nearest = error == ENOENT ? file_nearest(arena, path) : NULL;
  if (!nearest) return status_errno(error, "cannot open '%s'", path);
  return status_make(STATUS_invalid, "cannot open '%s': %s; did you mean '%s'?",
                     path, strerror(error), nearest);
}

Status file_read(Arena *arena, const char *path, size_t limit,
                 const char **out_bytes, size_t *out_n) {
  /* Without O_NONBLOCK opening a named pipe would wait for a writer. */
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return cannot_open(arena, path);
  Status status = read_open(fd, arena, path, limit, out_bytes, out_n);
  close(fd);
  return status;
}

static Status write_all(int fd, const char *path, const char *bytes, size_t n) {
  for (size_t done = 0; done < n;) {
    ssize_t put = write(fd, bytes + done, n - done);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return status_errno(errno, "cannot write '%s'", path);
    done += (size_t)put;
  }
  if (fsync(fd) != 0) return status_errno(errno, "cannot sync '%s'", path);
  return STATUS_OK;
}

/* Makes the new name of the file durable. */
static Status sync_folder(const char *path) {
  char copy[LONGEST_PATH];
  snprintf(copy, sizeof copy, "%s", path);
  const char *folder = dirname(copy);
  int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return status_errno(errno, "cannot open folder '%s'", folder);
  Status status = STATUS_OK;
  /* Some file systems do not sync folders and say EINVAL. */
  if (fsync(fd) != 0 && errno != EINVAL)
    status = status_errno(errno, "cannot sync folder '%s'", folder);
  close(fd);
  return status;
}

Status file_replace(const char *path, const void *bytes, size_t n) {
  char beside[LONGEST_PATH];
  int length =
      snprintf(beside, sizeof beside, "%s.tmp.%ld", path, (long)getpid());
  if (length >= LONGEST_PATH)
    return status_make(STATUS_io, "path too long: '%s'", path);
  int fd = open(beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) return status_errno(errno, "cannot create '%s'", beside);
  Status status = write_all(fd, beside, bytes, n);
  if (close(fd) != 0 && status.code == STATUS_ok)
    status = status_errno(errno, "cannot write '%s'", beside);
  if (status.code == STATUS_ok && rename(beside, path) != 0)
    status = status_errno(errno, "cannot rename '%s' to '%s'", beside, path);
  if (status.code != STATUS_ok) {
    unlink(beside);
    return status;
  }
  return sync_folder(path);
}

static Status make_dir(const char *path) {
  if (mkdir(path, 0777) == 0) return STATUS_OK;
  int error = errno;
  struct stat info;
  if (stat(path, &info) == 0 && S_ISDIR(info.st_mode)) return STATUS_OK;
  return status_errno(error, "cannot create folder '%s'", path);
}

Status file_make_dirs(const char *path) {
  char part[LONGEST_PATH];
  size_t n = strlen(path);
  if (n >= sizeof part)
    return status_make(STATUS_io, "path too long: '%s'", path);
  for (size_t i = 1; i < n; i++) {
    if (path[i] != '/' || path[i - 1] == '/') continue;
    memcpy(part, path, i);
    part[i] = '\0';
    TRY(make_dir(part));
  }
  return make_dir(path);
}

bool file_exists(const char *path) {
  struct stat info;
  return stat(path, &info) == 0;
}

void file_let_writes_fail(void) {
  signal(SIGXFSZ, SIG_IGN);
}

void file_fill_standard_streams(void) {
  /* The lowest free number is taken, so they fill up in order. */
  int fd;
  do {
    fd = open("/dev/null", O_RDONLY);
  } while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd >= 0) close(fd);
}
#else
typedef int NoFilesHere; /* a translation unit may not be empty */
#endif
