/*
 * cost.h -- declares what launches and transfers cost on a device and its
 * links: integers in picoseconds, from tables (terms.def, rates.def).
 *
 * Formulas use the four operations on doubles, which round alike on every
 * machine, and no library function.
 */
#ifndef PRICE_COST_H
#define PRICE_COST_H

#include "ir/cluster/cluster.h"
#include "price/curves.h"
#include "price/profile.h"
#include "price/simulate.h"

/* Parts of a step's time, then effects. */
typedef enum CostTerm {
#define PART(name, meaning, source) COST_##name,
#include "price/terms.def"
  N_COST_PARTS,
  COST_before_effects = N_COST_PARTS - 1,
#define EFFECT(name, meaning, source) COST_##name,
#include "price/terms.def"
  N_COST_TERMS
} CostTerm;

typedef struct CostTermInfo {
  const char *name, *meaning, *source;
  bool is_part;
} CostTermInfo;

const CostTermInfo *cost_term_info(CostTerm term);
/* Returns the term of this name.  Returns -1 if there is none. */
int cost_term_find(const char *name);
/* Returns whether a part is time in which the stream waits for transfers. */
bool cost_part_is_wait(CostTerm part);

/* A device as its kernels reach it. */
typedef struct DeviceRates {
  bool is_gpu;
  int units; /* multiprocessors, or cores of a rank */
  /* Peak rate of products a second; 0 means that it lacks the dtype. */
  double flops[N_DTYPES];
  double bandwidth; /* peak, bytes a second */
  /* Shares of peak. */
  double sustained, memory_share, attention, attention_grad;
  /* Share of peak; 0 means that such products are as fast as others. */
  double unaligned;
  int64_t tile_k;
  Ps launch;
  Ps collective;        /* a transfer of nothing */
  double transport;     /* bytes a second that a rank's transport sends */
  double host_link;     /* likewise to host memory; 0: nothing says it */
  int64_t interference; /* part of SIM_ONE */
} DeviceRates;

typedef enum Transport { TRANSPORT_mpi, TRANSPORT_nccl } Transport;

typedef struct CostModel {
  DeviceRates rates;
  Transport transport;
  int group;        /* group of the cluster, whose devices these are */
  uint32_t without; /* bit of each CostTerm that is left out */
  /* Measured launches, which are not computed; or NULL. */
  const Profile *profile;
  const Curves *curves; /* curves that give what the profile lacks; or NULL */
} CostModel;
_Static_assert(N_COST_TERMS <= 32, "a bit for each term");

/* Rounds to the nearest picosecond; what is too long for Ps is INT64_MAX / 4.
 */
Ps cost_ps(double seconds);
bool cost_counts(const CostModel *model, CostTerm term);

/* Fills `rates` with the shares of a preset of rates.def.  Returns false if it
 * has none. */
bool cost_rates_of(const char *preset, DeviceRates *rates);

/* The distances of predicted steps from those of published runs. */
typedef struct PriceErrors {
  double mean, largest;
  int runs;
} PriceErrors;

PriceErrors cost_errors(void);
/* Returns how many of these runs are of this preset. */
int cost_published_runs(const char *preset);

/* Fills in the model of a device: its constants, and the rates of the preset of
 * its name, else of the first one of its back end. */
void cost_model_of(const ClusterDevice *device, CostModel *model);

/* Gives each of `ranks` ranks of a CPU its part of the machine: as the launcher
 * divides them, few ranks share all cores of it.  Machines are the units of the
 * first level. */
void cost_share_machine(CostModel *model, const ClusterGroup *group,
                        int64_t ranks);

typedef struct LaunchCost {
  CostTerm part; /* term as which `time` is counted */
  Ps launch, time;
  /* Measured by the profile: `time` has what lies between launches. */
  bool is_measured;
} LaunchCost;

/* ---- cost_group.c: levels ---- */

/* A level of the cluster's links as a process group sees it.  All ranks run the
 * same program, so the other groups transfer over a level at the same time. */
typedef struct GroupLevel {
  const Level *level;
  int link;              /* link of programs of the simulator */
  int64_t group_below;   /* ranks of the group in one member, at most */
  int64_t group_members; /* members of one unit with ranks of it, at most */
  int64_t hops;          /* members with ranks of it, less units with them */
  int64_t ranks_below;   /* most ranks in one member */
  int64_t members;       /* members of a unit that have ranks, at most */
} GroupLevel;

/* Ranks of a slice: first, first + 1, ... */
typedef struct RankRange {
  int64_t first, n;
} RankRange;

/* Lists the levels that the process group of these ranks of a slice (in
 * ascending order) sends over, from the inside out: those of one group of
 * devices after the other, then those that join groups.  They are fewer than
 * cost_links. */
int cost_group_levels(const ClusterSlice *slice, const int64_t *ranks, int n,
                      GroupLevel *out);
/* Lists the levels that a message between two ranks crosses, while each rank of
 * `beside` sends one, or gets one. */
int cost_message_levels(const ClusterSlice *slice, int64_t a, int64_t b,
                        RankRange beside, GroupLevel *out);
/* Fills in the links of programs of the simulator: each level of each group of
 * devices, the transport of its ranks behind them, and the levels that join
 * groups. */
int cost_links(const Cluster *cluster);
int cost_transport_link(const Cluster *cluster, int group);
/* Returns the number of a link among those of the ranks of a group: its levels,
 * the transport, then the levels that join groups.  Returns -1 if it is of
 * another group. */
int cost_link_of_group(const Cluster *cluster, int group, int link);

/* ---- cost_link.c: transfers ---- */

/* Returns one run of a collective that sends `bytes` from each of `n` ranks (as
 * reshard.def counts) over these levels.  `model` is that of a device of the
 * group, whose transport moves the bytes of a rank.  The loads live in `arena`.
 */
SimTransfer cost_transfer(Arena *arena, const CostModel *model,
                          const Cluster *cluster, Op op, int64_t bytes, int n,
                          const GroupLevel *levels, int n_levels);

/* ---- cost_launch.c ---- */

/* Returns the time of a product [m, k] x [k, n], `batch` times, that reads and
 * writes so many bytes. */
Ps cost_product(const CostModel *model, const Work *work);
/* Returns the time in which bytes are read or written. */
Ps cost_bytes(const CostModel *model, double bytes);
/* Returns the part as which the price counts a node. */
CostTerm cost_part(const Graph *graph, int id);
/* Returns the cost of one run of an operator that does so much on one rank,
 * without the profile. */
LaunchCost cost_work(const CostModel *model, const Node *node,
                     const Work *work);
/* Returns the cost of one run of a node of a graph. */
LaunchCost cost_launch(const CostModel *model, const Graph *graph, int id);
/* Returns the cost of setting the results of a node, to which micro-batches
 * add, to zero. */
LaunchCost cost_clear(const CostModel *model, const Graph *graph, int id);

#endif
