/*
 * conv_product.c -- makes of a convolution the product that conv.c emits:
 * what rows, terms and columns are, how threads load them, and the tiles.
 *
 * The choice depends on sizes and strides alone, so that the order of additions
 * does not depend on the GPU.
 */
#include "codegen/cuda/conv.h"
#include "codegen/select.h"

#define TARGET_BLOCKS 264       /* two for each multiprocessor of a large GPU */
#define LEAST_WORK    (1 << 17) /* multiply-adds for which tiles pay */
#define LEAST_TERMS   128       /* of a block that shares a sum */
#define MAX_SCRATCH   (INT64_C(32) << 20)
#define MAX_COUNT     (INT64_C(1) << 29) /* of rows, terms and blocks */

static int64_t ceil_divide(int64_t n, int64_t by) {
  return (n + by - 1) / by;
}

/* ---- fewer digits ---- */

/* A window of 1 without stride and padding meets each place alone: y, x, and
 * images too, are one dim where they lie end to end. */
static void merge_places(DnnConv *conv) {
  for (int i = 0; i < 2; i++)
    if (conv->window[i] != 1 || conv->stride[i] != 1 || conv->pad[i] != 0)
      return;
  int64_t *x = conv->x_stride, *y = conv->y_stride;
  if (conv->in[0] > 1) {
    if (x[2] != conv->in[1] * x[3] || y[2] != conv->out[1] * y[3]) return;
    conv->in[1] *= conv->in[0];
    conv->out[1] *= conv->out[0];
    conv->in[0] = conv->out[0] = 1;
  }
  if (x[0] != conv->in[1] * x[3] || y[0] != conv->out[1] * y[3]) return;
  conv->in[1] *= conv->batch;
  conv->out[1] *= conv->batch;
  conv->batch = 1;
}

/* ---- rows and terms ---- */

static Walk window_walk(const DnnConv *conv, int64_t channels, int64_t stride,
                        int64_t weight_stride) {
  return (Walk){.size = {channels, conv->window[0], conv->window[1]},
                .image = {stride, conv->dilate[0], conv->dilate[1]},
                .other = {weight_stride, conv->w_stride[3], conv->w_stride[4]}};
}

static Walk output_walk(const DnnConv *conv) {
  return (Walk){
      .size = {conv->batch, conv->out[0], conv->out[1]},
      .image = {conv->x_stride[0], conv->stride[0], conv->stride[1]},
      .other = {conv->y_stride[0], conv->y_stride[2], conv->y_stride[3]}};
}

/* By how many taps of the window, and places of dy, the taps that one row of a
 * gradient meets are apart. */
static int64_t tap_step(const DnnConv *conv, int i) {
  return conv->stride[i] / common_divisor(conv->stride[i], conv->dilate[i]);
}

/* The rows first, first + stride, .. of dim i: dx at y is the sum over taps k
 * of dy at (y + pad - k dilate) / stride, where that is whole. */
static void fill_phase(const DnnConv *conv, int i, int64_t first,
                       RowPhase *out) {
  int64_t stride = conv->stride[i], step = tap_step(conv, i), tap = 0;
  int64_t begin = first + conv->pad[i];
  while (tap < conv->window[i] && (begin - tap * conv->dilate[i]) % stride)
    tap++;
  bool meets_any = tap < conv->window[i];
  out->rows[i] = ceil_divide(conv->in[i] - first, stride);
  out->taps[i] = meets_any ? ceil_divide(conv->window[i] - tap, step) : 0;
  out->base[i] = meets_any ? (begin - tap * conv->dilate[i]) / stride : 0;
  out->b_at += meets_any ? tap * conv->w_stride[3 + i] : 0;
  out->c_at += first * conv->x_stride[2 + i];
}

static bool fill_phases(const DnnConv *conv, Product *out) {
  out->n_phases = 0;
  for (int64_t y = 0; y < conv->stride[0] && y < conv->in[0]; y++)
    for (int64_t x = 0; x < conv->stride[1] && x < conv->in[1]; x++) {
      if (out->n_phases == CONV_MAX_PHASES) return false;
      RowPhase *phase = &out->phases[out->n_phases++];
      *phase = (RowPhase){0};
      fill_phase(conv, 0, y, phase);
      fill_phase(conv, 1, x, phase);
      phase->n_rows = conv->batch * phase->rows[0] * phase->rows[1];
    }
  return out->n_phases > 0;
}

static bool fill_input_grad(const DnnConv *conv, int64_t to, Product *out) {
  if (!fill_phases(conv, out)) return false;
  const RowPhase *first = &out->phases[0];
  int64_t step[2] = {tap_step(conv, 0), tap_step(conv, 1)};
  out->rows =
      (Walk){.size = {conv->batch, first->rows[0], first->rows[1]},
             .image = {conv->y_stride[0], 1, 1},
             .other = {conv->x_stride[0], conv->stride[0] * conv->x_stride[2],
                       conv->stride[1] * conv->x_stride[3]}};
  out->sum = (Walk){.size = {to, first->taps[0], first->taps[1]},
                    .image = {conv->y_stride[1],
                              -(step[0] * conv->dilate[0] / conv->stride[0]),
                              -(step[1] * conv->dilate[1] / conv->stride[1])},
                    .other = {conv->w_stride[1], step[0] * conv->w_stride[3],
                              step[1] * conv->w_stride[4]}};
  return true;
}

static void fill_one_phase(const DnnConv *conv, Product *out) {
  out->n_phases = 1;
  const Walk *rows = &out->rows, *sum = &out->sum;
  out->phases[0] =
      (RowPhase){.rows = {rows->size[1], rows->size[2]},
                 .taps = {sum->size[1], sum->size[2]},
                 .base = {-conv->pad[0], -conv->pad[1]},
                 .n_rows = rows->size[0] * rows->size[1] * rows->size[2]};
}

static bool fill_matrices(Product *out) {
  const DnnConv *conv = &out->conv;
  int64_t in = conv->in_channels / conv->groups;
  int64_t to = conv->out_channels / conv->groups;
  int64_t x = conv->x_stride[1] * in, y = conv->y_stride[1] * to;
  int64_t w = conv->w_stride[0];
  bool is_input_grad = conv->kind == DNN_CONV_INPUT_GRAD;
  out->groups = conv->groups;
  for (int i = 0; i < 2; i++) {
    out->size[i] = is_input_grad ? conv->out[i] : conv->in[i];
    out->image_stride[i] =
        is_input_grad ? conv->y_stride[2 + i] : conv->x_stride[2 + i];
  }
  switch ((DnnConvKind)conv->kind) {
  case DNN_CONV_FORWARD:
    out->rows = output_walk(conv);
    out->sum = window_walk(conv, in, conv->x_stride[1], conv->w_stride[2]);
    fill_one_phase(conv, out);
    out->columns = to;
    out->b_column = conv->w_stride[1];
    out->c_column = conv->y_stride[1];
    out->a_group = x, out->b_group = w, out->c_group = y;
    return true;
  case DNN_CONV_INPUT_GRAD:
    out->columns = in;
    out->b_column = conv->w_stride[2];
    out->c_column = conv->x_stride[1];
    out->a_group = y, out->b_group = w, out->c_group = x;
    return fill_input_grad(conv, to, out);
  case DNN_CONV_WEIGHT_GRAD:
    out->rows = window_walk(conv, in, conv->x_stride[1], conv->w_stride[2]);
    out->sum = output_walk(conv);
    fill_one_phase(conv, out);
    out->columns = to;
    out->b_column = conv->y_stride[1];
    out->c_column = conv->w_stride[1];
    out->a_group = x, out->b_group = y, out->c_group = w;
    return true;
  }
  UNREACHABLE();
}

/* ---- loads ---- */

/* Elements of the image by which neighbours of a walk are apart. */
static int64_t image_step(const Product *product, const Walk *walk) {
  int d = walk->order[0];
  return d == 0 ? walk->image[0]
                : walk->image[d] * product->image_stride[d - 1];
}

/* Channels change fastest where they are neighbours in the image. */
static void order_digits(Walk *walk) {
  bool is_last = walk->image[0] == 1 && walk->size[0] > 1;
  int first = is_last ? 0 : 2;
  walk->order[0] = first;
  walk->order[1] = first == 0 ? 2 : 1;
  walk->order[2] = first == 0 ? 1 : 0;
}

/* All digits but the fastest move by fours, as vectors need it. */
static bool moves_by_four(const int64_t strides[3], int except) {
  for (int d = 0; d < 3; d++)
    if (d != except && strides[d] % 4 != 0) return false;
  return true;
}

static void image_strides(const Product *product, const Walk *walk,
                          int64_t out[3]) {
  out[0] = walk->image[0];
  for (int d = 1; d < 3; d++)
    out[d] = walk->image[d] * product->image_stride[d - 1];
}

static bool bases_are_by_four(const Product *product) {
  for (int i = 0; i < product->n_phases; i++)
    if (product->phases[i].b_at % 4 || product->phases[i].c_at % 4)
      return false;
  return true;
}

static bool image_is_by_four(const Product *product) {
  return product->a_group % 4 == 0 && product->image_stride[0] % 4 == 0 &&
         product->image_stride[1] % 4 == 0;
}

static void choose_a_loads(Product *product) {
  const Walk *rows = &product->rows, *sum = &product->sum;
  int64_t row = image_step(product, rows), term = image_step(product, sum);
  int64_t by_row[3], by_term[3];
  image_strides(product, rows, by_row);
  image_strides(product, sum, by_term);
  if (product->is_chunked) term = sum->image[0];
  bool is_aligned = image_is_by_four(product);
  product->a_layout = TILE_along_rows;
  if (rows->order[0] == 0 && row == 1 && rows->size[0] % 4 == 0 && is_aligned &&
      moves_by_four(by_row, 0) && moves_by_four(by_term, -1))
    product->a_layout = TILE_by_four;
  else if (row > 2 && term > 0 && term < row)
    product->a_layout = TILE_along_sum;
  product->a_has_vectors =
      product->a_layout == TILE_along_sum && product->is_chunked &&
      sum->image[0] == 1 && sum->size[0] % 4 == 0 && is_aligned &&
      moves_by_four(by_row, -1) && moves_by_four(by_term, 0);
}

static void choose_b_loads(Product *product) {
  const Walk *sum = &product->sum;
  int64_t term = sum->other[sum->order[0]], column = product->b_column;
  if (product->is_chunked) term = sum->other[0];
  bool is_aligned = product->b_group % 4 == 0 && bases_are_by_four(product);
  product->b_layout = TILE_along_rows;
  if (column == 1 && product->columns % 4 == 0 && is_aligned &&
      moves_by_four(sum->other, -1))
    product->b_layout = TILE_by_four;
  else if (term < column)
    product->b_layout = TILE_one_term;
  if (product->b_layout == TILE_one_term && product->is_chunked && term == 1 &&
      sum->size[0] % 4 == 0 && is_aligned && column % 4 == 0 &&
      moves_by_four(sum->other, 0)) {
    product->b_layout = TILE_along_sum;
    product->b_has_vectors = true;
  }
  int64_t stride = sum->other[sum->order[0]];
  product->b_term = stride;
  product->b_is_linear = true;
  for (int i = 0; i < 3; i++) {
    int d = sum->order[i];
    if (sum->size[d] > 1 && sum->other[d] != stride)
      product->b_is_linear = false;
    stride *= sum->size[d];
  }
}

static void choose_loads(Product *product) {
  choose_a_loads(product);
  choose_b_loads(product);
  product->c_has_vectors =
      product->c_column == 1 && product->columns % 4 == 0 &&
      product->c_group % 4 == 0 && bases_are_by_four(product) &&
      moves_by_four(product->rows.other, -1);
}

/* ---- tiles ---- */

static int64_t longest_sum(const Product *product) {
  int64_t taps = 0;
  for (int i = 0; i < product->n_phases; i++) {
    const int64_t *at = product->phases[i].taps;
    if (at[0] * at[1] > taps) taps = at[0] * at[1];
  }
  return product->sum.size[0] * taps;
}

static void choose_splits(Product *product) {
  const Tile *tile = &product->tile;
  int64_t bytes = 4 * product->n_tiles * 256 * tile->rows * tile->columns;
  int64_t splits = TARGET_BLOCKS / product->n_tiles;
  int64_t worth = longest_sum(product) / LEAST_TERMS;
  if (splits > worth) splits = worth;
  if (splits > MAX_SCRATCH / bytes) splits = MAX_SCRATCH / bytes;
  product->splits = splits > 1 ? (int)splits : 1;
  product->group_splits = product->splits <= 4 ? product->splits : 1;
  while (product->group_splits * product->group_splits < product->splits)
    product->group_splits++;
}

static void set_tile(Product *product, const Tile *tile) {
  product->tile = *tile;
  product->column_tiles = ceil_divide(product->columns, 16 * tile->columns);
  product->n_tiles = 0;
  for (int i = 0; i < product->n_phases; i++) {
    RowPhase *phase = &product->phases[i];
    phase->first_tile = product->n_tiles;
    product->n_tiles += ceil_divide(phase->n_rows, 16 * tile->rows) *
                        product->column_tiles * product->groups;
  }
  choose_splits(product);
}

/* Time of a multiprocessor in hundredths of the multiply-adds of the largest
 * tile; a smaller one loads more for each.  To add a partial sum of another
 * block takes as long as JOIN_TERMS terms.  These are estimates from how many
 * instructions and bytes there are; with them the convolutions of ResNet-50 ran
 * at 15 to 34 of an H100's 67 TFLOP/s in f32 (benchmarks/gpu). */
static int64_t tile_cost(const Product *product) {
  enum { JOIN_TERMS = 10 };
  const Tile *tile = &product->tile;
  static const int weights[] = {[16] = 150, [32] = 115, [64] = 100};
  int64_t blocks = product->n_tiles * product->splits;
  int64_t terms = ceil_divide(longest_sum(product), product->splits);
  int64_t joins = product->splits <= 1   ? 0
                  : product->splits <= 4 ? product->splits + 1
                                         : 2 * product->group_splits + 2;
  int64_t size = tile->rows * tile->columns;
  return ceil_divide(blocks, TARGET_BLOCKS) * size *
         (terms * weights[size] + joins * JOIN_TERMS * 100);
}

static void choose_tile(Product *product) {
  static const Tile tiles[] = {{8, 8, 8}, {8, 4, 16}, {4, 8, 16}, {4, 4, 16}};
  int best = 0;
  int64_t least = INT64_MAX;
  for (int i = 0; i < ARRAY_LENGTH(tiles); i++) {
    set_tile(product, &tiles[i]);
    int64_t cost = tile_cost(product);
    if (cost >= least) continue;
    least = cost;
    best = i;
  }
  set_tile(product, &tiles[best]);
}

/* ---- whether ---- */

static int64_t most_rows(const Product *product) {
  int64_t most = 0;
  for (int i = 0; i < product->n_phases; i++)
    if (product->phases[i].n_rows > most) most = product->phases[i].n_rows;
  return most;
}

static double multiply_adds(const Product *product) {
  const Walk *sum = &product->sum;
  double n = 0;
  for (int i = 0; i < product->n_phases; i++) {
    const RowPhase *phase = &product->phases[i];
    n += (double)phase->n_rows * (double)(phase->taps[0] * phase->taps[1]);
  }
  return n * (double)(product->columns * product->groups * sum->size[0]);
}

/* Tiles of 64 x 64 would be mostly empty for the groups of a depthwise
 * convolution. */
static bool is_worth_tiles(const Product *product) {
  int64_t rows = most_rows(product), columns = product->columns;
  int64_t used = (rows < 64 ? rows : 64) * (columns < 64 ? columns : 64);
  return used * 4 >= 64 * 64 && multiply_adds(product) >= LEAST_WORK;
}

static int64_t tensor_elements(const DnnConv *conv, bool is_input) {
  const int64_t *size = is_input ? conv->in : conv->out;
  return conv->batch * (is_input ? conv->in_channels : conv->out_channels) *
         size[0] * size[1];
}

static int64_t weight_elements(const DnnConv *conv) {
  return conv->in_channels / conv->groups * conv->out_channels *
         conv->window[0] * conv->window[1];
}

static bool fits_counts(const Product *product) {
  const DnnConv *conv = &product->conv;
  for (int i = 0; i < 2; i++)
    if (conv->in[i] + conv->pad[i] > MAX_COUNT ||
        conv->window[i] * conv->dilate[i] > MAX_COUNT)
      return false;
  return most_rows(product) < MAX_COUNT && longest_sum(product) < MAX_COUNT &&
         product->columns < MAX_COUNT;
}

bool conv_product(const Graph *graph, int id, Product *out) {
  *out = (Product){0};
  if (!select_conv(graph, id, &out->conv)) return false;
  DnnConv *conv = &out->conv;
  out->is_wide = tensor_elements(conv, true) >= MAX_COUNT * 2 ||
                 tensor_elements(conv, false) >= MAX_COUNT * 2 ||
                 weight_elements(conv) >= MAX_COUNT * 2;
  merge_places(conv);
  if (!fill_matrices(out)) return false;
  if (!is_worth_tiles(out) || !fits_counts(out)) return false;
  order_digits(&out->rows);
  order_digits(&out->sum);
  out->is_chunked = conv->kind != DNN_CONV_WEIGHT_GRAD &&
                    (out->sum.size[0] >= 16 || out->n_phases > 1);
  choose_loads(out);
  choose_tile(out);
  return out->n_tiles * out->splits < MAX_COUNT;
}
