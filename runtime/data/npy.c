/*
 * npy.c -- reads and writes the header of a NumPy array file. It has six bytes
 * of magic, a version, a length, and a Python dictionary of three entries, as
 * in
 *
 *     {'descr': '<f4', 'fortran_order': False, 'shape': (1000, 28, 28), }
 *
 * NumPy evaluates it as Python.  This reader takes the literals that NumPy
 * writes and nothing else: a file may come from anywhere.
 */
#include "runtime/data/npy.h"

#include <stdio.h>
#include <string.h>

static const unsigned char magic[6] = {0x93, 'N', 'U', 'M', 'P', 'Y'};

/* ---- numbers ---- */

static void swap_bytes(unsigned char *at, int64_t n, int bytes) {
  for (int64_t i = 0; i < n; i++, at += bytes)
    for (int low = 0, high = bytes - 1; low < high; low++, high--) {
      unsigned char kept = at[low];
      at[low] = at[high];
      at[high] = kept;
    }
}

#define DECODE(type)                                                           \
  for (int64_t i = 0; i < n; i++) {                                            \
    type value;                                                                \
    memcpy(&value, at + i * width, width);                                     \
    out[i] = (double)value;                                                    \
  }                                                                            \
  return

static void decode_unsigned(int width, const unsigned char *at, int64_t n,
                            double *out) {
  switch (width) {
  case 1: DECODE(uint8_t);
  case 2: DECODE(uint16_t);
  case 4: DECODE(uint32_t);
  default: DECODE(uint64_t);
  }
}

static void decode_signed(int width, const unsigned char *at, int64_t n,
                          double *out) {
  switch (width) {
  case 1: DECODE(int8_t);
  case 2: DECODE(int16_t);
  case 4: DECODE(int32_t);
  default: DECODE(int64_t);
  }
}

static void decode_float(int width, const unsigned char *at, int64_t n,
                         double *out) {
  switch (width) {
  case 2: floats_cast(DNN_f16, at, DNN_f64, out, n); return;
  case 4: DECODE(float);
  default: DECODE(double);
  }
}

void numbers_decode(NumberFormat format, void *raw, int64_t n, double *out) {
  if (format.is_big_endian) swap_bytes(raw, n, format.bytes);
  switch (format.kind) {
  case 'i': decode_signed(format.bytes, raw, n, out); return;
  case 'w': floats_cast(DNN_bf16, raw, DNN_f64, out, n); return;
  case 'f': decode_float(format.bytes, raw, n, out); return;
  default: decode_unsigned(format.bytes, raw, n, out); return;
  }
}

/* ---- reading ---- */

typedef struct Scan {
  const char *at, *end;
  bool failed;
} Scan;

static char npy_peek(Scan *scan) {
  while (scan->at < scan->end && (*scan->at == ' ' || *scan->at == '\n'))
    scan->at++;
  return scan->at < scan->end ? *scan->at : '\0';
}

static bool npy_accept(Scan *scan, char c) {
  if (npy_peek(scan) != c || scan->at == scan->end) return false;
  scan->at++;
  return true;
}

static bool accept_word(Scan *scan, const char *word) {
  size_t n = strlen(word);
  npy_peek(scan);
  if ((size_t)(scan->end - scan->at) < n || memcmp(scan->at, word, n) != 0)
    return false;
  scan->at += n;
  return true;
}

static void npy_expect(Scan *scan, char c) {
  if (!npy_accept(scan, c)) scan->failed = true;
}

/* A text in quotes without escapes, cut at `room`. */
static void read_text(Scan *scan, char *to, size_t room) {
  char quote = npy_peek(scan);
  size_t n = 0;
  to[0] = '\0';
  if (quote != '\'' && quote != '"') {
    scan->failed = true;
    return;
  }
  for (scan->at++; scan->at < scan->end && *scan->at != quote; scan->at++) {
    if (*scan->at == '\\' || (unsigned char)*scan->at < 0x20)
      scan->failed = true;
    if (n + 1 < room) to[n++] = *scan->at;
  }
  to[n] = '\0';
  npy_expect(scan, quote);
}

static int64_t read_size(Scan *scan) {
  int64_t value = 0;
  npy_peek(scan);
  const char *begin = scan->at;
  for (; scan->at < scan->end && *scan->at >= '0' && *scan->at <= '9';
       scan->at++)
    if (__builtin_mul_overflow(value, 10, &value) ||
        __builtin_add_overflow(value, *scan->at - '0', &value))
      scan->failed = true;
  if (scan->at == begin) scan->failed = true;
  return scan->failed ? 0 : value;
}

/* () or (3,) or (3, 4) or (3, 4,) */
static void read_shape(Scan *scan, NpyHeader *out) {
  npy_expect(scan, '(');
  for (out->rank = 0; !scan->failed && !npy_accept(scan, ')');) {
    if (out->rank == NPY_MAX_RANK) {
      scan->failed = true;
      return;
    }
    out->size[out->rank++] = read_size(scan);
    if (npy_accept(scan, ',')) continue;
    if (out->rank == 1) scan->failed = true; /* (3) is a number in Python */
    npy_expect(scan, ')');
    return;
  }
}

/* Reads what it can of the value of 'descr', which may be a list. */
static void read_descr(Scan *scan, char *descr, size_t room) {
  if (npy_peek(scan) == '[') {
    snprintf(descr, room, "[");
    return; /* a structured type: refused by name */
  }
  read_text(scan, descr, room);
}

enum { DESCR_ROOM = 32 };

/* The dictionary; a structured type ends it early. */
static void read_dictionary(Scan *scan, NpyHeader *out,
                            char descr[DESCR_ROOM]) {
  enum { HAS_descr = 1, HAS_order = 2, HAS_shape = 4, HAS_all = 7 };
  int seen = 0;
  npy_expect(scan, '{');
  while (!scan->failed && !npy_accept(scan, '}')) {
    char key[16];
    int field = 0;
    read_text(scan, key, sizeof key);
    npy_expect(scan, ':');
    if (scan->failed) return;
    if (strcmp(key, "descr") == 0) {
      field = HAS_descr;
      read_descr(scan, descr, DESCR_ROOM);
      if (descr[0] == '[') return;
    } else if (strcmp(key, "fortran_order") == 0) {
      field = HAS_order;
      out->is_fortran = accept_word(scan, "True");
      if (!out->is_fortran && !accept_word(scan, "False")) scan->failed = true;
    } else if (strcmp(key, "shape") == 0) {
      field = HAS_shape;
      read_shape(scan, out);
    }
    if (!field || (seen & field)) scan->failed = true;
    seen |= field;
    if (!npy_accept(scan, ',') && npy_peek(scan) != '}') scan->failed = true;
  }
  npy_peek(scan);
  if (seen != HAS_all || scan->at != scan->end) scan->failed = true;
}

/* '<f4', '>i2', '|u1'; false for what is no plain number. */
static bool read_format(const char *descr, NumberFormat *out) {
  static const char *const known[] = {"b1", "u1", "u2", "u4", "u8", "i1",
                                      "i2", "i4", "i8", "f2", "f4", "f8"};
  if (!strchr("<>|=", descr[0]) || !descr[0]) return false;
  for (int i = 0; i < ARRAY_LENGTH(known); i++)
    if (strcmp(descr + 1, known[i]) == 0) {
      *out =
          (NumberFormat){descr[1], (uint8_t)(descr[2] - '0'), descr[0] == '>'};
      return out->bytes == 1 || descr[0] != '|';
    }
  return false;
}

static Status wrong_type(const char *path, const char *descr) {
  if (descr[0] == '[' || strchr(descr, 'V'))
    return status_make(STATUS_invalid,
                       "'%s' holds records of several fields; save each field "
                       "as an array of its own",
                       path);
  if (strchr(descr, 'O'))
    return status_make(STATUS_invalid,
                       "'%s' holds Python objects, which are never read; save "
                       "an array of numbers, as x.astype(np.float32)",
                       path);
  return status_make(STATUS_invalid,
                     "'%s' holds numbers of type '%s'; npy reads b1, i1 i2 i4 "
                     "i8, u1 u2 u4 u8, f2 f4 f8",
                     path, descr);
}

static Status check_size(const char *path, int64_t file_bytes, NpyHeader *out) {
  int64_t bytes = out->format.bytes;
  out->n = 1;
  for (int i = 0; i < out->rank; i++)
    if (__builtin_mul_overflow(bytes, out->size[i], &bytes) ||
        __builtin_mul_overflow(out->n, out->size[i], &out->n))
      return status_make(STATUS_invalid,
                         "'%s': its shape is more than a file can hold", path);
  int64_t present = file_bytes - out->data_begin;
  if (bytes > present)
    return status_make(STATUS_invalid,
                       "'%s' is too short: its header announces %lld bytes of "
                       "numbers, but %lld are there",
                       path, (long long)bytes, (long long)present);
  if (bytes < present)
    return status_make(STATUS_invalid,
                       "'%s' holds %lld bytes after its array of %lld bytes; "
                       "a file is one array",
                       path, (long long)(present - bytes), (long long)bytes);
  return STATUS_OK;
}

int64_t npy_header_bytes(const unsigned char *bytes, int64_t n) {
  if (n < 12 || memcmp(bytes, magic, sizeof magic) != 0) return 0;
  if (bytes[6] < 1 || bytes[6] > 3 || bytes[7] != 0) return 0;
  int64_t length = bytes[8] | bytes[9] << 8;
  if (bytes[6] == 1) return 10 + length;
  return 12 + (length | (int64_t)bytes[10] << 16 | (int64_t)bytes[11] << 24);
}

static Status not_npy(const char *path, const unsigned char *bytes, int64_t n) {
  if (n >= 4 && memcmp(bytes, "PK\3\4", 4) == 0)
    return status_make(STATUS_invalid,
                       "'%s' is a ZIP archive, as np.savez writes; save each "
                       "array with np.save",
                       path);
  if (n >= 8 && memcmp(bytes, magic, sizeof magic) == 0)
    return status_make(STATUS_invalid,
                       "'%s' is an npy file of version %d.%d; npy reads 1.0, "
                       "2.0 and 3.0",
                       path, bytes[6], bytes[7]);
  return status_make(STATUS_invalid, "'%s' is not an npy file", path);
}

Status npy_parse(const char *path, const unsigned char *bytes, int64_t n,
                 int64_t file_bytes, NpyHeader *out) {
  char descr[DESCR_ROOM] = "";
  *out = (NpyHeader){.data_begin = npy_header_bytes(bytes, n)};
  if (!out->data_begin) return not_npy(path, bytes, n);
  if (out->data_begin > NPY_HEADER_LIMIT || out->data_begin > n)
    return status_make(STATUS_invalid,
                       "'%s': its header announces %lld bytes; %lld are there, "
                       "and %d are the limit",
                       path, (long long)out->data_begin, (long long)n,
                       NPY_HEADER_LIMIT);
  int begin = bytes[6] == 1 ? 10 : 12;
  Scan scan = {(const char *)bytes + begin,
               (const char *)bytes + out->data_begin, false};
  read_dictionary(&scan, out, descr);
  if (descr[0] == '[') return wrong_type(path, descr);
  if (scan.failed)
    return status_make(STATUS_invalid,
                       "'%s': its header is not one of an npy file", path);
  if (!read_format(descr, &out->format)) return wrong_type(path, descr);
  if (out->rank < 2) out->is_fortran = false;
  return check_size(path, file_bytes, out);
}

/* ---- writing ---- */

int64_t npy_write_header(DnnDtype dtype, int rank, const int64_t *size,
                         char out[NPY_HEADER_ROOM]) {
  const char *descr = dtype_npy(dtype);
  if (!descr) return 0;
  ASSERT(rank <= DNN_MAX_RANK);
  int n = 10 + snprintf(out + 10, NPY_HEADER_ROOM - 10,
                        "{'descr': '%s', 'fortran_order': False, 'shape': (",
                        descr);
  for (int i = 0; i < rank; i++)
    n += snprintf(out + n, (size_t)(NPY_HEADER_ROOM - n), "%s%lld",
                  i ? ", " : "", (long long)size[i]);
  n += snprintf(out + n, (size_t)(NPY_HEADER_ROOM - n),
                rank == 1 ? ",), }" : "), }");
  while ((n + 1) % 64) out[n++] = ' ';
  out[n++] = '\n';
  memcpy(out, magic, sizeof magic);
  out[6] = 1;
  out[7] = 0;
  out[8] = (char)((n - 10) & 0xff);
  out[9] = (char)((n - 10) >> 8);
  return n;
}
