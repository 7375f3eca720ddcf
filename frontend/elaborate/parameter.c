/*
 * parameter.c -- the statements `param` and `state`: the declared type with
 * its sizes, and the graph input.
 */
#include "frontend/internal.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { STEPS_OF_PARAM = 20 }; /* for the memory that it takes */

/* ---- types ---- */

static bool find_dtype(Elab *e, const TypeExpr *type, DType *out) {
  *out = DT_f32;
  if (!type->dtype) return true;
  if (!elab_dtype(e, type->dtype, type->span, out)) return false;
  if (dtype_class(*out) != CLASS_FLOAT || dtype_is_rounded(*out) ||
      e->program->options->check_only)
    return true;
  elab_not_supported(e, type->span, type->dtype);
  return false;
}

static int64_t dim_size(Elab *e, const TypeDim *dim) {
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
  if (!find_dtype(e, type, &dtype) || !elab_dims_differ(e, type)) return NULL;
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
    int64_t size = dim_size(e, dim);
    is_good = is_good && size > 0;
    out->dims[i] = (Dim){.name = dim->name, .size = size};
  }
  if (!is_good) return NULL;
  if (!is_too_large(out)) return out;
  report_too_large(e, type, out);
  return NULL;
}

/* ---- parameters and states ---- */

static bool is_like_training(Elab *e, Role role, Name path, const Type *type,
                             Span span) {
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

static Role role_of(const Elab *e, const Stmt *stmt, const Type *type) {
  if (stmt->kind == STMT_param) return ROLE_param;
  bool is_lanes =
      e->has_lanes && e->batch_dim && type_find(type, e->batch_dim) >= 0;
  return is_lanes ? ROLE_batch_rows : ROLE_state;
}

/* A state may begin as infinity, as a running maximum does. */
static bool begins_finite(Elab *e, const Stmt *stmt, const Type *type,
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

static ExprValue new_param(Elab *e, const Stmt *stmt, const Name *place,
                           Name path, const Type *type, Span span) {
  Init init = {INIT_zeros, 0};
  if (stmt->value && (!elab_init(e, stmt->value, type, &init) ||
                      !begins_finite(e, stmt, type, init)))
    return POISON;
  Role role = role_of(e, stmt, type);
  if (!is_like_training(e, role, path, type, span)) return POISON;
  e->program->spent.steps += STEPS_OF_PARAM;
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

static ExprValue declared_twice(Elab *e, const Param *old, Name path,
                                Span span) {
  Diag *d = diag(e->diags, DIAG_param_twice, span, path);
  if (old->net == e->frame->net) {
    diag_note(d, old->span, "it is declared here already");
    return POISON;
  }
  diag_note(d, old->net->item->name_span, "net '%s' has it, too",
            old->net->item->name);
  diag_help(d, "a net adds nothing to the paths of its parameters; 'name = "
               "...' gives a call of a layer another path");
  return POISON;
}

/* A net that is called again has the parameters of the first call. */
static ExprValue declare(Elab *e, const Stmt *stmt, const Name *place,
                         Name path, const Type *type, Span span) {
  const Frame *frame = e->frame;
  if (!frame->net) {
    Diag *d = diag(e->diags, DIAG_param_outside, span, path);
    diag_help(d, "a loss and its metrics call layers without parameters");
    return POISON;
  }
  Param *old = map_get(e->params, path);
  if (!old) return new_param(e, stmt, place, path, type, span);
  bool is_again = old->place == place && old->net == frame->net &&
                  old->net_run != frame->net_run;
  if (!is_again || !type_equal(old->type, type))
    return declared_twice(e, old, path, span);
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
    Name path = scope_join(e, e->frame->prefix, name, e->frame->positions);
    ExprValue val =
        type ? declare(e, stmt, &stmt->names.names[i], path, type, span)
             : POISON;
    if (type) val = elab_typed(e, stmt->type, val);
    frame_set(e, name, val, span);
    Local *local = frame_local(e->frame, name);
    local->state_path = stmt->kind == STMT_state ? path : NULL;
    local->state_type = stmt->type;
    e->frame->has_states |= stmt->kind == STMT_state;
  }
}
