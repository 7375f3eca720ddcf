/*
 * attention_scalar.c -- computes attention in f32 on CUDA cores, for every
 * shape and dtype.
 *
 * Shared memory holds f32: 16-bit floats are converted when they are loaded and
 * stored.  A block is 16 x 16 threads; thread (ty, tx) has the rows ty + 16 i
 * and the columns tx + 16 j of a tile.  Tiles of keys that a causal mask hides
 * are skipped.
 */
#include "codegen/cuda/attention.h"

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

static BlockRows scalar_rows(const Shape *shape, bool is_grad) {
  int b_q = choose_tiles(shape, is_grad).b_q;
  return (BlockRows){b_q, b_q};
}

static void scalar_sizes(Text *text, const Shape *shape, bool is_grad) {
  Tiles tiles = choose_tiles(shape, is_grad);
  text_printf(text, "PITCH = %d, S_PITCH = %d, ", tiles.pitch, tiles.s_pitch);
  if (is_grad) {
    text_printf(text,
                "B = %d, R = B / 16,\n    C_K = (D_K + 15) / 16, C_V = (D_V + "
                "15) / 16 };\n",
                tiles.b_q);
  } else {
    text_printf(text, "B_Q = %d, B_K = %d };\n", tiles.b_q, tiles.b_k);
  }
  text_add(text, "  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;\n");
}

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
    "#endif\n"
    "#ifndef DNN_TILE_$\n"
    "#define DNN_TILE_$\n"
    "/* Rows first.. of a matrix into shared memory; zeros past the end. */\n"
    "DNN_FN void dnn_tile_$(float *to, int pitch, const dnn_element_$ *from,\n"
    "                     long long row, long long column, int first,\n"
    "                     int rows, int end, int columns) {\n"
    "  for (int e = threadIdx.x; e < rows * columns; e += 256) {\n"
    "    const int r = e / columns, d = e % columns;\n"
    "    to[r * pitch + d] = first + r < end\n"
    "        ? dnn_from_$(from[(first + r) * row + d * column]) : 0.0f;\n"
    "  }\n"
    "}\n"
    "#endif\n";

static const char begin[] = "#define DNN_TILE dnn_tile_$\n"
                            "#define DNN_FROM(x) dnn_from_$(x)\n"
                            "#define DNN_TO(x) dnn_to_$(x)\n";
static const char end[] = "#undef DNN_TILE\n"
                          "#undef DNN_FROM\n"
                          "#undef DNN_TO\n";

static const char forward[] =
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
    "      if (tx == 0) ";

static const char lse[] = "lse[row * lse_row] = logf(l[i]) + m[i];\n";
static const char relative[] =
    "lse[row * lse_row] = m[i], row_sum[row * lse_row] = l[i];\n";
static const char forward_end[] = "    }\n"
                                  "  }\n";

static const char shared[] =
    "  DNN_SHARED float s_q[B * PITCH], s_g[B * PITCH];\n"
    "  DNN_SHARED float s_k[B * PITCH], s_v[B * PITCH];\n"
    "  DNN_SHARED float s_p[B * S_PITCH], s_ds[B * S_PITCH];\n"
    "  DNN_SHARED float s_delta[B], s_lse[B];\n";

static const char query[] =
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

static const char key_begin[] =
    "  float sum_k[R][C_K], sum_v[R][C_V];\n"
    "  DNN_EACH(i, R) { DNN_EACH(j, C_K) sum_k[i][j] = 0.0f;\n"
    "                   DNN_EACH(j, C_V) sum_v[i][j] = 0.0f; }\n"
    "  DNN_TILE(s_k, PITCH, k, k_row, k_head, first, B, T_K, D_K);\n"
    "  DNN_TILE(s_v, PITCH, v, v_row, v_head, first, B, T_K, D_V);\n";

static const char key_loop[] =
    "  for (int q0 = q_first; q0 < T_Q; q0 += B) {\n"
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

static const char key_end[] =
    "  DNN_EACH(i, R) {\n"
    "    const int row = first + ty + 16 * i;\n"
    "    DNN_EACH(j, C_K) if (row < T_K && tx + 16 * j < D_K)\n"
    "      dk[row * k_row + (tx + 16 * j) * k_head] = DNN_TO(sum_k[i][j]);\n"
    "    DNN_EACH(j, C_V) if (row < T_K && tx + 16 * j < D_V)\n"
    "      dv[row * v_row + (tx + 16 * j) * v_head] = DNN_TO(sum_v[i][j]);\n"
    "  }\n";

const AttentionText attention_scalar = {.threads = 256,
                                        .rows = scalar_rows,
                                        .sizes = scalar_sizes,
                                        .helpers = helpers,
                                        .begin = begin,
                                        .end = end,
                                        .forward = forward,
                                        .lse = lse,
                                        .relative = relative,
                                        .forward_end = forward_end,
                                        .shared = shared,
                                        .query = query,
                                        .key_begin = key_begin,
                                        .key_loop = key_loop,
                                        .key_end = key_end};
