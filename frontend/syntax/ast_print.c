/*
 * ast_print.c -- prints the syntax tree as canonical text, which parses back to
 * the same tree.  Each statement has a line of its own, each block is indented
 * by two spaces, and parentheses appear only where precedence needs them.
 * Comments are not part of the tree.
 */
#include "frontend/syntax/syntax.h"

#include <string.h>

typedef struct Printer {
  Text *out;
  int indent;
  bool in_plan;
  int brackets; /* open ones: inside them no word of a plan is reserved */
} Printer;

/* ---- pieces ---- */

static void printer_put(Printer *p, const char *text) {
  text_add(p->out, text);
}

static void start_line(Printer *p) {
  for (int i = 0; i < p->indent; i++) printer_put(p, "  ");
}

static void printer_open_block(Printer *p) {
  printer_put(p, " {\n");
  p->indent++;
}

static void close_block(Printer *p) {
  p->indent--;
  start_line(p);
  printer_put(p, "}");
}

static void printer_open_bracket(Printer *p, const char *bracket) {
  printer_put(p, bracket);
  p->brackets++;
}

static void close_bracket(Printer *p, const char *bracket) {
  printer_put(p, bracket);
  p->brackets--;
}

static void put_names(Printer *p, NameList list) {
  for (int i = 0; i < list.n; i++) {
    if (i > 0) printer_put(p, ", ");
    printer_put(p, list.names[i]);
  }
}

/* ---- expressions ---- */

/* Falling precedence; what binds less than its place needs parentheses. */
typedef enum Level {
  LEVEL_value,
  LEVEL_or,
  LEVEL_and,
  LEVEL_not,
  LEVEL_comparison,
  LEVEL_sum,
  LEVEL_product,
  LEVEL_unary,
  LEVEL_postfix,
} Level;

static const struct {
  const char *text;
  Level level;
} operators[] = {
    [OPERATOR_add] = {"+", LEVEL_sum},
    [OPERATOR_sub] = {"-", LEVEL_sum},
    [OPERATOR_mul] = {"*", LEVEL_product},
    [OPERATOR_div] = {"/", LEVEL_product},
    [OPERATOR_floordiv] = {"//", LEVEL_product},
    [OPERATOR_mod] = {"%", LEVEL_product},
    [OPERATOR_eq] = {"==", LEVEL_comparison},
    [OPERATOR_ne] = {"!=", LEVEL_comparison},
    [OPERATOR_lt] = {"<", LEVEL_comparison},
    [OPERATOR_gt] = {">", LEVEL_comparison},
    [OPERATOR_le] = {"<=", LEVEL_comparison},
    [OPERATOR_ge] = {">=", LEVEL_comparison},
    [OPERATOR_and] = {"and", LEVEL_and},
    [OPERATOR_or] = {"or", LEVEL_or},
    [OPERATOR_not] = {"not ", LEVEL_not},
    [OPERATOR_neg] = {"-", LEVEL_unary},
};

static Level level_of(const Expr *expr) {
  switch (expr->kind) {
  case EXPR_range: return LEVEL_value;
  case EXPR_unary:
  case EXPR_binary: return operators[expr->op].level;
  default: return LEVEL_postfix;
  }
}

static void put_expr(Printer *p, const Expr *expr, Level least);

static void put_exprs(Printer *p, Expr *const *items, int n) {
  for (int i = 0; i < n; i++) {
    if (i > 0) printer_put(p, ", ");
    put_expr(p, items[i], LEVEL_or);
  }
}

static void put_args(Printer *p, ArgList args) {
  printer_open_bracket(p, "(");
  for (int i = 0; i < args.n; i++) {
    if (i > 0) printer_put(p, ", ");
    if (args.items[i].name) text_printf(p->out, "%s = ", args.items[i].name);
    put_expr(p, args.items[i].value, LEVEL_value);
  }
  close_bracket(p, ")");
}

static void put_sub(Printer *p, const Sub *sub) {
  switch (sub->kind) {
  case SUB_value: put_expr(p, sub->to, LEVEL_value); break;
  case SUB_rename:
    put_expr(p, sub->from, LEVEL_or);
    printer_put(p, " -> ");
    put_expr(p, sub->to, LEVEL_or);
    break;
  case SUB_assign:
    text_printf(p->out, "%s = ", sub->name);
    put_expr(p, sub->to, LEVEL_value);
    break;
  case SUB_all: printer_put(p, "*"); break;
  }
}

static void printer_put_index(Printer *p, const Expr *expr) {
  int n;
  const Expr *const *chain = expr_chain(p->out->arena, expr, &n);
  put_expr(p, chain[n - 1]->a, LEVEL_postfix);
  for (int i = n - 1; i >= 0; i--) {
    printer_open_bracket(p, "[");
    for (int j = 0; j < chain[i]->subs.n; j++) {
      if (j > 0) printer_put(p, ", ");
      put_sub(p, &chain[i]->subs.data[j]);
    }
    close_bracket(p, "]");
  }
}

static void put_name(Printer *p, Name name) {
  bool is_reserved = p->in_plan && p->brackets == 0 && is_plan_word(name);
  text_printf(p->out, is_reserved ? "(%s)" : "%s", name);
}

static void put_list(Printer *p, const Expr *expr) {
  /* A list of one in parentheses would be its item. */
  bool is_round = expr->integer == '(' && expr->items.n != 1;
  printer_open_bracket(p, is_round ? "(" : "[");
  put_exprs(p, expr->items.data, expr->items.n);
  close_bracket(p, is_round ? ")" : "]");
}

/* The least binding of the left operand. */
static Level left_level(const Expr *expr) {
  Level level = operators[expr->op].level;
  return level == LEVEL_comparison ? level + 1 : level;
}

static void put_binary(Printer *p, const Expr *expr) {
  int n;
  const Expr *const *chain = expr_chain(p->out->arena, expr, &n);
  int first = 0; /* those further left stand in parentheses */
  while (first < n - 1 && level_of(chain[first]->a) >= left_level(chain[first]))
    first++;
  put_expr(p, chain[first]->a, left_level(chain[first]));
  for (int i = first; i >= 0; i--) {
    text_printf(p->out, " %s ", operators[chain[i]->op].text);
    put_expr(p, chain[i]->b, operators[chain[i]->op].level + 1);
  }
}

static void put_bare(Printer *p, const Expr *expr) {
  switch (expr->kind) {
  case EXPR_name: put_name(p, expr->name); break;
  case EXPR_int:
    if (expr->name)
      printer_put(p, expr->name);
    else
      text_printf(p->out, "%lld", (long long)expr->integer);
    break;
  case EXPR_float:
    if (expr->name)
      printer_put(p, expr->name);
    else
      text_add_real(p->out, expr->real);
    break;
  case EXPR_factor: printer_put(p, expr->name); break;
  case EXPR_string: text_printf(p->out, "\"%s\"", expr->name); break;
  case EXPR_list: put_list(p, expr); break;
  case EXPR_unary:
    printer_put(p, operators[expr->op].text);
    put_expr(p, expr->a, level_of(expr) + 1);
    break;
  case EXPR_binary: put_binary(p, expr); break;
  case EXPR_call:
    put_expr(p, expr->a, LEVEL_postfix);
    put_args(p, expr->args);
    break;
  case EXPR_index: printer_put_index(p, expr); break;
  case EXPR_field:
  case EXPR_bang:
    put_expr(p, expr->a, LEVEL_postfix);
    printer_put(p, expr->kind == EXPR_field ? "." : "!");
    printer_put(p, expr->name);
    break;
  case EXPR_range:
    put_expr(p, expr->a, LEVEL_or);
    printer_put(p, "..");
    put_expr(p, expr->b, LEVEL_or);
    break;
  }
}

static void put_expr(Printer *p, const Expr *expr, Level least) {
  bool needs_parentheses = level_of(expr) < least;
  if (needs_parentheses) printer_open_bracket(p, "(");
  put_bare(p, expr);
  if (needs_parentheses) close_bracket(p, ")");
}

/* ---- types and formal parameters ---- */

static void put_type(Printer *p, const TypeExpr *type) {
  if (type->dtype) printer_put(p, type->dtype);
  printer_open_bracket(p, "[");
  for (int i = 0; i < type->n_dims; i++) {
    const TypeDim *dim = &type->dims[i];
    if (i > 0) printer_put(p, ", ");
    printer_put(p, dim->name ? dim->name : "...");
    if (!dim->size) continue;
    printer_put(p, ":");
    put_expr(p, dim->size, LEVEL_or);
  }
  close_bracket(p, "]");
}

static void put_params(Printer *p, FormalParamList params) {
  printer_open_bracket(p, "(");
  for (int i = 0; i < params.n; i++) {
    const FormalParam *param = &params.items[i];
    if (i > 0) printer_put(p, ", ");
    printer_put(p, param->name);
    if (param->type) {
      printer_put(p, ": ");
      put_type(p, param->type);
    }
    if (!param->init) continue;
    printer_put(p, " = ");
    put_expr(p, param->init, LEVEL_or);
  }
  close_bracket(p, ")");
}

static void put_result(Printer *p, TypeList result) {
  if (result.n == 0) return;
  printer_put(p, result.is_list ? " -> (" : " -> ");
  for (int i = 0; i < result.n; i++) {
    if (i > 0) printer_put(p, ", ");
    put_type(p, result.data[i]);
  }
  if (result.is_list) printer_put(p, ")");
}

/* ---- statements ---- */

static void put_annotations(Printer *p, AnnotationList annotations) {
  for (int i = 0; i < annotations.n; i++) {
    start_line(p);
    text_printf(p->out, "@%s", annotations.items[i].name);
    if (annotations.items[i].args.n > 0) put_args(p, annotations.items[i].args);
    printer_put(p, "\n");
  }
}

static void put_stmt(Printer *p, const Stmt *stmt);

static void put_body(Printer *p, StmtList body) {
  printer_open_block(p);
  for (int i = 0; i < body.n; i++) put_stmt(p, body.data[i]);
  close_block(p);
}

/* `else if` is written flat: a chain of any length costs no stack. */
static void put_branch(Printer *p, const Stmt *stmt) {
  for (;;) {
    printer_put(p, "if ");
    put_expr(p, stmt->value, LEVEL_or);
    put_body(p, stmt->body);
    StmtList rest = stmt->else_body;
    if (rest.n == 0) return;
    printer_put(p, " else");
    const Stmt *next = rest.data[0];
    if (rest.n > 1 || next->kind != STMT_if || next->annotations.n > 0) {
      put_body(p, rest);
      return;
    }
    printer_put(p, " ");
    stmt = next;
  }
}

static void put_declaration(Printer *p, const Stmt *stmt) {
  printer_put(p, stmt->kind == STMT_param ? "param " : "state ");
  put_names(p, stmt->names);
  printer_put(p, ": ");
  put_type(p, stmt->type);
  if (!stmt->value) return;
  printer_put(p, " = ");
  put_expr(p, stmt->value, LEVEL_or);
}

static void put_scan(Printer *p, const Stmt *stmt) {
  put_names(p, stmt->names);
  text_printf(p->out, " = scan %s ", stmt->dim);
  put_params(p, stmt->carries);
  put_body(p, stmt->body);
}

static void put_stmt(Printer *p, const Stmt *stmt) {
  put_annotations(p, stmt->annotations);
  start_line(p);
  switch (stmt->kind) {
  case STMT_assign:
    put_names(p, stmt->names);
    printer_put(p, " = ");
    put_expr(p, stmt->value, LEVEL_or);
    break;
  case STMT_scan: put_scan(p, stmt); break;
  case STMT_param:
  case STMT_state: put_declaration(p, stmt); break;
  case STMT_return:
    printer_put(p, "return ");
    put_expr(p, stmt->value, LEVEL_or);
    break;
  case STMT_expr: put_expr(p, stmt->value, LEVEL_or); break;
  case STMT_repeat:
    text_printf(p->out, "repeat %s in ", stmt->names.names[0]);
    put_expr(p, stmt->value, LEVEL_value);
    put_body(p, stmt->body);
    break;
  case STMT_if: put_branch(p, stmt); break;
  }
  printer_put(p, "\n");
}

/* ---- settings and pins ---- */

static void put_settings(Printer *p, const Setting *settings, int n) {
  for (int i = 0; i < n; i++) {
    const Setting *setting = &settings[i];
    start_line(p);
    printer_put(p, setting->path.names[0]);
    if (setting->is_block) {
      for (int k = 0; k < setting->paths.n; k++) {
        printer_put(p, k ? ", " : " ");
        put_expr(p, setting->paths.data[k], LEVEL_postfix);
      }
      printer_open_block(p);
      put_settings(p, setting->settings, setting->n_settings);
      close_block(p);
    } else {
      if (setting->type) {
        printer_put(p, ": ");
        put_type(p, setting->type);
      }
      printer_put(p, " = ");
      put_expr(p, setting->value, LEVEL_value);
    }
    printer_put(p, "\n");
  }
}

static void put_axes(Printer *p, NameList axes) {
  printer_put(p, " over ");
  if (axes.n == 1) {
    put_name(p, axes.names[0]);
    return;
  }
  printer_open_bracket(p, "(");
  put_names(p, axes);
  close_bracket(p, ")");
}

static void put_places(Printer *p, const Pin *pin) {
  printer_put(p, ": ");
  for (int i = 0; i < pin->n_places; i++) {
    if (i > 0) printer_put(p, ", ");
    printer_put(p, pin->places[i].dim ? pin->places[i].dim : "partial");
    put_axes(p, pin->places[i].axes);
  }
}

static void put_stage(Printer *p, const Pin *pin) {
  text_printf(p->out, "stage %lld: ", (long long)pin->stage);
  put_exprs(p, pin->exprs.data, pin->exprs.n);
  if (pin->value) {
    printer_put(p, " on ");
    put_expr(p, pin->value, LEVEL_value);
  }
  if (pin->as.n > 0) {
    printer_put(p, " as ");
    put_args(p, pin->as);
  }
}

static void put_pin(Printer *p, const Pin *pin) {
  static const char *const words[] = {
      [PIN_shard_names] = "shard ",   [PIN_shard_paths] = "shard ",
      [PIN_replicate] = "replicate ", [PIN_cut] = "cut after ",
      [PIN_remat] = "remat ",         [PIN_keep] = "keep ",
      [PIN_offload] = "offload ",     [PIN_place] = "place "};
  start_line(p);
  if (pin->kind == PIN_stage) {
    put_stage(p, pin);
  } else if (pin->kind == PIN_set) {
    text_printf(p->out, "%s = ", pin->name);
    put_expr(p, pin->value, LEVEL_value);
    if (pin->axes.n > 0) put_axes(p, pin->axes);
  } else {
    printer_put(p, words[pin->kind]);
    put_exprs(p, pin->exprs.data, pin->exprs.n);
    if (pin->kind == PIN_shard_names) put_axes(p, pin->axes);
    if (pin->kind == PIN_shard_paths) put_places(p, pin);
    if (pin->kind == PIN_place) {
      printer_put(p, " on ");
      put_expr(p, pin->value, LEVEL_value);
    }
  }
  printer_put(p, "\n");
}

/* ---- items ---- */

static void put_bindings(Printer *p, const Item *item) {
  printer_put(p, item->kind == ITEM_dim ? "dim " : "const ");
  for (int i = 0; i < item->n_bindings; i++) {
    if (i > 0) printer_put(p, ", ");
    printer_put(p, item->bindings[i].name);
    if (!item->bindings[i].value) continue;
    printer_put(p, " = ");
    put_expr(p, item->bindings[i].value, LEVEL_or);
  }
}

static void put_function(Printer *p, const Item *item) {
  text_printf(p->out, "%s %s", item->kind == ITEM_layer ? "layer" : "net",
              item->name);
  if (item->has_generics) {
    printer_put(p, "[");
    put_names(p, item->generics_in);
    if (item->generics_out.n > 0) {
      printer_put(p, " -> ");
      put_names(p, item->generics_out);
    }
    printer_put(p, "]");
  }
  put_params(p, item->params);
  put_result(p, item->result);
  put_body(p, item->body);
}

static void put_block(Printer *p, const Item *item) {
  printer_put(p, item->kind == ITEM_plan ? "plan" : item->block);
  if (item->name) text_printf(p->out, " %s", item->name);
  printer_open_block(p);
  if (item->kind == ITEM_plan) {
    p->in_plan = true;
    for (int i = 0; i < item->n_pins; i++) put_pin(p, &item->pins[i]);
    p->in_plan = false;
  } else {
    put_settings(p, item->settings, item->n_settings);
  }
  close_block(p);
}

static void put_item(Printer *p, const Item *item) {
  put_annotations(p, item->annotations);
  switch (item->kind) {
  case ITEM_import: text_printf(p->out, "import \"%s\"", item->name); break;
  case ITEM_dim:
  case ITEM_const: put_bindings(p, item); break;
  case ITEM_layer:
  case ITEM_net: put_function(p, item); break;
  case ITEM_plan:
  case ITEM_block: put_block(p, item); break;
  }
  printer_put(p, "\n");
}

static bool printer_is_line(const Item *item) {
  return item->kind == ITEM_import || item->kind == ITEM_dim ||
         item->kind == ITEM_const;
}

void ast_print(Text *out, const Ast *ast) {
  Printer printer = {.out = out};
  for (int i = 0; i < ast->n_items; i++) {
    bool is_apart = i > 0 && !(printer_is_line(&ast->items[i]) &&
                               printer_is_line(&ast->items[i - 1]));
    if (is_apart) printer_put(&printer, "\n");
    put_item(&printer, &ast->items[i]);
  }
}
