/*
 * range.c -- finds the values of a graph that are computed without rounding.
 *
 *     %0 = input : f32[N:4, C:3]      exact, unit 2^0, |x| <= 2
 *     %1 = mul %0, %0                 exact, unit 2^0, |x| <= 4
 *     %2 = sum %1 {over = [N, C]}     exact, unit 2^0, |x| <= 48
 *     %3 = const {value = 0.25}       exact, unit 2^-2, |x| <= 0.25
 *     %4 = mul %2, %3                 exact, unit 2^-2, |x| <= 12
 *
 * A value is exact if its elements are integer multiples of one power of two,
 * its unit, and so few of them (bound / unit <= 2^24 in f32) that each has a
 * representation.  Sums of products are bounded by the sum of magnitudes: then
 * every partial sum is representable too, whatever is added to what first.  So
 * where a graph is exact, every order of summation, fused or not, on any number
 * of ranks gives the same numbers, and a test may ask for equal bits.
 *
 * Sizes are logical, so that a partial or sharded value is bounded by what the
 * replicated value would be.  A value that is not exact keeps its bound where
 * it has one: `finite` of it is still known.
 */
#include "tests/exact/range.h"

#include <float.h>
#include <math.h>

enum { ZERO_UNIT = 1 << 20 }; /* of a value that is always 0 */

typedef struct Walk {
  const Graph *graph;
  Arena *arena;
  Range **ranges; /* [node][result] */
} Walk;

/* ---- ranges ---- */

/* Whole multiples of 2^unit up to 2^most are represented if unit is at least
 * `least` and the multiple has no more than `bits` bits. */
typedef struct Format {
  int bits, least, most;
} Format;

static Format format_of(DType dtype) {
  switch (dtype) {
  case DT_f64: return (Format){53, -1000, 1000};
  case DT_f32: return (Format){24, -120, 120};
  case DT_bf16: return (Format){8, -120, 120};
  case DT_f16: return (Format){11, -14, 15};
  case DT_f8e4m3: return (Format){4, -6, 8};
  case DT_f8e5m2: return (Format){3, -14, 15};
  case DT_bool: return (Format){1, 0, 0};
  case DT_u8: return (Format){8, 0, 7};
  default: {
    int bits = 8 * dtype_size_bytes(dtype) - 1;
    return (Format){bits, 0, bits};
  }
  }
}

static Range inexact(double bound) {
  return (Range){.bound = isnan(bound) ? INFINITY : bound};
}

static Range exact(int unit, double bound) {
  if (bound == 0) unit = ZERO_UNIT;
  return (Range){.is_exact = true, .unit = unit, .bound = bound};
}

/* Takes the exactness back where the dtype cannot hold the multiples. */
static Range held(Range range, DType dtype) {
  if (!range.is_exact || range.bound == 0) return range;
  Format format = format_of(dtype);
  bool fits = range.unit >= format.least &&
              range.bound <= ldexp(1, format.most) &&
              range.bound <= ldexp(1, range.unit + format.bits);
  return fits ? range : inexact(range.bound);
}

static Range join(Range a, Range b) {
  if (!a.is_exact || !b.is_exact) return inexact(fmax(a.bound, b.bound));
  return exact(a.unit < b.unit ? a.unit : b.unit, fmax(a.bound, b.bound));
}

static Range plus(Range a, Range b) {
  Range sum = join(a, b);
  sum.bound = a.bound + b.bound;
  return sum;
}

static Range times(Range a, Range b) {
  double bound = a.bound == 0 || b.bound == 0 ? 0 : a.bound * b.bound;
  if (!a.is_exact || !b.is_exact) return inexact(bound);
  return exact(a.unit + b.unit, bound);
}

/* The sum of at most `n` of them, in any order. */
static Range total(Range a, double n) {
  a.bound = a.bound == 0 ? 0 : a.bound * n;
  return a;
}

static Range of_number(double value) {
  if (value == 0) return exact(ZERO_UNIT, 0);
  if (!isfinite(value)) return inexact(INFINITY);
  int exponent;
  double fraction = frexp(value, &exponent);
  int unit = exponent;
  for (; fraction != floor(fraction); fraction *= 2) unit--;
  return exact(unit, fabs(value));
}

/* ---- what a node reads ---- */

static Range input_of(const Walk *walk, const Node *node, int i) {
  Value value = node->inputs[i];
  return walk->ranges[value.node][value.result];
}

static const Type *type_of(const Walk *walk, const Node *node, int i) {
  return graph_type(walk->graph, node->inputs[i]);
}

static Range all_inputs(const Walk *walk, const Node *node, int first) {
  Range range = input_of(walk, node, first);
  for (int i = first + 1; i < node->n_inputs; i++)
    range = join(range, input_of(walk, node, i));
  return range;
}

/* The number that a value is everywhere, or nan. */
static double number_of(const Walk *walk, Value value) {
  const Node *node = graph_node(walk->graph, value);
  switch (node->op) {
  case OP_const: return node_float(node, ATTR_value, NAN);
  case OP_cast:
  case OP_broadcast:
  case OP_rename: return number_of(walk, node->inputs[0]);
  default: return NAN;
  }
}

static double product_of_dims(const Type *type, const Node *node, AttrKey key) {
  int n = 1;
  Name dim = attr_kind(key) == ATTRKIND_NAME ? node_name(node, key) : NULL;
  const Name *dims = dim ? &dim : node_names(node, key, &n);
  double product = 1;
  for (int i = 0; i < n; i++)
    if (type_find(type, dims[i]) >= 0)
      product *= (double)type_size(type, dims[i]);
  return product;
}

static double product_of_ints(const Node *node, AttrKey key) {
  int n;
  const int64_t *items = node_ints(node, key, &n);
  double product = 1;
  for (int i = 0; i < n; i++) product *= (double)items[i];
  return product;
}

static double all_elements(const Type *type) {
  return (double)type_elements(type);
}

/* ---- operators ---- */

static Range divided(const Walk *walk, const Node *node) {
  Range a = input_of(walk, node, 0);
  double by = number_of(walk, node->inputs[1]);
  if (isnan(by) || by == 0) return inexact(INFINITY);
  int exponent;
  bool is_power = fabs(frexp(by, &exponent)) == 0.5;
  if (!is_power || !a.is_exact) return inexact(a.bound / fabs(by));
  return exact(a.bound == 0 ? ZERO_UNIT : a.unit - (exponent - 1),
               a.bound / fabs(by));
}

static Range compared(Range a, Range b) {
  return a.is_exact && b.is_exact ? exact(0, 1) : inexact(1);
}

static Range rounded(Range a) {
  if (!a.is_exact) return inexact(ceil(a.bound));
  return exact(a.unit > 0 ? a.unit : 0, ceil(a.bound));
}

static Range selected(const Walk *walk, const Node *node) {
  Range range = all_inputs(walk, node, 1);
  return input_of(walk, node, 0).is_exact ? range : inexact(range.bound);
}

/* Real functions round; some are bounded all the same. */
static Range bounded(const Walk *walk, const Node *node) {
  double bound = input_of(walk, node, 0).bound;
  switch (node->op) {
  case OP_sin:
  case OP_cos:
  case OP_tanh:
  case OP_sigmoid:
  case OP_erf:
  case OP_softmax: return inexact(1);
  case OP_exp: return inexact(exp(bound));
  case OP_sqrt: return inexact(sqrt(bound));
  case OP_silu:
  case OP_gelu:
  case OP_gelu_tanh:
  case OP_adaptive_avgpool: return inexact(bound);
  default: return inexact(INFINITY);
  }
}

static Range pointwise(const Walk *walk, const Node *node) {
  Range a = input_of(walk, node, 0);
  Range b = node->n_inputs > 1 ? input_of(walk, node, 1) : a;
  switch (node->op) { /* flat switch */
  case OP_neg:
  case OP_abs:
  case OP_stop_gradient:
  case OP_relu: return a;
  case OP_add:
  case OP_sub: return plus(a, b);
  case OP_mul: return times(a, b);
  case OP_div: return divided(walk, node);
  case OP_minimum:
  case OP_maximum: return join(a, b);
  case OP_floor:
  case OP_ceil:
  case OP_trunc:
  case OP_round: return rounded(a);
  case OP_floordiv:
    return a.is_exact && b.is_exact ? exact(0, a.bound + 1) : inexact(INFINITY);
  case OP_mod:
    return a.is_exact && b.is_exact ? exact(0, b.bound) : inexact(b.bound);
  case OP_sign:
  case OP_not: return compared(a, a);
  case OP_finite:
    return a.is_exact || a.bound <= FLT_MAX / 2 ? exact(0, 1) : inexact(1);
  case OP_eq:
  case OP_ne:
  case OP_lt:
  case OP_gt:
  case OP_le:
  case OP_ge:
  case OP_and:
  case OP_or: return compared(a, b);
  case OP_select: return selected(walk, node);
  default: return bounded(walk, node);
  }
}

/* How many windows an element of the input can lie in. */
static double overlap(const Node *node) {
  int n, n_strides;
  const int64_t *window = node_ints(node, ATTR_window, &n);
  const int64_t *stride = node_ints(node, ATTR_stride, &n_strides);
  double product = 1;
  for (int i = 0; i < n; i++) {
    int64_t step = i < n_strides ? stride[i] : window[i];
    product *= (double)((window[i] + step - 1) / step);
  }
  return product;
}

/* A mean is exact over a power of two, if every window is whole. */
static Range averaged(const Node *node, Range a, double n_summed) {
  double n = product_of_ints(node, ATTR_window);
  int n_pads, exponent;
  const int64_t *pad = node_ints(node, ATTR_pad, &n_pads);
  bool counts_all = node_int(node, ATTR_causal, 1) != 0;
  for (int i = 0; i < n_pads && !counts_all; i++)
    if (pad[i] != 0) return inexact(a.bound * n_summed);
  if (!a.is_exact || frexp(n, &exponent) != 0.5)
    return inexact(a.bound * n_summed);
  /* The sum first, divided afterwards: both must be held. */
  return exact(a.unit - (exponent - 1), a.bound * n_summed);
}

static Range windowed(const Walk *walk, const Node *node) {
  Range a = input_of(walk, node, 0), b = input_of(walk, node, 1);
  const Type *second = type_of(walk, node, 1);
  AttrKey key = node->op == OP_conv              ? ATTR_dim
                : node->op == OP_conv_input_grad ? ATTR_to
                                                 : ATTR_over;
  double n = node_has(node, key) ? product_of_dims(second, node, ATTR_space) *
                                       product_of_dims(second, node, key)
                                 : all_elements(second);
  return total(times(a, b), n);
}

static double summed_indices(const Walk *walk, const Node *node) {
  return product_of_dims(type_of(walk, node, 1), node, ATTR_over);
}

/* The first result of a structured operator. */
static Range structured(const Walk *walk, const Node *node) {
  switch (node->op) { /* flat switch */
  case OP_const: return of_number(node_float(node, ATTR_value, NAN));
  case OP_iota: return exact(0, product_of_ints(node, ATTR_sizes));
  case OP_one_hot:
  case OP_random_keep: return exact(0, 1);
  case OP_random_uniform: return inexact(1);
  case OP_random_normal: return inexact(7);
  case OP_argmax: {
    bool is_known = input_of(walk, node, 0).is_exact;
    double bound = product_of_dims(type_of(walk, node, 0), node, ATTR_dim);
    return is_known ? exact(0, bound) : inexact(bound);
  }
  case OP_copy:
  case OP_rename:
  case OP_split_dim:
  case OP_merge_dims:
  case OP_transpose:
  case OP_broadcast:
  case OP_slice:
  case OP_reverse:
  case OP_max:
  case OP_min:
  case OP_maxpool:
  case OP_gather:
  case OP_topk:
  case OP_collect_microbatches:
  case OP_all_gather:
  case OP_all_to_all:
  case OP_shard: return input_of(walk, node, 0);
  case OP_cast:
    return dtype_class(node->types[0]->dtype) == CLASS_INT
               ? rounded(input_of(walk, node, 0))
               : input_of(walk, node, 0);
  case OP_pad:
    return join(input_of(walk, node, 0),
                of_number(node_float(node, ATTR_value, 0)));
  case OP_dispatch:
  case OP_combine: return join(input_of(walk, node, 0), of_number(0));
  case OP_concat: return all_inputs(walk, node, 0);
  case OP_sum:
    return total(input_of(walk, node, 0),
                 product_of_dims(type_of(walk, node, 0), node, ATTR_over));
  case OP_dot:
    return total(times(input_of(walk, node, 0), input_of(walk, node, 1)),
                 product_of_dims(type_of(walk, node, 0), node, ATTR_over));
  case OP_conv:
  case OP_conv_input_grad:
  case OP_conv_weight_grad: return windowed(walk, node);
  case OP_avgpool:
    return averaged(node, input_of(walk, node, 0),
                    product_of_ints(node, ATTR_window));
  case OP_avgpool_grad:
    return averaged(node, input_of(walk, node, 0), overlap(node));
  case OP_maxpool_grad: return total(input_of(walk, node, 2), overlap(node));
  case OP_scatter_add:
    return total(input_of(walk, node, 0), summed_indices(walk, node));
  default: return bounded(walk, node);
  }
}

/* ---- the walk ---- */

static void visit(Walk *walk, int id, const Range *inputs) {
  const Node *node = walk->graph->nodes.data[id];
  Range *out = walk->ranges[id] =
      ARENA_ARRAY(walk->arena, Range, node->n_results);
  if (node->op == OP_input) {
    out[0] = inputs[node_int(node, ATTR_index, 0)];
  } else if (node->op == OP_fused) {
    Range *given = ARENA_ARRAY(walk->arena, Range, node->n_inputs);
    for (int i = 0; i < node->n_inputs; i++) given[i] = input_of(walk, node, i);
    Range **body = range_analyse(walk->arena, node->body, given);
    for (int i = 0; i < node->n_results; i++) {
      Value value = node->body->outputs.data[i].value;
      out[i] = body[value.node][value.result];
    }
  } else if (node->op == OP_scan) { /* what a loop adds up is not followed */
    for (int i = 0; i < node->n_results; i++) out[i] = inexact(INFINITY);
  } else if (node->op == OP_all_reduce || node->op == OP_reduce_scatter ||
             node->op == OP_accumulate || node->op == OP_permute) {
    for (int i = 0; i < node->n_results; i++) out[i] = input_of(walk, node, i);
  } else {
    bool is_pointwise = op_info(node->op)->is_pointwise;
    out[0] = is_pointwise ? pointwise(walk, node) : structured(walk, node);
    for (int i = 1; i < node->n_results; i++) out[i] = inexact(INFINITY);
  }
  for (int i = 0; i < node->n_results; i++)
    out[i] = held(out[i], node->types[i]->dtype);
}

Range **range_analyse(Arena *arena, const Graph *graph, const Range *inputs) {
  Walk walk = {.graph = graph, .arena = arena};
  walk.ranges = ARENA_ARRAY(arena, Range *, graph->nodes.n);
  for (int id = 0; id < graph->nodes.n; id++) visit(&walk, id, inputs);
  return walk.ranges;
}
