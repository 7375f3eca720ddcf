/*
 * predict_program.c -- reduces a program to the part that a prediction needs:
 * its entry point and the data fields that this reads, with the files that the
 * command line gives instead.
 *
 * Labels are not read, so their file may be missing.  The records are those
 * reserved for evaluation; all if none are reserved, and all of a given file.
 */
#include "runtime/rank/run.h"

#include <string.h>

/* So many of the last records that it is all of them. */
static const double all_records = 9e18;

typedef struct Preparing {
  Arena *arena;
  const DnnProgram *program;
  const DnnEntryPoint *entry;
  const RunOptions *options;
  int n_inputs; /* what the prediction reads on any rank: one for each path */
  const DnnTensor **inputs;
} Preparing;

static bool has_path(const Preparing *p, const char *path) {
  for (int i = 0; i < p->n_inputs; i++)
    if (strcmp(p->inputs[i]->path, path) == 0) return true;
  return false;
}

/* A stage may read no data itself, and two of one rank may read the same. */
static void find_inputs(Preparing *p, const DnnBundle *bundle) {
  int n = 0;
  for (int i = 0; i < bundle->n_programs; i++) {
    const DnnEntryPoint *entry =
        program_entry_point(&bundle->programs[i], p->entry->id);
    n += entry ? entry->n_tensors : 0;
  }
  p->inputs = ARENA_ARRAY(p->arena, const DnnTensor *, n + 1);
  for (int i = 0; i < bundle->n_programs; i++) {
    const DnnEntryPoint *entry =
        program_entry_point(&bundle->programs[i], p->entry->id);
    for (int k = 0; entry && k < entry->n_tensors; k++)
      if (entry->tensors[k].role == DNN_DATA &&
          !has_path(p, entry->tensors[k].path))
        p->inputs[p->n_inputs++] = &entry->tensors[k];
  }
}

/* ---- --input NAME=FILE ---- */

static const char *last_word(const char *path) {
  const char *dot = strrchr(path, '.');
  return dot ? dot + 1 : path;
}

/* The input of this path, or the only one whose last word it is. */
static const DnnTensor *find_input(const Preparing *p, const char *name,
                                   size_t n) {
  const DnnTensor *found = NULL;
  int n_found = 0;
  for (int i = 0; i < p->n_inputs; i++) {
    const DnnTensor *tensor = p->inputs[i];
    const char *word = last_word(tensor->path);
    if (strlen(tensor->path) == n && !memcmp(tensor->path, name, n))
      return tensor;
    if (strlen(word) != n || memcmp(word, name, n) != 0) continue;
    /* Several stages of a rank may read one input: the first counts. */
    if (found && strcmp(found->path, tensor->path) == 0) continue;
    found = tensor;
    n_found++;
  }
  return n_found == 1 ? found : NULL;
}

static const char *list_inputs(const Preparing *p) {
  Text text = text_create(p->arena);
  for (int i = 0; i < p->n_inputs; i++)
    text_printf(&text, "%s'%s'", text.n ? ", " : "", p->inputs[i]->path);
  return text_string(&text);
}

/* The file given for a tensor; the last one counts. */
static const char *file_for(const Preparing *p, const DnnTensor *tensor) {
  const char *file = NULL;
  for (int i = 0; i < p->options->input.n; i++) {
    const char *equals = strchr(p->options->input.items[i], '=');
    if (find_input(p, p->options->input.items[i],
                   (size_t)(equals - p->options->input.items[i])) == tensor)
      file = equals + 1;
  }
  return file;
}

static Status check_inputs(const Preparing *p) {
  for (int i = 0; i < p->options->input.n; i++) {
    const char *text = p->options->input.items[i], *equals = strchr(text, '=');
    if (!equals || equals == text || !equals[1])
      return status_make(STATUS_invalid, "--input takes NAME=FILE, not '%s'",
                         text);
    if (!find_input(p, text, (size_t)(equals - text)))
      return status_make(STATUS_invalid,
                         "--input: the prediction reads no '%.*s'; it reads %s",
                         (int)(equals - text), text, list_inputs(p));
  }
  return STATUS_OK;
}

static bool ends_with(const char *text, const char *ending) {
  size_t n = strlen(text), m = strlen(ending);
  if (n > 3 && !strcmp(text + n - 3, ".gz")) n -= 3;
  return n > m && !memcmp(text + n - m, ending, m);
}

static void set_file(Arena *arena, DnnField *field, const char *file) {
  field->files = arena_copy(arena, &file, sizeof file);
  field->n_files = 1;
  field->n_eval_files = 0;
}

/* FILE.safetensors or FILE.safetensors:TENSOR; without one the tensor has the
 * name of the input. */
static bool take_tensor(Arena *arena, DnnField *field, const char *file) {
  static const char ending[] = ".safetensors";
  const char *at = strstr(file, ending);
  for (const char *next = at; next; next = strstr(next + 1, ending)) at = next;
  if (!at) return false;
  const char *end = at + strlen(ending);
  if (*end && *end != ':') return false;
  field->source = SOURCE_safetensors;
  set_file(arena, field, arena_printf(arena, "%.*s", (int)(end - file), file));
  field->tensor = *end ? end + 1 : last_word(field->path);
  return true;
}

/* The ending of a file says how it is read. */
static void take_file(Arena *arena, DnnField *field, const char *file) {
  int64_t items = 1;
  for (int i = 1; i < field->rank; i++) items *= field->size[i];
  bool was_csv = field->source == SOURCE_csv;
  bool was_images = field->source == SOURCE_images;
  set_file(arena, field, file);
  field->is_given = true;
  if (take_tensor(arena, field, file)) return;
  if (was_images && !ends_with(file, ".npy") && !ends_with(file, ".csv"))
    return;
  field->source = ends_with(file, ".csv")   ? SOURCE_csv
                  : ends_with(file, ".npy") ? SOURCE_npy
                  : ends_with(file, ".txt") ? SOURCE_bytes
                  : ends_with(file, ".bin") ? SOURCE_tokens
                                            : SOURCE_idx;
  if (was_csv || field->source != SOURCE_csv) return;
  field->first_column = 0;
  field->last_column = items - 1;
  field->header_lines = 0;
}

/* ---- fields ---- */

static const DnnTensor *reader_of(const Preparing *p, const DnnField *field) {
  for (int i = 0; i < p->n_inputs; i++)
    if (strcmp(p->inputs[i]->path, field->path) == 0) return p->inputs[i];
  return NULL;
}

/* Those that are read, and what next() reads on from. */
static void mark_needed(const Preparing *p, const DnnData *block, bool *out) {
  for (int i = 0; i < block->n_fields; i++) {
    const DnnField *field = &block->fields[i];
    const DnnTensor *tensor = reader_of(p, field);
    bool is_given = tensor && file_for(p, tensor);
    for (int at = i; tensor && !out[at]; at = field->next_of) {
      out[at] = true;
      field = &block->fields[at];
      if (field->source != SOURCE_next || is_given) break;
    }
  }
}

static void take_block(const Preparing *p, const DnnData *from, DnnData *out) {
  bool *is_needed = ARENA_ARRAY(p->arena, bool, from->n_fields + 1);
  int *now = ARENA_ARRAY(p->arena, int, from->n_fields + 1);
  DnnField *fields = ARENA_ARRAY(p->arena, DnnField, from->n_fields + 1);
  bool keeps_some = from->eval > 0, is_given = false;
  mark_needed(p, from, is_needed);
  *out = *from;
  out->fields = fields;
  out->n_fields = 0;
  out->is_sequential = 0; /* side by side, not row by row */
  for (int i = 0; i < from->n_fields; i++) {
    if (!is_needed[i]) continue;
    DnnField *field = &fields[now[i] = out->n_fields++];
    *field = from->fields[i];
    const DnnTensor *tensor = reader_of(p, field);
    const char *file = tensor ? file_for(p, tensor) : NULL;
    if (file) take_file(p->arena, field, file);
    is_given = is_given || file;
    keeps_some = keeps_some || field->n_eval_files;
  }
  for (int i = 0; i < out->n_fields; i++)
    if (fields[i].source == SOURCE_next)
      fields[i].next_of = now[fields[i].next_of];
  if (is_given || !keeps_some) out->eval = all_records;
}

/* Inputs of a net alone, which no block has. */
static Status take_loose(const Preparing *p, DnnData *out) {
  DnnField *fields = ARENA_ARRAY(p->arena, DnnField, p->n_inputs + 1);
  *out = (DnnData){.name = "input", .fields = fields, .eval = all_records};
  for (int i = 0; i < p->n_inputs; i++) {
    const DnnTensor *tensor = p->inputs[i];
    bool is_known = false;
    for (int b = 0; b < p->program->n_data && !is_known; b++)
      for (int k = 0; k < p->program->data[b].n_fields && !is_known; k++)
        is_known = !strcmp(p->program->data[b].fields[k].path, tensor->path);
    if (is_known) continue;
    const char *file = file_for(p, tensor);
    if (!file)
      return status_make(STATUS_invalid,
                         "input '%s' has no data: give it a file with --input "
                         "%s=FILE",
                         tensor->path, tensor->path);
    DnnField *field = &fields[out->n_fields++];
    *field = (DnnField){.path = tensor->path,
                        .next_of = -1,
                        .scale = 1,
                        .dtype = tensor->dtype,
                        .rank = tensor->rank};
    memcpy(field->size, tensor->size, sizeof field->size);
    take_file(p->arena, field, file);
    out->is_stream = out->is_stream || field->source == SOURCE_bytes ||
                     field->source == SOURCE_tokens;
  }
  return STATUS_OK;
}

/* ---- states ---- */

static bool has_batch_dim(const DnnProgram *program, const DnnTensor *tensor) {
  const char *batch = program->settings.batch_dim;
  for (int d = 0; d < tensor->rank && batch; d++)
    if (strcmp(tensor->dim[d], batch) == 0) return true;
  return false;
}

/* Those with the batch dim begin anew in each batch: nothing reads what a
 * checkpoint has of them, which may be of another batch. */
static const DnnTensor *without_lanes(Arena *arena, const DnnProgram *program) {
  DnnTensor *tensors = arena_copy(arena, program->tensors,
                                  sizeof *tensors * (size_t)program->n_tensors);
  for (int i = 0; i < program->n_tensors; i++)
    if (tensors[i].role == DNN_STATE && has_batch_dim(program, &tensors[i]))
      tensors[i].role = DNN_DECODE_CACHE;
  return tensors;
}

/* ---- the program ---- */

Status predict_program(Arena *arena, const DnnBundle *bundle,
                       const DnnProgram *program, const RunOptions *options,
                       const DnnProgram **out) {
  Preparing p = {.arena = arena,
                 .program = program,
                 .entry = program_entry_point(program, ENTRY_predict),
                 .options = options};
  if (!p.entry)
    return status_make(
        STATUS_invalid,
        "this program has no entry point 'predict': its net gives no row for "
        "each record, or it was not built to predict");
  if (!options->output)
    return status_make(STATUS_invalid, "--predict needs --output FILE");
  find_inputs(&p, bundle);
  TRY(check_inputs(&p));
  DnnProgram *own = arena_copy(arena, program, sizeof *program);
  DnnData *data = ARENA_ARRAY(arena, DnnData, program->n_data + 1);
  own->data = data;
  own->n_data = 0;
  for (int i = 0; i < program->n_data; i++) {
    take_block(&p, &program->data[i], &data[own->n_data]);
    own->n_data += data[own->n_data].n_fields > 0;
  }
  TRY(take_loose(&p, &data[own->n_data]));
  own->n_data += data[own->n_data].n_fields > 0;
  own->tensors = without_lanes(arena, program);
  own->entry_points = p.entry;
  own->n_entry_points = 1;
  own->arena_bytes = p.entry->arena_bytes;
  *out = own;
  return STATUS_OK;
}
