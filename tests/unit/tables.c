// links: planner passes ir support
/*
 * tables.c -- tests how often nodes of a placed graph run, and live bytes,
 * against figures made by hand.  tests/prices compares both with whole
 * programs.
 */
#include "planner/liveness.h"
#include "planner/tables.h"
#include "tests/unit/values.h"

TestSuite(tables, .fini = modules_destroy);

static Graph *parse_text(Module *module, const char *text) {
  Source *source = ARENA_NEW(module->arena, Source);
  *source = (Source){"graph", text, strlen(text)};
  Graph *graph = graph_parse(module, source);
  cr_assert_not_null(graph);
  return graph;
}

static Plan *empty_plan(Module *module) {
  Plan *plan = ARENA_NEW(module->arena, Plan);
  *plan = (Plan){.ranks = 1, .microbatches = 1};
  return plan;
}

/* Each node has its runs as its path: "2" or "0". */
static void check_runs(Module *module, const Plan *plan, const char *text) {
  Graph *graph = parse_text(module, text);
  PassContext ctx = {
      .module = module, .scratch = module->arena, .plan = plan, .level = 2};
  const int64_t *runs = placed_runs(&ctx, graph);
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    if (node->op != OP_input)
      cr_expect_eq(runs[id], atoi(node->path), "%%%d runs %lld times", id,
                   (long long)runs[id]);
  }
}

/* The parameter is gathered for each pass of both micro-batches, and nobody
 * reads %4. */
Test(tables, a_gather_runs_for_the_forward_and_the_backward_pass) {
  Module *module = module_create();
  Plan *plan = empty_plan(module);
  plan->prefetch_bytes = 1; /* nothing stays gathered between the passes */
  check_runs(
      module, plan,
      "graph test mesh(a = 2, time = 2~) {\n"
      "  %0 = input {index = 0} : f32[B:8@time, I:4] data \"x\"\n"
      "  %1 = input {index = 1} : f32[I:4@a, O:6] param \"w\"\n"
      "  %2 = split_dim %1 {dim = I, to = [\"I~\", I], sizes = [2, 2]} "
      ": f32[\"I~\":2@a, I:2, O:6] \"1\"\n"
      "  %3 = all_gather %2 {dim = \"I~\", axes = [a]} "
      ": f32[\"I~\":2, I:2, O:6] \"4\"\n"
      "  %4 = exp %3 : f32[\"I~\":2, I:2, O:6] \"0\"\n"
      "  %5 = merge_dims %3 {from = [\"I~\", I], dim = I} "
      ": f32[I:4, O:6] \"4\"\n"
      "  %6 = dot %0, %5 {over = [I]} : f32[B:8@time, O:6] \"2\"\n"
      "  %7 = sum %6 {over = [B, O]} : f32[; sum@time] \"2\"\n"
      "  %8 = dot %6, %5 {over = [O]} : f32[B:8@time, I:4] @dgrad \"2\"\n"
      "  %9 = sum %8 {over = [B, I]} : f32[; sum@time] @dgrad \"2\"\n"
      "  %10 = accumulate %7 {axes = [time], reduce = sum} : f32[] \"2\"\n"
      "  %11 = accumulate %9 {axes = [time], reduce = sum} : f32[] @dgrad "
      "\"2\"\n"
      "  output loss \"loss\" %10\n"
      "  output result \"dx\" %11\n"
      "}\n");
}

/* Lines `remat` name all up to the gather.  Its original waits for the
 * micro-batch, and its clone follows from a clone of the constant %1. */
Test(tables, a_clone_of_a_constant_runs_once) {
  Module *module = module_create();
  Plan *plan = empty_plan(module);
  Name paths[] = {name_intern(module->names, "2"),
                  name_intern(module->names, "3")};
  PlanPin again = {.says = SAYS_remat, .n_paths = 2, .paths = paths};
  vec_push(module->arena, &plan->pins, again);
  plan_index(module->arena, plan);
  plan->prefetch_bytes = 1;
  check_runs(
      module, plan,
      "graph test mesh(a = 2, time = 2~) {\n"
      "  %0 = input {index = 0} : f32[B:8@time, T:4] data \"x\"\n"
      "  %1 = iota {dim = T, sizes = [4]} : i32[T:4@a] \"2\"\n"
      "  %2 = cast %1 {dtype = f32} : f32[T:4@a] \"2\"\n"
      "  %3 = split_dim %2 {dim = T, to = [\"T~\", T], sizes = [2, 2]} "
      ": f32[\"T~\":2@a, T:2] \"2\"\n"
      "  %4 = all_gather %3 {dim = \"T~\", axes = [a]} "
      ": f32[\"T~\":2, T:2] \"3\"\n"
      "  %5 = merge_dims %4 {from = [\"T~\", T], dim = T} : f32[T:4] \"3\"\n"
      "  %6 = mul %0, %5 : f32[B:8@time, T:4] \"2\"\n"
      "  %7 = sum %6 {over = [B, T]} : f32[; sum@time] \"2\"\n"
      "  %8 = mul %0, %5 : f32[B:8@time, T:4] @dgrad \"2\"\n"
      "  %9 = sum %8 {over = [B, T]} : f32[; sum@time] @dgrad \"2\"\n"
      "  %10 = accumulate %7 {axes = [time], reduce = sum} : f32[] \"2\"\n"
      "  %11 = accumulate %9 {axes = [time], reduce = sum} : f32[] @dgrad "
      "\"2\"\n"
      "  output loss \"loss\" %10\n"
      "  output result \"dx\" %11\n"
      "}\n");
}

Test(tables, most_live_bytes_are_those_of_two_values) {
  Module *module = module_create();
  PassContext ctx = {.module = module, .scratch = module->arena, .level = 2};
  Graph *graph =
      parse_text(module, "graph test {\n"
                         "  %0 = input {index = 0} : f32[A:10] param \"w\"\n"
                         "  %1 = exp %0 : f32[A:10]\n"
                         "  %2 = sin %1 : f32[A:10]\n"
                         "  %3 = sum %2 {over = [A]} : f32[]\n"
                         "  output loss \"loss\" %3\n"
                         "}\n");
  /* The parameter has 64 bytes of its own, %1 and %2 have 40 each. */
  cr_expect_eq(plan_live_bytes(&ctx, graph), 64 + 40 + 40);
}
