// links: interp ir
/*
 * reshard.c -- every chain of resharding steps moves the right elements and
 * sends no more than the cheapest chain of up to four steps.
 *
 * For every pair of placements of a value of rank 1 to 3 (sizes 7, 5, 4) on the
 * meshes 5, 2x3 and 2x2x2 the steps are executed on arrays of integers, one for
 * each rank, by what each kind of step means; what lies on the ranks in the end
 * is compared with the formula of the placement.  Padding is random after every
 * step.  In a third of the pairs the axes of a step are reversed, and the
 * result must be wrong.  Brute force knows steps by a rule of its own: whether
 * one step leads from one placement to another, and at what cost.
 */
#include "ir/place/reshard.h"
#include "tests/unit/shards.h"

TestSuite(reshard, .fini = modules_destroy, .timeout = 120);

#define MOST_STATES  400
#define MOST_RANKS   8
#define MOST_SHARD   140
#define NO_STEP      INT64_MAX
#define ELEMENT_SIZE 4

typedef struct Bench {
  Module *module;
  Mesh mesh;
  int n_ranks;
  ReduceKind kind;
  const Type *logical;
  int n_states;
  const Type *states[MOST_STATES];
  AxisSet apart[MOST_RANKS][MOST_RANKS];  /* axes on which two ranks differ */
  int64_t cost[MOST_STATES][MOST_STATES]; /* of one step, in elements */
} Bench;

static int64_t n_pairs, n_steps, n_refused, n_planted, n_seen, n_without_plain;

/* ---- placements ---- */

/* The ranks differ on axes of the group only. */
static bool is_group(const Bench *bench, int a, int b, AxisSet group) {
  return !(bench->apart[a][b] & ~group);
}

static AxisSet axes_apart(const Mesh *mesh, int a, int b) {
  AxisSet set = 0;
  for (int axis = 0; axis < mesh->n_axes; axis++)
    if (shard_coordinate(mesh, axis, a) != shard_coordinate(mesh, axis, b))
      set |= (AxisSet)(1u << axis);
  return set;
}

/* Puts axis after axis everywhere: on a dim, partial, or nowhere. */
static void extend_states(Bench *bench, const Type *type, int placed) {
  cr_assert_lt(bench->n_states, MOST_STATES);
  bench->states[bench->n_states++] = type;
  size_t bytes = sizeof *type + sizeof(Dim) * type->rank;
  for (int a = 0; a < bench->mesh.n_axes; a++) {
    for (int d = 0; !(placed >> a & 1) && d < type->rank; d++) {
      Type *next = arena_copy(bench->module->arena, type, bytes);
      next->dims[d].split = axis_list_append(next->dims[d].split, a);
      bool is_new = true;
      for (int i = 0; i < bench->n_states; i++)
        is_new &= !type_equal(bench->states[i], next);
      if (is_new) extend_states(bench, next, placed | 1 << a);
    }
    if (placed >> a & 1) continue;
    Type *next = arena_copy(bench->module->arena, type, bytes);
    next->partial |= (AxisSet)(1u << a);
    next->partial_kind = bench->kind;
    bool is_new = true;
    for (int i = 0; i < bench->n_states; i++)
      is_new &= !type_equal(bench->states[i], next);
    if (is_new) extend_states(bench, next, placed | 1 << a);
  }
}

/* Indices in the logical tensor of the elements of a rank's shard, -1 for
 * padding; returns their number.  As shard_place_or_padding, for all at once.
 */
static int64_t shard_places(const Bench *bench, const Type *type, int rank,
                            int64_t *out) {
  int64_t n = 1;
  out[0] = 0;
  for (int d = 0; d < type->rank; d++) {
    int64_t size = type_local_size(type, &bench->mesh, d);
    int64_t first = shard_index(&bench->mesh, type->dims[d].split, rank) * size;
    cr_assert_leq(n * size, MOST_SHARD);
    for (int64_t i = n * size - 1; i >= 0; i--) {
      int64_t before = out[i / size], k = first + i % size;
      bool is_valid = before >= 0 && k < type->dims[d].size;
      out[i] = is_valid ? before * type->dims[d].size + k : -1;
    }
    n *= size;
  }
  return n;
}

/* ---- what lies on the ranks ---- */

typedef struct Shards {
  const Type *type;
  int64_t data[MOST_RANKS][MOST_SHARD];
} Shards;

static int64_t noise(int64_t a, int64_t b) {
  uint64_t words[2] = {(uint64_t)a, (uint64_t)b};
  return (int64_t)(hash_bytes(words, sizeof words, 7) % 1000003);
}

static int64_t wanted_at(int64_t global) {
  return noise(global, 1);
}

/* The part of a partial value that the ranks at this position hold. */
static int64_t part_of(const Bench *bench, const Type *type, int rank,
                       int64_t global) {
  int n = 1, at = 0;
  for (int a = 0; a < bench->mesh.n_axes; a++)
    if (type->partial >> a & 1) {
      n *= bench->mesh.axes[a].size;
      at = at * bench->mesh.axes[a].size +
           shard_coordinate(&bench->mesh, a, rank);
    }
  int64_t value = wanted_at(global);
  int owner = (int)(noise(global, 2) % n);
  if (type->partial_kind == REDUCE_max)
    return at == owner ? value : value - 1 - noise(global, 10 + at);
  if (at != owner) return noise(global, 10 + at);
  for (int i = 0; i < n; i++)
    if (i != owner) value -= noise(global, 10 + i);
  return value;
}

static void spoil_padding(const Bench *bench, Shards *shards) {
  int64_t places[MOST_SHARD];
  for (int r = 0; r < bench->n_ranks; r++) {
    int64_t n = shard_places(bench, shards->type, r, places);
    for (int64_t i = 0; i < n; i++)
      if (places[i] < 0) shards->data[r][i] = noise(n_steps, r * 1000 + i);
  }
}

static void place(const Bench *bench, const Type *type, Shards *out) {
  int64_t places[MOST_SHARD];
  out->type = type;
  for (int r = 0; r < bench->n_ranks; r++) {
    int64_t n = shard_places(bench, type, r, places);
    for (int64_t i = 0; i < n; i++)
      if (places[i] >= 0) out->data[r][i] = part_of(bench, type, r, places[i]);
  }
  spoil_padding(bench, out);
}

static int64_t reduce(ReduceKind kind, int64_t a, int64_t b) {
  return kind == REDUCE_sum ? a + b : a > b ? a : b;
}

/* Every rank holds its shard; partial values give the value once reduced. */
static bool is_right(const Bench *bench, const Shards *shards) {
  const Type *type = shards->type;
  int64_t places[MOST_SHARD];
  for (int r = 0; r < bench->n_ranks; r++) {
    int64_t n = shard_places(bench, type, r, places);
    for (int64_t i = 0; i < n; i++) {
      bool is_first = true;
      int64_t value = 0;
      for (int m = 0; places[i] >= 0 && m < bench->n_ranks; m++)
        if (is_group(bench, r, m, type->partial)) {
          value = is_first
                      ? shards->data[m][i]
                      : reduce(type->partial_kind, value, shards->data[m][i]);
          is_first = false;
        }
      if (places[i] >= 0 && value != wanted_at(places[i])) return false;
    }
  }
  return true;
}

/* ---- the steps, by what they mean ---- */

typedef struct Local { /* a shard as [outer, size, inner] around one dim */
  int64_t outer, size, inner;
} Local;

static Local around(const Bench *bench, const Type *type, int dim) {
  Local l = {1, 1, 1};
  for (int d = 0; d < type->rank; d++) {
    int64_t size = type_local_size(type, &bench->mesh, d);
    if (d < dim) l.outer *= size;
    if (d == dim) l.size = size;
    if (d > dim) l.inner *= size;
  }
  return l;
}

/* out[.., to_at + k, ..] = in[.., from_at + k, ..] for k < n; what lies beyond
 * either size is padding. */
static void copy_block(Local from, const int64_t *in, int64_t from_at, Local to,
                       int64_t *out, int64_t to_at, int64_t n) {
  for (int64_t o = 0; o < to.outer; o++)
    for (int64_t k = 0; k < n; k++)
      for (int64_t i = 0; i < to.inner; i++)
        if (from_at + k < from.size && to_at + k < to.size)
          out[(o * to.size + to_at + k) * to.inner + i] =
              in[(o * from.size + from_at + k) * from.inner + i];
}

static void do_slice(const Bench *bench, const ReshardStep *step,
                     const Shards *in, Shards *out) {
  Local from = around(bench, in->type, step->to_dim);
  Local to = around(bench, out->type, step->to_dim);
  for (int r = 0; r < bench->n_ranks; r++)
    copy_block(from, in->data[r],
               shard_index(&bench->mesh, step->axes, r) * to.size, to,
               out->data[r], 0, to.size);
}

static void do_all_gather(const Bench *bench, const ReshardStep *step,
                          const Shards *in, Shards *out) {
  Local from = around(bench, in->type, step->from_dim);
  Local to = around(bench, out->type, step->from_dim);
  for (int r = 0; r < bench->n_ranks; r++)
    for (int m = 0; m < bench->n_ranks; m++)
      if (is_group(bench, r, m, step->group))
        copy_block(from, in->data[m], 0, to, out->data[r],
                   shard_index(&bench->mesh, step->axes, m) * from.size,
                   from.size);
}

static void do_all_reduce(const Bench *bench, const ReshardStep *step,
                          const Shards *in, Shards *out) {
  int64_t n = type_local_elements(in->type, &bench->mesh);
  for (int r = 0; r < bench->n_ranks; r++)
    for (int64_t i = 0; i < n; i++) {
      bool is_first = true;
      for (int m = 0; m < bench->n_ranks; m++)
        if (is_group(bench, r, m, step->group)) {
          int64_t x = in->data[m][i], *to = &out->data[r][i];
          *to = is_first ? x : reduce(in->type->partial_kind, *to, x);
          is_first = false;
        }
    }
}

static void do_reduce_scatter(const Bench *bench, const ReshardStep *step,
                              const Shards *in, Shards *out) {
  static Shards whole;
  whole.type = in->type;
  do_all_reduce(bench, step, in, &whole);
  do_slice(bench, step, &whole, out);
}

/* Block j of member i becomes block i of member j. */
static void do_all_to_all(const Bench *bench, const ReshardStep *step,
                          const Shards *in, Shards *out) {
  const Mesh *mesh = &bench->mesh;
  int n = in->type->rank;
  int64_t from_size = type_local_size(in->type, mesh, step->from_dim);
  int64_t to_size = type_local_size(out->type, mesh, step->to_dim);
  for (int r = 0; r < bench->n_ranks; r++)
    for (int m = 0; m < bench->n_ranks; m++) {
      if (!is_group(bench, r, m, step->group)) continue;
      int64_t n_out = type_local_elements(out->type, mesh);
      for (int64_t i = 0; i < n_out; i++) {
        int64_t rest = i, at = 0, stride = 1;
        bool is_mine = true;
        for (int d = n - 1; d >= 0; d--) {
          int64_t size = type_local_size(out->type, mesh, d);
          int64_t old = type_local_size(in->type, mesh, d), k = rest % size;
          rest /= size;
          if (d == step->from_dim)
            k -= shard_index(mesh, step->axes, m) * from_size;
          if (d == step->to_dim)
            k += shard_index(mesh, step->to_axes, r) * to_size;
          is_mine &= k >= 0 && k < old;
          at += k * stride;
          stride *= old;
        }
        if (is_mine) out->data[r][i] = in->data[m][at];
      }
    }
}

/* Each rank takes what its new shard lacks from a member that has it; the most
 * elements that one rank takes. */
static int64_t do_permute(const Bench *bench, const ReshardStep *step,
                          const Shards *in, Shards *out, bool *out_found) {
  static int lies_at[MOST_RANKS][MOST_SHARD]; /* local index + 1 */
  int64_t places[MOST_SHARD], most = 0;
  memset(lies_at, 0, sizeof lies_at);
  for (int m = 0; m < bench->n_ranks; m++) {
    int64_t n = shard_places(bench, in->type, m, places);
    for (int64_t k = 0; k < n; k++)
      if (places[k] >= 0) lies_at[m][places[k]] = (int)k + 1;
  }
  for (int r = 0; r < bench->n_ranks; r++) {
    int64_t taken = 0, n = shard_places(bench, out->type, r, places);
    for (int64_t i = 0; i < n; i++) {
      int64_t wanted = places[i];
      if (wanted < 0) continue;
      int source = lies_at[r][wanted] ? r : -1;
      for (int m = 0; source < 0 && m < bench->n_ranks; m++)
        if (lies_at[m][wanted] && is_group(bench, r, m, step->group))
          source = m;
      *out_found &= source >= 0;
      if (source >= 0)
        out->data[r][i] = in->data[source][lies_at[source][wanted] - 1];
      taken += source != r;
    }
    most = taken > most ? taken : most;
  }
  return most;
}

static void do_zero_fill(const Bench *bench, const ReshardStep *step,
                         const Shards *in, Shards *out) {
  for (int r = 0; r < bench->n_ranks; r++) {
    bool is_first = true;
    for (int a = 0; a < bench->mesh.n_axes; a++)
      is_first &=
          !(step->group >> a & 1) || shard_coordinate(&bench->mesh, a, r) == 0;
    for (int64_t i = 0; i < type_local_elements(in->type, &bench->mesh); i++)
      out->data[r][i] = is_first ? in->data[r][i] : 0;
  }
}

static bool equal_counts(const Bench *bench, const Type *a, const Type *b) {
  for (int d = 0; d < a->rank; d++)
    if (axis_list_shards(a->dims[d].split, &bench->mesh) !=
        axis_list_shards(b->dims[d].split, &bench->mesh))
      return false;
  return true;
}

/* Executes a step; elements sent per rank, or -1: an element is nowhere. */
static int64_t do_step(const Bench *bench, const ReshardStep *step,
                       const Shards *in, Shards *out) {
  int64_t n = type_local_elements(in->type, &bench->mesh), k = 1, taken;
  bool is_found = true;
  for (int a = 0; a < bench->mesh.n_axes; a++)
    if (step->group >> a & 1) k *= bench->mesh.axes[a].size;
  out->type = step->type;
  switch (step->kind) {
  case RESHARD_slice: do_slice(bench, step, in, out); return 0;
  case RESHARD_zero_fill: do_zero_fill(bench, step, in, out); return 0;
  case RESHARD_all_gather:
    do_all_gather(bench, step, in, out);
    return (k - 1) * n;
  case RESHARD_reduce_scatter:
    do_reduce_scatter(bench, step, in, out);
    return (k - 1) * type_local_elements(out->type, &bench->mesh);
  case RESHARD_all_to_all:
    do_all_to_all(bench, step, in, out);
    return (k - 1) * n / type_local_size(in->type, &bench->mesh, step->to_dim) *
           type_local_size(out->type, &bench->mesh, step->to_dim);
  case RESHARD_all_reduce:
    do_all_reduce(bench, step, in, out);
    return 2 * (k - 1) * ((n + k - 1) / k);
  case RESHARD_permute:
    taken = do_permute(bench, step, in, out, &is_found);
    if (!is_found) return -1;
    return equal_counts(bench, in->type, out->type) ? n : taken;
  case N_RESHARD_KINDS: break;
  }
  return -1;
}

/* Executes a chain; true if each rank holds the elements that the placement
 * says.  `planted`: reverse the axes of this step (-1: of none). */
static bool play(const Bench *bench, const Type *from, const ReshardStep *steps,
                 int n, int planted, const char *label) {
  static Shards shards[2];
  place(bench, from, &shards[0]);
  for (int i = 0; i < n; i++) {
    ReshardStep step = steps[i];
    if (i == planted) {
      step.axes = 0;
      for (int k = axis_list_length(steps[i].axes) - 1; k >= 0; k--)
        step.axes = axis_list_append(step.axes, axis_list_at(steps[i].axes, k));
    }
    Shards *in = &shards[i % 2], *out = &shards[(i + 1) % 2];
    int64_t sent = do_step(bench, &step, in, out);
    if (planted < 0)
      cr_assert_eq(sent * ELEMENT_SIZE, step.bytes, "%s: %s sends %ld", label,
                   reshard_name(step.kind), (long)sent);
    n_steps++;
    spoil_padding(bench, out);
  }
  return is_right(bench, &shards[n % 2]);
}

/* ---- brute force ---- */

static int64_t ceil_div(int64_t n, int64_t k) {
  return (n + k - 1) / k;
}

static bool is_aligned(const Bench *bench, const Type *few, const Type *many,
                       int d) {
  int64_t big = type_local_size(few, &bench->mesh, d);
  int64_t small = type_local_size(many, &bench->mesh, d);
  int64_t parts = axis_list_shards(many->dims[d].split, &bench->mesh) /
                  axis_list_shards(few->dims[d].split, &bench->mesh);
  return few->dims[d].split == 0 || big == small * parts;
}

/* Elements of the value that the rank that lacks most must be sent. */
static int64_t most_missing(const Bench *bench, const Type *from,
                            const Type *to) {
  int64_t most = 0;
  for (int r = 0; r < bench->n_ranks; r++) {
    int64_t missing = 1, other = 1;
    for (int d = 0; d < to->rank; d++) {
      int64_t had = type_local_size(from, &bench->mesh, d);
      int64_t has = type_local_size(to, &bench->mesh, d), lacks = 0;
      int64_t first = shard_index(&bench->mesh, from->dims[d].split, r) * had;
      int64_t at = shard_index(&bench->mesh, to->dims[d].split, r) * has;
      for (int64_t k = at; k < at + has && k < to->dims[d].size; k++)
        lacks += k < first || k >= first + had;
      if (from->dims[d].split == to->dims[d].split) {
        other *= has;
      } else {
        missing = lacks;
      }
    }
    most = missing * other > most ? missing * other : most;
  }
  return most;
}

/* The cost of the one step from a to b, if there is one. */
static int64_t step_cost(const Bench *bench, const Type *a, const Type *b) {
  const Mesh *mesh = &bench->mesh;
  int changed[3], n = 0, grows = -1, shrinks = -1;
  AxisList more, grown = 0, shrunk = 0;
  AxisSet lost = a->partial & (AxisSet)~b->partial;
  AxisSet won = b->partial & (AxisSet)~a->partial;
  int64_t local = type_local_elements(a, mesh);
  int64_t after = type_local_elements(b, mesh), k = 1;
  for (int d = 0; d < a->rank; d++) {
    AxisList x = a->dims[d].split, y = b->dims[d].split;
    if (x == y) continue;
    if (n < 3) changed[n] = d;
    n++;
    if (axis_list_continues(y, x, &more)) grows = d, grown = more;
    if (axis_list_continues(x, y, &more)) shrinks = d, shrunk = more;
  }
  if (won) return !lost && n == 0 && bench->kind == REDUCE_sum ? 0 : NO_STEP;
  for (int x = 0; x < mesh->n_axes; x++)
    if (((lost | axis_list_set(grown) | axis_list_set(shrunk)) >> x) & 1)
      k *= mesh->axes[x].size;
  if (lost && n == 0) return 2 * (k - 1) * ceil_div(local, k);
  if (lost)
    return n == 1 && grows >= 0 && axis_list_set(grown) == lost &&
                   is_aligned(bench, a, b, grows)
               ? (k - 1) * after
               : NO_STEP;
  int64_t best = equal_counts(bench, a, b) ? local : NO_STEP, cost = NO_STEP;
  if (n == 1 && grows >= 0)
    cost = is_aligned(bench, a, b, grows) ? 0 : most_missing(bench, a, b);
  if (n == 1 && shrinks >= 0)
    cost = is_aligned(bench, b, a, shrinks) ? (k - 1) * local
                                            : most_missing(bench, a, b);
  if (n == 2 && grows >= 0 && shrinks >= 0 && grows != shrinks &&
      axis_list_set(grown) == axis_list_set(shrunk) &&
      is_aligned(bench, a, b, grows) && is_aligned(bench, b, a, shrinks))
    cost = (k - 1) * local /
           type_local_size(a, mesh, changed[grows == changed[1]]) *
           type_local_size(b, mesh, grows);
  return cost < best ? cost : best;
}

static int common(AxisList a, AxisList b) {
  int n = 0;
  while (n < axis_list_length(a) && n < axis_list_length(b) &&
         axis_list_at(a, n) == axis_list_at(b, n))
    n++;
  return n;
}

/* Where an axis is: dim and place in its list, partial, or nowhere. */
static int where(const Type *type, int axis) {
  if (type->partial >> axis & 1) return 1000;
  for (int d = 0; d < type->rank; d++)
    for (int i = 0; i < axis_list_length(type->dims[d].split); i++)
      if (axis_list_at(type->dims[d].split, i) == axis) return 1 + 10 * d + i;
  return 0;
}

/* Only axes that differ between `from` and `to` may move on the way, on dims
 * that differ. */
static bool is_between(const Bench *bench, const Type *from, const Type *to,
                       const Type *at) {
  for (int d = 0; d < at->rank; d++)
    if (from->dims[d].split == to->dims[d].split &&
        at->dims[d].split != from->dims[d].split)
      return false;
  for (int a = 0; a < bench->mesh.n_axes; a++) {
    int x = where(from, a), y = where(to, a);
    if (x == y && x > 0 && x < 1000) {
      int d = x / 10, i = x % 10 - 1;
      if (i < common(from->dims[d].split, to->dims[d].split) &&
          where(at, a) != x)
        return false;
    } else if (x == y && where(at, a) != x) {
      return false;
    }
  }
  return true;
}

/* The best chains of one to four steps from one placement through some others.
 */
typedef struct Chains {
  bool is_between[MOST_STATES];
  int64_t best[5][MOST_STATES];
} Chains;

static void find_chains(const Bench *bench, int from, Chains *c) {
  int between[MOST_STATES], n = 0;
  for (int i = 0; i < bench->n_states; i++) {
    if (c->is_between[i]) between[n++] = i;
    for (int round = 0; round <= 4; round++)
      c->best[round][i] = i == from ? 0 : NO_STEP;
  }
  for (int round = 1; round <= 4; round++)
    for (int y = 0; y < n; y++)
      for (int x = 0; x < n; x++) {
        int i = between[x], j = between[y];
        int64_t so_far = c->best[round - 1][i], step = bench->cost[i][j];
        int64_t *best = &c->best[round][j];
        if (so_far == NO_STEP || step == NO_STEP) continue;
        if (so_far + step < *best) *best = so_far + step;
        if (c->best[round - 1][j] < *best) *best = c->best[round - 1][j];
      }
}

/* Chains from one placement, by what may lie between. */
typedef struct Known {
  int from, n;
  Chains *chains[100];
} Known;

/* Elements sent by the best chain of at most four steps. */
static int64_t brute_force(const Bench *bench, Known *known, int from, int to) {
  Chains *c = ARENA_NEW(bench->module->arena, Chains);
  if (known->from != from) *known = (Known){.from = from};
  for (int i = 0; i < bench->n_states; i++)
    c->is_between[i] = is_between(bench, bench->states[from], bench->states[to],
                                  bench->states[i]);
  for (int i = 0; i < known->n; i++)
    if (memcmp(known->chains[i]->is_between, c->is_between,
               sizeof c->is_between) == 0)
      return known->chains[i]->best[4][to];
  find_chains(bench, from, c);
  cr_assert_lt(known->n, ARRAY_LENGTH(known->chains));
  known->chains[known->n++] = c;
  return c->best[4][to];
}

/* ---- pairs ---- */

static const char *label_of(const Bench *bench, const Type *from,
                            const Type *to) {
  Text text = text_create(bench->module->arena);
  type_print(&text, from, &bench->mesh);
  text_add(&text, " -> ");
  type_print(&text, to, &bench->mesh);
  return text_string(&text);
}

/* Into partial there are two ways: to keep it, and zero fill. */
static bool is_allowed(const Bench *bench, const Type *from, const Type *to) {
  for (int a = 0; a < bench->mesh.n_axes; a++) {
    if (!(to->partial >> a & 1) || from->partial >> a & 1) continue;
    if (bench->kind != REDUCE_sum || where(from, a) != 0) return false;
  }
  return true;
}

/* A chain without permutes, which leads there as well.  It may be missing where
 * shards have axes in common and are not aligned. */
static void check_plain(Bench *bench, Resharding *plain, const Type *from,
                        const Type *to, int64_t least, const char *label) {
  ReshardStep steps[MAX_RESHARD_STEPS];
  const char *reason;
  int64_t bytes = 0;
  int n = reshard_steps(plain, from, to, steps, &reason);
  n_without_plain += n < 0;
  if (n < 0) return;
  for (int i = 0; i < n; i++) {
    bytes += steps[i].bytes;
    cr_assert(steps[i].kind != RESHARD_permute, "%s", label);
    cr_assert(steps[i].kind != RESHARD_all_to_all ||
                  steps[i].axes == steps[i].to_axes,
              "%s", label);
  }
  cr_assert(play(bench, from, steps, n, -1, label), "%s", label);
  cr_assert_geq(bytes, least, "%s", label);
}

static void check_pair(Bench *bench, Resharding *table, Resharding *plain,
                       Known *known, int a, int b) {
  const Type *from = bench->states[a], *to = bench->states[b];
  const char *label = label_of(bench, from, to), *reason;
  ReshardStep steps[MAX_RESHARD_STEPS], again[MAX_RESHARD_STEPS];
  int n = reshard_steps(table, from, to, steps, &reason);
  cr_assert_eq(n >= 0, is_allowed(bench, from, to), "%s", label);
  cr_assert_eq(reason != NULL, n < 0);
  n_refused += n < 0;
  n_pairs++;
  if (n < 0) return;
  cr_assert(type_equal(n ? steps[n - 1].type : from, to), "%s", label);
  cr_assert(play(bench, from, steps, n, -1, label), "%s", label);
  int64_t bytes = 0;
  for (int i = 0; i < n; i++) bytes += steps[i].bytes;
  check_plain(bench, plain, from, to, bytes, label);
  int64_t best = brute_force(bench, known, a, b);
  cr_assert(best == NO_STEP || bytes <= best * ELEMENT_SIZE,
            "%s: %ld bytes, brute force has %ld", label, (long)bytes,
            (long)best * ELEMENT_SIZE);
  if ((a + b) % 7 == 0) {
    Resharding *fresh = reshard_create(bench->module->arena, &bench->mesh);
    cr_assert_eq(reshard_steps(fresh, from, to, again, &reason), n);
    for (int i = 0; i < n; i++)
      cr_assert(again[i].kind == steps[i].kind &&
                    again[i].bytes == steps[i].bytes &&
                    type_equal(again[i].type, steps[i].type),
                "%s", label);
  }
  for (int i = 0; i < n && (a + b) % 3 == 0; i++) {
    if (axis_list_length(steps[i].axes) < 2 ||
        (steps[i].kind != RESHARD_slice &&
         steps[i].kind != RESHARD_all_gather &&
         steps[i].kind != RESHARD_reduce_scatter))
      continue;
    n_planted++;
    n_seen += !play(bench, from, steps, n, i, label);
  }
}

static Bench *bench_create(const int *sizes, const char *type,
                           ReduceKind kind) {
  static const char *const names[] = {"a", "b", "c", "d", "e", "f"};
  Module *module = module_create();
  Bench *bench = ARENA_NEW(module->arena, Bench);
  bench->module = module;
  bench->n_ranks = 1;
  bench->kind = kind;
  for (int a = 0; a < 6 && sizes[a]; a++) {
    bench->mesh.axes[bench->mesh.n_axes++] =
        (MeshAxis){name_intern(module->names, names[a]), sizes[a], false};
    bench->n_ranks *= sizes[a];
  }
  for (int r = 0; r < bench->n_ranks && bench->n_ranks <= MOST_RANKS; r++)
    for (int m = 0; m < bench->n_ranks; m++)
      bench->apart[r][m] = axes_apart(&bench->mesh, r, m);
  bench->logical = make_type(module, type);
  return bench;
}

static void check_all(const int *sizes, const char *type, ReduceKind kind) {
  Bench *bench = bench_create(sizes, type, kind);
  extend_states(bench, bench->logical, 0);
  for (int i = 0; i < bench->n_states; i++)
    for (int j = 0; j < bench->n_states; j++)
      bench->cost[i][j] = step_cost(bench, bench->states[i], bench->states[j]);
  Resharding *table = reshard_create(bench->module->arena, &bench->mesh);
  Resharding *plain = reshard_create_plain(bench->module->arena, &bench->mesh);
  Known known = {.from = -1};
  for (int i = 0; i < bench->n_states; i++)
    for (int j = 0; j < bench->n_states; j++)
      check_pair(bench, table, plain, &known, i, j);
  modules_destroy();
}

static const char *const types[] = {"f32 A:7",     "f32 A:5",
                                    "f32 A:4",     "f32 A:7 B:5",
                                    "f32 A:5 B:4", "f32 A:7 B:5 C:4"};
static const int meshes[][6] = {{5}, {2, 3}, {2, 2, 2}};

Test(reshard, every_pair) {
  for (int m = 0; m < ARRAY_LENGTH(meshes); m++)
    for (int t = 0; t < ARRAY_LENGTH(types); t++)
      for (int kind = REDUCE_sum; kind <= (t < 4 ? REDUCE_max : REDUCE_sum);
           kind++)
        check_all(meshes[m], types[t], (ReduceKind)kind);
  cr_assert_gt(n_pairs, 60000);
  cr_assert_gt(n_planted, 1000);
  cr_assert_gt(100 * n_seen, 99 * n_planted); /* some move padding alone */
  fprintf(
      stderr,
      "%ld pairs, %ld of them refused, %ld without a plain chain, %ld steps "
      "executed, %ld of %ld planted faults seen\n",
      (long)n_pairs, (long)n_refused, (long)n_without_plain, (long)n_steps,
      (long)n_seen, (long)n_planted);
}

/* ---- single questions ---- */

typedef struct Question {
  const char *from, *to, *chain;
} Question;

/* On mesh(data = 2, tensor = 4, time = 3~); what follows a name is its bytes.
 */
static const Question questions[] = {
    {"f32[B:8@data]", "f32[B:8@data]", ""},
    {"f32[B:8]", "f32[B:8@data]", "slice 0"},
    {"f32[B:8@tensor]", "f32[B:8]", "all_gather 24"},
    {"f32[B:8; sum@tensor]", "f32[B:8]", "all_reduce 48"},
    {"f32[B:8; sum@tensor]", "f32[B:8@tensor]", "reduce_scatter 24"},
    {"f32[B:8@tensor, C:4]", "f32[B:8, C:4@tensor]", "all_to_all 24"},
    {"f32[B:8@(data, tensor)]", "f32[B:8@(tensor, data)]", "permute 4"},
    {"f32[B:8]", "f32[B:8; sum@tensor]", "zero_fill 0"},
    {"f32[B:8; sum@tensor]", "f32[B:8; sum@(data, tensor)]", "zero_fill 0"},
    {"f32[B:8; max@tensor]", "f32[B:8; sum@data]",
     "all_reduce 48, zero_fill 0"},
    /* the outer axis leaves: the inner one must come first */
    {"f32[B:8@(data, tensor)]", "f32[B:8@tensor]", "permute 4, all_gather 4"},
    /* Sums over two axes: 4 elements are sent to the other half, then
     * 2 x 3 x 1 of the 4 that remain.  A reduce_scatter over both and an
     * all_gather send 7 + 3, which is as much, and come later in the order. */
    {"f32[B:8; sum@(data, tensor)]", "f32[B:8@data]",
     "reduce_scatter 16, all_reduce 24"},
    /* experts: tokens over both axes, experts over one */
    {"f32[E:4, B:8@(data, tensor), C:2]", "f32[E:4@tensor, B:8@data, C:2]",
     "all_to_all 24"},
    /* micro-batches: joined in memory; a sum over ranks waits for all */
    {"f32[C:8; sum@(data, time)]", "f32[C:8]", "all_reduce 0, all_reduce 32"},
    {"f32[C:8; sum@(data, time)]", "f32[C:8; sum@time]", "all_reduce 96"},
    {"f32[B:12@(data, time)]", "f32[B:12@data]", "all_gather 0"},
    {"f32[B:12@data]", "f32[B:12@(data, time)]", "slice 0"},
    {"f32[B:12]", "f32[B:12@(data, time)]", "slice 0"},
    /* uneven: 5 over 2 x 4 is no part of 5 over 2 */
    {"f32[B:5@data]", "f32[B:5@(data, tensor)]", "permute 4"},
    /* Shards of 1 element joined at once: 7.  A rank that has element 3 lacks
     * elements 0 to 2 of its shard over data; then 3 come from the other. */
    {"f32[B:5@(data, tensor)]", "f32[B:5]", "permute 12, all_gather 12"},
    /* into partial */
    {"f32[B:8@data]", "f32[B:8; sum@data]",
     "axis 'data' shards the value; only a replicated value becomes a partial "
     "sum"},
    {"f32[B:8]", "f32[B:8; max@data]",
     "a value that is replicated over 'data' becomes a partial sum only, not a "
     "partial max"},
    {"f32[B:8; max@data]", "f32[B:8; sum@data]",
     "a partial max over 'data' is no partial sum"},
    {"f32[B:8]", "f32[B:8; sum@time]",
     "a value that exists once per step is not a partial sum over "
     "micro-batches ('time')"},
};

static const Type *parse_type(Module *module, const char *text, Mesh *mesh) {
  Source *source = ARENA_NEW(module->arena, Source);
  char *all = arena_printf(module->arena,
                           "graph g mesh(data = 2, tensor = 4, time = 3~) { "
                           "%%0 = input {index = 0} : %s data \"x\" }",
                           text);
  *source = (Source){"type", all, (int)strlen(all)};
  Graph *graph = graph_parse(module, source);
  cr_assert(graph, "%s", text);
  *mesh = graph->mesh;
  return graph->nodes.data[0]->types[0];
}

Test(reshard, questions) {
  Module *module = module_create();
  for (int i = 0; i < ARRAY_LENGTH(questions); i++) {
    Mesh mesh;
    const char *reason;
    ReshardStep steps[MAX_RESHARD_STEPS];
    const Type *from = parse_type(module, questions[i].from, &mesh);
    const Type *to = parse_type(module, questions[i].to, &mesh);
    Resharding *table = reshard_create(module->arena, &mesh);
    int n = reshard_steps(table, from, to, steps, &reason);
    Text text = text_create(module->arena);
    for (int k = 0; k < n; k++)
      text_printf(&text, "%s%s %ld", k ? ", " : "", reshard_name(steps[k].kind),
                  (long)steps[k].bytes);
    cr_expect_str_eq(n < 0 ? reason : text_string(&text), questions[i].chain,
                     "%s -> %s", questions[i].from, questions[i].to);
  }
}

/* A remembered chain has the dims of who asks. */
Test(reshard, other_names) {
  Module *module = module_create();
  Mesh mesh;
  const char *reason;
  ReshardStep steps[MAX_RESHARD_STEPS];
  const Type *from = parse_type(module, "f32[B:8@tensor, C:4]", &mesh);
  const Type *to = parse_type(module, "f32[B:8, C:4@tensor]", &mesh);
  Resharding *table = reshard_create(module->arena, &mesh);
  cr_assert_eq(reshard_steps(table, from, to, steps, &reason), 1);
  from = parse_type(module, "i32[X:8@tensor, Y:4]", &mesh);
  to = parse_type(module, "i32[X:8, Y:4@tensor]", &mesh);
  cr_assert_eq(reshard_steps(table, from, to, steps, &reason), 1);
  cr_assert(type_equal(steps[0].type, to));
}

/* Six axes that all move are answered in time. */
Test(reshard, six_axes) {
  static const int sizes[6] = {2, 2, 2, 2, 3, 2};
  Bench *bench = bench_create(sizes, "f32 A:96 B:96 C:7", REDUCE_sum);
  Type *from = arena_copy(bench->module->arena, bench->logical,
                          sizeof(Type) + 3 * sizeof(Dim));
  Type *to = arena_copy(bench->module->arena, bench->logical,
                        sizeof(Type) + 3 * sizeof(Dim));
  from->dims[0].split = 0x321;
  from->dims[1].split = 0x54;
  from->partial = 1 << 5;
  to->dims[0].split = 0x54;
  to->dims[1].split = 0x612;
  to->dims[2].split = 0x3;
  const char *reason;
  ReshardStep steps[MAX_RESHARD_STEPS];
  Resharding *table = reshard_create(bench->module->arena, &bench->mesh);
  int n = reshard_steps(table, from, to, steps, &reason);
  cr_assert_gt(n, 0);
  cr_assert(type_equal(steps[n - 1].type, to));
}
