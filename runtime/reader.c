/*
 * reader.c -- readers: bytes, tokens, IDX and CSV files, synthetic numbers.
 *
 * Whatever the format, a field's values are a row that can be read at any
 * place; streams are windows of it and records are equal pieces of it.
 */
#include "runtime/reader.h"

#include <stdlib.h>
#include <string.h>

enum {
  TOKEN_HEADER = 1024,
  TOKEN_MAGIC = 20240520,
  MAX_IDX_RANK = 8,
  MAX_LINE = 1 << 20
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

static int64_t idx_item_bytes(uint8_t type) {
  switch (type) {
  case 0x08:
  case 0x09: return 1;
  case 0x0b: return 2;
  case 0x0c:
  case 0x0d: return 4;
  case 0x0e: return 8;
  default: return 0;
  }
}

/* Header bytes and values of a record, or -1 where it is no IDX header. */
static int64_t idx_size(const unsigned char *bytes, int64_t n,
                        int64_t *out_header, int64_t *out_record,
                        int64_t *out_item) {
  if (n < 4 || bytes[0] || bytes[1]) return -1;
  int rank = bytes[3];
  *out_item = idx_item_bytes(bytes[2]);
  *out_header = 4 + 4 * rank;
  *out_record = 1;
  if (!*out_item || rank < 1 || rank > MAX_IDX_RANK || n < *out_header)
    return -1;
  for (int i = 1; i < rank; i++)
    if (__builtin_mul_overflow(*out_record, big_endian(bytes + 4 + 4 * i),
                               out_record))
      return -1;
  int64_t values, total;
  if (__builtin_mul_overflow(*out_record, (int64_t)big_endian(bytes + 4),
                             &values) ||
      __builtin_mul_overflow(values, *out_item, &total) ||
      __builtin_add_overflow(total, *out_header, &total))
    return -1;
  return values;
}

static int64_t idx_limit(const unsigned char *bytes, int64_t n) {
  int64_t header, record, item,
      values = idx_size(bytes, n, &header, &record, &item);
  return values < 0 ? n : header + values * item;
}

static Status open_idx(Reader *reader) {
  unsigned char bytes[4 + 4 * MAX_IDX_RANK] = {0};
  int64_t n = reader->file.n < (int64_t)sizeof bytes ? reader->file.n
                                                     : (int64_t)sizeof bytes;
  TRY(input_read(&reader->file, 0, bytes, n));
  int64_t values = idx_size(bytes, n, &reader->header_bytes,
                            &reader->record_items, &reader->item_bytes);
  if (values < 0)
    return status_make(STATUS_invalid, "'%s' is not an IDX file",
                       reader->file.path);
  if (reader->file.n - reader->header_bytes < values * reader->item_bytes)
    return status_make(STATUS_invalid,
                       "'%s' is too short: its header announces %lld values",
                       reader->file.path, (long long)values);
  reader->type = bytes[2];
  reader->n = values;
  return STATUS_OK;
}

static double idx_value(uint8_t type, const unsigned char *at) {
  switch (type) {
  case 0x08: return at[0];
  case 0x09: return (int8_t)at[0];
  case 0x0b: return (int16_t)(at[0] << 8 | at[1]);
  case 0x0c: return (int32_t)big_endian(at);
  case 0x0d: {
    uint32_t bits = big_endian(at);
    float value;
    memcpy(&value, &bits, sizeof value);
    return (double)value;
  }
  default: {
    uint64_t bits = (uint64_t)big_endian(at) << 32 | big_endian(at + 4);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
  }
  }
}

/* ---- tokens ---- */

static Status open_tokens(Reader *reader) {
  unsigned char header[12];
  TRY(input_read(&reader->file, 0, header, sizeof header));
  if (little_endian(header) != TOKEN_MAGIC || little_endian(header + 4) != 1)
    return status_make(STATUS_invalid,
                       "'%s' is not a token file (its first numbers must be "
                       "%d and 1)",
                       reader->file.path, TOKEN_MAGIC);
  reader->header_bytes = TOKEN_HEADER;
  reader->item_bytes = 2;
  reader->n = little_endian(header + 8);
  if (reader->file.n - TOKEN_HEADER < reader->n * 2)
    return status_make(STATUS_invalid,
                       "'%s' is too short: its header announces %lld tokens",
                       reader->file.path, (long long)reader->n);
  return STATUS_OK;
}

/* ---- CSV ---- */

typedef struct Numbers {
  double *data;
  int64_t n, capacity;
} Numbers;

static bool add_number(Arena *arena, Numbers *numbers, double value) {
  if (numbers->n == numbers->capacity) {
    int64_t capacity = numbers->capacity ? 2 * numbers->capacity : 4096;
    double *data = ARENA_ARRAY(arena, double, capacity);
    if (numbers->n)
      memcpy(data, numbers->data, sizeof(double) * (size_t)numbers->n);
    numbers->data = data;
    numbers->capacity = capacity;
  }
  numbers->data[numbers->n++] = value;
  return true;
}

static Status read_line(Arena *arena, const Reader *reader,
                        const DnnField *field, const char *line, size_t n,
                        int64_t number, Numbers *out) {
  int64_t column = 0;
  size_t begin = 0;
  for (size_t i = 0; i <= n && column <= field->last_column; i++) {
    if (i < n && line[i] != ',' && line[i] != ';' && line[i] != '\t') continue;
    size_t end = i;
    while (begin < end && line[begin] == ' ') begin++;
    while (end > begin && (line[end - 1] == ' ' || line[end - 1] == '\r'))
      end--;
    double value;
    if (column >= field->first_column) {
      if (!text_read_real(line + begin, end - begin, &value))
        return status_make(
            STATUS_invalid,
            "'%s', line %lld, column %lld: '%.*s' is not a "
            "number",
            reader->file.path, (long long)number, (long long)column,
            end - begin > 40 ? 40 : (int)(end - begin), line + begin);
      if (!number_fits(field->dtype, value))
        return status_make(
            STATUS_invalid, "'%s', line %lld, column %lld: '%s' is %s, not %g",
            reader->file.path, (long long)number, (long long)column,
            field->path, dtype_label(field->dtype), value);
      add_number(arena, out, value);
    }
    column++;
    begin = i + 1;
  }
  if (column <= field->last_column)
    return status_make(STATUS_invalid,
                       "'%s', line %lld has %lld columns; %lld are needed",
                       reader->file.path, (long long)number, (long long)column,
                       (long long)field->last_column + 1);
  return STATUS_OK;
}

static Status open_csv(Arena *arena, const DnnField *field, Reader *reader) {
  int64_t n = reader->file.n, line = 1;
  char *text = malloc((size_t)n + 1);
  if (!text)
    return status_make(STATUS_io, "no memory to read '%s'", reader->file.path);
  Status status = input_read(&reader->file, 0, text, n);
  Numbers numbers = {0};
  for (int64_t begin = 0; status.code == STATUS_ok && begin < n; line++) {
    const char *end = memchr(text + begin, '\n', (size_t)(n - begin));
    int64_t next = end ? end - text : n;
    bool is_empty = next == begin || (next == begin + 1 && text[begin] == '\r');
    if (line > field->header_lines && !is_empty)
      status = read_line(arena, reader, field, text + begin,
                         (size_t)(next - begin), line, &numbers);
    begin = next + 1;
  }
  free(text);
  reader->numbers = numbers.data;
  reader->n = numbers.n;
  reader->record_items = field->last_column - field->first_column + 1;
  return status;
}

/* ---- all ---- */

static void open_synthetic(const DnnField *field, int64_t items,
                           Reader *reader) {
  reader->key = random_key(0, field->path);
  reader->below = field->below > 0 ? field->below : 1;
  reader->n = (field->records > 0 ? field->records : 65536) * items;
}

Status reader_open(Arena *arena, const DnnField *field, const char *name,
                   const char *folder, const char *model_dir, int64_t items,
                   Reader *out) {
  *out = (Reader){.kind = field->source, .file.fd = -1};
  if (field->source == DNN_SYNTHETIC_INTS ||
      field->source == DNN_SYNTHETIC_REALS) {
    open_synthetic(field, items, out);
    return STATUS_OK;
  }
  TRY(input_open(arena, name, folder, model_dir,
                 field->source == DNN_IDX ? idx_limit : NULL, &out->file));
  switch ((DnnSource)field->source) {
  case DNN_BYTES:
    out->item_bytes = 1;
    out->n = out->file.n;
    return STATUS_OK;
  case DNN_TOKENS: return open_tokens(out);
  case DNN_IDX: return open_idx(out);
  case DNN_CSV: return open_csv(arena, field, out);
  default: UNREACHABLE();
  }
}

static void draw(const Reader *reader, int64_t first, int64_t n, double *out) {
  for (int64_t i = 0; i < n; i++) {
    uint64_t index = (uint64_t)(first + i);
    out[i] =
        reader->kind == DNN_SYNTHETIC_REALS
            ? random_normal(reader->key, index)
            : (double)random_below(reader->key, index, (uint64_t)reader->below);
  }
}

Status reader_read(const Reader *reader, int64_t first, int64_t n, void *raw,
                   double *out) {
  ASSERT(first >= 0 && n >= 0 && first + n <= reader->n);
  if (reader->numbers) {
    memcpy(out, reader->numbers + first, sizeof(double) * (size_t)n);
    return STATUS_OK;
  }
  if (!reader->item_bytes) {
    draw(reader, first, n, out);
    return STATUS_OK;
  }
  const unsigned char *at = raw;
  TRY(input_read(&reader->file,
                 reader->header_bytes + first * reader->item_bytes, raw,
                 n * reader->item_bytes));
  for (int64_t i = 0; i < n; i++, at += reader->item_bytes) {
    if (reader->kind == DNN_BYTES)
      out[i] = at[0];
    else if (reader->kind == DNN_TOKENS)
      out[i] = at[0] | at[1] << 8;
    else
      out[i] = idx_value(reader->type, at);
  }
  return STATUS_OK;
}

void reader_close(Reader *reader) {
  input_close(&reader->file);
}
