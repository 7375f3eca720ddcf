/*
 * resize.c -- collects the equations between the sizes of dims and solves them
 * for small sizes.
 *
 * A dim is a name with a size: dims of one name and one size stay equal, so
 * operators that work by name need no equation.  The others give these:
 *
 *     rename T -> S                     T and S are one dim
 *     slice, pad, concat                the sizes and offsets scale together
 *     split_dim, merge_dims             a product
 *     convolutions, pools               a result follows from its operand
 *     other windows, topk               the dim keeps its size
 *     an integer constant is a size     all dims of this size are one, and keep
 *                                       it where it is small
 *
 * Dims that scale together are a group: the new sizes are the old ones over
 * their greatest common divisor, times one unknown.  A product with one factor
 * that may change joins this factor and the result to one group; the result of
 * any other product follows from its factors.  A window that slides along a dim
 * leaves as many elements of it unread as before.  What then has no solution is
 * left as it is, and the search begins again.
 */
#include "ir/resize.h"

#include <math.h>

enum {
  MOST_SHARD_COUNTS = 8,
  MOST_FACTORS = 4,
  LEAST_OF_A_SHARD = 2,
  LARGEST_COUNT = 16
};

typedef struct SizedDim {
  Name name;
  int64_t size, least; /* least: of the new size */
  int parent;          /* of the tree that is its group */
  int n_counts;
  int64_t counts[MOST_SHARD_COUNTS]; /* into which the dim is sharded */
} SizedDim;

/* By the root of a group. */
typedef struct SizeGroup {
  int64_t divisor; /* of sizes and offsets: the unknown at the old sizes */
  int64_t factor;  /* the unknown; 0: not known yet */
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
  bool keeps_windows;
  Map *by_name; /* Name -> the first dim of this name, plus 1, as a pointer */
  VEC(SizedDim) dims;
  VEC(int) next; /* of the same name; -1 */
  VEC(SizeGroup) groups;
  VEC(SizeProduct) products;
  VEC(SizeWindow) windows;
  VEC(int64_t) integers; /* that constants have */
};

/* ---- dims and groups ---- */

Resizing *resizing_create(Arena *arena) {
  Resizing *resizing = ARENA_NEW(arena, Resizing);
  *resizing = (Resizing){.arena = arena, .by_name = map_create(arena)};
  return resizing;
}

void resizing_keep_windows(Resizing *resizing) {
  resizing->keeps_windows = true;
}

static int find_dim(const Resizing *r, Name name, int64_t size) {
  int at = (int)(intptr_t)map_get(r->by_name, name) - 1;
  while (at >= 0 && r->dims.data[at].size != size) at = r->next.data[at];
  return at;
}

static int make_dim(Resizing *r, Name name, int64_t size) {
  int at = find_dim(r, name, size), n = r->dims.n;
  if (at >= 0) return at;
  int first = (int)(intptr_t)map_get(r->by_name, name) - 1;
  SizedDim dim = {.name = name, .size = size, .least = 1, .parent = n};
  SizeGroup group = {.divisor = size, .is_fixed = size <= 1};
  vec_push(r->arena, &r->dims, dim);
  vec_push(r->arena, &r->next, first);
  vec_push(r->arena, &r->groups, group);
  map_put(r->by_name, name, (void *)(intptr_t)(n + 1));
  return n;
}

static int group_of(const Resizing *r, int dim) {
  while (r->dims.data[dim].parent != dim) dim = r->dims.data[dim].parent;
  return dim;
}

static int64_t common_divisor(int64_t a, int64_t b) {
  while (b) {
    int64_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

static void join_dims(Resizing *r, int a, int b) {
  a = group_of(r, a);
  b = group_of(r, b);
  if (a == b) return;
  SizeGroup *into = &r->groups.data[a], *from = &r->groups.data[b];
  into->divisor = common_divisor(into->divisor, from->divisor);
  into->is_fixed |= from->is_fixed;
  r->dims.data[b].parent = a;
}

static void fix_dim(Resizing *r, int dim) {
  r->groups.data[group_of(r, dim)].is_fixed = true;
}

static bool is_fixed(const Resizing *r, int dim) {
  return r->groups.data[group_of(r, dim)].is_fixed;
}

static void add_offset(Resizing *r, int dim, int64_t offset) {
  SizeGroup *group = &r->groups.data[group_of(r, dim)];
  group->divisor = common_divisor(group->divisor, offset);
}

/* ---- equations of a node ---- */

static void add_shards(Resizing *r, int dim, int64_t count) {
  SizedDim *sized = &r->dims.data[dim];
  int i = 0;
  while (i < sized->n_counts && sized->counts[i] != count) i++;
  if (count <= 1 || i < sized->n_counts) return;
  /* Collectives need shards of one element. */
  if (sized->size == count || i == MOST_SHARD_COUNTS)
    fix_dim(r, dim);
  else
    sized->counts[sized->n_counts++] = count;
}

static void add_type(Resizing *r, const Type *type, const Mesh *mesh) {
  for (int d = 0; d < type->rank; d++) {
    int dim = make_dim(r, type->dims[d].name, type->dims[d].size);
    if (type->dims[d].split)
      add_shards(r, dim, axis_list_shards(type->dims[d].split, mesh));
  }
}

static int dim_of(Resizing *r, const Type *type, Name name) {
  int d = type_find(type, name);
  return d < 0 ? -1 : make_dim(r, name, type->dims[d].size);
}

static void join_named(Resizing *r, const Type *a, Name in_a, const Type *b,
                       Name in_b) {
  int x = dim_of(r, a, in_a), y = dim_of(r, b, in_b);
  if (x >= 0 && y >= 0) join_dims(r, x, y);
}

static void add_product(Resizing *r, const Type *has_result, Name result,
                        const Type *has_factors, const Name *names, int n) {
  SizeProduct product = {.result = dim_of(r, has_result, result), .n = n};
  bool is_known = n <= MOST_FACTORS;
  for (int i = 0; i < n && is_known; i++)
    product.factors[i] = dim_of(r, has_factors, names[i]);
  if (is_known)
    vec_push(r->arena, &r->products, product);
  else
    for (int i = 0; i <= n; i++)
      fix_dim(r, i < n ? dim_of(r, has_factors, names[i]) : product.result);
}

static void add_renames(Resizing *r, const Node *node, const Type *from) {
  int n, n_to;
  const Name *before = node_names(node, ATTR_from, &n);
  const Name *after = node_names(node, ATTR_to, &n_to);
  for (int i = 0; i < n; i++)
    join_named(r, from, before[i], node->types[0], after[i]);
}

static void add_offsets(Resizing *r, const Node *node, const Type *from) {
  int n = 0;
  Name dim = node_name(node, ATTR_dim);
  join_named(r, from, dim, node->types[0], dim);
  int at = dim_of(r, from, dim);
  add_offset(r, at, node_int(node, ATTR_start, 0));
  const int64_t *pads = node->op == OP_pad ? node_ints(node, ATTR_pad, &n) : 0;
  for (int i = 0; i < n; i++) add_offset(r, at, pads[i]);
}

static void add_concat(Resizing *r, const Graph *graph, const Node *node) {
  Name dim = node_name(node, ATTR_dim);
  int result = dim_of(r, node->types[0], dim);
  for (int i = 0; i < node->n_inputs; i++) {
    int part = dim_of(r, graph_type(graph, node->inputs[i]), dim);
    if (part >= 0)
      join_dims(r, result, part);
    else
      fix_dim(r, result);
  }
}

static void fix_named(Resizing *r, const Graph *graph, const Node *node,
                      const Name *names, int n) {
  for (int k = 0; k < n; k++) {
    for (int i = 0; i < node->n_inputs; i++) {
      int dim = dim_of(r, graph_type(graph, node->inputs[i]), names[k]);
      if (dim >= 0) fix_dim(r, dim);
    }
    for (int i = 0; i < node->n_results; i++) {
      int dim = dim_of(r, node->types[i], names[k]);
      if (dim >= 0) fix_dim(r, dim);
    }
  }
}

static int64_t step_of(const Node *node, AttrKey key, int i,
                       int64_t otherwise) {
  int n = 0;
  const int64_t *items = node_has(node, key) ? node_ints(node, key, &n) : NULL;
  return i < n ? items[i] : otherwise;
}

/* Where the operator has what the window slides over, what it makes of it, and
 * the sizes of the window: a type, or NULL for an attribute. */
typedef struct WindowTypes {
  const Type *x, *y, *w;
} WindowTypes;

/* False: it is not known how the sizes follow. */
static bool window_types(const Graph *graph, const Node *node,
                         WindowTypes *out) {
  const Type *first = graph_type(graph, node->inputs[0]);
  const Type *second =
      node->n_inputs > 1 ? graph_type(graph, node->inputs[1]) : NULL;
  const Type *result = node->types[0];
  switch (node->op) {
  case OP_conv: *out = (WindowTypes){first, result, second}; return true;
  case OP_conv_input_grad:
    *out = (WindowTypes){result, first, second};
    return true;
  case OP_conv_weight_grad:
    *out = (WindowTypes){first, second, result};
    return true;
  case OP_maxpool:
  case OP_avgpool: *out = (WindowTypes){first, result, NULL}; return true;
  case OP_maxpool_grad: *out = (WindowTypes){first, second, NULL}; return true;
  case OP_avgpool_grad: *out = (WindowTypes){result, first, NULL}; return true;
  default: return false;
  }
}

static void add_window(Resizing *r, const Graph *graph, const Node *node) {
  int n = 0;
  const Name *names = node_names(node, ATTR_space, &n);
  WindowTypes types;
  if (r->keeps_windows || !window_types(graph, node, &types)) {
    fix_named(r, graph, node, names, n);
    if (node->op != OP_resize) return;
    Name dim = node_name(node, ATTR_dim);
    fix_named(r, graph, node, &dim, 1);
    return;
  }
  for (int i = 0; i < n; i++) {
    int64_t width = types.w ? type_size(types.w, names[i])
                            : step_of(node, ATTR_window, i, 1);
    if (types.w) fix_dim(r, dim_of(r, types.w, names[i]));
    SizeWindow window = {
        .from = dim_of(r, types.x, names[i]),
        .to = dim_of(r, types.y, names[i]),
        .pad = 2 * step_of(node, ATTR_pad, i, 0),
        .extent = (width - 1) * step_of(node, ATTR_dilate, i, 1) + 1,
        .stride = step_of(node, ATTR_stride, i, types.w ? 1 : width)};
    vec_push(r->arena, &r->windows, window);
  }
}

/* The dim that is chosen from stays larger than what is chosen. */
static void add_choice(Resizing *r, const Node *node, const Type *from) {
  int n;
  int64_t k = node_ints(node, ATTR_sizes, &n)[0];
  const Name *to = node_names(node, ATTR_to, &n);
  int dim = dim_of(r, from, node_name(node, ATTR_dim));
  fix_dim(r, dim_of(r, node->types[0], to[0]));
  if (r->dims.data[dim].least <= k)
    r->dims.data[dim].least = r->dims.data[dim].size > k ? k + 1 : k;
}

static void join_types(Resizing *r, const Type *a, const Type *b, int skip) {
  for (int d = 0; d < b->rank && d + skip < a->rank; d++) {
    const Dim *x = &a->dims[d + skip], *y = &b->dims[d];
    join_dims(r, make_dim(r, x->name, x->size), make_dim(r, y->name, y->size));
  }
}

/* The dims of a body are those outside; slices and stacked results have the
 * scanned dim in front. */
static void add_region(Resizing *r, const Graph *graph, const Node *node) {
  const Graph *body = node->body;
  bool is_scan = node->op == OP_scan;
  int n_carries = is_scan ? scan_carries(node) : node->n_results;
  for (int i = 0; i < node->n_inputs; i++)
    join_types(r, graph_type(graph, node->inputs[i]),
               graph_type(body, body->inputs.data[i].value),
               is_scan && scan_input_role(node, i) == ROLE_slice);
  for (int i = 0; i < node->n_results; i++)
    join_types(r, node->types[i], graph_type(body, body->outputs.data[i].value),
               i >= n_carries);
  if (is_scan) make_dim(r, node_name(node, ATTR_dim), scan_steps(node));
}

static bool is_integer_const(const Node *node) {
  return node->op == OP_const &&
         dtype_class(node->types[0]->dtype) == CLASS_INT &&
         node_float(node, ATTR_value, 0) > 1;
}

static void add_node(Resizing *r, const Graph *graph, const Node *node) {
  int n = 0;
  const Type *type = node->types[0];
  const Type *from = node->n_inputs ? graph_type(graph, node->inputs[0]) : NULL;
  if (op_is(node->op, OPCLASS_window) || node_has(node, ATTR_space))
    add_window(r, graph, node);
  if (node->body) add_region(r, graph, node);
  if (is_integer_const(node))
    vec_push(r->arena, &r->integers, (int64_t)node_float(node, ATTR_value, 0));
  switch (node->op) {
  case OP_rename: add_renames(r, node, from); break;
  case OP_slice:
  case OP_pad: add_offsets(r, node, from); break;
  case OP_concat: add_concat(r, graph, node); break;
  case OP_topk: add_choice(r, node, from); break;
  case OP_split_dim: {
    const Name *to = node_names(node, ATTR_to, &n);
    add_product(r, from, node_name(node, ATTR_dim), type, to, n);
    break;
  }
  case OP_merge_dims: {
    const Name *merged = node_names(node, ATTR_from, &n);
    add_product(r, type, node_name(node, ATTR_dim), from, merged, n);
    break;
  }
  case OP_batchnorm:
    if (node_int(node, ATTR_group, 0) > 0)
      for (int d = 0; d < from->rank; d++)
        fix_dim(r, make_dim(r, from->dims[d].name, from->dims[d].size));
    break;
  default: break;
  }
}

static void add_graph(Resizing *r, const Graph *graph, const Mesh *mesh) {
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    for (int i = 0; i < node->n_results; i++) add_type(r, node->types[i], mesh);
    add_node(r, graph, node);
    if (node->body) add_graph(r, node->body, mesh);
  }
}

void resizing_add(Resizing *resizing, const Graph *graph) {
  add_graph(resizing, graph, &graph->mesh);
}

/* ---- products ---- */

static void fix_product(Resizing *r, const SizeProduct *product) {
  fix_dim(r, product->result);
  for (int i = 0; i < product->n; i++) fix_dim(r, product->factors[i]);
}

/* Applies a product in which all but some factors are fixed; true: it changed
 * something. */
static bool apply_product(Resizing *r, const SizeProduct *product) {
  int n_free = 0, free = -1, group = group_of(r, product->result);
  bool is_own_factor = false;
  for (int i = 0; i < product->n; i++) {
    int factor = product->factors[i];
    is_own_factor |= group_of(r, factor) == group;
    if (is_fixed(r, factor)) continue;
    free = factor;
    n_free++;
  }
  bool is_result_fixed = is_fixed(r, product->result);
  if (n_free == 0 && is_result_fixed) return false;
  if (n_free == 0 || is_result_fixed) {
    fix_product(r, product);
    return true;
  }
  if (n_free == 1) {
    if (group_of(r, free) == group) return false;
    join_dims(r, product->result, free);
    return true;
  }
  if (!is_own_factor) return false;
  for (int i = 0; i < product->n; i++)
    if (group_of(r, product->factors[i]) != group)
      fix_dim(r, product->factors[i]);
  return true;
}

static bool has_free_factors(const Resizing *r, const SizeProduct *product) {
  int n_free = 0;
  for (int i = 0; i < product->n; i++)
    n_free += !is_fixed(r, product->factors[i]);
  return n_free > 1 && !is_fixed(r, product->result);
}

/* ---- windows ---- */

static bool is_of_one_group(const Resizing *r, const SizeWindow *window) {
  return group_of(r, window->from) == group_of(r, window->to);
}

/* A window has both sides fixed, or neither; true: one of them was. */
static bool apply_window(Resizing *r, const SizeWindow *window) {
  if (is_fixed(r, window->from) == is_fixed(r, window->to)) return false;
  fix_dim(r, window->from);
  fix_dim(r, window->to);
  return true;
}

/* ---- the search ---- */

static int64_t shard_size(int64_t size, int64_t count) {
  return (size + count - 1) / count;
}

static int64_t empty_shards(int64_t size, int64_t count) {
  return count - shard_size(size, shard_size(size, count));
}

static bool is_sharded_alike(int64_t old, int64_t new, int64_t count) {
  int64_t least = shard_size(old, count);
  if (least > LEAST_OF_A_SHARD) least = LEAST_OF_A_SHARD;
  return shard_size(new, count) >= least &&
         (old % count == 0) == (new % count == 0) &&
         empty_shards(old, count) == empty_shards(new, count);
}

static bool group_allows(const Resizing *r, int group, int64_t factor) {
  int64_t divisor = r->groups.data[group].divisor;
  for (int i = 0; i < r->dims.n; i++) {
    const SizedDim *dim = &r->dims.data[i];
    if (group_of(r, i) != group) continue;
    int64_t size = dim->size / divisor * factor;
    if (size < dim->least || !is_sharded_alike(dim->size, size, 1))
      return false;
    for (int k = 0; k < dim->n_counts; k++)
      if (!is_sharded_alike(dim->size, size, dim->counts[k])) return false;
  }
  return true;
}

static int64_t new_size(const Resizing *r, int dim) {
  const SizeGroup *group = &r->groups.data[group_of(r, dim)];
  int64_t factor = group->factor ? group->factor : group->divisor;
  return r->dims.data[dim].size / group->divisor * factor;
}

/* Not a part of another dim, such as its shards are, which has the name too. */
static bool is_whole_dim(const Resizing *r, int dim) {
  int first = (int)(intptr_t)map_get(r->by_name, r->dims.data[dim].name) - 1;
  for (int i = first; i >= 0; i = r->next.data[i])
    if (r->dims.data[i].size > r->dims.data[dim].size &&
        group_of(r, i) == group_of(r, dim))
      return false;
  return true;
}

/* No whole dim of another old size has a size of this group yet. */
static bool is_distinct(const Resizing *r, int group, int64_t factor) {
  int64_t divisor = r->groups.data[group].divisor;
  for (int i = 0; i < r->dims.n; i++) {
    if (group_of(r, i) != group || r->dims.data[i].size == 1 ||
        !is_whole_dim(r, i))
      continue;
    int64_t size = r->dims.data[i].size / divisor * factor;
    for (int k = 0; k < r->dims.n; k++)
      if (r->dims.data[k].size != r->dims.data[i].size &&
          group_of(r, k) != group && is_whole_dim(r, k) &&
          r->groups.data[group_of(r, k)].factor > 0 && new_size(r, k) == size)
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
  int group = group_of(r, product->result);
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
  SizeGroup *of = &r->groups.data[group_of(r, product->result)];
  bool is_shared = of->factor > 0;
  for (int tries = 0; tries < 64; tries++) {
    if (derive_product(r, product)) return true;
    if (is_shared) return false;
    of->factor = 0;
    int group = group_of(r, product->factors[tries % product->n]);
    SizeGroup *factor = &r->groups.data[group];
    if (!factor->is_fixed && !factor->is_derived)
      factor->factor = next_factor(r, group, factor->factor);
  }
  return false;
}

/* The result of a window at the size of what it slides over; false: there is
 * none. */
static bool derive_window(Resizing *r, const SizeWindow *window) {
  int group = group_of(r, window->to);
  SizeGroup *to = &r->groups.data[group];
  if (r->groups.data[group_of(r, window->from)].factor == 0) return false;
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
  int group = group_of(r, dim);
  for (int tries = 0; tries <= r->windows.n && r->groups.data[group].is_slid;
       tries++)
    for (int i = 0; i < r->windows.n; i++)
      if (!is_of_one_group(r, &r->windows.data[i]) &&
          group_of(r, r->windows.data[i].to) == group) {
        group = group_of(r, r->windows.data[i].from);
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
      const SizeGroup *from = &r->groups.data[group_of(r, window->from)];
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
      fix_dim(r, window->from);
      fix_dim(r, window->to);
      return false;
    }
    group->factor = next_factor(r, source, group->factor);
  }
  for (int i = 0; i < r->windows.n; i++) fix_dim(r, r->windows.data[i].from);
  return false;
}

/* A product may have changed what a window slides over: then its dims are
 * fixed. */
static bool are_windows_right(Resizing *r) {
  for (int i = 0; i < r->windows.n; i++) {
    const SizeWindow *window = &r->windows.data[i];
    if (derive_window(r, window)) continue;
    fix_dim(r, window->from);
    fix_dim(r, window->to);
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
    SizeGroup *to = &r->groups.data[group_of(r, window->to)];
    if (!is_of_one_group(r, window) && !to->is_fixed)
      to->is_derived = to->is_slid = true;
  }
  for (int i = 0; i < r->products.n; i++) {
    const SizeProduct *product = &r->products.data[i];
    if (has_free_factors(r, product))
      r->groups.data[group_of(r, product->result)].is_derived = true;
  }
}

/* The smallest size that shards allow a dim. */
static int64_t least_size(const Resizing *r, int dim) {
  int group = group_of(r, dim);
  int64_t divisor = r->groups.data[group].divisor, factor = 1;
  while (factor < divisor && !group_allows(r, group, factor)) factor++;
  return r->dims.data[dim].size / divisor * factor;
}

/* Of the product too of which the dim is a factor. */
static int64_t least_product(const Resizing *r, int dim) {
  int64_t least = least_size(r, dim);
  for (int i = 0; i < r->products.n; i++) {
    const SizeProduct *product = &r->products.data[i];
    int64_t size = 1;
    bool is_factor = false;
    for (int k = 0; k < product->n; k++) {
      size *= least_size(r, product->factors[k]);
      is_factor |= group_of(r, product->factors[k]) == group_of(r, dim);
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
    const SizeGroup *group = &r->groups.data[group_of(r, i)];
    if (group->factor || group->is_derived) continue;
    int64_t least = least_product(r, i);
    if (best < 0 || least > best_least ||
        (least == best_least && r->dims.data[i].size < r->dims.data[best].size))
      best = i, best_least = least;
  }
  return best < 0 ? -1 : group_of(r, best);
}

/* False: a product or a window has no result, and its dims are fixed now. */
static bool search_sizes(Resizing *r) {
  begin_search(r);
  for (int i = 0; i < r->windows.n; i++) {
    int group = group_of(r, r->windows.data[i].from);
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
      if (r->integers.data[i] <= LARGEST_COUNT) fix_dim(r, k);
      if (first >= 0) join_dims(r, first, k);
      first = k;
    }
  }
}

void resizing_solve(Resizing *r) {
  join_integers(r);
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

/* ---- results ---- */

int64_t resizing_size(const Resizing *resizing, Name dim, int64_t size) {
  int at = find_dim(resizing, dim, size);
  return at < 0 ? size : new_size(resizing, at);
}

int64_t resizing_offset(const Resizing *resizing, Name dim, int64_t size,
                        int64_t offset) {
  int at = find_dim(resizing, dim, size);
  if (at < 0) return offset;
  const SizeGroup *group = &resizing->groups.data[group_of(resizing, at)];
  return offset / group->divisor * group->factor;
}

int64_t resizing_integer(const Resizing *resizing, int64_t value) {
  int64_t least = value;
  for (int i = 0; i < resizing->dims.n && value > 1; i++)
    if (resizing->dims.data[i].size == value && new_size(resizing, i) < least)
      least = new_size(resizing, i);
  return least;
}

bool resizing_shrinks(const Resizing *resizing) {
  for (int i = 0; i < resizing->dims.n; i++)
    if (new_size(resizing, i) != resizing->dims.data[i].size) return true;
  return false;
}

void resizing_print(Text *out, const Resizing *resizing, bool is_changed,
                    int64_t least) {
  const char *gap = "";
  for (int i = 0; i < resizing->dims.n; i++) {
    const SizedDim *dim = &resizing->dims.data[i];
    int64_t size = new_size(resizing, i);
    if ((size != dim->size) != is_changed || (!is_changed && size <= least))
      continue;
    text_add(out, gap);
    name_print(out, dim->name);
    text_printf(out, " %lld", (long long)dim->size);
    if (is_changed) text_printf(out, " -> %lld", (long long)size);
    gap = ", ";
  }
}
