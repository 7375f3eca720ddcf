/*
 * numbering.c -- labels the layer calls, values and operators of one body
 * (section 6 of language.md).
 *
 * Equal names are numbered by their place in the text, branches not taken
 * included: arguments before their call, left to right, top to bottom. A name
 * that occurs once has no number.
 *
 *     x = x + attn(norm(x))       norm[0] attn add[0], value x
 *     return x + mlp(norm(x))     norm[1] mlp add[1]
 *
 * Layer calls, values and operators are counted separately. In initialisers and
 * types, which hold no tensors, only layer calls are counted.
 *
 * An operator whose label is that of a parameter or of another value of the
 * body is "!exp", since paths must differ; where the value is the result of the
 * operator, both have one path.
 */
#include "frontend/elaborate/frame.h"

typedef enum Family {
  FAMILY_call,
  FAMILY_value,
  FAMILY_operator,
  FAMILY_param,
  N_FAMILIES
} Family;

typedef struct Group {
  Family family;
  Name name;
  int n;
} Group;

typedef struct Entry {
  const void *place;
  const Expr *root; /* value: the expression that it is assigned, or NULL */
  int group, index;
} Entry;

typedef struct Numbering {
  SourceTree *tree;
  Arena *arena;
  bool calls_only;
  const Expr *root; /* of the value at hand */
  VEC(Group) groups;
  Map *places[N_FAMILIES]; /* name -> 1 + its place in groups; NULL: none */
  VEC(Entry) entries;
} Numbering;

static void walk_expr(Numbering *n, const Expr *x);

static void number_add(Numbering *n, Family family, Name name,
                       const void *place) {
  if (n->calls_only && family != FAMILY_call) return;
  if (!n->places[family]) n->places[family] = map_create(n->arena);
  int i = (int)(intptr_t)map_get(n->places[family], name) - 1;
  if (i < 0) {
    i = n->groups.n;
    vec_push(n->arena, &n->groups, (Group){family, name, 0});
    map_put(n->places[family], name, (void *)(intptr_t)n->groups.n);
  }
  vec_push(n->arena, &n->entries,
           (Entry){place, n->root, i, n->groups.data[i].n++});
}

static void add_operator(Numbering *n, const char *name, const void *place) {
  number_add(n, FAMILY_operator, name_intern(n->tree->module->names, name),
             place);
}

static bool is_layer(const Numbering *n, Name name) {
  return map_has(n->tree->layers, name);
}

static void walk_call(Numbering *n, const Expr *x) {
  const Expr *callee = x->a->kind == EXPR_index ? x->a->a : x->a;
  Name reserved = name_intern(n->tree->module->names, "name");
  bool calls_layer = callee->kind == EXPR_name && is_layer(n, callee->name);
  Name label = callee->kind == EXPR_name ? callee->name : NULL;
  for (int i = 0; i < x->args.n; i++) {
    const Arg *arg = &x->args.items[i];
    if (calls_layer && arg->name == reserved && arg->value->kind == EXPR_name)
      label = arg->value->name;
    else
      walk_expr(n, arg->value);
  }
  if (label)
    number_add(n, calls_layer ? FAMILY_call : FAMILY_operator, label, x);
}

static void walk_subs(Numbering *n, const Expr *x) {
  bool renames = false;
  for (int i = 0; i < x->subs.n; i++) {
    const Sub *sub = &x->subs.data[i];
    if (sub->kind == SUB_value || sub->kind == SUB_assign)
      walk_expr(n, sub->to);
    renames = renames || sub->kind != SUB_value;
  }
  if (renames) add_operator(n, "rename", x);
}

static void walk_index(Numbering *n, const Expr *x) {
  int length;
  const Expr *const *chain = expr_chain(n->arena, x, &length);
  walk_expr(n, chain[length - 1]->a);
  for (int i = length - 1; i >= 0; i--) walk_subs(n, chain[i]);
}

static void walk_chain(Numbering *n, const Expr *x) {
  int length;
  const Expr *const *chain = expr_chain(n->arena, x, &length);
  walk_expr(n, chain[length - 1]->a);
  for (int i = length - 1; i >= 0; i--) {
    walk_expr(n, chain[i]->b);
    add_operator(n, op_info(operator_op(chain[i]->op))->name, chain[i]);
  }
}

static void walk_expr(Numbering *n, const Expr *x) {
  if (!x) return;
  switch (x->kind) {
  case EXPR_call: walk_call(n, x); break;
  case EXPR_index: walk_index(n, x); break;
  case EXPR_binary: walk_chain(n, x); break;
  case EXPR_unary:
    walk_expr(n, x->a);
    add_operator(n, op_info(operator_op(x->op))->name, x);
    break;
  case EXPR_range:
    walk_expr(n, x->a);
    walk_expr(n, x->b);
    break;
  case EXPR_list:
    for (int i = 0; i < x->items.n; i++) walk_expr(n, x->items.data[i]);
    break;
  default: break;
  }
}

static void walk_calls(Numbering *n, const Expr *x) {
  n->calls_only = true;
  walk_expr(n, x);
  n->calls_only = false;
}

static void walk_type(Numbering *n, const TypeExpr *type) {
  for (int i = 0; type && i < type->n_dims; i++)
    walk_calls(n, type->dims[i].size);
}

static void walk_params(Numbering *n, const FormalParamList *params) {
  for (int i = 0; i < params->n; i++) {
    walk_type(n, params->items[i].type);
    walk_expr(n, params->items[i].init);
  }
}

static void number_value(Numbering *n, const Stmt *stmt, int i) {
  const Expr *x = stmt->value;
  bool is_list = x && x->kind == EXPR_list && i < x->items.n;
  n->root = is_list ? x->items.data[i] : x;
  number_add(n, FAMILY_value, stmt->names.names[i], &stmt->names.names[i]);
  n->root = NULL;
}

static void walk_body(Numbering *n, const StmtList *body) {
  for (int i = 0; i < body->n; i++) {
    const Stmt *stmt = body->data[i];
    walk_type(n, stmt->type);
    if (stmt->kind == STMT_param || stmt->kind == STMT_state) {
      walk_calls(n, stmt->value);
      for (int j = 0; j < stmt->names.n; j++)
        number_add(n, FAMILY_param, stmt->names.names[j],
                   &stmt->names.names[j]);
      continue;
    }
    walk_params(n, &stmt->carries);
    walk_expr(n, stmt->value);
    walk_body(n, &stmt->body);
    walk_body(n, &stmt->else_body);
    if (stmt->kind == STMT_assign || stmt->kind == STMT_scan)
      for (int j = 0; j < stmt->names.n; j++) number_value(n, stmt, j);
  }
}

static Name label_of(const Numbering *n, const Entry *entry) {
  const Group *group = &n->groups.data[entry->group];
  if (group->n == 1 || group->family == FAMILY_param) return group->name;
  return name_format(n->tree->module->names, "%s[%d]", group->name,
                     entry->index);
}

static Map *number_labels(Numbering *n) {
  Map *map = map_create(n->arena), *values = map_create(n->arena);
  for (int i = 0; i < n->entries.n; i++) {
    const Entry *entry = &n->entries.data[i];
    Family family = n->groups.data[entry->group].family;
    Name label = label_of(n, entry);
    map_put(map, entry->place, (void *)label);
    if (family == FAMILY_param || family == FAMILY_value)
      map_put(values, label, (void *)entry);
  }
  for (int i = 0; i < n->entries.n; i++) {
    const Entry *entry = &n->entries.data[i];
    Name label = map_get(map, entry->place);
    const Entry *value = map_get(values, label);
    if (n->groups.data[entry->group].family != FAMILY_operator || !value ||
        value->root == entry->place)
      continue;
    label = name_format(n->tree->module->names, "!%s", label);
    map_put(map, entry->place, (void *)label);
  }
  return map;
}

Map *number_item(SourceTree *tree, const Item *item) {
  Numbering n = {.tree = tree, .arena = tree->module->arena};
  walk_params(&n, &item->params);
  for (int i = 0; i < item->result.n; i++) walk_type(&n, item->result.data[i]);
  walk_body(&n, &item->body);
  return number_labels(&n);
}

Map *number_expr(SourceTree *tree, const Expr *x) {
  Numbering n = {.tree = tree, .arena = tree->module->arena};
  walk_expr(&n, x);
  return number_labels(&n);
}
