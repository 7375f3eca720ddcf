// links: verify ir support
/*
 * resize.c -- sizes that follow from the equations of a graph, and the graph
 * at these sizes.
 */
#include "tests/unit/values.h"
#include "verify/resize.h"

TestSuite(resize, .fini = modules_destroy);

static Graph *parse_text(const char *text) {
  Module *module = module_create();
  Source *source = ARENA_NEW(module->arena, Source);
  *source = (Source){.path = "test.ir", .text = text, .n = strlen(text)};
  Graph *graph = graph_parse(module, source);
  cr_assert_not_null(graph, "%s", text);
  return graph;
}

typedef struct ResizeCase {
  const char *graph, *sizes;
} ResizeCase;

static const ResizeCase cases[] = {
    /* The smallest sizes that differ. */
    {"graph g {\n"
     "  %0 = input {index = 0} : f32[B:64, P:784] data \"x\"\n"
     "  %1 = input {index = 1} : f32[P:784, K:10] param \"w\"\n"
     "  %2 = dot %0, %1 {over = [P]} : f32[B:64, K:10]\n"
     "  output result \"y\" %2\n}\n",
     "B 64 -> 3, P 784 -> 4, K 10 -> 2"},
    /* Two elements a shard, and the same shards divide. */
    {"graph g mesh(d = 4, t = 3) {\n"
     "  %0 = input {index = 0} : f32[B:64@d, H:96@t] data \"x\"\n"
     "  %1 = split_dim %0 {dim = H, to = [\"H~\", H], sizes = [3, 32]} : "
     "f32[B:64@d, \"H~\":3@t, H:32]\n"
     "  output result \"y\" %1\n}\n",
     "B 64 -> 8, H 96 -> 6, H 32 -> 2"},
    /* Short and empty shards stay: 50257 over 4, 5 over 4. */
    {"graph g mesh(d = 4) {\n"
     "  %0 = input {index = 0} : f32[V:50257@d, C:8] data \"x\"\n"
     "  %1 = input {index = 1} : f32[E:5@d, C:8] data \"y\"\n"
     "  output result \"x\" %0\n  output result \"y\" %1\n}\n",
     "V 50257 -> 7, C 8 -> 2"},
    /* The factors of a product, where neither is fixed. */
    {"graph g {\n"
     "  %0 = input {index = 0} : f32[H:12, D:64] param \"w\"\n"
     "  %1 = merge_dims %0 {dim = C, from = [H, D]} : f32[C:768]\n"
     "  output result \"y\" %1\n}\n",
     "H 12 -> 2, D 64 -> 3, C 768 -> 6"},
    /* Halves scale with all; 1 + 196 has no smaller form. */
    {"graph g {\n"
     "  %0 = input {index = 0} : f32[T:196, D:128] data \"x\"\n"
     "  %1 = input {index = 1} : f32[T:1, D:128] data \"y\"\n"
     "  %2 = slice %0 {dim = D, sizes = [64], start = 64} : f32[T:196, D:64]\n"
     "  %3 = concat %1, %0 {dim = T} : f32[T:197, D:128]\n"
     "  output result \"a\" %2\n  output result \"b\" %3\n}\n",
     "D 128 -> 4, D 64 -> 2"},
    /* The result of a window follows from what it slides over. */
    {"graph g {\n"
     "  %0 = input {index = 0} : f32[N:64, C:32, Y:28] data \"x\"\n"
     "  %1 = maxpool %0 {space = [Y], window = [2], stride = [2]} : "
     "f32[N:64, C:32, Y:14]\n"
     "  output result \"y\" %1\n}\n",
     "N 64 -> 5, C 32 -> 3, Y 28 -> 4, Y 14 -> 2"},
    /* A stride that leaves one element unread does so at the new sizes. */
    {"graph g {\n"
     "  %0 = input {index = 0} : f32[N:64, C:1, Y:27] data \"x\"\n"
     "  %1 = input {index = 1} : f32[O:16, C:1, Y:3] param \"w\"\n"
     "  %2 = conv %0, %1 {dim = C, space = [Y], stride = [2]} : "
     "f32[N:64, Y:13, O:16]\n"
     "  %3 = avgpool %2 {space = [Y], window = [4], stride = [3]} : "
     "f32[N:64, Y:4, O:16]\n"
     "  output result \"y\" %3\n}\n",
     "N 64 -> 5, Y 27 -> 15, O 16 -> 4, Y 13 -> 7, Y 4 -> 2"},
    /* A window as long as its dim is global and stays so. */
    {"graph g {\n"
     "  %0 = input {index = 0} : f32[N:64, C:32, Y:7] data \"x\"\n"
     "  %1 = avgpool %0 {space = [Y], window = [7], stride = [7]} : "
     "f32[N:64, C:32, Y:1]\n"
     "  output result \"y\" %1\n}\n",
     "N 64 -> 3, C 32 -> 2"},
    /* The size that an index is divided by. */
    {"graph g {\n"
     "  %0 = input {index = 0} : i32[B:64] data \"x\"\n"
     "  %1 = input {index = 1} : f32[V:500, C:8] param \"w\"\n"
     "  %2 = const {value = 500.0, dtype = i32} : i32[]\n"
     "  %3 = mod %0, %2 : i32[B:64]\n"
     "  %4 = gather %1, %3 {dim = V} : f32[B:64, C:8]\n"
     "  output result \"y\" %4\n}\n",
     "B 64 -> 3, V 500 -> 4, C 8 -> 2"},
    /* More experts than each token has. */
    {"graph g {\n"
     "  %0 = input {index = 0} : f32[T:64, E:16] data \"x\"\n"
     "  %1, %2 = topk %0 {dim = E, to = [J], sizes = [2]} : "
     "f32[T:64, J:2], i32[T:64, J:2]\n"
     "  output result \"y\" %1\n}\n",
     "T 64 -> 4, E 16 -> 3"},
    /* Equal windows side by side keep their length; one over all of the dim
     * has any. */
    {"graph g {\n"
     "  %0 = input {index = 0} : f32[N:64, C:32, Y:28, X:9] data \"x\"\n"
     "  %1 = adaptive_avgpool %0 {space = [Y, X], sizes = [7, 1]} : "
     "f32[N:64, C:32, Y:7, X:1]\n"
     "  output result \"y\" %1\n}\n",
     "N 64 -> 5, C 32 -> 4, Y 28 -> 8, X 9 -> 3, Y 7 -> 2"},
    {"graph g {\n"
     "  %0 = input {index = 0} : f32[N:64, C:32, Y:6] data \"x\"\n"
     "  %1 = adaptive_avgpool %0 {space = [Y], sizes = [6]} : "
     "f32[N:64, C:32, Y:6]\n"
     "  output result \"y\" %1\n}\n",
     "N 64 -> 4, C 32 -> 3, Y 6 -> 2"},
    /* Windows that overlap keep all sizes. */
    {"graph g {\n"
     "  %0 = input {index = 0} : f32[N:64, C:32, Y:10] data \"x\"\n"
     "  %1 = adaptive_avgpool %0 {space = [Y], sizes = [4]} : "
     "f32[N:64, C:32, Y:4]\n"
     "  output result \"y\" %1\n}\n",
     "N 64 -> 3, C 32 -> 2"},
};

/* Every shape rule holds at the new sizes, and the verifier agrees. */
static void check_resized(const ResizeCase *one, bool allows_one_element) {
  Graph *graph = parse_text(one->graph);
  Arena *arena = graph->module->arena;
  Resizing *resizing = resizing_create(arena);
  Text sizes = text_create(arena), faults = text_create(arena);
  if (allows_one_element) resizing_allow_one_element(resizing);
  resizing_add(resizing, graph);
  resizing_solve(resizing);
  resizing_print(&sizes, resizing, true, 0);
  cr_expect_str_eq(text_string(&sizes), one->sizes, "%s: %s", one->graph,
                   text_string(&sizes));
  const Graph *resized = resizing_apply(resizing, graph);
  cr_assert_not_null(resized, "%s", one->graph);
  cr_expect(graph_verify(resized, &faults), "%s", text_string(&faults));
}

Test(resize, sizes_follow_from_the_equations) {
  for (int i = 0; i < ARRAY_LENGTH(cases); i++) check_resized(&cases[i], false);
}

/* 64 shards have one element each, 8 two, also where a dim is split into its
 * shards; the number of shards is no size that others avoid. */
#define MANY_SHARDS                                                            \
  "graph g mesh(d = 64, t = 8) {\n"                                            \
  "  %0 = input {index = 0} : f32[B:512@d, C:96@t] data "                      \
  "\"x\"\n"                                                                    \
  "  %1 = input {index = 1} : f32[F:4096@(t, d), H:96] param \"w\"\n"          \
  "  %2 = split_dim %1 {dim = F, to = [\"F~\", F], sizes = [512, 8]} : "       \
  "f32[\"F~\":512@(t, d), F:8, H:96]\n"                                        \
  "  output result \"y\" %2\n}\n"
static const ResizeCase many_shards[] = {
    {MANY_SHARDS,
     "B 512 -> 128, C 96 -> 16, F 4096 -> 1024, H 96 -> 2, F 8 -> 2"},
    {MANY_SHARDS,
     "B 512 -> 64, C 96 -> 16, F 4096 -> 512, H 96 -> 2, F 8 -> 1"},
};

Test(resize, many_shards_may_have_one_element) {
  for (int i = 0; i < ARRAY_LENGTH(many_shards); i++)
    check_resized(&many_shards[i], i == 1);
}

/* The constant is the size that V has now, and so is the limit of an index. */
Test(resize, integers_that_are_sizes_follow) {
  const ResizeCase *one = &cases[8];
  Graph *graph = parse_text(one->graph);
  Resizing *resizing = resizing_create(graph->module->arena);
  resizing_add(resizing, graph);
  resizing_solve(resizing);
  const Graph *resized = resizing_apply(resizing, graph);
  cr_expect_eq(node_float(resized->nodes.data[2], ATTR_value, 0), 4);
  cr_expect_eq(resizing_integer(resizing, 500), 4);
  cr_expect_eq(resizing_integer(resizing, 7), 7);
}
