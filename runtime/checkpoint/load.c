/*
 * load.c -- fills the persistent buffers from a checkpoint: rank 0 reads, every
 * rank receives the values and keeps its shard.
 */
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/params/params.h"

#include <string.h>

typedef struct Load {
  Arena *arena;
  const Checkpoint *checkpoint; /* NULL: not rank 0 */
  Device *device;
  Comm *comm;
  unsigned char *block, *raw; /* BLOCK_ELEMENTS of 8 bytes */
  ValueReport *values;
} Load;

enum { BLOCK_ELEMENTS = 1 << 17 };

/* Elements of a tensor, in the dtype of the program. */
static Status read_block(const Load *load, const DnnTensor *tensor,
                         const StoredFile *file, const StoredTensor *stored,
                         int64_t at, int64_t n) {
  int64_t item = dtype_bytes(stored->dtype);
  bool is_equal = stored->dtype == tensor->dtype;
  void *to = is_equal ? load->block : load->raw;
  TRY(checkpoint_read(file, stored, at * item, to, n * item));
  if (!is_equal)
    floats_cast(stored->dtype, load->raw, tensor->dtype, load->block, n);
  if (dtype_is_float(tensor->dtype) && dtype_is_float(stored->dtype))
    value_report_look(load->values, stored, at, n, to, tensor->dtype,
                      load->block);
  return STATUS_OK;
}

/* All ranks learn of all elements; each keeps its shard. */
static Status load_tensor(const Load *load, const DnnTensor *tensor,
                          const StoredFile *file, const StoredTensor *stored) {
  int64_t n = tensor_elements(tensor), item = dtype_bytes(tensor->dtype);
  bool is_split = tensor_is_sharded(tensor);
  Arena *scratch = is_split ? arena_beside(load->arena) : NULL;
  unsigned char *full =
      is_split ? ARENA_ARRAY(scratch, unsigned char, n *item) : NULL;
  Status status = STATUS_OK;
  for (int64_t at = 0; at < n && status.code == STATUS_ok;
       at += BLOCK_ELEMENTS) {
    int64_t here = n - at < BLOCK_ELEMENTS ? n - at : BLOCK_ELEMENTS;
    if (load->checkpoint)
      status = read_block(load, tensor, file, stored, at, here);
    if (status.code == STATUS_ok)
      status = load->comm->broadcast(load->comm, load->block, here * item, 0);
    if (status.code != STATUS_ok) break;
    if (is_split)
      memcpy(full + at * item, load->block, (size_t)(here * item));
    else
      status = load->device->write(load->device, tensor->offset + at * item,
                                   load->block, here * item);
  }
  if (is_split && status.code == STATUS_ok)
    status = tensor_write_shard(scratch, load->device, tensor, full);
  if (is_split) arena_destroy(scratch);
  return status;
}

Status checkpoint_load(Arena *arena, const Checkpoint *checkpoint,
                       const DnnProgram *program, Device *device, Comm *comm,
                       bool is_resume) {
  ValueReport values = value_report_create(arena);
  Load load = {arena,
               checkpoint,
               device,
               comm,
               ARENA_ARRAY(arena, unsigned char, BLOCK_ELEMENTS * 8),
               ARENA_ARRAY(arena, unsigned char, BLOCK_ELEMENTS * 8),
               &values};
  for (int i = 0; i < program->n_tensors; i++) {
    const DnnTensor *tensor = &program->tensors[i];
    const StoredFile *file = NULL;
    const StoredTensor *stored = NULL;
    if (checkpoint)
      stored = checkpoint_tensor_for(checkpoint, tensor, is_resume, &file);
    uint8_t is_there = stored != NULL;
    TRY(comm->broadcast(comm, &is_there, 1, 0));
    if (is_there) TRY(load_tensor(&load, tensor, file, stored));
  }
  if (checkpoint) value_report_print(&values, checkpoint->given);
  return STATUS_OK;
}
