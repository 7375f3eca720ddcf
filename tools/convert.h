/*
 * convert.h -- applying a mapping file to a checkpoint, in two steps: what
 * every tensor becomes (all misfits are found before anything is written), and
 * moving the numbers.
 */
#ifndef TOOLS_CONVERT_H
#define TOOLS_CONVERT_H

#include "frontend/tensormap.h"
#include "runtime/checkpoint.h"

/* A tensor or a part of one that goes into a new tensor: element (i0, i1, ...)
 * moves from offset + sum i * from_stride to the same of to_stride. */
typedef struct Move {
  const StoredTensor *from;
  const StoredFile *file;
  int rank;
  int64_t size[MAP_MAX_FACTORS * MAX_RANK];
  int64_t from_stride[MAP_MAX_FACTORS * MAX_RANK];
  int64_t to_stride[MAP_MAX_FACTORS * MAX_RANK];
  int64_t from_offset, to_offset;
} Move;

typedef struct Made {
  int n_moves;
  Move *moves;
} Made;

/* New tensors in the order of the map. */
typedef struct Conversion {
  Module *module;
  const TensorMap *map;
  const Checkpoint *from;
  int side; /* of the map that `from` has: 0 the left one */
  VEC(StoredTensor) tensors;
  VEC(Made) made; /* of the same index */
  Text misfits;   /* a line for each: missing, extra, differs, twice */
  int n_misfits;
} Conversion;

/* Fills tensors and made; misfits are listed, mistakes of the map that show
 * only with sizes become diags. */
void conversion_plan(Conversion *conversion);

/* Reads tensor `index` for tensor_files_write. */
typedef struct Mover {
  const Conversion *conversion;
  int current; /* tensor in `bytes`; -1: none */
  unsigned char *bytes;
} Mover;
TensorReader mover_read; /* user: Mover */
void mover_close(Mover *mover);

#endif
