/*
 * checks.c -- checks what must hold for every valid program.
 *
 * In this process, on the interpreter in f64: printing and parsing is the
 * identity, for the program and for its graphs; the step means the same at
 * every level of optimisation; gradients are those of the loss.  With dnnc,
 * emitted and run: -O0 and -O2, one rank, two and four, a batch at once and in
 * pieces, one go and two halves.
 */
#include "tests/random/checks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/syntax/ast.h"
#include "frontend/frontend.h"
#include "interp/interp.h"
#include "passes/passes.h"
#include "tests/ops/tolerance.h"
#include "tests/random/plans.h"

#define FORMAT(...) arena_printf(arena, __VA_ARGS__)

static _Noreturn void no_memory(void *user) {
  (void)user;
  abort();
}

/* ---- loading ---- */

static const Source *load(void *user, const char *path) {
  Source *source = user;
  source->path = path;
  return source;
}

static Module *module_create(Arena *arena) {
  Module *module = ARENA_NEW(arena, Module);
  module->memory = memory_create(no_memory, NULL);
  module->arena = arena_create(module->memory);
  module->names = names_create(module->arena);
  module->diags = diags_create(module->arena);
  return module;
}

static const char *messages(Module *module) {
  Text text = text_create(module->arena);
  diags_print(module->diags, &text);
  return text_string(&text);
}

static Model *load_model(Module *module, const char *text) {
  Source source = {"program.dnn", text, strlen(text)};
  FrontendOptions options = {
      .load = load, .user = &source, .path = "program.dnn"};
  return frontend_load(module, &options).model;
}

static Graph *optimised(Module *module, const Model *model, int level,
                        const char *stop_after, bool is_training) {
  PassContext ctx = {.module = module,
                     .scratch = arena_create(module->memory),
                     .model = model,
                     .is_training = is_training};
  PassOptions options = {
      .level = level, .verify = true, .end = pass_end(stop_after)};
  return passes_run(&ctx, &options, is_training ? model->train : model->eval)
      .graph;
}

/* ---- printing and parsing ---- */

static const char *check_text(Arena *arena, const char *text,
                              const char *dnnc) {
  (void)dnnc;
  Names *names = names_create(arena);
  Diags *diags = diags_create(arena);
  Text first = text_create(arena), second = text_create(arena);
  Source source = {"program.dnn", text, strlen(text)};
  ast_print(&first, ast_parse(arena, names, diags, &source));
  Source printed = {"printed.dnn", text_string(&first), first.n};
  ast_print(&second, ast_parse(arena, names, diags, &printed));
  if (diags_errors(diags) > 0) {
    Text out = text_create(arena);
    diags_print(diags, &out);
    return text_string(&out);
  }
  return strcmp(text_string(&first), text_string(&second))
             ? "the program is not what was printed"
             : NULL;
}

static const char *graph_differs(Arena *arena, Module *module,
                                 const Graph *graph) {
  Text first = text_create(module->arena), second = text_create(module->arena);
  graph_print(&first, graph);
  Source source = {"graph.ir", text_string(&first), first.n};
  Graph *parsed = graph_parse(module, &source);
  if (!parsed) return FORMAT("%s%s", text_string(&first), messages(module));
  graph_print(&second, parsed);
  return strcmp(text_string(&first), text_string(&second))
             ? FORMAT("the graph is not what was printed:\n%s",
                      text_string(&first))
             : NULL;
}

static const char *check_graphs(Arena *arena, const char *text,
                                const char *dnnc) {
  (void)dnnc;
  Module *module = module_create(arena);
  Model *model = load_model(module, text);
  if (!model) return FORMAT("%s", messages(module));
  for (int i = 0; i < 3; i++) {
    const Graph *graph =
        i == 0 ? model->train
               : optimised(module, model, i == 1 ? 0 : 2, NULL, true);
    if (diags_errors(module->diags)) return FORMAT("%s", messages(module));
    const char *difference = graph_differs(arena, module, graph);
    if (difference) return difference;
  }
  return NULL;
}

/* ---- on the interpreter ---- */

static double data_value(const Model *model, const GraphInput *input,
                         int64_t index) {
  uint64_t key = random_key(5, input->path), i = (uint64_t)index;
  for (int b = 0; b < model->n_data; b++)
    for (int f = 0; f < model->data[b].n_fields; f++) {
      const DataField *field = &model->data[b].fields[f];
      if (field->path == input->path && field->below > 0)
        return (double)random_below(key, i, (uint64_t)field->below);
    }
  return 2 * random_uniform(key, i) - 1;
}

static Tensor *make_inputs(Module *module, const Model *model,
                           const Graph *graph) {
  Arena *arena = module->arena;
  Tensor *inputs = ARENA_ARRAY(arena, Tensor, graph->inputs.n);
  for (int i = 0; i < graph->inputs.n; i++) {
    const GraphInput *input = &graph->inputs.data[i];
    const Type *type = graph_type(graph, input->value);
    if (input->role != ROLE_data) {
      inputs[i] = interp_initial(graph, i, 1, arena);
      if (input->role == ROLE_step || input->role == ROLE_seed)
        inputs[i].data[0] = 1;
      continue;
    }
    inputs[i] = (Tensor){
        .type = type, .data = ARENA_ARRAY(arena, double, type_elements(type))};
    for (int64_t k = 0; k < type_elements(type); k++)
      inputs[i].data[k] = data_value(model, input, k);
  }
  return inputs;
}

static Tensor *interpret(Module *module, const Graph *graph,
                         const Tensor *inputs) {
  Tensor *outputs = ARENA_ARRAY(module->arena, Tensor, graph->outputs.n);
  interp_run(graph, INTERP_f64, module->arena, inputs, outputs, NULL);
  return outputs;
}

static int find_output(const Graph *graph, const GraphOutput *like) {
  for (int i = 0; i < graph->outputs.n; i++)
    if (graph->outputs.data[i].role == like->role &&
        graph->outputs.data[i].path == like->path)
      return i;
  return -1;
}

/* Updates divide by what may be nearly zero, so that rounding is magnified:
 * a tensor is compared as a whole. */
static double distance(const Tensor *a, const Tensor *b) {
  double difference = 0, size = 0;
  for (int64_t k = 0; k < type_elements(a->type); k++) {
    double x = a->data[k], y = b->data[k];
    if (x == y || (isnan(x) && isnan(y))) continue;
    difference += (x - y) * (x - y);
    size += x * x;
  }
  return sqrt(difference) / (1e-3 + sqrt(size));
}

/* A gradient that is rounding and nothing else (softmax does not see what all
 * keys share) says nothing, but an optimizer may make much of it. */
static bool is_noise(const Model *model, const Graph *graph,
                     const Tensor *outputs, const char *path) {
  double scale = model->precision.loss_scale;
  double largest = 1e-5 * (scale < 0 ? 65536 : scale), least = INFINITY,
         own = 0;
  for (int i = 0; i < graph->outputs.n; i++) {
    const GraphOutput *output = &graph->outputs.data[i];
    if (output->role != ROLE_grad) continue;
    size_t n = strlen(path), m = strlen(output->path);
    bool is_own = n >= m && !strcmp(path + n - m, output->path);
    for (int64_t k = 0; k < type_elements(outputs[i].type); k++) {
      double x = fabs(outputs[i].data[k]);
      largest = fmax(largest, x);
      if (is_own) own = fmax(own, x);
      if (is_own && x > 0) least = fmin(least, x);
    }
  }
  return least < 1e-8 * largest || own < 1e-8 * largest;
}

static const char *compare_graphs(Arena *arena, Module *module,
                                  const Model *model, bool is_training) {
  Graph *plain = optimised(module, model, 0, NULL, is_training);
  if (diags_errors(module->diags)) return FORMAT("%s", messages(module));
  Tensor *wanted = interpret(module, plain, make_inputs(module, model, plain));
  Graph *forth = optimised(module, model, 0, "autodiff", is_training);
  Tensor *grads = interpret(module, forth, make_inputs(module, model, forth));
  for (int level = 1; level <= 2; level++) {
    Graph *graph = optimised(module, model, level, NULL, is_training);
    Tensor *got = interpret(module, graph, make_inputs(module, model, graph));
    for (int i = 0; i < plain->outputs.n; i++) {
      const GraphOutput *output = &plain->outputs.data[i];
      int other = find_output(graph, output);
      if (other < 0) return FORMAT("-O%d has no %s", level, output->path);
      double error = distance(&wanted[i], &got[other]);
      if (!(error < 1e-6) && !is_noise(model, forth, grads, output->path))
        return FORMAT("%s of %s: -O%d is %.3g away from -O0",
                      role_name(output->role), output->path, level, error);
    }
  }
  return NULL;
}

static const char *check_levels(Arena *arena, const char *text,
                                const char *dnnc) {
  (void)dnnc;
  Module *module = module_create(arena);
  Model *model = load_model(module, text);
  if (!model) return FORMAT("%s", messages(module));
  const char *wrong = compare_graphs(arena, module, model, true);
  return wrong ? wrong : compare_graphs(arena, module, model, false);
}

/* ---- gradients ---- */

/* The loss with all parameters moved along a random direction by `by`, and the
 * slope along it by the gradients.  Parameters begin somewhere else, because
 * equal initial values are ties for max. */
static double loss_along(Module *module, const Model *model, const Graph *graph,
                         double by, double *out_slope) {
  Tensor *inputs = make_inputs(module, model, graph);
  for (int i = 0; i < graph->inputs.n; i++) {
    const GraphInput *input = &graph->inputs.data[i];
    GraphOutput grad = {.role = ROLE_grad, .path = input->path};
    if (input->role != ROLE_param || find_output(graph, &grad) < 0) continue;
    uint64_t key = random_key(9, input->path);
    uint64_t away = random_key(11, input->path);
    for (int64_t k = 0; k < type_elements(inputs[i].type); k++)
      inputs[i].data[k] += 0.1 * random_uniform(away, (uint64_t)k) +
                           by * (random_uniform(key, (uint64_t)k) - 0.5);
  }
  Tensor *outputs = interpret(module, graph, inputs);
  double loss = NAN;
  *out_slope = 0;
  for (int i = 0; i < graph->outputs.n; i++) {
    const GraphOutput *output = &graph->outputs.data[i];
    if (output->role == ROLE_loss) loss = outputs[i].data[0];
    if (output->role != ROLE_grad) continue;
    uint64_t key = random_key(9, output->path);
    for (int64_t k = 0; k < type_elements(outputs[i].type); k++)
      *out_slope +=
          outputs[i].data[k] * (random_uniform(key, (uint64_t)k) - 0.5);
  }
  return loss;
}

/* A step that crosses a kink of relu or max sees another slope: one of several
 * lengths must agree. */
static const char *check_gradients(Arena *arena, const char *text,
                                   const char *dnnc) {
  (void)dnnc;
  static const double steps[] = {1e-4, 1e-5, 1e-6, 1e-3, 1e-8};
  Module *module = module_create(arena);
  Model *model = load_model(module, text);
  if (!model) return FORMAT("%s", messages(module));
  model->precision.loss_scale = 1; /* the loss itself */
  Graph *graph = optimised(module, model, 0, "autodiff", true);
  if (diags_errors(module->diags)) return FORMAT("%s", messages(module));
  double slope, ignored, quotient = NAN, jump = 0;
  loss_along(module, model, graph, 0, &slope);
  for (int i = 0; i < ARRAY_LENGTH(steps); i++) {
    double h = steps[i];
    double above = loss_along(module, model, graph, h, &ignored);
    double below = loss_along(module, model, graph, -h, &ignored);
    jump = fabs(above - below);
    quotient = jump == 0 ? 0 : (above - below) / (2 * h);
    if (fabs(quotient - slope) <= 1e-5 * (fabs(slope) + 0.01)) return NULL;
  }
  /* The last step is so short that only a choice between equals does this. */
  if (jump > 1e-4) return NULL;
  return FORMAT("the loss changes by %.9g, its gradient says %.9g", quotient,
                slope);
}

/* ---- emitted ---- */

/* Standard output of a command in the folder, or NULL and what it said. */
static const char *output_of(Arena *arena, const char *folder,
                             const char *command, const char **out_error) {
  const char *bytes;
  size_t n;
  int code = system(FORMAT("cd %s && %s >out 2>err", folder, command));
  bool is_done = code == 0;
  Status status =
      file_read(arena, FORMAT("%s/%s", folder, is_done ? "out" : "err"),
                1 << 24, &bytes, &n);
  if (status.code != STATUS_ok) bytes = status.message;
  if (is_done) return bytes;
  /* Warnings come first, and may be many. */
  const char *error = strstr(bytes, ": error: ");
  while (error && error > bytes && error[-1] != '\n') error--;
  if (error) bytes = error;
  *out_error = FORMAT("%s\nexit %d: %.2000s", command, code >> 8, bytes);
  return NULL;
}

/* The numbers behind `"key":` in lines of JSON. */
static int numbers_of(const char *text, const char *key, double *out,
                      int most) {
  int n = 0;
  size_t length = strlen(key);
  for (const char *at = text; (at = strstr(at, key)) && n < most; at += length)
    out[n++] = strtod(at + length, NULL);
  return n;
}

static const char *make_folder(Arena *arena, const char *text) {
  char *folder = FORMAT("%s", "/tmp/dnnc-random-XXXXXX");
  if (!mkdtemp(folder)) return NULL;
  file_replace(FORMAT("%s/program.dnn", folder), text, strlen(text));
  return folder;
}

#define RUN(dnnc, options)                                                     \
  FORMAT("timeout 100 %s run program.dnn --json --no-save %s", dnnc, options)

/* A plan that is not supported yet says so, which is no failure. */
const char check_refused[] = "not supported yet";

static bool is_refusal(const char *message) {
  return strstr(message, check_refused) ||
         strstr(message, "needs the statistics of");
}

/* Three steps lie between rounding and the last loss. */
static double tolerance_of(const char *text) {
  DType dtype = strstr(text, "compute = bf16")  ? DT_bf16
                : strstr(text, "compute = f16") ? DT_f16
                                                : DT_f32;
  return 10 * tolerance_decomposed(dtype);
}

/* Losses of training and evaluation are the same within rounding. */
static const char *compare_losses(Arena *arena, const char *first,
                                  const char *second, double tolerance) {
  double a[64], b[64];
  int n = numbers_of(first, "loss\":", a, 64);
  int m = numbers_of(second, "loss\":", b, 64);
  if (n < 3 || n != m) return FORMAT("%d losses and %d losses", n, m);
  for (int i = 0; i < n; i++)
    if (!(fabs(a[i] - b[i]) <= tolerance * (fabs(a[i]) + 0.05)) &&
        !(isnan(a[i]) && isnan(b[i])))
      return FORMAT("loss %d: %.9g and %.9g", i, a[i], b[i]);
  return NULL;
}

/* The first way to run the program against each of the others. */
static const char *compare_runs(Arena *arena, const char *text,
                                const char *dnnc, const char *const *ways,
                                int n) {
  const char *folder = make_folder(arena, text), *wrong = NULL;
  const char *first = NULL;
  bool is_refused = false;
  if (!folder) return "no folder";
  for (int i = 0; i < n && !wrong; i++) {
    const char *run = RUN(dnnc, ways[i]);
    const char *out = output_of(arena, folder, run, &wrong);
    if (i == 0) first = out;
    if (!out && is_refusal(wrong)) {
      is_refused = true;
      wrong = NULL;
    } else if (out && i > 0) {
      wrong = compare_losses(arena, first, out, tolerance_of(text));
      if (wrong) wrong = FORMAT("%s, the second with\n%s", wrong, run);
    }
    if (is_refused && i == 0) break;
  }
  if (system(FORMAT("rm -rf %s", folder)) != 0) return "rm";
  return wrong || !is_refused ? wrong : check_refused;
}

static const char *check_emitted(Arena *arena, const char *text,
                                 const char *dnnc) {
  static const char *const ways[] = {"-O2", "-O0"};
  return compare_runs(arena, text, dnnc, ways, ARRAY_LENGTH(ways));
}

static const char *check_ranks(Arena *arena, const char *text,
                               const char *dnnc) {
  static const char *const ways[] = {"", "--ranks 2", "--ranks 4"};
  return compare_runs(arena, text, dnnc, ways, ARRAY_LENGTH(ways));
}

static const char *check_pieces(Arena *arena, const char *text,
                                const char *dnnc) {
  static const char *const ways[] = {"", "--microbatches 2", "--microbatches 4",
                                     "--ranks 2 --microbatches 3"};
  return compare_runs(arena, text, dnnc, ways, ARRAY_LENGTH(ways));
}

static const char *check_resume(Arena *arena, const char *text,
                                const char *dnnc) {
  const char *folder = make_folder(arena, text), *error = NULL;
  if (!folder) return "no folder";
  const char *run = FORMAT("timeout 100 %s run program.dnn --json", dnnc);
  const char *whole =
      output_of(arena, folder, FORMAT("%s save=a.ckpt", run), &error);
  const char *half =
      whole ? output_of(arena, folder, FORMAT("%s save=b.ckpt --steps 1", run),
                        &error)
            : NULL;
  const char *rest =
      half ? output_of(arena, folder, FORMAT("%s save=b.ckpt --resume", run),
                       &error)
           : NULL;
  const char *same =
      rest ? output_of(arena, folder,
                       "diff -r a.ckpt/step-00000003 b.ckpt/step-00000003 >&2",
                       &error)
           : NULL;
  if (system(FORMAT("rm -rf %s", folder)) != 0) return "rm";
  return same ? NULL : error;
}

const Check checks[] = {
    {"text", check_text, false},      {"graphs", check_graphs, false},
    {"levels", check_levels, false},  {"gradients", check_gradients, false},
    {"emitted", check_emitted, true}, {"ranks", check_ranks, true},
    {"pieces", check_pieces, true},   {"resume", check_resume, true},
    {"plan", check_plan, false},
};
const int n_checks = ARRAY_LENGTH(checks);
