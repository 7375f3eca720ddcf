/*
 * file.c -- reads and writes complete files.  Reading refuses everything but
 * regular files, because a pipe or a device could block or never end.  Writing
 * replaces a regular file atomically.  It writes into pipes and devices, and a
 * link stays where it is: the file that it leads to is replaced, or made.
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

enum { LONGEST_PATH = 4096, MOST_LINKS = 40, MOST_LISTED = 10000 };

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

/* ---- what a path leads to ---- */

typedef struct Output {
  char path[LONGEST_PATH]; /* of the file, after all links */
  bool is_replaced;        /* else it is written into */
  int stream;              /* that goes into this file already; -1: none */
} Output;

/* The length of the folder with its last slash; 0 for the current one. */
static size_t folder_length(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? (size_t)(slash - path) + 1 : 0;
}

static Status path_too_long(const char *path) {
  return status_make(STATUS_io, "path too long: '%s'", path);
}

/* `out`: the file that the links lead to, which need not be there. */
static Status follow_links(const char *path, char out[LONGEST_PATH]) {
  if (strlen(path) >= LONGEST_PATH) return path_too_long(path);
  strcpy(out, path);
  for (int i = 0; i < MOST_LINKS; i++) {
    struct stat info;
    char target[LONGEST_PATH];
    if (lstat(out, &info) != 0 || !S_ISLNK(info.st_mode)) return STATUS_OK;
    ssize_t n = readlink(out, target, sizeof target - 1);
    if (n < 0) return status_errno(errno, "cannot follow '%s'", path);
    size_t beside = target[0] == '/' ? 0 : folder_length(out);
    if (beside + (size_t)n >= LONGEST_PATH) return path_too_long(path);
    memcpy(out + beside, target, (size_t)n);
    out[beside + (size_t)n] = '\0';
  }
  return status_errno(ELOOP, "cannot write '%s'", path);
}

static bool is_same_file(const struct stat *a, const struct stat *b) {
  return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* The standard stream that is redirected into this file, or -1.  A new file in
 * its place would lose what the stream prints. */
static int stream_into(const struct stat *file) {
  struct stat info;
  for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO; fd++)
    if (fstat(fd, &info) == 0 && is_same_file(&info, file)) return fd;
  return -1;
}

static Status find_output(const char *path, Output *out) {
  struct stat info, end;
  *out = (Output){.is_replaced = true, .stream = -1};
  TRY(follow_links(path, out->path));
  if (stat(path, &info) != 0) return STATUS_OK;
  if (S_ISDIR(info.st_mode))
    return status_make(STATUS_invalid, "cannot write '%s': it is a folder",
                       path);
  out->stream = stream_into(&info);
  /* A link of /proc may lead to a file that has no name any more. */
  out->is_replaced = S_ISREG(info.st_mode) && out->stream < 0 &&
                     stat(out->path, &end) == 0 && is_same_file(&info, &end);
  return STATUS_OK;
}

static Status check_folder(const char *path, const Output *output) {
  char folder[LONGEST_PATH] = ".";
  struct stat info;
  size_t n = folder_length(output->path);
  if (n > 0) snprintf(folder, sizeof folder, "%.*s", (int)n, output->path);
  if (stat(folder, &info) != 0 || !S_ISDIR(info.st_mode))
    return status_make(STATUS_invalid,
                       "cannot write '%s': no folder '%s'; make it first", path,
                       folder);
  return access(folder, W_OK | X_OK) == 0
             ? STATUS_OK
             : status_errno(errno, "cannot write '%s'", path);
}

Status file_check_output(const char *path) {
  Output output;
  TRY(find_output(path, &output));
  if (output.is_replaced) return check_folder(path, &output);
  return output.stream >= 0 || access(path, W_OK) == 0
             ? STATUS_OK
             : status_errno(errno, "cannot write '%s'", path);
}

Status file_check_folder(const char *path) {
  char part[LONGEST_PATH];
  struct stat info;
  if (strlen(path) >= sizeof part) return path_too_long(path);
  strcpy(part, path);
  while (stat(part, &info) != 0 && errno == ENOENT) {
    char *slash = strrchr(part, '/');
    if (slash == part) slash++;
    strcpy(slash ? slash : part, slash ? "" : ".");
  }
  int error = stat(part, &info) != 0           ? errno
              : !S_ISDIR(info.st_mode)         ? ENOTDIR
              : access(part, W_OK | X_OK) != 0 ? errno
                                               : 0;
  return error ? status_errno(error, "cannot write to the folder '%s'", path)
               : STATUS_OK;
}

Status file_link_target(Arena *arena, const char *path, const char **out) {
  char target[LONGEST_PATH];
  TRY(follow_links(path, target));
  *out = arena_strdup(arena, target);
  return STATUS_OK;
}

/* ---- writing ---- */

static Status write_all(int fd, const char *path, const char *bytes, size_t n) {
  for (size_t done = 0; done < n;) {
    ssize_t put = write(fd, bytes + done, n - done);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return status_errno(errno, "cannot write '%s'", path);
    done += (size_t)put;
  }
  return STATUS_OK;
}

/* A pipe whose reader has gone is an error like others, no signal. */
static Status write_into(const char *path, const Output *output,
                         const void *bytes, size_t n) {
  struct sigaction ignore = {.sa_handler = SIG_IGN}, before;
  fflush(stdout);
  int fd = output->stream >= 0
               ? dup(output->stream)
               : open(path, O_WRONLY | O_TRUNC | O_NOCTTY | O_CLOEXEC);
  if (fd < 0) return status_errno(errno, "cannot write '%s'", path);
  sigaction(SIGPIPE, &ignore, &before);
  Status status = write_all(fd, path, bytes, n);
  sigaction(SIGPIPE, &before, NULL);
  if (close(fd) != 0 && status.code == STATUS_ok)
    status = status_errno(errno, "cannot write '%s'", path);
  return status;
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

static Status write_beside(const char *path, const char *beside,
                           const void *bytes, size_t n) {
  int fd = open(beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) return status_errno(errno, "cannot write '%s'", path);
  Status status = write_all(fd, path, bytes, n);
  if (status.code == STATUS_ok && fsync(fd) != 0)
    status = status_errno(errno, "cannot sync '%s'", path);
  if (close(fd) != 0 && status.code == STATUS_ok)
    status = status_errno(errno, "cannot write '%s'", path);
  return status;
}

Status file_replace(const char *path, const void *bytes, size_t n) {
  Output output;
  char beside[LONGEST_PATH];
  TRY(find_output(path, &output));
  if (!output.is_replaced) return write_into(path, &output, bytes, n);
  FixedText text = fixed_text(beside, sizeof beside);
  fixed_printf(&text, "%s.tmp.%ld", output.path, (long)getpid());
  if (text.is_cut) return path_too_long(path);
  Status status = write_beside(path, beside, bytes, n);
  if (status.code == STATUS_ok && rename(beside, output.path) != 0)
    status = status_errno(errno, "cannot write '%s'", path);
  if (status.code == STATUS_ok) return sync_folder(output.path);
  unlink(beside);
  return status;
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
  if (n >= sizeof part) return path_too_long(path);
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
