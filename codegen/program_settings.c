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

/* ---- members ---- */

/* ".NAME = ", after a comma but for the first member of a struct. */
static void begin_member(Text *out, const char *name) {
  bool is_first = out->n > 0 && out->data[out->n - 1] == '{';
  text_printf(out, "%s.%s = ", is_first ? "" : ", ", name);
}

static void add_integer(Text *out, const char *name, int64_t value) {
  begin_member(out, name);
  text_printf(out, "%" PRId64, value);
}

static void add_seed(Text *out, const char *name, uint64_t value) {
  begin_member(out, name);
  text_printf(out, "%" PRIu64 "u", value);
}

static void add_real(Text *out, const char *name, double value) {
  begin_member(out, name);
  text_add_real(out, value);
}

static void add_channels(Text *out, const char *name, const double *values) {
  begin_member(out, name);
  for (int i = 0; i < 3; i++) {
    text_add(out, i ? ", " : "{");
    text_add_real(out, values[i]);
  }
  text_add(out, "}");
}

static void add_text(Text *out, const char *name, const char *value) {
  begin_member(out, name);
  program_add_string(out, value);
}

static void add_sizes(Text *out, const char *name, const int64_t *values,
                      int n) {
  begin_member(out, name);
  text_add(out, "{");
  for (int i = 0; i < n; i++)
    text_printf(out, "%s%" PRId64, i ? ", " : "", values[i]);
  text_add(out, "}");
}

/* A table of its own, whose name has these numbers; -1: none. */
static void add_table(Text *out, const char *name, const char *table, int i,
                      int k) {
  begin_member(out, name);
  text_add(out, table);
  if (i >= 0) text_printf(out, "_%d", i);
  if (k >= 0) text_printf(out, "_%d", k);
}

/* The member of a row of model_facts.def: prints `from->name` to `out`. */
#define ADD_TEXT(name)         add_text(out, #name, from->name);
#define ADD_INT(name)          add_integer(out, #name, from->name);
#define ADD_COUNT(name)        add_integer(out, #name, from->name);
#define ADD_FLAG(name)         add_integer(out, #name, from->name);
#define ADD_SOURCE(name)       add_integer(out, #name, from->name);
#define ADD_FORMULA(name)      add_integer(out, #name, from->name);
#define ADD_AVERAGE(name)      add_integer(out, #name, from->name);
#define ADD_SEED(name)         add_seed(out, #name, from->name);
#define ADD_REAL(name)         add_real(out, #name, from->name);
#define ADD_CHANNELS(name)     add_channels(out, #name, from->name);
#define ADD_SIZES(name)        add_sizes(out, #name, from->name, rank);
#define ADD_WORDS(name)        add_table(out, #name, #name, block, index);
#define ADD_PROGRAM_FLAG(name) add_integer(out, #name, name##_of(printer));

/* ---- data ---- */

static void add_limits(ProgramPrinter *printer, const DataField *field,
                       int block, int index) {
  Text *out = printer->out;
  int rank = field->type->rank;
  text_printf(out, "static const DnnLimit limits_%d_%d[] = {\n", block, index);
  for (int i = 0; i < field->limits.n; i++) {
    const DataLimit *from = &field->limits.data[i];
    text_add(out, "  {");
#define LIMIT_FACT(kind, name, meaning) ADD_##kind(name)
#include "support/model_facts.def"
    text_add(out, ", },\n");
  }
  text_add(out, "  {.use = 0}};\n");
}

/* The table to which a member of kind WORDS of a field points. */
static void add_words(Text *out, const char *name, const char *const *words,
                      int n, int block, int index) {
  text_printf(out, "static const char *const %s_%d_%d[] = {", name, block,
              index);
  for (int i = 0; i < n; i++) {
    program_add_string(out, words[i]);
    text_add(out, ", ");
  }
  text_add(out, "0};\n");
}

static void add_lists(ProgramPrinter *printer, const DataField *field,
                      int block, int index) {
  Text *out = printer->out;
  add_words(out, "classes", field->classes, field->n_classes, block, index);
  add_words(out, "files", field->files, field->n_files, block, index);
  add_words(out, "eval_files", field->eval_files, field->n_eval_files, block,
            index);
}

static void add_field(ProgramPrinter *printer, const DataField *from, int block,
                      int index) {
  Text *out = printer->out;
  int64_t sizes[MAX_RANK];
  for (int d = 0; d < from->type->rank; d++)
    sizes[d] = from->type->dims[d].size;
  text_add(out, "  {");
#define FIELD_FACT(kind, name, meaning) ADD_##kind(name)
#include "support/model_facts.def"
  add_integer(out, "dtype", from->type->dtype);
  add_integer(out, "rank", from->type->rank);
  add_sizes(out, "size", sizes, from->type->rank);
  add_integer(out, "n_limits", from->limits.n);
  add_table(out, "limits", "limits", block, index);
  text_add(out, "},\n");
}

void program_add_data(ProgramPrinter *printer) {
  const Model *model = printer->input->model;
  Text *out = printer->out;
  for (int i = 0; i < model->n_data; i++) {
    for (int k = 0; k < model->data[i].n_fields; k++) {
      add_limits(printer, &model->data[i].fields[k], i, k);
      add_lists(printer, &model->data[i].fields[k], i, k);
    }
    text_printf(out, "static const DnnField fields_%d[] = {\n", i);
    for (int k = 0; k < model->data[i].n_fields; k++)
      add_field(printer, &model->data[i].fields[k], i, k);
    text_add(out, "  {.path = 0}};\n");
  }
  text_add(out, "static const DnnData data[] = {\n");
  for (int i = 0; i < model->n_data; i++) {
    const DataBlock *from = &model->data[i];
    text_add(out, "  {");
    add_text(out, "name", from->name);
    add_integer(out, "n_fields", from->n_fields);
    add_table(out, "fields", "fields", i, -1);
#define DATA_FACT(kind, name, meaning) ADD_##kind(name)
#include "support/model_facts.def"
    text_add(out, "},\n");
  }
  text_add(out, "  {.name = 0}};\n");
}

static void add_metric(ProgramPrinter *printer, const Metric *from,
                       const char *parts, int index) {
  Text *out = printer->out;
  text_add(out, "{");
#define METRIC_FACT(kind, name, meaning) ADD_##kind(name)
#include "support/model_facts.def"
  add_table(out, "parts", parts, index, -1);
  text_add(out, "}");
}

static void add_parts(ProgramPrinter *printer, const Metric *metric,
                      const char *parts, int index) {
  Text *out = printer->out;
  text_printf(out, "static const DnnMetricPart %s_%d[] = {\n", parts, index);
  for (int i = 0; i < metric->n_parts; i++) {
    const MetricPart *from = &metric->parts[i];
    text_add(out, "  {");
#define PART_FACT(kind, name, meaning) ADD_##kind(name)
#include "support/model_facts.def"
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
  const TrainSettings *from = &model->settings;
  Text *out = printer->out;
  text_add(out, "  .settings = {");
#define TRAIN_FACT(kind, name, meaning) ADD_##kind(name)
#include "support/model_facts.def"
  add_text(out, "items", model->items_are_tokens ? "tok" : "samples");
  add_integer(out, "items_per_sample", model->items_per_sample);
  add_integer(out, "n_metrics", from->n_metrics);
  add_table(out, "metrics", "metrics", -1, -1);
  begin_member(out, "validation");
  add_metric(printer, &from->validation, "loss_parts", 0);
  text_add(out, "},\n");
}

static bool fills_caches(const EntryPoint *entry) {
  for (int i = 0; entry && i < entry->stages.n; i++) {
    const Graph *graph = entry->stages.data[i].graph;
    for (int k = 0; k < graph->outputs.n; k++)
      if (graph->outputs.data[k].role == ROLE_decode_cache) return true;
  }
  return false;
}

static bool fills_caches_of(const ProgramPrinter *printer) {
  const RankPrograms *ranks = printer->input->ranks;
  for (int i = 0; i < ranks->n; i++)
    if (fills_caches(rank_program_find(ranks->programs[i], ENTRY_prefill)))
      return true;
  return false;
}

static bool bpe_of(const ProgramPrinter *printer) {
  return printer->input->model->sample_settings.vocabulary != NULL;
}

void program_add_sample(ProgramPrinter *printer) {
  const Model *model = printer->input->model;
  const SampleSettings *from = &model->sample_settings;
  if (!model->has_sample) return;
  Text *out = printer->out;
  text_add(out, "static const DnnSample sample = {");
#define SAMPLE_FACT(kind, name, meaning) ADD_##kind(name)
#include "support/model_facts.def"
  text_add(out, "};\n");
}
