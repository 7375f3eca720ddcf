/*
 * price.h -- declares what one run of an instruction list costs on a cluster.
 */
#ifndef PASSES_PLAN_PRICE_H
#define PASSES_PLAN_PRICE_H

#include "ir/instructions.h"
#include "passes/plan/cost.h"

/* The parts add up to `step`. */
typedef struct Price {
  Ps step;
  Ps parts[N_COST_PARTS];
  Ps compute, exposed; /* of it: kernels run; the stream waits for transfers */
  Bytes sent;          /* by a rank */
  int64_t n_launches, n_transfers;
} Price;

/* One run of a collective over these axes in which a rank sends so many bytes,
 * under the part of its kind. */
SimTransfer price_message(Arena *arena, const CostModel *model,
                          const Cluster *cluster, const Mesh *mesh, Op op,
                          AxisSet axes, Bytes sent);
/* The same of a node. */
SimTransfer price_transfer(Arena *arena, const CostModel *model,
                           const Cluster *cluster, const Graph *graph, int id);

/* A part that `model` leaves out costs nothing.  Ranks of the list's mesh are
 * the first ones of the cluster, which has one group of devices and enough of
 * them. `span` (or NULL) gets each launch and transfer, whose id is the number
 * of its instruction. */
Price price_list(Arena *arena, const InstructionList *list,
                 const CostModel *model, const Cluster *cluster, SimSpan *span,
                 void *user);

#endif
