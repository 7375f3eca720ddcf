/*
 * cublaslt.c -- implements cuBLASLt for the mock: column-major matmuls, written
 * from the library's manual, independent of how the runtime swaps operands.
 */
#include "tests/mock/mock.h"

typedef struct Desc {
  CuEnum compute, scale;
  int32_t transpose_a, transpose_b;
} Desc;

typedef struct MatrixLayout {
  CuEnum dtype;
  int64_t rows, columns, leading, stride;
  int32_t batch;
} MatrixLayout;

CuEnum cublasLtCreate(LtHandle *handle) {
  MOCK_ENTER();
  *handle = malloc(1);
  return 0;
}

CuEnum cublasLtDestroy(LtHandle handle) {
  MOCK_ENTER();
  free(handle);
  return 0;
}

CuEnum cublasLtMatmulDescCreate(LtDesc *desc, CuEnum compute, CuEnum scale) {
  MOCK_ENTER();
  Desc *made = calloc(1, sizeof *made);
  *made = (Desc){.compute = compute, .scale = scale};
  *desc = made;
  return 0;
}

CuEnum cublasLtMatmulDescDestroy(LtDesc desc) {
  MOCK_ENTER();
  free(desc);
  return 0;
}

CuEnum cublasLtMatmulDescSetAttribute(LtDesc handle, CuEnum attribute,
                                      const void *value, size_t bytes) {
  MOCK_ENTER();
  Desc *desc = handle;
  if (bytes != sizeof(int32_t)) return 7; /* INVALID_VALUE */
  if (attribute == LT_TRANSPOSE_A) {
    memcpy(&desc->transpose_a, value, bytes);
  } else if (attribute == LT_TRANSPOSE_B) {
    memcpy(&desc->transpose_b, value, bytes);
  } else {
    return 7;
  }
  return 0;
}

CuEnum cublasLtMatrixLayoutCreate(LtLayout *layout, CuEnum dtype, uint64_t rows,
                                  uint64_t columns, int64_t leading) {
  MOCK_ENTER();
  if (leading < (int64_t)rows) return 7;
  MatrixLayout *made = calloc(1, sizeof *made);
  *made = (MatrixLayout){dtype, (int64_t)rows, (int64_t)columns, leading, 0, 1};
  *layout = made;
  return 0;
}

CuEnum cublasLtMatrixLayoutDestroy(LtLayout layout) {
  MOCK_ENTER();
  free(layout);
  return 0;
}

CuEnum cublasLtMatrixLayoutSetAttribute(LtLayout handle, CuEnum attribute,
                                        const void *value, size_t bytes) {
  MOCK_ENTER();
  MatrixLayout *layout = handle;
  if (attribute == LT_BATCH_COUNT && bytes == sizeof layout->batch) {
    memcpy(&layout->batch, value, bytes);
  } else if (attribute == LT_BATCH_STRIDE && bytes == sizeof layout->stride) {
    memcpy(&layout->stride, value, bytes);
  } else {
    return 7;
  }
  return 0;
}

CuEnum cublasLtMatmulPreferenceCreate(LtPreference *preference) {
  MOCK_ENTER();
  *preference = malloc(1);
  return 0;
}

CuEnum cublasLtMatmulPreferenceDestroy(LtPreference preference) {
  MOCK_ENTER();
  free(preference);
  return 0;
}

CuEnum cublasLtMatmulPreferenceSetAttribute(LtPreference preference,
                                            CuEnum attribute, const void *value,
                                            size_t bytes) {
  (void)preference, (void)value;
  MOCK_ENTER();
  size_t wanted =
      attribute == LT_MAX_WORKSPACE ? sizeof(uint64_t) : sizeof(uint32_t);
  return bytes == wanted ? 0 : 7;
}

CuEnum cublasLtMatmulAlgoGetHeuristic(LtHandle handle, LtDesc desc, LtLayout a,
                                      LtLayout b, LtLayout c, LtLayout d,
                                      LtPreference preference, int wanted,
                                      LtHeuristic *results, int *found) {
  (void)handle, (void)desc, (void)a, (void)b, (void)c, (void)d;
  (void)preference;
  MOCK_ENTER();
  *found = wanted > 0;
  if (wanted > 0) memset(results, 0, sizeof *results);
  if (wanted > 0) results->algorithm.data[0] = 4711;
  return 0;
}

typedef struct Product {
  Desc desc;
  MatrixLayout a, b, c;
  const void *at_a, *at_b;
  void *at_c;
  double alpha, beta;
} Product;

/* Element (i, j) of op(x) lies at x[i * s_i + j * s_j]. */
#define PRODUCT(type)                                                          \
  static void product_##type(const Product *p, const type *a, const type *b,   \
                             type *c) {                                        \
    int64_t m = p->c.rows, n = p->c.columns;                                   \
    int64_t k = p->desc.transpose_a ? p->a.rows : p->a.columns;                \
    int64_t a_i = p->desc.transpose_a ? p->a.leading : 1;                      \
    int64_t a_k = p->desc.transpose_a ? 1 : p->a.leading;                      \
    int64_t b_k = p->desc.transpose_b ? p->b.leading : 1;                      \
    int64_t b_j = p->desc.transpose_b ? 1 : p->b.leading;                      \
    for (int64_t j = 0; j < n; j++) {                                          \
      type *column = c + j * p->c.leading;                                     \
      for (int64_t i = 0; i < m; i++)                                          \
        column[i] = p->beta == 0 ? 0 : (type)p->beta * column[i];              \
      for (int64_t l = 0; l < k; l++) {                                        \
        type x = (type)p->alpha * b[l * b_k + j * b_j];                        \
        for (int64_t i = 0; i < m; i++) column[i] += x * a[i * a_i + l * a_k]; \
      }                                                                        \
    }                                                                          \
  }
PRODUCT(float)
PRODUCT(double)

static float load_16bit(CuEnum dtype, const void *data, int64_t i) {
  if (dtype == LT_R_32F) return ((const float *)data)[i];
  uint16_t half = ((const uint16_t *)data)[i];
  return dtype == LT_R_16BF ? bf16_to_float(half) : f16_to_float(half);
}

static void store_16bit(CuEnum dtype, void *data, int64_t i, float value) {
  if (dtype == LT_R_32F)
    ((float *)data)[i] = value;
  else
    ((uint16_t *)data)[i] =
        dtype == LT_R_16BF ? bf16_from_float(value) : f16_from_float(value);
}

/* Operands of 16 bits: f32 sums, one rounding. */
static void product_half(const Product *p, int64_t batch) {
  int64_t k = p->desc.transpose_a ? p->a.rows : p->a.columns;
  int64_t a_i = p->desc.transpose_a ? p->a.leading : 1;
  int64_t a_k = p->desc.transpose_a ? 1 : p->a.leading;
  int64_t b_k = p->desc.transpose_b ? p->b.leading : 1;
  int64_t b_j = p->desc.transpose_b ? 1 : p->b.leading;
  for (int64_t j = 0; j < p->c.columns; j++)
    for (int64_t i = 0; i < p->c.rows; i++) {
      int64_t at = batch * p->c.stride + i + j * p->c.leading;
      float sum = 0;
      for (int64_t l = 0; l < k; l++)
        sum += load_16bit(p->a.dtype, p->at_a,
                          batch * p->a.stride + i * a_i + l * a_k) *
               load_16bit(p->b.dtype, p->at_b,
                          batch * p->b.stride + l * b_k + j * b_j);
      sum *= (float)p->alpha;
      if (p->beta != 0)
        sum += (float)p->beta * load_16bit(p->c.dtype, p->at_c, at);
      store_16bit(p->c.dtype, p->at_c, at, sum);
    }
}

static int64_t item_bytes(CuEnum dtype) {
  return dtype == LT_R_64F ? 8 : dtype == LT_R_32F ? 4 : 2;
}

static bool run_product(MockWork *work) {
  mock_open_memory();
  const Product *p = work->more;
  for (int32_t i = 0; i < p->c.batch; i++) {
    if (p->c.dtype == LT_R_64F)
      product_double(p, (const double *)p->at_a + i * p->a.stride,
                     (const double *)p->at_b + i * p->b.stride,
                     (double *)p->at_c + i * p->c.stride);
    else if (p->a.dtype != LT_R_32F)
      product_half(p, i);
    else
      product_float(p, (const float *)p->at_a + i * p->a.stride,
                    (const float *)p->at_b + i * p->b.stride,
                    (float *)p->at_c + i * p->c.stride);
  }
  return true;
}

static bool is_in_memory(const void *at, const MatrixLayout *layout) {
  int64_t size = item_bytes(layout->dtype);
  int64_t last = (layout->batch - 1) * layout->stride +
                 (layout->columns - 1) * layout->leading + layout->rows;
  return mock_in_memory((unsigned long long)(uintptr_t)at,
                        (size_t)(last * size));
}

static bool sizes_agree(const Product *p) {
  int64_t m = p->desc.transpose_a ? p->a.columns : p->a.rows;
  int64_t k = p->desc.transpose_a ? p->a.rows : p->a.columns;
  int64_t k_b = p->desc.transpose_b ? p->b.columns : p->b.rows;
  int64_t n = p->desc.transpose_b ? p->b.rows : p->b.columns;
  return m == p->c.rows && n == p->c.columns && k == k_b &&
         p->a.batch == p->c.batch && p->b.batch == p->c.batch &&
         p->a.dtype == p->b.dtype &&
         (p->c.dtype == p->a.dtype ||
          (p->c.dtype == LT_R_32F && p->a.dtype != LT_R_64F)) &&
         p->desc.compute ==
             (p->c.dtype == LT_R_64F ? LT_COMPUTE_F64 : LT_COMPUTE_F32);
}

CuEnum cublasLtMatmul(LtHandle handle, LtDesc desc, const void *alpha,
                      const void *a, LtLayout a_layout, const void *b,
                      LtLayout b_layout, const void *beta, const void *c,
                      LtLayout c_layout, void *d, LtLayout d_layout,
                      const LtAlgorithm *algorithm, void *workspace,
                      size_t workspace_bytes, CuStream stream) {
  (void)handle;
  MOCK_ENTER();
  Product *p = malloc(sizeof *p);
  *p = (Product){*(const Desc *)desc,
                 *(const MatrixLayout *)a_layout,
                 *(const MatrixLayout *)b_layout,
                 *(const MatrixLayout *)c_layout,
                 a,
                 b,
                 d,
                 0,
                 0};
  bool is_f64 = p->c.dtype == LT_R_64F;
  p->alpha = is_f64 ? *(const double *)alpha : *(const float *)alpha;
  p->beta = is_f64 ? *(const double *)beta : *(const float *)beta;
  bool is_valid = c == d && c_layout == d_layout &&
                  algorithm->data[0] == 4711 && sizes_agree(p) &&
                  is_in_memory(a, &p->a) && is_in_memory(b, &p->b) &&
                  is_in_memory(d, &p->c) &&
                  (workspace_bytes == 0 ||
                   mock_in_memory((unsigned long long)(uintptr_t)workspace,
                                  workspace_bytes));
  MockWork work = {.run = run_product, .what = "product", .more = p};
  if (is_valid) return mock_enqueue(stream, &work);
  free(p);
  return 7;
}
