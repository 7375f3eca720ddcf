/*
 * gemm.c -- multiplies matrices in blocks and sums in f32, where oneDNN is
 * missing or does not know the dtype.
 *
 * The scheme is that of Goto and van de Geijn (2008): panels of B and blocks of
 * A are packed into the order in which a micro-kernel (tile.c) reads them; that
 * kernel keeps a small tile of C in registers while it walks along k. Packing
 * also takes care of every stride, so transposed operands cost nothing more,
 * and 16-bit operands become f32 there.  A 16-bit result is summed in a
 * separate block and rounded once.  Each thread owns a rectangle of C and packs
 * for itself: no barriers, and the order of the sums over k does not depend on
 * the number of threads.
 */
#include <string.h>

#include "runtime/cpu/cpu.h"
#include "runtime/cpu/tile.h"

/* [n, k] by strides -> strips of `width` rows, each [k][width], zero-padded. */
#define PACK(name, type, VALUE)                                                \
  static void name(const void *data, int64_t n, int64_t stride_n, int64_t k,   \
                   int64_t stride_k, int width, float *to) {                   \
    for (int64_t i = 0; i < n; i += width) {                                   \
      int64_t rows = least_of_two(width, n - i);                               \
      const type *strip = (const type *)data + i * stride_n;                   \
      if (rows < width) memset(to, 0, sizeof(float) * (size_t)(k * width));    \
      if (stride_n == 1) {                                                     \
        for (int64_t p = 0; p < k; p++)                                        \
          for (int64_t r = 0; r < rows; r++)                                   \
            to[p * width + r] = VALUE(strip[r + p * stride_k]);                \
      } else {                                                                 \
        for (int64_t p = 0; p < k; p++)                                        \
          for (int64_t r = 0; r < rows; r++)                                   \
            to[p * width + r] = VALUE(strip[r * stride_n + p * stride_k]);     \
      }                                                                        \
      to += k * width;                                                         \
    }                                                                          \
  }
PACK(pack_f32, float, )
PACK(pack_bf16, uint16_t, bf16_to_float)
PACK(pack_f16, uint16_t, f16_to_float)

static void pack_operand(DnnDtype dtype, const unsigned char *data, int64_t at,
                         int64_t n, int64_t stride_n, int64_t k,
                         int64_t stride_k, int width, float *to) {
  const void *from = data + at * dtype_bytes(dtype);
  if (dtype == DNN_bf16)
    pack_bf16(from, n, stride_n, k, stride_k, width, to);
  else if (dtype == DNN_f16)
    pack_f16(from, n, stride_n, k, stride_k, width, to);
  else
    pack_f32(from, n, stride_n, k, stride_k, width, to);
}

/* A rectangle of C, which one thread computes. */
typedef struct Block {
  const DnnGemm *gemm;
  const unsigned char *a, *b;
  unsigned char *c;
  int64_t a_at, b_at, c_at; /* elements */
  int64_t m, n;
} Block;

static void pack_a_block(const Block *block, TileKernel kernel, int64_t i,
                         int64_t m, int64_t p, int64_t k, float *to) {
  const DnnGemm *gemm = block->gemm;
  pack_operand(gemm->dtype, block->a,
               block->a_at + i * gemm->a_i + p * gemm->a_k, m, gemm->a_i, k,
               gemm->a_k, kernel.rows, to);
}

static void pack_b_panel(const Block *block, TileKernel kernel, int64_t j,
                         int64_t n, int64_t p, int64_t k, float *to) {
  const DnnGemm *gemm = block->gemm;
  pack_operand(gemm->dtype, block->b,
               block->b_at + p * gemm->b_k + j * gemm->b_j, n, gemm->b_j, k,
               gemm->b_k, kernel.columns, to);
}

static void multiply_rectangle(const Block *block, TileKernel kernel,
                               const TileWork *space) {
  const DnnGemm *gemm = block->gemm;
  float *c = (float *)block->c + block->c_at;
  for (int64_t j = 0; j < block->n; j += TILE_N) {
    int64_t n = least_of_two(TILE_N, block->n - j);
    for (int64_t p = 0; p < gemm->k; p += TILE_K) {
      int64_t k = least_of_two(TILE_K, gemm->k - p);
      pack_b_panel(block, kernel, j, n, p, k, space->b);
      for (int64_t i = 0; i < block->m; i += TILE_M) {
        int64_t m = least_of_two(TILE_M, block->m - i);
        TileSums sums = {c + i * gemm->c_i + j * gemm->c_j, gemm->c_i,
                         gemm->c_j};
        pack_a_block(block, kernel, i, m, p, k, space->a);
        tile_multiply(kernel, m, n, k, space->a, space->b, &sums,
                      p > 0 || gemm->accumulate);
      }
    }
  }
}

/* Rounds a block of sums into C. */
static void store_short(const Block *block, int64_t i, int64_t j, int64_t m,
                        int64_t n, const float *sums) {
  const DnnGemm *gemm = block->gemm;
  uint16_t *c = (uint16_t *)block->c + block->c_at;
  bool is_bf16 = gemm->c_dtype == DNN_bf16;
  for (int64_t r = 0; r < m; r++) {
    uint16_t *to = c + (i + r) * gemm->c_i + j * gemm->c_j;
    for (int64_t s = 0; s < n; s++, to += gemm->c_j) {
      float x = sums[r * n + s];
      if (gemm->accumulate)
        x += is_bf16 ? bf16_to_float(*to) : f16_to_float(*to);
      *to = is_bf16 ? bf16_from_float(x) : f16_from_float(x);
    }
  }
}

static void multiply_short(const Block *block, TileKernel kernel,
                           const TileWork *space) {
  for (int64_t j = 0; j < block->n; j += TILE_N) {
    int64_t n = least_of_two(TILE_N, block->n - j);
    for (int64_t i = 0; i < block->m; i += TILE_M) {
      int64_t m = least_of_two(TILE_M, block->m - i);
      for (int64_t p = 0; p < block->gemm->k; p += TILE_K) {
        int64_t k = least_of_two(TILE_K, block->gemm->k - p);
        pack_b_panel(block, kernel, j, n, p, k, space->b);
        pack_a_block(block, kernel, i, m, p, k, space->a);
        tile_multiply(kernel, m, n, k, space->a, space->b,
                      &(TileSums){space->sums, n, 1}, p > 0);
      }
      store_short(block, i, j, m, n, space->sums);
    }
  }
}

typedef struct Work {
  const DnnGemm *gemm;
  const void *a, *b;
  void *c;
  void *pack;
} Work;

/* The batches, or the longer side of C, are dealt out to the threads. */
static void work_thread(void *arg, int index, int n_threads) {
  const Work *work = arg;
  const DnnGemm *gemm = work->gemm;
  TileKernel kernel = tile_kernel();
  TileWork space = tile_work(work->pack, index);
  int64_t batches = gemm->batch[0] * gemm->batch[1];
  bool by_batch = batches >= n_threads;
  bool by_row = !by_batch && gemm->m >= gemm->n;
  int64_t step =
      count_blocks(count_blocks(by_row ? gemm->m : gemm->n,
                                by_row ? kernel.rows : kernel.columns),
                   n_threads) *
      (by_row ? kernel.rows : kernel.columns);
  for (int64_t t = 0; t < batches; t++) {
    if (by_batch && t % n_threads != index) continue;
    int64_t t0 = t / gemm->batch[1], t1 = t % gemm->batch[1];
    Block block = {.gemm = gemm,
                   .a = work->a,
                   .b = work->b,
                   .c = work->c,
                   .a_at = t0 * gemm->a_batch[0] + t1 * gemm->a_batch[1],
                   .b_at = t0 * gemm->b_batch[0] + t1 * gemm->b_batch[1],
                   .c_at = t0 * gemm->c_batch[0] + t1 * gemm->c_batch[1],
                   .m = gemm->m,
                   .n = gemm->n};
    int64_t begin = by_batch ? 0 : index * step;
    if (by_row) {
      block.m = least_of_two(step, gemm->m - begin);
      block.a_at += begin * gemm->a_i;
      block.c_at += begin * gemm->c_i;
    } else if (!by_batch) {
      block.n = least_of_two(step, gemm->n - begin);
      block.b_at += begin * gemm->b_j;
      block.c_at += begin * gemm->c_j;
    }
    if (block.m <= 0 || block.n <= 0) continue;
    if (gemm->c_dtype == DNN_f32)
      multiply_rectangle(&block, kernel, &space);
    else
      multiply_short(&block, kernel, &space);
  }
}

bool gemm_accepts(const DnnGemm *gemm) {
  bool has_dtypes =
      (gemm->dtype == DNN_f32 && gemm->c_dtype == DNN_f32) ||
      ((gemm->dtype == DNN_bf16 || gemm->dtype == DNN_f16) &&
       (gemm->c_dtype == DNN_f32 || gemm->c_dtype == gemm->dtype));
  return has_dtypes && gemm->k > 0;
}

int64_t gemm_pack_bytes(const Threads *threads) {
  return tile_work_bytes() * threads->n;
}

void gemm_run(const Threads *threads, const DnnGemm *gemm, const void *a,
              const void *b, void *c, void *pack_space) {
  Work work = {gemm, a, b, c, pack_space};
  threads_run(threads, work_thread, &work);
}
