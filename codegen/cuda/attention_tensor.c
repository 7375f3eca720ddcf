/*
 * attention_tensor.c -- computes attention of 16-bit floats on tensor cores
 * (mma.sync.m16n8k16, f32 sums), as FlashAttention-2 does (Dao 2023).
 *
 * A block has four warps, each with 16 rows (32 in the forward pass of narrow
 * heads) of the scores.  A row of 64 scores is spread over four lanes, so its
 * maximum and sum take two shuffles.  Rounded to 16 bits, scores are in the
 * very registers in which the next product wants its left operand (see
 * "fragments for mma.m16n8k16" in the PTX ISA), so they never go through shared
 * memory.
 *
 * Shared memory holds 16-bit tiles.  A row is 16 bytes longer than a multiple
 * of 32, with which the eight rows that ldmatrix reads at once lie in different
 * banks.  In the forward pass the values are fetched while scores are computed,
 * and the next keys while the values are used.
 *
 * Probabilities are powers of two.  The maximum is subtracted from a score
 * before the product with scale log2(e), which would turn the lowest scores
 * into -inf; a positive scale keeps the order of scores.  lse is in base e.
 */
#include "codegen/cuda/attention.h"

enum { WARPS = 4, MAX_HEAD = 128, NARROW_HEAD = 64 };

bool attention_fits_tensor_cores(const Shape *shape) {
  return dtype_is_16bit(shape->dtype) && shape->has_unit_heads &&
         shape->scale > 0 && shape->d_k % 8 == 0 && shape->d_v % 8 == 0 &&
         shape->d_k <= MAX_HEAD && shape->d_v <= MAX_HEAD;
}

static bool is_narrow(const Shape *shape) {
  return shape->d_k <= NARROW_HEAD && shape->d_v <= NARROW_HEAD;
}

/* Tiles of 16 rows of a warp. */
static int row_tiles(const Shape *shape, bool is_grad) {
  return !is_grad && is_narrow(shape) && shape->t_q > 16 * WARPS ? 2 : 1;
}

static BlockRows tensor_rows(const Shape *shape, bool is_grad) {
  return (BlockRows){16 * WARPS * row_tiles(shape, is_grad), 16 * WARPS};
}

static void tensor_sizes(Text *text, const Shape *shape, bool is_grad) {
  text_printf(text,
              "W_K = (D_K + 15) / 16 * 16, W_V = (D_V + 15) / 16 * 16,\n"
              "    P_K = W_K + 8, P_V = W_V + 8, S_K = W_K / 16, S_V = W_V / "
              "16,\n    N_K = W_K / 8, N_V = W_V / 8, M = %d, B = %d, "
              "N = B / 8,\n",
              row_tiles(shape, is_grad),
              is_grad && !is_narrow(shape) ? 32 : 64);
  /* Keys that do not stay in registers come first in the shared memory. */
  text_printf(text,
              "    KEPT = %d, KEYS = KEPT ? 0 : 64 * P_K,\n"
              "    ROWS = 64 * M * P_K, TILES = B * (P_K + P_V),\n"
              "    PAIR = 64 * (P_K + P_V),\n"
              "    SHARED = %s };\n",
              shape->d_k <= NARROW_HEAD,
              is_grad ? "KEYS + TILES > PAIR ? KEYS + TILES : PAIR"
                      : "ROWS > TILES ? ROWS : TILES");
  text_add(text, "  const float to_log2 = ");
  cuda_constant(text, DT_f32, shape->scale * 1.44269504088896341);
  text_add(text, ";\n");
  text_add(text,
           "  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;\n"
           "  const int g_row_of = lane / 4, pair_of = lane % 4 * 2;\n"
           "  const int a_row = lane % 16, a_column = lane / 16 * 8;\n"
           "  const int b_row = lane % 8 + lane / 16 * 8,\n"
           "            b_column = lane / 8 % 2 * 8;\n");
}

#pragma GCC diagnostic ignored "-Woverlength-strings"

static const char helpers[] =
    "#ifndef DNN_ATTENTION_TENSOR\n"
    "#define DNN_ATTENTION_TENSOR\n"
    "#define DNN_EACH_OF(i, n) DNN_UNROLL for (int i = 0; i < n; i++)\n"
    "typedef struct DNN_ALIGN(16) { unsigned short e[8]; } dnn_16bit_8;\n"
    "typedef struct DNN_ALIGN(4) { unsigned short e[2]; } dnn_16bit_2;\n"
    /* The wait for what this starts is dnn_cp_async_wait and a barrier. */
    "/* Rows first.. of a matrix into shared memory; zeros past the end. */\n"
    "DNN_FN void dnn_fetch(unsigned short *to, int pitch,\n"
    "                      const unsigned short *from, long long row,\n"
    "                      int first, int rows, int end, int columns,\n"
    "                      int width) {\n"
    "  const int is_aligned = (unsigned long long)from % 16 == 0;\n"
    "  for (int e = threadIdx.x; e < rows * (width / 8); e += 128) {\n"
    "    const int r = e / (width / 8), d = e % (width / 8) * 8;\n"
    "    const unsigned short *at = from + (first + r) * row + d;\n"
    "    dnn_16bit_8 *out = (dnn_16bit_8 *)(to + r * pitch + d);\n"
    "    if (first + r < end && d < columns) {\n"
    "      if (is_aligned) dnn_cp_async_16(out->e, at);\n"
    "      else for (int i = 0; i < 8; i++) out->e[i] = at[i];\n"
    "    } else {\n"
    "      dnn_16bit_8 zero;\n"
    "      DNN_EACH_OF(i, 8) zero.e[i] = 0;\n"
    "      *out = zero;\n"
    "    }\n"
    "  }\n"
    "}\n"
    "DNN_FN void dnn_store_pair(unsigned short *to, unsigned pair) {\n"
    "  dnn_16bit_2 two;\n"
    "  two.e[0] = (unsigned short)pair;\n"
    "  two.e[1] = (unsigned short)(pair >> 16);\n"
    "  if ((unsigned long long)to % 4 == 0) *(dnn_16bit_2 *)to = two;\n"
    "  else { to[0] = two.e[0]; to[1] = two.e[1]; }\n"
    "}\n"
    "DNN_FN float dnn_quad_max(float v) { /* over 4 lanes */\n"
    "  v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 1));\n"
    "  return fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 2));\n"
    "}\n"
    "DNN_FN float dnn_quad_sum(float v) {\n"
    "  v += __shfl_xor_sync(0xffffffffu, v, 1);\n"
    "  return v + __shfl_xor_sync(0xffffffffu, v, 2);\n"
    "}\n"
    "#endif\n"
    "#ifndef DNN_DELTA_$\n"
    "#define DNN_DELTA_$\n"
    /* A thread adds up each eighth, or as many lanes as there are for a row. */
    "/* The sums of g o of some rows; 0 past the end. */\n"
    "DNN_FN void dnn_delta_$(float *to, const unsigned short *g,\n"
    "                        const unsigned short *o, long long g_row,\n"
    "                        long long o_row, int first, int rows, int end,\n"
    "                        int columns) {\n"
    "  const int lanes = 128 / rows, row = first + threadIdx.x / lanes;\n"
    "  const int is_aligned = ((unsigned long long)g | (unsigned long long)o)\n"
    "      % 16 == 0;\n"
    "  float sum = 0.0f;\n"
    "  for (int d = threadIdx.x % lanes * 8; row < end && d < columns;\n"
    "       d += 8 * lanes) {\n"
    "    dnn_16bit_8 x, y;\n"
    "    const unsigned short *g_at = g + row * g_row + d;\n"
    "    const unsigned short *o_at = o + row * o_row + d;\n"
    "    if (is_aligned) {\n"
    "      x = *(const dnn_16bit_8 *)g_at; y = *(const dnn_16bit_8 *)o_at;\n"
    "    } else {\n"
    "      DNN_EACH_OF(i, 8) { x.e[i] = g_at[i]; y.e[i] = o_at[i]; }\n"
    "    }\n"
    "    DNN_EACH_OF(i, 8) sum += dnn_from_$(x.e[i]) * dnn_from_$(y.e[i]);\n"
    "  }\n"
    "  for (int d = lanes / 2; d > 0; d >>= 1)\n"
    "    sum += __shfl_xor_sync(0xffffffffu, sum, d);\n"
    "  if (threadIdx.x % lanes == 0) to[threadIdx.x / lanes] = sum;\n"
    "}\n"
    "#endif\n";

static const char begin[] = "#define DNN_MMA dnn_mma_$\n"
                            "#define DNN_PACK dnn_pack_$\n"
                            "#define DNN_DELTA dnn_delta_$\n";
static const char end[] = "#undef DNN_MMA\n"
                          "#undef DNN_PACK\n"
                          "#undef DNN_DELTA\n";

/* Fragments: s[j][e] is the score of row g_row_of + 8 (e / 2) and column
 * 8 j + pair_of + e % 2 of a warp's tile. */
static const char forward[] =
    "  DNN_SHARED DNN_ALIGN(16) unsigned short shared[SHARED];\n"
    "  unsigned short *s_k = shared, *s_v = shared + B * P_K;\n"
    "  unsigned q_part[M][S_K][4];\n"
    "  float m[M][2], l[M][2], sum[M][N_V][4];\n"
    "  DNN_EACH_OF(i, M) {\n"
    "    DNN_EACH_OF(h, 2) { m[i][h] = -(float)DNN_INF; l[i][h] = 0.0f; }\n"
    "    DNN_EACH_OF(j, N_V) DNN_EACH_OF(e, 4) sum[i][j][e] = 0.0f;\n"
    "  }\n"
    "  dnn_fetch(shared, P_K, q, q_row, first, 64 * M, T_Q, D_K, W_K);\n"
    "  dnn_cp_async_wait();\n"
    "  __syncthreads();\n"
    "  DNN_EACH_OF(i, M) DNN_EACH_OF(c, S_K)\n"
    "    dnn_ldmatrix(q_part[i][c], shared\n"
    "        + (16 * (warp * M + i) + a_row) * P_K + 16 * c + a_column);\n"
    "  __syncthreads();\n"
    "  const int end = CAUSAL && first@ + 64 * M < T_K ? first@ + 64 * M : "
    "T_K;\n"
    "  dnn_fetch(s_k, P_K, k, k_row, 0, B, T_K, D_K, W_K);\n"
    "  for (int k0 = 0; k0 < end; k0 += B) {\n"
    "    float s[M][N][4];\n"
    "    DNN_EACH_OF(i, M) DNN_EACH_OF(j, N) DNN_EACH_OF(e, 4)\n"
    "      s[i][j][e] = 0.0f;\n"
    "    dnn_cp_async_wait();\n"
    "    __syncthreads();\n"
    "    dnn_fetch(s_v, P_V, v, v_row, k0, B, T_K, D_V, W_V);\n"
    "    DNN_EACH_OF(c, S_K) DNN_EACH_OF(j, N / 2) {\n"
    "      unsigned b[4];\n"
    "      dnn_ldmatrix(b, s_k + (16 * j + b_row) * P_K + 16 * c + b_column);\n"
    "      DNN_EACH_OF(i, M) {\n"
    "        DNN_MMA(s[i][2 * j], q_part[i][c], b);\n"
    "        DNN_MMA(s[i][2 * j + 1], q_part[i][c], b + 2);\n"
    "      }\n"
    "    }\n"
    "    const int is_edge = k0 + B > T_K || (CAUSAL && k0 + B - 1 > first@);\n"
    "    DNN_EACH_OF(i, M) DNN_EACH_OF(j, N) DNN_EACH_OF(e, 4) {\n"
    "      const int key = k0 + 8 * j + pair_of + e % 2;\n"
    "      const int row = first@ + 16 * (warp * M + i) + g_row_of + e / 2 * "
    "8;\n"
    "      if (is_edge && (key >= T_K || (CAUSAL && key > row)))\n"
    "        s[i][j][e] = -(float)DNN_INF;\n"
    "    }\n"
    "    DNN_EACH_OF(i, M) DNN_EACH_OF(h, 2) {\n"
    "      float top = m[i][h];\n"
    "      DNN_EACH_OF(j, N)\n"
    "        top = fmaxf(top, fmaxf(s[i][j][2 * h], s[i][j][2 * h + 1]));\n"
    "      top = dnn_quad_max(top);\n"
    "      const float base = top == -(float)DNN_INF ? 0.0f : top;\n"
    "      const float shrink = exp2f((m[i][h] - base) * to_log2);\n"
    "      float part = 0.0f;\n"
    "      DNN_EACH_OF(j, N) DNN_EACH_OF(e, 2) {\n"
    "        s[i][j][2 * h + e] = exp2f((s[i][j][2 * h + e] - base) * "
    "to_log2);\n"
    "        part += s[i][j][2 * h + e];\n"
    "      }\n"
    "      m[i][h] = top;\n"
    "      l[i][h] = l[i][h] * shrink + part;\n"
    "      DNN_EACH_OF(j, N_V) DNN_EACH_OF(e, 2) sum[i][j][2 * h + e] *= "
    "shrink;\n"
    "    }\n"
    "    dnn_cp_async_wait();\n"
    "    __syncthreads();\n"
    "    if (k0 + B < end)\n"
    "      dnn_fetch(s_k, P_K, k, k_row, k0 + B, B, T_K, D_K, W_K);\n"
    "    DNN_EACH_OF(c, N / 2) {\n"
    "      unsigned a[M][4];\n"
    "      DNN_EACH_OF(i, M) DNN_EACH_OF(h, 4)\n"
    "        a[i][h] = DNN_PACK(s[i][2 * c + h / 2][h % 2 * 2],\n"
    "                           s[i][2 * c + h / 2][h % 2 * 2 + 1]);\n"
    "      DNN_EACH_OF(j, S_V) {\n"
    "        unsigned b[4];\n"
    "        dnn_ldmatrix_trans(b,\n"
    "            s_v + (16 * c + a_row) * P_V + 16 * j + a_column);\n"
    "        DNN_EACH_OF(i, M) {\n"
    "          DNN_MMA(sum[i][2 * j], a[i], b);\n"
    "          DNN_MMA(sum[i][2 * j + 1], a[i], b + 2);\n"
    "        }\n"
    "      }\n"
    "    }\n"
    "  }\n"
    "  dnn_cp_async_wait();\n"
    "  DNN_EACH_OF(i, M) DNN_EACH_OF(h, 2) {\n"
    "    const int row = first + 16 * (warp * M + i) + g_row_of + 8 * h;\n"
    "    const float total = dnn_quad_sum(l[i][h]);\n"
    "    const float share = total == 0.0f ? 0.0f : 1.0f / total;\n"
    "    if (row < T_Q) {\n"
    "      DNN_EACH_OF(j, N_V) if (8 * j < D_V)\n"
    "        dnn_store_pair(out + row * o_row + 8 * j + pair_of,\n"
    "                       DNN_PACK(sum[i][j][2 * h] * share,\n"
    "                                sum[i][j][2 * h + 1] * share));\n"
    "      if (pair_of == 0)\n"
    "        ";

static const char lse[] =
    "lse[row * lse_row] = logf(total) + m[i][h] * scale;\n";
static const char relative[] = "lse[row * lse_row] = m[i][h] * scale,\n"
                               "        row_sum[row * lse_row] = total;\n";
static const char forward_end[] = "    }\n"
                                  "  }\n";

static const char shared[] =
    "  DNN_SHARED DNN_ALIGN(16) unsigned short shared[SHARED];\n"
    "  DNN_SHARED float s_delta[64], s_lse[64];\n";

/* q and g stay in registers, keys and values pass by. */
static const char query[] =
    "  unsigned q_part[S_K][4], g_part[S_V][4];\n"
    "  float sum[N_K][4], delta[2], x_lse[2];\n"
    "  unsigned short *s_k = shared, *s_v = shared + B * P_K;\n"
    "  DNN_EACH_OF(j, N_K) DNN_EACH_OF(e, 4) sum[j][e] = 0.0f;\n"
    "  dnn_fetch(shared, P_K, q, q_row, first, 64, T_Q, D_K, W_K);\n"
    "  dnn_fetch(shared + 64 * P_K, P_V, g, g_row, first, 64, T_Q, D_V, W_V);\n"
    "  DNN_DELTA(s_delta, g, o, g_row, o_row, first, 64, T_Q, D_V);\n"
    "  dnn_cp_async_wait();\n"
    "  __syncthreads();\n"
    "  DNN_EACH_OF(c, S_K) dnn_ldmatrix(q_part[c],\n"
    "      shared + (16 * warp + a_row) * P_K + 16 * c + a_column);\n"
    "  DNN_EACH_OF(c, S_V) dnn_ldmatrix(g_part[c],\n"
    "      shared + 64 * P_K + (16 * warp + a_row) * P_V + 16 * c + "
    "a_column);\n"
    "  DNN_EACH_OF(h, 2) {\n"
    "    const int row = 16 * warp + g_row_of + 8 * h;\n"
    "    delta[h] = s_delta[row];\n"
    "    x_lse[h] = first + row < T_Q ? lse[(first + row) * lse_row] / scale\n"
    "                                 : 0.0f;\n"
    "  }\n"
    "  const int end = CAUSAL && first@ + 64 < T_K ? first@ + 64 : T_K;\n"
    "  for (int k0 = 0; k0 < end; k0 += B) {\n"
    "    float s[N][4], dp[N][4];\n"
    "    __syncthreads();\n"
    "    dnn_fetch(s_k, P_K, k, k_row, k0, B, T_K, D_K, W_K);\n"
    "    dnn_fetch(s_v, P_V, v, v_row, k0, B, T_K, D_V, W_V);\n"
    "    DNN_EACH_OF(j, N) DNN_EACH_OF(e, 4) s[j][e] = dp[j][e] = 0.0f;\n"
    "    dnn_cp_async_wait();\n"
    "    __syncthreads();\n"
    "    DNN_EACH_OF(c, S_K) DNN_EACH_OF(j, N / 2) {\n"
    "      unsigned b[4];\n"
    "      dnn_ldmatrix(b, s_k + (16 * j + b_row) * P_K + 16 * c + b_column);\n"
    "      DNN_MMA(s[2 * j], q_part[c], b);\n"
    "      DNN_MMA(s[2 * j + 1], q_part[c], b + 2);\n"
    "    }\n"
    "    DNN_EACH_OF(c, S_V) DNN_EACH_OF(j, N / 2) {\n"
    "      unsigned b[4];\n"
    "      dnn_ldmatrix(b, s_v + (16 * j + b_row) * P_V + 16 * c + b_column);\n"
    "      DNN_MMA(dp[2 * j], g_part[c], b);\n"
    "      DNN_MMA(dp[2 * j + 1], g_part[c], b + 2);\n"
    "    }\n"
    "    const int is_edge = k0 + B > T_K || (CAUSAL && k0 + B - 1 > first@);\n"
    "    DNN_EACH_OF(j, N) DNN_EACH_OF(e, 4) {\n"
    "      const int key = k0 + 8 * j + pair_of + e % 2;\n"
    "      const int row = first@ + 16 * warp + g_row_of + e / 2 * 8;\n"
    "      float p = exp2f((s[j][e] - x_lse[e / 2]) * to_log2);\n"
    "      if (is_edge && (key >= T_K || (CAUSAL && key > row))) p = 0.0f;\n"
    "      s[j][e] = p * (dp[j][e] - delta[e / 2]);\n"
    "    }\n"
    "    DNN_EACH_OF(c, N / 2) {\n"
    "      unsigned a[4];\n"
    "      DNN_EACH_OF(h, 4) a[h] = DNN_PACK(s[2 * c + h / 2][h % 2 * 2],\n"
    "                                        s[2 * c + h / 2][h % 2 * 2 + "
    "1]);\n"
    "      DNN_EACH_OF(j, S_K) {\n"
    "        unsigned b[4];\n"
    "        dnn_ldmatrix_trans(b,\n"
    "            s_k + (16 * c + a_row) * P_K + 16 * j + a_column);\n"
    "        DNN_MMA(sum[2 * j], a, b);\n"
    "        DNN_MMA(sum[2 * j + 1], a, b + 2);\n"
    "      }\n"
    "    }\n"
    "  }\n"
    "  DNN_EACH_OF(j, N_K) DNN_EACH_OF(h, 2) {\n"
    "    const int row = first + 16 * warp + g_row_of + 8 * h;\n"
    "    if (row < T_Q && 8 * j < D_K)\n"
    "      dnn_store_pair(dq + row * q_row + 8 * j + pair_of,\n"
    "                     DNN_PACK(sum[j][2 * h] * scale,\n"
    "                              sum[j][2 * h + 1] * scale));\n"
    "  }\n";

static const char key_begin[] =
    "  unsigned k_part[KEPT ? S_K : 1][4], v_part[S_V][4];\n"
    "  float sum_k[N_K][4], sum_v[N_V][4];\n"
    "  unsigned short *s_q = shared + KEYS, *s_g = s_q + B * P_K;\n"
    "  DNN_EACH_OF(j, N_K) DNN_EACH_OF(e, 4) sum_k[j][e] = 0.0f;\n"
    "  DNN_EACH_OF(j, N_V) DNN_EACH_OF(e, 4) sum_v[j][e] = 0.0f;\n"
    "  dnn_fetch(shared, P_K, k, k_row, first, 64, T_K, D_K, W_K);\n"
    "  dnn_fetch(shared + 64 * P_K, P_V, v, v_row, first, 64, T_K, D_V, W_V);\n"
    "  dnn_cp_async_wait();\n"
    "  __syncthreads();\n"
    "  if (KEPT) {\n"
    "    DNN_EACH_OF(c, S_K) dnn_ldmatrix(k_part[KEPT ? c : 0],\n"
    "        shared + (16 * warp + a_row) * P_K + 16 * c + a_column);\n"
    "  }\n"
    "  DNN_EACH_OF(c, S_V) dnn_ldmatrix(v_part[c],\n"
    "      shared + 64 * P_K + (16 * warp + a_row) * P_V + 16 * c + "
    "a_column);\n";

/* Scores of keys by queries: transposed, they are the left operands of the
 * products for dk and dv. */
static const char key_loop[] =
    "  for (int q0 = q_first; q0 < T_Q; q0 += B) {\n"
    "    float s[N][4], dp[N][4];\n"
    "    __syncthreads();\n"
    "    dnn_fetch(s_q, P_K, q, q_row, q0, B, T_Q, D_K, W_K);\n"
    "    dnn_fetch(s_g, P_V, g, g_row, q0, B, T_Q, D_V, W_V);\n"
    "    DNN_DELTA(s_delta, g, o, g_row, o_row, q0, B, T_Q, D_V);\n"
    "    if (threadIdx.x < B)\n"
    "      s_lse[threadIdx.x] = q0 + (int)threadIdx.x < T_Q\n"
    "          ? lse[(q0 + (int)threadIdx.x) * lse_row] / scale : 0.0f;\n"
    "    DNN_EACH_OF(j, N) DNN_EACH_OF(e, 4) s[j][e] = dp[j][e] = 0.0f;\n"
    "    dnn_cp_async_wait();\n"
    "    __syncthreads();\n"
    "    DNN_EACH_OF(c, S_K) {\n"
    "      unsigned a[4];\n"
    "      if (KEPT) {\n"
    "        DNN_EACH_OF(h, 4) a[h] = k_part[KEPT ? c : 0][h];\n"
    "      } else {\n"
    "        dnn_ldmatrix(a,\n"
    "            shared + (16 * warp + a_row) * P_K + 16 * c + a_column);\n"
    "      }\n"
    "      DNN_EACH_OF(j, N / 2) {\n"
    "        unsigned b[4];\n"
    "        dnn_ldmatrix(b, s_q + (16 * j + b_row) * P_K + 16 * c + "
    "b_column);\n"
    "        DNN_MMA(s[2 * j], a, b);\n"
    "        DNN_MMA(s[2 * j + 1], a, b + 2);\n"
    "      }\n"
    "    }\n"
    "    DNN_EACH_OF(c, S_V) DNN_EACH_OF(j, N / 2) {\n"
    "      unsigned b[4];\n"
    "      dnn_ldmatrix(b, s_g + (16 * j + b_row) * P_V + 16 * c + b_column);\n"
    "      DNN_MMA(dp[2 * j], v_part[c], b);\n"
    "      DNN_MMA(dp[2 * j + 1], v_part[c], b + 2);\n"
    "    }\n"
    "    const int is_edge = CAUSAL && first + 63 > q0@;\n"
    "    DNN_EACH_OF(c, N / 2) {\n"
    "      unsigned a[4], a_p[4];\n"
    "      DNN_EACH_OF(h, 4) {\n"
    "        const int j = 2 * c + h / 2;\n"
    "        float p[2], ds[2];\n"
    "        DNN_EACH_OF(e, 2) {\n"
    "          const int query = 8 * j + pair_of + e, i = h % 2 * 2 + e;\n"
    "          const int key = first + 16 * warp + g_row_of + h % 2 * 8;\n"
    "          p[e] = exp2f((s[j][i] - s_lse[query]) * to_log2);\n"
    "          if (is_edge && key > q0@ + query) p[e] = 0.0f;\n"
    "          ds[e] = p[e] * (dp[j][i] - s_delta[query]);\n"
    "        }\n"
    "        a_p[h] = DNN_PACK(p[0], p[1]);\n"
    "        a[h] = DNN_PACK(ds[0], ds[1]);\n"
    "      }\n"
    "      DNN_EACH_OF(j, S_V) {\n"
    "        unsigned b[4];\n"
    "        dnn_ldmatrix_trans(b,\n"
    "            s_g + (16 * c + a_row) * P_V + 16 * j + a_column);\n"
    "        DNN_MMA(sum_v[2 * j], a_p, b);\n"
    "        DNN_MMA(sum_v[2 * j + 1], a_p, b + 2);\n"
    "      }\n"
    "      DNN_EACH_OF(j, S_K) {\n"
    "        unsigned b[4];\n"
    "        dnn_ldmatrix_trans(b,\n"
    "            s_q + (16 * c + a_row) * P_K + 16 * j + a_column);\n"
    "        DNN_MMA(sum_k[2 * j], a, b);\n"
    "        DNN_MMA(sum_k[2 * j + 1], a, b + 2);\n"
    "      }\n"
    "    }\n"
    "  }\n";

static const char key_end[] =
    "  DNN_EACH_OF(h, 2) {\n"
    "    const int row = first + 16 * warp + g_row_of + 8 * h;\n"
    "    if (row < T_K) {\n"
    "      DNN_EACH_OF(j, N_K) if (8 * j < D_K)\n"
    "        dnn_store_pair(dk + row * k_row + 8 * j + pair_of,\n"
    "                       DNN_PACK(sum_k[j][2 * h] * scale,\n"
    "                                sum_k[j][2 * h + 1] * scale));\n"
    "      DNN_EACH_OF(j, N_V) if (8 * j < D_V)\n"
    "        dnn_store_pair(dv + row * v_row + 8 * j + pair_of,\n"
    "                       DNN_PACK(sum_v[j][2 * h], sum_v[j][2 * h + 1]));\n"
    "    }\n"
    "  }\n";

const AttentionText attention_tensor = {.threads = 32 * WARPS,
                                        .rows = tensor_rows,
                                        .sizes = tensor_sizes,
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
