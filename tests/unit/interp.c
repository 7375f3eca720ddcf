// links: interp ir
/*
 * interp.c -- tests the reference interpreter: values worked out by hand, its
 * number types, every decomposition against the operator that it stands for,
 * and the formula texts.
 */
#include "tests/unit/values.h"

typedef struct Bench { /* one operator on given values */
  Module *module;
  Graph *graph;
  int n;
  Value values[4];
  Tensor inputs[4];
} Bench;

static Bench bench_create(void) {
  Bench bench = {.module = module_create()};
  bench.graph = make_graph(bench.module);
  return bench;
}

static void give(Bench *bench, const char *type, const double *values) {
  char path[] = {(char)('a' + bench->n), '\0'};
  Value value = make_input(bench->graph, ROLE_data, path, type);
  bench->values[bench->n] = value;
  bench->inputs[bench->n++] =
      tensor_of(bench->module->arena, graph_type(bench->graph, value), values);
}

static Tensor result(Bench *bench, InterpNumber number, const char *op,
                     const char *attrs) {
  Value y = make(bench->graph, op, attrs, bench->values, bench->n);
  make_output(bench->graph, ROLE_result, "y", y);
  Tensor *outputs = run(bench->graph, number, bench->inputs);
  return outputs[bench->graph->outputs.n - 1];
}

TestSuite(decompose, .fini = modules_destroy);
TestSuite(exprtext, .fini = modules_destroy);
TestSuite(interp, .fini = modules_destroy);

/* ---- pointwise ---- */

Test(interp, broadcasts_by_name) {
  Bench bench = bench_create();
  give(&bench, "f32 A:2 B:3", (double[]){1, 2, 3, 4, 5, 6});
  give(&bench, "f32 B:3", (double[]){10, 20, 30});
  cr_values(result(&bench, INTERP_f64, "add", ""), 0, 11, 22, 33, 14, 25, 36);
}

Test(interp, rounds_half_to_even) {
  Bench bench = bench_create();
  give(&bench, "f32 A:6", (double[]){0.5, 1.5, 2.5, -0.5, -1.5, 0.7});
  cr_values(result(&bench, INTERP_f32, "round", ""), 0, 0, 2, 2, 0, -2, 1);
}

Test(interp, integer_division_rounds_down) {
  Bench bench = bench_create();
  give(&bench, "i32 A:5", (double[]){7, -7, 7, -7, 5});
  give(&bench, "i32 A:5", (double[]){2, 2, -2, -2, 0});
  cr_values(result(&bench, INTERP_f32, "floordiv", ""), 0, 3, -4, -4, 3, 0);
  cr_values(result(&bench, INTERP_f32, "mod", ""), 0, 1, 1, -1, -1, 0);
}

Test(interp, integers_are_exact_and_wrap) {
  Bench bench = bench_create();
  give(&bench, "i32 A:2", (double[]){16777217, 2147483647});
  give(&bench, "i32 A:2", (double[]){2, 1});
  cr_values(result(&bench, INTERP_f32, "add", ""), 0, 16777219, -2147483648.0);
}

Test(interp, comparisons_and_finite) {
  Bench bench = bench_create();
  give(&bench, "f32 A:4", (double[]){1, NAN, -INFINITY, 2});
  cr_values(result(&bench, INTERP_f32, "finite", ""), 0, 1, 0, 0, 1);
  give(&bench, "f32", (double[]){1});
  cr_values(result(&bench, INTERP_f32, "gt", ""), 0, 0, 0, 0, 1);
}

/* ---- number types ---- */

Test(interp, f32_rounds_after_every_operation) {
  Bench bench = bench_create();
  give(&bench, "f32 A:3", (double[]){16777216, 1, 1});
  cr_values(result(&bench, INTERP_f32, "sum", "over=A"), 0, 16777216);
  cr_values(result(&bench, INTERP_f64, "sum", "over=A"), 0, 16777218);
}

Test(interp, f64_values_stay_double_in_f32) {
  Bench bench = bench_create();
  give(&bench, "f64 A:3", (double[]){16777216, 1, 1});
  cr_values(result(&bench, INTERP_f32, "sum", "over=A"), 0, 16777218);
}

Test(interp, narrow_reals_round_to_even) {
  Bench bench = bench_create();
  give(&bench, "f32 A:5",
       (double[]){1.00390625, 1.01171875, 1e-45, 3.4e38, -3});
  cr_values(result(&bench, INTERP_f32, "cast", "dtype=bf16"), 0, 1, 1.015625, 0,
            INFINITY, -3);
}

Test(interp, f16_has_subnormals_and_overflows) {
  Bench bench = bench_create();
  give(&bench, "f32 A:4", (double[]){65519, 65520, 6e-8, 2049});
  cr_values(result(&bench, INTERP_f32, "cast", "dtype=f16"), 0, 65504, INFINITY,
            0x1p-24, 2048);
}

Test(interp, cast_to_integer_truncates) {
  Bench bench = bench_create();
  give(&bench, "f32 A:4", (double[]){1.9, -1.9, NAN, 300});
  cr_values(result(&bench, INTERP_f32, "cast", "dtype=i32"), 0, 1, -1, 0, 300);
}

/* ---- rows ---- */

Test(interp, softmax_of_nothing_is_zero) {
  Bench bench = bench_create();
  give(&bench, "f32 A:2 B:2", (double[]){-INFINITY, -INFINITY, 0, 0});
  cr_values(result(&bench, INTERP_f64, "softmax", "over=B"), 0, 0, 0, 0.5, 0.5);
  cr_values(result(&bench, INTERP_f64, "logsumexp", "over=B"), 1e-15, -INFINITY,
            log(2));
}

Test(interp, argmax_takes_the_first) {
  Bench bench = bench_create();
  give(&bench, "f32 A:2 B:3", (double[]){1, 3, 3, 2, 2, 0});
  cr_values(result(&bench, INTERP_f32, "argmax", "dim=B"), 0, 1, 0);
}

Test(interp, reduction_over_several_dims) {
  Bench bench = bench_create();
  give(&bench, "f32 A:2 B:2 C:2", (double[]){1, 2, 3, 4, 5, 6, 7, 8});
  cr_values(result(&bench, INTERP_f32, "sum", "over=C,A"), 0, 14, 22);
  cr_values(result(&bench, INTERP_f32, "min", "over=A"), 0, 1, 2, 3, 4);
}

/* ---- products and windows ---- */

Test(interp, dot_batches_shared_dims) {
  Bench bench = bench_create();
  give(&bench, "f32 G:2 K:2", (double[]){1, 2, 3, 4});
  give(&bench, "f32 K:2 G:2", (double[]){1, 10, 2, 20});
  cr_values(result(&bench, INTERP_f32, "dot", "over=K"), 0, 5, 110);
}

Test(interp, conv_with_stride_and_padding) {
  Bench bench = bench_create();
  give(&bench, "f32 C:1 X:5", (double[]){1, 2, 3, 4, 5});
  give(&bench, "f32 O:1 C:1 X:3", (double[]){1, 10, 100});
  cr_values(result(&bench, INTERP_f32, "conv",
                   "dim=C space=X stride=2 pad=1 dilate=1"),
            0, 210, 432, 54);
}

Test(interp, pools) {
  Bench bench = bench_create();
  give(&bench, "f32 X:5", (double[]){-1, -2, -3, -4, -5});
  const char *window = "space=X window=3 stride=2 pad=1";
  cr_values(result(&bench, INTERP_f32, "maxpool", window), 0, -1, -2, -4);
  cr_values(result(&bench, INTERP_f32, "avgpool", window), 0, -1, -3, -3);
  cr_values(result(&bench, INTERP_f32, "avgpool",
                   "space=X window=3 stride=2 pad=1 causal=0"),
            0, -1.5, -3, -4.5);
  cr_values(result(&bench, INTERP_f32, "adaptive_avgpool", "space=X sizes=2"),
            0, -2, -4);
}

Test(interp, gather_clamps_and_scatter_adds) {
  Bench bench = bench_create();
  give(&bench, "f32 V:3", (double[]){1, 2, 3});
  give(&bench, "i32 B:4", (double[]){2, 0, -1, 7});
  cr_values(result(&bench, INTERP_f32, "gather", "dim=V"), 0, 3, 1, 1, 3);
  Bench back = bench_create();
  give(&back, "f32 B:4", (double[]){1, 2, 3, 4});
  give(&back, "i32 B:4", (double[]){2, 0, 2, 1});
  cr_values(result(&back, INTERP_f32, "scatter_add", "over=B dim=V sizes=3"), 0,
            2, 4, 4);
}

Test(interp, reverses) {
  Bench bench = bench_create();
  give(&bench, "f32 A:2 B:3", (double[]){1, 2, 3, 4, 5, 6});
  cr_values(result(&bench, INTERP_f32, "reverse", "dim=B"), 0, 3, 2, 1, 6, 5,
            4);
  cr_values(result(&bench, INTERP_f32, "reverse", "dim=A"), 0, 4, 5, 6, 1, 2,
            3);
}

/* Two experts have three capacity slots each: the first choices of all tokens
 * take theirs before any second one, and what comes too late gets none. */
Test(interp, first_choices_take_slots_first) {
  static const char text[] = "over=J,T to=E,S sizes=2,3";
  Module *module = module_create();
  Graph *graph = make_graph(module);
  Value choice = make_input(graph, ROLE_data, "choice", "i32 T:4 J:2");
  Value slot = make1(graph, "route", text, choice);
  make_output(graph, ROLE_metric, "slot", slot);
  make_output(graph, ROLE_metric, "token",
              make1(graph, "route_inverse", text, slot));
  Tensor input = tensor_of(module->arena, graph_type(graph, choice),
                           (double[]){0, 1, 1, 0, 0, 1, 0, 1});
  Tensor *outputs = run(graph, INTERP_f64, &input);
  cr_values(outputs[0], 0, 0, 4, 3, -1, 1, 5, 2, -1);
  cr_values(outputs[1], 0, 0, 2, 3, 1, 4, 6);
}

Test(interp, topk_takes_the_first_of_equals) {
  Module *module = module_create();
  Graph *graph = make_graph(module);
  Value x = make_input(graph, ROLE_data, "x", "f64 E:5");
  Value y = make1(graph, "topk", "dim=E to=J sizes=3", x);
  make_output(graph, ROLE_metric, "values", y);
  make_output(graph, ROLE_metric, "positions", (Value){y.node, 1});
  Tensor input =
      tensor_of(module->arena, graph_type(graph, x), (double[]){2, 7, 3, 7, 3});
  Tensor *outputs = run(graph, INTERP_f64, &input);
  cr_values(outputs[0], 0, 7, 7, 3);
  cr_values(outputs[1], 0, 1, 3, 2);
}

Test(interp, concat_pads_and_slices) {
  Bench bench = bench_create();
  give(&bench, "f32 A:2 B:1", (double[]){1, 2});
  give(&bench, "f32 A:2", (double[]){3, 4});
  cr_values(result(&bench, INTERP_f32, "concat", "dim=B"), 0, 1, 3, 2, 4);
  bench.n = 1;
  cr_values(result(&bench, INTERP_f32, "pad", "dim=A pad=1,1 value=9"), 0, 9, 1,
            2, 9);
}

Test(interp, merged_dims_need_not_be_adjacent) {
  Bench bench = bench_create();
  give(&bench, "f32 A:2 B:2 C:2", (double[]){0, 1, 2, 3, 4, 5, 6, 7});
  cr_values(result(&bench, INTERP_f32, "merge_dims", "from=C,A dim=M"), 0, 0, 4,
            1, 5, 2, 6, 3, 7);
}

/* ---- draws and initial values ---- */

Test(interp, draws_depend_on_seed_and_step_only) {
  Bench bench = bench_create();
  give(&bench, "i64", (double[]){1});
  give(&bench, "i32", (double[]){5});
  const char *attrs = "to=A,B sizes=40,50 value=0.25 stream=block.dropout";
  Tensor first = result(&bench, INTERP_f32, "random_keep", attrs);
  Tensor again = result(&bench, INTERP_f64, "random_keep", attrs);
  bench.inputs[1].data[0] = 6;
  Tensor other = result(&bench, INTERP_f32, "random_keep", attrs);
  double kept = 0, different = 0;
  for (int i = 0; i < 2000; i++) {
    cr_assert_eq(first.data[i], again.data[i]);
    kept += first.data[i];
    different += first.data[i] != other.data[i];
  }
  cr_assert(fabs(kept / 2000 - 0.75) < 0.04);
  cr_assert_gt(different, 500);
}

static const double *draws(Bench *bench, const char *op, double step) {
  bench->inputs[1].data[0] = step;
  return result(bench, INTERP_f32, op, "to=A,B sizes=100,100 stream=x").data;
}

/* Of 10,000 numbers: what a moment of a good generator misses by is below five
 * of its standard deviations. */
static void expect_moments(const double *x, double mean, double variance,
                           double fourth) {
  double sums[3] = {0};
  for (int i = 0; i < 10000; i++) {
    double d = x[i] - mean;
    sums[0] += d, sums[1] += d * d, sums[2] += d * d * d * d;
  }
  for (int k = 0; k < 3; k++) sums[k] /= 10000;
  cr_expect(fabs(sums[0]) < 0.05 * sqrt(variance), "mean %g", sums[0]);
  cr_expect(fabs(sums[1] / variance - 1) < 0.075, "variance %g", sums[1]);
  cr_expect(fabs(sums[2] / fourth - 1) < 0.2, "fourth %g", sums[2]);
}

static double correlation(const double *x, const double *y, int n, double mean,
                          double variance) {
  double sum = 0;
  for (int i = 0; i < n; i++) sum += (x[i] - mean) * (y[i] - mean);
  return sum / n / variance;
}

/* Neighbours of a row and of a column, which other ranks or micro-batches have,
 * steps, those of evaluations among them, and paths. */
Test(interp, draws_have_moments_and_are_independent) {
  static const struct {
    const char *op;
    double mean, variance, fourth;
  } rows[] = {{"random_uniform", 0.5, 1.0 / 12, 1.0 / 80},
              {"random_normal", 0, 1, 3}};
  for (int r = 0; r < 2; r++) {
    Bench bench = bench_create();
    double mean = rows[r].mean, variance = rows[r].variance;
    give(&bench, "i64", (double[]){1});
    give(&bench, "i32", (double[]){5});
    const double *x = draws(&bench, rows[r].op, 5);
    expect_moments(x, mean, variance, rows[r].fourth);
    cr_expect(fabs(correlation(x, x + 1, 9999, mean, variance)) < 0.05);
    cr_expect(fabs(correlation(x, x + 100, 9900, mean, variance)) < 0.05);
    cr_expect(fabs(correlation(x, x + 5000, 5000, mean, variance)) < 0.07);
    static const double others[] = {6, -1, -5, 5 + 65536};
    for (int i = 0; i < 4; i++) {
      const double *y = draws(&bench, rows[r].op, others[i]);
      expect_moments(y, mean, variance, rows[r].fourth);
      cr_expect(fabs(correlation(x, y, 10000, mean, variance)) < 0.05);
    }
    bench.inputs[1].data[0] = 5;
    const double *y =
        result(&bench, INTERP_f32, rows[r].op, "to=A,B sizes=100,100 stream=y")
            .data;
    cr_expect(fabs(correlation(x, y, 10000, mean, variance)) < 0.05);
  }
}

Test(interp, initial_values_are_those_of_the_path) {
  Module *module = module_create();
  Graph *graph = make_graph(module);
  make_input(graph, ROLE_param, "layer.w", "f32 A:3");
  graph->inputs.data[0].init = (Init){INIT_uniform, 0.5};
  Tensor w = interp_initial(graph, 0, 7, module->arena);
  for (int i = 0; i < 3; i++) {
    double value = init_value((Init){INIT_uniform, 0.5},
                              random_key(7, "layer.w"), NULL, (uint64_t)i);
    cr_assert_eq(w.data[i], (float)value);
  }
}

/* ---- regions and values ---- */

Test(interp, a_fused_region_runs_its_body) {
  Module *module = module_create();
  Graph *graph = make_graph(module), *body = make_graph(module);
  Value a = make_input(body, ROLE_arg, "0", "f32 A:2");
  Value twice = graph_op2(body, OP_add, a, a);
  make_output(body, ROLE_result, "0", twice);
  make_output(body, ROLE_result, "1", graph_op2(body, OP_mul, twice, a));
  Value x = make_input(graph, ROLE_data, "x", "f32 A:2");
  const Type *type = graph_type(graph, x);
  Value y = graph_append_typed(graph, OP_fused, &x, 1, NULL,
                               (const Type *[]){type, type}, 2, body);
  make_output(graph, ROLE_result, "a", y);
  make_output(graph, ROLE_result, "b", (Value){y.node, 1});
  Tensor input = tensor_of(module->arena, type, (double[]){3, -1});
  Tensor *outputs = run(graph, INTERP_f32, &input);
  cr_values(outputs[0], 0, 6, -2);
  cr_values(outputs[1], 0, 18, 2);
}

Test(interp, hands_out_every_value) {
  Module *module = module_create();
  Graph *graph = make_graph(module);
  Value x = make_input(graph, ROLE_data, "x", "f32 A:2");
  Value y = graph_op1(graph, OP_neg, x);
  Value z = graph_op1(graph, OP_abs, y);
  make_output(graph, ROLE_result, "z", z);
  Tensor input =
      tensor_of(module->arena, graph_type(graph, x), (double[]){3, 1});
  Tensor output, values[3];
  interp_run(graph, INTERP_f32, module->arena, &input, &output, values);
  cr_values(values[0], 0, 3, 1);
  cr_values(values[1], 0, -3, -1);
  cr_values(values[2], 0, 3, 1);
}

/* ---- decompositions ---- */

static const struct Decomposed {
  const char *op, *attrs, *inputs[3];
} decomposed[] = {
    {"softmax", "over=C", {"f64 B:3 C:4"}},
    {"softmax", "over=B,C", {"f64 B:3 A:2 C:4"}},
    {"log_softmax", "over=C", {"f64 C:4 B:3"}},
    {"logsumexp", "over=C", {"f64 B:3 C:4"}},
    {"layernorm", "over=C eps=1e-5", {"f64 B:3 C:4"}},
    {"rmsnorm", "over=B,C eps=1e-5", {"f64 B:3 C:4"}},
    {"batchnorm",
     "over=N,Y eps=1e-5 momentum=0.1",
     {"f64 N:3 C:2 Y:4", "f64 C:2", "f64 C:2"}},
    {"batchnorm",
     "over=N,Y eps=1e-5 momentum=0.1 group=2",
     {"f64 Y:4 N:6 C:2 D:3", "f64 D:3 C:2", "f64 C:2 D:3"}},
    {"batchnorm",
     "over=N,Y eps=1e-5 momentum=0.1",
     {"f32 N:3 C:2 Y:4", "f32 C:2", "f32 C:2"}},
    {"batchnorm",
     "over=N,Y eps=1e-5 momentum=0.1 group=2",
     {"f32 Y:4 N:6 C:2", "f32 C:2", "f32 C:2"}},
    {"one_hot", "dim=V sizes=5", {"i32 B:4"}},
    {"topk", "dim=C to=J sizes=1", {"f64 B:3 C:4"}},
    {"topk", "dim=C to=J sizes=4", {"f64 B:3 C:4 A:2"}},
    {"attention",
     "over=D query=T key=S scale=0.5 causal=1",
     {"f64 T:3 B:2 D:2", "f64 B:2 S:3 D:2", "f64 B:2 D:2 S:3"}},
    {"attention",
     "over=D query=T key=S scale=1 causal=0",
     {"f64 B:2 T:2 D:3", "f64 B:2 S:4 D:3", "f64 S:4 B:2 D:3"}},
};

/* Appends operator and decomposition and compares all results. */
static void check_decomposed(Graph *graph, Value first, const Value *inputs,
                             const Tensor *tensors) {
  Value results[8];
  int id = first.node;
  const Node *node = graph->nodes.data[id];
  op_info(node->op)->decompose(graph, graph, id, inputs, results);
  for (int i = 0; i < node->n_results; i++) {
    cr_assert(type_equal(graph_type(graph, results[i]), node->types[i]),
              "result %d of %s", i, op_info(node->op)->name);
    make_output(graph, ROLE_result, "direct", (Value){id, i});
    make_output(graph, ROLE_result, "decomposed", results[i]);
  }
  int n_before = graph->outputs.n - 2 * node->n_results;
  Tensor *outputs = run(graph, INTERP_f64, tensors);
  for (int i = n_before; i < graph->outputs.n; i += 2) {
    int64_t n = type_elements(outputs[i].type);
    for (int64_t k = 0; k < n; k++) {
      double a = outputs[i].data[k], b = outputs[i + 1].data[k];
      cr_assert(a == b || fabs(a - b) < 1e-13, "%s: %.17g, decomposed %.17g",
                op_info(node->op)->name, a, b);
    }
  }
}

static void check_row(const struct Decomposed *row, bool has_empty_rows) {
  Module *module = module_create();
  Graph *graph = make_graph(module);
  Value inputs[6];
  Tensor tensors[6];
  int n = 0;
  for (; n < 3 && row->inputs[n] != NULL; n++) {
    inputs[n] = make_input(graph, ROLE_data, "x", row->inputs[n]);
    const Type *type = graph_type(graph, inputs[n]);
    tensors[n] = tensor_random(module->arena, type, (uint64_t)n, -2, 4);
  }
  for (int i = 0; i < 4 && has_empty_rows; i++) tensors[0].data[i] = -INFINITY;
  Value y = make(graph, row->op, row->attrs, inputs, n);
  check_decomposed(graph, y, inputs, tensors);
  if (strcmp(row->op, "attention") == 0) {
    Value all[6] = {inputs[0], inputs[1], inputs[2], y, {y.node, 1}};
    const Type *type = graph_type(graph, y);
    all[5] =
        graph_input(graph, ROLE_data, name_intern(module->names, "do"), type);
    tensors[3] = tensor_random(module->arena, type, 9, -1, 1);
    Value grad = make(graph, "attention_grad", row->attrs, all, 6);
    check_decomposed(graph, grad, all, tensors);
  }
}

Test(decompose, equals_the_operator) {
  for (int i = 0; i < ARRAY_LENGTH(decomposed); i++) {
    check_row(&decomposed[i], false);
  }
}

Test(decompose, rows_of_minus_infinity) {
  check_row(&(struct Decomposed){"softmax", "over=C", {"f64 B:2 C:4"}}, true);
  check_row(&(struct Decomposed){"logsumexp", "over=C", {"f64 B:2 C:4"}}, true);
  check_row(&(struct Decomposed){"log_softmax", "over=C", {"f64 B:2 C:4"}},
            true);
  check_row(&(struct Decomposed){"topk", "dim=C to=J sizes=3", {"f64 B:2 C:4"}},
            true);
}

/* One pass over the data must not lose the variance beside the mean. */
Test(decompose, batchnorm_of_a_mean_far_from_0) {
  Module *module = module_create();
  Graph *graph = make_graph(module);
  const char *const types[] = {"f32 N:64", "f32", "f32"};
  Value inputs[3], results[3];
  Tensor tensors[3];
  for (int i = 0; i < 3; i++) {
    inputs[i] = make_input(graph, ROLE_data, "x", types[i]);
    tensors[i] =
        tensor_random(module->arena, graph_type(graph, inputs[i]), 1, 0, 0);
  }
  double sum = 0, square = 0;
  for (int i = 0; i < 64; i++) {
    double x = i % 8;
    tensors[0].data[i] = 65536 + x;
    sum += x, square += x * x;
  }
  Value y = make(graph, "batchnorm", "over=N eps=1e-5 momentum=1", inputs, 3);
  op_info(OP_batchnorm)->decompose(graph, graph, y.node, inputs, results);
  make_output(graph, ROLE_result, "var", results[2]);
  double var = run(graph, INTERP_f32, tensors)[0].data[0];
  cr_expect_float_eq(var, (square - sum * sum / 64) / 63, 1e-5);
}

Test(decompose, every_rule_has_a_case) {
  for (Op op = 0; op < N_OPS; op++) {
    const OpInfo *info = op_info(op);
    bool has_case = info->decompose == NULL || op == OP_attention_grad;
    for (int i = 0; i < ARRAY_LENGTH(decomposed); i++) {
      has_case = has_case || strcmp(decomposed[i].op, info->name) == 0;
    }
    cr_expect(has_case, "no case decomposes %s", info->name);
  }
}

/* ---- formula texts ---- */

static double evaluate(const char *text, double x) {
  Module *module = module_create();
  Graph *graph = make_graph(module);
  ExprScope scope = {.graph = graph, .dtype = DT_f64};
  Value input = make_input(graph, ROLE_data, "x", "f64");
  expr_bind(&scope, "x", input);
  expr_bind_float(&scope, "half", 0.5);
  Value y = expr_build(&scope, text);
  make_output(graph, ROLE_result, "y", y);
  Tensor tensor = tensor_of(module->arena, graph_type(graph, input), &x);
  return run(graph, INTERP_f64, &tensor)[0].data[0];
}

Test(exprtext, reads_c) {
  cr_assert_eq(evaluate("R(1) + x * R(2) - -x / half", 3), 13);
  cr_assert_eq(evaluate("-x * x", 3), -9);
  cr_assert_eq(evaluate("x - 1 - 1", 5), 3);
  cr_assert_eq(evaluate("(x + 1) * (x - 1e-1)", 1), 1.8);
  cr_assert_eq(evaluate("SEL(x >= 2 && x != 3, EXP(0), POW(x, 2))", 3), 9);
  cr_assert_eq(evaluate("SEL(x < R(INF), MINIMUM(x, 1), 0)", 3), 1);
  cr_assert_eq(evaluate("y = x * x; x = y + 1; x * y;", 2), 20);
}

Test(exprtext, folds_constants_in_double) {
  Module *module = module_create();
  Graph *graph = make_graph(module);
  ExprScope scope = {.graph = graph, .dtype = DT_f32};
  expr_bind_float(&scope, "b1", 0.9);
  Value y = expr_build(&scope, "1 - b1");
  cr_assert_eq(graph_node(graph, y)->op, OP_const);
  cr_assert_eq(node_float(graph_node(graph, y), ATTR_value, 0), 1 - 0.9);
}
