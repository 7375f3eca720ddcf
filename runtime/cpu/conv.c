/*
 * conv.c -- computes convolutions and their gradients in blocks and sums in
 * f32, where oneDNN is missing or refuses.
 *
 * Each is a product of matrices, A [rows, sum] times B [sum, columns], for each
 * group (and image).  A is never stored: its element is the element of x or dy,
 * the "image" here, where a row and a term of the sum meet, or 0 where that is
 * padding (implicit im2col; Chetlur et al. 2014, cuDNN):
 *
 *                  rows           sum            columns
 *   forward        y, x of y      c, window      o          y  += x w
 *   input grad     y, x of x      o, window      c          dx += dy w
 *   weight grad    c, window      n, y, x of y   o          dw += x dy
 *
 * Blocks of A and B are packed as in gemm.c.  A block of rows is computed by
 * one thread, so the order of a sum does not depend on the number of threads.
 */
#include "runtime/cpu/cpu.h"
#include "runtime/cpu/tile.h"

/* Rows, or terms of a sum: all digits (outer, y, x), the last one fastest. */
typedef struct Walk {
  int64_t size[3];
  int64_t outer_stride; /* of the outer digit in the image */
  int64_t step[2];      /* by how much the digits y and x move in it */
  int64_t stride[3];    /* of the digits in the result, or in B */
} Walk;

/* Elements throughout.  The image is read at ((row + term + base) / divide) in
 * y and x where that is an element of it, which a fraction is not. */
typedef struct Product {
  const DnnConv *conv;
  Walk rows, sum;
  int64_t base[2], divide[2], size[2], image_stride[2];
  int64_t columns, b_stride, c_stride;
  int64_t n[2]; /* images, groups */
  int64_t a_batch[2], b_batch[2], c_batch[2];
} Product;

static Walk window_walk(const DnnConv *conv, int64_t channels, int64_t stride,
                        int64_t sign, int64_t weight_stride) {
  return (Walk){
      .size = {channels, conv->window[0], conv->window[1]},
      .outer_stride = stride,
      .step = {sign * conv->dilate[0], sign * conv->dilate[1]},
      .stride = {weight_stride, conv->w_stride[3], conv->w_stride[4]}};
}

static Walk output_walk(const DnnConv *conv, int64_t images) {
  return (Walk){
      .size = {images, conv->out[0], conv->out[1]},
      .outer_stride = conv->x_stride[0],
      .step = {conv->stride[0], conv->stride[1]},
      .stride = {conv->y_stride[0], conv->y_stride[2], conv->y_stride[3]}};
}

static void set_image(Product *product, bool is_result) {
  const DnnConv *conv = product->conv;
  for (int i = 0; i < 2; i++) {
    product->base[i] = is_result ? conv->pad[i] : -conv->pad[i];
    product->divide[i] = is_result ? conv->stride[i] : 1;
    product->size[i] = is_result ? conv->out[i] : conv->in[i];
    product->image_stride[i] =
        is_result ? conv->y_stride[2 + i] : conv->x_stride[2 + i];
  }
}

static Product product_of(const DnnConv *conv) {
  int64_t in = conv->in_channels / conv->groups;
  int64_t out = conv->out_channels / conv->groups;
  int64_t x[2] = {conv->x_stride[0], conv->x_stride[1] * in};
  int64_t w[2] = {0, conv->w_stride[0]};
  int64_t y[2] = {conv->y_stride[0], conv->y_stride[1] * out};
  Product product = {.conv = conv, .n = {conv->batch, conv->groups}};
  const int64_t *a = x, *b = w, *c = y;
  set_image(&product, conv->kind == DNN_CONV_INPUT_GRAD);
  switch ((DnnConvKind)conv->kind) {
  case DNN_CONV_FORWARD:
    product.rows = output_walk(conv, 1);
    product.sum =
        window_walk(conv, in, conv->x_stride[1], 1, conv->w_stride[2]);
    product.columns = out;
    product.b_stride = conv->w_stride[1];
    product.c_stride = conv->y_stride[1];
    break;
  case DNN_CONV_INPUT_GRAD:
    product.rows = (Walk){.size = {1, conv->in[0], conv->in[1]},
                          .step = {1, 1},
                          .stride = {0, conv->x_stride[2], conv->x_stride[3]}};
    product.sum =
        window_walk(conv, out, conv->y_stride[1], -1, conv->w_stride[1]);
    product.columns = in;
    product.b_stride = conv->w_stride[2];
    product.c_stride = conv->x_stride[1];
    a = y, c = x;
    break;
  case DNN_CONV_WEIGHT_GRAD:
    product.rows =
        window_walk(conv, in, conv->x_stride[1], 1, conv->w_stride[2]);
    product.sum = output_walk(conv, conv->batch);
    product.columns = out;
    product.b_stride = conv->y_stride[1];
    product.c_stride = conv->w_stride[1];
    product.n[0] = 1;
    b = y, c = w;
    break;
  }
  for (int i = 0; i < 2; i++) {
    product.a_batch[i] = a[i];
    product.b_batch[i] = b[i];
    product.c_batch[i] = c[i];
  }
  return product;
}

static int64_t walk_length(const Walk *walk) {
  return walk->size[0] * walk->size[1] * walk->size[2];
}

/* Returns whether each place that rows and terms add up to is an element or
 * padding.  In the gradient of a strided input it may lie between elements. */
static bool is_affine(const Product *product) {
  return product->divide[0] == 1 && product->divide[1] == 1;
}

/* ---- a stretch of rows or of terms ---- */

/* Each row or term has a part in y and x of the image, in the element that is
 * read there (its outer digit alone, unless the product is affine), and in the
 * element of the result or of B. */
typedef struct Stretch {
  int64_t n, at[2][TILE_K], element[TILE_K], offset[TILE_K];
} Stretch;
_Static_assert(TILE_M <= TILE_K, "a stretch holds a block of rows");

static void fill_stretch(const Product *product, const Walk *walk,
                         int64_t first, int64_t n, Stretch *out) {
  bool has_place = is_affine(product);
  out->n = n;
  for (int64_t i = 0; i < n; i++) {
    int64_t x = (first + i) % walk->size[2];
    int64_t y = (first + i) / walk->size[2] % walk->size[1];
    int64_t outer = (first + i) / walk->size[2] / walk->size[1];
    out->at[0][i] = y * walk->step[0];
    out->at[1][i] = x * walk->step[1];
    out->element[i] = outer * walk->outer_stride;
    for (int d = 0; d < 2 && has_place; d++)
      out->element[i] += out->at[d][i] * product->image_stride[d];
    out->offset[i] =
        outer * walk->stride[0] + y * walk->stride[1] + x * walk->stride[2];
  }
}

/* ---- packing ---- */

/* The elements of the image where rows from `i` on meet term p; -1: padding. */
static void find_elements(const Product *product, const Stretch *rows,
                          int64_t i, int64_t n, const Stretch *sum, int64_t p,
                          int64_t *out) {
  int64_t y = sum->at[0][p] + product->base[0];
  int64_t x = sum->at[1][p] + product->base[1];
  int64_t element = sum->element[p];
  element += product->base[0] * product->image_stride[0] +
             product->base[1] * product->image_stride[1];
  for (int64_t r = 0; r < n; r++) {
    bool is_inside =
        (uint64_t)(rows->at[0][i + r] + y) < (uint64_t)product->size[0] &&
        (uint64_t)(rows->at[1][i + r] + x) < (uint64_t)product->size[1];
    out[r] = is_inside ? rows->element[i + r] + element : -1;
  }
}

static int64_t find_divided(const Product *product, const Stretch *rows,
                            int64_t i, const Stretch *sum, int64_t p) {
  int64_t element = rows->element[i] + sum->element[p];
  for (int d = 0; d < 2; d++) {
    int64_t at = rows->at[d][i] + sum->at[d][p] + product->base[d];
    if (at < 0 || at % product->divide[d] != 0) return -1;
    at /= product->divide[d];
    if (at >= product->size[d]) return -1;
    element += at * product->image_stride[d];
  }
  return element;
}

static void find_strip(const Product *product, const Stretch *rows, int64_t i,
                       int width, const Stretch *sum, int64_t p, int64_t *out) {
  int64_t n = least_of_two(width, rows->n - i);
  if (is_affine(product))
    find_elements(product, rows, i, n, sum, p, out);
  else
    for (int64_t r = 0; r < n; r++)
      out[r] = find_divided(product, rows, i + r, sum, p);
  for (int64_t r = n; r < width; r++) out[r] = -1;
}

/* Strips of `width` rows or columns, each [sum][width], zero-padded. */
#define PACK(dtype, type, VALUE)                                               \
  static void pack_image_##dtype(const Product *product, const void *image,    \
                                 int64_t begin, const Stretch *rows,           \
                                 const Stretch *sum, int width, float *to) {   \
    const type *from = (const type *)image + begin;                            \
    int64_t at[TILE_MOST_ROWS];                                                \
    for (int64_t i = 0; i < rows->n; i += width)                               \
      for (int64_t p = 0; p < sum->n; p++) {                                   \
        find_strip(product, rows, i, width, sum, p, at);                       \
        for (int r = 0; r < width; r++)                                        \
          *to++ = at[r] < 0 ? 0.0f : VALUE(from[at[r]]);                       \
      }                                                                        \
  }                                                                            \
  static void pack_b_##dtype(const void *b, int64_t begin, int64_t stride,     \
                             int64_t n, const Stretch *sum, int width,         \
                             float *to) {                                      \
    const type *from = (const type *)b + begin;                                \
    for (int64_t j = 0; j < n; j += width)                                     \
      for (int64_t p = 0; p < sum->n; p++)                                     \
        for (int64_t c = j; c < j + width; c++)                                \
          *to++ = c < n ? VALUE(from[sum->offset[p] + c * stride]) : 0.0f;     \
  }
PACK(f32, float, )
PACK(bf16, uint16_t, bf16_to_float)
PACK(f16, uint16_t, f16_to_float)

/* ---- blocks of the result ---- */

typedef struct Work {
  Product product;
  const void *a, *b;
  void *c, *pack;
} Work;

/* Rows of one image and group. */
typedef struct Block {
  const Work *work;
  TileKernel kernel;
  TileWork space;
  int64_t a_at, b_at, c_at;
  Stretch rows;
} Block;

/* Multiplies some terms of the sum with columns j .. j + n. */
static void multiply_terms(const Block *block, int64_t j, int64_t n,
                           const Stretch *sum, bool adds) {
  const Work *work = block->work;
  const Product *product = &work->product;
  float *a = block->space.a, *b = block->space.b;
  int rows = block->kernel.rows, columns = block->kernel.columns;
  int64_t b_at = block->b_at + j * product->b_stride;
#define PACK_BOTH(dtype)                                                       \
  (pack_image_##dtype(product, work->a, block->a_at, &block->rows, sum, rows,  \
                      a),                                                      \
   pack_b_##dtype(work->b, b_at, product->b_stride, n, sum, columns, b))
  if (product->conv->dtype == DNN_bf16)
    PACK_BOTH(bf16);
  else if (product->conv->dtype == DNN_f16)
    PACK_BOTH(f16);
  else
    PACK_BOTH(f32);
  tile_multiply(block->kernel, block->rows.n, n, sum->n, a, b,
                &(TileSums){block->space.sums, n, 1}, adds);
}

static void store_columns(const Block *block, int64_t j, int64_t n) {
  const Product *product = &block->work->product;
  const float *sums = block->space.sums;
  for (int64_t i = 0; i < block->rows.n; i++) {
    int64_t at = block->c_at + block->rows.offset[i] + j * product->c_stride;
    for (int64_t c = 0; c < n; c++, at += product->c_stride) {
      float x = sums[i * n + c];
      if (product->conv->out_dtype == DNN_f32)
        ((float *)block->work->c)[at] = x;
      else
        ((uint16_t *)block->work->c)[at] = product->conv->out_dtype == DNN_bf16
                                               ? bf16_from_float(x)
                                               : f16_from_float(x);
    }
  }
}

static void multiply_rows(const Block *block) {
  const Product *product = &block->work->product;
  int64_t terms = walk_length(&product->sum);
  Stretch sum;
  for (int64_t j = 0; j < product->columns; j += TILE_N) {
    int64_t n = least_of_two(TILE_N, product->columns - j);
    for (int64_t p = 0; p < terms; p += TILE_K) {
      fill_stretch(product, &product->sum, p, least_of_two(TILE_K, terms - p),
                   &sum);
      multiply_terms(block, j, n, &sum, p > 0);
    }
    store_columns(block, j, n);
  }
}

static void work_thread(void *arg, int index, int n_threads) {
  const Work *work = arg;
  const Product *product = &work->product;
  Block block = {.work = work,
                 .kernel = tile_kernel(),
                 .space = tile_work(work->pack, index)};
  int64_t rows = walk_length(&product->rows), width = block.kernel.rows;
  int64_t batches = product->n[0] * product->n[1];
  /* A block for each thread, where there are rows enough. */
  int64_t least = count_blocks(rows, count_blocks(n_threads, batches));
  int64_t step = least_of_two(count_blocks(least, width) * width, TILE_M);
  int64_t blocks = count_blocks(rows, step);
  for (int64_t t = index; t < batches * blocks; t += n_threads) {
    int64_t image = t / blocks / product->n[1];
    int64_t group = t / blocks % product->n[1];
    int64_t first = t % blocks * step;
    block.a_at = image * product->a_batch[0] + group * product->a_batch[1];
    block.b_at = image * product->b_batch[0] + group * product->b_batch[1];
    block.c_at = image * product->c_batch[0] + group * product->c_batch[1];
    fill_stretch(product, &product->rows, first,
                 least_of_two(step, rows - first), &block.rows);
    multiply_rows(&block);
  }
}

void conv_run(const Threads *threads, const DnnConv *conv, const void *a,
              const void *b, void *c, void *pack) {
  Work work = {product_of(conv), a, b, c, pack};
  threads_run(threads, work_thread, &work);
}
