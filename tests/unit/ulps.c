// links: codegen passes ir
/*
 * ulps.c -- measures the error of every pointwise operator in units of the last
 * place of f32: emitted C with the flags of a build and denormals flushed as
 * the runtime does it, and emitted CUDA through the shim, whose exp, log and
 * the like are those of libm and not of a GPU.
 *
 * Operands are drawn uniformly over bit patterns, and over a range where the
 * function is neither saturated nor near 0; special numbers are among them in
 * every combination.  A row of ops.def without a row here fails.
 *
 *     DNN_ULPS=1000000 build/test_ulps       as many operands; prints the table
 *
 * A denormal operand or result may count as 0 (docs/language.md).
 */
#include "tests/ops/kernels.h"

#include <float.h>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

TestSuite(ulps, .fini = modules_destroy, .timeout = 900);

typedef long double Real;

#define PI        3.14159265358979323846264338327950288L
#define SQRT_HALF 0.707106781186547524400844362104849039L

static Real gelu_tanh(Real a) {
  return a / (1 + expl(-2 * sqrtl(2 / PI) * (a + 0.044715L * a * a * a)));
}

static Real silu(Real a) {
  return a / (1 + expl(-a));
}

static Real softplus(Real a) {
  return fmaxl(a, 0) + log1pl(expl(-fabsl(a)));
}

/* tanh of softplus is n / (n + 2) with n = e^a (e^a + 2). */
static Real mish(Real a) {
  Real e = expl(a), n = e * (e + 2);
  return a > 60 ? a : a * (n / (n + 2));
}

static Real clamp(Real a, Real low, Real high) {
  return a < low ? low : a > high ? high : a;
}

static Real least(Real a, Real b) {
  return isnan(a) || isnan(b) ? NAN : a < b ? a : b;
}

/* ---- the table ---- */

/* ULPS(row of ops.def, most ulps, exact value, low, high): single functions
 * have at most 4, those of several 16; what is one operation of the processor
 * is rounded (0.5) or exact (0).  Operands are drawn from low..high too. */
#define ULPS_TABLE(ULPS)                                                       \
  ULPS(neg, 0, -a, -9, 9)                                                      \
  ULPS(abs, 0, fabsl(a), -9, 9)                                                \
  ULPS(relu, 0, isnan(a) ? a : fmaxl(a, 0), -9, 9)                             \
  ULPS(floor, 0, floorl(a), -99, 99)                                           \
  ULPS(round, 0, rintl(a), -99, 99)                                            \
  ULPS(sign, 0, (a > 0) - (a < 0), -9, 9)                                      \
  ULPS(stop_gradient, 0, a, -9, 9)                                             \
  ULPS(exp, 2, expl(a), -87, 88)                                               \
  ULPS(log, 2, logl(a), 0, 9)                                                  \
  ULPS(expm1, 3, expm1l(a), -9, 88)                                            \
  ULPS(log1p, 3, log1pl(a), -0.999999, 9)                                      \
  ULPS(exp2, 2, exp2l(a), -126, 127)                                           \
  ULPS(log2, 4, log2l(a), 0, 9)                                                \
  ULPS(sqrt, 0.5, sqrtl(a), 0, 9)                                              \
  ULPS(rsqrt, 1.5, 1 / sqrtl(a), 0, 9)                                         \
  ULPS(sin, 2, sinl(a), -99, 99)                                               \
  ULPS(cos, 2, cosl(a), -99, 99)                                               \
  ULPS(tan, 4, tanl(a), -99, 99)                                               \
  ULPS(tanh, 2.5, tanhl(a), -9, 9)                                             \
  ULPS(erf, 2, erfl(a), -4, 4)                                                 \
  ULPS(sigmoid, 4, 1 / (1 + expl(-a)), -87, 20)                                \
  ULPS(silu, 6, silu(a), -91, 20)                                              \
  ULPS(softplus, 4, softplus(a), -87, 20)                                      \
  ULPS(logsigmoid, 4, -softplus(-a), -20, 87)                                  \
  ULPS(mish, 8, mish(a), -91, 20)                                              \
  ULPS(hardsigmoid, 4, clamp((a + 3) / 6, 0, 1), -3.5L, 3.5L)                  \
  ULPS(hardswish, 4, a *clamp((a + 3) / 6, 0, 1), -3.5L, 3.5L)                 \
  ULPS(gelu, 12, a * 0.5L * erfcl(-a * SQRT_HALF), -13, 6)                     \
  ULPS(gelu_tanh, 8, gelu_tanh(a), -10, 6)                                     \
  ULPS(ceil, 0, ceill(a), -99, 99)                                             \
  ULPS(trunc, 0, truncl(a), -99, 99)                                           \
  ULPS(atan2, 3, atan2l(a, b), -9, 9)                                          \
  ULPS(elu, 4, a < 0 ? b * expm1l(a) : a, -9, 3)                               \
  ULPS(leaky_relu, 0.5, a > 0 ? a : a * b, -9, 9)                              \
  ULPS(add, 0.5, a + b, -9, 9)                                                 \
  ULPS(sub, 0.5, a - b, -9, 9)                                                 \
  ULPS(mul, 0.5, a *b, -9, 9)                                                  \
  ULPS(div, 0.5, a / b, -9, 9)                                                 \
  ULPS(pow, 2, powl(a, b), 0, 9)                                               \
  ULPS(minimum, 0, least(a, b), -9, 9)                                         \
  ULPS(maximum, 0, -least(-a, -b), -9, 9)

typedef struct Row {
  Op op;
  double most, low, high;
} Row;

static const Row table[] = {
#define ULPS(name, most, value, low, high) {OP_##name, most, low, high},
    ULPS_TABLE(ULPS)
#undef ULPS
};

static Real exact(Op op, Real a, Real b) {
  (void)b;
  switch (op) { /* flat switch */
#define ULPS(name, most, value, low, high)                                     \
  case OP_##name: return value;
    ULPS_TABLE(ULPS)
#undef ULPS
  default: UNREACHABLE();
  }
}

/* Operands for which the bound of the row does not hold on a back end. */
typedef struct Exception {
  const char *backend;
  Op op;
  double beyond; /* of |a| */
  const char *why;
} Exception;

static const Exception exceptions[] = {
    {"cpu", OP_sin, 1e5,
     "without fused multiply-adds k pi/2 is rounded, an error of |a| / 2^53; "
     "from 2^50 on neighbours lie 2^27 apart, and the result is that of 0"},
    {"cpu", OP_cos, 1e5, "as sin"},
    {"cpu", OP_tan, 1e5, "as sin"},
};

static bool is_exempt(const char *backend, Op op, Real a) {
  for (int i = 0; i < ARRAY_LENGTH(exceptions); i++)
    if (!strcmp(exceptions[i].backend, backend) && exceptions[i].op == op &&
        isfinite(a) && fabsl(a) > exceptions[i].beyond)
      return true;
  return false;
}

/* ---- the distance ---- */

static double distance(float got, Real wanted) {
  if (isnan(wanted) || isnan(got))
    return isnan(wanted) && isnan(got) ? 0 : INFINITY;
  if (fabsl(wanted) < (Real)FLT_MIN)
    return fabsf(got) <= FLT_MIN * 1.00001f ? 0 : INFINITY;
  if (isinf(got) || isinf(wanted)) {
    Real most = (Real)FLT_MAX * (1 - 16 * (Real)FLT_EPSILON);
    bool is_near = fabsl(wanted) >= most && fabsf(got) >= (float)most;
    return is_near && (got < 0) == (wanted < 0) ? 0 : INFINITY;
  }
  int exponent;
  frexpl(wanted, &exponent);
  return (double)(fabsl((Real)got - wanted) / ldexpl(1, exponent - 24));
}

/* ---- operands ---- */

enum { BLOCK = 4096 };

static const float specials[] = {
    NAN,      INFINITY,     -INFINITY, 0,        -0.0f,     1,
    -1,       0.5f,         -0.5,      2,        -2,        3,
    -3,       10,           -10,       17,       -17,       88,
    -88,      100,          -100,      104,      -104,      1e5f,
    -1e5,     0x1p24f,      -0x1p24f,  FLT_MAX,  -FLT_MAX,  FLT_MIN,
    -FLT_MIN, 1e-4f,        -1e-4f,    0x1p-24f, -0x1p-24f, 1.5f,
    -1.5f,    0.999999940f,
};

typedef enum Operands { FROM_bits, FROM_range, FROM_special } Operands;

/* Denormals are 0, as in the runtime. */
static float operand(const Row *row, Operands source, uint64_t n, int which) {
  uint64_t key = random_stream(11, (uint32_t)(row->op * 4 + which));
  int n_specials = ARRAY_LENGTH(specials);
  double u = random_uniform(key, n);
  if (source == FROM_range)
    return (float)(row->low + u * (row->high - row->low));
  if (source == FROM_special)
    return specials[(which ? n / (uint64_t)n_specials : n) %
                    (uint64_t)n_specials];
  uint32_t bits = (uint32_t)(random_uniform(key, 2 * n) * 65536) << 16 |
                  (uint32_t)(random_uniform(key, 2 * n + 1) * 65536);
  float x;
  memcpy(&x, &bits, 4);
  return fabsf(x) < FLT_MIN ? copysignf(0, x) : x;
}

/* ---- measuring ---- */

typedef struct Worst {
  double ulps;
  float a, b;
} Worst;

/* Flushes denormals as runtime/cpu/threads.c does for kernels. */
static unsigned flush_denormals(const Kernels *kernels) {
#if defined(__SSE__)
  unsigned kept = _mm_getcsr();
  if (kernels->backend != &backend_cuda) _mm_setcsr(kept | 0x8040);
  return kept;
#else
  (void)kernels;
  return 0;
#endif
}

static void restore(unsigned kept) {
#if defined(__SSE__)
  _mm_setcsr(kept);
#else
  (void)kept;
#endif
}

static void measure_block(Kernels *kernels, int job, const Row *row,
                          Operands source, uint64_t first, Worst *worst) {
  Arena *arena = arena_create(kernels->module->memory);
  const Graph *graph = kernels->jobs.data[job].graph;
  Tensor inputs[2] = {{0}};
  for (int i = 0; i < graph->inputs.n; i++) {
    inputs[i] =
        tensor_create(arena, graph_type(graph, graph->inputs.data[i].value));
    for (int k = 0; k < BLOCK; k++)
      inputs[i].data[k] = (double)operand(row, source, first + (uint64_t)k, i);
  }
  unsigned kept = flush_denormals(kernels);
  Tensor *y = kernels_run(kernels, job, inputs, arena);
  restore(kept);
  for (int k = 0; k < BLOCK; k++) {
    float a = (float)inputs[0].data[k];
    float b = inputs[1].data ? (float)inputs[1].data[k] : 0;
    if (is_exempt(kernels->backend->name, row->op, (Real)a)) continue;
    double ulps =
        distance((float)y[0].data[k], exact(row->op, (Real)a, (Real)b));
    if (!(ulps <= worst->ulps)) *worst = (Worst){ulps, a, b};
  }
  arena_destroy(arena);
}

static int add_row(Kernels *kernels, const Row *row) {
  const OpInfo *info = op_info(row->op);
  Graph *graph = make_graph(kernels->module);
  Value inputs[2];
  char type[20];
  snprintf(type, sizeof type, "f32 N:%d", BLOCK);
  for (int i = 0; i < info->max_inputs; i++)
    inputs[i] = make_input(graph, ROLE_data, i ? "b" : "a", type);
  make_output(graph, ROLE_metric, "y",
              make(graph, info->name, "", inputs, info->max_inputs));
  return kernels_add(kernels, graph, 2);
}

static void measure(Kernels *kernels, int job, const Row *row, uint64_t n,
                    bool prints) {
  static const char *const sources[] = {"bits", "range", "special"};
  const char *name = op_info(row->op)->name, *where = kernels->backend->name;
  for (int s = 0; s < 3; s++) {
    Worst worst = {0};
    uint64_t count = s == FROM_special ? 1 : n;
    for (uint64_t first = 0; first < count; first += BLOCK)
      measure_block(kernels, job, row, (Operands)s, first, &worst);
    cr_expect_leq(worst.ulps, row->most,
                  "%s, %s: %.2f ulps at (%.9g, %.9g), at most %g", where, name,
                  worst.ulps, (double)worst.a, (double)worst.b, row->most);
    if (prints && s == FROM_bits)
      printf("| %s | %s | %g |", name, where, row->most);
    if (prints) printf(" %.2f %s |", worst.ulps, sources[s]);
  }
  if (prints) printf("\n");
}

Test(ulps, every_pointwise_row) {
  Module *module = module_create();
  const char *wanted = getenv("DNN_ULPS");
  uint64_t n = wanted ? strtoull(wanted, NULL, 10) : 20000;
  const char *backends[] = {"cpu", "cuda"};
  for (int b = 0; b < 2; b++) {
    Kernels *kernels = kernels_create(module, backend_find(backends[b]));
    for (int i = 0; i < ARRAY_LENGTH(table); i++) add_row(kernels, &table[i]);
    kernels_compile(kernels);
    for (int i = 0; i < ARRAY_LENGTH(table); i++)
      measure(kernels, i, &table[i], n, wanted != NULL);
  }
}

/* Comparisons, choices and what is not real are exact by themselves. */
Test(ulps, every_row_is_in_the_table) {
  for (int op = 0; op < N_OPS; op++) {
    const OpInfo *info = op_info((Op)op);
    bool is_found = !info->is_pointwise ||
                    (info->pw_class != PW_ARITH && info->pw_class != PW_FLOAT);
    for (int i = 0; i < ARRAY_LENGTH(table) && !is_found; i++)
      is_found = table[i].op == (Op)op;
    cr_expect(is_found, "no exact value of %s in tests/unit/ulps.c",
              info->name);
  }
}

/* ---- sums ---- */

/* The largest relative error of sums of x * x over N. */
static double error_of_sums(const Backend *backend, const char *type) {
  Module *module = module_create();
  Kernels *kernels = kernels_create(module, backend);
  Graph *graph = make_graph(module);
  Value x = make_input(graph, ROLE_data, "x", type);
  Value square = make(graph, "mul", "", (Value[]){x, x}, 2);
  make_output(graph, ROLE_metric, "y", make1(graph, "sum", "over=N", square));
  kernels_add(kernels, graph, 2);
  kernels_compile(kernels);
  Tensor input = tensor_random(module->arena, make_type(module, type), 3, 0, 1);
  int64_t n = type_elements(input.type);
  for (int64_t i = 0; i < n; i++) input.data[i] = (double)(float)input.data[i];
  Tensor exact = *run(graph, INTERP_f64, &input);
  Tensor got = *kernels_run(kernels, 0, &input, module->arena);
  double worst = 0;
  for (int64_t i = 0; i < type_elements(got.type); i++)
    worst = fmax(worst, fabs(got.data[i] / exact.data[i] - 1));
  return worst;
}

/* No sum adds many numbers to one: rows, columns, and rows of several dims. */
Test(ulps, sums_of_many_elements) {
  static const struct {
    const char *type;
    double most;
  } sums[] = {{"f32 B:16 N:960", 3e-7},
              {"f32 B:16 N:960 C:64", 6e-7},
              {"f32 B:8 N:100000 C:3", 6e-7},
              {"f32 B:8 N:1000000", 3e-7}};
  for (int i = 0; i < ARRAY_LENGTH(sums); i++) {
    double error = error_of_sums(backend_find("cpu"), sums[i].type);
    cr_expect_leq(error, sums[i].most, "%s: %g", sums[i].type, error);
  }
}
