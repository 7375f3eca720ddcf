/*
 * cost_group.c -- the levels of a cluster's links as a process group sees them.
 *
 *     ranks 0, 8, 16 and 24, of nodes of 8 and racks of 2 nodes
 *       node   one rank of the group in each: left out
 *       rack   2 members have one rank each, which sends beside 7 others
 *       room   2 racks with 2 ranks each
 *
 * Every rank belongs to some group of the collective, so all ranks of a member
 * send over its links at the same time.
 */
#include "passes/plan/cost.h"

/* ---- links ---- */

/* The first link of this group; behind all groups, that which joins them. */
static int first_link_of(const Cluster *cluster, int group) {
  int link = 0;
  for (int g = 0; g < group; g++) link += cluster->groups[g].n_levels + 1;
  return link;
}

int cost_transport_link(const Cluster *cluster, int group) {
  return first_link_of(cluster, group + 1) - 1;
}

int cost_links(const Cluster *cluster) {
  return first_link_of(cluster, cluster->n_groups) + cluster->n_joining;
}

/* ---- levels ---- */

/* Ranks in ascending order, inside of a group of devices or, where the level
 * joins groups, by the number of their group. */
typedef struct Numbers {
  const Cluster *cluster; /* NULL: inside of a group */
  const int64_t *ranks;
  int64_t begin; /* of the group */
  int n;
} Numbers;

static int64_t number_at(const Numbers *numbers, int i) {
  const Cluster *cluster = numbers->cluster;
  if (!cluster) return numbers->ranks[i] - numbers->begin;
  return cluster_group_of(cluster, numbers->ranks[i], NULL) - cluster->groups;
}

static void take_most(int64_t *most, int64_t value) {
  if (value > *most) *most = value;
}

/* Fills what is known of the process group alone; members of the level have
 * `below` numbers, its units `unit`.  Whether it sends over the level. */
static bool count_members(const Numbers *numbers, int64_t below, int64_t unit,
                          GroupLevel *out) {
  int64_t in_member = 0, members = 0, last = -1;
  for (int i = 0; i < numbers->n; i++) {
    int64_t number = number_at(numbers, i);
    bool is_new_unit = i == 0 || number / unit != last / unit;
    bool is_new_member = i == 0 || number / below != last / below;
    if (is_new_unit) members = 0;
    if (is_new_member) in_member = 0, members++;
    out->hops += is_new_member && !is_new_unit;
    take_most(&out->group_below, ++in_member);
    take_most(&out->group_members, members);
    last = number;
  }
  return out->hops > 0;
}

/* The levels of one group of devices, with `world` ranks of the program. */
static int levels_of_group(const ClusterGroup *group, int first_link,
                           const Numbers *numbers, int64_t world,
                           GroupLevel *out) {
  int64_t below = 1;
  int n = 0;
  for (int l = 0; l < group->n_levels; l++) {
    int64_t unit = below * group->levels[l].count;
    int64_t here = unit < world ? unit : world;
    GroupLevel of = {.level = &group->levels[l],
                     .link = first_link + l,
                     .ranks_below = below < world ? below : world,
                     .members = (here + below - 1) / below};
    if (count_members(numbers, below, unit, &of)) out[n++] = of;
    below = unit;
  }
  return n;
}

static int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}

/* Ranks of the program in the `members` groups from this one on, at most. */
static int64_t ranks_from(const Cluster *cluster, int group, int64_t members,
                          int64_t world) {
  int64_t before = 0, n = 0;
  for (int g = 0; g < cluster->n_groups && g < group + members; g++)
    *(g < group ? &before : &n) += group_ranks(&cluster->groups[g]);
  return least(n, world - before);
}

static int joining_levels(const Cluster *cluster, const Numbers *numbers,
                          int used, int64_t world, GroupLevel *out) {
  int64_t below = 1;
  int n = 0, first_link = first_link_of(cluster, cluster->n_groups);
  for (int l = 0; l < cluster->n_joining; l++) {
    int64_t unit = below * cluster->joining[l].count;
    int64_t here = least(unit, used);
    GroupLevel of = {.level = &cluster->joining[l],
                     .link = first_link + l,
                     .members = (here + below - 1) / below};
    for (int64_t g = 0; g < used; g += below)
      take_most(&of.ranks_below, ranks_from(cluster, (int)g, below, world));
    if (count_members(numbers, below, unit, &of)) out[n++] = of;
    below = unit;
  }
  return n;
}

int cost_group_levels(const Cluster *cluster, int64_t world,
                      const int64_t *ranks, int n, GroupLevel *out) {
  int64_t begin = 0;
  int g = 0, n_levels = 0;
  for (int i = 0; g < cluster->n_groups && begin < world; g++) {
    const ClusterGroup *group = &cluster->groups[g];
    int64_t here = least(group_ranks(group), world - begin);
    Numbers inside = {.ranks = ranks + i, .begin = begin};
    for (; i < n && ranks[i] < begin + here; i++) inside.n++;
    n_levels += levels_of_group(group, first_link_of(cluster, g), &inside, here,
                                out + n_levels);
    begin += here;
  }
  Numbers joining = {.cluster = cluster, .ranks = ranks, .n = n};
  return g < 2 ? n_levels
               : n_levels + joining_levels(cluster, &joining, g, world,
                                           out + n_levels);
}
