/*
 * price_list.h -- declares the price of a program: the predicted time of one
 * training step on the devices and links of a cluster, and the parts that this
 * time is made of, such as kernels and transfers.
 */
#ifndef PRICE_PRICE_LIST_H
#define PRICE_PRICE_LIST_H

#include "ir/program.h"
#include "price/shared_links.h"

/* A queue of a rank: of a stage's list, or of messages in one direction. */
typedef struct PriceQueue {
  InstructionQueue queue;
  int peer; /* messages: number of the other rank minus that of its own; or 0 */
  LinkDirection direction;
} PriceQueue;

/* The ranks of one group of the cluster that run one program.  The parts add up
 * to a step of theirs. */
typedef struct PriceClass {
  int program;
  int64_t first_rank; /* rank of the slice */
  const ClusterGroup *group;
  const CostModel *model; /* model of its devices */
  int ranks;
  int n_queues;
  const PriceQueue *queues;
  /* Begin of its last step, after the first class has begun its own. */
  Ps begin;
  Ps step;
  Ps parts[N_COST_PARTS];
  /* Parts of it: kernels run; the stream waits for transfers. */
  Ps compute, exposed;
  Bytes sent; /* by a rank in a step, or in a period of several batches */
} PriceClass;

/* A call before which all ranks of a class wait for ever. */
typedef struct PriceWait {
  int class, call; /* call: place in the timeline of its program */
} PriceWait;

/* The loads of a step with servers of parameters, in which each worker makes
 * one clock, in the mean: none of them is longer than that step. */
typedef struct ServerLoads {
  int n, workers;
  int64_t staleness;     /* -1: replies wait for no other worker */
  Ps compute;            /* of a worker, the mean */
  Ps link;               /* what the fullest link carries keeps it busy */
  int64_t link_rank;     /* the first rank that has this link */
  LinkDirection link_to; /* into it, or out of it */
  Ps service;            /* of the server that is busy for longest */
  int64_t service_rank;
  Ps fastest, slowest; /* clock of a worker, the mean of each */
} ServerLoads;

typedef struct Price {
  /* They wait for each other: each for the next one, and the last for the
   * first.  None of what follows is known then. */
  int n_stuck;
  const PriceWait *stuck;
  Ps step; /* step of the slowest class */
  /* Parts of the class that computes longest of those. */
  Ps parts[N_COST_PARTS];
  Ps compute, exposed;
  /* Bytes that a rank of its program sends, and what follows. */
  Bytes sent;
  int64_t n_launches, n_transfers;
  /* The number of launches that the profile had, their time, and that of all
   * launches, in the first class of the program. */
  int64_t n_measured;
  Ps measured, launches;
  /* A period of stages with replicas has several batches.  Times are those of
   * one of them, on average; bytes, launches and transfers those of all. */
  int n_batches;
  bool has_messages;      /* between programs */
  int n_classes, slowest; /* slowest: the class of `step` and `parts` */
  PriceClass *classes;
  const ServerLoads *servers; /* NULL: the plan has none */
  /* Actions of the first class before and after folding. */
  int n_actions, n_folded;
} Price;

/* Returns whether a step may have this part. */
bool price_has_part(const Price *price, CostTerm part);
/* Returns one run of a collective over these axes in which a rank sends so many
 * bytes, under the part of its kind; the slice has one group of devices. */
SimTransfer price_message(Arena *arena, const CostModel *model,
                          const ClusterSlice *slice, const Mesh *mesh, Op op,
                          AxisSet axes, Bytes sent);
/* Returns it as the ranks of one group of devices have it, the group with this
 * index in the slice; `models` are those of all groups. */
SimTransfer price_message_of_group(Arena *arena, const CostModel *models,
                                   const ClusterSlice *slice, int group,
                                   const Mesh *mesh, Op op, AxisSet axes,
                                   Bytes sent);
/* Returns one run of the collective of a node. */
SimTransfer price_transfer(Arena *arena, const CostModel *model,
                           const ClusterSlice *slice, const Graph *graph,
                           int id);

/* Returns the models of the groups of devices of the slice; `model` is that of
 * the first one. */
const CostModel *price_models(Arena *arena, const CostModel *model,
                              const ClusterSlice *slice);

/* An entry point with the ranks that run it. */
typedef struct PriceProgram {
  const EntryPoint *entry;
  RankRange ranks; /* ranks of the slice */
} PriceProgram;

/* Returns the price of entry points that run at one time, on ranks that ascend;
 * those of one have as many ranks as its meshes, but for periods, where each
 * replica of a stage is a program.  `model` is that of the
 * devices of the first group; those of the others leave the same terms out.  A
 * part that they leave out costs nothing.  Equal parts of the programs are
 * folded, unless there is a `tell`, which gets each launch, wait and transfer
 * of the last step with the number of its instruction, counted through the
 * stages of its program, and a wait with that of the start that it is for.  The
 * price is the same. */
Price price_programs(Arena *arena, const PriceProgram *programs, int n,
                     const CostModel *model, const ClusterSlice *slice,
                     SimTell *tell, void *user);
/* Returns the price of one program on all ranks of the slice. */
Price price_program(Arena *arena, const EntryPoint *entry,
                    const CostModel *model, const ClusterSlice *slice,
                    SimTell *tell, void *user);

#endif
