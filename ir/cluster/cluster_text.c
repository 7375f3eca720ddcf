/*
 * cluster_text.c -- prints a cluster with nothing left to defaults or presets,
 * so that the text says all that a prediction depends on.
 *
 *     cluster pair {                          device a100_80g {
 *       device = a100_80g                       target     = cuda
 *       level node { count = 8; link = ...}     flops_f32  = 19.5T
 *     }                                         ...
 */
#include "ir/cluster/cluster.h"

static void print_ratio(Text *out, LinkRatio ratio) {
  text_printf(out, "%lld", (long long)(ratio.num / ratio.den));
  int64_t rest = ratio.num % ratio.den;
  if (rest) text_add(out, ".");
  for (; rest; rest = rest * 10 % ratio.den)
    text_printf(out, "%lld", (long long)(rest * 10 / ratio.den));
}

static void print_levels(Text *out, const Level *levels, int n,
                         const char *indent) {
  for (int i = 0; i < n; i++) {
    const Level *level = &levels[i];
    const LinkKindInfo *kind = link_kind_info(level->kind);
    text_printf(out, "%slevel %s { count = %lld; link = ", indent, level->name,
                (long long)level->count);
    quantity_print(out, UNIT_bandwidth, level->link);
    text_printf(out, "; links = %lld; latency = ", (long long)level->links);
    quantity_print(out, UNIT_time, level->latency);
    text_printf(out, "; kind = %s", kind->name);
    if (kind->has_uplinks) {
      text_add(out, "; oversubscription = ");
      print_ratio(out, level->oversubscription);
    }
    text_add(out, " }\n");
  }
}

static void print_group(Text *out, const ClusterGroup *group) {
  const char *indent = group->name ? "    " : "  ";
  if (group->name)
    text_printf(out, "  %s %s {\n", group->is_island ? "island" : "group",
                group->name);
  text_printf(out, "%sdevice = %s\n", indent, group->device->name);
  print_levels(out, group->levels, group->n_levels, indent);
  if (group->name) text_add(out, "  }\n");
}

static void print_device(Text *out, const ClusterDevice *device) {
  text_printf(out, "\ndevice %s {\n  %-10s = %s\n", device->name, "target",
              device->target);
  for (int i = 0; i < N_DEVICE_FIELDS; i++) {
    if (device->values[i] == 0) continue;
    const DeviceFieldInfo *field = device_field_info((DeviceField)i);
    text_printf(out, "  %-10s = ", field->name);
    quantity_print(out, field->unit, device->values[i]);
    text_add(out, "\n");
  }
  text_add(out, "}\n");
}

static void print_devices(Text *out, const Cluster *cluster) {
  for (int i = 0; i < cluster->n_groups; i++) {
    const ClusterDevice *device = cluster->groups[i].device;
    bool is_new = true;
    for (int k = 0; k < i && is_new; k++)
      is_new = cluster->groups[k].device != device;
    if (is_new) print_device(out, device);
  }
}

void cluster_print(Text *out, const Cluster *cluster) {
  text_printf(out, "cluster %s {\n", cluster->name);
  for (int i = 0; i < cluster->n_groups; i++)
    print_group(out, &cluster->groups[i]);
  print_levels(out, cluster->joining, cluster->n_joining, "  ");
  text_add(out, "}\n");
  print_devices(out, cluster);
  if (cluster->n_curves) text_add(out, "\nmeasured {\n");
  for (int i = 0; i < cluster->n_curves; i++)
    text_printf(out, "  %s = \"%s\"\n", cluster->curves[i].name,
                cluster->curves[i].file);
  if (cluster->n_curves) text_add(out, "}\n");
}

void cluster_hash(Arena *scratch, const Cluster *cluster, char out_hex[33]) {
  Text text = text_create(scratch);
  cluster_print(&text, cluster);
  hash_hex(text_string(&text), text.n, out_hex);
}
