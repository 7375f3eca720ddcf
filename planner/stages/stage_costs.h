/*
 * stage_costs.h -- declares what stages cost: sums over the units of their
 * pieces, under one assignment of all units on the mesh of a stage.
 */
#ifndef PLANNER_STAGES_STAGE_COSTS_H
#define PLANNER_STAGES_STAGE_COSTS_H

#include "planner/propose.h"
#include "planner/stages/stage_bytes.h"

/* The cost of a stage, or of all pieces up to one. */
typedef struct StageCost {
  /* One micro-batch, with the transfers that it waits for; input_grad has the
   * forward pass of what is computed again. */
  Ps forward, input_grad, weight_grad;
  /* A step: transfers of gradients and parameters, and the update. */
  Ps bulk, update;
  Bytes state, gradient; /* gradient: all that is there for a step */
  Bytes saved;           /* of one micro-batch */
} StageCost;

/* A parameter of two stages: in a step the first one sends it, or its cast, and
 * gets a gradient back, both whole. */
typedef struct SharedCost {
  int first, last;   /* pieces */
  Bytes bytes;       /* whole, */
  Bytes shard;       /* of a rank of the first stage */
  Bytes gradient;    /* and of one of the last stage */
  Bytes cast;        /* whole; 0: its readers read it as it is */
  bool keeps_update; /* as in StageValues */
} SharedCost;

/* A message takes its latency and so much for each byte. */
typedef struct MessageRate {
  Ps latency;
  double per_byte;
} MessageRate;

typedef struct StageCosts {
  int n;               /* pieces */
  const StageCost *to; /* [n + 1]: sums of all pieces before */
  const StageBytes *bytes;
  Bytes transient; /* the most that any piece needs beside */
  /* By piece: what a rank sends on to the next one, and back to it. */
  const Bytes *sent, *sent_back;
  const MessageRate *rates; /* by group of ranks: to the one behind it, from the
                               last to the first */
  int n_shared;
  const SharedCost *shared;
} StageCosts;

typedef struct StageCostsRequest {
  const StageChain *chain;
  const StageValues *values;
  const SpaceRequest *of;    /* the ranks of a stage */
  const ClusterSlice *slice; /* all ranks */
  const Target *target;      /* or NULL */
} StageCostsRequest;

StageCosts stage_costs_of(Arena *arena, const StageCostsRequest *request,
                          const Proposal *proposal);
/* Returns the time of a message of so many bytes to a group of ranks that is no
 * neighbour: as to the farthest one of these. */
Ps stage_far_message(const StageCosts *costs, int groups, Bytes bytes);
/* Returns the time of a message over the border behind a piece, between two
 * groups of ranks, which are neighbours. */
Ps stage_message(const StageCosts *costs, int piece, bool is_back, int from,
                 int to);
void stage_cost_add(StageCost *sum, const StageCost *more);
/* Returns the cost of pieces `first` to before `end`. */
StageCost stage_cost(const StageCosts *costs, int first, int end);

#endif
