/*
 * exact.c -- helps exact.sh and levels.sh: it makes random small models
 * (tests/unit/exact_make.h) with random plans (tests/random/plans.h) and
 * compares the results of their programs with the interpreter.
 *
 *     exact make SEED DIR [NUMBERS]     model.dnn, data.csv, first.ckpt; the
 *                                       model computes without rounding; prints
 *                                       facts of it
 *     exact plan SEED N FILE            the Nth random plan for the model
 *     exact compare SEED CKPT LOSS [NUMBERS]  equal bits
 *     exact make-real SEED DIR          reals, and functions that round
 *     exact compare-real SEED CKPT LOSS within rounding
 *
 * `make` takes the first seed from SEED * 1000 on that can be proved exact.
 * NUMBERS is the seed of other data and parameters for the same model.
 */
#include "tests/e2e/checkpoints.h"
#include "tests/random/plans.h"
#include "tests/unit/exact_model.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct Made {
  Module *module;
  ExactModel text;
  Model *model;
  Graph *graph; /* with its update, before all other passes */
} Made;

static void exhausted(void *user) {
  (void)user;
  exit(3);
}

static Status load(Memory *memory, uint64_t seed, bool is_real, Made *out) {
  Arena *arena = arena_create(memory);
  Module *module = ARENA_NEW(arena, Module);
  *module = (Module){memory, arena, names_create(arena), diags_create(arena)};
  *out = (Made){.module = module, .text = exact_make(arena, seed, is_real)};
  out->model = exact_load(module, &out->text);
  if (!out->model) {
    Text messages = text_create(arena);
    diags_print(module->diags, &messages);
    return status_make(STATUS_invalid, "%s%s", out->text.text,
                       text_string(&messages));
  }
  out->graph = exact_graph(module, out->model, 0, "optimizer", NULL);
  return STATUS_OK;
}

static Status find(Memory *memory, uint64_t seed, bool is_real, Made *out) {
  if (is_real) return load(memory, seed, true, out);
  for (int i = 0; i < 1000; i++) {
    TRY(load(memory, seed * 1000 + (uint64_t)i, false, out));
    if (exact_is_proved(out->module->arena, out->graph)) return STATUS_OK;
    arena_destroy(out->module->arena);
  }
  return status_make(STATUS_invalid, "no model could be proved exact");
}

/* ---- making ---- */

static Status write_parameters(const Made *made, const char *folder) {
  Arena *arena = made->module->arena;
  const Graph *graph = made->graph;
  const Tensor *inputs = exact_inputs(arena, &made->text, graph);
  Given *given = ARENA_ARRAY(arena, Given, graph->inputs.n);
  int n = 0;
  for (int i = 0; i < graph->inputs.n; i++) {
    const GraphInput *input = &graph->inputs.data[i];
    const Type *type = graph_type(graph, input->value);
    if (input->role != ROLE_param) continue;
    given[n] = (Given){
        .path = input->path, .rank = type->rank, .values = inputs[i].data};
    for (int d = 0; d < type->rank; d++) given[n].size[d] = type->dims[d].size;
    n++;
  }
  return given_write(arena, folder, given, n);
}

static Status make(const Made *made, const char *folder) {
  Arena *arena = made->module->arena;
  const char *text = made->text.text, *csv = made->text.csv;
  TRY(file_make_dirs(folder));
  TRY(file_replace(arena_printf(arena, "%s/model.dnn", folder), text,
                   strlen(text)));
  TRY(file_replace(arena_printf(arena, "%s/data.csv", folder), csv,
                   strlen(csv)));
  TRY(write_parameters(made, arena_printf(arena, "%s/first.ckpt", folder)));
  printf("seed=%llu nodes=%d reduces_batch=%d\n",
         (unsigned long long)made->text.seed, made->graph->nodes.n,
         made->text.reduces_batch);
  return STATUS_OK;
}

/* At most six ranks, for machines of two cores. */
static Status make_plan(const Made *made, uint64_t n, const char *path) {
  enum { PLANS_OF_SEED = 1000 };
  Arena *arena = made->module->arena;
  PlanSubject subject = {.graph = made->model->train,
                         .optimizer = &made->model->settings.optimizer,
                         .batch = "N",
                         .samples = made->text.batch,
                         .most_ranks = 6};
  Choices *choices = choices_random(arena, made->text.seed * PLANS_OF_SEED + n);
  int64_t samples;
  const char *text = plan_draw(choices, &subject, NULL, &samples);
  return file_replace(path, text, strlen(text));
}

/* ---- comparing ---- */

static Status compare_bits(const char *path, const double *got, Tensor wanted,
                           bool keeps_zero_sign) {
  int64_t n = type_elements(wanted.type);
  for (int64_t k = 0; k < n; k++) {
    float a = (float)got[k], b = (float)wanted.data[k];
    bool is_equal = keeps_zero_sign ? memcmp(&a, &b, sizeof a) == 0 : a == b;
    if (!is_equal)
      return status_make(STATUS_invalid, "%s[%lld] is %.9g, not %.9g", path,
                         (long long)k, a, b);
  }
  return STATUS_OK;
}

/* The interpreter in f32 shows how much rounding there is to expect; where it
 * is lucky, 1e-5 of the tensor and an absolute 1e-6 are allowed too. */
static Status compare_near(const char *path, const double *got, Tensor wanted,
                           Tensor narrow) {
  double off = 0, expected = 0, norm = 0;
  int64_t n = type_elements(wanted.type);
  for (int64_t k = 0; k < n; k++) {
    off += pow(got[k] - wanted.data[k], 2);
    expected += pow(narrow.data[k] - wanted.data[k], 2);
    norm += pow(wanted.data[k], 2);
  }
  double limit =
      30 * sqrt(expected) + 1e-5 * sqrt(norm) + 1e-6 * sqrt((double)n);
  if (sqrt(off) <= limit) return STATUS_OK;
  return status_make(STATUS_invalid, "%s is off by %.3g (L2), allowed %.3g",
                     path, sqrt(off), limit);
}

static Status compare(const Made *made, const char *folder, double loss) {
  Arena *arena = made->module->arena;
  const Graph *graph = made->graph;
  Tensor *wanted = exact_step(arena, &made->text, graph, INTERP_f64, NULL);
  Tensor *narrow = exact_step(arena, &made->text, graph, INTERP_f32, NULL);
  Checkpoint checkpoint;
  TRY(checkpoint_open(arena, folder, &checkpoint));
  Status status = STATUS_OK;
  for (int i = 0; i < graph->outputs.n && status.code == STATUS_ok; i++) {
    const GraphOutput *output = &graph->outputs.data[i];
    if (!exact_is_checked(output)) continue;
    double *got = &loss;
    if (output->role != ROLE_loss)
      status = stored_read(arena, &checkpoint, output->path,
                           type_elements(wanted[i].type), &got);
    if (status.code != STATUS_ok) break;
    status = made->text.is_real
                 ? compare_near(output->path, got, wanted[i], narrow[i])
                 : compare_bits(output->path, got, wanted[i],
                                output->role == ROLE_param);
  }
  checkpoint_close(&checkpoint);
  return status;
}

static Status run_command(Memory *memory, int argc, char **argv) {
  Made made;
  uint64_t seed = strtoull(argv[2], NULL, 10);
  bool is_make = !strncmp(argv[1], "make", 4);
  int at = is_make ? 4 : 5; /* of NUMBERS */
  TRY(find(memory, seed, strstr(argv[1], "-real") != NULL, &made));
  if (argc > at)
    exact_use_numbers(&made.text, strtoull(argv[at], NULL, 10),
                      made.module->arena);
  if (!strcmp(argv[1], "plan"))
    return make_plan(&made, strtoull(argv[3], NULL, 10), argv[4]);
  return is_make ? make(&made, argv[3])
                 : compare(&made, argv[3], strtod(argv[4], NULL));
}

int main(int argc, char **argv) {
  int least = argc > 1 && !strncmp(argv[1], "make", 4) ? 4 : 5;
  if (argc < least || argc > least + 1) return 2;
  Memory *memory = memory_create(exhausted, NULL);
  Status status = run_command(memory, argc, argv);
  if (status.code != STATUS_ok) printf("exact: %s\n", status.message);
  memory_destroy(memory);
  return status.code == STATUS_ok ? 0 : 1;
}
