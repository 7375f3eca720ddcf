/*
 * tables.h -- declares the price of a plan as a sum over the operators and the
 * reshardings that `partition` decides on, each looked up in a table by its
 * operator, attributes and placed types.
 *
 * A sum has no order: it is what the stream runs and what the links carry, not
 * what a step waits for.
 */
#ifndef PLANNER_TABLES_H
#define PLANNER_TABLES_H

#include "ir/place/reshard.h"
#include "passes/passes.h"
#include "price/price_list.h"

/* Launches of one part in a step. */
typedef struct LaunchSum {
  int64_t n;
  Bytes moved; /* read and written */
  Ps time;
} LaunchSum;

/* Collectives of one kind over the same axes in a step. */
typedef struct TransferSum {
  Op op;
  AxisSet axes;
  int64_t n;
  Bytes sent;   /* bytes that a rank sends */
  Ps busy;      /* time of the link that each keeps busy longest */
  Ps latencies; /* time before their first bytes */
} TransferSum;

typedef struct PlanSum {
  LaunchSum parts[N_COST_PARTS]; /* parts of kernels */
  Ps launch;                     /* time between kernels */
  VEC(TransferSum) transfers;
} PlanSum;

/* Costs of operators and transfers on one cluster, which are computed when they
 * are first asked for.  They depend on no plan, so one table serves all plans
 * that are compared. */
typedef struct PlanTables PlanTables;
PlanTables *plan_tables_create(Arena *arena, const CostModel *model,
                               const ClusterSlice *slice);
/* Counts how many costs it has, and how often one was asked for. */
void plan_tables_count(const PlanTables *tables, int *out_entries,
                       int64_t *out_lookups);

/* Returns the sum of a step of the graph that enters `partition`, under the
 * plan of `ctx`.  Collectives count as they are before buckets join
 * them.  Reports nothing; returns NULL if partition refuses the plan. */
const PlanSum *plan_tables_sum(PlanTables *tables, const PassContext *ctx,
                               const Graph *planning);

/* Adds to `sum`, whose transfers are in `arena`, what it takes in a step to
 * bring a value from one placement to another, by the cheapest chain of
 * `chains`, which are those of the mesh, or by one reduction; sums are sent in
 * the dtype `reduced`.  Returns false if there is no chain. */
bool plan_tables_reshard(PlanTables *tables, Arena *arena, Resharding *chains,
                         const Mesh *mesh, const Type *from, const Type *to,
                         DType reduced, PlanSum *sum);

/* Returns the sum of an instruction list, launch by launch and without tables.
 */
const PlanSum *plan_list_sum(Arena *arena, const CostModel *model,
                             const ClusterSlice *slice,
                             const InstructionList *list);

/* ---- placed_runs.c ---- */

/* Returns, by node of a partitioned graph, how often it runs in a step.  The
 * result is in scratch memory of `ctx`. */
int64_t *placed_runs(PassContext *ctx, const Graph *placed);
/* Returns how often each node of the body of a scan runs in an iteration. */
int64_t *body_runs(Arena *scratch, const Graph *body);

#endif
