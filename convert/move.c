/*
 * move.c -- gathers the numbers of a new tensor from the old ones.
 *
 * One new tensor is in memory at a time, with one of those that it comes from;
 * a cast converts all of that tensor before its elements are moved.
 */
#include "convert/convert.h"

#include <stdlib.h>
#include <string.h>

/* A run along the last dim. */
static void copy_run(unsigned char *to, int64_t to_stride,
                     const unsigned char *from, int64_t from_stride, int64_t n,
                     int64_t item) {
  if (to_stride == 1 && from_stride == 1) {
    memcpy(to, from, (size_t)(n * item));
    return;
  }
  for (int64_t i = 0; i < n; i++)
    memcpy(to + i * to_stride * item, from + i * from_stride * item,
           (size_t)item);
}

static void copy_all(const Move *move, int dim, unsigned char *to,
                     const unsigned char *from, int64_t item) {
  if (dim == move->rank) {
    memcpy(to, from, (size_t)item);
  } else if (dim == move->rank - 1) {
    copy_run(to, move->to_stride[dim], from, move->from_stride[dim],
             move->size[dim], item);
  } else {
    for (int64_t i = 0; i < move->size[dim]; i++)
      copy_all(move, dim + 1, to + i * move->to_stride[dim] * item,
               from + i * move->from_stride[dim] * item, item);
  }
}

/* A complete stored tensor in `dtype`; to be freed. */
static Status read_whole(ValueReport *values, const Move *move, DnnDtype dtype,
                         unsigned char **out) {
  int64_t n = stored_elements(move->from);
  int64_t bytes = move->from->end - move->from->begin;
  unsigned char *raw = malloc((size_t)bytes + 1), *cast = NULL;
  *out = NULL;
  if (!raw)
    return status_make(STATUS_unavailable, "no memory for tensor '%s'",
                       move->from->name);
  Status status = checkpoint_read(move->file, move->from, 0, raw, bytes);
  if (status.code == STATUS_ok && move->from->dtype != dtype) {
    cast = malloc((size_t)(n * dtype_bytes(dtype)) + 1);
    if (cast) {
      floats_cast(move->from->dtype, raw, dtype, cast, n);
      value_report_look(values, move->from, 0, n, raw, dtype, cast);
    } else {
      status = status_make(STATUS_unavailable, "no memory for tensor '%s'",
                           move->from->name);
    }
    free(raw);
    raw = cast;
  } else if (status.code == STATUS_ok && dtype_is_float(dtype)) {
    value_report_look(values, move->from, 0, n, raw, dtype, raw);
  }
  if (status.code != STATUS_ok) {
    free(raw);
    return status;
  }
  *out = raw;
  return STATUS_OK;
}

static Status make(Mover *mover, int index) {
  const StoredTensor *tensor = &mover->conversion->tensors.data[index];
  const Made *made = &mover->conversion->made.data[index];
  int64_t item = dtype_bytes(tensor->dtype);
  mover_close(mover);
  mover->bytes = malloc((size_t)(stored_elements(tensor) * item) + 1);
  if (!mover->bytes)
    return status_make(STATUS_unavailable, "no memory for tensor '%s'",
                       tensor->name);
  for (int i = 0; i < made->n_moves; i++) {
    const Move *move = &made->moves[i];
    unsigned char *from;
    TRY(read_whole(&mover->values, move, tensor->dtype, &from));
    if (stored_elements(tensor) > 0 && stored_elements(move->from) > 0)
      copy_all(move, 0, mover->bytes + move->to_offset * item,
               from + move->from_offset * item, item);
    free(from);
  }
  mover->current = index;
  return STATUS_OK;
}

Status mover_read(void *user, int index, int64_t at, void *to, int64_t n) {
  Mover *mover = user;
  if (mover->current != index) TRY(make(mover, index));
  memcpy(to, mover->bytes + at, (size_t)n);
  return STATUS_OK;
}

void mover_close(Mover *mover) {
  free(mover->bytes);
  mover->bytes = NULL;
  mover->current = -1;
}
