/*
 * outside.c -- makes plans that lines about dims, operators, ZeRO,
 * rematerialisation and micro-batches cannot say, with the generator of random
 * plans.
 */
#include "tests/random/plans.h"
#include "tests/sound/sound.h"

static bool has_other_lines(const int lines[N_LINES]) {
  static const PlanLine others[] = {
      LINE_parameter, LINE_value, LINE_space,     LINE_partial,  LINE_gradient,
      LINE_state,     LINE_keep,  LINE_replicate, LINE_zero_over};
  for (int i = 0; i < ARRAY_LENGTH(others); i++)
    if (lines[others[i]] > 0) return true;
  return false;
}

const char *sound_outside(const SoundCase *of, Choices *choices) {
  enum { MOST_TRIES = 200 };
  const Model *model = of->loaded.model;
  const SoundSpace *space = &of->space;
  const SoundMesh *mesh = &space->meshes[choose(choices, space->n_meshes)];
  PlanSubject subject = {.graph = model->train,
                         .optimizer = &model->settings.optimizer,
                         .batch = space->batch_dim,
                         .samples = space->batch,
                         .n_axes = mesh->n_axes,
                         .axes = mesh->sizes};
  if (of->ranks == 1) return NULL;
  for (int i = 0; i < MOST_TRIES; i++) {
    int lines[N_LINES] = {0};
    int64_t samples;
    const char *text = plan_draw(choices, &subject, lines, &samples);
    if (!has_other_lines(lines)) continue;
    if (!of->lines[0]) return text;
    return arena_printf(choices->arena, "%splan {\n%s}\n", text, of->lines);
  }
  return NULL;
}
