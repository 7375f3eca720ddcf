/*
 * price_plans.c -- makes random plans for small versions of 12 models.
 *
 * The generator is that of random plans (tests/random/plans.c).  A plan that
 * lacks what its number asks for is made again with another attempt.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/prices/prices.h"

const PricedModel priced_models[] = {
    {"mlp", "B", "P=24 H1=12 H2=8 K=4", NULL, NULL, NULL},
    {"lenet", "N", "F=12 K=4", NULL, NULL, NULL},
    {"chargpt", "B", "T=8 V=24 C=16 H=4 L=2", "T", "S", "H"},
    {"charmoe", "B", "T=8 V=24 C=16 H=4 L=2 E=4", "T", "S", "H"},
    {"charlstm", "B", "T=4 V=12 E=8 C=12", NULL, NULL, NULL},
    {"vit_digits", "B", "C=16 H=4 L=2 K=4", NULL, NULL, NULL},
    {"resnet_mnist", "N", "K=4 width=4", NULL, NULL, NULL},
    {"unet_shapes", "N", "width=4", NULL, NULL, NULL},
    {"reverse", "B", "S=4 C=8", NULL, NULL, NULL},
    {"bert", "B", "T=8 V=24 C=16 H=4 L=2", "T", "S", "H"},
    {"squeezenet", "N", "side=63 K=8 thin=4", NULL, NULL, NULL},
    {"llama", "B", "T=8 V=24 C=16 F=24 L=2 G=2 H=2 D=4", NULL, NULL, NULL},
};
const int n_priced_models = ARRAY_LENGTH(priced_models);

enum { MOST_RANKS = 8 };

PlanKind plan_kind(int64_t number) {
  return (PlanKind){.has_axes = number % 2 == 0,
                    .has_lines = number / 2 % 2 == 0,
                    .has_zero = number / 4 % 4 == 0};
}

static _Noreturn void prices_no_memory(void *user) {
  (void)user;
  abort();
}

/* The model without a plan, loaded once in a process. */
static const Model *load_priced(const PricedModel *priced) {
  static const Model *known[ARRAY_LENGTH(priced_models)];
  int at = (int)(priced - priced_models);
  if (known[at]) return known[at];
  Memory *memory = memory_create(prices_no_memory, NULL);
  Arena *arena = arena_create(memory);
  Module *module = ARENA_NEW(arena, Module);
  *module = (Module){.memory = memory,
                     .arena = arena,
                     .names = names_create(arena),
                     .diags = diags_create(arena)};
  CompileOptions *options = ARENA_NEW(arena, CompileOptions);
  priced_options(arena,
                 &(PricedPlan){.model = priced, .target = "cpu", .samples = 12},
                 options);
  Compilation c;
  if (driver_load(module, options, &c) != COMPILE_done || !c.model->train)
    abort();
  return known[at] = c.model;
}

void priced_options(Arena *arena, const PricedPlan *plan,
                    CompileOptions *options) {
  VEC(Override) overrides = {0};
  char *at = arena_printf(arena, "%s=%lld %s", plan->model->batch,
                          (long long)plan->samples, plan->model->sizes);
  for (char *word = strtok(at, " "); word; word = strtok(NULL, " ")) {
    char *value = strchr(word, '=');
    *value = 0;
    vec_push(arena, &overrides, ((Override){word, value + 1}));
  }
  *options = (CompileOptions){
      .path =
          arena_printf(arena, "%s/models/%s.dnn", TEST_ROOT, plan->model->file),
      .cluster = arena_printf(arena, "%s/models/a100x1024.cluster", TEST_ROOT),
      .target = plan->target,
      .overrides = overrides.data,
      .n_overrides = overrides.n,
      .level = 2};
}

static int count_axes(const char *plan) {
  int n = 1;
  for (const char *at = plan; *at && *at != '}'; at++) n += *at == ';';
  return n;
}

static bool has_kind(const PricedPlan *plan, PlanKind kind) {
  const int *lines = plan->lines;
  bool has_zero = lines[LINE_zero1] + lines[LINE_zero2] + lines[LINE_zero3] > 0;
  return plan->n_axes >= (kind.has_axes ? 2 : 1) &&
         (has_zero || !kind.has_zero) &&
         (lines[LINE_operator] > 0 || !kind.has_lines);
}

static PricedPlan make_plan(Arena *arena, const PricedModel *priced,
                            const Model *model, uint64_t seed) {
  PricedPlan plan = {.model = priced};
  PlanSubject subject = {.graph = model->train,
                         .optimizer = &model->settings.optimizer,
                         .batch = priced->batch,
                         .queries = priced->queries,
                         .keys = priced->keys,
                         .heads = priced->heads,
                         .most_ranks = MOST_RANKS,
                         .computes_bf16 = model->precision.compute == DT_bf16};
  plan.text = plan_draw(choices_random(arena, seed), &subject, plan.lines,
                        &plan.samples);
  plan.n_axes = count_axes(plan.text);
  return plan;
}

PricedPlan priced_plan(Arena *arena, const PricedModel *priced, uint64_t seed,
                       int64_t number, int attempt) {
  enum { MOST_TRIES = 1000 };
  const Model *model = load_priced(priced);
  PlanKind kind = plan_kind(number);
  Arena *trial = arena_beside(arena);
  uint64_t key = (seed * 1000003 + (uint64_t)number) * 1009 + (uint64_t)attempt;
  PricedPlan plan;
  for (uint64_t i = 0; i < MOST_TRIES; i++) {
    plan = make_plan(trial, priced, model, key * MOST_TRIES + i);
    if (has_kind(&plan, kind)) break;
    arena_destroy(trial);
    trial = arena_beside(arena);
  }
  plan.text = arena_strdup(arena, plan.text);
  plan.target = number / n_priced_models % 2 ? "cuda" : "cpu";
  arena_destroy(trial);
  return plan;
}
