/*
 * price_list.h -- declares the price of a program: the predicted time of one
 * training step on the devices and links of a cluster, and the parts that this
 * time is made of, such as kernels and transfers.
 */
#ifndef PRICE_PRICE_LIST_H
#define PRICE_PRICE_LIST_H

#include "ir/program.h"
#include "price/cost.h"

/* The ranks of one group of the cluster.  The parts add up to a step of
 * theirs. */
typedef struct PriceClass {
  const ClusterGroup *group;
  const CostModel *model; /* model of its devices */
  int ranks;
  /* Begin of its last step, after the first class has begun its own. */
  Ps begin;
  Ps step;
  Ps parts[N_COST_PARTS];
  /* Parts of it: kernels run; the stream waits for transfers. */
  Ps compute, exposed;
} PriceClass;

typedef struct Price {
  Ps step; /* step of the slowest class */
  /* Parts of the class that computes longest of those. */
  Ps parts[N_COST_PARTS];
  Ps compute, exposed;
  Bytes sent; /* bytes that a rank sends */
  int64_t n_launches, n_transfers;
  /* The number of launches that the profile had, their time, and that of all
   * launches, in the first class. */
  int64_t n_measured;
  Ps measured, launches;
  int n_classes, slowest; /* slowest: the class of `step` and `parts` */
  PriceClass *classes;
  /* Actions of the first class before and after folding. */
  int n_actions, n_folded;
} Price;

/* Returns one run of a collective over these axes in which a rank sends so many
 * bytes, under the part of its kind; the slice has one group of devices. */
SimTransfer price_message(Arena *arena, const CostModel *model,
                          const ClusterSlice *slice, const Mesh *mesh, Op op,
                          AxisSet axes, Bytes sent);
/* Returns one run of the collective of a node. */
SimTransfer price_transfer(Arena *arena, const CostModel *model,
                           const ClusterSlice *slice, const Graph *graph,
                           int id);

/* Returns the price of an entry point.  Rank r of its mesh is rank r of the
 * slice, which has as many.  `model` is that of the devices of its first group;
 * those of the others leave the same terms out.  A part that they leave out
 * costs nothing.  Equal parts of the program are folded, unless there is a
 * `tell`, which gets each launch, wait and transfer of the last step with the
 * number of its instruction, and a wait with that of the start that it is for.
 * The price is the same. */
Price price_program(Arena *arena, const EntryPoint *entry,
                    const CostModel *model, const ClusterSlice *slice,
                    SimTell *tell, void *user);

#endif
