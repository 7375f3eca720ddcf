// links: frontend passes runtime ir support
/*
 * recorded_steps.c -- fifty steps of every optimizer and schedule on the
 * interpreter in f64 against tests/reference/optimizers.safetensors, which
 * record_optimizers.py made with torch.optim and the papers' formulas.
 *
 * The cases are the lines of optimizers.txt.  A row of optimizers.def that no
 * parameter of any case uses fails.  The emitted programs are compared with
 * the same records by tests/e2e/optimizers.sh.
 */
#include "frontend/frontend.h"
#include "passes/passes.h"
#include "tests/unit/reference_files.h"
#include "tests/unit/values.h"

#define TOLERANCE 1e-9 /* relative L2 of each tensor */

enum { STEPS = 50, MOST_OVERRIDES = 8 };

typedef struct Case {
  Module *module;
  const char *name;
  Model *model;
  Recorded recorded;
} Case;

TestSuite(recorded, .fini = modules_destroy);

static const char *path_of(Arena *arena, const char *suffix) {
  return arena_printf(arena, "%s/tests/reference/optimizers.%s", TEST_ROOT,
                      suffix);
}

static const Source *load(void *user, const char *path) {
  Module *module = user;
  Source *source = ARENA_NEW(module->arena, Source);
  source->path = path;
  Status status =
      file_read(module->arena, path, 1 << 20, &source->text, &source->n);
  return status.code == STATUS_ok ? source : NULL;
}

/* A line "NAME SETTING=VALUE ..." of optimizers.txt. */
static Case case_open(Module *module, char *line) {
  Override overrides[MOST_OVERRIDES];
  int n = 0;
  char *rest = NULL;
  Case c = {.module = module, .name = strtok_r(line, " ", &rest)};
  for (char *word; (word = strtok_r(NULL, " ", &rest)) != NULL; n++) {
    char *value = strchr(word, '=');
    *value++ = '\0';
    cr_assert_lt(n, MOST_OVERRIDES);
    overrides[n] = (Override){word, value};
  }
  FrontendOptions options = {.load = load,
                             .user = module,
                             .path = path_of(module->arena, "dnn"),
                             .overrides = overrides,
                             .n_overrides = n};
  c.model = frontend_load(module, &options);
  Text text = text_create(module->arena);
  diags_print(module->diags, &text);
  cr_assert(c.model, "%s: %s", c.name, text_string(&text));
  Status status = recorded_open(
      module->arena, path_of(module->arena, "safetensors"), &c.recorded);
  cr_assert(status.code == STATUS_ok, "%s", status.message);
  return c;
}

static const double *recorded(const Case *c, const char *prefix,
                              const char *path, int64_t n) {
  const StoredTensor *tensor = recorded_find(&c->recorded, prefix, path);
  cr_assert(tensor, "no record %s%s; run record_optimizers.py", prefix, path);
  cr_assert_eq(recorded_elements(tensor), n, "%s", path);
  return recorded_values(c->module->arena, &c->recorded, tensor);
}

/* ---- the steps ---- */

static const DataField *find_field(const Case *c, Name path) {
  const DataBlock *block = &c->model->data[0];
  for (int i = 0; i < block->n_fields; i++)
    if (block->fields[i].path == path) return &block->fields[i];
  cr_assert_fail("no field %s", path);
  return NULL;
}

static Tensor first_value(const Case *c, const Graph *graph,
                          const GraphInput *input) {
  const Type *type = graph_type(graph, input->value);
  Tensor tensor = tensor_create(c->module->arena, type);
  int64_t n = type_elements(type);
  if (input->role == ROLE_param || input->role == ROLE_ema) {
    const char *path = input->path + (input->role == ROLE_ema ? 4 : 0);
    memcpy(tensor.data, recorded(c, "start/", path, n),
           (size_t)n * sizeof(double));
  } else if (input->role == ROLE_epoch) {
    tensor.data[0] = 1; /* a batch holds all records */
  } else if (input->role == ROLE_data) {
    const DataField *field = find_field(c, input->path);
    int64_t read =
        recorded_csv(c->module->arena, path_of(c->module->arena, "csv"),
                     field->first_column, field->last_column, tensor.data, n);
    cr_assert_eq(read, n, "%s", input->path);
    for (int64_t i = 0; i < n; i++)
      tensor.data[i] = tensor.data[i] * field->scale + field->shift;
  }
  return tensor;
}

static Tensor *find_slot(const Graph *graph, Tensor *inputs,
                         const GraphOutput *output) {
  for (int i = 0; i < graph->inputs.n; i++)
    if (graph->inputs.data[i].role == output->role &&
        graph->inputs.data[i].path == output->path)
      return &inputs[i];
  return NULL;
}

static Tensor *find_step(const Graph *graph, Tensor *inputs) {
  for (int i = 0; i < graph->inputs.n; i++)
    if (graph->inputs.data[i].role == ROLE_step) return &inputs[i];
  cr_assert_fail("no step");
  return NULL;
}

/* Result: the inputs of step 51. */
static Tensor *run_steps(const Case *c, const Graph *graph) {
  Arena *arena = c->module->arena;
  Tensor *inputs = ARENA_ARRAY(arena, Tensor, graph->inputs.n);
  Tensor *outputs = ARENA_ARRAY(arena, Tensor, graph->outputs.n);
  for (int i = 0; i < graph->inputs.n; i++)
    inputs[i] = first_value(c, graph, &graph->inputs.data[i]);
  for (int t = 1; t <= STEPS; t++) {
    find_step(graph, inputs)->data[0] = t;
    interp_run(graph, INTERP_f64, arena, inputs, outputs, NULL);
    for (int i = 0; i < graph->outputs.n; i++) {
      Tensor *slot = find_slot(graph, inputs, &graph->outputs.data[i]);
      if (slot) *slot = outputs[i];
    }
  }
  return inputs;
}

static void compare(const Case *c, int level) {
  PassContext ctx = {.module = c->module,
                     .scratch = arena_create(c->module->memory),
                     .model = c->model,
                     .is_training = true};
  PassOptions options = {.level = level, .verify = true};
  const Graph *graph = passes_run(&ctx, &options, c->model->train);
  cr_assert_eq(diags_errors(c->module->diags), 0, "%s", c->name);
  const Tensor *inputs = run_steps(c, graph);
  const char *prefix = arena_printf(c->module->arena, "%s/", c->name);
  int n_compared = 0;
  for (int i = 0; i < graph->inputs.n; i++) {
    const GraphInput *input = &graph->inputs.data[i];
    if (input->role != ROLE_param && input->role != ROLE_ema) continue;
    int64_t n = type_elements(inputs[i].type);
    double error =
        relative_error(inputs[i].data, recorded(c, prefix, input->path, n), n);
    cr_expect(error <= TOLERANCE, "%s (-O%d): %s is off by %.3g", c->name,
              level, input->path, error);
    n_compared++;
  }
  for (int i = 0; i < c->recorded.header.n_tensors; i++)
    n_compared -=
        !strncmp(c->recorded.header.tensors[i].name, prefix, strlen(prefix));
  cr_expect_eq(n_compared, 0, "%s", c->name);
}

/* ---- the rows that the cases use ---- */

typedef struct UsedRow {
  const char *text;
  bool is_used;
} UsedRow;

static UsedRow optimizer_rows[] = {
#define OPTIMIZER(name, moments, decay, scalars, update) {#name ": " update, 0},
#define VARIANT(name, condition, moments, decay, scalars, update)              \
  {#name ": " update, 0},
#include "passes/plan/optimizers.def"
};

static UsedRow rate_rows[] = {
#define RATE(name, text) {#name, 0},
#include "passes/plan/optimizers.def"
};

/* As pass_optimizer chooses: the last row whose condition holds. */
static int row_of(const OptimizerCall *call, bool matrix, bool excluded) {
  int row = -1, at = 0;
#define OPTIMIZER(name_, ...)                                                  \
  if (strcmp(call->name, #name_) == 0) row = at;                               \
  at++;
#define VARIANT(name_, condition, ...)                                         \
  if (strcmp(call->name, #name_) == 0 && (condition)) row = at;                \
  at++;
#include "passes/plan/optimizers.def"
  (void)matrix, (void)excluded;
  return row;
}

static void note_rows(const Case *c) {
  const Graph *graph = c->model->train;
  const OptimizerCall *call = &c->model->settings.optimizer;
  rate_rows[call->lr.kind].is_used = true;
  for (int i = 0; i < graph->inputs.n; i++) {
    const GraphInput *input = &graph->inputs.data[i];
    if (input->role != ROLE_param) continue;
    int row = row_of(call, input->contracts != 0,
                     !input->has_decay && !call->decay_all);
    cr_assert_geq(row, 0, "%s", c->name);
    optimizer_rows[row].is_used = true;
  }
}

Test(recorded, fifty_steps_of_every_row) {
  Module *module = module_create();
  const char *text;
  size_t n;
  Status status = file_read(module->arena, path_of(module->arena, "txt"),
                            1 << 16, &text, &n);
  cr_assert(status.code == STATUS_ok, "%s", status.message);
  char *copy = arena_strdup(module->arena, text), *rest = NULL;
  for (char *line = strtok_r(copy, "\n", &rest); line != NULL;
       line = strtok_r(NULL, "\n", &rest)) {
    Case c = case_open(module_create(), line);
    note_rows(&c);
    compare(&c, 0);
    compare(&c, 2);
  }
  for (int i = 0; i < ARRAY_LENGTH(optimizer_rows); i++)
    cr_expect(optimizer_rows[i].is_used, "no case for the row '%s'",
              optimizer_rows[i].text);
  for (int i = 0; i < ARRAY_LENGTH(rate_rows); i++)
    cr_expect(rate_rows[i].is_used, "no case for the rate '%s'",
              rate_rows[i].text);
}
