/*
 * file.h -- declares files, folders and dynamic libraries: not compiled for
 * wasm32-wasi.
 */
#ifndef SUPPORT_FILE_H
#define SUPPORT_FILE_H

#include "support/base.h"

/* ---- folder.c, file.c, dylib.c: not compiled for wasm32-wasi ---- */

/* Makes BESIDE.unfinished-XXXXXX and locks it: *out_lock is a descriptor to be
 * closed in the end, or -1 on a disk without locks. */
Status folder_create_unfinished(Arena *arena, const char *beside,
                                const char **out_path, int *out_lock);
bool folder_is_unfinished(const char *name);
/* Visits the folders of this name in `folder` whose process is gone: they are
 * locked for the visit, which may remove them. */
void folder_each_abandoned(Arena *arena, const char *folder,
                           void (*visit)(void *user, const char *path,
                                         const char *name),
                           void *user);
/* Returns a descriptor that holds a folder, for children too if
 * `by_children`.  Returns -1 with an errno: EWOULDBLOCK, another process holds
 * it; ENOENT, it is gone; otherwise this disk has no locks. */
int folder_hold(const char *path, bool by_children);

/* Reads a regular file of at most `limit` bytes into the arena, with a
 * NUL after it. */
Status file_read(Arena *arena, const char *path, size_t limit,
                 const char **out_bytes, size_t *out_n);
/* Writes beside, syncs, renames: the regular file that `path` leads to is
 * complete or unchanged.  A pipe or a device is written into. */
Status file_replace(const char *path, const void *bytes, size_t n);
/* Finds before the work begins what would make file_replace fail: no folder, or
 * one that cannot be written. */
Status file_check_output(const char *path);
/* Checks that files can be made in a folder that file_make_dirs will make. */
Status file_check_folder(const char *path);
/* Finds the file that the links of `path` lead to, which need not be there. */
Status file_link_target(Arena *arena, const char *path, const char **out);
Status file_make_dirs(const char *path);
bool file_exists(const char *path);
/* Returns the path of the file in the same folder whose name is
 * nearest.  Returns NULL if there is none. */
const char *file_nearest(Arena *arena, const char *path);
/* Gives each standard stream that is closed one that cannot be written; called
 * first in main.  A process may be started with standard streams closed; the
 * next file that is opened would become one of them and get what is printed
 * there. */
void file_fill_standard_streams(void);
/* Lets a write beyond the size limit of files (ulimit -f) fail with EFBIG like
 * other failures of a disk, where SIGXFSZ would kill the process.  It, too, is
 * called first in main. */
void file_let_writes_fail(void);

typedef struct Dylib Dylib;
/* Opens the first of `names` (a NULL-ended list of sonames or absolute paths)
 * that loads; `$env` names a variable holding a path to try first, or NULL. */
Status dylib_open(const char *env, const char *const *names, Dylib **out);
/* Returns a symbol.  Returns NULL if it is absent. */
void *dylib_symbol(Dylib *dylib, const char *name);
const char *dylib_path(const Dylib *dylib);
void dylib_close(Dylib *dylib);

#endif
