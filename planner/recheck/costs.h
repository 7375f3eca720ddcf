/*
 * costs.h -- declares what a unit costs under an assignment, and a value that
 * goes from one unit to another, for those who check a bound.
 *
 * Nothing here is shared with the tables of the search, nor made fast like
 * them: times are sums over kernels and messages as the formulas have them.
 */
#ifndef PLANNER_RECHECK_COSTS_H
#define PLANNER_RECHECK_COSTS_H

#include "price/units/bound_walk.h"

/* How long bytes keep each link busy. */
typedef struct Busy {
  double of[N_LOAD_LINKS];
} Busy;

/* The part that depends on the level of ZeRO. */
typedef struct StateCost {
  double gathers, sums; /* the link that is busy longest; sums: of gradients,
                           of no more elements than some placement has */
  Busy gather_links, sum_links;
  double update;
  double whole_casts; /* what casts of whole parameters take beyond those of
                         the shards that ranks cast */
  double state, gradients; /* bytes */
} StateCost;

/* In a step with all its micro-batches. */
typedef struct UnitCost {
  double casts; /* of parameters: a part of `forward` that never runs again */
  double forward, chain; /* kernels: forward pass, input gradients */
  double weights;        /* weight gradients, at least: each may be
                            placed otherwise, but where the assignment
                            makes it a sum it is one */
  double light[2];       /* parts of forward and chain that do not
                            count beside what no kernel hides */
  double cut[2];         /* sums that no kernel hides: forward,
                            backward */
  Busy links[2];
  StateCost zero[N_ZERO_LEVELS];
  double saved, left; /* least bytes of a micro-batch; left: by blocks that are
                         computed again */
  bool runs_again;    /* if its block is computed again */
} UnitCost;

typedef struct EdgeCost {
  bool is_possible;
  double wait; /* of a reader, right after another transfer */
  Busy links;
} EdgeCost;

/* Costs of launches and messages, which are remembered. */
typedef struct Costs Costs;
Costs *costs_create(Arena *arena, const BoundRequest *request);
void costs_destroy(Costs *costs);
/* From then on, costs are those of a mesh on some ranks and of so many
 * micro-batches.  `ranks`: NULL if nothing sent counts. */
void costs_set(Costs *costs, const ClusterSlice *ranks, const Mesh *mesh,
               int64_t microbatches);

/* Returns whether the shards of all dims are legal, and pad little. */
bool costs_allow(const Costs *costs, const PlanUnit *unit,
                 Assignment assignment);
/* Returns whether the unit shards the batch over these axes, or has none. */
bool costs_shard_batch(const Costs *costs, const PlanUnit *unit,
                       Assignment assignment, int axes);
UnitCost cost_of_unit(Costs *costs, int unit, Assignment assignment);
/* Returns how long a kernel of the unit runs in a step. */
double cost_of_kernel(Costs *costs, int unit, int kernel,
                      Assignment assignment);
/* Returns the least bytes of a saved value in a micro-batch. */
double cost_of_saved(const Costs *costs, int unit, int saved);
/* Returns the cost for one reader of the value. */
EdgeCost cost_of_edge(Costs *costs, const UnitEdge *edge, Assignment from,
                      Assignment to);

/* Returns the axes that shard a loop dim, in their order; -1: none. */
AxisList costs_axes(const Costs *costs, Assignment assignment, int loop);
/* Returns the axes that shard any of these dims. */
AxisSet costs_axes_of(const Costs *costs, Assignment assignment, LoopSet loops);

#endif
