/*
 * batch_pictures.c -- reads the pictures of a batch on threads, those of the
 * next step beside a step.
 */
#include "runtime/data/blocks.h"

#include <string.h>

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
  BatchFill fill;
  PictureRows *tensors;
  int n_tensors;
  int64_t n;
  unsigned char *to; /* a batch; NULL: there is no work */
  bool is_running;
  Status status;
  unsigned char *buffer; /* of the next step */
} PictureWork;

bool batch_is_picture(const Data *data, const DnnTensor *tensor) {
  const Block *block;
  const DnnField *field = data_find_field(data, tensor->path, &block);
  return tensor->role == DNN_DATA && field && field->source == SOURCE_images &&
         batch_can_store(tensor->dtype);
}

bool batch_has_pictures(const Data *data, const DnnEntryPoint *entry) {
  for (int i = 0; i < entry->n_tensors; i++)
    if (batch_is_picture(data, &entry->tensors[i])) return true;
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
static uint64_t picture_key(const BatchFill *fill, const Block *block,
                            int64_t i, int64_t at) {
  if (fill->is_eval) return 0;
  int64_t n = block->train.n;
  int64_t step = (fill->t - 1) % fill->epoch,
          epoch = (fill->t - 1) / fill->epoch;
  int64_t numbers[3] = {epoch, (step * fill->entry->batch + i) / n, at};
  return hash_bytes(numbers, sizeof numbers, block->key);
}

static Status read_picture(void *arg, int worker, int64_t item) {
  const PictureWork *work = arg;
  const BatchFill *fill = &work->fill;
  const PictureRows *rows = work->tensors;
  while (item >= rows->n) item -= rows++->n;
  const Block *block = rows->block;
  const DnnField *field = rows->field;
  const Part *part = fill->is_eval ? &block->eval : &block->train;
  const Reader *from = part->readers[field - block->data->fields];
  PictureReader *reader = &fill->data->picture_readers[worker];
  int64_t i = batch_sample(rows->tensor, rows->begin, rows->rows, item);
  int64_t at = batch_place(fill, block, i), items = field_items(field);
  TRY(picture_read(reader, from, field, at, !fill->is_eval,
                   picture_key(fill, block, i, at)));
  for (int64_t j = 0; j < items; j++)
    reader->row[j] = reader->row[j] * field->scale + field->shift;
  batch_store(rows->tensor, fill->device->rank, 1, reader->row,
              work->to + rows->offset + item * rows->each);
  return STATUS_OK;
}

/* Lets the threads read the pictures of a batch into `to`. */
static void start_pictures(PictureWork *work, const BatchFill *fill,
                           unsigned char *to) {
  Data *data = fill->data;
  work->fill = *fill;
  work->to = to;
  work->n = work->n_tensors = 0;
  int64_t offset = 0;
  for (int i = 0; i < fill->entry->n_tensors; i++) {
    const DnnTensor *tensor = &fill->entry->tensors[i];
    if (tensor->role != DNN_DATA) continue;
    if (batch_is_picture(data, tensor)) {
      PictureRows *rows = &work->tensors[work->n_tensors++];
      *rows = (PictureRows){.tensor = tensor, .offset = offset};
      rows->field = data_find_field(data, tensor->path, &rows->block);
      rows->rows =
          tensor_local_range(tensor, 0, fill->device->rank, &rows->begin);
      rows->n = rows->rows;
      if (fill->n && rows->begin + rows->n > fill->n)
        rows->n = rows->begin < fill->n ? fill->n - rows->begin : 0;
      rows->each = batch_shard_bytes(tensor) / tensor_local_size(tensor, 0);
      work->n += rows->n;
      memset(to + offset, 0, (size_t)batch_shard_bytes(tensor));
    }
    offset += batch_slot_bytes(tensor);
  }
  work->is_running = true;
  team_start(data->team, read_picture, work, work->n);
}

static void end_pictures(Data *data, PictureWork *work) {
  if (work->is_running) work->status = team_wait(data->team);
  work->is_running = false;
}

Status batch_begin_pictures(const BatchFill *fill, unsigned char *to) {
  Data *data = fill->data;
  if (!batch_has_pictures(data, fill->entry)) return STATUS_OK;
  TRY(open_pictures(data));
  PictureWork *next = data->next_work;
  end_pictures(data, next);
  if (next->to && !fill->is_eval && next->fill.t == fill->t) return STATUS_OK;
  start_pictures(data->work, fill, to);
  return STATUS_OK;
}

/* Into one buffer of a batch, the next step's pictures. */
static void begin_next(const BatchFill *fill) {
  Data *data = fill->data;
  PictureWork *next = data->next_work;
  BatchFill ahead = *fill;
  ahead.t++;
  if (!next->buffer) {
    int64_t bytes = batch_bytes(fill->entry);
    next->buffer = ARENA_ARRAY(data->arena, unsigned char, bytes);
    data->resident_bytes += bytes;
  }
  start_pictures(next, &ahead, next->buffer);
}

Status batch_finish_pictures(const BatchFill *fill, unsigned char *to) {
  Data *data = fill->data;
  if (!batch_has_pictures(data, fill->entry)) return STATUS_OK;
  PictureWork *next = data->next_work, *work = data->work;
  bool was_ahead = !work->is_running;
  end_pictures(data, work);
  Status status = was_ahead ? next->status : work->status;
  for (int i = 0; i < next->n_tensors && was_ahead; i++) {
    const PictureRows *rows = &next->tensors[i];
    memcpy(to + rows->offset, next->buffer + rows->offset,
           (size_t)batch_shard_bytes(rows->tensor));
  }
  if (!fill->is_eval && status.code == STATUS_ok) begin_next(fill);
  return status;
}
