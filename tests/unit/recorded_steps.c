// links: frontend passes runtime ir support
/*
 * recorded_steps.c -- compares fifty steps of every optimizer and schedule on
 * the interpreter in f64 with the records of tests/reference that
 * record_optimizers.py made with torch.optim and the papers' formulas; so are
 * groups of parameters.
 *
 * The cases are the lines of a text file beside each model.  A row of
 * optimizers.def that no parameter of any case uses fails, and so does one of
 * schedules.def.  The emitted programs are compared with the same records by
 * tests/e2e/optimizers.sh.
 */
#include "tests/unit/recorded_case.h"

enum { STEPS = 50, MOST_OVERRIDES = 8 };

TestSuite(recorded, .fini = modules_destroy);

/* A line "NAME SETTING=VALUE ..." of the text file of a model. */
static Case open_line(Module *module, const char *model, char *line) {
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
  return case_open(module, name, model, overrides, n);
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

static bool is_formula_used[64], is_rate_used[N_RATES];

static void note_rows(const Case *c) {
  const Graph *graph = c->model->train;
  const OptimizerCall *of_all = &c->model->settings.optimizer;
  int n;
  const OptimizerFormula *formulas = optimizer_formulas(&n);
  cr_assert_leq(n, ARRAY_LENGTH(is_formula_used));
  is_rate_used[of_all->lr.kind] = true;
  for (int i = 0; i < graph->inputs.n; i++) {
    const GraphInput *input = &graph->inputs.data[i];
    if (input->role != ROLE_param) continue;
    const OptimizerCall *call = optimizer_of(of_all, input);
    const OptimizerFormula *formula = optimizer_formula(
        call, input->contracts != 0, !input->has_decay && !call->decay_all);
    cr_assert(formula, "%s", c->name);
    is_formula_used[formula - formulas] = true;
  }
}

static void check_rows_used(void) {
  int n;
  const OptimizerFormula *formulas = optimizer_formulas(&n);
  for (int i = 0; i < n; i++)
    cr_expect(is_formula_used[i], "no case for the row '%s: %s'",
              formulas[i].name, formulas[i].update);
  for (int i = 0; i < N_RATES; i++)
    cr_expect(is_rate_used[i], "no case for the schedule '%s'",
              schedule_info((RateKind)i)->name);
}

static void compare_model(const char *model) {
  Module *module = module_create();
  const char *text;
  size_t n;
  Status status =
      file_read(module->arena,
                arena_printf(module->arena, "%s/tests/reference/%s.txt",
                             TEST_ROOT, model),
                1 << 16, &text, &n);
  cr_assert(status.code == STATUS_ok, "%s", status.message);
  char *copy = arena_strdup(module->arena, text), *rest = NULL;
  for (char *line = strtok_r(copy, "\n", &rest); line != NULL;
       line = strtok_r(NULL, "\n", &rest)) {
    Case c = open_line(module_create(), model, line);
    note_rows(&c);
    compare(&c, 0);
    compare(&c, 2);
  }
}

Test(recorded, fifty_steps_of_every_row) {
  compare_model("optimizers");
  check_rows_used();
}

Test(recorded, fifty_steps_of_groups) {
  compare_model("groups");
  compare_model("sgd_groups");
}
