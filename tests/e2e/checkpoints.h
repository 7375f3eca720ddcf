/*
 * checkpoints.h -- makes a checkpoint of given numbers with the runtime's own
 * writer and reads its tensors, for the helpers of end-to-end tests.
 */
#ifndef TESTS_E2E_CHECKPOINTS_H
#define TESTS_E2E_CHECKPOINTS_H

#include "runtime/checkpoint/checkpoint.h"

#include <string.h>
#include <unistd.h>

/* A parameter in f32; the rest of `tensor` is filled in by the writer. */
typedef struct Given {
  const char *path;
  int rank;
  int64_t size[DNN_MAX_RANK];
  const double *values;
} Given;

/* A device whose arena is the host's memory. */
static inline Status given_read(Device *device, int64_t offset, void *to,
                                int64_t bytes) {
  memcpy(to, (const char *)device->state + offset, (size_t)bytes);
  return STATUS_OK;
}

static inline DnnTensor given_tensor(const Given *given, int64_t offset) {
  DnnTensor tensor = {.path = given->path,
                      .role = DNN_PARAM,
                      .dtype = DNN_f32,
                      .rank = (uint8_t)given->rank,
                      .offset = offset};
  for (int d = 0; d < given->rank; d++) tensor.size[d] = given->size[d];
  tensor.bytes = tensor_elements(&tensor) * (int64_t)sizeof(float);
  return tensor;
}

/* Step 0 in the folder of checkpoints `folder`. */
static inline Status given_write(Arena *arena, const char *folder,
                                 const Given *given, int n) {
  DnnTensor *tensors = ARENA_ARRAY(arena, DnnTensor, n);
  int64_t bytes = 0;
  for (int i = 0; i < n; i++) {
    tensors[i] = given_tensor(&given[i], bytes);
    bytes += tensors[i].bytes;
  }
  float *memory = arena_alloc(arena, (size_t)bytes), *at = memory;
  for (int i = 0; i < n; i++)
    for (int64_t k = 0; k < tensor_elements(&tensors[i]); k++)
      *at++ = (float)given[i].values[k];
  DnnProgram program = {.model = "given",
                        .world = 1,
                        .tensors = tensors,
                        .n_tensors = n,
                        .arena_bytes = bytes,
                        .persistent_bytes = bytes};
  Device device = {.name = "memory", .read = given_read, .state = memory};
  Saver *saver;
  TRY(saver_open(arena, &program, folder, TENSOR_FILE_BYTES, &saver));
  Status status = saver_save(
      saver, logical_reader_create(arena, &program, NULL, &device), 0, 1);
  saver_close(saver);
  return status;
}

/* The `n` elements of the f32 tensor `name`. */
static inline Status stored_read(Arena *arena, const Checkpoint *checkpoint,
                                 const char *name, int64_t n,
                                 double **out_values) {
  *out_values = ARENA_ARRAY(arena, double, n);
  for (int f = 0; f < checkpoint->n_files; f++) {
    const StoredFile *file = &checkpoint->files[f];
    for (int i = 0; i < file->header.n_tensors; i++) {
      const StoredTensor *tensor = &file->header.tensors[i];
      if (strcmp(tensor->name, name) != 0) continue;
      ssize_t bytes = (ssize_t)(n * (int64_t)sizeof(float));
      float *values = ARENA_ARRAY(arena, float, n);
      if (tensor->dtype != DNN_f32 || tensor->end - tensor->begin != bytes)
        return status_make(STATUS_invalid, "'%s' has another type", name);
      if (pread(file->fd, values, (size_t)bytes,
                file->data_begin + tensor->begin) != bytes)
        return status_make(STATUS_io, "cannot read '%s'", name);
      for (int64_t k = 0; k < n; k++) (*out_values)[k] = values[k];
      return STATUS_OK;
    }
  }
  return status_make(STATUS_invalid, "'%s' has no '%s'", checkpoint->path,
                     name);
}

#endif
