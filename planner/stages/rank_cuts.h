/*
 * rank_cuts.h -- declares the choice of cuts and ranks together: which pieces
 * each stage has, and on how many ranks.
 *
 *     pieces   a b c d | e | f g      ranks   0..3 | 4 | 5..7
 *
 * Stages are on ranks that follow each other, in the order of the pieces.
 */
#ifndef PLANNER_STAGES_RANK_CUTS_H
#define PLANNER_STAGES_RANK_CUTS_H

#include "planner/stages/stage_costs.h"

/* Ranks that a stage may be on, and what pieces cost there. */
typedef struct RankOption {
  int ranks;
  const StageCosts *costs;
  const bool *may_begin; /* [rank]: it may be on the ranks from this one on */
  Bytes memory;          /* of a rank */
  int shape;             /* of the ranks; those of one begin alike */
  const struct Proposal *proposal; /* how the mesh has the operators */
} RankOption;

/* Returns the time of a message of a micro-batch behind a piece, from a stage
 * on option `from` that begins at a rank to one on option `to` behind it. */
typedef Ps RankMessage(void *user, int piece, int from, int first, int to);

typedef struct RankCutsRequest {
  int n_pieces, n_ranks;
  int most_stages;
  int microbatches;
  int over; /* estimates of bytes may be as many times what a rank has */
  int n_options;
  const RankOption *options;
  const int *frames; /* by stage, counted from the last one: micro-batches
                        whose values it keeps */
  RankMessage *message;
  void *user;
} RankCutsRequest;

typedef struct RankedStage {
  int option, first_rank;
  int end; /* the piece behind its last one */
} RankedStage;

/* The tables of a request. */
typedef struct RankCuts RankCuts;
RankCuts *rank_cuts_create(Arena *arena, const RankCutsRequest *request);

/* Returns what a micro-batch takes of a stage, with its part of what a step
 * takes. */
Ps rank_stage_time(const RankCutsRequest *request, int option, int first,
                   int end);
/* Returns whether the stage has the memory; `place`: it is the place-th from
 * the last one on, which is 0. */
bool rank_stage_fits(const RankCutsRequest *request, int option, int first,
                     int end, int place);

/* Finds the stages, so many and on all ranks, whose slowest one takes least;
 * each pays for both messages behind it.  With `cap` those that take the least
 * sum, each at most so long.  Returns that time; INT64_MAX: none fit. */
Ps rank_cuts_find(RankCuts *cuts, int n_stages, Ps cap, RankedStage *out);

#endif
