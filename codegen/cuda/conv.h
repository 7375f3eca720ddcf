/*
 * conv.h -- a convolution or one of its gradients as a product of matrices in
 * tiles; conv_product.c chooses it, conv.c emits it.
 *
 *                  rows           sum            columns
 *   forward        n, y, x of y   c, window      o          y  += x w
 *   input grad     n, y, x of x   o, window      c          dx += dy w
 *   weight grad    c, window      n, y, x of y   o          dw += x dy
 *
 * A [rows, sum] is never stored: its element is the element of x or dy, the
 * "image", where a row and a term of the sum meet, or 0 where that is padding.
 */
#ifndef CODEGEN_CUDA_CONV_H
#define CODEGEN_CUDA_CONV_H

#include "codegen/cuda/cuda.h"

#define CONV_THREADS    256
#define CONV_MAX_PHASES 16

/* Rows or terms as three digits: outer, y, x. */
typedef struct Walk {
  int64_t size[3];
  /* A digit moves in the image by so many elements, or places in y and x. */
  int64_t image[3];
  int64_t other[3]; /* elements of the result (rows) or of B (terms) */
  int order[3]; /* order of the digits, the one that changes fastest first */
} Walk;

/* The rows of a strided input gradient that differ by multiples of the stride
 * meet the same taps of the window: they are a phase, a convolution without
 * stride.  All else has one phase. */
typedef struct RowPhase {
  int64_t rows[2], taps[2]; /* numbers in y and x */
  int64_t base[2];    /* the place in the image at which row 0 meets tap 0 */
  int64_t b_at, c_at; /* element of tap 0 in B, of row 0 in the result */
  int64_t n_rows, first_tile;
} RowPhase;

/* The ways in which threads load a tile, where n is how many elements each of
 * them has. */
typedef enum TileLayout {
  TILE_along_sum,  /* neighbours along the sum, by four terms of one row */
  TILE_along_rows, /* neighbours along rows or columns, four terms of one */
  TILE_by_four,    /* along rows or columns, four at a time */
  TILE_one_term    /* neighbours along the sum, one term of n columns */
} TileLayout;

typedef struct Tile {
  int rows, columns; /* tile of a thread; 16 x 16 threads have a tile */
  int terms;         /* terms of a step */
} Tile;

typedef struct Product {
  DnnConv conv; /* the convolution without places that can be counted as one */
  Walk rows, sum;
  int64_t size[2], image_stride[2];
  int64_t columns, b_column, c_column;
  int64_t groups, a_group, b_group, c_group;
  int n_phases;
  RowPhase phases[CONV_MAX_PHASES];
  /* A step is some channels at one place of the window; else some terms. */
  bool is_chunked;
  bool b_is_linear; /* the terms of B are b_term elements apart */
  int64_t b_term;
  TileLayout a_layout, b_layout;
  bool a_has_vectors, b_has_vectors; /* four terms along the sum */
  bool c_has_vectors;                /* four columns */
  bool is_wide;                      /* indices need 64 bits */
  Tile tile;
  int64_t column_tiles, n_tiles;
  int splits; /* blocks that share the sum of a tile, in groups of */
  int group_splits;
} Product;

/* ---- conv_product.c ---- */

/* Emits the product in tiles.  Returns false where the nest is as good or the
 * form is not supported here. */
bool conv_product(const Graph *graph, int id, Product *out);

/* ---- conv_loads.c ---- */

/* The text of one kernel. */
typedef struct ConvText {
  Text *out;
  Arena *arena;
  const Product *product;
} ConvText;

/* Declares d0 d1 d2: the digits of a row or term.  Their sizes are called
 * ROW_0 or SUM_0 and so on. */
void conv_add_digits(const ConvText *text, const char *sizes, const Walk *walk,
                     const char *number);
/* Returns an index as text, such as "d0 * 9 + d1 * 3 + d2". */
const char *conv_digits_at(const ConvText *text, const int64_t *strides);

/* Declares what the loop needs of this thread for A, the image, or for B.  The
 * next two functions read the elements of the next step into registers, and
 * write these into shared memory. */
void conv_add_lane(const ConvText *text, bool is_image);
void conv_add_loads(const ConvText *text, bool is_image);
void conv_add_stores(const ConvText *text, bool is_image);

#endif
