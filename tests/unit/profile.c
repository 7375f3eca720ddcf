// links: price passes ir support
/*
 * profile.c -- tests the keys of launches: equal local work has one key on
 * every mesh, and what changes the work changes the key.  Reads profiles and
 * compares what they hold, or the messages, with goldens:
 *
 *   tests/golden/profiles/NAME.csv   NAME.txt: the launches that are found, or
 *                                    the messages
 *
 * DNNC_BLESS=1 writes what is printed now.
 */
#include "price/cost.h"
#include "tests/unit/values.h"

#include <glob.h>

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

/* ---- profiles ---- */

static const Profile *read_profile(Module *module, const char *name,
                                   const char *text, size_t n) {
  Source source = {name, text, n};
  return profile_read(module->arena, module->diags,
                      arena_copy(module->arena, &source, sizeof source));
}

static const char *messages_of(Module *module) {
  Text out = text_create(module->arena);
  diags_print(module->diags, &out);
  return text_string(&out);
}

/* Looks for each of these, of which the third has no line of its own. */
static const char *found_in(Module *module, const Profile *profile) {
  static const ProfileKey wanted[] = {
      {"hidden.dot", PHASE_forward, 0x9c1f0d6be2a47730, 2},
      {"hidden.dot", PHASE_weight_gradient, 0x9c1f0d6be2a47730, 2},
      {"elsewhere", PHASE_forward, 0x9c1f0d6be2a47730, 2},
      {"hidden.dot", PHASE_forward, 0x9c1f0d6be2a47730, 1},
      {"out.relu", PHASE_forward, 0xff, 2},
      {"out.relu", PHASE_forward, 0xff, 1},
      {"a, \"b\"", PHASE_update, 0x9c1f0d6be2a47730, 1}};
  Text out = text_create(module->arena);
  text_printf(&out, "%d launches, cores %d\n", profile_launches(profile),
              profile_cores(profile));
  for (int i = 0; i < ARRAY_LENGTH(wanted); i++) {
    Ps time;
    const ProfileKey *key = &wanted[i];
    if (profile_find(profile, key, &time))
      text_printf(&out, "%s %s %016llx %d: %lld ps\n", key->path,
                  phase_name(key->phase), (unsigned long long)key->kernel,
                  key->cores, (long long)time);
  }
  return text_string(&out);
}

static const char *outcome(Module *module, const char *path) {
  const char *text;
  size_t n;
  cr_assert(file_read(module->arena, path, 1 << 24, &text, &n).code ==
            STATUS_ok);
  const Profile *profile =
      read_profile(module, strrchr(path, '/') + 1, text, n);
  cr_expect_eq(profile == NULL, diags_errors(module->diags) > 0);
  return profile ? found_in(module, profile) : messages_of(module);
}

Test(profile, goldens) {
  glob_t files;
  cr_assert_eq(glob(TEST_ROOT "/tests/golden/profiles/*.csv", 0, NULL, &files),
               0);
  for (size_t i = 0; i < files.gl_pathc; i++) {
    Module *module = module_create();
    const char *path = files.gl_pathv[i], *want = "";
    size_t n;
    const char *got = outcome(module, path);
    char *golden = arena_strdup(module->arena, path);
    strcpy(strrchr(golden, '.'), ".txt");
    if (getenv("DNNC_BLESS")) {
      file_replace(golden, got, strlen(got));
    } else {
      file_read(module->arena, golden, 1 << 20, &want, &n);
      cr_expect_str_eq(got, want, "%s: got\n%s", path, got);
    }
  }
  cr_expect_gt(files.gl_pathc, 20);
  globfree(&files);
}

#define HEADER "path,phase,kernel,cores,ps,runs\n"

/* A line of 10 MB is a message of a few hundred bytes. */
Test(profile, long_lines) {
  enum { LENGTH = 10 << 20 };
  for (int is_header = 0; is_header < 2; is_header++) {
    Module *module = module_create();
    Text text = text_create(module->arena);
    if (!is_header) text_add(&text, HEADER);
    char *line = ARENA_ARRAY(module->arena, char, LENGTH);
    memset(line, 'a', LENGTH);
    text_add_n(&text, line, LENGTH);
    cr_expect_null(
        read_profile(module, "long.csv", text_string(&text), text.n));
    const char *got = messages_of(module);
    cr_expect(strstr(got, is_header ? "long.csv:1:1: error: the first line"
                                    : "long.csv:2:1: error: a line of a "
                                      "profile has at most 65536 bytes"),
              "%.400s", got);
    cr_expect_lt(strlen(got), 2000);
  }
}

/* Each truncation and each changed byte of a profile is read or refused. */
Test(profile, damaged) {
  static const char text[] =
      HEADER "hidden.dot,forward,9c1f0d6be2a47730,2,418230000,19\r\n"
             "\"a\"\"b\",wgrad,00000000000000ff,1,5,1\n";
  char copy[sizeof text];
  for (size_t i = 0; i < sizeof text - 1; i++)
    for (int byte = -1; byte < 256; byte++) {
      Module *module = module_create();
      memcpy(copy, text, sizeof text);
      copy[i] = byte < 0 ? '\0' : (char)byte;
      size_t n = byte < 0 ? i : sizeof text - 1;
      const Profile *profile = read_profile(module, "damaged.csv", copy, n);
      cr_expect_eq(profile == NULL, diags_errors(module->diags) > 0);
      modules_destroy();
    }
}

/* ---- prices ---- */

static const char priced_row[] =
    HEADER "here,forward,%016llx,4,700,1\nthere,forward,%016llx,4,100,1\n"
           "there,update,%016llx,4,300,1\nthere,forward,%016llx,2,900,1\n";

static const char priced_graph[] =
    "  %0 = input {index = 0} : f32[B:4] data \"x\"\n"
    "  %1 = exp %0 : f32[B:4] \"here\"\n"
    "  %2 = exp %0 : f32[B:4] \"new\"\n"
    "  %3 = log %0 : f32[B:4] \"here\"\n";

/* By path, phase and kernel; then the median of the kernel, with as many cores;
 * then the formula.  A part that is left out costs nothing. */
Test(profile, prices) {
  Module *module = module_create();
  const Graph *graph = read_graph(module, "", priced_graph);
  unsigned long long key = launch_key(graph, 1);
  const char *text =
      arena_printf(module->arena, priced_row, key, key, key, key);
  CostModel model = {
      .rates = {.units = 4, .bandwidth = 1e9, .memory_share = 1, .launch = 7},
      .profile = read_profile(module, "p.csv", text, strlen(text))};
  model.rates.flops[DT_f32] = 1e9;
  cr_assert(model.profile, "%s", messages_of(module));
  LaunchCost exact = cost_launch(&model, graph, 1);
  cr_expect(exact.is_measured && exact.time == 700 && exact.launch == 0);
  LaunchCost median = cost_launch(&model, graph, 2);
  cr_expect(median.is_measured && median.time == 300, "%lld",
            (long long)median.time);
  LaunchCost formula = cost_launch(&model, graph, 3);
  cr_expect(!formula.is_measured && formula.launch == 7 && formula.time > 0);
  LaunchCost clear = cost_clear(&model, graph, 1);
  cr_expect(!clear.is_measured && clear.time == 16000);
  model.rates.units = 2;
  cr_expect_eq(cost_launch(&model, graph, 1).time, 900);
  model.rates.units = 1;
  cr_expect(!cost_launch(&model, graph, 1).is_measured);
  model.rates.units = 4;
  model.without = 1u << COST_fused;
  cr_expect_eq(cost_launch(&model, graph, 1).time, 0);
}
