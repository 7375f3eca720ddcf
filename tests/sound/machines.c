/*
 * machines.c -- makes random clusters: one or two levels of links, a preset or
 * a device of their own, or two groups of unlike devices.
 */
#include <string.h>

#include "tests/sound/sound.h"

#define PICK(choices, list) (list)[choose((choices), ARRAY_LENGTH(list))]

static const char *const presets[] = {"h100_sxm", "a100_80g", "v100_16g", "k80",
                                      "titan_x"};

static void add_level(Choices *choices, Text *out, const char *indent,
                      const char *name, int count, bool is_slow) {
  static const char *const kinds[] = {"switch", "ring",   "fat_tree",
                                      "pcie",   "shared", "mesh"};
  static const char *const links[] = {"300GB/s", "25GB/s", "3GB/s", "100Gb/s",
                                      "10Gb/s"};
  static const char *const slow[] = {"10Gb/s", "1Gb/s", "100MB/s", "3GB/s"};
  static const char *const latencies[] = {"1us", "5us", "30us", "0s"};
  /* One by one: the order of choices must not depend on the compiler. */
  const char *link = is_slow ? PICK(choices, slow) : PICK(choices, links);
  const char *latency = PICK(choices, latencies);
  const char *kind = PICK(choices, kinds);
  text_printf(out, "%slevel %s {", indent, name);
  if (count > 0) text_printf(out, " count = %d;", count);
  text_printf(out, " link = %s; latency = %s; kind = %s }\n", link, latency,
              kind);
}

/* One level, or two where the count is a product. */
static void add_levels(Choices *choices, Text *out, const char *indent,
                       int count, bool is_slow) {
  int inner = count;
  for (int i = 2; i < count; i++)
    if (count % i == 0 && choose(choices, 2)) inner = i;
  add_level(choices, out, indent, "node", inner, is_slow);
  if (inner < count)
    add_level(choices, out, indent, "rack", count / inner, is_slow);
}

/* Half of the devices have constants of their own. */
static void add_devices(Choices *choices, Text *out, int n,
                        const char *const *names) {
  static const char *const rates[] = {"5T", "50T", "300G"};
  static const char *const bandwidths[] = {"1TB/s", "100GB/s", "3TB/s"};
  for (int i = 0; i < n; i++) {
    text_printf(out, "\ndevice %s {\n  base = %s\n", names[i],
                PICK(choices, presets));
    if (choose(choices, 2)) {
      text_printf(out, "  flops_f32 = %s\n", PICK(choices, rates));
      text_printf(out, "  bandwidth = %s\n", PICK(choices, bandwidths));
    }
    text_add(out, "}\n");
  }
}

static void add_groups(Choices *choices, Text *out, int ranks,
                       SoundUnequal unequal, bool are_slow) {
  int first = 1 + choose(choices, ranks - 1);
  int counts[2] = {first, ranks - first};
  for (int i = 0; i < 2; i++) {
    text_printf(out, "  group g%d {\n    device = d%d\n", i,
                unequal == UNEQUAL_links ? 0 : i);
    add_levels(choices, out, "    ", counts[i], are_slow);
    text_add(out, "  }\n");
  }
  add_level(choices, out, "  ", "room", 0, are_slow);
}

SoundMachines sound_machines(Choices *choices, int ranks, SoundUnequal unequal,
                             bool are_slow) {
  static const char *const names[] = {"d0", "d1"};
  Text out = text_create(choices->arena);
  SoundMachines machines = {.ranks = ranks,
                            .all_ranks = ranks,
                            .are_unequal = unequal != UNEQUAL_none};
  text_add(&out, "cluster machines {\n");
  if (unequal) {
    add_groups(choices, &out, ranks, unequal, are_slow);
  } else {
    if (choose(choices, 3) == 0) machines.all_ranks = 2 * ranks;
    text_add(&out, "  device = d0\n");
    add_levels(choices, &out, "  ", machines.all_ranks, are_slow);
  }
  text_add(&out, "}\n");
  add_devices(choices, &out, unequal == UNEQUAL_devices ? 2 : 1, names);
  machines.text = text_string(&out);
  return machines;
}

const char *sound_limit_devices(Arena *arena, const char *cluster,
                                Bytes usable) {
  static const char mark[] = "\n  base = ";
  Text out = text_create(arena);
  for (const char *at; (at = strstr(cluster, mark)); cluster = at) {
    at += strlen(mark);
    at += strcspn(at, "\n");
    text_add_n(&out, cluster, (size_t)(at - cluster));
    text_printf(&out, "\n  memory = %lldB\n  reserve = 1B",
                (long long)usable + 1);
  }
  text_add(&out, cluster);
  return text_string(&out);
}
