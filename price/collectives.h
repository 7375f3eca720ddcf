/*
 * collectives.h -- declares the transfers that the collectives of a list are in
 * a program of the simulator.
 */
#ifndef PRICE_COLLECTIVES_H
#define PRICE_COLLECTIVES_H

#include "price/shared_links.h"

/* Collectives that the simulator cannot tell from each other. */
typedef struct CollectiveKind {
  Op op;
  AxisSet axes;
  Bytes sent;       /* bytes that each rank sends */
  int queue;        /* queue of the list */
  int *transfer_of; /* index into the transfers, by class */
  int64_t n_starts; /* number of starts up to this place of the list */
} CollectiveKind;

typedef struct ProcessGroups ProcessGroups;

typedef struct Collectives Collectives;

struct Collectives {
  Arena *arena;
  const Mesh *mesh;
  const ClusterSlice *slice;
  const CostModel *models; /* models by class */
  int n_classes;           /* groups of the slice */
  /* Groups of each set of mesh axes that was asked for. */
  VEC(ProcessGroups *)
  groups;
  VEC(CollectiveKind) kinds;
  int program;
  /* Programs of one rank each come to one transfer: so many, from this one on.
   * Those after the first of them have its kinds.  1: the program has all ranks
   * of the slice. */
  int n_programs;
  const Collectives *first; /* NULL: this is the first one */
  const SharedLinks *links;
  SimTransfers *transfers; /* to which it adds */
};

/* Returns the kind of a collective over these axes, by its index.  `part` is
 * what the wait for it is counted as. */
int collectives_find(Collectives *c, Op op, CostTerm part, AxisSet axes,
                     Bytes sent, int queue);

/* Returns the part as which the waits for a collective are counted. */
CostTerm collectives_part(Op op);

#endif
