/*
 * types.c -- prints dtypes in emitted C: names of types, literals, least and
 * greatest values, from the columns of dtype.def.
 */
#include <inttypes.h>
#include <math.h>

#include "codegen/c/emit.h"

typedef struct CType {
  const char *storage, *suffix, *least, *greatest;
} CType;

static const CType c_types[N_DTYPES] = {
#define DTYPE(name, size_bytes, class, c_type, safetensors, npy, digits,       \
              least, greatest, reduce, nccl, cublaslt, onednn, literal, ...)   \
  {#c_type, literal, #least, #greatest},
#include "support/dtype.def"
};

const char *c_storage(DType dtype) {
  ASSERT(dtype < N_DTYPES);
  return c_types[dtype].storage;
}

const char *c_number(DType dtype) {
  return dtype == DT_bool ? "int" : c_storage(dtype);
}

static void add_integer(Text *out, DType dtype, int64_t value) {
  /* The lowest value has no literal of its own type in C. */
  if (value == INT64_MIN)
    text_add(out, "INT64_MIN");
  else
    text_printf(out, "%" PRId64 "%s", value, c_types[dtype].suffix);
}

static void add_float(Text *out, DType dtype, double value) {
  const char *suffix = c_types[dtype].suffix;
  if (dtype == DT_f32) value = (double)(float)value;
  if (isnan(value)) {
    text_printf(out, "__builtin_nan%s(\"\")", suffix);
  } else if (isinf(value)) {
    text_printf(out, "%s__builtin_inf%s()", value < 0 ? "-" : "", suffix);
  } else {
    if (signbit(value)) text_add(out, "(");
    text_add_real(out, value);
    text_add(out, suffix);
    if (signbit(value)) text_add(out, ")");
  }
}

void c_add_literal(Text *out, DType dtype, double value) {
  float x = (float)value;
  if (dtype == DT_bf16)
    text_printf(out, "%d", bf16_from_float(x));
  else if (dtype == DT_f16)
    text_printf(out, "%d", f16_from_float(x));
  else if (dtype_class(dtype) == CLASS_FLOAT)
    add_float(out, dtype, value);
  else
    add_integer(out, dtype, dtype_integer(dtype, value));
}

void c_add_identity(Text *out, NestReduce reduce, DType dtype) {
  double identity = nest_reduction(reduce)->identity;
  if (identity == 0)
    text_add(out, "0");
  else if (dtype_class(dtype) == CLASS_FLOAT)
    c_add_literal(out, dtype, identity);
  else
    text_add(out,
             identity < 0 ? c_types[dtype].least : c_types[dtype].greatest);
}
