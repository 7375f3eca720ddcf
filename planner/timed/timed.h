/*
 * timed.h -- declares the search for stages of models that no elimination
 * takes, such as nets with loops: a stage costs what the simulator says of the
 * nodes in it, under plans of one program on one rank.
 *
 *     forward graph             borders that few values go over, by piece
 *     one rank, B / k samples   simulated time of each piece, for some k
 *     ranks x micro-batches     costs of pieces at B / (ranks x micro-batches)
 *     these costs               cuts, ranks, schedules as of other models
 *
 * All ranks of a stage share the batch.
 */
#ifndef PLANNER_TIMED_TIMED_H
#define PLANNER_TIMED_TIMED_H

#include "planner/stages/rank_options.h"

/* ---- timed_chain.c ---- */

/* A parameter that several pieces read. */
typedef struct TimedShared {
  int first, last;
  Bytes bytes;
} TimedShared;

/* A chain with the bytes over borders and of parameters, of the whole batch. */
typedef struct TimedChain {
  StageChain chain;
  const Bytes *sent;   /* by piece: values that are read behind it */
  const Bytes *params; /* by piece: of those that it is the first to read */
  VEC(TimedShared) shared;
} TimedChain;

TimedChain timed_chain_of(Arena *arena, const PlanPaths *paths,
                          const UnitRepeats *repeats);
/* Leaves the borders `is_kept`, by piece. */
void timed_chain_thin(Arena *arena, TimedChain *chain, const bool *is_kept);
/* Returns the piece of a path, or of the longest part of it that is one.
 * Returns -1 if there is none. */
int timed_chain_piece(const TimedChain *chain, const char *path);

/* ---- timed_samples.c ---- */

/* One micro-batch of B / parts samples on one rank. */
typedef struct PieceTimes {
  Ps forward, input_grad, weight_grad;
} PieceTimes;

typedef struct TimedSample {
  int64_t parts, first_rank; /* first_rank: of its device, in the slice */
  const PieceTimes *pieces;
  const Bytes *saved; /* by piece */
  Ps update;          /* a step */
  Bytes persistent;
  Bytes scratch; /* beside what persists, is saved, and gradients */
} TimedSample;

typedef struct TimedNodes {
  const StageSearch *search;
  TimedChain of;
  int n_parts;
  const int64_t *parts; /* that are simulated, ascending */
  VEC(const TimedSample *) samples;
  Map *rates; /* of sums of gradients, by shape */
} TimedNodes;

/* Returns the times of pieces of B / parts samples on the device of a rank, on
 * a line between the two next numbers that are simulated.  Returns NULL if
 * these are refused. */
const TimedSample *timed_sample(TimedNodes *nodes, int64_t parts,
                                int64_t first_rank);
/* Joins pieces that take little, but for borders that are pinned: by piece, or
 * NULL. */
void timed_join_pieces(TimedNodes *nodes, const bool *is_pinned);

/* ---- timed_costs.c ---- */

/* Returns the costs of pieces on the ranks of a shape, or NULL. */
const StageCosts *timed_costs(TimedNodes *nodes, const RankShape *shape,
                              const RankSetting *setting);

/* ---- timed.c ---- */

/* Most of equal stages, of unequal ones, and half of the moves of the former.
 */
enum { MOST_TIMED_PRICES = 12 };

/* Prices plans with stages of a search whose units are refused.  Returns why
 * none is looked for, or NULL. */
const char *price_timed(StageSearch *search);

/* ---- timed_equal.c ---- */

/* Prices plans with stages of equal numbers of ranks. */
void price_timed_equal(StageSearch *search, TimedNodes *nodes, int most);

#endif
