/*
 * attention.c -- emits attention and its gradient as CUDA kernels that never
 * store the T x T scores; they compute in f32 on CUDA cores.
 *
 *   forward   A block takes some queries of one head and walks over tiles of
 *             keys with a running maximum and sum of each row (Milakov and
 *             Gimelshein 2018; Dao et al. 2022).
 *   backward  Scores are computed again from lse.  The first blocks take some
 *             queries each and compute dq, the others some keys each and
 *             compute dk and dv.  No block adds to the results of another, so
 *             there are no atomics and the order of sums is fixed; this costs
 *             two matmuls more than atomics would.
 *
 * Shared memory holds f32: 16-bit floats are converted when they are loaded and
 * stored.  A block is 16 x 16 threads; thread (ty, tx) has the rows ty + 16 i
 * and the columns tx + 16 j of a tile.  Tiles of keys that a causal mask hides
 * are skipped.  The bodies below are the same for all shapes; sizes and strides
 * are constants in front of them.
 *
 * A rank may have a shard of the queries: a run-time number says how many
 * queries come before it, and `@` in the text below adds it to a position.
 */
#include "codegen/cuda/cuda.h"
#include "codegen/positions.h"

#include <string.h>

#define SHARED_LIMIT (48 * 1024)

/* ---- shapes ---- */

/* q, k, v, o and lse share batch dims, of which k and v may lack some. */
typedef struct Shape {
  int n_batch;
  int64_t batch[MAX_RANK];
  bool in_keys[MAX_RANK]; /* k and v have the dim */
  int64_t t_q, t_k, d_k, d_v;
  bool is_causal;
  AxisList split; /* of causal queries, whose positions depend on the rank */
  double scale;
  DType dtype; /* of all but lse, which is f32 */
} Shape;

enum { Q, K, V, O, LSE, N_TENSORS };

/* Element strides of one tensor. */
typedef struct Strides {
  int64_t batch[MAX_RANK], row, head;
} Strides;

static const Type *tensor_type(const Graph *graph, const Node *node,
                               int which) {
  bool is_grad = node->op == OP_attention_grad;
  if (which <= V || is_grad) return graph_type(graph, node->inputs[which]);
  return node->types[which - O];
}

/* The one dim of v that is neither key nor batch. */
static Name find_value_dim(const Graph *graph, const Node *node, int *out_n) {
  const Type *v = tensor_type(graph, node, V),
             *lse = tensor_type(graph, node, LSE);
  Name key = node_name(node, ATTR_key), width = NULL;
  *out_n = 0;
  for (int i = 0; i < v->rank; i++) {
    Name dim = v->dims[i].name;
    if (dim == key || type_find(lse, dim) >= 0) continue;
    width = dim;
    ++*out_n;
  }
  return width;
}

static int64_t local_size(const Graph *graph, const Type *type, Name dim) {
  return type_local_size(type, &graph->mesh, type_find(type, dim));
}

static Shape attention_shape(const Graph *graph, const Node *node) {
  const Type *q = tensor_type(graph, node, Q), *k = tensor_type(graph, node, K);
  const Type *v = tensor_type(graph, node, V),
             *lse = tensor_type(graph, node, LSE);
  Name query = node_name(node, ATTR_query), key = node_name(node, ATTR_key);
  int n;
  const Name *over = node_names(node, ATTR_over, &n);
  Shape shape = {.t_q = local_size(graph, q, query),
                 .t_k = local_size(graph, k, key),
                 .d_k = local_size(graph, q, over[0]),
                 .d_v = local_size(graph, v, find_value_dim(graph, node, &n)),
                 .is_causal = node_int(node, ATTR_causal, 0) != 0,
                 .scale = node_float(node, ATTR_scale, 1),
                 .dtype = q->dtype};
  if (shape.is_causal) shape.split = q->dims[type_find(q, query)].split;
  for (int i = 0; i < lse->rank; i++) {
    if (lse->dims[i].name == query) continue;
    shape.batch[shape.n_batch] = type_local_size(lse, &graph->mesh, i);
    shape.in_keys[shape.n_batch++] = type_find(k, lse->dims[i].name) >= 0;
  }
  return shape;
}

static Strides tensor_strides(const Graph *graph, const Node *node, int which) {
  const Type *type = tensor_type(graph, node, which);
  const Type *lse = tensor_type(graph, node, LSE);
  Name query = node_name(node, ATTR_query), key = node_name(node, ATTR_key);
  Strides strides = {.row = 0};
  int64_t stride = 1;
  for (int i = type->rank - 1; i >= 0; i--) {
    Name dim = type->dims[i].name;
    int at = 0;
    bool is_batch = false;
    for (int b = 0; b < lse->rank; b++) {
      if (lse->dims[b].name == query) continue;
      if (lse->dims[b].name == dim) {
        strides.batch[at] = stride;
        is_batch = true;
      }
      at++;
    }
    if (dim == query || dim == key) {
      strides.row = stride;
    } else if (!is_batch) {
      strides.head = stride;
    }
    stride *= type_local_size(type, &graph->mesh, i);
  }
  return strides;
}

static bool has_same_batch(const Type *k, const Type *v, const Type *lse) {
  for (int i = 0; i < lse->rank; i++)
    if ((type_find(k, lse->dims[i].name) >= 0) !=
        (type_find(v, lse->dims[i].name) >= 0))
      return false;
  return true;
}

/* All tensors have one float dtype; lse is f32. */
static bool has_one_dtype(const Graph *graph, const Node *node) {
  DType dtype = graph_type(graph, node->inputs[Q])->dtype;
  bool is_grad = node->op == OP_attention_grad;
  for (int i = 0; i < node->n_inputs; i++)
    if (graph_type(graph, node->inputs[i])->dtype !=
        (is_grad && i == LSE ? DT_f32 : dtype))
      return false;
  for (int i = 0; i < node->n_results; i++)
    if (node->types[i]->dtype != (!is_grad && i == 1 ? DT_f32 : dtype))
      return false;
  return dtype_is_rounded(dtype);
}

bool cuda_has_attention_kernel(const Graph *graph, int id) {
  const Node *node = graph->nodes.data[id];
  if (!has_one_dtype(graph, node)) return false;
  int n_over, n_width;
  node_names(node, ATTR_over, &n_over);
  if (node->op == OP_attention && node->n_results < 2) return false;
  find_value_dim(graph, node, &n_width);
  if (n_over != 1 || n_width != 1) return false;
  if (!has_same_batch(tensor_type(graph, node, K), tensor_type(graph, node, V),
                      tensor_type(graph, node, LSE)))
    return false;
  Shape shape = attention_shape(graph, node);
  return shape.d_k <= CUDA_MAX_HEAD && shape.d_v <= CUDA_MAX_HEAD &&
         shape.t_q < 1 << 24 && shape.t_k < 1 << 24;
}

/* ---- tiles ---- */

typedef struct Tiles {
  int b_q, b_k;       /* queries and keys of a tile */
  int pitch, s_pitch; /* floats of a row in shared memory: odd */
} Tiles;

static int round_up_16(int64_t n) {
  return (int)((n + 15) / 16 * 16);
}

static int forward_bytes(const Tiles *t) {
  return 4 * (t->b_q * t->pitch + t->b_k * t->pitch + t->b_q * t->s_pitch);
}

static int backward_bytes(const Tiles *t) {
  return 4 * (4 * t->b_q * t->pitch + 2 * t->b_q * t->s_pitch + 2 * t->b_q);
}

static Tiles choose_tiles(const Shape *shape, bool is_grad) {
  int widest = shape->d_k > shape->d_v ? round_up_16(shape->d_k)
                                       : round_up_16(shape->d_v);
  Tiles tiles = {.b_q = is_grad ? 32 : 64, .b_k = 32, .pitch = widest + 1};
  for (;;) {
    tiles.s_pitch = tiles.b_k + 1;
    int bytes = is_grad ? backward_bytes(&tiles) : forward_bytes(&tiles);
    if (bytes <= SHARED_LIMIT) return tiles;
    ASSERT(tiles.b_q > 16);
    tiles.b_q /= 2;
    if (tiles.b_k > tiles.b_q) tiles.b_k = tiles.b_q;
  }
}

/* ---- bodies ---- */

#pragma GCC diagnostic ignored "-Woverlength-strings"

static const char helpers[] =
    "#ifndef DNN_ATTENTION\n"
    "#define DNN_ATTENTION\n"
    "#define DNN_EACH(i, n) DNN_UNROLL for (int i = 0; i < n; i++)\n"
    "DNN_FN float dnn_half_max(float v) { /* over 16 lanes */\n"
    "  for (int d = 8; d > 0; d >>= 1)\n"
    "    v = dnn_max_f32(v, __shfl_xor_sync(0xffffffffu, v, d));\n"
    "  return v;\n"
    "}\n"
    "DNN_FN float dnn_half_sum(float v) {\n"
    "  for (int d = 8; d > 0; d >>= 1)\n"
    "    v += __shfl_xor_sync(0xffffffffu, v, d);\n"
    "  return v;\n"
    "}\n"
    "#endif\n";

/* The tile of a dtype: its name and C type, and the function that makes an
 * element f32. */
static const char tile_format[] =
    "#ifndef DNN_TILE_%s\n"
    "#define DNN_TILE_%s\n"
    "/* Rows first.. of a matrix into shared memory; zeros past the end. */\n"
    "DNN_FN void dnn_tile_%s(float *to, int pitch, const %s *from,\n"
    "                     long long row, long long column, int first,\n"
    "                     int rows, int end, int columns) {\n"
    "  for (int e = threadIdx.x; e < rows * columns; e += 256) {\n"
    "    const int r = e / columns, d = e %% columns;\n"
    "    to[r * pitch + d] = first + r < end\n"
    "        ? %s(from[(first + r) * row + d * column]) : 0.0f;\n"
    "  }\n"
    "}\n"
    "#endif\n";

/* Around a kernel: the names by which its body calls the tile and the
 * conversions of its dtype. */
static const char begin_format[] = "#define DNN_TILE dnn_tile_%s\n"
                                   "#define DNN_FROM(x) %s(x)\n"
                                   "#define DNN_TO(x) %s(x)\n";
static const char end_of_kernel[] = "#undef DNN_TILE\n"
                                    "#undef DNN_FROM\n"
                                    "#undef DNN_TO\n";

static const char forward_body[] =
    "  enum { R_Q = B_Q / 16, R_K = B_K / 16, C_V = (D_V + 15) / 16 };\n"
    "  DNN_SHARED float s_q[B_Q * PITCH], s_k[B_K * PITCH];\n"
    "  DNN_SHARED float s_p[B_Q * S_PITCH];\n"
    "  float m[R_Q], l[R_Q], o[R_Q][C_V];\n"
    "  DNN_EACH(i, R_Q) {\n"
    "    m[i] = -(float)DNN_INF; l[i] = 0.0f;\n"
    "    DNN_EACH(j, C_V) o[i][j] = 0.0f;\n"
    "  }\n"
    "  DNN_TILE(s_q, PITCH, q, q_row, q_head, first, B_Q, T_Q, D_K);\n"
    "  const int end = CAUSAL && first@ + B_Q < T_K ? first@ + B_Q : T_K;\n"
    "  for (int k0 = 0; k0 < end; k0 += B_K) {\n"
    "    __syncthreads();\n"
    "    DNN_TILE(s_k, PITCH, k, k_row, k_head, k0, B_K, T_K, D_K);\n"
    "    __syncthreads();\n"
    "    float s[R_Q][R_K];\n"
    "    DNN_EACH(i, R_Q) DNN_EACH(j, R_K) s[i][j] = 0.0f;\n"
    "    for (int d = 0; d < D_K; d++)\n"
    "      DNN_EACH(i, R_Q) DNN_EACH(j, R_K)\n"
    "        s[i][j] += s_q[(ty + 16 * i) * PITCH + d]\n"
    "                   * s_k[(tx + 16 * j) * PITCH + d];\n"
    "    DNN_EACH(i, R_Q) {\n"
    "      float top = m[i], sum = 0.0f;\n"
    "      DNN_EACH(j, R_K) {\n"
    "        const int key = k0 + tx + 16 * j;\n"
    "        const int is_seen = key < T_K\n"
    "            && (!CAUSAL || key <= first@ + ty + 16 * i);\n"
    "        s[i][j] = is_seen ? s[i][j] * scale : -(float)DNN_INF;\n"
    "        top = dnn_max_f32(top, s[i][j]);\n"
    "      }\n"
    "      top = dnn_half_max(top);\n"
    "      const float base = top == -(float)DNN_INF ? 0.0f : top;\n"
    "      const float shrink = expf(m[i] - base);\n"
    "      DNN_EACH(j, R_K) {\n"
    "        const float p = expf(s[i][j] - base);\n"
    "        s_p[(ty + 16 * i) * S_PITCH + tx + 16 * j] = p;\n"
    "        sum += p;\n"
    "      }\n"
    "      m[i] = top;\n"
    "      l[i] = l[i] * shrink + dnn_half_sum(sum);\n"
    "      DNN_EACH(j, C_V) o[i][j] *= shrink;\n"
    "    }\n"
    "    __syncthreads();\n"
    "    DNN_TILE(s_k, PITCH, v, v_row, v_head, k0, B_K, T_K, D_V);\n"
    "    __syncthreads();\n"
    "    for (int c = 0; c < B_K; c++)\n"
    "      DNN_EACH(i, R_Q) DNN_EACH(j, C_V)\n"
    "        o[i][j] += s_p[(ty + 16 * i) * S_PITCH + c]\n"
    "                   * s_k[c * PITCH + tx + 16 * j];\n"
    "  }\n"
    "  DNN_EACH(i, R_Q) {\n"
    "    const int row = first + ty + 16 * i;\n"
    "    if (row < T_Q) {\n"
    "      DNN_EACH(j, C_V) if (tx + 16 * j < D_V)\n"
    "        out[row * o_row + (tx + 16 * j) * o_head] =\n"
    "            DNN_TO(l[i] == 0.0f ? 0.0f : o[i][j] / l[i]);\n"
    "      if (tx == 0) lse[row * lse_row] = logf(l[i]) + m[i];\n"
    "    }\n"
    "  }\n";

/* dq of B queries. */
static const char query_body[] =
    "  float x_lse[R], delta[R], sum_q[R][C_K];\n"
    "  DNN_TILE(s_q, PITCH, q, q_row, q_head, first, B, T_Q, D_K);\n"
    "  DNN_TILE(s_g, PITCH, g, g_row, g_head, first, B, T_Q, D_V);\n"
    "  DNN_EACH(i, R) {\n"
    "    const int row = first + ty + 16 * i;\n"
    "    float sum = 0.0f;\n"
    "    if (row < T_Q) for (int d = tx; d < D_V; d += 16)\n"
    "      sum += DNN_FROM(g[row * g_row + d * g_head])\n"
    "             * DNN_FROM(o[row * o_row + d * o_head]);\n"
    "    delta[i] = dnn_half_sum(sum);\n"
    "    x_lse[i] = row < T_Q ? lse[row * lse_row] : 0.0f;\n"
    "    DNN_EACH(j, C_K) sum_q[i][j] = 0.0f;\n"
    "  }\n"
    "  const int end = CAUSAL && first@ + B < T_K ? first@ + B : T_K;\n"
    "  for (int k0 = 0; k0 < end; k0 += B) {\n"
    "    __syncthreads();\n"
    "    DNN_TILE(s_k, PITCH, k, k_row, k_head, k0, B, T_K, D_K);\n"
    "    DNN_TILE(s_v, PITCH, v, v_row, v_head, k0, B, T_K, D_V);\n"
    "    __syncthreads();\n"
    "    DNN_EACH(i, R) DNN_EACH(j, R) {\n"
    "      const int r = ty + 16 * i, c = tx + 16 * j;\n"
    "      float s = 0.0f, dp = 0.0f;\n"
    "      for (int d = 0; d < D_K; d++)\n"
    "        s += s_q[r * PITCH + d] * s_k[c * PITCH + d];\n"
    "      for (int d = 0; d < D_V; d++)\n"
    "        dp += s_g[r * PITCH + d] * s_v[c * PITCH + d];\n"
    "      const int is_seen = k0 + c < T_K && first + r < T_Q\n"
    "          && (!CAUSAL || k0 + c <= first@ + r);\n"
    "      const float p = is_seen ? expf(s * scale - x_lse[i]) : 0.0f;\n"
    "      s_ds[r * S_PITCH + c] = p * (dp - delta[i]) * scale;\n"
    "    }\n"
    "    __syncthreads();\n"
    "    for (int c = 0; c < B; c++)\n"
    "      DNN_EACH(i, R) DNN_EACH(j, C_K)\n"
    "        sum_q[i][j] += s_ds[(ty + 16 * i) * S_PITCH + c]\n"
    "                       * s_k[c * PITCH + tx + 16 * j];\n"
    "  }\n"
    "  DNN_EACH(i, R) DNN_EACH(j, C_K) {\n"
    "    const int row = first + ty + 16 * i, d = tx + 16 * j;\n"
    "    if (row < T_Q && d < D_K)\n"
    "      dq[row * q_row + d * q_head] = DNN_TO(sum_q[i][j]);\n"
    "  }\n";

/* Adds to dk and dv of B keys what the queries of one head give; the caller
 * has loaded the keys. */
static const char key_loop[] =
    "  for (int q0 = CAUSAL ? first / B * B : 0; q0 < T_Q; q0 += B) {\n";
static const char key_loop_of_shard[] =
    "  const int q_first = first > before ? (first - before) / B * B : 0;\n"
    "  for (int q0 = q_first; q0 < T_Q; q0 += B) {\n";
static const char key_body[] =
    "    __syncthreads();\n"
    "    DNN_TILE(s_q, PITCH, q, q_row, q_head, q0, B, T_Q, D_K);\n"
    "    DNN_TILE(s_g, PITCH, g, g_row, g_head, q0, B, T_Q, D_V);\n"
    "    DNN_EACH(i, R) {\n"
    "      const int row = q0 + ty + 16 * i;\n"
    "      float sum = 0.0f;\n"
    "      if (row < T_Q) for (int d = tx; d < D_V; d += 16)\n"
    "        sum += DNN_FROM(g[row * g_row + d * g_head])\n"
    "               * DNN_FROM(o[row * o_row + d * o_head]);\n"
    "      sum = dnn_half_sum(sum);\n"
    "      if (tx == 0) {\n"
    "        s_delta[ty + 16 * i] = sum;\n"
    "        s_lse[ty + 16 * i] = row < T_Q ? lse[row * lse_row] : 0.0f;\n"
    "      }\n"
    "    }\n"
    "    __syncthreads();\n"
    "    DNN_EACH(i, R) DNN_EACH(j, R) {\n"
    "      const int r = ty + 16 * i, c = tx + 16 * j;\n"
    "      float s = 0.0f, dp = 0.0f;\n"
    "      for (int d = 0; d < D_K; d++)\n"
    "        s += s_q[r * PITCH + d] * s_k[c * PITCH + d];\n"
    "      for (int d = 0; d < D_V; d++)\n"
    "        dp += s_g[r * PITCH + d] * s_v[c * PITCH + d];\n"
    "      const int is_seen = first + c < T_K && q0 + r < T_Q\n"
    "          && (!CAUSAL || first + c <= q0@ + r);\n"
    "      const float p = is_seen ? expf(s * scale - s_lse[r]) : 0.0f;\n"
    "      s_p[r * S_PITCH + c] = p;\n"
    "      s_ds[r * S_PITCH + c] = p * (dp - s_delta[r]) * scale;\n"
    "    }\n"
    "    __syncthreads();\n"
    "    for (int r = 0; r < B; r++) {\n"
    "      DNN_EACH(i, R) DNN_EACH(j, C_K)\n"
    "        sum_k[i][j] += s_ds[r * S_PITCH + ty + 16 * i]\n"
    "                       * s_q[r * PITCH + tx + 16 * j];\n"
    "      DNN_EACH(i, R) DNN_EACH(j, C_V)\n"
    "        sum_v[i][j] += s_p[r * S_PITCH + ty + 16 * i]\n"
    "                       * s_g[r * PITCH + tx + 16 * j];\n"
    "    }\n"
    "  }\n";

static const char key_store[] =
    "  DNN_EACH(i, R) {\n"
    "    const int row = first + ty + 16 * i;\n"
    "    DNN_EACH(j, C_K) if (row < T_K && tx + 16 * j < D_K)\n"
    "      dk[row * k_row + (tx + 16 * j) * k_head] = DNN_TO(sum_k[i][j]);\n"
    "    DNN_EACH(j, C_V) if (row < T_K && tx + 16 * j < D_V)\n"
    "      dv[row * v_row + (tx + 16 * j) * v_head] = DNN_TO(sum_v[i][j]);\n"
    "  }\n";

/* ---- in front of the bodies ---- */

static int64_t count_batches(const Shape *shape, bool keys_only) {
  int64_t n = 1;
  for (int i = 0; i < shape->n_batch; i++)
    if (!keys_only || shape->in_keys[i]) n *= shape->batch[i];
  return n;
}

static void add_sizes(Text *text, const Shape *shape, const Tiles *tiles,
                      bool is_grad) {
  text_printf(text,
              "  enum { T_Q = %lld, T_K = %lld, D_K = %lld, D_V = %lld, CAUSAL "
              "= %d,\n    PITCH = %d, S_PITCH = %d, ",
              (long long)shape->t_q, (long long)shape->t_k,
              (long long)shape->d_k, (long long)shape->d_v, shape->is_causal,
              tiles->pitch, tiles->s_pitch);
  if (is_grad) {
    text_printf(text,
                "B = %d, R = B / 16,\n    C_K = (D_K + 15) / 16, C_V = (D_V + "
                "15) / 16 };\n",
                tiles->b_q);
  } else {
    text_printf(text, "B_Q = %d, B_K = %d };\n", tiles->b_q, tiles->b_k);
  }
  text_add(text, "  const float scale = ");
  cuda_constant(text, DT_f32, shape->scale);
  text_add(text,
           ";\n  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;\n");
  if (shape->split) text_add(text, "  const int before = (int)args.before;\n");
}

/* Sets the loop variables x0.. of some batch dims from `number`: those that
 * keys have, those that keys lack, or both. */
static void add_batch_indices(Text *text, const Shape *shape,
                              const char *number, bool of_keys, bool of_rest) {
  text_printf(text, "  {\n  int rest = %s;\n", number);
  for (int i = shape->n_batch - 1; i >= 0; i--) {
    if (!(shape->in_keys[i] ? of_keys : of_rest)) continue;
    text_printf(text, "  x%d = rest %% %lld; rest /= %lld;\n", i,
                (long long)shape->batch[i], (long long)shape->batch[i]);
  }
  text_add(text, "  (void)rest;\n  }\n");
}

static void add_batch_declarations(Text *text, const Shape *shape) {
  for (int i = 0; i < shape->n_batch; i++)
    text_printf(text, "  int x%d = 0;\n", i);
}

/* A pointer to row 0 of the head. */
static void add_pointer(Text *text, const Shape *shape, const char *name,
                        const char *argument, bool is_const,
                        const Strides *strides) {
  bool is_lse = strcmp(name, "lse") == 0;
  text_printf(text, "  %s%s *%s = args.%s", is_const ? "const " : "",
              cuda_storage(is_lse ? DT_f32 : shape->dtype), name, argument);
  for (int i = 0; i < shape->n_batch; i++)
    if (strides->batch[i] != 0)
      text_printf(text, " + x%d * %lldLL", i, (long long)strides->batch[i]);
  text_add(text, ";\n");
}

static void add_row_strides(Text *text, const char *name,
                            const Strides *strides, bool has_head) {
  text_printf(text, "  const long long %s_row = %lld;\n", name,
              (long long)strides->row);
  if (has_head)
    text_printf(text, "  const long long %s_head = %lld;\n", name,
                (long long)strides->head);
}

/* ---- kernels ---- */

typedef struct Parts {
  Shape shape;
  Tiles tiles;
  Strides strides[N_TENSORS];
} Parts;

static void all_strides(Text *text, const Parts *parts) {
  static const char *const names[] = {"q", "k", "v", "o", "lse"};
  for (int i = 0; i < N_TENSORS; i++)
    add_row_strides(text, names[i], &parts->strides[i], i != LSE);
}

static int64_t tiles_of(int64_t n, int tile) {
  return (n + tile - 1) / tile;
}

static int64_t forward_kernel(Text *text, const Parts *parts) {
  const Shape *shape = &parts->shape;
  const Strides *strides = parts->strides;
  int64_t n = tiles_of(shape->t_q, parts->tiles.b_q);
  add_sizes(text, shape, &parts->tiles, false);
  all_strides(text, parts);
  /* Long rows of a causal mask come first. */
  text_printf(text,
              "  const int first = (%lld - 1 - blockIdx.x %% %lld) * B_Q;\n",
              (long long)n, (long long)n);
  add_batch_declarations(text, shape);
  text_printf(text, "  const int head = blockIdx.x / %lld;\n", (long long)n);
  add_batch_indices(text, shape, "head", true, true);
  add_pointer(text, shape, "q", "q", true, &strides[Q]);
  add_pointer(text, shape, "k", "k", true, &strides[K]);
  add_pointer(text, shape, "v", "v", true, &strides[V]);
  add_pointer(text, shape, "out", "o", false, &strides[O]);
  add_pointer(text, shape, "lse", "lse", false, &strides[LSE]);
  text_add(text, forward_body);
  return n * count_batches(shape, false);
}

static void query_pointers(Text *text, const Parts *parts) {
  const Shape *shape = &parts->shape;
  const Strides *strides = parts->strides;
  add_pointer(text, shape, "q", "q", true, &strides[Q]);
  add_pointer(text, shape, "o", "o", true, &strides[O]);
  add_pointer(text, shape, "lse", "lse", true, &strides[LSE]);
  add_pointer(text, shape, "g", "g", true, &strides[O]);
}

static void key_pointers(Text *text, const Parts *parts) {
  add_pointer(text, &parts->shape, "k", "k", true, &parts->strides[K]);
  add_pointer(text, &parts->shape, "v", "v", true, &parts->strides[V]);
}

static int64_t backward_kernel(Text *text, const Parts *parts) {
  const Shape *shape = &parts->shape;
  int64_t n_q = tiles_of(shape->t_q, parts->tiles.b_q);
  int64_t n_k = tiles_of(shape->t_k, parts->tiles.b_q);
  int64_t query_blocks = n_q * count_batches(shape, false);
  add_sizes(text, shape, &parts->tiles, true);
  all_strides(text, parts);
  add_row_strides(text, "g", &parts->strides[O], true);
  text_add(text, "  DNN_SHARED float s_q[B * PITCH], s_g[B * PITCH];\n"
                 "  DNN_SHARED float s_k[B * PITCH], s_v[B * PITCH];\n"
                 "  DNN_SHARED float s_p[B * S_PITCH], s_ds[B * S_PITCH];\n"
                 "  DNN_SHARED float s_delta[B], s_lse[B];\n");
  add_batch_declarations(text, shape);
  text_printf(text,
              "  if (blockIdx.x < %lld) {\n"
              "  const int first = (%lld - 1 - blockIdx.x %% %lld) * B;\n"
              "  const int head = blockIdx.x / %lld;\n",
              (long long)query_blocks, (long long)n_q, (long long)n_q,
              (long long)n_q);
  add_batch_indices(text, shape, "head", true, true);
  query_pointers(text, parts);
  key_pointers(text, parts);
  add_pointer(text, shape, "dq", "dq", false, &parts->strides[Q]);
  text_add(text, query_body);
  text_printf(text,
              "  return;\n  }\n"
              "  const int block = blockIdx.x - %lld;\n"
              "  const int first = block %% %lld * B;\n"
              "  const int head = block / %lld;\n",
              (long long)query_blocks, (long long)n_k, (long long)n_k);
  add_batch_indices(text, shape, "head", true, false);
  key_pointers(text, parts);
  add_pointer(text, shape, "dk", "dk", false, &parts->strides[K]);
  add_pointer(text, shape, "dv", "dv", false, &parts->strides[V]);
  text_printf(
      text,
      "  float sum_k[R][C_K], sum_v[R][C_V];\n"
      "  DNN_EACH(i, R) { DNN_EACH(j, C_K) sum_k[i][j] = 0.0f;\n"
      "                   DNN_EACH(j, C_V) sum_v[i][j] = 0.0f; }\n"
      "  DNN_TILE(s_k, PITCH, k, k_row, k_head, first, B, T_K, D_K);\n"
      "  DNN_TILE(s_v, PITCH, v, v_row, v_head, first, B, T_K, D_V);\n"
      "  for (int group = 0; group < %lld; group++) {\n",
      (long long)(count_batches(shape, false) / count_batches(shape, true)));
  add_batch_indices(text, shape, "group", false, true);
  query_pointers(text, parts);
  text_add(text, shape->split ? key_loop_of_shard : key_loop);
  text_add(text, key_body);
  text_add(text, "  }\n");
  text_add(text, key_store);
  return query_blocks + n_k * count_batches(shape, true);
}

static const char forward_arguments[] =
    "typedef struct { const %s *q, *k, *v; %s *o; float *lse;%s } %s_args;\n";
static const char backward_arguments[] =
    "typedef struct { const %s *q, *k, *v, *o; const float *lse;\n"
    "  const %s *g; %s *dq, *dk, *dv;%s } %s_args;\n";

/* The text of a kernel after its helpers, tile and arguments. */
static const char *kernel_text(Arena *arena, const Shape *shape, bool is_grad,
                               const char *name, const char *content) {
  DType dtype = shape->dtype;
  const char *number = shape->split ? " long long before;" : "";
  const char *label = dtype_name(dtype), *type = cuda_storage(dtype);
  bool is_16bit = dtype_is_16bit(dtype);
  const char *from = is_16bit ? arena_printf(arena, "dnn_from_%s", label) : "";
  const char *to = is_16bit ? arena_printf(arena, "dnn_to_%s", label) : "";
  Text text = text_create(arena);
  text_add(&text, helpers);
  text_printf(&text, tile_format, label, label, label, type, from);
  if (is_grad)
    text_printf(&text, backward_arguments, type, type, type, number, name);
  else
    text_printf(&text, forward_arguments, type, type, number, name);
  text_printf(&text, begin_format, label, from, to);
  text_printf(&text, "DNN_KERNEL(%s, 256, 1) {\n%s}\n", name, content);
  text_add(&text, end_of_kernel);
  return text_string(&text);
}

bool cuda_emit_attention(const Backend *backend, Module *module,
                         const Graph *graph, int id, KernelText *out) {
  (void)backend;
  const Node *node = graph->nodes.data[id];
  bool is_grad = node->op == OP_attention_grad;
  if (!op_has(node->op, OP_FLAG_attends) ||
      !cuda_has_attention_kernel(graph, id))
    return false;
  Parts parts = {.shape = attention_shape(graph, node)};
  parts.tiles = choose_tiles(&parts.shape, is_grad);
  for (int i = 0; i < N_TENSORS; i++)
    parts.strides[i] = tensor_strides(graph, node, i);
  Text body = text_create(module->arena);
  int64_t blocks =
      is_grad ? backward_kernel(&body, &parts) : forward_kernel(&body, &parts);
  AxisList split = parts.shape.split;
  Text expanded = positions_expand(module->arena, text_string(&body), split);
  const char *content = text_string(&expanded);
  char hex[33];
  hash_hex(content, strlen(content), hex);
  DType dtype = parts.shape.dtype;
  bool is_16bit = dtype_is_16bit(dtype);
  Name name = name_format(module->names, "attention%s%s%s_%.12s",
                          is_grad ? "_grad" : "", is_16bit ? "_" : "",
                          is_16bit ? dtype_name(dtype) : "", hex);
  *out = (KernelText){
      .name = name,
      .text = kernel_text(module->arena, &parts.shape, is_grad, name, content),
      .number = {.split = split, .factor = parts.shape.t_q},
      .grid = {(uint32_t)blocks, 1, 1},
      .block = {256, 1, 1},
      .uses_barriers = true};
  return true;
}
