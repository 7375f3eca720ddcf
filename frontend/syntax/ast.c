/*
 * ast.c -- builds the nodes of the syntax tree.
 *
 * Every expression gets a serial number when it is complete, which is the order
 * of evaluation (operands first, left to right), and its height.  The height is
 * bounded, so that a walk over a tree may recurse everywhere but into the left
 * operand of an operator, where a sum of any length begins, and into the
 * expression before a bracket.
 */
#include "frontend/syntax/syntax.h"

/* ---- expressions ---- */

static void expr_raise(Expr *expr, const Expr *child) {
  if (child && child->height >= expr->height) expr->height = child->height + 1;
}

/* Copies `expr` and fills in serial and height. */
static Expr *expr_finish(Parser *parser, Expr expr) {
  Expr *made = arena_copy(parser->arena, &expr, sizeof expr);
  made->serial = parser->serial++;
  made->height = 1;
  bool chains = made->kind == EXPR_binary || made->kind == EXPR_index;
  if (chains && made->a->kind == made->kind)
    made->height = made->a->height;
  else
    expr_raise(made, made->a);
  expr_raise(made, made->b);
  for (int i = 0; i < made->items.n; i++) expr_raise(made, made->items.data[i]);
  for (int i = 0; i < made->args.n; i++)
    expr_raise(made, made->args.items[i].value);
  for (int i = 0; i < made->subs.n; i++) {
    expr_raise(made, made->subs.data[i].from);
    expr_raise(made, made->subs.data[i].to);
  }
  if (made->height > MOST_NESTING) layout_too_deep(parser, made->span);
  return made;
}

Expr *expr_name(Parser *parser, Name name, Span span) {
  return expr_finish(parser,
                     (Expr){.kind = EXPR_name, .name = name, .span = span});
}

Expr *expr_number(Parser *parser, ExprKind kind, Number number, Span span) {
  return expr_finish(parser, (Expr){.kind = kind,
                                    .integer = number.integer,
                                    .real = number.real,
                                    .name = number.spelling,
                                    .span = span});
}

Setting setting_block(Parser *parser, PlacedName name, ExprVec paths,
                      SettingVec settings) {
  NameVec path = {0};
  vec_push(parser->arena, &path, name);
  if (paths.n == 1 && paths.data[0]->kind == EXPR_name) {
    PlacedName label = {paths.data[0]->name, paths.data[0]->span};
    vec_push(parser->arena, &path, label);
  }
  return (Setting){.path = name_list(parser, path),
                   .paths = {paths.data, paths.n},
                   .settings = settings.data,
                   .n_settings = settings.n,
                   .is_block = true};
}

Expr *expr_string(Parser *parser, Name name, Span span) {
  return expr_finish(parser,
                     (Expr){.kind = EXPR_string, .name = name, .span = span});
}

Expr *expr_bracket(Parser *parser, char bracket, ExprVec items, Span span) {
  if (bracket == '(' && items.n == 1) {
    items.data[0]->span = span; /* a caret covers the parentheses */
    return items.data[0];
  }
  return expr_finish(parser, (Expr){.kind = EXPR_list,
                                    .integer = bracket,
                                    .items = {items.data, items.n},
                                    .span = span});
}

Expr *expr_unary(Parser *parser, Operator op, Span op_span, Expr *a,
                 Span span) {
  return expr_finish(parser, (Expr){.kind = EXPR_unary,
                                    .op = op,
                                    .op_span = op_span,
                                    .a = a,
                                    .span = span});
}

Expr *expr_binary(Parser *parser, Operator op, Span op_span, Expr *a, Expr *b) {
  return expr_finish(parser, (Expr){.kind = EXPR_binary,
                                    .op = op,
                                    .op_span = op_span,
                                    .a = a,
                                    .b = b,
                                    .span = span_join(a->span, b->span)});
}

Expr *expr_range(Parser *parser, Span op_span, Expr *a, Expr *b) {
  return expr_finish(parser, (Expr){.kind = EXPR_range,
                                    .op_span = op_span,
                                    .a = a,
                                    .b = b,
                                    .span = span_join(a->span, b->span)});
}

Expr *expr_call(Parser *parser, Expr *a, ArgVec args, Span span) {
  return expr_finish(parser, (Expr){.kind = EXPR_call,
                                    .a = a,
                                    .args = {args.data, args.n},
                                    .span = span});
}

Expr *expr_index(Parser *parser, Expr *a, SubVec subs, Span span) {
  return expr_finish(parser, (Expr){.kind = EXPR_index,
                                    .a = a,
                                    .subs = {subs.data, subs.n},
                                    .span = span});
}

Expr *expr_member(Parser *parser, ExprKind kind, Expr *a, PlacedName name) {
  return expr_finish(parser, (Expr){.kind = kind,
                                    .a = a,
                                    .name = name.name,
                                    .op_span = name.span,
                                    .span = span_join(a->span, name.span)});
}

const Expr *const *expr_chain(Arena *arena, const Expr *x, int *out_n) {
  int n = 0;
  for (const Expr *at = x; at->kind == x->kind; at = at->a) n++;
  const Expr **chain = ARENA_ARRAY(arena, const Expr *, n);
  for (int i = 0; i < n; i++, x = x->a) chain[i] = x;
  *out_n = n;
  return chain;
}

/* ---- the rest ---- */

NameList name_list(Parser *parser, NameVec names) {
  NameList list = {.n = names.n};
  list.names = ARENA_ARRAY(parser->arena, Name, names.n);
  list.spans = ARENA_ARRAY(parser->arena, Span, names.n);
  for (int i = 0; i < names.n; i++) {
    list.names[i] = names.data[i].name;
    list.spans[i] = names.data[i].span;
  }
  return list;
}

TypeExpr *type_expr(Parser *parser, Name dtype, TypeDimVec dims, Span span) {
  TypeExpr type = {dtype, dims.data, dims.n, span};
  return arena_copy(parser->arena, &type, sizeof type);
}

Stmt *stmt_new(Parser *parser, Stmt stmt) {
  return arena_copy(parser->arena, &stmt, sizeof stmt);
}

Stmt *stmt_else(Parser *parser, Stmt *last, StmtVec else_body, Stmt *branch) {
  if (branch) vec_push(parser->arena, &else_body, branch);
  last->else_body = (StmtList){else_body.data, else_body.n};
  return branch ? branch : last;
}
