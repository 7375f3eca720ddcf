/*
 * scope.c -- resolves names: a local of the layer, the size of one of its dims,
 * a dim or const of the file, a field of data.
 */
#include "frontend/syntax/help.h"
#include "frontend/elaborate/emit.h"
#include "frontend/elaborate/eval.h"
#include "frontend/elaborate/frame.h"

#include <math.h>
#include <string.h>

/* ---- dims and consts of the file ---- */

static ExprValue check_dim(Elab *e, const Global *global, ExprValue val) {
  if (expr_value_is_poison(val)) return val;
  ExprValue whole = expr_value_whole(val);
  if (whole.kind == EXPR_VALUE_int && whole.integer > 0) return whole;
  diag(e->diags, DIAG_bad_size, global->value->span, global->name,
       expr_value_describe(e, val));
  return POISON;
}

static ExprValue check_const(Elab *e, const Global *global, ExprValue val) {
  if (expr_value_is_tensor(val)) {
    diag(e->diags, DIAG_const_tensor, global->value->span, global->name);
    return POISON;
  }
  if (global->is_number_bool && val.kind == EXPR_VALUE_int &&
      (val.integer | 1) == 1)
    return expr_value_bool(val.integer == 1);
  return val;
}

static ExprValue compute_global(Elab *e, Global *global) {
  if (global->is_dim && e->batch && global->name == e->batch_dim)
    return expr_value_int(e->batch);
  if (!global->value) {
    Diag *d = diag(e->diags, DIAG_dim_without_size, global->span, global->name);
    diag_help(d, "give it on the command line, as in %s=32", global->name);
    return POISON;
  }
  frame_push(e, NULL, e->frame ? e->frame->prefix : name_intern(e->names, ""));
  ExprValue val = eval(e, global->value);
  frame_pop(e);
  return global->is_dim ? check_dim(e, global, val)
                        : check_const(e, global, val);
}

ExprValue global_value(Elab *e, Global *global, Span use) {
  if (global->epoch == e->epoch) return global->val;
  if (global->is_busy) {
    Diag *d = diag(e->diags, DIAG_dim_cycle, global->span, global->name);
    diag_note(d, use, "it is needed again here");
    return POISON;
  }
  global->is_busy = true;
  const Expr *at = e->at;
  ExprValue val = compute_global(e, global);
  if (at) elab_at(e, at);
  global->is_busy = false;
  global->epoch = e->epoch;
  global->val = val;
  return val;
}

int64_t scope_size(Elab *e, Name name, Span use) {
  const Size *size = frame_size(e->frame, name);
  if (size) return size->size;
  Global *global = map_get(e->tree->globals, name);
  if (!global || !global->is_dim) return 0;
  ExprValue val = global_value(e, global, use);
  return val.kind == EXPR_VALUE_int ? val.integer : -1;
}

/* Returns whether the name was reported in this layer before. */
static bool was_reported(Elab *e, Name name) {
  for (int i = 0; i < e->frame->unsized.n; i++)
    if (e->frame->unsized.data[i] == name) return true;
  vec_push(e->arena, &e->frame->unsized, name);
  return false;
}

int64_t scope_need_size(Elab *e, Name name, Span use, bool in_type) {
  int64_t size = scope_size(e, name, use);
  if (size) return size;
  if (e->tree->lacks_import || was_reported(e, name)) return -1;
  Diag *d = diag(e->diags, DIAG_no_size, use, name);
  if (!in_type) {
    diag_help(d, "declare it with 'dim %s = ...'", name);
  } else if (map_has(e->tree->globals, name)) {
    diag_help(d, "'%s' is a const; write the size as %s:%s", name, name, name);
  } else if (frame_local(e->frame, name)) {
    diag_help(d, "write the size of '%s' after a colon, as in %s:64", name,
              name);
  } else {
    diag_help(d,
              "declare it with 'dim %s = ...' or write the size as in "
              "%s:64",
              name, name);
  }
  return -1;
}

/* ---- fields of data ---- */

static const DataDecl *scope_find_data(const SourceTree *tree, Name name) {
  for (int i = 0; i < tree->data.n; i++)
    if (tree->data.data[i].name == name) return &tree->data.data[i];
  return NULL;
}

/* One with a type, or NULL. */
static const FieldDecl *scope_find_field(const DataDecl *block, Name name) {
  for (int i = 0; i < block->fields.n; i++)
    if (block->fields.data[i].type && block->fields.data[i].name == name)
      return &block->fields.data[i];
  return NULL;
}

void scope_unnamed_data(Elab *e, Span span) {
  Diag *d = diag(e->diags, DIAG_data_without_name, span);
  diag_help(d, "as in 'data text { ... }', whose fields are text.x and so on");
}

static void unknown_data(Elab *e, const Expr *x) {
  if (map_has(e->data, x->name))
    return; /* reported already: a path of a field has a dot */
  map_put(e->data, x->name, ARENA_NEW(e->arena, ExprValue));
  const SourceTree *tree = e->tree;
  VEC(const char *) names = {0};
  for (int i = 0; i < tree->data.n; i++) {
    const DataDecl *block = &tree->data.data[i];
    if (!block->name) { /* the unknown name is probably its name */
      scope_unnamed_data(e, block->span);
      return;
    }
    vec_push(e->arena, &names, block->name);
  }
  for (int i = 0; i < tree->lost_blocks.n; i++)
    if (tree->lost_blocks.data[i] == x->name) return;
  Diag *d = diag(e->diags, DIAG_unknown_data, x->span, x->name);
  diag_suggest(d, x->name, names.data, names.n);
}

static void unknown_field(Elab *e, const DataDecl *block, const Expr *x) {
  VEC(const char *) names = {0};
  for (int i = 0; i < block->fields.n; i++) {
    const FieldDecl *field = &block->fields.data[i];
    if (field->type) vec_push(e->arena, &names, field->name);
    if (field->type || field->name != x->name) continue;
    Diag *d =
        diag(e->diags, DIAG_unknown_setting, field->span, "data", field->name);
    diag_help(d, "%s", field->help);
    return; /* the field exists, only its type is missing */
  }
  Diag *d =
      diag(e->diags, DIAG_unknown_field, x->op_span, block->name, x->name);
  diag_choices(e->arena, d, x->name, names.data, names.n);
}

/* The field that was meant where its block is not named. */
static void suggest_field(const Elab *e, Diag *d, Name name) {
  for (int i = 0; i < e->tree->data.n; i++) {
    const DataDecl *block = &e->tree->data.data[i];
    if (block->name && scope_find_field(block, name))
      diag_help(d, "did you mean '%s.%s'?", block->name, name);
  }
}

static void not_a_field(Elab *e, const Expr *x) {
  Diag *d = diag(e->diags, DIAG_not_a_value, x->span, "a path");
  bool is_local = x->a->kind == EXPR_name && frame_local(e->frame, x->a->name);
  if (e->frame->callable && !foreign_help(d, FOREIGN_call, x->name) &&
      !is_local)
    diag_help(d, "data is an argument of the net, given in 'train'");
}

ExprValue scope_field(Elab *e, const Expr *x) {
  if (x->a->kind != EXPR_name || e->frame->callable)
    return not_a_field(e, x), POISON;
  const DataDecl *block = scope_find_data(e->tree, x->a->name);
  if (!block) return unknown_data(e, x->a), POISON;
  const FieldDecl *field = scope_find_field(block, x->name);
  if (!field) return unknown_field(e, block, x), POISON;
  ExprValue *known = map_get(e->data, field->path);
  if (known) return *known;
  const Type *type = elab_type_expr(e, field->type);
  ExprValue *val = ARENA_NEW(e->arena, ExprValue);
  if (type) {
    e->graph->span = field->span;
    e->graph->path = field->path;
    Value input = graph_input(e->graph, ROLE_data, field->path, type);
    *val = expr_value_tensor(input, false);
  }
  map_put(e->data, field->path, val);
  return *val;
}

/* ---- values ---- */

static bool scope_predefined(Name name, bool is_training, ExprValue *out) {
  switch (name[0]) {
  case 't':
    if (strcmp(name, "true") == 0) return *out = expr_value_bool(true), true;
    if (strcmp(name, "training") == 0)
      return *out = expr_value_bool(is_training), true;
    return false;
  case 'f': return *out = expr_value_bool(false), strcmp(name, "false") == 0;
  case 'n':
    return *out = (ExprValue){.kind = EXPR_VALUE_none},
           strcmp(name, "none") == 0;
  case 'i': return *out = expr_value_float(INFINITY), strcmp(name, "inf") == 0;
  default: return false;
  }
}

bool scope_is_predefined(Name name) {
  ExprValue val;
  return scope_predefined(name, false, &val);
}

bool scope_has_value(Elab *e, Name name) {
  return scope_is_predefined(name) || frame_local(e->frame, name) ||
         frame_size(e->frame, name) || map_has(e->tree->globals, name);
}

static void suggest_value(Elab *e, Diag *d, const Expr *x) {
  const Frame *frame = e->frame;
  VEC(const char *) names = {0};
  for (int i = 0; i < frame->locals.n; i++)
    if (!frame->locals.data[i].is_unknown)
      vec_push(e->arena, &names, frame->locals.data[i].name);
  for (int i = 0; i < frame->sizes.n; i++)
    vec_push(e->arena, &names, frame->sizes.data[i].name);
  for (int i = 0; i < map_size(e->tree->globals); i++)
    vec_push(e->arena, &names, map_key_at(e->tree->globals, i));
  vec_push(e->arena, &names, "true");
  vec_push(e->arena, &names, "false");
  vec_push(e->arena, &names, "none");
  vec_push(e->arena, &names, "training");
  diag_suggest(d, x->name, names.data, names.n);
  if (map_has(e->tree->layers, x->name) || map_has(e->tree->nets, x->name) ||
      map_has(e->tree->builtins, x->name))
    diag_help(d, "'%s' is called, as in %s(x)", x->name, x->name);
}

/* A dim of some local that has no size of its own in scope. */
static void help_size_of(Elab *e, Diag *d, Name dim) {
  for (int i = 0; i < e->frame->locals.n; i++) {
    const Local *local = &e->frame->locals.data[i];
    if (!expr_value_is_tensor(local->val)) continue;
    if (type_find(elab_type(e, local->val), dim) < 0) continue;
    diag_help(d, "'%s' is a dimension of '%s'; size(%s, %s) reads its size",
              dim, local->name, local->name, dim);
    return;
  }
}

static bool is_assigned_in_repeat(const StmtList *body, Name name,
                                  bool inside) {
  for (int i = 0; i < body->n; i++) {
    const Stmt *stmt = body->data[i];
    bool in_repeat = inside || stmt->kind == STMT_repeat;
    for (int j = 0; in_repeat && j < stmt->names.n; j++)
      if (stmt->names.names[j] == name) return true;
    if (is_assigned_in_repeat(&stmt->body, name, in_repeat) ||
        is_assigned_in_repeat(&stmt->else_body, name, in_repeat))
      return true;
  }
  return false;
}

static ExprValue unknown_value(Elab *e, const Expr *x) {
  if (e->frame->mask_type) {
    elab_no_dim(e, e->frame->mask_expr, e->frame->mask_type, x->name, x->span);
    return POISON;
  }
  if (e->tree->lacks_import) return POISON;
  Diag *d = diag(e->diags, DIAG_unknown_value, x->span, x->name);
  suggest_value(e, d, x);
  help_size_of(e, d, x->name);
  const Callable *callable = e->frame->callable;
  if (!callable) suggest_field(e, d, x->name);
  if (callable && is_assigned_in_repeat(&callable->item->body, x->name, false))
    diag_help(d,
              "a name that is first assigned in a 'repeat' exists only there; "
              "assign '%s' before the 'repeat'",
              x->name);
  frame_set(e, x->name, POISON, x->span); /* reported once in one layer */
  frame_local(e->frame, x->name)->is_unknown = true;
  return POISON;
}

static ExprValue mask_position(Elab *e, Name dim) {
  return elab_positions(e, dim, type_size(e->frame->mask_type, dim));
}

ExprValue scope_lookup(Elab *e, const Expr *x) {
  ExprValue val;
  if (scope_predefined(x->name, e->is_training, &val)) return val;
  const Local *local = frame_local(e->frame, x->name);
  if (local) return local->val;
  if (e->frame->mask_type && type_find(e->frame->mask_type, x->name) >= 0)
    return mask_position(e, x->name);
  const Size *size = frame_size(e->frame, x->name);
  if (size) return expr_value_int(size->size);
  Global *global = map_get(e->tree->globals, x->name);
  if (global) return global_value(e, global, x->span);
  return unknown_value(e, x);
}
