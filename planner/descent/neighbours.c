/*
 * neighbours.c -- goes from the best priced candidates to neighbours that are
 * better: one setting up or down, or the batch over all ranks in place of lines
 * about paths.
 */
#include "planner/descent/descent.h"

/* From the default to the largest size, then down. */
static int next_size(int size) {
  return size > 0 ? size - 1 : N_SIZES - 1;
}

static void vary_prefetch(Pricing *p, const Candidate *from, Candidates *out) {
  Candidate c = *from;
  c.prefetch = next_size(from->prefetch);
  if (from->zero >= 1) pricing_add(p, out, &c);
}

static void vary_bucket(Pricing *p, const Candidate *from, Candidates *out) {
  Candidate c = *from;
  c.bucket = next_size(from->bucket);
  pricing_add(p, out, &c);
}

static void vary_zero_near(Pricing *p, const Candidate *from, Candidates *out) {
  for (int by = -1; by <= 1; by += 2) {
    Candidate c = *from;
    c.zero += by;
    pricing_pin(p, &c);
    if (c.zero >= 0 && c.zero <= 3) pricing_add(p, out, &c);
  }
}

/* ZeRO over some axes of several: parameters are gathered and gradients are
 * scattered among fewer ranks. */
static void vary_zero_axes(Pricing *p, const Candidate *from, Candidates *out) {
  if (pricing_pins(p) && pricing_pins(p)->zero.is_set) return;
  for (AxisSet axes = 0; axes + 1u < 1u << from->n_axes; axes++) {
    Candidate c = *from;
    c.zero_axes = axes;
    if (c.zero == 0) c.zero = 1;
    pricing_add(p, out, &c);
  }
}

static void vary_microbatches_near(Pricing *p, const Candidate *from,
                                   Candidates *out) {
  Candidate c = *from;
  c.microbatches /= 2;
  pricing_pin(p, &c);
  if (from->microbatches % 2 == 0) pricing_add(p, out, &c);
  c.microbatches = 2 * from->microbatches;
  pricing_pin(p, &c);
  pricing_add(p, out, &c);
}

static void vary_remats_near(Pricing *p, const Candidate *from,
                             Candidates *out) {
  for (int i = 0; i < p->space.n_remats; i++) {
    Candidate c = *from;
    c.remats ^= 1u << i;
    pricing_add(p, out, &c);
  }
}

static void add_settings_of(Pricing *p, Candidates *list, Candidate c,
                            const Candidate *settings) {
  c.zero = settings->zero;
  c.microbatches = settings->microbatches;
  c.remats = settings->remats;
  c.layers = settings->layers;
  pricing_add(p, list, &c);
}

/* The settings of a candidate with lines about names in place of those about
 * paths: the batch over all ranks, also with sums inside first. */
static void try_batch_alone(Pricing *p, const Scored *at) {
  Candidates list = {0};
  add_settings_of(p, &list, plain_candidate(p), &at->candidate);
  Candidate plain = list.data[0];
  vary_border(p, &plain, &list);
  pricing_all(p, &list);
}

/* The starts of the descent in the settings of the best, with and without a
 * whole batch, as far as half of what may still be priced. */
static void try_starts(Pricing *p) {
  Candidates starts = {0}, list = {0};
  const Candidate settings = p->best->candidate;
  descent_starts(p, &starts);
  for (int whole = 0; whole < 2; whole++)
    for (int i = 0; i < starts.n; i++) {
      Candidate c = starts.data[i];
      if (whole && c.has_batch_line) continue;
      if (whole) c.has_batch_line = true;
      add_settings_of(p, &list, c, &settings);
    }
  int end = p->n_priced + (p->most - p->n_priced) / 2;
  for (int i = 0; i < list.n && p->n_priced < end; i++)
    pricing_one(p, &list.data[i]);
}

/* The fastest plans that do not fit, with layers that are computed again. */
static void try_layers(Pricing *p) {
  enum { MOST_TRIED = 3 };
  Map *tried = map_create(p->arena);
  for (int n = 0; n < MOST_TRIED && !pricing_is_over(p); n++) {
    const Scored *at = NULL;
    for (int i = 0; i < p->scored.n; i++) {
      const Scored *s = p->scored.data[i];
      if (s->price.is_legal && price_missing(&s->price) > 0 &&
          s->price.step < p->best->price.step && !map_has(tried, s) &&
          (!at || s->price.step < at->price.step))
        at = s;
    }
    if (!at) return;
    map_put(tried, at, (void *)at);
    for (const Scored *before = NULL;
         before != at && price_missing(&at->price) > 0;) {
      before = at;
      at = try_moves(p, vary_layers, at);
      map_put(tried, at, (void *)at);
    }
  }
}

/* Goes to neighbours as long as they are better; first to those that mostly
 * are.  All sizes are tried last, since they rarely matter. */
static void climb(Pricing *p, const Scored *at) {
  static VaryFn *const moves[] = {
      vary_prefetch,    vary_microbatches_near, vary_bucket,    vary_zero_near,
      vary_remats_near, vary_attention,         vary_zero_axes, vary_border};
  for (const Scored *before = NULL; before != at && !pricing_is_over(p);) {
    before = at;
    for (int i = 0; i < ARRAY_LENGTH(moves); i++)
      at = try_moves(p, moves[i], at);
    if (at == before) at = try_moves(p, vary_sizes, at);
  }
}

void climb_from_best(Pricing *p) {
  enum { MOST_CLIMBS = 3, MANY_PRICES = 40 };
  bool has_time = p->most - p->n_priced >= MANY_PRICES;
  Map *taken = map_create(p->arena);
  try_batch_alone(p, p->best);
  if (has_time) try_starts(p);
  for (int i = 0; i < MOST_CLIMBS && !pricing_is_over(p); i++) {
    const Scored *at = scored_take_best((const Scored *const *)p->scored.data,
                                        p->scored.n, taken);
    if (at) climb(p, at);
  }
  if (has_time) try_layers(p);
}
