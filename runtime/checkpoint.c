/*
 * checkpoint.c -- writes checkpoints.
 *
 *     NAME.ckpt/lock                       held while a run may write
 *     NAME.ckpt/latest                     one line: step-00001000
 *     NAME.ckpt/step-00001000/             model.safetensors.index.json and
 *                                          model-00001-of-00001.safetensors
 *
 * A checkpoint is written into a folder beside, every file and the folder are
 * synced, then it is renamed into place; `latest` is replaced last, old ones
 * are removed after that.  Whatever breaks in between, what `latest` names is
 * whole.
 *
 * Each tensor's hash stands in the header, which is written over its place
 * holder when the data has passed by.
 */
#include "runtime/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_PATH = 4096, STEP_NAME = 32, HASH_DIGITS = 16 };
static const int64_t shard_bytes = (int64_t)4 << 30;
static const char unfinished[] = ".unfinished-";

struct Saver {
  const DnnProgram *program;
  const char *folder;
  int folder_fd, lock_fd;
  int64_t keep;
  const DnnTensor **tensors; /* in the order of the files */
  int n_tensors, n_files;
  int *file_of;         /* of each tensor */
  Text header;          /* filled anew for each file: its size never changes */
  unsigned char *piece; /* HASH_PIECE bytes */
};

/* ---- opening ---- */

static bool is_saved(const DnnTensor *tensor) {
  return tensor->role == DNN_PARAM || tensor->role == DNN_STATE ||
         tensor->role == DNN_MOMENT || tensor->role == DNN_EMA ||
         tensor->role == DNN_SCALE;
}

static int64_t bytes_of(const DnnTensor *tensor) {
  return tensor_elements(tensor) * dtype_bytes(tensor->dtype);
}

static Status choose_files(Arena *arena, Saver *saver) {
  const DnnProgram *program = saver->program;
  saver->tensors = ARENA_ARRAY(arena, const DnnTensor *, program->n_tensors);
  saver->file_of = ARENA_ARRAY(arena, int, program->n_tensors);
  int64_t filled = 0;
  saver->n_files = 1;
  for (int i = 0; i < program->n_tensors; i++) {
    const DnnTensor *tensor = &program->tensors[i];
    if (!is_saved(tensor)) continue;
    if (tensor_local_elements(tensor) != tensor_elements(tensor))
      return status_make(STATUS_unavailable,
                         "checkpoints of split tensors ('%s') are not "
                         "supported yet",
                         tensor->path);
    if (filled > 0 && filled + bytes_of(tensor) > shard_bytes) {
      saver->n_files++;
      filled = 0;
    }
    filled += bytes_of(tensor);
    saver->file_of[saver->n_tensors] = saver->n_files;
    saver->tensors[saver->n_tensors++] = tensor;
  }
  return STATUS_OK;
}

static Status take_lock(Saver *saver) {
  saver->lock_fd = openat(saver->folder_fd, "lock",
                          O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (saver->lock_fd < 0)
    return status_errno(errno, "cannot write '%s/lock'", saver->folder);
  if (flock(saver->lock_fd, LOCK_EX | LOCK_NB) == 0) return STATUS_OK;
  if (errno == EWOULDBLOCK)
    return status_make(STATUS_invalid,
                       "another run writes to '%s'; give this one another "
                       "folder (train.save=NAME)",
                       saver->folder);
  return status_errno(errno, "cannot lock '%s'", saver->folder);
}

/* Removes a folder of plain files below `parent`. */
static void remove_folder(int parent, const char *name) {
  int fd =
      openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  DIR *list = fd >= 0 ? fdopendir(fd) : NULL;
  if (!list) {
    if (fd >= 0) close(fd);
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

static void remove_unfinished(Saver *saver, const char *name, int64_t step) {
  (void)step;
  if (strncmp(name, unfinished, sizeof unfinished - 1) == 0)
    remove_folder(saver->folder_fd, name);
}

Status saver_open(Arena *arena, const DnnProgram *program, const char *folder,
                  Saver **out) {
  Saver *saver = ARENA_NEW(arena, Saver);
  *saver = (Saver){.program = program,
                   .folder = folder,
                   .folder_fd = -1,
                   .lock_fd = -1,
                   .keep = program->settings.keep,
                   .header = text_create(arena),
                   .piece = ARENA_ARRAY(arena, unsigned char, HASH_PIECE)};
  *out = saver;
  TRY(choose_files(arena, saver));
  TRY(file_make_dirs(folder));
  saver->folder_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (saver->folder_fd < 0)
    return status_errno(errno, "cannot open folder '%s'", folder);
  TRY(take_lock(saver));
  each_entry(saver, remove_unfinished, 0);
  return STATUS_OK;
}

void saver_close(Saver *saver) {
  if (!saver) return;
  if (saver->lock_fd >= 0) close(saver->lock_fd);
  if (saver->folder_fd >= 0) close(saver->folder_fd);
  saver->lock_fd = saver->folder_fd = -1;
}

/* ---- writing files ---- */

static Status write_at(int fd, const void *data, int64_t n, int64_t at) {
  while (n > 0) {
    ssize_t done = pwrite(fd, data, (size_t)n, at);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return status_errno(errno, "cannot write");
    data = (const char *)data + done;
    at += done;
    n -= done;
  }
  return STATUS_OK;
}

static Status sync_and_close(int fd, Status status) {
  if (status.code == STATUS_ok && fsync(fd) != 0)
    status = status_errno(errno, "cannot sync");
  if (close(fd) != 0 && status.code == STATUS_ok)
    status = status_errno(errno, "cannot close");
  return status;
}

static int create_at(int folder, const char *name) {
  return openat(folder, name,
                O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
}

static const char *stored_dtype(DnnDtype dtype) {
  static const char *const names[] = {
#define DTYPE(name, size_bytes, class, c_type, safetensors) safetensors,
#include "support/dtype.def"
  };
  return names[dtype];
}

static void add_metadata(Saver *saver, int file, int64_t step, uint64_t seed,
                         const uint64_t *hashes) {
  Text *text = &saver->header;
  text_printf(text, "{\"__metadata__\":{\"format\":\"dnnc\",\"model\":");
  text_add_json(text, saver->program->model);
  text_printf(text,
              ",\"step\":\"%012lld\",\"seed\":\"%020llu\",\"check\":\"%0*llx\"",
              (long long)step, (unsigned long long)seed, HASH_DIGITS,
              (unsigned long long)checkpoint_check(step, seed));
  for (int i = 0; i < saver->n_tensors; i++) {
    if (saver->file_of[i] != file) continue;
    text_add(text, ",\"xxh3:");
    /* A path has no character that JSON would escape. */
    text_printf(text, "%s\":\"%0*llx\"", saver->tensors[i]->path, HASH_DIGITS,
                hashes ? (unsigned long long)hashes[i] : 0ull);
  }
  text_add(text, "}");
}

/* The same number of bytes whatever step, seed and hashes are. */
static void make_header(Saver *saver, int file, int64_t step, uint64_t seed,
                        const uint64_t *hashes) {
  Text *text = &saver->header;
  text->n = 0;
  int64_t at = 0;
  add_metadata(saver, file, step, seed, hashes);
  for (int i = 0; i < saver->n_tensors; i++) {
    const DnnTensor *tensor = saver->tensors[i];
    if (saver->file_of[i] != file) continue;
    text_add(text, ",");
    text_add_json(text, tensor->path);
    text_printf(text, ":{\"dtype\":\"%s\",\"shape\":[",
                stored_dtype(tensor->dtype));
    for (int d = 0; d < tensor->rank; d++)
      text_printf(text, "%s%lld", d ? "," : "", (long long)tensor->size[d]);
    text_printf(text, "],\"data_offsets\":[%lld,%lld]}", (long long)at,
                (long long)(at + bytes_of(tensor)));
    at += bytes_of(tensor);
  }
  text_add(text, "}");
  while (text->n % 8) text_add(text, " ");
}

static Status write_tensor(Saver *saver, Device *device, int fd,
                           const DnnTensor *tensor, int64_t at,
                           uint64_t *out_hash) {
  int64_t n = bytes_of(tensor);
  *out_hash = 0;
  for (int64_t done = 0; done < n; done += HASH_PIECE) {
    int64_t here = n - done < HASH_PIECE ? n - done : HASH_PIECE;
    TRY(device->read(device, tensor->offset + done, saver->piece, here));
    *out_hash = hash_bytes(saver->piece, (size_t)here, *out_hash);
    TRY(write_at(fd, saver->piece, here, at + done));
  }
  return STATUS_OK;
}

static Status fill_file(Saver *saver, Device *device, int fd, int file,
                        int64_t step, uint64_t seed, uint64_t *hashes) {
  make_header(saver, file, step, seed, NULL);
  uint64_t header_bytes = saver->header.n;
  int64_t at = 8 + (int64_t)header_bytes;
  for (int i = 0; i < saver->n_tensors; i++) {
    if (saver->file_of[i] != file) continue;
    TRY(write_tensor(saver, device, fd, saver->tensors[i], at, &hashes[i]));
    at += bytes_of(saver->tensors[i]);
  }
  make_header(saver, file, step, seed, hashes);
  ASSERT(saver->header.n == header_bytes);
  unsigned char length[8];
  for (int i = 0; i < 8; i++)
    length[i] = (unsigned char)(header_bytes >> (8 * i));
  TRY(write_at(fd, length, sizeof length, 0));
  return write_at(fd, saver->header.data, (int64_t)header_bytes, 8);
}

static void file_name(const Saver *saver, int file, char out[64]) {
  snprintf(out, 64, "model-%05d-of-%05d.safetensors", file, saver->n_files);
}

static Status write_file(Saver *saver, Device *device, int folder, int file,
                         int64_t step, uint64_t seed, uint64_t *hashes) {
  char name[64];
  file_name(saver, file, name);
  int fd = create_at(folder, name);
  if (fd < 0) return status_errno(errno, "cannot create '%s'", name);
  Status status = sync_and_close(
      fd, fill_file(saver, device, fd, file, step, seed, hashes));
  if (status.code != STATUS_ok)
    return status_make(status.code, "'%s': %s", name, status.message);
  return STATUS_OK;
}

static Status write_index(Saver *saver, int folder) {
  Text *text = &saver->header;
  int64_t total = 0;
  for (int i = 0; i < saver->n_tensors; i++)
    total += bytes_of(saver->tensors[i]);
  text->n = 0;
  text_printf(text, "{\"metadata\":{\"total_size\":%lld},\"weight_map\":{",
              (long long)total);
  for (int i = 0; i < saver->n_tensors; i++) {
    char name[64];
    file_name(saver, saver->file_of[i], name);
    text_add(text, i ? ",\n" : "\n");
    text_add_json(text, saver->tensors[i]->path);
    text_printf(text, ":\"%s\"", name);
  }
  text_add(text, "}}\n");
  int fd = create_at(folder, "model.safetensors.index.json");
  if (fd < 0) return status_errno(errno, "cannot create the index");
  return sync_and_close(fd, write_at(fd, text->data, (int64_t)text->n, 0));
}

/* ---- putting a checkpoint in place ---- */

static Status write_folder(Saver *saver, Device *device, const char *name,
                           int64_t step, uint64_t seed) {
  if (mkdirat(saver->folder_fd, name, 0777) != 0)
    return status_errno(errno, "cannot make a folder");
  int folder = openat(saver->folder_fd, name,
                      O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (folder < 0) return status_errno(errno, "cannot open a folder");
  Status status = STATUS_OK;
  uint64_t *hashes = calloc((size_t)saver->n_tensors + 1, sizeof *hashes);
  if (!hashes) status = status_make(STATUS_io, "no memory");
  for (int i = 1; i <= saver->n_files && status.code == STATUS_ok; i++)
    status = write_file(saver, device, folder, i, step, seed, hashes);
  free(hashes);
  if (status.code == STATUS_ok) status = write_index(saver, folder);
  return sync_and_close(folder, status);
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

static Status point_latest(Saver *saver, const char *name) {
  char line[STEP_NAME + 2];
  int n = snprintf(line, sizeof line, "%s\n", name);
  unlinkat(saver->folder_fd, ".latest", 0);
  int fd = create_at(saver->folder_fd, ".latest");
  if (fd < 0) return status_errno(errno, "cannot create 'latest'");
  TRY(sync_and_close(fd, write_at(fd, line, n, 0)));
  if (renameat(saver->folder_fd, ".latest", saver->folder_fd, "latest") != 0)
    return status_errno(errno, "cannot replace 'latest'");
  if (fsync(saver->folder_fd) != 0) return status_errno(errno, "cannot sync");
  return STATUS_OK;
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
  if (is_step_name(name, &other) && other < step &&
      count_newer(saver, other, step) >= saver->keep)
    remove_folder(saver->folder_fd, name);
}

static Status save(Saver *saver, Device *device, const char *temporary,
                   int64_t step, uint64_t seed) {
  char name[STEP_NAME];
  snprintf(name, sizeof name, "step-%08lld", (long long)step);
  TRY(write_folder(saver, device, temporary, step, seed));
  TRY(put_in_place(saver, temporary, name));
  if (fsync(saver->folder_fd) != 0) return status_errno(errno, "cannot sync");
  return point_latest(saver, name);
}

Status saver_save(Saver *saver, Device *device, int64_t step, uint64_t seed) {
  char temporary[64];
  snprintf(temporary, sizeof temporary, "%s%lld-%d", unfinished,
           (long long)step, (int)getpid());
  remove_folder(saver->folder_fd, temporary);
  Status status = save(saver, device, temporary, step, seed);
  if (status.code != STATUS_ok) {
    remove_folder(saver->folder_fd, temporary);
    unlinkat(saver->folder_fd, ".latest", 0);
    return status_make(status.code, "cannot save step %lld in '%s': %s",
                       (long long)step, saver->folder, status.message);
  }
  if (saver->keep > 0) each_entry(saver, remove_old, step);
  return STATUS_OK;
}
