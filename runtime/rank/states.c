/*
 * states.c -- sets the states of a run for evaluation and sampling, and
 * restores them afterwards.
 *
 * Evaluation begins with the states of training, except those with the batch
 * dim: their batch rows read other text, so they begin at their initial value.
 * All states carry over from batch to batch; at the end those of training are
 * restored. An entry point of another batch size (eval_remainder, sampling) has
 * inputs of its own for the states with the batch dim: eval_remainder gets the
 * first batch rows of the states that the batches left, sampling gets initial
 * values.
 */
#include "runtime/rank/run.h"

#include <string.h>

/* ---- evaluation ---- */

/* A state that this rank holds. */
static bool is_state_here(const DnnTensor *tensor) {
  return tensor->role == DNN_STATE && tensor->offset >= 0;
}

static int64_t state_bytes(const DnnProgram *program) {
  int64_t n = 0;
  for (int i = 0; i < program->n_tensors; i++)
    if (is_state_here(&program->tensors[i])) n += program->tensors[i].bytes;
  return n;
}

static Status copy_states(Run *run, unsigned char *copy, bool is_back) {
  Device *device = run->device;
  for (int i = 0; i < run->program->n_tensors; i++) {
    const DnnTensor *tensor = &run->program->tensors[i];
    if (!is_state_here(tensor)) continue;
    TRY(is_back ? device->write(device, tensor->offset, copy, tensor->bytes)
                : device->read(device, tensor->offset, copy, tensor->bytes));
    copy += tensor->bytes;
  }
  return STATUS_OK;
}

/* Which dim of a state counts samples; -1: none. */
static int batch_dim_of(const Run *run, const DnnTensor *tensor) {
  const char *batch = run->program->settings.batch_dim;
  for (int d = 0; d < tensor->rank && batch; d++)
    if (strcmp(tensor->dim[d], batch) == 0) return d;
  return -1;
}

Status states_begin(Run *run, Arena *arena, unsigned char **out_saved) {
  *out_saved = ARENA_ARRAY(arena, unsigned char, state_bytes(run->program));
  TRY(copy_states(run, *out_saved, false));
  for (int i = 0; i < run->program->n_tensors; i++) {
    const DnnTensor *tensor = &run->program->tensors[i];
    if (is_state_here(tensor) && batch_dim_of(run, tensor) >= 0)
      TRY(params_fill(arena, run->device, tensor, run->seed));
  }
  return STATUS_OK;
}

Status states_end(Run *run, unsigned char *saved) {
  return copy_states(run, saved, true);
}

/* ---- batch rows ---- */

/* Copies the first batch rows of `full`, as many as `to` has.  Blocks of the
 * dims after the batch dim are contiguous. */
static void take_batch_rows(const DnnTensor *from, const DnnTensor *to,
                            int batch, const unsigned char *full,
                            unsigned char *out) {
  int64_t before = 1, block = dtype_bytes(from->dtype);
  for (int d = 0; d < batch; d++) before *= from->size[d];
  for (int d = batch + 1; d < from->rank; d++) block *= from->size[d];
  int64_t bytes = to->size[batch] * block;
  for (int64_t i = 0; i < before; i++)
    memcpy(out + i * bytes, full + i * from->size[batch] * block,
           (size_t)bytes);
}

static const DnnTensor *rows_of(const DnnEntryPoint *entry, const char *path) {
  for (int i = 0; entry && i < entry->n_tensors; i++)
    if (entry->tensors[i].role == DNN_BATCH_ROWS &&
        strcmp(entry->tensors[i].path, path) == 0)
      return &entry->tensors[i];
  return NULL;
}

/* Some rank takes rows of this state, so all gather it. */
static bool is_wanted(const Run *run, const DnnEntryPoint *entry,
                      const DnnTensor *state) {
  EntryPointId id = (EntryPointId)entry->id;
  if (state->role != DNN_STATE) return false;
  for (int i = 0; i < run->bundle->n_programs; i++)
    if (rows_of(program_entry_point(&run->bundle->programs[i], id),
                state->path))
      return true;
  return false;
}

static Status fill_from_state(Run *run, Arena *arena,
                              const DnnEntryPoint *entry,
                              const DnnTensor *state) {
  const DnnTensor *rows = rows_of(entry, state->path);
  unsigned char *full;
  TRY(tensor_gather(arena, run->comm, run->device, state, &full));
  if (!rows) return STATUS_OK;
  unsigned char *cut = ARENA_ARRAY(arena, unsigned char, rows->bytes);
  take_batch_rows(state, rows, batch_dim_of(run, rows), full, cut);
  return run->device->write(run->device, rows->offset, cut, rows->bytes);
}

static Status fill_from_states(Run *run, Arena *arena,
                               const DnnEntryPoint *entry) {
  const DnnProgram *program = run->program;
  for (int i = 0; i < program->n_tensors; i++)
    if (is_wanted(run, entry, &program->tensors[i]))
      TRY(fill_from_state(run, arena, entry, &program->tensors[i]));
  return STATUS_OK;
}

static Status fill_with_initial(Run *run, Arena *arena,
                                const DnnEntryPoint *entry) {
  for (int i = 0; i < entry->n_tensors; i++)
    if (entry->tensors[i].role == DNN_BATCH_ROWS)
      TRY(params_fill(arena, run->device, &entry->tensors[i], run->seed));
  return STATUS_OK;
}

Status states_fill_batch_rows(Run *run, const DnnEntryPoint *entry,
                              bool from_states) {
  Arena *scratch = arena_create(run->memory);
  Status status =
      (from_states ? fill_from_states : fill_with_initial)(run, scratch, entry);
  arena_destroy(scratch);
  return status;
}
