/*
 * windows.c -- computes operators that slide a window over a dim which ranks
 * share out: a rank receives the rows beside its shard (the halo) and slides
 * over its own.
 *
 *     conv x [Y:8@space, C], w [O, C, Y:3] {space = [Y], pad = [1]}
 *
 *     rows  = split_dim x {dim = Y, to = [Y~, Y]}   : [Y~:4@space, Y:2, C]
 *     above = permute (slice rows {start = 1}) {shift = 1}
 *     below = permute (slice rows {start = 0}) {shift = -1}
 *     rows  = concat above, rows, below             : [Y~:4@space, Y:4, C]
 *     rows  = select (the row lies in x), rows, 0
 *     conv rows, w {pad = [0]}                      : [Y~:4@space, Y:2, O]
 *     merge_dims {from = [Y~, Y], dim = Y}          : [Y:8@space, O]
 *
 * A halo wider than a shard comes from several ranks.  Where stride or padding
 * moves the windows of a rank against its shard, their first row is computed
 * from the number of the shard.  A gradient of x is made the other way round:
 * each rank computes what its windows add to the rows that they see, and sends
 * the rows of other ranks to them.
 *
 * The numbers of shards are a dim of the graph, so all of it has a meaning on
 * one device.
 */
#include "passes/spmd/windows.h"

#include <math.h>

#include "passes/spmd/placement.h"
#include "passes/spmd/resharding.h"
#include "passes/spmd/strategy.h"

typedef struct Slide {
  Partition *p;
  int id;    /* of the operator in the old graph */
  int index; /* in `space` */
  Name dim;
  Name shards; /* the dim of their numbers */
  AxisList axes;
  int64_t n;        /* shards */
  int64_t size;     /* elements that the windows see, of all ranks */
  int64_t windows;  /* of all ranks */
  int64_t from, to; /* elements of a shard, with padding: that windows see; of
                       windows */
  int64_t step;     /* from the first window of a rank to that of the next */
  int64_t pad;
  int64_t width;       /* elements that the windows of a rank see */
  int64_t left, right; /* of them, at most, before and after the shard */
} Slide;

/* ---- operators ---- */

/* How the operands and the result of an operator lie along the slid dims. */
typedef enum Along {
  ALONG_none,    /* it lacks the dim, or has it for another use */
  ALONG_seen,    /* its elements are seen by windows */
  ALONG_windows, /* it has one for each window */
} Along;

typedef struct Sliding {
  Along inputs[3], result;
  double fill; /* outside the image */
} Sliding;

static const Sliding slidings[N_OPS] = {
    [OP_conv] = {{ALONG_seen}, ALONG_windows, 0},
    [OP_conv_input_grad] = {{ALONG_windows}, ALONG_seen, 0},
    [OP_conv_weight_grad] = {{ALONG_seen, ALONG_windows}, ALONG_none, 0},
    [OP_maxpool] = {{ALONG_seen}, ALONG_windows, -INFINITY},
    [OP_maxpool_grad] = {{ALONG_seen, ALONG_windows, ALONG_windows},
                         ALONG_seen,
                         -INFINITY},
    [OP_avgpool] = {{ALONG_seen}, ALONG_windows, 0},
    [OP_avgpool_grad] = {{ALONG_windows}, ALONG_seen, 0},
};

static int64_t max2(int64_t a, int64_t b) {
  return a > b ? a : b;
}

/* The type of the operand or result that has `along`. */
static const Type *type_along(const Partition *p, int id, Along along) {
  const Graph *graph = p->rewrite.from;
  const Node *node = graph->nodes.data[id];
  const Sliding *sliding = &slidings[node->op];
  if (sliding->result == along) return node->types[0];
  for (int i = 0; i < node->n_inputs; i++)
    if (sliding->inputs[i] == along) return graph_type(graph, node->inputs[i]);
  UNREACHABLE();
}

/* The elements that one window spans along a slid dim. */
static int64_t window_extent(const Partition *p, int id, int index, Name dim) {
  const Graph *graph = p->rewrite.from;
  const Node *node = graph->nodes.data[id];
  int64_t dilate = node_int_at(node, ATTR_dilate, index, 1);
  int64_t size = node->op == OP_conv || node->op == OP_conv_input_grad
                     ? type_size(graph_type(graph, node->inputs[1]), dim)
                     : node_int_at(node, ATTR_window, index, 1);
  return dilate * (size - 1) + 1;
}

/* ---- which dims are slid over shards ---- */

/* The axes of ranks that shard the dim in an operand along which the operator
 * slides; 0: none, or not these alone. */
static AxisList slid_axes(const Partition *p, const Node *node,
                          const Value *inputs, Name dim) {
  for (int i = 0; i < node->n_inputs; i++) {
    if (slidings[node->op].inputs[i] == ALONG_none) continue;
    const Type *type = graph_type(p->rewrite.to, inputs[i]);
    AxisList split = type->dims[type_find(type, dim)].split;
    if (split && !(axis_list_set(split) & mesh_sequential(p->mesh)))
      return split;
  }
  return 0;
}

static bool can_slide(const Slide *s) {
  const Node *node = s->p->rewrite.from->nodes.data[s->id];
  bool counts_pad = node_int(node, ATTR_causal, 1) != 0 || s->pad == 0;
  int64_t most = (s->n - 1) * s->from;
  return s->n > 1 && counts_pad && s->left <= most && s->right <= most;
}

static bool find_slide(Partition *p, int id, const Value *inputs, int index,
                       Slide *s) {
  const Node *node = p->rewrite.from->nodes.data[id];
  int n;
  Name dim = node_names(node, ATTR_space, &n)[index];
  int64_t extent = window_extent(p, id, index, dim);
  bool is_pool = node_has(node, ATTR_window) && node->op != OP_conv_weight_grad;
  int64_t stride = node_int_at(node, ATTR_stride, index, is_pool ? extent : 1);
  int64_t windows = type_size(type_along(p, id, ALONG_windows), dim);
  *s = (Slide){.p = p,
               .id = id,
               .index = index,
               .dim = dim,
               .shards = name_format(p->ctx->module->names, "%s~", dim),
               .axes = slid_axes(p, node, inputs, dim),
               .size = type_size(type_along(p, id, ALONG_seen), dim),
               .pad = node_int_at(node, ATTR_pad, index, 0)};
  s->n = axis_list_shards(s->axes, p->mesh);
  s->windows = windows;
  s->from = (s->size + s->n - 1) / s->n;
  s->to = (windows + s->n - 1) / s->n;
  s->step = s->to * stride;
  s->width = (s->to - 1) * stride + extent;
  int64_t drift = (s->n - 1) * (s->step - s->from);
  s->left = max2(0, s->pad + max2(0, -drift));
  s->right = max2(0, s->width - s->pad - s->from + max2(0, drift));
  return can_slide(s);
}

/* The slid dims that ranks share out; 0: none, or one of them does not allow
 * it.  A slid dim becomes two.  Where two operands have two slid dims over one
 * axis, the first dim keeps it. */
static int find_slides(Partition *p, int id, const Value *inputs,
                       Slide *slides) {
  const Node *node = p->rewrite.from->nodes.data[id];
  int n_space, n = 0, rank = 0;
  AxisSet used = 0;
  const Name *space = node_names(node, ATTR_space, &n_space);
  for (int i = 0; i < node->n_inputs; i++)
    rank = (int)max2(rank, graph_type(p->rewrite.to, inputs[i])->rank);
  rank = (int)max2(rank, node->types[0]->rank);
  for (int i = 0; i < n_space; i++) {
    AxisSet axes = axis_list_set(slid_axes(p, node, inputs, space[i]));
    if (!axes || axes & used) continue;
    used |= axes;
    if (!find_slide(p, id, inputs, i, &slides[n++])) return 0;
  }
  return rank + n <= MAX_RANK ? n : 0;
}

bool slides_over_shards(Partition *p, int id, const Value *inputs) {
  const Node *node = p->rewrite.from->nodes.data[id];
  Slide slides[MAX_RANK];
  bool is_pinned = find_operator_line(p, node) != NULL;
  return slidings[node->op].inputs[0] != ALONG_none && !is_pinned &&
         find_slides(p, id, inputs, slides) > 0;
}

/* ---- building ---- */

static Value slide_op(const Slide *s, Op op, Value a, Value b) {
  Value inputs[] = {a, b};
  return place_inferred(s->p, s->id, op, inputs, 2, NULL);
}

static Value slide_select(const Slide *s, Value condition, Value a,
                          double other) {
  Graph *to = s->p->rewrite.to;
  Value inputs[] = {condition, a,
                    graph_const(to, graph_type(to, a)->dtype, other)};
  return place_inferred(s->p, s->id, OP_select, inputs, 3, NULL);
}

static Value slice_rows(const Slide *s, Value value, int64_t start, int64_t n) {
  if (type_size(graph_type(s->p->rewrite.to, value), s->dim) == n) return value;
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dim, s->dim);
  attrs_int(&attrs, ATTR_start, start);
  attrs_ints(&attrs, ATTR_sizes, &n, 1);
  return place_inferred(s->p, s->id, OP_slice, &value, 1, &attrs);
}

/* Zeros before and after the rows. */
static Value pad_rows(const Slide *s, Value value, int64_t before,
                      int64_t after) {
  int64_t pad[] = {before, after};
  if (!before && !after) return value;
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dim, s->dim);
  attrs_ints(&attrs, ATTR_pad, pad, 2);
  attrs_float(&attrs, ATTR_value, 0);
  return place_inferred(s->p, s->id, OP_pad, &value, 1, &attrs);
}

static Value permute_shards(const Slide *s, Value value, int64_t shift) {
  const Type *type = graph_type(s->p->rewrite.to, value);
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dim, s->shards);
  axis_list_attr(s->p, &attrs, s->axes);
  attrs_int(&attrs, ATTR_shift, shift);
  return graph_append_typed(s->p->rewrite.to, OP_permute, &value, 1, &attrs,
                            &type, 1, NULL);
}

/* The dtype of the rows that the shards read, those outside the image too. */
static DType row_dtype(const Slide *s) {
  return dtype_of_positions(s->n * s->step + s->width + s->pad);
}

/* 0, 1, ... along a dim that these axes shard. */
static Value slide_iota(const Slide *s, Name dim, int64_t n, AxisList split) {
  Partition *p = s->p;
  Type *type = type_create(p->ctx->module->arena, row_dtype(s), 1);
  type->dims[0] = (Dim){dim, n, split};
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dim, dim);
  attrs_ints(&attrs, ATTR_sizes, &n, 1);
  if (type->dtype != DT_i32)
    attrs_name(&attrs, ATTR_dtype,
               name_intern(p->ctx->module->names, dtype_name(type->dtype)));
  const Type *types[1] = {type};
  return graph_append_typed(p->rewrite.to, OP_iota, NULL, 0, &attrs, types, 1,
                            NULL);
}

/* Row `dim` of each shard, as first + step * (number of the shard) + row. */
static Value row_numbers(const Slide *s, Name dim, int64_t first,
                         int64_t step) {
  Graph *to = s->p->rewrite.to;
  Value shard = slide_iota(s, s->shards, s->n, s->axes);
  Value row = slide_iota(s, dim, s->width, 0);
  shard =
      slide_op(s, OP_mul, shard, graph_const(to, row_dtype(s), (double)step));
  shard =
      slide_op(s, OP_add, shard, graph_const(to, row_dtype(s), (double)first));
  return slide_op(s, OP_add, shard, row);
}

/* The rows outside the image are `fill`. */
static Value fill_outside(const Slide *s, Value rows, double fill) {
  Graph *to = s->p->rewrite.to;
  bool ends_inside = (s->n - 1) * s->step - s->pad + s->width <= s->size;
  if (s->pad == 0 && ends_inside) return rows;
  Value number = row_numbers(s, s->dim, -s->pad, s->step);
  Value low = slide_op(s, OP_ge, number, graph_const(to, row_dtype(s), 0));
  Value high = slide_op(s, OP_lt, number,
                        graph_const(to, row_dtype(s), (double)s->size));
  return slide_select(s, slide_op(s, OP_and, low, high), rows, fill);
}

/* ---- windows ---- */

/* The windows of all ranks begin at the same row of shard and halo. */
static bool is_aligned(const Slide *s) {
  return s->step == s->from;
}

static Value rename_dim(const Slide *s, Value value, Name from, Name to) {
  Attrs attrs = {0};
  attrs_names(&attrs, ATTR_from, &from, 1);
  attrs_names(&attrs, ATTR_to, &to, 1);
  return place_inferred(s->p, s->id, OP_rename, &value, 1, &attrs);
}

static Value move_dim_to(const Slide *s, Value value, Name dim, int to) {
  int from = type_find(graph_type(s->p->rewrite.to, value), dim);
  return transpose_dim(s->p, value, from, to);
}

/* Takes the rows that the windows of a rank see from its shard with the halo
 * around it. */
static Value take_rows(const Slide *s, Value rows) {
  if (is_aligned(s)) return slice_rows(s, rows, s->left - s->pad, s->width);
  const Type *type = graph_type(s->p->rewrite.to, rows);
  int at = type_find(type, s->dim), place = type_find(type, s->shards);
  Name taken = name_format(s->p->ctx->module->names, "%s~~", s->dim);
  Value inputs[] = {rows,
                    row_numbers(s, taken, s->left - s->pad, s->step - s->from)};
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dim, s->dim);
  rows = place_inferred(s->p, s->id, OP_gather, inputs, 2, &attrs);
  rows = rename_dim(s, rows, taken, s->dim);
  return move_dim_to(s, move_dim_to(s, rows, s->shards, place), s->dim, at);
}

/* Adds up the rows that windows see where they lie in shard and halo. */
static Value put_rows(const Slide *s, Value rows) {
  int64_t all = s->left + s->from + s->right, first = s->left - s->pad;
  if (is_aligned(s)) return pad_rows(s, rows, first, all - first - s->width);
  const Type *type = graph_type(s->p->rewrite.to, rows);
  int at = type_find(type, s->dim), place = type_find(type, s->shards);
  Name taken = name_format(s->p->ctx->module->names, "%s~~", s->dim);
  Value inputs[] = {rename_dim(s, rows, s->dim, taken),
                    row_numbers(s, taken, first, s->step - s->from)};
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dim, s->dim);
  attrs_names(&attrs, ATTR_over, &taken, 1);
  attrs_ints(&attrs, ATTR_sizes, &all, 1);
  rows = place_inferred(s->p, s->id, OP_scatter_add, inputs, 2, &attrs);
  return move_dim_to(s, move_dim_to(s, rows, s->shards, place), s->dim, at);
}

/* The rows of the halo that lie in the shard `distance` ranks away. */
static int64_t rows_at(const Slide *s, int64_t halo, int64_t distance) {
  int64_t left = halo - (distance - 1) * s->from;
  return left < 0 ? 0 : left < s->from ? left : s->from;
}

static Value shards_of(const Slide *s, Value value) {
  int d = type_find(graph_type(s->p->rewrite.to, value), s->dim);
  return split_shards(s->p, value, d, s->n);
}

/* x[Y:n@axes] -> [Y~@axes, Y:width]: what the windows of each rank see. */
static Value open_windows(const Slide *s, Value value, double fill) {
  Value *parts = ARENA_ARRAY(s->p->ctx->module->arena, Value, 2 * s->n);
  Value rows = shards_of(s, value);
  int n = 0;
  for (int64_t j = s->n - 1; j > 0; j--) {
    int64_t take = rows_at(s, s->left, j);
    if (take > 0)
      parts[n++] =
          permute_shards(s, slice_rows(s, rows, s->from - take, take), j);
  }
  parts[n++] = rows;
  for (int64_t j = 1; j < s->n; j++) {
    int64_t take = rows_at(s, s->right, j);
    if (take > 0)
      parts[n++] = permute_shards(s, slice_rows(s, rows, 0, take), -j);
  }
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dim, s->dim);
  if (n > 1) rows = place_inferred(s->p, s->id, OP_concat, parts, n, &attrs);
  return fill_outside(s, take_rows(s, rows), fill);
}

/* [Y~@axes, Y:width] -> [Y:n@axes]: each rank adds what the windows of all
 * ranks say about its rows. */
static Value close_windows(const Slide *s, Value value) {
  Value all = put_rows(s, fill_outside(s, value, 0));
  Value rows = slice_rows(s, all, s->left, s->from);
  for (int64_t j = 1; j < s->n; j++) {
    int64_t before = rows_at(s, s->left, j), after = rows_at(s, s->right, j);
    int64_t at = s->left - (j - 1) * s->from;
    if (before > 0) {
      Value sent =
          permute_shards(s, slice_rows(s, all, at - before, before), -j);
      rows = slide_op(s, OP_add, rows, pad_rows(s, sent, s->from - before, 0));
    }
    at = s->left + j * s->from;
    if (after > 0) {
      Value sent = permute_shards(s, slice_rows(s, all, at, after), j);
      rows = slide_op(s, OP_add, rows, pad_rows(s, sent, 0, s->from - after));
    }
  }
  return rows;
}

/* ---- the operator ---- */

/* An operand of which ranks have the rows of their shard. */
static Value shard_operand(const Slide *s, Value value) {
  const Type *have = graph_type(s->p->rewrite.to, value);
  Type *want = type_copy(s->p->ctx->module->arena, have);
  AxisSet axes = axis_list_set(s->axes);
  for (int d = 0; d < want->rank; d++)
    if (axis_list_set(want->dims[d].split) & axes) want->dims[d].split = 0;
  want->dims[type_find(want, s->dim)].split = s->axes;
  want->partial &= (AxisSet)~axes;
  if (!want->partial) want->partial_kind = REDUCE_sum;
  return reshard(s->p, value, want, s->id);
}

/* The attributes for the rows of one rank: no padding, and its sizes. */
static Attrs slide_attrs(const Slide *slides, int n) {
  Partition *p = slides->p;
  const Node *node = p->rewrite.from->nodes.data[slides->id];
  Arena *arena = p->ctx->module->arena;
  int n_space, n_over;
  int64_t *pad = ARENA_ARRAY(arena, int64_t, MAX_RANK);
  int64_t *sizes = ARENA_ARRAY(arena, int64_t, MAX_RANK);
  Name *over = ARENA_ARRAY(arena, Name, MAX_RANK);
  Attrs attrs = node_attrs(node);
  node_names(node, ATTR_space, &n_space);
  for (int i = 0; i < n_space; i++) {
    pad[i] = node_int_at(node, ATTR_pad, i, 0);
    sizes[i] = node_int_at(node, ATTR_sizes, i, 1);
  }
  for (int i = 0; i < n; i++) {
    pad[slides[i].index] = 0;
    sizes[slides[i].index] = slides[i].width;
  }
  if (node_has(node, ATTR_pad)) attrs_ints(&attrs, ATTR_pad, pad, n_space);
  if (node_has(node, ATTR_sizes))
    attrs_ints(&attrs, ATTR_sizes, sizes, n_space);
  if (node_has(node, ATTR_over)) {
    const Name *names = node_names(node, ATTR_over, &n_over);
    for (int i = 0; i < n_over; i++) over[i] = names[i];
    for (int i = 0; i < n; i++) over[n_over + i] = slides[i].shards;
    attrs_names(&attrs, ATTR_over, over, n_over + n);
  }
  return attrs;
}

static Value close_result(const Slide *s, Along along, Value value) {
  if (along == ALONG_none) return value;
  const Graph *to = s->p->rewrite.to;
  if (along == ALONG_seen) value = close_windows(s, value);
  int from = type_find(graph_type(to, value), s->shards);
  int at = type_find(graph_type(to, value), s->dim);
  value = transpose_dim(s->p, value, from, from < at ? at - 1 : at);
  int64_t size = along == ALONG_seen ? s->size : s->windows;
  return merge_shards(s->p, value, type_find(graph_type(to, value), s->shards),
                      size);
}

Value place_windows(Partition *p, int id, const Value *inputs) {
  const Node *node = p->rewrite.from->nodes.data[id];
  const Sliding *sliding = &slidings[node->op];
  Slide slides[MAX_RANK];
  Value operands[3];
  int n = find_slides(p, id, inputs, slides);
  for (int i = 0; i < node->n_inputs; i++) {
    operands[i] = inputs[i];
    for (int k = 0; k < n && sliding->inputs[i] != ALONG_none; k++)
      operands[i] = shard_operand(&slides[k], operands[i]);
    for (int k = 0; k < n; k++) {
      if (sliding->inputs[i] == ALONG_seen)
        operands[i] = open_windows(&slides[k], operands[i], sliding->fill);
      if (sliding->inputs[i] == ALONG_windows)
        operands[i] =
            shards_of(&slides[k], mask_padding(p, operands[i], slides[k].dim));
    }
  }
  Attrs attrs = slide_attrs(slides, n);
  Value value =
      place_inferred(p, id, node->op, operands, node->n_inputs, &attrs);
  for (int k = n - 1; k >= 0; k--)
    value = close_result(&slides[k], sliding->result, value);
  for (int d = 0; d < node->types[0]->rank; d++) {
    const Type *type = graph_type(p->rewrite.to, value);
    value = transpose_dim(p, value,
                          type_find(type, node->types[0]->dims[d].name), d);
  }
  return value;
}
