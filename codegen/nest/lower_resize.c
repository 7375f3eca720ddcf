/*
 * lower_resize.c -- lowers resize and its transpose to loop nests.
 *
 * Element i of the n of y reads x, of `size` elements, at the position
 * ((2 i + 1) size - n) / (2 n): the nearest element, or one or two on each
 * side, with weights that depend on the fraction.  Taps outside x read its
 * ends.
 *
 * With n = g p and size = g q, elements i and i + p read at positions that are
 * q apart, so both have the same weights.  For a small p the loop over the dim
 * is one over g blocks, whose elements are unrolled with weights that are known
 * at compile time; p = 2 and q = 1, linear:
 *
 *     y[2 b]     = 0.25 x[b - 1] + 0.75 x[b]
 *     y[2 b + 1] = 0.75 x[b] + 0.25 x[b + 1]
 *
 * The transpose has the same form with blocks of q elements:
 *
 *     x[b] = 0.25 y[2 b - 1] + 0.75 y[2 b] + 0.75 y[2 b + 1] + 0.25 y[2 b + 2]
 *
 * In the first and the last blocks an element outside gives 0, and the weight
 * of the element at the end includes the taps that are clamped to it.
 *
 * For other ratios the weights are computed.  The transpose then sums over the
 * window of those elements of y whose taps may touch an element of x.
 */
#include "codegen/nest/lower.h"

#define MAX_UNROLLED_TERMS  32
#define MAX_UNROLLED_STORES 8
#define MAX_UNROLLED_RATIO  64 /* elements of x for one of y */
#define END_BLOCKS          4  /* blocks with clamped taps, at either end */

typedef struct Resize {
  Name dim;
  bool is_reverse;
  int64_t n, size; /* of y and x */
  int side, n_taps;
  DType dtype; /* of the weights */
  Space space; /* of the result */
} Resize;

static Resize read_resize(const Lower *lower) {
  const Node *node = lower->node;
  Resize r = {.dim = node_name(node, ATTR_dim)};
  r.is_reverse = node_int(node, ATTR_reverse, 0) != 0;
  int64_t before = type_size(lower->input_types[0], r.dim);
  int64_t after = type_size(node->types[0], r.dim);
  r.n = r.is_reverse ? before : after;
  r.size = r.is_reverse ? after : before;
  int n;
  r.side = (int)node_ints(node, ATTR_window, &n)[0];
  r.n_taps = r.side == 0 ? 1 : 2 * r.side;
  r.dtype = lower_work_dtype(node->types[0]->dtype);
  return r;
}

/* The first tap of position floor + fraction: floor + this.  The nearest
 * element is the floor of a position that is half an element further. */
static int first_resize_tap(const Resize *r) {
  return r->side == 0 ? 0 : 1 - r->side;
}

/* The numerator of position i is 2 size i + this, its denominator 2 n. */
static int64_t resize_position_base(const Resize *r) {
  return r->side == 0 ? r->size : r->size - r->n;
}

static int64_t floor_quotient(int64_t a, int64_t b) {
  int64_t q = a / b;
  return a % b < 0 ? q - 1 : q;
}

/* Loops over the dims of the result, `extent` iterations of the resized one,
 * whose coordinate is returned. */
static Coord resize_loops(Lower *lower, Resize *r, int64_t extent) {
  const Type *type = lower->node->types[0];
  Coord at = coord_zero();
  for (int d = 0; d < type->rank; d++) {
    Name name = type->dims[d].name;
    bool is_resized = name == r->dim;
    Coord coord = lower_outer(lower, name,
                              is_resized ? extent : lower_size(lower, type, d));
    space_add(&r->space, name, coord);
    if (is_resized) at = coord;
  }
  return at;
}

static int load_resized(Lower *lower, const Resize *r, Coord at) {
  const Type *type = lower->input_types[0];
  Coord coords[MAX_RANK];
  space_coords(&r->space, type, coords);
  coords[type_find(type, r->dim)] = at;
  int load = lower_load(lower, lower_input_buffer(lower, 0), type, coords);
  return lower_cast(lower, load, r->dtype);
}

static void store_resized(Lower *lower, const Resize *r, Coord at, int value) {
  const Type *type = lower->node->types[0];
  Coord coords[MAX_RANK];
  space_coords(&r->space, type, coords);
  coords[type_find(type, r->dim)] = at;
  lower_store(lower, NEST_store, lower_result_buffer(lower, 0), type, coords,
              value);
}

static int resize_pw(Lower *lower, Op op, DType dtype, int a, int b) {
  return lower_pw(lower, op, dtype, a, b, -1);
}

/* ---- small ratios: weights that are known ---- */

/* Cubic convolution with a = -0.75, at a distance of t and of 1 + t. */
static double cubic_near(double t) {
  return (1.25 * t - 2.25) * t * t + 1;
}

static double cubic_far(double t) {
  return -0.75 * t * (1 - t) * (1 - t);
}

static double resize_tap_weight(const Resize *r, int tap, double t) {
  if (r->side == 0) return 1;
  if (r->side == 1) return tap == 0 ? 1 - t : t;
  const double weights[] = {cubic_far(t), cubic_near(t), cubic_near(1 - t),
                            cubic_far(1 - t)};
  return weights[tap];
}

/* The weight with which element i of y reads element j of x.  Both may lie
 * outside, as in arrays without ends, but j only if taps are not clamped. */
static double weight_between(const Resize *r, int64_t i, int64_t j,
                             bool is_clamped) {
  int64_t numerator = 2 * r->size * i + resize_position_base(r);
  int64_t floor = floor_quotient(numerator, 2 * r->n);
  double t = (double)(numerator - floor * 2 * r->n) / (double)(2 * r->n);
  double sum = 0;
  for (int k = 0; k < r->n_taps; k++) {
    int64_t at = floor + first_resize_tap(r) + k;
    if (is_clamped) at = at < 0 ? 0 : at < r->size ? at : r->size - 1;
    if (at == j) sum += resize_tap_weight(r, k, t);
  }
  return sum;
}

/* The loop over blocks and how many elements of either side a block has. */
typedef struct Blocks {
  int64_t n, n_stored, n_read;
  Coord at;
} Blocks;

static Blocks find_blocks(const Resize *r) {
  int64_t n = common_divisor(r->n, r->size);
  int64_t p = r->n / n, q = r->size / n;
  return (Blocks){.n = n,
                  .n_stored = r->is_reverse ? q : p,
                  .n_read = r->is_reverse ? p : q};
}

static bool is_unrolled(const Resize *r, const Blocks *blocks) {
  int64_t p = r->is_reverse ? blocks->n_read : blocks->n_stored;
  return blocks->n_stored <= MAX_UNROLLED_STORES &&
         blocks->n_read / blocks->n_stored <= MAX_UNROLLED_RATIO &&
         p <= MAX_UNROLLED_TERMS / r->n_taps;
}

/* The weight of a term in block b. */
static double block_weight(const Resize *r, const Blocks *blocks, int64_t b,
                           int64_t stored, int64_t read, bool is_clamped) {
  int64_t to = b * blocks->n_stored + stored, from = b * blocks->n_read + read;
  return r->is_reverse ? weight_between(r, from, to, is_clamped)
                       : weight_between(r, to, from, is_clamped);
}

/* The weight as an expression: that of inner blocks, but for those at the ends
 * that have another one.  -1: it is 0 everywhere; *out_is_one: it is 1. */
static int weight_value(Lower *lower, const Resize *r, const Blocks *blocks,
                        int64_t stored, int64_t read, bool *out_is_one) {
  double usual = block_weight(r, blocks, 0, stored, read, false);
  int value = lower_const(lower, r->dtype, usual);
  bool is_zero = usual == 0;
  *out_is_one = usual == 1;
  for (int64_t b = 0; b < blocks->n; b++) {
    if (b == END_BLOCKS && b < blocks->n - END_BLOCKS)
      b = blocks->n - END_BLOCKS;
    int64_t from = b * blocks->n_read + read;
    bool is_inside = from >= 0 && from < (r->is_reverse ? r->n : r->size);
    double weight = block_weight(r, blocks, b, stored, read, true);
    if (!is_inside || weight == usual) continue;
    is_zero = *out_is_one = false;
    int here = resize_pw(lower, OP_eq, DT_bool, coord_value(lower, blocks->at),
                         lower_const(lower, DT_i64, (double)b));
    value = lower_pw(lower, OP_select, r->dtype, here,
                     lower_const(lower, r->dtype, weight), value);
  }
  return is_zero ? -1 : value;
}

/* Element `stored` of each block of the result. */
static int block_element(Lower *lower, const Resize *r, const Blocks *blocks,
                         int64_t stored) {
  int64_t limit = r->is_reverse ? r->n : r->size;
  int64_t middle = stored * blocks->n_read / blocks->n_stored;
  int64_t reach = (r->side + 1) * blocks->n_read / blocks->n_stored + 3;
  int sum = -1;
  for (int64_t read = middle - reach; read <= middle + reach; read++) {
    bool is_one;
    int weight = weight_value(lower, r, blocks, stored, read, &is_one);
    if (weight < 0) continue;
    Coord at = coord_add(coord_scale(blocks->at, blocks->n_read), read);
    lower_guard_if_needed(lower, at, limit);
    int term = load_resized(lower, r, at);
    lower->n_guards = 0;
    if (!is_one) term = resize_pw(lower, OP_mul, r->dtype, weight, term);
    sum = sum < 0 ? term : resize_pw(lower, OP_add, r->dtype, sum, term);
  }
  return sum < 0 ? lower_const(lower, r->dtype, 0) : sum;
}

static void lower_blocks(Lower *lower, Resize *r, Blocks *blocks) {
  blocks->at = resize_loops(lower, r, blocks->n);
  lower_stage(lower);
  lower_stage_ready(lower);
  for (int64_t i = 0; i < blocks->n_stored; i++)
    store_resized(lower, r,
                  coord_add(coord_scale(blocks->at, blocks->n_stored), i),
                  block_element(lower, r, blocks, i));
}

/* ---- other ratios: weights that are computed ---- */

static int integer_const(Lower *lower, int64_t value) {
  return lower_const(lower, DT_i64, (double)value);
}

/* The first tap of element i of y, and the weights of all. */
static int computed_taps(Lower *lower, const Resize *r, int i, int *out) {
  DType dtype = r->dtype;
  int by = integer_const(lower, 2 * r->n);
  int position = resize_pw(
      lower, OP_add, DT_i64,
      resize_pw(lower, OP_mul, DT_i64, i, integer_const(lower, 2 * r->size)),
      integer_const(lower, resize_position_base(r)));
  int floor = resize_pw(lower, OP_floordiv, DT_i64, position, by);
  int rest = resize_pw(lower, OP_mod, DT_i64, position, by);
  int one = lower_const(lower, dtype, 1);
  int t = resize_pw(lower, OP_div, dtype, lower_cast(lower, rest, dtype),
                    lower_const(lower, dtype, (double)(2 * r->n)));
  int u = resize_pw(lower, OP_sub, dtype, one, t);
  out[0] = r->side == 0 ? one : u;
  out[1] = t;
  for (int end = 0; end < 2 && r->side == 2; end++) {
    int d = end ? u : t, rest_of_d = end ? t : u; /* 1 - d */
    int square = resize_pw(lower, OP_mul, dtype, rest_of_d, rest_of_d);
    int far =
        resize_pw(lower, OP_mul, dtype, d, lower_const(lower, dtype, -0.75));
    int near =
        resize_pw(lower, OP_mul, dtype, d, lower_const(lower, dtype, 1.25));
    near =
        resize_pw(lower, OP_sub, dtype, near, lower_const(lower, dtype, 2.25));
    near = resize_pw(lower, OP_mul, dtype, near,
                     resize_pw(lower, OP_mul, dtype, d, d));
    out[end ? 3 : 0] = resize_pw(lower, OP_mul, dtype, far, square);
    out[end ? 2 : 1] = resize_pw(lower, OP_add, dtype, near, one);
  }
  return resize_pw(lower, OP_add, DT_i64, floor,
                   integer_const(lower, first_resize_tap(r)));
}

static int resize_tap_index(Lower *lower, int first, int k) {
  return resize_pw(lower, OP_add, DT_i64, first, integer_const(lower, k));
}

static void lower_computed(Lower *lower, Resize *r) {
  Coord i = resize_loops(lower, r, r->n);
  lower_stage(lower);
  lower_stage_ready(lower);
  int weights[4], sum = -1;
  int first = computed_taps(lower, r, coord_value(lower, i), weights);
  for (int k = 0; k < r->n_taps; k++) {
    int j = resize_tap_index(lower, first, k);
    int term = load_resized(lower, r, coord_of_expr(j, r->size));
    if (r->side > 0)
      term = resize_pw(lower, OP_mul, r->dtype, weights[k], term);
    sum = sum < 0 ? term : resize_pw(lower, OP_add, r->dtype, sum, term);
  }
  store_resized(lower, r, i, sum);
}

/* Returns the weight as an expression; 0 for an i outside y. */
static int computed_weight(Lower *lower, const Resize *r, int i, int j) {
  int weights[4], zero = lower_const(lower, r->dtype, 0), sum = -1;
  int first = computed_taps(lower, r, i, weights);
  int last = integer_const(lower, r->size - 1);
  for (int k = 0; k < r->n_taps; k++) {
    int at =
        resize_pw(lower, OP_maximum, DT_i64, resize_tap_index(lower, first, k),
                  integer_const(lower, 0));
    at = resize_pw(lower, OP_minimum, DT_i64, at, last);
    int hits = resize_pw(lower, OP_eq, DT_bool, at, j);
    int weight = lower_pw(lower, OP_select, r->dtype, hits, weights[k], zero);
    sum = sum < 0 ? weight : resize_pw(lower, OP_add, r->dtype, sum, weight);
  }
  int low = resize_pw(lower, OP_ge, DT_bool, i, integer_const(lower, 0));
  int high = resize_pw(lower, OP_lt, DT_bool, i, integer_const(lower, r->n));
  return lower_pw(lower, OP_select, r->dtype,
                  resize_pw(lower, OP_and, DT_bool, low, high), sum, zero);
}

/* The first element of y whose last tap is j or beyond, and from there on as
 * many as positions fit into the taps. */
static void lower_computed_reverse(Lower *lower, Resize *r) {
  Coord j = resize_loops(lower, r, r->size);
  int64_t window = (r->n_taps * r->n + r->size - 1) / r->size;
  if (window > r->n) window = r->n;
  lower_stage(lower);
  Coord o = lower_inner(lower, r->dim, window);
  lower_stage_ready(lower);
  int64_t by = 2 * r->size;
  int64_t base = -2 * r->n * r->side - resize_position_base(r) + by - 1;
  int first =
      resize_pw(lower, OP_floordiv, DT_i64,
                coord_value(lower, coord_add(coord_scale(j, 2 * r->n), base)),
                integer_const(lower, by));
  int i = resize_pw(lower, OP_add, DT_i64, first, coord_value(lower, o));
  int weight = computed_weight(lower, r, i, coord_value(lower, j));
  int zero = lower_const(lower, r->dtype, 0);
  int term = resize_pw(lower, OP_mul, r->dtype, weight,
                       load_resized(lower, r, coord_of_expr(i, r->n)));
  int counts = resize_pw(lower, OP_ne, DT_bool, weight, zero);
  term = lower_pw(lower, OP_select, r->dtype, counts, term, zero);
  int sum = lower_reduce(lower, NEST_sum, r->dtype, term);
  lower_stage(lower);
  lower_stage_ready(lower);
  store_resized(lower, r, j, sum);
}

void lower_resize(Lower *lower) {
  Resize r = read_resize(lower);
  Blocks blocks = find_blocks(&r);
  if (is_unrolled(&r, &blocks))
    lower_blocks(lower, &r, &blocks);
  else if (r.is_reverse)
    lower_computed_reverse(lower, &r);
  else
    lower_computed(lower, &r);
}
