// links: frontend passes ir support
/*
 * scan.c -- compares a scan with its unrolled loop.
 *
 * Each model of tests/scans has a `const unrolled` that chooses between the
 * two. Loss and gradients must agree in f64, as written and after all passes.
 */
#include "frontend/frontend.h"
#include "passes/passes.h"
#include "tests/ops/tolerance.h"
#include "tests/unit/values.h"

#define TOLERANCE 1e-12 /* of the largest element of a tensor */

TestSuite(scan, .fini = modules_destroy);

typedef struct Outcome { /* loss and gradients of one way to compute them */
  const Graph *graph;
  Tensor *outputs;
} Outcome;

static const Source *load(void *user, const char *path) {
  Module *module = user;
  Source *source = ARENA_NEW(module->arena, Source);
  source->path = path;
  const char *full = arena_printf(module->arena, "%s/%s", TEST_ROOT, path);
  Status status =
      file_read(module->arena, full, 1 << 20, &source->text, &source->n);
  return status.code == STATUS_ok ? source : NULL;
}

static Model *model_in(const char *name, bool is_unrolled,
                       const char *compute) {
  Module *module = module_create();
  Override overrides[] = {{"unrolled", is_unrolled ? "1" : "0"},
                          {"precision.compute", compute}};
  FrontendOptions options = {
      .load = load,
      .user = module,
      .path = arena_printf(module->arena, "tests/scans/%s.dnn", name),
      .overrides = overrides,
      .n_overrides = ARRAY_LENGTH(overrides)};
  Model *model = frontend_load(module, &options).model;
  Text text = text_create(module->arena);
  diags_print(module->diags, &text);
  cr_assert(model, "%s", text_string(&text));
  return model;
}

static Model *model_of(const char *name, bool is_unrolled) {
  return model_in(name, is_unrolled, "f32");
}

/* Values by path, so that both ways get the same. */
static Tensor *make_inputs(const Graph *graph) {
  Arena *arena = graph->module->arena;
  Tensor *inputs = ARENA_ARRAY(arena, Tensor, graph->inputs.n);
  for (int i = 0; i < graph->inputs.n; i++) {
    const GraphInput *input = &graph->inputs.data[i];
    const Type *type = graph_type(graph, input->value);
    bool is_moment = input->role == ROLE_optimizer_state;
    double high = dtype_class(type->dtype) == CLASS_INT ? 5 : 1;
    inputs[i] = is_moment ? tensor_create(arena, type)
                          : tensor_random(arena, type,
                                          random_key(7, input->path), -1, high);
  }
  return inputs;
}

static Outcome compute(Model *model, int level, const char *through) {
  Module *module = model->module;
  PassContext ctx = {.module = module,
                     .scratch = arena_create(module->memory),
                     .model = model,
                     .is_training = true};
  PassOptions options = {
      .level = level, .end = pass_end(through), .verify = true};
  Graph *graph = passes_run(&ctx, &options, model->train).graph;
  cr_assert_eq(diags_errors(module->diags), 0);
  return (Outcome){graph, run(graph, INTERP_f64, make_inputs(graph))};
}

static void compare(const char *name, const char *how, const char *path,
                    Tensor got, Tensor wanted, double allowed) {
  int64_t n = type_elements(wanted.type);
  cr_assert_eq(type_elements(got.type), n, "%s: %s", name, path);
  double largest = 0, error = 0;
  for (int64_t i = 0; i < n; i++) {
    largest = fmax(largest, fabs(wanted.data[i]));
    error = fmax(error, fabs(got.data[i] - wanted.data[i]));
  }
  cr_expect(error <= allowed * largest, "%s (%s): '%s' is off by %g of %g",
            name, how, path, error, largest);
}

/* Loss and gradients; after the optimizer, m of Adam stands for gradients. */
static void compare_within(const char *name, const char *how, Outcome got,
                           Outcome wanted, double allowed) {
  int n = 0;
  for (int i = 0; i < wanted.graph->outputs.n; i++) {
    const GraphOutput *output = &wanted.graph->outputs.data[i];
    const GraphOutput *mine = NULL;
    if (output->role != ROLE_loss && output->role != ROLE_grad) continue;
    Names *names = got.graph->module->names;
    mine = graph_find_output(got.graph, output->role,
                             name_intern(names, output->path));
    if (!mine)
      mine = graph_find_output(got.graph, ROLE_optimizer_state,
                               name_format(names, "sgd.m/%s", output->path));
    cr_assert(mine, "%s (%s): no %s", name, how, output->path);
    compare(name, how, output->path,
            got.outputs[mine - got.graph->outputs.data], wanted.outputs[i],
            allowed);
    n++;
  }
  cr_assert_gt(n, 1);
}

static void compare_all(const char *name, const char *how, Outcome got,
                        Outcome wanted) {
  compare_within(name, how, got, wanted, TOLERANCE);
}

static int count_scans(const Graph *graph) {
  int n = 0;
  for (int id = 0; id < graph->nodes.n; id++)
    n += graph->nodes.data[id]->op == OP_scan;
  return n;
}

static void check(const char *name) {
  Outcome wanted = compute(model_of(name, true), 0, "autodiff");
  cr_assert_eq(count_scans(wanted.graph), 0);
  Outcome plain = compute(model_of(name, false), 0, "autodiff");
  cr_assert_gt(count_scans(plain.graph), 1);
  compare_all(name, "as written", plain, wanted);
  compare_all(name, "-O2", compute(model_of(name, false), 2, "autodiff"),
              wanted);
  for (int level = 0; level <= 2; level++)
    compare_all(name,
                arena_printf(wanted.graph->module->arena, "all of -O%d", level),
                compute(model_of(name, false), level, NULL), wanted);
}

Test(scan, lstm) {
  check("lstm");
}
Test(scan, gru) {
  check("gru");
}
Test(scan, attention) {
  check("attention");
}
Test(scan, exchange) {
  check("exchange");
}
Test(scan, outside) {
  check("outside");
}
Test(scan, single) {
  check("single");
}
Test(scan, carried) {
  check("carried");
}
Test(scan, across) {
  check("across");
}
Test(scan, nested) {
  check("nested");
}

Test(scan, order) {
  check("order");
}

/* ---- against central differences ---- */

static double loss_of(const Graph *graph, const Tensor *inputs) {
  for (int i = 0; i < graph->outputs.n; i++)
    if (graph->outputs.data[i].role == ROLE_loss)
      return run(graph, INTERP_f64, inputs)[i].data[0];
  UNREACHABLE();
}

static void check_differences(const char *name) {
  const double step = 1e-5, tolerance = 1e-8;
  Outcome got = compute(model_of(name, false), 2, "autodiff");
  const Graph *graph = got.graph;
  Tensor *inputs = make_inputs(graph);
  for (int i = 0; i < graph->inputs.n; i++) {
    const GraphInput *input = &graph->inputs.data[i];
    const GraphOutput *output =
        graph_find_output(graph, ROLE_grad, input->path);
    if (input->role != ROLE_param) continue;
    cr_assert(output, "%s: no gradient of %s", name, input->path);
    Tensor gradient = got.outputs[output - graph->outputs.data];
    for (int64_t k = 0; k < type_elements(inputs[i].type); k++) {
      double *at = &inputs[i].data[k], before = *at;
      *at = before + step;
      double above = loss_of(graph, inputs);
      *at = before - step;
      double difference = (above - loss_of(graph, inputs)) / (2 * step);
      *at = before;
      cr_expect(fabs(difference - gradient.data[k]) <=
                    tolerance * fmax(1, fabs(difference)),
                "%s: '%s'[%lld] is %.12g, differences say %.12g", name,
                input->path, (long long)k, gradient.data[k], difference);
    }
  }
}

Test(scan, central_differences) {
  check_differences("lstm");
  check_differences("nested");
}

/* Nodes of one operator in the bodies of all scans. */
static int count_inside(const Graph *graph, Op op) {
  int n = 0;
  for (int id = 0; id < graph->nodes.n; id++) {
    const Graph *body = graph->nodes.data[id]->body;
    for (int i = 0; body && i < body->nodes.n; i++)
      n += body->nodes.data[i]->op == op;
  }
  return n;
}

/* One dot an iteration, forward and backward: the gradient of the weights is
 * computed outside. */
Test(scan, contractions_leave_the_loop) {
  Outcome lstm = compute(model_of("lstm", false), 2, "partition");
  cr_expect_eq(count_scans(lstm.graph), 4);
  cr_expect_eq(count_inside(lstm.graph, OP_dot), 4);
  Outcome outside = compute(model_of("outside", false), 2, "partition");
  cr_expect_eq(count_inside(outside.graph, OP_dot), 2);
  cr_expect_eq(count_inside(outside.graph, OP_gather), 0);
}

/* ---- 16 bits ---- */

/* Products in bodies read 16 bits; sums and carries that only add are f32. */
static void check_bodies(const char *name, const Graph *graph, DType dtype) {
  int n_products = 0, n_stacks = 0;
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    if (node->op != OP_scan) continue;
    for (int i = scan_carries(node); i < node->n_results; i++)
      n_stacks += node->types[i]->dtype == dtype;
    for (int i = 0; i < node->body->nodes.n; i++) {
      const Node *inner = node->body->nodes.data[i];
      if (inner->op != OP_dot) continue;
      n_products++;
      for (int k = 0; k < 2; k++)
        cr_expect_eq(
            graph_type(node->body, inner->inputs[k])->dtype, dtype,
            "%s: a product in a loop reads %s", name,
            dtype_name(graph_type(node->body, inner->inputs[k])->dtype));
    }
  }
  cr_expect(n_products > 0 || n_stacks > 0, "%s: nothing is rounded", name);
}

Test(scan, sixteen_bits) {
  static const char *const names[] = {"lstm",     "gru",     "attention",
                                      "exchange", "outside", "single",
                                      "order",    "nested"};
  static const DType dtypes[] = {DT_bf16, DT_f16};
  for (int n = 0; n < ARRAY_LENGTH(names); n++) {
    Outcome wanted = compute(model_of(names[n], true), 0, "autodiff");
    for (int i = 0; i < ARRAY_LENGTH(dtypes); i++)
      for (int level = 0; level <= 2; level++) {
        const char *number = dtype_name(dtypes[i]);
        Outcome got =
            compute(model_in(names[n], false, number), level, "precision");
        check_bodies(names[n], got.graph, dtypes[i]);
        compare_within(
            names[n],
            arena_printf(got.graph->module->arena, "%s -O%d", number, level),
            got, wanted, tolerance_decomposed(dtypes[i]));
        Outcome packed =
            compute(model_in(names[n], false, number), level, NULL);
        compare_within(names[n],
                       arena_printf(got.graph->module->arena, "%s -O%d packed",
                                    number, level),
                       packed, wanted, tolerance_decomposed(dtypes[i]));
      }
  }
}
