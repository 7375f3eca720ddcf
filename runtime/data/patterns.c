/*
 * patterns.c -- turns the names that a model gives to a source into those of
 * files.
 *
 * A name with *, ? or [ is a pattern of the shell, unless a file has this very
 * name.  It stands for all files that it fits in the first of the three places
 * of input_locate that has any, in the order of their bytes, which no locale
 * changes.  A name stays relative to its place, so that the data of a
 * checkpoint has the same names wherever its folder lies.
 */
#include "runtime/data/data.h"

#include <glob.h>
#include <stdlib.h>
#include <string.h>

typedef VEC(const char *) FileNames;

static bool is_pattern(const char *name) {
  return strpbrk(name, "*?[") != NULL;
}

static int by_bytes(const void *a, const void *b) {
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The folder and a slash, of which no character is one of a pattern. */
static const char *quote_folder(Arena *arena, const char *folder) {
  Text text = text_create(arena);
  for (const char *p = folder; *p; p++)
    text_printf(&text, strchr("*?[]\\", *p) ? "\\%c" : "%c", *p);
  text_add(&text, "/");
  return text_string(&text);
}

/* Adds what fits in one place; folders are no files. */
static Status match_in(Arena *arena, const char *pattern, const char *folder,
                       FileNames *out) {
  bool is_alone = !*folder || pattern[0] == '/';
  const char *full =
      is_alone
          ? pattern
          : arena_printf(arena, "%s%s", quote_folder(arena, folder), pattern);
  size_t skipped = is_alone ? 0 : strlen(folder) + 1;
  glob_t found;
  int code = glob(full, GLOB_MARK | GLOB_NOSORT, NULL, &found);
  if (code != 0 && code != GLOB_NOMATCH)
    return status_make(STATUS_io, "cannot look for files that fit '%s'",
                       pattern);
  int first = out->n;
  for (size_t i = 0; code == 0 && i < found.gl_pathc; i++) {
    const char *path = found.gl_pathv[i];
    if (path[strlen(path) - 1] != '/')
      vec_push(arena, out, arena_printf(arena, "%s", path + skipped));
  }
  globfree(&found);
  if (out->n > first)
    qsort(out->data + first, (size_t)(out->n - first), sizeof *out->data,
          by_bytes);
  return STATUS_OK;
}

static Status add_matches(Arena *arena, const char *pattern,
                          const InputSearch *search, FileNames *out) {
  const char *folders[] = {search->folder, "", search->model_dir};
  int first = out->n;
  for (int i = 0; i < ARRAY_LENGTH(folders) && out->n == first; i++)
    if (folders[i]) TRY(match_in(arena, pattern, folders[i], out));
  if (out->n > first) return STATUS_OK;
  return status_make(
      STATUS_invalid,
      "no file fits '%s': looked in %s%sthe current directory%s%s (--data DIR "
      "names another place)",
      pattern, search->folder ? search->folder : "", search->folder ? ", " : "",
      search->model_dir && *search->model_dir ? " and " : "",
      search->model_dir ? search->model_dir : "");
}

Status input_expand(Arena *arena, const char *const *names, int n,
                    const InputSearch *search, const char *const **out,
                    int *out_n) {
  FileNames all = {0};
  for (int i = 0; i < n; i++) {
    if (is_pattern(names[i]) && !input_exists(arena, names[i], search))
      TRY(add_matches(arena, names[i], search, &all));
    else
      vec_push(arena, &all, names[i]);
  }
  *out = all.data;
  *out_n = all.n;
  return STATUS_OK;
}

bool input_all_exist(Arena *arena, const char *const *names, int n,
                     const InputSearch *search) {
  const char *const *files;
  int n_files;
  if (input_expand(arena, names, n, search, &files, &n_files).code != STATUS_ok)
    return false;
  for (int i = 0; i < n_files; i++)
    if (!input_exists(arena, files[i], search)) return false;
  return true;
}
