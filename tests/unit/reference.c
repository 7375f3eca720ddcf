// links: frontend passes runtime ir support
/*
 * reference.c -- loss and gradients of whole models on the interpreter in f64
 * against what PyTorch computed in f64, recorded in tests/reference.
 *
 * The emitted programs are compared with the same records by
 * tests/e2e/reference.sh.
 */
#include "frontend/frontend.h"
#include "passes/passes.h"
#include "tests/unit/reference_files.h"
#include "tests/unit/values.h"

#define TOLERANCE 1e-9 /* relative L2 of each tensor */

typedef struct Case {
  Module *module;
  const char *name;
  Model *model;
  Recorded recorded;
} Case;

TestSuite(reference, .fini = modules_destroy);

/* ---- the recorded side ---- */

static const char *path_of(const Case *c, const char *suffix) {
  return arena_printf(c->module->arena, "%s/tests/reference/%s%s", TEST_ROOT,
                      c->name, suffix);
}

static const Source *load(void *user, const char *path) {
  Module *module = user;
  Source *source = ARENA_NEW(module->arena, Source);
  source->path = path;
  Status status =
      file_read(module->arena, path, 1 << 20, &source->text, &source->n);
  return status.code == STATUS_ok ? source : NULL;
}

static Case case_open(const char *name) {
  Case c = {.module = module_create(), .name = name};
  FrontendOptions options = {
      .load = load, .user = c.module, .path = path_of(&c, ".dnn")};
  c.model = frontend_load(c.module, &options);
  Text text = text_create(c.module->arena);
  diags_print(c.module->diags, &text);
  cr_assert(c.model, "%s", text_string(&text));
  Status status =
      recorded_open(c.module->arena, path_of(&c, ".safetensors"), &c.recorded);
  cr_assert(status.code == STATUS_ok, "%s", status.message);
  return c;
}

static const DataField *find_field(const Case *c, Name path) {
  for (int b = 0; b < c->model->n_data; b++)
    for (int f = 0; f < c->model->data[b].n_fields; f++)
      if (c->model->data[b].fields[f].path == path)
        return &c->model->data[b].fields[f];
  cr_assert_fail("no field %s", path);
  return NULL;
}

static void read_csv(const Case *c, const DataField *field, Tensor out) {
  int64_t n = type_elements(out.type);
  int64_t read =
      recorded_csv(c->module->arena, path_of(c, ".csv"), field->first_column,
                   field->last_column, out.data, n);
  cr_assert_eq(read, n, "%s", field->path);
  for (int64_t i = 0; i < n; i++)
    out.data[i] = out.data[i] * field->scale + field->shift;
}

static const double *recorded(const Case *c, const char *prefix,
                              const char *path, int64_t n) {
  const StoredTensor *tensor = recorded_find(&c->recorded, prefix, path);
  cr_assert(tensor, "%s has no %s%s", c->name, prefix, path);
  cr_assert_eq(recorded_elements(tensor), n, "%s", path);
  return recorded_values(c->module->arena, &c->recorded, tensor);
}

/* ---- our side ---- */

static Tensor value_of(const Case *c, const Graph *graph,
                       const GraphInput *input) {
  const Type *type = graph_type(graph, input->value);
  Tensor tensor = tensor_create(c->module->arena, type);
  int64_t n = type_elements(type);
  if (input->role == ROLE_param || input->role == ROLE_state) {
    const double *values = recorded(
        c, input->role == ROLE_param ? "param/" : "state/", input->path, n);
    memcpy(tensor.data, values, (size_t)n * sizeof *values);
  } else if (input->role == ROLE_data) {
    read_csv(c, find_field(c, input->path), tensor);
  } else if (input->role == ROLE_step) {
    tensor.data[0] = 1;
  }
  return tensor;
}

static Tensor *compute(const Case *c, const Graph *graph) {
  Tensor *inputs = ARENA_ARRAY(c->module->arena, Tensor, graph->inputs.n);
  for (int i = 0; i < graph->inputs.n; i++)
    inputs[i] = value_of(c, graph, &graph->inputs.data[i]);
  return run(graph, INTERP_f64, inputs);
}

static void compare(const Case *c, const char *how, const char *prefix,
                    const char *path, Tensor got) {
  int64_t n = type_elements(got.type);
  double floor = strcmp(prefix, "grad/")
                     ? 0
                     : recorded_floor(c->module->arena, &c->recorded);
  double error = error_above(floor, got.data, recorded(c, prefix, path, n), n);
  cr_expect(error <= TOLERANCE, "%s (%s): %s%s is off by %.3g", c->name, how,
            prefix, path, error);
}

/* With `through` NULL all passes run, and the first step's moment of sgd with
 * momentum is the gradient. */
static void check(const Case *c, const char *how, int level,
                  const char *through, const char *disabled) {
  PassContext ctx = {.module = c->module,
                     .scratch = arena_create(c->module->memory),
                     .model = c->model,
                     .is_training = true};
  PassOptions options = {.level = level,
                         .stop_after = through,
                         .disabled = &disabled,
                         .n_disabled = disabled != NULL,
                         .verify = true};
  const Graph *graph = passes_run(&ctx, &options, c->model->train);
  cr_assert_eq(diags_errors(c->module->diags), 0);
  Tensor *outputs = compute(c, graph);
  int n_gradients = 0;
  for (int i = 0; i < graph->outputs.n; i++) {
    const GraphOutput *output = &graph->outputs.data[i];
    if (output->role == ROLE_loss) compare(c, how, "loss", "", outputs[i]);
    if (output->role != (through ? ROLE_grad : ROLE_moment)) continue;
    const char *path = through ? output->path : output->path + strlen("sgd.m/");
    compare(c, how, "grad/", path, outputs[i]);
    n_gradients++;
  }
  int n_recorded = 0;
  for (int i = 0; i < c->recorded.header.n_tensors; i++)
    n_recorded += !strncmp(c->recorded.header.tensors[i].name, "grad/", 5);
  cr_expect_eq(n_gradients, n_recorded, "%s (%s)", c->name, how);
}

/* Some values on the way, as written: records value/PATH. */
static void check_values(const Case *c) {
  const Graph *graph = c->model->train;
  Arena *arena = c->module->arena;
  Tensor *inputs = ARENA_ARRAY(arena, Tensor, graph->inputs.n);
  Tensor *outputs = ARENA_ARRAY(arena, Tensor, graph->outputs.n);
  Tensor *values = ARENA_ARRAY(arena, Tensor, graph->nodes.n);
  for (int i = 0; i < graph->inputs.n; i++)
    inputs[i] = value_of(c, graph, &graph->inputs.data[i]);
  interp_run(graph, INTERP_f64, arena, inputs, outputs, values);
  for (int i = 0; i < c->recorded.header.n_tensors; i++) {
    const char *name = c->recorded.header.tensors[i].name;
    if (strncmp(name, "value/", 6) != 0) continue;
    int found = -1;
    for (int id = 0; id < graph->nodes.n; id++)
      if (!strcmp(graph->nodes.data[id]->path, name + 6)) found = id;
    cr_assert_geq(found, 0, "no value has the path %s", name + 6);
    compare(c, "as written", "value/", name + 6, values[found]);
  }
}

static int find_persistent(const Graph *graph, const GraphOutput *output) {
  for (int i = 0; i < graph->inputs.n; i++)
    if (graph->inputs.data[i].role == output->role &&
        graph->inputs.data[i].path == output->path)
      return i;
  return -1;
}

/* Ten steps on the same data: records ten/PATH.  Without fold, which rounds
 * constants as f32 does. */
static void check_ten_steps(const Case *c) {
  PassContext ctx = {.module = c->module,
                     .scratch = arena_create(c->module->memory),
                     .model = c->model,
                     .is_training = true};
  const char *disabled = "fold";
  PassOptions options = {.level = 2, .disabled = &disabled, .n_disabled = 1};
  const Graph *graph = passes_run(&ctx, &options, c->model->train);
  Arena *arena = c->module->arena;
  Tensor *inputs = ARENA_ARRAY(arena, Tensor, graph->inputs.n);
  for (int i = 0; i < graph->inputs.n; i++)
    inputs[i] = value_of(c, graph, &graph->inputs.data[i]);
  for (int step = 1; step <= 10; step++) {
    for (int i = 0; i < graph->inputs.n; i++)
      if (graph->inputs.data[i].role == ROLE_step) inputs[i].data[0] = step;
    Tensor *outputs = run(graph, INTERP_f64, inputs);
    for (int i = 0; i < graph->outputs.n; i++) {
      int input = find_persistent(graph, &graph->outputs.data[i]);
      if (input >= 0) inputs[input].data = outputs[i].data;
    }
  }
  for (int i = 0; i < graph->inputs.n; i++)
    if (graph->inputs.data[i].role == ROLE_param ||
        graph->inputs.data[i].role == ROLE_state)
      compare(c, "ten steps", "ten/", graph->inputs.data[i].path, inputs[i]);
}

static bool has_attention(const Case *c) {
  PassContext ctx = {.module = c->module,
                     .scratch = arena_create(c->module->memory),
                     .model = c->model,
                     .is_training = true};
  PassOptions options = {.level = 2, .stop_after = "attention"};
  const Graph *graph = passes_run(&ctx, &options, c->model->train);
  for (int i = 0; i < graph->nodes.n; i++)
    if (graph->nodes.data[i]->op == OP_attention) return true;
  return false;
}

static Case check_all(const char *name) {
  Case c = case_open(name);
  check(&c, "as written", 0, "autodiff", NULL);
  check(&c, "-O2", 2, "autodiff", NULL);
  check(&c, "-O2 without attention", 2, "autodiff", "attention");
  check(&c, "all passes of -O0", 0, NULL, NULL);
  check(&c, "all passes of -O2", 2, NULL, NULL);
  check_values(&c);
  check_ten_steps(&c);
  return c;
}

Test(reference, chargpt) {
  Case c = check_all("chargpt_small");
  cr_expect(has_attention(&c));
}

Test(reference, cnn) {
  check_all("cnn_small");
}

Test(reference, windows) {
  check_all("windows_small");
}

Test(reference, llama) {
  check_all("llama_small");
}

static void check_transformer(const char *name, bool wants_attention) {
  Case c = check_all(name);
  cr_expect_eq(has_attention(&c), wants_attention, "%s", name);
}

/* Padding is a mask that the kernel of attention does not know. */
Test(reference, bert) {
  check_transformer("bert_small", false);
}

Test(reference, mixtral) {
  check_transformer("mixtral_small", true);
}

/* Of its three kinds of attention one has no bias. */
Test(reference, switch_t5) {
  check_transformer("switch_small", true);
}

Test(reference, enlarge) {
  check_all("enlarge_small");
}

/* ---- recurrent models ---- */

Test(reference, lstm) {
  check_all("lstm_small");
}

Test(reference, gru) {
  check_all("gru_small");
}

/* ---- image models ---- */

static void check_images(const char *name) {
  Case c = case_open(name);
  check(&c, "as written", 0, "autodiff", NULL);
  check(&c, "all passes of -O2 but fold", 2, NULL, "fold");
  check_values(&c);
  check_ten_steps(&c);
}

Test(reference, alexnet) {
  check_images("alexnet_small");
}

Test(reference, vgg) {
  check_images("vgg_small");
}

Test(reference, resnet) {
  check_images("resnet_small");
}

Test(reference, inception) {
  check_images("inception_small");
}

Test(reference, unet) {
  check_images("unet_small");
}

Test(reference, vit) {
  check_images("vit_small");
}
