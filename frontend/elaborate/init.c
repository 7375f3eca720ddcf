/*
 * init.c -- initialisers of parameters and states: a number, or a
 * call from the table below.
 */
#include "frontend/internal.h"

#include <math.h>
#include <string.h>

/* clang-format off */
static const struct {
  const char *name, *formals;
  InitKind kind;
} rows[] = {
    {"zeros",          "",     INIT_zeros},
    {"ones",           "",     INIT_constant},
    {"normal",         "s",    INIT_normal},
    {"trunc_normal",   "s",    INIT_trunc_normal},
    {"uniform",        "a",    INIT_uniform},
    {"he_normal",      "n",    INIT_normal},
    {"he_uniform",     "n",    INIT_uniform},
    {"xavier_normal",  "n, m", INIT_normal},
    {"xavier_uniform", "n, m", INIT_uniform},
    {"orthogonal",     "D:dims", INIT_orthogonal},
    {"eye",            "",     INIT_eye},
};
/* clang-format on */

static int find_row(const char *name) {
  for (int i = 0; i < ARRAY_LENGTH(rows); i++)
    if (strcmp(rows[i].name, name) == 0) return i;
  return -1;
}

/* he_normal(n) = normal(sqrt(2 / n)) and so on. */
static double spread(const char *name, double n, double m) {
  double in = strncmp(name, "xavier_", 7) == 0 ? n + m : n;
  bool is_uniform = strstr(name, "_uniform") != NULL;
  if (strncmp(name, "he_", 3) && strncmp(name, "xavier_", 7)) return n;
  return sqrt((is_uniform ? 6 : 2) / in);
}

static bool unknown(Elab *e, const Expr *x, Name name, Span span) {
  const char *names[ARRAY_LENGTH(rows)];
  for (int i = 0; i < ARRAY_LENGTH(rows); i++) names[i] = rows[i].name;
  (void)x;
  Diag *d = diag(e->diags, DIAG_unknown_init, span, name);
  if (!foreign_help(d, FOREIGN_init, name))
    diag_choices(e->arena, d, name, names, ARRAY_LENGTH(rows));
  return false;
}

static bool take_numbers(BuiltinCall *call, int row, Init *out) {
  Elab *e = call->e;
  InitKind kind = rows[row].kind;
  const Builtin *formals = call->builtin;
  double args[2] = {1, 0};
  for (int i = 0; i < formals->n_formals; i++) {
    if (!arg_float(call, i, &args[i])) return false;
    if (!isfinite(args[i])) {
      arg_wrong(call, i, "finite");
      return false;
    }
    if (args[i] > 0 || (kind != INIT_constant && args[i] == 0 &&
                        strchr(rows[row].name, '_') == NULL))
      continue;
    diag(e->diags, DIAG_not_positive, call->exprs[i]->span,
         formals->formals[i].name, formals->name,
         expr_value_describe(e, call->args[i]));
    return false;
  }
  *out = (Init){
      kind, kind == INIT_zeros ? 0 : spread(rows[row].name, args[0], args[1])};
  return true;
}

/* The dims of `orthogonal`, as bits. */
static bool take_dims(BuiltinCall *call, const Type *type, Init *out) {
  const DimArg *dims = &call->dims[0];
  unsigned set = 0;
  for (int i = 0; i < dims->n; i++) {
    int d = type_find(type, dims->names[i]);
    if (d < 0) {
      diag(call->e->diags, DIAG_init_dim, dims->spans[i], dims->names[i],
           type_describe(call->e, type));
      return false;
    }
    set |= 1u << d;
  }
  *out = (Init){INIT_orthogonal, set};
  return true;
}

static bool init_of_row(Elab *e, const Expr *x, int row, const Type *type,
                        Init *out) {
  InitKind kind = rows[row].kind;
  Builtin formals = {.name = name_intern(e->names, rows[row].name)};
  builtin_parse_formals(e->names, rows[row].formals, &formals);
  BuiltinCall call = {.e = e, .builtin = &formals};
  if (x->kind != EXPR_call && formals.n_formals > 0) {
    Diag *d = diag(e->diags, DIAG_missing_argument, x->span,
                   formals.formals[0].name, formals.name);
    builtin_help_call(e, d, &formals);
    return false;
  }
  if (x->kind == EXPR_call && !builtin_match(e, x, &formals, &call))
    return false;
  bool is_plain = kind == INIT_zeros || kind == INIT_constant;
  if (dtype_class(type->dtype) != CLASS_FLOAT && !is_plain &&
      kind != INIT_eye) {
    diag(e->diags, DIAG_init_dtype, x->span, dtype_name(type->dtype),
         rows[row].name);
    return false;
  }
  if (kind == INIT_eye && type->rank != 2) {
    diag(e->diags, DIAG_init_eye, x->span, type_describe(e, type));
    return false;
  }
  return kind == INIT_orthogonal ? take_dims(&call, type, out)
                                 : take_numbers(&call, row, out);
}

bool elab_init(Elab *e, const Expr *x, const Type *type, Init *out) {
  const Expr *callee = x->kind == EXPR_call ? x->a : x;
  if (callee->kind == EXPR_name) {
    int row = find_row(callee->name);
    if (row >= 0) return init_of_row(e, x, row, type, out);
    bool is_known = x->kind == EXPR_call
                        ? map_has(e->program->builtins, callee->name)
                        : scope_has_value(e, callee->name);
    if (!is_known) return unknown(e, x, callee->name, callee->span);
  }
  ExprValue val = eval(e, x);
  if (expr_value_is_number(val) || val.kind == EXPR_VALUE_bool) {
    bool is_truth = type->dtype == DT_bool && val.kind == EXPR_VALUE_int &&
                    (val.integer | 1) == 1;
    if (!elab_fits(type->dtype, val) && !is_truth) {
      diag(e->diags, DIAG_init_dtype, x->span, dtype_name(type->dtype),
           expr_value_describe(e, val));
      return false;
    }
    double a = expr_value_to_double(val);
    *out = (Init){a == 0 ? INIT_zeros : INIT_constant, a};
    return true;
  }
  if (!expr_value_is_poison(val))
    diag(e->diags, DIAG_bad_init, x->span, expr_value_describe(e, val));
  return false;
}
