/*
 * reader.c -- reads fields from bytes, tokens, IDX files, arrays and synthetic
 * numbers.
 *
 * Whatever the format, the values of a field are a row that can be read at any
 * place; streams are windows of it and records are equal parts of it.
 */
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/data/pictures.h"

#include <stdlib.h>
#include <string.h>

enum { TOKEN_HEADER = 1024, MAX_IDX_RANK = 8, MOST_OPEN = 64 };

/* Headers of token files, as llm.c writes them, and what follows. */
static const struct {
  uint32_t magic, version;
  NumberFormat format;
} token_headers[] = {
    {20240520, 1, {'u', 2, false}}, /* GPT-2 */
    {20240801, 7, {'u', 4, false}}, /* Llama 3 */
};

static uint32_t big_endian(const unsigned char *bytes) {
  return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 |
         (uint32_t)bytes[2] << 8 | bytes[3];
}

static uint32_t little_endian(const unsigned char *bytes) {
  return (uint32_t)bytes[3] << 24 | (uint32_t)bytes[2] << 16 |
         (uint32_t)bytes[1] << 8 | bytes[0];
}

/* ---- IDX ---- */

static NumberFormat idx_format(uint8_t type) {
  switch (type) {
  case 0x08: return (NumberFormat){'u', 1, false};
  case 0x09: return (NumberFormat){'i', 1, false};
  case 0x0b: return (NumberFormat){'i', 2, true};
  case 0x0c: return (NumberFormat){'i', 4, true};
  case 0x0d: return (NumberFormat){'f', 4, true};
  case 0x0e: return (NumberFormat){'f', 8, true};
  default: return (NumberFormat){0};
  }
}

/* Header bytes and values of a record, or -1 where it is no IDX header. */
static int64_t idx_size(const unsigned char *bytes, int64_t n,
                        int64_t *out_header, int64_t *out_record,
                        NumberFormat *out_format) {
  if (n < 4 || bytes[0] || bytes[1]) return -1;
  int rank = bytes[3];
  *out_format = idx_format(bytes[2]);
  *out_header = 4 + 4 * rank;
  *out_record = 1;
  if (!out_format->bytes || rank < 1 || rank > MAX_IDX_RANK || n < *out_header)
    return -1;
  for (int i = 1; i < rank; i++)
    if (__builtin_mul_overflow(*out_record, big_endian(bytes + 4 + 4 * i),
                               out_record))
      return -1;
  int64_t values, total;
  if (__builtin_mul_overflow(*out_record, (int64_t)big_endian(bytes + 4),
                             &values) ||
      __builtin_mul_overflow(values, (int64_t)out_format->bytes, &total) ||
      __builtin_add_overflow(total, *out_header, &total))
    return -1;
  return values;
}

/* The file has as many bytes as its header announces; of a packed one, which
 * has at least these, files.c looks at the end. */
static Status check_announced(const InputFile *file, int64_t wanted) {
  if (file->n == wanted || (file->packed && file->n > wanted)) return STATUS_OK;
  return status_make(STATUS_invalid,
                     "'%s' is too %s: its header announces %lld bytes, but "
                     "%lld are there",
                     file->path, file->n < wanted ? "short" : "long",
                     (long long)wanted, (long long)file->n);
}

static int64_t idx_limit(const unsigned char *bytes, int64_t n) {
  int64_t header, record;
  NumberFormat format;
  int64_t values = idx_size(bytes, n, &header, &record, &format);
  return values < 0 ? n : header + values * format.bytes;
}

/* The sizes after the first, for a comparison of files and a message. */
static const char *shape_text(Arena *arena, int rank, const int64_t *size) {
  Text text = text_create(arena);
  for (int i = 1; i < rank; i++)
    text_printf(&text, "%s%lld", i > 1 ? ", " : "", (long long)size[i]);
  return arena_printf(arena, "[%s]", text_string(&text));
}

static Status open_idx(Arena *arena, Reader *reader) {
  unsigned char bytes[4 + 4 * MAX_IDX_RANK] = {0};
  int64_t n = reader->file.n < (int64_t)sizeof bytes ? reader->file.n
                                                     : (int64_t)sizeof bytes;
  TRY(input_read(&reader->file, 0, bytes, n));
  int64_t values = idx_size(bytes, n, &reader->header_bytes,
                            &reader->record_items, &reader->format);
  if (values < 0)
    return status_make(STATUS_invalid, "'%s' is not an IDX file",
                       reader->file.path);
  reader->n = values;
  int64_t size[MAX_IDX_RANK];
  for (int i = 0; i < bytes[3]; i++) size[i] = big_endian(bytes + 4 + 4 * i);
  reader->shape = shape_text(arena, bytes[3], size);
  return check_announced(&reader->file, idx_limit(bytes, n));
}

/* ---- tokens ---- */

/* The row of token_headers that begins the file, or -1. */
static int token_header_of(const unsigned char *bytes, int64_t n) {
  for (int i = 0; i < ARRAY_LENGTH(token_headers) && n >= 12; i++)
    if (little_endian(bytes) == token_headers[i].magic &&
        little_endian(bytes + 4) == token_headers[i].version)
      return i;
  return -1;
}

static int64_t tokens_limit(const unsigned char *bytes, int64_t n) {
  int row = token_header_of(bytes, n);
  if (row < 0) return n;
  return TOKEN_HEADER +
         token_headers[row].format.bytes * (int64_t)little_endian(bytes + 8);
}

/* Numbers end to end; the compiler has checked the word. */
static Status open_bare_tokens(const DnnField *field, Reader *reader) {
  unsigned char header[12];
  int64_t n = reader->file.n < 12 ? reader->file.n : 12;
  TRY(input_read(&reader->file, 0, header, n));
  if (token_header_of(header, n) >= 0)
    return status_make(STATUS_invalid,
                       "'%s' has a header that names its dtype; leave out "
                       "dtype = \"%s\"",
                       reader->file.path, field->number);
  int64_t bits = strtol(field->number + 1, NULL, 10);
  reader->format = (NumberFormat){field->number[0], (uint8_t)(bits / 8), false};
  reader->n = reader->file.n / reader->format.bytes;
  if (reader->file.n % reader->format.bytes == 0) return STATUS_OK;
  return status_make(
      STATUS_invalid, "'%s' has %lld bytes, which are no tokens of %lld bits",
      reader->file.path, (long long)reader->file.n, (long long)bits);
}

static Status open_tokens(const DnnField *field, Reader *reader) {
  if (field->number) return open_bare_tokens(field, reader);
  unsigned char header[12];
  int64_t n = reader->file.n < 12 ? reader->file.n : 12;
  TRY(input_read(&reader->file, 0, header, n));
  int row = token_header_of(header, n);
  if (row < 0)
    return status_make(STATUS_invalid,
                       "'%s' is not a token file (its first numbers must be "
                       "%u and %u, or %u and %u for 32 bits); dtype = \"u16\" "
                       "reads tokens without a header",
                       reader->file.path, token_headers[0].magic,
                       token_headers[0].version, token_headers[1].magic,
                       token_headers[1].version);
  reader->header_bytes = TOKEN_HEADER;
  reader->format = token_headers[row].format;
  reader->n = little_endian(header + 8);
  return check_announced(&reader->file, tokens_limit(header, sizeof header));
}

/* ---- arrays: npy and safetensors ---- */

/* Arrays are read in place, so that only what a sample needs is read. */
static Status check_unpacked(const DnnField *field, const char *name) {
  size_t n = strlen(name);
  if (field->source != SOURCE_npy && field->source != SOURCE_safetensors)
    return STATUS_OK;
  if (n < 3 || strcmp(name + n - 3, ".gz") != 0) return STATUS_OK;
  return status_make(STATUS_invalid,
                     "'%s' is packed, but arrays are read in place; unpack it "
                     "with gunzip",
                     name);
}

/* Sizes above 1 of a record, without the first axis.  Returns how many. */
static int sizes_of_record(int rank, const int64_t *size, int64_t *out) {
  int n = 0;
  for (int i = 1; i < rank; i++)
    if (size[i] > 1) out[n++] = size[i];
  return n;
}

static int compare_sizes(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

/* Channels that are last in the file and first in the field: the values would
 * be read in the wrong order. */
static Status check_order(const DnnField *field, int rank, const int64_t *size,
                          const Reader *reader) {
  int64_t own[NPY_MAX_RANK], wanted[DNN_MAX_RANK];
  if (rank > NPY_MAX_RANK) return STATUS_OK;
  int n = sizes_of_record(rank, size, own);
  size_t bytes = (size_t)n * sizeof own[0];
  if (n != sizes_of_record(field->rank, field->size, wanted) || n == 0 ||
      memcmp(own, wanted, bytes) == 0)
    return STATUS_OK;
  qsort(own, (size_t)n, sizeof own[0], compare_sizes);
  qsort(wanted, (size_t)n, sizeof own[0], compare_sizes);
  if (memcmp(own, wanted, bytes) != 0) return STATUS_OK;
  return status_make(
      STATUS_invalid,
      "'%s' has records of %s, whose sizes '%s' has in another order\n"
      "help: write the dims of the field in the order of the file; no operator "
      "cares",
      reader->file.path, reader->shape, field->path);
}

/* The first of `rank` axes counts records. */
static Status take_array(Arena *arena, const DnnField *field, int rank,
                         const int64_t *size, Reader *reader) {
  if (rank == 0)
    return status_make(STATUS_invalid,
                       "'%s' holds a single number; '%s' needs an array whose "
                       "first axis counts records",
                       reader->file.path, field->path);
  reader->record_items = 1;
  reader->shape = shape_text(arena, rank, size);
  TRY(check_order(field, rank, size, reader));
  bool is_right = true;
  for (int i = 1; i < rank; i++)
    is_right =
        is_right && !__builtin_mul_overflow(reader->record_items, size[i],
                                            &reader->record_items);
  if (is_right &&
      !__builtin_mul_overflow(size[0], reader->record_items, &reader->n))
    return STATUS_OK;
  return status_make(STATUS_invalid,
                     "'%s': its shape is more than a file can hold",
                     reader->file.path);
}

static Status open_npy(Arena *arena, const DnnField *field, Reader *reader) {
  unsigned char first[12];
  const InputFile *file = &reader->file;
  int64_t n = file->n < 12 ? file->n : 12;
  NpyHeader header;
  TRY(input_read(file, 0, first, n));
  int64_t wanted = npy_header_bytes(first, n);
  if (wanted < n || wanted > file->n || wanted > NPY_HEADER_LIMIT)
    return npy_parse(file->path, first, n, file->n, &header);
  unsigned char *bytes = arena_alloc(arena, (size_t)wanted);
  TRY(input_read(file, 0, bytes, wanted));
  TRY(npy_parse(file->path, bytes, wanted, file->n, &header));
  if (header.is_fortran)
    return status_make(STATUS_invalid,
                       "'%s' is in Fortran order, so its records do not lie "
                       "together; save it with np.save(f, "
                       "np.ascontiguousarray(x))",
                       file->path);
  reader->format = header.format;
  reader->header_bytes = header.data_begin;
  return take_array(arena, field, header.rank, header.size, reader);
}

/* The letter of npy's name, `w` for bf16; none for f8, which is not read. */
static NumberFormat number_format_of(DnnDtype dtype) {
  const char *npy = dtype_npy(dtype);
  if (!npy && !dtype_is_float(dtype)) return (NumberFormat){0};
  return (NumberFormat){npy ? npy[1] : 'w', (uint8_t)dtype_bytes(dtype), false};
}

static Status read_stored_header(Arena *arena, const InputFile *file,
                                 int64_t *out_begin, StoredHeader *out) {
  unsigned char bytes[8];
  if (file->n < 8)
    return status_make(STATUS_invalid, "'%s' is not a safetensors file",
                       file->path);
  TRY(input_read(file, 0, bytes, 8));
  uint64_t length =
      (uint64_t)little_endian(bytes + 4) << 32 | little_endian(bytes);
  if (length > (uint64_t)(file->n - 8) || length > SAFETENSORS_HEADER_LIMIT)
    return status_make(STATUS_invalid,
                       "'%s' is not a safetensors file, or is truncated: its "
                       "header announces %llu bytes, and the file has %lld",
                       file->path, (unsigned long long)length,
                       (long long)file->n);
  char *text = arena_alloc(arena, (size_t)length + 1);
  TRY(input_read(file, 8, text, (int64_t)length));
  *out_begin = 8 + (int64_t)length;
  Status status =
      safetensors_parse(arena, text, (size_t)length, file->n - *out_begin, out);
  if (status.code == STATUS_ok) return status;
  return status_make(status.code, "'%s': %s", file->path, status.message);
}

/* At most eight names, for a message. */
static const char *names_of(Arena *arena, const StoredHeader *header) {
  Text text = text_create(arena);
  int n = header->n_tensors < 8 ? header->n_tensors : 8;
  for (int i = 0; i < n; i++)
    text_printf(&text, "%s'%.60s'", i ? ", " : "", header->tensors[i].name);
  if (n < header->n_tensors)
    text_printf(&text, " and %d more", header->n_tensors - n);
  return n ? text_string(&text) : "none";
}

static Status open_safetensors(Arena *arena, const DnnField *field,
                               Reader *reader) {
  StoredHeader header;
  int64_t begin = 0;
  TRY(read_stored_header(arena, &reader->file, &begin, &header));
  const StoredTensor *found = NULL;
  for (int i = 0; i < header.n_tensors; i++)
    if (strcmp(header.tensors[i].name, field->tensor) == 0)
      found = &header.tensors[i];
  if (!found)
    return status_make(STATUS_invalid, "'%s' has no tensor '%s'; it has %s",
                       reader->file.path, field->tensor,
                       names_of(arena, &header));
  reader->format = number_format_of(found->dtype);
  if (!reader->format.bytes)
    return status_make(
        STATUS_invalid, "tensor '%s' of '%s' is %s, which is not read as data",
        field->tensor, reader->file.path, dtype_label(found->dtype));
  reader->header_bytes = begin + found->begin;
  return take_array(arena, field, found->rank, found->size, reader);
}

/* ---- all ---- */

static void open_synthetic(const DnnField *field, int64_t items,
                           Reader *reader) {
  reader->key = random_key(0, field->path);
  reader->below = field->below > 0 ? field->below : 1;
  reader->n = (field->records > 0 ? field->records : 65536) * items;
}

/* How many bytes of a ".gz" are unpacked. */
static InputLimit *limit_of(const DnnField *field) {
  switch ((SourceKind)field->source) {
  case SOURCE_idx: return idx_limit;
  case SOURCE_tokens: return field->number ? NULL : tokens_limit;
  case SOURCE_csv: return input_streams;
  default: return NULL;
  }
}

static Status open_file(Arena *arena, const DnnField *field, const char *name,
                        const InputSearch *search, bool is_stream,
                        Reader *out) {
  *out = (Reader){.kind = field->source, .file.fd = -1};
  TRY(check_unpacked(field, name));
  TRY(input_open(arena, name, search, limit_of(field), &out->file));
  switch ((SourceKind)field->source) {
  case SOURCE_bytes:
    out->format = (NumberFormat){'u', 1, false};
    out->n = out->file.n;
    return STATUS_OK;
  case SOURCE_tokens: return open_tokens(field, out);
  case SOURCE_idx: return open_idx(arena, out);
  case SOURCE_csv: return csv_open(arena, field, search, is_stream, out);
  case SOURCE_npy: return open_npy(arena, field, out);
  case SOURCE_safetensors: return open_safetensors(arena, field, out);
  default: UNREACHABLE();
  }
}

/* ---- several files ---- */

/* "f32[3, 32]" of the records of a file. */
static const char *describe_records(Arena *arena, const Reader *reader) {
  const NumberFormat *format = &reader->format;
  const char *shape = reader->shape ? reader->shape : "";
  if (!format->bytes)
    return arena_printf(arena, "%lld values", (long long)reader->record_items);
  if (format->kind == 'b') return arena_printf(arena, "bool%s", shape);
  return arena_printf(arena, "%s%d%s",
                      format->kind == 'w'   ? "bf"
                      : format->kind == 'f' ? "f"
                      : format->kind == 'i' ? "i"
                                            : "u",
                      8 * format->bytes, shape);
}

/* A part is like the first in what it holds. */
static Status check_part(Arena *arena, const Reader *first,
                         const Reader *part) {
  const char *a = first->shape ? first->shape : "";
  const char *b = part->shape ? part->shape : "";
  if (first->format.kind == part->format.kind &&
      first->format.bytes == part->format.bytes &&
      first->record_items == part->record_items && strcmp(a, b) == 0)
    return STATUS_OK;
  return status_make(STATUS_invalid,
                     "'%s' holds %s, but '%s' holds %s: the files of a source "
                     "have one dtype and one shape",
                     part->file.path, describe_records(arena, part),
                     first->file.path, describe_records(arena, first));
}

static Status open_parts(Arena *arena, const DnnField *field,
                         const char *const *files, int n,
                         const InputSearch *search, bool is_stream,
                         Reader *out) {
  *out = (Reader){.kind = field->source, .file.fd = -1};
  out->parts = ARENA_ARRAY(arena, Reader, n);
  out->begins = ARENA_ARRAY(arena, int64_t, n + 1);
  for (int i = 0; i < n; i++) {
    Reader *part = &out->parts[i];
    Status status = open_file(arena, field, files[i], search, is_stream, part);
    out->n_parts++;
    TRY(status);
    TRY(check_part(arena, &out->parts[0], part));
    if (n > MOST_OPEN) input_release(&part->file);
    out->begins[i + 1] = out->begins[i] + part->n;
  }
  out->n = out->begins[n];
  out->record_items = out->parts[0].record_items;
  return STATUS_OK;
}

Status reader_open(Arena *arena, const DnnField *field,
                   const char *const *names, int n, const InputSearch *search,
                   int64_t items, bool is_stream, Reader *out) {
  *out = (Reader){.kind = field->source, .file.fd = -1};
  if (field->source == SOURCE_synthetic_ints ||
      field->source == SOURCE_synthetic_floats) {
    open_synthetic(field, items, out);
    return STATUS_OK;
  }
  if (field->source == SOURCE_images)
    return pictures_open(arena, field, names, n, search, items, out);
  if (field->source == SOURCE_labels)
    return labels_open(arena, field, names, n, search, out);
  const char *const *files;
  int n_files;
  TRY(input_expand(arena, names, n, search, &files, &n_files));
  ASSERT(n_files > 0);
  if (n_files == 1)
    return open_file(arena, field, files[0], search, is_stream, out);
  return open_parts(arena, field, files, n_files, search, is_stream, out);
}

static int part_index(const Reader *reader, int64_t at) {
  int low = 0, high = reader->n_parts - 1;
  while (low < high) {
    int middle = (low + high + 1) / 2;
    if (reader->begins[middle] <= at)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

const Reader *reader_part(const Reader *reader, int64_t *at) {
  if (!reader->n_parts) return reader;
  int i = part_index(reader, *at);
  *at -= reader->begins[i];
  return &reader->parts[i];
}

int64_t reader_resident_bytes(const Reader *reader) {
  int64_t bytes = reader->file.packed ? reader->file.n : 0;
  if (reader->numbers) bytes += reader->n * (int64_t)sizeof(double);
  for (int i = 0; i < reader->n_parts; i++)
    bytes += reader_resident_bytes(&reader->parts[i]);
  return bytes;
}

/* Reading nothing at the end needs all that comes before. */
Status reader_check_packed(const Reader *reader) {
  for (int i = 0; i < reader->n_parts; i++)
    TRY(reader_check_packed(&reader->parts[i]));
  if (!reader->file.packed || !reader->format.bytes) return STATUS_OK;
  return input_read(&reader->file, reader->file.n, NULL, 0);
}

static Status read_parts(const Reader *reader, int64_t first, int64_t n,
                         void *raw, double *out) {
  for (int i = part_index(reader, first); n > 0; i++) {
    int64_t more = reader->begins[i + 1] - first;
    if (more > n) more = n;
    TRY(reader_read(&reader->parts[i], first - reader->begins[i], more, raw,
                    out));
    first += more;
    n -= more;
    out += more;
  }
  return STATUS_OK;
}

/* ---- reading ---- */

static void synthesize(const Reader *reader, int64_t first, int64_t n,
                       double *out) {
  if (reader->kind == SOURCE_synthetic_floats) {
    random_normals(reader->key, (uint64_t)first, n, out);
    return;
  }
  for (int64_t i = 0; i < n; i++)
    out[i] = (double)random_below(reader->key, (uint64_t)(first + i),
                                  (uint64_t)reader->below);
}

/* Random numbers take longer than a thread takes to begin. */
#define SYNTHETIC_OF_A_THREAD 4096

typedef struct Synthesis {
  const Reader *reader;
  int64_t first, n;
  double *out;
} Synthesis;

static void synthesize_part(void *arg, int index, int n_threads) {
  const Synthesis *all = arg;
  int64_t begin = all->n * index / n_threads;
  int64_t end = all->n * (index + 1) / n_threads;
  synthesize(all->reader, all->first + begin, end - begin, all->out + begin);
}

Status reader_read_with(const Threads *threads, const Reader *reader,
                        int64_t first, int64_t n, void *raw, double *out) {
  bool is_made = !reader->numbers && !reader->format.bytes && !reader->n_parts;
  if (!is_made || n < 2 * SYNTHETIC_OF_A_THREAD)
    return reader_read(reader, first, n, raw, out);
  ASSERT(first >= 0 && first + n <= reader->n);
  Synthesis all = {reader, first, n, out};
  threads_run(threads, synthesize_part, &all);
  return STATUS_OK;
}

Status reader_read(const Reader *reader, int64_t first, int64_t n, void *raw,
                   double *out) {
  ASSERT(first >= 0 && n >= 0 && first + n <= reader->n);
  if (reader->n_parts) return read_parts(reader, first, n, raw, out);
  if (reader->numbers) {
    memcpy(out, reader->numbers + first, sizeof(double) * (size_t)n);
    return STATUS_OK;
  }
  if (!reader->format.bytes) {
    synthesize(reader, first, n, out);
    return STATUS_OK;
  }
  int64_t width = reader->format.bytes;
  TRY(input_read(&reader->file, reader->header_bytes + first * width, raw,
                 n * width));
  numbers_decode(reader->format, raw, n, out);
  return STATUS_OK;
}

void reader_close(Reader *reader) {
  for (int i = 0; i < reader->n_parts; i++) reader_close(&reader->parts[i]);
  input_close(&reader->file);
  free(reader->numbers);
  reader->numbers = NULL;
}
