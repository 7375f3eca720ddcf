/*
 * shards.c -- gathers tensors whose shards lie on several ranks, for
 * checkpoints and evaluation, and writes the shard of this rank.
 */
#include "runtime/params/params.h"

#include <string.h>

bool tensor_is_sharded(const DnnTensor *tensor) {
  return tensor_local_elements(tensor) != tensor_elements(tensor);
}

/* Copies between the shard of a rank and the full tensor. */
static void copy_shard(const DnnTensor *tensor, int rank, unsigned char *shard,
                       unsigned char *full, bool to_full) {
  int64_t n = tensor_local_elements(tensor), item = dtype_bytes(tensor->dtype);
  for (int64_t i = 0; i < n; i++) {
    int64_t at = tensor_logical_index(tensor, rank, i);
    if (at < 0) continue; /* padding */
    if (to_full)
      memcpy(full + at * item, shard + i * item, (size_t)item);
    else
      memcpy(shard + i * item, full + at * item, (size_t)item);
  }
}

Status tensor_gather(Arena *arena, Comm *comm, Device *device,
                     const DnnTensor *tensor, unsigned char **out) {
  int64_t item = dtype_bytes(tensor->dtype);
  int64_t bytes = tensor_local_elements(tensor) * item;
  unsigned char *own = ARENA_ARRAY(arena, unsigned char, bytes);
  *out = own;
  TRY(device->read(device, tensor->offset, own, bytes));
  if (!tensor_is_sharded(tensor)) return STATUS_OK;
  unsigned char *all = ARENA_ARRAY(arena, unsigned char, bytes * comm->world);
  *out = ARENA_ARRAY(arena, unsigned char, tensor_elements(tensor) * item);
  TRY(comm->gather(comm, own, bytes, all));
  for (int rank = 0; rank < comm->world; rank++)
    copy_shard(tensor, rank, all + rank * bytes, *out, true);
  return STATUS_OK;
}

Status tensor_write_shard(Arena *arena, Device *device, const DnnTensor *tensor,
                          unsigned char *full) {
  int64_t bytes = tensor_local_elements(tensor) * dtype_bytes(tensor->dtype);
  unsigned char *own = ARENA_ARRAY(arena, unsigned char, bytes);
  copy_shard(tensor, device->rank, own, full, false);
  return device->write(device, tensor->offset, own, bytes);
}
