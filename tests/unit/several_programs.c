// links: driver codegen frontend passes runtime price ir support
/*
 * several_programs.c -- tests the price of programs that run at one time: which
 * links they share, and what a step of all of them takes.
 */
#include "price/price_list.h"
#include "tests/unit/values.h"

TestSuite(several_programs, .fini = modules_destroy);

/* ---- a cluster ---- */

static Level level_of(const char *name, int64_t count, Bytes link,
                      LinkKind kind) {
  return (Level){.name = name,
                 .count = count,
                 .link = link,
                 .links = 1,
                 .kind = kind,
                 .oversubscription = {1, 1}};
}

/* Nodes of four devices with links of 100 bytes a ns, and three nodes with one
 * link of 10 bytes a ns each. */
static const Cluster *three_nodes(Arena *arena, LinkKind inside) {
  Level *levels = ARENA_ARRAY(arena, Level, 2);
  levels[0] = level_of("node", 4, 100000000000, inside);
  levels[1] = level_of("pod", 3, 10000000000, LINK_switch);
  ClusterGroup *group = ARENA_NEW(arena, ClusterGroup);
  *group = (ClusterGroup){.n_levels = 2, .levels = levels};
  Cluster *cluster = ARENA_NEW(arena, Cluster);
  *cluster = (Cluster){.name = "three", .n_groups = 1, .groups = group};
  return cluster;
}

/* Launches cost nothing, so that transfers alone take time. */
static CostModel link_model(void) {
  CostModel model = {.rates = {.is_gpu = true,
                               .units = 1,
                               .bandwidth = 1e18,
                               .memory_share = 1,
                               .sustained = 1,
                               .transport = 1e18},
                     .transport = TRANSPORT_nccl};
  model.rates.flops[DT_f32] = 1e18;
  return model;
}

/* ---- links ---- */

Test(several_programs, links_that_they_share) {
  enum { NODE, POD, TRANSPORT };
  static const struct {
    const char *name;
    LinkKind inside;
    RankRange ranks[2];
    bool shares[3];
  } cases[] = {
      {"nodes apart", LINK_switch, {{0, 4}, {4, 4}}, {false, false, false}},
      {"a node in common", LINK_switch, {{0, 2}, {2, 4}}, {false, true, false}},
      {"a bus in common", LINK_shared, {{0, 2}, {2, 4}}, {true, true, false}},
      {"buses apart", LINK_shared, {{0, 4}, {4, 4}}, {false, false, false}},
  };
  for (int i = 0; i < ARRAY_LENGTH(cases); i++) {
    Arena *arena = module_create()->arena;
    const Cluster *cluster = three_nodes(arena, cases[i].inside);
    ClusterSlice slice = cluster_slice(arena, cluster, 0, 12);
    SharedLinks links =
        shared_links_of(arena, &slice, cases[i].ranks, 2, 1, true);
    for (int l = 0; l < 3; l++)
      for (int d = 0; d < 2; d++)
        cr_expect_eq(shared_link(&links, 0, 0, l, (LinkDirection)d) ==
                         shared_link(&links, 1, 0, l, (LinkDirection)d),
                     cases[i].shares[l], "%s, link %d", cases[i].name, l);
    cr_expect_neq(shared_link(&links, 0, 0, POD, LINK_out),
                  shared_link(&links, 0, 0, POD, LINK_in));
  }
}

/* The ranks of the cluster before the slice count. */
Test(several_programs, links_of_ranks_behind_others) {
  Arena *arena = module_create()->arena;
  const Cluster *cluster = three_nodes(arena, LINK_switch);
  ClusterSlice slice = cluster_slice(arena, cluster, 2, 8);
  RankRange ranks[] = {{0, 2}, {2, 2}, {4, 2}};
  SharedLinks links = shared_links_of(arena, &slice, ranks, 3, 1, true);
  cr_expect_neq(shared_link(&links, 0, 0, 1, LINK_out),
                shared_link(&links, 1, 0, 1, LINK_out));
  cr_expect_eq(shared_link(&links, 1, 0, 1, LINK_out),
               shared_link(&links, 2, 0, 1, LINK_out));
}

/* ---- steps ---- */

/* A sum of 1000 floats over so many ranks. */
static PriceProgram sum_on(Module *module, RankRange ranks) {
  const char *text = arena_printf(
      module->arena,
      "graph g mesh(data = %d) {\n"
      "  %%0 = input {index = 0} : f32[B:%d@data, C:1000] data \"d.x\"\n"
      "  %%1 = sum %%0 {over = [B]} : f32[C:1000; sum@data]\n"
      "  %%2 = all_reduce %%1 {axes = [data], reduce = sum} : f32[C:1000]\n"
      "  output result \"y\" %%2\n"
      "}\n",
      (int)ranks.n, (int)ranks.n);
  Source *source = ARENA_NEW(module->arena, Source);
  *source = (Source){.path = "test", .text = text, .n = strlen(text)};
  const Graph *graph = graph_parse(module, source);
  cr_assert_not_null(graph);
  EntryPoint *entry = ARENA_NEW(module->arena, EntryPoint);
  *entry = entry_point_of_list(module->arena, ENTRY_train,
                               instructions_of(module->arena, graph, NULL));
  return (PriceProgram){entry, ranks};
}

static Price price_of(Module *module, const PriceProgram *programs, int n,
                      uint32_t without) {
  const Cluster *cluster = three_nodes(module->arena, LINK_switch);
  ClusterSlice slice = cluster_slice(module->arena, cluster, 0, 12);
  CostModel model = link_model();
  model.without = without;
  return price_programs(module->arena, programs, n, &model, &slice, NULL, NULL);
}

/* Both cross the links of nodes; those of the middle node are in common in the
 * second case. */
Test(several_programs, steps_over_common_links_take_longer) {
  Module *module = module_create();
  PriceProgram apart[] = {sum_on(module, (RankRange){0, 4}),
                          sum_on(module, (RankRange){4, 8})};
  PriceProgram common[] = {sum_on(module, (RankRange){0, 6}),
                           sum_on(module, (RankRange){6, 6})};
  Ps alone = price_of(module, &apart[1], 1, 0).step;
  cr_expect_eq(price_of(module, apart, 2, 0).step, alone);
  Ps one = price_of(module, common, 1, 0).step;
  Price both = price_of(module, common, 2, 0);
  cr_expect_eq(both.n_classes, 2);
  cr_expect_eq(both.classes[1].program, 1);
  cr_expect_eq(both.classes[1].first_rank, 6);
  cr_expect_eq(both.step, 2 * one, "%lld, alone %lld", (long long)both.step,
               (long long)one);
  cr_expect_eq(price_of(module, common, 2, 1u << COST_contention).step, one);
}
