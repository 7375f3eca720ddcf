/*
 * trials.h -- declares how schedules that divide the backward pass choose among
 * orders: each is played with the times of F, I and W, and the shortest is
 * kept.
 */
#ifndef IR_PIPELINE_TRIALS_H
#define IR_PIPELINE_TRIALS_H

#include "ir/pipeline/schedules.h"

/* Where W goes. */
typedef enum TrialWeights {
  TRIAL_given, /* the order has it */
  TRIAL_early, /* behind its I */
  TRIAL_late,  /* where the rank would wait, or has no memory for F */
} TrialWeights;

typedef struct TrialRules {
  TrialWeights weights;
  /* How far behind the next call a rank may look for one that is ready, and how
   * many micro-batches F leaves free when it comes early so. */
  int window, reserve;
} TrialRules;

typedef struct Trials Trials;

/* `most_live`: micro-batches of stages that a rank keeps from F to W. */
Trials *trials_begin(Arena *arena, const PipelineShape *shape, int most_live);
/* Plays an order: calls of each rank, in the order that they begin.  Keeps the
 * lists if they take less time than all before, or as long and no rank as long
 * from its first to its last call. */
void trials_play(Trials *trials, const Tokens *order, TrialRules rules);
/* Plays many orders.  In each of them micro-batches follow each other in equal
 * periods, in which a pass moves from rank to rank in equal steps. */
void trials_play_patterns(Trials *trials);
/* Writes the lists that were kept. */
void trials_end(Trials *trials, Tokens *lists);

#endif
