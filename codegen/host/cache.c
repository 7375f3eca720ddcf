/*
 * cache.c -- reads and writes the files of the cache, one for each object or
 * cubin:
 *
 *     DIR/k0/k1k2...kind = 32 hex digits over the rest, then the bytes
 *
 * Two processes may write the same entry; both write the same bytes, and
 * file_replace puts either in place in one step.
 */
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "codegen/host/cache.h"

#define LIMIT_BYTES  ((size_t)1 << 30)
#define HEADER_BYTES 32

static const char *entry_folder(Arena *arena, const char *dir,
                                const char *key) {
  return arena_printf(arena, "%s/%.2s", dir, key);
}

static const char *entry_path(Arena *arena, const char *dir, const char *key,
                              const char *kind) {
  return arena_printf(arena, "%s/%s.%s", entry_folder(arena, dir, key), key + 2,
                      kind);
}

bool cache_load(Arena *arena, const char *dir, const char *key,
                const char *kind, const void **out_bytes, size_t *out_n) {
  if (!dir) return false;
  const char *path = entry_path(arena, dir, key, kind), *bytes;
  size_t n;
  if (!file_exists(path)) return false;
  Status status = file_read(arena, path, LIMIT_BYTES, &bytes, &n);
  if (status.code != STATUS_ok || n < HEADER_BYTES) return false;
  char hex[33];
  hash_hex(bytes + HEADER_BYTES, n - HEADER_BYTES, hex);
  if (memcmp(hex, bytes, HEADER_BYTES) != 0) return false;
  *out_bytes = bytes + HEADER_BYTES;
  *out_n = n - HEADER_BYTES;
  return true;
}

void cache_store(Arena *scratch, const char *dir, const char *key,
                 const char *kind, const void *bytes, size_t n) {
  if (!dir) return;
  if (file_make_dirs(entry_folder(scratch, dir, key)).code != STATUS_ok) return;
  char hex[33];
  hash_hex(bytes, n, hex);
  char *entry_bytes = arena_alloc(scratch, HEADER_BYTES + n);
  memcpy(entry_bytes, hex, HEADER_BYTES);
  memcpy(entry_bytes + HEADER_BYTES, bytes, n);
  (void)file_replace(entry_path(scratch, dir, key, kind), entry_bytes,
                     HEADER_BYTES + n);
}

bool cache_is_private(const char *dir) {
  struct stat info;
  if (lstat(dir, &info) != 0) {
    if (file_make_dirs(dir).code != STATUS_ok || chmod(dir, 0700) != 0 ||
        lstat(dir, &info) != 0)
      return false;
  }
  return S_ISDIR(info.st_mode) && info.st_uid == geteuid() &&
         (info.st_mode & 077) == 0;
}
