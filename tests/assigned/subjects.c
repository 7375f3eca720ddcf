/*
 * subjects.c -- lists small models, and loads one with its units.
 */
#include <stdlib.h>
#include <string.h>

#include "price/price_list.h"
#include "tests/assigned/assigned.h"

#define MODEL(name) TEST_ROOT "/models/" name ".dnn"
#define H100S       TEST_ROOT "/models/h100x256.cluster"
#define A100S       TEST_ROOT "/models/a100x1024.cluster"
#define V100S       TEST_ROOT "/models/pipedream-a.cluster"

/* clang-format off */
const Subject assigned_subjects[] = {
    {"mlp", MODEL("mlp"), V100S, 0, {{0}}, 3},
    {"lenet", MODEL("lenet"), H100S, 0, {{0}}, 2},
    {"alexnet", MODEL("alexnet"), V100S, 0, {{0}}, 4},
    {"vgg16", MODEL("vgg16"), V100S, 2, {{"N", "64"}, {"side", "64"}}, 3},
    {"resnet_cifar", MODEL("resnet_cifar"), V100S, 0, {{0}}, 2},
    {"gpt2", MODEL("gpt2"), H100S, 2, {{"L", "2"}, {"B", "64"}}, 3},
    {"gpt3", MODEL("gpt3"), A100S, 2, {{"L", "2"}, {"B", "32"}}, 3},
    {"llama", MODEL("llama"), H100S, 2, {{"L", "2"}, {"B", "16"}}, 3},
    {"moe", MODEL("moe"), H100S, 2, {{"L", "2"}, {"B", "32"}}, 3},
    {"bert", MODEL("bert"), V100S, 2, {{"L", "2"}, {"B", "64"}}, 3},
    {"vit", MODEL("vit"), V100S, 2, {{"L", "2"}, {"B", "128"}}, 3},
    {"chargpt", MODEL("chargpt"), V100S, 2, {{"L", "5"}, {"B", "16"}}, 2},
    {"s2vt", MODEL("s2vt"), V100S, 2, {{"M", "6"}, {"W", "4"}}, 3},
    {"gnmt8", MODEL("gnmt8"), H100S, 4,
     {{"B", "16"}, {"S", "6"}, {"T", "5"}, {"L", "3"}}, 2},
    /* Shards are padded. */
    {"mlp_uneven", MODEL("mlp"), V100S, 3,
     {{"B", "3"}, {"H1", "6"}, {"H2", "7"}}, 3},
    {"chargpt_uneven", MODEL("chargpt"), V100S, 4,
     {{"L", "2"}, {"B", "6"}, {"C", "36"}, {"H", "3"}}, 3},
};
/* clang-format on */
const int n_assigned_subjects = ARRAY_LENGTH(assigned_subjects);

bool assigned_option(AssignedOptions *options, const char *name,
                     const char *value) {
  if (!strcmp(name, "--plans"))
    options->plans = atoll(value);
  else if (!strcmp(name, "--state"))
    options->state = value;
  else if (!strcmp(name, "--model"))
    options->model = value;
  else
    return false;
  return true;
}

const Pins *assigned_read(const Program *program, Arena *arena,
                          const char *text) {
  Source *source = ARENA_NEW(arena, Source);
  *source = (Source){"assigned.plan", text, strlen(text)};
  PlanSource from = {.file = source};
  return driver_read_pins(&program->loaded, &from, diags_create(arena));
}

static bool find_units(Program *p) {
  Arena *arena = p->module->arena;
  TrialPlan plan = {.pins = ARENA_NEW(arena, Pins), .is_training_only = true};
  const char *reason;
  const Pins *pins =
      assigned_read(p, arena, "mesh {\n}\nplan {\n  zero = 0\n}\n");
  if (!pins ||
      !driver_try(&p->loaded, p->module->memory, &plan, &p->request, &p->trial))
    return false;
  UnitRepeats *repeats = ARENA_NEW(arena, UnitRepeats);
  Repeat *list = ARENA_ARRAY(arena, Repeat, MOST_REPEATS);
  int n = graph_repeats(p->loaded.model->train, NULL, list);
  *repeats = (UnitRepeats){n, KEPT_BLOCKS, list};
  p->paths = pins->paths;
  p->units =
      units_of(arena, p->trial.c.trained, pins->batch_dim, repeats, &reason);
  return p->units != NULL;
}

Program *assigned_load(Memory *memory, const Subject *subject) {
  Arena *arena = arena_create(memory);
  Program *p = ARENA_NEW(arena, Program);
  p->subject = subject;
  p->module = ARENA_NEW(arena, Module);
  *p->module = (Module){.memory = memory,
                        .arena = arena,
                        .names = names_create(arena),
                        .diags = diags_create(arena)};
  CompileOptions *options = ARENA_NEW(arena, CompileOptions);
  *options = (CompileOptions){.path = subject->path,
                              .overrides = subject->overrides,
                              .n_overrides = subject->n_overrides,
                              .cluster = subject->cluster,
                              .level = 2};
  if (driver_load(p->module, options, &p->loaded) != COMPILE_done) return NULL;
  return find_units(p) ? p : NULL;
}
