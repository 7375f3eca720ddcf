/*
 * window.c -- operators that slide a window over dims: convolution, pooling and
 * upsample.
 */
#include "frontend/elaborate/emit.h"
#include "frontend/elaborate/match.h"

#include <string.h>

static bool arg_spaces(BuiltinCall *call, int i, int of) {
  if (call->dims[i].n < 0) {
    diag(call->e->diags, DIAG_not_a_dim, call->exprs[i]->span);
    return false;
  }
  if (call->dims[i].n == 0) {
    diag(call->e->diags, DIAG_one_dim, call->exprs[i]->span,
         call->builtin->name, 0);
    return false;
  }
  return arg_dims(call, i, of, false);
}

static int64_t *window_ints(Elab *e, int n) {
  return ARENA_ARRAY(e->arena, int64_t, n > 0 ? n : 1);
}

/* Dims that both operands have, but for the slid ones, must agree. */
static bool unify_but_spaces(BuiltinCall *call) {
  Elab *e = call->e;
  const DimArg *space = &call->dims[3];
  const Type *x = type_without(e->arena, elab_type(e, call->args[0]),
                               space->names, space->n);
  return elab_unify(e, x, elab_type(e, call->args[1]), call->exprs[0],
                    call->exprs[1], NULL, NULL);
}

static bool check_window(BuiltinCall *call, const int64_t *k,
                         const int64_t *pad, const int64_t *dilate) {
  Elab *e = call->e;
  const DimArg *space = &call->dims[call->builtin->op == OP_conv ? 3 : 1];
  const Type *type = elab_type(e, call->args[0]);
  for (int i = 0; i < space->n; i++) {
    int64_t size = type_size(type, space->names[i]);
    if (pad[i] > INT32_MAX || k[i] > INT32_MAX ||
        (dilate && dilate[i] > INT32_MAX)) {
      diag(e->diags, DIAG_overflow, call->x->span);
      return false;
    }
    int64_t width = dilate ? dilate[i] * (k[i] - 1) + 1 : k[i];
    if (width <= size + 2 * pad[i]) continue;
    diag(e->diags, DIAG_window_too_large, call->x->span, (long long)width,
         space->names[i], (long long)size, (long long)pad[i]);
    return false;
  }
  return true;
}

/* The operator contracts one dim: several are merged, for none both operands
 * get one of size 1. */
static bool contract_one(BuiltinCall *call) {
  Elab *e = call->e;
  DimArg *dims = &call->dims[2];
  if (dims->n == 1) return true;
  Name *one = ARENA_NEW(e->arena, Name);
  Span *span = ARENA_NEW(e->arena, Span);
  *span = call->x->span;
  *one = name_intern(e->names, "conv.sum"); /* no user's name */
  for (int i = 0; i < 2; i++) {
    Attrs attrs = {0};
    attrs_names(&attrs, ATTR_from, dims->names, dims->n);
    attrs_name(&attrs, ATTR_dim, *one);
    call->args[i] =
        dims->n == 0 ? elab_broadcast(e, call->args[i], one, &(int64_t){1}, 1)
                     : elab_emit(e, OP_merge_dims, &call->args[i], 1, &attrs);
    if (expr_value_is_poison(call->args[i])) return false;
  }
  *dims = (DimArg){.n = 1, .names = one, .spans = span};
  return true;
}

/* The slid dims are not summed over. */
static bool spaces_apart(BuiltinCall *call) {
  const DimArg *dims = &call->dims[2], *space = &call->dims[3];
  for (int i = 0; i < dims->n; i++)
    for (int k = 0; k < space->n; k++)
      if (dims->names[i] == space->names[k]) {
        diag(call->e->diags, DIAG_dim_twice, space->spans[k], space->names[k]);
        return false;
      }
  return true;
}

static bool arg_products(BuiltinCall *call) {
  if (!arg_float_tensor(call, 0) || !arg_float_tensor(call, 1)) return false;
  if (call->dims[2].n < 0) {
    diag(call->e->diags, DIAG_not_a_dim, call->exprs[2]->span);
    return false;
  }
  return arg_dims(call, 2, 0, false) && arg_dims(call, 2, 1, false) &&
         arg_spaces(call, 3, 0) && arg_spaces(call, 3, 1) &&
         spaces_apart(call) && unify_but_spaces(call) && contract_one(call);
}

ExprValue builtin_conv(BuiltinCall *call) {
  Elab *e = call->e;
  if (!arg_products(call)) return POISON;
  const DimArg *space = &call->dims[3];
  int n = space->n;
  int64_t *k = window_ints(e, n), *stride = window_ints(e, n),
          *pad = window_ints(e, n), *dilate = window_ints(e, n);
  if (!arg_ints(call, 4, n, 1, stride) || !arg_ints(call, 5, n, 0, pad) ||
      !arg_ints(call, 6, n, 1, dilate))
    return POISON;
  for (int i = 0; i < n; i++)
    k[i] = type_size(elab_type(e, call->args[1]), space->names[i]);
  if (!check_window(call, k, pad, dilate)) return POISON;
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dim, call->dims[2].names[0]);
  attrs_names(&attrs, ATTR_space, space->names, n);
  attrs_ints(&attrs, ATTR_stride, stride, n);
  attrs_ints(&attrs, ATTR_pad, pad, n);
  attrs_ints(&attrs, ATTR_dilate, dilate, n);
  return elab_emit(e, OP_conv, call->args, 2, &attrs);
}

/* What only w has, which conv_transpose makes, where conv would contract it.
 * The operator makes one dim: several are merged in w and split in the result,
 * for none there is one of size 1. */
typedef struct NewDims {
  int n;
  Name names[MAX_RANK], one;
  int64_t sizes[MAX_RANK];
} NewDims;

static bool find_new_dims(BuiltinCall *call, NewDims *out) {
  Elab *e = call->e;
  const Type *x = elab_type(e, call->args[0]), *w = elab_type(e, call->args[1]);
  *out = (NewDims){0};
  for (int i = 0; i < w->rank; i++)
    if (type_find(x, w->dims[i].name) < 0) {
      out->names[out->n] = w->dims[i].name;
      out->sizes[out->n++] = w->dims[i].size;
    }
  if (x->rank - 1 + out->n > MAX_RANK) {
    diag(e->diags, DIAG_too_many_dims, call->x->span, x->rank - 1 + out->n,
         MAX_RANK);
    return false;
  }
  out->one = out->n == 1
                 ? out->names[0]
                 : name_format(e->names, "%s.made", call->dims[2].names[0]);
  return true;
}

static ExprValue with_one_dim(Elab *e, ExprValue w, const NewDims *made) {
  if (made->n == 1) return w;
  if (made->n == 0) return elab_broadcast(e, w, &made->one, &(int64_t){1}, 1);
  Attrs attrs = {0};
  attrs_names(&attrs, ATTR_from, made->names, made->n);
  attrs_name(&attrs, ATTR_dim, made->one);
  return elab_emit(e, OP_merge_dims, &w, 1, &attrs);
}

static ExprValue with_new_dims(Elab *e, ExprValue y, const NewDims *made) {
  if (made->n == 1 || !expr_value_is_tensor(y)) return y;
  if (made->n == 0) return elab_drop(e, y, made->one);
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dim, made->one);
  attrs_names(&attrs, ATTR_to, made->names, made->n);
  attrs_ints(&attrs, ATTR_sizes, made->sizes, made->n);
  return elab_emit(e, OP_split_dim, &y, 1, &attrs);
}

/* The gradient of a conv in its input; size (Y - 1) stride - 2 pad + k. */
ExprValue builtin_conv_transpose(BuiltinCall *call) {
  Elab *e = call->e;
  NewDims made;
  if (!arg_products(call) || !find_new_dims(call, &made)) return POISON;
  const DimArg *space = &call->dims[3];
  int n = space->n;
  int64_t *stride = window_ints(e, n), *pad = window_ints(e, n),
          *sizes = window_ints(e, n);
  if (!arg_ints(call, 4, n, 1, stride) || !arg_ints(call, 5, n, 0, pad))
    return POISON;
  for (int i = 0; i < n; i++) {
    int64_t size = type_size(elab_type(e, call->args[0]), space->names[i]);
    int64_t k = type_size(elab_type(e, call->args[1]), space->names[i]);
    if (size > INT32_MAX || stride[i] > INT32_MAX || pad[i] > INT32_MAX) {
      diag(e->diags, DIAG_overflow, call->x->span);
      return POISON;
    }
    sizes[i] = (size - 1) * stride[i] - 2 * pad[i] + k;
    if (sizes[i] > 0) continue;
    diag(e->diags, DIAG_window_too_large, call->x->span, (long long)k,
         space->names[i], (long long)size, (long long)pad[i]);
    return POISON;
  }
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dim, made.one);
  attrs_names(&attrs, ATTR_to, call->dims[2].names, 1);
  attrs_names(&attrs, ATTR_space, space->names, n);
  attrs_ints(&attrs, ATTR_stride, stride, n);
  attrs_ints(&attrs, ATTR_pad, pad, n);
  attrs_ints(&attrs, ATTR_sizes, sizes, n);
  call->args[1] = with_one_dim(e, call->args[1], &made);
  return with_new_dims(
      e, elab_emit(e, OP_conv_input_grad, call->args, 2, &attrs), &made);
}

ExprValue builtin_pool(BuiltinCall *call) {
  Elab *e = call->e;
  if (!arg_float_tensor(call, 0) || !arg_spaces(call, 1, 0)) return POISON;
  const DimArg *space = &call->dims[1];
  int n = space->n;
  int64_t *k = window_ints(e, n), *stride = window_ints(e, n),
          *pad = window_ints(e, n);
  if (!arg_ints(call, 2, n, 1, k) || !arg_ints(call, 3, n, 1, stride) ||
      !arg_ints(call, 4, n, 0, pad) || !check_window(call, k, pad, NULL))
    return POISON;
  Attrs attrs = {0};
  attrs_names(&attrs, ATTR_space, space->names, n);
  attrs_ints(&attrs, ATTR_window, k, n);
  attrs_ints(&attrs, ATTR_stride, stride, n);
  attrs_ints(&attrs, ATTR_pad, pad, n);
  if (call->builtin->op == OP_avgpool) {
    bool counts;
    if (!arg_bool(call, 5, &counts)) return POISON;
    if (!counts) attrs_int(&attrs, ATTR_causal, 0);
  }
  return elab_emit(e, call->builtin->op, call->args, 1, &attrs);
}

ExprValue builtin_adaptive_avgpool(BuiltinCall *call) {
  Elab *e = call->e;
  if (!arg_float_tensor(call, 0) || !arg_spaces(call, 1, 0)) return POISON;
  const DimArg *space = &call->dims[1];
  int64_t *sizes = window_ints(e, space->n);
  if (!arg_ints(call, 2, space->n, 1, sizes)) return POISON;
  Attrs attrs = {0};
  attrs_names(&attrs, ATTR_space, space->names, space->n);
  attrs_ints(&attrs, ATTR_sizes, sizes, space->n);
  return elab_emit(e, OP_adaptive_avgpool, call->args, 1, &attrs);
}

/* ---- upsample: a new inner dim of n copies, which is merged away ---- */

/* x with its first or last element again, and without the other end. */
static ExprValue upsample_neighbour(Elab *e, ExprValue x, Name dim,
                                    bool is_next) {
  int64_t size = type_size(elab_type(e, x), dim);
  if (size == 1) return x;
  ExprValue edge = elab_slice(e, x, dim, is_next ? size - 1 : 0, 1);
  ExprValue rest = elab_slice(e, x, dim, is_next ? 1 : 0, size - 1);
  const ExprValue parts[] = {is_next ? rest : edge, is_next ? edge : rest};
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dim, dim);
  return elab_emit(e, OP_concat, parts, 2, &attrs);
}

/* Half-pixel centres: copy r of n lies t = (r + 1/2) / n - 1/2 away from its
 * element, between it and the neighbour on that side. */
static ExprValue upsample_interpolate(Elab *e, ExprValue x, Name dim,
                                      Name times, int64_t n) {
  DType dtype = elab_type(e, x)->dtype;
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dim, times);
  attrs_ints(&attrs, ATTR_sizes, &n, 1);
  ExprValue t = elab_cast(e, elab_emit(e, OP_iota, NULL, 0, &attrs), dtype);
  t = pointwise2(e, OP_mul, t, expr_value_float(1 / (double)n));
  t = pointwise2(e, OP_add, t, expr_value_float(0.5 / (double)n - 0.5));
  ExprValue to_next = pointwise1(e, OP_relu, t);
  ExprValue to_last = pointwise1(e, OP_relu, pointwise1(e, OP_neg, t));
  ExprValue here =
      pointwise2(e, OP_sub, expr_value_float(1), pointwise1(e, OP_abs, t));
  ExprValue sum = pointwise2(e, OP_mul, x, here);
  for (int side = 0; side < 2; side++) {
    ExprValue share = pointwise2(e, OP_mul, upsample_neighbour(e, x, dim, side),
                                 side ? to_next : to_last);
    sum = pointwise2(e, OP_add, sum, share);
  }
  return sum;
}

ExprValue builtin_upsample(BuiltinCall *call) {
  Elab *e = call->e;
  if (!arg_float_tensor(call, 0) || !arg_spaces(call, 1, 0)) return POISON;
  const DimArg *space = &call->dims[1];
  int64_t *n = window_ints(e, space->n);
  if (!arg_ints(call, 2, space->n, 1, n)) return POISON;
  const char *mode =
      call->args[3].kind == EXPR_VALUE_string ? call->args[3].string : "";
  bool is_linear = strcmp(mode, "linear") == 0;
  if (!is_linear && strcmp(mode, "nearest") != 0)
    return arg_wrong(call, 3, "\"nearest\" or \"linear\"");
  ExprValue val = call->args[0];
  Name times = name_intern(e->names, "upsample.times"); /* no user's name */
  for (int i = 0; i < space->n && !expr_value_is_poison(val); i++) {
    if (n[i] == 1) continue;
    Name dim = space->names[i];
    val = is_linear ? upsample_interpolate(e, val, dim, times, n[i])
                    : elab_broadcast(e, val, &times, &n[i], 1);
    Attrs attrs = {0};
    attrs_names(&attrs, ATTR_from, (const Name[]){dim, times}, 2);
    attrs_name(&attrs, ATTR_dim, dim);
    val = elab_emit(e, OP_merge_dims, &val, 1, &attrs);
  }
  return val;
}
