/*
 * random_code.h -- holds the random numbers of graphs as code, which the
 * compiler's own functions are built from and the preludes of C and CUDA hold
 * as text: every plan and device computes the same bits.
 *
 * A normal number is Box-Muller's: a radius sqrt(-2 log U) times the sine of an
 * angle.  Logarithm and sine are polynomials over integers (Chebyshev
 * interpolants, errors below 1e-8), which no compiler reorders, fuses or
 * rounds otherwise; what remains are a conversion, a square root and a
 * multiplication, which IEEE 754 rounds exactly.  The last conversion keeps the
 * multiplication from being contracted with what follows.
 *
 * The reader defines DNN_FN, DNN_SQRT_RN (a square root rounded to nearest) and
 * DNN_DOUBLE_BITS(x), the bits of a double as long long.
 */
#ifndef SUPPORT_RANDOM_CODE_H
#define SUPPORT_RANDOM_CODE_H

#define DNN_CODE_STRING(...) #__VA_ARGS__
#define DNN_CODE_TEXT(...)   DNN_CODE_STRING(__VA_ARGS__) "\n"

/* clang-format off */

/* [0, 1), a multiple of 2^-24. */
#define DNN_UNIFORM_CODE                                                       \
  DNN_FN float dnn_uniform_of(unsigned a) {                                    \
    return (float)(int)(a >> 8) * 5.9604644775390625e-08f;                     \
  }

/* U = m / 2^31 with m odd, m = 2^e t: log t of 1.5 + g / 2^32; 46516320 is
 * 2 log 2 in units of 2^-25.  The sine of pi / 2 times v / 2^31 with v odd. */
#define DNN_NORMAL_CODE                                                        \
  DNN_FN int dnn_high(int a, int b) {                                          \
    return (int)(((long long)a * b) >> 32);                                    \
  }                                                                            \
  DNN_FN float dnn_normal_of(unsigned a, unsigned b) {                         \
    double m = (double)(int)((a >> 1) | 1u);                                   \
    long long bits = DNN_DOUBLE_BITS(m);                                       \
    int e = (int)(bits >> 52) - 1023;                                          \
    int g = (int)((unsigned)(bits >> 20) ^ 0x80000000u);                       \
    int p = dnn_high(8058699, g) - 13210183;                                   \
    p = dnn_high(p, g) + 17465436;                                             \
    p = dnn_high(p, g) - 30791355;                                             \
    p = dnn_high(p, g) + 56614356;                                             \
    p = dnn_high(p, g) - 106106347;                                            \
    p = dnn_high(p, g) + 212094648;                                            \
    p = dnn_high(p, g) - 477216755;                                            \
    p = dnn_high(p, g) + 1431655797;                                           \
    p = dnn_high(p, g) + 870729680;                                            \
    int square = (31 - e) * 46516320 - (p >> 5);                               \
    square = square > 0 ? square : 0;                                          \
    float radius = DNN_SQRT_RN((float)square * 2.98023223876953125e-08f);      \
    int v = (int)b;                                                            \
    v = (int)(0x7fffffffu - 2u * (unsigned)(v ^ (v >> 31)));                   \
    int q = dnn_high(v, v);                                                    \
    int s = dnn_high(162860, q) * 4 - 5018831;                                 \
    s = dnn_high(s, q) * 4 + 85566403;                                         \
    s = dnn_high(s, q) * 4 - 693598306;                                        \
    s = dnn_high(s, q) * 4 + 1686629706;                                       \
    double sine = (double)dnn_high(s, v) * 1.862645149230957e-09;              \
    return (float)((double)radius * sine);                                     \
  }

/* clang-format on */

#endif
