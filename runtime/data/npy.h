/*
 * npy.h -- reads and writes the header of a NumPy array file (.npy).
 */
#ifndef RUNTIME_NPY_H
#define RUNTIME_NPY_H

#include "runtime/data/data.h"

/* The form of a number in a file. */
typedef struct NumberFormat {
  char kind;     /* b bool, u unsigned, i integer, f float, w bf16 */
  uint8_t bytes; /* 1, 2, 4 or 8 */
  bool is_big_endian;
} NumberFormat;

/* Decodes `n` numbers as f64; the bytes of `raw` may be swapped in place. */
void numbers_decode(NumberFormat format, void *raw, int64_t n, double *out);

enum { NPY_MAX_RANK = 32, NPY_HEADER_LIMIT = 1 << 16 };

typedef struct NpyHeader {
  NumberFormat format;
  bool is_fortran; /* first axis fastest; false for rank 0 and 1 */
  int rank;
  int64_t size[NPY_MAX_RANK];
  int64_t data_begin; /* bytes before the first number */
  int64_t n;          /* numbers */
} NpyHeader;

/* Returns the bytes that npy_parse needs to see.  `bytes` are its first 12, or
 * all of a shorter one.  Returns 0 where the file is no npy file. */
int64_t npy_header_bytes(const unsigned char *bytes, int64_t n);

/* Reads and checks the header of a file of `file_bytes` bytes: the array fills
 * the file exactly.  `path` is for messages. */
Status npy_parse(const char *path, const unsigned char *bytes, int64_t n,
                 int64_t file_bytes, NpyHeader *out);

/* Writes the header of a C-order, little-endian array.  bf16 and 8-bit floats
 * have no descr: result 0.  Else the bytes of the header, a multiple of 64. */
enum { NPY_HEADER_ROOM = 1024 };
int64_t npy_write_header(DnnDtype dtype, int rank, const int64_t *size,
                         char out[NPY_HEADER_ROOM]);

#endif
