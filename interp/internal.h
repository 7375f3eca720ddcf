/*
 * internal.h -- declares what the files of the interpreter share: nested loops
 * over named dims, and the functions of all operators.
 */
#ifndef INTERP_INTERNAL_H
#define INTERP_INTERNAL_H

#include "interp/numbers.h"

/* ---- loops.c ---- */

#define LOOP_DIMS    (2 * MAX_RANK)
#define LOOP_TENSORS 8

/* An index space of named dims, walked in row-major order, and for each bound
 * tensor the offset of the current element.  A dim that a tensor lacks has
 * stride 0 in it: this is broadcasting, and summing where it is written. */
typedef struct Loops {
  int rank, n_tensors;
  Name names[LOOP_DIMS];
  int64_t sizes[LOOP_DIMS], index[LOOP_DIMS];
  int64_t strides[LOOP_TENSORS][LOOP_DIMS];
  int64_t offset[LOOP_TENSORS];
} Loops;

/* Adds a loop unless there is one of this name; NULL always adds one. */
void loops_add(Loops *loops, Name name, int64_t size);
void loops_add_type(Loops *loops, const Type *type);
bool loops_has(const Loops *loops, Name name);
/* Binds the next tensor: strides by name, in the type's row-major order. */
void loops_bind(Loops *loops, const Type *type);
/* Starts the loops of: for (bool more = loops_start(&l); more; more =
 * loops_next(&l)) ... */
bool loops_start(Loops *loops);
/* Goes on to the dims outside of the last. */
bool loops_carry(Loops *loops);
static inline bool loops_next(Loops *loops) {
  int last = loops->rank - 1;
  if (last < 0) return false;
  for (int t = 0; t < loops->n_tensors; t++)
    loops->offset[t] += loops->strides[t][last];
  return ++loops->index[last] < loops->sizes[last] || loops_carry(loops);
}
/* Returns the number of iterations, 1 without dims. */
int64_t loops_count(const Loops *loops);
/* Returns all offsets of one tensor, in order, in the arena. */
int64_t *loops_offsets(Loops *loops, int tensor, Arena *arena);
/* Returns the dims that an attribute lists, walked in that order; one tensor is
 * bound. */
Loops loops_of_attr(const Node *node, AttrKey key, const Type *type);
/* Returns the stride of a dim.  Returns 0 if it is absent. */
int64_t type_stride(const Type *type, Name dim);

/* ---- kernels ---- */

/* Finds tiles of DOT_TILE rows whose factors are equal. */
typedef struct DotTiles {
  const char *factors; /* factors of all rows, tile by tile */
  size_t row_bytes;    /* bytes of the factors of a row */
  int64_t n_slots;     /* a power of 2 */
  int64_t *slots;      /* the first row of a tile, plus 1 */
} DotTiles;
DotTiles dot_tiles(Arena *arena, const void *factors, int64_t n_rows,
                   size_t row_bytes);
void dot_tiles_forget(DotTiles *tiles);
/* Returns the first row of the first tile that has the same factors as the tile
 * at row r.  Returns r itself if there was none. */
int64_t dot_tiles_find(DotTiles *tiles, int64_t r);

enum { DOT_TILE = 4 }; /* rows and columns of a dot that are summed together */

struct InterpCall {
  const Node *node;
  const Tensor *inputs;
  Tensor *results; /* zeroed */
  Arena *arena;    /* scratch */
  const Numbers *numbers;
  /* The place whose shards the tensors are; NULL means logical tensors. */
  const MeshPlace *place;
  struct Run *run; /* run of interp.c, for bodies */
};

/* Returns the global position of the first element along dim `d` of result 0.
 */
int64_t interp_position(const InterpCall *call, int d);

/* Returns whether a is above b in the order of maxima: NaN is above every
 * number, and not above NaN. */
static inline bool interp_is_above(double a, double b) {
  return a > b || (a != a && b == b);
}

/* The name of a function in a file that defines SUFFIX. */
#define INTERP_JOIN(name, suffix) interp_##name##_##suffix
#define INTERP_NAME(name, suffix) INTERP_JOIN(name, suffix)
#define INTERP(name)              INTERP_NAME(name, SUFFIX)

/* The functions that rows of ops.def name.  Those for floats of exact mode end
 * in _exact, and in _second for its second prime; interp.c chooses. */
#define PLAIN(op, name) InterpKernel interp_##name;
#define MOVED(op, name)                                                        \
  InterpKernel interp_##name##_f64, interp_##name##_exact,                     \
      interp_##name##_second;
#define TYPED(op, name)                                                        \
  InterpKernel interp_##name##_f64, interp_##name##_f32,                       \
      interp_##name##_exact, interp_##name##_second;
#include "ir/ops.def"

/* exact.inc: arrays of exact numbers. */
#define EXACT_ARRAYS(suffix)                                                   \
  void interp_constants_##suffix(DType dtype, ExactNumber *to,                 \
                                 const double *from, int64_t n);               \
  void interp_random_numbers_##suffix(uint64_t key, uint64_t first,            \
                                      ExactNumber *to, int64_t n);             \
  void interp_reduce_##suffix(uint64_t key, ReduceKind kind,                   \
                              ExactNumber *into, const ExactNumber *other,     \
                              int64_t n);
EXACT_ARRAYS(exact)
EXACT_ARRAYS(second)
#undef EXACT_ARRAYS

/* ---- window.c ---- */

/* The part of x that one result of a pooling operator sees. */
typedef struct PoolWindow {
  int n;
  int64_t begin[MAX_RANK], end[MAX_RANK];
  int64_t count; /* the divisor of a mean */
} PoolWindow;
PoolWindow pool_window(const Node *node, const Type *x, const Type *y,
                       const Loops *y_loops);

/* All triples of a convolution, of tensors x, w and y: the places of a window
 * and its taps, and for each the channels, samples and groups. */
typedef struct ConvLoops {
  Loops windows, channels;
  int n_space;
  int position[MAX_RANK], tap[MAX_RANK]; /* loop numbers of `windows` */
  int64_t size[MAX_RANK], stride[MAX_RANK], pad[MAX_RANK], dilate[MAX_RANK];
} ConvLoops;
void conv_loops(ConvLoops *conv, const Node *node, const Type *x, const Type *w,
                const Type *y);
/* Returns whether the current tap reads x, not padding. */
bool conv_in_bounds(const ConvLoops *conv);

#endif
