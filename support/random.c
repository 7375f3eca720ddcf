/*
 * random.c -- counter-based random numbers (Philox 4x32-10).
 *
 * A number is a pure function of (key, index), so that any rank can compute
 * any element.  The normal distribution uses Box-Muller over polynomials
 * written here: libm's last bits differ between machines, while +, *, / and
 * sqrt are exact by IEEE 754 (contraction is off in the build).
 */
#include "support/random_code.h"
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

/* The functions below compute n values at once, so that one does not wait for
 * the steps of another; n is a constant wherever they are called. */
#define INLINE static inline __attribute__((always_inline))
enum { AT_ONCE = 16 };

/* log x for normal positive x: with x = m 2^e and s = (m - 1) / (m + 1),
 * log m = 2 (s + s^3/3 + s^5/5 + ...), |s| < 0.172; error below 2e-16. */
INLINE void own_logs(int n, const double *x, double *out) {
  double s[AT_ONCE], s2[AT_ONCE], sum[AT_ONCE], exponent[AT_ONCE];
  for (int i = 0; i < n; i++) {
    uint64_t bits;
    memcpy(&bits, &x[i], sizeof bits);
    exponent[i] = (int)(bits >> 52) - 1022;
    bits = (bits & UINT64_C(0x000fffffffffffff)) | UINT64_C(0x3fe0000000000000);
    double m;
    memcpy(&m, &bits, sizeof m); /* in [0.5, 1) */
    bool is_small = m < 0.70710678118654752;
    m = is_small ? m * 2 : m;
    exponent[i] -= is_small ? 1 : 0;
    s[i] = (m - 1) / (m + 1);
    s2[i] = s[i] * s[i];
    sum[i] = 0;
  }
  for (int k = 23; k >= 1; k -= 2)
    for (int i = 0; i < n; i++) sum[i] = sum[i] * s2[i] + 1.0 / k;
  for (int i = 0; i < n; i++)
    out[i] = 2 * s[i] * sum[i] + exponent[i] * 0.69314718055994531;
}

/* cos(2 pi x) for x in [0, 1): reduced to an eighth of a circle exactly, then
 * the Taylor series of sine or cosine. */
INLINE void own_cos_turns(int n, const double *x, double *out) {
  double a[AT_ONCE], a2[AT_ONCE], sum[AT_ONCE], odd[AT_ONCE], sign[AT_ONCE];
  for (int i = 0; i < n; i++) {
    double quarters = x[i] * 4;
    int nearest = (int)(quarters + 0.5);
    a[i] = (quarters - nearest) * 1.5707963267948966; /* |a| <= pi/4 */
    a2[i] = a[i] * a[i];
    odd[i] = nearest % 2; /* the sine is wanted */
    /* cos(q pi/2 + a) for q = 0..4: cos, -sin, -cos, sin, cos */
    sign[i] = nearest == 1 || nearest == 2 ? -1 : 1;
    sum[i] = 1;
  }
  for (int k = 18; k >= 2; k -= 2)
    for (int i = 0; i < n; i++)
      sum[i] = 1 - a2[i] / ((k + odd[i]) * (k - 1 + odd[i])) * sum[i];
  for (int i = 0; i < n; i++)
    out[i] = sign[i] * (odd[i] > 0 ? a[i] * sum[i] : sum[i]);
}

INLINE void normals(int n, uint64_t key, uint64_t first, double *out) {
  double u[AT_ONCE], turns[AT_ONCE], logs[AT_ONCE], cosines[AT_ONCE];
  for (int i = 0; i < n; i++) {
    uint32_t word[4];
    philox(key, first + (uint64_t)i, 0, word);
    u[i] = 1 - unit(word[0], word[1]); /* in (0, 1] */
    turns[i] = unit(word[2], word[3]);
  }
  own_logs(n, u, logs);
  own_cos_turns(n, turns, cosines);
  for (int i = 0; i < n; i++) out[i] = sqrt(-2 * logs[i]) * cosines[i];
}

double random_normal(uint64_t key, uint64_t index) {
  double value;
  normals(1, key, index, &value);
  return value;
}

void random_normals(uint64_t key, uint64_t first, int64_t n, double *out) {
  int64_t i = 0;
  for (; i + AT_ONCE <= n; i += AT_ONCE)
    normals(AT_ONCE, key, first + (uint64_t)i, out + i);
  for (; i < n; i++) out[i] = random_normal(key, first + (uint64_t)i);
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

/* ---- numbers of a step ---- */

static inline long long bits_of(double x) {
  long long bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

#define DNN_FN             static inline
#define DNN_SQRT_RN(x)     sqrtf(x)
#define DNN_DOUBLE_BITS(x) bits_of(x)
DNN_UNIFORM_CODE
DNN_NORMAL_CODE

float random_uniform_of_step(uint64_t key, uint64_t step, uint64_t index) {
  uint32_t words[4];
  philox(key, index, step, words);
  return dnn_uniform_of(words[0]);
}

float random_normal_of_step(uint64_t key, uint64_t step, uint64_t index) {
  uint32_t words[4];
  philox(key, index, step, words);
  return dnn_normal_of(words[0], words[1]);
}
