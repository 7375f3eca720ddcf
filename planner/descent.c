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
 *     judgement   the best candidates are priced as whole programs
 *
 * A candidate that fits goes before one that does not; those that fit are
 * ordered by their step, the others by the bytes that are missing.  Each
 * candidate is priced once.  The budget is a number of candidates, so the
 * result depends on no clock.
 */
#include "planner/elimination.h"

#include <string.h>

enum {
  MOST_SETTLED = 6, /* starts */
  MOST_DESCENTS = 3,
  MOST_FINALISTS = 6, /* priced whole */
  MOST_ROUNDS = 12    /* of all coordinates, in a descent */
};

typedef struct Scored {
  Candidate candidate;
  CandidatePrice price;
  bool is_whole; /* the price is that of the whole program */
} Scored;

typedef VEC(Candidate) Candidates;

typedef struct Descent {
  const SearchInput *input;
  Arena *arena;
  Space space;
  Names *texts;         /* of the candidates that are priced */
  Map *known;           /* text -> Scored */
  VEC(Scored *) scored; /* in the order in which they were priced */
  const Scored *best;
  int n_priced, most;
  bool prices_whole; /* not with fewer blocks */
  const char *units; /* words about the plans that place unit by unit */
} Descent;

/* ---- order ---- */

static Bytes missing(const CandidatePrice *price) {
  return price->peak > price->memory ? price->peak - price->memory : 0;
}

static bool is_better(const CandidatePrice *a, const CandidatePrice *b) {
  if (a->is_legal != b->is_legal) return a->is_legal;
  if (missing(a) != missing(b)) return missing(a) < missing(b);
  if (a->step != b->step) return a->step < b->step;
  return a->peak < b->peak;
}

static const Scored *better(const Scored *a, const Scored *b) {
  if (!a || !b) return a ? a : b;
  return is_better(&b->price, &a->price) ? b : a;
}

/* ---- pricing ---- */

static bool is_over(const Descent *d) {
  return d->n_priced >= d->most ||
         d->input->host->is_stopped(d->input->host->user);
}

static const Scored *known(const Descent *d, const Candidate *candidate) {
  return map_get(d->known,
                 name_intern(d->texts, candidate_text(&d->space, candidate)));
}

/* Prices those that are new, as far as the budget goes. */
static void price_some(Descent *d, const Candidates *list) {
  const SearchHost *host = d->input->host;
  const char **texts = ARENA_ARRAY(d->arena, const char *, list->n + 1);
  Scored **added = ARENA_ARRAY(d->arena, Scored *, list->n + 1);
  CandidatePrice *prices = ARENA_ARRAY(d->arena, CandidatePrice, list->n + 1);
  int n = 0;
  for (int i = 0; i < list->n && !is_over(d); i++) {
    const Candidate *candidate = &list->data[i];
    Name text = name_intern(d->texts, candidate_text(&d->space, candidate));
    if (!candidate_is_even(&d->space, candidate) || map_has(d->known, text))
      continue;
    added[n] = ARENA_NEW(d->arena, Scored);
    added[n]->candidate = *candidate;
    map_put(d->known, text, added[n]);
    texts[n++] = text;
    d->n_priced++;
  }
  if (n == 0) return;
  CandidateList priced = {n, texts, d->prices_whole};
  host->price(host->user, &priced, prices);
  for (int i = 0; i < n; i++) {
    added[i]->price = prices[i];
    added[i]->is_whole = d->prices_whole;
    vec_push(d->arena, &d->scored, added[i]);
    if (prices[i].is_legal) d->best = better(d->best, added[i]);
  }
  if (host->progress)
    host->progress(host->user, d->n_priced, d->most,
                   d->best ? &d->best->price : NULL);
}

/* In parts, so that a stop comes soon. */
static void price_all(Descent *d, const Candidates *list) {
  enum { AT_A_TIME = 16 };
  for (int i = 0; i < list->n && !is_over(d); i += AT_A_TIME) {
    int left = list->n - i;
    price_some(d, &(Candidates){.data = list->data + i,
                                .n = left < AT_A_TIME ? left : AT_A_TIME});
  }
}

/* The best of those that are priced, `from` included. */
static const Scored *best_of(Descent *d, const Candidates *list,
                             const Scored *from) {
  price_all(d, list);
  for (int i = 0; i < list->n; i++)
    from = better(from, known(d, &list->data[i]));
  return from;
}

static void add(Descent *d, Candidates *list, const Candidate *candidate) {
  vec_push(d->arena, list, candidate_merged(&d->space, candidate));
}

/* ---- pins ---- */

static const Pins *pins_of(const Descent *d) {
  return d->input->pins;
}

static bool is_mesh_open(const Descent *d) {
  return !pins_of(d) || !pins_have_mesh(pins_of(d));
}

static bool is_open(const Descent *d, PinNumber pin) {
  return !pins_of(d) || !pin.is_set;
}

/* Sets what the pins fix. */
static void pin(const Descent *d, Candidate *c) {
  const Pins *pins = pins_of(d);
  if (!pins) return;
  if (pins->zero.is_set) c->zero = (int)pins->zero.value;
  if (pins->microbatches.is_set) c->microbatches = pins->microbatches.value;
  if (pins->attention != ATTENTION_open) c->attention = pins->attention;
}

/* ---- coordinates ---- */

static void vary_zero_and_remat(Descent *d, const Candidate *from,
                                Candidates *out) {
  for (int zero = 0; zero <= 3; zero++)
    for (uint32_t r = 0; r < 1u << d->space.n_remats; r++) {
      Candidate c = *from;
      c.zero = zero;
      c.remats = r;
      pin(d, &c);
      add(d, out, &c);
    }
}

static void vary_microbatches(Descent *d, const Candidate *from,
                              Candidates *out) {
  const Pins *pins = pins_of(d);
  if (!pins || !is_open(d, pins->microbatches)) return;
  int64_t most = pins->batch / candidate_batch_shards(from);
  for (int64_t m = 1; m <= most; m++) {
    Candidate c = *from;
    c.microbatches = m;
    /* Powers of two, and the largest number. */
    if (most % m == 0 && ((m & (m - 1)) == 0 || m == most)) add(d, out, &c);
  }
}

static void vary_dims(Descent *d, const Candidate *from, int axis,
                      Candidates *out) {
  if (from->lines) return; /* they name the axes */
  Candidate c = *from;
  c.dims[axis] = 0;
  add(d, out, &c);
  c.is_batch_whole = false;
  if (from->is_batch_whole) add(d, out, &c);
  c.is_batch_whole = from->is_batch_whole;
  for (int i = 0; i < d->space.n_sets; i++) {
    c.dims[axis] = d->space.sets[i];
    add(d, out, &c);
  }
  for (int i = 0; i < d->space.n_dims; i++) {
    c.dims[axis] = from->dims[axis] ^ (DimSet)1 << i;
    add(d, out, &c);
  }
}

static void vary_attention(Descent *d, const Candidate *from, Candidates *out) {
  if (pins_of(d) && pins_of(d)->attention != ATTENTION_open) return;
  bool has_sequence = false;
  for (int a = 0; a < from->n_axes; a++)
    for (int i = 0; i < d->space.n_dims; i++)
      has_sequence |= from->dims[a] >> i & 1 && d->space.dims[i].is_of_data;
  if (!has_sequence || !d->space.has_attention) return;
  for (PlanAttention k = ATTENTION_open; k <= ATTENTION_ulysses; k++) {
    Candidate c = *from;
    c.attention = k;
    if (k != ATTENTION_gather) add(d, out, &c); /* what is open gathers */
  }
}

static void vary_sizes(Descent *d, const Candidate *from, Candidates *out) {
  for (int i = 0; i < N_SIZES; i++) {
    Candidate c = *from;
    c.bucket = i;
    add(d, out, &c);
    c.bucket = from->bucket;
    c.prefetch = i;
    if (from->zero >= 1) add(d, out, &c);
  }
}

static void drop_axis(Candidate *c, int axis) {
  for (int a = axis; a + 1 < c->n_axes; a++) {
    c->sizes[a] = c->sizes[a + 1];
    c->dims[a] = c->dims[a + 1];
  }
  c->n_axes--;
}

/* The axis stands outside of `before`. */
static void insert_axis(Candidate *c, int before, int64_t size, DimSet dims) {
  for (int a = c->n_axes; a > before; a--) {
    c->sizes[a] = c->sizes[a - 1];
    c->dims[a] = c->dims[a - 1];
  }
  c->sizes[before] = size;
  c->dims[before] = dims;
  c->n_axes++;
}

/* Another axis takes a factor of this one. */
static void move_factor(Descent *d, const Candidate *from, int axis, int factor,
                        Candidates *out) {
  for (int to = 0; to < from->n_axes; to++) {
    Candidate c = *from;
    if (to == axis) continue;
    c.sizes[axis] /= factor;
    c.sizes[to] *= factor;
    if (c.sizes[axis] == 1) drop_axis(&c, axis);
    add(d, out, &c);
  }
}

/* A new axis takes it, inside of all or outside. */
static void split_factor(Descent *d, const Candidate *from, int axis,
                         int factor, Candidates *out) {
  if (from->n_axes == MOST_OPEN_AXES) return;
  for (int i = -1; i < d->space.n_sets; i++)
    for (int inside = 0; inside < 2; inside++) {
      DimSet dims = i < 0 ? 0 : d->space.sets[i];
      Candidate c = *from;
      if (dims == from->dims[axis]) continue;
      c.sizes[axis] /= factor;
      if (c.sizes[axis] == 1) drop_axis(&c, axis);
      insert_axis(&c, inside ? c.n_axes : 0, factor, dims);
      add(d, out, &c);
    }
}

static void vary_mesh(Descent *d, const Candidate *from, Candidates *out) {
  if (!is_mesh_open(d) || from->lines) return;
  for (int axis = 0; axis < from->n_axes; axis++) {
    for (int k = 0; k < d->space.n_factors; k++) {
      int factor = d->space.factors[k];
      if (k > 0 && factor == d->space.factors[k - 1]) continue;
      if (from->sizes[axis] % factor != 0) continue;
      move_factor(d, from, axis, factor, out);
      split_factor(d, from, axis, factor, out);
    }
    if (axis + 1 == from->n_axes) break;
    Candidate swapped = *from;
    swapped.sizes[axis] = from->sizes[axis + 1];
    swapped.dims[axis] = from->dims[axis + 1];
    swapped.sizes[axis + 1] = from->sizes[axis];
    swapped.dims[axis + 1] = from->dims[axis];
    add(d, out, &swapped);
  }
}

/* ---- a descent ---- */

typedef void VaryFn(Descent *d, const Candidate *from, Candidates *out);

static const Scored *try_coordinate(Descent *d, VaryFn *vary,
                                    const Scored *at) {
  Candidates list = {0};
  vary(d, &at->candidate, &list);
  return best_of(d, &list, at);
}

/* The settings of a mesh and its lines. */
static const Scored *settle(Descent *d, const Scored *at) {
  static VaryFn *const settings[] = {vary_zero_and_remat, vary_microbatches,
                                     vary_attention, vary_sizes};
  for (const Scored *before = NULL; before != at && !is_over(d);) {
    before = at;
    for (int i = 0; i < ARRAY_LENGTH(settings); i++)
      at = try_coordinate(d, settings[i], at);
  }
  return at;
}

static const Scored *descend(Descent *d, const Scored *at) {
  for (int round = 0; round < MOST_ROUNDS && !is_over(d); round++) {
    const Scored *before = at;
    at = try_coordinate(d, vary_mesh, at);
    for (int axis = 0; axis < at->candidate.n_axes; axis++) {
      Candidates list = {0};
      vary_dims(d, &at->candidate, axis, &list);
      at = best_of(d, &list, at);
    }
    at = settle(d, at);
    if (at == before) break;
  }
  return at;
}

/* ---- starts ---- */

/* Sets as many micro-batches as powers of two allow. */
static void divide_batch(const Descent *d, Candidate *c) {
  int64_t batch = pins_of(d) ? pins_of(d)->batch : 1;
  int64_t samples = batch / candidate_batch_shards(c);
  while (samples > 0 && samples % (2 * c->microbatches) == 0)
    c->microbatches *= 2;
}

/* Adds the candidate; also with a whole batch, if its shards would differ. */
static void add_with_batch(Descent *d, Candidates *list, const Candidate *c) {
  int64_t batch = pins_of(d) ? pins_of(d)->batch : 0;
  Candidate whole = *c;
  add(d, list, c);
  if (batch % (candidate_batch_shards(c) * c->microbatches) == 0) return;
  whole.is_batch_whole = true;
  add(d, list, &whole);
}

/* Adds the candidate with what takes the most memory, and the least. */
static void add_start(Descent *d, Candidates *list, Candidate c) {
  c.microbatches = 1;
  pin(d, &c);
  add_with_batch(d, list, &c);
  c.zero = 3;
  c.remats = (1u << d->space.n_remats) - 1;
  divide_batch(d, &c);
  pin(d, &c);
  add_with_batch(d, list, &c);
}

/* The axes that a person wrote, with their sizes. */
static Candidate written_mesh(const Descent *d) {
  const Pins *pins = pins_of(d);
  Candidate c = {.n_axes = pins->axes.n};
  int64_t left = d->input->ranks;
  for (int a = 0; a < c.n_axes; a++)
    if (pins->axes.data[a].size) left /= pins->axes.data[a].size;
  for (int a = 0; a < c.n_axes; a++) {
    c.sizes[a] = pins->axes.data[a].size;
    if (c.sizes[a] == 0) c.sizes[a] = left, left = 1;
  }
  return c;
}

/* Leaves all axes to written lines and the batch, or shards each set over one
 * axis or all: the batch may not take as many ranks. */
static void add_written_mesh(Descent *d, Candidates *list) {
  const Candidate mesh = written_mesh(d);
  add_start(d, list, mesh);
  for (int i = 0; i < d->space.n_sets; i++) {
    Candidate all = mesh;
    for (int a = 0; a < mesh.n_axes; a++) {
      Candidate one = mesh;
      all.dims[a] = one.dims[a] = d->space.sets[i];
      if (mesh.n_axes > 1) add_start(d, list, one);
    }
    add_start(d, list, all);
  }
}

static void add_two_axes(Descent *d, Candidates *list, int64_t size,
                         DimSet inner) {
  add_start(d, list,
            (Candidate){.n_axes = 2,
                        .sizes = {d->input->ranks / size, size},
                        .dims = {0, inner}});
}

/* Every way to write the ranks as a product of two, both more than one. */
static void add_products(Descent *d, Candidates *list, DimSet inner) {
  int64_t ranks = d->input->ranks, size = 2;
  for (; size * size <= ranks; size++)
    if (ranks % size == 0) add_two_axes(d, list, size, inner);
  while (--size >= 2)
    if (ranks % size == 0 && size * size != ranks)
      add_two_axes(d, list, ranks / size, inner);
}

static void add_starts(Descent *d, Candidates *list) {
  int64_t ranks = d->input->ranks;
  if (!is_mesh_open(d)) {
    add_written_mesh(d, list);
    return;
  }
  int n_axes = ranks > 1;
  add_start(d, list, (Candidate){.n_axes = n_axes, .sizes = {ranks}});
  for (int i = 0; i < d->space.n_sets && ranks > 1; i++) {
    add_start(
        d, list,
        (Candidate){.n_axes = 1, .sizes = {ranks}, .dims = {d->space.sets[i]}});
    add_products(d, list, d->space.sets[i]);
  }
}

/* The best of the list that `taken` has not. */
static const Scored *take_best(const Scored *const *list, int n, Map *taken) {
  const Scored *best = NULL;
  for (int i = 0; i < n; i++)
    if (list[i] && list[i]->price.is_legal && !map_has(taken, list[i]))
      best = better(best, list[i]);
  if (best) map_put(taken, best, (void *)best);
  return best;
}

/* Settles the best starts, and descends from the best of these. */
static void search(Descent *d, const Candidates *starts) {
  const Scored **list = ARENA_ARRAY(d->arena, const Scored *, starts->n);
  const Scored *settled[MOST_SETTLED];
  Map *taken = map_create(d->arena);
  int n = 0;
  for (int i = 0; i < starts->n; i++) list[i] = known(d, &starts->data[i]);
  while (n < MOST_SETTLED && !is_over(d)) {
    const Scored *start = take_best(list, starts->n, taken);
    if (!start) break;
    settled[n++] = settle(d, start);
  }
  taken = map_create(d->arena);
  for (int i = 0; i < MOST_DESCENTS && !is_over(d); i++) {
    const Scored *start = take_best(settled, n, taken);
    if (!start) break;
    descend(d, start);
  }
}

/* ---- elimination ---- */

/* How far the bytes of a program lie from their estimate. */
typedef struct Correction {
  Candidate of;
  double factor;
} Correction;

typedef struct Corrections {
  VEC(Correction) list;
} Corrections;

static bool has_equal_settings(const Candidate *a, const Candidate *b) {
  return a->n_axes == b->n_axes && a->sizes[0] == b->sizes[0] &&
         a->zero == b->zero && a->microbatches == b->microbatches &&
         a->remats == b->remats;
}

/* Returns 0 if nothing is known. */
static double factor_of(const Corrections *corrections, const Candidate *c) {
  for (int i = corrections->list.n - 1; i >= 0; i--)
    if (has_equal_settings(&corrections->list.data[i].of, c))
      return corrections->list.data[i].factor;
  return 0;
}

static const Scored *price_one(Descent *d, const Candidate *candidate) {
  Candidate copy = *candidate;
  price_some(d, &(Candidates){.data = &copy, .n = 1});
  return known(d, candidate);
}

/* How many whole programs are priced: few of large ones. */
static int whole_prices(const Descent *d) {
  enum { NODES = 25000, FEWEST = 14, MOST = 150 };
  int n = NODES / (d->input->train->nodes.n + 1);
  return n < FEWEST ? FEWEST : n > MOST ? MOST : n;
}

/* Prices what elimination finds in so much memory, up to `end` candidates in
 * all.  Returns whether one fits.  Those are left out that would not fit by the
 * bytes of equal settings, or are far slower than the best. */
static bool price_eliminated(Descent *d, Bytes memory, int end,
                             Corrections *corrections) {
  enum { MOST_FOUND = 48 };
  EliminationResult found = eliminate_plans(&d->space, memory, MOST_FOUND);
  int n_fit = 0, enough = (end - d->n_priced) / 2;
  d->units = found.reason
                 ? arena_printf(d->arena, "no operator placed by itself (%s)",
                                found.reason)
                 : "operators and values over meshes of up to 2 axes on all "
                   "ranks where tables stay small, under some weightings, "
                   "with shards of windows whole and kernels not split";
  for (int i = 0; i < found.n && d->n_priced < end && !is_over(d); i++) {
    if (n_fit > 0 && end - d->n_priced <= enough) break;
    const Candidate *c = &found.candidates[i];
    double estimate = (double)found.peaks[i];
    if (estimate * factor_of(corrections, c) > (double)d->input->memory)
      continue;
    const Scored *scored = price_one(d, c);
    if (!scored || !scored->price.is_legal) continue;
    double factor = (double)scored->price.peak / estimate;
    vec_push(d->arena, &corrections->list, ((Correction){*c, factor}));
    n_fit += missing(&scored->price) == 0;
  }
  return n_fit > 0;
}

/* From the default to the largest size, then down. */
static int next_size(int size) {
  return size > 0 ? size - 1 : N_SIZES - 1;
}

static void vary_prefetch(Descent *d, const Candidate *from, Candidates *out) {
  Candidate c = *from;
  c.prefetch = next_size(from->prefetch);
  if (from->zero >= 1) add(d, out, &c);
}

static void vary_bucket(Descent *d, const Candidate *from, Candidates *out) {
  Candidate c = *from;
  c.bucket = next_size(from->bucket);
  add(d, out, &c);
}

static void vary_zero_near(Descent *d, const Candidate *from, Candidates *out) {
  for (int by = -1; by <= 1; by += 2) {
    Candidate c = *from;
    c.zero += by;
    pin(d, &c);
    if (c.zero >= 0 && c.zero <= 3) add(d, out, &c);
  }
}

static void vary_microbatches_near(Descent *d, const Candidate *from,
                                   Candidates *out) {
  Candidate c = *from;
  c.microbatches /= 2;
  pin(d, &c);
  if (from->microbatches % 2 == 0) add(d, out, &c);
  c.microbatches = 2 * from->microbatches;
  pin(d, &c);
  add(d, out, &c);
}

static void vary_remats_near(Descent *d, const Candidate *from,
                             Candidates *out) {
  for (int i = 0; i < d->space.n_remats; i++) {
    Candidate c = *from;
    c.remats ^= 1u << i;
    add(d, out, &c);
  }
}

/* The settings of a candidate with lines about names in place of those about
 * paths: the batch over all ranks. */
static void try_batch_alone(Descent *d, const Scored *at) {
  Candidates list = {0};
  add(d, &list,
      &(Candidate){.n_axes = d->input->ranks > 1,
                   .sizes = {d->input->ranks},
                   .zero = at->candidate.zero,
                   .microbatches = at->candidate.microbatches,
                   .remats = at->candidate.remats});
  price_all(d, &list);
}

/* Lines about names put the parameters over the inner axis, for the fastest of
 * those with two axes whose lines about paths take too many bytes. */
static void try_names(Descent *d) {
  const Scored *at = NULL;
  for (int i = 0; i < d->scored.n; i++) {
    const Scored *s = d->scored.data[i];
    if (s->price.is_legal && s->candidate.n_axes == 2 &&
        s->price.step < d->best->price.step &&
        (!at || s->price.step < at->price.step))
      at = s;
  }
  Candidates list = {0};
  for (int i = 0; i < d->space.n_sets && at; i++)
    add(d, &list,
        &(Candidate){.n_axes = 2,
                     .sizes = {at->candidate.sizes[0], at->candidate.sizes[1]},
                     .dims = {0, d->space.sets[i]},
                     .zero = at->candidate.zero,
                     .microbatches = at->candidate.microbatches,
                     .remats = at->candidate.remats});
  price_all(d, &list);
}

/* Goes to neighbours as long as they are better; first to those that mostly
 * are. */
static void climb(Descent *d, const Scored *at) {
  static VaryFn *const moves[] = {
      vary_prefetch,    vary_microbatches_near, vary_bucket, vary_zero_near,
      vary_remats_near, vary_attention,         vary_sizes};
  for (const Scored *before = NULL; before != at && !is_over(d);) {
    before = at;
    for (int i = 0; i < ARRAY_LENGTH(moves); i++)
      at = try_coordinate(d, moves[i], at);
  }
}

static void refine(Descent *d) {
  enum { MOST_CLIMBS = 3 };
  Map *taken = map_create(d->arena);
  try_batch_alone(d, d->best);
  try_names(d);
  for (int i = 0; i < MOST_CLIMBS && !is_over(d); i++) {
    const Scored *at =
        take_best((const Scored *const *)d->scored.data, d->scored.n, taken);
    if (at) climb(d, at);
  }
}

/* The bytes of proposals are estimates: where none fits, they are asked to fit
 * into less.  Returns whether a plan that fits was found. */
static bool try_elimination(Descent *d, const Candidates *starts) {
  enum { MOST_ROUNDS_OF_MEMORY = 4 };
  Bytes memory = d->input->memory;
  Corrections corrections = {0};
  bool fits = false;
  int at_once = whole_prices(d), most = d->most;
  if (!d->input->kernels) return false;
  d->prices_whole = true;
  /* So that there is a plan if a signal comes. */
  if (starts->n > 0) price_one(d, &starts->data[0]);
  for (int i = 0; i < MOST_ROUNDS_OF_MEMORY && !fits && !is_over(d); i++) {
    fits = price_eliminated(d, memory, d->n_priced + at_once / 2, &corrections);
    memory -= memory / 5;
  }
  if (fits && d->n_priced + at_once / 2 < most)
    d->most = d->n_priced + at_once / 2;
  if (fits) refine(d);
  d->prices_whole = false;
  return fits;
}

/* ---- judgement ---- */

static FoundPlan found(const Descent *d, const Scored *scored) {
  return (FoundPlan){candidate_text(&d->space, &scored->candidate),
                     candidate_words(&d->space, &scored->candidate),
                     scored->price};
}

static void judge(Descent *d, SearchResult *out) {
  const SearchHost *host = d->input->host;
  Map *taken = map_create(d->arena);
  for (int i = 0;; i++) {
    const Scored *next =
        take_best((const Scored *const *)d->scored.data, d->scored.n, taken);
    if (!next || (i > 0 && host->is_stopped(host->user))) break;
    /* Further ones only until one fits whole, of those that may. */
    bool has_one = out->best.text && missing(&out->best.price) == 0;
    if (i >= MOST_FINALISTS && (has_one || missing(&next->price) > 0)) break;
    FoundPlan plan = found(d, next);
    CandidateList one = {.n = 1, .texts = &plan.text, .is_whole = true};
    if (!next->is_whole) host->price(host->user, &one, &plan.price);
    if (!plan.price.is_legal) continue;
    if (!out->best.text || is_better(&plan.price, &out->best.price))
      out->best = plan;
  }
  out->has_plan = out->best.text && missing(&out->best.price) == 0;
}

/* Data parallelism, which is what there is without a search. */
static void judge_plain(const Descent *d, const Candidate *candidate,
                        SearchResult *out) {
  const SearchHost *host = d->input->host;
  const char *text = candidate_text(&d->space, candidate);
  if (!is_mesh_open(d) || !candidate_is_even(&d->space, candidate)) return;
  const Scored *scored = known(d, candidate);
  if (scored && scored->is_whole)
    out->plain = scored->price;
  else
    host->price(host->user,
                &(CandidateList){.n = 1, .texts = &text, .is_whole = true},
                &out->plain);
  if (out->plain.is_legal) out->plain_text = text;
}

static void count(const Descent *d, SearchResult *out) {
  out->n_priced = d->n_priced;
  if (d->scored.n > 0)
    out->first = candidate_text(&d->space, &d->scored.data[0]->candidate);
  for (int i = 0; i < d->scored.n; i++) {
    const CandidatePrice *price = &d->scored.data[i]->price;
    out->n_legal += price->is_legal;
    out->n_fit += price->is_legal && missing(price) == 0;
  }
}

static SearchResult search_all(const SearchInput *input, bool eliminates) {
  Descent d = {.input = input,
               .arena = input->arena,
               .most = input->most_candidates,
               .space = space_of(input),
               .texts = names_create(input->arena),
               .known = map_create(input->arena)};
  SearchResult out = {0};
  Candidates starts = {0};
  add_starts(&d, &starts);
  if (!eliminates || !try_elimination(&d, &starts)) {
    price_all(&d, &starts);
    search(&d, &starts);
  }
  judge(&d, &out);
  if (starts.n > 0) judge_plain(&d, &starts.data[0], &out);
  out.is_stopped = input->host->is_stopped(input->host->user);
  out.space = space_words(&d.space, d.units);
  count(&d, &out);
  return out;
}

SearchResult plan_search_elimination(const SearchInput *input) {
  return search_all(input, true);
}

SearchResult plan_search_descent(const SearchInput *input) {
  return search_all(input, false);
}
