/*
 * lower_sort.c -- lowers sort to Batcher's bitonic network (1968): about
 * log2(n)^2 / 2 stages, each of which compares pairs of elements that lie a
 * fixed distance apart and exchanges those in the wrong order.
 *
 * A row of n elements is sorted in runs of 2, 4, 8 and so on.  Two runs of
 * length d are merged so: the first stage is a mirror, which compares element i
 * of the first run with element d - 1 - i of the second.  The next stages
 * compare elements at distances d / 2, d / 4 and so on down to 1.
 *
 *     stage 0                        y[i] = x[i], at[i] = i
 *     stage 1   mirror, distance 1   pairs (0, 1) (2, 3) (4, 5) (6, 7)
 *     stage 2   distance 1           likewise
 *     stage 3   mirror, distance 2   pairs (0, 3) (1, 2) (4, 7) (5, 6)
 *     steps 0 1 3 2 ...
 *
 * Every pair is ordered the same way, the smaller element first, so a row whose
 * length is no power of two acts as if infinitely large elements followed: a
 * pair whose second element is outside is left out.  The loops of a stage run
 * over the complete blocks of 2 d elements; a second stage does the pairs of
 * the last, incomplete block.  Within a stage all pairs are independent, so
 * they are vectors on a CPU and threads on a GPU, and no address depends on the
 * data.  `steps` of the nest repeats a stage for each merge that needs its
 * distance, so that a kernel is emitted with about 4 log2(n) stages.
 *
 * The index breaks ties.  The order is total, and the result is that of a
 * stable sort although the network is none.
 */
#include "codegen/nest/lower.h"

#define MAX_LOG 62 /* of the size of a row */

typedef struct SortRow {
  Lower *lower;
  Name dim;
  Space space; /* the outer dims */
  int64_t n;
} SortRow;

typedef struct SortStages { /* up to two stages of the nest, one after the other
                             */
  int first, n;
} SortStages;

typedef struct SortElement {
  Coord at;
  int key, index; /* expressions: the key in the dtype of comparisons, i32 */
} SortElement;

static void sort_coords(SortRow *row, Coord at, Coord *out) {
  int n_outer = row->space.n;
  space_add(&row->space, row->dim, at);
  space_coords(&row->space, row->lower->node->types[0], out);
  row->space.n = n_outer;
}

static SortElement sort_load(SortRow *row, Coord at) {
  Lower *lower = row->lower;
  const Type *type = lower->node->types[0];
  Coord coords[MAX_RANK];
  sort_coords(row, at, coords);
  DType dtype = type->dtype == DT_bool ? DT_i32 : lower_work_dtype(type->dtype);
  int key = lower_load(lower, lower_result_buffer(lower, 0), type, coords);
  int index = lower_load(lower, lower_result_buffer(lower, 1),
                         lower->node->types[1], coords);
  return (SortElement){at, lower_cast(lower, key, dtype), index};
}

static void sort_store(SortRow *row, Coord at, int key, int index) {
  Lower *lower = row->lower;
  Coord coords[MAX_RANK];
  sort_coords(row, at, coords);
  lower_store(lower, NEST_store, lower_result_buffer(lower, 0),
              lower->node->types[0], coords, key);
  lower_store(lower, NEST_store, lower_result_buffer(lower, 1),
              lower->node->types[1], coords, index);
}

static int sort_test(Lower *lower, Op op, int a, int b) {
  return lower_pw(lower, op, DT_bool, a, b, -1);
}

/* Returns whether `a` comes before `b`: a NaN after every number, ties by
 * index. */
static int sort_is_before(SortRow *row, SortElement a, SortElement b) {
  Lower *lower = row->lower;
  int is_less = sort_test(lower, OP_lt, a.key, b.key);
  int is_equal = sort_test(lower, OP_eq, a.key, b.key);
  if (dtype_class(lower->node->types[0]->dtype) == CLASS_FLOAT) {
    int b_is_nan = sort_test(lower, OP_ne, b.key, b.key);
    int a_is_nan = sort_test(lower, OP_ne, a.key, a.key);
    int a_is_number = sort_test(lower, OP_eq, a.key, a.key);
    is_less = sort_test(lower, OP_or, is_less,
                        sort_test(lower, OP_and, b_is_nan, a_is_number));
    is_equal = sort_test(lower, OP_or, is_equal,
                         sort_test(lower, OP_and, b_is_nan, a_is_nan));
  }
  int is_earlier = sort_test(lower, OP_lt, a.index, b.index);
  return sort_test(lower, OP_or, is_less,
                   sort_test(lower, OP_and, is_equal, is_earlier));
}

static void sort_exchange(SortRow *row, Coord first_at, Coord second_at) {
  Lower *lower = row->lower;
  SortElement a = sort_load(row, first_at), b = sort_load(row, second_at);
  int swaps = sort_is_before(row, b, a);
  DType dtype = lower->nest->exprs.data[a.key].dtype;
  int first = lower_pw(lower, OP_select, dtype, swaps, b.key, a.key);
  int second = lower_pw(lower, OP_select, dtype, swaps, a.key, b.key);
  int at = lower_pw(lower, OP_select, DT_i32, swaps, b.index, a.index);
  int other = lower_pw(lower, OP_select, DT_i32, swaps, a.index, b.index);
  sort_store(row, first_at, first, at);
  sort_store(row, second_at, second, other);
}

/* A stage over `blocks` blocks from element `begin` on: in each the pairs from
 * number `from` on, `pairs` of them, of elements `distance` apart or of a
 * mirror. */
static void sort_stage(SortRow *row, int64_t begin, int64_t blocks,
                       int64_t from, int64_t pairs, int64_t distance,
                       bool is_mirror) {
  Lower *lower = row->lower;
  lower_stage(lower);
  Coord block = lower_inner(lower, row->dim, blocks), pair = coord_zero();
  if (pairs > 1) pair = lower_inner(lower, row->dim, pairs);
  lower_stage_ready(lower);
  Coord start = coord_add(coord_scale(block, 2 * distance), begin);
  Coord first = coord_add(coord_sum(lower, start, pair), from);
  Coord second = coord_add(first, distance);
  if (is_mirror)
    second = coord_add(coord_sum(lower, start, coord_scale(pair, -1)),
                       2 * distance - 1 - from);
  sort_exchange(row, first, second);
}

/* The stages of a distance: the pairs of complete blocks, then those of the
 * last block whose second element is inside. A mirror pairs inner elements
 * first. */
static SortStages sort_stages(SortRow *row, int64_t distance, bool is_mirror) {
  SortStages stages = {.first = row->lower->nest->stages.n};
  int64_t blocks = row->n / (2 * distance);
  int64_t begin = blocks * 2 * distance, rest = row->n - begin;
  if (blocks > 0) sort_stage(row, 0, blocks, 0, distance, distance, is_mirror);
  if (rest > distance)
    sort_stage(row, begin, 1, is_mirror ? 2 * distance - rest : 0,
               rest - distance, distance, is_mirror);
  stages.n = row->lower->nest->stages.n - stages.first;
  return stages;
}

static void sort_add_steps(SortRow *row, SortStages stages) {
  Lower *lower = row->lower;
  for (int i = 0; i < stages.n; i++)
    vec_push(lower->arena, &lower->nest->steps, stages.first + i);
}

static void sort_begin(SortRow *row) {
  Lower *lower = row->lower;
  const Type *type = lower->node->types[0], *from = lower->input_types[0];
  for (int d = 0; d < type->rank; d++)
    if (type->dims[d].name != row->dim)
      space_add(
          &row->space, type->dims[d].name,
          lower_outer(lower, type->dims[d].name, lower_size(lower, type, d)));
  lower_stage(lower);
  Coord at = lower_inner(lower, row->dim, row->n), coords[MAX_RANK];
  lower_stage_ready(lower);
  int n_outer = row->space.n;
  space_add(&row->space, row->dim, at);
  space_coords(&row->space, from, coords);
  row->space.n = n_outer;
  int value = lower_load(lower, lower_input_buffer(lower, 0), from, coords);
  sort_store(row, at, value, lower_cast(lower, coord_value(lower, at), DT_i32));
}

void lower_sort(Lower *lower) {
  Name dim = node_name(lower->node, ATTR_dim);
  const Type *type = lower->node->types[0];
  SortRow row = {.lower = lower,
                 .dim = dim,
                 .n = lower_size(lower, type, type_find(type, dim))};
  sort_begin(&row);
  sort_add_steps(&row, (SortStages){.first = 0, .n = 1});
  SortStages plain[MAX_LOG];
  for (int k = 0; k < MAX_LOG && (int64_t)1 << k < row.n; k++) {
    if (k > 0) plain[k - 1] = sort_stages(&row, (int64_t)1 << (k - 1), false);
    sort_add_steps(&row, sort_stages(&row, (int64_t)1 << k, true));
    for (int i = k - 1; i >= 0; i--) sort_add_steps(&row, plain[i]);
  }
}
