/*
 * resultfile.h -- writes a file of results (.npy, .safetensors or .csv) as they
 * come; a complete file replaces an older one.
 */
#ifndef RUNTIME_RESULTFILE_H
#define RUNTIME_RESULTFILE_H

#include "runtime/tensor/tensor.h"

/* One tensor of the file: the first dim counts records. */
typedef struct ResultArray {
  const char *name;
  /* Dtype of the numbers that are handed in; bf16 becomes f32 but in
   * safetensors. */
  DnnDtype dtype;
  uint8_t rank;
  int64_t size[DNN_MAX_RANK];
} ResultArray;

typedef struct ResultFile ResultFile;

/* Checks that the ending names a format, that the folder is there and that no
 * other kind of file has this name. */
Status result_check_path(const char *path);
/* Opens a temporary file in the folder of `path` and reserves the bytes that it
 * will need, as far as they are known. */
Status result_open(Arena *arena, const char *path, const ResultArray *arrays,
                   int n_arrays, ResultFile **out);
/* Returns whether rows must come in order: a table has no places to go back to.
 */
bool result_is_table(const ResultFile *file);
/* Writes elements [first, first + n) of an array. */
Status result_write(ResultFile *file, int array, int64_t first, int64_t n,
                    const void *values);
/* Syncs and renames. */
Status result_finish(ResultFile *file);
/* Removes the temporary file; nothing to do for NULL or after the end. */
void result_discard(ResultFile *file);
/* Returns the temporary file, which a signal must remove. */
const char *result_temporary(const ResultFile *file);
/* Returns the bytes in the file. */
int64_t result_bytes(const ResultFile *file);

#endif
