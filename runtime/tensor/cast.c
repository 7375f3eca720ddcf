/*
 * cast.c -- loads and stores numbers of every dtype, and converts floats from
 * one dtype to another for files whose dtype differs from the program's.
 *
 * A value passes through f64, in which every number of the narrower formats is
 * exact, and is rounded once, to nearest with ties to even.
 */
#include "runtime/tensor/tensor.h"

#include <math.h>
#include <string.h>

static double unpack_16bit(FloatFormat format, uint16_t bits) {
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

/* Rounded to an integer of units in the last place, the exponent follows
 * by carrying; what is too large becomes infinite likewise. */
static uint16_t pack_16bit(FloatFormat format, double value) {
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

static double load_float(DnnDtype dtype, const void *at) {
  uint16_t bits;
  float single;
  double value;
  switch (dtype_bytes(dtype)) {
  case 2:
    memcpy(&bits, at, 2);
    return unpack_16bit(dtype_float_format(dtype), bits);
  case 4: memcpy(&single, at, 4); return (double)single;
  default: memcpy(&value, at, 8); return value;
  }
}

static void store_float(DnnDtype dtype, void *to, double value) {
  uint16_t bits;
  switch (dtype_bytes(dtype)) {
  case 2:
    bits = pack_16bit(dtype_float_format(dtype), value);
    memcpy(to, &bits, 2);
    return;
  case 4: memcpy(to, &(float){(float)value}, 4); return;
  default: memcpy(to, &value, 8); return;
  }
}

bool number_fits(DnnDtype dtype, double value) {
  const double most_exact = 0x1p53 - 1;
  if (dtype_is_float(dtype)) return true;
  return value >= fmax(dtype_least(dtype), -most_exact) &&
         value <= fmin(dtype_greatest(dtype), most_exact) &&
         value == floor(value);
}

/* Integers by their C types. */
double number_load(DnnDtype dtype, const void *at) {
  if (dtype_is_float(dtype)) return load_float(dtype, at);
  switch ((DnnDtypeIndex)dtype) {
#define DTYPE(name, size_bytes, class, c_type, ...)                            \
  case DNN_##name: {                                                           \
    c_type value;                                                              \
    memcpy(&value, at, sizeof value);                                          \
    return (double)value;                                                      \
  }
#include "support/dtype.def"
  default: UNREACHABLE();
  }
}

void number_store(DnnDtype dtype, void *to, double value) {
  if (dtype_is_float(dtype)) {
    store_float(dtype, to, value);
    return;
  }
  switch ((DnnDtypeIndex)dtype) {
#define DTYPE(name, size_bytes, class, c_type, ...)                            \
  case DNN_##name:                                                             \
    memcpy(to, &(c_type){(c_type)value}, size_bytes);                          \
    return;
#include "support/dtype.def"
  default: UNREACHABLE();
  }
}

void numbers_store(DnnDtype dtype, void *to, const double *values, int64_t n) {
  int64_t item = dtype_bytes(dtype);
  unsigned char *write = to;
  if (dtype == DNN_f32) { /* most data: a loop that compilers vectorise */
    for (int64_t i = 0; i < n; i++)
      memcpy(write + i * item, &(float){(float)values[i]}, sizeof(float));
    return;
  }
  for (int64_t i = 0; i < n; i++)
    number_store(dtype, write + i * item, values[i]);
}

void floats_cast(DnnDtype from, const void *in, DnnDtype to, void *out,
                 int64_t n) {
  const unsigned char *read = in;
  unsigned char *write = out;
  int64_t read_bytes = dtype_bytes(from), write_bytes = dtype_bytes(to);
  for (int64_t i = 0; i < n; i++)
    store_float(to, write + i * write_bytes,
                load_float(from, read + i * read_bytes));
}
