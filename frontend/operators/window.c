/*
 * window.c -- operators that slide a window over dims: convolution, pooling and
 * resize.
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

/* The dims that w alone has: conv would contract them, conv_transpose makes
 * them.  The operator makes exactly one dim, so several are merged in w and
 * split in the result, and without any w gets one of size 1. */
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

/* ---- resize, one dim after the other ---- */

#define MAX_RESIZED ((int64_t)1 << 30) /* as in infer_window.c */

typedef struct ResizeMode {
  const char *name;
  int side; /* taps on each side of a position; 0: the nearest element */
} ResizeMode;

static const ResizeMode *find_resize_mode(BuiltinCall *call, int i) {
  static const ResizeMode modes[] = {
      {"nearest", 0}, {"linear", 1}, {"cubic", 2}};
  ExprValue val = call->args[i];
  const char *name = val.kind == EXPR_VALUE_string ? val.string : "";
  for (size_t k = 0; k < ARRAY_LENGTH(modes); k++)
    if (strcmp(name, modes[k].name) == 0) return &modes[k];
  Diag *d = arg_report_wrong(call, i, "\"nearest\", \"linear\" or \"cubic\"");
  if (strcmp(name, "bilinear") == 0 || strcmp(name, "trilinear") == 0)
    diag_help(d, "\"linear\" along each of the dimensions is %s", name);
  if (strcmp(name, "bicubic") == 0)
    diag_help(d, "\"cubic\" along each of the dimensions is bicubic");
  return NULL;
}

/* `times` copies of each element: a new inner dim, which is merged away. */
static ExprValue repeat_elements(Elab *e, ExprValue x, Name dim,
                                 int64_t times) {
  Name copy = name_intern(e->names, "upsample.times"); /* no user's name */
  x = elab_broadcast(e, x, &copy, &times, 1);
  if (expr_value_is_poison(x)) return x;
  Attrs attrs = {0};
  attrs_names(&attrs, ATTR_from, (const Name[]){dim, copy}, 2);
  attrs_name(&attrs, ATTR_dim, dim);
  return elab_emit(e, OP_merge_dims, &x, 1, &attrs);
}

static ExprValue resize_dim(Elab *e, ExprValue x, Name dim, int64_t size,
                            const ResizeMode *mode) {
  int64_t now = type_size(elab_type(e, x), dim);
  if (size == now) return x;
  if (mode->side == 0 && size % now == 0)
    return repeat_elements(e, x, dim, size / now);
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dim, dim);
  attrs_ints(&attrs, ATTR_sizes, &size, 1);
  attrs_ints(&attrs, ATTR_window, &(int64_t){mode->side}, 1);
  return elab_emit(e, OP_resize, &x, 1, &attrs);
}

/* `n` is the new size of each dim, or how many times the old one it is. */
static ExprValue resize_dims(BuiltinCall *call, bool is_factor) {
  Elab *e = call->e;
  if (!arg_float_tensor(call, 0) || !arg_spaces(call, 1, 0)) return POISON;
  const DimArg *space = &call->dims[1];
  int64_t *n = window_ints(e, space->n);
  if (!arg_ints(call, 2, space->n, 1, n)) return POISON;
  const ResizeMode *mode = find_resize_mode(call, 3);
  if (!mode) return POISON;
  ExprValue val = call->args[0];
  for (int i = 0; i < space->n && !expr_value_is_poison(val); i++) {
    int64_t now = type_size(elab_type(e, val), space->names[i]);
    if (n[i] > MAX_RESIZED / (is_factor ? now : 1))
      return arg_wrong(call, 2,
                       "an integer that gives sizes of at most 1073741824");
    int64_t size = is_factor ? n[i] * now : n[i];
    val = resize_dim(e, val, space->names[i], size, mode);
  }
  return val;
}

ExprValue builtin_resize(BuiltinCall *call) {
  return resize_dims(call, false);
}

ExprValue builtin_upsample(BuiltinCall *call) {
  return resize_dims(call, true);
}
