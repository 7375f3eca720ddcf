/*
 * lower_window.c -- lowers pools, and convolutions that no library takes, to
 * loop nests.
 *
 * A window touches x at `o * stride - pad + k * dilate` for output position o
 * and window position k.  Guards protect loads where padding is possible.  A
 * gradient of x either gathers (stride 1), or is cleared and then accumulated
 * window by window, in parallel over the dims that the window does not slide
 * along.
 */
#include <math.h>

#include "codegen/nest/lower.h"

#define MAX_SPACE 3

typedef struct Window {
  int n;
  Name dim[MAX_SPACE];
  int64_t in[MAX_SPACE], out[MAX_SPACE], size[MAX_SPACE];
  int64_t stride[MAX_SPACE], pad[MAX_SPACE], dilate[MAX_SPACE];
} Window;

/* ---- attributes of the node ---- */

static void fill_window_attr(const Node *node, AttrKey key, int n,
                             int64_t if_absent, int64_t *out) {
  int given = 0;
  const int64_t *values = node_ints(node, key, &given);
  for (int i = 0; i < n; i++)
    out[i] = given == 0 ? if_absent : values[i < given ? i : given - 1];
}

static int64_t dim_size(const Lower *lower, const Type *type, Name name) {
  int at = type_find(type, name);
  ASSERT(at >= 0);
  return lower_size(lower, type, at);
}

/* `x`, `y`: types of the large and the small side; `w` has the window sizes,
 * or NULL where an attribute does. */
static Window read_window(const Lower *lower, const Type *x, const Type *y,
                          const Type *w) {
  const Node *node = lower->node;
  Window window = {0};
  const Name *space = node_names(node, ATTR_space, &window.n);
  ASSERT(window.n <= MAX_SPACE);
  if (!w) fill_window_attr(node, ATTR_window, window.n, 1, window.size);
  fill_window_attr(node, ATTR_pad, window.n, 0, window.pad);
  fill_window_attr(node, ATTR_dilate, window.n, 1, window.dilate);
  for (int i = 0; i < window.n; i++) {
    window.dim[i] = space[i];
    window.in[i] = dim_size(lower, x, space[i]);
    window.out[i] = dim_size(lower, y, space[i]);
    if (w) window.size[i] = dim_size(lower, w, space[i]);
  }
  if (w)
    fill_window_attr(node, ATTR_stride, window.n, 1, window.stride);
  else if (node_has(node, ATTR_stride))
    fill_window_attr(node, ATTR_stride, window.n, 1, window.stride);
  else
    for (int i = 0; i < window.n; i++) window.stride[i] = window.size[i];
  return window;
}

static bool is_window_dim(const Window *window, Name name) {
  for (int i = 0; i < window->n; i++)
    if (window->dim[i] == name) return true;
  return false;
}

/* ---- loops and places ---- */

static void outer_dims(Lower *lower, Space *space, const Type *type,
                       const Window *skip) {
  for (int d = 0; d < type->rank; d++) {
    Name name = type->dims[d].name;
    if (skip && is_window_dim(skip, name)) continue;
    space_add(space, name,
              lower_outer(lower, name, lower_size(lower, type, d)));
  }
}

/* Inner loops over dims of `type` that are neither in the space nor slid. */
static void inner_rest(Lower *lower, Space *space, const Type *type,
                       const Window *window) {
  for (int d = 0; d < type->rank; d++) {
    Name name = type->dims[d].name;
    if (is_window_dim(window, name) || space_find(space, name)) continue;
    space_add(space, name,
              lower_inner(lower, name, lower_size(lower, type, d)));
  }
}

static void inner_slid(Lower *lower, const Window *window,
                       const int64_t *extents, Coord *out) {
  for (int i = 0; i < window->n; i++)
    out[i] = lower_inner(lower, window->dim[i], extents[i]);
}

/* Coordinates of x under output positions `o` and window positions `k`;
 * pushes the guards. */
static void input_coords(Lower *lower, const Window *window, const Coord *o,
                         const Coord *k, Coord *out) {
  for (int i = 0; i < window->n; i++) {
    out[i] = coord_sum(lower, coord_scale(o[i], window->stride[i]),
                       coord_scale(k[i], window->dilate[i]));
    out[i] = coord_add(out[i], -window->pad[i]);
    lower_guard_if_needed(lower, out[i], window->in[i]);
  }
}

/* Coordinates of `type`: slid dims from `slid` (NULL: from the space). */
static void window_coords(const Space *space, const Window *window,
                          const Coord *slid, const Type *type, Coord *out) {
  space_coords(space, type, out);
  if (!slid) return;
  for (int i = 0; i < window->n; i++) {
    int at = type_find(type, window->dim[i]);
    if (at >= 0) out[at] = slid[i];
  }
}

static int load_slid(Lower *lower, const Space *space, const Window *window,
                     int input, const Coord *slid) {
  Coord coords[MAX_RANK];
  const Type *type = lower->input_types[input];
  window_coords(space, window, slid, type, coords);
  return lower_load(lower, lower_input_buffer(lower, input), type, coords);
}

static void store_slid(Lower *lower, const Space *space, const Window *window,
                       NestStmtKind kind, const Coord *slid, int expr) {
  Coord coords[MAX_RANK];
  const Type *type = lower->node->types[0];
  window_coords(space, window, slid, type, coords);
  lower_store(lower, kind, lower_result_buffer(lower, 0), type, coords, expr);
}

static void out_coords(const Space *space, const Window *window, Coord *out) {
  for (int i = 0; i < window->n; i++) {
    const Coord *coord = space_find(space, window->dim[i]);
    out[i] = coord ? *coord : coord_zero();
  }
}

static void store_stage(Lower *lower, const Space *space, int expr) {
  Window none = {0};
  lower_stage(lower);
  lower_stage_ready(lower);
  store_slid(lower, space, &none, NEST_store, NULL, expr);
}

static int multiply_values(Lower *lower, int a, int b) {
  DType dtype = lower_work_dtype(lower->node->types[0]->dtype);
  return lower_pw(lower, OP_mul, dtype, lower_cast(lower, a, dtype),
                  lower_cast(lower, b, dtype), -1);
}

static int reduce_sum(Lower *lower, int expr) {
  DType dtype = lower_work_dtype(lower->node->types[0]->dtype);
  return lower_reduce(lower, NEST_sum, dtype, expr);
}

/* Stage that clears the slid dims of the result for an outer point. */
static void clear_stage(Lower *lower, const Space *space,
                        const Window *window) {
  Coord slid[MAX_SPACE];
  lower_stage(lower);
  inner_slid(lower, window, window->in, slid);
  lower_stage_ready(lower);
  int zero = lower_const(lower, lower->node->types[0]->dtype, 0);
  store_slid(lower, space, window, NEST_store, slid, zero);
}

/* ---- convolutions ---- */

/* A convolution and the gradient of its weights: to each element of the result
 * belongs a slid position (of y; of the window) and the sum runs over the other
 * one and over what else only the operands have. */
static void correlate(Lower *lower, bool is_weight_grad) {
  const Type *x = lower->input_types[0], *other = lower->input_types[1];
  const Type *result = lower->node->types[0];
  Window window = is_weight_grad ? read_window(lower, x, other, result)
                                 : read_window(lower, x, result, other);
  Space space = {0};
  Coord own[MAX_SPACE] = {0}, summed[MAX_SPACE] = {0}, at[MAX_SPACE];
  outer_dims(lower, &space, result, NULL);
  int n_outer = space.n;
  out_coords(&space, &window, own);
  lower_stage(lower);
  inner_rest(lower, &space, is_weight_grad ? other : x, &window);
  inner_slid(lower, &window, is_weight_grad ? window.out : window.size, summed);
  lower_stage_ready(lower);
  int factor = load_slid(lower, &space, &window, 1, summed);
  if (is_weight_grad)
    input_coords(lower, &window, summed, own, at);
  else
    input_coords(lower, &window, own, summed, at);
  int value = load_slid(lower, &space, &window, 0, at);
  lower->n_guards = 0;
  int sum = reduce_sum(lower, multiply_values(lower, value, factor));
  space.n = n_outer;
  store_stage(lower, &space, sum);
}

void lower_conv(Lower *lower) {
  correlate(lower, false);
}

void lower_conv_weight_grad(Lower *lower) {
  correlate(lower, true);
}

/* dx[p] = sum over k of dy[p + pad - k dilate] w[k], for stride 1. */
static void input_grad_gather(Lower *lower, const Window *window) {
  Space space = {0};
  Coord p[MAX_SPACE] = {0}, k[MAX_SPACE], at[MAX_SPACE];
  outer_dims(lower, &space, lower->node->types[0], NULL);
  int n_outer = space.n;
  out_coords(&space, window, p);
  lower_stage(lower);
  inner_rest(lower, &space, lower->input_types[0], window);
  inner_slid(lower, window, window->size, k);
  lower_stage_ready(lower);
  int weight = load_slid(lower, &space, window, 1, k);
  for (int i = 0; i < window->n; i++) {
    at[i] = coord_sum(lower, p[i], coord_scale(k[i], -window->dilate[i]));
    at[i] = coord_add(at[i], window->pad[i]);
    lower_guard_if_needed(lower, at[i], window->out[i]);
  }
  int value = load_slid(lower, &space, window, 0, at);
  lower->n_guards = 0;
  int sum = reduce_sum(lower, multiply_values(lower, value, weight));
  space.n = n_outer;
  store_stage(lower, &space, sum);
}

static void input_grad_scatter(Lower *lower, const Window *window) {
  Space space = {0};
  Coord o[MAX_SPACE] = {0}, k[MAX_SPACE] = {0}, at[MAX_SPACE];
  outer_dims(lower, &space, lower->node->types[0], window);
  clear_stage(lower, &space, window);
  lower_stage(lower);
  inner_rest(lower, &space, lower->input_types[0], window);
  inner_slid(lower, window, window->out, o);
  inner_slid(lower, window, window->size, k);
  lower_stage_ready(lower);
  int value = load_slid(lower, &space, window, 0, o);
  int weight = load_slid(lower, &space, window, 1, k);
  int term = multiply_values(lower, value, weight);
  input_coords(lower, window, o, k, at);
  store_slid(lower, &space, window, NEST_accumulate, at, term);
  lower->n_guards = 0;
}

void lower_conv_input_grad(Lower *lower) {
  Window window = read_window(lower, lower->node->types[0],
                              lower->input_types[0], lower->input_types[1]);
  bool is_dense = true;
  for (int i = 0; i < window.n; i++) is_dense &= window.stride[i] == 1;
  if (is_dense)
    input_grad_gather(lower, &window);
  else
    input_grad_scatter(lower, &window);
}

/* ---- pools ---- */

static void set_outside(Lower *lower, int load, double value) {
  lower->nest->exprs.data[load].at->outside = value;
}

void lower_maxpool(Lower *lower) {
  const Type *y = lower->node->types[0];
  Window window = read_window(lower, lower->input_types[0], y, NULL);
  Space space = {0};
  Coord o[MAX_SPACE] = {0}, k[MAX_SPACE] = {0}, at[MAX_SPACE];
  outer_dims(lower, &space, y, NULL);
  out_coords(&space, &window, o);
  lower_stage(lower);
  inner_slid(lower, &window, window.size, k);
  lower_stage_ready(lower);
  input_coords(lower, &window, o, k, at);
  int value = load_slid(lower, &space, &window, 0, at);
  set_outside(lower, value, -INFINITY);
  lower->n_guards = 0;
  int most = lower_reduce(lower, NEST_max, lower_work_dtype(y->dtype), value);
  store_stage(lower, &space, most);
}

/* x at a position of the window is the maximum of the window: it equals it, or
 * is NaN, which then is the maximum.  Padding is neither. */
static int is_maximum(Lower *lower, const Space *space, const Window *window,
                      const Coord *at, int most) {
  DType dtype = lower_work_dtype(lower->input_types[0]->dtype);
  int value = load_slid(lower, space, window, 0, at);
  set_outside(lower, value, NAN);
  int number = lower_cast(lower, value, dtype);
  int is_equal = lower_pw(lower, OP_eq, DT_bool, number, most, -1);
  if (dtype_class(dtype) != CLASS_FLOAT) return is_equal;
  if (lower->n_guards > 0)
    number = lower_cast(lower, load_slid(lower, space, window, 0, at), dtype);
  int is_nan = lower_pw(lower, OP_ne, DT_bool, number, number, -1);
  return lower_pw(lower, OP_or, DT_bool, is_equal, is_nan, -1);
}

/* The window is unrolled: position by position, the first that is the maximum
 * takes the gradient. */
void lower_maxpool_grad(Lower *lower) {
  const Type *x = lower->input_types[0], *y = lower->input_types[1];
  DType dtype = lower_work_dtype(x->dtype);
  Window window = read_window(lower, x, y, NULL);
  Space space = {0};
  Coord o[MAX_SPACE] = {0}, k[MAX_SPACE] = {0}, at[MAX_SPACE];
  outer_dims(lower, &space, lower->node->types[0], &window);
  clear_stage(lower, &space, &window);
  lower_stage(lower);
  inner_slid(lower, &window, window.out, o);
  lower_stage_ready(lower);
  int most = lower_cast(lower, load_slid(lower, &space, &window, 1, o), dtype);
  int grad = lower_cast(lower, load_slid(lower, &space, &window, 2, o), dtype);
  int zero = lower_const(lower, dtype, 0), found = -1;
  int64_t n = 1;
  for (int i = 0; i < window.n; i++) n *= window.size[i];
  for (int64_t j = 0; j < n; j++) {
    int64_t rest = j;
    for (int i = window.n - 1; i >= 0; i--) {
      k[i] = coord_add(coord_zero(), rest % window.size[i]);
      rest /= window.size[i];
    }
    input_coords(lower, &window, o, k, at);
    int hit = is_maximum(lower, &space, &window, at, most);
    int is_new = hit;
    if (found >= 0) {
      int none = lower_pw(lower, OP_not, DT_bool, found, -1, -1);
      is_new = lower_pw(lower, OP_and, DT_bool, hit, none, -1);
    }
    found = found < 0 ? hit : lower_pw(lower, OP_or, DT_bool, found, hit, -1);
    int term = lower_pw(lower, OP_select, dtype, is_new, grad, zero);
    store_slid(lower, &space, &window, NEST_accumulate, at, term);
    lower->n_guards = 0;
  }
}

/* How many elements the window at `o` averages over, as a float. */
static int window_count(Lower *lower, const Window *window, const Coord *o) {
  DType dtype = lower_work_dtype(lower->node->types[0]->dtype);
  bool counts_pad = node_int(lower->node, ATTR_causal, 1) != 0;
  double fixed = 1;
  int count = -1;
  for (int i = 0; i < window->n; i++) {
    int64_t last = (window->out[i] - 1) * window->stride[i] - window->pad[i] +
                   window->size[i];
    if (counts_pad || (window->pad[i] == 0 && last <= window->in[i])) {
      fixed *= (double)window->size[i];
      continue;
    }
    Coord begin = coord_scale(o[i], window->stride[i]);
    begin = coord_add(begin, -window->pad[i]);
    int low = lower_pw(lower, OP_maximum, DT_i64, coord_value(lower, begin),
                       lower_const(lower, DT_i64, 0), -1);
    int high = lower_pw(lower, OP_minimum, DT_i64,
                        coord_value(lower, coord_add(begin, window->size[i])),
                        lower_const(lower, DT_i64, (double)window->in[i]), -1);
    int n = lower_pw(lower, OP_sub, DT_i64, high, low, -1);
    count = count < 0 ? n : lower_pw(lower, OP_mul, DT_i64, count, n, -1);
  }
  int factor = lower_const(lower, dtype, fixed);
  if (count < 0) return factor;
  return lower_pw(lower, OP_mul, dtype, lower_cast(lower, count, dtype), factor,
                  -1);
}

static int divide_value(Lower *lower, int a, int b) {
  DType dtype = lower_work_dtype(lower->node->types[0]->dtype);
  return lower_pw(lower, OP_div, dtype, lower_cast(lower, a, dtype), b, -1);
}

void lower_avgpool(Lower *lower) {
  const Type *y = lower->node->types[0];
  Window window = read_window(lower, lower->input_types[0], y, NULL);
  Space space = {0};
  Coord o[MAX_SPACE] = {0}, k[MAX_SPACE] = {0}, at[MAX_SPACE];
  outer_dims(lower, &space, y, NULL);
  out_coords(&space, &window, o);
  lower_stage(lower);
  inner_slid(lower, &window, window.size, k);
  lower_stage_ready(lower);
  input_coords(lower, &window, o, k, at);
  int value = load_slid(lower, &space, &window, 0, at);
  lower->n_guards = 0;
  int sum = reduce_sum(lower, value);
  store_stage(lower, &space,
              divide_value(lower, sum, window_count(lower, &window, o)));
}

void lower_avgpool_grad(Lower *lower) {
  const Type *y = lower->input_types[0];
  Window window = read_window(lower, lower->node->types[0], y, NULL);
  Space space = {0};
  Coord o[MAX_SPACE] = {0}, k[MAX_SPACE] = {0}, at[MAX_SPACE];
  outer_dims(lower, &space, lower->node->types[0], &window);
  clear_stage(lower, &space, &window);
  lower_stage(lower);
  inner_slid(lower, &window, window.out, o);
  inner_slid(lower, &window, window.size, k);
  lower_stage_ready(lower);
  int grad = load_slid(lower, &space, &window, 0, o);
  int term = divide_value(lower, grad, window_count(lower, &window, o));
  input_coords(lower, &window, o, k, at);
  store_slid(lower, &space, &window, NEST_accumulate, at, term);
  lower->n_guards = 0;
}

/* ---- adaptive pools: window i is floor(i n / m) .. ceil((i + 1) n / m) ----
 */

static int scaled_index(Lower *lower, Coord o, int64_t n, int64_t add,
                        int64_t m) {
  int value = coord_value(lower, coord_add(coord_scale(o, n), add));
  return lower_pw(lower, OP_floordiv, DT_i64, value,
                  lower_const(lower, DT_i64, (double)m), -1);
}

/* Window i has ceil((a + n) / m) elements, with a the remainder of i n by m.
 * The largest a is m minus the greatest common divisor of n and m. */
static int64_t longest_window(int64_t n, int64_t m) {
  int64_t a = m - common_divisor(n, m);
  return (a + n + m - 1) / m;
}

static Window adaptive_window(const Lower *lower, const Type *x,
                              const Type *y) {
  Window window = {0};
  const Name *space = node_names(lower->node, ATTR_space, &window.n);
  ASSERT(window.n <= MAX_SPACE);
  for (int i = 0; i < window.n; i++) {
    window.dim[i] = space[i];
    int64_t n = window.in[i] = dim_size(lower, x, space[i]);
    int64_t m = window.out[i] = dim_size(lower, y, space[i]);
    window.size[i] = longest_window(n, m);
  }
  return window;
}

/* Coordinates of x, whether they are inside, and the size of the window. */
static void adaptive_coords(Lower *lower, const Window *window, const Coord *o,
                            const Coord *k, Coord *at, int *out_inside,
                            int *out_count) {
  *out_inside = *out_count = -1;
  for (int i = 0; i < window->n; i++) {
    int64_t n = window->in[i], m = window->out[i];
    int low = scaled_index(lower, o[i], n, 0, m);
    int high = scaled_index(lower, o[i], n, n + m - 1, m);
    int size = lower_pw(lower, OP_sub, DT_i64, high, low, -1);
    int place =
        lower_pw(lower, OP_add, DT_i64, low, coord_value(lower, k[i]), -1);
    int inside = lower_pw(lower, OP_lt, DT_bool, place, high, -1);
    at[i] = coord_of_expr(place, n);
    *out_inside = *out_inside < 0 ? inside
                                  : lower_pw(lower, OP_and, DT_bool,
                                             *out_inside, inside, -1);
    *out_count = *out_count < 0
                     ? size
                     : lower_pw(lower, OP_mul, DT_i64, *out_count, size, -1);
  }
}

void lower_adaptive_avgpool(Lower *lower) {
  const Type *y = lower->node->types[0];
  DType dtype = lower_work_dtype(y->dtype);
  Window window = adaptive_window(lower, lower->input_types[0], y);
  Space space = {0};
  Coord o[MAX_SPACE] = {0}, k[MAX_SPACE] = {0}, at[MAX_SPACE];
  int inside, count;
  outer_dims(lower, &space, y, NULL);
  out_coords(&space, &window, o);
  lower_stage(lower);
  inner_slid(lower, &window, window.size, k);
  lower_stage_ready(lower);
  adaptive_coords(lower, &window, o, k, at, &inside, &count);
  int value = load_slid(lower, &space, &window, 0, at);
  value =
      lower_pw(lower, OP_select, dtype, inside, lower_cast(lower, value, dtype),
               lower_const(lower, dtype, 0));
  int sum = reduce_sum(lower, value);
  store_stage(lower, &space,
              divide_value(lower, sum, lower_cast(lower, count, dtype)));
}

void lower_adaptive_avgpool_grad(Lower *lower) {
  const Type *y = lower->input_types[0];
  DType dtype = lower_work_dtype(y->dtype);
  Window window = adaptive_window(lower, lower->node->types[0], y);
  Space space = {0};
  Coord o[MAX_SPACE] = {0}, k[MAX_SPACE] = {0}, at[MAX_SPACE];
  int inside, count;
  outer_dims(lower, &space, lower->node->types[0], &window);
  clear_stage(lower, &space, &window);
  lower_stage(lower);
  inner_slid(lower, &window, window.out, o);
  inner_slid(lower, &window, window.size, k);
  lower_stage_ready(lower);
  adaptive_coords(lower, &window, o, k, at, &inside, &count);
  int grad = load_slid(lower, &space, &window, 0, o);
  int term = divide_value(lower, grad, lower_cast(lower, count, dtype));
  term = lower_pw(lower, OP_select, dtype, inside, term,
                  lower_const(lower, dtype, 0));
  store_slid(lower, &space, &window, NEST_accumulate, at, term);
}
