/*
 * stage_chain.h -- declares where a model may be cut into stages: a chain of
 * pieces, between which one value goes on.
 *
 *     wte, wpe | block[0].attn | block[0].mlp | block[1].attn | ...
 *
 * A border is where one value alone that parameters have a part in is read
 * behind it, and where units meet: a cut inside of one would split its kernels,
 * which small models alone need where nothing else fits.
 * Data and what depends on data alone crosses no border, since each stage has
 * them.
 */
#ifndef PLANNER_STAGES_STAGE_CHAIN_H
#define PLANNER_STAGES_STAGE_CHAIN_H

#include "ir/plan/graph_paths.h"
#include "price/units/units.h"

enum { MOST_PIECES = 256 };

/* The pieces of what a unit stands for: of each of the blocks. */
typedef struct UnitPieces {
  int n;
  const int *pieces;
} UnitPieces;

/* A parameter that units of several pieces read: stages that hold these send it
 * and its gradient once a step. */
typedef struct SharedParam {
  int param;       /* of the units */
  int first, last; /* pieces */
} SharedParam;

typedef struct InnerBorder {
  const Type *type; /* of all micro-batches */
  int unit;         /* that the border divides */
} InnerBorder;

typedef struct StageChain {
  int n;                   /* pieces; 1 where the model has no border */
  const char *const *ends; /* by piece, but the last: as `cut after` has it */
  const int *nodes;        /* by piece, but the last: its last forward node */
  const UnitPieces *units; /* by unit */
  Map *named;   /* path of a node of the units, in kernels too -> its piece + 1,
                   of the first block that it stands for */
  Names *names; /* of these paths, of a chain without units */
  VEC(SharedParam) shared;
  /* By piece, but the last: the value at its border where that lies inside of a
   * kernel, which a cut there divides.  Type NULL: between kernels. */
  const InnerBorder *inner;
} StageChain;

typedef enum BorderPlaces {
  BORDERS_between_kernels,
  BORDERS_all /* inside of kernels, too */
} BorderPlaces;

/* Where there are too many borders, those between the blocks of repeats are
 * taken. */
StageChain stage_chain_of(Arena *arena, const PlanPaths *paths,
                          const Units *units, BorderPlaces borders);
/* The chain of a model without units: borders where up to so many values that
 * parameters have a part in are read behind.  `named` has the paths of the
 * forward graph. */
StageChain stage_chain_of_forward(Arena *arena, const PlanPaths *paths,
                                  const UnitRepeats *repeats, int most_open);
/* Returns the piece of a path of the units' graph.  Returns -1 for one that the
 * model does not have. */
int stage_chain_piece(const StageChain *chain, Name path);
/* Returns whether copy `i` of the unit that makes a value is in another piece
 * than the reader. */
bool unit_edge_leaves(const UnitPieces *from, const UnitPieces *to, int i);

#endif
