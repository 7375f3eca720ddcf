/*
 * schedule_list.h -- declares how the calls of a pipeline become a program of
 * the simulator.  Messages take no time.
 */
#ifndef PRICE_SCHEDULE_LIST_H
#define PRICE_SCHEDULE_LIST_H

#include "ir/pipeline/pipeline.h"
#include "price/simulate.h"

typedef struct ScheduleTimes {
  Ps forward, input_grad, weight_grad;
} ScheduleTimes;

/* A call, or several that are joined. */
typedef struct ScheduleAction {
  int rank;
  int first, end; /* tokens of the list of its rank */
  Ps duration;
} ScheduleAction;

typedef struct ScheduleList {
  const Pipeline *pipeline;
  int n_ranks, n_stages, n_microbatches, n_actions;
  const ScheduleAction *actions; /* `id` of the simulator's launches */
  SimProgram program;            /* one class for each rank */
  const int *senders; /* the action before each transfer, by transfer */
  Ps *work;           /* work by rank */
  /* Most micro-batches of stages between F and B, or W, at a time, by rank. */
  int *peak_live;
} ScheduleList;

/* Returns the program of a pipeline, whose calls have what they need
 * (pipeline_check_calls).  The last one of an action of several parts makes all
 * results. */
ScheduleList *schedule_list_make(Arena *arena, const Pipeline *pipeline,
                                 const ScheduleTimes *times);
/* Reads a list.  Returns NULL, with messages, where the list cannot be run. */
ScheduleList *schedule_list_read(Arena *arena, Diags *diags,
                                 const Source *source,
                                 const ScheduleTimes *times);

#endif
