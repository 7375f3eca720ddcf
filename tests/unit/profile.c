// links: passes ir support
/*
 * profile.c -- tests the keys of launches: equal local work has one key on
 * every mesh, and what changes the work changes the key.
 */
#include "ir/ir.h"
#include "tests/unit/values.h"

TestSuite(profile, .fini = modules_destroy);

/* ---- keys of launches ---- */

/* The graph of these lines, with the mesh (or "") in front. */
static const Graph *read_graph(Module *module, const char *mesh,
                               const char *lines) {
  Source *source = ARENA_NEW(module->arena, Source);
  const char *text =
      arena_printf(module->arena, "graph g%s {\n%s}\n", mesh, lines);
  *source = (Source){"test.ir", text, strlen(text)};
  const Graph *graph = graph_parse(module, source);
  Text messages = text_create(module->arena);
  diags_print(module->diags, &messages);
  cr_assert(graph, "%s%s", text, text_string(&messages));
  return graph;
}

typedef struct KeyCase {
  const char *mesh, *operands[3], *node;
} KeyCase;

static uint64_t key_of(const KeyCase *c) {
  Module *module = module_create();
  Text lines = text_create(module->arena);
  for (int i = 0; i < 3 && c->operands[i]; i++)
    text_printf(&lines, "  %%%d = input {index = %d} : %s data \"%d\"\n", i, i,
                c->operands[i], i);
  int n = 0;
  while (n < 3 && c->operands[n]) n++;
  text_printf(&lines, "  %%%d = %s\n", n, c->node);
  const Graph *graph = read_graph(module, c->mesh, text_string(&lines));
  uint64_t key = launch_key(graph, n);
  cr_assert_neq(key, 0);
  cr_expect_neq(clear_key(graph, n), key);
  return key;
}

#define DOT     "dot %0, %1 {over = [C]} : "
#define BODY(t) "{\n %0 = input {index = 0} : " t " arg \"\"\n"

/* All of one row have one key, and no two rows the same. */
static const KeyCase keys[][4] = {
    {{"", {"f32[B:64, C:64]", "f32[C:64, F:8]"}, DOT "f32[B:64, F:8]"},
     {" mesh(d = 2, t = 4)",
      {"f32[B:128@d, C:64]", "f32[C:64, F:32@t]"},
      DOT "f32[B:128@d, F:32@t]"},
     {" mesh(t = 4)",
      {"f32[B:64, C:256@t]", "f32[C:256@t, F:8]"},
      DOT "f32[B:64, F:8; sum@t]"},
     {" mesh(m = 2~)",
      {"f32[B:128@m, C:64]", "f32[C:64, F:8]"},
      DOT "f32[B:128@m, F:8] @dgrad \"another path\""}},
    /* sizes, dtypes, dims, whether micro-batches add up */
    {{"", {"f32[B:64, C:64]", "f32[C:64, F:16]"}, DOT "f32[B:64, F:16]"}},
    {{"", {"bf16[B:64, C:64]", "bf16[C:64, F:8]"}, DOT "bf16[B:64, F:8]"}},
    {{"", {"f32[B:64, C:64]", "f32[F:8, C:64]"}, DOT "f32[B:64, F:8]"}},
    {{" mesh(m = 2~)",
      {"f32[B:64, C:128@m]", "f32[C:128@m, F:8]"},
      "dot %0, %1 {over = [C], axes = [m]} : f32[B:64, F:8]"}},
    /* a value that is two operands is read once */
    {{"", {"f32[B:4]", "f32[B:4]"}, "mul %0, %1 : f32[B:4]"}},
    {{"", {"f32[B:4]", "f32[B:4]"}, "mul %0, %0 : f32[B:4]"}},
    /* where a slice begins does not matter */
    {{"",
      {"f32[B:8]"},
      "slice %0 {dim = B, start = 0, sizes = [2]} : f32[B:2]"},
     {"",
      {"f32[B:8]"},
      "slice %0 {dim = B, start = 4, sizes = [2]} : f32[B:2]"}},
    /* bodies */
    {{"",
      {"f32[B:4]"},
      "fused %0 : f32[B:4] " BODY("f32[B:4]") " %1 = exp %0 : f32[B:4]\n"
                                              " output result \"\" %1\n }"},
     {" mesh(d = 2)",
      {"f32[B:8@d]"},
      "fused %0 : f32[B:8@d] " BODY(
          "f32[B:8@d]") " %1 = exp %0 : f32[B:8@d]\n"
                        " output result \"\" %1\n }"}},
    {{"",
      {"f32[B:4]"},
      "fused %0 : f32[B:4] " BODY("f32[B:4]") " %1 = log %0 : f32[B:4]\n"
                                              " output result \"\" %1\n }"}},
};

Test(profile, keys) {
  uint64_t seen[ARRAY_LENGTH(keys)];
  for (int i = 0; i < ARRAY_LENGTH(keys); i++) {
    seen[i] = key_of(&keys[i][0]);
    for (int k = 1; k < 4 && keys[i][k].node; k++)
      cr_expect_eq(key_of(&keys[i][k]), seen[i], "row %d, %d", i, k);
    for (int k = 0; k < i; k++)
      cr_expect_neq(seen[k], seen[i], "rows %d and %d", k, i);
  }
}
