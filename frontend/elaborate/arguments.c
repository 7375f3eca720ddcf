/*
 * arguments.c -- checks single arguments of a matched call: that one is a
 * tensor, an existing dim, an integer and so on; each check reports what it
 * refuses.
 */
#include "frontend/elaborate/emit.h"
#include "frontend/elaborate/match.h"

static Span arg_span(const BuiltinCall *call, int i) {
  return call->exprs[i] ? call->exprs[i]->span : call->x->span;
}

Diag *arg_report_wrong(const BuiltinCall *call, int i, const char *wanted) {
  return diag(call->e->diags, DIAG_wrong_argument, arg_span(call, i),
              call->builtin->params[i].name, call->builtin->name, wanted,
              expr_value_describe(call->e, call->args[i]));
}

ExprValue arg_wrong(BuiltinCall *call, int i, const char *wanted) {
  arg_report_wrong(call, i, wanted);
  return POISON;
}

bool arg_tensor(BuiltinCall *call, int i) {
  ExprValue *val = &call->args[i];
  switch (val->kind) {
  case EXPR_VALUE_tensor: return true;
  case EXPR_VALUE_bool:
    *val = elab_number(call->e, DT_bool, val->boolean);
    break;
  case EXPR_VALUE_int: {
    bool is_long = val->integer > INT32_MAX || val->integer < INT32_MIN;
    *val =
        elab_number(call->e, is_long ? DT_i64 : DT_i32, (double)val->integer);
    break;
  }
  case EXPR_VALUE_float:
    *val = elab_number(call->e, DT_f32, val->floating);
    break;
  default: arg_wrong(call, i, "a tensor"); return false;
  }
  return expr_value_is_tensor(*val);
}

bool arg_float_tensor(BuiltinCall *call, int i) {
  if (!arg_tensor(call, i)) return false;
  if (dtype_class(elab_type(call->e, call->args[i])->dtype) != CLASS_FLOAT)
    call->args[i] = elab_cast(call->e, call->args[i], DT_f32);
  return expr_value_is_tensor(call->args[i]);
}

bool arg_class(BuiltinCall *call, int i, DTypeClass class) {
  if (dtype_class(elab_type(call->e, call->args[i])->dtype) == class)
    return true;
  bool is_real = class == CLASS_FLOAT;
  Diag *d = arg_report_wrong(call, i,
                             is_real ? "a float tensor" : "an integer tensor");
  const Expr *x = call->exprs[i];
  if (x && x->kind == EXPR_name)
    diag_help(d, "cast(%s, %s) is one", x->name, is_real ? "f32" : "i32");
  else if (x && x->kind == EXPR_field && !is_real)
    diag_help(d, "a field of integers says so, as in '%s: i32[B] = ...'",
              x->name);
  return false;
}

bool arg_dims(BuiltinCall *call, int i, int of, bool is_single) {
  Elab *e = call->e;
  DimArg *dims = &call->dims[i];
  const Type *type = elab_type(e, call->args[of]);
  if (dims->n < 0) {
    *dims = (DimArg){type->rank, ARENA_ARRAY(e->arena, Name, type->rank),
                     ARENA_ARRAY(e->arena, Span, type->rank)};
    for (int j = 0; j < type->rank; j++) dims->names[j] = type->dims[j].name;
  }
  if (is_single && dims->n != 1) {
    diag(e->diags, DIAG_one_dim, arg_span(call, i), call->builtin->name,
         dims->n);
    return false;
  }
  for (int j = 0; j < dims->n; j++)
    if (type_find(type, dims->names[j]) < 0) {
      elab_no_dim(e, call->exprs[of], type, dims->names[j], dims->spans[j]);
      return false;
    }
  return true;
}

bool arg_int(BuiltinCall *call, int i, int64_t least, int64_t *out) {
  ExprValue val = expr_value_whole(call->args[i]);
  if (val.kind == EXPR_VALUE_int && val.integer >= least) {
    *out = val.integer;
    return true;
  }
  const char *wanted =
      least == INT64_MIN
          ? "an integer"
          : arena_printf(call->e->arena, "an integer of at least %lld",
                         (long long)least);
  arg_wrong(call, i, wanted);
  return false;
}

bool arg_ints(BuiltinCall *call, int i, int n, int64_t least, int64_t *out) {
  ExprValue val = call->args[i];
  if (val.kind != EXPR_VALUE_list) {
    if (!arg_int(call, i, least, &out[0])) return false;
    for (int j = 1; j < n; j++) out[j] = out[0];
    return true;
  }
  bool is_good = val.list->n == n;
  for (int j = 0; j < n && is_good; j++) {
    ExprValue item = expr_value_whole(val.list->items[j]);
    is_good = item.kind == EXPR_VALUE_int && item.integer >= least;
    if (is_good) out[j] = item.integer;
  }
  if (is_good) return true;
  arg_wrong(call, i,
            arena_printf(call->e->arena,
                         "an integer of at least %lld, or a list "
                         "of %d",
                         (long long)least, n));
  return false;
}

bool arg_float(BuiltinCall *call, int i, double *out) {
  if (!expr_value_is_number(call->args[i])) {
    arg_wrong(call, i, "a number");
    return false;
  }
  *out = expr_value_to_double(call->args[i]);
  return true;
}

bool arg_bool(BuiltinCall *call, int i, bool *out) {
  if (call->args[i].kind != EXPR_VALUE_bool) {
    arg_wrong(call, i, "true or false");
    return false;
  }
  *out = call->args[i].boolean;
  return true;
}
