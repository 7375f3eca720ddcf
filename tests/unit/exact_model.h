/*
 * exact_model.h -- loads what exact_make.h made, proves that its step is exact,
 * and computes the step on the interpreter.
 */
#ifndef TESTS_UNIT_EXACT_MODEL_H
#define TESTS_UNIT_EXACT_MODEL_H

#include "frontend/frontend.h"
#include "interp/interp.h"
#include "passes/passes.h"
#include "tests/exact/range.h"
#include "tests/unit/exact_make.h"

#include <math.h>

typedef struct ExactSource {
  Module *module;
  const ExactModel *model;
} ExactSource;

static inline const Source *exact_source(void *user, const char *path) {
  ExactSource *from = user;
  Source *source = ARENA_NEW(from->module->arena, Source);
  *source = (Source){path, from->model->text, strlen(from->model->text)};
  return source;
}

/* NULL, with diags, if the text is wrong. */
static inline Model *exact_load(Module *module, const ExactModel *model) {
  ExactSource from = {module, model};
  FrontendOptions options = {
      .load = exact_source, .user = &from, .path = "exact.dnn"};
  return frontend_load(module, &options).model;
}

/* The training graph after the pass `through`, or after all for NULL. */
static inline Graph *exact_graph(Module *module, const Model *model, int level,
                                 const char *through, const Plan *plan) {
  PassContext ctx = {.module = module,
                     .scratch = arena_create(module->memory),
                     .model = model,
                     .plan = plan,
                     .is_training = true};
  PassOptions options = {
      .level = level, .end = pass_end(through), .verify = true};
  return passes_run(&ctx, &options, model->train).graph;
}

/* ---- the proof ---- */

static inline Range exact_input_range(const GraphInput *input) {
  switch (input->role) {
  case ROLE_param: return (Range){true, 0, EXACT_LARGEST};
  case ROLE_data:
    return (Range){true, 0,
                   strcmp(input->path, "d.t") ? EXACT_LARGEST
                                              : EXACT_INDEX_BELOW - 1};
  case ROLE_step: return (Range){true, 0, 1};
  case ROLE_seed: return (Range){true, 0, 1};
  default: return (Range){true, 0, 0}; /* moments begin at zero */
  }
}

static inline Range **exact_ranges(Arena *arena, const Graph *graph) {
  Range *inputs = ARENA_ARRAY(arena, Range, graph->inputs.n);
  for (int i = 0; i < graph->inputs.n; i++)
    inputs[i] = exact_input_range(&graph->inputs.data[i]);
  return range_analyse(arena, graph, inputs);
}

static inline bool exact_is_checked(const GraphOutput *output) {
  return output->role == ROLE_loss || output->role == ROLE_param ||
         output->role == ROLE_optimizer_state;
}

/* The loss, every parameter and every moment come about without rounding. */
static inline bool exact_is_proved(Arena *arena, const Graph *graph) {
  Range **ranges = exact_ranges(arena, graph);
  for (int i = 0; i < graph->outputs.n; i++) {
    const GraphOutput *output = &graph->outputs.data[i];
    Value value = output->value;
    if (exact_is_checked(output) && !ranges[value.node][value.result].is_exact)
      return false;
  }
  return true;
}

/* ---- the step on the interpreter ---- */

static inline Tensor *exact_inputs(Arena *arena, const ExactModel *model,
                                   const Graph *graph) {
  Tensor *inputs = ARENA_ARRAY(arena, Tensor, graph->inputs.n);
  for (int i = 0; i < graph->inputs.n; i++) {
    const GraphInput *input = &graph->inputs.data[i];
    const Type *type = graph_type(graph, input->value);
    int64_t n = type_elements(type);
    inputs[i] = (Tensor){.type = type, .data = ARENA_ARRAY(arena, double, n)};
    for (int64_t k = 0; k < n; k++)
      inputs[i].data[k] =
          strcmp(input->path, "d.t") == 0 ? (double)exact_position(model, k)
          : input->role == ROLE_param || input->role == ROLE_data
              ? exact_number(model, input->path, k)
          : input->role == ROLE_step ? 1
                                     : 0;
  }
  return inputs;
}

/* Outputs in the order of the graph; `values` as interp_run has them. */
static inline Tensor *exact_step(Arena *arena, const ExactModel *model,
                                 const Graph *graph, InterpNumber number,
                                 Tensor *values) {
  Tensor *outputs = ARENA_ARRAY(arena, Tensor, graph->outputs.n);
  interp_run(graph, number, arena, exact_inputs(arena, model, graph), outputs,
             values);
  return outputs;
}

#endif
