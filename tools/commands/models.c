/*
 * models.c -- finds and lists the models that come with this binary.
 *
 * They lie where `cmake --install` puts them, or in the sources beside the
 * folder in which this binary was built.  Both places are relative to the
 * binary, so that a prefix may be moved.
 */
#include "tools/commands/tools.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A folder that has this file is theirs. */
static const char shared[] = "lib.dnn";

const char *tool_models_folder(Arena *arena) {
  static const char *const places[] = {DNNC_MODELS, "../models"};
  char self[PATH_MAX], folder[PATH_MAX];
  ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
  if (n <= 0) return NULL;
  self[n] = '\0';
  char *slash = strrchr(self, '/');
  if (slash) *slash = '\0';
  for (int i = 0; i < ARRAY_LENGTH(places); i++) {
    if (!realpath(arena_printf(arena, "%s/%s", self, places[i]), folder) ||
        !file_exists(arena_printf(arena, "%s/%s", folder, shared)))
      continue;
    return arena_strdup(arena, folder);
  }
  return NULL;
}

/* Returns the folder as it can be written on a command line that is given here.
 */
static const char *folder_from_here(Arena *arena) {
  static const char here[] = "models";
  char real[PATH_MAX];
  const char *folder = tool_models_folder(arena);
  if (!folder || (realpath(here, real) && !strcmp(real, folder))) return here;
  return folder;
}

/* The rows are made of the heads of models/ when this binary is built; the
 * counts are the files' own words, which a test compares with `dnnc check`. */
void tool_list_models(Text *out) {
  const char *folder = folder_from_here(out->arena);
#define MODEL(name, title, count)                                              \
  text_printf(out, "%s/%-18s %18s  %s\n", folder, name, count, title);
  MODEL("*.dnn", "what it is", "parameters")
#include "models.def"
#undef MODEL
}
