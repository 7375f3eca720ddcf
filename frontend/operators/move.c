/*
 * move.c -- builds operators that index, move and join elements: gather,
 * concat, split, stack, pad and the like.
 */
#include "frontend/elaborate/emit.h"
#include "frontend/elaborate/match.h"

#include <string.h>

/* ---- gather, scatter_add, one_hot, iota, size ---- */

static bool arg_indices(BuiltinCall *call, int i) {
  return arg_tensor(call, i) && arg_class(call, i, CLASS_INT);
}

/* Renames the dim to a name that no model can give, so that another value may
 * have a dim of the old name. */
static ExprValue set_apart(Elab *e, ExprValue val, Name dim, Name *out) {
  *out = name_format(e->names, "%s.own", dim);
  return elab_rename(e, val, &dim, out, 1);
}

static bool move_has_dim(const Elab *e, ExprValue val, Name dim) {
  return type_find(elab_type(e, val), dim) >= 0;
}

ExprValue builtin_gather(BuiltinCall *call) {
  Elab *e = call->e;
  if (!arg_tensor(call, 0) || !arg_indices(call, 1) ||
      !arg_dims(call, 2, 0, true))
    return POISON;
  Name dim = call->dims[2].names[0];
  if (move_has_dim(e, call->args[1], dim))
    call->args[0] = set_apart(e, call->args[0], dim, &dim);
  if (!elab_unify(e, elab_type(e, call->args[0]), elab_type(e, call->args[1]),
                  call->exprs[0], call->exprs[1], dim, NULL))
    return POISON;
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dim, dim);
  int64_t n = type_size(elab_type(e, call->args[0]), dim);
  limits_note(call, call->args[1], n);
  ExprValue rows = elab_emit(e, OP_gather, call->args, 2, &attrs);
  return elab_checked(e, rows, call->args[1], n);
}

static bool arg_new_dim(BuiltinCall *call, int i, int of, Name *out) {
  Elab *e = call->e;
  const DimArg *dims = &call->dims[i];
  if (dims->n != 1) {
    diag(e->diags, DIAG_one_dim, call->exprs[i]->span, call->builtin->name,
         dims->n);
    return false;
  }
  const Type *type = elab_type(e, call->args[of]);
  *out = dims->names[0];
  if (type_find(type, *out) < 0) return true;
  diag(e->diags, DIAG_has_dimension, dims->spans[0],
       expr_describe(e, call->exprs[of]), *out, type_describe(e, type));
  return false;
}

ExprValue builtin_scatter_add(BuiltinCall *call) {
  Elab *e = call->e;
  int64_t n;
  Name dim;
  if (!arg_float_tensor(call, 0) || !arg_indices(call, 1)) return POISON;
  bool is_summed = call->dims[2].n == 1 &&
                   move_has_dim(e, call->args[0], call->dims[2].names[0]) &&
                   move_has_dim(e, call->args[1], call->dims[2].names[0]);
  for (int i = 0; i < 2 && is_summed; i++)
    call->args[i] =
        set_apart(e, call->args[i], call->dims[2].names[0], &(Name){0});
  if (!arg_new_dim(call, 2, 0, &dim) || !arg_int(call, 3, 1, &n)) return POISON;
  const Type *type = elab_type(e, call->args[0]);
  const Type *indices = elab_type(e, call->args[1]);
  if (!elab_unify(e, type, indices, call->exprs[0], call->exprs[1], NULL, NULL))
    return POISON;
  Name over[MAX_RANK];
  for (int i = 0; i < indices->rank; i++) {
    over[i] = indices->dims[i].name;
    if (type_find(type, over[i]) >= 0) continue;
    elab_no_dim(e, call->exprs[0], type, over[i], call->exprs[1]->span);
    return POISON;
  }
  limits_note(call, call->args[1], n);
  call->args[0] = elab_checked(e, call->args[0], call->args[1], n);
  Attrs attrs = {0};
  attrs_names(&attrs, ATTR_over, over, indices->rank);
  attrs_name(&attrs, ATTR_dim, dim);
  attrs_ints(&attrs, ATTR_sizes, &n, 1);
  return elab_emit(e, OP_scatter_add, call->args, 2, &attrs);
}

ExprValue builtin_one_hot(BuiltinCall *call) {
  int64_t n;
  Name dim;
  if (!arg_indices(call, 0) || !arg_new_dim(call, 1, 0, &dim) ||
      !arg_int(call, 2, 1, &n))
    return POISON;
  limits_note(call, call->args[0], n);
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dim, dim);
  attrs_ints(&attrs, ATTR_sizes, &n, 1);
  return elab_emit(call->e, OP_one_hot, call->args, 1, &attrs);
}

ExprValue builtin_iota(BuiltinCall *call) {
  Elab *e = call->e;
  if (!arg_tensor(call, 0) || !arg_dims(call, 1, 0, true)) return POISON;
  Name dim = call->dims[1].names[0];
  int64_t size = type_size(elab_type(e, call->args[0]), dim);
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dim, dim);
  attrs_ints(&attrs, ATTR_sizes, &size, 1);
  ExprValue val = elab_emit(e, OP_iota, NULL, 0, &attrs);
  val.is_weak = true;
  return val;
}

ExprValue builtin_size(BuiltinCall *call) {
  if (!arg_tensor(call, 0) || !arg_dims(call, 1, 0, false)) return POISON;
  const Type *type = elab_type(call->e, call->args[0]);
  int64_t product = 1; /* of sizes of one tensor: cannot overflow */
  for (int i = 0; i < call->dims[1].n; i++)
    product *= type_size(type, call->dims[1].names[i]);
  return expr_value_int(product);
}

/* ---- concat, stack ---- */

static bool arg_tensors(BuiltinCall *call) {
  Elab *e = call->e;
  ExprValue val = call->args[0];
  if (val.kind != EXPR_VALUE_list || val.list->n == 0) {
    arg_wrong(call, 0, "a list of tensors");
    return false;
  }
  ExprValue list = expr_value_list(e, val.list->n);
  for (int i = 0; i < val.list->n; i++) {
    BuiltinCall one = *call;
    one.args[0] = val.list->items[i];
    if (!arg_tensor(&one, 0)) return false;
    list.list->items[i] = one.args[0];
  }
  call->args[0] = list;
  return true;
}

typedef struct Joined { /* dims of all elements but the one they join along */
  int n;
  Name names[MAX_RANK + 1];
  int64_t sizes[MAX_RANK + 1];
  int first[MAX_RANK]; /* element that has the dim */
} Joined;

/* Adds the dims of element i; false after a message. */
static bool join_element(BuiltinCall *call, const ExprValueList *list, int i,
                         Name dim, Joined *joined) {
  Elab *e = call->e;
  const Type *type = elab_type(e, list->items[i]);
  int other = i; /* the first element that this one differs from */
  for (int j = 0; j < type->rank; j++) {
    Name name = type->dims[j].name;
    int k = 0;
    while (k < joined->n && joined->names[k] != name) k++;
    if (k < joined->n && joined->sizes[k] != type->dims[j].size &&
        joined->first[k] < other)
      other = joined->first[k];
    if (k < joined->n || name == dim) continue;
    if (joined->n == MAX_RANK) {
      diag(e->diags, DIAG_too_many_dims, call->x->span, MAX_RANK + 1, MAX_RANK);
      return false;
    }
    joined->names[k] = name;
    joined->sizes[k] = type->dims[j].size;
    joined->first[joined->n++] = i;
  }
  return elab_unify(e, elab_type(e, list->items[other]), type, NULL,
                    call->exprs[0], dim, NULL);
}

/* Gives every element the dims of all; one without `dim` is one slice. */
static bool join_dims(BuiltinCall *call, ExprValueList *list, Name dim) {
  Elab *e = call->e;
  Joined joined = {0};
  for (int i = 0; i < list->n; i++)
    if (!join_element(call, list, i, dim, &joined)) return false;
  joined.names[joined.n] = dim;
  joined.sizes[joined.n++] = 1;
  for (int i = 0; i < list->n; i++) {
    list->items[i] =
        elab_broadcast(e, list->items[i], joined.names, joined.sizes, joined.n);
    if (expr_value_is_poison(list->items[i])) return false;
  }
  return true;
}

static DType concat_dtype(const Elab *e, const ExprValueList *list) {
  DType dtype = elab_type(e, list->items[0])->dtype;
  for (int i = 1; i < list->n; i++)
    dtype = dtype_promote(dtype, elab_type(e, list->items[i])->dtype);
  return dtype;
}

static ExprValue concat_values(BuiltinCall *call, Name dim) {
  Elab *e = call->e;
  ExprValueList *list = call->args[0].list;
  DType dtype = concat_dtype(e, list);
  for (int i = 0; i < list->n; i++)
    list->items[i] = elab_cast(e, list->items[i], dtype);
  if (!join_dims(call, list, dim)) return POISON;
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dim, dim);
  return list->n == 1 ? list->items[0]
                      : elab_emit(e, OP_concat, list->items, list->n, &attrs);
}

static bool arg_one_name(BuiltinCall *call, int i) {
  if (call->dims[i].n == 1) return true;
  diag(call->e->diags, DIAG_one_dim, call->exprs[i]->span, call->builtin->name,
       call->dims[i].n);
  return false;
}

ExprValue builtin_concat(BuiltinCall *call) {
  if (!arg_tensors(call) || !arg_one_name(call, 1)) return POISON;
  return concat_values(call, call->dims[1].names[0]);
}

ExprValue builtin_stack(BuiltinCall *call) {
  Elab *e = call->e;
  if (!arg_tensors(call) || !arg_one_name(call, 1)) return POISON;
  for (int i = 0; i < call->args[0].list->n; i++) {
    const Type *type = elab_type(e, call->args[0].list->items[i]);
    if (type_find(type, call->dims[1].names[0]) < 0) continue;
    diag(e->diags, DIAG_has_dimension, call->dims[1].spans[0],
         expr_describe(e, call->exprs[0]), call->dims[1].names[0],
         type_describe(e, type));
    return POISON;
  }
  return concat_values(call, call->dims[1].names[0]);
}

/* ---- split, unstack ---- */

static ExprValue slice_list(Elab *e, ExprValue val, Name dim,
                            const int64_t *sizes, int n, bool drops) {
  ExprValue list = expr_value_list(e, n);
  int64_t start = 0;
  for (int i = 0; i < n; i++) {
    ExprValue part = elab_slice(e, val, dim, start, sizes[i]);
    list.list->items[i] = drops ? elab_drop(e, part, dim) : part;
    if (expr_value_is_poison(list.list->items[i])) return POISON;
    start += sizes[i];
  }
  return list;
}

ExprValue builtin_split(BuiltinCall *call) {
  Elab *e = call->e;
  if (!arg_tensor(call, 0) || !arg_dims(call, 1, 0, true)) return POISON;
  Name dim = call->dims[1].names[0];
  int64_t size = type_size(elab_type(e, call->args[0]), dim), total = 0;
  ExprValue parts = call->args[2];
  if (parts.kind == EXPR_VALUE_int && parts.integer <= size &&
      !elab_may_list(e, parts.integer, call->x->span))
    return POISON;
  int n = parts.kind == EXPR_VALUE_list ? parts.list->n
          : parts.kind == EXPR_VALUE_int && parts.integer > 0 &&
                  parts.integer <= size
              ? (int)parts.integer
              : 0;
  if (n == 0) return arg_wrong(call, 2, "a number of parts or their sizes");
  int64_t *sizes = ARENA_ARRAY(e->arena, int64_t, n);
  for (int i = 0; i < n; i++) {
    ExprValue item = parts.kind == EXPR_VALUE_list ? parts.list->items[i]
                                                   : expr_value_int(size / n);
    if (item.kind != EXPR_VALUE_int || item.integer <= 0 || item.integer > size)
      return arg_wrong(call, 2, "sizes of parts");
    sizes[i] = item.integer;
    total += item.integer;
  }
  if (total == size) return slice_list(e, call->args[0], dim, sizes, n, false);
  diag(e->diags, DIAG_bad_split, call->exprs[2]->span, dim, (long long)size,
       parts.kind == EXPR_VALUE_list
           ? arena_printf(e->arena, "its parts make %lld", (long long)total)
           : arena_printf(e->arena, "it does not divide into %d equal parts",
                          n));
  return POISON;
}

ExprValue builtin_unstack(BuiltinCall *call) {
  Elab *e = call->e;
  if (!arg_tensor(call, 0) || !arg_dims(call, 1, 0, true)) return POISON;
  Name dim = call->dims[1].names[0];
  int64_t size = type_size(elab_type(e, call->args[0]), dim);
  if (!elab_may_list(e, size, call->x->span)) return POISON;
  int64_t *sizes = ARENA_ARRAY(e->arena, int64_t, size);
  for (int64_t i = 0; i < size; i++) sizes[i] = 1;
  return slice_list(e, call->args[0], dim, sizes, (int)size, true);
}

/* ---- slice, pad, shift ---- */

ExprValue builtin_slice(BuiltinCall *call) {
  Elab *e = call->e;
  int64_t start, n;
  if (!arg_tensor(call, 0) || !arg_dims(call, 1, 0, true) ||
      !arg_int(call, 2, 0, &start) || !arg_int(call, 3, 1, &n))
    return POISON;
  Name dim = call->dims[1].names[0];
  int64_t size = type_size(elab_type(e, call->args[0]), dim);
  if (start < size && n <= size - start)
    return elab_slice(e, call->args[0], dim, start, n);
  diag(e->diags, DIAG_out_of_range, call->x->span,
       arena_printf(e->arena, "%lld elements from %lld", (long long)n,
                    (long long)start),
       (long long)size - 1, dim);
  return POISON;
}

ExprValue builtin_pad(BuiltinCall *call) {
  int64_t before, after;
  double value;
  if (!arg_tensor(call, 0) || !arg_dims(call, 1, 0, true) ||
      !arg_int(call, 2, 0, &before) || !arg_int(call, 3, 0, &after) ||
      !arg_float(call, 4, &value))
    return POISON;
  /* The type follows from x and the value, as in a promotion. */
  DTypeClass class = dtype_class(elab_type(call->e, call->args[0])->dtype);
  if (class != CLASS_FLOAT && call->args[4].kind == EXPR_VALUE_float)
    call->args[0] = elab_cast(call->e, call->args[0], DT_f32);
  else if (class == CLASS_BOOL && call->args[4].kind == EXPR_VALUE_int &&
           call->exprs[4])
    call->args[0] = elab_cast(call->e, call->args[0], DT_i32);
  return elab_pad(call->e, call->args[0], call->dims[1].names[0], before, after,
                  value);
}

ExprValue builtin_shift(BuiltinCall *call) {
  Elab *e = call->e;
  int64_t n;
  if (!arg_tensor(call, 0) || !arg_dims(call, 1, 0, true) ||
      !arg_int(call, 2, INT64_MIN, &n))
    return POISON;
  Name dim = call->dims[1].names[0];
  const Type *type = elab_type(e, call->args[0]);
  int64_t size = type_size(type, dim);
  if (n > -size && n < size) {
    int64_t by = n < 0 ? -n : n;
    ExprValue kept =
        elab_slice(e, call->args[0], dim, n < 0 ? by : 0, size - by);
    return elab_pad(e, kept, dim, n < 0 ? 0 : by, n < 0 ? by : 0, 0);
  }
  Name names[MAX_RANK]; /* everything has moved out */
  int64_t sizes[MAX_RANK];
  for (int i = 0; i < type->rank; i++) {
    names[i] = type->dims[i].name;
    sizes[i] = type->dims[i].size;
  }
  return elab_broadcast(e, elab_number(e, type->dtype, 0), names, sizes,
                        type->rank);
}
