// links: codegen frontend passes ir
/*
 * ranges.c -- measures composed operators, losses and gradients of pointwise
 * rows over the whole range of f32: values and gradients of emitted C and CUDA
 * against code of its own in long double.
 *
 * A row of the table is an expression of the language over `p` and `q`, each
 * [B, N], and the same function on complex numbers: with x + ih for x, the
 * imaginary part of the result is h times the derivative, to the last digit
 * (Squire and Trapp 1998).  The loss is the sum of y * w, so that the gradient
 * of the parameter w is y itself.
 *
 * The elements of p have one decimal exponent, -38 to 38; those of q the same,
 * 0, or they are probabilities.  The error of an element counts relative to the
 * largest element of its row.  What does not fit into f32 must be the infinity
 * or 0 that it rounds to, and only what is NaN in long double may be NaN.
 * Exponents at which an operator cannot hold this are rows of `limits`.
 *
 *     DNN_RANGES=100 build/test_ranges       100 draws; prints the table
 *     DNN_RANGE=std DNN_RANGES=100 ...       one row of it
 */
#include "frontend/frontend.h"
#include "tests/ops/kernels.h"
#include "tests/unit/range_functions.h"

#include <ctype.h>
#include <float.h>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

TestSuite(ranges, .fini = modules_destroy, .timeout = 900);

enum { LEAST = -38, MOST = 38 };

#define TOLERANCE 1e-4L

/* ---- the table ---- */

/* Where elements of q come from. */
typedef enum Second {
  NONE,
  ALIKE, /* with the exponent of p */
  UNIT,  /* with exponent 0 */
  SHARES /* probabilities; the first of a row is 0 */
} Second;

/* EACH(name, expression, q, value of element i of a row), ROW(..., value of a
 * row), LOSS(..., of which the value is the mean over the rows); x and z are
 * the row `r` of p and q. */
#define RANGES(EACH, ROW, LOSS, PW)                                            \
  ROW(sum, "sum(p, N)", NONE, row_sum(x))                                      \
  ROW(max, "max(p, N)", NONE, x[row_argmax(x)])                                \
  ROW(min, "min(p, N)", NONE, x[row_argmin(x)])                                \
  ROW(mean, "mean(p, N)", NONE, row_sum(x) / N)                                \
  ROW(var, "var(p, N)", NONE, variance(x))                                     \
  ROW(std, "std(p, N)", NONE, z_sqrt(variance(x)))                             \
  ROW(l2norm, "l2norm(p, N)", NONE, z_sqrt(row_norm(x, 1)))                    \
  ROW(prod, "prod(p, N)", NONE, product(x, N))                                 \
  EACH(cumsum, "cumsum(p, N)", NONE, partial_sum(x, i + 1))                    \
  EACH(cumprod, "cumprod(p, N)", NONE, product(x, i + 1))                      \
  ROW(logsumexp, "logsumexp(p, N)", NONE, row_max(x) + z_log(sum_of_exp(x)))   \
  EACH(softmax, "softmax(p, N)", NONE, z_exp(log_share(x, i)))                 \
  EACH(log_softmax, "log_softmax(p, N)", NONE, log_share(x, i))                \
  EACH(layernorm, "layernorm(p, N)", NONE, layernorm(x, 1e-5L, i))             \
  EACH(rmsnorm, "rmsnorm(p, N)", NONE, x[i] / rms(x, 1e-5L))                   \
  EACH(batchnorm, "batchnorm(p, N, m, s)", NONE, layernorm(x, 1e-5L, i))       \
  LOSS(balance, "balance(route(p, N, group = ()))", NONE,                      \
       share_of_expert(p, r))                                                  \
  LOSS(accuracy, "accuracy(p, iota(p, B), N)", NONE, is_in_top(x, r, 1))       \
  LOSS(accuracy_top, "accuracy(p, iota(p, B), N, top = 3)", NONE,              \
       is_in_top(x, r, 3))                                                     \
  LOSS(mse, "mse(p, q)", ALIKE, mean_of(square, x, z))                         \
  LOSS(l1, "l1(p, q)", ALIKE, mean_of(z_abs, x, z))                            \
  LOSS(huber, "huber(p, q)", ALIKE, mean_of(huber, x, z))                      \
  LOSS(bce, "bce(p, q)", SHARES, bce(x, z, 1))                                 \
  LOSS(bce_weighted, "bce(p, q, pos_weight = 3 * cast(iota(p, N) >= 0, f32))", \
       SHARES, bce(x, z, 3))                                                   \
  LOSS(kl, "kl(p, q, N)", SHARES, divergence(x, z))                            \
  LOSS(cosine, "cosine(p, q, N)", ALIKE, 1 - cosine(x, z))                     \
  LOSS(cosine_of_unit, "cosine(p, q, N)", UNIT, 1 - cosine(x, z))              \
  LOSS(cross_entropy, "cross_entropy(p, iota(p, B), N)", NONE,                 \
       cross_entropy(x, r, 0))                                                 \
  LOSS(cross_entropy_smooth, "cross_entropy(p, iota(p, B), N, smooth = 0.1)",  \
       NONE, cross_entropy(x, r, 0.1L))                                        \
  LOSS(cross_entropy_weight,                                                   \
       "cross_entropy(p, iota(p, B), N, weight = [0.5, 2, 1, 1, 1, 1])", NONE, \
       B *weighted_entropy(x, r))                                              \
  LOSS(cross_entropy_soft, "cross_entropy(p, q, N)", SHARES,                   \
       soft_cross_entropy(x, z))                                               \
  LOSS(cross_entropy_masked, "cross_entropy(mask(p, N > 0), q, N)", SHARES,    \
       masked_cross_entropy(x, z))                                             \
  PW(exp, z_exp(a))                                                            \
  PW(expm1, lift(a, expm1l(creall(a)), expl(creall(a))))                       \
  PW(log1p, z_log1p(a))                                                        \
  PW(exp2, lift(a, exp2l(creall(a)), exp2l(creall(a)) * LOG_OF_2))             \
  EACH(sqrt, "sqrt(abs(p))", NONE, z_sqrt(z_abs(x[i])))                        \
  EACH(rsqrt, "rsqrt(abs(p))", NONE, 1 / z_sqrt(z_abs(x[i])))                  \
  EACH(log, "log(abs(p))", NONE, z_log(z_abs(x[i])))                           \
  EACH(log2, "log2(abs(p))", NONE, z_log(z_abs(x[i])) / LOG_OF_2)              \
  PW(tanh, lift(a, tanhl(creall(a)),                                           \
                4 * sigmoid(2 * creall(a)) * sigmoid(-2 * creall(a))))         \
  PW(sigmoid,                                                                  \
     lift(a, sigmoid(creall(a)), sigmoid(creall(a)) * sigmoid(-creall(a))))    \
  PW(silu, silu(a))                                                            \
  PW(softplus, z_softplus(a))                                                  \
  PW(logsigmoid, -z_softplus(-a))                                              \
  PW(mish, mish(a))                                                            \
  PW(erf, lift(a, erfl(creall(a)),                                             \
               1.12837916709551257389615890312154517L *                        \
                   expl(-creall(a) * creall(a))))                              \
  PW(gelu, gelu(a))                                                            \
  PW(gelu_tanh, gelu_tanh(a))                                                  \
  PW(hardswish, hardswish(a))                                                  \
  PW(elu, creall(a) < 0 ? lift(a, expm1l(creall(a)), expl(creall(a))) : a)     \
  EACH(mul, "p * q", ALIKE, x[i] * z[i])                                       \
  EACH(div, "p / q", ALIKE, x[i] / z[i])                                       \
  EACH(div_unit, "p / q", UNIT, x[i] / z[i])                                   \
  EACH(pow_of, "pow(abs(p), 1.5)", NONE, power(z_abs(x[i]), 1.5L))             \
  EACH(pow_to, "pow(3.0, p)", NONE, power(3, x[i]))                            \
  EACH(atan2, "atan2(p, q)", ALIKE, angle(x[i], z[i]))                         \
  EACH(atan2_unit, "atan2(p, q)", UNIT, angle(x[i], z[i]))

typedef void ExactFn(const Z (*p)[N], const Z (*q)[N], Z *y);

#define EACH(name, expression, second, value)                                  \
  static void exact_##name(const Z(*p)[N], const Z(*q)[N], Z *y) {             \
    for (int r = 0; r < B; r++)                                                \
      for (int i = 0; i < N; i++) {                                            \
        const Z *x = p[r], *z = q[r];                                          \
        (void)z, y[r * N + i] = (value);                                       \
      }                                                                        \
  }
#define ROW(name, expression, second, value)                                   \
  static void exact_##name(const Z(*p)[N], const Z(*q)[N], Z *y) {             \
    for (int r = 0; r < B; r++) {                                              \
      const Z *x = p[r], *z = q[r];                                            \
      (void)z, y[r] = (value);                                                 \
    }                                                                          \
  }
#define LOSS(name, expression, second, value)                                  \
  static void exact_##name(const Z(*p)[N], const Z(*q)[N], Z *y) {             \
    *y = 0;                                                                    \
    for (int r = 0; r < B; r++) {                                              \
      const Z *x = p[r], *z = q[r];                                            \
      (void)x, (void)z, *y += (value) / B;                                     \
    }                                                                          \
  }
#define PW(name, value)                                                        \
  static void exact_##name(const Z(*p)[N], const Z(*q)[N], Z *y) {             \
    (void)q;                                                                   \
    for (int r = 0; r < B; r++)                                                \
      for (int i = 0; i < N; i++) {                                            \
        Z a = p[r][i];                                                         \
        y[r * N + i] = (value);                                                \
      }                                                                        \
  }
RANGES(EACH, ROW, LOSS, PW)
#undef EACH
#undef ROW
#undef LOSS
#undef PW

typedef struct Range {
  const char *name, *expression;
  Second second;
  int n_row, n_values; /* elements of a row of y, and all */
  ExactFn *exact;
} Range;

static const Range ranges[] = {
#define EACH(name, expression, second, value)                                  \
  {#name, expression, second, N, ALL, exact_##name},
#define ROW(name, expression, second, value)                                   \
  {#name, expression, second, 1, B, exact_##name},
#define LOSS(name, expression, second, value)                                  \
  {#name, expression, second, 1, 1, exact_##name},
#define PW(name, value) {#name, #name "(p)", NONE, N, ALL, exact_##name},
    RANGES(EACH, ROW, LOSS, PW)
#undef EACH
#undef ROW
#undef LOSS
#undef PW
};

/* Exponents at which the bound does not hold for values or gradients. */
typedef struct Limit {
  const char *name;
  bool of_values, of_gradients;
  int from, to;
  const char *why;
} Limit;

#define SUM_OVERFLOWS                                                          \
  "the sum of the elements, or of the losses, does not fit though the mean "   \
  "does, as in PyTorch"
#define SQUARES_OVERFLOW                                                       \
  "squares of 1e19 do not fit; the magnitude of a row would be one more pass " \
  "over it, which activations do not need"
#define NEAR_ONE                                                               \
  "a probability that is 1 to the last digit has the logarithm 0, and its "    \
  "difference from 1 is 0"
#define DENORMALS "differences of two elements are denormals, which count as 0"

static const Limit limits[] = {
    {"mean", true, false, 38, 38, SUM_OVERFLOWS},
    {"var", true, false, 19, 19, SUM_OVERFLOWS},
    {"var", true, true, 38, 38, SUM_OVERFLOWS},
    {"cumsum", true, false, 38, 38,
     "elements are added in another order, in which a sum does not fit"},
    {"cumprod", false, true, 7, 38,
     "the sum of several products that do not fit: inf - inf is NaN"},
    {"softmax", false, true, 0, 6,
     "y (g - sum(g y)) is a difference of equal numbers where a y is 1 to the "
     "last digit"},
    {"sigmoid", false, true, 1, 1,
     "y (1 - y) is 0 where y is 1 to the last digit; another exp would tell"},
    {"tanh", false, true, 0, 1, "1 - y y, as sigmoid"},
    {"layernorm", true, true, 19, 38, SQUARES_OVERFLOW},
    {"layernorm", true, true, -38, -34, DENORMALS},
    {"rmsnorm", true, true, 19, 38, SQUARES_OVERFLOW},
    {"batchnorm", true, true, 19, 38, SQUARES_OVERFLOW},
    {"batchnorm", true, true, -38, -34, DENORMALS},
    {"sum", true, false, 38, 38,
     "elements are added in another order, in which a sum does not fit"},
    {"balance", true, false, -38, -36, "means of two elements are denormals"},
    {"balance", true, false, 38, 38,
     "a mean that does not fit times a share of 0; those of probabilities fit"},
    {"mse", false, true, 38, 38, "a difference of 6e38 does not fit"},
    {"l1", true, false, 37, 38, SUM_OVERFLOWS},
    {"l1", false, true, -38, -36, DENORMALS},
    {"huber", true, false, 37, 38, SUM_OVERFLOWS},
    {"kl", true, false, 38, 38, SUM_OVERFLOWS},
    {"gelu", false, true, 1, 1, "1 + erf(a) is 0 of an a far below 0"},
    {"bce", true, false, 37, 38, SUM_OVERFLOWS},
    {"bce_weighted", true, false, 37, 38, SUM_OVERFLOWS},
    {"cross_entropy", true, true, 0, 4, NEAR_ONE},
    {"cross_entropy", true, false, 38, 38, SUM_OVERFLOWS},
    {"cross_entropy_smooth", true, false, 38, 38, SUM_OVERFLOWS},
    {"cross_entropy_weight", true, true, 0, 4, NEAR_ONE},
    {"cross_entropy_weight", true, false, 38, 38, SUM_OVERFLOWS},
    {"cross_entropy_soft", true, false, 38, 38, SUM_OVERFLOWS},
    {"cross_entropy_masked", true, false, 38, 38, SUM_OVERFLOWS},
};

static bool is_limited(const char *name, int exponent, bool of_values) {
  for (int i = 0; i < ARRAY_LENGTH(limits); i++) {
    const Limit *limit = &limits[i];
    if (!strcmp(limit->name, name) && exponent >= limit->from &&
        exponent <= limit->to &&
        (of_values ? limit->of_values : limit->of_gradients))
      return true;
  }
  return false;
}

/* ---- programs ---- */

static const Source *give(void *user, const char *path) {
  (void)path;
  return user;
}

/* The gradients of p, q and w, of which the last one is y. */
static Graph *range_graph(Module *module, const Range *range,
                          const Target *target) {
  Arena *arena = module->arena;
  const char *of_w = range->n_row == N ? "B, N" : "B";
  const char *states = strstr(range->expression, "batchnorm")
                           ? "  state m, s: [B] = ones\n"
                           : "";
  const char *text =
      arena_printf(arena,
                   "dim B = %d, N = %d\n"
                   "net loss_of(x: [B]) -> [] {\n"
                   "  param p, q: [B, N] = zeros\n"
                   "  param w: [%s] = zeros\n%s"
                   "  return sum((%s) * w) + 0 * (sum(q) + sum(x))\n"
                   "}\n"
                   "data d { x: [B] = synthetic() }\n"
                   "train {\n  loss = loss_of(d.x)\n"
                   "  optimizer = sgd(lr = 0.1)\n  steps = 1\n}\n",
                   B, N, of_w, states, range->expression);
  Source *source = ARENA_NEW(arena, Source);
  *source = (Source){"range.dnn", text, strlen(text)};
  FrontendOptions load = {.load = give, .user = source, .path = "range.dnn"};
  Model *model = frontend_load(module, &load).model;
  Text errors = text_create(arena);
  diags_print(module->diags, &errors);
  cr_assert(model, "%s: %s", range->name, text_string(&errors));
  PassContext ctx = {.module = module,
                     .scratch = arena_create(module->memory),
                     .target = target,
                     .model = model,
                     .is_training = true};
  PassOptions options = {
      .level = 2, .end = pass_end("autodiff"), .verify = true};
  return passes_run(&ctx, &options, model->train).graph;
}

/* ---- operands ---- */

typedef struct Operands {
  float p[ALL], q[ALL], w[ALL];
} Operands;

/* Between 1.2 and 3.3, of either sign: times 1e38 it fits into f32, and times
 * 1e-38 it is no denormal. */
static double mantissa(uint64_t key, int i) {
  double u = random_uniform(key, (uint64_t)(2 * i));
  double sign = random_uniform(key, (uint64_t)(2 * i + 1)) < 0.5 ? -1 : 1;
  return sign * (1.2 + 2.1 * u);
}

static Operands draw(const Range *range, int exponent, int number) {
  Operands o;
  double ten = pow(10, exponent);
  uint64_t key = random_stream(5, (uint32_t)(number * 3));
  uint64_t key_q = random_stream(5, (uint32_t)(number * 3 + 1));
  for (int i = 0; i < ALL; i++) {
    o.p[i] = (float)(mantissa(key, i) * ten);
    o.q[i] =
        range->second == SHARES
            ? (float)(i % N * 2.0 / (N * (N - 1)))
            : (float)(mantissa(key_q, i) * (range->second == ALIKE ? ten : 1));
    o.w[i] = (float)(1 + 0.125 * (i % 7));
  }
  return o;
}

/* ---- comparing ---- */

typedef struct Worst {
  Real error; /* relative to the largest element of the row */
  int exponent;
  Real wanted, got;
} Worst;

static Real error_of(float got, Real wanted, Real largest) {
  if (isnan(wanted) || isnan(got))
    return isnan(wanted) && isnan(got) ? 0 : INFINITY;
  Real most = (Real)FLT_MAX * (1 - TOLERANCE);
  if (fabsl(wanted) > most || isinf(got)) {
    bool is_large = fabsl(wanted) >= most && fabsf(got) >= (float)most;
    return is_large && (got < 0) == (wanted < 0) ? 0 : INFINITY;
  }
  Real away = fabsl((Real)got - wanted);
  return away <= 4 * (Real)FLT_MIN ? 0 : away / fminl(largest, FLT_MAX);
}

static void compare_row(const double *got, const Real *wanted, int n,
                        int exponent, Worst *worst) {
  Real largest = 0;
  for (int i = 0; i < n; i++) largest = fmaxl(largest, fabsl(wanted[i]));
  for (int i = 0; i < n; i++) {
    Real error = error_of((float)got[i], wanted[i], largest);
    if (!(error <= worst->error))
      *worst = (Worst){error, exponent, wanted[i], (Real)got[i]};
  }
}

/* The derivative of the loss by each element of `which`, p or q. */
static void exact_gradient(const Range *range, const Operands *o, bool of_q,
                           Real *out) {
  for (int k = 0; k < ALL; k++) {
    Z p[B][N], q[B][N], y[ALL];
    for (int i = 0; i < ALL; i++)
      p[i / N][i % N] = o->p[i], q[i / N][i % N] = o->q[i];
    Z *x = of_q ? &q[k / N][k % N] : &p[k / N][k % N];
    Real step = creall(*x) == 0 ? 1e-30L : 1e-30L * fabsl(creall(*x));
    *x = complex_of(creall(*x), step);
    range->exact((const Z(*)[N])p, (const Z(*)[N])q, y);
    out[k] = 0;
    int n = range->n_values == 1 ? B : range->n_values;
    for (int i = 0; i < n; i++)
      out[k] +=
          (Real)o->w[i] * (cimagl(y[range->n_values == 1 ? 0 : i]) / step);
  }
}

/* ---- running ---- */

/* Runs with denormals as runtime/cpu/threads.c sets them for kernels. */
static Tensor *run_flushed(Kernels *kernels, int job, const Tensor *inputs,
                           Arena *arena) {
#if defined(__SSE__)
  unsigned kept = _mm_getcsr();
  if (kernels->backend != &backend_cuda) _mm_setcsr(kept | 0x8040);
  Tensor *y = kernels_run(kernels, job, inputs, arena);
  _mm_setcsr(kept);
  return y;
#else
  return kernels_run(kernels, job, inputs, arena);
#endif
}

static void check_operands(Kernels *kernels, int job, const Range *range,
                           const Operands *o, int exponent, Worst *value,
                           Worst *slope) {
  Arena *arena = arena_create(kernels->module->memory);
  const Graph *graph = kernels->jobs.data[job].graph;
  Tensor *inputs = ARENA_ARRAY(arena, Tensor, graph->inputs.n);
  for (int i = 0; i < graph->inputs.n; i++) {
    const GraphInput *input = &graph->inputs.data[i];
    inputs[i] = tensor_create(arena, graph_type(graph, input->value));
    const float *from = !strcmp(input->path, "p")   ? o->p
                        : !strcmp(input->path, "q") ? o->q
                        : !strcmp(input->path, "w") ? o->w
                                                    : NULL;
    for (int k = 0; from && k < type_elements(inputs[i].type); k++)
      inputs[i].data[k] = (double)from[k];
  }
  Tensor *got = run_flushed(kernels, job, inputs, arena);
  Z p[B][N], q[B][N], y[ALL];
  for (int i = 0; i < ALL; i++)
    p[i / N][i % N] = o->p[i], q[i / N][i % N] = o->q[i];
  range->exact((const Z(*)[N])p, (const Z(*)[N])q, y);
  for (int i = 0; i < graph->outputs.n; i++) {
    const char *path = graph->outputs.data[i].path;
    Real wanted[ALL];
    if (graph->outputs.data[i].role != ROLE_grad) continue;
    if (!strcmp(path, "w")) {
      for (int k = 0; k < range->n_values; k++) wanted[k] = creall(y[k]);
      for (int k = 0; k < range->n_values; k += range->n_row)
        compare_row(got[i].data + k, wanted + k, range->n_row, exponent, value);
    } else if (*path == 'p' || range->second == ALIKE ||
               range->second == UNIT) {
      exact_gradient(range, o, *path == 'q', wanted);
      for (int k = 0; k < ALL; k += N)
        compare_row(got[i].data + k, wanted + k, N, exponent, slope);
    }
  }
  arena_destroy(arena);
}

static void print_worst(const Range *range, const char *where,
                        const Worst *value, const Worst *slope) {
  printf("| `%s` | %s |", range->expression, where);
  const Worst *both[] = {value, slope};
  for (int i = 0; i < 2; i++) {
    printf(" %.1Le |", both[i]->error);
    int n = 0;
    for (int k = 0; k < ARRAY_LENGTH(limits); k++)
      if (!strcmp(limits[k].name, range->name) &&
          (i == 0 ? limits[k].of_values : limits[k].of_gradients))
        printf("%s %d..%d", n++ ? "," : "", limits[k].from, limits[k].to);
    printf(" |");
  }
  printf("\n");
}

static void expect(const char *where, const char *what, const char *name,
                   const Worst *worst) {
  cr_expect(worst->error <= TOLERANCE,
            "%s, %s of %s: %Lg at 1e%d: %Lg, not %Lg", where, what, name,
            worst->error, worst->exponent, worst->got, worst->wanted);
}

static void check_range(Kernels *kernels, int job, const Range *range, int n,
                        bool prints) {
  const char *where = kernels->backend->name;
  Worst value = {0}, slope = {0}, ignored = {0};
  for (int exponent = LEAST; exponent <= MOST; exponent++)
    for (int number = 0; number < n; number++) {
      Operands o = draw(range, exponent, number);
      bool values = !is_limited(range->name, exponent, true);
      bool slopes = !is_limited(range->name, exponent, false);
      check_operands(kernels, job, range, &o, exponent,
                     values ? &value : &ignored, slopes ? &slope : &ignored);
    }
  expect(where, "values", range->name, &value);
  expect(where, "gradient", range->name, &slope);
  if (prints) print_worst(range, where, &value, &slope);
}

/* ---- every operator has a row ---- */

#define MOVES      "moves elements"
#define POINTWISE  "one pointwise operator, which test_ulps measures"
#define PRODUCTS   "sums of products, in the dtype that the model gives them"
#define NO_NUMBERS "its results are integers or bools"
#define NO_OPERAND "its results depend on no number of the operand"
#define COUNTS     "counts hits of argmax, as accuracy; the run divides them in f64"

/* Operators of the language without a row in the sweep, and why. */
static const struct {
  const char *name, *why;
} exceptions[] = {
    {"select", MOVES},
    {"leaky_relu", POINTWISE},
    {"dropout", "a product with a constant or 0"},
    {"normal", NO_OPERAND},
    {"uniform", NO_OPERAND},
    {"bernoulli", NO_OPERAND},
    {"dot", PRODUCTS},
    {"conv", PRODUCTS},
    {"conv_transpose", PRODUCTS},
    {"maxpool", MOVES},
    {"avgpool", "means, as mean"},
    {"adaptive_avgpool", "means, as mean"},
    {"resize", PRODUCTS},
    {"upsample", PRODUCTS},
    {"any", NO_NUMBERS},
    {"all", NO_NUMBERS},
    {"argmax", NO_NUMBERS},
    {"argmin", NO_NUMBERS},
    {"gather", MOVES},
    {"scatter_add", "a sum, as sum"},
    {"one_hot", NO_NUMBERS},
    {"topk", MOVES},
    {"sort", MOVES},
    {"argsort", NO_NUMBERS},
    {"concat", MOVES},
    {"split", MOVES},
    {"stack", MOVES},
    {"unstack", MOVES},
    {"slice", MOVES},
    {"pad", MOVES},
    {"shift", MOVES},
    {"reverse", MOVES},
    {"size", NO_NUMBERS},
    {"dispatch", MOVES},
    {"combine", PRODUCTS},
    {"add_loss", "a statement"},
    {"perplexity", "cross_entropy, of whose mean the run takes exp in f64"},
    {"precision", COUNTS},
    {"recall", COUNTS},
    {"f1_score", COUNTS},
    {"mean_iou", COUNTS},
    {"confusion", COUNTS},
};

/* A call of the operator, not of one whose name ends alike. */
static bool calls(const char *expression, const char *name) {
  size_t n = strlen(name);
  for (const char *at = expression; (at = strstr(at, name)) != NULL; at += n) {
    bool begins = at == expression || !(at[-1] == '_' || isalnum(at[-1]));
    if (begins && at[n] == '(') return true;
  }
  return false;
}

Test(ranges, every_operator_has_a_row_or_a_reason) {
  static const char *const names[] = {
#define BUILTIN(name, params, mapped, function) #name,
#include "frontend/operators/builtins.def"
  };
  for (int i = 0; i < ARRAY_LENGTH(names); i++) {
    bool is_swept = false;
    int n = 0;
    for (int k = 0; k < ARRAY_LENGTH(ranges); k++)
      is_swept |= calls(ranges[k].expression, names[i]);
    for (int k = 0; k < ARRAY_LENGTH(exceptions); k++)
      n += !strcmp(exceptions[k].name, names[i]);
    cr_expect(is_swept + n == 1, "'%s' has %s row in the sweep, %d exceptions",
              names[i], is_swept ? "a" : "no", n);
  }
}

Test(ranges, values_and_gradients) {
  const char *wanted = getenv("DNN_RANGES"), *only = getenv("DNN_RANGE");
  int n = wanted ? atoi(wanted) : 1;
  const char *backends[] = {"cpu", "cuda"};
  for (int b = 0; b < 2; b++) {
    Module *module = module_create();
    const Backend *backend = backend_find(backends[b]);
    Kernels *kernels = kernels_create(module, backend);
    for (int i = 0; i < ARRAY_LENGTH(ranges); i++)
      kernels_add(kernels, range_graph(module, &ranges[i], &backend->target),
                  2);
    kernels_compile(kernels);
    for (int i = 0; i < ARRAY_LENGTH(ranges); i++)
      if (!only || !strcmp(only, ranges[i].name))
        check_range(kernels, i, &ranges[i], n, wanted != NULL);
  }
}

/* ---- rows of the lowest finite number ---- */

/* Expressions of a row that is all the lowest finite number of a dtype, and of
 * one whose last element is 0, as a padding mask makes them. */
#define LOW_ROWS(LOW)                                                          \
  LOW(logsumexp, "cast(logsumexp(cast(p, %s), N), f32)")                       \
  LOW(softmax, "cast(softmax(cast(p, %s), N), f32)")                           \
  LOW(log_softmax, "cast(log_softmax(cast(p, %s), N), f32)")                   \
  LOW(cross_entropy, "cross_entropy(cast(p, %s), iota(p, B), N)")

static const Range *find_range(const char *name) {
  for (int i = 0; i < ARRAY_LENGTH(ranges); i++)
    if (!strcmp(ranges[i].name, name)) return &ranges[i];
  UNREACHABLE();
}

static void check_low_rows(Kernels *kernels, int job, const Range *range,
                           DType dtype) {
  static const double lowest[] = {
      [DT_f32] = -FLT_MAX, [DT_bf16] = -0x1.fep127, [DT_f16] = -65504};
  Operands o = {.q = {0}};
  for (int i = 0; i < ALL; i++) {
    o.p[i] = i == ALL - 1 ? 0 : (float)lowest[dtype];
    o.w[i] = (float)(1 + 0.125 * (i % 7));
  }
  Worst value = {0}, slope = {0};
  check_operands(kernels, job, range, &o, 38, &value, &slope);
  Real most = dtype == DT_f32 ? TOLERANCE : 0.01L;
  const char *where = kernels->backend->name;
  cr_expect(value.error <= most && slope.error <= most,
            "%s, low rows of %s, %s: values %Lg (%Lg, not %Lg), gradient %Lg "
            "(%Lg, not %Lg)",
            where, range->name, dtype_name(dtype), value.error, value.got,
            value.wanted, slope.error, slope.got, slope.wanted);
}

Test(ranges, rows_of_the_lowest_number) {
  static const DType dtypes[] = {DT_f32, DT_bf16, DT_f16};
  static const struct {
    const char *name, *format;
  } rows[] = {
#define LOW(name, format) {#name, format},
      LOW_ROWS(LOW)
#undef LOW
  };
  const char *backends[] = {"cpu", "cuda"};
  for (int b = 0; b < 2; b++) {
    Module *module = module_create();
    const Backend *backend = backend_find(backends[b]);
    Kernels *kernels = kernels_create(module, backend);
    Range low[ARRAY_LENGTH(rows) * 3];
    int n = 0;
    for (int i = 0; i < ARRAY_LENGTH(rows); i++)
      for (int d = 0; d < 3; d++, n++) {
        low[n] = *find_range(rows[i].name);
        Text text = text_create(module->arena);
        const char *at = strstr(rows[i].format, "%s");
        text_printf(&text, "%.*s%s%s", (int)(at - rows[i].format),
                    rows[i].format, dtype_name(dtypes[d]), at + 2);
        low[n].expression = text_string(&text);
        kernels_add(kernels, range_graph(module, &low[n], &backend->target), 2);
      }
    kernels_compile(kernels);
    for (int i = 0; i < n; i++)
      check_low_rows(kernels, i, &low[i], dtypes[i % 3]);
  }
}

/* Scores of -3e38, or of -2e10 where elements are f16, are no mask: a query
 * sees all keys alike.  Tensor cores compute those of 16 bits on CUDA.  What is
 * saved of a row is its maximum + log(sum), or both apart. */
static void check_low_attention(const Backend *backend, DType dtype,
                                bool is_relative) {
  static const char *const shapes[] = {"T:4 D:8", "S:4 D:8", "S:4 D:8"};
  static const char *const names[] = {"q", "k", "v"};
  double q = dtype == DT_f16 ? -0x1.cp15 : -0x1.cp62;
  double k = dtype == DT_f16 ? 0x1p15 : 0x1p62;
  Module *module = module_create();
  Kernels *kernels = kernels_create(module, backend);
  Graph *graph = make_graph(module);
  Value inputs[3];
  Tensor data[3];
  for (int i = 0; i < 3; i++) {
    const char *type =
        arena_printf(module->arena, "%s %s", dtype_name(dtype), shapes[i]);
    inputs[i] = make_input(graph, ROLE_data, names[i], type);
    data[i] = tensor_create(module->arena, make_type(module, type));
    for (int j = 0; j < 32; j++)
      data[i].data[j] = i == 0 ? q : i == 1 ? k : j / 8;
  }
  Value o = make(graph, "attention",
                 arena_printf(module->arena,
                              "over=D query=T key=S scale=0.5 causal=0%s",
                              is_relative ? " relative=1" : ""),
                 inputs, 3);
  double wanted[] = {1.5, q * k * 4, 4};
  int n = is_relative ? 3 : 2;
  for (int i = 0; i < n; i++)
    make_output(graph, ROLE_metric, arena_printf(module->arena, "o%d", i),
                (Value){o.node, i});
  kernels_add(kernels, graph, 2);
  kernels_compile(kernels);
  Tensor *y = kernels_run(kernels, 0, data, module->arena);
  for (int i = 0; i < n; i++)
    for (int j = 0; j < type_elements(y[i].type); j++)
      cr_expect_eq(y[i].data[j], wanted[i], "%s, %s, result %d: %g",
                   backend->name, dtype_name(dtype), i, y[i].data[j]);
}

Test(ranges, attention_of_low_scores) {
  static const DType dtypes[] = {DT_f32, DT_bf16, DT_f16};
  const char *backends[] = {"cpu", "cuda"};
  for (int i = 0; i < 12; i++)
    check_low_attention(backend_find(backends[i % 2]), dtypes[i / 2 % 3],
                        i >= 6);
}
