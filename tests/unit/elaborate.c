// links: frontend ir support
/*
 * elaborate.c -- compares the messages and graphs of models with goldens.
 *
 *   tests/golden/errors/NAME.dnn      a wrong model; NAME.txt what it prints
 *   tests/golden/elaborate/NAME.dnn   a right one; NAME.txt its graphs
 *
 * A first line `#= NAME=VALUE ...` holds overrides, `# skip` a file that only
 * others import.  DNNC_BLESS=1 writes what is printed now.
 */
#include "frontend/frontend.h"

#include <criterion/criterion.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct World {
  Memory *memory;
  Module module;
  const char *folder;
} World;

static void out_of_memory(void *user) {
  (void)user;
  abort();
}

static World world_create(const char *folder) {
  World w = {.memory = memory_create(out_of_memory, NULL), .folder = folder};
  Arena *arena = arena_create(w.memory);
  w.module =
      (Module){w.memory, arena, names_create(arena), diags_create(arena)};
  return w;
}

static const Source *load(void *user, const char *path) {
  const World *w = user;
  Arena *arena = w->module.arena;
  const char *bytes;
  size_t n;
  const char *full =
      arena_printf(arena, "%s/%s/%s", TEST_ROOT, w->folder, path);
  if (file_read(arena, full, 1 << 24, &bytes, &n).code != STATUS_ok)
    return NULL;
  Source *source = ARENA_NEW(arena, Source);
  *source = (Source){arena_strdup(arena, path), bytes, n};
  return source;
}

static int first_line_overrides(World *w, const char *path, Override *out) {
  const Source *source = load(w, path);
  if (!source || strncmp(source->text, "#=", 2) != 0) return 0;
  const char *end = strchr(source->text, '\n');
  char *line = arena_strdup(w->module.arena, source->text + 2);
  line[end - source->text - 2] = '\0';
  int n = 0;
  for (char *word = strtok(line, " "); word; word = strtok(NULL, " ")) {
    char *equals = strchr(word, '=');
    *equals = '\0';
    out[n++] = (Override){word, equals + 1};
  }
  return n;
}

/* A tenth of the limits, so that a program without end meets them soon. */
static const FrontendOptions a_tenth = {
    .budget = {.nodes = 1000000, .list_elements = 1000000, .steps = 5000000}};

static Model *load_model(World *w, const char *path, const Override *overrides,
                         int n, FrontendOptions options) {
  options.load = load;
  options.user = w;
  options.path = path;
  options.overrides = overrides;
  options.n_overrides = n;
  return frontend_load(&w->module, &options).model;
}

/* ---- goldens ---- */

static void add_graph(Text *out, const Graph *graph) {
  Text errors = {.arena = out->arena};
  if (!graph) return;
  cr_expect(graph_verify(graph, &errors), "%s", text_string(&errors));
  graph_print(out, graph);
  text_add(out, "\n");
}

static void check_golden(const char *folder, const char *name) {
  World w = world_create(folder);
  Override overrides[16];
  int n = first_line_overrides(&w, name, overrides);
  Model *model = load_model(&w, name, overrides, n, a_tenth);
  Text out = text_create(w.module.arena);
  diags_print(w.module.diags, &out);
  if (model && strstr(folder, "elaborate")) {
    add_graph(&out, model->train);
    add_graph(&out, model->eval);
    add_graph(&out, model->prefill);
    add_graph(&out, model->forward);
  }
  char *path =
      arena_printf(w.module.arena, "%s/%s/%s", TEST_ROOT, folder, name);
  strcpy(strrchr(path, '.'), ".txt");
  const char *want = "";
  size_t size;
  if (getenv("DNNC_BLESS"))
    file_replace(path, text_string(&out), strlen(text_string(&out)));
  else
    file_read(w.module.arena, path, 1 << 24, &want, &size);
  if (!getenv("DNNC_BLESS"))
    cr_expect_str_eq(text_string(&out), want, "%s: got\n%s", name,
                     text_string(&out));
  memory_destroy(w.memory);
}

static int each_model(const char *folder) {
  char path[4096];
  snprintf(path, sizeof(path), "%s/%s", TEST_ROOT, folder);
  DIR *dir = opendir(path);
  cr_assert(dir, "no folder %s", path);
  int n = 0;
  for (struct dirent *entry; (entry = readdir(dir));) {
    const char *dot = strrchr(entry->d_name, '.');
    if (!dot || strcmp(dot, ".dnn") != 0) continue;
    World w = world_create(folder);
    const Source *source = load(&w, entry->d_name);
    bool skips = strncmp(source->text, "# skip", 6) == 0;
    memory_destroy(w.memory);
    if (skips) continue;
    check_golden(folder, entry->d_name);
    n++;
  }
  closedir(dir);
  return n;
}

Test(elaborate, wrong_models) {
  cr_expect(each_model("tests/golden/errors") >= 30);
}

Test(elaborate, graphs) {
  cr_expect(each_model("tests/golden/elaborate") > 0);
}

/* ---- models ---- */

static int64_t count(const Graph *graph) {
  int64_t n = 0;
  for (int i = 0; i < graph->inputs.n; i++)
    if (graph->inputs.data[i].role == ROLE_param)
      n += type_elements(graph_type(graph, graph->inputs.data[i].value));
  return n;
}

/* The processor time of this process: other work does not count. */
static double now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

Test(elaborate, parameters_of_models) {
  static const struct {
    const char *file;
    int64_t parameters;
    int64_t only_trained; /* heads that evaluation does not run */
  } models[] = {{"mlp.dnn", 535818, 0},
                {"lenet.dnn", 431080, 0},
                {"chargpt.dnn", 828544, 0},
                {"gpt2.dnn", 124439808, 0},
                {"vgg16.dnn", 138357544, 0},
                {"alexnet.dnn", 61100840, 0},
                {"resnet50.dnn", 25557032, 0},
                {"resnet_cifar.dnn", 269722, 0},
                {"googlenet.dnn", 13004888, 13004888 - 6624904},
                {"inception_v3.dnn", 27161264, 27161264 - 23834568},
                {"squeezenet.dnn", 1248424, 0},
                {"mobilenet_v2.dnn", 3504872, 0},
                {"densenet121.dnn", 7978856, 0},
                {"unet.dnn", 31030658, 0},
                {"amoebanet.dnn", 81505540, 0},
                {"vit.dnn", 86567656, 0}};
  for (int i = 0; i < ARRAY_LENGTH(models); i++) {
    World w = world_create("models");
    double start = now_ms();
    Model *model = load_model(&w, models[i].file, NULL, 0,
                              (FrontendOptions){.check_only = true});
    double ms = now_ms() - start;
    Text out = text_create(w.module.arena);
    diags_print(w.module.diags, &out);
    cr_assert(model, "%s", text_string(&out));
    cr_expect_str_eq(text_string(&out), "");
    cr_expect_eq(count(model->train), models[i].parameters, "%s: %lld",
                 models[i].file, (long long)count(model->train));
    cr_expect_eq(count(model->eval),
                 models[i].parameters - models[i].only_trained);
    cr_expect(ms < 300, "%s took %.1f ms", models[i].file, ms);
    memory_destroy(w.memory);
  }
}

static bool count_seventeen(void *user, const Model *model, int64_t *out) {
  (void)user;
  *out = 17;
  return model->train && model->eval && model->n_data > 0;
}

Test(elaborate, the_three_programs_differ_in_the_batch) {
  World w = world_create("models");
  const Override overrides[] = {
      {"batch", "6"}, {"L", "1"}, {"steps", "3"}, {"eval_batches", "0"}};
  Model *model =
      load_model(&w, "chargpt.dnn", overrides, ARRAY_LENGTH(overrides),
                 (FrontendOptions){.count_eval_samples = count_seventeen});
  cr_assert(model);
  const Graph *graphs[] = {model->train, model->eval_remainder, model->prefill};
  const char *paths[] = {"text.x", "text.x", "tok"};
  const int64_t batches[] = {6, 5, 1};
  for (int i = 0; i < 3; i++) {
    const GraphInput *input = graph_find_input(
        graphs[i], ROLE_data, name_intern(w.module.names, paths[i]));
    cr_assert(input);
    cr_expect_eq(graph_type(graphs[i], input->value)->dims[0].size, batches[i]);
  }
  cr_expect_eq(model->settings.batch, 6);
  cr_expect_str_eq(model->settings.batch_dim, "B");
  cr_expect_eq(model->settings.steps, 3);
  cr_expect_eq(model->items_per_sample, 64);
  cr_expect(model->items_are_tokens && model->has_sample);
  cr_expect_str_eq(model->settings.save, "chargpt.ckpt");
  memory_destroy(w.memory);
}

Test(elaborate, settings_and_data) {
  World w = world_create("models");
  const Override overrides[] = {{"epochs", "2"},
                                {"mnist.eval", "0.25"},
                                {"precision.compute", "f32"},
                                {"save", "elsewhere/x"}};
  Model *model = load_model(&w, "mlp.dnn", overrides, 4, (FrontendOptions){0});
  cr_assert(model);
  cr_expect_eq(model->settings.epochs, 2);
  cr_expect_eq(*optimizer_value(&model->settings.optimizer, "momentum"), 0.9);
  cr_expect_eq(model->settings.optimizer.lr.values[0], 0.1);
  cr_expect_str_eq(model->settings.save, "elsewhere/x");
  cr_assert_eq(model->n_data, 1);
  cr_expect_eq(model->data[0].eval, 0.25);
  cr_expect_float_eq(model->data[0].fields[0].scale, 1 / 255.0, 1e-15);
  cr_expect_eq(model->settings.n_metrics, 1);
  cr_expect_str_eq(model->settings.metrics[0].name, "accuracy");
  memory_destroy(w.memory);
}

/* Left operands nest, but only in the tree. */
Test(elaborate, a_sum_has_any_number_of_terms) {
  World w = world_create("models");
  Text sum = text_create(w.module.arena);
  text_add(&sum, "1");
  for (int i = 0; i < 20000; i++) text_add(&sum, i % 2 ? " - 1" : " + 1 * 2");
  const Override overrides[] = {{"B", text_string(&sum)}};
  Model *model = load_model(&w, "mlp.dnn", overrides, 1, (FrontendOptions){0});
  cr_assert(model);
  cr_expect_eq(model->settings.batch, 10001);
  memory_destroy(w.memory);
}

static const Source *load_text(void *user, const char *path) {
  Source *source = ARENA_NEW(((Text *)user)->arena, Source);
  *source = (Source){path, text_string(user), ((Text *)user)->n};
  return source;
}

/* So do brackets, and pins whose paths have too many of them say so. */
Test(elaborate, a_value_has_any_number_of_brackets) {
  World w = world_create("models");
  Text text = text_create(w.module.arena);
  text_add(&text, "dim B = 2, C = 4\nnet f(x: [B, C]) -> [B, C] {\n  return x");
  for (int i = 0; i < 20000; i++) text_add(&text, "[C -> D][D -> C]");
  text_add(&text, "\n}\n");
  FrontendOptions options = {.load = load_text, .user = &text, .path = "m.dnn"};
  Model *model = frontend_load(&w.module, &options).model;
  cr_assert(model);
  cr_expect_eq(model->forward->nodes.n, 40001);
  cr_expect_str_eq(model->forward->nodes.data[1]->path, "rename[0]");
  text_add(&text, "mesh { data = 2 }\nplan { shard x");
  for (int i = 0; i < 20000; i++) text_add(&text, "[0]");
  text_add(&text, ": B over data }\n");
  cr_expect(!frontend_load(&w.module, &options).model);
  memory_destroy(w.memory);
}

Test(elaborate, blocks_sum_to_the_whole) {
  World w = world_create("models");
  Model *model = load_model(&w, "chargpt.dnn", NULL, 0, (FrontendOptions){0});
  cr_assert(model);
  Block *blocks;
  int n = model_blocks(model->train, NULL, NULL, w.module.arena, &blocks);
  int64_t parameters = 0;
  double flops = 0, products = 0;
  for (int i = 0; i < n; i++) parameters += blocks[i].parameters;
  for (int i = 0; i < n; i++) flops += blocks[i].flops_forward;
  for (int i = 0; i < model->train->nodes.n; i++)
    products += node_contraction_flops(model->train, i);
  cr_expect_eq(parameters, 828544);
  cr_expect_eq(flops, products);
  cr_expect_str_eq(blocks[2].path, "block[0]");
  int folded = model_fold_blocks(w.module.names, blocks, n);
  cr_expect_eq(folded, n - 3);
  cr_expect_str_eq(blocks[2].path, "block[0..3]");
  cr_expect_eq(blocks[2].count, 4);
  memory_destroy(w.memory);
}

/* Milliseconds until the program in FILE meets the limits of OPTIONS. */
static double explosion_ms(const char *file, FrontendOptions options) {
  World w = world_create("tests/golden/errors");
  double start = now_ms();
  cr_expect(!load_model(&w, file, NULL, 0, options));
  double ms = now_ms() - start;
  memory_destroy(w.memory);
  return ms;
}

/* The ratio holds at any speed of the machine and under sanitizers, which take
   three times as long: time is linear in the limits. */
Test(elaborate, explosions_end_in_time) {
  static const FrontendOptions a_hundredth = {
      .budget = {.nodes = 100000, .list_elements = 100000, .steps = 500000}};
  const char *const files[] = {"exploding_repeat.dnn", "exploding_calls.dnn",
                               "exploding_list.dnn", "recursion.dnn"};
  for (int i = 0; i < ARRAY_LENGTH(files); i++) {
    double part = explosion_ms(files[i], a_hundredth);
    double whole = explosion_ms(files[i], a_tenth);
    cr_expect(whole < 20 * part + 100,
              "%s took %.0f ms, %.0f for a tenth of it", files[i], whole, part);
#ifndef __SANITIZE_ADDRESS__
    cr_expect(whole < 2500, "%s took %.0f ms", files[i], whole);
#endif
  }
}
