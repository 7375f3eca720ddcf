/*
 * match.c -- calls operators: matches arguments against formal parameters that
 * are written as text, and applies a call to each element of a list.
 *
 *     "x, w, D:dims, space:dims, stride = 1, pad = 0, dilate = 1"
 *
 * The calls of initialisers, optimizers, schedules and data sources are matched
 * by the same functions.
 */
#include "frontend/syntax/help.h"
#include "frontend/elaborate/emit.h"
#include "frontend/elaborate/eval.h"
#include "frontend/elaborate/match.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- formal parameters ---- */

static const char *skip_spaces(const char *at) {
  while (*at == ' ') at++;
  return at;
}

static const char *parse_param(Names *names, const char *at, Builtin *out) {
  ASSERT(out->n_params < MOST_FORMAL_PARAMS);
  size_t n = strcspn(at, " ,:=");
  int i = out->n_params++;
  out->params[i].name = name_intern_n(names, at, n);
  at = skip_spaces(at + n);
  if (*at == ':') {
    out->params[i].kind = at[1] == 'd' ? FORMAL_PARAM_dims : FORMAL_PARAM_late;
    at = skip_spaces(at + 5);
  }
  if (*at == '=') {
    at = skip_spaces(at + 1);
    out->params[i].init = at;
    out->params[i].init_n = strcspn(at, ",");
    at += out->params[i].init_n;
  }
  return *at == ',' ? skip_spaces(at + 1) : at;
}

void builtin_parse_params(Names *names, const char *text, Builtin *out) {
  while (*text) text = parse_param(names, text, out);
}

/* ---- matching ---- */

static int match_find_param(const Builtin *builtin, Name name) {
  for (int i = 0; i < builtin->n_params; i++)
    if (builtin->params[i].name == name) return i;
  return -1;
}

/* How it is called: conv(x, w, D, space, stride = 1, pad = 0, dilate = 1) */
void builtin_help_call(Elab *e, Diag *d, const Builtin *builtin) {
  Text text = text_create(e->arena);
  for (int i = 0; i < builtin->n_params; i++) {
    text_printf(&text, "%s%s", i ? ", " : "", builtin->params[i].name);
    const char *init = builtin->params[i].init;
    bool is_none = init && strncmp(init, "none", 4) == 0;
    if (init)
      text_printf(&text, " = %.*s", (int)builtin->params[i].init_n,
                  is_none ? "..." : init);
  }
  diag_help(d, "it is called as %s(%s)", builtin->name, text_string(&text));
}

static bool match_unknown_argument(Elab *e, const Builtin *builtin,
                                   const Arg *arg) {
  const char *names[MOST_FORMAL_PARAMS];
  for (int i = 0; i < builtin->n_params; i++)
    names[i] = builtin->params[i].name;
  Diag *d = diag(e->diags, DIAG_unknown_argument, arg->name_span, builtin->name,
                 arg->name);
  const char *nearest = text_nearest(arg->name, names, builtin->n_params);
  if (nearest)
    diag_help(d, "did you mean '%s'?", nearest);
  else if (!foreign_help(d, FOREIGN_argument, arg->name))
    builtin_help_call(e, d, builtin);
  return false;
}

/* Reports an expression that should be a dim; `builtin` takes it, or NULL. */
static void match_not_a_dim(Elab *e, const Expr *x, const Builtin *builtin) {
  Diag *d = diag(e->diags, DIAG_not_a_dim, x->span);
  bool is_max = builtin && strcmp(builtin->name, "max") == 0;
  if (is_max || (builtin && strcmp(builtin->name, "min") == 0))
    diag_help(d, "for two values, write %simum(a, b)", builtin->name);
  else if (builtin)
    builtin_help_call(e, d, builtin);
}

static bool match_read_dims(Elab *e, const Expr *x, const Builtin *builtin,
                            DimArg *out) {
  bool is_list = x->kind == EXPR_list;
  int n = is_list ? x->items.n : 1;
  *out = (DimArg){.n = n,
                  .names = ARENA_ARRAY(e->arena, Name, n),
                  .spans = ARENA_ARRAY(e->arena, Span, n)};
  for (int i = 0; i < n; i++) {
    const Expr *item = is_list ? x->items.data[i] : x;
    if (item->kind != EXPR_name) {
      match_not_a_dim(e, item, builtin);
      return false;
    }
    out->names[i] = item->name;
    out->spans[i] = item->span;
    for (int j = 0; j < i; j++)
      if (out->names[j] == item->name) {
        diag(e->diags, DIAG_dim_twice, item->span, item->name);
        return false;
      }
  }
  return true;
}

bool dim_arg_read(Elab *e, const Expr *x, DimArg *out) {
  return match_read_dims(e, x, NULL, out);
}

/* Likewise; n = -1 for 'all'. */
static bool match_dim_names(Elab *e, const Expr *x, const Builtin *builtin,
                            DimArg *out) {
  if (!match_read_dims(e, x, builtin, out)) return false;
  if (x->kind == EXPR_name && strcmp(x->name, "all") == 0) out->n = -1;
  return true;
}

static bool match_take_argument(BuiltinCall *call, const Arg *arg, int i) {
  Elab *e = call->e;
  call->exprs[i] = arg->value;
  if (call->builtin->params[i].kind == FORMAL_PARAM_dims)
    return match_dim_names(e, arg->value, call->builtin, &call->dims[i]);
  if (call->builtin->params[i].kind == FORMAL_PARAM_late) return true;
  call->args[i] = eval(e, arg->value);
  return !expr_value_is_poison(call->args[i]);
}

static ExprValue match_default_value(const BuiltinCall *call, int i) {
  const char *text = call->builtin->params[i].init;
  size_t n = call->builtin->params[i].init_n;
  if (*text == '-' || *text == 'i' || (*text >= '0' && *text <= '9')) {
    double value = strtod(text, NULL);
    bool is_int =
        !memchr(text, '.', n) && !memchr(text, 'e', n) && isfinite(value);
    return is_int ? expr_value_int((int64_t)value) : expr_value_float(value);
  }
  if (*text == '"')
    return (ExprValue){.kind = EXPR_VALUE_string,
                       .string =
                           name_intern_n(call->e->names, text + 1, n - 2)};
  if (strncmp(text, "true", n) == 0) return expr_value_bool(true);
  if (strncmp(text, "false", n) == 0) return expr_value_bool(false);
  if (strncmp(text, "none", n) == 0)
    return (ExprValue){.kind = EXPR_VALUE_none};
  for (int j = 0; j < i; j++)
    if (strncmp(text, call->builtin->params[j].name, n) == 0)
      return call->args[j];
  UNREACHABLE();
}

static bool match_fill_defaults(BuiltinCall *call) {
  const Builtin *builtin = call->builtin;
  for (int i = 0; i < builtin->n_params; i++) {
    if (call->exprs[i]) continue;
    if (!builtin->params[i].init) {
      Diag *d = diag(call->e->diags, DIAG_missing_argument, call->x->span,
                     builtin->params[i].name, builtin->name);
      builtin_help_call(call->e, d, builtin);
      return false;
    }
    if (builtin->params[i].kind == FORMAL_PARAM_dims) call->dims[i].n = -1;
    if (builtin->params[i].kind == FORMAL_PARAM_value)
      call->args[i] = match_default_value(call, i);
  }
  return true;
}

bool builtin_match(Elab *e, const Expr *x, const Builtin *builtin,
                   BuiltinCall *call) {
  *call = (BuiltinCall){.e = e, .builtin = builtin, .x = x};
  bool is_good = true, saw_named = false;
  for (int i = 0; i < x->args.n; i++) {
    const Arg *arg = &x->args.items[i];
    int at = arg->name ? match_find_param(builtin, arg->name) : i;
    if (arg->name && at < 0) return match_unknown_argument(e, builtin, arg);
    if (!arg->name && saw_named) {
      diag(e->diags, DIAG_positional_after_named, arg->span);
      return false;
    }
    saw_named = saw_named || arg->name;
    if (at >= builtin->n_params) {
      Diag *d =
          diag(e->diags, DIAG_too_many_arguments, arg->span, builtin->name,
               builtin->n_params, builtin->n_params == 1 ? "" : "s");
      if (builtin->n_params > 0) builtin_help_call(e, d, builtin);
      return false;
    }
    if (call->exprs[at]) {
      diag(e->diags, DIAG_argument_twice, arg->span, builtin->params[at].name);
      return false;
    }
    is_good = match_take_argument(call, arg, at) && is_good;
  }
  return is_good && match_fill_defaults(call);
}

/* ---- calls ---- */

static ExprValue call_map_lists(BuiltinCall *call) {
  Elab *e = call->e;
  int n = -1;
  for (int i = 0; i < call->builtin->n_mapped; i++) {
    if (call->args[i].kind != EXPR_VALUE_list) continue;
    if (n >= 0 && n != call->args[i].list->n) {
      diag(e->diags, DIAG_list_lengths, call->x->span, n,
           call->args[i].list->n);
      return POISON;
    }
    n = call->args[i].list->n;
  }
  if (n < 0) return call->builtin->function(call);
  ExprValue list = expr_value_list(e, n);
  for (int i = 0; i < n; i++) {
    BuiltinCall one = *call;
    for (int j = 0; j < call->builtin->n_mapped; j++)
      if (call->args[j].kind == EXPR_VALUE_list)
        one.args[j] = call->args[j].list->items[i];
    list.list->items[i] = call_map_lists(&one);
    if (expr_value_is_poison(list.list->items[i])) return POISON;
  }
  return expr_value_list_nested(e, list, call->x->span);
}

ExprValue builtin_call(Elab *e, const Expr *x, const Builtin *builtin) {
  BuiltinCall call;
  if (!builtin_match(e, x, builtin, &call)) return POISON;
  elab_at(e, x);
  return call_map_lists(&call);
}
