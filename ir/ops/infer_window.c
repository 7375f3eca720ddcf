/*
 * infer_window.c -- types of operators that slide a window: convolutions, their
 * gradients, pools, and resize.
 *
 * Dims of a convolution, by name: `space` are slid; `dim` is contracted; what
 * only w has is new in the result (`to` of the gradients, which see no forward
 * operand to tell it from); what else both have are groups.
 *
 *     conv             x [N, C, Y, X], w [O, C, Y, X]  -> [N, Y, X, O]
 *     conv_input_grad  dy [N, Y, X, O], w              -> [N, Y, X, C]
 *     conv_weight_grad x, dy                           -> [O, C, Y, X]
 */
#include "ir/ops/infer.h"

/* Bounds that keep every product of them far from overflow. */
#define MAX_STEP   (1 << 24)
#define MAX_EXTENT ((int64_t)1 << 36)

typedef struct Window {
  NameSpan space;
  int64_t size[MAX_RANK]; /* k */
  int64_t stride[MAX_RANK], pad[MAX_RANK], dilate[MAX_RANK];
} Window;

static NameSpan read_space(Infer *in) {
  NameSpan space = infer_names(in, ATTR_space, true);
  if (space.n > MAX_RANK) {
    in->failed = true;
    space.n = MAX_RANK;
    diag(in->module->diags, DIAG_op_rank, in->span, in->op, MAX_RANK);
  }
  return space;
}

static void read_steps(Infer *in, Window *window) {
  int n = window->space.n;
  infer_ints(in, ATTR_stride, n, 1, MAX_STEP, 1, window->stride);
  infer_ints(in, ATTR_pad, n, 0, MAX_STEP, 0, window->pad);
  infer_ints(in, ATTR_dilate, n, 1, MAX_STEP, 1, window->dilate);
}

/* (size + 2 pad - dilate (k - 1) - 1) // stride + 1 */
static int64_t slid_size(Infer *in, const Window *window, int i, int64_t size) {
  int64_t k = window->size[i];
  if (size > MAX_EXTENT || k > MAX_EXTENT) {
    in->failed = true;
    diag(in->module->diags, DIAG_op_too_large, in->span, in->op);
    return 1;
  }
  int64_t padded = size + 2 * window->pad[i];
  int64_t extent = window->dilate[i] * (k - 1) + 1;
  if (extent > padded) {
    in->failed = true;
    diag(in->module->diags, DIAG_op_window, in->span, (long)extent,
         window->space.items[i], in->op, (long)padded);
    return 1;
  }
  return (padded - extent) / window->stride[i] + 1;
}

static int space_index(const Window *window, Name dim) {
  for (int i = 0; i < window->space.n; i++) {
    if (window->space.items[i] == dim) return i;
  }
  return -1;
}

static DType product_dtype(Infer *in) {
  infer_want_real(in, 0);
  infer_want_real(in, 1);
  return infer_dtype_attr(
      in, dtype_promote(infer_type(in, 0)->dtype, infer_type(in, 1)->dtype));
}

/* ---- convolutions ---- */

int infer_conv(Module *module, const OpCall *call, Span span,
               const Type **out_types) {
  Infer in = infer_begin(module, call, span);
  const Type *x = call->types[0], *w = call->types[1];
  Name dim = infer_name(&in, ATTR_dim);
  Window window = {.space = read_space(&in)};
  read_steps(&in, &window);
  infer_size(&in, 0, dim);
  infer_size(&in, 1, dim);
  infer_agree(&in, 0, 1, dim);
  if (names_have(window.space, dim)) {
    in.failed = true;
    diag(module->diags, DIAG_op_name_twice, span, dim, "dim and space", in.op);
  }
  int64_t slid[MAX_RANK] = {0};
  for (int i = 0; i < window.space.n; i++) {
    int64_t size = infer_size(&in, 0, window.space.items[i]);
    window.size[i] = infer_size(&in, 1, window.space.items[i]);
    slid[i] = slid_size(&in, &window, i, size);
  }
  Dims dims = {0};
  for (int i = 0; i < x->rank; i++) {
    Name name = x->dims[i].name;
    if (name == dim) continue;
    int at = space_index(&window, name);
    if (at < 0) infer_agree(&in, 0, 1, name);
    dims_add(&dims, name, at < 0 ? x->dims[i].size : slid[at]);
  }
  for (int i = 0; i < w->rank; i++) {
    if (type_find(x, w->dims[i].name) >= 0) continue;
    dims_add(&dims, w->dims[i].name, w->dims[i].size);
  }
  return infer_one(&in, product_dtype(&in), &dims, out_types);
}

/* dy must be what the window makes of sizes[]. */
static void check_slid(Infer *in, const Window *window, int dy,
                       const int64_t *sizes) {
  for (int i = 0; i < window->space.n; i++) {
    Name name = window->space.items[i];
    int64_t got = infer_size(in, dy, name);
    int64_t wanted = slid_size(in, window, i, sizes[i]);
    if (got == wanted || in->failed) continue;
    in->failed = true;
    diag(in->module->diags, DIAG_op_slid, in->span, name, dy + 1, in->op,
         (long)got, (long)wanted);
  }
}

int infer_conv_input_grad(Module *module, const OpCall *call, Span span,
                          const Type **out_types) {
  Infer in = infer_begin(module, call, span);
  const Type *dy = call->types[0], *w = call->types[1];
  Name dim = infer_name(&in, ATTR_dim);
  Window window = {.space = read_space(&in)};
  NameSpan to = infer_names(&in, ATTR_to, true);
  int64_t sizes[MAX_RANK];
  read_steps(&in, &window);
  infer_ints(&in, ATTR_sizes, window.space.n, 1, MAX_EXTENT, 0, sizes);
  for (int i = 0; i < window.space.n; i++) {
    window.size[i] = infer_size(&in, 1, window.space.items[i]);
  }
  check_slid(&in, &window, 0, sizes);
  infer_lacks(&in, 0, dim);
  int64_t channels = infer_size(&in, 1, dim);
  for (int i = 0; i < to.n; i++) {
    infer_size(&in, 0, to.items[i]);
    infer_size(&in, 1, to.items[i]);
    infer_agree(&in, 0, 1, to.items[i]);
  }
  for (int i = 0; i < w->rank; i++) { /* groups */
    Name name = w->dims[i].name;
    if (name == dim || space_index(&window, name) >= 0) continue;
    infer_size(&in, 0, name);
    infer_agree(&in, 0, 1, name);
  }
  Dims dims = {0};
  for (int i = 0; i < dy->rank; i++) {
    Name name = dy->dims[i].name;
    if (names_have(to, name)) continue;
    int at = space_index(&window, name);
    dims_add(&dims, name, at < 0 ? dy->dims[i].size : sizes[at]);
  }
  dims_add(&dims, dim, channels);
  return infer_one(&in, product_dtype(&in), &dims, out_types);
}

/* Without `over`, everything that x and dy share is summed: no groups. */
static bool is_summed(const Infer *in, NameSpan over, Name name) {
  if (infer_has(in, ATTR_over)) return names_have(over, name);
  return type_find(infer_type(in, 1), name) >= 0;
}

int infer_conv_weight_grad(Module *module, const OpCall *call, Span span,
                           const Type **out_types) {
  Infer in = infer_begin(module, call, span);
  const Type *x = call->types[0];
  Name dim = infer_name(&in, ATTR_dim);
  Window window = {.space = read_space(&in)};
  NameSpan to = infer_names(&in, ATTR_to, true);
  NameSpan over = infer_names(&in, ATTR_over, false);
  int64_t sizes[MAX_RANK] = {0};
  read_steps(&in, &window);
  infer_ints(&in, ATTR_window, window.space.n, 1, MAX_EXTENT, 0, window.size);
  for (int i = 0; i < window.space.n; i++) {
    sizes[i] = infer_size(&in, 0, window.space.items[i]);
  }
  check_slid(&in, &window, 1, sizes);
  infer_lacks(&in, 1, dim);
  int64_t channels = infer_size(&in, 0, dim);
  Dims dims = {0};
  for (int i = 0; i < x->rank; i++) { /* groups; summed dims */
    Name name = x->dims[i].name;
    if (name == dim || space_index(&window, name) >= 0) continue;
    infer_size(&in, 1, name);
    infer_agree(&in, 0, 1, name);
    if (!is_summed(&in, over, name)) dims_add(&dims, name, x->dims[i].size);
  }
  for (int i = 0; i < to.n; i++) {
    infer_lacks(&in, 0, to.items[i]);
    dims_add(&dims, to.items[i], infer_size(&in, 1, to.items[i]));
  }
  for (int i = 0; i < over.n; i++) infer_size(&in, 0, over.items[i]);
  dims_add(&dims, dim, channels);
  for (int i = 0; i < window.space.n; i++) {
    dims_add(&dims, window.space.items[i], window.size[i]);
  }
  return infer_one(&in, product_dtype(&in), &dims, out_types);
}

/* One multiply-add for every element of dy (the result of conv), channel and
 * place in the window; the same for all three. */
double cost_conv(const Node *node, const Type *const *inputs) {
  const Type *first = inputs[0];
  const Type *second = inputs[1];
  const Type *result = node->types[0];
  const Type *dy = result, *w = second;
  if (node->op == OP_conv_input_grad) dy = first;
  if (node->op == OP_conv_weight_grad) dy = second, w = result;
  double flops = 2 * (double)type_elements(dy);
  flops *= (double)type_size(w, node_name(node, ATTR_dim));
  int n;
  const Name *space = node_names(node, ATTR_space, &n);
  for (int i = 0; i < n; i++) flops *= (double)type_size(w, space[i]);
  return flops;
}

/* ---- pools ---- */

/* The stride of a pool is its window unless it says otherwise. */
static Window read_pool(Infer *in) {
  Window window = {.space = read_space(in)};
  int n = window.space.n;
  infer_ints(in, ATTR_window, n, 1, MAX_STEP, 0, window.size);
  infer_ints(in, ATTR_pad, n, 0, MAX_STEP, 0, window.pad);
  infer_ints(in, ATTR_stride, n, 1, MAX_STEP, 1, window.stride);
  for (int i = 0; i < n; i++) {
    window.dilate[i] = 1;
    if (!infer_has(in, ATTR_stride)) window.stride[i] = window.size[i];
    if (window.pad[i] < window.size[i]) continue;
    in->failed = true; /* a window of nothing but padding has no maximum */
    diag(in->module->diags, DIAG_op_attr_range, in->span, "pad", in->op,
         (long)window.pad[i], 0L, (long)window.size[i] - 1);
  }
  return window;
}

/* The operand's dims with those of space set to sizes[]. */
static Dims type_with_space(const Infer *in, int operand, const Window *window,
                            const int64_t *sizes) {
  const Type *type = infer_type(in, operand);
  Dims dims = {0};
  for (int i = 0; i < type->rank; i++) {
    int at = space_index(window, type->dims[i].name);
    dims_add(&dims, type->dims[i].name,
             at < 0 ? type->dims[i].size : sizes[at]);
  }
  return dims;
}

static Dims infer_pooled(Infer *in) {
  Window window = read_pool(in);
  int64_t slid[MAX_RANK] = {0};
  for (int i = 0; i < window.space.n; i++) {
    int64_t size = infer_size(in, 0, window.space.items[i]);
    slid[i] = slid_size(in, &window, i, size);
  }
  return type_with_space(in, 0, &window, slid);
}

int infer_pool(Module *module, const OpCall *call, Span span,
               const Type **out_types) {
  Infer in = infer_begin(module, call, span);
  if (call->op == OP_avgpool) infer_want_real(&in, 0);
  infer_want_number(&in, 0);
  Dims dims = infer_pooled(&in);
  return infer_one(&in, call->types[0]->dtype, &dims, out_types);
}

/* x y dy -> x */
int infer_pool_grad(Module *module, const OpCall *call, Span span,
                    const Type **out_types) {
  Infer in = infer_begin(module, call, span);
  Dims slid = infer_pooled(&in);
  for (int i = 0; i < slid.n; i++) {
    int64_t size = infer_size(&in, 1, slid.items[i].name);
    if (size != slid.items[i].size) {
      infer_mismatch(&in, 0, 1, slid.items[i].name, slid.items[i].size, size);
    }
  }
  infer_want_same_dims(&in, 1, 2);
  infer_want_real(&in, 2);
  Dims dims = {0};
  dims_add_type(&dims, call->types[0], (NameSpan){0});
  return infer_one(&in, call->types[2]->dtype, &dims, out_types);
}

/* dy; `sizes` are those of x along `space`. */
int infer_avgpool_grad(Module *module, const OpCall *call, Span span,
                       const Type **out_types) {
  Infer in = infer_begin(module, call, span);
  Window window = {.space = read_space(&in)};
  int64_t sizes[MAX_RANK];
  if (call->op == OP_avgpool_grad) window = read_pool(&in);
  infer_ints(&in, ATTR_sizes, window.space.n, 1, MAX_EXTENT, 0, sizes);
  if (call->op == OP_avgpool_grad) check_slid(&in, &window, 0, sizes);
  for (int i = 0; i < window.space.n; i++) {
    infer_size(&in, 0, window.space.items[i]);
  }
  infer_want_real(&in, 0);
  Dims dims = type_with_space(&in, 0, &window, sizes);
  return infer_one(&in, call->types[0]->dtype, &dims, out_types);
}

int infer_adaptive_avgpool(Module *module, const OpCall *call, Span span,
                           const Type **out_types) {
  Infer in = infer_begin(module, call, span);
  Window window = {.space = read_space(&in)};
  int64_t sizes[MAX_RANK];
  infer_ints(&in, ATTR_sizes, window.space.n, 1, MAX_EXTENT, 0, sizes);
  for (int i = 0; i < window.space.n; i++) {
    infer_size(&in, 0, window.space.items[i]);
  }
  infer_want_real(&in, 0);
  Dims dims = type_with_space(&in, 0, &window, sizes);
  return infer_one(&in, call->types[0]->dtype, &dims, out_types);
}

/* Positions along the dim are exact in 64 bits up to this size. */
#define MAX_RESIZED ((int64_t)1 << 30)

int infer_resize(Module *module, const OpCall *call, Span span,
                 const Type **out_types) {
  Infer in = infer_begin(module, call, span);
  const Type *x = call->types[0];
  Name dim = infer_name(&in, ATTR_dim);
  int64_t size = 1, side, is_reverse;
  infer_ints(&in, ATTR_sizes, 1, 1, MAX_RESIZED, 0, &size);
  infer_ints(&in, ATTR_window, 1, 0, 2, -1, &side);
  is_reverse = infer_int(&in, ATTR_reverse, 0);
  if (is_reverse < 0 || is_reverse > 1) {
    in.failed = true;
    diag(module->diags, DIAG_op_attr_range, span, "reverse", in.op,
         (long)is_reverse, 0L, 1L);
  }
  if (infer_size(&in, 0, dim) > MAX_RESIZED) {
    in.failed = true;
    diag(module->diags, DIAG_op_too_large, span, in.op);
  }
  infer_want_real(&in, 0);
  Dims dims = {0};
  for (int i = 0; i < x->rank; i++) {
    bool is_resized = x->dims[i].name == dim;
    dims_add(&dims, x->dims[i].name, is_resized ? size : x->dims[i].size);
  }
  return infer_one(&in, x->dtype, &dims, out_types);
}

/* A multiply-add for each tap of each element of the forward map's result. */
double cost_resize(const Node *node, const Type *const *inputs) {
  int n;
  double taps = 2 * (double)node_ints(node, ATTR_window, &n)[0];
  const Type *y = node_int(node, ATTR_reverse, 0) ? inputs[0] : node->types[0];
  return 2 * taps * (double)type_elements(y);
}

/* Elements that the windows of an adaptive pool see: window i of n
 * over `size` elements is floor(i size / n) to ceil((i + 1) size / n). */
static double adaptive_taps(const Node *node, const Type *x, const Type *y) {
  int n_space;
  const Name *space = node_names(node, ATTR_space, &n_space);
  double taps = (double)type_elements(y);
  for (int s = 0; s < n_space && taps > 0; s++) {
    int64_t size = type_size(x, space[s]), n = type_size(y, space[s]), sum = 0;
    for (int64_t i = 0; i < n; i++)
      sum += ((i + 1) * size + n - 1) / n - i * size / n;
    taps *= (double)sum / (double)n;
  }
  return taps;
}

/* An operation for every tap of a window, in padding too, and of means a
 * division for every window. */
double cost_pool(const Node *node, const Type *const *inputs) {
  Op op = node->op;
  bool is_adaptive =
      op == OP_adaptive_avgpool || op == OP_adaptive_avgpool_grad;
  bool is_max = op == OP_maxpool || op == OP_maxpool_grad;
  bool is_forward =
      op == OP_maxpool || op == OP_avgpool || op == OP_adaptive_avgpool;
  const Type *x = is_forward ? inputs[0] : node->types[0];
  const Type *y = is_forward ? node->types[0] : inputs[node->n_inputs - 1];
  double windows = (double)type_elements(y), taps = windows;
  int n;
  const int64_t *window = node_ints(node, ATTR_window, &n);
  for (int i = 0; i < n; i++) taps *= (double)window[i];
  if (is_adaptive) taps = adaptive_taps(node, x, y);
  return taps + (is_max ? 0 : windows);
}
