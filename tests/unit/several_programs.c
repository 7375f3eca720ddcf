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

/* ---- pipelines ---- */

enum { STAGE_F, STAGE_B };

/* A forward pass of one kernel and a backward pass of two for each of 8
 * micro-batches. */
static ProgramStage stage_of(Module *module, int number) {
  static const char text[] =
      "graph g mesh(time = 8~) {\n"
      "  %0 = input {index = 0} : f32[B:8@time, C:1000] data \"d.x\"\n"
      "  %1 = exp %0 : f32[B:8@time, C:1000]\n"
      "  %2 = exp %1 : f32[B:8@time, C:1000]\n"
      "  %3 = exp %2 : f32[B:8@time, C:1000]\n"
      "  output result \"y\" %3\n"
      "}\n";
  Source *source = ARENA_NEW(module->arena, Source);
  *source = (Source){.path = "test", .text = text, .n = strlen(text)};
  const Graph *graph = graph_parse(module, source);
  cr_assert_not_null(graph);
  ProgramStage stage = {.number = number,
                        .graph = graph,
                        .instructions =
                            instructions_of(module->arena, graph, NULL)};
  /* Instruction 0 and the last one are the brackets of the micro-batches. */
  const ProgramSegment segments[] = {
      {.end_node = 2, .begin = 1, .end = 2, .kind = TOKEN_forward},
      {.first_node = 2,
       .end_node = 4,
       .begin = 2,
       .end = 4,
       .kind = TOKEN_backward}};
  for (int i = 0; i < 2; i++) {
    vec_push(module->arena, &stage.segments, segments[i]);
    stage.segments.data[i].n_registers = 1;
  }
  return stage;
}

static ProgramCall call_of_token(const Token *token, int rank) {
  ProgramCall call = {.registers = {[REGISTER_microbatch] = token->microbatch}};
  switch (token_info(token->kind)->role) {
  case TOKEN_ROLE_send: call.kind = CALL_send; break;
  case TOKEN_ROLE_receive: call.kind = CALL_receive; break;
  default: call.kind = CALL_segment;
  }
  if (call.kind == CALL_segment) {
    call.segment = token->kind == TOKEN_forward ? STAGE_F : STAGE_B;
    return call;
  }
  call.edge = token->edge;
  call.peer = token->peer - rank;
  return call;
}

/* The program of a rank of a lowered pipeline. */
static PriceProgram program_of_rank(Module *module, const Pipeline *pipeline,
                                    int rank, int64_t bytes) {
  EntryPoint *entry = ARENA_NEW(module->arena, EntryPoint);
  *entry = (EntryPoint){.id = ENTRY_train};
  vec_push(module->arena, &entry->stages, stage_of(module, rank));
  for (int e = 0; e < pipeline->n_edges; e++) {
    const PipelineEdge *edge = &pipeline->edges[e];
    bool is_forward = edge->from == TOKEN_forward;
    TokenKind kind = is_forward ? TOKEN_forward : TOKEN_backward;
    vec_push(module->arena, &entry->edges,
             (ProgramEdge){.from = edge->from_stage,
                           .to = edge->to_stage,
                           .bytes = bytes,
                           .from_kind = kind,
                           .to_kind = kind});
  }
  for (int i = 0; i < pipeline->lists[rank].n; i++)
    vec_push(module->arena, &entry->timeline,
             call_of_token(&pipeline->lists[rank].data[i], rank));
  return (PriceProgram){entry, {rank, 1}};
}

static const PriceProgram *programs_of(Module *module, const char *schedule,
                                       int ranks, int64_t bytes) {
  PipelineShape shape = {ranks, ranks, 8, {1, 1, 1}};
  const Pipeline *pipeline =
      pipeline_make(module->arena, pipeline_schedule_find(schedule), &shape);
  pipeline = pipeline_lower(module->arena, pipeline);
  PriceProgram *programs = ARENA_ARRAY(module->arena, PriceProgram, ranks);
  for (int r = 0; r < ranks; r++)
    programs[r] = program_of_rank(module, pipeline, r, bytes);
  return programs;
}

/* A kernel reads and writes 4000 bytes, at 8 bytes a ns. */
enum { KERNEL_PS = 1000000 };

static Price price_pipeline(Module *module, const PriceProgram *programs, int n,
                            uint32_t without, SimTell *tell, void *user) {
  const Cluster *cluster = three_nodes(module->arena, LINK_switch);
  ClusterSlice slice = cluster_slice(module->arena, cluster, 0, n);
  CostModel model = link_model();
  model.rates.bandwidth = 8e9;
  model.without = without;
  return price_programs(module->arena, programs, n, &model, &slice, tell, user);
}

static const uint32_t free_links = 1u << COST_message;

Test(several_programs, steps_of_schedules) {
  enum { P = 4, M = 8 };
  static const struct {
    const char *schedule;
    int step; /* in kernels; the work of a rank is 3 M */
  } cases[] = {
      {"naive", 3 * P * M},
      {"fthenb", 3 * (M + P - 1)},
      {"1f1b", 3 * (M + P - 1)},
  };
  for (int i = 0; i < ARRAY_LENGTH(cases); i++) {
    Module *module = module_create();
    const PriceProgram *programs =
        programs_of(module, cases[i].schedule, P, 1000);
    Price price = price_pipeline(module, programs, P, free_links, NULL, NULL);
    cr_assert_eq(price.n_stuck, 0, "%s", cases[i].schedule);
    cr_expect(price.has_messages);
    cr_expect_eq(price.compute, (Ps)3 * M * KERNEL_PS);
    cr_expect_eq(price.step, (Ps)cases[i].step * KERNEL_PS, "%s: %lld",
                 cases[i].schedule, (long long)price.step);
    for (int c = 0; c < price.n_classes; c++)
      cr_expect_eq(price.classes[c].parts[COST_message],
                   price.step - price.compute, "%s, rank %d", cases[i].schedule,
                   c);
  }
}

static void add_waits(void *user, const SimSpan *span) {
  Ps *waits = user;
  if (span->is_wait) waits[span->class] += span->end - span->begin;
}

/* Told and folded prices are equal, and so are waits and what is waited for. */
Test(several_programs, pipelines_folded_and_in_full) {
  Module *module = module_create();
  const PriceProgram *programs = programs_of(module, "1f1b", 3, 100000);
  Ps waits[3] = {0};
  Price folded = price_pipeline(module, programs, 3, 0, NULL, NULL);
  Price full = price_pipeline(module, programs, 3, 0, add_waits, waits);
  cr_expect_eq(folded.step, full.step);
  for (int c = 0; c < 3; c++) {
    cr_expect_eq(folded.classes[c].exposed, full.classes[c].exposed);
    cr_expect_eq(waits[c], full.classes[c].parts[COST_message]);
  }
}

/* One micro-batch is under way, so nothing hides its messages: in a node, at
 * 100 bytes a ns, one forward and one backward. */
Test(several_programs, messages_take_time) {
  Module *module = module_create();
  const PriceProgram *programs = programs_of(module, "naive", 2, 10000);
  Price price = price_pipeline(module, programs, 2, 0, NULL, NULL);
  Ps messages = (Ps)8 * 2 * 10000 * 10;
  cr_expect_eq(price.step, (Ps)3 * 2 * 8 * KERNEL_PS + messages, "%lld",
               (long long)price.step);
  cr_expect_eq(price.sent, 8 * 10000);
  cr_expect_eq(price.n_transfers, 16);
}

/* The first rank waits for a gradient before it sends the value that this is
 * the gradient of. */
Test(several_programs, a_deadlock_is_an_answer) {
  Module *module = module_create();
  const PriceProgram *programs = programs_of(module, "naive", 2, 1000);
  /* F0, send, receive, B0 */
  ProgramCall *calls = ((EntryPoint *)programs[0].entry)->timeline.data;
  ProgramCall send = calls[1];
  cr_assert(send.kind == CALL_send && calls[2].kind == CALL_receive);
  calls[1] = calls[2];
  calls[2] = calls[3];
  calls[3] = send;
  Price price = price_pipeline(module, programs, 2, 0, NULL, NULL);
  cr_assert_eq(price.n_stuck, 2);
  for (int i = 0; i < 2; i++) {
    int class = price.stuck[i].class, call = price.stuck[i].call;
    const ProgramCall *at = &programs[class].entry->timeline.data[call];
    cr_expect_neq(class, price.stuck[1 - i].class);
    cr_expect_eq(at->kind, CALL_segment);
    cr_expect_eq(at->segment, class == 0 ? STAGE_B : STAGE_F);
  }
}
