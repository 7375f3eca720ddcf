/*
 * backend.c -- finds back ends by name and reads the value of `--target`.
 *
 *     cuda:sm_80,sm_90   =>   backend_cuda for the architectures sm_80, sm_90
 *     cuda               =>   backend_cuda for all its architectures
 */
#include <string.h>

#include "codegen/codegen.h"

#define BACKEND(name) extern const Backend backend_##name;
#include "codegen/backends.def"

static const Backend *const backends[] = {
#define BACKEND(name) &backend_##name,
#include "codegen/backends.def"
};

const Backend *backend_find(const char *name) {
  for (int i = 0; i < ARRAY_LENGTH(backends); i++)
    if (strcmp(backends[i]->name, name) == 0) return backends[i];
  return NULL;
}

const char *backend_find_arch(const Backend *backend, const char *arch) {
  for (int i = 0; backend->archs && backend->archs[i]; i++)
    if (strcmp(backend->archs[i], arch) == 0) return backend->archs[i];
  return NULL;
}

/* "sm_80, sm_90 and sm_100"; the last two are joined by `word`. */
static const char *list_words(Arena *arena, const char *const *words, int n,
                              const char *word) {
  Text text = text_create(arena);
  for (int i = 0; i < n; i++) {
    if (i > 0 && i + 1 < n) text_add(&text, ", ");
    if (i > 0 && i + 1 == n) text_printf(&text, " %s ", word);
    text_add(&text, words[i]);
  }
  return text_string(&text);
}

const char *backend_names(Arena *arena) {
  const char *names[ARRAY_LENGTH(backends)];
  int n = 0;
  for (int i = 0; i < ARRAY_LENGTH(backends); i++)
    if (!backends[i]->is_skeleton) names[n++] = backends[i]->name;
  return list_words(arena, names, n, "and");
}

static int count_archs(const Backend *backend) {
  int n = 0;
  while (backend->archs && backend->archs[n]) n++;
  return n;
}

const char *backend_target_help(Arena *arena) {
  const char *words[2 * ARRAY_LENGTH(backends)];
  int n = 0;
  for (int i = 0; i < ARRAY_LENGTH(backends); i++) {
    const Backend *backend = backends[i];
    if (backend->is_skeleton) continue;
    words[n++] =
        i ? backend->name : arena_printf(arena, "%s (default)", backend->name);
    if (count_archs(backend) == 0) continue;
    Text archs = text_create(arena);
    for (int k = 0; k < count_archs(backend); k++)
      text_printf(&archs, "%s%s", k ? "," : "", backend->archs[k]);
    words[n++] =
        arena_printf(arena, "%s:%s", backend->name, text_string(&archs));
  }
  return list_words(arena, words, n, "or");
}

static Status read_archs(Arena *arena, const char *list, BuildTarget *out) {
  const Backend *backend = out->backend;
  int n = count_archs(backend);
  if (n == 0)
    return status_make(STATUS_invalid,
                       "target '%s' has no architectures to choose from: "
                       "leave out ':%s'",
                       backend->name, list);
  char *word = arena_strdup(arena, list), *rest = NULL;
  out->archs = ARENA_ARRAY(arena, const char *, strlen(list) + 1);
  for (word = strtok_r(word, ",", &rest); word;
       word = strtok_r(NULL, ",", &rest)) {
    const char *arch = backend_find_arch(backend, word);
    if (!arch)
      return status_make(
          STATUS_invalid, "target '%s' has no architecture '%s'; there are %s",
          backend->name, word, list_words(arena, backend->archs, n, "and"));
    out->archs[out->n_archs++] = arch;
  }
  return STATUS_OK;
}

Status backend_read_target(Arena *arena, const char *text, BuildTarget *out) {
  *out = (BuildTarget){.backend = backends[0]};
  if (!text) return STATUS_OK;
  size_t n = strcspn(text, ":");
  out->backend = backend_find(arena_printf(arena, "%.*s", (int)n, text));
  if (!out->backend)
    return status_make(STATUS_invalid, "no target '%s'; there are %s", text,
                       backend_names(arena));
  return text[n] ? read_archs(arena, text + n + 1, out) : STATUS_OK;
}
