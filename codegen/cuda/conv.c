/*
 * conv.c -- emits convolutions and their gradients as CUDA kernels that
 * multiply tiles in shared memory and registers; they sum in f32 on CUDA cores.
 *
 * conv_product.c says what is multiplied: A [rows, sum], whose elements are
 * found in an image (implicit im2col), times B [sum, columns].  A block of 256
 * threads computes a tile of 128 or 64 rows and columns, a thread 8 or 4 of
 * each.  In each step of 8 or 16 terms
 *
 *   the block loads a tile of A and one of B into registers,
 *   multiplies those of the step before, which are in shared memory,
 *   and stores the loaded ones in the other half of shared memory.
 *
 * Neighbouring threads load neighbours along the sum or along the tile, as the
 * elements lie, four with one instruction where strides allow it.
 *
 * Terms are walked in one of two ways.  Where there are channels enough, a step
 * is a few channels at one place of the window, so all threads agree about the
 * place.  Else each thread divides its term into digits.
 *
 * Where tiles are few, blocks share the sum of a tile: they leave partial sums
 * in scratch memory, and the last block to arrive adds them in ascending order,
 * at first of each group of blocks, then of all groups.
 */
#include "codegen/cuda/conv.h"

#include <string.h>

static int split_groups(const Product *product) {
  return (product->splits + product->group_splits - 1) / product->group_splits;
}

/* ---- in front of the loop ---- */

/* Appends the phase, as constants of an enum or assigned. */
static void add_phase(const ConvText *text, const RowPhase *phase,
                      const char *begin, const char *separator,
                      const char *end) {
  const struct {
    const char *name;
    int64_t value;
  } items[] = {{"ROW_1", phase->rows[0]},  {"ROW_2", phase->rows[1]},
               {"SUM_1", phase->taps[0]},  {"SUM_2", phase->taps[1]},
               {"BASE_Y", phase->base[0]}, {"BASE_X", phase->base[1]},
               {"ROWS", phase->n_rows},    {"B_BASE", phase->b_at},
               {"C_BASE", phase->c_at}};
  text_add(text->out, begin);
  for (int i = 0; i < ARRAY_LENGTH(items); i++)
    text_printf(text->out, "%s%s = %lld", i ? separator : "", items[i].name,
                (long long)items[i].value);
  text_add(text->out, end);
}

/* Which phase has this block's tile, and the sizes that depend on it. */
static void add_phases(const ConvText *text) {
  const Product *product = text->product;
  if (product->n_phases == 1) {
    add_phase(text, &product->phases[0], "  enum { ", ", ", " };\n");
    return;
  }
  text_add(text->out, "  int ROW_1, ROW_2, SUM_1, SUM_2, BASE_Y, BASE_X, ROWS, "
                      "B_BASE, C_BASE;\n  int at = tile;\n");
  for (int i = 0; i < product->n_phases; i++) {
    int64_t begin = product->phases[i].first_tile;
    int64_t end = i + 1 < product->n_phases ? product->phases[i + 1].first_tile
                                            : product->n_tiles;
    text_printf(text->out,
                i + 1 < product->n_phases ? "  %sif (tile < %lld) {\n"
                                          : "  %s{ /* up to %lld */\n",
                i ? "else " : "", (long long)end);
    text_printf(text->out, "    at -= %lld;\n", (long long)begin);
    add_phase(text, &product->phases[i], "    ", "; ", ";\n  }\n");
  }
}

static void add_sizes(const ConvText *text) {
  const Product *product = text->product;
  const Tile *tile = &product->tile;
  text_printf(text->out, "  typedef %s Index;\n",
              product->is_wide ? "long long" : "int");
  text_printf(text->out,
              "  enum { TM = %d, TN = %d, BK = %d, BM = 16 * TM, BN = 16 * TN, "
              "PITCH_A = BM + 4,\n    PITCH_B = BN + 4, COLUMNS = %lld, "
              "COLUMN_TILES = %lld, GROUPS = %lld,\n    TILES = %lld, SPLITS = "
              "%d, MEMBERS = %d,\n    SPLIT_GROUPS = %d, ROW_0 = %lld, SUM_0 = "
              "%lld };\n",
              tile->rows, tile->columns, tile->terms,
              (long long)product->columns, (long long)product->column_tiles,
              (long long)product->groups, (long long)product->n_tiles,
              product->splits, product->group_splits, split_groups(product),
              (long long)product->rows.size[0],
              (long long)product->sum.size[0]);
  text_add(text->out, "  const int tile = blockIdx.x % TILES;\n"
                      "  const int split = blockIdx.x / TILES;\n");
  add_phases(text);
  text_printf(text->out,
              "  const int n0 = %s %% COLUMN_TILES * BN;\n"
              "  const int group = %s / COLUMN_TILES %% GROUPS;\n"
              "  const int m0 = %s / COLUMN_TILES / GROUPS * BM;\n",
              product->n_phases > 1 ? "at" : "tile",
              product->n_phases > 1 ? "at" : "tile",
              product->n_phases > 1 ? "at" : "tile");
  text_printf(
      text->out,
      "  const %s *const a = args.a + group * %lldLL;\n"
      "  const %s *const b = args.b + group * %lldLL;\n"
      "  %s *const c = args.c + group * %lldLL;\n",
      cuda_storage((DType)product->conv.dtype), (long long)product->a_group,
      cuda_storage((DType)product->conv.dtype), (long long)product->b_group,
      cuda_storage((DType)product->conv.out_dtype),
      (long long)product->c_group);
}

/* ---- the loop ---- */

#pragma GCC diagnostic ignored "-Woverlength-strings"

/* A warp has 4 x 8 threads of the 16 x 16, which needs fewest words of shared
 * memory. */
static const char begin_text[] =
    "  DNN_SHARED DNN_ALIGN(16) float s_a[2 * BK * PITCH_A];\n"
    "  DNN_SHARED DNN_ALIGN(16) float s_b[2 * BK * PITCH_B];\n"
    "  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;\n"
    "  const int tx = (lane % 8 + warp % 2 * 8) * 4;\n"
    "  const int ty = (lane / 8 + warp / 2 * 4) * 4;\n"
    "  float sum[TM][TN];\n"
    "  DNN_UNROLL for (int i = 0; i < TM; i++)\n"
    "    DNN_UNROLL for (int j = 0; j < TN; j++) sum[i][j] = 0.0f;\n";

static const char chunk_text[] =
    "  const int taps = SUM_1 * SUM_2;\n"
    "  const int steps = (SUM_0 + BK - 1) / BK * taps;\n"
    "  const int first = (int)((long long)steps * split / SPLITS);\n"
    "  const int last = (int)((long long)steps * (split + 1) / SPLITS);\n"
    "  const int begin = taps ? first % taps : 0;\n"
    "  int channel = taps ? first / taps * BK : 0;\n"
    "  int tap_y = SUM_2 ? begin / SUM_2 : 0, tap_x = SUM_2 ? begin % SUM_2 : "
    "0;\n";

static const char digits_text[] =
    "  enum { TERMS = SUM_0 * SUM_1 * SUM_2, STEPS = (TERMS + BK - 1) / BK };\n"
    "  const int first = (int)((long long)STEPS * split / SPLITS);\n"
    "  const int last = (int)((long long)STEPS * (split + 1) / SPLITS);\n";

static const char advance_text[] =
    "    if (++tap_x == SUM_2) {\n"
    "      tap_x = 0;\n"
    "      if (++tap_y == SUM_1) { tap_y = 0; channel += BK; }\n"
    "    }\n";

static const char multiply_text[] =
    "    if (step > first) {\n"
    "    const int half = ((step - 1) & 1) * BK;\n"
    "    DNN_UNROLL for (int k = 0; k < BK; k++) {\n"
    "      float x[TM], w[TN];\n"
    "      DNN_UNROLL for (int i = 0; i < TM; i += 4) {\n"
    "        const dnn_f32_4 q = *(const dnn_f32_4 *)\n"
    "            &s_a[(half + k) * PITCH_A + i * 16 + ty];\n"
    "        DNN_UNROLL for (int e = 0; e < 4; e++) x[i + e] = q.e[e];\n"
    "      }\n"
    "      DNN_UNROLL for (int j = 0; j < TN; j += 4) {\n"
    "        const dnn_f32_4 q = *(const dnn_f32_4 *)\n"
    "            &s_b[(half + k) * PITCH_B + j * 16 + tx];\n"
    "        DNN_UNROLL for (int e = 0; e < 4; e++) w[j + e] = q.e[e];\n"
    "      }\n"
    "      DNN_UNROLL for (int i = 0; i < TM; i++)\n"
    "        DNN_UNROLL for (int j = 0; j < TN; j++)\n"
    "          sum[i][j] += x[i] * w[j];\n"
    "    }\n"
    "    }\n";

static void add_loop(const ConvText *text) {
  const Product *product = text->product;
  const Tile *tile = &product->tile;
  text_add(text->out, begin_text);
  text_add(text->out, product->is_chunked ? chunk_text : digits_text);
  text_printf(text->out,
              "  float next_a[%d], next_b[%d];\n"
              "  for (int step = first; step <= last; step++) {\n"
              "    if (step < last) {\n",
              tile->rows * tile->terms / 16, tile->columns * tile->terms / 16);
  conv_add_loads(text, true);
  conv_add_loads(text, false);
  if (product->is_chunked) text_add(text->out, advance_text);
  text_add(text->out, "    }\n");
  text_add(text->out, multiply_text);
  text_add(text->out, "    if (step < last) {\n"
                      "    const int half = (step & 1) * BK;\n");
  conv_add_stores(text, true);
  conv_add_stores(text, false);
  text_add(text->out, "    __syncthreads();\n    }\n  }\n");
}

/* ---- results ---- */

/* First the last block of each group to arrive adds up the group, then the last
 * group adds up all: one block would read the sums of hundreds for longer than
 * they take to make. */
static const char join_text[] =
    "  for (int level = 0; level < (SPLIT_GROUPS > 1 ? 2 : 1); level++) {\n"
    "    enum { SIZE = TM * TN / 4, PITCH = TILES * SIZE * 256 };\n"
    "    const int group_begin = split / MEMBERS * MEMBERS;\n"
    "    const int rest = SPLITS - group_begin;\n"
    "    const int n = level ? SPLIT_GROUPS : rest < MEMBERS ? rest : "
    "MEMBERS;\n"
    "    const int first_part = level ? 0 : group_begin;\n"
    "    const int pitch = level ? MEMBERS * PITCH : PITCH;\n"
    "    dnn_f32_4 *const parts =\n"
    "        (dnn_f32_4 *)args.part + tile * SIZE * 256 + threadIdx.x;\n"
    "    dnn_f32_4 *const mine = parts + (level ? group_begin : split) * "
    "PITCH;\n"
    "    DNN_UNROLL for (int q = 0; q < SIZE; q++) {\n"
    "      dnn_f32_4 w;\n"
    "      DNN_UNROLL for (int e = 0; e < 4; e++)\n"
    "        w.e[e] = sum[q * 4 / TN][q * 4 % TN + e];\n"
    "      mine[q * 256] = w;\n"
    "    }\n"
    "    __threadfence();\n    __syncthreads();\n"
    "    if (threadIdx.x == 0)\n"
    "      is_last = atomicInc(&NAME_arrived[tile * (SPLIT_GROUPS + 1)\n"
    "          + (level ? 0 : 1 + split / MEMBERS)], n - 1u) == n - 1u;\n"
    "    __syncthreads();\n"
    "    if (!is_last) return;\n    __threadfence();\n"
    "    DNN_UNROLL for (int i = 0; i < TM; i++)\n"
    "      DNN_UNROLL for (int j = 0; j < TN; j++) sum[i][j] = 0.0f;\n"
    "    for (int s = 0; s < n; s++) {\n"
    "      const dnn_f32_4 *const from = parts + first_part * PITCH + s * "
    "pitch;\n"
    "      DNN_UNROLL for (int q = 0; q < SIZE; q++) {\n"
    "        const dnn_f32_4 w = from[q * 256];\n"
    "        DNN_UNROLL for (int e = 0; e < 4; e++)\n"
    "          sum[q * 4 / TN][q * 4 % TN + e] += w.e[e];\n"
    "      }\n"
    "    }\n"
    "  }\n";

static void add_results(const ConvText *text) {
  const Product *product = text->product;
  const char *dtype = dtype_name((DType)product->conv.out_dtype);
  text_add(text->out, "  DNN_UNROLL for (int i = 0; i < TM; i++) {\n"
                      "    const int m = m0 + i / 4 * 64 + ty + i % 4;\n"
                      "    if (m >= ROWS) continue;\n");
  conv_add_digits(text, "ROW", &product->rows, "m");
  text_printf(text->out,
              "    const Index at = C_BASE + %s;\n"
              "    DNN_UNROLL for (int j = 0; j < TN; j += 4) {\n"
              "      const int n = n0 + j * 16 + tx;\n",
              conv_digits_at(text, product->rows.other));
  if (product->c_has_vectors)
    text_printf(text->out,
                "      if (n >= COLUMNS) continue;\n"
                "      dnn_%s_4 w;\n"
                "      DNN_UNROLL for (int e = 0; e < 4; e++)\n"
                "        w.e[e] = dnn_to_%s(sum[i][j + e]);\n"
                "      *(dnn_%s_4 *)&c[at + n] = w;\n",
                dtype, dtype, dtype);
  else
    text_printf(
        text->out,
        "      DNN_UNROLL for (int e = 0; e < 4; e++)\n"
        "        if (n + e < COLUMNS)\n"
        "          c[at + (Index)(n + e) * %lld] = dnn_to_%s(sum[i][j + "
        "e]);\n",
        (long long)product->c_column, dtype);
  text_add(text->out, "    }\n  }\n");
}

/* ---- kernels ---- */

/* Two blocks of the largest tile share a multiprocessor, which hides how long
 * loads take; for that the compiler must do with 128 registers. */
static const char largest_text[] =
    "#ifndef DNN_CONV_KERNEL\n"
    "#ifdef __CUDACC_RTC__\n"
    "#define DNN_CONV_KERNEL(name) extern \"C\" __global__ void \\\n"
    "  __launch_bounds__(256, 2) name(const name##_args args)\n"
    "#else\n"
    "#define DNN_CONV_KERNEL(name) DNN_KERNEL(name, 256, 1)\n"
    "#endif\n"
    "#endif\n";

/* `NAME` in the text becomes the name. */
static const char *with_name(Arena *arena, const char *format, Name name) {
  Text text = text_create(arena);
  for (const char *at; (at = strstr(format, "NAME")); format = at + 4)
    text_printf(&text, "%.*s%s", (int)(at - format), format, name);
  text_add(&text, format);
  return text_string(&text);
}

static const char *kernel_body(Arena *arena, const Product *product) {
  Text out = text_create(arena);
  ConvText text = {.out = &out, .arena = arena, .product = product};
  if (product->splits > 1) text_add(&out, "  DNN_SHARED int is_last;\n");
  add_sizes(&text);
  conv_add_lane(&text, true);
  conv_add_lane(&text, false);
  add_loop(&text);
  if (product->splits > 1) text_add(&out, join_text);
  add_results(&text);
  return text_string(&out);
}

bool cuda_emit_conv(const Backend *backend, Module *module, const Graph *graph,
                    int id, KernelText *out) {
  (void)backend;
  static const char *const words[] = {"conv", "conv_input_grad",
                                      "conv_weight_grad"};
  Product product;
  if (!conv_product(graph, id, &product)) return false;
  Arena *arena = module->arena;
  const char *body = kernel_body(arena, &product);
  const char *type = cuda_storage((DType)product.conv.dtype);
  const char *result = cuda_storage((DType)product.conv.out_dtype);
  bool is_largest = product.tile.rows * product.tile.columns == 64;
  const char *text = arena_printf(
      arena,
      "%stypedef struct {\n  const %s *a, *b;\n  %s *c;\n%s} NAME_args;\n"
      "%s%s {\n%s}\n",
      is_largest ? largest_text : "", type, result,
      product.splits > 1 ? "  float *part;\n" : "",
      product.splits > 1
          ? arena_printf(arena, "DNN_STATIC unsigned NAME_arrived[%lld];\n",
                         (long long)product.n_tiles *
                             (split_groups(&product) + 1))
          : "",
      is_largest ? "DNN_CONV_KERNEL(NAME)" : "DNN_KERNEL(NAME, 256, 1)", body);
  char hex[33];
  hash_hex(text, strlen(text), hex);
  Name name =
      name_format(module->names, "%s_%.12s", words[product.conv.kind], hex);
  *out =
      (KernelText){.name = name,
                   .text = with_name(arena, text, name),
                   .grid = {(uint32_t)(product.n_tiles * product.splits), 1, 1},
                   .block = {CONV_THREADS, 1, 1},
                   .uses_barriers = true};
  return true;
}

int64_t cuda_conv_scratch_bytes(const Graph *graph, int id) {
  Product product;
  if (!conv_product(graph, id, &product) || product.splits == 1) return 0;
  const Tile *tile = &product.tile;
  return 4 * product.n_tiles * product.splits * CONV_THREADS * tile->rows *
         tile->columns;
}
