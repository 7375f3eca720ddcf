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
#include "price/cost.h"

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

int cost_link_of_group(const Cluster *cluster, int group, int link) {
  int first = first_link_of(cluster, group),
      end = first_link_of(cluster, group + 1),
      joining = first_link_of(cluster, cluster->n_groups);
  if (link >= joining) return link - joining + end - first;
  return link >= first && link < end ? link - first : -1;
}

/* ---- levels ---- */

/* Ranks of a slice in ascending order, inside of a group of devices or, where
 * the level joins groups, by the number of their group. */
typedef struct Numbers {
  const ClusterSlice *slice;
  bool is_of_group; /* else inside of a group */
  const int64_t *ranks;
  int64_t begin; /* of the group, in ranks of the cluster */
  int n;
} Numbers;

static int64_t number_at(const Numbers *numbers, int i) {
  int64_t rank = numbers->slice->first + numbers->ranks[i];
  if (!numbers->is_of_group) return rank - numbers->begin;
  const Cluster *cluster = numbers->slice->cluster;
  return cluster_group_of(cluster, rank, NULL) - cluster->groups;
}

static int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
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

/* The most of the numbers from `begin` to before `end` that one of the members
 * has, of which each has `size` numbers. */
static int64_t most_in_member(int64_t begin, int64_t end, int64_t size) {
  int64_t second = (begin / size + 1) * size, third = second + size;
  int64_t most = least(end, second) - begin;
  if (end > second) take_most(&most, least(end, third) - second);
  return most;
}

/* The ranks of a group of devices that send, inside of it; `begin` is its first
 * rank of the cluster. */
static RankRange senders_of_group(const ClusterSlice *slice,
                                  const SliceGroup *group, RankRange senders,
                                  int64_t begin) {
  int64_t first = group->first,
          end = least(group->first + group->n, senders.first + senders.n);
  take_most(&first, senders.first);
  return (RankRange){slice->first + first - begin, end - first};
}

/* The levels of one group of devices.  Further levels have all ranks of the
 * slice in one member. */
static int levels_of_group(const SliceGroup *group, int first_link,
                           const Numbers *numbers, RankRange senders,
                           GroupLevel *out) {
  RankRange own =
      senders_of_group(numbers->slice, group, senders, numbers->begin);
  int64_t below = 1;
  int n = 0;
  for (int l = 0; l < group->n_levels; l++) {
    const LevelShare *share = &group->levels[l];
    int64_t unit = below * share->level->count;
    GroupLevel of = {.level = share->level,
                     .link = first_link + l,
                     .ranks_below =
                         most_in_member(own.first, own.first + own.n, below),
                     .members = share->most};
    if (count_members(numbers, below, unit, &of)) out[n++] = of;
    below = unit;
  }
  return n;
}

/* Senders in a member of `below` groups of devices, at most. */
static int64_t ranks_in_member(const ClusterSlice *slice, RankRange senders,
                               int64_t below) {
  int64_t most = 0, ranks = 0, last = -1;
  for (int i = 0; i < slice->n_groups; i++) {
    int64_t member = (slice->groups[i].group - slice->cluster->groups) / below;
    int64_t n = senders_of_group(slice, &slice->groups[i], senders, 0).n;
    if (n <= 0) continue;
    ranks = member == last ? ranks + n : n;
    take_most(&most, ranks);
    last = member;
  }
  return most;
}

static int joining_levels(const Numbers *numbers, RankRange senders,
                          GroupLevel *out) {
  const ClusterSlice *slice = numbers->slice;
  int64_t below = 1;
  int n = 0,
      first_link = first_link_of(slice->cluster, slice->cluster->n_groups);
  for (int l = 0; l < slice->n_joining; l++) {
    const LevelShare *share = &slice->joining[l];
    int64_t unit = below * share->level->count;
    GroupLevel of = {.level = share->level,
                     .link = first_link + l,
                     .ranks_below = ranks_in_member(slice, senders, below),
                     .members = share->most};
    if (count_members(numbers, below, unit, &of)) out[n++] = of;
    below = unit;
  }
  return n;
}

static int group_levels(const ClusterSlice *slice, const int64_t *ranks, int n,
                        RankRange senders, GroupLevel *out) {
  const Cluster *cluster = slice->cluster;
  int64_t begin = 0; /* of the group */
  int n_levels = 0, first = 0;
  for (int g = 0, at = 0; at < slice->n_groups; g++) {
    const SliceGroup *group = &slice->groups[at];
    if (group->group == &cluster->groups[g]) {
      Numbers inside = {.slice = slice, .ranks = ranks + first, .begin = begin};
      for (; first < n && ranks[first] < group->first + group->n; first++)
        inside.n++;
      n_levels += levels_of_group(group, first_link_of(cluster, g), &inside,
                                  senders, out + n_levels);
      at++;
    }
    begin += group_ranks(&cluster->groups[g]);
  }
  Numbers joining = {
      .slice = slice, .is_of_group = true, .ranks = ranks, .n = n};
  return slice->n_groups < 2
             ? n_levels
             : n_levels + joining_levels(&joining, senders, out + n_levels);
}

int cost_group_levels(const ClusterSlice *slice, const int64_t *ranks, int n,
                      GroupLevel *out) {
  return group_levels(slice, ranks, n, (RankRange){0, slice->n}, out);
}

int cost_message_levels(const ClusterSlice *slice, int64_t a, int64_t b,
                        RankRange beside, GroupLevel *out) {
  int64_t ranks[] = {a < b ? a : b, a < b ? b : a};
  return group_levels(slice, ranks, 2, beside, out);
}
