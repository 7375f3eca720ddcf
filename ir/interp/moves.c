/*
 * moves.c -- the interpreter's functions for operators that do no arithmetic:
 * sources, views, slices, indexing and random numbers.  They need no number
 * type.
 */
#include <math.h>
#include <string.h>

#include "ir/interp/internal.h"

/* Views keep the bytes.  Collectives change placements, and the interpreter
 * knows only logical values. */
void interp_copy_all(const InterpCall *call) {
  for (int i = 0; i < call->node->n_results; i++) {
    const Tensor *from = &call->inputs[i];
    int64_t n = type_elements(call->results[i].type);
    ASSERT(n == type_elements(from->type));
    memcpy(call->results[i].data, from->data, (size_t)n * sizeof(double));
  }
}

/* By name: transpose, broadcast, copy. */
void interp_copy_by_name(const InterpCall *call) {
  const Tensor *x = &call->inputs[0], *y = &call->results[0];
  Loops loops = {0};
  loops_add_type(&loops, y->type);
  loops_bind(&loops, x->type);
  loops_bind(&loops, y->type);
  for (bool more = loops_start(&loops); more; more = loops_next(&loops)) {
    y->data[loops.offset[1]] = x->data[loops.offset[0]];
  }
}

/* By name too: where a pass has chosen another order, a cast goes with it.
 * Floats beyond an integer dtype become its end, integers wrap. */
void interp_cast(const InterpCall *call) {
  const Tensor *y = &call->results[0];
  DType to = y->type->dtype;
  interp_copy_by_name(call);
  if (dtype_class(to) != CLASS_INT ||
      dtype_class(call->inputs[0].type->dtype) != CLASS_FLOAT)
    return;
  int64_t n = type_elements(y->type);
  for (int64_t i = 0; i < n; i++)
    y->data[i] = (double)dtype_integer(to, y->data[i]);
}

/* The result stride of each part is that of the merged dim times the sizes of
 * the parts after it. */
void interp_merge_dims(const InterpCall *call) {
  const Tensor *x = &call->inputs[0], *y = &call->results[0];
  int n;
  const Name *parts = node_names(call->node, ATTR_from, &n);
  int64_t stride = type_stride(y->type, node_name(call->node, ATTR_dim));
  Loops loops = {0};
  loops_add_type(&loops, x->type);
  loops_bind(&loops, x->type);
  loops_bind(&loops, y->type);
  for (int p = n - 1; p >= 0; p--) {
    for (int i = 0; i < loops.rank; i++) {
      if (loops.names[i] == parts[p]) loops.strides[1][i] = stride;
    }
    stride *= type_size(x->type, parts[p]);
  }
  for (bool more = loops_start(&loops); more; more = loops_next(&loops)) {
    y->data[loops.offset[1]] = x->data[loops.offset[0]];
  }
}

void interp_const(const InterpCall *call) {
  call->results[0].data[0] = node_float(call->node, ATTR_value, 0);
}

void interp_iota(const InterpCall *call) {
  int64_t n = type_elements(call->results[0].type);
  for (int64_t i = 0; i < n; i++) call->results[0].data[i] = (double)i;
}

/* ---- indexing ---- */

static void forget_dim(Loops *loops, int tensor, Name dim) {
  for (int i = 0; i < loops->rank; i++) {
    if (loops->names[i] == dim) loops->strides[tensor][i] = 0;
  }
}

/* An index out of range is clamped, as in emitted code. */
void interp_gather(const InterpCall *call) {
  const Tensor *table = &call->inputs[0], *at = &call->inputs[1];
  const Tensor *y = &call->results[0];
  Name dim = node_name(call->node, ATTR_dim);
  int64_t stride = type_stride(table->type, dim);
  double last = (double)type_size(table->type, dim) - 1;
  Loops loops = {0};
  loops_add_type(&loops, y->type);
  loops_bind(&loops, table->type);
  loops_bind(&loops, at->type);
  loops_bind(&loops, y->type);
  forget_dim(&loops, 0, dim);
  for (bool more = loops_start(&loops); more; more = loops_next(&loops)) {
    double row = fmin(fmax(at->data[loops.offset[1]], 0), last);
    y->data[loops.offset[2]] =
        table->data[loops.offset[0] + (int64_t)row * stride];
  }
}

void interp_update_slice(const InterpCall *call) {
  const Tensor *x = &call->inputs[0], *row = &call->inputs[1];
  const Tensor *y = &call->results[0];
  Name dim = node_name(call->node, ATTR_dim);
  double last = (double)type_size(y->type, dim) - 1;
  double at = fmin(fmax(call->inputs[2].data[0], 0), last);
  memcpy(y->data, x->data, (size_t)type_elements(y->type) * sizeof(double));
  int64_t base = (int64_t)at * type_stride(y->type, dim);
  Loops loops = {0};
  loops_add_type(&loops, row->type);
  loops_bind(&loops, row->type);
  loops_bind(&loops, y->type);
  for (bool more = loops_start(&loops); more; more = loops_next(&loops))
    y->data[base + loops.offset[1]] = row->data[loops.offset[0]];
}

void interp_one_hot(const InterpCall *call) {
  const Tensor *at = &call->inputs[0], *y = &call->results[0];
  Name dim = node_name(call->node, ATTR_dim);
  Loops loops = {0};
  loops_add(&loops, dim, type_size(y->type, dim));
  loops_add_type(&loops, y->type);
  loops_bind(&loops, at->type);
  loops_bind(&loops, y->type);
  for (bool more = loops_start(&loops); more; more = loops_next(&loops)) {
    bool is_here = at->data[loops.offset[0]] == (double)loops.index[0];
    y->data[loops.offset[1]] = is_here ? 1 : 0;
  }
}

/* Copies `n` slices along `dim` from x, at `x_start`, to y, at `y_start`. */
static void copy_slices(const Tensor *x, const Tensor *y, Name dim,
                        int64_t x_start, int64_t y_start, int64_t n) {
  int64_t x_base = x_start * type_stride(x->type, dim);
  int64_t y_base = y_start * type_stride(y->type, dim);
  Loops loops = {0};
  loops_add(&loops, dim, n);
  loops_add_type(&loops, y->type);
  loops_bind(&loops, x->type);
  loops_bind(&loops, y->type);
  for (bool more = loops_start(&loops); more; more = loops_next(&loops)) {
    y->data[y_base + loops.offset[1]] = x->data[x_base + loops.offset[0]];
  }
}

void interp_slice(const InterpCall *call) {
  Name dim = node_name(call->node, ATTR_dim);
  const Tensor *y = &call->results[0];
  copy_slices(&call->inputs[0], y, dim, node_int(call->node, ATTR_start, 0), 0,
              type_size(y->type, dim));
}

void interp_reverse(const InterpCall *call) {
  Name dim = node_name(call->node, ATTR_dim);
  const Tensor *x = &call->inputs[0], *y = &call->results[0];
  int64_t n = type_size(y->type, dim);
  for (int64_t i = 0; i < n; i++) copy_slices(x, y, dim, n - 1 - i, i, 1);
}

void interp_pad(const InterpCall *call) {
  Name dim = node_name(call->node, ATTR_dim);
  const Tensor *x = &call->inputs[0], *y = &call->results[0];
  int n;
  int64_t before = node_ints(call->node, ATTR_pad, &n)[0];
  double fill = node_float(call->node, ATTR_value, 0);
  int64_t elements = type_elements(y->type);
  for (int64_t i = 0; i < elements; i++) y->data[i] = fill;
  copy_slices(x, y, dim, 0, before, type_size(x->type, dim));
}

void interp_concat(const InterpCall *call) {
  Name dim = node_name(call->node, ATTR_dim);
  int64_t start = 0;
  for (int i = 0; i < call->node->n_inputs; i++) {
    const Tensor *x = &call->inputs[i];
    int64_t n = type_find(x->type, dim) < 0 ? 1 : type_size(x->type, dim);
    copy_slices(x, &call->results[0], dim, 0, start, n);
    start += n;
  }
}

void interp_argmax(const InterpCall *call) {
  const Tensor *x = &call->inputs[0], *y = &call->results[0];
  Name dim = node_name(call->node, ATTR_dim);
  int64_t stride = type_stride(x->type, dim), n = type_size(x->type, dim);
  Loops loops = {0};
  loops_add_type(&loops, y->type);
  loops_bind(&loops, x->type);
  loops_bind(&loops, y->type);
  for (bool more = loops_start(&loops); more; more = loops_next(&loops)) {
    const double *row = x->data + loops.offset[0];
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++) {
      if (interp_is_above(row[i * stride], row[best * stride])) best = i;
    }
    y->data[loops.offset[1]] = (double)best;
  }
}

/* Insertion: an element passes those that are above it, so ties keep their
 * order. */
static void sort_row(double *values, double *at, int64_t stride, int64_t n) {
  for (int64_t i = 1; i < n; i++) {
    double value = values[i * stride];
    int64_t k = i;
    for (; k > 0 && interp_is_above(values[(k - 1) * stride], value); k--) {
      values[k * stride] = values[(k - 1) * stride];
      at[k * stride] = at[(k - 1) * stride];
    }
    values[k * stride] = value;
    at[k * stride] = (double)i;
  }
}

void interp_sort(const InterpCall *call) {
  const Tensor *x = &call->inputs[0];
  const Tensor *y = &call->results[0], *at = &call->results[1];
  Name dim = node_name(call->node, ATTR_dim);
  Loops loops = {0};
  loops_add_type(&loops, type_without(call->arena, x->type, &dim, 1));
  loops_bind(&loops, y->type);
  int64_t stride = type_stride(y->type, dim), n = type_size(y->type, dim);
  for (int64_t i = 0; i < type_elements(x->type); i++) y->data[i] = x->data[i];
  for (bool more = loops_start(&loops); more; more = loops_next(&loops))
    sort_row(y->data + loops.offset[0], at->data + loops.offset[0], stride, n);
}

/* One random number for each element, counted in the order of the result's
 * type. */
void interp_random_keep(const InterpCall *call) {
  const Tensor *y = &call->results[0];
  uint64_t seed = (uint64_t)(int64_t)call->inputs[0].data[0];
  uint64_t step = (uint64_t)(int64_t)call->inputs[1].data[0];
  const char *stream = node_name(call->node, ATTR_stream);
  uint64_t key =
      random_stream(seed, (uint32_t)hash_bytes(stream, strlen(stream), 0));
  double p = node_float(call->node, ATTR_value, 0);
  int64_t n = type_elements(y->type);
  for (int64_t i = 0; i < n; i++) {
    y->data[i] = random_keep(key, step, (uint64_t)i, p);
  }
}
