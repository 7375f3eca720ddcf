// links: passes ir support
/*
 * exact_cases.c -- checks in exact mode that every pass keeps every operator's
 * case, that gradients of linear operators are their adjoints, and that
 * gradients of operators and of their decompositions agree.  Faults are put
 * into graphs to see that each of the three checks finds them.
 */
#include "passes/passes.h"
#include "tests/ops/cases.h"
#include "tests/unit/exact_run.h"

TestSuite(exact_cases, .fini = modules_destroy, .timeout = 200);

static const OpCase gradient_cases[] = {
#define SMALL_CASE(op, attrs, ...)    {op, attrs, {__VA_ARGS__}},
#define GRADIENT_CASE(op, attrs, ...) {op, attrs, {__VA_ARGS__}},
#include "tests/ops/cases.def"
};
#define N_CASES          ((int)(sizeof op_cases / sizeof *op_cases))
#define N_GRADIENT_CASES ((int)(sizeof gradient_cases / sizeof *gradient_cases))

static Op case_op(const OpCase *item) {
  Op op;
  cr_assert(op_find(item->op, &op));
  return op;
}

static bool is_float_type(const Type *type) {
  return dtype_class(type->dtype) == CLASS_FLOAT;
}

static Value summed(Graph *graph, Value value) {
  const Type *type = graph_type(graph, value);
  Name over[MAX_RANK];
  for (int i = 0; i < type->rank; i++) over[i] = type->dims[i].name;
  value = graph_cast(graph, value, DT_f32);
  return type->rank == 0 ? value
                         : graph_reduce(graph, OP_sum, value, over, type->rank);
}

/* ---- every pass keeps every case ---- */

/* A parameter for each float and the sum of tanh of all float results as the
 * loss; false if there is no loss or no parameter. */
static bool make_training(Graph *graph) {
  bool has_params = false;
  for (int i = 0; i < graph->inputs.n; i++) {
    GraphInput *input = &graph->inputs.data[i];
    if (!is_float_type(graph_type(graph, input->value))) continue;
    input->role = ROLE_param;
    has_params = true;
  }
  Value loss = VALUE_NONE;
  for (int r = 0; r < graph->outputs.n; r++) {
    Value y = graph->outputs.data[r].value;
    if (!is_float_type(graph_type(graph, y))) continue;
    if (graph_node(graph, y)->op == OP_attention && y.result == 1) continue;
    Value term = summed(graph, graph_op1(graph, OP_tanh, y));
    loss = value_is(loss) ? graph_op2(graph, OP_add, loss, term) : term;
  }
  if (!has_params || !value_is(loss)) return false;
  for (int id = 0; id < graph->nodes.n; id++)
    graph->nodes.data[id]->phase = PHASE_forward;
  make_output(graph, ROLE_loss, "loss", loss);
  return true;
}

static void check_case_at(const OpCase *item, int level, uint64_t seed,
                          int *out_compared) {
  Module *module = module_create();
  Graph *graph = op_case_graph(module, item, "f32");
  Model model = {.module = module, .has_train = true};
  model.settings.optimizer =
      optimizer_call(name_intern(module->names, "adamw"));
  model.settings.optimizer.lr = (Rate){.kind = RATE_constant, .values = {0.1}};
  model.settings.steps = 10;
  model.settings.clip = 0.5;
  bool is_training = make_training(graph);
  ExactWalk walk = exact_walk(graph, seed);
  PassContext ctx = {.module = module,
                     .scratch = arena_create(module->memory),
                     .model = is_training ? &model : NULL,
                     .is_training = is_training};
  PassOptions options = {
      .level = level, .verify = true, .after = exact_walk_on, .user = &walk};
  passes_run(&ctx, &options, graph);
  cr_assert(walk.first == NULL, "%s {%s} -O%d seed %lu: %s changes '%s'",
            item->op, item->attrs, level, (unsigned long)seed,
            pass_label(module->arena, walk.wrong), walk.first);
  *out_compared += walk.n_compared;
  modules_destroy();
}

/* Small enough for two levels and two seeds. */
static bool is_small(const OpCase *item) {
  int64_t n = 0;
  Module *module = module_create();
  Graph *graph = op_case_graph(module, item, "f32");
  for (int id = 0; id < graph->nodes.n; id++)
    for (int r = 0; r < graph->nodes.data[id]->n_results; r++)
      n += type_elements(graph->nodes.data[id]->types[r]);
  modules_destroy();
  return n <= 6000;
}

Test(exact_cases, every_pass_keeps_every_case) {
  int n_compared = 0;
  bool is_seen[N_OPS] = {false};
  for (int i = 0; i < N_CASES; i++) {
    const OpCase *item = &op_cases[i];
    if (!op_case_takes(item, "f32") || !is_small(item)) continue;
    is_seen[case_op(item)] = true;
    for (int level = 0; level <= 2; level += 2)
      for (int s = 0; s < EXACT_SEEDS; s++)
        check_case_at(item, level, exact_seeds[s], &n_compared);
  }
  cr_assert_gt(n_compared, 2000);
  for (int op = 0; op < N_OPS; op++)
    cr_assert(is_seen[op] || op_info((Op)op)->is_pointwise ||
                  op_case_exempt((Op)op),
              "%s has no small case", op_info((Op)op)->name);
}

/* ---- gradients of linear rows ---- */

static Graph *differentiate(Graph *graph) {
  PassContext ctx = {.module = graph->module,
                     .scratch = arena_create(graph->module->memory),
                     .is_training = true};
  return pass_autodiff(&ctx, graph);
}

/* loss = sum of the first result times data "weights"; parameters are the
 * operands of `mask`. */
static Graph *weighted_case(Module *module, const OpCase *item, unsigned mask) {
  Graph *graph = op_case_graph(module, item, "f32");
  for (int i = 0; i < graph->inputs.n; i++) {
    const Type *type = graph_type(graph, graph->inputs.data[i].value);
    if (mask >> i & 1 && is_float_type(type))
      graph->inputs.data[i].role = ROLE_param;
  }
  Value y = graph->outputs.data[0].value;
  Value weights =
      graph_input(graph, ROLE_data, name_intern(module->names, "weights"),
                  graph_type(graph, y));
  graph->outputs.n = 0;
  make_output(graph, ROLE_loss, "loss",
              summed(graph, graph_op2(graph, OP_mul, y, weights)));
  return graph;
}

/* Returns whether the gradient times the parameters is the loss, as of a linear
 * function. */
static bool is_adjoint(const Graph *training, uint64_t seed) {
  Tensor *inputs = exact_all_inputs(training, seed);
  for (int id = 0; id < training->nodes.n; id++)
    if (op_has_slots(training->nodes.data[id]->op))
      expert_indices(training, training->nodes.data[id], &inputs[1], &inputs[2],
                     seed);
  Tensor *outputs = exact_outputs(training, inputs, seed);
  ExactNumber sum = {0, 0};
  for (int i = 0; i < training->inputs.n; i++) {
    const GraphInput *input = &training->inputs.data[i];
    const GraphOutput *grad =
        graph_find_output(training, ROLE_grad, input->path);
    if (input->role != ROLE_param || !grad) continue;
    const Tensor *g = &outputs[grad - training->outputs.data];
    cr_assert(type_same_shape(g->type, inputs[i].type));
    for (int64_t k = 0; k < type_elements(g->type); k++)
      sum = exact_plus(sum, exact_mul(g->exact[k], inputs[i].exact[k]));
  }
  const GraphOutput *loss = NULL;
  for (int r = 0; r < training->outputs.n; r++)
    if (training->outputs.data[r].role == ROLE_loss)
      loss = &training->outputs.data[r];
  return exact_equal(sum, outputs[loss - training->outputs.data].exact[0]);
}

/* The operands in which the row is linear, one mask for each time it is. */
static int linear_masks(Op op, int n_inputs, unsigned out[6]) {
  const OpInfo *info = op_info(op);
  if (info->linear == LINEAR_no || !info->grad || op == OP_pad) return 0;
  if (info->linear == LINEAR_first) return out[0] = 1, 1;
  if (info->linear == LINEAR_all) return out[0] = (1u << n_inputs) - 1, 1;
  for (int i = 0; i < n_inputs; i++) out[i] = 1u << i;
  return n_inputs;
}

typedef Value GradientFault(Graph *graph, Value gradient);

static void spoil(Graph *graph, GradientFault *fault) {
  for (int r = 0; r < graph->outputs.n && fault; r++) {
    GraphOutput *output = &graph->outputs.data[r];
    if (output->role == ROLE_grad) output->value = fault(graph, output->value);
  }
}

/* How many of the gradients are no adjoints, each with `fault` if that is not
 * NULL. */
static int count_wrong_adjoints(GradientFault *fault, int *out_n) {
  int n_wrong = 0;
  *out_n = 0;
  for (int i = 0; i < N_GRADIENT_CASES; i++) {
    const OpCase *item = &gradient_cases[i];
    unsigned masks[6];
    int n_inputs = 0;
    while (n_inputs < 6 && item->inputs[n_inputs]) n_inputs++;
    int n = linear_masks(case_op(item), n_inputs, masks);
    for (int m = 0; m < n; m++) {
      Graph *graph = weighted_case(module_create(), item, masks[m]);
      Graph *training = differentiate(graph);
      spoil(training, fault);
      bool is_right = is_adjoint(training, exact_seeds[m % EXACT_SEEDS]);
      ++*out_n;
      n_wrong += !is_right;
      if (!is_right && !fault)
        cr_log_error("%s {%s}: the gradient of operands %x is wrong", item->op,
                     item->attrs, masks[m]);
      modules_destroy();
    }
  }
  return n_wrong;
}

Test(exact_cases, gradients_of_linear_rows_are_their_adjoints) {
  int n;
  cr_assert_eq(count_wrong_adjoints(NULL, &n), 0);
  cr_assert_gt(n, 40, "%d", n);
}

/* ---- gradients of decompositions ---- */

/* The gradients agree by the identities that exact mode keeps.  Those of the
 * normalisations need rsqrt(x)^2 x = 1, which it does not keep. */
static bool has_exact_gradient(Op op) {
  const OpInfo *info = op_info(op);
  return info->grad && info->decompose && op != OP_layernorm &&
         op != OP_rmsnorm && op != OP_batchnorm;
}

/* The derivative of a clamp compares, and the order of residues is another. */
static Value no_guard(Graph *to, const Node *node, const Value *inputs) {
  (void)to;
  return node_int(node, ATTR_guard, 0) ? inputs[0] : VALUE_NONE;
}

static Graph *decomposed(Graph *graph) {
  PassContext ctx = {.module = graph->module,
                     .scratch = arena_create(graph->module->memory),
                     .is_training = true};
  graph = pass_decompose(&ctx, graph);
  return exact_changed(graph, 0, graph->nodes.n, no_guard);
}

Test(exact_cases, gradients_equal_those_of_decompositions) {
  int n_checked = 0;
  for (int i = 0; i < N_GRADIENT_CASES; i++) {
    const OpCase *item = &gradient_cases[i];
    if (!has_exact_gradient(case_op(item))) continue;
    Graph *graph = weighted_case(module_create(), item, ~0u);
    const Graph *whole = differentiate(graph);
    const Graph *parts = differentiate(decomposed(graph));
    for (int s = 0; s < EXACT_SEEDS; s++) {
      ExactComparison got = exact_compare_graphs(whole, parts, exact_seeds[s]);
      cr_assert_eq(got.n_differing, 0, "%s {%s}: %s differs", item->op,
                   item->attrs, got.first);
      n_checked += got.n;
    }
    modules_destroy();
  }
  cr_assert_gt(n_checked, 20, "%d", n_checked);
}

/* ---- faults ---- */

static Value wrong_sign(Graph *graph, Value gradient) {
  return graph_op1(graph, OP_neg, gradient);
}

static Value lost_factor(Graph *graph, Value gradient) {
  DType dtype = graph_type(graph, gradient)->dtype;
  return graph_op2(graph, OP_mul, gradient, graph_const(graph, dtype, 0.5));
}

Test(exact_cases, wrong_gradients_are_no_adjoints) {
  GradientFault *const faults[] = {wrong_sign, lost_factor};
  for (int f = 0; f < 2; f++) {
    int n, n_wrong = count_wrong_adjoints(faults[f], &n);
    cr_assert_eq(n_wrong, n, "%d of %d", n_wrong, n);
  }
}
