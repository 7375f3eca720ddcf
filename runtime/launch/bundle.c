/*
 * bundle.c -- finds the folder of the bundle that a process belongs to, and
 * checks that its files belong together.
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

/* ---- files that belong together ---- */

enum { MOST_MANIFEST = 1 << 20, MOST_PLAN = 64 << 20 };

static Status of_another(const char *path) {
  return status_make(STATUS_invalid,
                     "'%s' is damaged or of another bundle; build it again",
                     path);
}

/* A file that is not there says nothing wrong. */
static Status read_if_there(Arena *arena, const char *path, size_t limit,
                            const char **out, size_t *out_n) {
  *out = NULL;
  return file_exists(path) ? file_read(arena, path, limit, out, out_n)
                           : STATUS_OK;
}

static bool has_member(Arena *arena, const char *text, const char *key,
                       const char *value) {
  return strstr(text, arena_printf(arena, "\"%s\": %s", key, value)) != NULL;
}

static Status check_manifest(Arena *arena, const LaunchOptions *options,
                             const char *path) {
  const char *text;
  size_t n;
  TRY(read_if_there(arena, path, MOST_MANIFEST, &text, &n));
  if (!text) return STATUS_OK;
  const char *ranks = arena_printf(arena, "%d,", options->ranks);
  const char *model = arena_printf(arena, "\"%s\"", options->model_hash);
  const char *plan = arena_printf(arena, "\"%s\"", options->plan_hash);
  bool is_ours = has_member(arena, text, "ranks", ranks) &&
                 has_member(arena, text, "model_hash", model) &&
                 has_member(arena, text, "plan_hash", plan);
  return is_ours ? STATUS_OK : of_another(path);
}

static Status check_plan(Arena *arena, const char *plan_hash,
                         const char *path) {
  const char *text;
  size_t n;
  char hash[33];
  TRY(read_if_there(arena, path, MOST_PLAN, &text, &n));
  if (!text) return STATUS_OK;
  hash_hex(text, n, hash);
  return strcmp(hash, plan_hash) == 0 ? STATUS_OK : of_another(path);
}

Status bundle_check(Arena *arena, const LaunchOptions *options) {
  if (!options->model_hash) return STATUS_OK;
  TRY(check_manifest(arena, options,
                     arena_printf(arena, "%s/bundle.json", options->bundle)));
  return check_plan(arena, options->plan_hash,
                    arena_printf(arena, "%s/plan.plan", options->bundle));
}
