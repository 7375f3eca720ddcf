/*
 * blocks.c -- opens the files of the blocks of a program.
 */
#include "runtime/data/blocks.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

int64_t field_items(const DnnField *field) {
  int64_t n = 1;
  for (int i = 1; i < field->rank; i++) n *= field->size[i];
  return n;
}

int64_t field_next_depth(const DnnData *data, const DnnField *field) {
  int64_t depth = 0;
  while (field->source == SOURCE_next && depth <= data->n_fields) {
    depth++;
    field = &data->fields[field->next_of];
  }
  ASSERT(depth <= data->n_fields);
  return depth;
}

const DnnField *field_root(const DnnData *data, const DnnField *field) {
  while (field->source == SOURCE_next) field = &data->fields[field->next_of];
  return field;
}

/* Names the first of several files: all are like it. */
static Status check_records(const DnnField *field, const Reader *reader,
                            int64_t items, const char *name) {
  if (reader->n_parts) name = reader->parts[0].file.path;
  if (reader->record_items && reader->record_items != items)
    return status_make(
        STATUS_invalid, "'%s' has records of %lld values, but '%s' takes %lld",
        name, (long long)reader->record_items, field->path, (long long)items);
  return STATUS_OK;
}

static bool is_synthetic(const DnnField *field) {
  return field->source == SOURCE_synthetic_ints ||
         field->source == SOURCE_synthetic_floats;
}

/* Two fields of a block must have as many records. */
static Status other_length(const DnnField *a, int64_t n_a, const DnnField *b,
                           int64_t n_b) {
  bool has_help = is_synthetic(a) != is_synthetic(b);
  const DnnField *made = is_synthetic(a) ? a : b;
  char help[160] = "";
  if (has_help)
    snprintf(help, sizeof help, "; 'records = %lld' gives '%s' as many",
             (long long)(made == a ? n_b : n_a), made->path);
  return status_make(STATUS_invalid,
                     "'%s' has %lld records and '%s' has %lld%s", a->path,
                     (long long)n_a, b->path, (long long)n_b, help);
}

/* Opens the fields' files and finds the number of units they share. */
static Status open_part(Arena *arena, Data *data, const Block *block,
                        bool is_eval, Part *out) {
  const DnnData *source = block->data;
  const Reader **readers = ARENA_ARRAY(arena, const Reader *, source->n_fields);
  const DnnField *first = NULL;
  *out = (Part){.readers = readers, .n = INT64_MAX};
  for (int i = 0; i < source->n_fields; i++) {
    const DnnField *field = &source->fields[i];
    if (field->source == SOURCE_next) continue;
    bool reads_eval = is_eval && field->n_eval_files;
    const char *const *names = reads_eval ? field->eval_files : field->files;
    int n_names = reads_eval ? field->n_eval_files : field->n_files;
    Reader *opened = ARENA_NEW(arena, Reader);
    int64_t items = field_items(field);
    InputSearch search = data->search;
    search.follows_links = search.follows_links || field->is_given;
    data->opened[data->n_opened++] = opened;
    TRY(reader_open(arena, field, names, n_names, &search, items,
                    source->is_stream, opened));
    data->resident_bytes += reader_resident_bytes(opened);
    if (!source->is_stream)
      TRY(check_records(field, opened, items, n_names ? names[0] : NULL));
    int64_t units = source->is_stream ? opened->n : opened->n / items;
    if (!source->is_stream && first && units != out->n)
      return other_length(first, out->n, field, units);
    if (units < out->n) out->n = units;
    first = field;
    readers[i] = opened;
  }
  if (out->n == INT64_MAX) out->n = 0;
  return STATUS_OK;
}

bool data_has_eval_file(const DnnData *data) {
  for (int i = 0; i < data->n_fields; i++)
    if (data->fields[i].n_eval_files) return true;
  return false;
}

/* The last records, or the last part. */
static void split_off_eval(Block *block) {
  double eval = block->data->eval;
  int64_t n = block->train.n;
  int64_t train =
      eval >= 1 ? n - (int64_t)eval : (int64_t)floor((double)n * (1.0 - eval));
  if (eval <= 0 || train > n) train = n;
  if (train < 0) train = 0;
  block->eval = block->train;
  block->eval.first = train;
  block->eval.n = n - train;
  block->train.n = train;
}

static Status open_block(Arena *arena, Data *data, const DnnData *source,
                         uint64_t seed, Block *out) {
  *out = (Block){.data = source, .key = random_key(seed, source->name)};
  for (int i = 0; i < source->n_fields; i++) {
    int64_t depth = field_next_depth(source, &source->fields[i]);
    int64_t items = field_items(&source->fields[i]);
    if (depth > out->lookahead) out->lookahead = depth;
    if (items > out->window) out->window = items;
  }
  TRY(open_part(arena, data, out, false, &out->train));
  if (!data_has_eval_file(source)) {
    split_off_eval(out);
    return STATUS_OK;
  }
  return open_part(arena, data, out, true, &out->eval);
}

const DnnField *data_find_field(const Data *data, const char *path,
                                const Block **out_block) {
  for (int i = 0; i < data->program->n_data; i++) {
    const DnnData *source = &data->program->data[i];
    for (int j = 0; j < source->n_fields; j++)
      if (strcmp(source->fields[j].path, path) == 0) {
        *out_block = &data->blocks[i];
        return &source->fields[j];
      }
  }
  return NULL;
}

int64_t batch_shard_bytes(const DnnTensor *tensor) {
  return tensor_local_elements(tensor) * dtype_bytes(tensor->dtype);
}

int64_t batch_slot_bytes(const DnnTensor *tensor) {
  return (batch_shard_bytes(tensor) + 15) / 16 * 16;
}

int64_t batch_bytes(const DnnEntryPoint *entry) {
  int64_t bytes = 0;
  for (int i = 0; i < entry->n_tensors; i++)
    if (entry->tensors[i].role == DNN_DATA)
      bytes += batch_slot_bytes(&entry->tensors[i]);
  return bytes;
}

static void make_buffers(Arena *arena, Data *data) {
  int64_t row = 1, batch = 1;
  const DnnProgram *program = data->program;
  for (int i = 0; i < program->n_entry_points; i++) {
    const DnnEntryPoint *entry = &program->entry_points[i];
    for (int j = 0; j < entry->n_tensors; j++) {
      const DnnTensor *tensor = &entry->tensors[j];
      if (tensor->role != DNN_DATA) continue;
      int64_t items = 1;
      for (int d = 1; d < tensor->rank; d++) items *= tensor->size[d];
      if (items > row) row = items;
    }
    if (batch_bytes(entry) > batch) batch = batch_bytes(entry);
  }
  data->row = ARENA_ARRAY(arena, double, row);
  data->raw = ARENA_ARRAY(arena, double, row);
  data->batch = ARENA_ARRAY(arena, unsigned char, batch);
  data->resident_bytes += 16 * row + batch;
}

Status data_open(Arena *arena, const DnnProgram *program,
                 const DnnBundle *bundle, const InputSearch *search,
                 uint64_t seed, Data **out) {
  Data *data = ARENA_NEW(arena, Data);
  data->arena = arena;
  data->search = *search;
  data->program = program;
  data->bundle = bundle;
  data->blocks = ARENA_ARRAY(arena, Block, program->n_data);
  int n_fields = 0;
  for (int i = 0; i < program->n_data; i++)
    n_fields += program->data[i].n_fields;
  data->opened = ARENA_ARRAY(arena, Reader *, 2 * n_fields);
  *out = data;
  for (int i = 0; i < program->n_data; i++)
    TRY(open_block(arena, data, &program->data[i], seed, &data->blocks[i]));
  make_buffers(arena, data);
  const DnnEntryPoint *eval = program_entry_point(program, ENTRY_eval);
  data->eval_batch = eval ? eval->batch : 1;
  return STATUS_OK;
}

void data_close(Data *data) {
  for (int i = 0; i < data->n_opened; i++) reader_close(data->opened[i]);
  threads_close(&data->threads);
  team_destroy(data->team);
  for (int i = 0; i < data->n_picture_readers; i++)
    picture_reader_close(&data->picture_readers[i]);
  codecs_close(data->codecs);
}

Status data_check_packed(const Data *data) {
  for (int i = 0; i < data->n_opened; i++)
    TRY(reader_check_packed(data->opened[i]));
  return STATUS_OK;
}

int64_t data_resident_bytes(const Data *data) {
  return data->resident_bytes;
}
