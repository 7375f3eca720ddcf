/*
 * resize_solve.c -- solves the equations between the sizes of dims for small
 * sizes.
 *
 * Dims that scale together are a group: the new sizes are the old ones over
 * their greatest common divisor, times one unknown.  A product with one factor
 * that may change joins this factor and the result to one group; the result of
 * any other product follows from its factors.  A window that slides along a dim
 * leaves as many elements of it unread as before.  What then has no solution is
 * left as it is, and the search begins again.
 */
#include "verify/resize_groups.h"

enum { LEAST_OF_A_SHARD = 2, LARGEST_COUNT = 16 };

/* ---- products ---- */

static void fix_product(Resizing *r, const SizeProduct *product) {
  fix_size(r, product->result);
  for (int i = 0; i < product->n; i++) fix_size(r, product->factors[i]);
}

/* Applies a product in which all but some factors are fixed; true: it changed
 * something. */
static bool apply_product(Resizing *r, const SizeProduct *product) {
  int n_free = 0, free = -1, group = size_group(r, product->result);
  bool is_own_factor = false;
  for (int i = 0; i < product->n; i++) {
    int factor = product->factors[i];
    is_own_factor |= size_group(r, factor) == group;
    if (is_size_fixed(r, factor)) continue;
    free = factor;
    n_free++;
  }
  bool is_result_fixed = is_size_fixed(r, product->result);
  if (n_free == 0 && is_result_fixed) return false;
  if (n_free == 0 || is_result_fixed) {
    fix_product(r, product);
    return true;
  }
  if (n_free == 1) {
    if (size_group(r, free) == group) return false;
    join_sizes(r, product->result, free);
    return true;
  }
  if (!is_own_factor) return false;
  for (int i = 0; i < product->n; i++)
    if (size_group(r, product->factors[i]) != group)
      fix_size(r, product->factors[i]);
  return true;
}

static bool has_free_factors(const Resizing *r, const SizeProduct *product) {
  int n_free = 0;
  for (int i = 0; i < product->n; i++)
    n_free += !is_size_fixed(r, product->factors[i]);
  return n_free > 1 && !is_size_fixed(r, product->result);
}

/* ---- windows ---- */

static bool is_of_one_group(const Resizing *r, const SizeWindow *window) {
  return size_group(r, window->from) == size_group(r, window->to);
}

/* A window has both sides fixed, or neither; true: one of them was. */
static bool apply_window(Resizing *r, const SizeWindow *window) {
  if (is_size_fixed(r, window->from) == is_size_fixed(r, window->to))
    return false;
  fix_size(r, window->from);
  fix_size(r, window->to);
  return true;
}

/* ---- the search ---- */

static int64_t shard_size(int64_t size, int64_t count) {
  return (size + count - 1) / count;
}

static int64_t empty_shards(int64_t size, int64_t count) {
  return count - shard_size(size, shard_size(size, count));
}

static bool is_sharded_alike(int64_t old, int64_t new, int64_t count,
                             int64_t least) {
  if (least > shard_size(old, count)) least = shard_size(old, count);
  return shard_size(new, count) >= least &&
         (old % count == 0) == (new % count == 0) &&
         empty_shards(old, count) == empty_shards(new, count);
}

static int64_t least_elements(const Resizing *r, const SizedDim *dim,
                              int64_t count) {
  bool has_many = dim->is_of_many || count > RESIZE_MANY_SHARDS;
  return r->allows_one_element && has_many ? 1 : LEAST_OF_A_SHARD;
}

static bool group_allows(const Resizing *r, int group, int64_t factor) {
  int64_t divisor = r->groups.data[group].divisor;
  for (int i = 0; i < r->dims.n; i++) {
    const SizedDim *dim = &r->dims.data[i];
    if (size_group(r, i) != group) continue;
    int64_t size = dim->size / divisor * factor;
    if (size < dim->least ||
        !is_sharded_alike(dim->size, size, 1, least_elements(r, dim, 1)))
      return false;
    for (int k = 0; k < dim->n_counts; k++) {
      int64_t count = dim->counts[k], least = least_elements(r, dim, count);
      if (!is_sharded_alike(dim->size, size, count, least)) return false;
    }
  }
  return true;
}

/* Not a part of another dim, such as its shards are, which has the name too,
 * and not the number of shards or halves. */
static bool is_whole_dim(const Resizing *r, int dim) {
  const SizedDim *sized = &r->dims.data[dim];
  if (sized->is_shards || (sized->is_factor && sized->size <= LEAST_OF_A_SHARD))
    return false;
  int first = (int)(intptr_t)map_get(r->by_name, r->dims.data[dim].name) - 1;
  for (int i = first; i >= 0; i = r->next.data[i])
    if (r->dims.data[i].size > r->dims.data[dim].size &&
        size_group(r, i) == size_group(r, dim))
      return false;
  return true;
}

/* No whole dim of another old size has a size of this group yet. */
static bool is_distinct(const Resizing *r, int group, int64_t factor) {
  int64_t divisor = r->groups.data[group].divisor;
  for (int i = 0; i < r->dims.n; i++) {
    if (size_group(r, i) != group || r->dims.data[i].size == 1 ||
        !is_whole_dim(r, i))
      continue;
    int64_t size = r->dims.data[i].size / divisor * factor;
    for (int k = 0; k < r->dims.n; k++)
      if (r->dims.data[k].size != r->dims.data[i].size &&
          size_group(r, k) != group && is_whole_dim(r, k) &&
          r->groups.data[size_group(r, k)].factor > 0 && new_size(r, k) == size)
        return false;
  }
  return true;
}

/* The smallest factor above `after`, of other sizes than all other groups if
 * that does not make it much larger. */
static int64_t next_factor(const Resizing *r, int group, int64_t after) {
  int64_t divisor = r->groups.data[group].divisor, first = 0;
  for (int64_t k = after + 1; k < divisor; k++) {
    if (!group_allows(r, group, k)) continue;
    if (is_distinct(r, group, k)) return k;
    if (!first) first = k;
    if (k > 4 * first + 4) return first;
  }
  return first ? first : divisor;
}

/* The result of a product at the sizes of its factors; false: there is none. */
static bool derive_product(Resizing *r, const SizeProduct *product) {
  int group = size_group(r, product->result);
  SizeGroup *of = &r->groups.data[group];
  int64_t size = 1, unit = r->dims.data[product->result].size / of->divisor;
  for (int i = 0; i < product->n; i++) size *= new_size(r, product->factors[i]);
  if (size % unit) return false;
  if (of->factor) return size / unit == of->factor;
  of->factor = size / unit;
  return of->factor <= of->divisor && group_allows(r, group, of->factor);
}

/* Larger factors, one after the other, until a product has a result. */
static bool fit_product(Resizing *r, const SizeProduct *product) {
  SizeGroup *of = &r->groups.data[size_group(r, product->result)];
  bool is_shared = of->factor > 0;
  for (int tries = 0; tries < 64; tries++) {
    if (derive_product(r, product)) return true;
    if (is_shared) return false;
    of->factor = 0;
    int group = size_group(r, product->factors[tries % product->n]);
    SizeGroup *factor = &r->groups.data[group];
    if (!factor->is_fixed && !factor->is_derived)
      factor->factor = next_factor(r, group, factor->factor);
  }
  return false;
}

/* The result of a window at the size of what it slides over; false: there is
 * none. */
static bool derive_window(Resizing *r, const SizeWindow *window) {
  int group = size_group(r, window->to);
  SizeGroup *to = &r->groups.data[group];
  if (r->groups.data[size_group(r, window->from)].factor == 0) return false;
  int64_t unread =
      r->dims.data[window->from].size + window->pad - window->extent;
  int64_t last = new_size(r, window->from) + window->pad - window->extent;
  int64_t unit = r->dims.data[window->to].size / to->divisor;
  int64_t size = last < 0 ? 0 : last / window->stride + 1;
  if (size < 1 || last % window->stride != unread % window->stride ||
      size % unit)
    return false;
  if (to->factor) return size / unit == to->factor;
  to->factor = size / unit;
  return to->factor <= to->divisor && group_allows(r, group, to->factor);
}

/* The group whose size decides about that of a dim: back over windows. */
static int source_of(const Resizing *r, int dim) {
  int group = size_group(r, dim);
  for (int tries = 0; tries <= r->windows.n && r->groups.data[group].is_slid;
       tries++)
    for (int i = 0; i < r->windows.n; i++)
      if (!is_of_one_group(r, &r->windows.data[i]) &&
          size_group(r, r->windows.data[i].to) == group) {
        group = size_group(r, r->windows.data[i].from);
        break;
      }
  return group;
}

/* The first window without a result; NULL: all have one. */
static const SizeWindow *derive_windows(Resizing *r) {
  for (int i = 0; i < r->groups.n; i++)
    if (r->groups.data[i].is_slid) r->groups.data[i].factor = 0;
  for (int round = 0; round <= r->windows.n; round++) {
    const SizeWindow *waiting = NULL;
    for (int i = 0; i < r->windows.n; i++) {
      const SizeWindow *window = &r->windows.data[i];
      const SizeGroup *from = &r->groups.data[size_group(r, window->from)];
      if (from->factor == 0) {
        if (!waiting) waiting = window;
      } else if (!derive_window(r, window)) {
        return window;
      }
    }
    if (!waiting || round == r->windows.n) return waiting;
  }
  return NULL;
}

/* Larger sizes of what windows slide over first, until all have results. */
static bool fit_windows(Resizing *r) {
  for (int tries = 0; tries < 4096; tries++) {
    const SizeWindow *window = derive_windows(r);
    if (!window) return true;
    int source = source_of(r, window->from);
    SizeGroup *group = &r->groups.data[source];
    if (group->is_fixed || group->is_derived ||
        group->factor >= group->divisor) {
      fix_size(r, window->from);
      fix_size(r, window->to);
      return false;
    }
    group->factor = next_factor(r, source, group->factor);
  }
  for (int i = 0; i < r->windows.n; i++) fix_size(r, r->windows.data[i].from);
  return false;
}

/* A product may have changed what a window slides over: then its dims are
 * fixed. */
static bool are_windows_right(Resizing *r) {
  for (int i = 0; i < r->windows.n; i++) {
    const SizeWindow *window = &r->windows.data[i];
    if (derive_window(r, window)) continue;
    fix_size(r, window->from);
    fix_size(r, window->to);
    return false;
  }
  return true;
}

static void begin_search(Resizing *r) {
  for (int i = 0; i < r->dims.n; i++) {
    SizeGroup *group = &r->groups.data[i];
    group->factor = group->is_fixed ? group->divisor : 0;
    group->is_derived = group->is_slid = false;
  }
  for (int i = 0; i < r->windows.n; i++) {
    const SizeWindow *window = &r->windows.data[i];
    SizeGroup *to = &r->groups.data[size_group(r, window->to)];
    if (!is_of_one_group(r, window) && !to->is_fixed)
      to->is_derived = to->is_slid = true;
  }
  for (int i = 0; i < r->products.n; i++) {
    const SizeProduct *product = &r->products.data[i];
    if (has_free_factors(r, product))
      r->groups.data[size_group(r, product->result)].is_derived = true;
  }
}

/* The smallest size that shards allow a dim. */
static int64_t least_size(const Resizing *r, int dim) {
  int group = size_group(r, dim);
  int64_t divisor = r->groups.data[group].divisor, factor = 1;
  if (r->groups.data[group].is_fixed) return r->dims.data[dim].size;
  while (factor < divisor && !group_allows(r, group, factor)) factor++;
  return r->dims.data[dim].size / divisor * factor;
}

/* The same, and of the products of which the dim is a factor. */
static int64_t least_product(const Resizing *r, int dim) {
  int64_t least = least_size(r, dim);
  for (int i = 0; i < r->products.n; i++) {
    const SizeProduct *product = &r->products.data[i];
    int64_t size = 1;
    bool is_factor = false;
    for (int k = 0; k < product->n; k++) {
      size *= least_size(r, product->factors[k]);
      is_factor |= size_group(r, product->factors[k]) == size_group(r, dim);
    }
    if (is_factor && size > least) least = size;
  }
  return least;
}

/* The group that shards make largest first, so that it is not made larger to
 * differ from others; then the smallest, so that the order of sizes stays where
 * it can. */
static int next_group(const Resizing *r) {
  int best = -1;
  int64_t best_least = 0;
  for (int i = 0; i < r->dims.n; i++) {
    const SizeGroup *group = &r->groups.data[size_group(r, i)];
    if (group->factor || group->is_derived || !is_whole_dim(r, i)) continue;
    int64_t least = least_product(r, i);
    if (best < 0 || least > best_least ||
        (least == best_least && r->dims.data[i].size < r->dims.data[best].size))
      best = i, best_least = least;
  }
  return best < 0 ? -1 : size_group(r, best);
}

/* False: a product or a window has no result, and its dims are fixed now. */
static bool search_sizes(Resizing *r) {
  begin_search(r);
  for (int i = 0; i < r->windows.n; i++) {
    int group = size_group(r, r->windows.data[i].from);
    SizeGroup *from = &r->groups.data[group];
    if (!from->factor && !from->is_derived)
      from->factor = next_factor(r, group, 0);
  }
  if (!fit_windows(r)) return false;
  for (int group = next_group(r); group >= 0; group = next_group(r))
    r->groups.data[group].factor = next_factor(r, group, 0);
  for (int i = 0; i < r->products.n; i++) {
    const SizeProduct *product = &r->products.data[i];
    if (!has_free_factors(r, product) || fit_product(r, product)) continue;
    fix_product(r, product);
    return false;
  }
  for (int i = 0; i < r->products.n; i++)
    if (has_free_factors(r, &r->products.data[i]) &&
        !derive_product(r, &r->products.data[i])) {
      fix_product(r, &r->products.data[i]);
      return false;
    }
  return are_windows_right(r);
}

/* All dims whose size a constant has are one, so that its new value is one.  A
 * small constant may as well count shards, as the turns of ring attention do:
 * dims of its size keep it. */
static void join_integers(Resizing *r) {
  for (int i = 0; i < r->integers.n; i++) {
    int first = -1;
    for (int k = 0; k < r->dims.n; k++) {
      if (r->dims.data[k].size != r->integers.data[i]) continue;
      if (r->integers.data[i] <= LARGEST_COUNT) fix_size(r, k);
      if (first >= 0) join_sizes(r, first, k);
      first = k;
    }
  }
}

static void mark_factors(Resizing *r) {
  for (int i = 0; i < r->products.n; i++) {
    const SizeProduct *product = &r->products.data[i];
    bool has_many = false;
    for (int k = 0; k < product->n; k++) {
      const SizedDim *factor = &r->dims.data[product->factors[k]];
      r->dims.data[product->factors[k]].is_factor = true;
      has_many |= factor->is_shards && factor->size > RESIZE_MANY_SHARDS;
    }
    for (int k = 0; k < product->n; k++)
      r->dims.data[product->factors[k]].is_of_many |= has_many;
  }
}

void resizing_solve(Resizing *r) {
  join_integers(r);
  mark_factors(r);
  do {
    for (bool has_changed = true; has_changed;) {
      has_changed = false;
      for (int i = 0; i < r->products.n; i++)
        has_changed |= apply_product(r, &r->products.data[i]);
      for (int i = 0; i < r->windows.n; i++)
        has_changed |= apply_window(r, &r->windows.data[i]);
    }
  } while (!search_sizes(r));
}
