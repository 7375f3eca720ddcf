/*
 * dtype.c -- answers questions about element types from the table dtype.def.
 */
#include "ir/ir.h"

#include <math.h>
#include <string.h>

typedef struct DTypeInfo {
  const char *name;
  int size_bytes;
  DTypeClass class;
} DTypeInfo;

static const DTypeInfo infos[N_DTYPES] = {
#define DTYPE(name, size_bytes, class, ...)                                    \
  [DT_##name] = {#name, size_bytes, CLASS_##class},
#include "support/dtype.def"
};

static const DTypeInfo *info_of(DType dtype) {
  ASSERT((unsigned)dtype < N_DTYPES);
  return &infos[dtype];
}

const char *dtype_name(DType dtype) {
  return info_of(dtype)->name;
}

int dtype_size_bytes(DType dtype) {
  return info_of(dtype)->size_bytes;
}

DTypeClass dtype_class(DType dtype) {
  return info_of(dtype)->class;
}

bool dtype_find(const char *name, DType *out_dtype) {
  for (int i = 0; i < N_DTYPES; i++) {
    if (strcmp(infos[i].name, name) == 0) {
      *out_dtype = (DType)i;
      return true;
    }
  }
  return false;
}

bool dtype_is_16bit(DType dtype) {
  return dtype == DT_bf16 || dtype == DT_f16;
}

bool dtype_is_rounded(DType dtype) {
  return dtype == DT_f32 || dtype_is_16bit(dtype);
}

DType dtype_promote(DType a, DType b) {
  const DTypeInfo *x = info_of(a), *y = info_of(b);
  if (x->class != y->class) return x->class > y->class ? a : b;
  if (x->size_bytes != y->size_bytes) {
    return x->size_bytes > y->size_bytes ? a : b;
  }
  if (a == b) return a;
  return x->class == CLASS_FLOAT ? DT_f32 : DT_i16;
}

int64_t dtype_largest_integer(DType dtype) {
  ASSERT(dtype_class(dtype) != CLASS_FLOAT);
  return dtype_integer(dtype, INFINITY);
}

DType dtype_of_positions(int64_t n) {
  return n - 1 > dtype_largest_integer(DT_i32) ? DT_i64 : DT_i32;
}

/* To nearest even with `bits` of significand and least exponent `least` (of
 * frexp); what is beyond `largest` becomes `beyond`. */
static double round_bits(double x, int bits, int least, double largest,
                         double beyond) {
  if (x == 0 || isnan(x)) return x;
  if (isinf(x)) return copysign(beyond, x);
  int exponent;
  frexp(x, &exponent);
  int ulp = (exponent > least ? exponent : least) - bits;
  double rounded = ldexp(nearbyint(ldexp(x, -ulp)), ulp);
  return fabs(rounded) > largest ? copysign(beyond, x) : rounded;
}

double dtype_round(DType dtype, double x) {
  switch (dtype) {
  case DT_f32: return (float)x;
  case DT_bf16: return round_bits(x, 8, -125, 3.3895313892515355e38, INFINITY);
  case DT_f16: return round_bits(x, 11, -13, 65504, INFINITY);
  case DT_f8e4m3: return round_bits(x, 4, -5, 448, NAN);
  case DT_f8e5m2: return round_bits(x, 3, -13, 57344, INFINITY);
  default: return x;
  }
}

int64_t dtype_integer(DType dtype, double x) {
  int bits = 8 * (int)dtype_size_bytes(dtype);
  bool is_unsigned = dtype == DT_u8 || dtype == DT_bool;
  int64_t most = is_unsigned  ? dtype == DT_bool ? 1 : 255
                 : bits == 64 ? INT64_MAX
                              : (INT64_C(1) << (bits - 1)) - 1;
  int64_t least = is_unsigned ? 0 : -most - 1;
  if (isnan(x)) return 0;
  if (x >= (double)most) return most;
  return x <= (double)least ? least : (int64_t)x;
}
