/*
 * coordinates.c -- varies one coordinate of a candidate: its settings, the dims
 * of an axis, or its mesh.
 */
#include "planner/descent/descent.h"

/* ---- settings ---- */

void vary_zero_and_remat(Pricing *p, const Candidate *from, Candidates *out) {
  for (int zero = 0; zero <= 3; zero++)
    for (uint32_t r = 0; r < 1u << p->space.n_remats; r++) {
      Candidate c = *from;
      c.zero = zero;
      c.remats = r;
      pricing_pin(p, &c);
      pricing_add(p, out, &c);
    }
}

void vary_layers(Pricing *p, const Candidate *from, Candidates *out) {
  for (int i = 0; i < p->space.n_layers; i++) {
    Candidate c = *from;
    c.layers ^= 1u << i;
    pricing_add(p, out, &c);
  }
}

void vary_microbatches(Pricing *p, const Candidate *from, Candidates *out) {
  const Pins *pins = pricing_pins(p);
  if (!pins || pins->microbatches.is_set) return;
  int64_t most = pins->batch / candidate_batch_shards(from);
  for (int64_t m = 1; m <= most; m++) {
    Candidate c = *from;
    c.microbatches = m;
    /* Powers of two, and the largest number. */
    if (most % m == 0 && ((m & (m - 1)) == 0 || m == most))
      pricing_add(p, out, &c);
  }
}

void vary_dims(Pricing *p, const Candidate *from, int axis, Candidates *out) {
  if (from->lines) return; /* they name the axes */
  Candidate c = *from;
  c.dims[axis] = 0;
  pricing_add(p, out, &c);
  c.has_batch_line = false;
  if (from->has_batch_line) pricing_add(p, out, &c);
  c.has_batch_line = from->has_batch_line;
  for (int i = 0; i < p->space.n_sets; i++) {
    c.dims[axis] = p->space.sets[i];
    pricing_add(p, out, &c);
  }
  for (int i = 0; i < p->space.n_dims; i++) {
    c.dims[axis] = from->dims[axis] ^ (DimSet)1 << i;
    pricing_add(p, out, &c);
  }
}

static AxisSet batch_axes(const Candidate *c) {
  AxisSet axes = c->batch;
  if (c->has_batch_line) return axes;
  for (int a = axes = 0; a < c->n_axes; a++)
    if (!c->dims[a]) axes |= (AxisSet)(1u << a);
  return axes;
}

/* Values without the other dims of an axis can have shards of the batch, which
 * may leave less only where layers are computed again. */
void vary_batch(Pricing *p, const Candidate *from, Candidates *out) {
  if (from->lines) return;
  for (int a = 0; a < from->n_axes; a++) {
    Candidate c = *from;
    c.has_batch_line = true;
    c.batch = batch_axes(from) ^ (AxisSet)(1u << a);
    pricing_add(p, out, &c);
    vary_layers(p, &c, out);
    c.batch = batch_axes(from);
    for (int i = 0; i < p->space.n_dims && !from->dims[a]; i++) {
      c.dims[a] = (DimSet)1 << i;
      pricing_add(p, out, &c);
    }
  }
}

void vary_attention(Pricing *p, const Candidate *from, Candidates *out) {
  if (pricing_pins(p) && pricing_pins(p)->attention != ATTENTION_open) return;
  bool has_sequence = false;
  for (int a = 0; a < from->n_axes; a++)
    for (int i = 0; i < p->space.n_dims; i++)
      has_sequence |= from->dims[a] >> i & 1 && p->space.dims[i].is_of_data;
  if (!has_sequence || !p->space.has_attention) return;
  for (PlanAttention k = ATTENTION_open; k <= ATTENTION_ulysses; k++) {
    Candidate c = *from;
    c.attention = k;
    if (k != ATTENTION_gather)
      pricing_add(p, out, &c); /* what is open gathers */
  }
}

void vary_sizes(Pricing *p, const Candidate *from, Candidates *out) {
  for (int i = 0; i < N_SIZES; i++) {
    Candidate c = *from;
    c.bucket = i;
    pricing_add(p, out, &c);
    c.bucket = from->bucket;
    c.prefetch = i;
    if (from->zero >= 1) pricing_add(p, out, &c);
  }
}

/* ---- meshes ---- */

static void drop_axis(Candidate *c, int axis) {
  c->border = 0;
  for (int a = axis; a + 1 < c->n_axes; a++) {
    c->sizes[a] = c->sizes[a + 1];
    c->dims[a] = c->dims[a + 1];
  }
  c->n_axes--;
}

/* The axis stands outside of `before`. */
static void insert_axis(Candidate *c, int before, int64_t size, DimSet dims) {
  c->border = 0;
  for (int a = c->n_axes; a > before; a--) {
    c->sizes[a] = c->sizes[a - 1];
    c->dims[a] = c->dims[a - 1];
  }
  c->sizes[before] = size;
  c->dims[before] = dims;
  c->n_axes++;
}

/* Another axis takes a factor of this one. */
static void move_factor(Pricing *p, const Candidate *from, int axis, int factor,
                        Candidates *out) {
  for (int to = 0; to < from->n_axes; to++) {
    Candidate c = *from;
    if (to == axis) continue;
    c.sizes[axis] /= factor;
    c.sizes[to] *= factor;
    if (c.sizes[axis] == 1) drop_axis(&c, axis);
    pricing_add(p, out, &c);
  }
}

/* A new axis takes it, inside of all or outside. */
static void split_factor(Pricing *p, const Candidate *from, int axis,
                         int factor, Candidates *out) {
  if (from->n_axes == MOST_OPEN_AXES) return;
  for (int i = -1; i < p->space.n_sets; i++)
    for (int inside = 0; inside < 2; inside++) {
      DimSet dims = i < 0 ? 0 : p->space.sets[i];
      Candidate c = *from;
      if (dims == from->dims[axis]) continue;
      c.sizes[axis] /= factor;
      if (c.sizes[axis] == 1) drop_axis(&c, axis);
      insert_axis(&c, inside ? c.n_axes : 0, factor, dims);
      pricing_add(p, out, &c);
    }
}

/* Gives ranks in different groups of the cluster an axis of their own, where
 * the outermost axis shards the batch. */
static bool divide_by_groups(const Pricing *p, const Candidate *from,
                             Candidate *out) {
  int n = p->input->cluster->n_groups;
  *out = *from;
  if (from->lines || from->has_batch_line || from->zero_axes ||
      !pricing_mesh_is_open(p) || from->n_axes == 0 ||
      from->n_axes == MOST_OPEN_AXES || from->dims[0] ||
      from->sizes[0] % n != 0 || from->sizes[0] == n)
    return false;
  out->sizes[0] /= n;
  insert_axis(out, 0, n, 0);
  out->border = 1;
  return true;
}

/* Sums of gradients inside first, where ranks are in several groups of the
 * cluster. */
void vary_border(Pricing *p, const Candidate *from, Candidates *out) {
  const Pins *pins = pricing_pins(p);
  Candidate c;
  if (!p->space.has_border || (pins && pins->has_sync)) return;
  for (int a = 0; a < from->n_axes && from->n_axes > 1; a++) {
    c = *from;
    c.border = from->border ^ (AxisSet)(1u << a);
    pricing_add(p, out, &c);
  }
  if (!from->border && divide_by_groups(p, from, &c)) pricing_add(p, out, &c);
}

void vary_mesh(Pricing *p, const Candidate *from, Candidates *out) {
  if (!pricing_mesh_is_open(p) || from->lines) return;
  for (int axis = 0; axis < from->n_axes; axis++) {
    for (int k = 0; k < p->space.n_factors; k++) {
      int factor = p->space.factors[k];
      if (k > 0 && factor == p->space.factors[k - 1]) continue;
      if (from->sizes[axis] % factor != 0) continue;
      move_factor(p, from, axis, factor, out);
      split_factor(p, from, axis, factor, out);
    }
    if (axis + 1 == from->n_axes) break;
    Candidate swapped = *from;
    swapped.border = 0;
    swapped.sizes[axis] = from->sizes[axis + 1];
    swapped.dims[axis] = from->dims[axis + 1];
    swapped.sizes[axis + 1] = from->sizes[axis];
    swapped.dims[axis + 1] = from->dims[axis];
    pricing_add(p, out, &swapped);
  }
}
