// links: codegen passes ir
/*
 * special.c -- tests every operator on NaN, infinities and zeros of both signs:
 * in the interpreter, in emitted C with the flags of a build and in emitted
 * CUDA on the CPU, at -O0 and -O2.
 *
 * Values and gradients of pointwise rows are those of PyTorch as
 * tests/reference/special.py recorded them, but for the rows of `differences`.
 * Other operators have a rule: a NaN among the operands makes NaN every result
 * that another number in its place would change.  Both walk the tables, so a
 * new row is checked, and fails without records or a case.
 */
#include "tests/ops/kernels.h"

#include <float.h>

#include "ir/ops/grad.h"

TestSuite(special, .fini = modules_destroy, .timeout = 900);

/* ---- what PyTorch recorded ---- */

enum { MAX_RECORDS = 400, MAX_COLUMNS = 7 };

/* Operands, value, gradients; an empty field is NO_GRADIENT. */
typedef struct Records {
  int n;
  double at[MAX_COLUMNS][MAX_RECORDS];
  bool is_there[MAX_COLUMNS][MAX_RECORDS];
} Records;

static void read_line(Records *records, char *line) {
  ASSERT(records->n < MAX_RECORDS);
  char *rest = line;
  strsep(&rest, ",");
  for (int i = 0; rest && i < MAX_COLUMNS; i++) {
    const char *field = strsep(&rest, ",");
    records->is_there[i][records->n] = *field != '\0';
    records->at[i][records->n] = (double)strtof(field, NULL);
  }
  records->n++;
}

static const Records *records_of(Arena *arena, const char *text, Op op) {
  Records *records = ARENA_NEW(arena, Records);
  const char *name = op_info(op)->name;
  char *copy = arena_strdup(arena, text), *rest = copy, *line;
  while ((line = strsep(&rest, "\n"))) {
    size_t n = strlen(name);
    if (!strncmp(line, name, n) && line[n] == ',') read_line(records, line);
  }
  return records;
}

static const char *recorded_text(Arena *arena) {
  const char *bytes;
  size_t n;
  Status status = file_read(arena, TEST_ROOT "/tests/reference/special.csv",
                            1 << 24, &bytes, &n);
  cr_assert_eq(status.code, STATUS_ok, "%s", status.message);
  return arena_printf(arena, "%.*s", (int)n, bytes);
}

/* ---- where we are not PyTorch ---- */

typedef struct Difference {
  const char *op;
  int column;  /* 0: the value, 1..: the gradient of that operand */
  double a, b; /* operands; ANY */
  double ours;
  const char *why;
} Difference;

#define ANY 12345.0

static const Difference differences[] = {
    {"gelu", 0, INFINITY, ANY, INFINITY,
     "the limit; PyTorch's erf is NaN there"},
    {"gelu", 0, FLT_MAX, ANY, FLT_MAX,
     "PyTorch's product with sqrt 2 overflows"},
    {"gelu_tanh", 1, INFINITY, ANY, 1, "the limit; inf * 0 in PyTorch"},
    {"gelu_tanh", 1, -INFINITY, ANY, 0, "the limit; inf * 0 in PyTorch"},
    {"gelu_tanh", 1, FLT_MAX, ANY, 1, "PyTorch's square overflows"},
    {"gelu_tanh", 1, -FLT_MAX, ANY, 0, "PyTorch's square overflows"},
    {"hardswish", 0, FLT_MAX, ANY, FLT_MAX, "PyTorch's product overflows"},
    {"atan2", 1, ANY, INFINITY, 0, "the limit; inf * 0 in PyTorch"},
    {"atan2", 1, ANY, -INFINITY, 0, "the limit; inf * 0 in PyTorch"},
    {"atan2", 2, INFINITY, ANY, 0, "the limit; inf * 0 in PyTorch"},
    {"atan2", 2, -INFINITY, ANY, 0, "the limit; inf * 0 in PyTorch"},
    {"rsqrt", 1, -0.0, ANY, -INFINITY, "from below there is no derivative"},
};

static bool is_operand(double wanted, double x) {
  return (wanted == ANY && isfinite(x)) || (isnan(wanted) && isnan(x)) ||
         (wanted == x && signbit(wanted) == signbit(x));
}

static double wanted_of(const Records *records, Op op, int column, int row) {
  const OpInfo *info = op_info(op);
  for (int i = 0; i < ARRAY_LENGTH(differences); i++) {
    const Difference *d = &differences[i];
    if (!strcmp(d->op, info->name) && d->column == column &&
        is_operand(d->a, records->at[0][row]) &&
        (info->max_inputs < 2 || is_operand(d->b, records->at[1][row])))
      return d->ours;
  }
  return records->at[info->max_inputs + column][row];
}

/* ---- comparing ---- */

/* Which of two equal zeros a maximum takes is open. */
static bool has_signed_zero(Op op) {
  return op != OP_maximum && op != OP_minimum;
}

/* A number this far below every normal number of a model counts as 0, because
 * kernels may flush it.  The accuracy of finite results is tested by ulps.c. */
static bool is_same(Op op, int column, double got, double wanted) {
  if (isnan(got) || isnan(wanted)) return isnan(got) && isnan(wanted);
  if (isinf(got) || isinf(wanted)) return got == wanted;
  if (got == 0 && wanted == 0 && column == 0 && has_signed_zero(op))
    return signbit(got) == signbit(wanted);
  return fabs(got - wanted) <= 1e-5 * fmax(1, fabs(wanted));
}

/* Neighbours lie many turns apart: emitted C takes the angle for 0. */
static bool is_beyond(Op op, double a) {
  return (op == OP_sin || op == OP_cos || op == OP_tan) && isfinite(a) &&
         fabs(a) > 0x1p50;
}

static void check(const char *where, const Records *records, Op op, int column,
                  const Tensor *got) {
  const OpInfo *info = op_info(op);
  for (int row = 0; row < records->n; row++) {
    double wanted = wanted_of(records, op, column, row);
    if (is_beyond(op, records->at[0][row])) {
      cr_expect_leq(fabs(got->data[row]), op == OP_tan ? 10 : 1);
      continue;
    }
    cr_expect(is_same(op, column, got->data[row], wanted),
              "%s, %s: column %d of (%g, %g) is %.9g, not %.9g", where,
              info->name, column, records->at[0][row],
              info->max_inputs > 1 ? records->at[1][row] : 0, got->data[row],
              wanted);
  }
}

/* ---- pointwise rows ---- */

typedef struct PointCase {
  Op op;
  const Records *records;
  Graph *graph;
  Tensor *inputs;
  int n_columns, column[4]; /* of each output */
  int job[2][2];            /* by back end and level */
} PointCase;

static bool takes_reals(const OpInfo *info) {
  return info->is_pointwise && info->pw_class != PW_LOGIC &&
         info->pw_class != PW_INTEGER;
}

/* y = op(a, b, c) and its gradients, where it has any and PyTorch too. */
static void make_point_case(Module *module, PointCase *test) {
  const OpInfo *info = op_info(test->op);
  const Records *records = test->records;
  Graph *graph = test->graph = make_graph(module);
  Value inputs[3], grads[3];
  int n = info->max_inputs;
  test->inputs = ARENA_ARRAY(module->arena, Tensor, 4);
  for (int i = 0; i <= n; i++) {
    bool is_bool = info->pw_class == PW_SELECT && i == 0;
    char path[] = {(char)('a' + i), '\0'}, type[40];
    snprintf(type, sizeof type, "%s N:%d", is_bool ? "bool" : "f32",
             records->n);
    Value input = make_input(graph, ROLE_data, path, type);
    test->inputs[i] = tensor_create(module->arena, graph_type(graph, input));
    for (int row = 0; row < records->n; row++)
      test->inputs[i].data[row] = i < n ? records->at[i][row] : 1;
    inputs[i < n ? i : 0] = i < n ? input : inputs[0];
    if (i < n) continue;
    Value y = make(graph, info->name, "", inputs, n);
    make_output(graph, ROLE_metric, "y", y);
    test->column[test->n_columns++] = 0;
    if (dtype_class(graph_type(graph, y)->dtype) != CLASS_FLOAT) return;
    info->grad(graph, y.node, &input, grads);
    for (int k = 0; k < n; k++) {
      if (!value_is(grads[k]) || !records->is_there[n + 1 + k][0]) continue;
      char path[] = {'d', (char)('a' + k), '\0'};
      test->column[test->n_columns++] = 1 + k;
      make_output(graph, ROLE_metric, path, grads[k]);
    }
  }
}

Test(special, pointwise_rows_are_as_in_pytorch) {
  Module *module = module_create();
  Arena *arena = module->arena;
  const Backend *backends[] = {backend_find("cpu"), backend_find("cuda")};
  Kernels *kernels[2];
  PointCase *cases = ARENA_ARRAY(arena, PointCase, N_OPS);
  const char *text = recorded_text(arena);
  int n = 0;
  for (int b = 0; b < 2; b++) kernels[b] = kernels_create(module, backends[b]);
  for (int op = 0; op < N_OPS; op++) {
    if (!takes_reals(op_info((Op)op))) continue;
    PointCase *test = &cases[n++];
    test->op = (Op)op;
    test->records = records_of(arena, text, (Op)op);
    cr_assert_gt(test->records->n, 0,
                 "no records of %s: run tests/reference/special.py",
                 op_info((Op)op)->name);
    make_point_case(module, test);
    for (int b = 0; b < 2; b++)
      for (int level = 0; level < 2; level++)
        test->job[b][level] = kernels_add(kernels[b], test->graph, level * 2);
  }
  for (int b = 0; b < 2; b++) kernels_compile(kernels[b]);
  for (int i = 0; i < n; i++) {
    const PointCase *test = &cases[i];
    Tensor *y = run(test->graph, INTERP_f32, test->inputs);
    for (int o = 0; o < test->n_columns; o++)
      check("interpreter", test->records, test->op, test->column[o], &y[o]);
    for (int b = 0; b < 2; b++)
      for (int level = 0; level < 2; level++) {
        y = kernels_run(kernels[b], test->job[b][level], test->inputs, arena);
        const char *where =
            arena_printf(arena, "%s -O%d", backends[b]->name, level * 2);
        for (int o = 0; o < test->n_columns; o++)
          check(where, test->records, test->op, test->column[o], &y[o]);
      }
  }
}

/* ---- other operators ---- */

/* The rule does not hold for operators that choose elements by their values:
 * a NaN moves others. They have tests of their own below. */
static bool has_own_rule(Op op) {
  bool chooses = op_is(op, OPCLASS_indexing) && !op_has(op, OP_FLAG_lookup);
  return chooses || op == OP_maxpool_grad;
}

typedef struct SpreadCase {
  const char *label;
  Op op;
  Graph *graph;
  Tensor *inputs;
  int job[2][2];
} SpreadCase;

/* Where a product with 0, as with padding and with masked keys, is left out in
 * one place and made in another, and statistics that are joined otherwise: a
 * NaN may reach more than the rule says. */
static bool may_reach_more(Op op) {
  return op == OP_conv || op == OP_conv_weight_grad || op == OP_attention ||
         op == OP_attention_grad || op == OP_batchnorm;
}

/* Results that a finite change of an element moves are NaN where the element
 * is. */
static void check_spread(const char *where, const SpreadCase *test,
                         const Tensor *plain, const Tensor *moved,
                         const Tensor *got) {
  for (int o = 0; o < test->graph->outputs.n && !has_own_rule(test->op); o++) {
    const Type *type = plain[o].type;
    if (dtype_class(type->dtype) != CLASS_FLOAT) continue;
    for (int64_t k = 0; k < type_elements(type); k++)
      if (plain[o].data[k] != moved[o].data[k])
        cr_expect(isnan(got[o].data[k]), "%s, %s: result %d, element %ld is %g",
                  where, test->label, o, (long)k, got[o].data[k]);
  }
}

static void check_equal(const char *where, const SpreadCase *test,
                        const Tensor *got, const Tensor *wanted) {
  if (may_reach_more(test->op)) return;
  for (int o = 0; o < test->graph->outputs.n; o++)
    for (int64_t k = 0; k < type_elements(wanted[o].type); k++) {
      double x = got[o].data[k], y = wanted[o].data[k];
      bool is_real = dtype_class(wanted[o].type->dtype) == CLASS_FLOAT;
      cr_expect(is_real ? !isnan(x) == !isnan(y) : x == y,
                "%s, %s: result %d, element %ld is %g, not %g", where,
                test->label, o, (long)k, x, y);
    }
}

static const char *const places[2][2] = {{"cpu -O0", "cpu -O2"},
                                         {"cuda -O0", "cuda -O2"}};

static void run_spread(Kernels *const *kernels, const SpreadCase *test, int i,
                       int64_t at) {
  Arena *arena = arena_create(test->graph->module->memory);
  double *element = &test->inputs[i].data[at], kept = *element;
  const Tensor *plain = run(test->graph, INTERP_f64, test->inputs);
  *element = kept + 0.5;
  const Tensor *moved = run(test->graph, INTERP_f64, test->inputs);
  *element = NAN;
  const Tensor *wanted = run(test->graph, INTERP_f64, test->inputs);
  check_spread("interpreter", test, plain, moved, wanted);
  for (int b = 0; b < 2; b++)
    for (int level = 0; level < 2; level++) {
      const Tensor *got =
          kernels_run(kernels[b], test->job[b][level], test->inputs, arena);
      check_spread(places[b][level], test, plain, moved, got);
      check_equal(places[b][level], test, got, wanted);
    }
  *element = kept;
  arena_destroy(arena);
}

static void add_spread(SpreadCase *test, Kernels *const *kernels,
                       const OpCase *item) {
  Module *module = kernels[0]->module;
  test->label = arena_printf(module->arena, "%s {%s}", item->op, item->attrs);
  cr_assert(op_find(item->op, &test->op));
  test->graph = op_case_graph(module, item, "f32");
  test->inputs = op_case_inputs(
      test->graph, hash_bytes(test->label, strlen(test->label), 0));
  for (int b = 0; b < 2; b++)
    for (int level = 0; level < 2; level++)
      test->job[b][level] = kernels_add(kernels[b], test->graph, level * 2);
}

Test(special, nan_reaches_what_it_moves) {
  Module *module = module_create();
  Kernels *kernels[2] = {kernels_create(module, backend_find("cpu")),
                         kernels_create(module, backend_find("cuda"))};
  SpreadCase *cases =
      ARENA_ARRAY(module->arena, SpreadCase, ARRAY_LENGTH(op_cases));
  int n = 0;
  for (int i = 0; i < ARRAY_LENGTH(op_cases); i++)
    if (op_case_takes(&op_cases[i], "f32") && op_cases[i].inputs[0])
      add_spread(&cases[n++], kernels, &op_cases[i]);
  for (int b = 0; b < 2; b++) kernels_compile(kernels[b]);
  for (int c = 0; c < n; c++)
    for (int i = 0; i < cases[c].graph->inputs.n; i++) {
      const Type *type = cases[c].inputs[i].type;
      int64_t last = type_elements(type) - 1;
      if (dtype_class(type->dtype) != CLASS_FLOAT) continue;
      run_spread(kernels, &cases[c], i, 0);
      if (last > 0) run_spread(kernels, &cases[c], i, last);
      if (last > 1) run_spread(kernels, &cases[c], i, last * 3 / 5);
    }
}

/* The outputs of a graph, one after the other, on every back end. */
static void expect_graph(Graph *graph, const Tensor *inputs,
                         const double *wanted) {
  Module *module = graph->module;
  const char *name = op_info(graph->nodes.data[graph->nodes.n - 1]->op)->name;
  for (int b = 0; b < 3; b++)
    for (int level = 0; level < 2; level++) {
      Tensor *y = run(graph, INTERP_f32, inputs);
      if (b < 2) {
        Kernels *kernels =
            kernels_create(module, backend_find(b == 0 ? "cpu" : "cuda"));
        int job = kernels_add(kernels, graph, level * 2);
        kernels_compile(kernels);
        y = kernels_run(kernels, job, inputs, module->arena);
      }
      const double *at = wanted;
      for (int o = 0; o < graph->outputs.n; o++)
        for (int64_t k = 0; k < type_elements(y[o].type); k++, at++)
          cr_expect(is_same(OP_max, 0, y[o].data[k], *at),
                    "%s, %s: result %d, element %ld is %g, not %g",
                    b < 2 ? places[b][level] : "interpreter", name, o, (long)k,
                    y[o].data[k], *at);
    }
}

static void expect_rows(const char *op, const char *attrs, const char *type,
                        const double *x, const double *wanted) {
  Module *module = module_create();
  OpCase item = {.op = op, .attrs = attrs, .inputs = {type}};
  Tensor input = tensor_of(module->arena, make_type(module, type), x);
  expect_graph(op_case_graph(module, &item, "f32"), &input, wanted);
}

#define EXPECT_ROWS(op, attrs, type, x, ...)                                   \
  expect_rows(op, attrs, type, x, (const double[]){__VA_ARGS__})

#define N NAN
#define I INFINITY

static const double rows[] = {1, 3, 2, N, 9, N, -I, -I, -I, I, -I, N, I, 1, 0};

/* Extrema are those of torch.max, min, argmax, logsumexp and topk. */
Test(special, a_nan_is_the_extremum) {
  EXPECT_ROWS("max", "over=C", "f32 A:5 C:3", rows, 3, N, -I, N, I);
  EXPECT_ROWS("min", "over=C", "f32 A:5 C:3", rows, 1, N, -I, N, 0);
  EXPECT_ROWS("argmax", "dim=C", "f32 A:5 C:3", rows, 1, 0, 0, 2, 0);
  EXPECT_ROWS("logsumexp", "over=C", "f32 A:5 C:3", rows, 3.40760596, N, -I, N,
              I);
  EXPECT_ROWS("topk", "dim=C to=J sizes=2", "f32 A:5 C:3", rows, 3, 2, N, N, -I,
              -I, N, I, I, 1, /* positions */ 1, 2, 0, 2, 0, 1, 2, 0, 0, 1);
}

/* Sorting is that of torch.sort(stable=True): NaN comes last, equal elements
 * keep their order. */
Test(special, sorted_rows_end_with_nan) {
  EXPECT_ROWS("sort", "dim=C", "f32 A:5 C:3", rows, 1, 2, 3, 9, N, N, -I, -I,
              -I, -I, I, N, 0, 1, I, /* indices */ 0, 2, 1, 1, 0, 2, 0, 1, 2, 1,
              0, 2, 2, 1, 0);
}

/* A row of -inf gives 0, where PyTorch gives NaN: a query that sees no key. */
Test(special, softmax_of_infinities) {
  EXPECT_ROWS("softmax", "over=C", "f32 A:5 C:3", rows, 0.0900305733,
              0.665240943, 0.244728476, N, N, N, 0, 0, 0, N, N, N, N, N, N);
}

/* The gradient goes to the first NaN, of a window too, padded or not. */
Test(special, gradient_of_a_maximum_that_is_nan) {
  static const double x[] = {1, N, 2, N, 5, 4}, ones[] = {1, 1, 1};
  Module *module = module_create();
  Graph *graph = make_graph(module);
  Value in[3] = {make_input(graph, ROLE_data, "x", "f32 C:6"), VALUE_NONE,
                 make_input(graph, ROLE_data, "g", "f32 C:3")};
  Value g = make_input(graph, ROLE_data, "h", "f32"), out;
  Tensor inputs[] = {
      tensor_of(module->arena, graph_type(graph, in[0]), x),
      tensor_of(module->arena, graph_type(graph, in[2]), ones),
      tensor_of(module->arena, graph_type(graph, g), ones),
  };
  const char *pool = "space=C window=3 stride=2 pad=1";
  in[1] = make(graph, "maxpool", pool, in, 1);
  make_output(graph, ROLE_metric, "y", in[1]);
  make_output(graph, ROLE_metric, "dx",
              make(graph, "maxpool_grad", pool, in, 3));
  Value max = make1(graph, "max", "over=C", in[0]);
  op_info(OP_max)->grad(graph, max.node, &g, &out);
  make_output(graph, ROLE_metric, "dmax", out);
  const double wanted[] = {N,
                           N,
                           N,
                           /* dx */ 0,
                           2,
                           0,
                           1,
                           0,
                           0,
                           /* dmax */ 0,
                           1,
                           0,
                           0,
                           0,
                           0};
  expect_graph(graph, inputs, wanted);
}
