/*
 * folder.c -- makes and removes the temporary folders in which outputs are
 * written before they are renamed into place.
 *
 *     m.bundle.unfinished-Xq3f9a      out/.unfinished-0aZ81k
 *
 * A process holds a lock on the folder in which it works, and the system drops
 * the lock when the process ends, however it ends.  A folder of this name that
 * can be locked was therefore left by a process that was killed, and the next
 * process removes it.
 */
#ifndef __wasi__
#include "support/support.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static const char marker[] = ".unfinished-";
enum { N_RANDOM = 6 };

int folder_hold(const char *path, bool by_children) {
  int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW;
  int fd = open(path, by_children ? flags : flags | O_CLOEXEC);
  if (fd < 0) return -1;
  int error = flock(fd, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
  struct stat info;
  if (!error && lstat(path, &info) != 0) error = ENOENT;
  if (!error) return fd;
  close(fd);
  errno = error;
  return -1;
}

bool folder_is_unfinished(const char *name) {
  static const char alphabet[] =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
  size_t n = strlen(name), tail = sizeof marker - 1 + N_RANDOM;
  if (n < tail || strncmp(name + n - tail, marker, sizeof marker - 1) != 0)
    return false;
  return strspn(name + n - N_RANDOM, alphabet) == N_RANDOM;
}

Status folder_create_unfinished(Arena *arena, const char *beside,
                                const char **out_path, int *out_lock) {
  for (;;) {
    char *path = arena_printf(arena, "%s%sXXXXXX", beside, marker);
    if (!mkdtemp(path))
      return status_errno(errno, "cannot make the folder '%s'", path);
    *out_path = path;
    *out_lock = folder_hold(path, false);
    /* Another process may have taken it for an abandoned one just now; and
     * some disks have no locks, where nothing is ever taken so. */
    if (*out_lock >= 0 || (errno != EWOULDBLOCK && errno != ENOENT))
      return STATUS_OK;
  }
}

static bool is_own(const char *path) {
  struct stat info;
  return lstat(path, &info) == 0 && S_ISDIR(info.st_mode) &&
         info.st_uid == geteuid();
}

void folder_each_abandoned(Arena *arena, const char *folder,
                           void (*visit)(void *user, const char *path,
                                         const char *name),
                           void *user) {
  DIR *list = opendir(folder);
  if (!list) return;
  for (struct dirent *entry; (entry = readdir(list));) {
    if (!folder_is_unfinished(entry->d_name)) continue;
    const char *path = arena_printf(arena, "%s/%s", folder, entry->d_name);
    int lock = is_own(path) ? folder_hold(path, false) : -1;
    if (lock < 0) continue;
    visit(user, path, entry->d_name);
    close(lock);
  }
  closedir(list);
}
#else
typedef int NoFoldersHere; /* a translation unit may not be empty */
#endif
