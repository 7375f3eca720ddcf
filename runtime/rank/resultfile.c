/*
 * resultfile.c -- writes a file of results: .npy, .safetensors or .csv.
 *
 * An array of numpy and a file of tensors begin with a header that holds their
 * sizes, so every element has its place and one write sets the memory.  A table
 * has a line for each record, its values flattened, without a line of names, as
 * `csv(...)` of a data block reads it.
 *
 * The bytes go to a temporary file in the same folder, which replaces the
 * requested one at the end: no reader finds half of it.  Where that is a link,
 * the file that it leads to is replaced.
 */
#include "runtime/rank/resultfile.h"

#include "runtime/checkpoint/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

typedef enum Format { FORMAT_npy, FORMAT_safetensors, FORMAT_csv } Format;

enum {
  TABLE_BYTES = 1 << 20, /* of text before it is written */
  NUMBER_BYTES = 40,     /* most that a number and a comma take */
  CAST_VALUES = 1 << 16,
  NPY_ALIGN = 64,
  WHOLE_EXACT = 17, /* digits after which a double reads back as itself */
  SINGLE_EXACT = 9
};

typedef struct Array {
  ResultArray as;
  DnnDtype stored;
  int64_t elements, row; /* of all records, of one */
  int64_t begin;         /* byte in the file */
} Array;

struct ResultFile {
  const char *path, *target; /* as given; after all links */
  char *temporary;
  Format format;
  int fd; /* -1: ended */
  Array *arrays;
  int n_arrays;
  int64_t end;   /* bytes of the file, as far as they are known */
  int64_t wrote; /* elements of a table */
  char *text;    /* of a table */
  int64_t n_text;
  void *cast; /* CAST_VALUES values of 8 bytes */
};

/* ---- names ---- */

static bool format_of(const char *path, Format *out) {
  static const struct {
    const char *ending;
    Format format;
  } rows[] = {{".npy", FORMAT_npy},
              {".safetensors", FORMAT_safetensors},
              {".csv", FORMAT_csv}};
  size_t n = strlen(path);
  for (int i = 0; i < ARRAY_LENGTH(rows); i++) {
    size_t m = strlen(rows[i].ending);
    if (n <= m || strcmp(path + n - m, rows[i].ending) != 0 ||
        path[n - m - 1] == '/')
      continue;
    *out = rows[i].format;
    return true;
  }
  return false;
}

/* The folder with its last slash; "" for the current one. */
static size_t folder_length(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? (size_t)(slash - path) + 1 : 0;
}

Status result_check_path(const char *path) {
  Format format;
  struct stat info;
  if (!format_of(path, &format))
    return status_make(STATUS_invalid,
                       "'%s' must end in .npy, .safetensors or .csv: the "
                       "ending says what is written",
                       path);
  if (stat(path, &info) == 0 && !S_ISREG(info.st_mode))
    return status_make(STATUS_invalid,
                       "'%s' is no regular file, so it is not replaced", path);
  return file_check_output(path);
}

/* ---- failures ---- */

/* A full disk names what is missing; other failures name the cause. */
static Status cannot_write(const ResultFile *file, int error) {
  struct statvfs disk;
  struct stat info;
  if (error != ENOSPC || file->format == FORMAT_csv ||
      fstatvfs(file->fd, &disk) != 0 || fstat(file->fd, &info) != 0)
    return status_errno(error, "cannot write '%s'", file->path);
  int64_t has = (int64_t)info.st_blocks * 512 +
                (int64_t)disk.f_bavail * (int64_t)disk.f_frsize;
  int64_t missing = file->end > has ? file->end - has : 1;
  return status_make(STATUS_io,
                     "cannot write '%s': the disk is full; %lld of its %lld "
                     "bytes are missing",
                     file->path, (long long)missing, (long long)file->end);
}

static Status write_at(ResultFile *file, const void *data, int64_t n,
                       int64_t at) {
  while (n > 0) {
    ssize_t done = pwrite(file->fd, data, (size_t)n, at);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return cannot_write(file, errno);
    data = (const char *)data + done;
    at += done;
    n -= done;
  }
  return STATUS_OK;
}

/* ---- headers ---- */

static void add_sizes(Text *text, const Array *array, const char *after) {
  for (int i = 0; i < array->as.rank; i++)
    text_printf(text, "%s%lld", i ? "," : "", (long long)array->as.size[i]);
  text_add(text, after);
}

static void put_little(unsigned char *to, uint64_t value, int n) {
  for (int i = 0; i < n; i++) to[i] = (unsigned char)(value >> (8 * i));
}

/* Version 1.0: magic, two bytes of length, a Python dict, a newline; values
 * begin at a multiple of 64. */
static Status write_npy_header(Arena *arena, ResultFile *file) {
  unsigned char head[10] = "\x93NUMPY\x01";
  Text text = text_create(arena);
  text_printf(&text, "{'descr': '%s', 'fortran_order': False, 'shape': (",
              dtype_npy(file->arrays[0].stored));
  add_sizes(&text, &file->arrays[0], file->arrays[0].as.rank == 1 ? ",)" : ")");
  text_add(&text, ", }");
  while ((sizeof head + text.n + 1) % NPY_ALIGN) text_add(&text, " ");
  text_add(&text, "\n");
  put_little(head + 8, text.n, 2);
  file->arrays[0].begin = (int64_t)(sizeof head + text.n);
  TRY(write_at(file, head, sizeof head, 0));
  return write_at(file, text.data, (int64_t)text.n, sizeof head);
}

static Status write_tensors_header(Arena *arena, ResultFile *file) {
  unsigned char length[8];
  int64_t at = 0;
  Text text = text_create(arena);
  text_add(&text, "{");
  for (int i = 0; i < file->n_arrays; i++) {
    Array *array = &file->arrays[i];
    int64_t bytes = array->elements * dtype_bytes(array->stored);
    if (i) text_add(&text, ",");
    text_add_json(&text, array->as.name);
    text_printf(&text, ":{\"dtype\":\"%s\",\"shape\":[",
                dtype_safetensors(array->stored));
    add_sizes(&text, array, "]");
    text_printf(&text, ",\"data_offsets\":[%lld,%lld]}", (long long)at,
                (long long)(at + bytes));
    array->begin = at;
    at += bytes;
  }
  text_add(&text, "}");
  while (text.n % 8) text_add(&text, " ");
  for (int i = 0; i < file->n_arrays; i++)
    file->arrays[i].begin += 8 + (int64_t)text.n;
  put_little(length, text.n, 8);
  TRY(write_at(file, length, sizeof length, 0));
  return write_at(file, text.data, (int64_t)text.n, sizeof length);
}

/* A disk that cannot hold all of it says so before anything is computed. */
static Status reserve_room(ResultFile *file) {
  if (fallocate(file->fd, 0, 0, file->end) == 0) return STATUS_OK;
  return errno == ENOSPC || errno == EFBIG || errno == EDQUOT
             ? cannot_write(file, errno)
             : STATUS_OK;
}

static Status write_header(Arena *arena, ResultFile *file) {
  if (file->format == FORMAT_csv) return STATUS_OK;
  TRY(file->format == FORMAT_npy ? write_npy_header(arena, file)
                                 : write_tensors_header(arena, file));
  const Array *last = &file->arrays[file->n_arrays - 1];
  file->end = last->begin + last->elements * dtype_bytes(last->stored);
  return file->end > 0 ? reserve_room(file) : STATUS_OK;
}

/* ---- opening ---- */

static Status check_arrays(const ResultFile *file) {
  const char *what = file->format == FORMAT_npy ? "array" : "table";
  if (file->n_arrays > 1 && file->format != FORMAT_safetensors)
    return status_make(
        STATUS_invalid,
        "'%s' is one %s, but there are %d results, '%s' to '%s': choose one "
        "with --value, or write .safetensors",
        file->path, what, file->n_arrays, file->arrays[0].as.name,
        file->arrays[file->n_arrays - 1].as.name);
  for (int i = 0; i < file->n_arrays; i++)
    if (!dtype_npy(file->arrays[i].stored) &&
        file->arrays[i].stored != DNN_bf16)
      return status_make(
          STATUS_unavailable, "'%s' is %s, which is not written yet",
          file->arrays[i].as.name, dtype_label(file->arrays[i].stored));
  return STATUS_OK;
}

static void take_arrays(Arena *arena, ResultFile *file,
                        const ResultArray *arrays) {
  file->arrays = ARENA_ARRAY(arena, Array, file->n_arrays);
  for (int i = 0; i < file->n_arrays; i++) {
    Array *array = &file->arrays[i];
    bool widens =
        arrays[i].dtype == DNN_bf16 && file->format != FORMAT_safetensors;
    *array = (Array){.as = arrays[i],
                     .stored = widens ? DNN_f32 : arrays[i].dtype,
                     .elements = 1,
                     .row = 1};
    for (int d = 0; d < arrays[i].rank; d++) {
      array->elements *= arrays[i].size[d];
      if (d > 0) array->row *= arrays[i].size[d];
    }
  }
}

Status result_open(Arena *arena, const char *path, const ResultArray *arrays,
                   int n_arrays, ResultFile **out) {
  TRY(result_check_path(path));
  ResultFile *file = ARENA_NEW(arena, ResultFile);
  *file = (ResultFile){.path = path, .n_arrays = n_arrays, .fd = -1};
  format_of(path, &file->format);
  take_arrays(arena, file, arrays);
  TRY(check_arrays(file));
  file->text = ARENA_ARRAY(arena, char, TABLE_BYTES);
  file->cast = ARENA_ARRAY(arena, double, CAST_VALUES);
  TRY(file_link_target(arena, path, &file->target));
  size_t n = folder_length(file->target);
  file->temporary = arena_printf(arena, "%.*s.%s.%d.tmp", (int)n, file->target,
                                 file->target + n, (int)getpid());
  unlink(file->temporary);
  file->fd = open(file->temporary,
                  O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (file->fd < 0) return status_errno(errno, "cannot write '%s'", path);
  *out = file;
  return write_header(arena, file);
}

bool result_is_table(const ResultFile *file) {
  return file->format == FORMAT_csv;
}

const char *result_temporary(const ResultFile *file) {
  return file->temporary;
}

int64_t result_bytes(const ResultFile *file) {
  return file->end;
}

/* ---- values ---- */

static Status flush_text(ResultFile *file) {
  Status status = write_at(file, file->text, file->n_text, file->end);
  file->end += file->n_text;
  file->n_text = 0;
  return status;
}

static int print_value(char *to, DnnDtype dtype, const void *at, int64_t i) {
  switch (dtype) {
  case DNN_f32:
    return snprintf(to, NUMBER_BYTES, "%.*g", SINGLE_EXACT,
                    (double)((const float *)at)[i]);
  case DNN_f64:
    return snprintf(to, NUMBER_BYTES, "%.*g", WHOLE_EXACT,
                    ((const double *)at)[i]);
  case DNN_i64:
    return snprintf(to, NUMBER_BYTES, "%lld",
                    (long long)((const int64_t *)at)[i]);
  default:
    return snprintf(
        to, NUMBER_BYTES, "%.0f",
        number_load(dtype, (const char *)at + i * dtype_bytes(dtype)));
  }
}

static Status write_lines(ResultFile *file, DnnDtype dtype, int64_t n,
                          const void *values) {
  int64_t row = file->arrays[0].row;
  for (int64_t i = 0; i < n; i++) {
    if (file->n_text > TABLE_BYTES - NUMBER_BYTES) TRY(flush_text(file));
    file->n_text += print_value(file->text + file->n_text, dtype, values, i);
    file->text[file->n_text++] = ++file->wrote % row ? ',' : '\n';
  }
  return STATUS_OK;
}

static Status write_values(ResultFile *file, const Array *array, DnnDtype dtype,
                           int64_t first, int64_t n, const void *values) {
  if (file->format == FORMAT_csv) return write_lines(file, dtype, n, values);
  int64_t item = dtype_bytes(dtype);
  return write_at(file, values, n * item, array->begin + first * item);
}

Status result_write(ResultFile *file, int index, int64_t first, int64_t n,
                    const void *values) {
  const Array *array = &file->arrays[index];
  DnnDtype from = array->as.dtype;
  bool is_16bit = from == DNN_bf16 || from == DNN_f16;
  DnnDtype to =
      is_16bit && file->format == FORMAT_csv ? DNN_f32 : array->stored;
  if (to == from) return write_values(file, array, to, first, n, values);
  for (int64_t at = 0; at < n; at += CAST_VALUES) {
    int64_t here = n - at < CAST_VALUES ? n - at : CAST_VALUES;
    floats_cast(from, (const char *)values + at * dtype_bytes(from), to,
                file->cast, here);
    TRY(write_values(file, array, to, first + at, here, file->cast));
  }
  return STATUS_OK;
}

/* ---- the end ---- */

Status result_finish(ResultFile *file) {
  if (file->format == FORMAT_csv) TRY(flush_text(file));
  if (fsync(file->fd) != 0) return cannot_write(file, errno);
  int fd = file->fd;
  file->fd = -1;
  if (close(fd) != 0 || rename(file->temporary, file->target) != 0) {
    int error = errno;
    unlink(file->temporary);
    return status_errno(error, "cannot write '%s'", file->path);
  }
  return STATUS_OK;
}

void result_discard(ResultFile *file) {
  if (!file || file->fd < 0) return;
  close(file->fd);
  file->fd = -1;
  unlink(file->temporary);
}
