// links: interp ir
/*
 * exact_second.c -- exact mode modulo its second prime: residues form a field,
 * random numbers and constants are others than those of the first prime, and
 * softmax takes any shift.
 */
#define EXACT_SECOND
#include "interp/exact.h"

#include "interp/numbers.h"
#include "tests/unit/values.h"

TestSuite(exact_second, .fini = modules_destroy, .timeout = 100);

static const Numbers first = {.number = INTERP_exact, .seed = 3};
static const Numbers second = {
    .number = INTERP_exact, .has_second_prime = true, .seed = 3};

static void check_inverse(uint64_t a) {
  cr_assert_lt(a, EXACT_PRIME);
  cr_assert_eq(residue_mul(a, residue_inverse(a)), 1, "%lu", (unsigned long)a);
}

Test(exact_second, residues_form_a_field) {
  cr_assert_eq(EXACT_PRIME, (UINT64_C(1) << 61) - 31);
  for (uint64_t i = 1; i < 200; i++) {
    check_inverse(i);
    check_inverse(EXACT_PRIME - i);
    check_inverse(exact_hash(i, NULL, 0));
  }
  cr_assert_eq(residue_pow(3, EXACT_PRIME - 1), 1);
  cr_assert_eq(residue_mul(EXACT_PRIME - 1, EXACT_PRIME - 1), 1);
  cr_assert_eq(residue_add(EXACT_PRIME - 1, 1), 0);
  cr_assert_eq(exact_integer(-7).v, EXACT_PRIME - 7);
  for (uint64_t i = 1; i < 200; i++) {
    uint64_t a = exact_hash(i, NULL, 0), b = exact_hash(~i, NULL, 0);
    cr_assert_eq(residue_mul(a, b), (uint64_t)((ExactWide)a * b % EXACT_PRIME));
  }
}

Test(exact_second, numbers_of_the_two_primes_differ) {
  ExactNumber a[1], b[1];
  double third = 1.0 / 3;
  numbers_fill(&first, DT_f64, a, 1, third);
  numbers_fill(&second, DT_f64, b, 1, third);
  cr_expect_neq(a[0].v, b[0].v);
  cr_expect_eq(residue_mul(b[0].v, 3), 1);
  ExactNumber sum[] = {{EXACT_PRIME - 2, 0}}, two[] = {{2, 0}};
  numbers_reduce(&second, DT_f64, REDUCE_sum, sum, two, 1);
  cr_expect(exact_is_zero(sum[0]));
  sum[0].v = EXACT_PRIME - 2;
  numbers_reduce(&first, DT_f64, REDUCE_sum, sum, two, 1);
  cr_expect_eq(sum[0].v, EXACT_PRIME);
}

/* exp(x - shift) over its sum, for a maximum of a part as shift. */
Test(exact_second, softmax_takes_any_shift) {
  Module *module = module_create();
  Graph *graph = make_graph(module);
  Value x = make_input(graph, ROLE_data, "x", "f32 B:3 S:7");
  Value part = make1(graph, "slice", "dim=S start=0 sizes=3", x);
  Value shift = make1(graph, "max", "over=S", part);
  Value e = graph_op1(graph, OP_exp, graph_op2(graph, OP_sub, x, shift));
  Value sum = make1(graph, "sum", "over=S", e);
  make_output(graph, ROLE_result, "a", graph_op2(graph, OP_div, e, sum));
  make_output(graph, ROLE_result, "b", make1(graph, "softmax", "over=S", x));
  make_output(graph, ROLE_result, "c", x);
  Tensor input = numbers_create(&second, module->arena, graph_type(graph, x));
  numbers_random(&second, DT_f32, "x", 0, 0, 1, input.exact, 21);
  Tensor y[3];
  interp_run_in(graph, &second, module->arena, &input, y, NULL);
  cr_expect_eq(
      numbers_compare(&second, DT_f32, y[0].exact, y[1].exact, 21, 1).index,
      -1);
  cr_expect_eq(
      numbers_compare(&second, DT_f32, y[0].exact, y[2].exact, 21, 1).index, 0);
}
