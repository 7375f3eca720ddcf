/*
 * convert.h -- applies a mapping file to a checkpoint in two steps: it plans
 * every new tensor and reports all mismatches before anything is written, then
 * it moves the numbers.
 */
#ifndef TOOLS_CONVERT_H
#define TOOLS_CONVERT_H

#include "convert/tensormap.h"
#include "runtime/checkpoint/checkpoint.h"

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
  int side;       /* side of the map that `from` has; 0 is the left one */
  bool takes_raw; /* parameters themselves, also where averages are stored */
  int n_averages; /* tensors that were read in place of their parameters */
  VEC(StoredTensor) tensors;
  VEC(Made) made; /* what was made, by index of the group */
  Text misfits;   /* a line for each: missing, extra, differs, twice */
  int n_misfits;
} Conversion;

/* ---- letters.c ---- */

/* The values of the letters of one line: a row for each tensor it makes. */
typedef struct RuleValues {
  int n_letters;
  Name letters[MAP_MAX_LETTERS];
  /* NULL means numbers that were found. */
  const MapRange *ranges[MAP_MAX_LETTERS];
  int64_t n;
  int64_t (*rows)[MAP_MAX_LETTERS]; /* of a list the place */
} RuleValues;

typedef struct Letters Letters;
/* Reads all names of the checkpoint. */
Letters *letters_find(const Conversion *conversion);
const RuleValues *letters_of_rule(const Letters *letters, const MapRule *rule);
/* Returns which alternative of an `either` is used. */
int letters_alternative(const Letters *letters, int either);
/* Returns the name of a term for row `at`. */
const char *rule_name(Arena *arena, const RuleValues *values, int64_t at,
                      const MapTerm *term);

/* ---- make_tensors.c ---- */

/* Fills tensors and made; mismatches are listed, mistakes of the map that show
 * only with sizes become diags. */
void conversion_make(Conversion *conversion);

/* ---- move.c ---- */

/* Reads tensor `index` for tensor_files_write. */
typedef struct Mover {
  const Conversion *conversion;
  int current; /* the tensor in `bytes`; -1 means none */
  unsigned char *bytes;
  ValueReport values; /* values that were cast and moved so far */
} Mover;
TensorReader mover_read; /* user: Mover */
void mover_close(Mover *mover);

#endif
