/*
 * conv_loads.c -- emits how the threads of a tiled convolution load A and B
 * from global memory into registers, and store them in shared memory.
 *
 * Each thread has a row of A or a column of B and some terms of each step, or
 * four neighbours of these, or one term and several columns (TileLayout).  The
 * part of an address that its row or column has is computed once.
 */
#include "codegen/cuda/conv.h"

/* A or B as a thread loads it: "a" and its sizes. */
typedef struct Operand {
  const char *name, *dtype;
  bool is_image;
  TileLayout layout;
  bool has_vectors;
  int width; /* rows or columns of the tile */
  int n;     /* elements of a thread */
} Operand;

static Operand operand_of(const Product *product, bool is_image) {
  const Tile *tile = &product->tile;
  int width = 16 * (is_image ? tile->rows : tile->columns);
  DType dtype = (DType)product->conv.dtype;
  return (Operand){.name = is_image ? "a" : "b",
                   .dtype = dtype_name(dtype),
                   .is_image = is_image,
                   .layout = is_image ? product->a_layout : product->b_layout,
                   .has_vectors = is_image ? product->a_has_vectors
                                           : product->b_has_vectors,
                   .width = width,
                   .n = width * tile->terms / CONV_THREADS};
}

/* Threads that share a row or column of the tile, or four of them. */
static int parts_of(const Operand *operand) {
  int lanes =
      operand->layout == TILE_by_four ? operand->width / 4 : operand->width;
  return CONV_THREADS / lanes;
}

/* Columns by which the elements of a thread with one term are apart. */
static int column_step(const Operand *operand) {
  return operand->width / operand->n;
}

/* ---- digits ---- */

static bool rest_is_one(const Product *product, const Walk *walk, int i) {
  if (product->n_phases > 1) return i == 2;
  for (i++; i < 3; i++)
    if (walk->size[walk->order[i]] != 1) return false;
  return true;
}

void conv_add_digits(const ConvText *text, const char *sizes, const Walk *walk,
                     const char *number) {
  text_printf(text->out,
              "    unsigned rest = %s;\n    int d0 = 0, d1 = 0, d2 = 0;\n",
              number);
  for (int i = 0; i < 3; i++) {
    int d = walk->order[i];
    if (rest_is_one(text->product, walk, i)) {
      text_printf(text->out, "    d%d = rest;\n", d);
      break;
    }
    text_printf(text->out, "    d%d = rest %% %s_%d; rest /= %s_%d;\n", d,
                sizes, d, sizes, d);
  }
}

/* The digits of the next term. */
static void add_carry(const ConvText *text) {
  const Walk *walk = &text->product->sum;
  int end = 0;
  while (!rest_is_one(text->product, walk, end)) end++;
  text_add(text->out, "      ");
  for (int i = 0; i < end; i++)
    text_printf(text->out, "if (++d%d == SUM_%d) { d%d = 0; ", walk->order[i],
                walk->order[i], walk->order[i]);
  text_printf(text->out, "d%d++;", walk->order[end]);
  for (int i = 0; i < end; i++) text_add(text->out, " }");
  text_add(text->out, "\n");
}

const char *conv_digits_at(const ConvText *text, const int64_t *strides) {
  return arena_printf(
      text->arena, "(Index)d0 * %lld + (Index)d1 * %lld + (Index)d2 * %lld",
      (long long)strides[0], (long long)strides[1], (long long)strides[2]);
}

/* ---- in front of the loop ---- */

/* Declares a_lane and a_part: the thread's row (or column) in the tile, and its
 * first term in a step. */
static void add_threads(const ConvText *text, const Operand *operand) {
  const char *name = operand->name;
  int parts = parts_of(operand), lanes = CONV_THREADS / parts;
  if (operand->layout == TILE_one_term)
    text_printf(text->out,
                "  const int %s_lane = threadIdx.x / BK, %s_part = threadIdx.x "
                "%% BK;\n",
                name, name);
  else if (operand->layout == TILE_along_sum)
    text_printf(text->out,
                "  const int %s_lane = threadIdx.x / %d, %s_part = threadIdx.x "
                "%% %d * 4;\n",
                name, parts, name, parts);
  else if (operand->layout == TILE_by_four)
    text_printf(text->out,
                "  const int %s_lane = threadIdx.x %% %d * 4, %s_part = "
                "threadIdx.x / %d;\n",
                name, lanes, name, lanes);
  else
    text_printf(text->out,
                "  const int %s_lane = threadIdx.x %% %d, %s_part = "
                "threadIdx.x / %d * 4;\n",
                name, lanes, name, lanes);
}

static void add_row(const ConvText *text) {
  const Product *product = text->product;
  const Walk *rows = &product->rows;
  text_add(text->out, "  int a_y, a_x;\n  Index a_at;\n  {\n");
  conv_add_digits(text, "ROW", rows, "m0 + a_lane");
  text_printf(text->out,
              "    a_y = d1 * %lld + BASE_Y;\n    a_x = d2 * %lld + BASE_X;\n"
              "    a_at = (Index)d0 * %lld + (Index)a_y * %lld + (Index)a_x * "
              "%lld;\n"
              "    if (m0 + a_lane >= ROWS) a_y = -(1 << 30);\n  }\n",
              (long long)rows->image[1], (long long)rows->image[2],
              (long long)rows->image[0], (long long)product->image_stride[0],
              (long long)product->image_stride[1]);
}

void conv_add_lane(const ConvText *text, bool is_image) {
  Operand operand = operand_of(text->product, is_image);
  add_threads(text, &operand);
  if (is_image) {
    add_row(text);
    return;
  }
  text_printf(text->out,
              "  const int b_is_there = n0 + b_lane < COLUMNS;\n"
              "  const Index b_at = (Index)(n0 + b_lane) * %lld + B_BASE;\n"
              "  (void)b_is_there;\n",
              (long long)text->product->b_column);
}

/* ---- loads ---- */

/* Elements `at` onwards: four of them, or one. */
static void add_load(const ConvText *text, const Operand *operand, bool is_four,
                     const char *to, const char *condition, const char *at) {
  const char *name = operand->name, *dtype = operand->dtype;
  if (!is_four) {
    text_printf(text->out,
                "      next_%s[%s] = %s ? dnn_from_%s(%s[%s]) : 0.0f;\n", name,
                to, condition, dtype, name, at);
    return;
  }
  text_printf(text->out,
              "      if (%s) {\n"
              "        const dnn_%s_4 w = *(const dnn_%s_4 *)&%s[%s];\n"
              "        DNN_UNROLL for (int e = 0; e < 4; e++)\n"
              "          next_%s[v * 4 + e] = dnn_from_%s(w.e[e]);\n"
              "      } else {\n"
              "        DNN_UNROLL for (int e = 0; e < 4; e++)\n"
              "          next_%s[v * 4 + e] = 0.0f;\n"
              "      }\n",
              condition, dtype, dtype, name, at, name, dtype, name);
}

/* One term of several columns. */
static void add_column_loads(const ConvText *text, const Operand *operand,
                             const char *is_there) {
  const Product *product = text->product;
  int step = column_step(operand);
  bool is_whole = product->columns % operand->width == 0;
  text_printf(text->out,
              "    const int is_there = %s;\n"
              "    DNN_UNROLL for (int e = 0; e < %d; e++)\n",
              is_there, operand->n);
  add_load(text, operand, false, "e",
           is_whole ? "is_there"
                    : arena_printf(text->arena,
                                   "is_there && n0 + b_lane + e * %d < COLUMNS",
                                   step),
           arena_printf(text->arena, "at + e * %lldLL",
                        (long long)(step * product->b_column)));
}

/* Declares the address of channel `channel` + a_part or b_part at the place
 * (tap_y, tap_x) of the window. */
static void add_chunk_place(const ConvText *text, const Operand *operand) {
  const Product *product = text->product;
  const Walk *sum = &product->sum;
  if (operand->is_image)
    text_printf(text->out,
                "    const int y = tap_y * %lld, x = tap_x * %lld;\n"
                "    const int is_there = (unsigned)(a_y + y) < %lldu && "
                "(unsigned)(a_x + x) < %lldu;\n"
                "    const Index at = a_at + (Index)y * %lld + (Index)x * %lld",
                (long long)sum->image[1], (long long)sum->image[2],
                (long long)product->size[0], (long long)product->size[1],
                (long long)product->image_stride[0],
                (long long)product->image_stride[1]);
  else
    text_printf(text->out,
                "    const Index at = b_at + (Index)tap_y * %lld + "
                "(Index)tap_x * %lld",
                (long long)sum->other[1], (long long)sum->other[2]);
  text_printf(text->out, " + (Index)(channel + %s_part) * %lld;\n",
              operand->name,
              (long long)(operand->is_image ? sum->image[0] : sum->other[0]));
}

static void add_chunk_loads(const ConvText *text, const Operand *operand) {
  const Walk *sum = &text->product->sum;
  const char *name = operand->name;
  bool by_four = operand->layout == TILE_by_four;
  bool is_whole = sum->size[0] % text->product->tile.terms == 0;
  bool is_four = by_four || operand->has_vectors;
  int64_t stride = operand->is_image ? sum->image[0] : sum->other[0];
  int step = parts_of(operand) * (by_four ? 1 : 4);
  add_chunk_place(text, operand);
  if (operand->layout == TILE_one_term) {
    add_column_loads(text, operand,
                     is_whole ? "1" : "channel + b_part < SUM_0");
    return;
  }
  const char *more =
      is_whole ? ""
               : arena_printf(text->arena,
                              " && channel + %s_part + v * %d%s < SUM_0", name,
                              step, is_four ? "" : " + e");
  text_printf(text->out, "    DNN_UNROLL for (int v = 0; v < %d; v++) {\n",
              operand->n / 4);
  if (!is_four)
    text_add(text->out, "      DNN_UNROLL for (int e = 0; e < 4; e++)\n");
  add_load(text, operand, is_four, "v * 4 + e",
           arena_printf(text->arena, "%s%s",
                        operand->is_image ? "is_there" : "b_is_there", more),
           arena_printf(text->arena, "at + (v * %d%s) * %lldLL", step,
                        is_four ? "" : " + e", (long long)stride));
  text_add(text->out, "    }\n");
}

/* Where the term with digits d0 d1 d2 is, in A or in B. */
static void add_place(const ConvText *text, const Operand *operand,
                      const char **out_condition, const char **out_at) {
  const Product *product = text->product;
  const Walk *sum = &product->sum;
  if (!operand->is_image) {
    *out_condition = "b_is_there && p < TERMS";
    *out_at = arena_printf(text->arena, "b_at + %s",
                           product->b_is_linear
                               ? arena_printf(text->arena, "(Index)p * %lld",
                                              (long long)product->b_term)
                               : conv_digits_at(text, sum->other));
    return;
  }
  const int64_t strides[3] = {sum->image[0],
                              sum->image[1] * product->image_stride[0],
                              sum->image[2] * product->image_stride[1]};
  *out_condition = arena_printf(
      text->arena,
      "p < TERMS && (unsigned)(a_y + d1 * %lld) < %lldu && (unsigned)(a_x + d2 "
      "* %lld) < %lldu",
      (long long)sum->image[1], (long long)product->size[0],
      (long long)sum->image[2], (long long)product->size[1]);
  *out_at =
      arena_printf(text->arena, "a_at + %s", conv_digits_at(text, strides));
}

/* Terms from step * BK on, by their digits. */
static void add_digit_loads(const ConvText *text, const Operand *operand) {
  bool by_four = operand->layout == TILE_by_four;
  bool has_digits = operand->is_image || !text->product->b_is_linear;
  int step = parts_of(operand) * (by_four ? 1 : 4);
  const char *condition, *at;
  add_place(text, operand, &condition, &at);
  if (operand->layout == TILE_one_term) {
    text_add(text->out, "    const int p = step * BK + b_part;\n");
    if (has_digits) conv_add_digits(text, "SUM", &text->product->sum, "p");
    text_printf(text->out, "    const Index at = %s;\n", at);
    add_column_loads(text, operand, "p < TERMS");
    return;
  }
  text_printf(text->out,
              "    DNN_UNROLL for (int v = 0; v < %d; v++) {\n"
              "    int p = step * BK + %s_part + v * %d;\n",
              operand->n / 4, operand->name, step);
  if (has_digits) conv_add_digits(text, "SUM", &text->product->sum, "p");
  if (by_four) {
    add_load(text, operand, true, "", condition, at);
  } else {
    text_add(text->out, "    DNN_UNROLL for (int e = 0; e < 4; e++, p++) {\n");
    add_load(text, operand, false, "v * 4 + e", condition, at);
    if (has_digits) add_carry(text);
    text_add(text->out, "    }\n");
  }
  text_add(text->out, "    }\n");
}

void conv_add_loads(const ConvText *text, bool is_image) {
  Operand operand = operand_of(text->product, is_image);
  text_add(text->out, "    {\n");
  if (text->product->is_chunked)
    add_chunk_loads(text, &operand);
  else
    add_digit_loads(text, &operand);
  text_add(text->out, "    }\n");
}

/* ---- stores ---- */

/* Into the half of shared memory that this step has. */
void conv_add_stores(const ConvText *text, bool is_image) {
  Operand operand = operand_of(text->product, is_image);
  const char *name = operand.name, *pitch = is_image ? "A" : "B";
  int parts = parts_of(&operand);
  if (operand.layout == TILE_one_term) {
    text_printf(text->out,
                "    DNN_UNROLL for (int e = 0; e < %d; e++)\n"
                "      s_b[(half + b_part) * PITCH_B + b_lane + e * %d] = "
                "next_b[e];\n",
                operand.n, column_step(&operand));
    return;
  }
  text_printf(text->out, "    DNN_UNROLL for (int v = 0; v < %d; v++) {\n",
              operand.n / 4);
  if (operand.layout == TILE_by_four)
    text_printf(
        text->out,
        "      dnn_f32_4 w;\n"
        "      DNN_UNROLL for (int e = 0; e < 4; e++)\n"
        "        w.e[e] = next_%s[v * 4 + e];\n"
        "      *(dnn_f32_4 *)&s_%s[(half + %s_part + v * %d) * PITCH_%s "
        "+ %s_lane] = w;\n    }\n",
        name, name, name, parts, pitch, name);
  else
    text_printf(text->out,
                "      DNN_UNROLL for (int e = 0; e < 4; e++)\n"
                "        s_%s[(half + %s_part + v * %d + e) * PITCH_%s + "
                "%s_lane] = next_%s[v * 4 + e];\n    }\n",
                name, name, 4 * parts, pitch, name, name);
}
