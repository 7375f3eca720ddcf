/*
 * loads.h -- declares what a unit under an assignment, and a value between two
 * units, load on the stream and the links of a rank in a step.
 */
#ifndef PLANNER_LOADS_H
#define PLANNER_LOADS_H

#include "price/price_list.h"
#include "price/units/assignment.h"
#include "price/units/units.h"

/* At least the time that bytes take of each link of a rank, as cost_links
 * counts them; links behind these are left out. */
typedef struct LinkLoad {
  Ps busy[N_LOAD_LINKS];
} LinkLoad;

/* Loads that depend on the level of ZeRO. */
typedef struct ZeroLoad {
  /* Transfers that nobody waits for before the update, and those of them that
   * sum gradients. */
  Ps bulk, summed;
  LinkLoad sums, gathers; /* of gradients, of parameters */
  /* `summed`, `sums` and `gradient` of the least placement. */
  Ps least_summed;
  LinkLoad least_sums;
  Bytes least_gradient;
  Ps update;
  Ps less_cast; /* `forward` has casts of whole parameters: at most so much
                   less if ranks cast their shards */
  Bytes state, gradient; /* gradient: at the end of the backward pass */
  Bytes least_state;     /* no plan has less of it */
} ZeroLoad;

/* In a step, with all its micro-batches. */
typedef struct Load {
  Ps forward, input_gradient, weight_gradient; /* of the stream */
  Ps least_weights; /* weight gradients, each placed so that it takes least */
  Ps casts;    /* of parameters, a part of `forward` that never runs again */
  Ps light[2]; /* of light kernels: forward, input gradient */
  Ps wait[2];  /* transfers that a reader waits for: forward, backward */
  Ps cut[2];   /* part of it: no kernel can hide them; at least */
  LinkLoad links[2];
  ZeroLoad zero[N_ZERO_LEVELS];
  /* In one micro-batch; where blocks are computed again, what blocks leave. */
  Bytes saved, left;
  Bytes least_saved, least_left; /* no plan has less of these */
  Bytes transient; /* the largest kernel: its operands and results */
  Bytes beside;    /* ... of a backward pass, but for those that are saved,
                      persistent or added up */
} Load;

/* Times of kernels by the parts of their dims, and chains of reshardings and
 * messages by mesh: loads of all micro-batches share them, those of several
 * meshes share the times.  They lie in the arena; meshes, cost models and the
 * graph must outlive it. */
typedef struct MeshChains MeshChains;
MeshChains *mesh_chains_create(Arena *arena);

typedef struct LoadRequest {
  const Units *units;
  const Mesh *mesh;
  const ClusterSlice *slice;
  const CostModel *model;
  int64_t microbatches;
  MeshChains *chains; /* what is known, or NULL */
  /* By group of the slice, where messages are those of the ranks of group
   * `group`, and links are numbered as cost_link_of_group does.  NULL: the
   * slowest ranks count. */
  const CostModel *models;
  int group;
} LoadRequest;

/* Costs that are computed when they are first asked for. */
typedef struct Loads Loads;
Loads *loads_create(Arena *arena, const LoadRequest *request);

/* Returns kernel_key of a node. */
uint64_t loads_kernel_key(Loads *loads, int id);
/* Returns false if the sizes do not allow it. */
bool loads_allow(const Loads *loads, int unit, Assignment assignment);
/* An axis that shards a dim of a weight gradient may shard another one of it
 * than the assignment says: the least of these loads are there, too.  What the
 * assignment makes a sum, or a copy, is one. */
Load loads_of_unit(Loads *loads, int unit, Assignment assignment);
/* The launches of a kernel of the unit in a step: part of its load. */
Ps loads_of_kernel(Loads *loads, int unit, int kernel, Assignment assignment);
/* The least bytes of a saved value in a micro-batch. */
Bytes loads_of_saved(const Loads *loads, int unit, int saved);
/* The loads of bringing the value of an edge where its reader wants it,
 * divided by the readers of the value, which may share it, the unit that makes
 * it included if it sums it. */
typedef struct EdgeLoad {
  Ps wait, least; /* least: right after another transfer */
  LinkLoad links;
} EdgeLoad;
EdgeLoad loads_of_edge(Loads *loads, const UnitEdge *edge, Assignment from,
                       Assignment to);
/* The axes that shard a loop dim. */
AxisList assignment_axes(const Mesh *mesh, Assignment assignment, int loop);

#endif
