/*
 * tensor.c -- appends one node or a few: reduce, mean, argmax, pad, broadcast,
 * rename, slice, and the check of an index.
 */
#include "frontend/elaborate/emit.h"

#include <math.h>

/* ---- reductions ---- */

ExprValue elab_reduce(Elab *e, Op op, ExprValue val, const Name *dims, int n) {
  if (n == 0 || !expr_value_is_tensor(val)) return val;
  Attrs attrs = {0};
  attrs_names(&attrs, ATTR_over, dims, n);
  return elab_emit(e, op, &val, 1, &attrs);
}

double elab_count(const Type *type, const Name *dims, int n) {
  double product = 1;
  for (int i = 0; i < n; i++) product *= (double)type_size(type, dims[i]);
  return product;
}

ExprValue elab_mean(Elab *e, ExprValue val, const Name *dims, int n) {
  if (!expr_value_is_tensor(val)) return val;
  double elements = elab_count(elab_type(e, val), dims, n);
  ExprValue total = elab_reduce(e, OP_sum, val, dims, n);
  return elements == 1
             ? total
             : pointwise2(e, OP_div, total, expr_value_float(elements));
}

ExprValue elab_reduce_all(Elab *e, Op op, ExprValue val) {
  if (!expr_value_is_tensor(val)) return val;
  const Type *type = elab_type(e, val);
  Name names[MAX_RANK];
  for (int i = 0; i < type->rank; i++) names[i] = type->dims[i].name;
  return elab_reduce(e, op, val, names, type->rank);
}

ExprValue elab_mean_all(Elab *e, ExprValue val) {
  if (!expr_value_is_tensor(val)) return val;
  const Type *type = elab_type(e, val);
  Name names[MAX_RANK];
  for (int i = 0; i < type->rank; i++) names[i] = type->dims[i].name;
  return elab_mean(e, val, names, type->rank);
}

bool elab_counts_fit(Elab *e, const Expr *of, const Type *type,
                     const Name *dims, int n, const char *help) {
  const int64_t most = dtype_largest_integer(DT_i32);
  double count = elab_count(type, dims, n);
  if (count <= (double)most) return true;
  Text sizes = text_create(e->arena);
  type_print(&sizes, type, NULL);
  Diag *d =
      diag(e->diags, DIAG_positions, e->at->span, e->at->a->name, "counts",
           (long long)count, dtype_name(DT_i32), (long long)most);
  diag_note(d, of->span, "%s is %s", expr_describe(e, of), text_string(&sizes));
  diag_help(d, "%s", help);
  return false;
}

ExprValue elab_argmax(Elab *e, ExprValue val, Name dim) {
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dim, dim);
  return elab_emit(e, OP_argmax, &val, 1, &attrs);
}

/* ---- shapes ---- */

ExprValue elab_broadcast(Elab *e, ExprValue val, const Name *dims,
                         const int64_t *sizes, int n) {
  if (!expr_value_is_tensor(val)) return POISON;
  const Type *type = elab_type(e, val);
  Name *to = ARENA_ARRAY(e->arena, Name, n);
  int64_t *to_sizes = ARENA_ARRAY(e->arena, int64_t, n);
  int m = 0;
  for (int i = 0; i < n; i++)
    if (type_find(type, dims[i]) < 0) {
      to[m] = dims[i];
      to_sizes[m++] = sizes[i];
    }
  if (m == 0) return val;
  Attrs attrs = {0};
  attrs_names(&attrs, ATTR_to, to, m);
  attrs_ints(&attrs, ATTR_sizes, to_sizes, m);
  return elab_emit(e, OP_broadcast, &val, 1, &attrs);
}

ExprValue elab_pad(Elab *e, ExprValue val, Name dim, int64_t before,
                   int64_t after, double value) {
  if (before == 0 && after == 0) return val;
  const int64_t sizes[] = {before, after};
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dim, dim);
  attrs_ints(&attrs, ATTR_pad, sizes, 2);
  attrs_float(&attrs, ATTR_value, value);
  return elab_emit(e, OP_pad, &val, 1, &attrs);
}

ExprValue elab_rename(Elab *e, ExprValue val, const Name *from, const Name *to,
                      int n) {
  Attrs attrs = {0};
  attrs_names(&attrs, ATTR_from, from, n);
  attrs_names(&attrs, ATTR_to, to, n);
  return elab_emit(e, OP_rename, &val, 1, &attrs);
}

ExprValue elab_slice(Elab *e, ExprValue val, Name dim, int64_t start,
                     int64_t size) {
  if (!expr_value_is_tensor(val)) return POISON;
  if (start == 0 && size == type_size(elab_type(e, val), dim)) return val;
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dim, dim);
  attrs_int(&attrs, ATTR_start, start);
  attrs_ints(&attrs, ATTR_sizes, &size, 1);
  return elab_emit(e, OP_slice, &val, 1, &attrs);
}

ExprValue elab_drop(Elab *e, ExprValue val, Name dim) {
  return elab_reduce(e, OP_sum, val, &dim, 1);
}

/* ---- indices ---- */

ExprValue elab_positions(Elab *e, Name dim, int64_t size) {
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dim, dim);
  attrs_ints(&attrs, ATTR_sizes, &size, 1);
  if (dtype_of_positions(size) != DT_i32)
    attrs_name(&attrs, ATTR_dtype, name_intern(e->names, dtype_name(DT_i64)));
  ExprValue val = elab_emit(e, OP_iota, NULL, 0, &attrs);
  val.is_weak = true;
  return val;
}

ExprValue elab_checked(Elab *e, ExprValue x, ExprValue index, int64_t n) {
  if (!e->tree->options->checked || !expr_value_is_tensor(x) ||
      !expr_value_is_tensor(index))
    return x;
  bool is_real = dtype_class(elab_type(e, x)->dtype) == CLASS_FLOAT;
  if (!is_real && e->scan) return x;
  ExprValue is_in =
      pointwise2(e, OP_and, pointwise2(e, OP_ge, index, expr_value_int(0)),
                 pointwise2(e, OP_lt, index, expr_value_int(n)));
  if (is_real) return pointwise3(e, OP_select, is_in, x, expr_value_float(NAN));
  ExprValue each = pointwise3(e, OP_select, is_in, expr_value_float(0),
                              expr_value_float(NAN));
  ExprValue lost = elab_mean_all(e, each);
  if (expr_value_is_tensor(lost)) vec_push(e->arena, &e->extra_losses, lost);
  return x;
}
