/*
 * range_functions.h -- composed operators, losses and pointwise operators on
 * rows of N complex numbers in long double, written anew for
 * tests/unit/ranges.c, which says how they give derivatives.
 */
#ifndef TESTS_UNIT_RANGE_FUNCTIONS_H
#define TESTS_UNIT_RANGE_FUNCTIONS_H

#include <complex.h>
#include <math.h>

typedef long double Real;
typedef long double complex Z;

enum { B = 2, N = 6, ALL = B * N };

/* ---- functions of complex numbers ---- */

/* As CMPLXL, which not every compiler has: parts that are not finite stay. */
static inline Z complex_of(Real real, Real imaginary) {
  union {
    Real parts[2];
    Z z;
  } both = {{real, imaginary}};
  return both.z;
}

/* The function with this value and slope at the real part. */
static inline Z lift(Z z, Real value, Real slope) {
  return complex_of(value, cimagl(z) == 0 ? 0 : slope * cimagl(z));
}

static inline Z z_abs(Z z) {
  return creall(z) < 0 ? -z : z;
}

static inline Z z_log1p(Z z) {
  return lift(z, log1pl(creall(z)), 1 / (1 + creall(z)));
}

static inline Z z_exp(Z z) {
  return lift(z, expl(creall(z)), expl(creall(z)));
}

static inline Z z_log(Z z) {
  return lift(z, logl(creall(z)), 1 / creall(z));
}

static inline Z z_sqrt(Z z) {
  Real root = sqrtl(creall(z));
  return root > 0 ? lift(z, root, 0.5L / root) : 0;
}

static inline Real sigmoid(Real a) {
  return 1 / (1 + expl(-a));
}

static inline Z z_softplus(Z z) {
  Real a = creall(z);
  return lift(z, fmaxl(a, 0) + log1pl(expl(-fabsl(a))), sigmoid(a));
}

/* ---- rows of N elements ---- */

static inline Z row_sum(const Z *x) {
  Z sum = 0;
  for (int i = 0; i < N; i++) sum += x[i];
  return sum;
}

static inline Z row_norm(const Z *x, Real count) {
  Z sum = 0;
  for (int i = 0; i < N; i++) sum += x[i] * x[i];
  return sum / count;
}

static inline void centre(const Z *x, Z *y) {
  Z mean = row_sum(x) / N;
  for (int i = 0; i < N; i++) y[i] = x[i] - mean;
}

static inline Z variance(const Z *x) {
  Z y[N];
  centre(x, y);
  return row_norm(y, N - 1);
}

/* The index of the largest element. */
static inline int row_argmax(const Z *x) {
  int at = 0;
  for (int i = 1; i < N; i++)
    if (creall(x[i]) > creall(x[at])) at = i;
  return at;
}

static inline int row_argmin(const Z *x) {
  Z y[N];
  for (int i = 0; i < N; i++) y[i] = -x[i];
  return row_argmax(y);
}

static inline Real row_max(const Z *x) {
  return creall(x[row_argmax(x)]);
}

static inline Z sum_of_exp(const Z *x) {
  Z sum = 0;
  for (int i = 0; i < N; i++) sum += z_exp(x[i] - row_max(x));
  return sum;
}

static inline Z log_share(const Z *x, int i) {
  return (x[i] - row_max(x)) - z_log(sum_of_exp(x));
}

static inline Z product(const Z *x, int n) {
  Z y = 1;
  for (int i = 0; i < n; i++) y *= x[i];
  return y;
}

static inline Z dot_product(const Z *x, const Z *y) {
  Z sum = 0;
  for (int i = 0; i < N; i++) sum += x[i] * y[i];
  return sum;
}

static inline Z norm_or(const Z *x, Real least) {
  Z norm = z_sqrt(row_norm(x, 1));
  return creall(norm) > least ? norm : least;
}

static inline Z cosine(const Z *x, const Z *y) {
  return dot_product(x, y) / norm_or(x, 1e-8L) / norm_or(y, 1e-8L);
}

static inline Z huber(Z d) {
  Z a = z_abs(d);
  return creall(a) < 1 ? a * a / 2 : a - 0.5L;
}

#define LOG_OF_2 0.693147180559945309417232121458176568L

static inline Z partial_sum(const Z *x, int n) {
  Z sum = 0;
  for (int i = 0; i < n; i++) sum += x[i];
  return sum;
}

static inline Z rms(const Z *x, Real eps) {
  return z_sqrt(row_norm(x, N) + eps);
}

static inline Z layernorm(const Z *x, Real eps, int i) {
  Z y[N];
  centre(x, y);
  return y[i] / rms(y, eps);
}

/* 1 if fewer than `top` elements are larger than element `at`, else 0. */
static inline Z is_in_top(const Z *x, int at, int top) {
  int n = 0;
  for (int i = 0; i < N; i++) n += creall(x[i]) > creall(x[at]);
  return n < top;
}

/* N times the mean over the tokens of the expert that this row prefers: what
 * the row adds to the sum over experts of share times mean. */
static inline Z share_of_expert(const Z (*p)[N], int row) {
  Z sum = 0;
  for (int r = 0; r < B; r++) sum += p[r][row_argmax(p[row])];
  return N * (sum / B);
}

static inline Z square(Z x) {
  return x * x;
}

/* The mean of a function of the differences. */
static inline Z mean_of(Z (*f)(Z), const Z *x, const Z *y) {
  Z sum = 0;
  for (int i = 0; i < N; i++) sum += f(x[i] - y[i]);
  return sum / N;
}

/* 0 log 0 is 0. */
static inline Z times_log(Z y, Z log) {
  return creall(y) == 0 ? 0 : y * log;
}

/* Class i % N is the label of row i. */
static inline Z cross_entropy(const Z *x, int row, Real smooth) {
  Z loss = -(1 - smooth) * log_share(x, row % N);
  for (int i = 0; i < N && smooth > 0; i++)
    loss -= smooth / N * log_share(x, i);
  return loss;
}

static inline Z soft_cross_entropy(const Z *x, const Z *y) {
  Z loss = 0;
  for (int i = 0; i < N; i++) loss -= times_log(y[i], log_share(x, i));
  return loss;
}

static inline Z divergence(const Z *x, const Z *y) {
  Z sum = 0;
  for (int i = 0; i < N; i++)
    sum += times_log(y[i], creall(y[i]) == 0 ? 0 : z_log(y[i]) - x[i]);
  return sum;
}

static inline Z weighted_entropy(const Z *x, int row) {
  static const Real weight[B] = {0.5L, 2};
  return -weight[row] * log_share(x, row) / (weight[0] + weight[1]);
}

static inline Z bce(const Z *x, const Z *y, Real positive) {
  Z sum = 0;
  for (int i = 0; i < N; i++)
    sum += positive * y[i] * z_softplus(-x[i]) + (1 - y[i]) * z_softplus(x[i]);
  return sum / N;
}

/* The first class has the logit -inf and the probability 0. */
static inline Z masked_cross_entropy(const Z *x, const Z *y) {
  Z rest[N];
  for (int i = 0; i < N; i++) rest[i] = i > 0 ? x[i] : -INFINITY;
  Z loss = 0;
  for (int i = 1; i < N; i++) loss -= y[i] * log_share(rest, i);
  return loss;
}

static inline Z hardswish(Z z) {
  Real a = creall(z);
  if (a <= -3 || a >= 3) return a < 0 ? 0 : z;
  return lift(z, a * (a + 3) / 6, (2 * a + 3) / 6);
}

static inline Z gelu_tanh(Z z) {
  const Real k = 2 * 0.797884560802865355879892119868763737L;
  Real a = creall(z), u = k * (a + 0.044715L * a * a * a), s = sigmoid(u);
  Real rest = sigmoid(-u) * s;
  return lift(z, a * s,
              s + (rest > 0 ? a * rest * k * (1 + 0.134145L * a * a) : 0));
}

static inline Z gelu(Z z) {
  Real a = creall(z), share = 0.5L * erfcl(-a * sqrtl(0.5L));
  return lift(z, a * share,
              share + a * 0.398942280401432677939946059934381868L *
                          expl(-0.5L * a * a));
}

static inline Z silu(Z z) {
  Real a = creall(z), s = sigmoid(a);
  return lift(z, a * s, s + a * s * sigmoid(-a));
}

/* tanh of softplus is n / (n + 2) with n = e^a (e^a + 2). */
static inline Z mish(Z z) {
  Real a = creall(z), e = expl(fminl(a, 60)), n = e * (e + 2), t = n / (n + 2);
  return lift(z, a * t, t + a * sigmoid(a) * 4 * (n + 1) / (n + 2) / (n + 2));
}

static inline Z power(Z a, Z b) {
  Real x = creall(a), y = creall(b), value = powl(x, y);
  if (cimagl(b) == 0) return lift(a, value, y * powl(x, y - 1));
  return lift(b, value, value * logl(x));
}

static inline Z angle(Z a, Z b) {
  Real x = creall(a), y = creall(b), square = x * x + y * y;
  return complex_of(atan2l(x, y), (y * cimagl(a) - x * cimagl(b)) / square);
}

#endif
