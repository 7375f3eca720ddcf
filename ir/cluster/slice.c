/*
 * slice.c -- which members of each level take part in a slice of a cluster or
 * in a process group.
 *
 *     ranks 4..19 of nodes of 8:      node   4, 8 and 4 members
 *                                     pod    3 members
 *     ranks 0, 8, 16 and 24 of them:  pod    4 members; the level node is left
 *                                            out, because no node has two
 */
#include "ir/cluster/cluster.h"

/* ---- slices ---- */

static void share_add(LevelShare *share, int64_t members) {
  if (share->least == 0 || members < share->least) share->least = members;
  if (members > share->most) share->most = members;
}

/* Numbers first..last count what has `inner` of them in a member of the level.
 * A unit between the first and the last one has all its members. */
static LevelShare slice_level(const Level *level, int64_t first, int64_t last,
                              int64_t inner) {
  LevelShare share = {level, 0, 0};
  int64_t outer = inner * level->count;
  int64_t unit = first / outer, end = last / outer;
  if (unit == end) {
    share_add(&share, last / inner - first / inner + 1);
    return share;
  }
  share_add(&share, level->count - first / inner % level->count);
  share_add(&share, last / inner % level->count + 1);
  if (end - unit > 1) share_add(&share, level->count);
  return share;
}

/* Up to the first level with all of first..last in one unit. */
static int slice_levels(const Level *levels, int n_levels, int64_t first,
                        int64_t last, LevelShare *out) {
  int64_t inner = 1;
  int n = 0;
  while (n < n_levels && first / inner != last / inner) {
    out[n] = slice_level(&levels[n], first, last, inner);
    inner *= levels[n++].count;
  }
  return n;
}

static bool shares_are_even(const LevelShare *shares, int n) {
  for (int i = 0; i < n; i++)
    if (shares[i].least != shares[i].most) return false;
  return true;
}

ClusterSlice cluster_slice(Arena *arena, const Cluster *cluster, int64_t first,
                           int64_t n) {
  ASSERT(first >= 0 && n >= 1 && n <= cluster_ranks(cluster) - first);
  ClusterSlice slice = {.cluster = cluster, .first = first, .n = n};
  slice.groups = ARENA_ARRAY(arena, SliceGroup, cluster->n_groups);
  slice.joining = ARENA_ARRAY(arena, LevelShare, cluster->n_joining);
  int64_t begin = 0; /* of the group, in ranks of the cluster */
  int first_group = 0;
  for (int i = 0; i < cluster->n_groups; i++) {
    const ClusterGroup *group = &cluster->groups[i];
    int64_t end = begin + group_ranks(group);
    int64_t low = first > begin ? first : begin;
    int64_t high = first + n < end ? first + n : end;
    if (low < high) {
      if (slice.n_groups == 0) first_group = i;
      SliceGroup *out = &slice.groups[slice.n_groups++];
      *out =
          (SliceGroup){.group = group, .first = low - first, .n = high - low};
      out->levels = ARENA_ARRAY(arena, LevelShare, group->n_levels);
      out->n_levels = slice_levels(group->levels, group->n_levels, low - begin,
                                   high - 1 - begin, out->levels);
    }
    begin = end;
  }
  slice.n_joining =
      slice_levels(cluster->joining, cluster->n_joining, first_group,
                   first_group + slice.n_groups - 1, slice.joining);
  slice.is_regular =
      slice.n_groups == 1 &&
      shares_are_even(slice.groups[0].levels, slice.groups[0].n_levels);
  return slice;
}

/* ---- process groups ---- */

typedef struct Sweep { /* of one level, over ranks in order */
  LevelShare share;
  bool has_unit;
  int64_t unit, member, n_members; /* of the unit that the last rank is in */
} Sweep;

static void sweep_end_unit(Sweep *sweep) {
  if (sweep->has_unit) share_add(&sweep->share, sweep->n_members);
}

static void sweep_visit(Sweep *sweep, int64_t member) {
  int64_t unit = member / sweep->share.level->count;
  if (!sweep->has_unit || sweep->unit != unit) {
    sweep_end_unit(sweep);
    sweep->has_unit = true;
    sweep->unit = unit;
    sweep->n_members = 1;
  } else if (sweep->member != member) {
    sweep->n_members++;
  }
  sweep->member = member;
}

/* Visits the levels of one group, or those that join. */
static void sweep_levels(Sweep *sweeps, int n, int64_t member) {
  for (int i = 0; i < n; i++) {
    sweep_visit(&sweeps[i], member);
    member /= sweeps[i].share.level->count;
  }
}

/* All levels of all groups in order, and those that join. */
static Sweep *sweeps_create(Arena *arena, const Cluster *cluster, int *out_n) {
  int n = cluster->n_joining;
  for (int i = 0; i < cluster->n_groups; i++) n += cluster->groups[i].n_levels;
  Sweep *sweeps = ARENA_ARRAY(arena, Sweep, n);
  int at = 0;
  for (int i = 0; i < cluster->n_groups; i++)
    for (int k = 0; k < cluster->groups[i].n_levels; k++)
      sweeps[at++].share.level = &cluster->groups[i].levels[k];
  for (int i = 0; i < cluster->n_joining; i++)
    sweeps[at++].share.level = &cluster->joining[i];
  *out_n = n;
  return sweeps;
}

int cluster_shares(Arena *arena, const Cluster *cluster, int64_t first,
                   int64_t stride, int64_t size, LevelShare **out) {
  ASSERT(first >= 0 && size >= 1 && stride >= 1 &&
         size - 1 <= (cluster_ranks(cluster) - 1 - first) / stride);
  int n_sweeps;
  Sweep *sweeps = sweeps_create(arena, cluster, &n_sweeps), *at = sweeps;
  Sweep *joining = sweeps + n_sweeps - cluster->n_joining;
  int64_t i = 0, begin = 0; /* the group's first rank */
  for (int g = 0; g < cluster->n_groups; g++) {
    const ClusterGroup *group = &cluster->groups[g];
    int64_t end = begin + group_ranks(group);
    if (i < size && first + i * stride < end)
      sweep_levels(joining, cluster->n_joining, g);
    for (; i < size && first + i * stride < end; i++)
      sweep_levels(at, group->n_levels, first + i * stride - begin);
    at += group->n_levels;
    begin = end;
  }
  *out = ARENA_ARRAY(arena, LevelShare, n_sweeps);
  int n = 0;
  for (int k = 0; k < n_sweeps; k++) {
    sweep_end_unit(&sweeps[k]);
    if (sweeps[k].share.most >= 2) (*out)[n++] = sweeps[k].share;
  }
  return n;
}
