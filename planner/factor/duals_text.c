/*
 * duals_text.c -- writes duals as text (docs/inside/engine.md).
 */
#include <inttypes.h>

#include "planner/factor/factor.h"

const char *factor_step_name(FactorStepKind kind) {
  static const char *const names[] = {
#define STEP(name, arguments, text) #name,
#include "planner/factor/steps.def"
  };
  return names[kind];
}

const char *factor_step_arguments(FactorStepKind kind) {
  static const char *const all[] = {
#define STEP(name, arguments, text) arguments,
#include "planner/factor/steps.def"
  };
  return all[kind];
}

static void print_step(Text *text, const FactorStep *step) {
  text_add(text, factor_step_name(step->kind));
  for (const char *of = factor_step_arguments(step->kind); *of; of++) {
    int64_t number = step->time;
    if (*of == 'v') number = step->variable;
    if (*of == 'l') number = step->value;
    if (*of == 'o') number = step->other;
    text_printf(text, " %" PRId64, number);
  }
  text_add(text, "\n");
}

/* Prints a word, how many numbers follow, and these. */
static void print_numbers(Text *text, const char *word, const int64_t *numbers,
                          int n) {
  text_printf(text, "%s %d", word, n);
  for (int i = 0; i < n; i++)
    text_printf(text, "%s%" PRId64, i % 16 ? " " : "\n", numbers[i]);
  text_add(text, "\n");
}

static void print_couples(Text *text, const char *word, const int (*couples)[2],
                          int n) {
  text_printf(text, "%s %d", word, n);
  for (int i = 0; i < n; i++)
    text_printf(text, "%s%d %d", i % 8 ? "  " : "\n", couples[i][0],
                couples[i][1]);
  text_add(text, "\n");
}

void factor_duals_print(Text *text, const FactorDuals *duals) {
  text_printf(text, "duals 1\nbound %" PRId64 "\nbest %" PRId64 "\nsteps %d\n",
              duals->bound, duals->best, duals->n_steps);
  for (int i = 0; i < duals->n_steps; i++) print_step(text, &duals->steps[i]);
  print_numbers(text, "times", duals->times, duals->n_times);
  print_couples(text, "pairs", duals->pairs, duals->n_pairs);
  text_printf(text, "stages %d\n", duals->n_stages);
  for (int i = 0; i < duals->n_stages; i++) {
    const FactorStage *stage = &duals->stages[i];
    print_numbers(text, "prices", stage->prices, duals->n_times);
    print_numbers(text, "moved", stage->moved, duals->n_moved);
    print_couples(text, "removed", stage->removed, stage->n_removed);
  }
}
