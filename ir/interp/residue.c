/*
 * residue.c -- the arithmetic of exact mode: exact.h has its rules.
 */
#include <math.h>
#include <string.h>

#include "ir/interp/exact.h"

/* ---- residues ---- */

uint64_t residue_pow(uint64_t a, uint64_t n) {
  uint64_t y = 1;
  for (; n != 0; n >>= 1) {
    if (n & 1) y = residue_mul(y, a);
    a = residue_mul(a, a);
  }
  return y;
}

static uint64_t squared(uint64_t a, int times) {
  for (int i = 0; i < times; i++) a = residue_mul(a, a);
  return a;
}

/* a^(p - 2), Fermat; p - 2 is 59 ones and 01 in binary. */
uint64_t residue_inverse(uint64_t a) {
  if (a <= 1) return a;
  uint64_t ones = a; /* a^(2^n - 1) for n = 1, 3, 7, 14, 29, 59 */
  for (int i = 0, n = 1; i < 5; i++) {
    ones = residue_mul(squared(ones, n), ones);
    n *= 2;
    if (i == 2) continue;
    ones = residue_mul(squared(ones, 1), a);
    n++;
  }
  return residue_mul(squared(ones, 2), a);
}

/* splitmix64 of each word in turn. */
uint64_t exact_hash(uint64_t key, const uint64_t *words, int n) {
  uint64_t z = key + UINT64_C(0x9E3779B97F4A7C15);
  for (int i = 0; i < n; i++) {
    z = (z ^ words[i]) + UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    z ^= z >> 31;
  }
  z &= EXACT_PRIME;
  return z == EXACT_PRIME ? 0 : z;
}

/* ---- E ---- */

/* G(v), never 0; exp(0) = 1. */
static uint64_t random_exponential(uint64_t key, uint64_t v) {
  if (v == 0) return 1;
  uint64_t words[] = {UINT64_C(0x457870), v};
  uint64_t e = exact_hash(key, words, 2);
  return e == 0 ? 1 : e;
}

static uint64_t e_or_filled(uint64_t key, ExactNumber a) {
  return a.e != 0 ? exact_e(a) : random_exponential(key, a.v);
}

/* inf - inf is -inf: both programs have it in the same place. */
static uint64_t e_product(uint64_t a, uint64_t b) {
  if (a == EXACT_NAN || b == EXACT_NAN) return EXACT_NAN;
  if (a == EXACT_MINUS_INF || b == EXACT_MINUS_INF) return EXACT_MINUS_INF;
  if (a == EXACT_PLUS_INF || b == EXACT_PLUS_INF) return EXACT_PLUS_INF;
  return residue_mul(a, b);
}

static uint64_t e_inverse(uint64_t e) {
  if (e == EXACT_MINUS_INF) return EXACT_PLUS_INF;
  if (e == EXACT_PLUS_INF) return EXACT_MINUS_INF;
  if (e == EXACT_NAN) return EXACT_NAN;
  return residue_inverse(e);
}

static ExactNumber with_e(uint64_t v, uint64_t e, uint64_t flags) {
  return (ExactNumber){e >= EXACT_MINUS_INF ? 0 : v,
                       e | (flags & EXACT_FROM_LOG)};
}

ExactNumber exact_neg(ExactNumber a) {
  uint64_t v = residue_neg(a.v);
  return a.e == 0 ? (ExactNumber){v, 0} : with_e(v, e_inverse(exact_e(a)), a.e);
}

ExactNumber exact_add_e(uint64_t key, ExactNumber a, ExactNumber b) {
  uint64_t e = e_product(e_or_filled(key, a), e_or_filled(key, b));
  return with_e(residue_add(a.v, b.v), e, a.e | b.e);
}

ExactNumber exact_chosen(uint64_t key, ExactNumber a) {
  if (a.e == 0) a.e = random_exponential(key, a.v);
  return a;
}

ExactNumber exact_exp(uint64_t key, ExactNumber a) {
  uint64_t e = e_or_filled(key, a);
  if (e == EXACT_MINUS_INF) return (ExactNumber){0, 0};
  if (e >= EXACT_PLUS_INF) return (ExactNumber){0, e};
  return (ExactNumber){e, 0};
}

ExactNumber exact_log(uint64_t key, ExactNumber a) {
  if (exact_is_infinite(a)) return a;
  if (a.v == 0) return with_e(0, EXACT_MINUS_INF, EXACT_FROM_LOG);
  uint64_t words[] = {UINT64_C(0x4c6f67), a.v};
  uint64_t v = a.v == 1 ? 0 : exact_hash(key, words, 2);
  return with_e(v, a.v, EXACT_FROM_LOG);
}

/* ---- other numbers ---- */

static bool is_one(ExactNumber a) {
  return a.v == 1 && a.e == 0;
}

/* x * 1 is x, as canonicalize has it.  An infinite operand stays what it is,
 * unless the other is an exact 0: the sign of a residue says nothing. */
ExactNumber exact_mul_e(ExactNumber a, ExactNumber b) {
  if (is_one(a)) return b;
  if (is_one(b)) return a;
  if (exact_is_nan(a) || exact_is_nan(b)) return (ExactNumber){0, EXACT_NAN};
  if (exact_is_infinite(a) || exact_is_infinite(b)) {
    if (exact_is_zero(a) || exact_is_zero(b)) return (ExactNumber){0, 0};
    return exact_is_infinite(a) ? a : b;
  }
  return (ExactNumber){residue_mul(a.v, b.v), 0};
}

ExactNumber exact_div(ExactNumber a, ExactNumber b) {
  if (exact_is_nan(b)) return b;
  if (exact_is_infinite(a) || is_one(b)) return a;
  if (exact_is_infinite(b)) return (ExactNumber){0, 0};
  return (ExactNumber){residue_mul(a.v, residue_inverse(b.v)), 0};
}

static int64_t signed_residue(uint64_t v) {
  return v <= EXACT_PRIME / 2 ? (int64_t)v : (int64_t)v - (int64_t)EXACT_PRIME;
}

static int64_t order_of(ExactNumber a) {
  uint64_t e = exact_e(a);
  if (e == EXACT_MINUS_INF) return INT64_MIN;
  return e >= EXACT_PLUS_INF ? INT64_MAX - (e == EXACT_PLUS_INF)
                             : signed_residue(a.v);
}

bool exact_is_above(ExactNumber a, ExactNumber b) {
  return order_of(a) > order_of(b);
}

bool exact_is_below(ExactNumber a, ExactNumber b) {
  if (exact_is_nan(a) || exact_is_nan(b)) return exact_is_above(a, b);
  return exact_is_above(b, a);
}

ExactNumber exact_integer(int64_t x) {
  int64_t p = (int64_t)EXACT_PRIME;
  int64_t v = x % p;
  return (ExactNumber){(uint64_t)(v < 0 ? v + p : v), 0};
}

double exact_to_integer(DType dtype, ExactNumber a) {
  if (dtype == DT_bool) return !exact_is_zero(a);
  int64_t x = signed_residue(a.v), most = INT64_C(1) << 40;
  bool is_integer = -most < x && x < most;
  return (double)dtype_integer(dtype,
                               is_integer ? (double)x : (double)(x & 63));
}

/* ---- constants ---- */

typedef struct Fraction {
  double a, b;
} Fraction;

/* The simplest fraction between low and high, 0 < low <= high (Stern-Brocot,
 * by continued fractions); b = 0 if it would be too long. */
static Fraction simplest_between(long double low, long double high, int depth) {
  long double whole = floorl(low);
  if (whole == low) return (Fraction){(double)whole, 1};
  if (whole + 1 <= high) return (Fraction){(double)whole + 1, 1};
  if (depth == 0) return (Fraction){0, 0};
  Fraction rest =
      simplest_between(1 / (high - whole), 1 / (low - whole), depth - 1);
  return (Fraction){(double)whole * rest.a + rest.b, rest.a};
}

/* Whether a fraction of few bits rounds to x, which has `digits` bits. */
static bool find_fraction(double x, int digits, ExactNumber *out) {
  int exponent;
  frexp(x, &exponent);
  long double half = ldexpl(1, exponent - digits - 1), size = fabs(x);
  Fraction found = simplest_between(size - half, size + half, 40);
  if (found.b == 0 || found.a * found.b >= 0x1p40) return false;
  uint64_t b = residue_inverse((uint64_t)found.b);
  out->v = residue_mul((uint64_t)found.a, b);
  if (x < 0) out->v = residue_neg(out->v);
  return true;
}

static int significant_bits(DType dtype) {
  static const int bits[] = {
#define DTYPE(name, bytes, class, c, safetensors, npy, digits, ...) digits,
#include "support/dtype.def"
  };
  return bits[dtype];
}

/* The constant of x >= 1. */
static uint64_t rounded_constant(DType dtype, double x) {
  ExactNumber y = {0, 0};
  double rounded = dtype_round(dtype, x);
  if (!isfinite(rounded)) rounded = x;
  if (find_fraction(rounded, significant_bits(dtype), &y)) return y.v;
  uint64_t bits;
  memcpy(&bits, &rounded, sizeof bits);
  return exact_hash(0, &bits, 1);
}

ExactNumber exact_constant(DType dtype, double x) {
  ExactNumber y = {0, 0};
  if (isinf(x))
    return (ExactNumber){0, x < 0 ? EXACT_MINUS_INF : EXACT_PLUS_INF};
  if (isnan(x)) return (ExactNumber){0, EXACT_NAN};
  if (x == rint(x) && fabs(x) < 0x1p40) return exact_integer((int64_t)x);
  DType narrow = dtype == DT_f64 ? DT_f32 : dtype;
  if (narrow == DT_f32 && find_fraction(x, 53, &y)) return y;
  bool is_small = fabs(x) < 1;
  y.v = rounded_constant(narrow, is_small ? 1 / fabs(x) : fabs(x));
  if (is_small) y.v = residue_inverse(y.v);
  if (x < 0) y.v = residue_neg(y.v);
  return y;
}
