/*
 * choose.c -- chooses which checkpoint of a folder is read.
 *
 * The first choice is the one that `latest` names, because later steps may come
 * from another run.  If that one is incomplete, the newest complete one of the
 * same run follows, then any complete one; if `latest` names no checkpoint that
 * exists, the newest complete one.  A warning names every checkpoint that was
 * skipped.  One of another model or optimizer is an error: whoever steps back
 * over it would lose what was trained, and say of the older one that it is the
 * latest.  All of a checkpoint is checked, hashes included, before it is
 * chosen; the second reading, which fills the arena, usually comes from the
 * file cache.
 */
#include "runtime/checkpoint/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- candidates ---- */

typedef struct Steps {
  int64_t *data; /* in the order in which they are tried */
  int n, capacity;
  bool is_second; /* the first choice is not there */
} Steps;

static int greatest_first(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x < y) - (x > y);
}

/* A folder that is not there has none, and what is no folder neither. */
static Status read_steps(Arena *arena, const char *folder, Steps *out) {
  DIR *list = opendir(folder);
  int64_t step;
  *out = (Steps){0};
  if (!list && (errno == ENOENT || errno == ENOTDIR)) return STATUS_OK;
  if (!list) return status_errno(errno, "cannot read folder '%s'", folder);
  for (struct dirent *entry; (entry = readdir(list));)
    if (is_step_name(entry->d_name, &step)) vec_push(arena, out, step);
  closedir(list);
  if (out->n > 0)
    qsort(out->data, (size_t)out->n, sizeof *out->data, greatest_first);
  return STATUS_OK;
}

int64_t checkpoint_read_pointer(Arena *arena, const char *folder,
                                const char *file) {
  const char *path = arena_printf(arena, "%s/%s", folder, file);
  const char *why = NULL;
  char name[64] = "";
  int64_t step = -1;
  struct stat info;
  int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0 && (errno == ENOENT || errno == ENOTDIR)) return -1;
  if (fd < 0) {
    why = errno == ELOOP ? "it is a symbolic link" : strerror(errno);
  } else if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    why = "it is not a regular file";
  } else {
    ssize_t got = read(fd, name, sizeof name - 1);
    if (got > 0) name[strcspn(name, "\n")] = '\0';
    if (got < 0)
      why = strerror(errno);
    else if (!is_step_name(name, &step))
      why = "it names no checkpoint";
  }
  if (fd >= 0) close(fd);
  if (why)
    message_print("warning: '%s' is not used: %s%s\n", path, why,
                  strcmp(file, "latest") == 0 ? "; the newest counts" : "");
  return step;
}

/* `latest`, then those below it, then those above. */
static void put_first(Arena *arena, Steps *steps, int64_t latest) {
  int64_t *order = ARENA_ARRAY(arena, int64_t, steps->n);
  int n = 0;
  for (int i = 0; i < steps->n; i++)
    if (steps->data[i] <= latest) order[n++] = steps->data[i];
  for (int i = 0; i < steps->n; i++)
    if (steps->data[i] > latest) order[n++] = steps->data[i];
  steps->data = order;
}

static bool has_step(const Steps *steps, int64_t step) {
  for (int i = 0; i < steps->n; i++)
    if (steps->data[i] == step) return true;
  return false;
}

static Status list_steps(Arena *arena, const char *folder, Steps *out) {
  TRY(read_steps(arena, folder, out));
  int64_t latest = checkpoint_read_pointer(arena, folder, "latest");
  if (latest < 0) return STATUS_OK;
  if (has_step(out, latest)) {
    put_first(arena, out, latest);
  } else if (out->n > 0) {
    out->is_second = true;
    message_print("warning: '%s/latest' names step %lld, which is not there\n",
                  folder, (long long)latest);
  }
  return STATUS_OK;
}

/* ---- trying them ---- */

typedef struct Try {
  Memory *memory;
  Arena *arena;
  const DnnProgram *program; /* NULL: any checkpoint that opens */
  MatchKind match;
} Try;

/* Prints a line for each tensor that does not match. */
static Status match_checkpoint(Arena *scratch, const Checkpoint *checkpoint,
                               const Try *try) {
  Text list = text_create(scratch);
  if (try->match == MATCH_resume && !checkpoint->is_own)
    return status_make(STATUS_invalid,
                       "'%s' does not say that dnnc wrote it; --load takes its "
                       "parameters",
                       checkpoint->given);
  Status status =
      checkpoint_match(scratch, checkpoint, try->program, try->match, &list);
  message_print_list(text_string(&list));
  return status;
}

static Status verify_checkpoint(Arena *scratch, const Checkpoint *checkpoint,
                                const Try *try) {
  int unhashed = 0;
  TRY(checkpoint_verify(scratch, checkpoint, try->program,
                        try->match == MATCH_resume, &unhashed));
  if (unhashed > 0)
    message_print(
        "note: '%s' has no hashes of %d tensors: damaged values would not "
        "be seen\n",
        checkpoint->given, unhashed);
  if (checkpoint->is_own && !checkpoint->has_save && checkpoint->n_files > 1)
    message_print(
        "note: '%s' is of an older version: files of two saves of one step "
        "would not be seen\n",
        checkpoint->given);
  return STATUS_OK;
}

/* *out_is_other: what fails is no damage, the checkpoint is of another model or
 * optimizer.  A damaged name has no hash. */
static Status try_open(const Try *try, const char *path, Checkpoint *out,
                       bool *out_is_other) {
  *out_is_other = false;
  Status status = checkpoint_open(try->arena, path, out);
  if (status.code != STATUS_ok || !try->program) return status;
  Arena *scratch = arena_create(try->memory);
  status = match_checkpoint(scratch, out, try);
  if (status.code == STATUS_ok)
    status = verify_checkpoint(scratch, out, try);
  else
    *out_is_other = out->is_own && checkpoint_has_hashes(out);
  if (status.code != STATUS_ok) checkpoint_close(out);
  arena_destroy(scratch);
  return status;
}

static Status try_all(const Try *try, const char *folder, const Steps *steps,
                      Checkpoint *out) {
  Status first = STATUS_OK;
  for (int i = 0; i < steps->n; i++) {
    const char *path = arena_printf(try->arena, "%s/step-%08lld", folder,
                                    (long long)steps->data[i]);
    bool is_other;
    Status status = try_open(try, path, out, &is_other);
    if (status.code == STATUS_ok) {
      if (i > 0 || steps->is_second)
        message_print("warning: taking '%s'\n", path);
      return STATUS_OK;
    }
    if (is_other || steps->n == 1) return status;
    message_print("warning: skipped a checkpoint: %s\n", status.message);
    if (i == 0) first = status;
  }
  return status_make(first.code, "none of the %d checkpoints in '%s' is usable",
                     steps->n, folder);
}

Status checkpoint_find(Memory *memory, Arena *arena, const char *folder,
                       const DnnProgram *program, MatchKind match,
                       Checkpoint *out, bool *out_found) {
  const Try try = {memory, arena, program, match};
  Steps steps;
  *out_found = false;
  TRY(list_steps(arena, folder, &steps));
  if (steps.n == 0) return STATUS_OK;
  TRY(try_all(&try, folder, &steps, out));
  *out_found = true;
  return STATUS_OK;
}

/* FOLDER/best and FOLDER/latest stand for what they name; *out_path is NULL
 * where `path` is neither. */
static Status follow_pointer(Arena *arena, const char *path,
                             const char **out_path) {
  const char *slash = strrchr(path, '/');
  const char *name = slash ? slash + 1 : path;
  const char *folder =
      slash ? arena_printf(arena, "%.*s", (int)(slash - path), path) : ".";
  struct stat info;
  *out_path = NULL;
  if ((strcmp(name, "best") != 0 && strcmp(name, "latest") != 0) ||
      lstat(path, &info) != 0 || !S_ISREG(info.st_mode))
    return STATUS_OK;
  int64_t step = checkpoint_read_pointer(arena, folder, name);
  if (step < 0)
    return status_make(STATUS_invalid, "'%s' names no checkpoint", path);
  *out_path = arena_printf(arena, "%s/step-%08lld", *folder ? folder : "/",
                           (long long)step);
  if (file_exists(*out_path)) return STATUS_OK;
  return status_make(STATUS_invalid, "'%s' names step %lld, which is not there",
                     path, (long long)step);
}

static Status locate_checkpoint(const Try *try, const char *path,
                                Checkpoint *out) {
  Steps steps;
  bool is_other;
  const char *named;
  TRY(follow_pointer(try->arena, path, &named));
  if (named) return try_open(try, named, out, &is_other);
  TRY(list_steps(try->arena, path, &steps));
  return steps.n > 0 ? try_all(try, path, &steps, out)
                     : try_open(try, path, out, &is_other);
}

Status checkpoint_locate(Memory *memory, Arena *arena, const char *path,
                         const DnnProgram *program, MatchKind match,
                         Checkpoint *out) {
  const Try try = {memory, arena, program, match};
  return locate_checkpoint(&try, path, out);
}

Status checkpoint_open_newest(Arena *arena, const char *path, Checkpoint *out) {
  const Try try = {.arena = arena};
  return locate_checkpoint(&try, path, out);
}
