/*
 * scratch.c -- the folder of a bundle that nobody asked to keep.
 *
 * Whoever runs in one holds a lock on it, its ranks too.  What no one holds was
 * left by a run that was killed; the next run removes it.
 */
#include "tools/tools.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define PREFIX "run-"

/* A descriptor that holds the folder, or -1: EWOULDBLOCK, another holds it;
 * ENOENT, it is gone; otherwise this disk has no locks. */
static int hold(const char *path) {
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  if (fd < 0) return -1;
  int error = flock(fd, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
  struct stat info;
  if (!error && lstat(path, &info) != 0) error = ENOENT;
  if (!error) return fd;
  close(fd);
  errno = error;
  return -1;
}

static void remove_abandoned(Tool *tool, const char *base) {
  DIR *folder = opendir(base);
  if (!folder) return;
  for (struct dirent *entry; (entry = readdir(folder));) {
    if (strncmp(entry->d_name, PREFIX, strlen(PREFIX)) != 0) continue;
    const char *path = arena_printf(tool->arena, "%s/%s", base, entry->d_name);
    int fd = hold(path);
    if (fd < 0) continue;
    codegen_remove_tree(tool->arena, path);
    close(fd);
  }
  closedir(folder);
}

const char *tool_scratch_folder(Tool *tool, const char *cache) {
  const char *base = cache;
  if (cache) remove_abandoned(tool, cache);
  if (!base) base = getenv("TMPDIR");
  if (!base || base[0] != '/') base = "/tmp";
  for (;;) {
    char *path = arena_printf(tool->arena, "%s/" PREFIX "XXXXXX", base);
    if (!mkdtemp(path)) {
      fprintf(stderr, "dnnc: error: cannot make a folder in '%s': %s\n", base,
              strerror(errno));
      return NULL;
    }
    /* Another run may have taken it for an abandoned one just now. */
    if (hold(path) >= 0 || (errno != EWOULDBLOCK && errno != ENOENT))
      return path;
  }
}
