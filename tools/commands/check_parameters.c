/*
 * check_parameters.c -- implements `dnnc check --parameters`, which prints
 * every parameter and state in program order, as a checkpoint has them.
 *
 *     path                shape                  elements  init          decay
 *     wte                 f32[V:50257, C:768]  38,597,376  normal(0.02)  0.1
 *     block[0].norm[0].g  f32[C:768]                  768  ones          no
 *
 * The last column is the weight decay of the optimizer; `no` where it leaves
 * the parameter out, `frozen`, or `state`.  A model without a train block has
 * `yes` for what an optimizer would decay.
 */
#include "tools/commands/tools.h"

#include <stdio.h>
#include <string.h>

/* Printed as soon as this many bytes are there. */
enum { CHUNK_BYTES = 1 << 16 };

static void print_chunk(Text *out, size_t least) {
  if (out->n < least) return;
  tool_print(out);
  out->n = 0;
}

/* ---- one tensor ---- */

static const Type *type_of(const Graph *graph, const GraphInput *input) {
  return graph_type(graph, input->value);
}

static bool is_listed(const GraphInput *input) {
  return input->role == ROLE_param || input->role == ROLE_state;
}

/* The initialiser as a program writes it. */
static const char *init_text(Arena *arena, const Type *type, Init init) {
  Text out = text_create(arena);
  bool is_one = init.kind == INIT_constant && init.a == 1;
  if (init.kind == INIT_zeros || init.kind == INIT_eye || is_one)
    return is_one ? "ones" : init_name(init.kind);
  if (init.kind != INIT_constant)
    text_printf(&out, "%s(", init_name(init.kind));
  const char *before = "";
  for (int d = 0; init.kind == INIT_orthogonal && d < type->rank; d++) {
    if (!((unsigned)init.a >> d & 1)) continue;
    text_printf(&out, "%s%s", before, type->dims[d].name);
    before = ", ";
  }
  if (init.kind != INIT_orthogonal) text_printf(&out, "%.6g", init.a);
  if (init.kind != INIT_constant) text_add(&out, ")");
  return text_string(&out);
}

static double decay_of(const Model *model, const GraphInput *input) {
  return optimizer_of(&model->settings.optimizer, input)->decay;
}

static bool has_decay(const Model *model, const GraphInput *input) {
  bool all = model->has_train &&
             optimizer_of(&model->settings.optimizer, input)->decay_all;
  return input->role == ROLE_param && !input->is_frozen &&
         (input->has_decay || all);
}

static const char *decay_text(Arena *arena, const Model *model,
                              const GraphInput *input) {
  if (input->role == ROLE_state) return "state";
  if (input->is_frozen) return "frozen";
  if (!has_decay(model, input)) return "no";
  return model->has_train ? arena_printf(arena, "%.6g", decay_of(model, input))
                          : "yes";
}

static const char *shape_text(Arena *arena, const Type *type) {
  Text out = text_create(arena);
  type_print(&out, type, NULL);
  return text_string(&out);
}

/* ---- the table ---- */

typedef struct Widths {
  int path, shape, init;
} Widths;

static void widen_column(int *width, const char *text) {
  int n = (int)strlen(text);
  if (n > *width) *width = n;
}

static void print_row(Text *out, Arena *arena, const Widths *widths,
                      const char *path, const char *shape, int64_t elements,
                      const char *init, const char *decay) {
  text_printf(out, "%-*s  %-*s %15s  %-*s  %s\n", widths->path, path,
              widths->shape, shape, text_with_commas(arena, elements),
              widths->init, init, decay);
}

static void print_table(Arena *arena, const Model *model, const Graph *graph,
                        int64_t parameters, int64_t state) {
  Text out = text_create(arena);
  Widths widths = {(int)strlen(model->name), 5, 4};
  Arena *scratch = arena_beside(arena);
  for (int i = 0; i < graph->inputs.n; i++) {
    const GraphInput *input = &graph->inputs.data[i];
    const Type *type = type_of(graph, input);
    if (!is_listed(input)) continue;
    widen_column(&widths.path, input->path);
    widen_column(&widths.shape, shape_text(scratch, type));
    widen_column(&widths.init, init_text(scratch, type, input->init));
  }
  text_printf(&out, "%-*s  %-*s %15s  %-*s  %s\n", widths.path, "path",
              widths.shape, "shape", "elements", widths.init, "init", "decay");
  for (int i = 0; i < graph->inputs.n; i++) {
    const GraphInput *input = &graph->inputs.data[i];
    const Type *type = type_of(graph, input);
    if (!is_listed(input)) continue;
    print_row(&out, scratch, &widths, input->path, shape_text(scratch, type),
              type_elements(type), init_text(scratch, type, input->init),
              decay_text(scratch, model, input));
    print_chunk(&out, CHUNK_BYTES);
  }
  text_printf(&out, "%-*s  %-*s %15s  parameters\n", widths.path, model->name,
              widths.shape, "", text_with_commas(scratch, parameters));
  if (state)
    text_printf(&out, "%-*s  %-*s %15s  values of state\n", widths.path, "",
                widths.shape, "", text_with_commas(scratch, state));
  print_chunk(&out, 1);
  arena_destroy(scratch);
}

/* ---- JSON ---- */

static void add_tensor_json(Text *out, Arena *arena, const Model *model,
                            const Graph *graph, const GraphInput *input) {
  const Type *type = type_of(graph, input);
  text_add(out, "{\"path\":");
  text_add_json(out, input->path);
  text_printf(out, ",\"kind\":\"%s\",\"dtype\":\"%s\",\"dims\":[",
              input->role == ROLE_state ? "state" : "parameter",
              dtype_name(type->dtype));
  for (int d = 0; d < type->rank; d++) {
    if (d) text_add(out, ",");
    text_add_json(out, type->dims[d].name);
  }
  text_add(out, "],\"shape\":[");
  for (int d = 0; d < type->rank; d++)
    text_printf(out, "%s%lld", d ? "," : "", (long long)type->dims[d].size);
  text_printf(out,
              "],\"elements\":%lld,\"init\":", (long long)type_elements(type));
  text_add_json(out, init_text(arena, type, input->init));
  text_printf(out, ",\"has_decay\":%s",
              has_decay(model, input) ? "true" : "false");
  if (model->has_train)
    text_printf(out, ",\"decay\":%.6g",
                has_decay(model, input) ? decay_of(model, input) : 0.0);
  text_printf(out, ",\"frozen\":%s}", input->is_frozen ? "true" : "false");
}

static void print_json(Arena *arena, const Model *model, const Graph *graph,
                       int64_t parameters, int64_t state) {
  Text out = text_create(arena);
  Arena *scratch = arena_beside(arena);
  const char *before = "";
  text_add(&out, "{\"model\":");
  text_add_json(&out, model->name);
  text_printf(&out, ",\"parameters\":%lld,\"state\":%lld,\"tensors\":[",
              (long long)parameters, (long long)state);
  for (int i = 0; i < graph->inputs.n; i++) {
    const GraphInput *input = &graph->inputs.data[i];
    if (!is_listed(input)) continue;
    text_add(&out, before);
    add_tensor_json(&out, scratch, model, graph, input);
    before = ",";
    print_chunk(&out, CHUNK_BYTES);
  }
  text_add(&out, "]}\n");
  print_chunk(&out, 1);
  arena_destroy(scratch);
}

static int64_t elements_of(const Graph *graph, Role role) {
  int64_t sum = 0;
  for (int i = 0; i < graph->inputs.n; i++)
    if (graph->inputs.data[i].role == role)
      sum += type_elements(type_of(graph, &graph->inputs.data[i]));
  return sum;
}

int check_parameters(Tool *tool, const Model *model, const Graph *graph) {
  int64_t parameters = elements_of(graph, ROLE_param);
  int64_t state = elements_of(graph, ROLE_state);
  if (tool->options.json)
    print_json(tool->arena, model, graph, parameters, state);
  else
    print_table(tool->arena, model, graph, parameters, state);
  return EXIT_done;
}
