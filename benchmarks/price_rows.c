/*
 * price_rows.c -- prices training steps again and again with other rates:
 * compiles each line of a file
 *
 *     MODEL PLAN CLUSTER PASS [NAME=VALUE ...]
 *
 * once (PASS is left out, - leaves out none), then answers each line of
 * standard input, the number of a step and shares of rates.def in thousandths,
 *
 *     3 sustained=700 attention=500
 *
 * with its time in seconds.  benchmarks/one_mesh.py fits rates.def with it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver/driver.h"
#include "price/price_list.h"

enum { MOST_STEPS = 64, MOST_WORDS = 40 };

typedef struct Step {
  Module *module;
  Compilation c;
  CostModel model;
  const char *disabled[1];
} Step;

static _Noreturn void no_memory(void *user) {
  (void)user;
  abort();
}

static _Noreturn void fail(const char *why, const char *what) {
  fprintf(stderr, "price_rows: %s '%s'\n", why, what);
  exit(1);
}

static int split(char *line, char **words) {
  int n = 0;
  char *rest;
  for (char *word = strtok_r(line, " \n", &rest); word && n < MOST_WORDS;
       word = strtok_r(NULL, " \n", &rest))
    words[n++] = word;
  return n;
}

/* ---- compiling ---- */

static Module *module_of(Memory *memory) {
  Arena *arena = arena_create(memory);
  Module *module = ARENA_NEW(arena, Module);
  module->memory = memory;
  module->arena = arena;
  module->names = names_create(arena);
  module->diags = diags_create(arena);
  return module;
}

static void compile(Memory *memory, const char *text, Step *step) {
  step->module = module_of(memory);
  Arena *arena = step->module->arena;
  char *words[MOST_WORDS];
  int n = split(arena_printf(arena, "%s", text), words);
  if (n < 4) fail("too few words in", text);
  CompileOptions *options = ARENA_NEW(arena, CompileOptions);
  Override *overrides = ARENA_ARRAY(arena, Override, n);
  *options = (CompileOptions){.path = words[0],
                              .plan = words[1],
                              .cluster = words[2],
                              .overrides = overrides,
                              .n_overrides = n - 4,
                              .level = 2};
  step->disabled[0] = words[3];
  options->disabled = step->disabled;
  options->n_disabled = strcmp(words[3], "-") != 0;
  for (int i = 4; i < n; i++) {
    char *value = strchr(words[i], '=');
    if (!value) fail("no value in", words[i]);
    *value = '\0';
    overrides[i - 4] = (Override){words[i], value + 1};
  }
  if (driver_load(step->module, options, &step->c) != COMPILE_done ||
      driver_compile(&step->c, STATION_ordered) != COMPILE_done)
    fail("cannot compile", text);
  cost_model_of(step->c.cluster->groups[0].device, &step->model);
}

/* ---- prices ---- */

static void set_share(DeviceRates *rates, const char *name, double value) {
  const struct {
    const char *name;
    double *share;
  } shares[] = {{"sustained", &rates->sustained},
                {"bandwidth", &rates->memory_share},
                {"attention", &rates->attention},
                {"attention_grad", &rates->attention_grad}};
  for (int i = 0; i < ARRAY_LENGTH(shares); i++) {
    if (strcmp(shares[i].name, name) != 0) continue;
    *shares[i].share = value / 1000;
    return;
  }
  fail("no share", name);
}

static const EntryPoint *entry_of(const Step *step) {
  const EntryPoint *entry = driver_training_step(&step->c);
  if (!entry) fail("no training in", step->c.options->path);
  return entry;
}

static void print_price(const Step *step, char **words, int n) {
  CostModel model = step->model;
  for (int i = 0; i < n; i++) {
    char *value = strchr(words[i], '=');
    if (!value) fail("no value in", words[i]);
    *value = '\0';
    set_share(&model.rates, words[i], atof(value + 1));
  }
  Arena *scratch = arena_beside(step->module->arena);
  ClusterSlice slice =
      cluster_slice(scratch, step->c.cluster, 0, step->c.ranks);
  Price price =
      price_program(scratch, entry_of(step), &model, &slice, NULL, NULL);
  arena_destroy(scratch);
  printf("%.9f\n", (double)price.step * 1e-12);
}

int main(int argc, char **argv) {
  static Step steps[MOST_STEPS];
  static char line[4096];
  FILE *file = argc == 2 ? fopen(argv[1], "r") : NULL;
  if (!file) fail("cannot read", argc > 1 ? argv[1] : "");
  Memory *memory = memory_create(no_memory, NULL);
  int n_steps = 0;
  while (n_steps < MOST_STEPS && fgets(line, sizeof line, file))
    compile(memory, line, &steps[n_steps++]);
  fclose(file);
  while (fgets(line, sizeof line, stdin)) {
    char *words[MOST_WORDS];
    int n = split(line, words);
    int number = n > 0 ? atoi(words[0]) : -1;
    if (number < 0 || number >= n_steps) fail("no step", line);
    print_price(&steps[number], words + 1, n - 1);
    fflush(stdout);
  }
  memory_destroy(memory);
  return 0;
}
