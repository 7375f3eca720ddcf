/*
 * data.c -- fills the inputs of an entry point with samples.
 */
#include "runtime/data/blocks.h"

#include <string.h>

static BatchFill fill_of_step(Data *data, Device *device,
                              const DnnEntryPoint *train, int64_t t) {
  return (BatchFill){.data = data,
                     .device = device,
                     .entry = train,
                     .t = t,
                     .epoch = data_steps_per_epoch(data)};
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

static Status read_sample(const BatchFill *fill, const Block *block,
                          const DnnField *field, int64_t i, int64_t items) {
  Data *data = fill->data;
  const Part *part = fill->is_eval ? &block->eval : &block->train;
  int64_t at = batch_place(fill, block, i);
  const DnnField *root = field_root(block->data, field);
  const Reader *reader = part->readers[root - block->data->fields];
  int64_t begin = block->data->is_stream
                      ? at + field_next_depth(block->data, field)
                      : at * items;
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

/* This rank's shard of the samples. */
static Status read_tensor(const BatchFill *fill, const DnnTensor *tensor,
                          unsigned char *to) {
  Data *data = fill->data;
  const Block *block;
  const DnnField *field = data_find_field(data, tensor->path, &block);
  if (!field)
    return status_make(STATUS_invalid, "no data field '%s'", tensor->path);
  if (!batch_can_store(tensor->dtype))
    return status_make(STATUS_unavailable,
                       "data of type %s is not supported yet",
                       dtype_label(tensor->dtype));
  int64_t items = 1, begin;
  for (int i = 1; i < tensor->rank; i++) items *= tensor->size[i];
  int rank = fill->device->rank;
  int64_t rows = tensor_local_range(tensor, 0, rank, &begin);
  memset(to, 0, (size_t)batch_shard_bytes(tensor));
  if (fill->n && begin + rows > fill->n)
    rows = begin < fill->n ? fill->n - begin : 0;
  for (int64_t i = 0; i < rows; i++) {
    int64_t sample = batch_sample(tensor, begin, rows, i);
    TRY(read_sample(fill, block, field, sample, items));
    to = batch_store(tensor, rank, 1, data->row, to);
  }
  return STATUS_OK;
}

/* All DATA tensors of the entry point, one after the other. */
static Status read_batch(const BatchFill *fill, unsigned char *to) {
  unsigned char *batch = to;
  Status status = STATUS_OK;
  TRY(batch_begin_pictures(fill, batch));
  for (int i = 0; i < fill->entry->n_tensors; i++) {
    const DnnTensor *tensor = &fill->entry->tensors[i];
    if (tensor->role != DNN_DATA) continue;
    if (!batch_is_picture(fill->data, tensor) && status.code == STATUS_ok)
      status = read_tensor(fill, tensor, to);
    to += batch_slot_bytes(tensor);
  }
  Status pictures = batch_finish_pictures(fill, batch);
  return status.code == STATUS_ok ? pictures : status;
}

static Status write_batch(Device *device, const DnnEntryPoint *entry,
                          int64_t slot, const unsigned char *from) {
  for (int i = 0; i < entry->n_tensors; i++) {
    const DnnTensor *tensor = &entry->tensors[i];
    if (tensor->role != DNN_DATA) continue;
    int64_t at = tensor->offset;
    if (tensor->n_slots > 1) at += slot % tensor->n_slots * tensor->slot_bytes;
    TRY(device->write(device, at, from, batch_shard_bytes(tensor)));
    from += batch_slot_bytes(tensor);
  }
  return STATUS_OK;
}

static Status fill_all(const BatchFill *fill) {
  TRY(read_batch(fill, fill->data->batch));
  return write_batch(fill->device, fill->entry, fill->slot, fill->data->batch);
}

void data_read_ahead(Data *data, Device *device, const DnnEntryPoint *train,
                     int64_t t) {
  if (batch_has_pictures(data, train)) return; /* threads read them */
  BatchFill fill = fill_of_step(data, device, train, t);
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
  BatchFill fill = fill_of_step(data, device, train, t);
  return fill_all(&fill);
}

Status data_fill_slot(Data *data, Device *device, const DnnEntryPoint *train,
                      int64_t t, int64_t slot) {
  BatchFill fill = fill_of_step(data, device, train, t);
  fill.slot = slot;
  return fill_all(&fill);
}

Status data_fill_eval(Data *data, Device *device, const DnnEntryPoint *entry,
                      int64_t first, bool is_random) {
  return fill_all(&(BatchFill){.data = data,
                               .device = device,
                               .entry = entry,
                               .is_eval = true,
                               .is_random = is_random,
                               .first = first,
                               .epoch = data_samples(data, entry)});
}

Status data_fill_records(Data *data, Device *device, const DnnEntryPoint *entry,
                         int64_t first, int64_t n) {
  return fill_all(&(BatchFill){.data = data,
                               .device = device,
                               .entry = entry,
                               .is_eval = true,
                               .first = first,
                               .n = n,
                               .epoch = data_samples(data, entry)});
}
