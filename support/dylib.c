/*
 * dylib.c -- finds vendor libraries at run time.  No vendor library is linked,
 * so the same executable runs on machines that lack them.
 */
#ifndef __wasi__
#include "support/support.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct Dylib {
  void *handle;
  char path[]; /* as it was opened */
};

static Dylib *open_one(const char *name) {
  void *handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (!handle) return NULL;
  size_t n = strlen(name) + 1;
  /* A handle outlives every arena of its user, so it is not in one. */
  Dylib *dylib = malloc(sizeof *dylib + n);
  if (!dylib) {
    dlclose(handle);
    return NULL;
  }
  dylib->handle = handle;
  memcpy(dylib->path, name, n);
  return dylib;
}

Status dylib_open(const char *env, const char *const *names, Dylib **out) {
  *out = NULL;
  const char *chosen = env ? getenv(env) : NULL;
  if (chosen && *chosen) {
    *out = open_one(chosen);
    if (*out) return STATUS_OK;
    const char *why = dlerror();
    return status_make(STATUS_unavailable, "cannot load %s=%s: %s", env, chosen,
                       why ? why : "unknown reason");
  }
  char why[400] = "no name given";
  for (int i = 0; names[i]; i++) {
    *out = open_one(names[i]);
    if (*out) return STATUS_OK;
    const char *reason = dlerror();
    /* The first name is the preferred one: its reason helps most. */
    if (i == 0) snprintf(why, sizeof why, "%s", reason ? reason : names[i]);
  }
  return status_make(STATUS_unavailable, "cannot load %s: %s",
                     names[0] ? names[0] : "library", why);
}

void *dylib_symbol(Dylib *dylib, const char *name) {
  return dlsym(dylib->handle, name);
}

const char *dylib_path(const Dylib *dylib) {
  return dylib->path;
}

void dylib_close(Dylib *dylib) {
  if (!dylib) return;
  dlclose(dylib->handle);
  free(dylib);
}
#else
typedef int NoLibrariesHere; /* a translation unit may not be empty */
#endif
