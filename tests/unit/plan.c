// links: frontend passes ir support
/*
 * plan.c -- compares the plans that the compiler makes, or its messages about
 * them, with goldens.
 *
 *   tests/golden/plans/NAME.plan   a plan for model.dnn; NAME.txt the output
 *   tests/golden/plans/NAME.dnn    a model with a mesh and a plan of its own
 *   tests/golden/wrong_plans.txt   a table of plans that cannot hold, or barely
 *   tests/golden/costly_plans.txt  a table of plans with a costly pin
 *
 * A first line `#= ranks=N` is the command line.  The plan is partitioned too,
 * as some pins are resolved there.  DNNC_BLESS=1 writes what is printed now.
 */
#include "frontend/frontend.h"
#include "ir/place/mesh_place.h"
#include "ir/work.h"
#include "passes/stages/stages.h"
#include "tests/unit/planned.h"

#include <criterion/criterion.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FOLDER TEST_ROOT "/tests/golden/plans/"

static void out_of_memory(void *user) {
  (void)user;
  abort();
}

static const Source *load(void *user, const char *path) {
  Module *module = user;
  Source *source = ARENA_NEW(module->arena, Source);
  const char *full = arena_printf(module->arena, FOLDER "%s", path);
  source->path = arena_strdup(module->arena, path);
  Status status =
      file_read(module->arena, full, 1 << 20, &source->text, &source->n);
  return status.code == STATUS_ok ? source : NULL;
}

/* Prints the graph after `remat`, or those of the stages.  One of workers and
 * servers is cut for its mistakes. */
static void print_graphs(PassContext *ctx, Graph *graph, Text *out) {
  PassOptions options = {.level = 2, .end = pass_end("remat"), .verify = true};
  bool has_stages = ctx->plan->stages.n > 1;
  if (has_stages) options.end = pass_phase(PASSES_partition);
  graph = passes_run(ctx, &options, graph).graph;
  if (!has_stages) graph_print(out, graph);
  if (plan_servers(ctx->plan) && diags_errors(ctx->module->diags) == 0)
    servers_cut(ctx, graph);
  if (!has_stages || diags_errors(ctx->module->diags) > 0) return;
  StageCut cut = stages_cut(ctx, graph);
  PassContext own = *ctx;
  own.cut = &cut;
  options.begin = options.end;
  options.end = pass_end("remat");
  for (int s = 0; s < cut.graphs.n; s++) {
    own.plan = plan_of_stage(ctx->module, ctx->plan, s);
    if (diags_errors(ctx->module->diags) == 0)
      graph_print(out, passes_run(&own, &options, cut.graphs.data[s]).graph);
  }
}

/* Adds messages and plan; returns the graphs as text. */
static const char *add_outcome(Module *module, Planned planned, Text *out) {
  Text graph = text_create(module->arena);
  const Model *model = planned.model;
  if (model) {
    cr_assert(planned.plan != NULL);
    PassContext ctx = {.module = module,
                       .scratch = module->arena,
                       .model = model,
                       .plan = planned.plan,
                       .is_training = true};
    print_graphs(&ctx, model->train, &graph);
  }
  diags_print(module->diags, out);
  if (model && diags_errors(module->diags) == 0) plan_print(out, planned.plan);
  return text_string(&graph);
}

/* A plan that is printed and read again is printed alike and does the same. */
static void check_again(Module *module, FrontendOptions options,
                        const Plan *plan, const char *graph) {
  Text text = text_create(module->arena), again = text_create(module->arena);
  plan_print(&text, plan);
  Source file = {"printed.plan", text_string(&text), text.n};
  Module fresh = {module->memory, module->arena, module->names,
                  diags_create(module->arena)};
  options.user = &fresh;
  options.plan = &file;
  Planned planned = load_planned(&fresh, &options, 0, 0);
  if (!planned.plan) diags_print(fresh.diags, &again);
  cr_assert(planned.plan, "%s: got\n%s", text_string(&text),
            text_string(&again));
  const char *same = add_outcome(&fresh, planned, &again);
  Text printed = text_create(module->arena);
  plan_print(&printed, planned.plan);
  cr_expect_str_eq(text_string(&printed), text_string(&text));
  cr_expect_str_eq(same, graph);
}

static void check(const char *name) {
  Memory *memory = memory_create(out_of_memory, NULL);
  Arena *arena = arena_create(memory);
  Module module = {memory, arena, names_create(arena), diags_create(arena)};
  const Source *source = load(&module, name);
  cr_assert(source != NULL);
  bool is_plan = strstr(name, ".plan") != NULL;
  FrontendOptions options = {
      .load = load, .user = &module, .path = is_plan ? "model.dnn" : name};
  int64_t ranks = 0;
  if (is_plan) options.plan = source;
  if (strncmp(source->text, "#= ranks=", 9) == 0)
    ranks = atol(source->text + 9);
  Text out = text_create(arena);
  Planned planned = load_planned(&module, &options, ranks, 0);
  const char *graph = add_outcome(&module, planned, &out);
  if (diags_errors(module.diags) == 0 && planned.plan)
    check_again(&module, options, planned.plan, graph);
  char *path = arena_printf(arena, FOLDER "%s", name);
  strcpy(strrchr(path, '.'), ".txt");
  const char *want = "";
  size_t n;
  if (getenv("DNNC_BLESS")) {
    file_replace(path, text_string(&out), out.n);
  } else {
    file_read(arena, path, 1 << 20, &want, &n);
    cr_expect_str_eq(text_string(&out), want, "%s: got\n%s", name,
                     text_string(&out));
  }
  memory_destroy(memory);
}

Test(plan, goldens) {
  DIR *folder = opendir(FOLDER);
  cr_assert(folder != NULL);
  int n = 0;
  for (struct dirent *entry; (entry = readdir(folder));) {
    const char *dot = strrchr(entry->d_name, '.');
    if (!dot || (strcmp(dot, ".plan") && strcmp(dot, ".dnn"))) continue;
    if (strcmp(entry->d_name, "model.dnn") == 0) continue;
    check(entry->d_name);
    n++;
  }
  closedir(folder);
  cr_expect_gt(n, 20);
}

/* What `--ranks N --microbatches M` asks for is the plan of a file. */
Test(plan, command_line_is_a_file) {
  static const char text[] = "mesh { data = 4 }\n"
                             "plan { microbatches = 2; shard B over data }\n";
  char printed[2][1000];
  for (int i = 0; i < 2; i++) {
    Memory *memory = memory_create(out_of_memory, NULL);
    Arena *arena = arena_create(memory);
    Module module = {memory, arena, names_create(arena), diags_create(arena)};
    Source file = {"file.plan", text, sizeof text - 1};
    FrontendOptions options = {
        .load = load, .user = &module, .path = "model.dnn"};
    if (i == 1) options.plan = &file;
    const Plan *plan =
        load_planned(&module, &options, i == 0 ? 4 : 0, i == 0 ? 2 : 0).plan;
    cr_assert(plan != NULL);
    Text out = text_create(arena);
    plan_print(&out, plan);
    text_printf(&out, "%d ranks, %d axes, batch %s", plan->ranks,
                plan_mesh(plan)->n_axes, plan->batch_dim);
    cr_assert_lt(out.n, sizeof printed[i]);
    strcpy(printed[i], text_string(&out));
    memory_destroy(memory);
  }
  cr_expect_str_eq(printed[0], printed[1]);
}

/* ---- every decision is in the text ---- */

static const Source *load_system(void *user, const char *path) {
  Module *module = user;
  Source *source = ARENA_NEW(module->arena, Source);
  source->path = arena_strdup(module->arena, path);
  Status status = file_read(
      module->arena, arena_printf(module->arena, "%s/%s", TEST_ROOT, path),
      1 << 20, &source->text, &source->n);
  return status.code == STATUS_ok ? source : NULL;
}

/* The plan as text and the hash of the program that it leads to. */
static const char *plan_and_hash(Module *module, FrontendOptions options,
                                 const Source *plan, uint64_t *out_hash) {
  Module fresh = {module->memory, module->arena, module->names,
                  diags_create(module->arena)};
  options.user = &fresh;
  options.plan = plan;
  Planned planned = load_planned(&fresh, &options, 0, 0);
  Text text = text_create(module->arena);
  if (planned.plan) {
    PassContext ctx = {.module = &fresh,
                       .scratch = module->arena,
                       .model = planned.model,
                       .plan = planned.plan,
                       .is_training = true};
    PassOptions passes = {.level = 2, .end = pass_end("fuse")};
    *out_hash =
        graph_hash(passes_run(&ctx, &passes, planned.model->train).graph);
  }
  diags_print(fresh.diags, &text);
  cr_assert(planned.plan && !diags_errors(fresh.diags), "%s\n%s: got\n%s",
            plan->text, plan->path, text_string(&text));
  cr_expect(!strstr(text_string(&text), "bytes too many"), "%s: got\n%s",
            plan->path, text_string(&text));
  text = text_create(module->arena);
  plan_print(&text, planned.plan);
  return text_string(&text);
}

/* NAME=VALUE words. */
static void add_sizes(char *words, FrontendOptions *options, Override *sizes,
                      int most) {
  for (char *word; (word = strtok_r(NULL, " \n", &words));) {
    char *equals = strchr(word, '=');
    cr_assert(equals && options->n_overrides < most);
    *equals = '\0';
    sizes[options->n_overrides++] = (Override){word, equals + 1};
  }
}

/* One line of pairs.txt: a model with a name, which `known` takes, or two words
 * about tests, a plan and such a name; then NAME=VALUE.  Of the short half each
 * plan counts once. */
static void check_pair(Module *module, Map *known, char *line) {
  enum { MOST_SIZES = 24 };
  Override sizes[MOST_SIZES];
  FrontendOptions options = {.load = load_system, .overrides = sizes};
  char *rest = line, *word = strtok_r(rest, " \n", &rest);
  if (!word || *word == '#') return;
  char *name = strtok_r(NULL, " \n", &rest);
  if (!strcmp(word, "model")) {
    map_put(known, name_intern(module->names, name),
            arena_strdup(module->arena, rest));
    return;
  }
  char *plan = strtok_r(NULL, " \n", &rest);
  Name key = name_format(module->names, "%s.plan", plan);
  if (strcmp(word, "short") != 0 || map_has(known, key)) return;
  map_put(known, key, (void *)key);
  name = strtok_r(NULL, " \n", &rest);
  const char *model = map_get(known, name_intern(module->names, name));
  cr_assert(model != NULL, "%s", name);
  char *own = arena_strdup(module->arena, model);
  options.path = strtok_r(own, " \n", &own);
  add_sizes(own, &options, sizes, MOST_SIZES);
  add_sizes(rest, &options, sizes, MOST_SIZES);
  const Source *file = load_system(
      module, arena_printf(module->arena, "benchmarks/plans/%s.plan", plan));
  cr_assert(file != NULL, "%s", plan);
  uint64_t first = 0, second = 1;
  const char *text = plan_and_hash(module, options, file, &first);
  Source printed = {"benchmarks/plans/printed.plan", text, strlen(text)};
  cr_expect_str_eq(plan_and_hash(module, options, &printed, &second), text);
  cr_expect_eq(first, second, "%s, %s: another program\n%s", plan, options.path,
               text);
}

Test(plan, printed_plans_of_systems_lead_to_the_same_programs) {
  FILE *pairs = fopen(TEST_ROOT "/benchmarks/systems/pairs.txt", "r");
  char line[1000];
  cr_assert(pairs != NULL);
  Memory *memory = memory_create(out_of_memory, NULL);
  Arena *arena = arena_create(memory);
  Module module = {memory, arena, names_create(arena), diags_create(arena)};
  Map *known = map_create(arena);
  while (fgets(line, sizeof line, pairs)) check_pair(&module, known, line);
  memory_destroy(memory);
  fclose(pairs);
}

/* A plan for four ranks: the shards of the optimizer state of linear[1].w, and
 * the gradients, of six, that are scattered. */
typedef struct UpdateCase {
  const char *lines;
  int state_shards;          /* along I */
  int scatters, accumulated; /* the latter before micro-batches are added up */
} UpdateCase;

static int shards_of(const Graph *graph, Role role, const char *path,
                     const char *dim) {
  const GraphInput *input =
      graph_find_input(graph, role, name_intern(graph->module->names, path));
  cr_assert(input != NULL, "%s", path);
  const Type *type = graph_type(graph, input->value);
  int d = type_find(type, name_intern(graph->module->names, dim));
  return (int)(type->dims[d].size / type_local_size(type, &graph->mesh, d));
}

/* The training graph after the pass `partition`. */
static const Graph *partitioned_graph(Module *module, const char *path,
                                      const char *plan) {
  Source file = {"file.plan", plan, strlen(plan)};
  FrontendOptions options = {
      .load = load_system, .user = module, .path = path, .plan = &file};
  Planned planned = load_planned(module, &options, 0, 0);
  cr_assert(planned.plan, "%s", plan);
  PassContext ctx = {.module = module,
                     .scratch = module->arena,
                     .model = planned.model,
                     .plan = planned.plan,
                     .is_training = true};
  PassOptions passes = {
      .level = 2, .end = pass_end("partition"), .verify = true};
  return passes_run(&ctx, &passes, planned.model->train).graph;
}

static void check_update(const UpdateCase *c) {
  Memory *memory = memory_create(out_of_memory, NULL);
  Arena *arena = arena_create(memory);
  Module module = {memory, arena, names_create(arena), diags_create(arena)};
  const Graph *graph = partitioned_graph(
      &module, "benchmarks/systems/mlp.dnn",
      arena_printf(arena, "mesh { data = 4 }\nplan { microbatches = 2; %s }\n",
                   c->lines));
  int scatters = 0, accumulated = 0;
  for (int id = 0; id < graph->nodes.n; id++) {
    if (graph->nodes.data[id]->op != OP_reduce_scatter) continue;
    scatters++;
    accumulated += graph->nodes.data[id]->types[0]->partial != 0;
  }
  cr_expect_eq(
      shards_of(graph, ROLE_optimizer_state, "adamw.v/linear[1].w", "I"),
      c->state_shards, "%s", c->lines);
  cr_expect_eq(shards_of(graph, ROLE_param, "linear[1].w", "I"), 1, "%s",
               c->lines);
  cr_expect_eq(scatters, c->scatters, "%s: %d", c->lines, scatters);
  cr_expect_eq(accumulated, c->accumulated, "%s: %d", c->lines, accumulated);
  memory_destroy(memory);
}

Test(plan, lines_place_gradients_and_optimizer_state) {
  static const UpdateCase cases[] = {
      {"zero = 0", 1, 0, 0},
      {"shard optimizer.linear[1].w: I over data", 4, 1, 0},
      {"shard grad.linear[1].w: I over data", 1, 1, 1},
      {"shard optimizer.linear.w: I over data\n"
       "shard grad: O over data; replicate grad.linear[0]",
       4, 4, 4},
      {"shard optimizer: O over data; replicate optimizer.linear.w", 1, 3, 0}};
  for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++)
    check_update(&cases[i]);
}

/* H of [H, D, C] is sharded over `tensor` and too short for `data` as well. The
 * shards of D lie one after the other only where a rank has one element of H;
 * else the longer C is sharded. */
Test(plan, zero_shards_what_is_contiguous_or_longest) {
  static const struct {
    int tensor;
    const char *dim, *other;
  } cases[] = {{4, "D", "C"}, {2, "C", "D"}};
  for (int i = 0; i < 2; i++) {
    Memory *memory = memory_create(out_of_memory, NULL);
    Arena *arena = arena_create(memory);
    Module module = {memory, arena, names_create(arena), diags_create(arena)};
    const Graph *graph = partitioned_graph(
        &module, "benchmarks/systems/gpt.dnn",
        arena_printf(arena,
                     "mesh { data = 4; tensor = %d }\n"
                     "plan { shard H over tensor; zero = 1 }\n",
                     cases[i].tensor));
    const char *path = "block[0].attn.wo";
    cr_expect_eq(shards_of(graph, ROLE_param, path, cases[i].dim), 4, "%d", i);
    cr_expect_eq(shards_of(graph, ROLE_param, path, cases[i].other), 1, "%d",
                 i);
    memory_destroy(memory);
  }
}

/* ---- tables of plans ---- */

/* A case, split in place: === TITLE, MODEL OPTION..., a plan, ---, and
 * what is printed. */
typedef struct PlanCase {
  char *title, *model, *plan, *expected;
} PlanCase;

static char *cut_at(char *text, const char *mark) {
  char *at = strstr(text, mark);
  cr_assert(at != NULL, "no %s in: %s", mark, text);
  *at = '\0';
  return at + strlen(mark);
}

static PlanCase split_case(char *text) {
  PlanCase result = {.title = text};
  result.model = cut_at(text, "\n");
  result.plan = cut_at(result.model, "\n");
  result.expected = cut_at(result.plan, "---\n");
  return result;
}

/* The model of the case under this plan; NULL: it has errors. */
static Planned load_case(Module *module, const PlanCase *c, const char *plan) {
  int64_t ranks = 0;
  Source file = {"wrong.plan", plan, strlen(plan)};
  char *rest = arena_strdup(module->arena, c->model), *word;
  Override *size = ARENA_NEW(module->arena, Override);
  FrontendOptions options = {
      .load = load_system, .user = module, .overrides = size};
  options.plan = arena_copy(module->arena, &file, sizeof file);
  options.path = strtok_r(rest, " ", &rest);
  while ((word = strtok_r(NULL, " ", &rest))) {
    if (strncmp(word, "ranks=", 6) == 0) {
      ranks = atol(word + 6);
    } else {
      char *value = cut_at(word, "=");
      *size = (Override){word, value};
      options.n_overrides = 1;
    }
  }
  return load_planned(module, &options, ranks, 0);
}

/* Checks more of a case than its text. */
typedef void CheckCase(Module *module, const PlanCase *c, const char *got);

static void check_case(char *text, CheckCase *more, Text *blessed) {
  Memory *memory = memory_create(out_of_memory, NULL);
  Arena *arena = arena_create(memory);
  Module module = {memory, arena, names_create(arena), diags_create(arena)};
  PlanCase c = split_case(text);
  Text out = text_create(arena);
  add_outcome(&module, load_case(&module, &c, c.plan), &out);
  const char *got = text_string(&out);
  text_printf(blessed, "\n=== %s\n%s\n%s---\n%s", c.title, c.model, c.plan,
              got);
  if (!getenv("DNNC_BLESS"))
    cr_expect_str_eq(got, c.expected, "%s: got\n%s", c.title, got);
  if (more) more(&module, &c, got);
  memory_destroy(memory);
}

static void check_table(const char *path, int at_least, CheckCase *more) {
  Memory *memory = memory_create(out_of_memory, NULL);
  Arena *arena = arena_create(memory);
  const char *text = "";
  size_t size;
  int n = 0;
  cr_assert(file_read(arena, path, 1 << 20, &text, &size).code == STATUS_ok);
  char *at = arena_strdup(arena, text);
  char *next = cut_at(at, "\n=== ");
  Text blessed = text_create(arena);
  text_add(&blessed, at);
  for (; next; n++) {
    at = next;
    next = strstr(at, "\n=== ");
    if (next) {
      *next = '\0';
      next += strlen("\n=== ");
    }
    check_case(at, more, &blessed);
  }
  if (getenv("DNNC_BLESS"))
    file_replace(path, text_string(&blessed), blessed.n);
  cr_expect_geq(n, at_least);
  memory_destroy(memory);
}

Test(plan, wrong_plans) {
  check_table(TEST_ROOT "/tests/golden/wrong_plans.txt", 60, NULL);
}

/* ---- costly pins ---- */

/* The bytes that a rank sends in a training step of the program. */
static int64_t sent_by_case(const PlanCase *c, const char *plan) {
  Memory *memory = memory_create(out_of_memory, NULL);
  Arena *arena = arena_create(memory);
  Module module = {memory, arena, names_create(arena), diags_create(arena)};
  Planned planned = load_case(&module, c, plan);
  cr_assert(planned.plan, "%s: %s", c->title, plan);
  PassContext ctx = {.module = &module,
                     .scratch = arena,
                     .model = planned.model,
                     .plan = planned.plan,
                     .is_training = true};
  PassOptions options = {.level = 2, .end = pass_end("fuse")};
  const Graph *graph = passes_run(&ctx, &options, planned.model->train).graph;
  int64_t bytes = 0;
  for (int id = 0; id < graph->nodes.n; id++)
    bytes +=
        node_sent_bytes(graph, id) *
        (node_is_per_microbatch(graph, id) ? planned.plan->microbatches : 1);
  cr_expect_eq(diags_errors(module.diags), 0, "%s: %s", c->title, plan);
  memory_destroy(memory);
  return bytes;
}

/* A warning is exact: the pin that it names, added to the plan, saves the bytes
 * that it names. */
static void check_costly(Module *module, const PlanCase *c, const char *got) {
  static const char sends[] = "makes each rank send ", help[] = "help: '";
  const char *number = strstr(got, sends), *pin = strstr(got, help);
  cr_assert(number && pin, "%s: got\n%s", c->title, got);
  long long extra = 0, all = 0;
  cr_assert_eq(sscanf(number + strlen(sends),
                      "%lld bytes too many in a training step, of %lld in all",
                      &extra, &all),
               2);
  pin += strlen(help);
  const char *end = strchr(pin, '\''), *brace = strrchr(c->plan, '}');
  cr_assert(end && brace, "%s", c->title);
  const char *better =
      arena_printf(module->arena, "%.*s\n%.*s\n}\n", (int)(brace - c->plan),
                   c->plan, (int)(end - pin), pin);
  cr_expect_eq(sent_by_case(c, c->plan), all, "%s", c->title);
  if (strncmp(end, "' saves", 7) == 0)
    cr_expect_eq(sent_by_case(c, better), all - extra, "%s: %s", c->title,
                 better);
}

Test(plan, costly_pins) {
  check_table(TEST_ROOT "/tests/golden/costly_plans.txt", 20, check_costly);
}
