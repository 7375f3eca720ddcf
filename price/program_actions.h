/*
 * program_actions.h -- declares how a program becomes lists of the simulator.
 */
#ifndef PRICE_PROGRAM_ACTIONS_H
#define PRICE_PROGRAM_ACTIONS_H

#include "ir/program.h"
#include "price/collectives.h"
#include "price/messages.h"
#include "price/price_list.h"

typedef VEC(SimAction) SimActions;

/* The work of a rank in a step, as the first of its device classes does it. */
typedef struct ProgramFigures {
  Bytes sent;
  int64_t n_launches, n_transfers;
  int64_t n_measured; /* launches that the profile had */
  Ps measured, launches;
} ProgramFigures;

/* The messages of an edge, between programs that follow each other: that from
 * program `from` + i to `to` + k is number `first` + i * n_to + k.  Without
 * periods there is one program on each side. */
typedef struct EdgePrograms {
  int from, n_from, to, n_to, first;
} EdgePrograms;

/* An entry point with the ranks that run it.  The ranks of each group of the
 * cluster are a class: one program, launches with the times of their device. */
typedef struct ProgramActions {
  Arena *arena;
  const EntryPoint *entry;
  int program;             /* its number */
  ClusterSlice slice;      /* its ranks */
  const CostModel *models; /* by class, which are the groups of the slice */
  /* Ranks that come to its collectives, with models by group: of a replica
   * those of all replicas of the stage, else its own. */
  ClusterSlice members;
  const CostModel *models_of_members;
  int replica, n_replicas;            /* each of them is a program */
  const struct ProgramActions *first; /* that of replica 0, or NULL */
  const Collectives *collectives;     /* of its first stage */
  SimActions *actions;                /* by class */
  int **queue_of; /* by stage: queues of the rank, by queue of the list */
  VEC(PriceQueue) queues;
  const SharedLinks *links;
  SimTransfers *transfers;   /* of all programs */
  int *first_id;             /* by stage: identifier of its first instruction */
  const EdgePrograms *edges; /* by edge */
  const MessageTransfers *messages; /* by number */
  int first_call_id; /* of a message: this and its place in the timeline */
  int *call_begin;   /* [class * n_calls + call]: index of its first action */
  ProgramFigures figures;
} ProgramActions;

/* Numbers the queues and instructions of a program. */
void program_actions_prepare(ProgramActions *program);
/* Returns the stage of this number, of the model's.  Returns -1 if the program
 * does not run it. */
int program_find_stage(const EntryPoint *entry, int number);
/* Returns the queue of messages to, or from, this peer. */
int program_message_queue(const ProgramActions *program, int peer,
                          LinkDirection direction);
/* Fills in actions, figures and transfers. */
void program_actions_fill(ProgramActions *program);
/* Returns the place in the timeline of an action of a class. */
int program_actions_call(const ProgramActions *program, int class, int action);

#endif
