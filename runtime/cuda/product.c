/*
 * product.c -- runs matmuls by cuBLASLt, in strict f32 or f64, or in 16 bits
 * with sums in f32.
 *
 * cuBLASLt expects columns to be contiguous.  A row-major c[m, n] is its
 * column-major c^T[n, m] = b^T[n, k] a^T[k, m], so our b is its first operand.
 * The algorithm of each instruction is chosen once, when the device is opened,
 * among those that add in an order of their own but always the same one.
 */
#include "runtime/cuda/cuda.h"

struct CudaProduct {
  LtDesc desc;
  LtLayout a, b, c; /* of our a, b and c */
  LtAlgorithm algorithm;
  const DnnGemm *gemm;
  unsigned long long at[3], scratch;
  size_t scratch_bytes;
  int64_t outer, outer_stride[3]; /* the batch dim that is a loop here */
};

/* An operand of rows x columns elements as the library's column-major matrix.
 */
typedef struct Operand {
  int64_t rows, columns, leading;
  bool is_transposed;
} Operand;

static int64_t at_least(int64_t value, int64_t least) {
  return value > least ? value : least;
}

/* Our x[p, q] with element strides; the library is to see x^T[q, p].  A size of
 * one has no stride that matters. */
static bool describe_operand(int64_t p, int64_t q, int64_t s_p, int64_t s_q,
                             Operand *out) {
  if (s_q == 1 || q == 1) {
    *out = (Operand){q, p, p == 1 ? q : s_p, false};
    return out->leading >= q;
  }
  if (s_p == 1 || p == 1) {
    *out = (Operand){p, q, q == 1 ? p : s_q, true};
    return out->leading >= p;
  }
  return false;
}

typedef struct Batch {
  int64_t n, a, b, c;
} Batch;

/* Two batch dims as one where all three operands allow it; else the first is
 * a loop of calls. */
static void join_batches(const DnnGemm *g, Batch *inner, Batch *outer) {
  Batch first = {g->batch[0], g->a_batch[0], g->b_batch[0], g->c_batch[0]};
  Batch second = {g->batch[1], g->a_batch[1], g->b_batch[1], g->c_batch[1]};
  *outer = (Batch){1, 0, 0, 0};
  if (first.n == 1) {
    *inner = second;
  } else if (second.n == 1) {
    *inner = first;
  } else if (first.a == second.n * second.a && first.b == second.n * second.b &&
             first.c == second.n * second.c) {
    *inner = (Batch){first.n * second.n, second.a, second.b, second.c};
  } else {
    *inner = second;
    *outer = first;
  }
}

static Status lt_error(CuEnum error, const char *what, const char *path) {
  return status_make(STATUS_unavailable,
                     "%s of cuBLASLt failed with status %u for '%s'", what,
                     error, path);
}

#define LT_TRY(state, path, function, ...)                                     \
  do {                                                                         \
    CuEnum lt_status = (state)->lt.function(__VA_ARGS__);                      \
    if (lt_status) return lt_error(lt_status, #function, path);                \
  } while (0)

static Status create_layout(CudaState *state, const char *path, CuEnum dtype,
                            const Operand *operand, int64_t n, int64_t stride,
                            LtLayout *out) {
  LT_TRY(state, path, MatrixLayoutCreate, out, dtype, (uint64_t)operand->rows,
         (uint64_t)operand->columns, at_least(operand->leading, operand->rows));
  if (n == 1) return STATUS_OK;
  int32_t count = (int32_t)n;
  LT_TRY(state, path, MatrixLayoutSetAttribute, *out, LT_BATCH_COUNT, &count,
         sizeof count);
  LT_TRY(state, path, MatrixLayoutSetAttribute, *out, LT_BATCH_STRIDE, &stride,
         sizeof stride);
  return STATUS_OK;
}

/* cuBLASLt's numbers; LT_none: the dtype is not for the library. */
static const int lt_dtypes[] = {
#define DTYPE(name, size_bytes, class, c_type, safetensors, npy, digits,       \
              least, greatest, reduce, nccl, cublaslt, ...)                    \
  [DNN_##name] = LT_##cublaslt,
#include "support/dtype.def"
};

static Status describe_matmul(CudaState *state, const char *path,
                              CudaProduct *product, const Operand *a,
                              const Operand *b, const Batch *inner) {
  const DnnGemm *g = product->gemm;
  bool is_f64 = g->dtype == DNN_f64;
  CuEnum dtype = (CuEnum)lt_dtypes[g->dtype];
  CuEnum c_dtype = (CuEnum)lt_dtypes[g->c_dtype];
  Operand c = {g->n, g->m, g->m == 1 ? g->n : g->c_i, false};
  LT_TRY(state, path, MatmulDescCreate, &product->desc,
         is_f64 ? LT_COMPUTE_F64 : LT_COMPUTE_F32,
         is_f64 ? LT_R_64F : LT_R_32F);
  int32_t first = b->is_transposed, second = a->is_transposed;
  LT_TRY(state, path, MatmulDescSetAttribute, product->desc, LT_TRANSPOSE_A,
         &first, sizeof first);
  LT_TRY(state, path, MatmulDescSetAttribute, product->desc, LT_TRANSPOSE_B,
         &second, sizeof second);
  TRY(create_layout(state, path, dtype, a, inner->n, inner->a, &product->a));
  TRY(create_layout(state, path, dtype, b, inner->n, inner->b, &product->b));
  return create_layout(state, path, c_dtype, &c, inner->n, inner->c,
                       &product->c);
}

/* Sets `found` to false if the library has no algorithm. */
static Status ask_for_algorithm(CudaState *state, const char *path,
                                CudaProduct *product, bool *found) {
  LtPreference preference;
  LT_TRY(state, path, MatmulPreferenceCreate, &preference);
  uint32_t schemes = 2; /* partial sums in f32, added in a step of their own */
  LtHeuristic result;
  int n = 0;
  CuEnum error = state->lt.MatmulPreferenceSetAttribute(
      preference, LT_MAX_WORKSPACE, &product->scratch_bytes,
      sizeof product->scratch_bytes);
  if (!error)
    error = state->lt.MatmulPreferenceSetAttribute(
        preference, LT_REDUCTION_SCHEMES, &schemes, sizeof schemes);
  if (!error)
    error = state->lt.MatmulAlgoGetHeuristic(
        state->lt_handle, product->desc, product->b, product->a, product->c,
        product->c, preference, 1, &result, &n);
  state->lt.MatmulPreferenceDestroy(preference);
  *found = !error && n > 0 && result.state == 0;
  if (*found) product->algorithm = result.algorithm;
  return STATUS_OK;
}

Status cuda_product(CudaState *state, const DnnInstr *instr,
                    const unsigned long long *buffers, CudaProduct **out) {
  const DnnGemm *g = instr->detail;
  Operand a, b;
  *out = NULL;
  if (!state->lt_handle || lt_dtypes[g->dtype] < 0 ||
      lt_dtypes[g->c_dtype] < 0 || (g->c_j != 1 && g->n != 1) ||
      (g->m != 1 && g->c_i < g->n) ||
      !describe_operand(g->m, g->k, g->a_i, g->a_k, &a) ||
      !describe_operand(g->k, g->n, g->b_k, g->b_j, &b))
    return STATUS_OK;
  CudaProduct *product = ARENA_NEW(state->arena, CudaProduct);
  Batch inner, outer;
  join_batches(g, &inner, &outer);
  *product = (CudaProduct){.gemm = g,
                           .at = {buffers[0], buffers[1], buffers[2]},
                           .outer = outer.n,
                           .outer_stride = {outer.a, outer.b, outer.c}};
  if (instr->n_buffers > 3 && g->scratch_bytes > 0) {
    product->scratch = buffers[3];
    product->scratch_bytes = (size_t)g->scratch_bytes;
  }
  *out = product; /* so that it is destroyed with the device in any case */
  TRY(describe_matmul(state, instr->path, product, &a, &b, &inner));
  bool found;
  TRY(ask_for_algorithm(state, instr->path, product, &found));
  if (found) return STATUS_OK;
  cuda_product_destroy(state, product);
  *out = NULL;
  return STATUS_OK;
}

Status cuda_product_run(CudaState *state, const CudaProduct *product,
                        const DnnInstr *instr, const int64_t *iterations) {
  const char *path = instr->path;
  const DnnGemm *g = product->gemm;
  static const float one = 1, zero = 0;
  static const double one64 = 1, zero64 = 0;
  bool is_f64 = g->dtype == DNN_f64;
  const void *alpha = is_f64 ? (const void *)&one64 : &one;
  const void *beta = is_f64 ? (const void *)(g->accumulate ? &one64 : &zero64)
                            : (const void *)(g->accumulate ? &one : &zero);
  const int64_t sizes[3] = {dtype_bytes(g->dtype), dtype_bytes(g->dtype),
                            dtype_bytes(g->c_dtype)};
  for (int64_t i = 0; i < product->outer; i++) {
    unsigned long long at[3];
    for (int t = 0; t < 3; t++)
      at[t] = product->at[t] +
              (unsigned long long)(i * product->outer_stride[t] * sizes[t]) +
              (unsigned long long)instr_advance(instr, t, iterations);
    void *c = (void *)(uintptr_t)at[2];
    LT_TRY(state, path, Matmul, state->lt_handle, product->desc, alpha,
           (const void *)(uintptr_t)at[1], product->b,
           (const void *)(uintptr_t)at[0], product->a, beta, c, product->c, c,
           product->c, &product->algorithm, (void *)(uintptr_t)product->scratch,
           product->scratch_bytes, state->compute);
  }
  return STATUS_OK;
}

void cuda_product_destroy(CudaState *state, CudaProduct *product) {
  if (!product) return;
  if (product->desc) state->lt.MatmulDescDestroy(product->desc);
  LtLayout layouts[] = {product->a, product->b, product->c};
  for (int i = 0; i < ARRAY_LENGTH(layouts); i++)
    if (layouts[i]) state->lt.MatrixLayoutDestroy(layouts[i]);
}
