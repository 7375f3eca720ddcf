// links: codegen passes ir
/*
 * nests.c -- compares the loop nests of golden graphs with recorded texts.
 *
 *   tests/golden/nests/NAME.ir    a graph
 *   tests/golden/nests/NAME.txt   the nests of its nodes, in order
 *
 * DNNC_BLESS=1 writes the texts.
 */
#include <glob.h>

#include "codegen/nest/nest.h"
#include "passes/passes.h"
#include "tests/unit/values.h"

TestSuite(nests, .fini = modules_destroy);

static Graph *load(Module *module, const char *path) {
  const char *bytes;
  size_t n;
  Status status = file_read(module->arena, path, 1 << 20, &bytes, &n);
  cr_assert_eq(status.code, STATUS_ok, "%s", status.message);
  while (*bytes == '#') bytes = strchr(bytes, '\n') + 1;
  Source *source = ARENA_NEW(module->arena, Source);
  *source = (Source){.path = path, .text = bytes, .n = strlen(bytes)};
  Graph *graph = graph_parse(module, source);
  Text errors = text_create(module->arena);
  diags_print(module->diags, &errors);
  cr_assert(graph != NULL, "%s", text_string(&errors));
  return graph;
}

static void check(Module *module, const char *path) {
  Graph *graph = load(module, path);
  Text out = text_create(module->arena);
  for (int id = 0; id < graph->nodes.n; id++) {
    if (graph->nodes.data[id]->op == OP_input || node_is_view(graph, id))
      continue;
    Nest *nest = nest_lower(module, graph, id);
    cr_assert(nest != NULL, "%s: %%%d", path, id);
    nest_print(&out, nest);
    text_add(&out, "\n");
  }
  char *wanted_path =
      arena_printf(module->arena, "%.*s.txt", (int)(strlen(path) - 3), path);
  if (getenv("DNNC_BLESS")) {
    Status status = file_replace(wanted_path, text_string(&out), out.n);
    cr_assert_eq(status.code, STATUS_ok, "%s", status.message);
    return;
  }
  const char *wanted;
  size_t n;
  Status status = file_read(module->arena, wanted_path, 1 << 20, &wanted, &n);
  cr_assert_eq(status.code, STATUS_ok, "%s", status.message);
  cr_expect_str_eq(text_string(&out), wanted, "%s: got\n%s", path,
                   text_string(&out));
}

Test(nests, goldens) {
  glob_t files;
  cr_assert_eq(glob(TEST_ROOT "/tests/golden/nests/*.ir", 0, NULL, &files), 0);
  for (size_t i = 0; i < files.gl_pathc; i++)
    check(module_create(), files.gl_pathv[i]);
  globfree(&files);
}

/* Equal blocks of a model have other paths and other names of dims. */
Test(nests, equal_content_is_one_kernel) {
  Module *module = module_create();
  Graph *graph = make_graph(module);
  Value a = make_input(graph, ROLE_data, "a", "f32 B:6 C:7");
  Value b = make_input(graph, ROLE_data, "b", "f32 N:6 K:7");
  Value c = make_input(graph, ROLE_data, "c", "f32 B:6 C:8");
  Value rows[3] = {make1(graph, "sum", "over=C", a),
                   make1(graph, "sum", "over=K", b),
                   make1(graph, "sum", "over=C", c)};
  Name names[3];
  for (int i = 0; i < 3; i++)
    names[i] = nest_lower(module, graph, rows[i].node)->name;
  cr_expect_eq(names[0], names[1]);
  cr_expect_neq(names[0], names[2]);
}

/* Neighbouring loops that walk memory as one loop are joined. */
Test(nests, loops_are_joined) {
  Module *module = module_create();
  Graph *graph = make_graph(module);
  Value x = make_input(graph, ROLE_data, "x", "f32 A:2 B:3 C:1 D:5");
  Value bias = make_input(graph, ROLE_data, "b", "f32 D:5");
  Value y = graph_op1(graph, OP_exp, x);
  Value z = graph_op2(graph, OP_add, x, bias);
  Nest *joined = nest_lower(module, graph, y.node);
  cr_expect_eq(joined->n_outer, 1);
  cr_expect_eq(joined->outer[0].extent, 30);
  Nest *rows = nest_lower(module, graph, z.node);
  cr_expect_eq(rows->n_outer, 2);
  cr_expect_eq(rows->outer[0].extent, 6);
}
