/*
 * window.c -- computes which elements the windows of convolutions and pools
 * see.
 */
#include "interp/internal.h"

static int64_t clamp(int64_t x, int64_t low, int64_t high) {
  return x < low ? low : x > high ? high : x;
}

static int64_t index_of(const Loops *loops, Name name) {
  for (int i = 0; i < loops->rank; i++) {
    if (loops->names[i] == name) return loops->index[i];
  }
  UNREACHABLE();
}

/* Window i of n over `size` elements is floor(i size / n) to
 * ceil((i + 1) size / n) in the adaptive operators. */
PoolWindow pool_window(const Node *node, const Type *x, const Type *y,
                       const Loops *y_loops) {
  PoolWindow window = {.count = 1};
  bool is_adaptive =
      node->op == OP_adaptive_avgpool || node->op == OP_adaptive_avgpool_grad;
  bool counts_pad = node_int(node, ATTR_causal, 1) != 0;
  const Name *space = node_names(node, ATTR_space, &window.n);
  for (int i = 0; i < window.n; i++) {
    int64_t size = type_size(x, space[i]), n = type_size(y, space[i]);
    int64_t at = index_of(y_loops, space[i]), begin, end;
    if (is_adaptive) {
      begin = at * size / n;
      end = ((at + 1) * size + n - 1) / n;
    } else {
      int64_t width = node_int_at(node, ATTR_window, i, 1);
      begin = at * node_int_at(node, ATTR_stride, i, width) -
              node_int_at(node, ATTR_pad, i, 0);
      end = begin + width;
    }
    window.begin[i] = clamp(begin, 0, size);
    window.end[i] = clamp(end, 0, size);
    window.count *= counts_pad ? end - begin : window.end[i] - window.begin[i];
  }
  if (window.count == 0) window.count = 1;
  return window;
}

static void add_channels(Loops *channels, const Type *type, const Name *space,
                         int n_space) {
  for (int i = 0; i < type->rank; i++) {
    bool is_space = false;
    for (int s = 0; s < n_space; s++)
      is_space = is_space || type->dims[i].name == space[s];
    if (!is_space) loops_add(channels, type->dims[i].name, type->dims[i].size);
  }
}

void conv_loops(ConvLoops *conv, const Node *node, const Type *x, const Type *w,
                const Type *y) {
  *conv = (ConvLoops){0};
  Loops *windows = &conv->windows;
  const Name *space = node_names(node, ATTR_space, &conv->n_space);
  const Type *types[] = {x, w, y};
  for (int t = 0; t < 3; t++)
    add_channels(&conv->channels, types[t], space, conv->n_space);
  if (conv->channels.rank == 0) loops_add(&conv->channels, NULL, 1);
  for (int s = 0; s < conv->n_space; s++) {
    conv->position[s] = s;
    conv->tap[s] = conv->n_space + s;
    loops_add(windows, NULL, type_size(y, space[s]));
  }
  for (int s = 0; s < conv->n_space; s++)
    loops_add(windows, NULL, type_size(w, space[s]));
  for (int t = 0; t < 3; t++) {
    loops_bind(windows, types[t]);
    loops_bind(&conv->channels, types[t]);
  }
  for (int s = 0; s < conv->n_space; s++) {
    conv->size[s] = type_size(x, space[s]);
    conv->stride[s] = node_int_at(node, ATTR_stride, s, 1);
    conv->pad[s] = node_int_at(node, ATTR_pad, s, 0);
    conv->dilate[s] = node_int_at(node, ATTR_dilate, s, 1);
    int64_t x_stride = type_stride(x, space[s]);
    windows->strides[0][conv->position[s]] = conv->stride[s] * x_stride;
    windows->strides[0][conv->tap[s]] = conv->dilate[s] * x_stride;
    windows->strides[1][conv->tap[s]] = type_stride(w, space[s]);
    windows->strides[2][conv->position[s]] = type_stride(y, space[s]);
  }
}

bool conv_in_bounds(const ConvLoops *conv) {
  const int64_t *index = conv->windows.index;
  for (int s = 0; s < conv->n_space; s++) {
    int64_t at = index[conv->position[s]] * conv->stride[s] +
                 index[conv->tap[s]] * conv->dilate[s] - conv->pad[s];
    if (at < 0 || at >= conv->size[s]) return false;
  }
  return true;
}
