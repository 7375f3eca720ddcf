// links: interp ir
/*
 * ir.c -- tests the text form of graphs (printing a parsed text gives it back),
 * types of every operator, mistakes that the verifier finds, hashes and costs.
 *
 * The cases are those of tests/ops/cases.def and the graphs of tests/golden/ir,
 * which have collectives and regions: a row of ops.def without a case fails.
 */
#include "tests/ops/cases.h"

#include <glob.h>

TestSuite(ir, .fini = modules_destroy);

static Source *source_of(Module *module, const char *text) {
  Source *source = ARENA_NEW(module->arena, Source);
  *source = (Source){"test.ir", text, strlen(text)};
  return source;
}

static const char *messages(Module *module) {
  Text out = text_create(module->arena);
  diags_print(module->diags, &out);
  return text_string(&out);
}

static Graph *parse(Module *module, const char *text) {
  Graph *graph = graph_parse(module, source_of(module, text));
  cr_assert(graph, "%s", messages(module));
  return graph;
}

static const char *printed(const Graph *graph) {
  Text out = text_create(graph->module->arena);
  graph_print(&out, graph);
  return text_string(&out);
}

static const char *violations(const Graph *graph) {
  Text out = text_create(graph->module->arena);
  bool holds = graph_verify(graph, &out);
  cr_assert_eq(holds, out.n == 0);
  return text_string(&out);
}

/* The text of a golden file without its comment lines. */
static const char *golden_text(Module *module, const char *path) {
  const char *bytes;
  size_t n;
  Status status = file_read(module->arena, path, 1 << 20, &bytes, &n);
  cr_assert_eq(status.code, STATUS_ok, "%s", status.message);
  while (*bytes == '#') bytes = strchr(bytes, '\n') + 1;
  return bytes;
}

typedef void Visit(Module *module, const char *path, const char *text,
                   void *user);

static void each_golden(Visit *visit, void *user) {
  glob_t files;
  cr_assert_eq(glob(TEST_ROOT "/tests/golden/ir/*.ir", 0, NULL, &files), 0);
  for (size_t i = 0; i < files.gl_pathc; i++) {
    Module *module = module_create();
    visit(module, files.gl_pathv[i], golden_text(module, files.gl_pathv[i]),
          user);
  }
  globfree(&files);
}

/* ---- the text form ---- */

static void check_round_trip(Module *module, const char *path, const char *text,
                             void *user) {
  bool *seen = user;
  Graph *graph = parse(module, text);
  cr_expect_str_eq(printed(graph), text, "%s", path);
  cr_expect_str_eq(violations(graph), "", "%s", path);
  for (int i = 0; i < graph->nodes.n; i++)
    seen[graph->nodes.data[i]->op] = true;
}

/* Every case of cases.def, and every pointwise operator on a dtype it takes. */
static void check_cases(bool *seen) {
  static const char *const dtypes[] = {"f32", "bool", "i32"};
  for (int i = 0; i < ARRAY_LENGTH(op_cases); i++) {
    Module *module = module_create();
    const char *text = printed(op_case_graph(module, &op_cases[i], "f32"));
    check_round_trip(module, op_cases[i].op, text, seen);
  }
  for (int op = 0; op < N_OPS; op++) {
    for (int i = 0; i < ARRAY_LENGTH(dtypes) && !seen[op]; i++) {
      if (!op_info((Op)op)->is_pointwise) continue;
      Module *module = module_create();
      Graph *graph = pointwise_case_graph(module, (Op)op, dtypes[i], 0);
      if (!graph) continue;
      check_round_trip(module, op_info((Op)op)->name, printed(graph), seen);
    }
  }
}

Test(ir, printing_gives_the_text_back) {
  bool seen[N_OPS] = {0};
  each_golden(check_round_trip, seen);
  check_cases(seen);
  for (int op = 0; op < N_OPS; op++) {
    cr_expect(seen[op], "no case and no golden graph holds '%s'",
              op_info((Op)op)->name);
  }
}

static void check_copy(Module *module, const char *path, const char *text,
                       void *user) {
  (void)user;
  Graph *graph = parse(module, text);
  Graph *copy = graph_like(graph);
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    graph_copy_node(copy, graph, id, node->inputs, false);
  }
  for (int i = 0; i < graph->outputs.n; i++) {
    const GraphOutput *output = &graph->outputs.data[i];
    graph_output(copy, output->role, output->path, output->value);
  }
  cr_expect_str_eq(printed(copy), text, "%s", path);
  cr_expect_eq(graph_hash(copy), graph_hash(graph));
}

Test(ir, a_copy_is_equal) {
  each_golden(check_copy, NULL);
}

/* Where only the copy is left. */
static void check_apart(Module *module, const char *path, const char *text,
                        void *user) {
  (void)user;
  Module own = *module;
  own.arena = arena_beside(module->arena);
  const Graph *graph = parse(&own, text);
  uint64_t hash = graph_hash(graph);
  size_t before = arena_bytes(module->arena);
  size_t least = graph_copy_bytes(graph);
  Graph *copy = graph_copy(module, graph);
  arena_destroy(own.arena);
  cr_expect(arena_bytes(module->arena) - before >= least, "%s", path);
  cr_expect_eq(graph_hash(copy), hash);
  cr_expect_str_eq(violations(copy), "", "%s", path);
  cr_expect_str_eq(printed(copy), text, "%s", path);
}

Test(ir, a_copy_shares_no_memory) {
  each_golden(check_apart, NULL);
}

/* Whatever the text, the parser ends with a graph or a message. */
static void try_text(const char *text, size_t n) {
  Module *module = module_create();
  Source source = {"test.ir", arena_copy(module->arena, text, n + 1), n};
  ((char *)source.text)[n] = '\0';
  const Graph *graph = graph_parse(module, &source);
  cr_assert_eq(graph == NULL, diags_errors(module->diags) > 0);
  if (graph) violations(graph);
  memory_destroy(test_memories[--n_test_memories]);
}

static void check_damaged(Module *module, const char *path, const char *text,
                          void *user) {
  (void)path;
  const char *bytes = user;
  size_t n = strlen(text);
  char *damaged = arena_strdup(module->arena, text);
  size_t step = n / 500 + 1;
  for (size_t i = 0; i < n; i += step) {
    try_text(text, i);
    for (const char *byte = bytes; *byte; byte++) {
      damaged[i] = *byte;
      try_text(damaged, n);
    }
    damaged[i] = text[i];
  }
}

Test(ir, damaged_text_does_no_harm, .timeout = 120) {
  each_golden(check_damaged, "0{],\"%-~\xff");
}

typedef struct Case {
  const char *text, *message;
} Case;

Test(ir, parse_mistakes) {
  static const Case cases[] = {
      {"", "unexpected the end, expecting 'graph'"},
      {"graph a {", "expecting a value, 'output' or '}'"},
      {"graph a { } x", "unexpected 'x', expecting the end"},
      {"graph a mesh(d = 0) { }", "out of range"},
      {"graph a mesh(d = 2, d = 2) { }", "a mesh axis twice"},
      {"graph a { %0 = nop : f32[] }", "no operator is named 'nop'"},
      {"graph a { %0 = neg %1 : f32[] }", "no earlier value is named '%1'"},
      {"graph a { %0 = iota : f33[] }", "no dtype is named 'f33'"},
      {"graph a { %0 = iota : f32[A:2, A:2] }", "a dimension twice"},
      {"graph a { %0 = iota : f32[A:0] }", "out of range"},
      {"graph a { %0 = iota : f32[A:2@x] }", "no mesh axis is named 'x'"},
      {"graph a mesh(x = 2) { %0 = iota : f32[A:2@x, B:2@x] }",
       "a mesh axis twice in one type"},
      {"graph a { %0 = iota : f32[A:99999999, B:99999999, C:99999] }",
       "too many elements"},
      {"graph a { %0 = iota {size = 1} : f32[] }", "no attribute is named"},
      {"graph a { %0 = iota {dim = A, dim = B} : f32[] }",
       "an attribute twice"},
      {"graph a { %0 = iota {sizes = [1.5]} : f32[] }", "expecting an integer"},
      {"graph a { %0 = const {value = 1e5x} : f32[] }", "expecting a number"},
      {"graph a { %0 = input {index = 1} : f32[] data \"\" }", "slot"},
      {"graph a { %0 = input {index = 0} : f32[] thing \"\" }",
       "no role is named 'thing'"},
      {"graph a { %0 = iota : f32[] @x }", "no phase is named 'x'"},
      {"graph a { %0 = iota : f32[] \"\\q\" }", "an escape"},
      {"graph a { %0 = iota : f32[] \"abc }", "without a closing"},
      {"graph a { %0, %0 = iota : f32[], f32[] }", "a value twice"},
      {"graph a { %0, %1 = iota : f32[] }", "not one for each result"},
  };
  for (int i = 0; i < ARRAY_LENGTH(cases); i++) {
    Module *module = module_create();
    cr_expect_null(graph_parse(module, source_of(module, cases[i].text)));
    const char *text = messages(module);
    cr_expect(strstr(text, cases[i].message), "%s\ngave %s", cases[i].text,
              text);
  }
}

/* ---- rules ---- */

/* Operands a: f32[B:2, T:3], b: f32[T:3, C:4], i: i32[B:2], c: bool[B:2]. */
#define OPERANDS                                                               \
  "%0 = input {index = 0} : f32[B:2, T:3] data \"a\"\n"                        \
  "%1 = input {index = 1} : f32[T:3, C:4] data \"b\"\n"                        \
  "%2 = input {index = 2} : i32[B:2] data \"i\"\n"                             \
  "%3 = input {index = 3} : bool[B:2] data \"c\"\n"                            \
  "%4 = input {index = 4} : f32[T:5] data \"d\"\n"

Test(ir, rules_say_what_is_wrong) {
  static const Case cases[] = {
      {"add %0 : f32[]", "1 inputs"},
      {"add %1, %4 : f32[]", "dimension 'T' has two sizes: 3 and 5"},
      {"add %1, %4 : f32[]", "note: operand 2 of 'add' is f32[T:5]"},
      {"neg %3 : f32[]", "operand 1 of 'neg' must be a number; it is bool"},
      {"and %0, %3 : f32[]", "operand 1 of 'and' must be bool"},
      {"select %0, %0, %0 : f32[]", "operand 1 of 'select' must be bool"},
      {"mod %0, %2 : f32[]", "operand 1 of 'mod' must be an integer"},
      {"dot %0, %1 : f32[]", "'dot' needs the attribute 'over'"},
      {"dot %0, %1 {over = [C]} : f32[]",
       "operand 1 of 'dot' has no dimension 'C'; it is f32[B:2, T:3]"},
      {"dot %1, %4 {over = [T]} : f32[]", "sizes: 3 and 5"},
      {"dot %0, %1 {over = [T, T]} : f32[]", "appears twice in 'over'"},
      {"sum %3 {over = [B]} : f32[]", "must be a number"},
      {"softmax %2 {over = [B]} : f32[]", "must be a float"},
      {"layernorm %0 {over = [X]} : f32[]", "has no dimension 'X'"},
      {"argmax %0 {dim = X} : f32[]", "has no dimension 'X'"},
      {"rename %0 {from = [B], to = [T]} : f32[]",
       "would have dimension 'T' twice"},
      {"rename %0 {from = [B], to = [T, C]} : f32[]", "'to' of 'rename' has 2"},
      {"split_dim %0 {dim = T, to = [H, D], sizes = [2, 2]} : f32[]",
       "cannot split 'T' (3)"},
      {"merge_dims %0 {dim = X, from = []} : f32[]", "'from' of 'merge_dims'"},
      {"transpose %0 {order = [T]} : f32[]", "must list every dimension"},
      {"broadcast %0 {to = [T], sizes = [2]} : f32[]", "'T' twice"},
      {"broadcast %0 {to = [X], sizes = [0]} : f32[]", "is 0, but must be"},
      {"cast %0 {dtype = f31} : f32[]", "no dtype is named 'f31'"},
      {"const {dtype = f32} : f32[]", "'const' needs the attribute 'value'"},
      {"gather %1, %0 {dim = T} : f32[]", "must be an integer"},
      {"scatter_add %0, %2 {over = [T], dim = X, sizes = [2]} : f32[]",
       "operand 2 of 'scatter_add' has no dimension 'T'"},
      {"update_slice %0, %0, %2 {dim = T} : f32[]",
       "operand 2 of 'update_slice' must not have dimension 'T'"},
      {"slice %0 {dim = T, sizes = [2], start = 2} : f32[]",
       "elements 2..3 of dimension 'T' are out of range"},
      {"slice %0 {dim = T, sizes = [2], start = -1} : f32[]", "out of range"},
      {"pad %0 {dim = T, pad = [1]} : f32[]", "'pad' of 'pad' has 1 values"},
      {"maxpool %0 {space = [T], window = [4]} : f32[]",
       "a window of 4 does not fit dimension 'T'"},
      {"maxpool %0 {space = [T], window = [1], pad = [1]} : f32[]",
       "'pad' of 'maxpool' is 1"},
      {"maxpool %0 {space = [T]} : f32[]",
       "'maxpool' needs the attribute 'window'"},
      {"conv %0, %1 {dim = T, space = [C]} : f32[]",
       "operand 1 of 'conv' has no dimension 'C'"},
      {"attention %0, %0, %0 {over = [T], query = B, key = B} : f32[]",
       "must not have dimension 'B'"},
      {"iota {dim = A, sizes = [3]} : i32[A:4]",
       "is i32[A:4], its rule says i32[A:3]"},
      {"exp %2 : i32[B:2]", "its rule says f32[B:2]"},
      {"rename %0 {from = [B], to = [X]} : f32[T:3, X:2]", "its rule says"},
  };
  for (int i = 0; i < ARRAY_LENGTH(cases); i++) {
    Module *module = module_create();
    const char *text = arena_printf(module->arena, "graph g {\n%s%%9 = %s\n}",
                                    OPERANDS, cases[i].text);
    const char *found = violations(parse(module, text));
    cr_expect(strstr(found, cases[i].message), "%s\ngave %s", cases[i].text,
              found);
  }
}

Test(ir, integers_and_reals_promote) {
  cr_expect_eq(dtype_promote(DT_bool, DT_i8), DT_i8);
  cr_expect_eq(dtype_promote(DT_i64, DT_f16), DT_f16);
  cr_expect_eq(dtype_promote(DT_f32, DT_bf16), DT_f32);
  cr_expect_eq(dtype_promote(DT_i32, DT_i64), DT_i64);
}

/* ---- what the verifier finds besides types ---- */

Test(ir, verifier_reads_structure) {
  static const Case cases[] = {
      {"%5 = shard %0 : f32[B:2]", "input 0 is f32[B:2, T:3], its result"},
      {"%5 = fused %0 : f32[B:2, T:3]", "no body"},
      {"%5 = exp %0 : f32[B:2, T:3] { }", "a body"},
      {"%5 = fused %0 : f32[B:2, T:3] { output result \"\" %0 }", NULL},
      {"%5 = fused %0 : f32[B:2] {\n"
       "%0 = input {index = 0} : f32[B:2] arg \"\"\noutput result \"\" %0 }",
       "input 0 is f32[B:2, T:3], in the body f32[B:2]"},
      {"%5 = fused %0 : f32[B:2] {\n"
       "%0 = input {index = 0} : f32[B:2] arg \"\" }",
       "1 inputs and 1 results, in the body 1 and 0"},
      {"%5 = input {index = 5} : f32[] data \"a\"",
       "data \"a\" twice among the inputs"},
      {"output loss \"l\" %0 output loss \"l\" %1",
       "loss \"l\" twice among the outputs"},
  };
  for (int i = 0; i < ARRAY_LENGTH(cases); i++) {
    Module *module = module_create();
    const char *text = arena_printf(module->arena, "graph g {\n%s%s\n}",
                                    OPERANDS, cases[i].text);
    Graph *graph = graph_parse(module, source_of(module, text));
    cr_expect_eq(graph == NULL, cases[i].message == NULL);
    if (!graph) continue;
    const char *found = violations(graph);
    cr_expect(strstr(found, cases[i].message), "%s\ngave %s", cases[i].text,
              found);
  }
}

Test(ir, verifier_reads_edges) {
  Module *module = module_create();
  Graph *graph = parse(module, "graph g {\n" OPERANDS "%5 = exp %0 : "
                               "f32[B:2, T:3] output result \"\" %5 }");
  Node *node = graph->nodes.data[5];
  node->inputs = (Value[]){{5, 0}};
  cr_expect(strstr(violations(graph), "which is not earlier"));
  node->inputs = (Value[]){{0, 1}};
  cr_expect(strstr(violations(graph), "which has fewer"));
  node->inputs = (Value[]){{0, 0}};
  cr_expect_str_eq(violations(graph), "");
  graph->outputs.data[0].value.result = 1;
  cr_expect(strstr(violations(graph), "output 0 is no value"));
  graph->outputs.data[0].value.result = 0;
  Type *type = type_create(module->arena, DT_f32, 1);
  type->dims[0] = (Dim){name_intern(module->names, "B"), 2, 1};
  node->types = (const Type *[]){type};
  cr_expect(strstr(violations(graph), "a placement uses an axis"));
}

/* No axis shards two dims, one dim twice, or what is partial over it. */
Test(ir, verifier_finds_an_axis_used_twice) {
  static const struct {
    AxisList splits[2];
    AxisSet partial;
    bool holds;
  } cases[] = {{{1, 0}, 0, true},  {{1, 2}, 0, true},     {{1, 2}, 4, true},
               {{1, 1}, 0, false}, {{0x11, 0}, 0, false}, {{0, 2}, 2, false},
               {{4, 0}, 0, false}, {{0, 0}, 8, false}};
  for (int i = 0; i < ARRAY_LENGTH(cases); i++) {
    Module *module = module_create();
    Graph *graph =
        parse(module, "graph g mesh(x = 2, y = 2, z = 2) {\n" OPERANDS
                      "%5 = exp %0 : f32[B:2, T:3] "
                      "output result \"\" %5 }");
    Type *type = type_create(module->arena, DT_f32, 2);
    type->dims[0] =
        (Dim){name_intern(module->names, "B"), 2, cases[i].splits[0]};
    type->dims[1] =
        (Dim){name_intern(module->names, "T"), 3, cases[i].splits[1]};
    type->partial = cases[i].partial;
    graph->nodes.data[5]->types = (const Type *[]){type};
    bool is_found = strstr(violations(graph), "a placement uses an axis");
    cr_expect_neq(is_found, cases[i].holds, "case %d", i);
  }
}

/* ---- hashes, costs, types ---- */

static uint64_t hash_of(const char *text) {
  return graph_hash(parse(module_create(), text));
}

Test(ir, hash_sees_structure_but_no_paths) {
  const char *base = "graph a { %0 = iota {dim = A, sizes = [3]} : i32[A:3] "
                     "\"x\" output result \"p\" %0 }";
  uint64_t hash = hash_of(base);
  cr_expect_eq(hash, hash_of("graph b { %7 = iota {dim = A, sizes = [3]} : "
                             "i32[A:3] \"y\" output result \"q\" %7 }"));
  cr_expect_neq(hash, hash_of("graph a { %0 = iota {dim = B, sizes = [3]} : "
                              "i32[B:3] output result \"p\" %0 }"));
  cr_expect_neq(hash, hash_of("graph a { %0 = iota {dim = A, sizes = [3]} : "
                              "i64[A:3] output result \"p\" %0 }"));
}

static void check_cost(const Graph *graph, Op op, double flops) {
  for (int id = 0; id < graph->nodes.n; id++) {
    if (graph->nodes.data[id]->op != op) continue;
    cr_expect_float_eq(node_flops(graph, id), flops, 1e-9, "%s: %g, not %g",
                       op_info(op)->name, node_flops(graph, id), flops);
    return;
  }
  cr_expect(false, "no %s", op_info(op)->name);
}

Test(ir, costs) {
  Module *module = module_create();
  const char *root = TEST_ROOT "/tests/golden/ir/";
  const Graph *dot =
      parse(module,
            golden_text(module, arena_printf(module->arena, "%sdot.ir", root)));
  check_cost(dot, OP_dot, 2.0 * 2 * 3 * 5 * 6 * 4);
  /* scores over a head of 6, the weighted sum over one of 2 */
  check_cost(dot, OP_attention, 2.0 * 2 * 5 * 3 * 3 * (6 + 2));
  check_cost(dot, OP_attention_grad, 2.0 * 2 * 5 * 3 * 3 * (3 * 6 + 2 * 2));
  const Graph *window = parse(
      module,
      golden_text(module, arena_printf(module->arena, "%swindow.ir", root)));
  double conv = 2.0 * (2 * 4 * 7 * 5) * (3 * 3 * 2);
  check_cost(window, OP_conv, conv);
  check_cost(window, OP_conv_input_grad, conv);
  check_cost(window, OP_conv_weight_grad, conv);
  check_cost(window, OP_maxpool, 2 * 3 * 4 * 3 * 6);
}

Test(ir, pieces_of_a_type) {
  Module *module = module_create();
  const Graph *graph =
      parse(module, "graph g mesh(a = 2, b = 3, t = 2~) { %0 = iota : "
                    "f32[X:13@(a, b), Y:8@t] }");
  const Type *type = graph->nodes.data[0]->types[0];
  cr_expect_eq(mesh_ranks(&graph->mesh), 6);
  cr_expect_eq(type_local_size(type, &graph->mesh, 0), 3); /* ceil(13 / 6) */
  cr_expect_eq(type_local_size(type, &graph->mesh, 1), 4);
  cr_expect_eq(type_local_elements(type, &graph->mesh), 12);
  cr_expect_eq(type_elements(type), 104);
  cr_expect(!type_is_replicated(type));
  cr_expect(type_is_replicated(type_logical(module->arena, type)));
}
