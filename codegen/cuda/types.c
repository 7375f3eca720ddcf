/*
 * types.c -- prints dtypes in emitted CUDA C, from the columns of dtype.def:
 * integers of 8 and 16 bits and bools are computed in int, 16-bit floats in
 * float.
 */
#include "codegen/cuda/cuda.h"

#include <math.h>

typedef struct CudaType {
  const char *storage;
  DType work; /* the dtype in which it is computed */
} CudaType;

static const CudaType cuda_types[N_DTYPES] = {
#define DTYPE(name, size_bytes, class, c_type, safetensors, npy, digits,       \
              least, greatest, reduce, nccl, cublaslt, onednn, literal, cuda,  \
              work)                                                            \
  {cuda, DT_##work},
#include "support/dtype.def"
};

bool cuda_has_dtype(DType dtype) {
  return cuda_types[dtype].storage != NULL;
}

const char *cuda_storage(DType dtype) {
  ASSERT(cuda_has_dtype(dtype));
  return cuda_types[dtype].storage;
}

const char *cuda_number(DType dtype) {
  return cuda_storage(cuda_types[dtype].work);
}

const char *cuda_suffix(DType dtype) {
  return dtype_name(cuda_types[dtype].work);
}

void cuda_constant(Text *out, DType dtype, double value) {
  const char *number = cuda_number(dtype);
  if (dtype_class(dtype) != CLASS_FLOAT) {
    /* The lowest value has no literal of its own type in C. */
    int64_t integer = dtype_integer(dtype, value);
    if (integer == INT64_MIN)
      text_add(out, "(-9223372036854775807LL - 1)");
    else
      text_printf(out, "((%s)%lldLL)", number, (long long)integer);
    return;
  }
  text_printf(out, "((%s)", number);
  if (isnan(value)) {
    text_add(out, "(DNN_INF - DNN_INF)");
  } else if (isinf(value)) {
    text_add(out, value > 0 ? "DNN_INF" : "-DNN_INF");
  } else {
    text_add_real(out, value);
  }
  text_add(out, ")");
}

void cuda_add_identity(Text *out, NestReduce reduce, DType dtype) {
  double identity = nest_reduction(reduce)->identity;
  if (identity > 0 && dtype_class(dtype) != CLASS_FLOAT)
    text_printf(out, dtype == DT_i64 ? "%lldLL" : "%lld",
                (long long)dtype_integer(cuda_types[dtype].work, identity));
  else
    cuda_constant(out, dtype, identity);
}
