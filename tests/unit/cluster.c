// links: frontend ir support
/*
 * cluster.c -- reads cluster files and compares what is printed, or the
 * messages, with goldens; asks for levels, slices, process groups and bandwidth
 * of clusters and compares them with a count over all ranks.
 *
 *   tests/golden/clusters/NAME.cluster   NAME.txt: the canonical text, or the
 *                                        messages
 *
 * DNNC_BLESS=1 writes what is printed now.
 */
#include "frontend/frontend.h"

#include <criterion/criterion.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void out_of_memory(void *user) {
  (void)user;
  abort();
}

static Module begin(void) {
  Memory *memory = memory_create(out_of_memory, NULL);
  Arena *arena = arena_create(memory);
  return (Module){memory, arena, names_create(arena), diags_create(arena)};
}

static const Cluster *read_text(Module *module, const char *path,
                                const char *text, size_t n) {
  Source source = {path, text, n};
  return frontend_read_cluster(
      module, arena_copy(module->arena, &source, sizeof source));
}

static const char *messages(Module *module) {
  Text out = text_create(module->arena);
  diags_print(module->diags, &out);
  return text_string(&out);
}

static const Cluster *read_good(Module *module, const char *text) {
  const Cluster *cluster =
      read_text(module, "test.cluster", text, strlen(text));
  cr_assert(cluster != NULL, "%s\ngot %s", text, messages(module));
  return cluster;
}

/* ---- text ---- */

/* The printed text is read as the same cluster, with the same hash. */
static void check_again(Module *module, const Cluster *cluster,
                        const char *text) {
  char hash[33], hash_again[33];
  const Cluster *again = read_good(module, text);
  Text printed = text_create(module->arena);
  cluster_print(&printed, again);
  cr_expect_str_eq(text_string(&printed), text);
  cluster_hash(module->arena, cluster, hash);
  cluster_hash(module->arena, again, hash_again);
  cr_expect_str_eq(hash, hash_again);
  cr_expect_eq(cluster_ranks(cluster), cluster_ranks(again));
}

static const char *outcome(Module *module, const char *path, const char *name) {
  const char *text;
  size_t n;
  cr_assert(file_read(module->arena, path, 1 << 24, &text, &n).code ==
            STATUS_ok);
  const Cluster *cluster = read_text(module, name, text, n);
  cr_expect_eq(cluster == NULL, diags_errors(module->diags) > 0);
  if (!cluster) return messages(module);
  Text out = text_create(module->arena);
  cluster_print(&out, cluster);
  check_again(module, cluster, text_string(&out));
  return text_string(&out);
}

Test(cluster, goldens) {
  glob_t files;
  cr_assert_eq(
      glob(TEST_ROOT "/tests/golden/clusters/*.cluster", 0, NULL, &files), 0);
  for (size_t i = 0; i < files.gl_pathc; i++) {
    Module module = begin();
    const char *path = files.gl_pathv[i], *want = "";
    size_t n;
    const char *got = outcome(&module, path, strrchr(path, '/') + 1);
    char *golden = arena_strdup(module.arena, path);
    strcpy(strrchr(golden, '.'), ".txt");
    if (getenv("DNNC_BLESS")) {
      file_replace(golden, got, strlen(got));
    } else {
      file_read(module.arena, golden, 1 << 20, &want, &n);
      cr_expect_str_eq(got, want, "%s: got\n%s", path, got);
    }
    memory_destroy(module.memory);
  }
  cr_expect_gt(files.gl_pathc, 20);
  globfree(&files);
}

/* Every cluster of models/ is right. */
Test(cluster, models) {
  glob_t files;
  cr_assert_eq(glob(TEST_ROOT "/models/*.cluster", 0, NULL, &files), 0);
  for (size_t i = 0; i < files.gl_pathc; i++) {
    Module module = begin();
    const char *path = files.gl_pathv[i];
    outcome(&module, path, path);
    cr_expect_str_eq(messages(&module), "");
    memory_destroy(module.memory);
  }
  cr_expect_geq(files.gl_pathc, 8);
  globfree(&files);
}

/* ---- hostile text ---- */

enum { MOST_MUTATED = 2000, MUTATIONS = 300 };

/* Replaces, repeats or removes a few bytes, mostly where a word begins. */
static size_t mutate(char *text, size_t n, uint64_t key) {
  static const char *const pieces[] = {
      "{",      "}",    " = ", "0",  "99999",  "-1",    "GB/s", "us",
      "device", "base", ";",   "\n", "group ", "level", "1e18", "\x80"};
  int n_edits = 1 + (int)random_below(key, 0, 3);
  for (int i = 0; i < n_edits && n > 16; i++) {
    uint64_t at = random_below(key, 4 * (uint64_t)i + 1, n - 16);
    uint64_t gone = random_below(key, 4 * (uint64_t)i + 2, 12);
    while (at > 0 && text[at - 1] != ' ' && gone % 3) at--;
    const char *piece = pieces[random_below(key, 4 * (uint64_t)i + 3, 16)];
    size_t length = strlen(piece);
    memmove(text + at + length, text + at + gone, n - at - gone);
    memcpy(text + at, piece, length);
    n = n + length - gone;
    text[n] = 0;
  }
  return n;
}

/* Whatever comes ends in messages, or in a cluster that can be printed, read
 * again, and asked about its ranks. */
static bool check_mutated(const char *text, size_t n, uint64_t key) {
  char bytes[MOST_MUTATED + 100];
  memcpy(bytes, text, n);
  n = mutate(bytes, n, key);
  Module module = begin();
  const Cluster *cluster = read_text(&module, "mutated.cluster", bytes, n);
  cr_assert_eq(cluster == NULL, diags_errors(module.diags) > 0, "%s", bytes);
  bool is_good = cluster != NULL;
  if (cluster) {
    Text out = text_create(module.arena);
    cluster_print(&out, cluster);
    check_again(&module, cluster, text_string(&out));
    int64_t last = cluster_ranks(cluster) - 1;
    cluster_slice(module.arena, cluster, last / 2, last / 3 + 1);
    cluster_level_between(cluster, 0, last);
  }
  memory_destroy(module.memory);
  return is_good;
}

Test(cluster, mutations) {
  const char *patterns[] = {TEST_ROOT "/models/*.cluster",
                            TEST_ROOT "/tests/golden/clusters/good*.cluster"};
  int n_good = 0, n_wrong = 0;
  for (int p = 0; p < 2; p++) {
    glob_t files;
    cr_assert_eq(glob(patterns[p], 0, NULL, &files), 0);
    for (size_t i = 0; i < files.gl_pathc; i++) {
      Module module = begin();
      const char *text;
      size_t n;
      cr_assert(
          file_read(module.arena, files.gl_pathv[i], MOST_MUTATED, &text, &n)
              .code == STATUS_ok);
      for (uint64_t k = 0; k < MUTATIONS; k++)
        if (check_mutated(text, n,
                          random_key(k, strrchr(files.gl_pathv[i], '/'))))
          n_good++;
        else
          n_wrong++;
      memory_destroy(module.memory);
    }
    globfree(&files);
  }
  cr_expect_gt(n_good, 100);
  cr_expect_gt(n_wrong, 1000);
}

/* ---- presets and quantities ---- */

/* Every preset is a device; those that a person must complete say so. */
Test(cluster, presets) {
  for (int i = 0; i < device_preset_count(); i++) {
    Module module = begin();
    const DevicePreset *preset = device_preset(i);
    ClusterDevice device = device_of_preset(i, module.names);
    const char *text = arena_printf(
        module.arena,
        "cluster x { device = %s; level n { count = 2; link = 1GB/s } }",
        preset->name);
    const Cluster *cluster = read_text(&module, "x", text, strlen(text));
    bool is_complete = device.values[DEVICE_memory] > 0;
    cr_expect_eq(cluster != NULL, is_complete, "%s", messages(&module));
    cr_expect_eq(!is_complete, strcmp(preset->name, "cpu") == 0);
    if (cluster)
      cr_expect_eq(memcmp(&device, cluster->groups[0].device, sizeof device),
                   0);
    memory_destroy(module.memory);
  }
  cr_expect_eq(device_preset_find("a100_40g") >= 0, true);
  cr_expect_eq(device_preset_find("a100"), -1);
}

/* A quantity that is printed is read as the same number. */
Test(cluster, quantities) {
  Module module = begin();
  const struct {
    Unit unit;
    int64_t value;
    const char *text;
  } rows[] = {
      {UNIT_bytes, INT64_C(84825604096), "79GiB"},
      {UNIT_bytes, INT64_C(40000000000), "40GB"},
      {UNIT_bytes, 1, "1B"},
      {UNIT_bytes, 1023, "1023B"},
      {UNIT_bandwidth, INT64_C(12500000000), "12.5GB/s"},
      {UNIT_bandwidth, 1, "1B/s"},
      {UNIT_flops, INT64_C(989400000000000), "989.4T"},
      {UNIT_flops, 999, "999"},
      {UNIT_hertz, 1410000000, "1.41G"},
      {UNIT_time, 0, "0s"},
      {UNIT_time, 1, "0.001ns"},
      {UNIT_time, 1500000, "1.5us"},
      {UNIT_time, INT64_C(1000000000000000), "1000s"},
      {UNIT_count, 20, "20"},
  };
  for (int i = 0; i < ARRAY_LENGTH(rows); i++)
    cr_expect_str_eq(quantity_text(module.arena, rows[i].unit, rows[i].value),
                     rows[i].text);
  memory_destroy(module.memory);
}

/* ---- ranks ---- */

static const char pods[] = "cluster pods { device = a100_80g\n"
                           "level node { count = 4; link = 300GB/s }\n"
                           "level rack { count = 3; link = 25GB/s }\n"
                           "level hall { count = 2; link = 10GB/s } }\n";
static const char groups[] =
    "cluster groups {\n"
    "group a { device = a100_80g; level node { count = 4; link = 1GB/s }\n"
    "          level rack { count = 2; link = 1GB/s } }\n"
    "group b { device = v100_16g; level box { count = 3; link = 1GB/s } }\n"
    "group c { device = v100_16g; level box { count = 1; link = 1GB/s } }\n"
    "group d { device = k80; level box { count = 2; link = 1GB/s } }\n"
    "level room { count = 2; link = 1GB/s }\n"
    "level site { count = 2; link = 1GB/s } }\n";

/* By its definition: the units of a level are numbered, and two ranks are in
 * one unit where the numbers are equal. */
static int64_t unit_of(const Cluster *cluster, const Level *level, int64_t rank,
                       int64_t *out_member) {
  int64_t local, g;
  const ClusterGroup *group = cluster_group_of(cluster, rank, &local);
  g = group - cluster->groups;
  *out_member = local;
  for (int i = 0; i < group->n_levels; i++) {
    int64_t unit = *out_member / group->levels[i].count;
    if (&group->levels[i] == level) return unit + 1000000 * g;
    *out_member = unit;
  }
  *out_member = g;
  for (int i = 0; i < cluster->n_joining; i++) {
    int64_t unit = *out_member / cluster->joining[i].count;
    if (&cluster->joining[i] == level) return unit;
    *out_member = unit;
  }
  return -1; /* another group's level */
}

/* The least and the most members over all units, by looking at all pairs of a
 * unit and a member. */
static LevelShare count_share(const Cluster *cluster, const Level *level,
                              const int64_t *ranks, int n) {
  LevelShare share = {level, 0, 0};
  for (int i = 0; i < n; i++) {
    int64_t member, other, n_members = 0;
    int64_t unit = unit_of(cluster, level, ranks[i], &member);
    if (unit < 0) continue;
    for (int k = 0; k < n; k++) {
      bool is_new = unit_of(cluster, level, ranks[k], &member) == unit;
      for (int m = 0; m < k && is_new; m++)
        is_new = unit_of(cluster, level, ranks[m], &other) != unit ||
                 other != member;
      n_members += is_new;
    }
    if (share.least == 0 || n_members < share.least) share.least = n_members;
    if (n_members > share.most) share.most = n_members;
  }
  return share;
}

static void expect_share(const LevelShare *got, const LevelShare *want) {
  cr_expect(got->level == want->level && got->least == want->least &&
                got->most == want->most,
            "%s: %lld..%lld, not %lld..%lld", got->level->name,
            (long long)got->least, (long long)got->most, (long long)want->least,
            (long long)want->most);
}

static void check_process_group(Module *module, const Cluster *cluster,
                                int64_t first, int64_t stride, int64_t size) {
  LevelShare *shares;
  int64_t ranks[64];
  cr_assert_leq(size, 64);
  for (int64_t i = 0; i < size; i++) ranks[i] = first + i * stride;
  int n = cluster_shares(module->arena, cluster, first, stride, size, &shares);
  for (int i = 0; i < n; i++) {
    LevelShare want = count_share(cluster, shares[i].level, ranks, (int)size);
    expect_share(&shares[i], &want);
    cr_expect_geq(shares[i].most, 2);
  }
  /* The level between any two of them is among these. */
  for (int64_t i = 1; i < size; i++) {
    bool found = false;
    for (int k = 0; k < n && !found; k++)
      found = shares[k].level ==
              cluster_level_between(cluster, ranks[i - 1], ranks[i]);
    cr_expect(found);
  }
}

static void check_slice(Module *module, const Cluster *cluster, int64_t first,
                        int64_t n) {
  ClusterSlice slice = cluster_slice(module->arena, cluster, first, n);
  int64_t ranks[64], at = 0, product = 1;
  for (int64_t i = 0; i < n; i++) ranks[i] = first + i;
  for (int g = 0; g < slice.n_groups; g++) {
    const SliceGroup *group = &slice.groups[g];
    cr_expect_eq(group->first, at);
    cr_expect_eq(group->group, cluster_group_of(cluster, first + at, NULL));
    at += group->n;
    for (int i = 0; i < group->n_levels; i++) {
      LevelShare want =
          count_share(cluster, group->levels[i].level, ranks, (int)n);
      expect_share(&group->levels[i], &want);
      product *= group->levels[i].most;
    }
  }
  cr_expect_eq(at, n);
  for (int i = 0; i < slice.n_joining; i++) {
    LevelShare want =
        count_share(cluster, slice.joining[i].level, ranks, (int)n);
    expect_share(&slice.joining[i], &want);
  }
  if (!slice.is_regular) return;
  /* A rank has the counts as digits: neighbours differ on the level of the
   * first digit that is not the last one. */
  cr_expect_eq(product, n);
  for (int64_t r = 1; r < n; r++) {
    int level = 0;
    for (int64_t rest = r; rest % slice.groups[0].levels[level].most == 0;)
      rest /= slice.groups[0].levels[level++].most;
    cr_expect_eq(cluster_level_between(cluster, first + r - 1, first + r),
                 slice.groups[0].levels[level].level);
  }
}

Test(cluster, ranks) {
  const char *texts[] = {pods, groups};
  const int64_t n_ranks[] = {24, 14};
  for (int t = 0; t < 2; t++) {
    Module module = begin();
    const Cluster *cluster = read_good(&module, texts[t]);
    int64_t n = cluster_ranks(cluster);
    cr_assert_eq(n, n_ranks[t]);
    cr_expect_null(cluster_level_between(cluster, 5, 5));
    for (int64_t first = 0; first < n; first++)
      for (int64_t size = 1; first + size <= n; size++) {
        check_slice(&module, cluster, first, size);
        for (int64_t stride = 1; first + (size - 1) * stride < n; stride++) {
          check_process_group(&module, cluster, first, stride, size);
          if (size == 1) break;
        }
      }
    memory_destroy(module.memory);
  }
}

Test(cluster, slices_by_hand) {
  Module module = begin();
  const Cluster *cluster = read_good(&module, pods);
  ClusterSlice slice = cluster_slice(module.arena, cluster, 2, 4);
  cr_expect(slice.is_regular); /* 2 of each of two nodes */
  cr_expect_eq(slice.groups[0].n_levels, 2);
  cr_expect_eq(slice.groups[0].levels[0].most, 2);
  slice = cluster_slice(module.arena, cluster, 2, 5);
  cr_expect(!slice.is_regular); /* 2 and 3 */
  slice = cluster_slice(module.arena, cluster, 8, 8);
  cr_expect(slice.is_regular); /* the last node of a rack, the first of one */
  cr_expect_eq(slice.groups[0].n_levels, 3);
  cr_expect_eq(slice.groups[0].levels[1].most, 1);
  slice = cluster_slice(module.arena, cluster, 1, 2);
  cr_expect(slice.is_regular && slice.groups[0].n_levels == 1);
  memory_destroy(module.memory);
}

/* ---- links ---- */

/* MB/s of one member: of `count`, `n` send. */
static int64_t bandwidth(const char *level, Pattern pattern, int64_t n,
                         int64_t transfers) {
  Module module = begin();
  const char *text = arena_printf(
      module.arena, "cluster x { device = k80; level l { %s } }", level);
  const Cluster *cluster = read_good(&module, text);
  int64_t bytes =
      level_bandwidth(&cluster->groups[0].levels[0], pattern, n, transfers);
  memory_destroy(module.memory);
  return bytes / 1000000;
}

Test(cluster, links) {
  const struct {
    const char *level;
    Pattern pattern;
    int64_t n, transfers, want; /* MB/s */
  } rows[] = {
      /* links of its own, one for each transfer */
      {"count = 8; link = 10GB/s; kind = switch", PATTERN_next, 8, 1, 10000},
      {"count = 8; link = 10GB/s; kind = switch", PATTERN_all, 8, 7, 10000},
      {"count = 8; link = 10GB/s; links = 4; kind = switch", PATTERN_next, 8, 1,
       10000},
      {"count = 8; link = 10GB/s; links = 4; kind = switch", PATTERN_next, 8, 3,
       30000},
      {"count = 8; link = 10GB/s; links = 4; kind = wan", PATTERN_next, 8, 9,
       40000},
      /* half of the uplinks: enough for four of eight */
      {"count = 8; link = 10GB/s; kind = fat_tree; oversubscription = 2",
       PATTERN_next, 8, 1, 5000},
      {"count = 8; link = 10GB/s; kind = fat_tree; oversubscription = 2",
       PATTERN_all, 4, 1, 10000},
      {"count = 8; link = 10GB/s; kind = fat_tree; oversubscription = 2.5",
       PATTERN_all, 8, 1, 4000},
      /* 6 links to 3 others, 2 to each: the third is idle where it does not
       * take part */
      {"count = 4; link = 10GB/s; links = 6; kind = mesh", PATTERN_all, 4, 6,
       60000},
      {"count = 4; link = 10GB/s; links = 6; kind = mesh", PATTERN_all, 2, 6,
       20000},
      {"count = 8; link = 10GB/s; links = 6; kind = mesh", PATTERN_next, 2, 6,
       10000},
      /* of 8 in a ring: 4 * 4 / 7 pairs' shares over 2 links */
      {"count = 8; link = 16GB/s; links = 2; kind = ring", PATTERN_next, 8, 2,
       32000},
      {"count = 8; link = 16GB/s; links = 2; kind = ring", PATTERN_all, 8, 2,
       14000},
      /* 4 x 4: 4 rings, each cut in 2 places; 8 * 8 / 15 over 8 links */
      {"count = 16; link = 16GB/s; links = 4; kind = torus", PATTERN_all, 16, 4,
       30000},
      /* one link between the halves */
      {"count = 4; link = 12GB/s; kind = pcie", PATTERN_next, 4, 1, 12000},
      {"count = 4; link = 12GB/s; kind = pcie", PATTERN_all, 4, 1, 9000},
      {"count = 4; link = 12GB/s; kind = pcie", PATTERN_all, 2, 1, 12000},
      /* all on one bus */
      {"count = 4; link = 12GB/s; kind = shared", PATTERN_next, 4, 1, 3000},
      {"count = 4; link = 12GB/s; kind = shared", PATTERN_all, 2, 1, 6000},
  };
  for (int i = 0; i < ARRAY_LENGTH(rows); i++) {
    int64_t got =
        bandwidth(rows[i].level, rows[i].pattern, rows[i].n, rows[i].transfers);
    cr_expect_eq(got, rows[i].want, "row %d: %lld", i, (long long)got);
  }
}

/* No bandwidth is lost in products of the largest numbers, and a torus of any
 * size is answered at once. */
Test(cluster, large_links) {
  Level level = {.count = MAX_CLUSTER_RANKS,
                 .link = INT64_C(1000000000000000000),
                 .links = MAX_CLUSTER_RANKS,
                 .oversubscription = {1000000, 1}};
  for (int kind = 0; kind < N_LINK_KINDS; kind++)
    for (int links = 0; links < 2; links++) {
      level.kind = (LinkKind)kind;
      level.links = links ? MAX_CLUSTER_RANKS : 2;
      for (int pattern = 0; pattern < 2; pattern++) {
        int64_t few = level_bandwidth(&level, (Pattern)pattern, 2, 1);
        int64_t all = level_bandwidth(&level, (Pattern)pattern,
                                      MAX_CLUSTER_RANKS, MAX_CLUSTER_RANKS);
        cr_expect_gt(all, 0);
        cr_expect_gt(few, 0);
      }
    }
}
