// links: verify driver codegen frontend passes runtime ir support
/*
 * verify_inputs.c -- the numbers that models are played on have what would hide
 * a mistake if it were missing.
 */
#include "tests/unit/play_model.h"
#include "verify/verify_steps.h"

TestSuite(verify_inputs, .fini = modules_destroy, .timeout = 100);

/* How many experts a routing uses; groups of tokens share them. */
static int count_used(const Node *route, const Tensor *slot) {
  int n, n_used = 0;
  const int64_t *sizes = node_ints(route, ATTR_sizes, &n);
  for (int64_t e = 0; e < sizes[0]; e++) {
    bool is_used = false;
    for (int64_t i = 0; i < type_elements(slot->type); i++)
      is_used |= slot->data[i] >= 0 && (int64_t)slot->data[i] / sizes[1] == e;
    n_used += is_used;
  }
  return n_used;
}

/* Runs the reference of the first step; every routing has an expert without a
 * token and experts that have some.  Returns how many there are. */
static int check_routings(const Compilation *c, const VerifySteps *steps,
                          Numbers numbers) {
  const VerifyStep *step = &steps->gradients.list[0];
  const Graph *graph = step->reference;
  Arena *arena = c->module->arena;
  VerifyInputs with = {.model = c->model,
                       .numbers = &numbers,
                       .resizing = steps->resizing,
                       .shards = step->batch_shards};
  Tensor *inputs = ARENA_ARRAY(arena, Tensor, graph->inputs.n);
  Tensor *outputs = ARENA_ARRAY(arena, Tensor, graph->outputs.n);
  Tensor *values = ARENA_ARRAY(arena, Tensor, graph->nodes.n);
  for (int i = 0; i < graph->inputs.n; i++) {
    const GraphInput *input = &graph->inputs.data[i];
    inputs[i] =
        verify_input(&with, input, graph_type(graph, input->value), arena);
  }
  interp_run_in(graph, &numbers, arena, inputs, outputs, values);
  int n_routings = 0;
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    if (node->op != OP_route) continue;
    int n, n_used = count_used(node, &values[id]);
    int64_t experts = node_ints(node, ATTR_sizes, &n)[0];
    cr_expect(n_used > 1 && n_used < experts, "%s: %d of %ld experts have some",
              node->path, n_used, (long)experts);
    n_routings++;
  }
  return n_routings;
}

static void check_experts(const char *model, const char *sizes) {
  Module *module = module_create();
  CompileOptions options = {.path = model,
                            .plan = TEST_ROOT "/benchmarks/plans/experts.plan",
                            .target = "cpu",
                            .follows_links = true,
                            .level = 2};
  options.overrides =
      play_overrides(module->arena, sizes, &options.n_overrides);
  Compilation c;
  VerifySteps steps;
  cr_assert_eq(driver_load(module, &options, &c), COMPILE_done);
  cr_assert_eq(verify_compile(&c, module, false, &steps), COMPILE_done);
  for (uint64_t seed = 1; seed < 4; seed++) {
    Numbers f64 = {.number = INTERP_f64, .seed = seed};
    Numbers exact = {.number = INTERP_exact, .seed = seed};
    cr_expect_gt(check_routings(&c, &steps, f64), 0, "%s", model);
    cr_expect_gt(check_routings(&c, &steps, exact), 0, "%s", model);
  }
  modules_destroy();
}

/* One of each token's experts, and two. */
Test(verify_inputs, an_expert_has_no_token) {
  check_experts(TEST_ROOT "/benchmarks/systems/moe.dnn", "");
  check_experts(TEST_ROOT "/models/moe.dnn",
                "B=8 T=8 V=16 C=16 F=16 L=2 G=2 H=2 D=4 E=4");
}
