/*
 * collectives.h -- declares the transfers that the collectives of a list are in
 * a program of the simulator.
 */
#ifndef PRICE_COLLECTIVES_H
#define PRICE_COLLECTIVES_H

#include "price/cost.h"

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

typedef struct Collectives {
  Arena *arena;
  const Mesh *mesh;
  const ClusterSlice *slice;
  const CostModel *models; /* models by class */
  int n_classes;           /* groups of the slice */
  /* Groups of each set of mesh axes that was asked for. */
  VEC(ProcessGroups *)
  groups;
  VEC(CollectiveKind) kinds;
  VEC(SimTransfer) transfers;
} Collectives;

/* Returns the kind of a collective over these axes, by its index.  `part` is
 * what the wait for it is counted as. */
int collectives_find(Collectives *c, Op op, CostTerm part, AxisSet axes,
                     Bytes sent, int queue);

/* Fills in the links of the program: those of the cluster, for each queue its
 * own where contention is left out. */
int collectives_links(const Collectives *c, int n_queues);

#endif
