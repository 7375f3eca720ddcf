// links: exact frontend passes ir support
/*
 * exact.c -- tests equal bits on integer data: one training step of random
 * small models, for which tests/exact/range.c proves that nothing rounds, gives
 * the same numbers in f64 and in f32, before and after all passes. The facts of
 * range.c about each value must hold for the numbers that occur.
 *
 * The emitted programs on 1, 2 and 4 ranks: tests/e2e/exact.sh.
 *
 *     DNNC_SEED=N one seed;  DNNC_SEEDS=N seeds 1..N (default 400)
 */
#include "tests/unit/exact_model.h"
#include "tests/unit/values.h"

TestSuite(exact, .fini = modules_destroy);
TestSuite(range, .fini = modules_destroy);

/* ---- what range.c promises ---- */

static void check_value(Range range, Tensor tensor, uint64_t seed, int id) {
  int64_t n = type_elements(tensor.type);
  for (int64_t k = 0; k < n; k++) {
    double x = tensor.data[k];
    cr_assert(fabs(x) <= range.bound, "seed %lu: %%%d is %g, beyond %g",
              (unsigned long)seed, id, x, range.bound);
    if (!range.is_exact || x == 0) continue;
    double multiple = ldexp(x, -range.unit);
    cr_assert(multiple == nearbyint(multiple),
              "seed %lu: %%%d is %.17g, no multiple of 2^%d",
              (unsigned long)seed, id, x, range.unit);
  }
}

static Tensor *run_checked(Module *module, const ExactModel *made,
                           const Graph *graph) {
  Tensor *values = ARENA_ARRAY(module->arena, Tensor, graph->nodes.n);
  Tensor *outputs = exact_step(module->arena, made, graph, INTERP_f64, values);
  Range **ranges = exact_ranges(module->arena, graph);
  for (int id = 0; id < graph->nodes.n; id++)
    check_value(ranges[id][0], values[id], made->seed, id);
  return outputs;
}

/* ---- equal bits ---- */

static void check_equal(const ExactModel *made, const char *how,
                        const Graph *graph, const Tensor *wanted,
                        const Graph *other, const Tensor *got) {
  for (int i = 0; i < graph->outputs.n; i++) {
    const GraphOutput *output = &graph->outputs.data[i];
    if (!exact_is_checked(output)) continue;
    int at = 0;
    while (at < other->outputs.n &&
           (other->outputs.data[at].role != output->role ||
            other->outputs.data[at].path != output->path))
      at++;
    cr_assert_lt(at, other->outputs.n);
    for (int64_t k = 0; k < type_elements(wanted[i].type); k++)
      cr_assert(wanted[i].data[k] == got[at].data[k],
                "seed %lu, %s: %s[%ld] is %.17g, not %.17g",
                (unsigned long)made->seed, how, output->path, (long)k,
                got[at].data[k], wanted[i].data[k]);
  }
}

/* Returns whether the seed's model could be proved exact. */
static bool check_seed(uint64_t seed) {
  Module *module = module_create();
  ExactModel made = exact_make(module->arena, seed, false);
  Model *model = exact_load(module, &made);
  Text messages = text_create(module->arena);
  diags_print(module->diags, &messages);
  cr_assert(model, "seed %lu:\n%s%s", (unsigned long)seed, made.text,
            text_string(&messages));
  Graph *plain = exact_graph(module, model, 0, "optimizer", NULL);
  if (!exact_is_proved(module->arena, plain)) return false;
  Tensor *wanted = run_checked(module, &made, plain);
  check_equal(&made, "f32", plain, wanted, plain,
              exact_step(module->arena, &made, plain, INTERP_f32, NULL));
  Graph *final = exact_graph(module, model, 2, NULL, NULL);
  cr_expect(exact_is_proved(module->arena, final),
            "seed %lu: the passes lost the proof", (unsigned long)seed);
  check_equal(&made, "-O2 in f64", plain, wanted, final,
              run_checked(module, &made, final));
  check_equal(&made, "-O2 in f32", plain, wanted, final,
              exact_step(module->arena, &made, final, INTERP_f32, NULL));
  for (int ranks = 2; ranks <= 4; ranks *= 2) {
    Plan *plan = plan_data_parallel(module, model->name,
                                    model->settings.batch_dim, ranks, 1);
    Graph *spread = exact_graph(module, model, 2, NULL, plan);
    cr_expect(exact_is_proved(module->arena, spread),
              "seed %lu: %d ranks lost the proof", (unsigned long)seed, ranks);
  }
  return true;
}

Test(exact, equal_bits) {
  const char *one = getenv("DNNC_SEED"), *many = getenv("DNNC_SEEDS");
  if (one) {
    cr_assert(check_seed(strtoull(one, NULL, 10)), "not exact");
    return;
  }
  uint64_t n = many ? strtoull(many, NULL, 10) : 400;
  int n_proved = 0;
  for (uint64_t seed = 1; seed <= n; seed++) {
    n_proved += check_seed(seed);
    modules_destroy();
  }
  printf("seeds 1..%lu: %d models proved exact, all bits equal\n",
         (unsigned long)n, n_proved);
  cr_expect(n_proved * 3 >= (int)n, "only %d of %lu could be proved", n_proved,
            (unsigned long)n);
}

/* ---- single values ---- */

static Range range_of(Graph *graph, Value value, double bound) {
  Arena *arena = graph->module->arena;
  Range *inputs = ARENA_ARRAY(arena, Range, graph->inputs.n);
  for (int i = 0; i < graph->inputs.n; i++) inputs[i] = (Range){true, 0, bound};
  return range_analyse(arena, graph, inputs)[value.node][value.result];
}

Test(range, sums_of_products) {
  Graph *graph = make_graph(module_create());
  Value x[2] = {make_input(graph, ROLE_data, "x", "f32 B:16 K:16"),
                make_input(graph, ROLE_data, "w", "f32 K:16 J:3")};
  Value y = make(graph, "dot", "over=K", x, 2);
  Range range = range_of(graph, y, 1024);
  cr_expect(range.is_exact && range.unit == 0 && range.bound == 1 << 24);
  cr_expect_not(range_of(graph, y, 1025).is_exact);
  Value quarter = graph_const(graph, DT_f32, 0.25);
  Value scaled = graph_op2(graph, OP_mul, y, quarter);
  range = range_of(graph, scaled, 1024);
  cr_expect(range.is_exact && range.unit == -2 && range.bound == 1 << 22);
  Value more = graph_op2(graph, OP_add, scaled, quarter);
  cr_expect_not(range_of(graph, more, 1024).is_exact);
}

Test(range, what_rounds) {
  Graph *graph = make_graph(module_create());
  Value x = make_input(graph, ROLE_data, "x", "f32 B:16");
  Value three = graph_const(graph, DT_f32, 3),
        four = graph_const(graph, DT_f32, 4);
  cr_expect_not(
      range_of(graph, graph_op2(graph, OP_div, x, three), 8).is_exact);
  cr_expect(range_of(graph, graph_op2(graph, OP_div, x, four), 8).is_exact);
  Value root = graph_op1(graph, OP_sqrt, graph_op1(graph, OP_abs, x));
  cr_expect_not(range_of(graph, root, 64).is_exact);
  cr_expect_eq(range_of(graph, root, 64).bound, 8);
  cr_expect(range_of(graph, graph_op1(graph, OP_finite, root), 64).is_exact);
  Value chosen = graph_op3(graph, OP_select,
                           graph_op2(graph, OP_gt, root, three), x, three);
  cr_expect_not(range_of(graph, chosen, 64).is_exact);
  Value narrow = graph_cast(graph, x, DT_bf16);
  cr_expect(range_of(graph, narrow, 256).is_exact);
  cr_expect_not(range_of(graph, narrow, 257).is_exact);
}
