/*
 * program_actions.h -- declares how a program becomes lists of the simulator.
 */
#ifndef PRICE_PROGRAM_ACTIONS_H
#define PRICE_PROGRAM_ACTIONS_H

#include "ir/program.h"
#include "price/collectives.h"

typedef VEC(SimAction) SimActions;

/* What a rank does in a step, as the first of its device classes does it. */
typedef struct ProgramFigures {
  Bytes sent;
  int64_t n_launches, n_transfers;
  int64_t n_measured; /* launches that the profile had */
  Ps measured, launches;
} ProgramFigures;

/* An entry point with the ranks that run it.  The ranks of each group of the
 * cluster are a class: one program, launches with the times of their device. */
typedef struct ProgramActions {
  Arena *arena;
  const EntryPoint *entry;
  int program;             /* its number */
  ClusterSlice slice;      /* its ranks */
  const CostModel *models; /* by class, which are the groups of the slice */
  SimActions *actions;     /* by class */
  int **queue_of; /* by stage: queues of the rank, by queue of the list */
  int n_queues;
  const SharedLinks *links;
  SimTransfers *transfers; /* of all programs */
  int *first_id;           /* by stage: identifier of its first instruction */
  ProgramFigures figures;
} ProgramActions;

/* Numbers the queues and instructions of a program. */
void program_actions_prepare(ProgramActions *program);
/* Fills in actions, figures and transfers. */
void program_actions_fill(ProgramActions *program);

#endif
