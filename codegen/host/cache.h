/*
 * cache.h -- keeps the results of compilers on disk, under a hash of their
 * input.
 *
 * An entry holds a hash of its bytes, so that a damaged entry counts as absent.
 * Writing is atomic, and a failure to write costs speed only.
 */
#ifndef CODEGEN_HOST_CACHE_H
#define CODEGEN_HOST_CACHE_H

#include "support/support.h"

/* Loads an entry of the cache.  `key` is hex digits; `kind` ends the file's
 * name, as "o" or "cubin".  Returns false if there is no undamaged entry, or
 * `dir` is NULL. */
bool cache_load(Arena *arena, const char *dir, const char *key,
                const char *kind, const void **out_bytes, size_t *out_n);
/* Stores an entry; does nothing if `dir` is NULL. */
void cache_store(Arena *scratch, const char *dir, const char *key,
                 const char *kind, const void *bytes, size_t n);

/* Makes the folder if it is missing; false where others can write to it, so
 * that its entries cannot be trusted. */
bool cache_is_private(const char *dir);

#endif
