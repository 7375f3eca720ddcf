/*
 * infer_move.c -- infers the types of operators that make, move or rename
 * elements and compute nothing: sources, views, indexing, random numbers.
 */
#include "ir/ops/infer.h"

#define MAX_SIZE (INT64_MAX >> 8)

/* ---- sources ---- */

int infer_const(Module *module, const OpCall *call, Span span,
                const Type **out_types) {
  Infer in = infer_begin(module, call, span);
  DType dtype = infer_dtype_attr(&in, DT_f32);
  if (!infer_has(&in, ATTR_value)) {
    in.failed = true;
    diag(module->diags, DIAG_op_attr_missing, span, in.op, "value");
  }
  return infer_one(&in, dtype, &(Dims){0}, out_types);
}

int infer_iota(Module *module, const OpCall *call, Span span,
               const Type **out_types) {
  Infer in = infer_begin(module, call, span);
  Name dim = infer_name(&in, ATTR_dim);
  int64_t size;
  infer_ints(&in, ATTR_sizes, 1, 1, MAX_SIZE, 0, &size);
  Dims dims = {0};
  dims_add(&dims, dim, size);
  DType dtype = infer_dtype_attr(&in, DT_i32);
  if (dtype_class(dtype) == CLASS_INT) infer_positions(&in, dim, size, dtype);
  return infer_one(&in, dtype, &dims, out_types);
}

/* Adds the dims `to` with `sizes`. */
static void add_new_dims(Infer *in, Dims *dims) {
  NameSpan to = infer_names(in, ATTR_to, true);
  if (to.n > MAX_RANK) {
    in->failed = true;
    diag(in->module->diags, DIAG_op_rank, in->span, in->op, MAX_RANK);
    return;
  }
  int64_t sizes[MAX_RANK];
  infer_ints(in, ATTR_sizes, to.n, 1, MAX_SIZE, 0, sizes);
  for (int i = 0; i < to.n; i++) dims_add(dims, to.items[i], sizes[i]);
}

static int infer_random(Infer *in, DType dtype, const Type **out_types) {
  for (int i = 0; i < 2; i++) {
    infer_want_integer(in, i);
    if (infer_type(in, i)->rank) infer_want(in, i, "a scalar");
  }
  if (!infer_has(in, ATTR_stream)) {
    in->failed = true;
    diag(in->module->diags, DIAG_op_attr_missing, in->span, in->op, "stream");
  }
  Dims dims = {0};
  add_new_dims(in, &dims);
  return infer_one(in, dtype, &dims, out_types);
}

int infer_random_number(Module *module, const OpCall *call, Span span,
                        const Type **out_types) {
  Infer in = infer_begin(module, call, span);
  return infer_random(&in, DT_f32, out_types);
}

int infer_random_keep(Module *module, const OpCall *call, Span span,
                      const Type **out_types) {
  Infer in = infer_begin(module, call, span);
  double p = infer_real(&in, ATTR_value, -1);
  if (!(p >= 0 && p <= 1)) {
    in.failed = true;
    diag(module->diags, DIAG_op_attr_range, span, "value", in.op, (long)-1, 0L,
         1L);
  }
  return infer_random(&in, DT_bool, out_types);
}

/* ---- views and copies ---- */

int infer_rename(Module *module, const OpCall *call, Span span,
                 const Type **out_types) {
  Infer in = infer_begin(module, call, span);
  const Type *x = call->types[0];
  NameSpan from = infer_names(&in, ATTR_from, true);
  NameSpan to = infer_names(&in, ATTR_to, true);
  if (from.n != to.n) {
    in.failed = true;
    diag(module->diags, DIAG_op_attr_count, span, "to", in.op, to.n, from.n);
    return -1;
  }
  for (int i = 0; i < from.n; i++) infer_size(&in, 0, from.items[i]);
  Dims dims = {0};
  for (int i = 0; i < x->rank; i++) {
    Name name = x->dims[i].name;
    for (int j = 0; j < from.n; j++) {
      if (from.items[j] != x->dims[i].name) continue;
      name = to.items[j];
    }
    dims_add(&dims, name, x->dims[i].size);
  }
  return infer_one(&in, x->dtype, &dims, out_types);
}

int infer_split_dim(Module *module, const OpCall *call, Span span,
                    const Type **out_types) {
  Infer in = infer_begin(module, call, span);
  const Type *x = call->types[0];
  Name dim = infer_name(&in, ATTR_dim);
  int64_t size = infer_size(&in, 0, dim);
  Dims parts = {0}, dims = {0};
  add_new_dims(&in, &parts);
  int64_t product = 1;
  for (int i = 0; i < parts.n; i++) {
    if (product <= MAX_SIZE / parts.items[i].size) {
      product *= parts.items[i].size;
    } else {
      product = 0; /* larger than any dim */
      break;
    }
  }
  int64_t pad;
  infer_ints(&in, ATTR_pad, 1, 0, MAX_SIZE, 0, &pad);
  if (!in.failed && product != size + pad) {
    in.failed = true;
    diag(module->diags, DIAG_op_split, span, dim, (long)size, (long)product);
  }
  for (int i = 0; i < x->rank; i++) {
    if (x->dims[i].name != dim) {
      dims_add(&dims, x->dims[i].name, x->dims[i].size);
      continue;
    }
    for (int j = 0; j < parts.n; j++) {
      dims_add(&dims, parts.items[j].name, parts.items[j].size);
    }
  }
  return infer_one(&in, x->dtype, &dims, out_types);
}

/* The merged dim stands where the first of `from` stood. */
int infer_merge_dims(Module *module, const OpCall *call, Span span,
                     const Type **out_types) {
  Infer in = infer_begin(module, call, span);
  const Type *x = call->types[0];
  Name dim = infer_name(&in, ATTR_dim);
  NameSpan from = infer_names(&in, ATTR_from, true);
  int64_t product = 1; /* a part of x's elements, so it cannot overflow */
  for (int i = 0; i < from.n; i++) {
    product *= infer_size(&in, 0, from.items[i]);
  }
  if (!from.n) {
    in.failed = true;
    diag(module->diags, DIAG_op_attr_count, span, "from", in.op, 0, 1);
  }
  int64_t pad;
  infer_ints(&in, ATTR_pad, 1, 0, product - 1, 0, &pad);
  Dims dims = {0};
  for (int i = 0; i < x->rank && from.n; i++) {
    Name name = x->dims[i].name;
    if (name == from.items[0]) {
      dims_add(&dims, dim, product - pad);
    } else if (!names_have(from, name)) {
      dims_add(&dims, name, x->dims[i].size);
    }
  }
  return infer_one(&in, x->dtype, &dims, out_types);
}

int infer_transpose(Module *module, const OpCall *call, Span span,
                    const Type **out_types) {
  Infer in = infer_begin(module, call, span);
  const Type *x = call->types[0];
  NameSpan order = infer_names(&in, ATTR_order, true);
  Dims dims = {0};
  for (int i = 0; i < order.n; i++) {
    dims_add(&dims, order.items[i], infer_size(&in, 0, order.items[i]));
  }
  if (!in.failed && order.n != x->rank) {
    in.failed = true;
    Text text = text_create(module->arena);
    type_print(&text, type_logical(module->arena, x), NULL);
    diag(module->diags, DIAG_op_order, span, text_string(&text));
  }
  return infer_one(&in, x->dtype, &dims, out_types);
}

int infer_broadcast(Module *module, const OpCall *call, Span span,
                    const Type **out_types) {
  Infer in = infer_begin(module, call, span);
  Dims dims = {0};
  add_new_dims(&in, &dims);
  dims_add_type(&dims, call->types[0], (NameSpan){0});
  return infer_one(&in, call->types[0]->dtype, &dims, out_types);
}

int infer_copy(Module *module, const OpCall *call, Span span,
               const Type **out_types) {
  Infer in = infer_begin(module, call, span);
  Dims dims = {0};
  dims_add_type(&dims, call->types[0], (NameSpan){0});
  return infer_one(&in, call->types[0]->dtype, &dims, out_types);
}

int infer_constraint(Module *module, const OpCall *call, Span span,
                     const Type **out_types) {
  Infer in = infer_begin(module, call, span);
  NameSpan to = infer_names(&in, ATTR_to, true);
  NameSpan axes = infer_names(&in, ATTR_axes, true);
  int64_t sizes[MAX_RANK], n = 0;
  int n_dims = to.n <= MAX_RANK ? to.n : MAX_RANK;
  infer_ints(&in, ATTR_sizes, n_dims, 1, MAX_AXES, 0, sizes);
  for (int i = 0; i < n_dims && !in.failed; i++) {
    infer_size(&in, 0, to.items[i]);
    n += sizes[i];
  }
  if (!in.failed && n != axes.n) {
    in.failed = true;
    diag(module->diags, DIAG_op_attr_count, span, "axes", in.op, axes.n,
         (int)n);
  }
  Dims dims = {0};
  dims_add_type(&dims, call->types[0], (NameSpan){0});
  return infer_one(&in, call->types[0]->dtype, &dims, out_types);
}

int infer_cast(Module *module, const OpCall *call, Span span,
               const Type **out_types) {
  Infer in = infer_begin(module, call, span);
  infer_name(&in, ATTR_dtype);
  DType dtype = infer_dtype_attr(&in, DT_f32);
  Dims dims = {0};
  dims_add_type(&dims, call->types[0], (NameSpan){0});
  return infer_one(&in, dtype, &dims, out_types);
}

/* ---- indexing ---- */

int infer_gather(Module *module, const OpCall *call, Span span,
                 const Type **out_types) {
  Infer in = infer_begin(module, call, span);
  Name dim = infer_name(&in, ATTR_dim);
  infer_size(&in, 0, dim);
  infer_lacks(&in, 1, dim);
  infer_want_integer(&in, 1);
  Dims dims = {0};
  dims_union(&in, &dims, 1, (NameSpan){0});
  const Type *t = call->types[0];
  for (int i = 0; i < t->rank; i++) infer_agree(&in, 0, 1, t->dims[i].name);
  for (int i = 0; i < t->rank; i++) {
    if (t->dims[i].name == dim || dims_find(&dims, t->dims[i].name) >= 0) {
      continue;
    }
    dims_add(&dims, t->dims[i].name, t->dims[i].size);
  }
  return infer_one(&in, t->dtype, &dims, out_types);
}

/* Dims of i that are not summed away are batched: x has all of i's dims. */
int infer_scatter_add(Module *module, const OpCall *call, Span span,
                      const Type **out_types) {
  Infer in = infer_begin(module, call, span);
  const Type *i_type = call->types[1];
  Name dim = infer_name(&in, ATTR_dim);
  NameSpan over = infer_names(&in, ATTR_over, true);
  int64_t size;
  infer_ints(&in, ATTR_sizes, 1, 1, MAX_SIZE, 0, &size);
  infer_want_number(&in, 0);
  infer_want_integer(&in, 1);
  infer_lacks(&in, 1, dim);
  for (int i = 0; i < over.n; i++) infer_size(&in, 1, over.items[i]);
  for (int i = 0; i < i_type->rank; i++) {
    infer_size(&in, 0, i_type->dims[i].name);
    infer_agree(&in, 0, 1, i_type->dims[i].name);
  }
  Dims dims = {0};
  dims_add(&dims, dim, size);
  dims_add_type(&dims, call->types[0], over);
  DType dtype = infer_dtype_attr(&in, call->types[0]->dtype);
  return infer_one(&in, dtype, &dims, out_types);
}

/* The second operand has all dims of the first but one. */
int infer_update_slice(Module *module, const OpCall *call, Span span,
                       const Type **out_types) {
  Infer in = infer_begin(module, call, span);
  const Type *x = call->types[0], *row = call->types[1];
  Name dim = infer_name(&in, ATTR_dim);
  infer_size(&in, 0, dim);
  infer_lacks(&in, 1, dim);
  infer_want_integer(&in, 2);
  if (call->types[2]->rank > 0) infer_want(&in, 2, "a scalar");
  if (row->dtype != x->dtype) infer_want(&in, 1, dtype_name(x->dtype));
  for (int i = 0; i < x->rank; i++) {
    if (x->dims[i].name == dim) continue;
    infer_size(&in, 1, x->dims[i].name);
    infer_agree(&in, 0, 1, x->dims[i].name);
  }
  for (int i = 0; i < row->rank; i++) infer_size(&in, 0, row->dims[i].name);
  Dims dims = {0};
  dims_add_type(&dims, x, (NameSpan){0});
  return infer_one(&in, x->dtype, &dims, out_types);
}

int infer_one_hot(Module *module, const OpCall *call, Span span,
                  const Type **out_types) {
  Infer in = infer_begin(module, call, span);
  Name dim = infer_name(&in, ATTR_dim);
  int64_t size;
  infer_ints(&in, ATTR_sizes, 1, 1, MAX_SIZE, 0, &size);
  infer_want_integer(&in, 0);
  Dims dims = {0};
  dims_add_type(&dims, call->types[0], (NameSpan){0});
  dims_add(&dims, dim, size);
  return infer_one(&in, infer_dtype_attr(&in, DT_f32), &dims, out_types);
}

/* The operand's dims with one of another size. */
static int infer_resized(Infer *in, Name dim, int64_t size,
                         const Type **out_types) {
  const Type *x = infer_type(in, 0);
  Dims dims = {0};
  for (int i = 0; i < x->rank; i++) {
    bool is_dim = x->dims[i].name == dim;
    dims_add(&dims, x->dims[i].name, is_dim ? size : x->dims[i].size);
  }
  return infer_one(in, x->dtype, &dims, out_types);
}

int infer_slice(Module *module, const OpCall *call, Span span,
                const Type **out_types) {
  Infer in = infer_begin(module, call, span);
  Name dim = infer_name(&in, ATTR_dim);
  int64_t size = infer_size(&in, 0, dim), n;
  int64_t start = infer_int(&in, ATTR_start, 0);
  infer_ints(&in, ATTR_sizes, 1, 1, MAX_SIZE, 0, &n);
  if (!in.failed && (start < 0 || start > size || n > size - start)) {
    in.failed = true;
    diag(module->diags, DIAG_op_slice, span, (long)start,
         start > MAX_SIZE ? (long)start : (long)(start + n - 1), dim,
         (long)size);
  }
  return infer_resized(&in, dim, n, out_types);
}

int infer_reverse(Module *module, const OpCall *call, Span span,
                  const Type **out_types) {
  Infer in = infer_begin(module, call, span);
  Name dim = infer_name(&in, ATTR_dim);
  return infer_resized(&in, dim, infer_size(&in, 0, dim), out_types);
}

int infer_pad(Module *module, const OpCall *call, Span span,
              const Type **out_types) {
  Infer in = infer_begin(module, call, span);
  Name dim = infer_name(&in, ATTR_dim);
  int64_t size = infer_size(&in, 0, dim), pad[2];
  infer_ints(&in, ATTR_pad, 2, 0, MAX_SIZE, -1, pad);
  return infer_resized(&in, dim, size + pad[0] + pad[1], out_types);
}

/* An operand without the dim counts as one slice; the dim stands where the
 * first operand that has it has it, else last. */
int infer_concat(Module *module, const OpCall *call, Span span,
                 const Type **out_types) {
  Infer in = infer_begin(module, call, span);
  Name dim = infer_name(&in, ATTR_dim);
  DType dtype = call->types[0]->dtype;
  int64_t size = 0;
  Dims dims = {0};
  for (int i = 0; i < call->n_inputs; i++) {
    int at = type_find(call->types[i], dim);
    int64_t piece = at < 0 ? 1 : call->types[i]->dims[at].size;
    size = size > MAX_SIZE - piece ? MAX_SIZE : size + piece;
    dtype = dtype_promote(dtype, call->types[i]->dtype);
    bool has_it = dims_find(&dims, dim) >= 0;
    dims_union(&in, &dims, i, (NameSpan){&dim, has_it ? 1 : 0});
  }
  int at = dims_find(&dims, dim);
  if (at >= 0) {
    dims.items[at].size = size;
  } else {
    dims_add(&dims, dim, size);
  }
  return infer_one(&in, dtype, &dims, out_types);
}

/* Nothing is computed, but for an addition where rows or micro-batches meet. */
double cost_move(const Node *node, const Type *const *inputs) {
  bool adds = node->op == OP_scatter_add || node->op == OP_accumulate;
  double elements = 0;
  for (int r = 0; r < node->n_results && adds; r++)
    elements += (double)type_elements(inputs[r]);
  return elements;
}
