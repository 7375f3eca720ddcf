/*
 * bundle.c -- finds the folder of the bundle that a process belongs to.
 *
 * `run` of a bundle is the same file as its ranks and starts them.  It may have
 * been found in $PATH or through a link of another name, so the path of the
 * file itself counts; a bundle made of links has its ranks where `run` was
 * called.
 */
#include "runtime/launch/launch.h"

#include <limits.h>
#include <string.h>
#include <unistd.h>

static const char *base_name(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

/* The folder of `path` in `out`; whether it holds a rank. */
static bool is_bundle(const char *path, char out[BUNDLE_PATH]) {
  char rank[BUNDLE_PATH + 16];
  FixedText folder = fixed_text(out, BUNDLE_PATH);
  FixedText file = fixed_text(rank, sizeof rank);
  int n = (int)(base_name(path) - path);
  fixed_printf(&folder, "%.*s", n > 1 ? n - 1 : n, path);
  if (n == 0) fixed_printf(&folder, ".");
  fixed_printf(&file, "%s/rank-0000", out);
  return !folder.is_cut && file_exists(rank);
}

bool bundle_find(const char *name, char out[BUNDLE_PATH]) {
  char self[PATH_MAX] = "";
  ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
  bool is_run = n > 0 && strcmp(base_name(self), "run") == 0;
  bool is_called_run = strcmp(base_name(name), "run") == 0;
  bool is_rank = strncmp(base_name(name), "rank-", 5) == 0;
  if (!is_called_run && (!is_run || is_rank)) return false;
  if ((is_run && is_bundle(self, out)) || is_bundle(name, out)) return true;
  is_bundle(is_run ? self : name, out); /* for the message: it lacks a rank */
  return true;
}
