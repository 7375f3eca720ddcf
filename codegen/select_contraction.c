/*
 * select_contraction.c -- finds out whether a library can compute a contraction
 * or a convolution, and fills in the call: the dims of each kind (M, N, K) must
 * collapse to one dim with one stride.
 *
 *     x[B, T, C], w[C, H, D] over C -> y[B, T, H, D]
 *     M = (B, T), N = (H, D), K = C:  768 x 128 times 128 x 128
 *
 * Dims of M or N that do not collapse become batch dims of stride 0 in the
 * other operand.  Two dims of K that do not collapse become a call for each
 * index of the outer one, which adds to the call before:
 *
 *     x[B, T, C], dy[B, S, C] over (B, C) -> dw[T, S]
 *
 * The operands are exchanged if that makes c's rows contiguous.
 */
#include "codegen/select.h"

#include <string.h>

/* ---- dims of one kind ---- */

typedef struct Walk {
  int64_t size, a, b, c; /* strides in elements; 0 where absent */
} Walk;

typedef struct Group {
  int n;
  Walk walk[MAX_RANK];
} Group;

int64_t local_stride(const Type *type, const Mesh *mesh, Name name) {
  int at = type_find(type, name);
  if (at < 0) return 0;
  int64_t stride = 1;
  for (int d = type->rank - 1; d > at; d--)
    stride *= type_local_size(type, mesh, d);
  return stride;
}

/* Outermost first, by c and then by a. */
static bool walk_is_before(const Walk *x, const Walk *y) {
  if (x->c != y->c) return x->c > y->c;
  return x->a > y->a;
}

static void group_add(Group *group, Walk walk) {
  if (walk.size == 1) return;
  int at = group->n++;
  while (at > 0 && walk_is_before(&walk, &group->walk[at - 1])) {
    group->walk[at] = group->walk[at - 1];
    at--;
  }
  group->walk[at] = walk;
}

static void group_collapse(Group *group) {
  int n = 0;
  for (int i = 0; i < group->n; i++) {
    Walk inner = group->walk[i];
    Walk *outer = n > 0 ? &group->walk[n - 1] : NULL;
    if (outer && outer->a == inner.a * inner.size &&
        outer->b == inner.b * inner.size && outer->c == inner.c * inner.size) {
      inner.size *= outer->size;
      *outer = inner;
    } else {
      group->walk[n++] = inner;
    }
  }
  group->n = n;
}

/* Keeps one walk, `kept`; the others go to the batch. */
static Walk group_take(Group *group, int kept, Group *batch) {
  for (int i = 0; i < group->n; i++)
    if (i != kept) group_add(batch, group->walk[i]);
  return group->n ? group->walk[kept] : (Walk){.size = 1};
}

static int largest_walk(const Group *group) {
  int best = 0;
  for (int i = 1; i < group->n; i++)
    if (group->walk[i].size > group->walk[best].size) best = i;
  return best;
}

/* ---- matmuls ---- */

typedef struct Contraction {
  Group m, n, k, batch;
} Contraction;

static void classify_dims(const Graph *graph, int id, Contraction *out) {
  const Node *node = graph->nodes.data[id];
  const Mesh *mesh = &graph->mesh;
  const Type *a = graph_type(graph, node->inputs[0]);
  const Type *b = graph_type(graph, node->inputs[1]);
  const Type *c = node->types[0];
  for (int side = 0; side < 2; side++) {
    const Type *type = side ? b : a;
    for (int d = 0; d < type->rank; d++) {
      Name name = type->dims[d].name;
      bool in_a = type_find(a, name) >= 0, in_b = type_find(b, name) >= 0;
      bool in_c = type_find(c, name) >= 0;
      if (side == 1 && in_a) continue;
      Walk walk = {.size = type_local_size(type, mesh, d),
                   .a = local_stride(a, mesh, name),
                   .b = local_stride(b, mesh, name),
                   .c = local_stride(c, mesh, name)};
      Group *group = !in_c          ? &out->k
                     : in_a && in_b ? &out->batch
                     : in_a         ? &out->m
                                    : &out->n;
      group_add(group, walk);
    }
  }
}

static void exchange_operands(Contraction *contraction) {
  Group m = contraction->m;
  contraction->m = contraction->n;
  contraction->n = m;
  Group *groups[] = {&contraction->m, &contraction->n, &contraction->k,
                     &contraction->batch};
  for (int g = 0; g < 4; g++)
    for (int i = 0; i < groups[g]->n; i++) {
      Walk *walk = &groups[g]->walk[i];
      int64_t a = walk->a;
      walk->a = walk->b;
      walk->b = a;
    }
}

/* Which walk of N has c contiguous, or -1. */
static int contiguous_walk(const Group *n) {
  if (n->n == 0) return 0;
  for (int i = 0; i < n->n; i++)
    if (n->walk[i].c == 1) return i;
  return -1;
}

/* A dim of size 1 may have any stride: makes one of the two strides 1. */
static void free_strides(int64_t size_i, int64_t *i, int64_t size_k,
                         int64_t *k) {
  if (size_i == 1 && size_k == 1)
    *i = *k = 1;
  else if (size_i == 1)
    *i = *k == 1 ? size_k : 1;
  else if (size_k == 1)
    *k = *i == 1 ? size_i : 1;
}

/* The dim of K that is one call, and in *out the other one, if it has two. */
static Walk take_sum(const Group *k, Walk *out) {
  int kept = largest_walk(k);
  *out = k->n > 1 ? k->walk[1 - kept] : (Walk){.size = 1};
  return k->n > 0 ? k->walk[kept] : (Walk){.size = 1};
}

/* Calls of few operations take longer than a loop nest, and many fill the
 * program. */
static bool is_worth_calls(const DnnGemm *gemm, int64_t n) {
  enum { LEAST_OPERATIONS = 1 << 15, MOST_CALLS = 256 };
  return n == 1 ||
         (n <= MOST_CALLS && gemm->m * gemm->n * gemm->k >= LEAST_OPERATIONS);
}

static bool fill_gemm(Contraction *contraction, GemmCalls *calls) {
  DnnGemm *out = &calls->gemm;
  int last = contiguous_walk(&contraction->n);
  if (last < 0) return false;
  Walk n = group_take(&contraction->n, last, &contraction->batch);
  Walk m = group_take(&contraction->m, largest_walk(&contraction->m),
                      &contraction->batch);
  Walk outer, k = take_sum(&contraction->k, &outer);
  group_collapse(&contraction->batch);
  if (contraction->k.n > 2 || contraction->batch.n > 2) return false;
  calls->n = outer.size;
  calls->a_step = outer.a;
  calls->b_step = outer.b;
  *out = (DnnGemm){.m = m.size,
                   .n = n.size,
                   .k = k.size,
                   .a_i = m.a,
                   .a_k = k.a,
                   .b_k = k.b,
                   .b_j = n.b,
                   .c_i = m.size == 1 ? n.size : m.c,
                   .c_j = 1,
                   .batch = {1, 1}};
  free_strides(out->m, &out->a_i, out->k, &out->a_k);
  free_strides(out->n, &out->b_j, out->k, &out->b_k);
  int first = 2 - contraction->batch.n;
  for (int i = 0; i < contraction->batch.n; i++) {
    out->batch[first + i] = contraction->batch.walk[i].size;
    out->a_batch[first + i] = contraction->batch.walk[i].a;
    out->b_batch[first + i] = contraction->batch.walk[i].b;
    out->c_batch[first + i] = contraction->batch.walk[i].c;
  }
  return is_worth_calls(out, calls->n);
}

/* The operands have one dtype, f32 or a 16-bit float; the result has it too, or
 * f32. */
static bool has_library_dtypes(const Graph *graph, const Node *node) {
  DType a = graph_type(graph, node->inputs[0])->dtype;
  DType b = graph_type(graph, node->inputs[1])->dtype;
  DType c = node->types[0]->dtype;
  return a == b && dtype_is_rounded(a) && (c == a || c == DT_f32);
}

bool select_gemm(const Graph *graph, int id, GemmCalls *out) {
  const Node *node = graph->nodes.data[id];
  if (node->op != OP_dot || !has_library_dtypes(graph, node)) return false;
  Contraction contraction = {0};
  classify_dims(graph, id, &contraction);
  group_collapse(&contraction.m);
  group_collapse(&contraction.n);
  group_collapse(&contraction.k);
  Contraction exchanged = contraction;
  exchange_operands(&exchanged);
  /* A vector times a matrix has its long side in N, where c is contiguous. */
  bool is_direct = contraction.n.n > 0 || contraction.m.n == 0;
  out->is_exchanged = !(is_direct && fill_gemm(&contraction, out));
  if (out->is_exchanged && !fill_gemm(&exchanged, out)) return false;
  /* A result of 16 bits would be rounded after each call. */
  if (out->n > 1 && node->types[0]->dtype != DT_f32) return false;
  out->gemm.dtype = (DnnDtype)graph_type(graph, node->inputs[0])->dtype;
  out->gemm.c_dtype = (DnnDtype)node->types[0]->dtype;
  return true;
}

/* ---- convolutions ---- */

/* The dims of a convolution that are in the same operands. */
typedef struct Part {
  Group group;
  Walk walk; /* a: x, b: w, c: y */
} Part;

static bool collapse_part(Part *part) {
  group_collapse(&part->group);
  if (part->group.n > 1) return false;
  part->walk = part->group.n ? part->group.walk[0] : (Walk){.size = 1};
  return true;
}

static void fill_window_attr(const Node *node, AttrKey key, int n,
                             int64_t if_absent, int64_t out[2]) {
  int given = 0;
  const int64_t *values = node_ints(node, key, &given);
  out[0] = key == ATTR_pad ? 0 : 1; /* of the missing first dim */
  for (int i = 0; i < n; i++)
    out[2 - n + i] = given == 0 ? if_absent : values[i < given ? i : given - 1];
}

static void fill_window_dims(const Graph *graph, const Node *node,
                             const Type *x, const Type *w, const Type *y,
                             DnnConv *out) {
  const Mesh *mesh = &graph->mesh;
  int n = 0;
  const Name *space = node_names(node, ATTR_space, &n);
  for (int i = 0; i < 2; i++) out->in[i] = out->out[i] = out->window[i] = 1;
  fill_window_attr(node, ATTR_stride, n, 1, out->stride);
  fill_window_attr(node, ATTR_pad, n, 0, out->pad);
  fill_window_attr(node, ATTR_dilate, n, 1, out->dilate);
  for (int i = 0; i < n; i++) {
    int to = 2 - n + i;
    out->in[to] = type_local_size(x, mesh, type_find(x, space[i]));
    out->out[to] = type_local_size(y, mesh, type_find(y, space[i]));
    out->window[to] = type_local_size(w, mesh, type_find(w, space[i]));
    out->x_stride[2 + to] = local_stride(x, mesh, space[i]);
    out->w_stride[3 + to] = local_stride(w, mesh, space[i]);
    out->y_stride[2 + to] = local_stride(y, mesh, space[i]);
  }
}

static bool is_window_dim(const Node *node, Name name) {
  int n = 0;
  const Name *space = node_names(node, ATTR_space, &n);
  for (int i = 0; i < n; i++)
    if (space[i] == name) return true;
  return false;
}

static bool fill_conv(const Graph *graph, int id, const Type *x, const Type *w,
                      const Type *y, DnnConv *out) {
  const Node *node = graph->nodes.data[id];
  const Mesh *mesh = &graph->mesh;
  const Type *types[3] = {x, w, y};
  Part batch = {0}, groups = {0}, in = {0}, to = {0};
  for (int t = 0; t < 3; t++) {
    for (int d = 0; d < types[t]->rank; d++) {
      Name name = types[t]->dims[d].name;
      bool in_x = type_find(x, name) >= 0, in_w = type_find(w, name) >= 0;
      bool in_y = type_find(y, name) >= 0;
      bool is_seen = (t > 0 && in_x) || (t > 1 && in_w);
      if (is_window_dim(node, name) || is_seen) continue;
      Part *part = in_x && in_w && in_y ? &groups
                   : in_x && in_y       ? &batch
                   : in_x && in_w       ? &in
                   : in_w && in_y       ? &to
                                        : NULL;
      if (!part) return false;
      group_add(&part->group, (Walk){.size = type_local_size(types[t], mesh, d),
                                     .a = local_stride(x, mesh, name),
                                     .b = local_stride(w, mesh, name),
                                     .c = local_stride(y, mesh, name)});
    }
  }
  if (!collapse_part(&batch) || !collapse_part(&groups) ||
      !collapse_part(&in) || !collapse_part(&to))
    return false;
  /* Channels are counted through the groups. */
  if (groups.walk.size > 1 &&
      ((in.walk.size > 1 && groups.walk.a != in.walk.a * in.walk.size) ||
       (to.walk.size > 1 && groups.walk.c != to.walk.c * to.walk.size)))
    return false;
  out->batch = batch.walk.size;
  out->groups = groups.walk.size;
  out->in_channels = in.walk.size * groups.walk.size;
  out->out_channels = to.walk.size * groups.walk.size;
  out->x_stride[0] = batch.walk.a;
  out->x_stride[1] = in.walk.size > 1 ? in.walk.a : groups.walk.a;
  out->w_stride[0] = groups.walk.b;
  out->w_stride[1] = to.walk.b;
  out->w_stride[2] = in.walk.b;
  out->y_stride[0] = batch.walk.c;
  out->y_stride[1] = to.walk.size > 1 ? to.walk.c : groups.walk.c;
  fill_window_dims(graph, node, x, w, y, out);
  return true;
}

bool select_conv(const Graph *graph, int id, DnnConv *out) {
  const Node *node = graph->nodes.data[id];
  int n_space = 0;
  if (!op_is(node->op, OPCLASS_contraction) || !node_has(node, ATTR_space))
    return false;
  node_names(node, ATTR_space, &n_space);
  if (n_space < 1 || n_space > 2 || !has_library_dtypes(graph, node))
    return false;
  const Type *first = graph_type(graph, node->inputs[0]);
  const Type *second = graph_type(graph, node->inputs[1]);
  *out = (DnnConv){.dtype = (DnnDtype)first->dtype,
                   .out_dtype = (DnnDtype)node->types[0]->dtype};
  if (node->op == OP_conv_weight_grad) {
    out->kind = DNN_CONV_WEIGHT_GRAD;
    return fill_conv(graph, id, first, node->types[0], second, out);
  }
  if (node->op == OP_conv_input_grad) {
    out->kind = DNN_CONV_INPUT_GRAD;
    return fill_conv(graph, id, node->types[0], second, first, out);
  }
  out->kind = DNN_CONV_FORWARD;
  return fill_conv(graph, id, first, second, node->types[0], out);
}

int64_t select_workspace_bytes(const Target *target, const Graph *graph,
                               int id) {
  Op op = graph->nodes.data[id]->op;
  if (op == OP_dot && target->gemm_scratch) {
    GemmCalls calls;
    return select_gemm(graph, id, &calls)
               ? target->gemm_scratch(target, &calls.gemm)
               : 0;
  }
  if (!target->conv_scratch) return 0;
  DnnConv conv;
  return select_conv(graph, id, &conv) ? target->conv_scratch(target, &conv)
                                       : 0;
}

bool has_unit_strides(const DnnGemm *gemm) {
  return (gemm->a_i == 1 || gemm->a_k == 1) &&
         (gemm->b_k == 1 || gemm->b_j == 1);
}
