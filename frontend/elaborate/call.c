/*
 * call.c -- calls layers and nets: matches arguments to formal parameters,
 * renames generic dims on entry and back on return, and checks the declared
 * types.
 *
 *     layer linear[I -> O](x: [..., I]) -> [..., O]
 *     linear[P -> H1](x)      x: [B, P] is [B, I] inside; [B, O] is returned
 *                             and is [B, H1] outside
 */
#include "frontend/syntax/help.h"
#include "frontend/elaborate/emit.h"
#include "frontend/elaborate/eval.h"
#include "frontend/elaborate/frame.h"
#include "frontend/elaborate/match.h"
#include "frontend/elaborate/output.h"
#include "frontend/elaborate/reach.h"

#include <string.h>

enum { MOST_GENERICS = 12, CALL_STEPS = 20 };

typedef struct Generic {
  Name inside, outside;
  Span inside_span, outside_span;
} Generic;

typedef struct Call {
  const Callable *callable;
  const Expr *x; /* NULL: from a block */
  Span span;
  int n_args;
  ExprValue *args; /* one a formal parameter; EXPR_VALUE_none with !is_given:
                      default */
  bool *is_given;
  const Expr **exprs;
  int n_in, n_generics; /* those before the arrow first */
  Generic generics[2 * MOST_GENERICS];
} Call;

static Name call_name(const Call *call) {
  return call->callable->item->name;
}

/* ---- arguments ---- */

static int call_find_param(const FormalParamList *params, Name name) {
  for (int i = 0; i < params->n; i++)
    if (params->items[i].name == name) return i;
  return -1;
}

static bool call_unknown_argument(Elab *e, const Call *call, const Arg *arg) {
  const FormalParamList *params = &call->callable->item->params;
  const char **names = ARENA_ARRAY(e->arena, const char *, params->n);
  for (int i = 0; i < params->n; i++) names[i] = params->items[i].name;
  Diag *d = diag(e->diags, DIAG_unknown_argument, arg->name_span,
                 call_name(call), arg->name);
  if (strcmp(arg->name, "name") == 0 && !call->callable->is_net)
    diag_help(d, "the path of a call is a bare name, as in 'name = first'");
  else
    diag_choices(e->arena, d, arg->name, names, params->n);
  return false;
}

static bool place_argument(Elab *e, Call *call, const Arg *arg, int position,
                           int *out) {
  const FormalParamList *params = &call->callable->item->params;
  *out = arg->name ? call_find_param(params, arg->name) : position;
  if (arg->name && *out < 0) return call_unknown_argument(e, call, arg);
  if (*out >= params->n) {
    diag(e->diags, DIAG_too_many_arguments, arg->span, call_name(call),
         params->n, params->n == 1 ? "" : "s");
    return false;
  }
  if (call->is_given[*out]) {
    diag(e->diags, DIAG_argument_twice, arg->span, params->items[*out].name);
    return false;
  }
  return true;
}

static bool is_path_name(const Call *call, const Arg *arg) {
  return arg->name && !call->callable->is_net &&
         strcmp(arg->name, "name") == 0 && arg->value->kind == EXPR_name;
}

/* Evaluates in the caller, in the order of the text. */
static bool match_arguments(Elab *e, Call *call) {
  const FormalParamList *params = &call->callable->item->params;
  bool is_good = true, saw_named = false, saw_path = false;
  for (int i = 0, position = 0; i < call->x->args.n; i++) {
    const Arg *arg = &call->x->args.items[i];
    if (is_path_name(call, arg)) {
      if (saw_path) diag(e->diags, DIAG_argument_twice, arg->span, arg->name);
      is_good = is_good && !saw_path;
      saw_named = saw_path = true;
      continue;
    }
    int at;
    if (!arg->name && saw_named) {
      diag(e->diags, DIAG_positional_after_named, arg->span);
      return false;
    }
    saw_named = saw_named || arg->name;
    if (!place_argument(e, call, arg, position++, &at)) return false;
    call->args[at] = eval(e, arg->value);
    call->exprs[at] = arg->value;
    call->is_given[at] = true;
    is_good = is_good && !expr_value_is_poison(call->args[at]);
  }
  for (int i = 0; i < params->n; i++) {
    const FormalParam *param = &params->items[i];
    if (call->is_given[i] || param->init) continue;
    Diag *d = diag(e->diags, DIAG_missing_argument, call->x->span, param->name,
                   call_name(call));
    diag_note(d, param->span, "it is declared here");
    return false;
  }
  return is_good;
}

/* ---- generics ---- */

static bool names_dim(const Expr *x, Name dim) {
  if (x->kind == EXPR_name) return x->name == dim;
  for (int i = 0; x->kind == EXPR_list && i < x->items.n; i++)
    if (names_dim(x->items.data[i], dim)) return true;
  return false;
}

/* Returns whether some `dot` or `conv` of the expression names the dim. */
static bool is_contracted(const Expr *x, Name dim) {
  bool found = false;
  for (; x && !found; x = x->a) {
    bool is_product =
        x->kind == EXPR_call && x->a->kind == EXPR_name &&
        (strcmp(x->a->name, "dot") == 0 || strcmp(x->a->name, "conv") == 0);
    for (int i = 0; i < x->args.n; i++) {
      const Expr *arg = x->args.items[i].value;
      found = found || (is_product && i == 2 && names_dim(arg, dim)) ||
              is_contracted(arg, dim);
    }
    for (int i = 0; i < x->items.n; i++)
      found = found || is_contracted(x->items.data[i], dim);
    found = found || is_contracted(x->b, dim);
  }
  return found;
}

static bool body_contracts(const StmtList *body, Name dim) {
  for (int i = 0; i < body->n; i++) {
    const Stmt *stmt = body->data[i];
    if (is_contracted(stmt->value, dim) || body_contracts(&stmt->body, dim) ||
        body_contracts(&stmt->else_body, dim))
      return true;
  }
  return false;
}

static bool add_generic(Elab *e, Call *call, const Expr *name,
                        const NameList *inside, int i) {
  if (name->kind != EXPR_name) {
    diag(e->diags, DIAG_not_a_dim, name->span);
    return false;
  }
  if (i >= inside->n) return true; /* counted by the caller */
  call->generics[call->n_generics++] =
      (Generic){inside->names[i], name->name, inside->spans[i], name->span};
  return true;
}

static const char *generics_text(Elab *e, const Item *item) {
  Text text = text_create(e->arena);
  text_add(&text, "[");
  for (int i = 0; i < item->generics_in.n; i++)
    text_printf(&text, "%s%s", i ? ", " : "", item->generics_in.names[i]);
  for (int i = 0; i < item->generics_out.n; i++)
    text_printf(&text, "%s%s", i ? ", " : " -> ", item->generics_out.names[i]);
  text_add(&text, "]");
  return text_string(&text);
}

static bool wrong_generics(Elab *e, const Call *call, Span span) {
  const Item *item = call->callable->item;
  if (!item->has_generics) {
    diag(e->diags, DIAG_no_generics, span, item->name);
    return false;
  }
  Diag *d =
      diag(e->diags, DIAG_generics, span, item->name, generics_text(e, item));
  diag_note(d, item->name_span, "it is declared here");
  return false;
}

/* Subs of `f[S, C -> C]`: names, one rename at the arrow, names. */
static bool match_generics(Elab *e, Call *call) {
  const Item *item = call->callable->item;
  const Expr *callee = call->x ? call->x->a : NULL;
  bool has_subs = callee && callee->kind == EXPR_index;
  if (!has_subs && !item->has_generics) return true;
  if (!has_subs || !item->has_generics)
    return wrong_generics(e, call, call->span);
  const Expr *in[MOST_GENERICS], *out[MOST_GENERICS];
  int n_in = 0, n_out = 0;
  bool is_after = false, is_good = callee->subs.n < MOST_GENERICS;
  for (int i = 0; i < callee->subs.n && is_good; i++) {
    const Sub *sub = &callee->subs.data[i];
    is_good = sub->kind == SUB_value || (sub->kind == SUB_rename && !is_after);
    if (!is_good) break;
    if (sub->kind == SUB_rename) in[n_in++] = sub->from;
    is_after = is_after || sub->kind == SUB_rename;
    if (is_after)
      out[n_out++] = sub->to;
    else
      in[n_in++] = sub->to;
  }
  if (!is_good || n_in != item->generics_in.n || n_out != item->generics_out.n)
    return wrong_generics(e, call, callee->span);
  for (int i = 0; i < n_in; i++)
    if (!add_generic(e, call, in[i], &item->generics_in, i)) return false;
  call->n_in = call->n_generics;
  for (int i = 0; i < n_out; i++)
    if (!add_generic(e, call, out[i], &item->generics_out, i)) return false;
  return true;
}

/* The formal parameter whose type names the generic, to be named in a message.
 */
static int formal_with(const Call *call, Name dim) {
  const FormalParamList *params = &call->callable->item->params;
  for (int i = 0; i < params->n; i++) {
    const TypeExpr *type = params->items[i].type;
    for (int j = 0; type && j < type->n_dims; j++)
      if (type->dims[j].name == dim) return i;
  }
  return 0;
}

static void no_generic_dim(Elab *e, const Call *call, const Generic *g) {
  const Item *item = call->callable->item;
  int i = formal_with(call, g->inside);
  if (i >= item->params.n || !expr_value_is_tensor(call->args[i])) {
    diag(e->diags, DIAG_unknown_generic, g->outside_span, item->name,
         g->outside);
    return;
  }
  Diag *d = diag(e->diags, DIAG_argument_no_dim, g->outside_span,
                 item->params.items[i].name, item->name, g->outside,
                 type_describe(e, elab_type(e, call->args[i])));
  bool contracts = body_contracts(&item->body, g->inside);
  diag_note(d, g->inside_span, "'%s' %s it as '%s'", item->name,
            contracts ? "contracts" : "takes", g->inside);
}

/* Size of a caller's name in the arguments, 0 if none has it. */
static int64_t size_in_args(Elab *e, const ExprValue *args, int n, Name dim) {
  for (int i = 0; i < n; i++) {
    int64_t size = 0;
    if (args[i].kind == EXPR_VALUE_list)
      size = size_in_args(e, args[i].list->items, args[i].list->n, dim);
    else if (expr_value_is_tensor(args[i]) &&
             type_find(elab_type(e, args[i]), dim) >= 0)
      size = type_size(elab_type(e, args[i]), dim);
    if (size) return size;
  }
  return 0;
}

/* Sizes of the generics, computed at the caller. */
static bool size_generics(Elab *e, const Call *call, int64_t *sizes) {
  for (int i = 0; i < call->n_args; i++) expr_value_charge(e, call->args[i]);
  for (int i = 0; i < call->n_generics; i++) {
    const Generic *g = &call->generics[i];
    sizes[i] = i < call->n_in
                   ? size_in_args(e, call->args, call->n_args, g->outside)
                   : scope_need_size(e, g->outside, g->outside_span, false);
    if (sizes[i] == 0) no_generic_dim(e, call, g);
    if (sizes[i] <= 0) return false;
  }
  return true;
}

static const Name *renamed_order(Elab *e, const Name *order, int rank,
                                 const Name *from, const Name *to, int n) {
  Name *renamed = arena_copy(e->arena, order, sizeof(Name) * (size_t)rank);
  for (int i = 0; i < rank; i++)
    for (int j = 0; j < n; j++)
      if (order[i] == from[j]) renamed[i] = to[j];
  return renamed;
}

/* Renames several dims at once; false after a message. */
static bool call_rename_dims(Elab *e, const Call *call, ExprValue *val,
                             bool is_entry) {
  if (val->kind == EXPR_VALUE_list) {
    ExprValue list = expr_value_list(e, val->list->n);
    for (int i = 0; i < list.list->n; i++) {
      list.list->items[i] = val->list->items[i];
      if (!call_rename_dims(e, call, &list.list->items[i], is_entry))
        return false;
    }
    *val = expr_value_list_nested(e, list, call->span);
    return !expr_value_is_poison(*val);
  }
  if (!expr_value_is_tensor(*val)) return true;
  const Type *type = elab_type(e, *val);
  Name from[2 * MOST_GENERICS], to[2 * MOST_GENERICS], now[MAX_RANK];
  int n = 0;
  for (int i = 0; i < type->rank; i++) {
    now[i] = type->dims[i].name;
    for (int j = 0; j < (is_entry ? call->n_in : call->n_generics); j++) {
      const Generic *g = &call->generics[j];
      Name old = is_entry ? g->outside : g->inside;
      if (old != type->dims[i].name) continue;
      now[i] = is_entry ? g->inside : g->outside;
      if (now[i] != old) from[n] = old, to[n++] = now[i];
      break;
    }
    for (int j = 0; j < i; j++)
      if (now[j] == now[i]) {
        diag(e->diags,
             is_entry ? DIAG_generic_dim_twice : DIAG_result_dim_twice,
             call->span, call_name(call), type_describe(e, type), now[i]);
        return false;
      }
  }
  const Name *order = val->order;
  if (n > 0) *val = elab_rename(e, *val, from, to, n);
  if (n > 0 && order)
    val->order = renamed_order(e, order, type->rank, from, to, n);
  return !expr_value_is_poison(*val);
}

/* ---- types of formal parameters and results ---- */

static void call_note_size(Elab *e, Diag *d, Name name, int64_t size) {
  const Size *known = frame_size(e->frame, name);
  const Global *global = map_get(e->tree->globals, name);
  Span span = known ? known->span : global ? global->span : SPAN_NONE;
  if (span.source) diag_note(d, span, "%s is %lld here", name, (long long)size);
}

static bool call_check_size(Elab *e, const TypeDim *dim, int64_t has, Span span,
                            const char *what, Span place) {
  if (dim->size && dim->size->kind == EXPR_name &&
      !scope_has_value(e, dim->size->name)) {
    frame_add_size(e, (Size){dim->size->name, has, span, NULL, SPAN_NONE});
    return true;
  }
  int64_t wants;
  if (dim->size) {
    if (!eval_int(e, dim->size, &wants)) return false;
  } else {
    wants = scope_size(e, dim->name, dim->span);
    if (wants < 0) return false;
    if (wants == 0) {
      frame_add_size(e, (Size){dim->name, has, span, NULL, SPAN_NONE});
      return true;
    }
  }
  if (wants == has) return true;
  Diag *d = diag(e->diags, DIAG_wrong_size, place, what, dim->name,
                 (long long)has, (long long)wants);
  if (dim->size)
    diag_note(d, dim->span, "the type says so here");
  else
    call_note_size(e, d, dim->name, wants);
  if (!dim->size && !frame_size(e->frame, dim->name))
    diag_help(d,
              "without a size '%s' is the dim of the file; '%s:n' in the type "
              "takes any size",
              dim->name, dim->name);
  return false;
}

static bool call_check_dtype(Elab *e, const TypeExpr *type, const Type *has,
                             const char *what, Span place) {
  DType wants = DT_f32;
  if (type->dtype && !elab_dtype(e, type->dtype, type->span, &wants))
    return false;
  if (type->dtype ? elab_takes(wants, has->dtype)
                  : dtype_class(has->dtype) == CLASS_FLOAT)
    return true;
  Diag *d = diag(e->diags, DIAG_wrong_dtype, place, what,
                 type->dtype ? type->dtype : "float", dtype_name(has->dtype));
  diag_note(d, type->span, "the type says so here");
  return false;
}

/* A number or boolean is accepted as a scalar. */
static bool call_check_scalar(Elab *e, const TypeExpr *type, ExprValue val,
                              const char *what, Span place) {
  DType wants = DT_f32;
  if (type->dtype && !elab_dtype(e, type->dtype, type->span, &wants))
    return false;
  if (elab_fits(wants, val)) return true;
  Diag *d =
      diag(e->diags, DIAG_wrong_dtype, place, what,
           type->dtype ? type->dtype : "float", expr_value_describe(e, val));
  diag_note(d, type->span, "the type says so here");
  return false;
}

/* `what` names the value in messages: "'x' of 'attn'". */
static bool call_check_type(Elab *e, const TypeExpr *type, ExprValue val,
                            const char *what, Span place) {
  if ((expr_value_is_number(val) || val.kind == EXPR_VALUE_bool) &&
      type->n_dims == 0)
    return call_check_scalar(e, type, val, what, place);
  if (!expr_value_is_tensor(val)) {
    diag(e->diags, DIAG_wants_tensor, place, what, expr_value_describe(e, val));
    return false;
  }
  const Type *has = elab_type(e, val);
  if (!elab_dims_differ(e, type) ||
      !call_check_dtype(e, type, has, what, place))
    return false;
  bool is_open = false;
  int n_named = 0;
  for (int i = 0; i < type->n_dims; i++) {
    const TypeDim *dim = &type->dims[i];
    is_open = is_open || !dim->name;
    if (!dim->name) continue;
    n_named++;
    if (type_find(has, dim->name) < 0) {
      Diag *d = diag(e->diags, DIAG_value_no_dim, place, what, dim->name,
                     type_describe(e, has));
      diag_note(d, dim->span, "the type asks for it here");
      return false;
    }
    if (!call_check_size(e, dim, type_size(has, dim->name), place, what, place))
      return false;
  }
  if (is_open || n_named == has->rank) return true;
  for (int i = 0; i < has->rank; i++) {
    bool is_named = false;
    for (int j = 0; j < type->n_dims; j++)
      is_named = is_named || type->dims[j].name == has->dims[i].name;
    if (is_named) continue;
    Diag *d = diag(e->diags, DIAG_further_dim, place, what, has->dims[i].name,
                   type_describe(e, has));
    diag_note(d, type->span, "the type does not have it");
    diag_help(d, "'...' in the type allows any further dimensions");
    return false;
  }
  return true;
}

/* In the new frame, from left to right, so that a default may use what precedes
 * it. */
static bool bind_params(Elab *e, const Call *call) {
  const FormalParamList *params = &call->callable->item->params;
  for (int i = 0; i < params->n; i++) {
    const FormalParam *param = &params->items[i];
    ExprValue val = call->is_given[i] ? call->args[i] : eval(e, param->init);
    if (expr_value_is_poison(val)) return false;
    const Expr *expr = call->is_given[i] ? call->exprs[i] : param->init;
    Span place = expr      ? expr->span
                 : call->x ? call->span
                           : param->span; /* an input of the net itself */
    const char *what =
        arena_printf(e->arena, "'%s' of '%s'", param->name, call_name(call));
    if (param->type) {
      if (!call_check_type(e, param->type, val, what, place)) return false;
      val = elab_typed(e, param->type, val);
    }
    frame_set(e, param->name, val, place);
  }
  return true;
}

static bool type_declares(const TypeExpr *type, Name name) {
  for (int i = 0; i < type->n_dims; i++)
    if (type->dims[i].name == name) return true;
  return false;
}

/* The value in the dtype and with the order that a result declares; further
 * dims stand where `...` is, in the order that they had. */
static ExprValue call_declared(Elab *e, const TypeExpr *type, ExprValue val) {
  const Name *before = val.order;
  val = elab_typed(e, type, val);
  if (!expr_value_is_tensor(val)) return val;
  val.order = before;
  const Type *has = elab_ordered_type(e, val);
  Name *order = ARENA_ARRAY(e->arena, Name, has->rank);
  int n = 0;
  for (int i = 0; i < type->n_dims; i++) {
    Name name = type->dims[i].name;
    if (name) order[n++] = name;
    for (int j = 0; j < has->rank && !name; j++)
      if (!type_declares(type, has->dims[j].name))
        order[n++] = has->dims[j].name;
  }
  val.order = order;
  return val;
}

static bool call_check_result(Elab *e, const Call *call, ExprValue *result) {
  const TypeList *types = &call->callable->item->result;
  Span place = e->frame->result_span;
  const char *what =
      arena_printf(e->arena, "the result of '%s'", call_name(call));
  if (types->n == 0) return true;
  if (types->n == 1 && !types->is_list) {
    if (!call_check_type(e, types->data[0], *result, what, place)) return false;
    *result = call_declared(e, types->data[0], *result);
    return true;
  }
  if (result->kind != EXPR_VALUE_list || result->list->n != types->n) {
    diag(e->diags, DIAG_result_count, place, what, types->n,
         expr_value_describe(e, *result));
    return false;
  }
  for (int i = 0; i < types->n; i++) {
    ExprValue *item = &result->list->items[i];
    if (!call_check_type(e, types->data[i], *item, what, place)) return false;
    *item = call_declared(e, types->data[i], *item);
  }
  return true;
}

/* ---- the call ---- */

static void call_number_body(Elab *e, const Callable *callable) {
  if (callable->labels) return;
  ((Callable *)callable)->labels = number_item(e->tree, callable->item);
}

static ExprValue call_run_body(Elab *e, const Call *call) {
  const Item *item = call->callable->item;
  if (!bind_params(e, call)) return POISON;
  if (!exec_body(e, &item->body)) {
    if (!expr_value_is_poison(e->frame->result))
      diag(e->diags, DIAG_no_return, item->name_span, item->name);
    return POISON;
  }
  ExprValue result = e->frame->result;
  if (expr_value_is_poison(result) || !call_check_result(e, call, &result))
    return POISON;
  return result;
}

static bool is_too_deep(Elab *e, const Call *call) {
  int most = e->tree->budget.depth;
  if (e->depth < most) return false;
  if (!e->tree->is_over) {
    Diag *d = diag(e->diags, DIAG_too_deep, call->span, most, call_name(call));
    diag_help(d, "a recursion is ended by a compile-time 'if'");
  }
  e->tree->is_over = true;
  return true;
}

/* The arguments are evaluated and the generics matched. */
static ExprValue call_run(Elab *e, Call *call, Name prefix) {
  int64_t sizes[2 * MOST_GENERICS];
  if (is_too_deep(e, call) || !size_generics(e, call, sizes)) return POISON;
  e->tree->spent.steps += CALL_STEPS;
  e->graph->span = call->span;
  e->graph->path = prefix;
  for (int i = 0; i < call->n_args; i++)
    if (!call_rename_dims(e, call, &call->args[i], true)) return POISON;
  call_number_body(e, call->callable);
  bool is_frozen =
      elab_annotations(e, &call->callable->item->annotations, false);
  e->n_frozen += is_frozen;
  frame_push(e, call->callable, prefix);
  for (int i = 0; i < call->n_generics; i++) {
    const Generic *g = &call->generics[i];
    frame_add_size(e, (Size){g->inside, sizes[i], g->outside_span, g->outside,
                             g->outside_span});
  }
  int first_node = e->graph->nodes.n;
  ExprValue result = call_run_body(e, call);
  frame_pop(e);
  e->n_frozen -= is_frozen;
  elab_note_pins(e, &call->callable->item->annotations, NULL, first_node);
  e->graph->span = call->span;
  e->graph->path = prefix;
  if (!call_rename_dims(e, call, &result, false)) return POISON;
  predict_note_call(e, prefix, result);
  return result;
}

static Call call_create(Elab *e, const Callable *callable, const Expr *x) {
  int n = callable->item->params.n;
  return (Call){.callable = callable,
                .x = x,
                .span = x ? x->span : callable->item->name_span,
                .n_args = n,
                .args = ARENA_ARRAY(e->arena, ExprValue, n),
                .is_given = ARENA_ARRAY(e->arena, bool, n),
                .exprs = ARENA_ARRAY(e->arena, const Expr *, n)};
}

static ExprValue call_layer(Elab *e, const Expr *x, const Callable *layer) {
  Call call = call_create(e, layer, x);
  bool is_good = match_arguments(e, &call);
  if (!match_generics(e, &call) || !is_good) return POISON;
  return call_run(e, &call, scope_path(e, x, layer->item->name));
}

/* Returns equal nodes for equal arguments: loss and metrics share one net. */
static ExprValue run_net(Elab *e, Call *call) {
  if (!e->first_net) e->first_net = call->callable;
  for (int i = 0; i < e->net_calls.n; i++) {
    const NetCall *old = &e->net_calls.data[i];
    bool is_same = old->net == call->callable;
    for (int j = 0; j < call->n_args && is_same; j++)
      is_same = expr_value_equal(old->args[j], call->args[j]);
    if (is_same) return old->result;
  }
  const ExprValue *args = arena_copy(e->arena, call->args,
                                     sizeof(ExprValue) * (size_t)call->n_args);
  ExprValue result = call_run(e, call, name_intern(e->names, ""));
  reach_warn(e, call->callable, args, call->n_args, result);
  vec_push(e->arena, &e->net_calls,
           (NetCall){call->callable, args, call->n_args, result});
  return result;
}

ExprValue elab_net(Elab *e, Callable *net, const ExprValue *args, int n,
                   Span span) {
  Call call = call_create(e, net, NULL);
  call.span = span;
  ASSERT(n <= call.n_args);
  for (int i = 0; i < n; i++) {
    call.args[i] = args[i];
    call.is_given[i] = true;
  }
  return run_net(e, &call);
}

static ExprValue call_net(Elab *e, const Expr *x, const Callable *net) {
  Call call = call_create(e, net, x);
  bool is_good = match_arguments(e, &call);
  if (!match_generics(e, &call) || !is_good) return POISON;
  return run_net(e, &call);
}

static ExprValue unknown_callee(Elab *e, const Expr *callee) {
  const SourceTree *p = e->tree;
  if (p->lacks_import) return POISON;
  VEC(const char *) names = {0};
  const Map *maps[] = {p->layers, p->nets, p->builtins};
  for (int i = 0; i < ARRAY_LENGTH(maps); i++)
    for (int j = 0; j < map_size(maps[i]); j++)
      vec_push(e->arena, &names, map_key_at(maps[i], j));
  Diag *d = diag(e->diags, DIAG_unknown_call, callee->span, callee->name);
  if (!foreign_help(d, FOREIGN_call, callee->name))
    diag_suggest(d, callee->name, names.data, names.n);
  return POISON;
}

ExprValue eval_call(Elab *e, const Expr *x) {
  const Expr *callee = x->a->kind == EXPR_index ? x->a->a : x->a;
  if (callee->kind != EXPR_name) {
    Diag *d = diag(e->diags, DIAG_not_callable, x->a->span);
    while (callee->kind == EXPR_call) callee = callee->a; /* nn.Linear(3)(x) */
    if (!callee->name) return POISON;
    if (map_has(e->tree->builtins, callee->name) ||
        map_has(e->tree->layers, callee->name))
      diag_help(d, "write '%s(x)' for 'x.%s()'", callee->name, callee->name);
    else
      foreign_help(d, FOREIGN_call, callee->name);
    return POISON;
  }
  const Callable *layer = map_get(e->tree->layers, callee->name);
  if (layer) return call_layer(e, x, layer);
  const Callable *net = map_get(e->tree->nets, callee->name);
  if (net) return call_net(e, x, net);
  const Builtin *builtin = map_get(e->tree->builtins, callee->name);
  if (!builtin) return unknown_callee(e, callee);
  if (x->a->kind == EXPR_index) {
    diag(e->diags, DIAG_no_generics, x->a->span, callee->name);
    return POISON;
  }
  return builtin_call(e, x, builtin);
}
