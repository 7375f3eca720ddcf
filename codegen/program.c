/*
 * program.c -- prints a program as C tables: what runtime/program.h declares,
 * as constant data.
 *
 *     static const int64_t pool[] = {0, 1605632, ...};
 *     static const DnnInstr code_0[] = {
 *       {.op = 0, .kernel = 3, .n_buffers = 2, .buffers = pool + 0, ...}, ...
 *     const DnnProgram dnn_program = {...};
 *
 * All lists of numbers lie in one pool.  Paths are kept: messages and traces
 * name them.
 */
#include <inttypes.h>
#include <string.h>

#include "codegen/select.h"

typedef struct Printer {
  Arena *arena;
  Text *out;
  const ProgramInput *input;
  VEC(int64_t) pool;
  int n_gemms, n_convs, n_collectives;
  Text gemms, convs, collectives;
} Printer;

/* ---- small pieces ---- */

/* A C string literal; NULL stays NULL. */
static void add_string(Text *out, const char *string) {
  if (!string) {
    text_add(out, "0");
    return;
  }
  text_add(out, "\"");
  for (const char *at = string; *at; at++) {
    unsigned char c = (unsigned char)*at;
    if (c == '"' || c == '\\')
      text_printf(out, "\\%c", c);
    else if (c < 0x20 || c >= 0x7f || c == '?')
      text_printf(out, "\\%03o", c);
    else
      text_add_n(out, at, 1);
  }
  text_add(out, "\"");
}

static int add_pool(Printer *printer, const int64_t *values, int n) {
  int at = printer->pool.n;
  for (int i = 0; i < n; i++)
    vec_push(printer->arena, &printer->pool, values[i]);
  return at;
}

static void add_list(Text *out, const char *name, const int64_t *values,
                     int n) {
  text_printf(out, ".%s = {", name);
  for (int i = 0; i < n; i++)
    text_printf(out, "%s%" PRId64, i ? ", " : "", values[i]);
  text_add(out, "}, ");
}

static void add_pooled(Printer *printer, Text *out, const char *name,
                       const int64_t *values, int n) {
  if (n > 0)
    text_printf(out, ".%s = pool + %d, ", name, add_pool(printer, values, n));
}

/* ---- instructions ---- */

static void add_gemm(Printer *printer, const DnnGemm *gemm) {
  Text *out = &printer->gemms;
  text_printf(out,
              "  {.dtype = %d, .accumulate = %d, .m = %" PRId64
              ", .n = %" PRId64 ", .k = %" PRId64 ", .a_i = %" PRId64
              ", .a_k = %" PRId64 ", .b_k = %" PRId64 ", .b_j = %" PRId64
              ", .c_i = %" PRId64 ", .c_j = %" PRId64 ", ",
              gemm->dtype, gemm->accumulate, gemm->m, gemm->n, gemm->k,
              gemm->a_i, gemm->a_k, gemm->b_k, gemm->b_j, gemm->c_i, gemm->c_j);
  add_list(out, "batch", gemm->batch, 2);
  add_list(out, "a_batch", gemm->a_batch, 2);
  add_list(out, "b_batch", gemm->b_batch, 2);
  add_list(out, "c_batch", gemm->c_batch, 2);
  text_printf(out, ".scratch_bytes = %" PRId64 "},\n", gemm->scratch_bytes);
}

static void add_conv(Printer *printer, const DnnConv *conv) {
  Text *out = &printer->convs;
  text_printf(out,
              "  {.kind = %d, .dtype = %d, .batch = %" PRId64
              ", .groups = %" PRId64 ", .in_channels = %" PRId64
              ", .out_channels = %" PRId64 ", ",
              conv->kind, conv->dtype, conv->batch, conv->groups,
              conv->in_channels, conv->out_channels);
  add_list(out, "in", conv->in, 2);
  add_list(out, "out", conv->out, 2);
  add_list(out, "window", conv->window, 2);
  add_list(out, "stride", conv->stride, 2);
  add_list(out, "pad", conv->pad, 2);
  add_list(out, "dilate", conv->dilate, 2);
  add_list(out, "x_stride", conv->x_stride, 4);
  add_list(out, "w_stride", conv->w_stride, 5);
  add_list(out, "y_stride", conv->y_stride, 4);
  text_printf(out, ".scratch_bytes = %" PRId64 "},\n", conv->scratch_bytes);
}

static void add_collective(Printer *printer, const Launch *launch) {
  const DnnCollective *what = &launch->collective;
  Text *out = &printer->collectives;
  text_printf(out,
              "  {.kind = %d, .reduce = %d, .dtype = %d, .id = %d, "
              ".group_size = %d, .group_stride = %d, .n_parts = %d, ",
              what->kind, what->reduce, what->dtype, what->id, what->group_size,
              what->group_stride, what->n_parts);
  add_pooled(printer, out, "counts", launch->counts.data, launch->counts.n);
  text_add(out, "},\n");
}

static void add_detail(Printer *printer, const Launch *launch) {
  Text *out = printer->out;
  switch (launch->op) {
  case DNN_OP_GEMM:
    text_printf(out, ".detail = gemms + %d, ", printer->n_gemms++);
    add_gemm(printer, &launch->gemm);
    break;
  case DNN_OP_CONV:
    text_printf(out, ".detail = convs + %d, ", printer->n_convs++);
    add_conv(printer, &launch->conv);
    break;
  case DNN_OP_COLLECTIVE:
    text_printf(out, ".detail = collectives + %d, ", printer->n_collectives++);
    add_collective(printer, launch);
    break;
  default: break;
  }
}

static void add_places(Printer *printer, const Launch *launch, int code,
                       int index) {
  if (launch->places.n == 0) return;
  text_printf(printer->out, "static const DnnPlace places_%d_%d[] = {", code,
              index);
  for (int i = 0; i < launch->places.n; i++) {
    const DnnPlace *place = &launch->places.data[i];
    text_printf(printer->out, "{%d, %d, %d, %" PRId64 "}, ", place->number,
                place->pieces, place->stride, place->factor);
  }
  text_add(printer->out, "};\n");
}

static void add_launch(Printer *printer, const Launch *launch, int code,
                       int index) {
  Text *out = printer->out;
  text_printf(out, "  {.op = %d, .phase = %d, .kernel = %d, ", launch->op,
              launch->phase, launch->kernel);
  text_printf(out, ".n_buffers = %d, ", launch->buffers.n);
  add_pooled(printer, out, "buffers", launch->buffers.data, launch->buffers.n);
  if (launch->numbers.n)
    text_printf(out, ".n_numbers = %d, ", launch->numbers.n);
  add_pooled(printer, out, "numbers", launch->numbers.data, launch->numbers.n);
  if (launch->checks.n)
    text_printf(out, ".n_checks = %d, ", launch->checks.n / 2);
  add_pooled(printer, out, "checks", launch->checks.data, launch->checks.n);
  if (launch->places.n)
    text_printf(out, ".n_places = %d, .places = places_%d_%d, ",
                launch->places.n, code, index);
  add_detail(printer, launch);
  text_add(out, ".path = ");
  add_string(out, launch->path);
  text_printf(out, ", .flops = %.0f, .bytes_moved = %.0f},\n", launch->flops,
              launch->bytes_moved);
}

static void add_instrs(Printer *printer, int code) {
  const LaunchList *list = &printer->input->launches[code];
  for (int i = 0; i < list->n; i++)
    add_places(printer, &list->data[i], code, i);
  text_printf(printer->out, "static const DnnInstr code_%d[] = {\n", code);
  for (int i = 0; i < list->n; i++)
    add_launch(printer, &list->data[i], code, i);
  text_add(printer->out, list->n ? "};\n" : "  {.op = 0}};\n");
}

/* ---- tensors ---- */

static DnnRole role_of(Role role) {
  switch (role) {
  case ROLE_param: return DNN_PARAM;
  case ROLE_state: return DNN_STATE;
  case ROLE_moment: return DNN_MOMENT;
  case ROLE_ema: return DNN_EMA;
  case ROLE_step: return DNN_STEP;
  case ROLE_seed: return DNN_SEED;
  case ROLE_loss: return DNN_LOSS;
  case ROLE_norm: return DNN_NORM;
  case ROLE_rate: return DNN_RATE;
  case ROLE_metric: return DNN_METRIC;
  case ROLE_result: return DNN_RESULT;
  default: return DNN_DATA;
  }
}

static void add_tensor(Printer *printer, Role role, const char *path,
                       const Type *type, const Mesh *mesh, int64_t offset,
                       int64_t bytes, Init init) {
  Text *out = printer->out;
  int64_t sizes[MAX_RANK];
  text_add(out, "  {.path = ");
  add_string(out, path);
  text_printf(out, ", .role = %d, .dtype = %d, .rank = %d, .dim = {",
              role_of(role), type->dtype, type->rank);
  for (int d = 0; d < type->rank; d++) {
    add_string(out, type->dims[d].name);
    text_add(out, ", ");
    sizes[d] = type->dims[d].size;
  }
  text_add(out, "}, ");
  add_list(out, "size", sizes, type->rank);
  text_add(out, ".split = {");
  for (int d = 0; d < DNN_MAX_RANK; d++) {
    int pieces = 1, stride = 1;
    if (d < type->rank) {
      bool is_group = mesh_group(mesh, type->dims[d].split, &pieces, &stride);
      ASSERT(is_group);
    }
    text_printf(out, "{%d, %d}, ", pieces, stride);
  }
  text_printf(out,
              "}, .offset = %" PRId64 ", .bytes = %" PRId64
              ", .init = %d, .init_a = ",
              offset, bytes, init.kind);
  text_add_real(out, init.a);
  text_add(out, "},\n");
}

/* Slots have the placement of the first code; ranks are those of its mesh. */
static void add_persistent(Printer *printer) {
  const PersistentLayout *persistent = printer->input->persistent;
  const Mesh *mesh = &printer->input->codes[0].graph->mesh;
  text_add(printer->out, "static const DnnTensor tensors[] = {\n");
  for (int i = 0; i < persistent->slots.n; i++) {
    const Slot *slot = &persistent->slots.data[i];
    add_tensor(printer, slot->role, slot->path, slot->type, mesh, slot->offset,
               slot->bytes, slot->init);
  }
  text_add(printer->out, "  {.path = 0}};\n");
}

/* Inputs that are data, and outputs that are no slots. */
static int add_code_tensors(Printer *printer, int code) {
  const CodeInput *input = &printer->input->codes[code];
  const Graph *graph = input->graph;
  const Layout *layout = input->layout;
  int n = 0;
  Init none = {.kind = INIT_zeros};
  text_printf(printer->out, "static const DnnTensor tensors_%d[] = {\n", code);
  for (int i = 0; i < graph->inputs.n; i++) {
    const GraphInput *in = &graph->inputs.data[i];
    if (in->role != ROLE_data) continue;
    int value = layout->first_value[in->value.node] + in->value.result;
    add_tensor(printer, in->role, in->path, graph_type(graph, in->value),
               &graph->mesh, layout->offset[value], layout->bytes[value], none);
    n++;
  }
  for (int i = 0; i < graph->outputs.n; i++) {
    const GraphOutput *result = &graph->outputs.data[i];
    DnnRole role = role_of(result->role);
    if (role < DNN_LOSS || result->role == ROLE_grad) continue;
    int value = layout->first_value[result->value.node] + result->value.result;
    add_tensor(printer, result->role, result->path,
               graph_type(graph, result->value), &graph->mesh,
               layout->offset[value], layout->bytes[value], none);
    n++;
  }
  text_add(printer->out, "  {.path = 0}};\n");
  return n;
}

/* ---- kernels and codes ---- */

static void add_kernels(Printer *printer) {
  const KernelSet *set = printer->input->kernels;
  const DeviceCode *device = printer->input->device;
  Text *out = printer->out;
  for (int i = 0; i < set->kernels.n && !device->module_of; i++)
    text_printf(out, "DnnKernelFn %s;\n", set->kernels.data[i].name);
  text_add(out, "static const DnnKernel kernels[] = {\n");
  for (int i = 0; i < set->kernels.n; i++) {
    const KernelText *kernel = &set->kernels.data[i];
    text_add(out, "  {.name = ");
    add_string(out, kernel->name);
    if (!device->module_of) {
      text_printf(out, ", .function = %s, .module = -1},\n", kernel->name);
      continue;
    }
    text_printf(out,
                ", .module = %d, .grid = {%u, %u, %u}, .block = {%u, %u, %u}, "
                ".shared_bytes = %u},\n",
                device->module_of[i], kernel->grid[0], kernel->grid[1],
                kernel->grid[2], kernel->block[0], kernel->block[1],
                kernel->block[2], kernel->shared_bytes);
  }
  text_add(out, "  {.name = 0}};\n");
}

static void add_codes(Printer *printer, const int *n_tensors) {
  Text *out = printer->out;
  text_add(out, "static const DnnCode codes[] = {\n");
  for (int i = 0; i < printer->input->n_codes; i++) {
    const CodeInput *code = &printer->input->codes[i];
    text_add(out, "  {.name = ");
    add_string(out, code->name);
    text_printf(out,
                ", .n_instrs = %d, .instrs = code_%d, .batch = %" PRId64
                ", .n_tensors = %d, .tensors = tensors_%d},\n",
                printer->input->launches[i].n, i, code->batch, n_tensors[i], i);
  }
  text_add(out, "  {.name = 0}};\n");
}

/* ---- data and settings ---- */

static void add_field(Printer *printer, const DataField *field) {
  Text *out = printer->out;
  int64_t sizes[MAX_RANK];
  text_add(out, "  {.path = ");
  add_string(out, field->path);
  text_printf(out, ", .source = %d, .file = ", field->source);
  add_string(out, field->file);
  text_add(out, ", .eval_file = ");
  add_string(out, field->eval_file);
  text_printf(out,
              ", .next_of = %d, .first_column = %" PRId64
              ", .last_column = %" PRId64 ", .header_lines = %" PRId64
              ", .below = %" PRId64 ", .records = %" PRId64 ", .scale = ",
              field->next_of, field->first_column, field->last_column,
              field->header_lines, field->below, field->records);
  text_add_real(out, field->scale);
  text_add(out, ", .shift = ");
  text_add_real(out, field->shift);
  text_printf(out, ", .dtype = %d, .rank = %d, ", field->type->dtype,
              field->type->rank);
  for (int d = 0; d < field->type->rank; d++)
    sizes[d] = field->type->dims[d].size;
  add_list(out, "size", sizes, field->type->rank);
  text_add(out, "},\n");
}

static bool is_stream(const DataBlock *block) {
  for (int i = 0; i < block->n_fields; i++)
    if (block->fields[i].source == SOURCE_bytes ||
        block->fields[i].source == SOURCE_tokens)
      return true;
  return false;
}

static void add_data(Printer *printer) {
  const Model *model = printer->input->model;
  Text *out = printer->out;
  for (int i = 0; i < model->n_data; i++) {
    text_printf(out, "static const DnnField fields_%d[] = {\n", i);
    for (int k = 0; k < model->data[i].n_fields; k++)
      add_field(printer, &model->data[i].fields[k]);
    text_add(out, "  {.path = 0}};\n");
  }
  text_add(out, "static const DnnData data[] = {\n");
  for (int i = 0; i < model->n_data; i++) {
    const DataBlock *block = &model->data[i];
    text_add(out, "  {.name = ");
    add_string(out, block->name);
    text_printf(out, ", .n_fields = %d, .fields = fields_%d, .eval = ",
                block->n_fields, i);
    text_add_real(out, block->eval);
    text_printf(out, ", .sequential = %d, .is_stream = %d},\n",
                block->is_sequential, is_stream(block));
  }
  text_add(out, "  {.name = 0}};\n");
}

static void add_metrics(Printer *printer) {
  const TrainSettings *settings = &printer->input->model->settings;
  text_add(printer->out, "static const char *const metrics[] = {");
  for (int i = 0; i < settings->n_metrics; i++) {
    add_string(printer->out, settings->metrics[i]);
    text_add(printer->out, ", ");
  }
  text_add(printer->out, "0};\n");
}

static void add_settings(Printer *printer) {
  const Model *model = printer->input->model;
  const TrainSettings *settings = &model->settings;
  Text *out = printer->out;
  text_printf(out,
              "  .settings = {.steps = %" PRId64 ", .epochs = %" PRId64
              ", .batch = %" PRId64 ", .eval_every = %" PRId64
              ", .eval_batches = %" PRId64 ", .save_every = %" PRId64
              ", .keep = %" PRId64 ", .seed = %" PRIu64 "u, .clip = ",
              settings->steps, settings->epochs, settings->batch,
              settings->eval_every, settings->eval_batches,
              settings->save_every, settings->keep, settings->seed);
  text_add_real(out, settings->clip);
  text_add(out, ", .ema = ");
  text_add_real(out, settings->ema);
  text_add(out, ", .save = ");
  add_string(out, settings->save);
  text_printf(out,
              ", .items = \"%s\", .items_per_sample = %" PRId64
              ", .n_metrics = %d, .metrics = metrics},\n",
              model->items_are_tokens ? "tok" : "samples",
              model->items_per_sample, settings->n_metrics);
}

static void add_sample(Printer *printer) {
  const Model *model = printer->input->model;
  const SampleSettings *sample = &model->sample_settings;
  if (!model->has_sample) return;
  Text *out = printer->out;
  text_add(out, "static const DnnSample sample = {.prompt = ");
  add_string(out, sample->prompt);
  text_printf(out,
              ", .count = %" PRId64 ", .top_k = %" PRId64 ", .temperature = ",
              sample->count, sample->top_k);
  text_add_real(out, sample->temperature);
  text_printf(out, ", .bpe = %d, .vocabulary = ", sample->vocabulary != NULL);
  add_string(out, sample->vocabulary);
  text_add(out, "};\n");
}

/* ---- the program ---- */

static int64_t count_parameters(const PersistentLayout *persistent) {
  int64_t n = 0;
  for (int i = 0; i < persistent->slots.n; i++)
    if (persistent->slots.data[i].role == ROLE_param)
      n += type_elements(persistent->slots.data[i].type);
  return n;
}

static void add_program(Printer *printer, int64_t arena_bytes) {
  const ProgramInput *input = printer->input;
  const BuildOptions *options = input->options;
  Text *out = printer->out;
  text_add(out, "const DnnProgram dnn_program = {\n  .abi = DNN_ABI,\n  ");
  const char *const names[] = {"model",      "model_dir", "target",
                               "model_hash", "plan_hash", "compiler"};
  const char *const texts[] = {input->model->name,     input->model_dir,
                               options->backend->name, options->model_hash,
                               options->plan_hash,     "dnnc"};
  for (int i = 0; i < ARRAY_LENGTH(names); i++) {
    text_printf(out, ".%s = ", names[i]);
    add_string(out, texts[i]);
    text_add(out, ", ");
  }
  text_printf(out,
              "\n  .world = %d, .arena_bytes = %" PRId64
              ", .persistent_bytes = %" PRId64 ", .parameters = %" PRId64 ",\n",
              options->ranks, arena_bytes, input->persistent->bytes,
              count_parameters(input->persistent));
  text_printf(out,
              "  .n_tensors = %d, .tensors = tensors,\n"
              "  .n_kernels = %d, .kernels = kernels,\n"
              "  .n_codes = %d, .codes = codes,\n"
              "  .n_data = %d, .data = data,\n",
              input->persistent->slots.n, input->kernels->kernels.n,
              input->n_codes, input->model->n_data);
  if (input->device->modules_text)
    text_printf(out, "  .n_modules = %d, .modules = dnn_modules,\n",
                input->device->n_modules);
  add_settings(printer);
  if (input->model->has_sample) text_add(out, "  .sample = &sample,\n");
  text_add(out, "};\n"
                "int rank_main(int, char **, const DnnProgram *);\n"
                "int main(int argc, char **argv) {\n"
                "  return rank_main(argc, argv, &dnn_program);\n"
                "}\n");
}

static int64_t arena_of(const ProgramInput *input) {
  int64_t bytes = input->persistent->bytes;
  for (int i = 0; i < input->n_codes; i++)
    if (input->codes[i].layout->arena_bytes > bytes)
      bytes = input->codes[i].layout->arena_bytes;
  return bytes;
}

static void add_pool_text(Printer *printer, Text *out) {
  text_add(out, "static const int64_t pool[] = {");
  for (int i = 0; i < printer->pool.n; i++)
    text_printf(out, "%s%" PRId64 ",", i % 16 == 0 ? "\n" : "",
                printer->pool.data[i]);
  text_add(out, "0};\n");
}

const char *program_text(Arena *arena, const ProgramInput *input,
                         int64_t *out_arena_bytes) {
  Text body = text_create(arena), whole = text_create(arena);
  Printer printer = {.arena = arena, .out = &body, .input = input};
  printer.gemms = text_create(arena);
  printer.convs = text_create(arena);
  printer.collectives = text_create(arena);
  int *n_tensors = ARENA_ARRAY(arena, int, input->n_codes);
  for (int i = 0; i < input->n_codes; i++) {
    n_tensors[i] = add_code_tensors(&printer, i);
    add_instrs(&printer, i);
  }
  add_kernels(&printer);
  add_codes(&printer, n_tensors);
  add_persistent(&printer);
  add_data(&printer);
  add_metrics(&printer);
  add_sample(&printer);
  *out_arena_bytes = arena_of(input);
  add_program(&printer, *out_arena_bytes);
  text_add(&whole, "#include \"program.h\"\n");
  if (input->device->modules_text)
    text_add(&whole, input->device->modules_text);
  add_pool_text(&printer, &whole);
  text_printf(&whole, "static const DnnGemm gemms[] = {\n%s  {.m = 0}};\n",
              text_string(&printer.gemms));
  text_printf(&whole, "static const DnnConv convs[] = {\n%s  {.kind = 0}};\n",
              text_string(&printer.convs));
  text_printf(&whole,
              "static const DnnCollective collectives[] = {\n%s  {.kind = "
              "0}};\n",
              text_string(&printer.collectives));
  text_add(&whole, text_string(&body));
  return text_string(&whole);
}
