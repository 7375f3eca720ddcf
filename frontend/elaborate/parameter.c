/*
 * parameter.c -- executes `param` and `state` statements: computes the declared
 * type and the initial value, and makes the graph input.
 */
#include "frontend/syntax/help.h"
#include "frontend/elaborate/emit.h"
#include "frontend/elaborate/eval.h"
#include "frontend/elaborate/frame.h"
#include "frontend/elaborate/match.h"
#include "frontend/elaborate/scan.h"
#include "frontend/elaborate/state.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { STEPS_OF_PARAM = 20 }; /* since it takes memory */

/* ---- types ---- */

static bool type_expr_dtype(Elab *e, const TypeExpr *type, DType *out) {
  *out = DT_f32;
  if (!type->dtype) return true;
  if (!elab_dtype(e, type->dtype, type->span, out)) return false;
  if (dtype_class(*out) != CLASS_FLOAT || dtype_is_rounded(*out) ||
      e->tree->options->check_only)
    return true;
  elab_not_supported(e, type->span, type->dtype);
  return false;
}

static int64_t type_expr_dim_size(Elab *e, const TypeDim *dim) {
  if (!dim->size) return scope_need_size(e, dim->name, dim->span, true);
  int64_t size;
  if (!eval_int(e, dim->size, &size)) return -1;
  if (size > 0) return size;
  diag(e->diags, DIAG_bad_size, dim->size->span, dim->name,
       expr_value_describe(e, expr_value_int(size)));
  return -1;
}

bool elab_dims_differ(Elab *e, const TypeExpr *type) {
  for (int i = 0; i < type->n_dims; i++) {
    const TypeDim *dim = &type->dims[i];
    for (int j = 0; j < i; j++)
      if (type->dims[j].name == dim->name) {
        diag(e->diags, DIAG_dim_twice, dim->span,
             dim->name ? dim->name : "...");
        return false;
      }
  }
  return true;
}

/* More elements than a double counts exactly. */
#define MOST_ELEMENTS (INT64_C(1) << 53)

static bool is_too_large(const Type *type) {
  int64_t elements = 1;
  for (int i = 0; i < type->rank; i++)
    if (__builtin_mul_overflow(elements, type->dims[i].size, &elements) ||
        elements > MOST_ELEMENTS)
      return true;
  return false;
}

static void report_too_large(Elab *e, const TypeExpr *type, const Type *out) {
  Text sizes = text_create(e->arena);
  for (int i = 0; i < out->rank; i++)
    text_printf(&sizes, "%s%s = %lld", i ? ", " : "", out->dims[i].name,
                (long long)out->dims[i].size);
  Diag *d = diag(e->diags, DIAG_too_large, type->span, type_describe(e, out));
  diag_help(d, "with %s it has more than 2^53 elements", text_string(&sizes));
}

const Type *elab_type_expr(Elab *e, const TypeExpr *type) {
  DType dtype;
  if (!type_expr_dtype(e, type, &dtype) || !elab_dims_differ(e, type))
    return NULL;
  if (type->n_dims > MAX_RANK) {
    diag(e->diags, DIAG_too_many_dims, type->span, type->n_dims, MAX_RANK);
    return NULL;
  }
  Type *out = type_create(e->arena, dtype, type->n_dims);
  bool is_good = true;
  for (int i = 0; i < type->n_dims; i++) {
    const TypeDim *dim = &type->dims[i];
    if (!dim->name) {
      diag(e->diags, DIAG_open_type, dim->span);
      return NULL;
    }
    int64_t size = type_expr_dim_size(e, dim);
    is_good = is_good && size > 0;
    out->dims[i] = (Dim){.name = dim->name, .size = size};
  }
  if (!is_good) return NULL;
  if (!is_too_large(out)) return out;
  report_too_large(e, type, out);
  return NULL;
}

/* ---- initial values: a number, or a call from the table ---- */

/* clang-format off */
static const struct {
  const char *name, *params;
  InitKind kind;
} init_rows[] = {
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

static int init_find(const char *name) {
  for (int i = 0; i < ARRAY_LENGTH(init_rows); i++)
    if (strcmp(init_rows[i].name, name) == 0) return i;
  return -1;
}

/* he_normal(n) = normal(sqrt(2 / n)) and so on. */
static double init_spread(const char *name, double n, double m) {
  double in = strncmp(name, "xavier_", 7) == 0 ? n + m : n;
  bool is_uniform = strstr(name, "_uniform") != NULL;
  if (strncmp(name, "he_", 3) && strncmp(name, "xavier_", 7)) return n;
  return sqrt((is_uniform ? 6 : 2) / in);
}

static bool unknown_init(Elab *e, const Expr *x, Name name, Span span) {
  const char *names[ARRAY_LENGTH(init_rows)];
  for (int i = 0; i < ARRAY_LENGTH(init_rows); i++)
    names[i] = init_rows[i].name;
  (void)x;
  Diag *d = diag(e->diags, DIAG_unknown_init, span, name);
  if (!foreign_help(d, FOREIGN_init, name))
    diag_choices(e->arena, d, name, names, ARRAY_LENGTH(init_rows));
  return false;
}

static bool init_take_numbers(BuiltinCall *call, int row, Init *out) {
  Elab *e = call->e;
  InitKind kind = init_rows[row].kind;
  const Builtin *signature = call->builtin;
  double args[2] = {1, 0};
  for (int i = 0; i < signature->n_params; i++) {
    if (!arg_float(call, i, &args[i])) return false;
    if (!isfinite(args[i])) {
      arg_wrong(call, i, "finite");
      return false;
    }
    if (args[i] > 0 || (kind != INIT_constant && args[i] == 0 &&
                        strchr(init_rows[row].name, '_') == NULL))
      continue;
    diag(e->diags, DIAG_not_positive, call->exprs[i]->span,
         signature->params[i].name, signature->name,
         expr_value_describe(e, call->args[i]));
    return false;
  }
  *out = (Init){kind, kind == INIT_zeros
                          ? 0
                          : init_spread(init_rows[row].name, args[0], args[1])};
  return true;
}

/* The dims of `orthogonal`, as bits. */
static bool init_take_dims(BuiltinCall *call, const Type *type, Init *out) {
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
  InitKind kind = init_rows[row].kind;
  Builtin signature = {.name = name_intern(e->names, init_rows[row].name)};
  builtin_parse_params(e->names, init_rows[row].params, &signature);
  BuiltinCall call = {.e = e, .builtin = &signature};
  if (x->kind != EXPR_call && signature.n_params > 0) {
    Diag *d = diag(e->diags, DIAG_missing_argument, x->span,
                   signature.params[0].name, signature.name);
    builtin_help_call(e, d, &signature);
    return false;
  }
  if (x->kind == EXPR_call && !builtin_match(e, x, &signature, &call))
    return false;
  bool is_plain = kind == INIT_zeros || kind == INIT_constant;
  if (dtype_class(type->dtype) != CLASS_FLOAT && !is_plain &&
      kind != INIT_eye) {
    diag(e->diags, DIAG_init_dtype, x->span, dtype_name(type->dtype),
         init_rows[row].name);
    return false;
  }
  if (kind == INIT_eye && type->rank != 2) {
    diag(e->diags, DIAG_init_eye, x->span, type_describe(e, type));
    return false;
  }
  return kind == INIT_orthogonal ? init_take_dims(&call, type, out)
                                 : init_take_numbers(&call, row, out);
}

static bool read_init(Elab *e, const Expr *x, const Type *type, Init *out) {
  const Expr *callee = x->kind == EXPR_call ? x->a : x;
  if (callee->kind == EXPR_name) {
    int row = init_find(callee->name);
    if (row >= 0) return init_of_row(e, x, row, type, out);
    bool is_known = x->kind == EXPR_call
                        ? map_has(e->tree->builtins, callee->name)
                        : scope_has_value(e, callee->name);
    if (!is_known) return unknown_init(e, x, callee->name, callee->span);
  }
  ExprValue val = eval(e, x);
  if (expr_value_is_number(val) || val.kind == EXPR_VALUE_bool) {
    bool is_bool = type->dtype == DT_bool && val.kind == EXPR_VALUE_int &&
                   (val.integer | 1) == 1;
    if (!elab_fits(type->dtype, val) && !is_bool) {
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

/* ---- parameters and states ---- */

static bool param_is_like_training(Elab *e, Role role, Name path,
                                   const Type *type, Span span) {
  if (!e->reference) return true;
  const Param *trained = map_get(e->reference->params, path);
  const Type *a = trained ? trained->type : NULL, *b = type;
  if (trained && role == ROLE_batch_rows && type_find(a, e->batch_dim) >= 0) {
    a = type_without(e->arena, a, &e->batch_dim, 1);
    b = type_without(e->arena, b, &e->batch_dim, 1);
  }
  if (trained && type_equal(a, b)) return true;
  if (trained)
    diag(e->diags, DIAG_param_changes, span, path);
  else
    diag(e->diags, DIAG_param_not_trained, span, path);
  return false;
}

static Role param_role(const Elab *e, const Stmt *stmt, const Type *type) {
  if (stmt->kind == STMT_param) return ROLE_param;
  bool is_batch_rows =
      e->has_batch_rows && e->batch_dim && type_find(type, e->batch_dim) >= 0;
  return is_batch_rows ? ROLE_batch_rows : ROLE_state;
}

/* A state may begin as infinity, as a running maximum does. */
static bool param_begins_finite(Elab *e, const Stmt *stmt, const Type *type,
                                Init init) {
  double most = type->dtype == DT_f16 ? 65504 : FLT_MAX;
  bool is_state = stmt->kind == STMT_state;
  bool is_infinity = init.kind == INIT_constant && isinf(init.a);
  if (dtype_class(type->dtype) != CLASS_FLOAT || fabs(init.a) <= most ||
      (is_state && is_infinity))
    return true;
  Diag *d = diag(e->diags, DIAG_init_finite, stmt->value->span,
                 is_state ? "state" : "parameter", dtype_name(type->dtype),
                 expr_value_describe(e, expr_value_float(init.a)));
  diag_help(d, "the largest finite %s is %.5g", dtype_name(type->dtype), most);
  return false;
}

static ExprValue param_create(Elab *e, const Stmt *stmt, const Name *place,
                              Name path, const Type *type, Span span) {
  Init init = {INIT_zeros, 0};
  if (stmt->value && (!read_init(e, stmt->value, type, &init) ||
                      !param_begins_finite(e, stmt, type, init)))
    return POISON;
  Role role = param_role(e, stmt, type);
  if (!param_is_like_training(e, role, path, type, span)) return POISON;
  e->tree->spent.steps += STEPS_OF_PARAM;
  e->graph->span = span;
  e->graph->path = path;
  ExprValue val =
      expr_value_tensor(graph_input(e->graph, role, path, type), false);
  GraphInput *input = &e->graph->inputs.data[e->graph->inputs.n - 1];
  input->init = init;
  input->is_frozen = e->n_frozen > 0 && role == ROLE_param;
  Param *param = ARENA_NEW(e->arena, Param);
  *param = (Param){place,
                   span,
                   type,
                   val,
                   e->frame->net,
                   e->frame->net_run,
                   scope_stands_for(e, type)};
  map_put(e->params, path, param);
  return val;
}

static ExprValue param_twice(Elab *e, const Param *old, Name path, Span span) {
  Diag *d = diag(e->diags, DIAG_param_twice, span, path);
  if (old->net == e->frame->net) {
    diag_note(d, old->span, "it is declared here already");
    return POISON;
  }
  diag_note(d, old->net->item->name_span, "net '%s' declares it too",
            old->net->item->name);
  diag_help(d, "a net adds nothing to the paths of its parameters; 'name = "
               "...' gives a call of a layer another path");
  return POISON;
}

/* A net that is called again has the parameters of the first call. */
static ExprValue param_declare(Elab *e, const Stmt *stmt, const Name *place,
                               Name path, const Type *type, Span span) {
  const Frame *frame = e->frame;
  if (!frame->net) {
    Diag *d = diag(e->diags, DIAG_param_outside, span, path);
    diag_help(d, "a loss and its metrics call layers without parameters");
    return POISON;
  }
  Param *old = map_get(e->params, path);
  if (!old) return param_create(e, stmt, place, path, type, span);
  bool is_again = old->place == place && old->net == frame->net &&
                  old->net_run != frame->net_run;
  if (!is_again || !type_equal(old->type, type))
    return param_twice(e, old, path, span);
  old->net_run = frame->net_run;
  return state_value(e, path, old->val);
}

static const Type *param_type(Elab *e, const Stmt *stmt) {
  bool is_param = stmt->kind == STMT_param;
  if (scan_forbids(e, stmt->span, is_param ? "'param'" : "'state'"))
    return NULL;
  const Type *type = elab_type_expr(e, stmt->type);
  if (!type || !is_param || dtype_class(type->dtype) == CLASS_FLOAT)
    return type;
  Diag *d = diag(e->diags, DIAG_param_dtype, stmt->type->span,
                 dtype_name(type->dtype));
  diag_help(d, "a 'state' keeps integers and booleans");
  return NULL;
}

void exec_param(Elab *e, const Stmt *stmt) {
  const Type *type = param_type(e, stmt);
  for (int i = 0; i < stmt->names.n; i++) {
    Name name = stmt->names.names[i];
    Span span = stmt->names.spans[i];
    Name path = scope_join(e, e->frame->prefix, name, e->frame->indices);
    ExprValue val =
        type ? param_declare(e, stmt, &stmt->names.names[i], path, type, span)
             : POISON;
    if (type) val = elab_typed(e, stmt->type, val);
    frame_set(e, name, val, span);
    Local *local = frame_local(e->frame, name);
    local->state_path = stmt->kind == STMT_state ? path : NULL;
    local->state_type = stmt->type;
    e->frame->has_states |= stmt->kind == STMT_state;
  }
}
