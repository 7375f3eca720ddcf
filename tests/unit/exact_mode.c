// links: interp ir
/*
 * exact_mode.c -- exact mode keeps the identities that it promises and no
 * others: every operator against f64 on integers, linearity of linear rows,
 * hashes of all other rows, exp and log, softmax under any shift, attention
 * merged from parts, and every decomposition against its operator.
 */
#include "tests/ops/cases.h"
#include "tests/unit/exact_run.h"

TestSuite(exact_mode, .fini = modules_destroy, .timeout = 100);

static bool is_float(const Tensor *tensor) {
  return dtype_class(tensor->type->dtype) == CLASS_FLOAT;
}

/* ---- residues and constants ---- */

static void check_inverse(uint64_t a) {
  cr_assert_eq(residue_mul(a, residue_inverse(a)), 1, "%lu", (unsigned long)a);
}

Test(exact_mode, residues_form_a_field) {
  for (uint64_t i = 1; i < 200; i++) {
    check_inverse(i);
    check_inverse(EXACT_PRIME - i);
    check_inverse(exact_hash(i, NULL, 0));
  }
  cr_assert_eq(residue_pow(3, EXACT_PRIME - 1), 1);
  cr_assert_eq(residue_mul(EXACT_PRIME - 1, EXACT_PRIME - 1), 1);
}

static uint64_t fraction(int64_t a, int64_t b) {
  return residue_mul(exact_integer(a).v, residue_inverse((uint64_t)b));
}

Test(exact_mode, constants_are_the_simplest_fractions) {
  cr_assert_eq(exact_constant(DT_f32, -0.1).v, fraction(-1, 10));
  cr_assert_eq(exact_constant(DT_f32, (float)0.1).v, fraction(1, 10));
  cr_assert_eq(exact_constant(DT_f64, (float)0.1).v, fraction(1, 10));
  cr_assert_eq(exact_constant(DT_f64, 1 - 0.9).v, fraction(1, 10));
  cr_assert_eq(exact_constant(DT_bf16, 0.10009765625).v, fraction(1, 10));
  cr_assert_eq(exact_constant(DT_f32, 1e-5).v, fraction(1, 100000));
  cr_assert_eq(exact_constant(DT_f32, 1.0 / 50257).v, fraction(1, 50257));
  cr_assert_eq(exact_constant(DT_f32, -7).v, EXACT_PRIME - 7);
  uint64_t root = exact_constant(DT_f32, sqrt(2)).v;
  cr_assert_eq(residue_mul(root, exact_constant(DT_f64, 1 / sqrt(2)).v), 1);
  cr_assert_eq(exact_constant(DT_f32, -sqrt(2)).v, residue_neg(root));
  uint64_t top = exact_constant(DT_f32, 3e38).v;
  cr_assert_neq(top, exact_constant(DT_f32, 2e38).v);
  cr_assert_eq(top, exact_constant(DT_f64, (float)3e38).v);
}

/* Else trust ratios of lamb and lars would be 1 for most seeds. */
Test(exact_mode, roots_are_positive) {
  for (uint64_t i = 1; i < 100; i++) {
    ExactNumber a = {exact_hash(i, NULL, 0), 0}, root = exact_sqrt(i, a);
    cr_expect(exact_is_above(root, (ExactNumber){0}));
    cr_expect_eq(residue_mul(exact_rsqrt(i, a).v, root.v), 1);
  }
}

/* ---- every case of cases.def ---- */

/* Rows whose value on integers is no fraction. */
static bool is_hashed_row(Op op) {
  return op_is(op, OPCLASS_normalisation) || op == OP_logsumexp ||
         op == OP_attention || op == OP_attention_grad;
}

/* Cubic weights are longer fractions than exact_constant finds. */
static bool is_long_fraction(const OpCase *item) {
  return strcmp(item->op, "resize") == 0 && strstr(item->attrs, "window=2");
}

/* Small integers as floats: f64 computes polynomials of them without rounding
 * and ratios to the nearest double. */
static void check_on_integers(const OpCase *item, bool has_second_prime) {
  Module *module = module_create();
  Graph *graph = op_case_graph(module, item, "f64");
  Numbers numbers = exact_numbers(exact_seeds[0]);
  numbers.has_second_prime = has_second_prime;
  Tensor *inputs = op_case_inputs(graph, 5);
  Tensor *exact = ARENA_ARRAY(module->arena, Tensor, graph->inputs.n);
  for (int i = 0; i < graph->inputs.n; i++) {
    int64_t n = type_elements(inputs[i].type);
    for (int64_t k = 0; k < n && is_float(&inputs[i]); k++)
      inputs[i].data[k] = floor(fmod(inputs[i].data[k] * 1.5, 100));
    for (int64_t k = 0; k < n; k++)
      if (isnan(inputs[i].data[k])) inputs[i].data[k] = 3;
    exact[i] = numbers_create(&numbers, module->arena, inputs[i].type);
    numbers_from_doubles(&numbers, inputs[i].type->dtype,
                         tensor_array(&exact[i]), inputs[i].data, n);
  }
  Tensor *wanted = run(graph, INTERP_f64, inputs);
  Tensor *got = ARENA_ARRAY(module->arena, Tensor, graph->outputs.n);
  interp_run_in(graph, &numbers, module->arena, exact, got, NULL);
  for (int r = 0; r < graph->outputs.n; r++) {
    Tensor want = numbers_create(&numbers, module->arena, wanted[r].type);
    numbers_from_doubles(&numbers, wanted[r].type->dtype, tensor_array(&want),
                         wanted[r].data, type_elements(want.type));
    int64_t at = exact_difference(&want, &got[r]);
    cr_assert(at < 0, "%s %s: result %d [%ld] is not %.17g", item->op,
              item->attrs, r, (long)at, wanted[r].data[at < 0 ? 0 : at]);
  }
  modules_destroy();
}

typedef struct Seeded {
  int n_floats, n_differing;
} Seeded;

/* Checks that equal seeds give equal numbers; two seeds do not, but for a
 * softmax or norm of one element. */
static void check_seeds(const OpCase *item, Seeded *seeded) {
  Module *module = module_create();
  Graph *graph = op_case_graph(module, item, "f32");
  Tensor *a = exact_run(graph, 1), *again = exact_run(graph, 1);
  Tensor *b = exact_run(graph, 2);
  for (int r = 0; r < graph->outputs.n; r++) {
    cr_assert_lt(exact_difference(&a[r], &again[r]), 0, "%s", item->op);
    if (!is_float(&a[r]) || graph->inputs.n == 0) continue;
    seeded->n_floats++;
    seeded->n_differing += exact_difference(&a[r], &b[r]) >= 0;
  }
  modules_destroy();
}

Test(exact_mode, cases_compute_what_f64_does_on_integers) {
  int n = (int)(sizeof op_cases / sizeof *op_cases);
  bool is_seen[N_OPS] = {false};
  Seeded seeded = {0};
  for (int i = 0; i < n; i++) {
    Op op;
    cr_assert(op_find(op_cases[i].op, &op));
    is_seen[op] = true;
    for (int prime = 0; prime < 2; prime++)
      if (!is_hashed_row(op) && !is_long_fraction(&op_cases[i]) &&
          op_case_takes(&op_cases[i], "f64"))
        check_on_integers(&op_cases[i], prime == 1);
    if (op_case_takes(&op_cases[i], "f32")) check_seeds(&op_cases[i], &seeded);
  }
  cr_assert_gt(seeded.n_differing, seeded.n_floats - 8, "%d of %d",
               seeded.n_differing, seeded.n_floats);
  for (int op = 0; op < N_OPS; op++)
    cr_assert(is_seen[op] || op_info((Op)op)->is_pointwise ||
                  op_case_exempt((Op)op),
              "%s has no case", op_info((Op)op)->name);
}

/* ---- linear rows, and hashed ones ---- */

static void add_tensors(const Tensor *into, const Tensor *from) {
  for (int64_t k = 0; k < type_elements(into->type); k++)
    into->exact[k] = exact_add(0, into->exact[k], from->exact[k]);
}

static Tensor copy_of(const Graph *graph, Tensor from) {
  Numbers numbers = exact_numbers(0);
  Tensor to = numbers_create(&numbers, graph->module->arena, from.type);
  numbers_copy(&numbers, from.type->dtype, tensor_array(&to),
               tensor_array(&from), type_elements(from.type));
  return to;
}

/* Returns whether f(x + x') = f(x) + f(x') where the operands of `mask` get
 * another value and the others stay. */
static bool is_additive(const Graph *graph, unsigned mask, uint64_t seed) {
  Tensor *x = exact_all_inputs(graph, seed);
  Tensor *other = exact_all_inputs(graph, seed);
  Tensor *sum = exact_all_inputs(graph, seed);
  for (int i = 0; i < graph->inputs.n; i++) {
    if (!(mask >> i & 1) || !is_float(&x[i])) continue;
    other[i] = exact_input(graph, i, seed + 1);
    sum[i] = copy_of(graph, x[i]);
    add_tensors(&sum[i], &other[i]);
  }
  Tensor *y = exact_outputs(graph, x, seed);
  Tensor *y_other = exact_outputs(graph, other, seed);
  Tensor *y_sum = exact_outputs(graph, sum, seed);
  for (int r = 0; r < graph->outputs.n; r++) {
    if (!is_float(&y[r])) continue;
    add_tensors(&y[r], &y_other[r]);
    if (exact_difference(&y[r], &y_sum[r]) >= 0) return false;
  }
  return true;
}

static void check_linearity(const Graph *graph, Op op) {
  const OpInfo *info = op_info(op);
  uint64_t seed = exact_seeds[1];
  unsigned all = (1u << graph->inputs.n) - 1;
  bool is_linear = true;
  if (info->linear == LINEAR_all) is_linear = is_additive(graph, all, seed);
  if (info->linear == LINEAR_first) is_linear = is_additive(graph, 1, seed);
  for (int i = 0; i < graph->inputs.n && info->linear == LINEAR_each; i++)
    is_linear = is_linear && is_additive(graph, 1u << i, seed);
  cr_assert(is_linear, "%s is not linear", info->name);
}

Test(exact_mode, linear_rows_are_linear) {
  int n = (int)(sizeof op_cases / sizeof *op_cases);
  for (int i = 0; i < n; i++) {
    Op op;
    cr_assert(op_find(op_cases[i].op, &op));
    if (op_info(op)->linear == LINEAR_no || !op_case_takes(&op_cases[i], "f32"))
      continue;
    check_linearity(op_case_graph(module_create(), &op_cases[i], "f32"), op);
    modules_destroy();
  }
}

/* A row is either linear as it says, or sees that an operand is one part of a
 * sum. */
Test(exact_mode, other_pointwise_rows_see_a_partial_operand) {
  for (int op = 0; op < N_OPS; op++) {
    const OpInfo *info = op_info((Op)op);
    if (!info->is_pointwise) continue;
    Graph *graph = pointwise_case_graph(module_create(), (Op)op, "f32", 0);
    if (graph == NULL) continue; /* of integers */
    bool has_floats = false;
    for (int i = 0; i < graph->inputs.n; i++)
      has_floats |=
          dtype_class(graph_type(graph, graph->inputs.data[i].value)->dtype) ==
          CLASS_FLOAT;
    if (!has_floats) continue;        /* of bools */
    exact_run(graph, exact_seeds[0]); /* a row that compares has a truth */
    check_linearity(graph, (Op)op);
    bool gives_float =
        dtype_class(graph_type(graph, graph->outputs.data[0].value)->dtype) ==
        CLASS_FLOAT;
    for (int i = 0; i < graph->inputs.n && gives_float; i++)
      if (info->linear == LINEAR_no && op != OP_select)
        cr_assert(!is_additive(graph, 1u << i, 3), "%s takes a partial %c",
                  info->name, 'a' + i);
    modules_destroy();
  }
}

/* ---- exp and log ---- */

typedef struct Scene {
  Module *module;
  Graph *graph;
} Scene;

static Scene scene_create(void) {
  Scene scene = {.module = module_create()};
  scene.graph = make_graph(scene.module);
  return scene;
}

static Value data(Scene *scene, const char *path, const char *type) {
  return make_input(scene->graph, ROLE_data, path, type);
}

/* The outputs, two by two. */
static void equal(Scene *scene, const char *what, Value a, Value b) {
  make_output(scene->graph, ROLE_result, what, a);
  make_output(scene->graph, ROLE_result, what, b);
}

static int differing(const Scene *scene, uint64_t seed, const char **out_what) {
  const Graph *graph = scene->graph;
  Tensor *y = exact_run(graph, seed);
  int n = 0;
  for (int i = 0; i < graph->outputs.n; i += 2) {
    if (exact_difference(&y[i], &y[i + 1]) < 0) continue;
    if (n++ == 0) *out_what = graph->outputs.data[i].path;
  }
  return n;
}

static void scene_check(Scene *scene) {
  for (int s = 0; s < EXACT_SEEDS; s++) {
    const char *what = "";
    cr_assert_eq(differing(scene, exact_seeds[s], &what), 0, "%s differs",
                 what);
  }
}

#define OP1(op, a)    graph_op1(scene->graph, OP_##op, a)
#define OP2(op, a, b) graph_op2(scene->graph, OP_##op, a, b)
#define REDUCE(op, x) make1(scene->graph, #op, "over=S", x)

Test(exact_mode, exp_and_log_are_inverse) {
  Scene made = scene_create(), *scene = &made;
  Value a = data(scene, "a", "f32 S:5"), b = data(scene, "b", "f32 S:5");
  Value logs = OP2(add, OP1(log, a), OP1(log, b));
  equal(scene, "exp(log a + log b)", OP1(exp, logs), OP2(mul, a, b));
  logs = OP2(sub, OP1(log, a), OP1(log, b));
  equal(scene, "exp(log a - log b)", OP1(exp, logs), OP2(div, a, b));
  equal(scene, "exp(-log a)", OP1(exp, OP1(neg, OP1(log, a))),
        OP2(div, graph_const(scene->graph, DT_f32, 1), a));
  equal(scene, "exp(logsumexp x)", OP1(exp, REDUCE(logsumexp, a)),
        REDUCE(sum, OP1(exp, a)));
  scene_check(scene);
}

/* exp(x - shift) / sum of exp(x - shift) */
static Value shifted_softmax(Scene *scene, Value x, Value shift) {
  Value e = OP1(exp, OP2(sub, x, shift));
  return OP2(div, e, REDUCE(sum, e));
}

static Value part(Scene *scene, Value x, int start, int size) {
  char text[60];
  snprintf(text, sizeof text, "dim=S start=%d sizes=%d", start, size);
  return make1(scene->graph, "slice", text, x);
}

Test(exact_mode, softmax_takes_any_shift) {
  Scene made = scene_create(), *scene = &made;
  Value x = data(scene, "x", "f32 B:3 S:7"), a = data(scene, "a", "f32 B:3");
  Value softmax = REDUCE(softmax, x);
  Value some = REDUCE(max, part(scene, x, 0, 3));
  Value lse = REDUCE(logsumexp, part(scene, x, 2, 4));
  equal(scene, "max", shifted_softmax(scene, x, REDUCE(max, x)), softmax);
  equal(scene, "min", shifted_softmax(scene, x, REDUCE(min, x)), softmax);
  equal(scene, "part", shifted_softmax(scene, x, some), softmax);
  equal(scene, "lse", shifted_softmax(scene, x, lse), softmax);
  equal(scene, "sum", shifted_softmax(scene, x, OP2(add, lse, some)), softmax);
  equal(scene, "log", shifted_softmax(scene, x, OP1(log, a)), softmax);
  equal(scene, "maximum", shifted_softmax(scene, x, OP2(maximum, a, some)),
        softmax);
  equal(scene, "twice",
        OP2(mul, OP1(exp, OP2(sub, x, some)), OP1(exp, OP2(sub, some, lse))),
        OP1(exp, OP2(sub, x, lse)));
  scene_check(scene);
}

/* ---- attention from parts ---- */

typedef struct Part {
  Value o, lse;
} Part;

static const char part_text[] = "over=D query=T key=S scale=0.5 causal=0";

static Part attend(Scene *scene, Value q, Value k, Value v) {
  Value o = make(scene->graph, "attention", part_text, (Value[]){q, k, v}, 3);
  return (Part){o, (Value){o.node, 1}};
}

static Part merge(Scene *scene, Part a, Part b) {
  Value m = OP2(maximum, a.lse, b.lse);
  Value sum =
      OP2(add, OP1(exp, OP2(sub, a.lse, m)), OP1(exp, OP2(sub, b.lse, m)));
  Value lse = OP2(add, OP1(log, sum), m);
  Value o = OP2(add, OP2(mul, OP1(exp, OP2(sub, a.lse, lse)), a.o),
                OP2(mul, OP1(exp, OP2(sub, b.lse, lse)), b.o));
  return (Part){o, lse};
}

/* Keys 0-2, 3, 4-6 in the order that `turn` says; `is_wrong` forgets one. */
static Part from_parts(Scene *scene, Value q, Value k, Value v, int turn,
                       bool is_wrong) {
  static const int at[3][2] = {{0, 3}, {3, 1}, {4, 3}};
  static const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                   {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
  Part sum = {0};
  for (int i = 0; i < (is_wrong ? 2 : 3); i++) {
    const int *keys = at[orders[turn][i]];
    Part now = attend(scene, q, part(scene, k, keys[0], keys[1]),
                      part(scene, v, keys[0], keys[1]));
    sum = i == 0 ? now : merge(scene, sum, now);
  }
  return sum;
}

/* The values of a layer are keys of the next. */
static Value as_keys(Scene *scene, Value x) {
  x = make1(scene->graph, "rename", "from=T to=S", x);
  Value more = make1(scene->graph, "pad", "dim=S pad=0,3 value=0.25", x);
  return make1(scene->graph, "transpose", "order=S,D", more);
}

static Value two_layers(Scene *scene, int turn, bool is_wrong) {
  Value q = scene->graph->inputs.data[0].value;
  Value k = scene->graph->inputs.data[1].value;
  Value v = scene->graph->inputs.data[2].value;
  for (int layer = 0; layer < 2; layer++) {
    Part now = turn < 0
                   ? attend(scene, q, k, v)
                   : from_parts(scene, q, k, v, turn, is_wrong && layer == 1);
    q = OP2(add, now.o, q);
    k = as_keys(scene, OP1(tanh, q));
    v = as_keys(scene, now.o);
  }
  return q;
}

static Scene attention_scene(void) {
  Scene scene = scene_create();
  data(&scene, "q", "f32 T:4 D:2");
  data(&scene, "k", "f32 S:7 D:2");
  data(&scene, "v", "f32 S:7 D:2");
  return scene;
}

Test(exact_mode, attention_merges_in_any_order) {
  Scene made = attention_scene(), *scene = &made;
  Value q = scene->graph->inputs.data[0].value;
  Value k = scene->graph->inputs.data[1].value;
  Value v = scene->graph->inputs.data[2].value;
  Part whole = attend(scene, q, k, v);
  for (int turn = 0; turn < 6; turn++) {
    Part merged = from_parts(scene, q, k, v, turn, false);
    equal(scene, "o", merged.o, whole.o);
    equal(scene, "lse", merged.lse, whole.lse);
  }
  scene_check(scene);
}

Test(exact_mode, two_layers_of_attention_merge) {
  Scene made = attention_scene(), *scene = &made;
  Value whole = two_layers(scene, -1, false);
  for (int turn = 0; turn < 6; turn++)
    equal(scene, "second layer", two_layers(scene, turn, false), whole);
  scene_check(scene);
}

Test(exact_mode, a_forgotten_part_is_seen) {
  Scene made = attention_scene(), *scene = &made;
  Value whole = two_layers(scene, -1, false);
  equal(scene, "second layer", two_layers(scene, 3, true), whole);
  const char *what;
  for (int s = 0; s < EXACT_SEEDS; s++)
    cr_assert_eq(differing(scene, exact_seeds[s], &what), 1);
}

/* ---- decompositions ---- */

/* The operator and its decomposition in one graph, on every case. */
static void check_decomposition(const OpCase *item, uint64_t seed,
                                bool has_empty_row) {
  Module *module = module_create();
  Graph *graph = op_case_graph(module, item, "f32");
  int id = graph->outputs.data[0].value.node;
  const Node *node = graph->nodes.data[id];
  Value results[8];
  op_info(node->op)->decompose(graph, graph, id, node->inputs, results);
  int n = graph->outputs.n;
  for (int r = 0; r < n; r++)
    make_output(graph, ROLE_metric, "decomposed", results[r]);
  Tensor *inputs = exact_all_inputs(graph, seed);
  int64_t n_first = type_elements(inputs[0].type);
  for (int64_t k = 0; has_empty_row && k < n_first; k++)
    if (k % 3 != 1) inputs[0].exact[k] = (ExactNumber){0, EXACT_MINUS_INF};
  Tensor *y = exact_outputs(graph, inputs, seed);
  for (int r = 0; r < n; r++) {
    int64_t at = exact_difference(&y[r], &y[n + r]);
    cr_assert(at < 0, "%s %s: result %d [%ld] of its decomposition differs",
              item->op, item->attrs, r, (long)at);
  }
  modules_destroy();
}

Test(exact_mode, decompositions_equal_their_operators) {
  int n = (int)(sizeof op_cases / sizeof *op_cases), n_checked = 0;
  for (int i = 0; i < n; i++) {
    Op op;
    cr_assert(op_find(op_cases[i].op, &op));
    if (!op_info(op)->decompose || !op_case_takes(&op_cases[i], "f32"))
      continue;
    for (int s = 0; s < EXACT_SEEDS; s++)
      check_decomposition(&op_cases[i], exact_seeds[s], false);
    if (op == OP_softmax || op == OP_log_softmax || op == OP_logsumexp)
      check_decomposition(&op_cases[i], exact_seeds[0], true);
    n_checked++;
  }
  cr_assert_gt(n_checked, 12);
}

/* ---- arrays of numbers ---- */

Test(exact_mode, shards_get_the_numbers_of_their_global_places) {
  Numbers numbers = exact_numbers(9);
  ExactNumber all[10], some[4];
  numbers_random(&numbers, DT_f32, "layer.w", 0, 0, 1, all, 10);
  numbers_random(&numbers, DT_f32, "layer.w", 5, 0, 1, some, 4);
  for (int i = 0; i < 4; i++) cr_assert(exact_equal(all[5 + i], some[i]));
  numbers_random(&numbers, DT_f32, "layer.b", 5, 0, 1, some, 4);
  cr_assert(!exact_equal(all[5], some[0]));
  double reals[10], later[4];
  Numbers f64 = {.number = INTERP_f64, .seed = 9};
  numbers_random(&f64, DT_f32, "layer.w", 0, -1, 1, reals, 10);
  numbers_random(&f64, DT_f32, "layer.w", 6, -1, 1, later, 4);
  for (int i = 0; i < 4; i++) cr_assert_eq(reals[6 + i], later[i]);
}

Test(exact_mode, collectives_reduce_and_compare) {
  Numbers numbers = exact_numbers(9);
  ExactNumber a[] = {{5, 0}, {EXACT_PRIME - 3, 0}, {0, 0}};
  ExactNumber b[] = {{7, 0}, {4, 0}, {0, EXACT_MINUS_INF}};
  ExactNumber max[3], sum[3];
  numbers_copy(&numbers, DT_f32, max, a, 3);
  numbers_copy(&numbers, DT_f32, sum, a, 3);
  numbers_reduce(&numbers, DT_f32, REDUCE_max, max, b, 3);
  numbers_reduce(&numbers, DT_f32, REDUCE_sum, sum, b, 2);
  cr_assert(max[0].v == 7 && max[1].v == 4 && max[2].v == 0);
  cr_assert(sum[0].v == 12 && sum[1].v == 1);
  NumbersDifference found = numbers_compare(&numbers, DT_f32, a, b, 3, 1);
  cr_assert_eq(found.index, 0);
  found = numbers_compare(&numbers, DT_f32, a, sum, 0, 1);
  cr_assert_eq(found.index, -1);
  Numbers f64 = {.number = INTERP_f64};
  double x[] = {1, 2000, 0}, y[] = {1 + 1e-13, 2000.002, 1e-13};
  double largest = numbers_largest(&f64, DT_f32, x, 3, 0);
  found = numbers_compare(&f64, DT_f32, x, y, 3, largest);
  cr_assert(found.index == 1 && fabs(found.error - 1e-6) < 1e-9);
}
