/*
 * backend.c -- the table of back ends, by name.
 */
#include <string.h>

#include "codegen/codegen.h"

#define BACKEND(name) extern const Backend backend_##name;
#include "codegen/backends.def"

const Backend *backend_find(const char *name) {
  static const Backend *const rows[] = {
#define BACKEND(name) &backend_##name,
#include "codegen/backends.def"
  };
  for (int i = 0; i < ARRAY_LENGTH(rows); i++)
    if (strcmp(rows[i]->name, name) == 0) return rows[i];
  return NULL;
}
