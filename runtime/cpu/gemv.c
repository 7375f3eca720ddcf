/*
 * gemv.c -- multiplies a vector by a matrix that is read once, as decoding of
 * single tokens does for most of its time.
 *
 *   y[j] = sum over k of x[k] w[k, j]
 *
 * Memory bandwidth is the limit, so nothing is packed and every thread reads
 * its columns of w in storage order.  If columns are contiguous, a few rows at
 * a time are added to a strip of y that stays in the first cache; if rows are,
 * every y[j] is a dot of two vectors.  16-bit operands become f32 in registers;
 * y is rounded once.  Each sum has one order, which depends neither on the
 * number of threads nor on the width of vectors.
 */
#include "runtime/cpu/cpu.h"

#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum {
  LANES = 16,
  STRIP = 4096,     /* columns of y at a time: half of the first cache */
  ROWS = 8,         /* of w at a time */
  TOGETHER = 8,     /* dot products of two vectors at a time */
  SERIAL = 32 << 10 /* elements of w below which one thread does it all */
};

typedef float Floats __attribute__((vector_size(4 * LANES)));
typedef uint32_t Words __attribute__((vector_size(4 * LANES)));
typedef uint16_t Halves __attribute__((vector_size(2 * LANES)));

/* LOAD: LANES elements of w as Floats.  ONE: one element as a float. */
#define LOAD_f32(to, from) memcpy(&(to), from, sizeof(Floats))
#define LOAD_f32_wide      LOAD_f32
#define LOAD_bf16(to, from)                                                    \
  do {                                                                         \
    Halves half;                                                               \
    memcpy(&half, from, sizeof half);                                          \
    (to) = (Floats)(__builtin_convertvector(half, Words) << 16);               \
  } while (0)
/* One instruction, which gcc does not find. */
#define LOAD_bf16_wide(to, from)                                               \
  ((to) = (Floats)_mm512_slli_epi32(                                           \
       _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)(from))), 16))
#define ONE_f32(x)  (x)
#define ONE_bf16(x) bf16_to_float(x)

/* For functions of a constant number of rows or columns. */
#define INLINED static inline __attribute__((always_inline))

/* y[0..n) += sum over the rows of w of x[k] w[k, 0..n); rows are `row` apart.
 */
#define ADD_ROWS(name, attributes, type, S, LOAD)                              \
  attributes INLINED void name##_few(int64_t n, const int rows,                \
                                     const float *x, const type *w,            \
                                     int64_t row, float *y) {                  \
    int64_t j = 0;                                                             \
    for (; j + LANES <= n; j += LANES) {                                       \
      Floats sum, read;                                                        \
      memcpy(&sum, y + j, sizeof sum);                                         \
      UNROLL for (int r = 0; r < rows; r++) {                                  \
        LOAD(read, w + r * row + j);                                           \
        sum += x[r] * read;                                                    \
      }                                                                        \
      memcpy(y + j, &sum, sizeof sum);                                         \
    }                                                                          \
    for (; j < n; j++)                                                         \
      for (int r = 0; r < rows; r++) y[j] += x[r] * ONE_##S(w[r * row + j]);   \
  }                                                                            \
  attributes static void name(int64_t n, int64_t n_rows, const float *x,       \
                              const void *matrix, int64_t row, float *y) {     \
    const type *w = matrix;                                                    \
    int64_t k = 0;                                                             \
    for (; k + ROWS <= n_rows; k += ROWS)                                      \
      name##_few(n, ROWS, x + k, w + k * row, row, y);                         \
    for (; k < n_rows; k++) name##_few(n, 1, x + k, w + k * row, row, y);      \
  }

/* y[0..n) += sum over k of x[k] w[j, k]; columns are `column` apart.  The next
 * ones are asked for in time; after the last that does nothing. */
#define MULTIPLY(name, attributes, type, S, LOAD)                              \
  attributes INLINED void name##_few(const int columns, int64_t n_k,           \
                                     const float *x, const type *w,            \
                                     int64_t column, float *y) {               \
    Floats sum[TOGETHER] = {0}, read, of_x;                                    \
    int64_t k = 0;                                                             \
    for (; k + LANES <= n_k; k += LANES) {                                     \
      memcpy(&of_x, x + k, sizeof of_x);                                       \
      UNROLL for (int c = 0; c < columns; c++) {                               \
        __builtin_prefetch(w + (c + columns) * column + k);                    \
        LOAD(read, w + c * column + k);                                        \
        sum[c] += of_x * read;                                                 \
      }                                                                        \
    }                                                                          \
    for (int c = 0; c < columns; c++) {                                        \
      for (int half = LANES / 2; half > 0; half /= 2)                          \
        UNROLL for (int lane = 0; lane < half; lane++) sum[c][lane] +=         \
            sum[c][lane + half];                                               \
      y[c] += sum[c][0];                                                       \
      for (int64_t i = k; i < n_k; i++)                                        \
        y[c] += x[i] * ONE_##S(w[c * column + i]);                             \
    }                                                                          \
  }                                                                            \
  attributes static void name(int64_t n, int64_t n_k, const float *x,          \
                              const void *matrix, int64_t column, float *y) {  \
    const type *w = matrix;                                                    \
    int64_t j = 0;                                                             \
    for (; j + TOGETHER <= n; j += TOGETHER)                                   \
      name##_few(TOGETHER, n_k, x, w + j * column, column, y + j);             \
    for (; j < n; j++) name##_few(1, n_k, x, w + j * column, column, y + j);   \
  }

typedef void PartFn(int64_t n, int64_t n_k, const float *x, const void *w,
                    int64_t stride, float *y);

#define PARTS(suffix, attributes, wide)                                        \
  ADD_ROWS(add_rows_f32_##suffix, attributes, float, f32, LOAD_f32##wide)      \
  ADD_ROWS(add_rows_bf16_##suffix, attributes, uint16_t, bf16,                 \
           LOAD_bf16##wide)                                                    \
  MULTIPLY(multiply_f32_##suffix, attributes, float, f32, LOAD_f32##wide)      \
  MULTIPLY(multiply_bf16_##suffix, attributes, uint16_t, bf16, LOAD_bf16##wide)

PARTS(plain, , )
#if defined(__x86_64__)
PARTS(avx2, __attribute__((target("avx2"))), )
PARTS(avx512, __attribute__((target("avx512f"))), _wide)
#endif

static PartFn *best_part(bool adds_rows, bool is_bf16) {
#define CHOOSE(suffix)                                                         \
  (adds_rows ? is_bf16 ? add_rows_bf16_##suffix : add_rows_f32_##suffix        \
   : is_bf16 ? multiply_bf16_##suffix                                          \
             : multiply_f32_##suffix)
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return CHOOSE(avx512);
  if (__builtin_cpu_supports("avx2")) return CHOOSE(avx2);
#endif
  return CHOOSE(plain);
}

/* The matmul with the vector first: x w, whichever of a and b x is. */
typedef struct Product {
  const DnnGemm *gemm;
  const unsigned char *x, *w;
  unsigned char *y;
  int64_t x_k, w_k, w_j, y_j, n;
  float *work; /* [threads][k + STRIP] */
} Product;

static Product product_of(const DnnGemm *gemm, const void *a, const void *b,
                          void *c, float *work) {
  if (gemm->m == 1)
    return (Product){gemm,      a,         b,         c,       gemm->a_k,
                     gemm->b_k, gemm->b_j, gemm->c_j, gemm->n, work};
  return (Product){gemm,      b,         a,         c,       gemm->b_k,
                   gemm->a_k, gemm->a_i, gemm->c_i, gemm->m, work};
}

static void store_strip(const Product *p, const float *strip, int64_t n,
                        unsigned char *y) {
  bool accumulates = p->gemm->accumulate;
  if (p->gemm->c_dtype == DNN_f32) {
    float *to = (float *)y;
    for (int64_t j = 0; j < n; j++)
      to[j * p->y_j] = strip[j] + (accumulates ? to[j * p->y_j] : 0.0f);
    return;
  }
  uint16_t *to = (uint16_t *)y;
  for (int64_t j = 0; j < n; j++) {
    float before = accumulates ? bf16_to_float(to[j * p->y_j]) : 0.0f;
    to[j * p->y_j] = bf16_from_float(strip[j] + before);
  }
}

static void read_vector(const Product *p, const unsigned char *x, float *to) {
  for (int64_t k = 0; k < p->gemm->k; k++)
    to[k] = p->gemm->dtype == DNN_bf16
                ? bf16_to_float(((const uint16_t *)x)[k * p->x_k])
                : ((const float *)x)[k * p->x_k];
}

/* Columns [begin, end) of one batch. */
static void run_columns(const Product *p, const unsigned char *w,
                        unsigned char *y, const float *x, float *strip,
                        int64_t begin, int64_t end) {
  const DnnGemm *gemm = p->gemm;
  bool adds_rows = p->w_j == 1;
  PartFn *part = best_part(adds_rows, gemm->dtype == DNN_bf16);
  int64_t item = dtype_bytes(gemm->dtype), y_item = dtype_bytes(gemm->c_dtype);
  for (int64_t j = begin; j < end; j += STRIP) {
    int64_t n = end - j < STRIP ? end - j : STRIP;
    memset(strip, 0, sizeof(float) * (size_t)n);
    part(n, gemm->k, x, w + j * p->w_j * item, adds_rows ? p->w_k : p->w_j,
         strip);
    store_strip(p, strip, n, y + j * p->y_j * y_item);
  }
}

static void run_part(void *arg, int index, int n_threads) {
  const Product *p = arg;
  const DnnGemm *gemm = p->gemm;
  bool is_row = gemm->m == 1;
  const int64_t *x_batch = is_row ? gemm->a_batch : gemm->b_batch;
  const int64_t *w_batch = is_row ? gemm->b_batch : gemm->a_batch;
  int64_t item = dtype_bytes(gemm->dtype), y_item = dtype_bytes(gemm->c_dtype);
  float *x = p->work + index * (gemm->k + STRIP);
  int64_t blocks = (p->n + LANES - 1) / LANES;
  int64_t begin = blocks * index / n_threads * LANES;
  int64_t end = blocks * (index + 1) / n_threads * LANES;
  if (end > p->n) end = p->n;
  for (int64_t t = 0; t < gemm->batch[0] * gemm->batch[1]; t++) {
    int64_t t0 = t / gemm->batch[1], t1 = t % gemm->batch[1];
    read_vector(p, p->x + (t0 * x_batch[0] + t1 * x_batch[1]) * item, x);
    run_columns(p, p->w + (t0 * w_batch[0] + t1 * w_batch[1]) * item,
                p->y + (t0 * gemm->c_batch[0] + t1 * gemm->c_batch[1]) * y_item,
                x, x + gemm->k, begin, end);
  }
}

bool gemv_accepts(const DnnGemm *gemm) {
  bool has_dtypes = (gemm->dtype == DNN_f32 && gemm->c_dtype == DNN_f32) ||
                    (gemm->dtype == DNN_bf16 &&
                     (gemm->c_dtype == DNN_f32 || gemm->c_dtype == DNN_bf16));
  if (!has_dtypes || (gemm->m != 1 && gemm->n != 1)) return false;
  Product p = product_of(gemm, NULL, NULL, NULL, NULL);
  return (p.w_j == 1 || p.w_k == 1) && gemm->k > 0 && gemm->k <= GEMV_MOST_K;
}

int64_t gemv_work_bytes(const Threads *threads) {
  return (int64_t)sizeof(float) * (GEMV_MOST_K + STRIP) * threads->n;
}

void gemv_run(const Threads *threads, const DnnGemm *gemm, const void *a,
              const void *b, void *c, void *work) {
  Product p = product_of(gemm, a, b, c, work);
  if (p.n * gemm->k * gemm->batch[0] * gemm->batch[1] < SERIAL)
    run_part(&p, 0, 1);
  else
    threads_run(threads, run_part, &p);
}
