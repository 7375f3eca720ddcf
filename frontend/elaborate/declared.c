/*
 * declared.c -- checks the names that a file declares, also in layers that
 * nothing calls: none is a predefined value, names declared together differ,
 * and inputs of nets have types.
 *
 *     layer f[C -> C](x, x, true)      reports 'C', 'x' and 'true'
 */
#include "frontend/elaborate/eval.h"

#include <string.h>

typedef struct Together { /* names that must differ */
  SourceTree *tree;
  Map *seen; /* Name -> its Span; NULL: none yet */
} Together;

static void declared_check_name(const SourceTree *tree, Name name, Span span) {
  if (name && scope_is_predefined(name))
    diag(tree->module->diags, DIAG_predefined, span, name);
}

static void declared_add(Together *together, Name name, const Span *span) {
  Module *m = together->tree->module;
  if (!together->seen) together->seen = map_create(m->arena);
  const Span *first = map_get(together->seen, name);
  if (!first) {
    map_put(together->seen, name, arena_copy(m->arena, span, sizeof *span));
    return;
  }
  Diag *d = diag(m->diags, DIAG_given_twice, *span, name);
  diag_note(d, *first, "it is given here first");
}

/* `_` takes any number of values that nothing reads. */
static void declared_check_names(Together *together, const NameList *list,
                                 bool are_assigned) {
  for (int i = 0; i < list->n; i++) {
    declared_check_name(together->tree, list->names[i], list->spans[i]);
    bool is_dropped = list->n == 1 || list->names[i][0] == '_';
    if (!are_assigned || !is_dropped)
      declared_add(together, list->names[i], &list->spans[i]);
  }
}

static void declared_check_type(const SourceTree *tree, const TypeExpr *type) {
  for (int i = 0; type && i < type->n_dims; i++)
    declared_check_name(tree, type->dims[i].name, type->dims[i].span);
}

/* The name alone, of something that begins with it. */
static Span declared_name_span(Span span, Name name) {
  span.end = span.begin + (uint32_t)strlen(name);
  return span;
}

static void declared_check_params(SourceTree *tree,
                                  const FormalParamList *params) {
  Together together = {tree, NULL};
  for (int i = 0; i < params->n; i++) {
    const FormalParam *param = &params->items[i];
    Span span = declared_name_span(param->span, param->name);
    declared_check_name(tree, param->name, span);
    declared_add(&together, param->name, &span);
    declared_check_type(tree, param->type);
  }
}

static void declared_check_body(SourceTree *tree, const StmtList *body) {
  for (int i = 0; i < body->n; i++) {
    const Stmt *stmt = body->data[i];
    Together together = {tree, NULL};
    bool declares = stmt->kind == STMT_param || stmt->kind == STMT_state;
    declared_check_names(&together, &stmt->names, !declares);
    declared_check_type(tree, stmt->type);
    declared_check_params(tree, &stmt->carries);
    declared_check_body(tree, &stmt->body);
    declared_check_body(tree, &stmt->else_body);
  }
}

static void declared_check_layer(SourceTree *tree, const Item *item) {
  Together generics = {tree, NULL};
  declared_check_names(&generics, &item->generics_in, false);
  declared_check_names(&generics, &item->generics_out, false);
  for (int i = 0; i < item->params.n; i++) {
    const FormalParam *param = &item->params.items[i];
    if (strcmp(param->name, "name") == 0)
      diag(tree->module->diags, DIAG_reserved_parameter,
           declared_name_span(param->span, param->name));
  }
}

static void declared_check_net(SourceTree *tree, const Item *item) {
  for (int i = 0; i < item->params.n; i++) {
    const FormalParam *param = &item->params.items[i];
    if (!param->type && !param->init)
      diag(tree->module->diags, DIAG_untyped_input, param->span, param->name);
  }
}

void declared_check(SourceTree *tree, const Ast *ast) {
  for (int i = 0; i < ast->n_items; i++) {
    const Item *item = &ast->items[i];
    for (int j = 0; j < item->n_bindings; j++) {
      const Binding *binding = &item->bindings[j];
      declared_check_name(tree, binding->name,
                          declared_name_span(binding->span, binding->name));
    }
    if (item->kind == ITEM_layer) declared_check_layer(tree, item);
    if (item->kind == ITEM_net) declared_check_net(tree, item);
    declared_check_params(tree, &item->params);
    for (int j = 0; j < item->result.n; j++)
      declared_check_type(tree, item->result.data[j]);
    declared_check_body(tree, &item->body);
  }
}
