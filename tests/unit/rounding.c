// links: ir support
/*
 * rounding.c -- tests floats of 8 and 16 bits: rounding leaves every value of a
 * format unchanged, takes a number between two values to the nearer one, and a
 * tie to the even one.
 */
#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ir/ir.h"

typedef struct Format {
  DType dtype;
  int exponent, fraction; /* bits */
  bool has_infinity;
} Format;

static const Format formats[] = {{DT_bf16, 8, 7, true},
                                 {DT_f16, 5, 10, true},
                                 {DT_f8e5m2, 5, 2, true},
                                 {DT_f8e4m3, 4, 3, false}};

/* The value of a bit pattern without its sign, from the definition. */
static double value_of(const Format *format, int bits) {
  int bias = (1 << (format->exponent - 1)) - 1;
  int fraction = bits & ((1 << format->fraction) - 1);
  int exponent = bits >> format->fraction;
  if (exponent == 0) return ldexp(fraction, 1 - bias - format->fraction);
  return ldexp(fraction + (1 << format->fraction),
               exponent - bias - format->fraction);
}

/* Patterns from here on are no numbers. */
static int n_finite(const Format *format) {
  int all = 1 << (format->exponent + format->fraction);
  return format->has_infinity ? all - (1 << format->fraction) : all - 1;
}

Test(rounding, nearest_even) {
  for (int f = 0; f < (int)(sizeof formats / sizeof *formats); f++) {
    const Format *format = &formats[f];
    int n = n_finite(format);
    for (int bits = 0; bits < n; bits++) {
      double x = value_of(format, bits), next = value_of(format, bits + 1);
      double middle = (x + next) / 2, beyond = bits + 1 < n           ? next
                                               : format->has_infinity ? INFINITY
                                                                      : NAN;
      double even = bits % 2 == 0 ? x : beyond;
      double below = nextafter(middle, 0), above = nextafter(middle, INFINITY);
      const double in[] = {x, below, middle, above};
      const double out[] = {x, x, even, beyond};
      for (int i = 0; i < 4; i++) {
        double got = dtype_round(format->dtype, in[i]);
        cr_assert(got == out[i] || (isnan(got) && isnan(out[i])),
                  "%s %.17g: %.17g, not %.17g", dtype_name(format->dtype),
                  in[i], got, out[i]);
        double minus = dtype_round(format->dtype, -in[i]);
        cr_assert(minus == -out[i] || (isnan(minus) && isnan(out[i])));
      }
    }
    cr_assert(isnan(dtype_round(format->dtype, NAN)));
    cr_assert(isinf(dtype_round(format->dtype, INFINITY)) ==
              format->has_infinity);
  }
}

/* The runtime stores the values to which the interpreter rounds. */
Test(rounding, stored_halves) {
  for (uint32_t i = 0; i < 1u << 24; i += 7) {
    uint32_t bits = i * 2654435761u; /* over all of f32 */
    float x;
    memcpy(&x, &bits, sizeof x);
    float b = bf16_to_float(bf16_from_float(x));
    float h = f16_to_float(f16_from_float(x));
    if (isnan(x)) {
      cr_assert(isnan(b) && isnan(h));
      continue;
    }
    cr_assert_eq(b, dtype_round(DT_bf16, x), "%.9g", x);
    cr_assert_eq(h, dtype_round(DT_f16, x), "%.9g", x);
    cr_assert_eq(signbit(h), signbit(x));
  }
  for (int i = 0; i < 1 << 16; i++) {
    uint16_t half = (uint16_t)i;
    bool is_number = (i & 0x7fff) <= 0x7c00;
    if (is_number)
      cr_assert_eq(f16_from_float(f16_to_float(half)), half);
    else
      cr_assert(isnan(f16_to_float(half)));
  }
}
