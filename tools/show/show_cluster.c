/*
 * show_cluster.c -- implements `dnnc show FILE.cluster`, which prints the
 * canonical text of a cluster.  What is said about it stands in comments, so
 * that the output is a cluster file.
 */
#include "tools/commands/tools.h"

#include <stdio.h>

static void show_shares(Text *out, const LevelShare *shares, int n) {
  for (int i = 0; i < n; i++) {
    text_printf(out, "#     %-10s %lld of %lld members", shares[i].level->name,
                (long long)shares[i].most, (long long)shares[i].level->count);
    if (shares[i].least < shares[i].most)
      text_printf(out, ", in some %lld", (long long)shares[i].least);
    text_add(out, "\n");
  }
}

static void show_first_ranks(Text *out, const Cluster *cluster, int64_t ranks) {
  ClusterSlice slice = cluster_slice(out->arena, cluster, 0, ranks);
  text_printf(out, "# the first %lld ranks%s:\n", (long long)ranks,
              slice.n_groups > 1 || slice.is_regular ? ""
                                                     : ", not divided evenly");
  for (int i = 0; i < slice.n_groups; i++) {
    const SliceGroup *group = &slice.groups[i];
    text_printf(out, "#   %lld of %s\n", (long long)group->n,
                group->group->name ? group->group->name : cluster->name);
    show_shares(out, group->levels, group->n_levels);
  }
  show_shares(out, slice.joining, slice.n_joining);
}

static void show_cluster_json(Text *out, const Cluster *cluster,
                              const char *hash) {
  Text text = text_create(out->arena);
  cluster_print(&text, cluster);
  text_add(out, "{\"cluster\":");
  text_add_json(out, cluster->name);
  text_printf(out, ",\"ranks\":%lld,\"hash\":\"%s\",\"text\":",
              (long long)cluster_ranks(cluster), hash);
  text_add_json(out, text_string(&text));
  text_add(out, "}\n");
}

int show_cluster(Tool *tool) {
  const Cluster *cluster =
      driver_load_cluster(&tool->module, tool->options.subject);
  if (!cluster || !driver_check_ranks(&tool->module, cluster,
                                      tool->options.ranks, "--ranks"))
    return EXIT_user;
  char hash[33];
  cluster_hash(tool->arena, cluster, hash);
  Text out = text_create(tool->arena);
  if (tool->options.json) {
    show_cluster_json(&out, cluster, hash);
  } else {
    text_printf(&out, "# %lld ranks\n# hash %s\n",
                (long long)cluster_ranks(cluster), hash);
    if (tool->options.ranks > 0)
      show_first_ranks(&out, cluster, tool->options.ranks);
    cluster_print(&out, cluster);
  }
  tool_print(&out);
  return EXIT_done;
}
