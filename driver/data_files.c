/*
 * data_files.c -- counts the samples that the data files of a model give to an
 * evaluation.
 *
 * The readers of the runtime look, so that compiler and program agree.  A file
 * that is not there is no mistake yet: the compiled program asks for it.  A
 * file that is there and does not fit the model is one.
 */
#include "driver/internal.h"
#include "runtime/data/data.h"

#include <string.h>

_Static_assert((int)MAX_RANK == (int)DNN_MAX_RANK, "limits are copied");

/* The member of a row of model_facts.def: `to.name` becomes `from->name`. */
#define COPY_TEXT(name)     to.name = from->name;
#define COPY_WORDS(name)    to.name = from->name;
#define COPY_INT(name)      to.name = from->name;
#define COPY_COUNT(name)    to.name = from->name;
#define COPY_REAL(name)     to.name = from->name;
#define COPY_FLAG(name)     to.name = from->name;
#define COPY_SOURCE(name)   to.name = (uint8_t)from->name;
#define COPY_CHANNELS(name) memcpy(to.name, from->name, sizeof to.name);
#define COPY_SIZES(name)    memcpy(to.name, from->name, sizeof to.name);

static DnnLimit limit_of(const DataLimit *from) {
  DnnLimit to = {0};
#define LIMIT_FACT(kind, name, meaning) COPY_##kind(name)
#include "support/model_facts.def"
  return to;
}

static const DnnLimit *limits_of(Arena *arena, const DataField *from) {
  DnnLimit *limits = ARENA_ARRAY(arena, DnnLimit, from->limits.n);
  for (int i = 0; i < from->limits.n; i++)
    limits[i] = limit_of(&from->limits.data[i]);
  return limits;
}

static DnnField field_of(Arena *arena, const DataField *from) {
  DnnField to = {.dtype = (DnnDtype)from->type->dtype,
                 .rank = from->type->rank,
                 .n_limits = from->limits.n,
                 .limits = limits_of(arena, from)};
#define FIELD_FACT(kind, name, meaning) COPY_##kind(name)
#include "support/model_facts.def"
  for (int i = 0; i < to.rank; i++) to.size[i] = from->type->dims[i].size;
  return to;
}

static DnnData data_of(Arena *arena, const DataBlock *from) {
  DnnField *fields = ARENA_ARRAY(arena, DnnField, from->n_fields);
  for (int i = 0; i < from->n_fields; i++)
    fields[i] = field_of(arena, &from->fields[i]);
  DnnData to = {
      .name = from->name, .n_fields = from->n_fields, .fields = fields};
#define DATA_FACT(kind, name, meaning) COPY_##kind(name)
#include "support/model_facts.def"
  return to;
}

/* Every file that the blocks name is somewhere. */
static bool all_are_there(Arena *arena, const DnnProgram *program,
                          const InputSearch *search) {
  bool all = true;
  for (int i = 0; i < program->n_data; i++)
    for (int k = 0; k < program->data[i].n_fields; k++) {
      const DnnField *field = &program->data[i].fields[k];
      all = all &&
            input_all_exist(arena, field->files, field->n_files, search) &&
            input_all_exist(arena, field->eval_files, field->n_eval_files,
                            search) &&
            input_all_exist(arena, &field->classes_file,
                            field->classes_file != NULL, search);
    }
  return all;
}

/* Returns whether a program whose data are this block alone fails in the same
 * way. */
static bool fails_alone(Arena *arena, const DnnProgram *program,
                        const DnnData *block, const InputSearch *search,
                        const char *message) {
  DnnProgram alone = *program;
  Data *data = NULL;
  alone.n_data = 1;
  alone.data = block;
  Status status = data_open(arena, &alone, NULL, search, 1, &data);
  if (status.code == STATUS_ok) status = data_check(data);
  if (data) data_close(data);
  return status.code != STATUS_ok && strcmp(status.message, message) == 0;
}

/* Returns the place of the field that the readers refuse, or of the block where
 * they refuse several.  They know no places, so each is read again alone. */
static Span refused_span(const Model *model, Arena *arena,
                         const DnnProgram *program, const InputSearch *search,
                         const char *message) {
  for (int i = 0; i < model->n_data; i++) {
    const DataBlock *block = &model->data[i];
    DnnData alone = program->data[i];
    if (!fails_alone(arena, program, &alone, search, message)) continue;
    int n_refused = 0, refused = 0;
    alone.n_fields = 1;
    for (int k = 0; k < block->n_fields; k++) {
      alone.fields = &program->data[i].fields[k];
      if (alone.fields->source == SOURCE_next ||
          !fails_alone(arena, program, &alone, search, message))
        continue;
      n_refused++;
      refused = k;
    }
    return n_refused == 1 ? block->fields[refused].span : block->span;
  }
  return SPAN_NONE;
}

/* Files that cannot be counted: false where that is a mistake. */
static bool report_uncounted(const Compilation *c, Arena *arena,
                             bool is_mistake, Span span, Status status) {
  if (c->options->data_files < DATA_FILES_checked) return true;
  const char *help = strstr(status.message, "\nhelp: ");
  size_t n = help ? (size_t)(help - status.message) : strlen(status.message);
  Diag *d = diag(c->module->diags, is_mistake ? DIAG_failed : DIAG_data_missing,
                 is_mistake ? span : SPAN_NONE,
                 arena_printf(arena, "%.*s", (int)n, status.message));
  if (help) diag_help(d, "%s", help + strlen("\nhelp: "));
  return !is_mistake;
}

/* The data inputs of a graph, as the runtime wants to see them. */
static DnnEntryPoint entry_point_of(Arena *arena, EntryPointId id,
                                    const Graph *graph, int64_t batch) {
  DnnTensor *tensors = ARENA_ARRAY(arena, DnnTensor, graph->inputs.n);
  int n = 0;
  for (int i = 0; i < graph->inputs.n; i++)
    if (graph->inputs.data[i].role == ROLE_data)
      tensors[n++] =
          (DnnTensor){.path = graph->inputs.data[i].path, .role = DNN_DATA};
  return (DnnEntryPoint){
      .id = (uint8_t)id, .batch = batch, .n_tensors = n, .tensors = tensors};
}

/* Blocks of unequal length: with the places of both. */
static void report_lengths(const Compilation *c, const Model *model,
                           const Data *data, const DnnEntryPoint *entry,
                           bool is_eval) {
  DataLengths lengths;
  if (!data_lengths_differ(data, entry, is_eval, &lengths)) return;
  const DataBlock *longer = &model->data[lengths.longer];
  const DataBlock *shorter = &model->data[lengths.shorter];
  Diag *d =
      diag(c->module->diags, DIAG_data_lengths, shorter->span, shorter->name,
           (long long)lengths.n_shorter, is_eval ? "evaluate" : "train on",
           longer->name, (long long)lengths.n_longer);
  diag_note(d, longer->span, "'%s' is here", longer->name);
  diag_help(d, "'cycle = true' in '%s' repeats it until '%s' ends",
            shorter->name, longer->name);
}

static Status count_samples(const Compilation *c, const Model *model,
                            Arena *arena, const DnnProgram *program,
                            const InputSearch *search, int64_t *out_samples) {
  Data *data = NULL;
  Status status = data_open(arena, program, NULL, search, 1, &data);
  int errors = diags_errors(c->module->diags);
  bool tells =
      status.code == STATUS_ok && c->options->data_files >= DATA_FILES_checked;
  for (int i = 0; i < 2 && tells; i++)
    report_lengths(c, model, data, &program->entry_points[i], i == 1);
  bool is_told = diags_errors(c->module->diags) > errors;
  if (status.code == STATUS_ok && !is_told) status = data_check(data);
  *out_samples = status.code == STATUS_ok ? data_eval_samples(data) : 0;
  if (data) data_close(data);
  return status;
}

bool driver_count_eval_samples(const Compilation *c, const Model *model,
                               int64_t *out_samples) {
  int64_t batch = model->settings.batch;
  Arena *arena = arena_create(c->module->memory);
  DnnData *blocks = ARENA_ARRAY(arena, DnnData, model->n_data);
  for (int i = 0; i < model->n_data; i++)
    blocks[i] = data_of(arena, &model->data[i]);
  DnnEntryPoint entry_points[2] = {
      entry_point_of(arena, ENTRY_train, model->train, batch),
      entry_point_of(arena, ENTRY_eval, model->eval, batch)};
  DnnProgram program = {.n_data = model->n_data,
                        .data = blocks,
                        .model_dir = c->model_folder,
                        .n_entry_points = 2,
                        .entry_points = entry_points};
  InputSearch search = {.folder = c->options->data_folder,
                        .model_dir = program.model_dir,
                        .follows_links = c->options->follows_links};
  Status status =
      count_samples(c, model, arena, &program, &search, out_samples);
  bool is_good = true;
  if (status.code != STATUS_ok) {
    bool is_mistake = c->options->data_files == DATA_FILES_needed ||
                      all_are_there(arena, &program, &search);
    Span span = SPAN_NONE;
    if (is_mistake)
      span = refused_span(model, arena, &program, &search, status.message);
    is_good = report_uncounted(c, arena, is_mistake, span, status);
  }
  arena_destroy(arena);
  return is_good;
}
