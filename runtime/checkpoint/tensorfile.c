/*
 * tensorfile.c -- writes tensors as safetensors files with an index over them,
 * the layout that other tools read:
 *
 *     model-00001-of-00002.safetensors
 *     model-00002-of-00002.safetensors
 *     model.safetensors.index.json      {"metadata": {"total_size": ...},
 *                                        "weight_map": {NAME: FILE, ...}}
 *
 * The metadata of a header holds the hash of each tensor and, in a checkpoint,
 * the mark of its save (identity.c), which depends on all hashes.  So the data
 * of all files is written first, then their headers.  Every file is synced and
 * none is replaced; the caller gives the folder and decides when its content
 * counts.
 */
#include "runtime/checkpoint/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { HASH_DIGITS = 16 };

struct TensorFiles {
  const StoredTensor *tensors;
  int n, n_files;
  bool is_single; /* one file under the name that needs no index */
  int *file_of;   /* of each tensor, from 1 */
  uint64_t *hashes;
  const char **keys;    /* "xxh3:NAME" */
  Text header;          /* filled anew for each file: its size never changes */
  unsigned char *block; /* HASH_BLOCK bytes */
  Arena *arena;
  StoredText *texts; /* metadata of the file that is written */
  int n_texts, texts_capacity;
};

/* Metadata that all files of a folder share. */
typedef struct Common {
  const StoredText *metadata;
  int n_metadata;
  const SaveMark *mark; /* or NULL */
} Common;

static int64_t bytes_of(const StoredTensor *tensor) {
  return stored_elements(tensor) * dtype_bytes(tensor->dtype);
}

int64_t stored_elements(const StoredTensor *tensor) {
  int64_t n = 1;
  for (int d = 0; d < tensor->rank; d++) n *= tensor->size[d];
  return n;
}

TensorFiles *tensor_files_create(Arena *arena, const StoredTensor *tensors,
                                 int n, int64_t file_bytes, bool is_single) {
  TensorFiles *files = ARENA_NEW(arena, TensorFiles);
  *files =
      (TensorFiles){.tensors = tensors,
                    .n = n,
                    .n_files = 1,
                    .file_of = ARENA_ARRAY(arena, int, n),
                    .hashes = ARENA_ARRAY(arena, uint64_t, n),
                    .keys = ARENA_ARRAY(arena, const char *, n),
                    .header = text_create(arena),
                    .arena = arena,
                    .block = ARENA_ARRAY(arena, unsigned char, HASH_BLOCK)};
  int64_t filled = 0;
  for (int i = 0; i < n; i++) {
    if (filled > 0 && filled + bytes_of(&tensors[i]) > file_bytes) {
      files->n_files++;
      filled = 0;
    }
    filled += bytes_of(&tensors[i]);
    files->file_of[i] = files->n_files;
    files->keys[i] = arena_printf(arena, "xxh3:%s", tensors[i].name);
  }
  /* An index of nothing would not name the file that has the step. */
  files->is_single = (is_single || n == 0) && files->n_files == 1;
  return files;
}

static int64_t total_bytes(const TensorFiles *files) {
  int64_t total = 0;
  for (int i = 0; i < files->n; i++) total += bytes_of(&files->tensors[i]);
  return total;
}

int tensor_files_count(const TensorFiles *files) {
  return files->n_files;
}

void tensor_files_name(const TensorFiles *files, int file,
                       char out[TENSOR_FILE_NAME]) {
  if (files->is_single)
    snprintf(out, TENSOR_FILE_NAME, "model.safetensors");
  else
    snprintf(out, TENSOR_FILE_NAME, "model-%05d-of-%05d.safetensors", file,
             files->n_files);
}

/* ---- bytes ---- */

Status file_write_at(int fd, const void *data, int64_t n, int64_t at) {
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

Status file_sync_and_close(int fd, Status status) {
  if (status.code == STATUS_ok && fsync(fd) != 0)
    status = status_errno(errno, "cannot sync");
  if (close(fd) != 0 && status.code == STATUS_ok)
    status = status_errno(errno, "cannot close");
  return status;
}

int file_create_at(int folder, const char *name) {
  return openat(folder, name,
                O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
}

/* ---- the header ---- */

/* Puts the metadata of file `file` (0: the index) into files->texts.  `room`
 * keeps the texts of the mark. */
static void collect_texts(TensorFiles *files, const Common *common, int file,
                          uint64_t save, SaveMarkTexts *room) {
  int n = common->n_metadata, most = n + SAVE_MARK_TEXTS;
  if (files->texts_capacity < most) {
    files->texts = ARENA_ARRAY(files->arena, StoredText, most);
    files->texts_capacity = most;
  }
  for (int i = 0; i < n; i++) files->texts[i] = common->metadata[i];
  if (common->mark) {
    SaveMark mark = *common->mark;
    mark.save = save;
    mark.file = file;
    mark.n_files = files->n_files;
    n = save_mark_texts(&mark, room, files->texts, n);
  }
  files->n_texts = n;
}

static void add_texts(TensorFiles *files) {
  Text *text = &files->header;
  for (int i = 0; i < files->n_texts; i++) {
    if (i > 0) text_add(text, ",");
    text_add_json(text, files->texts[i].key);
    text_add(text, ":");
    text_add_json(text, files->texts[i].value);
  }
}

static void add_metadata(TensorFiles *files, const Common *common, int file,
                         uint64_t save) {
  Text *text = &files->header;
  SaveMarkTexts room;
  collect_texts(files, common, file, save, &room);
  text_add(text, "{\"__metadata__\":{");
  add_texts(files);
  int n = files->n_texts;
  for (int i = 0; i < files->n; i++) {
    if (files->file_of[i] != file) continue;
    if (n++) text_add(text, ",");
    text_add_json(text, files->keys[i]);
    text_printf(text, ":\"%0*llx\"", HASH_DIGITS,
                (unsigned long long)files->hashes[i]);
  }
  text_add(text, "}");
}

/* Makes a header of as many bytes whatever the hashes are. */
static void make_header(TensorFiles *files, const Common *common, int file,
                        uint64_t save) {
  Text *text = &files->header;
  text->n = 0;
  int64_t at = 0;
  add_metadata(files, common, file, save);
  for (int i = 0; i < files->n; i++) {
    const StoredTensor *tensor = &files->tensors[i];
    if (files->file_of[i] != file) continue;
    text_add(text, ",");
    text_add_json(text, tensor->name);
    text_printf(text, ":{\"dtype\":\"%s\",\"shape\":[",
                dtype_safetensors(tensor->dtype));
    for (int d = 0; d < tensor->rank; d++)
      text_printf(text, "%s%lld", d ? "," : "", (long long)tensor->size[d]);
    text_printf(text, "],\"data_offsets\":[%lld,%lld]}", (long long)at,
                (long long)(at + bytes_of(tensor)));
    at += bytes_of(tensor);
  }
  text_add(text, "}");
  while (text->n % 8) text_add(text, " ");
}

/* ---- files ---- */

static Status write_tensor(TensorFiles *files, int fd, int index, int64_t at,
                           TensorReader *read, void *user) {
  int64_t n = bytes_of(&files->tensors[index]);
  uint64_t hash = 0;
  for (int64_t done = 0; done < n; done += HASH_BLOCK) {
    int64_t here = n - done < HASH_BLOCK ? n - done : HASH_BLOCK;
    TRY(read(user, index, done, files->block, here));
    hash = hash_bytes(files->block, (size_t)here, hash);
    TRY(file_write_at(fd, files->block, here, at + done));
  }
  files->hashes[index] = hash;
  return STATUS_OK;
}

static Status write_data(TensorFiles *files, const Common *common, int fd,
                         int file, TensorReader *read, void *user) {
  make_header(files, common, file, 0);
  int64_t at = 8 + (int64_t)files->header.n;
  for (int i = 0; i < files->n; i++) {
    if (files->file_of[i] != file) continue;
    TRY(write_tensor(files, fd, i, at, read, user));
    at += bytes_of(&files->tensors[i]);
  }
  return STATUS_OK;
}

static Status write_header(TensorFiles *files, const Common *common, int fd,
                           int file, uint64_t save) {
  unsigned char length[8];
  make_header(files, common, file, save);
  uint64_t n = files->header.n;
  for (int i = 0; i < 8; i++) length[i] = (unsigned char)(n >> (8 * i));
  TRY(file_write_at(fd, length, sizeof length, 0));
  return file_write_at(fd, files->header.data, (int64_t)n, 8);
}

/* Equal contents of equal steps make equal marks. */
static uint64_t save_of(const TensorFiles *files, const Common *common) {
  if (!common->mark) return 0;
  uint64_t words[2] = {(uint64_t)common->mark->step, common->mark->seed};
  uint64_t save = hash_bytes(words, sizeof words, (uint64_t)files->n_files);
  for (int i = 0; i < files->n; i++) {
    const char *name = files->tensors[i].name;
    save = hash_bytes(name, strlen(name) + 1, save);
    save = hash_bytes(&files->hashes[i], sizeof files->hashes[i], save);
  }
  return save;
}

static void make_index(TensorFiles *files, const Common *common,
                       uint64_t save) {
  Text *text = &files->header;
  Common index = {.mark = common->mark};
  SaveMarkTexts room;
  text->n = 0;
  text_printf(text, "{\"metadata\":{\"total_size\":%lld",
              (long long)total_bytes(files));
  collect_texts(files, &index, 0, save, &room);
  if (files->n_texts > 0) text_add(text, ",");
  add_texts(files);
  text_add(text, "},\"weight_map\":{");
  for (int i = 0; i < files->n; i++) {
    char name[TENSOR_FILE_NAME];
    tensor_files_name(files, files->file_of[i], name);
    text_add(text, i ? ",\n" : "\n");
    text_add_json(text, files->tensors[i].name);
    text_printf(text, ":\"%s\"", name);
  }
  text_add(text, "}}\n");
}

static Status write_index(TensorFiles *files, const Common *common, int folder,
                          uint64_t save) {
  make_index(files, common, save);
  const Text *text = &files->header;
  int fd = file_create_at(folder, TENSOR_INDEX_NAME);
  if (fd < 0) return status_errno(errno, "cannot create the index");
  return file_sync_and_close(
      fd, file_write_at(fd, text->data, (int64_t)text->n, 0));
}

/* ---- room ---- */

static int64_t rounded_up(int64_t n, int64_t block) {
  return (n + block - 1) / block * block;
}

/* The bytes that all files take on a disk with blocks of this size. */
static int64_t bytes_on_disk(TensorFiles *files, const Common *common,
                             int64_t block) {
  int64_t total = 0;
  for (int file = 1; file <= files->n_files; file++) {
    make_header(files, common, file, 0);
    int64_t n = 8 + (int64_t)files->header.n;
    for (int i = 0; i < files->n; i++)
      if (files->file_of[i] == file) n += bytes_of(&files->tensors[i]);
    total += rounded_up(n, block);
  }
  if (files->is_single) return total;
  make_index(files, common, 0);
  return total + rounded_up((int64_t)files->header.n, block);
}

Status tensor_files_missing_room(TensorFiles *files, int folder,
                                 const StoredText *metadata, int n_metadata,
                                 const SaveMark *mark, Status status) {
  const Common common = {metadata, n_metadata, mark};
  struct statvfs disk;
  if (status.code != STATUS_io || fstatvfs(folder, &disk) != 0 ||
      disk.f_frsize == 0)
    return status;
  int64_t block = (int64_t)disk.f_frsize;
  int64_t room = (int64_t)disk.f_bavail * block;
  int64_t wanted = bytes_on_disk(files, &common, block);
  if (room >= wanted) return status;
  return status_make(status.code,
                     "%s; its files take %lld bytes, and %lld are free: %lld "
                     "are missing",
                     status.message, (long long)wanted, (long long)room,
                     (long long)(wanted - room));
}

static Status in_file(Status status, const char *name) {
  if (status.code == STATUS_ok) return status;
  return status_make(status.code, "'%s': %s", name, status.message);
}

Status tensor_files_write(TensorFiles *files, int folder,
                          const StoredText *metadata, int n_metadata,
                          const SaveMark *mark, TensorReader *read,
                          void *user) {
  const Common common = {metadata, n_metadata, mark};
  char name[TENSOR_FILE_NAME];
  for (int file = 1; file <= files->n_files; file++) {
    tensor_files_name(files, file, name);
    int fd = file_create_at(folder, name);
    if (fd < 0) return status_errno(errno, "cannot create '%s'", name);
    Status status = write_data(files, &common, fd, file, read, user);
    if (close(fd) != 0 && status.code == STATUS_ok)
      status = status_errno(errno, "cannot close");
    TRY(in_file(status, name));
  }
  uint64_t save = save_of(files, &common);
  for (int file = 1; file <= files->n_files; file++) {
    tensor_files_name(files, file, name);
    int fd = openat(folder, name, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return status_errno(errno, "cannot open '%s'", name);
    TRY(in_file(
        file_sync_and_close(fd, write_header(files, &common, fd, file, save)),
        name));
  }
  return files->is_single ? STATUS_OK
                          : write_index(files, &common, folder, save);
}
