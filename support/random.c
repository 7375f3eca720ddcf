/*
 * random.c -- counter-based random numbers (Philox 4x32-10).
 *
 * A number is a pure function of (key, index), so that any rank can compute
 * any element.  The normal distribution uses Box-Muller over polynomials
 * written here: libm's last bits differ between machines, while +, *, / and
 * sqrt are exact by IEEE 754 (contraction is off in the build).
 */
#include "support/support.h"

#include <math.h>
#include <string.h>

void philox(uint64_t key, uint64_t counter_low, uint64_t counter_high,
            uint32_t out[4]) {
  uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
  uint32_t c[4] = {(uint32_t)counter_low, (uint32_t)(counter_low >> 32),
                   (uint32_t)counter_high, (uint32_t)(counter_high >> 32)};
  for (int round = 0; round < 10; round++) {
    uint64_t p0 = (uint64_t)0xD2511F53u * c[0];
    uint64_t p1 = (uint64_t)0xCD9E8D57u * c[2];
    uint32_t c1 = c[1], c3 = c[3];
    c[0] = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
    c[1] = (uint32_t)p1;
    c[2] = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
    c[3] = (uint32_t)p0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  memcpy(out, c, sizeof c);
}

uint64_t random_key(uint64_t seed, const char *path) {
  return hash_bytes(path, strlen(path), seed);
}

static double unit(uint32_t low, uint32_t high) {
  uint64_t bits = ((uint64_t)high << 32 | low) >> 11;
  return (double)bits * 0x1p-53;
}

double random_uniform(uint64_t key, uint64_t index) {
  uint32_t word[4];
  philox(key, index, 0, word);
  return unit(word[0], word[1]);
}

/* log x for normal positive x: with x = m 2^e and s = (m - 1) / (m + 1),
 * log m = 2 (s + s^3/3 + s^5/5 + ...), |s| < 0.172; error below 2e-16. */
static double own_log(double x) {
  uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  int exponent = (int)(bits >> 52) - 1022;
  bits = (bits & UINT64_C(0x000fffffffffffff)) | UINT64_C(0x3fe0000000000000);
  double m;
  memcpy(&m, &bits, sizeof m); /* in [0.5, 1) */
  if (m < 0.70710678118654752) {
    m = m * 2;
    exponent--;
  }
  double s = (m - 1) / (m + 1), s2 = s * s, sum = 0;
  for (int k = 23; k >= 1; k -= 2) sum = sum * s2 + 1.0 / k;
  return 2 * s * sum + exponent * 0.69314718055994531;
}

/* cos(2 pi x) for x in [0, 1): reduced to an eighth of a circle exactly, then
 * the Taylor series of sine or cosine. */
static double own_cos_turns(double x) {
  double quarters = x * 4;
  int nearest = (int)(quarters + 0.5);
  double a = (quarters - nearest) * 1.5707963267948966; /* |a| <= pi/4 */
  double a2 = a * a, sum = 1;
  bool is_sine = nearest % 2 == 1;
  for (int k = 18; k >= 2; k -= 2) {
    int odd = is_sine ? 1 : 0;
    sum = 1 - a2 / ((k + odd) * (k - 1 + odd)) * sum;
  }
  double value = is_sine ? a * sum : sum;
  /* cos(q pi/2 + a) for q = 0..4: cos, -sin, -cos, sin, cos */
  return nearest == 1 || nearest == 2 ? -value : value;
}

double random_normal(uint64_t key, uint64_t index) {
  uint32_t word[4];
  philox(key, index, 0, word);
  double u = 1 - unit(word[0], word[1]); /* in (0, 1] */
  return sqrt(-2 * own_log(u)) * own_cos_turns(unit(word[2], word[3]));
}

/* The high half of a 64 by 64 bit product: biased by at most n / 2^64. */
uint64_t random_below(uint64_t key, uint64_t index, uint64_t n) {
  ASSERT(n > 0);
  uint32_t word[4];
  philox(key, index, 0, word);
  uint64_t x_low = word[0], x_high = word[1];
  uint64_t n_low = (uint32_t)n, n_high = n >> 32;
  uint64_t middle = x_high * n_low + (x_low * n_low >> 32);
  uint64_t middle2 = x_low * n_high + (uint32_t)middle;
  return x_high * n_high + (middle >> 32) + (middle2 >> 32);
}
