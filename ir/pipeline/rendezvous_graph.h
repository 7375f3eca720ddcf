/*
 * rendezvous_graph.h -- declares what the files of the proof share.
 */
#ifndef IR_PIPELINE_RENDEZVOUS_GRAPH_H
#define IR_PIPELINE_RENDEZVOUS_GRAPH_H

#include "ir/pipeline/rendezvous.h"

/* A program, its actions numbered through, class after class. */
typedef struct Matched {
  const RendezvousProgram *program;
  int n;        /* actions */
  int *first;   /* [n_classes + 1]: number of the first action of each class */
  int *partner; /* by action: other action of a message, else -1 */
} Matched;

RendezvousPlace matched_place(const Matched *m, int action);

/* Finds the partner of each message: the first one that a class sends to
 * another is the first that the other receives from it.  Returns false, with
 * the first two that differ, where the two sides do not agree. */
bool rendezvous_match(Arena *arena, const RendezvousProgram *program,
                      Matched *out, RendezvousPlace out_differ[2]);

/* Joins classes that do the same with classes that do the same.  Returns false
 * if there are too many to be worth it. `out_names` has a class of `m` for each
 * class of the result. */
bool rendezvous_fold(Arena *arena, const Matched *m, Matched *out,
                     const int **out_names);

/* Returns the shortest cycle (n_places 0: there is none), in numbers of
 * actions. */
typedef struct Cycle {
  int n;
  const int *actions;
} Cycle;
Cycle rendezvous_cycle(Arena *arena, const Matched *m, RendezvousOrder order);

#endif
