/*
 * setting_duals.c -- reads the duals of a bound.
 *
 *     bounds 1
 *     settings 20
 *     mesh 2 4 4                   axes and their sizes
 *     plan 1 1 -1 0 0              groups of ranks, micro-batches, axes of the
 *                                  batch, level of ZeRO, blocks run again
 *     weights forward_stream 64, backward_link 64, link 1
 *     shift 14                     costs are in units of 2^14
 *     duals 1                      those of the sum: see duals_text.c
 */
#include "planner/recheck/setting_duals.h"

#include <string.h>

#include "planner/recheck/duals_reader.h"

static int64_t number_from(DualsReader *r, int64_t least, int64_t most,
                           const char *fault) {
  duals_skip(r);
  const char *begin = r->at;
  int64_t value = r->fault ? least : duals_number(r);
  if (r->fault || (value >= least && value <= most)) return value;
  r->at = begin;
  duals_fail(r, fault);
  return least;
}

static const Mesh *read_mesh(DualsReader *r) {
  Mesh *mesh = ARENA_NEW(r->arena, Mesh);
  duals_word(r, "mesh", "'mesh' must be here");
  int n = (int)number_from(r, 0, MOST_MESH_AXES, "a mesh has up to three axes");
  for (int a = 0; a < n; a++) {
    mesh->axes[a].size = (int32_t)number_from(
        r, 2, INT32_MAX, "an axis has a size from 2 to 2147483647");
    mesh->n_axes++;
  }
  return mesh;
}

static void read_setting(DualsReader *r, BoundSetting *out) {
  enum { MOST_AXES = (1 << MOST_MESH_AXES) - 1 };
  out->mesh = read_mesh(r);
  duals_word(r, "plan", "'plan' must be here");
  out->groups =
      (int)number_from(r, 0, MOST_STAGE_GROUPS, "groups are from 0 to 64");
  out->microbatches =
      number_from(r, 1, INT64_MAX, "there is at least one micro-batch");
  out->batch_axes = (int)number_from(r, ANY_AXES, MOST_AXES,
                                     "axes are a number from -1 to 7");
  out->zero = (int)number_from(r, 0, N_ZERO_LEVELS - 1,
                               "a level of ZeRO is from 0 to 3");
  out->recomputes = number_from(r, 0, 1, "0 or 1 must be here") == 1;
}

/* Weights go to the end of their line. */
static void read_weights(DualsReader *r, BoundWeights *out) {
  duals_word(r, "weights", "'weights' must be here");
  if (r->fault) return;
  while (r->at < r->end && *r->at == ' ') r->at++;
  const char *end = memchr(r->at, '\n', (size_t)(r->end - r->at));
  size_t n = (size_t)((end ? end : r->end) - r->at);
  if (!bound_weights_read(arena_printf(r->arena, "%.*s", (int)n, r->at), out) ||
      out->n_kinds > 0)
    duals_fail(r, "the weights do not add up");
  else
    r->at += n;
}

/* Messages are numbers that grow by the shift; more than this is a fault. */
static FactorCost shifted(DualsReader *r, FactorCost cost, int shift) {
  FactorCost most = FACTOR_MOST_SUM >> shift;
  if (cost >= -most && cost <= most) return cost * ((FactorCost)1 << shift);
  duals_fail(r, "a number before here is too large");
  return 0;
}

static void shift_messages(DualsReader *r, FactorDuals *duals, int shift) {
  FactorStage *stages = ARENA_ARRAY(r->arena, FactorStage, duals->n_stages);
  for (int k = 0; k < duals->n_stages && !r->fault; k++) {
    FactorCost *moved = ARENA_ARRAY(r->arena, FactorCost, duals->n_moved);
    for (int i = 0; i < duals->n_moved; i++)
      moved[i] = shifted(r, duals->stages[k].moved[i], shift);
    stages[k] = duals->stages[k];
    stages[k].moved = moved;
  }
  duals->stages = stages;
  duals->bound = shifted(r, duals->bound, shift);
  duals->best = duals->best == FACTOR_MOST_SUM ? FACTOR_MOST_SUM
                                               : shifted(r, duals->best, shift);
}

static void read_one(DualsReader *r, SettingDuals *out) {
  read_setting(r, &out->setting);
  read_weights(r, &out->weights);
  duals_word(r, "shift", "'shift' must be here");
  int shift = (int)number_from(r, 0, 60, "a shift is from 0 to 60");
  if (!r->fault) duals_read(r, &out->duals);
  if (!r->fault) shift_messages(r, &out->duals, shift);
}

Status bound_duals_read(Arena *arena, const char *name, const char *text,
                        size_t n, BoundDuals **out) {
  enum { SHORTEST = 60 }; /* the words of a setting alone take more */
  DualsReader r = {arena, name, text, text, text + n, NULL};
  BoundDuals *duals = *out = ARENA_NEW(arena, BoundDuals);
  duals_word(&r, "bounds", "'bounds' must be here");
  if (!r.fault && duals_number(&r) != 1)
    duals_fail(&r, "the version must be 1");
  duals_word(&r, "settings", "'settings' must be here");
  duals->n = r.fault ? 0 : duals_length(&r, SHORTEST);
  SettingDuals *of = ARENA_ARRAY(arena, SettingDuals, duals->n + 1);
  for (int i = 0; i < duals->n && !r.fault; i++) read_one(&r, &of[i]);
  duals->of = of;
  duals_skip(&r);
  if (r.at < r.end) duals_fail(&r, "the text must end here");
  return duals_status(&r);
}

/* ---- a setting ---- */

static bool is_same_mesh(const Mesh *a, const Mesh *b) {
  bool is_same = a->n_axes == b->n_axes;
  for (int i = 0; i < a->n_axes && is_same; i++)
    is_same = a->axes[i].size == b->axes[i].size;
  return is_same;
}

const SettingDuals *bound_duals_find(const BoundDuals *duals,
                                     const BoundSetting *setting) {
  for (int i = 0; duals && i < duals->n; i++) {
    const BoundSetting *s = &duals->of[i].setting;
    if (is_same_mesh(s->mesh, setting->mesh) && s->groups == setting->groups &&
        s->microbatches == setting->microbatches &&
        s->batch_axes == setting->batch_axes && s->zero == setting->zero &&
        s->recomputes == setting->recomputes)
      return &duals->of[i];
  }
  return NULL;
}

bool bound_duals_have(const SettingDuals *duals, const BoundWeights *weights) {
  const BoundWeights *w = &duals->weights;
  return memcmp(w->of, weights->of, sizeof w->of) == 0 &&
         w->link == weights->link && w->split == weights->split &&
         w->per_byte == weights->per_byte;
}
