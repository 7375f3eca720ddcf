/*
 * cluster.c -- ranks of a cluster and the levels between them.
 */
#include "ir/cluster/cluster.h"

int64_t group_ranks(const ClusterGroup *group) {
  int64_t n = 1;
  for (int i = 0; i < group->n_levels; i++) n *= group->levels[i].count;
  return n;
}

int64_t cluster_ranks(const Cluster *cluster) {
  int64_t n = 0;
  for (int i = 0; i < cluster->n_groups; i++)
    n += group_ranks(&cluster->groups[i]);
  return n;
}

const ClusterGroup *cluster_group_of(const Cluster *cluster, int64_t rank,
                                     int64_t *out_local) {
  for (int i = 0; i < cluster->n_groups; i++) {
    int64_t n = group_ranks(&cluster->groups[i]);
    if (rank < n) {
      if (out_local) *out_local = rank;
      return &cluster->groups[i];
    }
    rank -= n;
  }
  UNREACHABLE();
}

/* The first of these levels, inside out, with both members in one unit. */
static const Level *level_between(const Level *levels, int n, int64_t a,
                                  int64_t b) {
  for (int i = 0; i < n; i++) {
    a /= levels[i].count;
    b /= levels[i].count;
    if (a == b) return &levels[i];
  }
  UNREACHABLE();
}

const Level *cluster_level_between(const Cluster *cluster, int64_t a,
                                   int64_t b) {
  int64_t local_a, local_b;
  const ClusterGroup *of_a = cluster_group_of(cluster, a, &local_a);
  const ClusterGroup *of_b = cluster_group_of(cluster, b, &local_b);
  if (a == b) return NULL;
  if (of_a == of_b)
    return level_between(of_a->levels, of_a->n_levels, local_a, local_b);
  return level_between(cluster->joining, cluster->n_joining,
                       of_a - cluster->groups, of_b - cluster->groups);
}
