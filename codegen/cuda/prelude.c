/*
 * prelude.c -- prints the prelude of emitted CUDA kernels: types, operators and
 * reductions.
 *
 * The value column of ops.def is stringified into one macro, DNN_OPERATORS,
 * which the prelude expands once for each number type, so that the GPU has
 * every operator of the table.  A C compiler reads the same text with
 * tests/shim/shim.h, which defines the words that only a GPU compiler knows.
 *
 * Reductions have a fixed order: butterflies over a warp (equal bits on all
 * lanes, since a + b = b + a), then ascending over warps.
 */
#include "codegen/cuda/cuda.h"
#include "codegen/gelu.h"

/* One string; both our compilers take far longer ones than C11 asks for. */
#pragma GCC diagnostic ignored "-Woverlength-strings"

const char cuda_prelude[] =
    "#ifdef __CUDACC_RTC__\n"
    "#define DNN_FN static __device__ __forceinline__\n"
    "#define DNN_STATIC static __device__\n"
    "#define DNN_SHARED __shared__\n"
    /* waits: threads wait for each other, which matters on a CPU only */
    "#define DNN_KERNEL(name, threads, waits) extern \"C\" __global__ void \\\n"
    "  __launch_bounds__(threads) name(const name##_args args)\n"
    "#define DNN_UNROLL _Pragma(\"unroll\")\n"
    "#define DNN_ALIGN(n) __align__(n)\n"
    "#define DNN_INF __longlong_as_double(0x7ff0000000000000LL)\n"
    "#else\n"
    "#include \"shim.h\"\n"
    "#endif\n"
    "typedef struct DNN_ALIGN(4) { unsigned char e[4]; } dnn_bool_4;\n"
    "typedef struct DNN_ALIGN(4) { unsigned char e[4]; } dnn_u8_4;\n"
    "typedef struct DNN_ALIGN(4) { signed char e[4]; } dnn_i8_4;\n"
    "typedef struct DNN_ALIGN(8) { short e[4]; } dnn_i16_4;\n"
    "typedef struct DNN_ALIGN(8) { unsigned short e[4]; } dnn_bf16_4;\n"
    "typedef dnn_bf16_4 dnn_f16_4;\n"
    "typedef struct DNN_ALIGN(16) { int e[4]; } dnn_i32_4;\n"
    "typedef struct DNN_ALIGN(16) { float e[4]; } dnn_f32_4;\n"
    "DNN_FN float dnn_from_bf16(unsigned short h) {\n"
    "  union { unsigned u; float f; } x; x.u = (unsigned)h << 16;\n"
    "  return x.f;\n"
    "}\n"
    "#ifdef __CUDACC_RTC__\n"
    "DNN_FN unsigned short dnn_to_bf16(float f) {\n"
    "  unsigned short h;\n"
    "  asm(\"cvt.rn.bf16.f32 %0, %1;\" : \"=h\"(h) : \"f\"(f));\n"
    "  return h;\n"
    "}\n"
    "DNN_FN unsigned short dnn_to_f16(float f) {\n"
    "  unsigned short h;\n"
    "  asm(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(h) : \"f\"(f));\n"
    "  return h;\n"
    "}\n"
    "DNN_FN float dnn_from_f16(unsigned short h) {\n"
    "  float f;\n"
    "  asm(\"cvt.f32.f16 %0, %1;\" : \"=f\"(f) : \"h\"(h));\n"
    "  return f;\n"
    "}\n"
    "#define DNN_TENSOR_CORES(name) \\\n"
    "DNN_FN unsigned dnn_pack_##name(float low, float high) { \\\n"
    "  unsigned r; \\\n"
    "  asm(\"cvt.rn.\" #name \"x2.f32 %0, %1, %2;\" \\\n"
    "      : \"=r\"(r) : \"f\"(high), \"f\"(low)); \\\n"
    "  return r; \\\n"
    "} \\\n"
    "DNN_FN void dnn_mma_##name(float *d, const unsigned *a, \\\n"
    "                           const unsigned *b) { \\\n"
    "  asm(\"mma.sync.aligned.m16n8k16.row.col.f32.\" #name \".\" #name \\\n"
    "      \".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, \" \\\n"
    "      \"{%0, %1, %2, %3};\" \\\n"
    "      : \"+f\"(d[0]), \"+f\"(d[1]), \"+f\"(d[2]), \"+f\"(d[3]) \\\n"
    "      : \"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3]), \\\n"
    "        \"r\"(b[0]), \"r\"(b[1])); \\\n"
    "}\n"
    "#define DNN_LDMATRIX(name, form) \\\n"
    "DNN_FN void dnn_##name(unsigned *r, const unsigned short *row) { \\\n"
    "  asm volatile(\"ldmatrix.sync.aligned.m8n8.x4\" form \".shared.b16 \" "
    "\\\n"
    "               \"{%0, %1, %2, %3}, [%4];\" \\\n"
    "               : \"=r\"(r[0]), \"=r\"(r[1]), \"=r\"(r[2]), \"=r\"(r[3]) "
    "\\\n"
    "               : \"r\"((unsigned)__cvta_generic_to_shared(row)) \\\n"
    "               : \"memory\"); \\\n"
    "}\n"
    "DNN_LDMATRIX(ldmatrix, \"\")\n"
    "DNN_LDMATRIX(ldmatrix_trans, \".trans\")\n"
    "DNN_FN void dnn_cp_async_16(unsigned short *to,\n"
    "                            const unsigned short *from) {\n"
    "  asm volatile(\"cp.async.cg.shared.global [%0], [%1], 16;\" ::\n"
    "               \"r\"((unsigned)__cvta_generic_to_shared(to)), "
    "\"l\"(from)\n"
    "               : \"memory\");\n"
    "}\n"
    "DNN_FN void dnn_cp_async_wait(void) {\n"
    "  asm volatile(\"cp.async.wait_all;\" ::: \"memory\");\n"
    "}\n"
    "#else\n" /* the same by integers: nearest, ties to even */
    "DNN_FN unsigned short dnn_to_bf16(float f) {\n"
    "  union { float f; unsigned u; } x; x.f = f;\n"
    "  if (f != f) return 0x7fc0;\n"
    "  return (unsigned short)((x.u + 0x7fffu + (x.u >> 16 & 1u)) >> 16);\n"
    "}\n"
    "DNN_FN unsigned short dnn_to_f16(float f) {\n"
    "  union { float f; unsigned u; } x, low;\n"
    "  x.f = f;\n"
    "  unsigned m = x.u & 0x7fffffffu, r;\n"
    "  low.u = m;\n"
    "  low.f += 0.5f;\n"
    "  r = (m + 0xfffu + (m >> 13 & 1u) - 0x38000000u) >> 13;\n"
    "  if (m < 0x38800000u) r = low.u - 0x3f000000u;\n"
    "  if (m >= 0x47800000u) r = 0x7c00u;\n"
    "  if (m > 0x7f800000u) r = 0x7e00u;\n"
    "  return (unsigned short)((x.u >> 16 & 0x8000u) | r);\n"
    "}\n"
    "DNN_FN float dnn_from_f16(unsigned short h) {\n"
    "  union { unsigned u; float f; } x;\n"
    "  unsigned m = h & 0x7fffu;\n"
    "  x.u = (m << 13) + 0x38000000u;\n"
    "  if (m < 0x400u) x.f = (float)m / 16777216.0f;\n"
    "  if (m >= 0x7c00u) x.u = (m << 13) + 0x70000000u;\n"
    "  x.u |= (unsigned)(h & 0x8000u) << 16;\n"
    "  return x.f;\n"
    "}\n"
    "#define DNN_TENSOR_CORES(name) \\\n"
    "DNN_FN unsigned dnn_pack_##name(float low, float high) { \\\n"
    "  return dnn_to_##name(low) | (unsigned)dnn_to_##name(high) << 16; \\\n"
    "} \\\n"
    "DNN_FN void dnn_mma_##name(float *d, const unsigned *a, \\\n"
    "                           const unsigned *b) { \\\n"
    "  shim_mma(d, a, b, dnn_from_##name); \\\n"
    "}\n"
    "#define dnn_ldmatrix(r, row) shim_ldmatrix(r, row, 0)\n"
    "#define dnn_ldmatrix_trans(r, row) shim_ldmatrix(r, row, 1)\n"
    "#define dnn_cp_async_16(to, from) memcpy(to, from, 16)\n"
    "#define dnn_cp_async_wait() (void)0\n"
    "#endif\n"
    "DNN_TENSOR_CORES(bf16)\n"
    "DNN_TENSOR_CORES(f16)\n"
    "#define dnn_from_f32(x) (x)\n"
    "#define dnn_to_f32(x) (x)\n"
    /* Clamps as dtype_integer does: a value beyond the range becomes the end of
     * it. */
    "#define DNN_INTEGER(name, type, least, most) \\\n"
    "DNN_FN type dnn_integer_##name(double x) { \\\n"
    "  type near = x > (double)(least) ? (type)x : least; \\\n"
    "  return x != x ? 0 : x >= (double)(most) ? most : near; \\\n"
    "}\n"
    "DNN_INTEGER(u8, int, 0, 255)\n"
    "DNN_INTEGER(i8, int, -128, 127)\n"
    "DNN_INTEGER(i16, int, -32768, 32767)\n"
    "DNN_INTEGER(i32, int, (-2147483647 - 1), 2147483647)\n"
    "DNN_INTEGER(i64, long long, (-9223372036854775807LL - 1),\n"
    "            9223372036854775807LL)\n"
    "DNN_FN int dnn_clamp_i32(int i, int limit) {\n"
    "  return i < 0 ? 0 : i < limit ? i : limit - 1;\n"
    "}\n"
    "DNN_FN long long dnn_clamp_i64(long long i, long long limit) {\n"
    "  return i < 0 ? 0 : i < limit ? i : limit - 1;\n"
    "}\n"
    /* Computes random_keep(random_stream(seed, stream), ...) of support.h. */
    "DNN_FN int dnn_random_keep(long long seed, unsigned stream,\n"
    "                           long long step, long long index, double p) {\n"
    "  unsigned long long z = (unsigned long long)seed\n"
    "      + 0x9E3779B97F4A7C15ull * ((unsigned long long)stream + 1);\n"
    "  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;\n"
    "  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;\n"
    "  z = z ^ (z >> 31);\n"
    "  unsigned k0 = (unsigned)z, k1 = (unsigned)(z >> 32);\n"
    "  unsigned c0 = (unsigned)index, c2 = (unsigned)step;\n"
    "  unsigned c1 = (unsigned)((unsigned long long)index >> 32);\n"
    "  unsigned c3 = (unsigned)((unsigned long long)step >> 32);\n"
    "  for (int round = 0; round < 10; round++) {\n"
    "    unsigned long long p0 = 0xD2511F53ull * c0, p1 = 0xCD9E8D57ull * c2;\n"
    "    c0 = (unsigned)(p1 >> 32) ^ c1 ^ k0;\n"
    "    c1 = (unsigned)p1;\n"
    "    c2 = (unsigned)(p0 >> 32) ^ c3 ^ k1;\n"
    "    c3 = (unsigned)p0;\n"
    "    k0 += 0x9E3779B9u;\n"
    "    k1 += 0xBB67AE85u;\n"
    "  }\n"
    "  return (c0 >> 8) >= (unsigned)(p * 16777216.0);\n"
    "}\n"
#define PW1(name, class, value, ...) " DNN1_" #class "(" #name ", " #value ")"
#define PW2(name, class, value, ...) " DNN2_" #class "(" #name ", " #value ")"
#define PW3(name, class, value, ...) " DNN3_" #class "(" #name ", " #value ")"
    "#define DNN_OPERATORS"
#include "ir/ops.def"
    "\n"
    "#define SEL(c, x, y) ((c) ? (x) : (y))\n"
    "#define DNN_EXPF expf\n"
    "#define DNN_LOW(a, b, p) fmaf(a, b, -(p))\n" DNN_GELU_TEXT
    "DNN_FN double dnn_gelu(double x) { return " DNN_GELU_F64 "; }\n"
    "DNN_FN double dnn_gelu_tanh(double x) { return " DNN_GELU_TANH_F64 "; }\n"
    "#define DNN_JOIN2(a, b, c) a##b##_##c\n"
    "#define DNN_JOIN(a, b, c) DNN_JOIN2(a, b, c)\n"
    "#define DNN_NAME(name) DNN_JOIN(dnn_, name, S)\n"
    "#define DNN1(T, name, value) DNN_FN T DNN_NAME(name)(N a) \\\n"
    "  { return (T)(value); }\n"
    "#define DNN2(T, name, value) DNN_FN T DNN_NAME(name)(N a, N b) \\\n"
    "  { return (T)(value); }\n"
    "#define DNN1_ARITH(name, value) DNN1(N, name, value)\n"
    "#define DNN2_ARITH(name, value) DNN2(N, name, value)\n"
    "#define DNN1_COMPARE(name, value) DNN1(int, name, value)\n"
    "#define DNN2_COMPARE(name, value) DNN2(int, name, value)\n"
    "#define DNN3_SELECT(name, value) DNN_FN N DNN_NAME(name)(int a, N b, N c) "
    "\\\n"
    "  { return (N)(value); }\n"
    "#define R(x) ((N)(x))\n"
    /* floats */
    "#define INF DNN_INF\n"
    "#define DNN1_FLOAT(name, value) DNN1(N, name, value)\n"
    "#define DNN2_FLOAT(name, value) DNN2(N, name, value)\n"
    "#define DNN1_LOGIC(name, value)\n"
    "#define DNN2_LOGIC(name, value)\n"
    "#define DNN2_INTEGER(name, value)\n"
#define FLOAT_OPERATORS(number, suffix, f)                                     \
  "#define N " number "\n"                                                     \
  "#define S " suffix "\n"                                                     \
  "#define EXP exp" f "\n"                                                     \
  "#define LOG log" f "\n"                                                     \
  "#define SQRT sqrt" f "\n"                                                   \
  "#define SIN sin" f "\n"                                                     \
  "#define COS cos" f "\n"                                                     \
  "#define TANH tanh" f "\n"                                                   \
  "#define ERF erf" f "\n"                                                     \
  "#define POW pow" f "\n"                                                     \
  "#define FLOOR floor" f "\n"                                                 \
  "#define ROUND rint" f "\n"                                                  \
  "#define ABS fabs" f "\n"                                                    \
  "#define LOG1P log1p" f "\n"                                                 \
  "#define EXPM1 expm1" f "\n"                                                 \
  "#define EXP2 exp2" f "\n"                                                   \
  "#define LOG2 log2" f "\n"                                                   \
  "#define TAN tan" f "\n"                                                     \
  "#define ATAN2 atan2" f "\n"                                                 \
  "#define CEIL ceil" f "\n"                                                   \
  "#define TRUNC trunc" f "\n"                                                 \
  "#define GELU dnn_gelu" f "\n"                                               \
  "#define GELU_TANH dnn_gelu_tanh" f "\n"                                     \
  "#define TAIL(x) EXP((N)(-0.5) * ABS(x))\n"                                  \
  "#define ISNAN(x) ((x) != (x))\n"                                            \
  "DNN_OPERATORS\n"                                                            \
  "#undef N\n#undef S\n#undef EXP\n#undef LOG\n#undef SQRT\n#undef SIN\n"      \
  "#undef COS\n#undef TANH\n#undef ERF\n#undef POW\n#undef FLOOR\n"            \
  "#undef ROUND\n#undef ABS\n#undef ISNAN\n"                                   \
  "#undef LOG1P\n#undef EXPM1\n#undef EXP2\n#undef LOG2\n"                     \
  "#undef TAN\n#undef ATAN2\n#undef CEIL\n#undef TRUNC\n#undef GELU\n"         \
  "#undef GELU_TANH\n#undef TAIL\n"
    /* clang-format off */
    FLOAT_OPERATORS("float", "f32", "f")
    FLOAT_OPERATORS("double", "f64", "")
    /* clang-format on */
    /* integers and bools: no float functions; a division by 0 gives 0 */
    "#undef INF\n#undef DNN1_FLOAT\n#undef DNN2_FLOAT\n#undef DNN1_LOGIC\n"
    "#undef DNN2_LOGIC\n#undef DNN2_INTEGER\n"
    "#define DNN1_FLOAT(name, value)\n"
    "#define DNN2_FLOAT(name, value)\n"
    "#define DNN1_LOGIC(name, value) DNN1(int, name, value)\n"
    "#define DNN2_LOGIC(name, value) DNN2(int, name, value)\n"
    "#define DNN2_INTEGER(name, value) DNN2(N, name, value)\n"
    "#define ABS(x) ((x) < 0 ? -(x) : (x))\n"
    "#define ISNAN(x) 0\n"
    "#define FLOOR(x) (x)\n"
    "#define CEIL(x) (x)\n"
    "#define TRUNC(x) (x)\n"
    "#define ROUND(x) (x)\n"
    "#define MOD(a, b) DNN_NAME(rest)(a, b)\n"
    "#define FLOORDIV(a, b) ((b) == 0 ? 0 : ((a) - MOD(a, b)) / (b))\n"
#define INTEGER_OPERATORS(number, suffix, limit)                               \
  "#define INF " limit "\n"                                                    \
  "#define N " number "\n"                                                     \
  "#define S " suffix "\n"                                                     \
  "DNN_FN N DNN_NAME(rest)(N a, N b) {\n"                                      \
  "  N r = b == 0 || b == -1 ? 0 : a % b;\n"                                   \
  "  return r != 0 && (r < 0) != (b < 0) ? r + b : r;\n"                       \
  "}\n"                                                                        \
  "DNN_OPERATORS\n"                                                            \
  "#undef N\n#undef S\n#undef INF\n"
    /* clang-format off */
    INTEGER_OPERATORS("int", "i32", "2147483647")
    INTEGER_OPERATORS("long long", "i64", "9223372036854775807LL")
    "#undef R\n"
    "#undef SEL\n"
    "#undef ABS\n"
    "#undef ISNAN\n"
    "#undef FLOOR\n"
    "#undef CEIL\n"
    "#undef TRUNC\n"
    "#undef ROUND\n"
    "#undef MOD\n"
    "#undef FLOORDIV\n"
    /* reductions */
    "#define DNN_GROUP(T, S, OP) \\\n"
    "DNN_FN T dnn_warp_##OP##_##S(T v) { \\\n"
    "  for (int d = 16; d > 0; d >>= 1) \\\n"
    "    v = dnn_##OP##_##S(v, __shfl_xor_sync(0xffffffffu, v, d)); \\\n"
    "  return v; \\\n"
    "} \\\n"
    "DNN_FN T dnn_block_##OP##_##S(T v, T *shared, int threads) { \\\n"
    "  v = dnn_warp_##OP##_##S(v); \\\n"
    "  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = v; \\\n"
    "  __syncthreads(); \\\n"
    "  v = shared[0]; \\\n"
    "  for (int w = 1; w < threads / 32; w++) \\\n"
    "    v = dnn_##OP##_##S(v, shared[w]); \\\n"
    "  __syncthreads(); \\\n"
    "  return v; \\\n"
    "} \\\n"
    "DNN_FN T dnn_column_##OP##_##S(T v, T *shared, int points, \\\n"
    "                               int group) { \\\n"
    "  shared[threadIdx.x] = v; \\\n"
    "  __syncthreads(); \\\n"
    "  v = shared[threadIdx.x % points]; \\\n"
    "  for (int g = 1; g < group; g++) \\\n"
    "    v = dnn_##OP##_##S(v, shared[g * points + threadIdx.x % points]); \\\n"
    "  __syncthreads(); \\\n"
    "  return v; \\\n"
    "}\n"
    /* The order of maxima: NaN is above every number, and not above NaN. */
    "#define DNN_FIRST(T, S, ISNAN) \\\n"
    "DNN_FN void dnn_first_##S(T *v, int *i, T w, int j) { \\\n"
    "  const int is_above = w > *v || (ISNAN(w) && !ISNAN(*v)); \\\n"
    "  const int is_equal = w == *v || (ISNAN(w) && ISNAN(*v)); \\\n"
    "  if (is_above || (is_equal && j < *i)) { *v = w; *i = j; } \\\n"
    "} \\\n"
    "DNN_FN int dnn_warp_argmax_##S(T v, int i) { \\\n"
    "  for (int d = 16; d > 0; d >>= 1) { \\\n"
    "    T w = __shfl_xor_sync(0xffffffffu, v, d); \\\n"
    "    int j = __shfl_xor_sync(0xffffffffu, i, d); \\\n"
    "    dnn_first_##S(&v, &i, w, j); \\\n"
    "  } \\\n"
    "  return i; \\\n"
    "} \\\n"
    /* All threads of a point, in rows or columns. */
    "DNN_FN int dnn_any_argmax_##S(T v, int i, T *shared, int *place, \\\n"
    "                              int points, int group) { \\\n"
    "  int mine = threadIdx.x % points; \\\n"
    "  shared[threadIdx.x] = v; \\\n"
    "  place[threadIdx.x] = i; \\\n"
    "  __syncthreads(); \\\n"
    "  for (int g = 0; g < group; g++) \\\n"
    "    dnn_first_##S(&v, &i, shared[g * points + mine], \\\n"
    "                  place[g * points + mine]); \\\n"
    "  __syncthreads(); \\\n"
    "  return i; \\\n"
    "}\n"
    "#define DNN_REDUCE(T, S, ISNAN) \\\n"
    "DNN_FN T dnn_sum_##S(T a, T b) { return a + b; } \\\n"
    "DNN_FN T dnn_max_##S(T a, T b) { return b > a || ISNAN(b) ? b : a; } \\\n"
    "DNN_FN T dnn_min_##S(T a, T b) { return b < a || ISNAN(b) ? b : a; } \\\n"
    "DNN_GROUP(T, S, sum) DNN_GROUP(T, S, max) DNN_GROUP(T, S, min) \\\n"
    "DNN_FIRST(T, S, ISNAN)\n"
    "#define DNN_ISNAN(x) ((x) != (x))\n"
    "#define DNN_NEVER(x) 0\n"
    "DNN_REDUCE(float, f32, DNN_ISNAN)\n"
    "DNN_REDUCE(double, f64, DNN_ISNAN)\n"
    "DNN_REDUCE(int, i32, DNN_NEVER)\n"
    "DNN_REDUCE(long long, i64, DNN_NEVER)\n";
/* clang-format on */
