/*
 * shards.c -- reads and writes what a rank holds of a tensor that is sharded
 * over ranks, and gathers all of a tensor.
 */
#include "runtime/params/params.h"

#include <string.h>

bool tensor_is_sharded(const DnnTensor *tensor) {
  return tensor_local_elements(tensor) != tensor_elements(tensor);
}

int64_t shard_copy(const DnnTensor *tensor, int rank, int64_t from, int64_t end,
                   unsigned char *range, unsigned char *held, bool to_range) {
  int64_t item = dtype_bytes(tensor->dtype), done = 0, begin = from;
  TensorRun run;
  while (tensor_next_run(tensor, rank, from, end, &run)) {
    unsigned char *there = range + (run.logical - begin) * item;
    if (to_range)
      memcpy(there, held + done, (size_t)(run.n * item));
    else
      memcpy(held + done, there, (size_t)(run.n * item));
    done += run.n * item;
    from = run.logical + run.n;
  }
  return done;
}

void shard_add(const DnnTensor *tensor, int rank, int64_t from, int64_t end,
               void *range, const void *held) {
  float *sum = range;
  const float *terms = held;
  int64_t begin = from;
  TensorRun run;
  ASSERT(tensor->dtype == DNN_f32);
  while (tensor_next_run(tensor, rank, from, end, &run)) {
    for (int64_t i = 0; i < run.n; i++)
      sum[run.logical - begin + i] += *terms++;
    from = run.logical + run.n;
  }
}

/* Elements of the shard, to or from `held`. */
static Status move_elements(Device *device, const DnnTensor *tensor,
                            int64_t first, int64_t n, unsigned char *held,
                            bool is_write) {
  int64_t item = dtype_bytes(tensor->dtype);
  int64_t at = tensor->offset + first * item;
  if (n == 0) return STATUS_OK;
  return is_write ? device->write(device, at, held, n * item)
                  : device->read(device, at, held, n * item);
}

/* Runs that follow each other in the shard move together. */
static Status move_held(Device *device, const DnnTensor *tensor, int64_t from,
                        int64_t end, unsigned char *held, bool is_write,
                        int64_t *out_bytes) {
  int64_t item = dtype_bytes(tensor->dtype), first = 0, n = 0;
  TensorRun run;
  *out_bytes = 0;
  while (tensor_next_run(tensor, device->rank, from, end, &run)) {
    if (run.local != first + n) {
      TRY(move_elements(device, tensor, first, n, held + *out_bytes, is_write));
      *out_bytes += n * item;
      first = run.local;
      n = 0;
    }
    n += run.n;
    from = run.logical + run.n;
  }
  TRY(move_elements(device, tensor, first, n, held + *out_bytes, is_write));
  *out_bytes += n * item;
  return STATUS_OK;
}

Status shard_read(Device *device, const DnnTensor *tensor, int64_t from,
                  int64_t end, unsigned char *held, int64_t *out_bytes) {
  return move_held(device, tensor, from, end, held, false, out_bytes);
}

Status shard_write(Device *device, const DnnTensor *tensor, int64_t from,
                   int64_t end, unsigned char *held) {
  int64_t bytes;
  return move_held(device, tensor, from, end, held, true, &bytes);
}

Status shard_clear(Device *device, const DnnTensor *tensor,
                   unsigned char *block, int64_t n) {
  int64_t bytes = tensor_local_elements(tensor) * dtype_bytes(tensor->dtype);
  memset(block, 0, (size_t)(n < bytes ? n : bytes));
  for (int64_t at = 0; at < bytes; at += n)
    TRY(device->write(device, tensor->offset + at, block,
                      bytes - at < n ? bytes - at : n));
  return STATUS_OK;
}

Status tensor_gather(Arena *arena, Comm *comm, Device *device,
                     const DnnTensor *tensor, unsigned char **out) {
  int64_t item = dtype_bytes(tensor->dtype), n = tensor_elements(tensor), used;
  int64_t bytes = tensor_local_elements(tensor) * item;
  unsigned char *own = ARENA_ARRAY(arena, unsigned char, bytes);
  *out = own;
  TRY(shard_read(device, tensor, 0, n, own, &used));
  bool is_everywhere = tensor->ranks == 0 || tensor->ranks == comm->world;
  if (is_everywhere && !tensor_is_sharded(tensor)) return STATUS_OK;
  unsigned char *all = ARENA_ARRAY(arena, unsigned char, bytes * comm->world);
  *out = ARENA_ARRAY(arena, unsigned char, n *item);
  TRY(comm->gather(comm, own, bytes, all));
  for (int rank = 0; rank < comm->world; rank++)
    shard_copy(tensor, rank, 0, n, *out, all + rank * bytes, true);
  return STATUS_OK;
}
