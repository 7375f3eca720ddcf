/*
 * data_sizes.c -- what the data files of a model say about its programs: how
 * many samples an evaluation has.  The runtime's own
 * readers look, so that both agree.  A file that is not there is no mistake
 * yet: the compiled program will ask for it.  One that is there and does not
 * fit is.
 */
#include "runtime/runtime.h"
#include "tools/tools.h"

#include <stdio.h>
#include <string.h>

_Static_assert((int)MAX_RANK == (int)DNN_MAX_RANK, "limits are copied");

static const DnnSource sources[] = {
    [SOURCE_bytes] = DNN_BYTES,
    [SOURCE_tokens] = DNN_TOKENS,
    [SOURCE_idx] = DNN_IDX,
    [SOURCE_csv] = DNN_CSV,
    [SOURCE_npy] = DNN_NPY,
    [SOURCE_safetensors] = DNN_SAFETENSORS,
    [SOURCE_next] = DNN_NEXT,
    [SOURCE_synthetic_ints] = DNN_SYNTHETIC_INTS,
    [SOURCE_synthetic_floats] = DNN_SYNTHETIC_FLOATS,
};

static const DnnLimit *limits_of(Arena *arena, const DataField *from) {
  DnnLimit *limits = ARENA_ARRAY(arena, DnnLimit, from->limits.n);
  for (int i = 0; i < from->limits.n; i++) {
    const DataLimit *limit = &from->limits.data[i];
    limits[i] = (DnnLimit){.use = limit->use,
                           .below = limit->below,
                           .has_ignored = limit->has_ignored,
                           .ignored = limit->ignored};
    memcpy(limits[i].begin, limit->begin, sizeof limits[i].begin);
    memcpy(limits[i].size, limit->size, sizeof limits[i].size);
  }
  return limits;
}

static DnnField field_of(Arena *arena, const DataField *from) {
  DnnField field = {.path = from->path,
                    .source = (uint8_t)sources[from->source],
                    .file = from->file,
                    .eval_file = from->eval_file,
                    .tensor = from->tensor,
                    .next_of = from->next_of,
                    .first_column = from->first_column,
                    .last_column = from->last_column,
                    .header_lines = from->header_lines,
                    .first_name = from->first_name,
                    .last_name = from->last_name,
                    .n_classes = from->n_classes,
                    .classes = from->classes,
                    .classes_file = from->classes_file,
                    .is_given = from->is_given,
                    .below = from->below,
                    .records = from->records,
                    .scale = from->scale,
                    .shift = from->shift,
                    .dtype = (DnnDtype)from->type->dtype,
                    .rank = from->type->rank,
                    .n_limits = from->limits.n,
                    .limits = limits_of(arena, from)};
  for (int i = 0; i < field.rank; i++) field.size[i] = from->type->dims[i].size;
  return field;
}

static DnnData data_of(Arena *arena, const DataBlock *block) {
  DnnField *fields = ARENA_ARRAY(arena, DnnField, block->n_fields);
  for (int i = 0; i < block->n_fields; i++)
    fields[i] = field_of(arena, &block->fields[i]);
  return (DnnData){.name = block->name,
                   .n_fields = block->n_fields,
                   .fields = fields,
                   .eval = block->eval,
                   .sequential = block->is_sequential,
                   .is_stream = block->is_stream};
}

static InputSearch search_of(const Tool *tool, const char *model_dir) {
  return (InputSearch){.folder = tool->options.data,
                       .model_dir = model_dir,
                       .follows_links = tool->options.follow_links};
}

/* Every file that the blocks name is somewhere. */
static bool all_are_there(Tool *tool, Arena *arena, const DnnProgram *program) {
  InputSearch search = search_of(tool, program->model_dir);
  bool all = true;
  for (int i = 0; i < program->n_data; i++)
    for (int k = 0; k < program->data[i].n_fields; k++) {
      const DnnField *field = &program->data[i].fields[k];
      const char *files[] = {field->file, field->eval_file,
                             field->classes_file};
      for (int f = 0; f < ARRAY_LENGTH(files); f++)
        all = all && (!files[f] || input_exists(arena, files[f], &search));
    }
  return all;
}

/* What is there must fit; what is not is said aloud and left to the run. */
static bool report(Tool *tool, Arena *arena, const DnnProgram *program,
                   Status status) {
  CommandId command = tool->options.command;
  if (command != COMMAND_build && command != COMMAND_run) return true;
  if (all_are_there(tool, arena, program)) {
    tool_fail(status);
    return false;
  }
  message_print(
      "dnnc: note: %s; what is built now leaves the incomplete last batch "
      "out of every evaluation\n",
      status.message);
  return true;
}

/* The data inputs of a graph, as the runtime wants to see them. */
static DnnEntryPoint code_of(Arena *arena, const char *name, const Graph *graph,
                             int64_t batch) {
  DnnTensor *tensors = ARENA_ARRAY(arena, DnnTensor, graph->inputs.n);
  int n = 0;
  for (int i = 0; i < graph->inputs.n; i++)
    if (graph->inputs.data[i].role == ROLE_data)
      tensors[n++] =
          (DnnTensor){.path = graph->inputs.data[i].path, .role = DNN_DATA};
  return (DnnEntryPoint){
      .name = name, .batch = batch, .n_tensors = n, .tensors = tensors};
}

bool compile_count_eval_samples(void *user, const Model *model,
                                int64_t *out_samples) {
  Tool *tool = user;
  const char *model_dir = compile_model_folder(tool);
  int64_t batch = model->settings.batch;
  Arena *arena = arena_create(tool->memory);
  DnnData *blocks = ARENA_ARRAY(arena, DnnData, model->n_data);
  for (int i = 0; i < model->n_data; i++)
    blocks[i] = data_of(arena, &model->data[i]);
  DnnEntryPoint entry_points[2] = {code_of(arena, "train", model->train, batch),
                                   code_of(arena, "eval", model->eval, batch)};
  DnnProgram program = {.n_data = model->n_data,
                        .data = blocks,
                        .model_dir = model_dir,
                        .n_entry_points = 2,
                        .entry_points = entry_points};
  Data *data = NULL;
  InputSearch search = search_of(tool, model_dir);
  Status status = data_open(arena, &program, &search, 1, &data);
  bool is_good = true;
  *out_samples = 0;
  if (status.code == STATUS_ok) status = data_check(data);
  if (status.code == STATUS_ok)
    *out_samples = data_eval_samples(data);
  else
    is_good = report(tool, arena, &program, status);
  if (data) data_close(data);
  arena_destroy(arena);
  return is_good;
}
