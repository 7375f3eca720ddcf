/*
 * data.c -- chooses the samples of each step and fills the inputs of an entry
 * point with them.
 *
 * Sample i of step t depends on (seed, t, i) only: not on the number of ranks,
 * on earlier reads, or on the step at which a run was resumed.  So every rank
 * computes the places of its own samples and nothing is sent.
 *
 *   stream, shuffled     a window at a random offset
 *   stream, sequential   batch row i reads on from its last window
 *   records, shuffled    a permutation for each epoch, computed and not stored
 *   records, sequential  in order
 *   evaluation           in order, windows side by side, row by row where the
 *                        stream is sequential; or, for a fixed number of
 *                        batches, at random places that never change
 *   a block that cycles  from its beginning again until the longest block of
 *                        the entry point ends, each repetition permuted anew
 *
 * Pictures are read by threads, those of the next step beside a step.  They are
 * chosen by the same rules, so this file has them too, which makes it long.
 *
 * The permutation is a Feistel network over the next power of four, walked
 * along its cycle until it falls below n (Black and Rogaway, 2002).
 */
#include "runtime/data/data.h"
#include "runtime/data/pictures.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The part of a block that is trained on, or evaluated. */
typedef struct Part {
  const Reader *const *readers; /* of each field; NULL for next() */
  int64_t first, n;             /* in units: values of a stream, or records */
} Part;

typedef struct Block {
  const DnnData *data;
  uint64_t key;
  int64_t window;    /* values of a stream that a sample takes */
  int64_t lookahead; /* values after them that next() needs */
  Part train, eval;
} Block;

/* A batch that is in host memory before its step begins. */
typedef struct Ahead {
  int64_t t;            /* 0: none */
  Status status;        /* of reading it */
  unsigned char *bytes; /* NULL: none was read ahead yet */
} Ahead;

struct Data {
  Arena *arena;
  const DnnProgram *program;
  const DnnBundle *bundle; /* or NULL */
  InputSearch search;
  Block *blocks;
  int64_t resident_bytes;
  Reader **opened;
  int n_opened;
  int64_t eval_batch;
  double *row;          /* values of a sample */
  void *raw;            /* the same as read */
  unsigned char *batch; /* of an entry point */
  Ahead ahead;
  Threads threads; /* opened when the first sample is read */
  Codecs *codecs;  /* where there are pictures, with the first of them */
  Team *team;
  PictureReader *picture_readers; /* of each thread of the team */
  int n_picture_readers;
  struct PictureWork *work, *next_work; /* of this fill, of the next step */
};

/* ---- opening ---- */

static int64_t items_of(const DnnField *field) {
  int64_t n = 1;
  for (int i = 1; i < field->rank; i++) n *= field->size[i];
  return n;
}

static int64_t next_depth(const DnnData *data, const DnnField *field) {
  int64_t depth = 0;
  while (field->source == SOURCE_next && depth <= data->n_fields) {
    depth++;
    field = &data->fields[field->next_of];
  }
  ASSERT(depth <= data->n_fields);
  return depth;
}

static const DnnField *root_field(const DnnData *data, const DnnField *field) {
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
    int64_t items = items_of(field);
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

static bool has_eval_file(const DnnData *data) {
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
    int64_t depth = next_depth(source, &source->fields[i]);
    int64_t items = items_of(&source->fields[i]);
    if (depth > out->lookahead) out->lookahead = depth;
    if (items > out->window) out->window = items;
  }
  TRY(open_part(arena, data, out, false, &out->train));
  if (!has_eval_file(source)) {
    split_off_eval(out);
    return STATUS_OK;
  }
  return open_part(arena, data, out, true, &out->eval);
}

static const DnnField *find_field(const Data *data, const char *path,
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

static int64_t shard_bytes(const DnnTensor *tensor) {
  return tensor_local_elements(tensor) * dtype_bytes(tensor->dtype);
}

/* The room of a shard in a batch; the next one is aligned. */
static int64_t slot_bytes(const DnnTensor *tensor) {
  return (shard_bytes(tensor) + 15) / 16 * 16;
}

static int64_t batch_bytes(const DnnEntryPoint *entry) {
  int64_t bytes = 0;
  for (int i = 0; i < entry->n_tensors; i++)
    if (entry->tensors[i].role == DNN_DATA)
      bytes += slot_bytes(&entry->tensors[i]);
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

/* ---- places ---- */

static uint64_t permute_record(uint64_t key, uint64_t i, uint64_t n) {
  int half = 1;
  while (half < 31 && (uint64_t)1 << (2 * half) < n) half++;
  uint64_t mask = ((uint64_t)1 << half) - 1;
  do {
    uint64_t left = i >> half, right = i & mask;
    for (int round = 0; round < 4; round++) {
      uint32_t words[4];
      philox(key, right, (uint64_t)round, words);
      uint64_t mixed = left ^ (words[0] & mask);
      left = right;
      right = mixed;
    }
    i = left << half | right;
  } while (i >= n);
  return i;
}

/* Windows side by side, or records. */
static int64_t samples_in(const Block *block, const Part *part) {
  if (!block->data->is_stream) return part->n;
  int64_t n = part->n - block->lookahead;
  return n > 0 ? n / block->window : 0;
}

/* Offsets at which a window can begin. */
static int64_t offsets_in(const Block *block, const Part *part) {
  if (!block->data->is_stream) return part->n;
  return part->n - block->lookahead - block->window + 1;
}

/* `steps`: of an epoch, which ends with the longest block. */
static int64_t place_of_train(const Block *block, int64_t t, int64_t i,
                              int64_t batch, int64_t steps) {
  const Part *part = &block->train;
  bool is_stream = block->data->is_stream;
  int64_t epoch = (t - 1) / steps, step = (t - 1) % steps;
  if (is_stream && block->data->is_sequential) {
    int64_t each = samples_in(block, part) / batch;
    return part->first + (i * each + step % each) * block->window;
  }
  if (is_stream)
    return part->first +
           (int64_t)random_below(block->key, (uint64_t)t << 32 | (uint64_t)i,
                                 (uint64_t)offsets_in(block, part));
  int64_t at = step * batch + i, repetition = at / part->n;
  at %= part->n;
  uint64_t pass = (uint64_t)epoch + ((uint64_t)repetition << 32);
  if (!block->data->is_sequential)
    at = (int64_t)permute_record(block->key + pass * 0x9e3779b97f4a7c15u,
                                 (uint64_t)at, (uint64_t)part->n);
  return part->first + at;
}

/* In a sequential stream each batch row reads on from its last window; where
 * the windows of the longest block, `n`, cannot be divided evenly, the first
 * rows have one more, which is the remainder of the evaluation. */
static int64_t window_of_lane(const Block *block, int64_t sample, int64_t batch,
                              bool is_random, int64_t n) {
  int64_t windows = samples_in(block, &block->eval);
  int64_t each = n / batch, more = n % batch;
  int64_t row = sample % batch, window = sample / batch;
  if (!is_random)
    return (row * each + (row < more ? row : more) + window) % windows;
  int64_t start = (int64_t)random_below(block->key ^ 0xe7a1, (uint64_t)row,
                                        (uint64_t)windows);
  return (start + window) % windows;
}

static int64_t place_of_eval(const Block *block, int64_t sample, int64_t batch,
                             bool is_random, int64_t n) {
  const Part *part = &block->eval;
  bool is_stream = block->data->is_stream;
  if (is_stream && block->data->is_sequential)
    return part->first +
           window_of_lane(block, sample, batch, is_random, n) * block->window;
  if (is_random)
    return part->first +
           (int64_t)random_below(block->key ^ 0xe7a1, (uint64_t)sample,
                                 (uint64_t)offsets_in(block, part));
  sample %= samples_in(block, part);
  return part->first + sample * (is_stream ? block->window : 1);
}

/* ---- lengths ---- */

static int64_t samples_of(const Block *block, bool is_eval) {
  return samples_in(block, is_eval ? &block->eval : &block->train);
}

/* The longer (or shorter) one of `found`, which may be NULL, and the blocks
 * that the entry reads. */
static const Block *longer_block(const Data *data, const DnnEntryPoint *entry,
                                 bool is_eval, bool is_longest,
                                 const Block *found) {
  for (int i = 0; entry && i < entry->n_tensors; i++) {
    const Block *block;
    if (entry->tensors[i].role != DNN_DATA ||
        !find_field(data, entry->tensors[i].path, &block) ||
        (!is_longest && block->data->cycles))
      continue;
    int64_t more =
        found ? samples_of(block, is_eval) - samples_of(found, is_eval) : 0;
    if (!found || (is_longest ? more > 0 : more < 0)) found = block;
  }
  return found;
}

/* The longest block that the entry reads on any rank (or the shortest one that
 * does not cycle); NULL: there is none.  A stage may read no data itself. */
static const Block *find_length(const Data *data, const DnnEntryPoint *entry,
                                bool is_eval, bool is_longest) {
  const DnnBundle *bundle = entry ? data->bundle : NULL;
  const Block *found = longer_block(data, entry, is_eval, is_longest, NULL);
  for (int i = 0; bundle && i < bundle->n_programs; i++)
    found =
        longer_block(data, program_entry_point(&bundle->programs[i], entry->id),
                     is_eval, is_longest, found);
  return found;
}

bool data_lengths_differ(const Data *data, const DnnEntryPoint *entry,
                         bool is_eval, DataLengths *out) {
  const Block *longest = find_length(data, entry, is_eval, true);
  const Block *shortest = find_length(data, entry, is_eval, false);
  if (!shortest) return false;
  *out = (DataLengths){.longer = (int)(longest - data->blocks),
                       .shorter = (int)(shortest - data->blocks),
                       .n_longer = samples_of(longest, is_eval),
                       .n_shorter = samples_of(shortest, is_eval)};
  /* Where a block reserves none, nothing is evaluated. */
  return out->n_shorter != out->n_longer && (!is_eval || out->n_shorter > 0);
}

Status data_check_lengths(const Data *data, const DnnEntryPoint *entry,
                          bool is_eval) {
  DataLengths lengths;
  if (!data_lengths_differ(data, entry, is_eval, &lengths)) return STATUS_OK;
  const char *longer = data->blocks[lengths.longer].data->name;
  const char *shorter = data->blocks[lengths.shorter].data->name;
  return status_make(STATUS_invalid,
                     "'%s' has %lld samples to %s, but '%s' has %lld; 'cycle = "
                     "true' in '%s' repeats it until '%s' ends",
                     shorter, (long long)lengths.n_shorter,
                     is_eval ? "evaluate" : "train on", longer,
                     (long long)lengths.n_longer, shorter, longer);
}

/* Windows at random offsets may overlap: a stream that holds one holds a batch,
 * and its epoch has at least one step. */
static int64_t steps_of(const Block *block, int64_t batch) {
  int64_t steps = samples_in(block, &block->train) / batch;
  if (!block->data->is_stream || block->data->is_sequential) return steps;
  if (offsets_in(block, &block->train) < 1) return 0;
  return steps > 0 ? steps : 1;
}

int64_t data_steps_per_epoch(const Data *data) {
  const DnnEntryPoint *train = program_entry_point(data->program, ENTRY_train);
  const Block *longest = find_length(data, train, false, true);
  return longest ? steps_of(longest, train->batch) : 0;
}

int64_t data_eval_samples(const Data *data) {
  return data_samples(data, program_entry_point(data->program, ENTRY_eval));
}

static bool reads_empty_block(const Data *data, const DnnEntryPoint *entry) {
  for (int i = 0; entry && i < entry->n_tensors; i++) {
    const Block *block;
    if (entry->tensors[i].role == DNN_DATA &&
        find_field(data, entry->tensors[i].path, &block) &&
        samples_of(block, true) <= 0)
      return true;
  }
  return false;
}

/* A block without samples has none for any batch. */
int64_t data_samples(const Data *data, const DnnEntryPoint *entry) {
  const DnnBundle *bundle = entry ? data->bundle : NULL;
  const Block *longest = find_length(data, entry, true, true);
  bool is_empty = !longest || reads_empty_block(data, entry);
  for (int i = 0; bundle && i < bundle->n_programs; i++)
    is_empty |= reads_empty_block(
        data, program_entry_point(&bundle->programs[i], entry->id));
  return is_empty ? 0 : samples_of(longest, true);
}

/* ---- filling ---- */

typedef struct Fill {
  Data *data;
  Device *device;
  const DnnEntryPoint *entry;
  bool is_eval, is_random;
  int64_t t;     /* training: step */
  int64_t first; /* evaluation: sample */
  int64_t n;     /* samples; 0: a full batch */
  int64_t epoch; /* its steps in training, the samples of an evaluation */
  int64_t slot;  /* of tensors that have several */
} Fill;

static Fill fill_of_step(Data *data, Device *device, const DnnEntryPoint *train,
                         int64_t t) {
  return (Fill){.data = data,
                .device = device,
                .entry = train,
                .t = t,
                .epoch = data_steps_per_epoch(data)};
}

static bool is_storable(DnnDtype dtype) {
  return dtype != DNN_f8e4m3 && dtype != DNN_f8e5m2;
}

/* Copies this rank's shard of a row; returns the next place to fill. */
static unsigned char *store_shard(const DnnTensor *tensor, int rank, int dim,
                                  const double *row, unsigned char *to) {
  int64_t item = dtype_bytes(tensor->dtype);
  if (dim == tensor->rank) {
    number_store(tensor->dtype, to, *row);
    return to + item;
  }
  int64_t inner = 1, begin;
  for (int i = dim + 1; i < tensor->rank; i++) inner *= tensor->size[i];
  int64_t n = tensor_local_range(tensor, dim, rank, &begin);
  unsigned char *start = to;
  bool is_last = dim + 1 == tensor->rank;
  if (is_last) numbers_store(tensor->dtype, to, row + begin, n);
  for (int64_t i = 0; !is_last && i < n; i++)
    to = store_shard(tensor, rank, dim + 1, row + (begin + i) * inner, to);
  /* After the last element comes padding. */
  int64_t bytes = item;
  for (int i = dim; i < tensor->rank; i++)
    bytes *= tensor_local_size(tensor, i);
  return start + bytes;
}

/* Value `j` of the sample that begins at value `begin`. */
static Status wrong_value(const Data *data, const Block *block,
                          const Reader *reader, const DnnField *field,
                          int64_t begin, int64_t j, int64_t items) {
  char text[READER_PLACE];
  int64_t at = begin + j; /* of several files the place in one of them */
  reader = reader_part(reader, &at);
  begin = at - j;
  FixedText where = fixed_text(text, sizeof text);
  fixed_printf(&where, "'%s', ",
               reader->file.path ? reader->file.path : field->path);
  if (block->data->is_stream)
    fixed_printf(&where, "value %lld", (long long)(begin + j));
  else
    fixed_printf(&where, "record %lld", (long long)(begin / items));
  if (!block->data->is_stream && items > 1)
    fixed_printf(&where, ", element %lld", (long long)j);
  return value_wrong(field, j, data->row[j], text);
}

static int64_t place_of(const Fill *fill, const Block *block, int64_t i) {
  if (fill->is_eval)
    return place_of_eval(block, fill->first + i, fill->data->eval_batch,
                         fill->is_random, fill->epoch);
  return place_of_train(block, fill->t, i, fill->entry->batch, fill->epoch);
}

static Status read_sample(const Fill *fill, const Block *block,
                          const DnnField *field, int64_t i, int64_t items) {
  Data *data = fill->data;
  const Part *part = fill->is_eval ? &block->eval : &block->train;
  int64_t at = place_of(fill, block, i);
  const DnnField *root = root_field(block->data, field);
  const Reader *reader = part->readers[root - block->data->fields];
  int64_t begin =
      block->data->is_stream ? at + next_depth(block->data, field) : at * items;
  if (data->threads.n == 0) threads_open(&data->threads);
  TRY(reader_read_with(&data->threads, reader, begin, items, data->raw,
                       data->row));
  int64_t wrong = values_find_wrong(field, data->row, items);
  if (wrong < items)
    return wrong_value(data, block, reader, field, begin, wrong, items);
  double scale = field->scale, shift = field->shift;
  if (scale != 1.0 || shift != 0.0)
    for (int64_t j = 0; j < items; j++)
      data->row[j] = data->row[j] * scale + shift;
  return STATUS_OK;
}

/* The place in the batch of row `i` of a rank, which has the rows from `begin`
 * on, or as many out of the parts of the batch. */
static int64_t sample_of_row(const DnnTensor *tensor, int64_t begin,
                             int64_t rows, int64_t i) {
  int64_t parts = tensor->microbatches;
  if (parts <= 1) return begin + i;
  int64_t of_part = rows / parts, shard = begin / rows;
  return i / of_part * (tensor->size[0] / parts) + shard * of_part +
         i % of_part;
}

/* This rank's shard of the samples. */
static Status read_tensor(const Fill *fill, const DnnTensor *tensor,
                          unsigned char *to) {
  Data *data = fill->data;
  const Block *block;
  const DnnField *field = find_field(data, tensor->path, &block);
  if (!field)
    return status_make(STATUS_invalid, "no data field '%s'", tensor->path);
  if (!is_storable(tensor->dtype))
    return status_make(STATUS_unavailable,
                       "data of type %s is not supported yet",
                       dtype_label(tensor->dtype));
  int64_t items = 1, begin;
  for (int i = 1; i < tensor->rank; i++) items *= tensor->size[i];
  int rank = fill->device->rank;
  int64_t rows = tensor_local_range(tensor, 0, rank, &begin);
  memset(to, 0, (size_t)shard_bytes(tensor));
  if (fill->n && begin + rows > fill->n)
    rows = begin < fill->n ? fill->n - begin : 0;
  for (int64_t i = 0; i < rows; i++) {
    int64_t sample = sample_of_row(tensor, begin, rows, i);
    TRY(read_sample(fill, block, field, sample, items));
    to = store_shard(tensor, rank, 1, data->row, to);
  }
  return STATUS_OK;
}

/* ---- pictures, on threads ---- */

/* The rows of a tensor that are pictures. */
typedef struct PictureRows {
  const DnnTensor *tensor;
  const DnnField *field;
  const Block *block;
  int64_t begin, rows, n; /* of this rank; those that have a sample */
  int64_t offset, each;   /* bytes in a batch, and of a row */
} PictureRows;

/* The pictures of a batch, all tensors' rows end to end. */
typedef struct PictureWork {
  Fill fill;
  PictureRows *tensors;
  int n_tensors;
  int64_t n;
  unsigned char *to; /* a batch; NULL: there is no work */
  bool is_running;
  Status status;
  unsigned char *buffer; /* of the next step */
} PictureWork;

static bool is_picture(const Data *data, const DnnTensor *tensor) {
  const Block *block;
  const DnnField *field = find_field(data, tensor->path, &block);
  return tensor->role == DNN_DATA && field && field->source == SOURCE_images &&
         is_storable(tensor->dtype);
}

static bool reads_pictures(const Data *data, const DnnEntryPoint *entry) {
  for (int i = 0; i < entry->n_tensors; i++)
    if (is_picture(data, &entry->tensors[i])) return true;
  return false;
}

static Status open_pictures(Data *data) {
  if (data->team) return STATUS_OK;
  if (data->threads.n == 0) threads_open(&data->threads);
  int n = data->threads.n;
  TRY(codecs_open(&data->codecs));
  data->picture_readers = ARENA_ARRAY(data->arena, PictureReader, n);
  for (int i = 0; i < n; i++)
    data->picture_readers[i] = picture_reader_open(data->codecs);
  data->n_picture_readers = n;
  data->work = ARENA_NEW(data->arena, PictureWork);
  data->next_work = ARENA_NEW(data->arena, PictureWork);
  int n_tensors = 0;
  for (int i = 0; i < data->program->n_entry_points; i++)
    if (data->program->entry_points[i].n_tensors > n_tensors)
      n_tensors = data->program->entry_points[i].n_tensors;
  data->work->tensors = ARENA_ARRAY(data->arena, PictureRows, n_tensors);
  data->next_work->tensors = ARENA_ARRAY(data->arena, PictureRows, n_tensors);
  return team_create(n, &data->team);
}

/* The random numbers of a record: of seed, epoch and record, for all fields of
 * the block, so that a picture and its mask are cropped alike. */
static uint64_t picture_key(const Fill *fill, const Block *block, int64_t i,
                            int64_t at) {
  if (fill->is_eval) return 0;
  int64_t n = block->train.n;
  int64_t step = (fill->t - 1) % fill->epoch,
          epoch = (fill->t - 1) / fill->epoch;
  int64_t numbers[3] = {epoch, (step * fill->entry->batch + i) / n, at};
  return hash_bytes(numbers, sizeof numbers, block->key);
}

static Status read_picture(void *arg, int worker, int64_t item) {
  const PictureWork *work = arg;
  const Fill *fill = &work->fill;
  const PictureRows *rows = work->tensors;
  while (item >= rows->n) item -= rows++->n;
  const Block *block = rows->block;
  const DnnField *field = rows->field;
  const Part *part = fill->is_eval ? &block->eval : &block->train;
  const Reader *from = part->readers[field - block->data->fields];
  PictureReader *reader = &fill->data->picture_readers[worker];
  int64_t i = sample_of_row(rows->tensor, rows->begin, rows->rows, item);
  int64_t at = place_of(fill, block, i), items = items_of(field);
  TRY(picture_read(reader, from, field, at, !fill->is_eval,
                   picture_key(fill, block, i, at)));
  for (int64_t j = 0; j < items; j++)
    reader->row[j] = reader->row[j] * field->scale + field->shift;
  store_shard(rows->tensor, fill->device->rank, 1, reader->row,
              work->to + rows->offset + item * rows->each);
  return STATUS_OK;
}

/* Lets the threads read the pictures of a batch into `to`. */
static void start_pictures(PictureWork *work, const Fill *fill,
                           unsigned char *to) {
  Data *data = fill->data;
  work->fill = *fill;
  work->to = to;
  work->n = work->n_tensors = 0;
  int64_t offset = 0;
  for (int i = 0; i < fill->entry->n_tensors; i++) {
    const DnnTensor *tensor = &fill->entry->tensors[i];
    if (tensor->role != DNN_DATA) continue;
    if (is_picture(data, tensor)) {
      PictureRows *rows = &work->tensors[work->n_tensors++];
      *rows = (PictureRows){.tensor = tensor, .offset = offset};
      rows->field = find_field(data, tensor->path, &rows->block);
      rows->rows =
          tensor_local_range(tensor, 0, fill->device->rank, &rows->begin);
      rows->n = rows->rows;
      if (fill->n && rows->begin + rows->n > fill->n)
        rows->n = rows->begin < fill->n ? fill->n - rows->begin : 0;
      rows->each = shard_bytes(tensor) / tensor_local_size(tensor, 0);
      work->n += rows->n;
      memset(to + offset, 0, (size_t)shard_bytes(tensor));
    }
    offset += slot_bytes(tensor);
  }
  work->is_running = true;
  team_start(data->team, read_picture, work, work->n);
}

static void end_pictures(Data *data, PictureWork *work) {
  if (work->is_running) work->status = team_wait(data->team);
  work->is_running = false;
}

/* The pictures of a batch: those that were read beside the step before, or the
 * threads begin with them now. */
static Status begin_pictures(const Fill *fill, unsigned char *to) {
  Data *data = fill->data;
  if (!reads_pictures(data, fill->entry)) return STATUS_OK;
  TRY(open_pictures(data));
  PictureWork *next = data->next_work;
  end_pictures(data, next);
  if (next->to && !fill->is_eval && next->fill.t == fill->t) return STATUS_OK;
  start_pictures(data->work, fill, to);
  return STATUS_OK;
}

/* Into one buffer of a batch, the next step's pictures. */
static void begin_next(const Fill *fill) {
  Data *data = fill->data;
  PictureWork *next = data->next_work;
  Fill ahead = *fill;
  ahead.t++;
  if (!next->buffer) {
    int64_t bytes = batch_bytes(fill->entry);
    next->buffer = ARENA_ARRAY(data->arena, unsigned char, bytes);
    data->resident_bytes += bytes;
  }
  start_pictures(next, &ahead, next->buffer);
}

static Status finish_pictures(const Fill *fill, unsigned char *to) {
  Data *data = fill->data;
  if (!reads_pictures(data, fill->entry)) return STATUS_OK;
  PictureWork *next = data->next_work, *work = data->work;
  bool was_ahead = !work->is_running;
  end_pictures(data, work);
  Status status = was_ahead ? next->status : work->status;
  for (int i = 0; i < next->n_tensors && was_ahead; i++) {
    const PictureRows *rows = &next->tensors[i];
    memcpy(to + rows->offset, next->buffer + rows->offset,
           (size_t)shard_bytes(rows->tensor));
  }
  if (!fill->is_eval && status.code == STATUS_ok) begin_next(fill);
  return status;
}

/* All DATA tensors of the entry point, one after the other. */
static Status read_batch(const Fill *fill, unsigned char *to) {
  unsigned char *batch = to;
  Status status = STATUS_OK;
  TRY(begin_pictures(fill, batch));
  for (int i = 0; i < fill->entry->n_tensors; i++) {
    const DnnTensor *tensor = &fill->entry->tensors[i];
    if (tensor->role != DNN_DATA) continue;
    if (!is_picture(fill->data, tensor) && status.code == STATUS_ok)
      status = read_tensor(fill, tensor, to);
    to += slot_bytes(tensor);
  }
  Status pictures = finish_pictures(fill, batch);
  return status.code == STATUS_ok ? pictures : status;
}

static Status write_batch(Device *device, const DnnEntryPoint *entry,
                          int64_t slot, const unsigned char *from) {
  for (int i = 0; i < entry->n_tensors; i++) {
    const DnnTensor *tensor = &entry->tensors[i];
    if (tensor->role != DNN_DATA) continue;
    int64_t at = tensor->offset;
    if (tensor->n_slots > 1) at += slot % tensor->n_slots * tensor->slot_bytes;
    TRY(device->write(device, at, from, shard_bytes(tensor)));
    from += slot_bytes(tensor);
  }
  return STATUS_OK;
}

static Status fill_all(const Fill *fill) {
  TRY(read_batch(fill, fill->data->batch));
  return write_batch(fill->device, fill->entry, fill->slot, fill->data->batch);
}

/* ---- checks ---- */

/* The block that the entry reads and `is_enough` not, or NULL. */
static const Block *find_short(const Data *data, const DnnEntryPoint *entry,
                               bool (*is_enough)(const Block *,
                                                 int64_t batch)) {
  for (int i = 0; entry && i < entry->n_tensors; i++) {
    const Block *block;
    if (entry->tensors[i].role == DNN_DATA &&
        find_field(data, entry->tensors[i].path, &block) &&
        !is_enough(block, entry->batch))
      return block;
  }
  return NULL;
}

static bool can_train(const Block *block, int64_t batch) {
  if (block->data->cycles && !block->data->is_stream) return block->train.n > 0;
  return steps_of(block, batch) > 0;
}

static bool can_evaluate(const Block *block, int64_t batch) {
  (void)batch;
  bool wants = block->data->eval > 0 || has_eval_file(block->data);
  return !wants || samples_in(block, &block->eval) > 0;
}

Status data_check(const Data *data) {
  const DnnEntryPoint *train = program_entry_point(data->program, ENTRY_train);
  const Block *block = find_short(data, train, can_train);
  if (block)
    return status_make(
        STATUS_invalid,
        "'%s' has %lld samples to train on and %lld to evaluate; a batch takes "
        "%lld",
        block->data->name, (long long)samples_in(block, &block->train),
        (long long)samples_in(block, &block->eval), (long long)train->batch);
  block = find_short(data, program_entry_point(data->program, ENTRY_eval),
                     can_evaluate);
  if (block)
    return status_make(STATUS_invalid,
                       "the evaluation records of '%s' are less than a sample "
                       "(%lld values of a stream, %lld in a sample)",
                       block->data->name, (long long)block->eval.n,
                       (long long)(block->window + block->lookahead));
  TRY(data_check_lengths(data, train, false));
  return data_check_lengths(
      data, program_entry_point(data->program, ENTRY_eval), true);
}

void data_read_ahead(Data *data, Device *device, const DnnEntryPoint *train,
                     int64_t t) {
  if (reads_pictures(data, train)) return; /* threads read them */
  Fill fill = fill_of_step(data, device, train, t);
  Ahead *ahead = &data->ahead;
  if (!ahead->bytes) {
    int64_t bytes = batch_bytes(train) + 1;
    ahead->bytes = ARENA_ARRAY(data->arena, unsigned char, bytes);
    data->resident_bytes += bytes;
  }
  ahead->status = read_batch(&fill, ahead->bytes);
  ahead->t = t;
}

Status data_fill_train(Data *data, Device *device, const DnnEntryPoint *train,
                       int64_t t) {
  const Ahead *ahead = &data->ahead;
  if (ahead->t == t) {
    TRY(ahead->status);
    return write_batch(device, train, 0, ahead->bytes);
  }
  Fill fill = fill_of_step(data, device, train, t);
  return fill_all(&fill);
}

Status data_fill_slot(Data *data, Device *device, const DnnEntryPoint *train,
                      int64_t t, int64_t slot) {
  Fill fill = fill_of_step(data, device, train, t);
  fill.slot = slot;
  return fill_all(&fill);
}

Status data_fill_eval(Data *data, Device *device, const DnnEntryPoint *entry,
                      int64_t first, bool is_random) {
  return fill_all(&(Fill){.data = data,
                          .device = device,
                          .entry = entry,
                          .is_eval = true,
                          .is_random = is_random,
                          .first = first,
                          .epoch = data_samples(data, entry)});
}

Status data_fill_records(Data *data, Device *device, const DnnEntryPoint *entry,
                         int64_t first, int64_t n) {
  return fill_all(&(Fill){.data = data,
                          .device = device,
                          .entry = entry,
                          .is_eval = true,
                          .first = first,
                          .n = n,
                          .epoch = data_samples(data, entry)});
}
