/*
 * resize_groups.h -- declares what resize.c, which collects the equations, and
 * resize_solve.c, which solves them, share.
 */
#ifndef VERIFY_RESIZE_GROUPS_H
#define VERIFY_RESIZE_GROUPS_H

#include "verify/resize.h"

enum { MOST_SHARD_COUNTS = 8, MOST_FACTORS = 4 };

typedef struct SizedDim {
  Name name;
  int64_t size, least; /* least: of the new size */
  int parent;          /* parent in the tree that is its group */
  bool is_shards;      /* it counts the shards of a dim that was split */
  bool is_factor;      /* a factor of a product */
  bool is_of_many;     /* it has the elements of one of many shards */
  int n_counts;
  /* Shard counts into which the dim is divided. */
  int64_t counts[MOST_SHARD_COUNTS];
} SizedDim;

/* By the root of a group. */
typedef struct SizeGroup {
  /* Divisor of sizes and offsets: the unknown at the old sizes. */
  int64_t divisor;
  int64_t factor; /* the unknown; 0 means not known yet */
  bool is_fixed, is_derived;
  bool is_slid; /* derived, by a window */
} SizeGroup;

typedef struct SizeProduct {
  int result, n, factors[MOST_FACTORS];
} SizeProduct;

/* to = (from + pad - extent) / stride + 1, pad being that of both ends. */
typedef struct SizeWindow {
  int from, to;
  int64_t pad, extent, stride;
} SizeWindow;

struct Resizing {
  Arena *arena;
  bool keeps_windows, allows_one_element;
  Map *by_name; /* Name -> the first dim of this name, plus 1, as a pointer */
  VEC(SizedDim) dims;
  VEC(int) next; /* next dim of the same name; -1 means none */
  VEC(SizeGroup) groups;
  VEC(SizeProduct) products;
  VEC(SizeWindow) windows;
  VEC(int64_t) integers; /* integers that constants have */
};

static inline int size_group(const Resizing *r, int dim) {
  while (r->dims.data[dim].parent != dim) dim = r->dims.data[dim].parent;
  return dim;
}

static inline void fix_size(Resizing *r, int dim) {
  r->groups.data[size_group(r, dim)].is_fixed = true;
}

static inline bool is_size_fixed(const Resizing *r, int dim) {
  return r->groups.data[size_group(r, dim)].is_fixed;
}

static inline int64_t new_size(const Resizing *r, int dim) {
  const SizeGroup *group = &r->groups.data[size_group(r, dim)];
  int64_t factor = group->factor ? group->factor : group->divisor;
  return r->dims.data[dim].size / group->divisor * factor;
}

/* Makes the two scale together from now on. */
void join_sizes(Resizing *r, int a, int b);

#endif
