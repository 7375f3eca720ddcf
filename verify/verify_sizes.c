/*
 * verify_sizes.c -- makes the graphs of all steps small enough to be played
 * (verify/resize.h).
 *
 * The graphs of all stages and their references have one set of new sizes.
 */
#include "verify/verify_steps.h"

/* A step with more numbers than this has one element in each of many shards. */
enum { MOST_ELEMENTS = 1 << 26 };

static void add_sizes(Resizing *resizing, const StepList *steps) {
  for (int i = 0; i < steps->n; i++) {
    const StageGraphs *played = &steps->list[i].played;
    for (int g = 0; g < played->graphs.n; g++)
      resizing_add(resizing, played->graphs.data[g]);
    resizing_add(resizing, steps->list[i].reference);
  }
}

static bool apply_to_step(Arena *arena, const Resizing *resizing,
                          VerifyStep *step) {
  StageGraphs small = {.cut = step->played.cut};
  for (int g = 0; g < step->played.graphs.n; g++) {
    Graph *graph = resizing_apply(resizing, step->played.graphs.data[g]);
    if (!graph) return false;
    vec_push(arena, &small.graphs, graph);
  }
  step->played = small;
  step->reference = resizing_apply(resizing, step->reference);
  return step->reference;
}

static bool apply_sizes(Arena *arena, const Resizing *resizing,
                        StepList *steps) {
  for (int i = 0; i < steps->n; i++)
    if (!apply_to_step(arena, resizing, &steps->list[i])) return false;
  return true;
}

/* The last step is the first one again. */
static bool shrink_steps(Arena *arena, VerifySteps *steps, bool keeps_windows,
                         bool allows_one_element) {
  Resizing *resizing = resizing_create(arena);
  if (keeps_windows) resizing_keep_windows(resizing);
  if (allows_one_element) resizing_allow_one_element(resizing);
  StepList gradients = steps->gradients, program = steps->program;
  add_sizes(resizing, &gradients);
  add_sizes(resizing, &program);
  resizing_solve(resizing);
  program.n--;
  if (!resizing_shrinks(resizing) ||
      !apply_sizes(arena, resizing, &gradients) ||
      !apply_sizes(arena, resizing, &program))
    return false;
  VerifyStep *last = &program.list[program.n++];
  last->played = program.list[0].played;
  last->reference = program.list[0].reference;
  gradients.list[0].reference = program.list[0].reference;
  steps->gradients = gradients;
  steps->program = program;
  steps->resizing = resizing;
  return true;
}

/* How many numbers the reference of a training step makes. */
static int64_t elements_of_step(const VerifySteps *steps) {
  const Graph *graph = steps->program.list[0].reference;
  int64_t n = 0;
  for (int id = 0; id < graph->nodes.n; id++)
    n += type_elements(graph->nodes.data[id]->types[0]);
  return n;
}

/* Two elements a shard; where that is too much, dims of many shards have one.
 */
bool verify_shrink(Arena *arena, VerifySteps *steps) {
  VerifySteps whole = *steps;
  bool keeps_windows = !shrink_steps(arena, steps, false, false);
  if (keeps_windows && !shrink_steps(arena, steps, true, false)) return false;
  VerifySteps two = *steps;
  if (elements_of_step(&two) <= MOST_ELEMENTS) return true;
  *steps = whole;
  steps->has_single_elements = shrink_steps(arena, steps, keeps_windows, true);
  if (steps->has_single_elements &&
      elements_of_step(steps) < elements_of_step(&two))
    return true;
  *steps = two;
  return true;
}
