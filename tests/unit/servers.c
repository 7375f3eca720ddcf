// links: passes ir support
/*
 * servers.c -- tests how parameters are dealt to servers.
 */
#include "ir/plan/plan.h"
#include "tests/unit/values.h"

#include <stdint.h>

TestSuite(servers, .fini = modules_destroy);

enum { MOST_PARAMS = 40 };

/* A graph that trains parameters of so many elements. */
static Graph *graph_of(Module *module, const int64_t *sizes, int n) {
  Graph *graph = graph_create(module, name_intern(module->names, "train"));
  for (int i = 0; i < n; i++) {
    Type *type = type_create(module->arena, DT_f32, 1);
    Name path = name_format(module->names, "p%d", i);
    type->dims[0].name = path;
    type->dims[0].size = sizes[i];
    graph_output(graph, ROLE_param, path,
                 graph_input(graph, ROLE_param, path, type));
  }
  return graph;
}

/* Finds the elements on each server; every parameter is on one. */
static Map *deal(Module *module, const int64_t *sizes, int n, int n_servers,
                 int64_t *out_held) {
  Map *servers = plan_deal_parameters(module->arena, graph_of(module, sizes, n),
                                      n_servers, true)
                     .of_param;
  for (int s = 0; s < n_servers; s++) out_held[s] = 0;
  cr_assert_eq(map_size(servers), n);
  for (int i = 0; i < n; i++) {
    Name path = name_format(module->names, "p%d", i);
    int server = (int)(intptr_t)map_get(servers, path) - 1;
    cr_assert(server >= 0 && server < n_servers);
    out_held[server] += sizes[i];
  }
  return servers;
}

Test(servers, take_the_largest_parameters_first) {
  const int64_t sizes[] = {30, 36, 36, 18};
  int64_t held[3];
  deal(module_create(), sizes, 4, 3, held);
  cr_expect_eq(held[0], 36);
  cr_expect_eq(held[1], 36);
  cr_expect_eq(held[2], 48);
}

/* The largest table is on all servers, and then the rest is even. */
Test(servers, divide_large_tables) {
  Module *module = module_create();
  const int64_t sizes[] = {800, 90, 80, 70};
  Graph *graph = graph_of(module, sizes, 4);
  Type *table = type_create(module->arena, DT_f32, 2);
  Name path = name_intern(module->names, "table");
  table->dims[0].name = name_intern(module->names, "V");
  table->dims[0].size = 101;
  table->dims[1].name = name_intern(module->names, "C");
  table->dims[1].size = 30;
  graph_output(graph, ROLE_param, path,
               graph_input(graph, ROLE_param, path, table));
  ServerDeal whole = plan_deal_parameters(module->arena, graph, 3, false);
  cr_expect_eq(whole.n_parts, 3);
  cr_expect_leq((intptr_t)map_get(whole.of_param, path), 3);
  ServerDeal deal = plan_deal_parameters(module->arena, graph, 3, true);
  cr_expect_eq(deal.n_parts, 4);
  cr_expect_eq((intptr_t)map_get(deal.of_param, path), 4);
  Name first = name_intern(module->names, "p0");
  for (int i = 1; i < 4; i++)
    cr_expect_neq(map_get(deal.of_param, name_format(module->names, "p%d", i)),
                  map_get(deal.of_param, first));
}

/* Without its smallest parameter the fullest server is no fuller than the mean:
 * else that parameter would be on another one. */
Test(servers, are_about_equal) {
  for (uint64_t seed = 0; seed < 300; seed++) {
    Module *module = module_create();
    int64_t sizes[MOST_PARAMS], held[4], all = 0;
    int n_servers = 1 + (int)random_below(seed, 1000, 4);
    int n = n_servers + (int)random_below(seed, 1001, MOST_PARAMS - 4);
    for (int i = 0; i < n; i++)
      all += sizes[i] = 1 + (int64_t)random_below(seed, (uint64_t)i, 5000);
    Map *servers = deal(module, sizes, n, n_servers, held);
    int fullest = 0;
    for (int s = 1; s < n_servers; s++)
      if (held[s] > held[fullest]) fullest = s;
    int64_t smallest = INT64_MAX;
    for (int i = 0; i < n; i++)
      if ((intptr_t)map_get(servers, name_format(module->names, "p%d", i)) ==
              fullest + 1 &&
          sizes[i] < smallest)
        smallest = sizes[i];
    cr_expect_leq((held[fullest] - smallest) * n_servers, all, "seed %d",
                  (int)seed);
    for (int s = 0; s < n_servers; s++) cr_expect_gt(held[s], 0);
  }
}
