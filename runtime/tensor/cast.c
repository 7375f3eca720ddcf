/*
 * cast.c -- numbers into the bytes of a dtype, and real ones from one dtype
 * into another, for files whose numbers are stored in another width than the
 * program's.
 *
 * A value passes through f64, in which every number of the narrower formats is
 * exact, and is rounded once, to nearest with ties to even.
 */
#include "runtime/tensor/tensor.h"

#include <math.h>
#include <string.h>

/* A binary format of 16 bits: bits of the fraction, bias of the exponent. */
typedef struct Format {
  int fraction, bias;
} Format;

static const Format format_f16 = {10, 15}, format_bf16 = {7, 127};

bool dtype_is_real(DnnDtype dtype) {
  return dtype == DNN_f16 || dtype == DNN_bf16 || dtype == DNN_f32 ||
         dtype == DNN_f64;
}

static double unpack(Format format, uint16_t bits) {
  int fraction_mask = (1 << format.fraction) - 1;
  int exponent = (bits & 0x7fff) >> format.fraction;
  int fraction = bits & fraction_mask;
  double value;
  if (exponent == 0x7fff >> format.fraction)
    value = fraction ? (double)NAN : (double)INFINITY;
  else if (exponent == 0)
    value = ldexp(fraction, 1 - format.bias - format.fraction);
  else
    value = ldexp(fraction + fraction_mask + 1,
                  exponent - format.bias - format.fraction);
  return bits & 0x8000 ? -value : value;
}

/* Rounded to a whole number of units in the last place, the exponent follows
 * by carrying; what is too large becomes infinite likewise. */
static uint16_t pack(Format format, double value) {
  uint16_t sign = signbit(value) ? 0x8000 : 0;
  uint16_t infinite = (uint16_t)(0x7fff >> format.fraction << format.fraction);
  if (isnan(value)) return sign | infinite | (1 << (format.fraction - 1));
  if (isinf(value)) return sign | infinite;
  if (value == 0) return sign;
  int exponent;
  frexp(value, &exponent); /* |value| in [2^(exponent-1), 2^exponent) */
  exponent--;
  if (exponent < 1 - format.bias) exponent = 1 - format.bias;
  double units = rint(ldexp(fabs(value), format.fraction - exponent));
  double bits = units + ldexp(exponent + format.bias - 1, format.fraction);
  return sign | (bits >= infinite ? infinite : (uint16_t)bits);
}

static double load(DnnDtype dtype, const unsigned char *at) {
  uint16_t half;
  float single;
  double value;
  switch (dtype) {
  case DNN_f16: memcpy(&half, at, 2); return unpack(format_f16, half);
  case DNN_bf16: memcpy(&half, at, 2); return unpack(format_bf16, half);
  case DNN_f32: memcpy(&single, at, 4); return (double)single;
  case DNN_f64: memcpy(&value, at, 8); return value;
  default: UNREACHABLE();
  }
}

bool number_fits(DnnDtype dtype, double value) {
  double least = 0, most = 1;
  switch (dtype) {
  case DNN_bool: break;
  case DNN_u8: most = UINT8_MAX; break;
  case DNN_i8: least = INT8_MIN, most = INT8_MAX; break;
  case DNN_i16: least = INT16_MIN, most = INT16_MAX; break;
  case DNN_i32: least = INT32_MIN, most = INT32_MAX; break;
  case DNN_i64: least = -0x1p53 + 1, most = 0x1p53 - 1; break; /* exact */
  default: return true;
  }
  return value >= least && value <= most && value == floor(value);
}

void number_store(DnnDtype dtype, void *to, double value) {
  switch (dtype) {
  case DNN_bool:
  case DNN_u8: *(uint8_t *)to = (uint8_t)value; return;
  case DNN_i8: *(int8_t *)to = (int8_t)value; return;
  case DNN_i16: memcpy(to, &(int16_t){(int16_t)value}, 2); return;
  case DNN_i32: memcpy(to, &(int32_t){(int32_t)value}, 4); return;
  case DNN_i64: memcpy(to, &(int64_t){(int64_t)value}, 8); return;
  case DNN_f16: memcpy(to, &(uint16_t){pack(format_f16, value)}, 2); return;
  case DNN_bf16: memcpy(to, &(uint16_t){pack(format_bf16, value)}, 2); return;
  case DNN_f32: memcpy(to, &(float){(float)value}, 4); return;
  case DNN_f64: memcpy(to, &value, 8); return;
  default: UNREACHABLE();
  }
}

void reals_cast(DnnDtype from, const void *in, DnnDtype to, void *out,
                int64_t n) {
  const unsigned char *read = in;
  unsigned char *write = out;
  int64_t read_bytes = dtype_bytes(from), write_bytes = dtype_bytes(to);
  for (int64_t i = 0; i < n; i++)
    number_store(to, write + i * write_bytes,
                 load(from, read + i * read_bytes));
}
