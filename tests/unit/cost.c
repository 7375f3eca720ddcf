// links: price passes ir support
/*
 * cost.c -- tests what launches cost, against figures made by hand for a device
 * with round numbers: 4 units, 4096 operations a nanosecond in bf16, half in
 * f32, 1000 bytes a nanosecond.
 */
#include "price/price_list.h"
#include "tests/unit/values.h"

TestSuite(cost, .fini = modules_destroy);

static CostModel round_model(void) {
  CostModel model = {.rates = {.is_gpu = true,
                               .units = 4,
                               .bandwidth = 1000e9,
                               .sustained = 0.5,
                               .memory_share = 0.5,
                               .attention = 0.25,
                               .attention_grad = 0.125,
                               .unaligned = 0.01,
                               .tile_k = 0,
                               .launch = 7}};
  model.rates.flops[DT_bf16] = 4096e9;
  model.rates.flops[DT_f32] = 2048e9;
  return model;
}

typedef struct CostCase {
  const char *name, *operands[6], *node;
  const char *without; /* names of terms */
  int part;
  double ns;
} CostCase;

#define NONE ((const char *)0)
static const CostCase cases[] = {
    /* 4 x 2 tiles of 256 x 128, 2 waves of 2 * 256 * 128 * 1024 operations
     * at 512 a ns */
    {"whole waves",
     {"bf16[B:1024, C:1024]", "bf16[C:1024, F:256]"},
     "dot %0, %1 {over = [C]} : bf16[B:1024, F:256]",
     "",
     COST_product,
     2 * 2. * 256 * 128 * 1024 / 512},
    {"at peak",
     {"bf16[B:1024, C:1024]", "bf16[C:1024, F:256]"},
     "dot %0, %1 {over = [C]} : bf16[B:1024, F:256]",
     "clocks",
     COST_product,
     2 * 2. * 256 * 128 * 1024 / 1024},
    /* 5 tiles of 128 x 128 in 2 waves take longer than 3 of 256 x 128 in one,
     * and these longer than 10 of 128 x 64, at 0.8 of the rate, in 3 */
    {"a wave that is not full",
     {"bf16[B:640, C:256]", "bf16[C:256, F:128]"},
     "dot %0, %1 {over = [C]} : bf16[B:640, F:128]",
     "",
     COST_product,
     2. * 128 * 64 * 256 / (512 * 0.8) * 3},
    {"without waves, 128 x 128 has no rows too many but runs at 0.95",
     {"bf16[B:640, C:256]", "bf16[C:256, F:128]"},
     "dot %0, %1 {over = [C]} : bf16[B:640, F:128]",
     "waves",
     COST_product,
     5 / 4. * 2. * 128 * 128 * 256 / (512 * 0.95)},
    {"without waves and tiles",
     {"bf16[B:640, C:256]", "bf16[C:256, F:128]"},
     "dot %0, %1 {over = [C]} : bf16[B:640, F:128]",
     "waves tiles",
     COST_product,
     2. * 640 * 128 * 256 / 2048},
    {"f32 at half the rate",
     {"f32[B:1024, C:1024]", "f32[C:1024, F:256]"},
     "dot %0, %1 {over = [C]} : f32[B:1024, F:256]",
     "",
     COST_product,
     2 * 2. * 256 * 128 * 1024 / 256},
    /* 255 elements of 16 bits are no multiple of 16 bytes */
    {"unaligned rows of the result",
     {"bf16[B:1024, C:1024]", "bf16[F:255, C:1024]"},
     "dot %0, %1 {over = [C]} : bf16[B:1024, F:255]",
     "",
     COST_product,
     2. * 1024 * 1024 * 255 / 40.96},
    {"unaligned rows of an operand, of two dims",
     {"bf16[B:1024, H:5, D:51]", "bf16[B:1024, C:1024]"},
     "dot %0, %1 {over = [B]} : bf16[H:5, D:51, C:1024]",
     "",
     COST_product,
     2. * 1024 * 1024 * 255 / 40.96},
    {"unaligned rows, left out",
     {"bf16[B:1024, C:1024]", "bf16[F:255, C:1024]"},
     "dot %0, %1 {over = [C]} : bf16[B:1024, F:255]",
     "alignment",
     COST_product,
     2 * 2. * 256 * 128 * 1024 / 512},
    {"unaligned rows in f32",
     {"f32[B:1024, C:1024]", "f32[F:255, C:1024]"},
     "dot %0, %1 {over = [C]} : f32[B:1024, F:255]",
     "",
     COST_product,
     2 * 2. * 256 * 128 * 1024 / 256},
    {"a row of two dims that is aligned",
     {"bf16[B:1024, C:1024]", "bf16[H:64, D:4, C:1024]"},
     "dot %0, %1 {over = [C]} : bf16[B:1024, H:64, D:4]",
     "",
     COST_product,
     2 * 2. * 256 * 128 * 1024 / 512},
    /* one row: the weight is read at 500 bytes a ns; in whole tiles the product
     * itself would take longer on so few units */
    {"bytes take longer",
     {"bf16[B:1, C:4096]", "bf16[C:4096, F:4096]"},
     "dot %0, %1 {over = [C]} : bf16[B:1, F:4096]",
     "clocks tiles waves",
     COST_product,
     2. * (4096 + 4096 * 4096 + 4096) / 500},
    /* 64 x 4 halves of k in 64 waves; whole k would take as long without sums
     */
    {"elements",
     {"f32[B:64, C:100]"},
     "exp %0 : f32[B:64, C:100]",
     "",
     COST_fused,
     2. * 4 * 6400 / 500},
    {"a part is left out",
     {"f32[B:64, C:100]"},
     "exp %0 : f32[B:64, C:100]",
     "fused",
     COST_fused,
     0},
    {"rows of a table",
     {"f32[V:1000, C:10]", "i32[B:20]"},
     "gather %0, %1 {dim = V} : f32[B:20, C:10]",
     "",
     COST_lookup,
     (2. * 4 * 200 + 4 * 20) / 500},
};

static const Graph *graph_of(Module *module, const CostCase *c) {
  Text text = text_create(module->arena);
  text_add(&text, "graph g {\n");
  for (int i = 0; i < 6 && c->operands[i]; i++)
    text_printf(&text, "%%%d = input {index = %d} : %s data \"%d\"\n", i, i,
                c->operands[i], i);
  text_printf(&text, "%%9 = %s }", c->node);
  Source *source = ARENA_NEW(module->arena, Source);
  *source = (Source){"case", text_string(&text), text.n};
  const Graph *graph = graph_parse(module, source);
  Text errors = text_create(module->arena);
  diags_print(module->diags, &errors);
  cr_assert(graph, "%s: %s", c->name, text_string(&errors));
  return graph;
}

Test(cost, launches_by_hand) {
  for (int i = 0; i < ARRAY_LENGTH(cases); i++) {
    const CostCase *c = &cases[i];
    const Graph *graph = graph_of(module_create(), c);
    CostModel model = round_model();
    for (int term = 0; term < N_COST_TERMS; term++)
      if (strstr(c->without, cost_term_info((CostTerm)term)->name))
        model.without |= 1u << term;
    LaunchCost cost = cost_launch(&model, graph, graph->nodes.n - 1);
    cr_expect_eq((int)cost.part, c->part, "%s: %d", c->name, cost.part);
    cr_expect_eq(cost.launch, 7);
    cr_expect_float_eq((double)cost.time / 1000, c->ns, 0.001, "%s: %.3f ns",
                       c->name, (double)cost.time / 1000);
  }
}

/* Causal attention computes the pairs up to the diagonal, 10 operations for
 * each in its gradient. */
Test(cost, attention_skips) {
  static const char *const text =
      "graph g {\n"
      "%0 = input {index = 0} : bf16[B:2, T:64, D:32] data \"0\"\n"
      "%1 = input {index = 1} : bf16[B:2, S:64, D:32] data \"1\"\n"
      "%2 = input {index = 2} : bf16[B:2, S:64, D:32] data \"2\"\n"
      "%3, %4 = attention %0, %1, %2 {over = [D], query = T, key = S, scale = "
      "1.0, causal = 1} : bf16[B:2, T:64, D:32], f32[B:2, T:64] }";
  Module *module = module_create();
  const Graph *graph =
      graph_parse(module, &(Source){"case", text, strlen(text)});
  cr_assert(graph);
  CostModel model = round_model();
  double pairs = 64 * 65 / 2;
  LaunchCost cost = cost_launch(&model, graph, 3);
  cr_expect_eq((int)cost.part, COST_attention);
  cr_expect_float_eq((double)cost.time / 1000, 4 * 2 * pairs * 32 / 1024,
                     0.001);
  model.without = 1u << COST_causal;
  cost = cost_launch(&model, graph, 3);
  cr_expect_float_eq((double)cost.time / 1000, 4 * 2 * 64 * 64. * 32 / 1024,
                     0.001);
}

Test(cost, presets_and_terms) {
  DeviceRates rates = {0};
  cr_expect(cost_rates_of("a100_80g", &rates));
  cr_expect(rates.sustained > 0 && rates.launch > 0);
  cr_expect(!cost_rates_of("a100", &rates));
  for (int term = 0; term < N_COST_TERMS; term++)
    cr_expect_eq(cost_term_find(cost_term_info((CostTerm)term)->name), term);
  cr_expect_eq(cost_term_find("magic"), -1);
}

/* ---- transfers ---- */

/* Two levels: nodes of four devices with two links of 100 bytes a ns, and two
 * nodes with one link of 10 bytes a ns. */
static const Cluster *two_nodes(Arena *arena) {
  Level *levels = ARENA_ARRAY(arena, Level, 2);
  levels[0] = (Level){.name = "node",
                      .count = 4,
                      .link = 100000000000,
                      .links = 2,
                      .latency = 1000,
                      .kind = LINK_switch,
                      .oversubscription = {1, 1}};
  levels[1] = levels[0];
  levels[1].name = "pod";
  levels[1].count = 2;
  levels[1].link = 10000000000;
  levels[1].links = 1;
  levels[1].latency = 5000;
  ClusterGroup *group = ARENA_NEW(arena, ClusterGroup);
  *group = (ClusterGroup){.n_levels = 2, .levels = levels};
  Cluster *cluster = ARENA_NEW(arena, Cluster);
  *cluster = (Cluster){.name = "two", .n_groups = 1, .groups = group};
  return cluster;
}

static int group_levels(const Cluster *cluster, int64_t world,
                        const int64_t *ranks, int n, GroupLevel *out) {
  ClusterSlice first = cluster_slice(module_create()->arena, cluster, 0, world);
  return cost_group_levels(&first, ranks, n, out);
}

static Price price_of(const InstructionList *list, const CostModel *model,
                      const Cluster *cluster) {
  Arena *arena = list->graph->module->arena;
  ClusterSlice first =
      cluster_slice(arena, cluster, 0, mesh_ranks(&list->graph->mesh));
  EntryPoint entry = entry_point_of_list(arena, ENTRY_train, list);
  return price_program(arena, &entry, model, &first, NULL, NULL);
}

typedef struct TransferCase {
  const char *name;
  Transport transport;
  Op op;
  int n, stride;
  int64_t bytes;
  int n_loads;
  double node_ns, pod_ns; /* -1: the level is not crossed */
  Ps latency;
  const char *without;
} TransferCase;

static const TransferCase transfers[] = {
    {"ring inside a node, over both links", TRANSPORT_nccl, OP_all_gather, 4, 1,
     6000, 2, 30, -1, 3 * 1000, ""},
    {"ring over both nodes: it crosses twice", TRANSPORT_nccl, OP_all_gather, 8,
     1, 7000, 3, 35, 700, 6 * 1000 + 1 * 5000, ""},
    {"four groups share the link of a node", TRANSPORT_nccl, OP_all_gather, 2,
     4, 1000, 2, -1, 400, 5000, ""},
    {"and do not, without contention", TRANSPORT_nccl, OP_all_gather, 2, 4,
     1000, 2, -1, 100, 5000, "contention"},
    {"an all-reduce has the hops twice", TRANSPORT_nccl, OP_all_reduce, 2, 4,
     1000, 2, -1, 400, 2 * 5000, ""},
    {"direct exchange: 4 of 7 parts of 4 ranks leave a node", TRANSPORT_mpi,
     OP_all_gather, 8, 1, 7000, 3, 35, 7000 * 4 * 4 / 7 / 10., 5000, ""},
    {"and NCCL's all-to-all", TRANSPORT_nccl, OP_all_to_all, 8, 1, 7000, 3, 35,
     7000 * 4 * 4 / 7 / 10., 5000, ""},
    {"a permute has one hop", TRANSPORT_mpi, OP_permute, 4, 1, 6000, 2, 30, -1,
     1000, ""},
    {"no latency", TRANSPORT_nccl, OP_all_gather, 4, 1, 6000, 2, 30, -1, 0,
     "latency"},
};

Test(cost, transfers_by_hand) {
  for (int i = 0; i < ARRAY_LENGTH(transfers); i++) {
    const TransferCase *c = &transfers[i];
    Arena *arena = module_create()->arena;
    const Cluster *cluster = two_nodes(arena);
    CostModel model = round_model();
    model.transport = c->transport;
    model.rates.transport = 1e15;
    for (int term = 0; term < N_COST_TERMS; term++)
      if (strstr(c->without, cost_term_info((CostTerm)term)->name))
        model.without |= 1u << term;
    int64_t ranks[8];
    for (int r = 0; r < c->n; r++) ranks[r] = r * c->stride;
    GroupLevel levels[2];
    int n_levels = group_levels(cluster, 8, ranks, c->n, levels);
    SimTransfer transfer = cost_transfer(arena, &model, cluster, c->op,
                                         c->bytes, c->n, levels, n_levels);
    cr_assert_eq(transfer.n_loads, c->n_loads, "%s: %d", c->name,
                 transfer.n_loads);
    cr_expect_eq(transfer.latency, c->latency, "%s: %ld", c->name,
                 (long)transfer.latency);
    double expected[2] = {c->node_ns, c->pod_ns};
    for (int l = 0; l < transfer.n_loads - 1; l++)
      cr_expect_float_eq((double)transfer.loads[l].busy / 1000,
                         expected[transfer.loads[l].link], 0.001,
                         "%s: link %d, %.3f ns", c->name,
                         transfer.loads[l].link,
                         (double)transfer.loads[l].busy / 1000);
    cr_expect_eq(transfer.loads[transfer.n_loads - 1].link, 2);
  }
}

/* A collective of whole nodes takes as long as it was measured.  Four groups of
 * one rank in each node send 28,000 bytes from a node where it sends 16,000. */
Test(cost, transfers_between_nodes_as_measured) {
  static const LinkPoint points[] = {
      {OP_all_gather, 8, 2, 10, 1000, 0, 0, 0},
      {OP_all_gather, 8, 2, 7000, 5000000, 0, 0, 0},
      {OP_all_gather, 4, 1, 7000, 30000, 0, 0, 0}};
  const Curves curves = {.n_links = ARRAY_LENGTH(points), .links = points};
  Arena *arena = module_create()->arena;
  const Cluster *cluster = two_nodes(arena);
  CostModel model = round_model();
  model.transport = TRANSPORT_mpi;
  model.rates.transport = 1e15;
  model.curves = &curves;
  const struct {
    int n, stride;
    Ps busy;
  } groups[] = {{8, 1, 4999000}, {2, 4, 8749000}};
  for (int i = 0; i < ARRAY_LENGTH(groups); i++) {
    int64_t ranks[8];
    for (int r = 0; r < groups[i].n; r++) ranks[r] = r * groups[i].stride;
    GroupLevel levels[2];
    int n_levels = group_levels(cluster, 8, ranks, groups[i].n, levels);
    SimTransfer transfer = cost_transfer(arena, &model, cluster, OP_all_gather,
                                         7000, groups[i].n, levels, n_levels);
    cr_expect_eq(transfer.latency, 1000);
    cr_expect_eq(transfer.loads[n_levels - 1].busy, groups[i].busy, "%d: %ld",
                 i, (long)transfer.loads[n_levels - 1].busy);
  }
}

/* Few bytes over many ranks: a tree has fewer hops, and more bytes. */
Test(cost, a_tree_for_small_all_reduces) {
  Arena *arena = module_create()->arena;
  const Cluster *cluster = two_nodes(arena);
  CostModel model = round_model();
  model.transport = TRANSPORT_nccl;
  model.rates.transport = 1e15;
  int64_t ranks[8] = {0, 1, 2, 3, 4, 5, 6, 7};
  GroupLevel levels[2];
  int n = group_levels(cluster, 8, ranks, 8, levels);
  SimTransfer small =
      cost_transfer(arena, &model, cluster, OP_all_reduce, 70, 8, levels, n);
  cr_expect_eq(small.latency, 2 * (2 * 1000 + 1 * 5000), "%ld",
               (long)small.latency);
  cr_expect_eq(small.loads[1].busy, 8000, "%ld", (long)small.loads[1].busy);
  SimTransfer large = cost_transfer(arena, &model, cluster, OP_all_reduce,
                                    7000000, 8, levels, n);
  cr_expect_eq(large.latency, 2 * (6 * 1000 + 5000));
}

/* ---- a list ---- */

/* Two ranks a node apart sum 6,400 floats, and one kernel waits for it. */
Test(cost, a_list_by_hand) {
  static const char *const text =
      "graph g mesh(d = 2, e = 4) {\n"
      "%0 = input {index = 0} : f32[B:64, C:100; sum@d] data \"0\"\n"
      "%1 = all_reduce %0 {axes = [d], reduce = sum} : f32[B:64, C:100]\n"
      "%2 = exp %1 : f32[B:64, C:100]\n"
      "output data \"y\" %2 }";
  Module *module = module_create();
  const Graph *graph =
      graph_parse(module, &(Source){"case", text, strlen(text)});
  cr_assert(graph);
  const Cluster *cluster = two_nodes(module->arena);
  CostModel model = round_model();
  model.transport = TRANSPORT_nccl;
  model.rates.transport = 1e15;
  model.rates.collective = 300;
  InstructionList *list = instructions_of(module->arena, graph, NULL);
  Price price = price_of(list, &model, cluster);
  /* each rank sends 25,600 bytes; the groups of four ranks share the link */
  Ps waits = 300 + 2 * 5000 + 25600 * 4 * 1000 / 10;
  Ps kernel = 2 * 25600 * 1000 / 500;
  cr_expect_eq(price.parts[COST_all_reduce], waits, "%ld",
               (long)price.parts[COST_all_reduce]);
  cr_expect_eq(price.parts[COST_fused], kernel);
  cr_expect_eq(price.parts[COST_launch], 7);
  cr_expect_eq(price.step, waits + kernel + 7);
  cr_expect_eq(price.exposed, waits);
  cr_expect_eq(price.sent, 25600);
  cr_expect_eq(price.n_launches, 1);
  cr_expect_eq(price.n_transfers, 1);
}

/* Ranks 0 to 2 are in one node, 3 to 5 in two: the second group is slower, and
 * all wait for it. */
Test(cost, groups_that_do_not_fit_the_nodes) {
  static const char *const text =
      "graph g mesh(d = 2, e = 3) {\n"
      "%0 = input {index = 0} : f32[B:1; sum@e] data \"0\"\n"
      "%1 = all_reduce %0 {axes = [e], reduce = sum} : f32[B:1]\n"
      "output data \"y\" %1 }";
  Module *module = module_create();
  const Graph *graph =
      graph_parse(module, &(Source){"case", text, strlen(text)});
  cr_assert(graph);
  CostModel model = round_model();
  model.transport = TRANSPORT_nccl;
  model.rates.transport = 1e15;
  InstructionList *list = instructions_of(module->arena, graph, NULL);
  Price price = price_of(list, &model, two_nodes(module->arena));
  /* a few bytes, and twice a hop over each level; inside a node four hops */
  Ps latency = 2 * (1000 + 5000);
  cr_expect(price.exposed >= latency && price.exposed < latency + 5000, "%ld",
            (long)price.exposed);
}

/* ---- unlike devices ---- */

/* A node of four devices with round numbers and one of two V100, joined by a
 * link of 10 bytes a ns. */
static const Cluster *two_groups(Module *module) {
  Arena *arena = module->arena;
  const Cluster *nodes = two_nodes(arena);
  const Level *node = &nodes->groups->levels[0],
              *pod = &nodes->groups->levels[1];
  ClusterDevice *devices = ARENA_ARRAY(arena, ClusterDevice, 2);
  devices[0] = (ClusterDevice){.name = "round", .target = "cuda"};
  devices[1] = device_of_preset(device_preset_find("v100_16g"), module->names);
  Level *levels = ARENA_ARRAY(arena, Level, 3);
  levels[0] = levels[1] = *node;
  levels[1].count = 2;
  levels[2] = *pod;
  ClusterGroup *groups = ARENA_ARRAY(arena, ClusterGroup, 2);
  groups[0] = (ClusterGroup){"fast", &devices[0], 1, &levels[0], false, {0}};
  groups[1] = (ClusterGroup){"slow", &devices[1], 1, &levels[1], false, {0}};
  Cluster *cluster = ARENA_NEW(arena, Cluster);
  *cluster = (Cluster){.name = "mixed",
                       .n_groups = 2,
                       .groups = groups,
                       .n_joining = 1,
                       .joining = &levels[2]};
  return cluster;
}

Test(cost, levels_that_join_groups) {
  const Cluster *cluster = two_groups(module_create());
  cr_expect_eq(cost_links(cluster), 5);
  cr_expect_eq(cost_transport_link(cluster, 0), 1);
  cr_expect_eq(cost_transport_link(cluster, 1), 3);
  GroupLevel levels[5];
  /* One rank of the slow group: its node is left out. */
  cr_assert_eq(group_levels(cluster, 6, (int64_t[]){0, 2, 4}, 3, levels), 2);
  cr_expect_eq(levels[0].link, 0);
  cr_expect_eq(levels[0].hops, 1);
  cr_expect_eq(levels[0].members, 4);
  cr_expect_eq(levels[1].link, 4);
  cr_expect_eq(levels[1].hops, 1);
  cr_expect_eq(levels[1].group_below, 2);
  cr_expect_eq(levels[1].group_members, 2);
  cr_expect_eq(levels[1].ranks_below, 4);
  cr_expect_eq(levels[1].members, 2);
  cr_assert_eq(group_levels(cluster, 6, (int64_t[]){4, 5}, 2, levels), 1);
  cr_expect_eq(levels[0].link, 2);
  /* All of them: a ring has 3 + 1 hops inside and 1 between. */
  cr_assert_eq(
      group_levels(cluster, 6, (int64_t[]){0, 1, 2, 3, 4, 5}, 6, levels), 3);
  cr_expect_eq(levels[0].hops, 3);
  cr_expect_eq(levels[1].hops, 1);
  cr_expect_eq(levels[2].hops, 1);
  /* The first five ranks. */
  cr_assert_eq(group_levels(cluster, 5, (int64_t[]){0, 1, 2, 3, 4}, 5, levels),
               2);
  /* The first four have the first group to themselves. */
  cr_assert_eq(group_levels(cluster, 4, (int64_t[]){0, 2}, 2, levels), 1);
}

/* Ranks 2 to 5 of two nodes of 4: two ranks of each. */
Test(cost, levels_of_a_slice_in_the_middle) {
  Arena *arena = module_create()->arena;
  const Cluster *cluster = two_nodes(arena);
  ClusterSlice middle = cluster_slice(arena, cluster, 2, 4);
  GroupLevel levels[2];
  cr_assert_eq(cost_group_levels(&middle, (int64_t[]){0, 1, 2, 3}, 4, levels),
               2);
  cr_expect_eq(levels[0].hops, 2);
  cr_expect_eq(levels[0].members, 2);
  cr_expect_eq(levels[1].hops, 1);
  cr_expect_eq(levels[1].ranks_below, 2);
  cr_expect_eq(levels[1].members, 2);
  /* Each of the two nodes has one of these. */
  cr_assert_eq(cost_group_levels(&middle, (int64_t[]){0, 2}, 2, levels), 1);
  cr_expect_eq(levels[0].link, 1);
  ClusterSlice node = cluster_slice(arena, cluster, 4, 4);
  cr_expect_eq(cost_group_levels(&node, (int64_t[]){0, 1, 2, 3}, 4, levels), 1);
  cr_expect_eq(levels[0].hops, 3);
  const Cluster *groups = two_groups(module_create());
  ClusterSlice behind = cluster_slice(arena, groups, 3, 3);
  GroupLevel of[5];
  cr_assert_eq(cost_group_levels(&behind, (int64_t[]){0, 1, 2}, 3, of), 2);
  cr_expect_eq(of[0].link, 2);
  cr_expect_eq(of[1].link, 4);
  cr_expect_eq(of[1].ranks_below, 2);
}

static Price price_on_two_groups(Module *module, const char *axis,
                                 CostModel *model) {
  Text text = text_create(module->arena);
  text_printf(&text,
              "graph g mesh(d = 3, e = 2) {\n"
              "%%0 = input {index = 0} : f32[B:64, C:1000; sum@%s] data \"0\"\n"
              "%%1 = exp %%0 : f32[B:64, C:1000; sum@%s]\n"
              "%%2 = all_reduce %%1 {axes = [%s], reduce = sum} : f32[B:64, "
              "C:1000]\n"
              "%%3 = exp %%2 : f32[B:64, C:1000]\n"
              "output data \"y\" %%3 }",
              axis, axis, axis);
  const Graph *graph =
      graph_parse(module, &(Source){"case", text_string(&text), text.n});
  cr_assert(graph);
  const Cluster *cluster = two_groups(module);
  InstructionList *list = instructions_of(module->arena, graph, NULL);
  return price_of(list, model, cluster);
}

/* A class for each group: over d they sum together, over e each by itself. */
Test(cost, classes_wait_for_each_other) {
  Module *module = module_create();
  CostModel model = round_model();
  model.transport = TRANSPORT_nccl;
  model.rates.transport = 1e15;
  model.without = 1u << COST_interference;
  Price price = price_on_two_groups(module, "d", &model);
  cr_assert_eq(price.n_classes, 2);
  const PriceClass *fast = &price.classes[0], *slow = &price.classes[1];
  cr_expect_eq(fast->ranks, 4);
  cr_expect_eq(slow->ranks, 2);
  /* Both have the step of the slow one; what it does not take from the fast one
   * in launches the fast one waits for it. */
  cr_expect_eq(fast->step, slow->step);
  cr_expect_eq(price.step, slow->step);
  cr_expect_neq(fast->compute, slow->compute);
  cr_expect_eq(fast->compute + fast->exposed, fast->step);
  cr_expect_eq(slow->compute + slow->exposed, slow->step);
  const PriceClass *longer = fast->compute > slow->compute ? fast : slow;
  cr_expect_eq(price.compute, longer->compute);
  /* 4/3 of 256,000 bytes leave a member for each of two groups of ranks, at 10
   * a ns */
  cr_expect_geq(price.parts[COST_all_reduce], (Ps)(256000 * 4 / 3 * 2 * 100));
  Price apart = price_on_two_groups(module, "e", &model);
  cr_expect_neq(apart.classes[0].step, apart.classes[1].step);
  cr_expect_eq(apart.step, apart.classes[0].step > apart.classes[1].step
                               ? apart.classes[0].step
                               : apart.classes[1].step);
}

/* Without contention, queues do not share links either. */
Test(cost, queues_share_links_by_contention) {
  static const char *const text =
      "graph g mesh(d = 2, e = 4) {\n"
      "%0 = input {index = 0} : f32[B:64, C:100; sum@d] data \"0\"\n"
      "%1 = input {index = 1} : f32[B:64, C:100; sum@d] data \"1\"\n"
      "%2 = all_reduce %0 {axes = [d], reduce = sum, bucket = 1} : f32[B:64, "
      "C:100]\n"
      "%3 = all_reduce %1 {axes = [d], reduce = sum} : f32[B:64, C:100]\n"
      "%4 = add %2, %3 : f32[B:64, C:100]\n"
      "output data \"y\" %4 }";
  Module *module = module_create();
  const Graph *graph =
      graph_parse(module, &(Source){"case", text, strlen(text)});
  cr_assert(graph);
  CostModel model = round_model();
  model.transport = TRANSPORT_nccl;
  model.rates.transport = 1e15;
  model.without = 1u << COST_latency;
  InstructionList *list = instructions_of(module->arena, graph, NULL);
  const Cluster *cluster = two_nodes(module->arena);
  Price price = price_of(list, &model, cluster);
  cr_expect_eq(price.exposed, 2 * 25600 * 4 * 1000 / 10, "%ld",
               (long)price.exposed);
  model.without |= 1u << COST_contention;
  price = price_of(list, &model, cluster);
  cr_expect_eq(price.exposed, 25600 * 1000 / 10, "%ld", (long)price.exposed);
}
