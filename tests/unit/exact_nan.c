// links: interp ir
/*
 * exact_nan.c -- NaN of exact mode is where f64 has it: one element of an
 * operand becomes NaN, and the same results of both number systems do.
 * Pointwise rows may have more of it: a hash is of all operands, where f64
 * may choose one.
 */
#include "tests/ops/cases.h"
#include "tests/unit/exact_run.h"

TestSuite(exact_nan, .fini = modules_destroy, .timeout = 100);

/* Returns inputs as residues and NaN. */
static Tensor *to_exact(const Graph *graph, const Tensor *inputs) {
  Numbers numbers = exact_numbers(7);
  Arena *arena = graph->module->arena;
  Tensor *exact = ARENA_ARRAY(arena, Tensor, graph->inputs.n);
  for (int i = 0; i < graph->inputs.n; i++) {
    exact[i] = numbers_create(&numbers, arena, inputs[i].type);
    numbers_from_doubles(&numbers, inputs[i].type->dtype,
                         tensor_array(&exact[i]), inputs[i].data,
                         type_elements(inputs[i].type));
  }
  return exact;
}

/* Returns how many results become NaN as the first element of the operand does;
 * those that are NaN without it are left out. */
static int check_operand(const Graph *graph, Tensor *inputs, int operand) {
  Op op = graph_node(graph, graph->outputs.data[0].value)->op;
  Tensor *before = run(graph, INTERP_f64, inputs);
  double *at = inputs[operand].data, first = at[0];
  int n_nan = 0;
  at[0] = NAN;
  Tensor *wanted = run(graph, INTERP_f64, inputs);
  Tensor *got = exact_outputs(graph, to_exact(graph, inputs), 7);
  for (int r = 0; r < graph->outputs.n; r++) {
    if (!got[r].exact) continue;
    for (int64_t k = 0; k < type_elements(got[r].type); k++) {
      bool is_nan = isnan(wanted[r].data[k]);
      if (isnan(before[r].data[k]) || (!is_nan && op_info(op)->is_pointwise))
        continue;
      n_nan += is_nan;
      cr_expect_eq(exact_is_nan(got[r].exact[k]), is_nan,
                   "%s with NaN as operand %d: result %d [%ld] is %g in f64",
                   op_info(op)->name, operand, r, (long)k, wanted[r].data[k]);
    }
  }
  at[0] = first;
  return n_nan;
}

static int check_operands(const Graph *graph, Tensor *inputs) {
  int n_nan = 0;
  for (int i = 0; i < graph->inputs.n; i++)
    if (dtype_class(inputs[i].type->dtype) == CLASS_FLOAT &&
        type_elements(inputs[i].type) > 0)
      n_nan += check_operand(graph, inputs, i);
  return n_nan;
}

/* Integers, so that both systems choose the same maxima; some are 0. */
static void make_integers(const Graph *graph, Tensor *inputs) {
  for (int i = 0; i < graph->inputs.n; i++)
    for (int64_t k = 0; k < type_elements(inputs[i].type); k++)
      if (dtype_class(inputs[i].type->dtype) == CLASS_FLOAT)
        inputs[i].data[k] = isnan(inputs[i].data[k])
                                ? 3
                                : floor(fmod(inputs[i].data[k] * 1.5, 100));
}

Test(exact_nan, structured_operators_have_it_where_f64_does) {
  int n = (int)(sizeof op_cases / sizeof *op_cases), n_nan = 0;
  for (int i = 0; i < n; i++) {
    if (!op_case_takes(&op_cases[i], "f64")) continue;
    Graph *graph = op_case_graph(module_create(), &op_cases[i], "f64");
    Tensor *inputs = op_case_inputs(graph, 5);
    make_integers(graph, inputs);
    n_nan += check_operands(graph, inputs);
    modules_destroy();
  }
  cr_expect_gt(n_nan, 1000);
}

Test(exact_nan, pointwise_rows_have_it_where_f64_does) {
  int n_rows = 0;
  for (int op = 0; op < N_OPS; op++) {
    if (!op_info((Op)op)->is_pointwise) continue;
    Graph *graph = pointwise_case_graph(module_create(), (Op)op, "f64", 0);
    if (!graph) continue;
    Tensor *inputs = ARENA_ARRAY(graph->module->arena, Tensor, 3);
    for (int i = 0; i < graph->inputs.n; i++)
      inputs[i] = tensor_random(graph->module->arena,
                                graph_type(graph, graph->inputs.data[i].value),
                                5 + i, 0.3, 0.9);
    n_rows += check_operands(graph, inputs) > 0;
    modules_destroy();
  }
  cr_expect_gt(n_rows, 30);
}

/* A product with 0 is NaN too; a choice of something else is not. */
Test(exact_nan, zeros_and_infinities_do_not_hide_it) {
  ExactNumber nan = exact_constant(DT_f32, NAN), zero = {0}, two = {2, 0};
  ExactNumber infinite = exact_constant(DT_f32, INFINITY);
  static const Op ops[] = {OP_add, OP_sub,   OP_mul,     OP_div,
                           OP_pow, OP_atan2, OP_maximum, OP_minimum};
  cr_assert(exact_is_nan(nan));
  for (int i = 0; i < ARRAY_LENGTH(ops); i++) {
    const ExactNumber others[] = {zero, two, infinite, {1, 0}};
    for (int k = 0; k < ARRAY_LENGTH(others); k++) {
      ExactNumber left = exact_point(9, ops[i], nan, others[k], zero);
      ExactNumber right = exact_point(9, ops[i], others[k], nan, zero);
      cr_expect(exact_is_nan(left), "%s", op_info(ops[i])->name);
      cr_expect(exact_is_nan(right), "%s", op_info(ops[i])->name);
    }
  }
  cr_expect(exact_is_nan(exact_plus(infinite, nan)));
  cr_expect(exact_is_nan(exact_plus(nan, infinite)));
  cr_expect(exact_is_nan(exact_guard(OP_maximum, nan, two)));
  cr_expect(!exact_is_nan(exact_point(9, OP_select, zero, nan, two)));
  cr_expect(!exact_compare(OP_eq, nan, nan));
  cr_expect(exact_compare(OP_ne, nan, nan));
  cr_expect(!exact_compare(OP_le, nan, two));
  cr_expect(!exact_compare(OP_finite, nan, zero));
}
