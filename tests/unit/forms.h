/*
 * forms.h -- runs small models given as text through the passes, for tests of
 * the ways to write a computation: the graph after passes must have the
 * expected operators and compute the same values.
 */
#ifndef TESTS_UNIT_FORMS_H
#define TESTS_UNIT_FORMS_H

#include "frontend/frontend.h"
#include "passes/passes.h"
#include "tests/unit/planned.h"
#include "tests/unit/values.h"

static inline const Source *give(void *user, const char *path) {
  (void)path;
  return user;
}

/* With the batch split over ranks and micro-batches. */
static inline Planned read_form_on(Module *module, const char *name,
                                   const char *text, int64_t ranks,
                                   int64_t microbatches) {
  Source *source = ARENA_NEW(module->arena, Source);
  *source = (Source){"form.dnn", text, strlen(text)};
  FrontendOptions options = {.load = give, .user = source, .path = "form.dnn"};
  Planned planned = load_planned(module, &options, ranks, microbatches);
  Text errors = text_create(module->arena);
  diags_print(module->diags, &errors);
  cr_assert(planned.model, "%s: %s", name, text_string(&errors));
  return planned;
}

static inline Model *read_form(Module *module, const char *name,
                               const char *text) {
  return read_form_on(module, name, text, 0, 0).model;
}

static inline Graph *after(Module *module, Model *model, const char *pass,
                           int level) {
  PassContext ctx = {.module = module,
                     .scratch = arena_create(module->memory),
                     .model = model,
                     .is_training = true};
  PassOptions options = {.level = level, .end = pass_end(pass), .verify = true};
  return passes_run(&ctx, &options, model->train).graph;
}

static inline Tensor *run_seeded(const Graph *graph) {
  Arena *arena = graph->module->arena;
  Tensor *inputs = ARENA_ARRAY(arena, Tensor, graph->inputs.n);
  for (int i = 0; i < graph->inputs.n; i++) {
    Name path = graph->inputs.data[i].path;
    inputs[i] = tensor_random(
        arena, graph_type(graph, graph->inputs.data[i].value),
        hash_bytes(path, strlen(path), 0), -1,
        dtype_class(graph_type(graph, graph->inputs.data[i].value)->dtype) ==
                CLASS_INT
            ? 4
            : 1);
  }
  return run(graph, INTERP_f64, inputs);
}

static inline int count(const Graph *graph, Op op) {
  int n = 0;
  for (int i = 0; i < graph->nodes.n; i++) n += graph->nodes.data[i]->op == op;
  return n;
}

/* Every output of `graph` is there in `other` with the same numbers. */
static inline void compare(const char *name, double tolerance,
                           const Graph *graph, const Graph *other) {
  Tensor *got = run_seeded(other), *wanted = run_seeded(graph);
  for (int i = 0; i < graph->outputs.n; i++) {
    const GraphOutput *output = &graph->outputs.data[i];
    const GraphOutput *same =
        graph_find_output(other, output->role, output->path);
    cr_assert(same, "%s: no %s", name, output->path);
    Tensor a = wanted[i], b = got[same - other->outputs.data];
    int64_t n = type_elements(a.type);
    for (int64_t k = 0; k < n; k++)
      cr_assert(fabs(a.data[k] - b.data[k]) <=
                    tolerance * fmax(1, fabs(a.data[k])),
                "%s: %s[%d] is %.17g, as written %.17g", name, output->path,
                (int)k, b.data[k], a.data[k]);
  }
}

#endif
