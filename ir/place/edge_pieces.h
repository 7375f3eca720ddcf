/*
 * edge_pieces.h -- declares the pieces in which the value of an edge goes from
 * the ranks of one stage to those of another, whose meshes differ.
 */
#ifndef IR_PLACE_EDGE_PIECES_H
#define IR_PLACE_EDGE_PIECES_H

#include "ir/place/mesh_place.h"

/* The part of a value that one rank sends to another one: runs of elements,
 * each of which is contiguous on both sides. */
typedef struct EdgePiece {
  int from, to; /* ranks, counted from the first one of their stage */
  int64_t run;  /* elements of each run */
  int n_runs;
  const int64_t *from_at, *to_at; /* [n_runs]: first element, of the local value
                                     of the sender and of the receiver */
} EdgePiece;
typedef VEC(EdgePiece) EdgePieces;

/* A value on the ranks of a stage.  The ranks may be more than those of the
 * mesh, if that has one: then all of them have the value in full. */
typedef struct EdgeSide {
  const Type *type;
  const Mesh *mesh;
  int n_ranks;
} EdgeSide;

/* Returns whether rank i has the same elements on both sides, at the same
 * places. */
bool edge_sides_equal(const EdgeSide *from, const EdgeSide *to);
/* Returns how many runs all pieces have together. */
int64_t edge_runs(Arena *arena, const EdgeSide *from, const EdgeSide *to);
/* Finds the pieces by sender and receiver, ascending.  Each element that a
 * receiver has comes from one sender; where several have it, receivers are
 * dealt out among them.  The shapes are equal, and nothing is partial. */
EdgePieces edge_pieces(Arena *arena, const EdgeSide *from, const EdgeSide *to);
/* Returns the elements of a piece. */
int64_t edge_piece_elements(const EdgePiece *piece);
/* Returns the most pieces that one rank sends or receives, or 1. */
int edge_pieces_most(Arena *arena, const EdgePieces *pieces);

#endif
