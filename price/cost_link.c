/*
 * cost_link.c -- the time of a collective by the algorithm that its transport
 * runs.
 *
 * Each of n ranks sends V bytes (reshard.def).  The bytes that leave a member
 * of a level, such as a node, share the links of that member with those that
 * the other groups of ranks in it send at the same time:
 *
 *   ring (NCCL)      the ring enters and leaves each member once, so V bytes of
 *                    each group leave it: V ranks_below / group_below
 *   direct exchange  each rank sends V / (n - 1) to every other, so
 *   (MPI; NCCL's     (n - group_below) / (n - 1) of what all its ranks send
 *   all-to-all)      leave it: V ranks_below (n - group_below) / (n - 1)
 *
 *   8 ranks in 2 nodes, all-gather of N bytes, V = 7/8 N, one link a node:
 *     ring V, direct exchange 4 x V x 4/7
 *
 * ir/cluster/link.c says how much of them a member can send.  A ring has n - 1
 * hops, an all-reduce twice that, and a tree 2 log2 n for n / (n - 1) of the
 * bytes (NCCL takes the faster); a direct exchange sends to all partners at
 * once, so it has one hop, and an all-reduce two.  Thakur, Rabenseifner and
 * Gropp, "Optimization of Collective Communication Operations in MPICH" (2005),
 * sections 3 and 4; NCCL counts the hops of its rings likewise (2.10,
 * src/graph/tuning.cc: nsteps - nInterSteps in nodes, nInterSteps between
 * them).
 *
 * A level's latency is that of a hop; what a transport adds once, and the bytes
 * a second that it reaches over links that could carry more, are in rates.def.
 */
#include "price/cost.h"

/* ---- loads ---- */

/* Bytes that leave one member of the level, of all groups in it. */
static double leaving_bytes(bool is_direct, double sent, int n,
                            const GroupLevel *of) {
  double groups = (double)of->ranks_below / (double)of->group_below;
  if (!is_direct) return sent * groups;
  return sent * (double)of->group_below * groups *
         (double)(n - of->group_below) / (n - 1);
}

static double level_time(const CostModel *model, bool is_direct, double sent,
                         int n, const GroupLevel *of) {
  double bytes = leaving_bytes(is_direct, sent, n, of);
  int64_t transfers = of->ranks_below;
  if (!cost_counts(model, COST_contention)) {
    bytes = bytes * (double)of->group_below / (double)of->ranks_below;
    transfers = of->group_below;
  }
  /* A device sends over all its links at once; one of several in a node has a
   * link of that node to itself, as far as there are enough. */
  if (of->ranks_below == 1) transfers = of->level->links;
  Bytes bandwidth =
      level_bandwidth(of->level, is_direct ? PATTERN_all : PATTERN_next,
                      of->members, transfers);
  return bytes / (double)bandwidth;
}

static int log2_up(int64_t n) {
  int log = 0;
  while ((int64_t)1 << log < n) log++;
  return log;
}

typedef enum Algorithm {
  ALGORITHM_ring,
  ALGORITHM_tree,
  ALGORITHM_direct
} Algorithm;

/* Hops over a level: a ring crosses it once for each member but the last of a
 * unit, which the next level joins to another unit. */
static int64_t hops_over(Algorithm algorithm, const GroupLevel *of) {
  switch (algorithm) {
  case ALGORITHM_ring: return of->hops;
  case ALGORITHM_tree: return log2_up(of->group_members);
  case ALGORITHM_direct: return 1;
  }
  UNREACHABLE();
}

/* A ring's hops add up; partners of a direct exchange are as far as the
 * farthest. */
static Ps latency_of(Algorithm algorithm, Op op, const GroupLevel *levels,
                     int n_levels) {
  Ps sum = 0;
  for (int l = 0; l < n_levels; l++) {
    int64_t hops = op == OP_permute ? 1 : hops_over(algorithm, &levels[l]);
    Ps level = levels[l].level->latency * hops;
    if (algorithm == ALGORITHM_direct || op == OP_permute)
      sum = level > sum ? level : sum;
    else
      sum += level;
  }
  return op == OP_all_reduce ? 2 * sum : sum;
}

static Ps busiest(const SimLoad *loads, int n) {
  Ps most = 0;
  for (int i = 0; i < n; i++)
    if (loads[i].busy > most) most = loads[i].busy;
  return most;
}

static int add_loads(const CostModel *model, const Cluster *cluster,
                     bool is_direct, double sent, int n,
                     const GroupLevel *levels, int n_levels, SimLoad *loads) {
  for (int l = 0; l < n_levels; l++)
    loads[l] =
        (SimLoad){levels[l].link,
                  cost_ps(level_time(model, is_direct, sent, n, &levels[l]))};
  loads[n_levels] = (SimLoad){cost_transport_link(cluster, model->group),
                              cost_ps(sent / model->rates.transport)};
  return n_levels + 1;
}

/* NCCL's choice for an all-reduce: a tree sends each byte up and down, 2 N
 * where a ring sends 2 (n - 1) / n N. */
static void consider_tree(const CostModel *model, const Cluster *cluster,
                          double sent, int n, const GroupLevel *levels,
                          int n_levels, SimLoad *loads, SimTransfer *ring) {
  double more = (double)n / (n - 1);
  Ps latency = latency_of(ALGORITHM_tree, OP_all_reduce, levels, n_levels);
  Ps busy = busiest(loads, ring->n_loads);
  if (latency + (Ps)((double)busy * more) >= ring->latency + busy) return;
  add_loads(model, cluster, false, sent * more, n, levels, n_levels, loads);
  ring->latency = latency;
}

/* ---- measured ---- */

static bool is_inside(const CostModel *model, const Cluster *cluster,
                      const GroupLevel *levels, int n_levels) {
  return n_levels == 1 &&
         levels[0].level == cluster->groups[model->group].levels;
}

/* A collective with `bytes`, and the shortest one. */
typedef struct Measured {
  LinkPoint at, least;
} Measured;

static bool find_measured(const CostModel *model, Op op, LinkReach reach,
                          int64_t bytes, int n, Measured *out) {
  return curves_link(model->curves, op, reach, n, bytes, &out->at) &&
         curves_link(model->curves, op, reach, n, 0, &out->least);
}

/* The part of its latency that a transfer does not need right after another
 * one.  Only short messages gain: the bytes of long ones take as long as
 * before. */
static Ps gain_of(const Measured *measured) {
  const LinkPoint *at = &measured->at, *least = &measured->least;
  Ps gain = at->following > 0 ? at->ps - at->following : 0;
  if (gain > least->ps) gain = least->ps;
  return gain > 0 ? gain : 0;
}

/* Inside of a machine, a unit of the first level, the curve has all that the
 * transport does.  Where no collective between machines was measured, it has
 * what their thread takes, and the links are those of the levels. */
static void add_inside(const CostModel *model, const Cluster *cluster, Op op,
                       double sent, int n, const GroupLevel *levels,
                       int n_levels, const Measured *inside, SimLoad *loads,
                       SimTransfer *out) {
  Ps total = inside->at.ps, least = inside->least.ps;
  out->latency = least < total ? least : total;
  Ps busy = total - out->latency;
  out->n_loads = 1;
  if (!is_inside(model, cluster, levels, n_levels)) {
    out->n_loads =
        add_loads(model, cluster, true, sent, n, levels, n_levels, loads);
    out->latency += latency_of(ALGORITHM_direct, op, levels, n_levels);
  }
  loads[out->n_loads - 1] =
      (SimLoad){cost_transport_link(cluster, model->group), busy};
}

/* Between machines the curve has all of a collective of whole machines, or of a
 * rank in each, that share their links with no other.  Another one takes longer
 * as more bytes leave a machine. */
static void add_between(const CostModel *model, const Cluster *cluster,
                        double sent, int n, const GroupLevel *levels,
                        int n_levels, const Measured *between, SimLoad *loads,
                        SimTransfer *out) {
  const LinkPoint *at = &between->at;
  GroupLevel outer = levels[n_levels - 1], like = outer;
  like.ranks_below = like.group_below = at->ranks / at->nodes;
  double own = level_time(model, true, sent, n, &outer);
  double measured = level_time(model, true, sent, at->ranks, &like);
  Ps total = measured > 0 ? (Ps)((double)at->ps * own / measured) : at->ps;
  out->latency = between->least.ps < total ? between->least.ps : total;
  out->n_loads =
      add_loads(model, cluster, true, sent, n, levels, n_levels, loads);
  loads[n_levels - 1] = (SimLoad){outer.link, total - out->latency};
}

/* Sets the share of its rate that the transfer keeps while ranks compute, and
 * the share of their streams that it then takes. */
static void set_beside(const Curves *curves, Op op, LinkReach reach, int ranks,
                       int64_t bytes, SimTransfer *out) {
  LinkPoint like;
  if (!curves_beside(curves, op, reach, ranks, bytes, &like)) return;
  double kept = (double)like.ps / (double)like.beside;
  out->takes = like.taken * SIM_ONE / 1000;
  out->beside = kept < 1 ? (int64_t)(kept * SIM_ONE) : SIM_ONE;
  if (out->beside == 0) out->beside = 1;
}

static bool measured_transfer(Arena *arena, const CostModel *model,
                              const Cluster *cluster, Op op, int64_t bytes,
                              int n, const GroupLevel *levels, int n_levels,
                              SimTransfer *out) {
  if (!model->curves || model->transport != TRANSPORT_mpi) return false;
  SimLoad *loads = ARENA_ARRAY(arena, SimLoad, n_levels + 1);
  Measured found;
  out->loads = loads;
  if (!is_inside(model, cluster, levels, n_levels) &&
      find_measured(model, op, REACH_between, bytes, n, &found))
    add_between(model, cluster, (double)bytes, n, levels, n_levels, &found,
                loads, out);
  else if (find_measured(model, op, REACH_inside, bytes, n, &found))
    add_inside(model, cluster, op, (double)bytes, n, levels, n_levels, &found,
               loads, out);
  else
    return false;
  Ps gain = gain_of(&found);
  out->sooner = gain < out->latency ? gain : out->latency;
  set_beside(model->curves, op,
             is_inside(model, cluster, levels, n_levels) ? REACH_inside
                                                         : REACH_between,
             n, bytes, out);
  return true;
}

SimTransfer cost_transfer(Arena *arena, const CostModel *model,
                          const Cluster *cluster, Op op, int64_t bytes, int n,
                          const GroupLevel *levels, int n_levels) {
  bool is_direct = model->transport == TRANSPORT_mpi || op == OP_all_to_all;
  SimTransfer transfer = {.n_starts = 1};
  if (n < 2) return transfer;
  double sent = (double)bytes;
  if (measured_transfer(arena, model, cluster, op, bytes, n, levels, n_levels,
                        &transfer)) {
    if (!cost_counts(model, COST_latency)) transfer.latency = 0;
    if (!cost_counts(model, COST_latency) || !cost_counts(model, COST_gap))
      transfer.sooner = 0;
    if (!cost_counts(model, COST_interference))
      transfer.takes = transfer.beside = 0;
    return transfer;
  }
  SimLoad *loads = ARENA_ARRAY(arena, SimLoad, n_levels + 1);
  Algorithm algorithm = is_direct ? ALGORITHM_direct : ALGORITHM_ring;
  transfer.loads = loads;
  transfer.n_loads =
      add_loads(model, cluster, is_direct, sent, n, levels, n_levels, loads);
  transfer.latency = latency_of(algorithm, op, levels, n_levels);
  if (op == OP_all_reduce && !is_direct)
    consider_tree(model, cluster, sent, n, levels, n_levels, loads, &transfer);
  transfer.latency += model->rates.collective;
  transfer.takes = model->rates.interference;
  if (!cost_counts(model, COST_latency)) transfer.latency = 0;
  if (!cost_counts(model, COST_interference)) transfer.takes = 0;
  return transfer;
}
