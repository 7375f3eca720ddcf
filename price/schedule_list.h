/*
 * schedule_list.h -- declares how a pipeline schedule as a list of actions, in
 * the notation of torch.distributed.pipelining, becomes a program of the
 * simulator.
 *
 *     0F0,0F1,,0B0,0B1     one line per rank, run from left to right: stage,
 *     1F0,1B0,1F1,1B1      kind, micro-batch; an empty cell is no action
 *
 * Kinds: F forward; B backward, which is I and W together; I gradient of the
 * stage's input; W gradient of its weights.  "(0F7;7B3)OVERLAP_F_B" is one
 * action of several parts, whose results are there at its end.  Messages take
 * no time: tokens with SEND, RECV, UNSHARD, RESHARD and REDUCE_GRAD are read
 * and left out.
 */
#ifndef PRICE_SCHEDULE_LIST_H
#define PRICE_SCHEDULE_LIST_H

#include "price/simulate.h"

typedef struct ScheduleTimes {
  Ps forward, input_grad, weight_grad;
} ScheduleTimes;

typedef struct ScheduleAction {
  int rank;
  Span span; /* place of its cell */
  Ps duration;
} ScheduleAction;

typedef struct ScheduleList {
  int n_ranks, n_stages, n_microbatches, n_actions;
  const ScheduleAction *actions; /* `id` of the simulator's launches */
  SimProgram program;            /* one class for each rank */
  const int *senders; /* the action before each transfer, by transfer */
  Ps *work;           /* work by rank */
  /* Most micro-batches of stages between F and B, or W, at a time, by rank. */
  int *peak_live;
} ScheduleList;

/* Reads a list.  Returns NULL, with messages, where the list cannot be run. */
ScheduleList *schedule_list_read(Arena *arena, Names *names, Diags *diags,
                                 const Source *source,
                                 const ScheduleTimes *times);

#endif
