/*
 * starts.c -- lists the candidates from which a descent starts.
 *
 *     8 ranks, sets {C} and {F, H}:     8; 8 over C; 2 x 4, the 4 over C;
 *                                       4 x 2, the 2 over C; 8 over F, H; ...
 *                                       8 over F; 8 over H
 */
#include "planner/descent/descent.h"

/* Sets as many micro-batches as powers of two allow. */
static void divide_batch(const Pricing *p, Candidate *c) {
  int64_t batch = pricing_pins(p) ? pricing_pins(p)->batch : 1;
  int64_t samples = batch / candidate_batch_shards(c);
  while (samples > 0 && samples % (2 * c->microbatches) == 0)
    c->microbatches *= 2;
}

/* Adds the candidate; also with a whole batch, if its shards would differ. */
static void add_with_batch(Pricing *p, Candidates *list, const Candidate *c) {
  int64_t batch = pricing_pins(p) ? pricing_pins(p)->batch : 0;
  Candidate whole = *c;
  pricing_add(p, list, c);
  if (batch % (candidate_batch_shards(c) * c->microbatches) == 0) return;
  whole.has_batch_line = true;
  pricing_add(p, list, &whole);
}

/* Adds the candidate with what takes the most memory, and the least. */
static void add_start(Pricing *p, Candidates *list, Candidate c) {
  c.microbatches = 1;
  pricing_pin(p, &c);
  add_with_batch(p, list, &c);
  c.zero = 3;
  c.remats = (1u << p->space.n_remats) - 1;
  divide_batch(p, &c);
  pricing_pin(p, &c);
  add_with_batch(p, list, &c);
}

Candidate plain_candidate(const Pricing *p) {
  int64_t ranks = p->input->ranks;
  Candidate c = {.n_axes = ranks > 1, .sizes = {ranks}};
  if (pricing_mesh_is_open(p)) return c;
  c.n_axes = pricing_pins(p)->axes.n;
  for (int a = 0; a < c.n_axes; a++)
    c.sizes[a] = pinned_axis_size(pricing_pins(p), ranks, a);
  return c;
}

/* The batch over any of the axes: by itself it takes none that a written line
 * names. */
static void add_batches(Pricing *p, Candidates *list, const Candidate *mesh) {
  enum { MOST = 3 };
  if (pricing_pins(p)->shards.n == 0 || mesh->n_axes > MOST) return;
  for (AxisSet axes = 1; axes < 1u << mesh->n_axes; axes++) {
    Candidate c = *mesh;
    c.has_batch_line = true;
    c.batch = axes;
    add_start(p, list, c);
  }
}

/* Leaves all axes to written lines and the batch, or shards each set over one
 * axis or all: the batch may not take as many ranks. */
static void add_written_mesh(Pricing *p, Candidates *list) {
  const Candidate mesh = plain_candidate(p);
  add_start(p, list, mesh);
  add_batches(p, list, &mesh);
  for (int i = 0; i < p->space.n_sets; i++) {
    Candidate all = mesh;
    for (int a = 0; a < mesh.n_axes; a++) {
      Candidate one = mesh;
      all.dims[a] = one.dims[a] = p->space.sets[i];
      if (mesh.n_axes > 1) add_start(p, list, one);
    }
    add_start(p, list, all);
  }
}

static void add_two_axes(Pricing *p, Candidates *list, int64_t size,
                         DimSet inner) {
  add_start(p, list,
            (Candidate){.n_axes = 2,
                        .sizes = {p->input->ranks / size, size},
                        .dims = {0, inner}});
}

/* Every way to write the ranks as a product of two, both more than one. */
static void add_products(Pricing *p, Candidates *list, DimSet inner) {
  int64_t ranks = p->input->ranks, size = 2;
  for (; size * size <= ranks; size++)
    if (ranks % size == 0) add_two_axes(p, list, size, inner);
  while (--size >= 2)
    if (ranks % size == 0 && size * size != ranks)
      add_two_axes(p, list, ranks / size, inner);
}

/* One dim over all ranks, where sets have it with others alone: a vocabulary
 * may be all that is worth its sums. */
static void add_dims_alone(Pricing *p, Candidates *list) {
  int64_t ranks = p->input->ranks;
  for (int i = 0; i < p->space.n_dims && ranks > 1; i++) {
    Candidate c = {.n_axes = 1, .sizes = {ranks}, .dims = {(DimSet)1 << i}};
    bool is_set = p->space.dims[i].is_of_data;
    for (int k = 0; k < p->space.n_sets; k++)
      is_set |= p->space.sets[k] == c.dims[0];
    if (!is_set) add_start(p, list, c);
  }
}

void descent_starts(Pricing *p, Candidates *list) {
  int64_t ranks = p->input->ranks;
  if (!pricing_mesh_is_open(p)) {
    add_written_mesh(p, list);
    return;
  }
  add_start(p, list, plain_candidate(p));
  for (int i = 0; i < p->space.n_sets && ranks > 1; i++) {
    add_start(
        p, list,
        (Candidate){.n_axes = 1, .sizes = {ranks}, .dims = {p->space.sets[i]}});
    add_products(p, list, p->space.sets[i]);
  }
  add_dims_alone(p, list);
}

/* ---- the lean start ---- */

static bool price_fits(const Scored *scored) {
  return scored && scored->price.is_legal && price_missing(&scored->price) == 0;
}

void price_lean_start(Pricing *p) {
  Candidate c = plain_candidate(p);
  const Scored *at = NULL;
  c.microbatches = 1;
  c.zero = 3;
  divide_batch(p, &c);
  for (int again = 0; again < 2 && !price_fits(at); again++) {
    c.remats = again ? (1u << p->space.n_remats) - 1 : 0;
    pricing_pin(p, &c);
    at = pricing_one(p, &c);
  }
  bool is_pinned = pricing_pins(p) && pricing_pins(p)->microbatches.is_set;
  for (; !is_pinned && price_fits(at) && c.microbatches % 2 == 0;
       at = pricing_one(p, &c))
    c.microbatches /= 2;
}
