// links: verify driver codegen frontend passes runtime ir support
/*
 * fold.c -- tests that a list and what it is folded to take equally long: small
 * lists, random ones, and all models under several plans.
 */
#include "price/fold.h"

#include "driver/driver.h"
#include "price/price_list.h"
#include "tests/unit/play_model.h"

#include <dirent.h>
#include <string.h>

TestSuite(fold, .fini = modules_destroy);

enum { MOST_ACTIONS = 4096 };

/* ---- lists as text ---- */

/* "abc" runs 1, 2 and 3, "S" starts a transfer, "0" waits for the last one,
 * "1" for the one before it, "(" begins a loop of two iterations, ")" ends it.
 */
static SimAction action_of(char c) {
  switch (c) {
  case 'S': return (SimAction){.kind = SIM_start};
  case '(': return (SimAction){.kind = SIM_loop, .trips = 2};
  case ')': return (SimAction){.kind = SIM_end};
  default:
    return c >= '0' && c <= '9'
               ? (SimAction){.kind = SIM_wait, .back = c - '0'}
               : (SimAction){.kind = SIM_run, .duration = c - 'a' + 1, .id = c};
  }
}

static int read_actions(const char *text, SimAction *actions) {
  int n = 0;
  for (; text[n]; n++) actions[n] = action_of(text[n]);
  return n;
}

static const char *print_actions(Arena *arena, const SimAction *actions,
                                 int n) {
  Text out = text_create(arena);
  for (int i = 0; i < n; i++) {
    const SimAction *action = &actions[i];
    switch (action->kind) {
    case SIM_run:
      text_printf(&out, "%c", (int)('a' + action->duration - 1));
      break;
    case SIM_start: text_add(&out, "S"); break;
    case SIM_wait: text_printf(&out, "%d", (int)action->back); break;
    case SIM_loop: text_printf(&out, "%d(", (int)action->trips); break;
    case SIM_end: text_add(&out, ")"); break;
    }
  }
  return text_string(&out);
}

static const struct {
  const char *text, *folded;
} lists[] = {
    {"", ""},
    {"abcdefghijklm", "abcdefghijklm"},
    /* four equal segments, with what comes before and after */
    {"xabcdefghijkl"
     "abcdefghijkl"
     "abcdefghijkl"
     "abcdefghijkly",
     "x4(abcdefghijkl)y"},
    /* three are run anyway */
    {"abcdefghijklm"
     "abcdefghijklm"
     "abcdefghijklm",
     "abcdefghijklmabcdefghijklmabcdefghijklm"},
    /* a transfer of the segment before is waited for; the first is not of the
     * run, but its segment is */
    {"SabcS1dabcS1dabcS1dabcS1dabcS1dabcS1d0", "S6(abcS1d)0"},
    /* loops are in segments, as a whole */
    {"a(bc)d(bc)d(bc)d(bc)d(bc)d(bc)d(bc)d(bc)e", "a7(2(bc)d)2(bc)e"},
    /* a run in a run */
    {"xaaaaaaaaaaaaaaaaaaaaybxaaaaaaaaaaaaaaaaaaaaybxaaaaaaaaaaaaaaaaaaaayb"
     "xaaaaaaaaaaaaaaaaaaaaybxaaaaaaaaaaaaaaaaaaaaybxaaaaaaaaaaaaaaaaaaaayb",
     "6(x20(a)yb)"},
};

Test(fold, lists_by_hand) {
  Arena *arena = module_create()->arena;
  for (int i = 0; i < ARRAY_LENGTH(lists); i++) {
    SimAction actions[MOST_ACTIONS];
    int n = read_actions(lists[i].text, actions), n_folded;
    const SimAction *folded = fold_actions(arena, actions, n, &n_folded);
    const char *text = print_actions(arena, folded, n_folded);
    cr_expect_str_eq(text, lists[i].folded, "%s: %s", lists[i].text, text);
  }
}

/* ---- random lists ---- */

static int draw(uint64_t *calls, int n) {
  return (int)random_below(20261203, (*calls)++, (uint64_t)n);
}

/* Segments of random length, each several times, nested or one after the other:
 * what is folded, written out, is the list. */
static int add_random(uint64_t *calls, char *out, int depth) {
  int n = 0;
  for (int parts = draw(calls, 4) + 1; parts > 0; parts--) {
    if (depth == 0 || draw(calls, 3) == 0) {
      for (int k = draw(calls, 8) + 1; k > 0; k--)
        out[n++] = (char)('a' + draw(calls, 3));
      continue;
    }
    int length = add_random(calls, out + n, depth - 1), begin = n;
    n += length;
    for (int k = draw(calls, 7); k > 0; k--, n += length)
      memcpy(out + n, out + begin, (size_t)length);
  }
  return n;
}

static int write_out(const SimAction *actions, int n, char *out) {
  int at = 0;
  for (int i = 0; i < n; i++) {
    if (actions[i].kind != SIM_loop) {
      out[at++] = (char)('a' + actions[i].duration - 1);
      continue;
    }
    int end = i + 1;
    for (int depth = 1; depth > 0; end++)
      depth += (actions[end].kind == SIM_loop) - (actions[end].kind == SIM_end);
    for (int64_t k = 0; k < actions[i].trips; k++)
      at += write_out(&actions[i + 1], end - i - 2, out + at);
    i = end - 1;
  }
  return at;
}

Test(fold, random_lists_written_out_are_the_same) {
  static char text[1 << 16], again[1 << 16];
  static SimAction actions[1 << 16];
  uint64_t calls = 0;
  int n_shorter = 0;
  for (int round = 0; round < 300; round++) {
    Arena *arena = module_create()->arena;
    int n = add_random(&calls, text, 3), n_folded;
    text[n] = 0;
    cr_assert_eq(read_actions(text, actions), n);
    const SimAction *folded = fold_actions(arena, actions, n, &n_folded);
    int n_again = write_out(folded, n_folded, again);
    again[n_again] = 0;
    cr_assert_str_eq(again, text, "round %d", round);
    n_shorter += n_folded < n / 2;
    modules_destroy();
  }
  cr_expect_gt(n_shorter, 100, "%d", n_shorter);
}

/* ---- models ---- */

typedef struct ModelCase {
  const char *model, *plan; /* paths below the repository; plan: or NULL */
  int64_t ranks, microbatches;
  const char *cluster;
} ModelCase;

static void no_span(void *user, const SimSpan *span) {
  cr_assert(span->begin <= span->end);
  ++*(int64_t *)user;
}

/* Prices the program folded and in full; false: it has no training. */
static bool prices_are_equal(const ModelCase *one, Price *out) {
  Module *module = module_create();
  Arena *arena = module->arena;
  CompileOptions *options = ARENA_NEW(arena, CompileOptions);
  *options = (CompileOptions){
      .path = arena_printf(arena, "%s/%s", TEST_ROOT, one->model),
      .plan =
          one->plan ? arena_printf(arena, "%s/%s", TEST_ROOT, one->plan) : NULL,
      .cluster =
          arena_printf(arena, "%s/models/%s.cluster", TEST_ROOT, one->cluster),
      .ranks = one->ranks,
      .microbatches = one->microbatches,
      .follows_links = true,
      .level = 2};
  Compilation c;
  cr_assert_eq(driver_load(module, options, &c), COMPILE_done, "%s",
               one->model);
  Graph *graph = driver_graph(&c, ENTRY_train);
  if (!graph) return false;
  graph = driver_run_passes(&c, ENTRY_train, graph, 0);
  cr_assert_not_null(graph, "%s", one->model);
  CostModel model = {0};
  cost_model_of(c.cluster->groups[0].device, &model);
  EntryPoint step = driver_entry_point(&c, ENTRY_train, graph);
  int64_t n_spans = 0;
  ClusterSlice slice = cluster_slice(arena, c.cluster, 0, c.ranks);
  *out = price_program(arena, &step, &model, &slice, NULL, NULL);
  Price full = price_program(arena, &step, &model, &slice, no_span, &n_spans);
  const char *plan = one->plan ? one->plan : "no plan";
  cr_expect_eq(full.n_folded, full.n_actions);
  cr_expect(out->step > 0 && n_spans > 0, "%s", one->model);
  cr_expect_eq(out->step, full.step, "%s, %s: %lld, in full %lld", one->model,
               plan, (long long)out->step, (long long)full.step);
  for (int c = 0; c < full.n_classes; c++)
    for (int part = 0; part < N_COST_PARTS; part++)
      cr_expect_eq(out->classes[c].parts[part], full.classes[c].parts[part],
                   "%s, %s: %s", one->model, plan,
                   cost_term_info((CostTerm)part)->name);
  modules_destroy();
  return true;
}

Test(fold, models_take_as_long_as_in_full) {
  DIR *folder = opendir(TEST_ROOT "/models");
  cr_assert_not_null(folder);
  int n = 0, n_folded = 0;
  for (struct dirent *entry; (entry = readdir(folder));) {
    const char *dot = strrchr(entry->d_name, '.');
    if (!dot || strcmp(dot, ".dnn") != 0 || !strcmp(entry->d_name, "lib.dnn"))
      continue;
    char path[300];
    snprintf(path, sizeof path, "models/%s", entry->d_name);
    Price price;
    if (!prices_are_equal(&(ModelCase){path, NULL, 4, 0, "a100x1024"}, &price))
      continue;
    n++;
    n_folded += price.n_folded < price.n_actions;
    bool is_deep = strcmp(entry->d_name, "gpt3.dnn") == 0;
    cr_expect(!is_deep || price.n_folded < price.n_actions / 3, "%d of %d",
              price.n_folded, price.n_actions);
  }
  closedir(folder);
  cr_expect(n >= 25 && n_folded >= 10, "%d models, %d are folded", n, n_folded);
}

Test(fold, plans_take_as_long_as_in_full) {
  static const ModelCase cases[] = {
      {"models/gpt2.dnn", "models/gpt2.plan", 0, 0, "a100x1024"},
      {"models/gpt2.dnn", "benchmarks/plans/zero3.plan", 0, 0, "h100x256"},
      {"models/gpt2.dnn", "benchmarks/plans/zero3_microbatches.plan", 0, 0,
       "a100x1024"},
      {"models/gpt2.dnn", "benchmarks/plans/remat_zero3.plan", 0, 0,
       "a100x1024"},
      {"models/gpt2.dnn", "benchmarks/plans/tensor_microbatches.plan", 0, 0,
       "a100x1024"},
      {"models/chargpt.dnn", "benchmarks/plans/data.plan", 0, 0, "pipedream-c"},
      {"models/gpt3.dnn", "benchmarks/plans/gpt3.plan", 0, 0, "a100x1024"},
      {"models/gpt3.dnn", "benchmarks/plans/gpt3.plan", 0, 4, "a100x1024"},
      {"models/bert.dnn", "benchmarks/plans/zero2.plan", 0, 4, "h100x256"},
      {"models/vgg16.dnn", "benchmarks/plans/data.plan", 0, 4, "pipedream-c"},
      {"models/gnmt8.dnn", NULL, 16, 2, "pipedream-a"},
      {"models/chargpt.dnn", NULL, 24, 0, "mixed"},
      {"models/llama.dnn", NULL, 128, 4, "islands"},
  };
  for (int i = 0; i < ARRAY_LENGTH(cases); i++) {
    Price price;
    cr_expect(prices_are_equal(&cases[i], &price));
  }
}
