/*
 * play_model.h -- verifies a model file or text under a plan, as `dnnc verify`
 * does, with small sizes.
 */
#ifndef TESTS_UNIT_PLAY_MODEL_H
#define TESTS_UNIT_PLAY_MODEL_H

#include "tests/unit/values.h"
#include "verify/verify.h"

typedef struct PlayCase {
  const char *model; /* a path below the repository */
  const char *sizes; /* "B=8 C=3", or NULL */
  int ranks, microbatches;
  const char *plan; /* a path, or NULL */
  uint64_t seed;
  /* Fields of CompileOptions. */
  CompileWatch watch;
  int n_more_steps;
} PlayCase;

static inline Override *play_overrides(Arena *arena, const char *sizes,
                                       int *out_n) {
  Override *overrides = ARENA_ARRAY(arena, Override, 32);
  char *rest = NULL, *text = arena_strdup(arena, sizes ? sizes : "");
  *out_n = 0;
  for (char *word = strtok_r(text, " ", &rest); word;
       word = strtok_r(NULL, " ", &rest)) {
    char *value = strchr(word, '=');
    *value++ = 0;
    overrides[(*out_n)++] = (Override){word, value};
  }
  return overrides;
}

/* Loads the model and verifies it; `out` is the loaded compilation. */
static inline VerifyReport play_case_of(const PlayCase *one, Compilation *out) {
  Module *module = module_create();
  CompileOptions *options = ARENA_NEW(module->arena, CompileOptions);
  *options = (CompileOptions){
      .path = one->model[0] == '/'
                  ? one->model
                  : arena_printf(module->arena, "%s/%s", TEST_ROOT, one->model),
      .plan = one->plan,
      .ranks = one->ranks,
      .microbatches = one->microbatches,
      .target = "cpu",
      .follows_links = true,
      .level = 2,
      .watch = one->watch,
      .n_more_steps = one->n_more_steps};
  options->overrides =
      play_overrides(module->arena, one->sizes, &options->n_overrides);
  VerifyReport report;
  cr_assert_eq(driver_load(module, options, out), COMPILE_done, "%s",
               one->model);
  cr_assert_eq(driver_verify(out, one->seed ? one->seed : 1, &report),
               COMPILE_done, "%s", one->model);
  return report;
}

static inline VerifyReport play_case(const PlayCase *one) {
  Compilation c;
  return play_case_of(one, &c);
}

#endif
