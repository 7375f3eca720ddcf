/*
 * types.c -- dtypes in emitted CUDA C.  Narrow integers and bools are computed
 * in int, 16-bit reals in float.
 */
#include "codegen/cuda/cuda.h"

#include <math.h>

typedef struct CudaType {
  const char *storage, *number, *suffix;
} CudaType;

static const CudaType types[N_DTYPES] = {
    [DT_bool] = {"unsigned char", "int", "i32"},
    [DT_u8] = {"unsigned char", "int", "i32"},
    [DT_i8] = {"signed char", "int", "i32"},
    [DT_i16] = {"short", "int", "i32"},
    [DT_i32] = {"int", "int", "i32"},
    [DT_i64] = {"long long", "long long", "i64"},
    [DT_f16] = {"unsigned short", "float", "f32"},
    [DT_bf16] = {"unsigned short", "float", "f32"},
    [DT_f32] = {"float", "float", "f32"},
    [DT_f64] = {"double", "double", "f64"},
};

bool cuda_has_dtype(DType dtype) {
  return types[dtype].storage != NULL;
}

const char *cuda_storage(DType dtype) {
  ASSERT(cuda_has_dtype(dtype));
  return types[dtype].storage;
}

const char *cuda_number(DType dtype) {
  ASSERT(cuda_has_dtype(dtype));
  return types[dtype].number;
}

const char *cuda_suffix(DType dtype) {
  ASSERT(cuda_has_dtype(dtype));
  return types[dtype].suffix;
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
