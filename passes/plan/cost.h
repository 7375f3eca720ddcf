/*
 * cost.h -- declares what launches and transfers cost on a device and its
 * links: integers in picoseconds, from tables (terms.def, rates.def).
 *
 * Formulas use the four operations on doubles, which round alike on every
 * machine, and no library function.
 */
#ifndef PASSES_PLAN_COST_H
#define PASSES_PLAN_COST_H

#include "ir/cluster.h"
#include "ir/work.h"
#include "passes/plan/simulate.h"

/* Parts of a step's time, then effects. */
typedef enum CostTerm {
#define PART(name, meaning, source) COST_##name,
#include "passes/plan/terms.def"
  N_COST_PARTS,
  COST_before_effects = N_COST_PARTS - 1,
#define EFFECT(name, meaning, source) COST_##name,
#include "passes/plan/terms.def"
  N_COST_TERMS
} CostTerm;

typedef struct CostTermInfo {
  const char *name, *meaning, *source;
  bool is_part;
} CostTermInfo;

const CostTermInfo *cost_term_info(CostTerm term);
/* By its name; -1: there is none. */
int cost_term_find(const char *name);

/* A device as its kernels reach it. */
typedef struct DeviceRates {
  bool is_gpu;
  int units;              /* multiprocessors, or cores of a rank */
  double flops[N_DTYPES]; /* peak of products a second; 0: lacks the dtype */
  double bandwidth;       /* peak, bytes a second */
  double sustained, memory_share, attention, attention_grad; /* of peak */
  int64_t tile_k;
  Ps launch;
  Ps collective;        /* a transfer of nothing */
  double transport;     /* bytes a second that a rank's transport sends */
  int64_t interference; /* of SIM_ONE */
} DeviceRates;

typedef enum Transport { TRANSPORT_mpi, TRANSPORT_nccl } Transport;

typedef struct CostModel {
  DeviceRates rates;
  Transport transport;
  uint32_t without; /* bit of each CostTerm that is left out */
} CostModel;
_Static_assert(N_COST_TERMS <= 32, "a bit for each term");

/* To the nearest; what is too long for Ps is INT64_MAX / 4. */
Ps cost_ps(double seconds);
bool cost_counts(const CostModel *model, CostTerm term);

/* The shares of a preset of rates.def, into `rates`; false: it has none. */
bool cost_rates_of(const char *preset, DeviceRates *rates);

/* The model of a device: its constants, and the rates of the preset of its
 * name, else of the first one of its back end. */
void cost_model_of(const ClusterDevice *device, CostModel *model);

typedef struct LaunchCost {
  CostTerm part; /* what `time` is counted as */
  Ps launch, time;
} LaunchCost;

/* ---- cost_link.c: transfers ---- */

/* A level of the cluster's links as a process group sees it.  All ranks run the
 * same program, so the other groups transfer over a level at the same time. */
typedef struct GroupLevel {
  const Level *level;
  int64_t group_below; /* ranks of the group in one member, at most */
  int64_t group_here;  /* ranks of the group in one unit, at most */
  int64_t ranks_below; /* all ranks in one member */
  int64_t members;     /* of a unit that have ranks */
} GroupLevel;

/* The levels, from the inside out, that the group of these ranks (in ascending
 * order) sends over, of a program of `world` ranks: at most the cluster's
 * levels.  The cluster has one group of devices. */
int cost_group_levels(const Cluster *cluster, int64_t world,
                      const int64_t *ranks, int n, GroupLevel *out);

/* One run of a collective that sends `bytes` from each of `n` ranks (as
 * reshard.def counts) over these levels.  Link l of the program is that of
 * the cluster's level l; the one behind them is what moves the bytes of a rank,
 * its transport.  The loads live in `arena`. */
SimTransfer cost_transfer(Arena *arena, const CostModel *model,
                          const Cluster *cluster, Op op, int64_t bytes, int n,
                          const GroupLevel *levels, int n_levels);

/* ---- cost_launch.c ---- */

/* A product [m, k] x [k, n], `batch` times, that reads and writes so many
 * bytes. */
Ps cost_product(const CostModel *model, const Work *work);
/* Bytes that are read or written. */
Ps cost_bytes(const CostModel *model, double bytes);
/* One run of an operator that does so much on one rank. */
LaunchCost cost_work(const CostModel *model, const Node *node,
                     const Work *work);
/* The same of a node of a graph. */
LaunchCost cost_launch(const CostModel *model, const Graph *graph, int id);
/* The results of a node to which micro-batches add become zero. */
LaunchCost cost_clear(const CostModel *model, const Graph *graph, int id);

#endif
