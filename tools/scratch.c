/*
 * scratch.c -- the folder of a bundle that nobody asked to keep.
 *
 * Whoever runs in one holds a lock on it, its ranks too.  What no one holds was
 * left by a run that was killed; the next run removes it.
 */
#include "tools/tools.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PREFIX "run-"

static void remove_abandoned(Tool *tool, const char *base) {
  DIR *folder = opendir(base);
  if (!folder) return;
  for (struct dirent *entry; (entry = readdir(folder));) {
    if (strncmp(entry->d_name, PREFIX, strlen(PREFIX)) != 0) continue;
    const char *path = arena_printf(tool->arena, "%s/%s", base, entry->d_name);
    int fd = folder_hold(path, true);
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
      message_print("dnnc: error: cannot make a folder in '%s': %s\n", base,
                    strerror(errno));
      return NULL;
    }
    /* Another run may have taken it for an abandoned one just now. */
    if (folder_hold(path, true) >= 0 ||
        (errno != EWOULDBLOCK && errno != ENOENT))
      return path;
  }
}
