/*
 * expression.c -- evaluates expressions: computes what is known at compile time
 * and appends nodes to the graph for the rest.
 *
 * A mistake is reported where it is found and yields the poison value. A value
 * that is computed from poison is poison and causes no further message.
 */
#include "frontend/elaborate/emit.h"
#include "frontend/elaborate/eval.h"

#include <math.h>
#include <string.h>

enum { MOST_NESTING = 2000 };

/* ---- expressions ---- */

static ExprValue eval_list(Elab *e, const Expr *x) {
  ExprValue list = expr_value_list(e, x->items.n);
  bool has_poison = false;
  for (int i = 0; i < x->items.n; i++) {
    list.list->items[i] = eval(e, x->items.data[i]);
    has_poison = has_poison || expr_value_is_poison(list.list->items[i]);
  }
  return has_poison ? POISON : expr_value_list_nested(e, list, x->span);
}

/* `and`, `or`: the right side is not evaluated where the left decides, so that
 * `i > 0 and list[i - 1] == 2` works. */
static bool is_decided(const Expr *x, ExprValue left) {
  return left.kind == EXPR_VALUE_bool &&
         ((x->op == OPERATOR_and && !left.boolean) ||
          (x->op == OPERATOR_or && left.boolean));
}

static ExprValue eval_operator(Elab *e, const Expr *x, ExprValue a,
                               ExprValue b) {
  const ExprValue args[] = {a, b};
  const Expr *exprs[] = {x->a, x->b};
  if (expr_value_is_poison(a) || (x->b && expr_value_is_poison(b)))
    return POISON;
  bool is_static =
      expr_value_is_static(a) && (!x->b || expr_value_is_static(b));
  if (is_static)
    e->graph->span = x->span;
  else
    elab_at(e, x);
  return pointwise(e, operator_op(x->op), args, exprs, x->b ? 2 : 1);
}

/* From the left: a + b + c + ... may be long. */
static ExprValue eval_chain(Elab *e, const Expr *x) {
  int n = 1;
  const Expr *const *chain = &x;
  if (x->a->kind == EXPR_binary) chain = expr_chain(e->arena, x, &n);
  ExprValue left = eval(e, chain[n - 1]->a);
  for (int i = n - 1; i >= 0; i--) {
    if (i > 0 && !elab_step(e, chain[i]->span)) return POISON;
    if (!is_decided(chain[i], left))
      left = eval_operator(e, chain[i], left, eval(e, chain[i]->b));
  }
  return left;
}

static ExprValue not_a_value(Elab *e, const Expr *x, const char *what) {
  diag(e->diags, DIAG_not_a_value, x->span, what);
  return POISON;
}

static ExprValue not_a_factor(Elab *e, const Expr *x) {
  Diag *d = diag(e->diags, DIAG_bad_number, x->span, x->name);
  diag_help(d, "a factor, such as 0.1x, is an 'lr' in a group of 'train'");
  return POISON;
}

static ExprValue eval_kind(Elab *e, const Expr *x) {
  switch (x->kind) {
  case EXPR_name: return scope_lookup(e, x);
  case EXPR_int: return expr_value_int(x->integer);
  case EXPR_float: return expr_value_float(x->real);
  case EXPR_string:
    return (ExprValue){.kind = EXPR_VALUE_string, .string = x->name};
  case EXPR_list: return eval_list(e, x);
  case EXPR_unary: return eval_operator(e, x, eval(e, x->a), POISON);
  case EXPR_binary: return eval_chain(e, x);
  case EXPR_call: return eval_call(e, x);
  case EXPR_index: return eval_index(e, x);
  case EXPR_field: return scope_field(e, x);
  case EXPR_factor: return not_a_factor(e, x);
  case EXPR_bang: return not_a_value(e, x, "a path with '!'");
  case EXPR_range: return not_a_value(e, x, "a range");
  }
  UNREACHABLE();
}

/* Recursion of layers times the nesting of their expressions, or a chain of
 * dims, must not exhaust the stack. */
ExprValue eval(Elab *e, const Expr *x) {
  if (!elab_step(e, x->span)) return POISON;
  if (e->nesting >= MOST_NESTING) {
    diag(e->diags, DIAG_value_nesting, x->span, MOST_NESTING);
    e->tree->is_over = true;
    return POISON;
  }
  e->nesting++;
  ExprValue val = eval_kind(e, x);
  e->nesting--;
  return val;
}

bool eval_int(Elab *e, const Expr *x, int64_t *out) {
  ExprValue val = eval(e, x);
  ExprValue whole = expr_value_whole(val);
  if (whole.kind == EXPR_VALUE_int) return *out = whole.integer, true;
  if (!expr_value_is_poison(val))
    diag(e->diags, DIAG_not_integer, x->span, expr_subject(e, x),
         expr_value_describe(e, val));
  return false;
}
