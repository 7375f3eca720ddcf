/*
 * shared_links.c -- finds which links of the cluster several programs share.
 *
 *     programs on ranks 0..1, 2..3 and 4..7, nodes of 4 devices
 *       node   a device has a link of its own: no program shares one
 *       pod    the first two are in one node, and share the link of it
 *
 * A program has one link of the simulator for each level that it sends over,
 * as its members do the same.  Programs have a link in common where they have a
 * member in common or, where all members share the links, a unit.  A link
 * carries messages out and in at one time; a collective sends as much as it
 * receives.
 */
#include "price/shared_links.h"

static void join_neighbours(SharedLinks *links, int link, int program,
                            bool is_joined) {
  int *of = &links->of[program * links->n_cluster + link];
  *of = is_joined ? of[-links->n_cluster] : program;
}

/* `begin` is the first rank of the cluster in the group of devices, `size` the
 * ranks that share a link. */
static bool have_common_member(const ClusterSlice *slice, RankRange a,
                               RankRange b, int64_t begin, int64_t end,
                               int64_t size) {
  int64_t last = slice->first + a.first + a.n - 1;
  int64_t first = slice->first + b.first;
  return last >= begin && first < end &&
         (last - begin) / size == (first - begin) / size;
}

static int64_t sharing_ranks(const Level *level, int64_t below) {
  bool is_bus = link_kind_info(level->kind)->port == PORT_bus;
  return is_bus ? below * level->count : below;
}

/* The ranks of programs ascend, so those that share a link are neighbours. */
static void join_levels(SharedLinks *links, const ClusterSlice *slice,
                        const RankRange *ranks, int program) {
  const Cluster *cluster = slice->cluster;
  int64_t begin = 0;
  int link = 0;
  for (int g = 0; g < cluster->n_groups; g++) {
    const ClusterGroup *group = &cluster->groups[g];
    int64_t end = begin + group_ranks(group), below = 1;
    for (int l = 0; l < group->n_levels; l++) {
      const Level *level = &group->levels[l];
      join_neighbours(links, link++, program,
                      have_common_member(slice, ranks[program - 1],
                                         ranks[program], begin, end,
                                         sharing_ranks(level, below)));
      below *= level->count;
    }
    join_neighbours(links, link++, program, false); /* its transport */
    begin = end;
  }
}

/* The members of the first level that joins groups are groups. */
static void join_joining(SharedLinks *links, const ClusterSlice *slice,
                         const RankRange *ranks, int program) {
  const Cluster *cluster = slice->cluster;
  const RankRange *a = &ranks[program - 1], *b = &ranks[program];
  int64_t below = 1;
  int64_t last =
      cluster_group_of(cluster, slice->first + a->first + a->n - 1, NULL) -
      cluster->groups;
  int64_t first = cluster_group_of(cluster, slice->first + b->first, NULL) -
                  cluster->groups;
  for (int l = 0; l < cluster->n_joining; l++) {
    int64_t size = sharing_ranks(&cluster->joining[l], below);
    join_neighbours(links, links->n_cluster - cluster->n_joining + l, program,
                    last / size == first / size);
    below *= cluster->joining[l].count;
  }
}

SharedLinks shared_links_of(Arena *arena, const ClusterSlice *slice,
                            const RankRange *ranks, int n_programs,
                            int n_queues, bool are_shared) {
  SharedLinks links = {.n_cluster = cost_links(slice->cluster),
                       .n_programs = n_programs,
                       .n_queues = n_queues,
                       .are_shared = are_shared};
  links.of = ARENA_ARRAY(arena, int, n_programs *links.n_cluster);
  for (int p = 1; p < n_programs; p++) {
    join_levels(&links, slice, ranks, p);
    join_joining(&links, slice, ranks, p);
  }
  return links;
}

int shared_link_directions(const SharedLinks *links) {
  return links->n_programs > 1 ? N_LINK_DIRECTIONS : 1;
}

int shared_links_count(const SharedLinks *links) {
  int n = links->n_cluster * links->n_programs * shared_link_directions(links);
  return links->are_shared ? n : n * links->n_queues;
}

int shared_link(const SharedLinks *links, int program, int queue, int link,
                LinkDirection direction) {
  int owner = links->are_shared ? links->of[program * links->n_cluster + link]
                                : program * links->n_queues + queue;
  int n = shared_link_directions(links);
  ASSERT((int)direction < n);
  return (owner * n + (int)direction) * links->n_cluster + link;
}

SharedLinkOwner shared_link_owner(const SharedLinks *links, int link) {
  int n = shared_link_directions(links);
  int direction = link / links->n_cluster % n;
  int owner = link / links->n_cluster / n;
  return (SharedLinkOwner){links->are_shared ? owner : owner / links->n_queues,
                           (LinkDirection)direction};
}
