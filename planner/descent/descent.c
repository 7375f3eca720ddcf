/*
 * descent.c -- searches by coordinate descent from several starts.
 *
 *     starts      each mesh of one or two axes with each set of dims, once
 *                 lean in memory and once not
 *     settling    of the best few: of one setting after the other (ZeRO with
 *                 remat, micro-batches, attention, sizes) all values are
 *                 priced, and the best one stays
 *     descents    from the best of these: the mesh and the dims of each axis
 *                 are varied likewise, and the settings again
 *
 * A search for the fewest bytes goes on from all starts: few plans may fit.
 */
#include "planner/descent/descent.h"

enum {
  MOST_SETTLED = 6, /* starts */
  MOST_DESCENTS = 3,
  MOST_ROUNDS = 12 /* of all coordinates, in a descent */
};

const Scored *try_moves(Pricing *p, VaryFn *vary, const Scored *at) {
  Candidates list = {0};
  vary(p, &at->candidate, &list);
  return pricing_best_of(p, &list, at);
}

/* The settings of a mesh and its lines. */
static const Scored *settle(Pricing *p, const Scored *at) {
  static VaryFn *const settings[] = {vary_zero_and_remat, vary_microbatches,
                                     vary_attention, vary_sizes};
  for (const Scored *before = NULL; before != at && !pricing_is_over(p);) {
    before = at;
    for (int i = 0; i < ARRAY_LENGTH(settings); i++)
      at = try_moves(p, settings[i], at);
    if (price_missing(&at->price) > 0) at = try_moves(p, vary_layers, at);
    if (price_missing(&at->price) > 0) at = try_moves(p, vary_batch, at);
  }
  return at;
}

static const Scored *descend(Pricing *p, const Scored *at) {
  for (int round = 0; round < MOST_ROUNDS && !pricing_is_over(p); round++) {
    const Scored *before = at;
    at = try_moves(p, vary_mesh, at);
    for (int axis = 0; axis < at->candidate.n_axes; axis++) {
      Candidates list = {0};
      vary_dims(p, &at->candidate, axis, &list);
      at = pricing_best_of(p, &list, at);
    }
    at = settle(p, at);
    if (at == before) break;
  }
  return at;
}

/* Descends from the best of these, from so many. */
static void descend_best(Pricing *p, const Scored *const *list, int n,
                         int most) {
  Map *taken = map_create(p->arena);
  for (int i = 0; i < most && !pricing_is_over(p); i++) {
    const Scored *start = scored_take_best(list, n, taken);
    if (!start) break;
    descend(p, start);
  }
}

void descend_from(Pricing *p, const Candidates *starts) {
  bool is_lean = p->input->is_lean;
  const Scored **list = ARENA_ARRAY(p->arena, const Scored *, starts->n);
  const Scored *settled[MOST_SETTLED];
  Map *taken = map_create(p->arena);
  int n = 0;
  for (int i = 0; i < starts->n; i++)
    list[i] = pricing_known(p, &starts->data[i]);
  while (n < MOST_SETTLED && !pricing_is_over(p)) {
    const Scored *start = scored_take_best(list, starts->n, taken);
    if (!start) break;
    settled[n++] = settle(p, start);
  }
  descend_best(p, settled, n, is_lean ? n : MOST_DESCENTS);
  while (is_lean && !pricing_is_over(p)) {
    const Scored *start = scored_take_best(list, starts->n, taken);
    if (!start) break;
    descend(p, settle(p, start));
  }
}
