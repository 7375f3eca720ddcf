/*
 * init.c -- computes initial values from the tensor's key and the element's
 * index alone, or, for an orthogonal matrix, all of them from key and sizes.
 */
#include "support/support.h"

#include <math.h>
#include <string.h>

/* Beyond two deviations lie 4.6 % of the random numbers: the bound is never
 * reached. */
static double truncated_normal(uint64_t key, uint64_t index) {
  for (uint64_t attempt = 0; attempt < 64; attempt++) {
    uint64_t stream = attempt ? hash_bytes(&attempt, sizeof attempt, key) : key;
    double value = random_normal(stream, index);
    if (fabs(value) <= 2) return value;
  }
  return 0;
}

bool init_is_elementwise(InitKind kind) {
  return kind != INIT_orthogonal;
}

double init_value(Init init, uint64_t key, const int64_t *sizes,
                  uint64_t index) {
  uint64_t columns = init.kind == INIT_eye ? (uint64_t)sizes[1] : 1;
  switch (init.kind) {
  case INIT_zeros: return 0;
  case INIT_constant: return init.a;
  case INIT_normal: return init.a * random_normal(key, index);
  case INIT_trunc_normal: return init.a * truncated_normal(key, index);
  case INIT_uniform: return init.a * (2 * random_uniform(key, index) - 1);
  case INIT_eye: return index / columns == index % columns;
  case INIT_orthogonal: break; /* init_fill */
  }
  UNREACHABLE();
}

/* ---- orthogonal ---- */

/* Sums in a fixed order, eight side by side, so that they may be vectors. */
enum { LANES = 8, TILE = 4, BLOCK = 32, CHUNK = 512 };

/* out[j] += a . b(j) for TILE rows `stride` apart. */
static void products(const double *a, const double *b, int64_t stride,
                     int64_t n, double *out) {
  double sum[TILE][LANES] = {{0}};
  int64_t k = 0;
  for (; k + LANES <= n; k += LANES)
    for (int j = 0; j < TILE; j++)
      for (int l = 0; l < LANES; l++)
        sum[j][l] += a[k + l] * b[j * stride + k + l];
  for (int j = 0; j < TILE; j++) {
    for (int l = 0; l < LANES; l++) out[j] += sum[j][l];
    for (int64_t i = k; i < n; i++) out[j] += a[i] * b[j * stride + i];
  }
}

/* a -= by[0] b(0) + by[1] b(1) + ... for TILE rows. */
static void subtract(double *restrict a, const double *restrict b,
                     int64_t stride, int64_t n, const double *by) {
  for (int64_t k = 0; k < n; k++)
    a[k] -= by[0] * b[k] + by[1] * b[stride + k] + by[2] * b[2 * stride + k] +
            by[3] * b[3 * stride + k];
}

/* Takes from `n` rows after `before` ones, a multiple of TILE, their
 * projections on those; in chunks that stay in the cache. */
static void project_off(double *rows, int64_t before, int64_t n, int64_t length,
                        double *along) {
  double *block = rows + before * length;
  memset(along, 0, (size_t)(n * before) * sizeof *along);
  for (int is_taken = 0; is_taken < 2; is_taken++)
    for (int64_t from = 0; from < length; from += CHUNK) {
      int64_t count = length - from < CHUNK ? length - from : CHUNK;
      for (int64_t j = 0; j < before; j += TILE)
        for (int64_t i = 0; i < n; i++) {
          const double *others = rows + j * length + from;
          double *row = block + i * length + from;
          double *by = along + i * before + j;
          if (is_taken)
            subtract(row, others, length, count, by);
          else
            products(row, others, length, count, by);
        }
    }
}

static double product(const double *a, const double *b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
  return sum;
}

static void scale(double *a, double factor, int64_t n) {
  for (int64_t i = 0; i < n; i++) a[i] *= factor;
}

/* Each row minus its projections on the rows before it, scaled to length 1. */
static void orthonormal_block(double *block, int64_t n, int64_t length) {
  for (int64_t i = 0; i < n; i++) {
    double *row = block + i * length;
    for (int pass = 0; pass < 2; pass++) {
      scale(row, 1 / sqrt(product(row, row, length)), length);
      for (int64_t j = 0; j < i; j++) {
        const double *other = block + j * length;
        double along = product(row, other, length);
        for (int64_t k = 0; k < length; k++) row[k] -= along * other[k];
      }
    }
    scale(row, 1 / sqrt(product(row, row, length)), length);
  }
}

/* Gram-Schmidt by blocks on `n` normal vectors of `length` >= n: the Q of a QR
 * decomposition with positive diagonal, so that all such Q are equally likely.
 * The second pass makes up for the cancellation of the first ("twice is
 * enough"). */
static void orthonormal_rows(Arena *scratch, uint64_t key, int64_t n,
                             int64_t length, double *rows) {
  double *along = ARENA_ARRAY(scratch, double, BLOCK *n);
  for (int64_t i = 0; i < n * length; i++)
    rows[i] = random_normal(key, (uint64_t)i);
  for (int64_t first = 0; first < n; first += BLOCK) {
    int64_t count = n - first < BLOCK ? n - first : BLOCK;
    project_off(rows, first, count, length, along);
    orthonormal_block(rows + first * length, count, length);
    if (first == 0) continue;
    project_off(rows, first, count, length, along);
    orthonormal_block(rows + first * length, count, length);
  }
}

/* Index of an element in a matrix of the dims in `set` against the rest. */
static void place_in_matrix(const int64_t *sizes, int rank, unsigned set,
                            int64_t index, int64_t *out_row,
                            int64_t *out_column) {
  int64_t strides[2] = {1, 1}, place[2] = {0, 0};
  for (int d = rank - 1; d >= 0; d--) {
    int side = !(set >> d & 1);
    place[side] += index % sizes[d] * strides[side];
    strides[side] *= sizes[d];
    index /= sizes[d];
  }
  *out_row = place[0];
  *out_column = place[1];
}

static void fill_orthogonal(Arena *scratch, unsigned set, uint64_t key,
                            const int64_t *sizes, int rank, double *out) {
  int64_t n[2] = {1, 1};
  for (int d = 0; d < rank; d++) n[!(set >> d & 1)] *= sizes[d];
  bool is_wide = n[0] <= n[1];
  int64_t length = is_wide ? n[1] : n[0];
  double *rows = ARENA_ARRAY(scratch, double, n[0] * n[1]);
  orthonormal_rows(scratch, key, is_wide ? n[0] : n[1], length, rows);
  for (int64_t i = 0; i < n[0] * n[1]; i++) {
    int64_t row, column;
    place_in_matrix(sizes, rank, set, i, &row, &column);
    out[i] =
        is_wide ? rows[row * length + column] : rows[column * length + row];
  }
}

void init_fill(Arena *scratch, Init init, uint64_t key, const int64_t *sizes,
               int rank, double *out) {
  int64_t n = 1;
  for (int d = 0; d < rank; d++) n *= sizes[d];
  if (init.kind == INIT_orthogonal) {
    fill_orthogonal(scratch, (unsigned)init.a, key, sizes, rank, out);
    return;
  }
  ASSERT(init.kind != INIT_eye || rank == 2);
  for (int64_t i = 0; i < n; i++)
    out[i] = init_value(init, key, sizes, (uint64_t)i);
}
