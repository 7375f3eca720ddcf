/*
 * stage_bytes.h -- declares the bytes of pieces under an assignment, in the
 * parts of the arena of a program with stages.
 *
 *     persistent | step | frames | messages | scratch
 *
 * The first three are sums over pieces; a message depends on the stages of its
 * ends, and the scratch of a stage is that of the piece which needs most.
 */
#ifndef PLANNER_STAGES_STAGE_BYTES_H
#define PLANNER_STAGES_STAGE_BYTES_H

#include "planner/propose.h"
#include "planner/stages/stage_values.h"

/* Sums of pieces; of one micro-batch but for the first two. */
typedef struct PieceBytes {
  Bytes state;    /* parameters and the state of their optimizer */
  Bytes step;     /* gradients, data, gathered and cast parameters */
  Bytes saved;    /* from F to B, or to W where these are apart */
  Bytes early;    /* from F to I: no weight gradient reads it */
  Bytes late;     /* from I to W */
  Bytes gathered; /* parameters that each backward pass gathers */
  Bytes summed;   /* gradients before their sum, and their sums, where each
                     micro-batch has one: all are there at once */
} PieceBytes;

void piece_bytes_add(PieceBytes *sum, const PieceBytes *more);

/* The calls whose scratch is known; joint: I and W in one. */
typedef enum ScratchCall {
  SCRATCH_forward,
  SCRATCH_joint,
  SCRATCH_input,
  SCRATCH_weight,
  N_SCRATCH_CALLS
} ScratchCall;

/* Which values count that come from pieces before this one or go to them, and
 * those of pieces behind it.  Others are messages. */
enum { BESIDE_before = 1, BESIDE_behind = 2, N_BESIDES = 4 };

typedef struct PieceScratch {
  Bytes of[N_SCRATCH_CALLS][N_BESIDES];
} PieceScratch;

/* A value that pieces read which are not that of its maker.  Pieces of readers
 * by kind of call; -1: none. */
typedef struct CrossingValue {
  int piece; /* of its maker */
  int first[N_STAGE_CALLS], last[N_STAGE_CALLS];
  bool is_back;
  Bytes sent;  /* of a rank, as a message */
  Bytes read;  /* of a rank behind it, as its reader has it */
  Bytes saved; /* it counts with so much in `saved`, */
  Bytes early; /* `early` */
  Bytes late;  /* and `late` of its maker */
} CrossingValue;

typedef struct StageBytes {
  const PieceBytes *to;        /* [n + 1]: sums of all pieces before */
  const PieceScratch *scratch; /* by piece */
  VEC(CrossingValue) crossing; /* by the piece of the maker */
} StageBytes;

typedef struct StageBytesRequest {
  const StageChain *chain;
  const StageValues *values;
  const Units *units;
  const Target *target; /* or NULL */
} StageBytesRequest;

StageBytes *stage_bytes_of(Arena *arena, const StageBytesRequest *request,
                           const Proposal *proposal);

/* ---- stage_inner.c ---- */

/* Returns the bytes of a rank that go over a border inside of a kernel. */
Bytes stage_inner_bytes(const StageChain *chain, int piece, const Units *units,
                        const Proposal *proposal);
/* Adds the values at such borders to those that cross. */
void stage_add_inner(Arena *arena, const StageBytesRequest *request,
                     const Proposal *proposal, StageBytes *out);

/* ---- stage_bytes_join.c ---- */

/* Pieces up to before `end`, under an assignment of theirs. */
typedef struct BytesPart {
  const StageBytes *bytes;
  int end;
  double scale; /* of all bytes */
} BytesPart;
/* Returns the bytes of stages that have an assignment each: the pieces of the
 * result are these stages. */
StageBytes *stage_bytes_join(Arena *arena, const BytesPart *parts, int n);
/* Returns the most scratch of pieces `first` to before `end`, as those of one
 * stage. */
Bytes stage_scratch(const StageBytes *bytes, ScratchCall call, int first,
                    int end);

#endif
