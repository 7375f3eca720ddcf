/*
 * reshard_moves.h -- declares the single steps that lead away from a placement,
 * which reshard.c joins to chains.
 */
#ifndef IR_PLACE_RESHARD_MOVES_H
#define IR_PLACE_RESHARD_MOVES_H

#include "ir/place/reshard.h"

/* Placement of a value whose dims are known; unused entries are 0, so that
 * placements compare by their bytes. */
typedef struct Placement {
  AxisList splits[MAX_RANK];
  uint32_t partial;
} Placement;

/* The axes and dims that may change between two placements of one value. */
typedef struct ReshardProblem {
  const Mesh *mesh;
  int rank, element_bytes;
  int64_t sizes[MAX_RANK];
  int n_fixed[MAX_RANK]; /* leading axes that a dim keeps */
  bool is_live[MAX_RANK];
  AxisSet live;         /* axes that may move */
  AxisSet reducible;    /* partial at first, not at the end */
  AxisSet zero_filled;  /* partial at the end, replicated at first */
  AxisSet was_partial;  /* axes over which it is partial at first */
  bool may_fill_beside; /* what is partial at first is a sum */
  bool is_plain;        /* no chain may have a permute */
} ReshardProblem;

typedef struct ReshardMove {
  ReshardKind kind;
  AxisSet group;
  AxisList axes, to_axes;
  int from_dim, to_dim;
  int64_t elements; /* elements that a rank sends */
  Placement after;
} ReshardMove;

typedef VEC(ReshardMove) ReshardMoves;

/* Appends every step from `at` in a fixed order. */
void reshard_moves(const ReshardProblem *problem, const Placement *at,
                   Arena *arena, ReshardMoves *out);

#endif
