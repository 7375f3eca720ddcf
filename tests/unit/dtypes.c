// links: interp ir
/*
 * dtypes.c -- interprets every operator in every dtype that its rule takes and
 * compares rounded with exact results, and tests which operators must take
 * which dtypes.
 */
#include "tests/ops/cases.h"

TestSuite(dtypes, .fini = modules_destroy, .timeout = 200);

static const char *const numbers[] = {"f64", "f32", "f16", "bf16", "i64",
                                      "i32", "i16", "i8",  "u8",   "bool"};

static bool was_seen[N_OPS][N_DTYPES];

/* The interpreter adds one term after the other; the table is for sums of a
 * thousand. */
static double allowed(const Graph *graph, const Type *type) {
  double terms = 1000, most = fmax(op_case_tolerance(graph, type->dtype),
                                   tolerance_decomposed(type->dtype));
  for (int i = 0; i < graph->inputs.n && most > 0; i++) {
    DType dtype = graph_type(graph, graph->inputs.data[i].value)->dtype;
    most = fmax(most, tolerance_decomposed(dtype));
    double n =
        (double)type_elements(graph_type(graph, graph->inputs.data[i].value));
    terms = fmax(terms, n / (double)type_elements(type));
  }
  return most * sqrt(terms / 1000);
}

static void check(Graph *graph, const char *number, const char *label) {
  const Node *node = graph_node(graph, graph->outputs.data[0].value);
  Tensor *inputs = op_case_inputs(graph, hash_bytes(label, strlen(label), 0));
  Tensor *exact = run(graph, INTERP_f64, inputs);
  Tensor *rounded = run(graph, INTERP_f32, inputs);
  DType dtype;
  cr_assert(dtype_find(number, &dtype));
  was_seen[node->op][dtype] = true;
  for (int i = 0; i < graph->outputs.n; i++) {
    const Type *type = exact[i].type;
    double most = allowed(graph, type);
    for (int64_t k = 0; k < type_elements(type); k++) {
      double want = dtype_round(type->dtype, exact[i].data[k]);
      double got = rounded[i].data[k];
      if (got == want || (isnan(got) && isnan(want))) continue;
      cr_expect(fabs(got - want) <= most * fmax(1, fabs(want)),
                "%s in %s: result %d, element %d is %.9g, not %.9g", label,
                number, i, (int)k, got, want);
      if (!(fabs(got - want) <= most * fmax(1, fabs(want)))) return;
    }
  }
}

/* Operands and results of fixed dtypes: one number stands for all. */
static bool has_number(const OpCase *item) {
  bool has = strstr(item->attrs, "TYPE") != NULL;
  for (int i = 0; i < 6 && item->inputs[i]; i++)
    has = has || strstr(item->inputs[i], "TYPE");
  return has;
}

static void check_all(const char *number) {
  for (int i = 0; i < ARRAY_LENGTH(op_cases); i++) {
    bool is_asked = has_number(&op_cases[i]) || !strcmp(number, "i64");
    const char *taken = has_number(&op_cases[i]) ? number : "f64";
    if (!is_asked || !op_case_takes(&op_cases[i], taken)) continue;
    Module *module = module_create();
    check(op_case_graph(module, &op_cases[i], taken), number, op_cases[i].op);
    modules_destroy();
  }
  for (int op = 0; op < N_OPS; op++)
    for (int shape = 0; shape < POINTWISE_SHAPES; shape++) {
      if (!op_info((Op)op)->is_pointwise) continue;
      Graph *graph =
          pointwise_case_graph(module_create(), (Op)op, number, shape);
      if (graph) check(graph, number, op_info((Op)op)->name);
      modules_destroy();
    }
}

/* In all reals or in none; what takes none must be seen in some integer. */
Test(dtypes, every_operator) {
  static const DType reals[] = {DT_f64, DT_f32, DT_f16, DT_bf16};
  for (int i = 0; i < ARRAY_LENGTH(numbers); i++) check_all(numbers[i]);
  for (int op = 0; op < N_OPS; op++) {
    bool in_some = false;
    int n_reals = 0;
    for (int d = 0; d < N_DTYPES; d++) in_some |= was_seen[op][d];
    for (int d = 0; d < ARRAY_LENGTH(reals); d++)
      n_reals += was_seen[op][reals[d]];
    cr_expect(in_some || op_case_exempt((Op)op), "no case of %s",
              op_info((Op)op)->name);
    cr_expect(n_reals == 0 || n_reals == ARRAY_LENGTH(reals),
              "%s is tried in %d of the reals", op_info((Op)op)->name, n_reals);
  }
}
