/*
 * dtype.c -- sizes and names of element types, read from dtype.def.
 */
#include "runtime/tensor/tensor.h"

int64_t dtype_bytes(DnnDtype dtype) {
  static const int64_t bytes[] = {
#define DTYPE(name, size_bytes, ...) size_bytes,
#include "support/dtype.def"
  };
  ASSERT(dtype < ARRAY_LENGTH(bytes));
  return bytes[dtype];
}

const char *dtype_label(DnnDtype dtype) {
  static const char *const labels[] = {
#define DTYPE(name, ...) #name,
#include "support/dtype.def"
  };
  ASSERT(dtype < ARRAY_LENGTH(labels));
  return labels[dtype];
}
