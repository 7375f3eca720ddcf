/*
 * tile.c -- multiplies packed blocks of two matrices, a tile of the result at a
 * time, which stays in registers.
 */
#include "runtime/cpu/tile.h"

#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "runtime/cpu/cpu.h"

/* One kernel for each width of vectors; `vectors` of them make up a row. */
#define TILE(name, attributes, type, lanes, n_rows, vectors, zero, load,       \
             broadcast, multiply_add, store)                                   \
  attributes static void name(int64_t k, const float *a, const float *b,       \
                              float *tile) {                                   \
    type sum[n_rows][vectors];                                                 \
    UNROLL for (int i = 0; i < n_rows; i++) {                                  \
      UNROLL for (int j = 0; j < vectors; j++) sum[i][j] = zero;               \
    }                                                                          \
    for (int64_t p = 0; p < k; p++) {                                          \
      type row[vectors];                                                       \
      UNROLL for (int j = 0; j < vectors; j++) row[j] = load(b + j * lanes);   \
      UNROLL for (int i = 0; i < n_rows; i++) {                                \
        type x = broadcast(a[i]);                                              \
        UNROLL for (int j = 0; j < vectors; j++) sum[i][j] =                   \
            multiply_add(x, row[j], sum[i][j]);                                \
      }                                                                        \
      a += n_rows;                                                             \
      b += vectors * lanes;                                                    \
    }                                                                          \
    UNROLL for (int i = 0; i < n_rows; i++) {                                  \
      UNROLL for (int j = 0; j < vectors; j++)                                 \
          store(tile + (i * vectors + j) * lanes, sum[i][j]);                  \
    }                                                                          \
  }

#define SCALAR_LOAD(p)       (*(p))
#define SCALAR_SAME(x)       (x)
#define SCALAR_MADD(x, y, z) ((x) * (y) + (z))
#define SCALAR_STORE(p, x)   (*(p) = (x))

TILE(tile_plain, , float, 1, 4, 8, 0.0f, SCALAR_LOAD, SCALAR_SAME, SCALAR_MADD,
     SCALAR_STORE)
#if defined(__x86_64__)
TILE(tile_avx2, __attribute__((target("avx2,fma"))), __m256, 8, 6, 2,
     _mm256_setzero_ps(), _mm256_loadu_ps, _mm256_set1_ps, _mm256_fmadd_ps,
     _mm256_storeu_ps)
TILE(tile_avx512, __attribute__((target("avx512f"))), __m512, 16, 12, 2,
     _mm512_setzero_ps(), _mm512_loadu_ps, _mm512_set1_ps, _mm512_fmadd_ps,
     _mm512_storeu_ps)
#endif

TileKernel tile_kernel(void) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f"))
    return (TileKernel){tile_avx512, 12, 32};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    return (TileKernel){tile_avx2, 6, 16};
#endif
  return (TileKernel){tile_plain, 4, 8};
}

static void store_tile(const TileSums *sums, const float *tile, int width,
                       float *c, int64_t rows, int64_t columns, bool adds) {
  for (int64_t i = 0; i < rows; i++) {
    float *to = c + i * sums->row;
    const float *from = tile + i * width;
    if (sums->column == 1 && adds)
      for (int64_t j = 0; j < columns; j++) to[j] += from[j];
    else if (sums->column == 1)
      memcpy(to, from, sizeof(float) * (size_t)columns);
    else
      for (int64_t j = 0; j < columns; j++)
        to[j * sums->column] = from[j] + (adds ? to[j * sums->column] : 0.0f);
  }
}

void tile_multiply(TileKernel kernel, int64_t m, int64_t n, int64_t k,
                   const float *packed_a, const float *packed_b,
                   const TileSums *sums, bool adds) {
  float tile[TILE_MOST_ROWS * TILE_MOST_COLUMNS] __attribute__((aligned(64)));
  for (int64_t j = 0; j < n; j += kernel.columns) {
    for (int64_t i = 0; i < m; i += kernel.rows) {
      kernel.run(k, packed_a + i * k, packed_b + j * k, tile);
      store_tile(sums, tile, kernel.columns,
                 sums->at + i * sums->row + j * sums->column,
                 least_of_two(kernel.rows, m - i),
                 least_of_two(kernel.columns, n - j), adds);
    }
  }
}

static const int64_t a_floats = (int64_t)(TILE_M + TILE_MOST_ROWS) * TILE_K;
static const int64_t b_floats = (int64_t)(TILE_N + TILE_MOST_COLUMNS) * TILE_K;

int64_t tile_work_bytes(void) {
  int64_t floats = a_floats + b_floats + (int64_t)TILE_M * TILE_N;
  return floats * (int64_t)sizeof(float);
}

TileWork tile_work(void *space, int thread) {
  float *a = (float *)((char *)space + thread * tile_work_bytes());
  return (TileWork){a, a + a_floats, a + a_floats + b_floats};
}
