/*
 * resize.c -- collects the equations between the sizes of dims, and gives the
 * sizes that resize_solve.c has found.
 *
 * A dim is a name with a size: dims of one name and one size stay equal, so
 * operators that work by name need no equation.  The others give these:
 *
 *     rename T -> S                     T and S are one dim
 *     slice, pad, concat                the sizes and offsets scale together
 *     split_dim, merge_dims             a product
 *     convolutions, pools               a result follows from its operand
 *     adaptive pools                    the same, if their windows are equal
 *     other windows, topk               the dim keeps its size
 *     an integer constant is a size     all dims of this size are one, and keep
 *                                       it where it is small
 */
#include "verify/resize_groups.h"

#include <math.h>

/* ---- dims and groups ---- */

Resizing *resizing_create(Arena *arena) {
  Resizing *resizing = ARENA_NEW(arena, Resizing);
  *resizing = (Resizing){.arena = arena, .by_name = map_create(arena)};
  return resizing;
}

void resizing_keep_windows(Resizing *resizing) {
  resizing->keeps_windows = true;
}

void resizing_allow_one_element(Resizing *resizing) {
  resizing->allows_one_element = true;
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

void join_sizes(Resizing *r, int a, int b) {
  a = size_group(r, a);
  b = size_group(r, b);
  if (a == b) return;
  SizeGroup *into = &r->groups.data[a], *from = &r->groups.data[b];
  into->divisor = common_divisor(into->divisor, from->divisor);
  into->is_fixed |= from->is_fixed;
  r->dims.data[b].parent = a;
}

static void add_offset(Resizing *r, int dim, int64_t offset) {
  SizeGroup *group = &r->groups.data[size_group(r, dim)];
  group->divisor = common_divisor(group->divisor, offset);
}

/* ---- equations of a node ---- */

static void add_shards(Resizing *r, int dim, int64_t count) {
  SizedDim *sized = &r->dims.data[dim];
  int i = 0;
  while (i < sized->n_counts && sized->counts[i] != count) i++;
  if (count <= 1 || i < sized->n_counts) return;
  /* Collectives need shards of one element. */
  if (sized->size == count) sized->is_shards = true;
  if (sized->size == count || i == MOST_SHARD_COUNTS)
    fix_size(r, dim);
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
  if (x >= 0 && y >= 0) join_sizes(r, x, y);
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
      fix_size(r, i < n ? dim_of(r, has_factors, names[i]) : product.result);
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
      join_sizes(r, result, part);
    else
      fix_size(r, result);
  }
}

static void fix_named(Resizing *r, const Graph *graph, const Node *node,
                      const Name *names, int n) {
  for (int k = 0; k < n; k++) {
    for (int i = 0; i < node->n_inputs; i++) {
      int dim = dim_of(r, graph_type(graph, node->inputs[i]), names[k]);
      if (dim >= 0) fix_size(r, dim);
    }
    for (int i = 0; i < node->n_results; i++) {
      int dim = dim_of(r, node->types[i], names[k]);
      if (dim >= 0) fix_size(r, dim);
    }
  }
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
  case OP_adaptive_avgpool:
  case OP_avgpool: *out = (WindowTypes){first, result, NULL}; return true;
  case OP_maxpool_grad: *out = (WindowTypes){first, second, NULL}; return true;
  case OP_adaptive_avgpool_grad:
  case OP_avgpool_grad: *out = (WindowTypes){result, first, NULL}; return true;
  case OP_resize: return false;
  default: UNREACHABLE();
  }
}

/* An adaptive pool has equal windows side by side, or one over all of the dim,
 * whatever its size; else the windows overlap and nothing may change. */
static void add_adaptive(Resizing *r, int from, int to) {
  int64_t size = r->dims.data[from].size, n = r->dims.data[to].size;
  if (n == 1) return;
  if (size % n == 0) {
    SizeWindow window = {
        .from = from, .to = to, .extent = size / n, .stride = size / n};
    vec_push(r->arena, &r->windows, window);
    return;
  }
  fix_size(r, from);
  fix_size(r, to);
}

static void add_slid(Resizing *r, const Node *node, const WindowTypes *types,
                     Name name, int i) {
  int from = dim_of(r, types->x, name), to = dim_of(r, types->y, name);
  if (node->op == OP_adaptive_avgpool || node->op == OP_adaptive_avgpool_grad) {
    add_adaptive(r, from, to);
    return;
  }
  int64_t width = types->w ? type_size(types->w, name)
                           : node_int_at(node, ATTR_window, i, 1);
  if (types->w) fix_size(r, dim_of(r, types->w, name));
  SizeWindow window = {
      .from = from,
      .to = to,
      .pad = 2 * node_int_at(node, ATTR_pad, i, 0),
      .extent = (width - 1) * node_int_at(node, ATTR_dilate, i, 1) + 1,
      .stride = node_int_at(node, ATTR_stride, i, types->w ? 1 : width)};
  vec_push(r->arena, &r->windows, window);
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
  for (int i = 0; i < n; i++) add_slid(r, node, &types, names[i], i);
}

/* The dim that is chosen from stays larger than what is chosen. */
static void add_choice(Resizing *r, const Node *node, const Type *from) {
  int n;
  int64_t k = node_ints(node, ATTR_sizes, &n)[0];
  const Name *to = node_names(node, ATTR_to, &n);
  int dim = dim_of(r, from, node_name(node, ATTR_dim));
  fix_size(r, dim_of(r, node->types[0], to[0]));
  if (r->dims.data[dim].least <= k)
    r->dims.data[dim].least = r->dims.data[dim].size > k ? k + 1 : k;
}

static void join_types(Resizing *r, const Type *a, const Type *b, int skip) {
  for (int d = 0; d < b->rank && d + skip < a->rank; d++) {
    const Dim *x = &a->dims[d + skip], *y = &b->dims[d];
    join_sizes(r, make_dim(r, x->name, x->size), make_dim(r, y->name, y->size));
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

static void add_ties(Resizing *r, const Graph *graph, const Node *node) {
  int n = 0;
  const Type *type = node->types[0], *from = graph_type(graph, node->inputs[0]);
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
        fix_size(r, make_dim(r, from->dims[d].name, from->dims[d].size));
    break;
  default: UNREACHABLE();
  }
}

static void add_node(Resizing *r, const Graph *graph, const Node *node) {
  if (op_is(node->op, OPCLASS_window) || node_has(node, ATTR_space))
    add_window(r, graph, node);
  if (node->body) add_region(r, graph, node);
  if (is_integer_const(node))
    vec_push(r->arena, &r->integers, (int64_t)node_float(node, ATTR_value, 0));
  if (op_has(node->op, OP_FLAG_ties_sizes)) add_ties(r, graph, node);
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

/* ---- results ---- */

int64_t resizing_size(const Resizing *resizing, Name dim, int64_t size) {
  int at = find_dim(resizing, dim, size);
  return at < 0 ? size : new_size(resizing, at);
}

int64_t resizing_offset(const Resizing *resizing, Name dim, int64_t size,
                        int64_t offset) {
  int at = find_dim(resizing, dim, size);
  if (at < 0) return offset;
  const SizeGroup *group = &resizing->groups.data[size_group(resizing, at)];
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
