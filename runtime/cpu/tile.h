/*
 * tile.h -- declares the product of two packed blocks, which gemm.c and conv.c
 * are made of.
 */
#ifndef RUNTIME_CPU_TILE_H
#define RUNTIME_CPU_TILE_H

#include <stdbool.h>
#include <stdint.h>

/* Blocks of A [TILE_M, TILE_K] and B [TILE_K, TILE_N] fit into the caches. */
enum { TILE_K = 256, TILE_M = 96, TILE_N = 1024 };
enum {
  TILE_MOST_ROWS = 12,
  TILE_MOST_COLUMNS = 32
}; /* the most of any kernel */

/* Computes tile[rows][columns] = sum over k of a[k][rows] * b[k][columns]. */
typedef void TileFn(int64_t k, const float *a, const float *b, float *tile);

/* The widest kernel of this processor.  Of A it reads strips of `rows` rows,
 * of B strips of `columns` columns, each strip [k][width] and the last one
 * filled up with zeros. */
typedef struct TileKernel {
  TileFn *run;
  int rows, columns;
} TileKernel;
TileKernel tile_kernel(void);

/* Sum (i, j) stands at at[i * row + j * column]. */
typedef struct TileSums {
  float *at;
  int64_t row, column;
} TileSums;

/* Computes the product of packed blocks [m, k] and [k, n], or adds it. */
void tile_multiply(TileKernel kernel, int64_t m, int64_t n, int64_t k,
                   const float *packed_a, const float *packed_b,
                   const TileSums *sums, bool adds);

/* The memory in which one thread packs A and B, and sums [TILE_M, TILE_N]. */
typedef struct TileWork {
  float *a, *b, *sums;
} TileWork;
int64_t tile_work_bytes(void);
TileWork tile_work(void *space, int thread);

static inline int64_t least_of_two(int64_t a, int64_t b) {
  return a < b ? a : b;
}

static inline int64_t count_blocks(int64_t n, int64_t size) {
  return (n + size - 1) / size;
}

#endif
