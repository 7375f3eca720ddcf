/*
 * recorded_case.h -- runs a model of tests/reference on the interpreter for
 * some steps, with its record and data.
 */
#ifndef TESTS_UNIT_RECORDED_CASE_H
#define TESTS_UNIT_RECORDED_CASE_H

#include "frontend/frontend.h"
#include "passes/passes.h"
#include "tests/ops/tolerance.h"
#include "tests/unit/reference_files.h"
#include "tests/unit/values.h"

typedef struct Case {
  Module *module;
  const char *name; /* in messages */
  const char *base; /* file of tests/reference, without what follows the dot */
  Model *model;
  Recorded recorded;
} Case;

static inline const char *case_path(const Case *c, const char *suffix) {
  return arena_printf(c->module->arena, "%s/tests/reference/%s%s", TEST_ROOT,
                      c->base, suffix);
}

static inline const Source *case_load(void *user, const char *path) {
  Module *module = user;
  Source *source = ARENA_NEW(module->arena, Source);
  source->path = path;
  Status status =
      file_read(module->arena, path, 1 << 20, &source->text, &source->n);
  return status.code == STATUS_ok ? source : NULL;
}

static inline Case case_open(Module *module, const char *name, const char *base,
                             const Override *overrides, int n_overrides) {
  Case c = {.module = module, .name = name, .base = base};
  FrontendOptions options = {.load = case_load,
                             .user = module,
                             .path = case_path(&c, ".dnn"),
                             .overrides = overrides,
                             .n_overrides = n_overrides};
  c.model = frontend_load(module, &options).model;
  Text text = text_create(module->arena);
  diags_print(module->diags, &text);
  cr_assert(c.model, "%s: %s", name, text_string(&text));
  Status status =
      recorded_open(module->arena, case_path(&c, ".safetensors"), &c.recorded);
  cr_assert(status.code == STATUS_ok, "%s", status.message);
  return c;
}

static inline PassContext case_context(const Case *c) {
  return (PassContext){.module = c->module,
                       .scratch = arena_create(c->module->memory),
                       .model = c->model,
                       .is_training = true};
}

static inline const Graph *case_graph(const Case *c,
                                      const PassOptions *options) {
  PassContext ctx = case_context(c);
  const Graph *graph = passes_run(&ctx, options, c->model->train).graph;
  cr_assert_eq(diags_errors(c->module->diags), 0, "%s", c->name);
  return graph;
}

/* Reads a field from the file of the data block; the batch holds all records.
 */
static inline void case_read(const Case *c, Name path, Tensor out) {
  const DataField *field = NULL;
  for (int b = 0; b < c->model->n_data; b++)
    for (int f = 0; f < c->model->data[b].n_fields; f++)
      if (c->model->data[b].fields[f].path == path)
        field = &c->model->data[b].fields[f];
  cr_assert(field, "no field %s", path);
  int64_t n = type_elements(out.type);
  int64_t read =
      recorded_csv(c->module->arena, case_path(c, ".csv"), field->first_column,
                   field->last_column, out.data, n);
  cr_assert_eq(read, n, "%s", path);
  for (int64_t i = 0; i < n; i++)
    out.data[i] = out.data[i] * field->scale + field->shift;
}

/* The first value of a parameter, state or average. */
typedef const double *CaseStart(const Case *c, const GraphInput *input,
                                int64_t n);

static inline Tensor *case_inputs(const Case *c, const Graph *graph,
                                  CaseStart *start) {
  Tensor *inputs = ARENA_ARRAY(c->module->arena, Tensor, graph->inputs.n);
  for (int i = 0; i < graph->inputs.n; i++) {
    const GraphInput *input = &graph->inputs.data[i];
    const Type *type = graph_type(graph, input->value);
    inputs[i] = tensor_create(c->module->arena, type);
    int64_t n = type_elements(type);
    switch (input->role) {
    case ROLE_param:
    case ROLE_state:
    case ROLE_ema:
      memcpy(inputs[i].data, start(c, input, n), (size_t)n * sizeof(double));
      break;
    case ROLE_data: case_read(c, input->path, inputs[i]); break;
    case ROLE_step:
    case ROLE_epoch: inputs[i].data[0] = 1; break;
    default: break;
    }
  }
  return inputs;
}

/* Runs step `t`; the next one reads the values that it writes. */
static inline void case_step(const Case *c, const Graph *graph, Tensor *inputs,
                             int t) {
  Tensor *outputs = ARENA_ARRAY(c->module->arena, Tensor, graph->outputs.n);
  for (int i = 0; i < graph->inputs.n; i++)
    if (graph->inputs.data[i].role == ROLE_step) inputs[i].data[0] = t;
  interp_run(graph, INTERP_f64, c->module->arena, inputs, outputs, NULL);
  for (int o = 0; o < graph->outputs.n; o++)
    for (int i = 0; i < graph->inputs.n; i++)
      if (graph->inputs.data[i].role == graph->outputs.data[o].role &&
          graph->inputs.data[i].path == graph->outputs.data[o].path)
        inputs[i] = outputs[o];
}

/* Records whose names begin with `prefix`. */
static inline int case_count(const Case *c, const char *prefix) {
  int n = 0;
  for (int i = 0; i < c->recorded.header.n_tensors; i++)
    n += !strncmp(c->recorded.header.tensors[i].name, prefix, strlen(prefix));
  return n;
}

#endif
