// links: frontend passes runtime ir support
/*
 * reference.c -- compares the models of tests/reference/records.def on the
 * interpreter in f64 with results of PyTorch in f64: loss, gradients, states
 * after the first step, some values on the way, and parameters and states after
 * ten steps.
 *
 * The emitted programs are compared with the same records by
 * tests/e2e/reference.sh.
 */
#include "tests/unit/recorded_case.h"

#include <dirent.h>

TestSuite(reference, .fini = modules_destroy);

static const double *start(const Case *c, const GraphInput *input, int64_t n) {
  int64_t made;
  double *values =
      recorded_made(c->module->arena, &c->recorded, input->path, &made);
  cr_assert(values && made == n, "%s has no made/%s", c->name, input->path);
  return values;
}

static void compare(const Case *c, const char *how, const char *prefix,
                    const char *path, Tensor got) {
  Arena *arena = c->module->arena;
  double floor =
      strcmp(prefix, "grad/") ? 0 : recorded_floor(arena, &c->recorded);
  const StoredTensor *record = recorded_find(&c->recorded, prefix, path);
  cr_assert(record, "%s has no %s%s", c->name, prefix, path);
  double error = recorded_distance(arena, &c->recorded, record, path, floor,
                                   got.data, type_elements(got.type));
  cr_expect(error >= 0 && error <= tolerance_model(DT_f64),
            "%s (%s): %s%s is off by %.3g", c->name, how, prefix, path, error);
}

static void compare_loss(const Case *c, const char *how, double got) {
  const StoredTensor *record = recorded_find(&c->recorded, "loss", "");
  double wanted = recorded_values(c->module->arena, &c->recorded, record)[0];
  cr_expect(fabs(got - wanted) <= tolerance_model(DT_f64) * fabs(wanted),
            "%s (%s): the loss is %.17g, not %.17g", c->name, how, got, wanted);
}

/* With `through` NULL all passes run, and the first step's moment of sgd with
 * momentum is the gradient. */
static void check(const Case *c, const char *how, int level,
                  const char *through, const char *disabled) {
  const Graph *graph =
      case_graph(c, &(PassOptions){.level = level,
                                   .end = pass_end(through),
                                   .disabled = &disabled,
                                   .n_disabled = disabled != NULL,
                                   .verify = true});
  Tensor *outputs = run(graph, INTERP_f64, case_inputs(c, graph, start));
  int n_gradients = 0;
  for (int i = 0; i < graph->outputs.n; i++) {
    const GraphOutput *output = &graph->outputs.data[i];
    if (output->role == ROLE_loss) compare_loss(c, how, outputs[i].data[0]);
    if (output->role == ROLE_state)
      compare(c, how, "step/", output->path, outputs[i]);
    if (output->role != (through ? ROLE_grad : ROLE_optimizer_state)) continue;
    const char *path = through ? output->path : output->path + strlen("sgd.m/");
    compare(c, how, "grad/", path, outputs[i]);
    n_gradients++;
  }
  cr_expect_eq(n_gradients, case_count(c, "grad/"), "%s (%s)", c->name, how);
}

/* Some values on the way, as written: records value/PATH. */
static void check_values(const Case *c) {
  const Graph *graph = c->model->train;
  Arena *arena = c->module->arena;
  Tensor *inputs = case_inputs(c, graph, start);
  Tensor *outputs = ARENA_ARRAY(arena, Tensor, graph->outputs.n);
  Tensor *values = ARENA_ARRAY(arena, Tensor, graph->nodes.n);
  interp_run(graph, INTERP_f64, arena, inputs, outputs, values);
  for (int i = 0; i < c->recorded.header.n_tensors; i++) {
    const char *name = c->recorded.header.tensors[i].name;
    if (strncmp(name, "value/", 6) != 0) continue;
    int found = -1;
    for (int id = 0; id < graph->nodes.n; id++)
      if (!strcmp(graph->nodes.data[id]->path, name + 6)) found = id;
    cr_assert_geq(found, 0, "no value has the path %s", name + 6);
    compare(c, "as written", "value/", name + 6, values[found]);
  }
}

static void check_ten_steps(const Case *c) {
  const char *disabled = "fold";
  const Graph *graph = case_graph(
      c, &(PassOptions){.level = 2, .disabled = &disabled, .n_disabled = 1});
  Tensor *inputs = case_inputs(c, graph, start);
  for (int t = 1; t <= 10; t++) case_step(c, graph, inputs, t);
  int n_compared = 0;
  for (int i = 0; i < graph->inputs.n; i++) {
    const GraphInput *input = &graph->inputs.data[i];
    if (input->role != ROLE_param && input->role != ROLE_state) continue;
    compare(c, "ten steps", "ten/", input->path, inputs[i]);
    n_compared++;
  }
  cr_expect_eq(n_compared, case_count(c, "ten/"), "%s", c->name);
}

static bool has_attention(const Case *c) {
  const Graph *graph =
      case_graph(c, &(PassOptions){.level = 2, .end = pass_end("attention")});
  for (int i = 0; i < graph->nodes.n; i++)
    if (graph->nodes.data[i]->op == OP_attention) return true;
  return false;
}

/* Fold rounds constants as f32 does. */
static void check_few(const Case *c) {
  check(c, "all passes of -O2 but fold", 2, NULL, "fold");
}

static void check_all(const Case *c) {
  check(c, "-O2", 2, "autodiff", NULL);
  check(c, "-O2 without attention", 2, "autodiff", "attention");
  check(c, "all passes of -O0", 0, NULL, NULL);
  check_few(c);
}

enum { no, yes };

static void check_record(const char *name, const char *base,
                         void (*check_ways)(const Case *), bool attends) {
  Case c = case_open(module_create(), name, base, NULL, 0);
  check(&c, "as written", 0, "autodiff", NULL);
  check_ways(&c);
  check_values(&c);
  check_ten_steps(&c);
  cr_expect_eq(has_attention(&c), attends, "%s", name);
}

#define RECORD(name, file, ways, attention)                                    \
  Test(reference, name) {                                                      \
    check_record(#name, #name "_small", check_##ways, attention);              \
  }
#include "tests/reference/records.def"

/* ---- a sketch tells how far a tensor is ---- */

/* Against zeros: what differs is what is given. */
static double distance_of(Arena *arena, const double *values, int64_t n) {
  double zeros[RECORDED_SUMS + 1] = {1}; /* a norm of one */
  Recorded recorded = {.data = (const char *)zeros};
  StoredTensor record = {
      .dtype = DNN_f64,
      .rank = 1,
      .size = {n < RECORDED_SUMS ? n + 1 : RECORDED_SUMS + 1},
      .end = sizeof zeros};
  return recorded_distance(arena, &recorded, &record, "w", 0, values, n);
}

Test(reference, a_sketch_sees_one_element_and_many) {
  Arena *arena = module_create()->arena;
  double values[1000] = {0}, norm = 0;
  for (int i = 0; i < 1000; i += 37) {
    values[i] = 1e-6;
    cr_expect_float_eq(distance_of(arena, values, 1000), 1e-6, 1e-12);
    values[i] = 0;
  }
  for (int i = 0; i < 1000; i++) {
    values[i] = random_uniform(5, (uint64_t)i) - 0.5;
    norm += values[i] * values[i];
  }
  double far = distance_of(arena, values, 1000) / sqrt(norm);
  cr_expect(far > 0.6 && far < 1.6, "%g", far);
  values[0] = 3, values[1] = 4;
  cr_expect_float_eq(distance_of(arena, values, 2), 5, 1e-12);
}

/* ---- every model has a record ---- */

static const struct Row {
  const char *record, *file, *other;
} rows[] = {
#define RECORD(name, file, ways, attention) {#name, #file, NULL},
#define SHARES(file, other, why)            {NULL, #file, #other},
#define DRAWS(file)                         {NULL, #file, NULL},
#include "tests/reference/records.def"
};

static const char *text_of(Module *module, const char *path) {
  const char *text;
  size_t n;
  Status status = file_read(module->arena, path, 1 << 20, &text, &n);
  cr_assert(status.code == STATUS_ok, "%s", status.message);
  return text;
}

/* A net that draws random numbers has a list of losses, which a test reads. */
static void check_draws(Module *module, const char *file) {
  const char *record =
      arena_printf(module->arena, TEST_ROOT "/tests/reference/%s.txt", file);
  const char *script = TEST_ROOT "/tests/e2e/generative.sh";
  cr_expect(strstr(text_of(module, record), "\n5 "), "%s", record);
  cr_expect(strstr(text_of(module, script), file), "%s has no %s", script,
            file);
}

static void check_row(Module *module, const struct Row *row,
                      const char *model) {
  if (!row->record && !row->other) {
    check_draws(module, row->file);
    return;
  }
  const char *path = arena_printf(
      module->arena, TEST_ROOT "/tests/reference/%s_small.dnn", row->record);
  const char *import =
      arena_printf(module->arena, "import \"models/%s.dnn\"", row->file);
  if (row->other) {
    import = arena_printf(module->arena, "import \"%s.dnn\"", row->other);
    path = model;
    cr_expect_null(strstr(text_of(module, path), "\nnet "),
                   "%s has a net of its own", path);
  }
  cr_expect(strstr(text_of(module, path), import), "%s has no %s", path,
            import);
}

Test(reference, every_model_has_a_record) {
  Module *module = module_create();
  DIR *folder = opendir(TEST_ROOT "/models");
  cr_assert(folder);
  int n_models = 0;
  for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
    char *name = arena_strdup(module->arena, entry->d_name);
    char *dot = strrchr(name, '.');
    if (!dot || strcmp(dot, ".dnn") != 0) continue;
    const char *path =
        arena_printf(module->arena, TEST_ROOT "/models/%s", name);
    *dot = '\0';
    if (!strstr(text_of(module, path), "\ntrain {")) continue; /* layers only */
    int found = -1;
    for (int i = 0; i < ARRAY_LENGTH(rows); i++)
      if (!strcmp(rows[i].file, name)) found = i;
    cr_expect_geq(found, 0, "models/%s.dnn has no row in records.def", name);
    if (found >= 0) check_row(module, &rows[found], path);
    n_models++;
  }
  closedir(folder);
  cr_expect_gt(n_models, 20);
}
