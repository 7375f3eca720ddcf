/*
 * program_settings.c -- prints the data blocks, metrics and settings of a model
 * as C text: the tables that do not grow with the graph.
 */
#include <inttypes.h>
#include <string.h>

#include "codegen/program.h"

/* ---- strings and numbers ---- */

void program_add_string(Text *out, const char *string) {
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

void program_add_numbers(Text *out, const char *name, const int64_t *values,
                         int n) {
  text_printf(out, ".%s = {", name);
  for (int i = 0; i < n; i++)
    text_printf(out, "%s%" PRId64, i ? ", " : "", values[i]);
  text_add(out, "}, ");
}

/* ---- data ---- */

static void add_limits(ProgramPrinter *printer, const DataField *field,
                       int block, int index) {
  Text *out = printer->out;
  text_printf(out, "static const DnnLimit limits_%d_%d[] = {\n", block, index);
  for (int i = 0; i < field->limits.n; i++) {
    const DataLimit *limit = &field->limits.data[i];
    text_add(out, "  {.use = ");
    program_add_string(out, limit->use);
    text_printf(out,
                ", .below = %" PRId64 ", .has_ignored = %d, .ignored = %" PRId64
                ", ",
                limit->below, limit->has_ignored, limit->ignored);
    program_add_numbers(out, "begin", limit->begin, field->type->rank);
    program_add_numbers(out, "size", limit->size, field->type->rank);
    text_add(out, "},\n");
  }
  text_add(out, "  {.use = 0}};\n");
}

static void add_classes(ProgramPrinter *printer, const DataField *field,
                        int block, int index) {
  Text *out = printer->out;
  text_printf(out, "static const char *const classes_%d_%d[] = {", block,
              index);
  for (int i = 0; i < field->n_classes; i++) {
    program_add_string(out, field->classes[i]);
    text_add(out, ", ");
  }
  text_add(out, "0};\n");
}

static void add_field(ProgramPrinter *printer, const DataField *field,
                      int block, int index) {
  Text *out = printer->out;
  int64_t sizes[MAX_RANK];
  text_add(out, "  {.path = ");
  program_add_string(out, field->path);
  text_printf(out, ", .source = %d, .file = ", field->source);
  program_add_string(out, field->file);
  text_add(out, ", .eval_file = ");
  program_add_string(out, field->eval_file);
  text_add(out, ", .tensor = ");
  program_add_string(out, field->tensor);
  text_add(out, ", .first_name = ");
  program_add_string(out, field->first_name);
  text_add(out, ", .last_name = ");
  program_add_string(out, field->last_name);
  text_printf(out,
              ", .n_classes = %d, .classes = classes_%d_%d, "
              ".classes_file = ",
              field->n_classes, block, index);
  program_add_string(out, field->classes_file);
  text_printf(out, ", .is_given = %d", field->is_given);
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
  program_add_numbers(out, "size", sizes, field->type->rank);
  text_printf(out, ".n_limits = %d, .limits = limits_%d_%d},\n",
              field->limits.n, block, index);
}

void program_add_data(ProgramPrinter *printer) {
  const Model *model = printer->input->model;
  Text *out = printer->out;
  for (int i = 0; i < model->n_data; i++) {
    for (int k = 0; k < model->data[i].n_fields; k++) {
      add_limits(printer, &model->data[i].fields[k], i, k);
      add_classes(printer, &model->data[i].fields[k], i, k);
    }
    text_printf(out, "static const DnnField fields_%d[] = {\n", i);
    for (int k = 0; k < model->data[i].n_fields; k++)
      add_field(printer, &model->data[i].fields[k], i, k);
    text_add(out, "  {.path = 0}};\n");
  }
  text_add(out, "static const DnnData data[] = {\n");
  for (int i = 0; i < model->n_data; i++) {
    const DataBlock *block = &model->data[i];
    text_add(out, "  {.name = ");
    program_add_string(out, block->name);
    text_printf(out, ", .n_fields = %d, .fields = fields_%d, .eval = ",
                block->n_fields, i);
    text_add_real(out, block->eval);
    text_printf(out, ", .sequential = %d, .is_stream = %d, .cycles = %d},\n",
                block->is_sequential, block->is_stream, block->cycles);
  }
  text_add(out, "  {.name = 0}};\n");
}

static void add_metric(ProgramPrinter *printer, const Metric *metric,
                       const char *parts, int index) {
  Text *out = printer->out;
  text_add(out, "{.name = ");
  program_add_string(out, metric->name);
  text_printf(out,
              ", .formula = %d, .average = %d, .single = %" PRId64
              ", .n_parts = %d, .parts = %s_%d}",
              (int)metric->formula, (int)metric->average, metric->single,
              metric->n_parts, parts, index);
}

static void add_parts(ProgramPrinter *printer, const Metric *metric,
                      const char *parts, int index) {
  Text *out = printer->out;
  text_printf(out, "static const DnnMetricPart %s_%d[] = {\n", parts, index);
  for (int i = 0; i < metric->n_parts; i++) {
    text_add(out, "  {.sum = ");
    program_add_string(out, metric->parts[i].sum);
    text_add(out, ", .count = ");
    program_add_string(out, metric->parts[i].count);
    text_add(out, ", .factor = ");
    text_add_real(out, metric->parts[i].factor);
    text_add(out, "},\n");
  }
  text_add(out, "  {.sum = 0}};\n");
}

void program_add_metrics(ProgramPrinter *printer) {
  const TrainSettings *settings = &printer->input->model->settings;
  add_parts(printer, &settings->validation, "loss_parts", 0);
  for (int i = 0; i < settings->n_metrics; i++)
    add_parts(printer, &settings->metrics[i], "metric_parts", i);
  text_add(printer->out, "static const DnnMetric metrics[] = {\n");
  for (int i = 0; i < settings->n_metrics; i++) {
    text_add(printer->out, "  ");
    add_metric(printer, &settings->metrics[i], "metric_parts", i);
    text_add(printer->out, ",\n");
  }
  text_add(printer->out, "  {.name = 0}};\n");
}

void program_add_settings(ProgramPrinter *printer) {
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
  text_add(out, ", .batch_dim = ");
  program_add_string(out, settings->batch_dim);
  text_add(out, ", .save = ");
  program_add_string(out, settings->save);
  text_printf(out, ", .is_save_given = %d", settings->is_save_given);
  text_printf(out,
              ", .checked = %d, .items = \"%s\", .items_per_sample = %" PRId64
              ", .n_metrics = %d, .metrics = metrics, .validation = ",
              settings->is_checked, model->items_are_tokens ? "tok" : "samples",
              model->items_per_sample, settings->n_metrics);
  add_metric(printer, &settings->validation, "loss_parts", 0);
  text_add(out, "},\n");
}

static bool fills_caches(const ProgramInput *input) {
  for (int i = 0; i < input->n_entry_points; i++) {
    const Graph *graph = input->entry_points[i].graph;
    if (strcmp(input->entry_points[i].name, "prefill") != 0) continue;
    for (int k = 0; k < graph->outputs.n; k++)
      if (graph->outputs.data[k].role == ROLE_decode_cache) return true;
  }
  return false;
}

void program_add_sample(ProgramPrinter *printer) {
  const Model *model = printer->input->model;
  const SampleSettings *sample = &model->sample_settings;
  if (!model->has_sample) return;
  Text *out = printer->out;
  text_add(out, "static const DnnSample sample = {.prompt = ");
  program_add_string(out, sample->prompt);
  text_printf(out,
              ", .count = %" PRId64 ", .top_k = %" PRId64 ", .temperature = ",
              sample->count, sample->top_k);
  text_add_real(out, sample->temperature);
  text_printf(out, ", .bpe = %d, .fills_caches = %d, .vocabulary = ",
              sample->vocabulary != NULL, fills_caches(printer->input));
  program_add_string(out, sample->vocabulary);
  text_printf(out, ", .is_vocabulary_given = %d};\n",
              sample->is_vocabulary_given);
}
