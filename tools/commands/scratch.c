/*
 * scratch.c -- makes and removes the folder of a temporary bundle.
 *
 * A run holds a lock on its folder, and so do its ranks. A folder without a
 * lock was left by a run that was killed; the next run removes it.
 */
#include "tools/commands/tools.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* In the cache, and where others have their folders too. */
static const char in_cache[] = "run-", in_temporary[] = "dnnc-run-";

void tool_clear_abandoned(Tool *tool, const char *base, const char *prefix) {
  DIR *folder = opendir(base);
  if (!folder) return;
  for (struct dirent *entry; (entry = readdir(folder));) {
    if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0) continue;
    const char *path = arena_printf(tool->arena, "%s/%s", base, entry->d_name);
    struct stat info;
    if (lstat(path, &info) != 0 || info.st_uid != geteuid()) continue;
    int fd = folder_hold(path, true);
    if (fd < 0) continue;
    codegen_remove_tree(tool->arena, path);
    close(fd);
  }
  closedir(folder);
}

const char *tool_scratch_folder(Tool *tool, const char *cache) {
  const char *base = cache, *prefix = cache ? in_cache : in_temporary;
  if (!base) base = getenv("TMPDIR");
  if (!base || base[0] != '/') base = "/tmp";
  tool_clear_abandoned(tool, base, prefix);
  for (;;) {
    char *path = arena_printf(tool->arena, "%s/%sXXXXXX", base, prefix);
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
