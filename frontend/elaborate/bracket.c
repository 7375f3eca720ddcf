/*
 * bracket.c -- evaluates brackets after a value: renames, splits, merges,
 * elements and slices of tensors, elements of lists.
 *
 *     k[T -> S]   x[C -> (H, D)]   x[(H, D) -> C]   x[T = 0]   x[T = 2..5]
 *
 * Entries apply from left to right. A bracket after a list applies to each
 * tensor of the list.
 */
#include "frontend/elaborate/emit.h"
#include "frontend/elaborate/eval.h"
#include "frontend/elaborate/frame.h"
#include "frontend/elaborate/match.h"

#include <string.h>

/* ---- names in brackets ---- */

static bool sub_names(Elab *e, const Expr *x, DimArg *out) {
  if (!dim_arg_read(e, x, out)) return false;
  if (out->n == 0) diag(e->diags, DIAG_not_a_dim, x->span);
  return out->n > 0;
}

static bool bracket_has_dims(Elab *e, const Expr *x, ExprValue val,
                             const DimArg *dims) {
  const Type *type = elab_type(e, val);
  for (int i = 0; i < dims->n; i++)
    if (type_find(type, dims->names[i]) < 0) {
      elab_no_dim(e, x, type, dims->names[i], dims->spans[i]);
      return false;
    }
  return true;
}

/* A new dim must not exist yet, unless the bracket removes it (`from`). */
static bool bracket_is_free(Elab *e, const Expr *x, ExprValue val,
                            const DimArg *to, const DimArg *from) {
  const Type *type = elab_type(e, val);
  for (int i = 0; i < to->n; i++) {
    bool goes = type_find(type, to->names[i]) < 0;
    for (int j = 0; j < from->n; j++)
      goes = goes || from->names[j] == to->names[i];
    if (goes) continue;
    diag(e->diags, DIAG_has_dimension, to->spans[i], expr_describe(e, x),
         to->names[i], type_describe(e, type));
    return false;
  }
  return true;
}

/* ---- rename, split, merge ---- */

static const char *names_text(Elab *e, const DimArg *dims) {
  Text text = text_create(e->arena);
  for (int i = 0; i < dims->n; i++)
    text_printf(&text, "%s%s", i ? ", " : "(", dims->names[i]);
  text_add(&text, ")");
  return text_string(&text);
}

static void cannot_split(Elab *e, const Sub *sub, Name dim, int64_t size,
                         const DimArg *to, const int64_t *sizes, int unknown,
                         int64_t known) {
  const char *why;
  Name only = NULL;
  for (int i = 0; i < to->n; i++)
    if (i != unknown) only = to->n == 2 ? to->names[i] : NULL;
  if (unknown < 0) {
    Text text = text_create(e->arena);
    for (int i = 0; i < to->n; i++)
      text_printf(&text, "%s%s = %lld", i ? ", " : "", to->names[i],
                  (long long)sizes[i]);
    why = arena_printf(e->arena, "%s make %lld", text_string(&text),
                       (long long)known);
  } else {
    why = arena_printf(e->arena, "%lld is not a multiple of %s%s%lld",
                       (long long)size, only ? only : "", only ? " = " : "",
                       (long long)known);
  }
  diag(e->diags, DIAG_cannot_split, sub->to->span, dim, (long long)size,
       names_text(e, to), why);
}

/* Sizes of the parts; the one without a size in scope is computed. */
static bool split_sizes(Elab *e, const Sub *sub, Name dim, int64_t size,
                        const DimArg *to, int64_t *sizes) {
  int unknown = -1;
  int64_t known = 1;
  for (int i = 0; i < to->n; i++) {
    sizes[i] = scope_size(e, to->names[i], to->spans[i]);
    if (sizes[i] == 0 && unknown < 0) {
      unknown = i;
      continue;
    }
    if (sizes[i] == 0)
      sizes[i] = scope_need_size(e, to->names[i], to->spans[i], false);
    if (sizes[i] < 0) return false;
    if (__builtin_mul_overflow(known, sizes[i], &known)) known = INT64_MAX;
  }
  if (unknown >= 0 && size % known == 0) {
    sizes[unknown] = size / known;
    return true;
  }
  if (unknown < 0 && known == size) return true;
  cannot_split(e, sub, dim, size, to, sizes, unknown, known);
  return false;
}

static ExprValue bracket_split_dim(Elab *e, const Expr *x, ExprValue val,
                                   const Sub *sub, const DimArg *from,
                                   const DimArg *to) {
  int64_t size = type_size(elab_type(e, val), from->names[0]);
  int64_t *sizes = ARENA_ARRAY(e->arena, int64_t, to->n);
  if (!bracket_is_free(e, x, val, to, from)) return POISON;
  if (!split_sizes(e, sub, from->names[0], size, to, sizes)) return POISON;
  if (elab_type(e, val)->rank + to->n - 1 > MAX_RANK) {
    diag(e->diags, DIAG_too_many_dims, sub->span,
         elab_type(e, val)->rank + to->n - 1, MAX_RANK);
    return POISON;
  }
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dim, from->names[0]);
  attrs_names(&attrs, ATTR_to, to->names, to->n);
  attrs_ints(&attrs, ATTR_sizes, sizes, to->n);
  return elab_emit(e, OP_split_dim, &val, 1, &attrs);
}

static ExprValue bracket_merge_dims(Elab *e, ExprValue val, const DimArg *from,
                                    Name to) {
  Attrs attrs = {0};
  attrs_names(&attrs, ATTR_from, from->names, from->n);
  attrs_name(&attrs, ATTR_dim, to);
  return elab_emit(e, OP_merge_dims, &val, 1, &attrs);
}

static ExprValue apply_rename(Elab *e, const Expr *x, ExprValue val,
                              const Sub *sub) {
  DimArg from, to;
  if (!sub_names(e, sub->from, &from) || !sub_names(e, sub->to, &to))
    return POISON;
  if (from.n > 1 && to.n > 1) {
    diag(e->diags, DIAG_many_to_many, sub->span);
    return POISON;
  }
  if (!bracket_has_dims(e, x, val, &from)) return POISON;
  if (to.n > 1) return bracket_split_dim(e, x, val, sub, &from, &to);
  if (!bracket_is_free(e, x, val, &to, &from)) return POISON;
  if (from.n > 1) return bracket_merge_dims(e, val, &from, to.names[0]);
  if (from.names[0] == to.names[0]) return val;
  return elab_rename(e, val, from.names, to.names, 1);
}

/* ---- elements and slices ---- */

static ExprValue apply_pick(Elab *e, const Expr *x, ExprValue val,
                            const Sub *sub) {
  const Expr *at = e->at;
  const Type *type = elab_type(e, val);
  if (type_find(type, sub->name) < 0) {
    Span span = sub->span;
    span.end = span.begin + (uint32_t)strlen(sub->name);
    elab_no_dim(e, x, type, sub->name, span);
    return POISON;
  }
  bool is_range = sub->to->kind == EXPR_range;
  int64_t first, last, size = type_size(type, sub->name);
  if (!eval_int(e, is_range ? sub->to->a : sub->to, &first)) return POISON;
  last = first;
  if (is_range && !eval_int(e, sub->to->b, &last)) return POISON;
  if (first < 0 || last < first || last >= size) {
    Diag *d = diag(e->diags, DIAG_out_of_range, sub->to->span,
                   is_range ? arena_printf(e->arena, "%lld..%lld",
                                           (long long)first, (long long)last)
                            : arena_printf(e->arena, "%lld", (long long)first),
                   (long long)size - 1, sub->name);
    if (first < 0 && -first <= size)
      diag_help(d, "counted from the end it is %lld",
                (long long)(size + first));
    return POISON;
  }
  elab_at(e, at);
  val = elab_slice(e, val, sub->name, first, last - first + 1);
  return is_range || expr_value_is_poison(val) ? val
                                               : elab_drop(e, val, sub->name);
}

static void help_element(Elab *e, Diag *d, Name dim, const Expr *x,
                         const Expr *at) {
  const Local *local =
      at->kind == EXPR_name ? frame_local(e->frame, at->name) : NULL;
  if (local && expr_value_is_tensor(local->val) && x->kind == EXPR_name)
    diag_help(d, "gather(%s, %s, %s) reads the rows at '%s'", x->name, at->name,
              dim, at->name);
  else
    diag_help(d, "an element of a tensor names its dimension, as in [%s = 0]",
              dim);
}

static ExprValue list_element(Elab *e, const Expr *x, ExprValue val,
                              const Sub *sub) {
  if (val.kind != EXPR_VALUE_list) {
    Diag *d = diag(e->diags, DIAG_not_a_list, x->a->span, expr_subject(e, x->a),
                   expr_value_describe(e, val));
    if (expr_value_is_tensor(val) && elab_type(e, val)->rank > 0)
      help_element(e, d, elab_type(e, val)->dims[0].name, x->a, sub->to);
    return POISON;
  }
  int64_t index;
  if (!eval_int(e, sub->to, &index)) return POISON;
  if (index >= 0 && index < val.list->n) return val.list->items[index];
  diag(e->diags, DIAG_list_range, sub->to->span, (long long)index, val.list->n);
  return POISON;
}

static ExprValue apply_sub(Elab *e, const Expr *x, ExprValue val,
                           const Sub *sub) {
  if (expr_value_is_poison(val)) return val;
  if (sub->kind == SUB_value) return list_element(e, x, val, sub);
  if (sub->kind == SUB_all) {
    diag(e->diags, DIAG_not_a_value, sub->span, "'*'");
    return POISON;
  }
  if (val.kind == EXPR_VALUE_list) {
    ExprValue list = expr_value_list(e, val.list->n);
    for (int i = 0; i < val.list->n; i++) {
      list.list->items[i] = apply_sub(e, x, val.list->items[i], sub);
      if (expr_value_is_poison(list.list->items[i])) return POISON;
    }
    return expr_value_list_nested(e, list, x->span);
  }
  if (!expr_value_is_tensor(val)) {
    diag(e->diags, DIAG_not_a_tensor, x->a->span, expr_subject(e, x->a),
         expr_value_describe(e, val));
    return POISON;
  }
  return sub->kind == SUB_rename ? apply_rename(e, x->a, val, sub)
                                 : apply_pick(e, x->a, val, sub);
}

/* From the inside out: x[A -> B][B -> C]... may be long. */
ExprValue eval_index(Elab *e, const Expr *x) {
  int n = 1;
  const Expr *const *chain = &x;
  if (x->a->kind == EXPR_index) chain = expr_chain(e->arena, x, &n);
  ExprValue val = eval(e, chain[n - 1]->a);
  for (int i = n - 1; i >= 0; i--) {
    if (i > 0 && !elab_step(e, chain[i]->span)) return POISON;
    for (int j = 0; j < chain[i]->subs.n; j++) {
      elab_at(e, chain[i]);
      val = apply_sub(e, chain[i], val, &chain[i]->subs.data[j]);
    }
  }
  return val;
}
