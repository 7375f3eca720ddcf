// links: interp ir
/*
 * work.c -- what launches compute and move on one rank, against figures made by
 * hand.
 */
#include "ir/work.h"
#include "tests/unit/values.h"

TestSuite(work, .fini = modules_destroy);

#define MESH "mesh(d = 2, t = 4, time = 2~)"

typedef struct WorkCase {
  const char *operands[3]; /* types */
  const char *node;        /* operator, attributes, placed types */
  const char *expected;    /* class, dtype, batch m n k, flops, read, written */
} WorkCase;

static const WorkCase cases[] = {
    /* one rank: 2 * 128 * 64 * 32 */
    {{"f32[B:128, C:64]", "f32[C:64, F:32]"},
     "dot %0, %1 {over = [C]} : f32[B:128, F:32]",
     "contraction f32 1 128 32 64 524288 40960 16384"},
    /* data parallel: each rank reads all of the weight */
    {{"f32[B:128@d, C:64]", "f32[C:64, F:32]"},
     "dot %0, %1 {over = [C]} : f32[B:128@d, F:32]",
     "contraction f32 1 64 32 64 262144 24576 8192"},
    /* rows over d, contracted over t: 1 / 8 of the operations */
    {{"f32[B:128@d, C:64@t]", "f32[C:64@t, F:32]"},
     "dot %0, %1 {over = [C]} : f32[B:128@d, F:32; sum@t]",
     "contraction f32 1 64 32 16 65536 6144 8192"},
    /* three axes of which no operand has all */
    {{"bf16[B:128@d, C:64@t]", "bf16[C:64@t, F:32@time]"},
     "dot %0, %1 {over = [C]} : bf16[B:128@d, F:32@time; sum@t]",
     "contraction bf16 1 64 16 16 32768 2560 2048"},
    /* of two dtypes: in the wider */
    {{"bf16[B:3, C:5]", "f32[C:5, F:7]"},
     "dot %0, %1 {over = [C]} : f32[B:3, F:7]",
     "contraction f32 1 3 7 5 210 170 84"},
    /* heads are a batch */
    {{"f32[B:8, H:4@t, T:16, D:8]", "f32[B:8, H:4@t, S:16, D:8]"},
     "dot %0, %1 {over = [D]} : f32[B:8, H:4@t, T:16, S:16]",
     "contraction f32 8 16 16 8 32768 8192 8192"},
    /* uneven: the largest shard, ceil(7 / 4) */
    {{"f32[B:7@t]", "f32[B:7@t]"},
     "add %0, %1 : f32[B:7@t]",
     "elementwise f32 0 0 0 0 2 16 8"},
    {{"f32[B:8@d, C:5]"},
     "sum %0 {over = [B]} : f32[C:5; sum@d]",
     "reduction f32 0 0 0 0 20 80 20"},
    /* a look-up reads its rows and indices, not the table */
    {{"f32[V:1000, C:16@t]", "i32[B:8@d]"},
     "gather %0, %1 {dim = V} : f32[B:8@d, C:16@t]",
     "lookup f32 0 0 0 0 0 80 64"},
    {{"f32[S:100, C:16]", "f32[C:16]", "i32[]"},
     "update_slice %0, %1, %2 {dim = S} : f32[S:100, C:16]",
     "lookup f32 0 0 0 0 0 68 64"},
    {{"f32[B:8, C:16]"},
     "split_dim %0 {dim = C, to = [H, D], sizes = [4, 4]} : f32[B:8, H:4, D:4]",
     "none f32 0 0 0 0 0 0 0"},
    {{"f32[A:4, B:6@d]"},
     "transpose %0 {order = [B, A]} : f32[B:6@d, A:4]",
     "movement f32 0 0 0 0 0 48 48"},
    /* 2 * (2 * 4 positions) * 3 outputs * (5 channels * 3) */
    {{"f32[N:4@d, C:5, X:6]", "f32[O:3, C:5, X:3]"},
     "conv %0, %1 {dim = C, space = [X]} : f32[N:4@d, X:4, O:3]",
     "contraction f32 1 8 3 15 720 420 96"},
    {{"f32[N:4@d, X:4, O:3]", "f32[O:3, C:5, X:3]"},
     "conv_input_grad %0, %1 {dim = C, space = [X], to = [O], sizes = [6]} : "
     "f32[N:4@d, X:6, C:5]",
     "contraction f32 1 8 15 3 720 276 240"},
    {{"f32[N:4@d, C:5, X:6]", "f32[N:4@d, X:4, O:3]"},
     "conv_weight_grad %0, %1 {over = [N], dim = C, space = [X], to = [O], "
     "window = [3]} : f32[O:3, C:5, X:3; sum@d]",
     "contraction f32 1 3 15 8 720 336 180"},
    /* scores and values, widths 8 and 6: k = 14 */
    {{"f32[B:2, H:4@t, T:5, D:8]", "f32[B:2, H:4@t, S:7, D:8]",
      "f32[B:2, H:4@t, S:7, E:6]"},
     "attention %0, %1, %2 {over = [D], query = T, key = S, scale = 1} : "
     "f32[B:2, H:4@t, T:5, E:6], f32[B:2, H:4@t, T:5]",
     "contraction f32 2 5 7 14 1960 1104 280"},
    /* waits for nobody: adds to the sum of the step, which it reads */
    {{"f32[B:6@d, C:5; sum@time]"},
     "accumulate %0 {axes = [time], reduce = sum} : f32[B:6@d, C:5]",
     "elementwise f32 0 0 0 0 15 120 60"},
    /* a collective reads and writes what a rank has of it */
    {{"f32[B:6@d, C:5; sum@t]"},
     "all_reduce %0 {axes = [t], reduce = sum, bucket = 0} : f32[B:6@d, C:5]",
     "communication f32 0 0 0 0 0 60 60"},
    /* a fused look-up and pointwise operator */
    {{"f32[V:1000, C:16]", "i32[B:8@d]", "f32[C:16]"},
     "fused %0, %1, %2 : f32[B:8@d, C:16] {\n"
     "  %0 = input {index = 0} : f32[V:1000, C:16] arg \"\"\n"
     "  %1 = input {index = 1} : i32[B:8@d] arg \"\"\n"
     "  %2 = input {index = 2} : f32[C:16] arg \"\"\n"
     "  %3 = gather %0, %1 {dim = V} : f32[B:8@d, C:16]\n"
     "  %4 = add %3, %2 : f32[B:8@d, C:16]\n"
     "  output result \"\" %4\n}",
     "lookup f32 0 0 0 0 64 336 256"},
};

static Graph *graph_of(Module *module, const WorkCase *c) {
  Text text = text_create(module->arena);
  text_add(&text, "graph g " MESH " {\n");
  for (int i = 0; i < 3 && c->operands[i]; i++)
    text_printf(&text, "%%%d = input {index = %d} : %s data \"%d\"\n", i, i,
                c->operands[i], i);
  bool is_pair = strncmp(c->node, "attention ", 10) == 0;
  text_printf(&text, "%s = %s }", is_pair ? "%8, %9" : "%9", c->node);
  Source *source = ARENA_NEW(module->arena, Source);
  *source = (Source){"case", text_string(&text), text.n};
  Graph *graph = graph_parse(module, source);
  Text errors = text_create(module->arena);
  diags_print(module->diags, &errors);
  cr_assert(graph, "%s", text_string(&errors));
  return graph;
}

Test(work, by_hand) {
  for (int i = 0; i < ARRAY_LENGTH(cases); i++) {
    Module *module = module_create();
    const Graph *graph = graph_of(module, &cases[i]);
    Work w = node_work(graph, graph->nodes.n - 1);
    const char *got = arena_printf(
        module->arena, "%s %s %ld %ld %ld %ld %.0f %ld %ld",
        work_class_name(w.class), dtype_name(w.dtype), (long)w.batch, (long)w.m,
        (long)w.n, (long)w.k, w.flops, (long)w.read, (long)w.written);
    cr_expect_str_eq(got, cases[i].expected, "%s", cases[i].node);
  }
}

/* A rank sends (n - 1) shards of n, all-reduce twice that. */
Test(work, sent_bytes) {
  static const struct {
    WorkCase node;
    int64_t bytes;
  } sent[] = {
      {{{"f32[B:6@d, C:5; sum@t]"},
        "all_reduce %0 {axes = [t], reduce = sum} : f32[B:6@d, C:5]",
        NULL},
       2 * 3 * 4 * 4}, /* 15 elements in four parts of 4 */
      {{{"f32[\"T~\":4@t, B:6@d]"},
        "all_gather %0 {dim = \"T~\", axes = [t]} : f32[\"T~\":4, B:6@d]",
        NULL},
       3 * 3 * 4},
      {{{"f32[\"T~\":4, B:6@d; sum@t]"},
        "reduce_scatter %0 {dim = \"T~\", axes = [t], reduce = sum} : "
        "f32[\"T~\":4@t, B:6@d]",
        NULL},
       3 * 3 * 4},
      {{{"bf16[\"S~\":4, \"T~\":4@t, B:6@d]"},
        "all_to_all %0 {dim = \"T~\", to = [\"S~\"], axes = [t]} : "
        "bf16[\"T~\":4, \"S~\":4@t, B:6@d]",
        NULL},
       3 * 3 * 2},
      {{{"f32[\"T~\":4@t, B:6@d]"},
        "permute %0 {dim = \"T~\", axes = [t], shift = 1} : "
        "f32[\"T~\":4@t, B:6@d]",
        NULL},
       3 * 4},
      {{{"f32[B:6@d]"}, "exp %0 : f32[B:6@d]", NULL}, 0}};
  for (int i = 0; i < ARRAY_LENGTH(sent); i++) {
    Module *module = module_create();
    const Graph *graph = graph_of(module, &sent[i].node);
    cr_expect_eq(node_sent_bytes(graph, graph->nodes.n - 1), sent[i].bytes,
                 "%s", sent[i].node.node);
  }
}
