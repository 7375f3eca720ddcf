/*
 * stage_values.h -- declares the values of a micro-batch by the calls that make
 * and read them, in the program of one rank.
 *
 *     made by F, read by F alone     scratch of F
 *     made by F, read by I or W      a frame
 *     made by I, read by W           a frame where the schedule has both apart
 */
#ifndef PLANNER_STAGES_STAGE_VALUES_H
#define PLANNER_STAGES_STAGE_VALUES_H

#include "planner/stages/stage_chain.h"

/* The kinds of calls: forward pass, gradients of inputs and of weights. */
typedef enum StageCall { CALL_F, CALL_I, CALL_W, N_STAGE_CALLS } StageCall;

/* Pieces of readers are counted from that of the maker on. */
typedef struct StageValue {
  int unit;  /* that makes it; of data one that reads it */
  int shift; /* its piece, counted from that of the unit on: a kernel that goes
                over a border is two where that is cut */
  const Type *type;
  DimMap dims; /* of the unit */
  StageCall made;
  unsigned read; /* a bit for each kind of call */
  int first_of[N_STAGE_CALLS], last_of[N_STAGE_CALLS]; /* pieces of readers */
  int first_piece, last_piece; /* of all readers, and 0 */
  int first;                   /* kernel that makes it */
  int last[N_STAGE_CALLS];     /* the last kernel that reads it, or -1 */
  int reader; /* the first unit behind its piece that reads it, or -1 */
  const Type *reader_type; /* of it, or of a view */
  DimMap reader_dims;
  int overwrites;  /* the value whose bytes it takes where that dies, or -1 */
  int taken_by;    /* the value that takes its bytes, or -1 */
  bool of_params;  /* it depends on parameters alone */
  Name shared;     /* of these: a parameter that another piece has; else NULL */
  bool is_of_step; /* it has no batch dim: a gradient of a parameter */
  bool is_data;
  bool is_inside;   /* of a block: computed again with it */
  bool feeds_block; /* another block begins with it */
  Name path;
} StageValue;

typedef struct StageKernel {
  int unit, node;
  const UnitKernel *own;
  StageCall call;
  int shift;         /* as of a value */
  int n_made, *made; /* values */
} StageKernel;

typedef struct StageValues {
  VEC(StageValue) values;
  VEC(StageKernel) kernels; /* in the order of the program */
  const bool *keeps_update; /* by parameter: its norm decides how far it goes,
                               so its update is there until all have theirs */
  Map *scratch;             /* bytes that libraries need, by kernel and sizes */
} StageValues;

StageValues *stage_values_of(Arena *arena, const Units *units,
                             const StageChain *chain);

#endif
