/*
 * unused.c -- warns about names that nothing reads.
 *
 * The text alone decides, not what was elaborated: a name that only an untaken
 * branch reads is used. Libraries are not checked.
 */
#include "frontend/elaborate/source_tree.h"

static void reads_of_expr(Map *reads, const Expr *x);

static void reads_add_name(Map *reads, Name name) {
  if (name) map_put(reads, name, reads);
}

static void reads_of_exprs(Map *reads, Expr *const *items, int n) {
  for (int i = 0; i < n; i++) reads_of_expr(reads, items[i]);
}

static void reads_of_args(Map *reads, const ArgList *args) {
  for (int i = 0; i < args->n; i++) reads_of_expr(reads, args->items[i].value);
}

static void reads_of_subs(Map *reads, const Expr *x) {
  for (int i = 0; i < x->subs.n; i++) {
    const Sub *sub = &x->subs.data[i];
    if (sub->kind == SUB_assign) reads_add_name(reads, sub->name);
    reads_of_expr(reads, sub->from);
    reads_of_expr(reads, sub->to);
  }
}

static void reads_of_expr(Map *reads, const Expr *x) {
  for (; x; x = x->a) {
    if (x->kind == EXPR_name) reads_add_name(reads, x->name);
    reads_of_expr(reads, x->b);
    reads_of_exprs(reads, x->items.data, x->items.n);
    reads_of_args(reads, &x->args);
    reads_of_subs(reads, x);
  }
}

static void reads_of_type(Map *reads, const TypeExpr *type) {
  if (!type) return;
  for (int i = 0; i < type->n_dims; i++) {
    reads_add_name(reads, type->dims[i].name);
    reads_of_expr(reads, type->dims[i].size);
  }
}

static void reads_of_params(Map *reads, const FormalParamList *params) {
  for (int i = 0; i < params->n; i++) {
    reads_of_type(reads, params->items[i].type);
    reads_of_expr(reads, params->items[i].init);
  }
}

static void reads_of_body(Map *reads, const StmtList *body) {
  for (int i = 0; i < body->n; i++) {
    const Stmt *stmt = body->data[i];
    reads_of_expr(reads, stmt->value);
    reads_of_type(reads, stmt->type);
    reads_of_params(reads, &stmt->carries);
    reads_of_body(reads, &stmt->body);
    reads_of_body(reads, &stmt->else_body);
  }
}

static void reads_of_settings(Map *reads, const Setting *settings, int n) {
  for (int i = 0; i < n; i++) {
    reads_of_type(reads, settings[i].type);
    reads_of_expr(reads, settings[i].value);
    reads_of_settings(reads, settings[i].settings, settings[i].n_settings);
  }
}

static void reads_of_item(Map *reads, const Item *item) {
  for (int i = 0; i < item->n_bindings; i++)
    reads_of_expr(reads, item->bindings[i].value);
  reads_of_params(reads, &item->params);
  for (int i = 0; i < item->result.n; i++)
    reads_of_type(reads, item->result.data[i]);
  reads_of_body(reads, &item->body);
  reads_of_settings(reads, item->settings, item->n_settings);
  for (int i = 0; i < item->n_pins; i++) {
    reads_of_exprs(reads, item->pins[i].exprs.data, item->pins[i].exprs.n);
    for (int j = 0; j < item->pins[i].n_places; j++)
      reads_add_name(reads, item->pins[i].places[j].dim);
  }
}

void reads_of_ast(Map *reads, const Ast *ast) {
  for (int i = 0; i < ast->n_items; i++) reads_of_item(reads, &ast->items[i]);
}

/* ---- warnings ---- */

/* Once for a name, however often it is assigned. A parameter that was reported
 * to reach nothing counts as read from then on. */
static void warn_unused(SourceTree *tree, Map *reads, Name name, Span span) {
  Diags *diags = tree->module->diags;
  if (name[0] == '_' || map_has(reads, name)) return;
  reads_add_name(reads, name);
  if (!diags_have(diags, DIAG_no_gradient, span) &&
      !diags_have(diags, DIAG_unreached, span))
    diag(diags, DIAG_unused, span, name);
}

static bool body_returns(const StmtList *body);

static bool stmt_returns(const Stmt *stmt) {
  return stmt->kind == STMT_return ||
         (stmt->kind == STMT_if && body_returns(&stmt->body) &&
          body_returns(&stmt->else_body));
}

static bool body_returns(const StmtList *body) {
  for (int i = 0; i < body->n; i++)
    if (stmt_returns(body->data[i])) return true;
  return false;
}

/* Statements after a return are one mistake. */
static bool warn_return(SourceTree *tree, const StmtList *body, int i) {
  if (i + 1 == body->n || !stmt_returns(body->data[i])) return false;
  Diag *d =
      diag(tree->module->diags, DIAG_after_return, body->data[i + 1]->span);
  diag_note(d, body->data[i]->span,
            body->data[i]->kind == STMT_if ? "every branch returns here"
                                           : "it returns here");
  return true;
}

static void warn_body(SourceTree *tree, Map *reads, const StmtList *body) {
  for (int i = 0; i < body->n; i++) {
    const Stmt *stmt = body->data[i];
    bool binds = stmt->kind == STMT_assign || stmt->kind == STMT_param ||
                 stmt->kind == STMT_state || stmt->kind == STMT_scan;
    for (int j = 0; binds && j < stmt->names.n; j++)
      warn_unused(tree, reads, stmt->names.names[j], stmt->names.spans[j]);
    warn_body(tree, reads, &stmt->body);
    warn_body(tree, reads, &stmt->else_body);
    if (warn_return(tree, body, i)) return;
  }
}

static void warn_callable(SourceTree *tree, const Item *item) {
  Map *reads = map_create(tree->module->arena);
  reads_of_body(reads, &item->body);
  reads_of_params(reads, &item->params);
  for (int i = 0; i < item->result.n; i++)
    reads_of_type(reads, item->result.data[i]);
  /* The type of a typed formal parameter is read even if the value is not. */
  for (int i = 0; i < item->params.n; i++)
    if (!item->params.items[i].type)
      warn_unused(tree, reads, item->params.items[i].name,
                  item->params.items[i].span);
  warn_body(tree, reads, &item->body);
}

void source_tree_warn_unused(SourceTree *tree) {
  for (int i = 0; i < map_size(tree->globals); i++) {
    const Global *global = map_value_at(tree->globals, i);
    if (global->is_main)
      warn_unused(tree, tree->read_names, global->name, global->span);
  }
  const Map *maps[] = {tree->layers, tree->nets};
  for (int i = 0; i < ARRAY_LENGTH(maps); i++)
    for (int j = 0; j < map_size(maps[i]); j++) {
      const Callable *callable = map_value_at(maps[i], j);
      if (callable->is_main && callable->labels)
        warn_callable(tree, callable->item);
    }
}
