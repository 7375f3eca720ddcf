/*
 * dtype.c -- answers questions about element types from the table dtype.def.
 */
#include "runtime/tensor/tensor.h"

#include <float.h>
#include <string.h>

typedef enum DtypeClass { CLASS_BOOL, CLASS_INT, CLASS_FLOAT } DtypeClass;

typedef struct DtypeRow {
  const char *name;
  int64_t bytes;
  DtypeClass class;
  const char *safetensors, *npy;
  int digits;
  double least, greatest;
} DtypeRow;

static const DtypeRow dtype_rows[] = {
#define DTYPE(name, size_bytes, class, c_type, safetensors, npy, digits,       \
              least, greatest, ...)                                            \
  [DNN_##name] = {#name, size_bytes, CLASS_##class,   safetensors,             \
                  npy,   digits,     (double)(least), (double)(greatest)},
#include "support/dtype.def"
};

static const DtypeRow *row_of(DnnDtype dtype) {
  ASSERT(dtype < ARRAY_LENGTH(dtype_rows));
  return &dtype_rows[dtype];
}

int64_t dtype_bytes(DnnDtype dtype) {
  return row_of(dtype)->bytes;
}

const char *dtype_label(DnnDtype dtype) {
  return row_of(dtype)->name;
}

bool dtype_is_float(DnnDtype dtype) {
  return row_of(dtype)->class == CLASS_FLOAT && row_of(dtype)->bytes > 1;
}

double dtype_least(DnnDtype dtype) {
  return row_of(dtype)->least;
}

double dtype_greatest(DnnDtype dtype) {
  return row_of(dtype)->greatest;
}

const char *dtype_npy(DnnDtype dtype) {
  return row_of(dtype)->npy;
}

const char *dtype_safetensors(DnnDtype dtype) {
  return row_of(dtype)->safetensors;
}

bool dtype_of_safetensors(const char *name, DnnDtype *out) {
  for (int i = 0; i < ARRAY_LENGTH(dtype_rows); i++) {
    if (strcmp(dtype_rows[i].safetensors, name) != 0) continue;
    *out = (DnnDtype)i;
    return true;
  }
  return false;
}

FloatFormat dtype_float_format(DnnDtype dtype) {
  ASSERT(dtype_is_float(dtype));
  const DtypeRow *row = row_of(dtype);
  int fraction = row->digits - 1, exponent = (int)row->bytes * 8 - row->digits;
  uint64_t exponent_ones = (UINT64_C(1) << exponent) - 1;
  return (FloatFormat){.bytes = (int)row->bytes,
                       .fraction = fraction,
                       .bias = (int)(exponent_ones >> 1),
                       .exponent_mask = exponent_ones << fraction,
                       .fraction_mask = (UINT64_C(1) << fraction) - 1};
}
