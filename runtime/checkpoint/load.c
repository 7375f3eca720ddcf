/*
 * load.c -- fills the persistent buffers from a checkpoint: every rank reads
 * the ranges of the files that its own shards hold.
 *
 * Ranges of a row-major tensor whose last dims are sharded are many and short.
 * Where the gap between two of them is less than a page, which the system reads
 * anyway, both are read at once.
 */
#include "runtime/checkpoint/checkpoint.h"

#include <string.h>

enum { BLOCK_ELEMENTS = 1 << 17, PAGE_BYTES = 4096 };

typedef struct Load {
  Device *device;
  unsigned char *stored, *read, *held; /* BLOCK_ELEMENTS of 8 bytes */
  ValueReport *values;
} Load;

/* One tensor. */
typedef struct Filling {
  const DnnTensor *tensor;
  const StoredFile *file;
  const StoredTensor *stored;
  bool looks; /* this rank looks at the values */
} Filling;

/* Where the read that begins at element `from`, which this rank holds, ends. */
static int64_t end_of_read(const Filling *filling, int rank, int64_t from) {
  int64_t n = tensor_elements(filling->tensor), end = from;
  int64_t most = n - from < BLOCK_ELEMENTS ? n : from + BLOCK_ELEMENTS;
  int64_t gap = PAGE_BYTES / dtype_bytes(filling->stored->dtype);
  TensorRun run;
  while (end < most &&
         tensor_next_run(filling->tensor, rank, end, most, &run) &&
         (end == from || run.logical - end < gap))
    end = run.logical + run.n;
  return end;
}

static void look_at_values(const Load *load, const Filling *filling,
                           int64_t from, int64_t end) {
  const StoredTensor *stored = filling->stored;
  int64_t stored_item = dtype_bytes(stored->dtype);
  int64_t item = dtype_bytes(filling->tensor->dtype);
  bool is_cast = stored->dtype != filling->tensor->dtype;
  const unsigned char *in = is_cast ? load->stored : load->read;
  int64_t at = from;
  TensorRun run;
  while (tensor_next_run(filling->tensor, load->device->rank, at, end, &run)) {
    value_report_look(load->values, stored, run.logical, run.n,
                      in + (run.logical - from) * stored_item,
                      filling->tensor->dtype,
                      load->read + (run.logical - from) * item);
    at = run.logical + run.n;
  }
}

/* Elements [from, end) of a tensor, in the dtype of the program. */
static Status read_elements(const Load *load, const Filling *filling,
                            int64_t from, int64_t end) {
  DnnDtype dtype = filling->tensor->dtype;
  int64_t item = dtype_bytes(filling->stored->dtype);
  bool is_cast = filling->stored->dtype != dtype;
  TRY(checkpoint_read(filling->file, filling->stored, from * item,
                      is_cast ? load->stored : load->read,
                      (end - from) * item));
  if (is_cast)
    floats_cast(filling->stored->dtype, load->stored, dtype, load->read,
                end - from);
  if (filling->looks) look_at_values(load, filling, from, end);
  return STATUS_OK;
}

/* The first rank that holds a term of a sum gets all of it, the others zeros.
 */
static Status load_tensor(const Load *load, const Filling *filling) {
  const DnnTensor *tensor = filling->tensor;
  if (!tensor_is_held(tensor, load->device->rank)) return STATUS_OK;
  int64_t n = tensor_elements(tensor), end = 0;
  TensorRun run;
  bool has_sum = tensor_term(tensor, load->device->rank) == 0;
  if (!has_sum || tensor_has_padding(tensor, load->device->rank))
    TRY(shard_clear(load->device, tensor, load->held, BLOCK_ELEMENTS));
  if (!has_sum) return STATUS_OK;
  while (tensor_next_run(tensor, load->device->rank, end, n, &run)) {
    int64_t from = run.logical;
    end = end_of_read(filling, load->device->rank, from);
    TRY(read_elements(load, filling, from, end));
    shard_copy(tensor, load->device->rank, from, end, load->read, load->held,
               false);
    TRY(shard_write(load->device, tensor, from, end, load->held));
  }
  return STATUS_OK;
}

/* One rank looks at an element, and an average that is filled from a parameter
 * was looked at there. */
static bool is_looked_at(const DnnTensor *tensor, const StoredTensor *stored,
                         int rank) {
  return dtype_is_float(tensor->dtype) && dtype_is_float(stored->dtype) &&
         tensor_is_owner(tensor, rank) && tensor_term(tensor, rank) == 0 &&
         strcmp(tensor->path, stored->name) == 0;
}

Status checkpoint_load(Arena *arena, const Checkpoint *checkpoint,
                       const DnnProgram *program, Device *device, Comm *comm,
                       bool is_resume) {
  Arena *scratch = arena_beside(arena);
  ValueReport values = value_report_create(scratch);
  Load load = {.device = device, .values = &values};
  load.stored = ARENA_ARRAY(scratch, unsigned char, BLOCK_ELEMENTS * 8);
  load.read = ARENA_ARRAY(scratch, unsigned char, BLOCK_ELEMENTS * 8);
  load.held = ARENA_ARRAY(scratch, unsigned char, BLOCK_ELEMENTS * 8);
  const StoredTensor **loaded =
      ARENA_ARRAY(scratch, const StoredTensor *, program->n_tensors);
  Status status = STATUS_OK;
  int n = 0;
  for (int i = 0; i < program->n_tensors && status.code == STATUS_ok; i++) {
    Filling filling = {.tensor = &program->tensors[i]};
    filling.stored = checkpoint_tensor_for(checkpoint, filling.tensor,
                                           is_resume, &filling.file);
    if (!filling.stored) continue;
    filling.looks = is_looked_at(filling.tensor, filling.stored, device->rank);
    loaded[n++] = filling.stored;
    status = load_tensor(&load, &filling);
  }
  Status merged = value_report_merge(&values, comm, loaded, n);
  if (status.code == STATUS_ok) status = merged;
  if (comm->rank == 0) value_report_print(&values, checkpoint->given);
  arena_destroy(scratch);
  return status;
}
