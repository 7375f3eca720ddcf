/*
 * gelu.h -- holds the text of gelu and its tanh form in f32, for the preludes
 * of C and CUDA.
 *
 * x Phi(x) loses all digits below -5 if Phi is 1 + erf.  This text computes the
 * small tail instead, as h^2 P(1 / (1 + 0.3 |x|)) with h = exp(-x^2 / 4) and a
 * polynomial P, by Remez's exchange; the square root h of the Gaussian does not
 * underflow before the result does.  Exponents are up to 87, so that their
 * rounding errors would be that many ulps of the result: a second float carries
 * them along (DNN_LOW, the error of a multiplication).  Errors: 9 and 6 ulps.
 *
 * The reader defines DNN_FN, SEL, DNN_EXPF and DNN_LOW(a, b, p) = a b - p.
 */
#ifndef CODEGEN_GELU_H
#define CODEGEN_GELU_H

#define DNN_GELU_TEXT                                                          \
  "DNN_FN float dnn_geluf(float a) {\n"                                        \
  "  float z = fabsf(a);\n"                                                    \
  "  z = SEL(z > 30.0f, 30.0f, z);\n"                                          \
  "  float s = z * z;\n"                                                       \
  "  float h = DNN_EXPF(-0.25f * s);\n"                                        \
  "  h = h - h * (0.25f * DNN_LOW(z, z, s));\n"                                \
  "  float t = 1.0f / (0.3f * z + 1.0f);\n"                                    \
  "  float p = 3.83782797e-2f;\n"                                              \
  "  p = p * t + -1.69166088e-1f;\n"                                           \
  "  p = p * t + 2.28660062e-1f;\n"                                            \
  "  p = p * t + -7.65065253e-2f;\n"                                           \
  "  p = p * t + 1.42535612e-1f;\n"                                            \
  "  p = p * t + 9.46834683e-2f;\n"                                            \
  "  p = p * t + 1.21920362e-1f;\n"                                            \
  "  p = p * t + 1.19487688e-1f;\n"                                            \
  "  p = p * t + 7.16910790e-6f;\n"                                            \
  "  float y = SEL(a > 0.0f, 1.0f - (p * h) * h, h);\n"                        \
  "  y = SEL(a > 0.0f, a * y, (a * y) * (p * h));\n"                           \
  "  return SEL(a > 14.0f, a, y);\n"                                           \
  "}\n" /* 0.5 (1 + tanh(u / 2)) is 1 / (1 + exp(-u)); u = 2 sqrt(2 / pi)      \
         * (z + 0.044715 z^3) is w z, w and the product in two parts. */       \
  "DNN_FN float dnn_gelu_tanhf(float a) {\n"                                   \
  "  float z = fabsf(a);\n"                                                    \
  "  z = SEL(z > 30.0f, 30.0f, z);\n"                                          \
  "  float s = z * z, q = s * 7.13548139e-2f;\n"                               \
  "  float low = DNN_LOW(s, 7.13548139e-2f, q);\n"                             \
  "  low = low + DNN_LOW(z, z, s) * 7.13548139e-2f;\n"                         \
  "  float w = q + 1.59576917f, v = w - q;\n"                                  \
  "  low = low + ((q - (w - v)) + (1.59576917f - v));\n"                       \
  "  low = low + -4.53406804e-8f + s * 2.39883240e-9f;\n"                      \
  "  float u = w * z;\n"                                                       \
  "  low = DNN_LOW(w, z, u) + low * z;\n"                                      \
  "  float h = DNN_EXPF(-0.5f * u);\n"                                         \
  "  h = h - h * (0.5f * low);\n"                                              \
  "  return SEL(a > 0.0f, a, a * h * h) / (1.0f + h * h);\n"                   \
  "}\n"

/* In f64 from libraries; x is written several times. */
#define DNN_GELU_F64 "(0.5 * (x) * erfc((x) * -0.7071067811865476))"
#define DNN_GELU_TANH_F64                                                      \
  "((x) / (1 + exp(-1.5957691216057308 * ((x) + 0.044715 * (x) * (x) * "       \
  "(x)))))"

#endif
