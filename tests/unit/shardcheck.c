// links: interp ir support
/*
 * shardcheck.c -- a placement that the rule of its operator does not give is
 * named, in graphs, fused regions and scans.
 */
#include "tests/unit/values.h"

TestSuite(shardcheck, .fini = modules_destroy);

static const char right[] =
    "graph test mesh(data = 2, tensor = 2, time = 3~) {\n"
    "  %0 = input {index = 0} : f32[B:24@(data, time), I:4] data \"x\"\n"
    "  %1 = input {index = 1} : f32[I:4, O:6] param \"w\"\n"
    "  %2 = dot %0, %1 {over = [I]} : f32[B:24@(data, time), O:6] \"dot\"\n"
    "  %3 = sum %2 {over = [B]} : f32[O:6; sum@(data, time)] \"sum\"\n"
    "  %4 = accumulate %3 {axes = [time], reduce = sum} : f32[O:6; sum@data]\n"
    "  %5 = all_reduce %4 {axes = [data], reduce = sum} : f32[O:6] \"all\"\n"
    "  %6 = shard %5 {dim = O, axes = [tensor]} : f32[O:6@tensor] \"cut\"\n"
    "  %7 = fused %6 : f32[O:6@tensor] \"f\" {\n"
    "    %0 = input {index = 0} : f32[O:6@tensor] arg \"\"\n"
    "    %1 = exp %0 : f32[O:6@tensor] \"inner\"\n"
    "    output result \"\" %1\n"
    "  }\n"
    "  %8, %9 = scan %6, %7 {dim = T, sizes = [5]} : f32[O:6@tensor], "
    "f32[T:5, O:6@tensor] \"loop\" {\n"
    "    %0 = input {index = 0} : f32[O:6@tensor] carry \"h\"\n"
    "    %1 = input {index = 1} : f32[O:6@tensor] arg \"\"\n"
    "    %2 = add %0, %1 : f32[O:6@tensor] \"more\"\n"
    "    output carry \"h\" %2\n"
    "    output result \"y\" %0\n"
    "  }\n"
    "  %10 = iota {to = [B], sizes = [24]} : i32[B:24@data] \"at\"\n"
    "  output result \"a\" %8\n"
    "  output result \"b\" %10\n"
    "}\n";

/* Replaces the first `from` of the graph by `to`. */
static const char *edited(Arena *arena, const char *from, const char *to) {
  const char *at = strstr(right, from);
  cr_assert(at, "'%s' is not in the graph", from);
  return arena_printf(arena, "%.*s%s%s", (int)(at - right), right, to,
                      at + strlen(from));
}

static const char *faults_of(Module *module, const char *graph_text) {
  Source *source = ARENA_NEW(module->arena, Source);
  *source = (Source){"test.ir", graph_text, strlen(graph_text)};
  Graph *graph = graph_parse(module, source);
  Text out = text_create(module->arena);
  if (!graph) diags_print(module->diags, &out);
  cr_assert(graph, "%s", text_string(&out));
  bool is_right = graph_check_placements(graph, &out);
  cr_assert_eq(is_right, out.n == 0);
  return text_string(&out);
}

Test(shardcheck, a_right_graph_has_no_fault) {
  Module *module = module_create();
  cr_expect_str_eq(faults_of(module, right), "");
}

Test(shardcheck, a_wrong_placement_is_named) {
  static const struct {
    const char *from, *to, *wanted;
  } rows[] = {
      {"O:6] \"dot\"", "O:6@tensor] \"dot\"", "a result of dot 'dot' is "},
      {"B:24@(data, time), O:6] \"dot\"", "B:24@data, O:6] \"dot\"",
       "a result of dot 'dot' is "},
      {"sum@(data, time)] \"sum\"", "sum@data] \"sum\"",
       "a result of sum 'sum' is "},
      {"sum@(data, time)] \"sum\"", "max@(data, time)] \"sum\"",
       "a result of sum 'sum' is "},
      {"{over = [B]}", "{over = [O]}", "a result of sum 'sum' is "},
      {"axes = [data], reduce = sum", "axes = [tensor], reduce = sum",
       "an operand of all_reduce 'all' is "},
      {"axes = [data], reduce = sum", "axes = [data], reduce = max",
       "an operand of all_reduce 'all' is "},
      {"f32[O:6] \"all\"", "f32[O:6; sum@data] \"all\"",
       "a result of all_reduce 'all' is "},
      {"axes = [tensor]} : f32[O:6@tensor] \"cut\"",
       "axes = [data]} : f32[O:6@tensor] \"cut\"",
       "a shard of shard 'cut' is "},
      {"f32[O:6@tensor] \"inner\"", "f32[O:6] \"inner\"",
       "a result of exp 'inner' is "},
      {"%0 = input {index = 0} : f32[O:6@tensor] arg",
       "%0 = input {index = 0} : f32[O:6] arg", "an operand of fused 'f' is "},
      {"f32[O:6@tensor] carry", "f32[O:6] carry", "a carry of scan 'loop' is "},
      {"f32[T:5, O:6@tensor] \"loop\"", "f32[T:5, O:6] \"loop\"",
       "a result of scan 'loop' is "},
  };
  for (int i = 0; i < ARRAY_LENGTH(rows); i++) {
    Module *module = module_create();
    const char *faults =
        faults_of(module, edited(module->arena, rows[i].from, rows[i].to));
    cr_expect(strstr(faults, rows[i].wanted), "%s for %s: '%s'", rows[i].to,
              rows[i].from, faults);
    modules_destroy();
  }
}

/* A position that no operand has may be computed for any shard; zero is the
 * partial sum of zeros, and of nothing else. */
Test(shardcheck, computed_values_have_any_placement) {
  Module *module = module_create();
  static const char graph[] =
      "graph test mesh(data = 2) {\n"
      "  %%0 = const {value = %s, dtype = f32} : f32[]\n"
      "  %%1 = broadcast %%0 {to = [B], sizes = [4]} : f32[B:4%s] \"b\"\n"
      "  output result \"b\" %%1\n"
      "}\n";
  static const char *const rows[][3] = {
      {"0.0", "", ""},
      {"1.0", "@data", ""},
      {"0.0", "; sum@data", ""},
      {"1.0", "; sum@data", "a result of broadcast"},
  };
  for (int i = 0; i < ARRAY_LENGTH(rows); i++) {
    const char *faults = faults_of(
        module, arena_printf(module->arena, graph, rows[i][0], rows[i][1]));
    cr_expect_eq(strncmp(faults, rows[i][2], strlen(rows[i][2])), 0, "%s",
                 faults);
    cr_expect_eq(*faults == 0, *rows[i][2] == 0, "%s", faults);
  }
}
