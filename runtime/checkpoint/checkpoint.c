/*
 * checkpoint.c -- writes checkpoints so that a crash at any point leaves a
 * complete one.
 *
 *     NAME.ckpt/lock                       held while a run may write
 *     NAME.ckpt/latest                     one line: step-00001000
 *     NAME.ckpt/best                       likewise, with save_best
 *     NAME.ckpt/validation.csv             losses of the evaluations until now
 *     NAME.ckpt/step-00001000/             model.safetensors.index.json and
 *                                          model-00001-of-00001.safetensors
 *
 * A checkpoint is written into a temporary folder, every file and the folder
 * are synced, then the folder is renamed into place.  `latest` is replaced
 * after that, and old checkpoints are removed last, but not the one that `best`
 * names.  The checkpoint that `latest` names is complete after a failure at any
 * point.
 *
 * Rank 0 writes.  The bytes of sharded tensors come from the ranks that own the
 * shards, a block at a time (params/logical.c), so files hold logical tensors
 * whatever the plan, and no rank holds one in memory.
 */
#include "runtime/checkpoint/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STEP_NAME = 32 };
static const char unfinished[] = ".unfinished-";

struct Saver {
  const DnnProgram *program;
  const char *folder;
  int folder_fd, lock_fd;
  int64_t keep;
  int64_t best; /* the step that `best` names; -1: none */
  bool is_new;  /* `best` and the losses in the folder are of another run */
  const DnnTensor **tensors; /* in the order of the files */
  TensorFiles *files;
  StoredText *metadata; /* the same in each save */
  int n_metadata;
};

typedef struct Writing {
  const Saver *saver;
  LogicalReader *states;
} Writing;

/* ---- opening ---- */

bool tensor_is_saved(const DnnTensor *tensor) {
  return tensor->role == DNN_PARAM || tensor->role == DNN_STATE ||
         tensor->role == DNN_OPTIMIZER_STATE || tensor->role == DNN_EMA ||
         tensor->role == DNN_LOSS_SCALE;
}

static StoredTensor stored_of(const DnnTensor *tensor) {
  StoredTensor stored = {
      .name = tensor->path, .dtype = tensor->dtype, .rank = tensor->rank};
  for (int d = 0; d < tensor->rank; d++) stored.size[d] = tensor->size[d];
  return stored;
}

static void choose_tensors(Arena *arena, Saver *saver, int64_t file_bytes) {
  const DnnProgram *program = saver->program;
  StoredTensor *stored = ARENA_ARRAY(arena, StoredTensor, program->n_tensors);
  int n = 0;
  saver->tensors = ARENA_ARRAY(arena, const DnnTensor *, program->n_tensors);
  for (int i = 0; i < program->n_tensors; i++) {
    const DnnTensor *tensor = &program->tensors[i];
    if (!tensor_is_saved(tensor)) continue;
    stored[n] = stored_of(tensor);
    saver->tensors[n++] = tensor;
  }
  saver->files = tensor_files_create(arena, stored, n, file_bytes, false);
}

static Status folder_is_taken(const char *folder) {
  return status_make(STATUS_invalid,
                     "another run writes to '%s'; give this one another "
                     "folder (train.save=NAME)",
                     folder);
}

Status saver_check_free(const char *folder) {
  char path[4096];
  FixedText text = fixed_text(path, sizeof path);
  fixed_printf(&text, "%s/lock", folder);
  int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return STATUS_OK; /* saver_open says what is wrong */
  bool is_taken = flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  close(fd);
  return is_taken ? folder_is_taken(folder) : STATUS_OK;
}

static Status take_lock(Saver *saver) {
  saver->lock_fd = openat(saver->folder_fd, "lock",
                          O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (saver->lock_fd < 0)
    return status_errno(errno, "cannot write '%s/lock'", saver->folder);
  if (flock(saver->lock_fd, LOCK_EX | LOCK_NB) == 0) return STATUS_OK;
  if (errno == EWOULDBLOCK) return folder_is_taken(saver->folder);
  return status_errno(errno, "cannot lock '%s'", saver->folder);
}

/* Removes a folder of plain files below `parent`. */
static void remove_folder(int parent, const char *name) {
  int fd =
      openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  DIR *list = fd >= 0 ? fdopendir(fd) : NULL;
  if (!list) {
    if (fd >= 0) close(fd);
    unlinkat(parent, name, AT_REMOVEDIR); /* it may be empty */
    return;
  }
  for (struct dirent *entry; (entry = readdir(list));)
    if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
      unlinkat(fd, entry->d_name, 0);
  closedir(list);
  unlinkat(parent, name, AT_REMOVEDIR);
}

/* Calls `visit` for each entry of the folder; it may remove what it gets. */
static void each_entry(Saver *saver,
                       void (*visit)(Saver *saver, const char *name,
                                     int64_t step),
                       int64_t step) {
  int fd = openat(saver->folder_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *list = fd >= 0 ? fdopendir(fd) : NULL;
  if (!list) {
    if (fd >= 0) close(fd);
    return;
  }
  for (struct dirent *entry; (entry = readdir(list));)
    visit(saver, entry->d_name, step);
  closedir(list);
}

/* .unfinished-STEP-PID: ours alone, because we hold the lock of the folder. */
static void remove_unfinished(Saver *saver, const char *name, int64_t step) {
  const char *p = name + sizeof unfinished - 1;
  (void)step;
  if (strncmp(name, unfinished, sizeof unfinished - 1) != 0) return;
  size_t n = strspn(p, "0123456789");
  if (n > 0 && p[n] == '-' && p[n + 1] &&
      strspn(p + n + 1, "0123456789") == strlen(p + n + 1))
    remove_folder(saver->folder_fd, name);
}

void saver_set_data(Arena *arena, Saver *saver, const StoredText *data, int n) {
  saver->metadata = ARENA_ARRAY(arena, StoredText, n + 2);
  saver->metadata[0] = (StoredText){"format", "dnnc"};
  saver->metadata[1] = (StoredText){"model", saver->program->model};
  for (int i = 0; i < n; i++) saver->metadata[i + 2] = data[i];
  saver->n_metadata = n + 2;
}

Status saver_open(Arena *arena, const DnnProgram *program, const char *folder,
                  int64_t file_bytes, Saver **out) {
  Saver *saver = ARENA_NEW(arena, Saver);
  *saver = (Saver){.program = program,
                   .folder = folder,
                   .folder_fd = -1,
                   .lock_fd = -1,
                   .keep = program->settings.keep,
                   .best = checkpoint_read_pointer(arena, folder, "best"),
                   .is_new = true};
  *out = saver;
  choose_tensors(arena, saver, file_bytes);
  saver_set_data(arena, saver, NULL, 0);
  TRY(file_make_dirs(folder));
  saver->folder_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (saver->folder_fd < 0)
    return status_errno(errno, "cannot open folder '%s'", folder);
  TRY(take_lock(saver));
  each_entry(saver, remove_unfinished, 0);
  return STATUS_OK;
}

void saver_clear_after(const char *folder, int pid) {
  char end[16];
  snprintf(end, sizeof end, "-%d", pid);
  int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *list = fd < 0 ? NULL : opendir(folder);
  for (struct dirent *entry; list && (entry = readdir(list));) {
    size_t n = strlen(entry->d_name), n_end = strlen(end);
    if (strncmp(entry->d_name, unfinished, sizeof unfinished - 1) == 0 &&
        n > n_end && strcmp(entry->d_name + n - n_end, end) == 0)
      remove_folder(fd, entry->d_name);
  }
  if (list) closedir(list);
  if (fd >= 0) close(fd);
}

void saver_close(Saver *saver) {
  if (!saver) return;
  if (saver->lock_fd >= 0) close(saver->lock_fd);
  if (saver->folder_fd >= 0) close(saver->folder_fd);
  saver->lock_fd = saver->folder_fd = -1;
}

/* ---- writing ---- */

static Status read_tensor(void *user, int index, int64_t at, void *to,
                          int64_t n) {
  const Writing *writing = user;
  return logical_read(writing->states, writing->saver->tensors[index], at, to,
                      n);
}

static Status write_files(Saver *saver, LogicalReader *states, int folder,
                          int64_t step, uint64_t seed) {
  Writing writing = {saver, states};
  SaveMark mark = {.step = step, .seed = seed};
  return tensor_files_write(saver->files, folder, saver->metadata,
                            saver->n_metadata, &mark, read_tensor, &writing);
}

/* ---- putting a checkpoint in place ---- */

static Status write_folder(Saver *saver, LogicalReader *states,
                           const char *name, int64_t step, uint64_t seed) {
  if (mkdirat(saver->folder_fd, name, 0777) != 0)
    return status_errno(errno, "cannot make a folder");
  int folder = openat(saver->folder_fd, name,
                      O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (folder < 0) return status_errno(errno, "cannot open a folder");
  return file_sync_and_close(folder,
                             write_files(saver, states, folder, step, seed));
}

/* A checkpoint of this step may be there already: then they change places, and
 * the old one goes. */
static Status put_in_place(Saver *saver, const char *from, const char *to) {
  int fd = saver->folder_fd;
  if (renameat2(fd, from, fd, to, RENAME_NOREPLACE) == 0) return STATUS_OK;
  if (errno == EEXIST && renameat2(fd, from, fd, to, RENAME_EXCHANGE) == 0) {
    remove_folder(fd, from);
    return STATUS_OK;
  }
  /* File systems without these flags. */
  if (errno == EINVAL || errno == ENOSYS) {
    remove_folder(fd, to);
    if (renameat(fd, from, fd, to) == 0) return STATUS_OK;
  }
  return status_errno(errno, "cannot rename '%s'", from);
}

Status saver_write(Saver *saver, const char *name, const char *text,
                   int64_t n) {
  char beside[STEP_NAME];
  snprintf(beside, sizeof beside, ".%s", name);
  unlinkat(saver->folder_fd, beside, 0);
  int fd = file_create_at(saver->folder_fd, beside);
  if (fd < 0) return status_errno(errno, "cannot create '%s'", name);
  TRY(file_sync_and_close(fd, file_write_at(fd, text, n, 0)));
  if (renameat(saver->folder_fd, beside, saver->folder_fd, name) != 0)
    return status_errno(errno, "cannot replace '%s'", name);
  if (fsync(saver->folder_fd) != 0) return status_errno(errno, "cannot sync");
  return STATUS_OK;
}

static Status point(Saver *saver, const char *name, const char *step) {
  char line[STEP_NAME + 2];
  int n = snprintf(line, sizeof line, "%s\n", step);
  return saver_write(saver, name, line, n);
}

/* How many checkpoints are newer than `name` and not newer than `step`. */
static int64_t count_newer(const Saver *saver, int64_t than, int64_t step) {
  int fd = openat(saver->folder_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *list = fd >= 0 ? fdopendir(fd) : NULL;
  int64_t n = 0, other;
  if (!list) {
    if (fd >= 0) close(fd);
    return 0;
  }
  for (struct dirent *entry; (entry = readdir(list));)
    if (is_step_name(entry->d_name, &other) && other > than && other <= step)
      n++;
  closedir(list);
  return n;
}

/* Steps beyond this one come from another run and are left alone. */
static void remove_old(Saver *saver, const char *name, int64_t step) {
  int64_t other;
  if (is_step_name(name, &other) && other < step && other != saver->best &&
      count_newer(saver, other, step) >= saver->keep)
    remove_folder(saver->folder_fd, name);
}

static Status save_step(Saver *saver, LogicalReader *states,
                        const char *temporary, int64_t step, uint64_t seed) {
  char name[STEP_NAME];
  snprintf(name, sizeof name, "step-%08lld", (long long)step);
  TRY(write_folder(saver, states, temporary, step, seed));
  TRY(put_in_place(saver, temporary, name));
  if (fsync(saver->folder_fd) != 0) return status_errno(errno, "cannot sync");
  return point(saver, "latest", name);
}

Status saver_save(Saver *saver, LogicalReader *states, int64_t step,
                  uint64_t seed) {
  char temporary[64];
  snprintf(temporary, sizeof temporary, "%s%lld-%d", unfinished,
           (long long)step, (int)getpid());
  if (saver->is_new) saver_forget_best(saver);
  remove_folder(saver->folder_fd, temporary);
  Status status = save_step(saver, states, temporary, step, seed);
  if (status.code != STATUS_ok) {
    remove_folder(saver->folder_fd, temporary);
    unlinkat(saver->folder_fd, ".latest", 0);
    const SaveMark mark = {.step = step, .seed = seed};
    status = tensor_files_missing_room(saver->files, saver->folder_fd,
                                       saver->metadata, saver->n_metadata,
                                       &mark, status);
    return status_make(status.code, "cannot save step %lld in '%s': %s",
                       (long long)step, saver->folder, status.message);
  }
  if (saver->keep > 0) each_entry(saver, remove_old, step);
  return STATUS_OK;
}

/* ---- the best one ---- */

void saver_continue(Saver *saver) {
  saver->is_new = false;
}

void saver_forget_best(Saver *saver) {
  unlinkat(saver->folder_fd, "best", 0);
  unlinkat(saver->folder_fd, "validation.csv", 0);
  saver->is_new = false;
  saver->best = -1;
}

bool saver_has(const Saver *saver, int64_t step) {
  char name[STEP_NAME];
  snprintf(name, sizeof name, "step-%08lld", (long long)step);
  return faccessat(saver->folder_fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

Status saver_point_best(Saver *saver, int64_t step) {
  char name[STEP_NAME];
  int64_t newest = step > saver->best ? step : saver->best;
  snprintf(name, sizeof name, "step-%08lld", (long long)step);
  Status status = point(saver, "best", name);
  if (status.code != STATUS_ok)
    return status_make(status.code, "cannot name the best save in '%s': %s",
                       saver->folder, status.message);
  saver->best = step;
  if (saver->keep > 0) each_entry(saver, remove_old, newest);
  return STATUS_OK;
}
