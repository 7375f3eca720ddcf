// links: frontend passes runtime ir support
/*
 * recorded_steps.c -- fifty steps of every optimizer and schedule on the
 * interpreter in f64 against tests/reference/optimizers.safetensors, which
 * record_optimizers.py made with torch.optim and the papers' formulas.
 *
 * The cases are the lines of optimizers.txt.  A row of optimizers.def that no
 * parameter of any case uses fails.  The emitted programs are compared with
 * the same records by tests/e2e/optimizers.sh.
 */
#include "tests/unit/recorded_case.h"

enum { STEPS = 50, MOST_OVERRIDES = 8 };

TestSuite(recorded, .fini = modules_destroy);

/* A line "NAME SETTING=VALUE ..." of optimizers.txt. */
static Case open_line(Module *module, char *line) {
  Override overrides[MOST_OVERRIDES];
  int n = 0;
  char *rest = NULL;
  const char *name = strtok_r(line, " ", &rest);
  for (char *word; (word = strtok_r(NULL, " ", &rest)) != NULL; n++) {
    char *value = strchr(word, '=');
    *value++ = '\0';
    cr_assert_lt(n, MOST_OVERRIDES);
    overrides[n] = (Override){word, value};
  }
  return case_open(module, name, "optimizers", overrides, n);
}

static const double *recorded(const Case *c, const char *prefix,
                              const char *path, int64_t n) {
  const StoredTensor *tensor = recorded_find(&c->recorded, prefix, path);
  cr_assert(tensor, "no record %s%s; run record_optimizers.py", prefix, path);
  cr_assert_eq(recorded_elements(tensor), n, "%s", path);
  return recorded_values(c->module->arena, &c->recorded, tensor);
}

/* An average begins as its parameter, whose path follows "ema/". */
static const double *start(const Case *c, const GraphInput *input, int64_t n) {
  return recorded(c, "start/", input->path + (input->role == ROLE_ema ? 4 : 0),
                  n);
}

static void compare(const Case *c, int level) {
  const Graph *graph =
      case_graph(c, &(PassOptions){.level = level, .verify = true});
  Tensor *inputs = case_inputs(c, graph, start);
  for (int t = 1; t <= STEPS; t++) case_step(c, graph, inputs, t);
  const char *prefix = arena_printf(c->module->arena, "%s/", c->name);
  int n_compared = 0;
  for (int i = 0; i < graph->inputs.n; i++) {
    const GraphInput *input = &graph->inputs.data[i];
    if (input->role != ROLE_param && input->role != ROLE_ema) continue;
    int64_t n = type_elements(inputs[i].type);
    double error =
        relative_error(inputs[i].data, recorded(c, prefix, input->path, n), n);
    cr_expect(error <= tolerance_model(DT_f64), "%s (-O%d): %s is off by %.3g",
              c->name, level, input->path, error);
    n_compared++;
  }
  cr_expect_eq(n_compared, case_count(c, prefix), "%s", c->name);
}

/* ---- the rows that the cases use ---- */

typedef struct UsedRow {
  const char *text;
  bool is_used;
} UsedRow;

static UsedRow optimizer_rows[] = {
#define OPTIMIZER(name, moments, decay, scalars, update) {#name ": " update, 0},
#define VARIANT(name, condition, moments, decay, scalars, update)              \
  {#name ": " update, 0},
#include "ir/optimizers.def"
};

static UsedRow rate_rows[] = {
#define RATE(name, text) {#name, 0},
#include "ir/optimizers.def"
};

/* As pass_optimizer chooses: the last row whose condition holds. */
static int row_of(const OptimizerCall *call, bool matrix, bool excluded) {
  int row = -1, at = 0;
#define OPTIMIZER(name_, ...)                                                  \
  if (strcmp(call->name, #name_) == 0) row = at;                               \
  at++;
#define VARIANT(name_, condition, ...)                                         \
  if (strcmp(call->name, #name_) == 0 && (condition)) row = at;                \
  at++;
#include "ir/optimizers.def"
  (void)matrix, (void)excluded;
  return row;
}

static void note_rows(const Case *c) {
  const Graph *graph = c->model->train;
  const OptimizerCall *call = &c->model->settings.optimizer;
  rate_rows[call->lr.kind].is_used = true;
  for (int i = 0; i < graph->inputs.n; i++) {
    const GraphInput *input = &graph->inputs.data[i];
    if (input->role != ROLE_param) continue;
    int row = row_of(call, input->contracts != 0,
                     !input->has_decay && !call->decay_all);
    cr_assert_geq(row, 0, "%s", c->name);
    optimizer_rows[row].is_used = true;
  }
}

Test(recorded, fifty_steps_of_every_row) {
  Module *module = module_create();
  const char *text;
  size_t n;
  Status status =
      file_read(module->arena, TEST_ROOT "/tests/reference/optimizers.txt",
                1 << 16, &text, &n);
  cr_assert(status.code == STATUS_ok, "%s", status.message);
  char *copy = arena_strdup(module->arena, text), *rest = NULL;
  for (char *line = strtok_r(copy, "\n", &rest); line != NULL;
       line = strtok_r(NULL, "\n", &rest)) {
    Case c = open_line(module_create(), line);
    note_rows(&c);
    compare(&c, 0);
    compare(&c, 2);
  }
  for (int i = 0; i < ARRAY_LENGTH(optimizer_rows); i++)
    cr_expect(optimizer_rows[i].is_used, "no case for the row '%s'",
              optimizer_rows[i].text);
  for (int i = 0; i < ARRAY_LENGTH(rate_rows); i++)
    cr_expect(rate_rows[i].is_used, "no case for the rate '%s'",
              rate_rows[i].text);
}
