// links: frontend passes ir support
/*
 * expressions.c -- compares losses and composed operators of the language, with
 * their gradients, on the interpreter in f64 with recorded values of PyTorch
 * (tests/reference/expressions.def).
 */
#include "frontend/frontend.h"
#include "passes/passes.h"
#include "tests/unit/values.h"

TestSuite(expressions, .fini = modules_destroy);

enum { N = 6, K = 4, N_ELEMENTS = N * K };

typedef struct Recorded {
  const char *expression;
  double loss, p[N_ELEMENTS], q[N_ELEMENTS];
} Recorded;

#define LIST(...)                                                              \
  { __VA_ARGS__ }
#define EXPRESSION(expression, loss, p, q) {expression, loss, p, q},
static const Recorded recorded[] = {
#include "tests/reference/expressions.def"
};

static const Source *load(void *user, const char *path) {
  (void)path;
  return user;
}

/* Returns the element that expressions.py has. */
static double element(const char *path, int i) {
  if (strcmp(path, "p") == 0) return 2 * sin(1.7 * i + 0.3);
  if (strcmp(path, "q") == 0) return 1.5 * cos(0.9 * i + 0.5);
  if (strcmp(path, "w") == 0) return 0.5 + 0.75 * i;
  if (strcmp(path, "d.y") == 0) return i * 7 % 5 - 1;
  if (strcmp(path, "d.z") == 0) return i * 5 % 4;
  return 1; /* step */
}

static Model *load_model(Module *module, const char *expression) {
  const char *text = arena_printf(
      module->arena,
      "dim N = %d, K = %d\n"
      "net loss_of(y: i32[N], z: i32[N]) -> [] {\n"
      "  param p, q: [N, K] = zeros\n"
      "  param w: [K] = zeros\n"
      "  return %s + 0 * (sum(p) + sum(q) + sum(w) + sum(y + z))\n"
      "}\n"
      "data d { y: i32[N] = synthetic(K); z: i32[N] = synthetic(K) }\n"
      "train {\n  loss = loss_of(d.y, d.z)\n"
      "  optimizer = sgd(lr = 0.1)\n  steps = 1\n}\n",
      N, K, expression);
  Source source = {"loss.dnn", text, strlen(text)};
  FrontendOptions options = {.load = load, .user = &source, .path = "loss.dnn"};
  return frontend_load(module, &options).model;
}

static void compare(const Recorded *row, const char *what, const double *wanted,
                    const double *got, int n) {
  for (int i = 0; i < n; i++)
    cr_expect(fabs(got[i] - wanted[i]) <= 1e-12 * (1 + fabs(wanted[i])),
              "%s: %s[%d] is %.17g, not %.17g", row->expression, what, i,
              got[i], wanted[i]);
}

static const Graph *with_gradients(Module *module, const Recorded *row) {
  Model *model = load_model(module, row->expression);
  Text text = text_create(module->arena);
  diags_print(module->diags, &text);
  cr_assert(model, "%s", text_string(&text));
  PassContext ctx = {.module = module,
                     .scratch = arena_create(module->memory),
                     .model = model,
                     .is_training = true};
  PassOptions options = {.end = pass_end("autodiff"), .verify = true};
  return passes_run(&ctx, &options, model->train).graph;
}

static Tensor *inputs_of(Arena *arena, const Graph *graph) {
  Tensor *inputs = ARENA_ARRAY(arena, Tensor, graph->inputs.n);
  for (int i = 0; i < graph->inputs.n; i++) {
    const GraphInput *input = &graph->inputs.data[i];
    inputs[i] = tensor_create(arena, graph_type(graph, input->value));
    for (int k = 0; k < type_elements(inputs[i].type); k++)
      inputs[i].data[k] = element(input->path, k);
  }
  return inputs;
}

static void check(const Recorded *row) {
  Module *module = module_create();
  const Graph *graph = with_gradients(module, row);
  Tensor *outputs = run(graph, INTERP_f64, inputs_of(module->arena, graph));
  int n_compared = 0;
  for (int i = 0; i < graph->outputs.n; i++) {
    const GraphOutput *output = &graph->outputs.data[i];
    bool is_p = strcmp(output->path, "p") == 0;
    if (output->role == ROLE_loss)
      compare(row, "the value", &row->loss, outputs[i].data, 1);
    else if (output->role == ROLE_grad && strcmp(output->path, "w") != 0)
      compare(row, output->path, is_p ? row->p : row->q, outputs[i].data,
              N_ELEMENTS);
    else
      continue;
    n_compared++;
  }
  cr_expect_eq(n_compared, 3, "%s", row->expression);
}

Test(expressions, equal_those_of_pytorch) {
  for (size_t i = 0; i < sizeof recorded / sizeof *recorded; i++)
    check(&recorded[i]);
}
