// links: passes ir
/*
 * gradients.c -- compares the gradient of every differentiable operator with
 * central differences in f64 on the interpreter, and tests what the pass
 * autodiff promises about a graph. The operators come from the table: one
 * without a case fails the test.
 */
#include "tests/ops/cases.h"

#include "passes/passes.h"

static const OpCase cases[] = {
#define SMALL_CASE(op, attrs, ...)    {op, attrs, {__VA_ARGS__}},
#define GRADIENT_CASE(op, attrs, ...) {op, attrs, {__VA_ARGS__}},
#include "tests/ops/cases.def"
};

TestSuite(autodiff, .fini = modules_destroy);
TestSuite(gradients, .fini = modules_destroy);

/* ---- the check ---- */

static Graph *differentiate(Graph *graph) {
  PassContext ctx = {.module = graph->module,
                     .scratch = arena_create(graph->module->memory),
                     .is_training = true};
  Graph *training = pass_autodiff(&ctx, graph);
  Text errors = text_create(graph->module->arena);
  cr_assert(graph_verify(training, &errors), "%s", text_string(&errors));
  return training;
}

/* loss = sum of the result times data "weights". */
static Graph *loss_graph(Module *module, const OpCase *item) {
  Graph *graph = make_graph(module);
  Value inputs[3];
  int n = 0;
  for (; n < 3 && item->inputs[n] != NULL; n++) {
    char path[] = {(char)('a' + n), '\0'};
    char text[300];
    op_case_text(text, sizeof text, item->inputs[n], "f64");
    const Type *type = make_type(module, text);
    Role role =
        dtype_class(type->dtype) == CLASS_FLOAT ? ROLE_param : ROLE_data;
    inputs[n] =
        graph_input(graph, role, name_intern(module->names, path), type);
  }
  char attrs[300];
  op_case_text(attrs, sizeof attrs, item->attrs, "f64");
  Value y = make(graph, item->op, attrs, inputs, n);
  const Type *type = graph_type(graph, y);
  Value weights = graph_input(graph, ROLE_data,
                              name_intern(module->names, "weights"), type);
  Value product = graph_op2(graph, OP_mul, y, weights);
  Name over[MAX_RANK];
  for (int i = 0; i < type->rank; i++) over[i] = type->dims[i].name;
  Value loss = graph_reduce(graph, OP_sum, product, over, type->rank);
  make_output(graph, ROLE_loss, "loss", loss);
  return graph;
}

static double loss_at(const Graph *graph, Tensor *inputs, int input,
                      int64_t element, double x) {
  double old = inputs[input].data[element];
  inputs[input].data[element] = x;
  double loss = run(graph, INTERP_f64, inputs)[0].data[0];
  inputs[input].data[element] = old;
  return loss;
}

static void check_input(const OpCase *item, const Graph *graph, Tensor *inputs,
                        int input, Tensor gradient) {
  int64_t n = type_elements(inputs[input].type);
  cr_assert(type_same_shape(gradient.type, inputs[input].type));
  for (int64_t i = 0; i < n; i++) {
    double x = inputs[input].data[i], h = 1e-5;
    double above = loss_at(graph, inputs, input, i, x + h);
    double below = loss_at(graph, inputs, input, i, x - h);
    double wanted = (above - below) / (2 * h), got = gradient.data[i];
    double scale = fmax(1, fabs(wanted));
    cr_expect(fabs(got - wanted) <= 1e-6 * scale,
              "%s {%s}: operand %d, element %d: gradient %.10g, difference "
              "%.10g",
              item->op, item->attrs, input, (int)i, got, wanted);
  }
}

/* Reals are drawn from [low, high). */
static void check(const OpCase *item, double low, double high) {
  Module *module = module_create();
  Graph *graph = loss_graph(module, item);
  Graph *training = differentiate(graph);
  Tensor inputs[5];
  for (int i = 0; i < graph->inputs.n; i++) {
    const Type *type = graph_type(graph, graph->inputs.data[i].value);
    bool is_real = dtype_class(type->dtype) == CLASS_FLOAT;
    inputs[i] = tensor_random(module->arena, type,
                              hash_bytes(item->op, strlen(item->op), i), low,
                              is_real ? high : 4);
  }
  const Node *node = graph->nodes.data[graph->inputs.n - 1];
  if (op_has_slots(node->op))
    expert_indices(graph, node, &inputs[1], &inputs[2], 3);
  Tensor *outputs = run(training, INTERP_f64, inputs);
  int output = 1;
  for (int i = 0; i < graph->inputs.n; i++) {
    const GraphInput *input = &graph->inputs.data[i];
    if (input->role != ROLE_param) continue;
    Tensor gradient = {.type = graph_type(graph, input->value),
                       .data = ARENA_ARRAY(module->arena, double,
                                           type_elements(inputs[i].type))};
    if (graph_find_output(training, ROLE_grad, input->path))
      gradient = outputs[output++];
    check_input(item, graph, inputs, i, gradient); /* none: it must be 0 */
  }
  cr_assert_eq(output, training->outputs.n);
}

Test(gradients, structured) {
  for (int i = 0; i < ARRAY_LENGTH(cases); i++) check(&cases[i], -2, 2);
}

/* Weights and rows through all of them; dropped tokens have no part. */
Test(gradients, experts) {
  Module *module = module_create();
  Graph *graph =
      expert_graph(module, ROLE_param, "f64 B:2 T:9 E:4", "f64 B:2 T:9 C:3");
  Graph *training = differentiate(graph);
  Tensor inputs[2];
  for (int i = 0; i < 2; i++)
    inputs[i] = tensor_random(module->arena,
                              graph_type(graph, graph->inputs.data[i].value),
                              (uint64_t)i, 0.1, 1);
  Tensor *outputs = run(training, INTERP_f64, inputs);
  for (int i = 0; i < 2; i++)
    check_input(&(OpCase){"experts", "", {0}}, graph, inputs, i,
                outputs[i + 1]);
}

static bool has_derivative(const OpInfo *info) {
  for (int i = 0; i < info->max_inputs; i++) {
    if (strcmp(info->derivative[i], "none") != 0) return true;
  }
  return false;
}

/* Broadcast operands, sizes of 1 and scalars. */
static const char *const shapes[][3] = {
    {"f64 B:3 C:2", "f64 C:2", "f64 B:3"},
    {"f64 C:1", "f64 B:2 C:1", "f64"},
    {"f64", "f64 B:2", "f64 A:1 B:2"},
};

Test(gradients, pointwise) {
  for (Op op = 0; op < N_OPS; op++) {
    const OpInfo *info = op_info(op);
    if (!info->is_pointwise || !has_derivative(info)) continue;
    bool is_positive = op == OP_log || op == OP_sqrt || op == OP_rsqrt ||
                       op == OP_log1p || op == OP_log2 || op == OP_pow ||
                       op == OP_div;
    for (int s = 0; s < ARRAY_LENGTH(shapes); s++) {
      OpCase item = {info->name, "", {0}};
      for (int i = 0; i < info->min_inputs; i++) item.inputs[i] = shapes[s][i];
      if (op == OP_select) item.inputs[0] = "bool B:3";
      if (op == OP_select && s > 0) item.inputs[0] = "bool B:2 C:1";
      check(&item, is_positive ? 0.5 : -2, 2);
    }
  }
}

/* Those of scan are in tests/unit/scan.c. */
Test(gradients, every_operator_has_a_case) {
  for (Op op = 0; op < N_OPS; op++) {
    const OpInfo *info = op_info(op);
    if (info->is_pointwise || info->grad == NULL || op == OP_scan) continue;
    bool has_case = false;
    for (int i = 0; i < ARRAY_LENGTH(cases); i++) {
      has_case = has_case || strcmp(cases[i].op, info->name) == 0;
    }
    cr_expect(has_case, "operator %s has a gradient and no case", info->name);
  }
}

/* ---- special places ---- */

Test(gradients, extremum_takes_the_first) {
  Module *module = module_create();
  Graph *graph = make_graph(module);
  Value x = make_input(graph, ROLE_param, "x", "f64 A:2 B:3");
  make_output(graph, ROLE_loss, "loss", make1(graph, "max", "over=A,B", x));
  Tensor input = tensor_of(module->arena, graph_type(graph, x),
                           (double[]){1, 5, 2, 5, 0, 5});
  Tensor *outputs = run(differentiate(graph), INTERP_f64, &input);
  cr_values(outputs[1], 0, 0, 1, 0, 0, 0, 0);
}

/* The loss, sum(op(a, b)), and its gradients: of `a`, and of `b` if it is a
 * parameter. */
static Tensor *run_pair(Op op, Role of_b, const double *a, const double *b) {
  Module *module = module_create();
  Graph *graph = make_graph(module);
  Value x = make_input(graph, ROLE_param, "a", "f64 B:3");
  Value y = make_input(graph, of_b, "b", "f64 B:3");
  Value z = graph_op2(graph, op, x, y);
  make_output(graph, ROLE_loss, "loss", make1(graph, "sum", "over=B", z));
  const Type *type = graph_type(graph, x);
  Tensor inputs[] = {tensor_of(module->arena, type, a),
                     tensor_of(module->arena, type, b)};
  return run(differentiate(graph), INTERP_f64, inputs);
}

Test(gradients, ties_share_between_operands) {
  const double a[] = {1, 2, 3}, b[] = {1, 3, 2};
  Tensor *outputs = run_pair(OP_maximum, ROLE_param, a, b);
  cr_values(outputs[1], 0, 0.5, 0, 1);
  cr_values(outputs[2], 0, 0.5, 1, 0);
}

/* x^0 is 1 everywhere: 0 times the infinite 0^-1 must not come up. */
Test(gradients, zero_to_the_zero) {
  const double zeros[] = {0, 0, 0}, powers[] = {0, 1, 2};
  Tensor *outputs = run_pair(OP_pow, ROLE_data, zeros, powers);
  cr_values(outputs[0], 0, 1);
  cr_values(outputs[1], 0, 0, 1, 0);
}

/* The branch not taken has an infinite derivative, which must not reach the
 * gradient as 0 * inf. */
Test(gradients, select_keeps_infinities_out) {
  Module *module = module_create();
  Graph *graph = make_graph(module);
  Value x = make_input(graph, ROLE_param, "x", "f64 B:2");
  Value is_above = graph_op2(graph, OP_gt, x, graph_const(graph, DT_f64, 0));
  Value one = graph_const(graph, DT_f64, 1);
  Value safe = graph_op3(graph, OP_select, is_above, x, one);
  Value y =
      graph_op3(graph, OP_select, is_above, graph_op1(graph, OP_log, safe), x);
  make_output(graph, ROLE_loss, "loss", make1(graph, "sum", "over=B", y));
  Tensor input =
      tensor_of(module->arena, graph_type(graph, x), (double[]){0, 4});
  Tensor *outputs = run(differentiate(graph), INTERP_f64, &input);
  cr_values(outputs[1], 0, 1, 0.25);
}

/* ---- the pass ---- */

Test(autodiff, tied_parameters_add_and_keep_their_order) {
  Module *module = module_create();
  Graph *graph = make_graph(module);
  Value w = make_input(graph, ROLE_param, "w", "f64 V:3 C:2");
  Value at = make_input(graph, ROLE_data, "i", "i32 B:2");
  Value x = make(graph, "gather", "dim=V", (Value[]){w, at}, 2);
  Value y = make(graph, "dot", "over=C", (Value[]){x, w}, 2);
  make_output(graph, ROLE_loss, "loss", make1(graph, "sum", "over=B,V", y));
  Tensor inputs[] = {
      tensor_of(module->arena, graph_type(graph, w),
                (double[]){1, 2, 3, 4, 5, 6}),
      tensor_of(module->arena, graph_type(graph, at), (double[]){2, 2})};
  Graph *training = differentiate(graph);
  cr_assert_eq(training->outputs.n, 2);
  cr_assert_eq(training->outputs.data[1].role, ROLE_grad);
  cr_assert_str_eq(training->outputs.data[1].path, "w");
  Tensor *outputs = run(training, INTERP_f64, inputs);
  /* It is 2 w[2] for each row as weight, and 2 (w[0] + w[1] + w[2]) into row 2
   * as embedding. */
  cr_values(outputs[1], 0, 10, 12, 10, 12, 10 + 18, 12 + 24);
}

Test(autodiff, frozen_and_unused_parameters) {
  Module *module = module_create();
  Graph *graph = make_graph(module);
  Value a = make_input(graph, ROLE_param, "a", "f64 B:2");
  Value frozen = make_input(graph, ROLE_param, "frozen", "f64 B:2");
  make_input(graph, ROLE_param, "unused", "f64 B:2");
  graph->inputs.data[1].is_frozen = true;
  Value y = graph_op2(graph, OP_mul, a, frozen);
  make_output(graph, ROLE_loss, "loss", make1(graph, "sum", "over=B", y));
  Graph *training = differentiate(graph);
  cr_assert_eq(training->outputs.n, 2);
  cr_assert_str_eq(training->outputs.data[1].path, "a");
  cr_assert_eq(diags_warnings(module->diags), 1);
  cr_assert_eq(diags_errors(module->diags), 0);
}

Test(autodiff, no_gradient_through_stop) {
  Module *module = module_create();
  Graph *graph = make_graph(module);
  Value a = make_input(graph, ROLE_param, "a", "f64 B:2");
  Value y = graph_op2(graph, OP_mul, a, graph_op1(graph, OP_stop_gradient, a));
  make_output(graph, ROLE_loss, "loss", make1(graph, "sum", "over=B", y));
  Tensor input =
      tensor_of(module->arena, graph_type(graph, a), (double[]){3, 4});
  Tensor *outputs = run(differentiate(graph), INTERP_f64, &input);
  cr_values(outputs[1], 0, 3, 4);
}

/* x.w1.w2: the gradients of w1 and w2 are weight gradients, the one of x.w1
 * is on the way back. */
Test(autodiff, phases_and_paths) {
  Module *module = module_create();
  Graph *graph = make_graph(module);
  Value x = make_input(graph, ROLE_data, "x", "f64 B:2 I:3");
  Value w1 = make_input(graph, ROLE_param, "w1", "f64 I:3 H:4");
  Value w2 = make_input(graph, ROLE_param, "w2", "f64 H:4 O:2");
  graph->path = name_intern(module->names, "layer.dot");
  Value h = make(graph, "dot", "over=I", (Value[]){x, w1}, 2);
  Value y = make(graph, "dot", "over=H", (Value[]){h, w2}, 2);
  make_output(graph, ROLE_loss, "loss", make1(graph, "sum", "over=B,O", y));
  Graph *training = differentiate(graph);
  int inner = 0, weight = 0;
  for (int id = graph->nodes.n; id < training->nodes.n; id++) {
    const Node *node = training->nodes.data[id];
    if (node->op != OP_dot) continue;
    cr_assert_str_eq(node->path, "grad.layer.dot");
    inner += node->phase == PHASE_input_gradient &&
             type_find(node->types[0], name_intern(module->names, "H")) >= 0;
    weight += node->phase == PHASE_weight_gradient &&
              type_find(node->types[0], name_intern(module->names, "B")) < 0;
  }
  cr_assert_eq(inner, 1);
  cr_assert_eq(weight, 2);
  for (int i = 0; i < graph->nodes.n; i++) {
    cr_assert_eq(training->nodes.data[i]->op, graph->nodes.data[i]->op);
    cr_assert_eq(training->nodes.data[i]->phase, PHASE_forward);
  }
}
