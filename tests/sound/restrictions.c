/*
 * restrictions.c -- tells which plans a bound is not about: those that do not
 * keep a restriction of its certificate.
 *
 * A restriction that is unknown here, or that no line of these plans breaks,
 * takes no plan away, so a plan that is faster is a finding, to be looked at.
 */
#include <string.h>

#include "tests/sound/sound.h"

typedef bool BreaksFn(const SoundSpace *space, const SoundMesh *mesh,
                      const SoundChoice *choice);

static bool has_stages(const SoundSpace *space, const SoundMesh *mesh,
                       const SoundChoice *choice) {
  (void)space, (void)choice;
  return mesh->groups != NULL;
}

/* Groups of other meshes. */
static bool has_other_stages(const SoundSpace *space, const SoundMesh *mesh,
                             const SoundChoice *choice) {
  (void)space, (void)choice;
  return mesh->groups && !mesh->groups->are_equal;
}

static bool has_three_axes(const SoundSpace *space, const SoundMesh *mesh,
                           const SoundChoice *choice) {
  (void)space, (void)choice;
  return mesh->n_axes > 2;
}

static bool has_other_microbatches(const SoundSpace *space,
                                   const SoundMesh *mesh,
                                   const SoundChoice *choice) {
  (void)space, (void)mesh;
  return (choice->microbatches & (choice->microbatches - 1)) != 0;
}

/* An axis of the batch shards another dim, too: which one wins depends on the
 * tensor. */
static bool has_other_batches(const SoundSpace *space, const SoundMesh *mesh,
                              const SoundChoice *choice) {
  (void)mesh;
  if (choice->microbatches == 1 || !space->batch_dim) return false;
  return choice->has_operator_lines || choice->is_batch_shared;
}

/* A layer that is no repeat, or one of several. */
static bool has_some_remats(const SoundSpace *space, const SoundMesh *mesh,
                            const SoundChoice *choice) {
  int n_blocks = 0, n_again = 0, n_others = 0;
  (void)mesh;
  for (int i = 0; i < space->n_remats; i++) {
    bool is_again = choice->remats >> i & 1;
    bool is_block = !strncmp(space->remats[i], "block", 5);
    n_blocks += is_block;
    n_again += is_block && is_again;
    n_others += !is_block && is_again;
  }
  return n_others > 0 || (n_again > 0 && n_again < n_blocks);
}

static const struct {
  const char *name;
  BreaksFn *breaks;
} restrictions[] = {
    {"one_stage", has_stages},
    {"equal_stages", has_other_stages},
    {"two_axes", has_three_axes},
    {"powers_of_two", has_other_microbatches},
    {"same_batch", has_other_batches},
    {"whole_remat", has_some_remats},
};

unsigned sound_breaks(const SoundSpace *space, const SoundPlan *plan) {
  const SoundMesh *mesh = &space->meshes[plan->mesh];
  SoundChoice choice = sound_choice(space, plan);
  unsigned out = 0;
  for (int i = 0; i < ARRAY_LENGTH(restrictions); i++)
    if (restrictions[i].breaks(space, mesh, &choice)) out |= 1u << i;
  return out;
}

/* Returns whether a list has the word. */
static bool has_word(const char *list, size_t n, const char *word) {
  size_t length = strlen(word);
  for (const char *at = list; (at = strstr(at, word)) && at < list + n; at++) {
    bool is_begin = at == list || strchr("\", ", at[-1]);
    if (is_begin && strchr("\", \n", at[length])) return true;
  }
  return false;
}

unsigned sound_restrictions(const char *text) {
  const char *line = text ? strstr(text, "\n  restrictions") : NULL;
  unsigned out = 0;
  if (!line) return 0;
  size_t n = strcspn(line + 1, "\n") + 1;
  for (int i = 0; i < ARRAY_LENGTH(restrictions); i++)
    if (has_word(line, n, restrictions[i].name)) out |= 1u << i;
  return out;
}
