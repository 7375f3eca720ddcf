/*
 * value.c -- computes at compile time, and shows values, types and expressions
 * in messages.
 *
 * Floats are computed by the rows of ops.def (op_value).
 * Integers stay exact, and their overflow is the user's mistake.
 */
#include "frontend/elaborate/elaborate.h"

#include <math.h>
#include <string.h>

enum { LONGEST_QUOTE = 30 };

ExprValue expr_value_list(Elab *e, int n) {
  e->tree->spent.list_elements += n;
  ExprValueList *list = arena_alloc(
      e->arena, sizeof(ExprValueList) + (size_t)n * sizeof(ExprValue));
  list->n = n;
  list->n_all = n;
  return (ExprValue){.kind = EXPR_VALUE_list, .list = list};
}

ExprValue expr_value_list_nested(Elab *e, ExprValue list, Span span) {
  int64_t n = 0;
  for (int i = 0; i < list.list->n; i++) {
    const ExprValue *item = &list.list->items[i];
    n += item->kind == EXPR_VALUE_list ? item->list->n_all : 1;
  }
  list.list->n_all = n;
  return n <= 1 || elab_may_list(e, n, span) ? list : POISON;
}

void expr_value_charge(Elab *e, ExprValue val) {
  enum { ELEMENTS_A_STEP = 8 };
  if (val.kind == EXPR_VALUE_list)
    e->tree->spent.steps += val.list->n_all / ELEMENTS_A_STEP;
}

Op operator_op(Operator op) {
  static const Op ops[] = {
      [OPERATOR_add] = OP_add,
      [OPERATOR_sub] = OP_sub,
      [OPERATOR_mul] = OP_mul,
      [OPERATOR_div] = OP_div,
      [OPERATOR_floordiv] = OP_floordiv,
      [OPERATOR_mod] = OP_mod,
      [OPERATOR_eq] = OP_eq,
      [OPERATOR_ne] = OP_ne,
      [OPERATOR_lt] = OP_lt,
      [OPERATOR_gt] = OP_gt,
      [OPERATOR_le] = OP_le,
      [OPERATOR_ge] = OP_ge,
      [OPERATOR_and] = OP_and,
      [OPERATOR_or] = OP_or,
      [OPERATOR_not] = OP_not,
      [OPERATOR_neg] = OP_neg,
  };
  return ops[op];
}

const char *op_spelling(Op op) {
  static const char *const texts[] = {
      [OPERATOR_add] = "+",       [OPERATOR_sub] = "-",
      [OPERATOR_mul] = "*",       [OPERATOR_div] = "/",
      [OPERATOR_floordiv] = "//", [OPERATOR_mod] = "%",
      [OPERATOR_eq] = "==",       [OPERATOR_ne] = "!=",
      [OPERATOR_lt] = "<",        [OPERATOR_gt] = ">",
      [OPERATOR_le] = "<=",       [OPERATOR_ge] = ">=",
      [OPERATOR_and] = "and",     [OPERATOR_or] = "or",
      [OPERATOR_not] = "not",     [OPERATOR_neg] = "-",
  };
  for (int i = 0; i < ARRAY_LENGTH(texts); i++)
    if (operator_op((Operator)i) == op) return texts[i];
  return op_info(op)->name;
}

/* ---- arithmetic ---- */

/* The operators of integers are defined for floats at compile time, too. */
static double compute_float(Op op, double a, double b) {
  if (op == OP_floordiv) return floor(a / b);
  if (op == OP_mod) return a - b * floor(a / b);
  return op_value(op, a, b, 0);
}

static int64_t floor_div(int64_t a, int64_t b) {
  int64_t q = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

typedef enum IntegerResult {
  INTEGER_exact,
  INTEGER_overflow,
  INTEGER_is_float, /* no integer: it is computed as a float */
} IntegerResult;
typedef IntegerResult IntegerFunction(int64_t a, int64_t b, int64_t *out);

#define INTEGER_OVERFLOWS(name, builtin, x, y)                                 \
  static IntegerResult integer_##name(int64_t a, int64_t b, int64_t *out) {    \
    (void)b;                                                                   \
    return builtin(x, y, out) ? INTEGER_overflow : INTEGER_exact;              \
  }
INTEGER_OVERFLOWS(add, __builtin_add_overflow, a, b)
INTEGER_OVERFLOWS(sub, __builtin_sub_overflow, a, b)
INTEGER_OVERFLOWS(mul, __builtin_mul_overflow, a, b)
INTEGER_OVERFLOWS(neg, __builtin_sub_overflow, (int64_t)0, a)

#define INTEGER_EXACT(name, value)                                             \
  static IntegerResult integer_##name(int64_t a, int64_t b, int64_t *out) {    \
    (void)b;                                                                   \
    *out = value;                                                              \
    return INTEGER_exact;                                                      \
  }
INTEGER_EXACT(minimum, a < b ? a : b)
INTEGER_EXACT(maximum, a > b ? a : b)
INTEGER_EXACT(eq, a == b)
INTEGER_EXACT(ne, a != b)
INTEGER_EXACT(lt, a < b)
INTEGER_EXACT(gt, a > b)
INTEGER_EXACT(le, a <= b)
INTEGER_EXACT(ge, a >= b)
INTEGER_EXACT(same, a)
INTEGER_EXACT(sign, (a > 0) - (a < 0))
INTEGER_EXACT(relu, a > 0 ? a : 0)

static IntegerResult integer_abs(int64_t a, int64_t b, int64_t *out) {
  return a < 0 ? integer_neg(a, b, out) : integer_same(a, b, out);
}

/* INT64_MIN / -1 overflows. */
static IntegerResult integer_floordiv(int64_t a, int64_t b, int64_t *out) {
  if (b == -1) return integer_neg(a, b, out);
  *out = floor_div(a, b);
  return INTEGER_exact;
}

static IntegerResult integer_div(int64_t a, int64_t b, int64_t *out) {
  if (b != -1 && a % b != 0) return INTEGER_is_float;
  return integer_floordiv(a, b, out);
}

static IntegerResult integer_mod(int64_t a, int64_t b, int64_t *out) {
  *out = b == -1 ? 0 : a - floor_div(a, b) * b;
  return INTEGER_exact;
}

/* Operators that are exact on integers; the others compute floats. */
static IntegerFunction *const integer_functions[N_OPS] = {
    [OP_add] = integer_add,
    [OP_sub] = integer_sub,
    [OP_mul] = integer_mul,
    [OP_neg] = integer_neg,
    [OP_abs] = integer_abs,
    [OP_div] = integer_div,
    [OP_floordiv] = integer_floordiv,
    [OP_mod] = integer_mod,
    [OP_minimum] = integer_minimum,
    [OP_maximum] = integer_maximum,
    [OP_eq] = integer_eq,
    [OP_ne] = integer_ne,
    [OP_lt] = integer_lt,
    [OP_gt] = integer_gt,
    [OP_le] = integer_le,
    [OP_ge] = integer_ge,
    [OP_floor] = integer_same,
    [OP_ceil] = integer_same,
    [OP_trunc] = integer_same,
    [OP_round] = integer_same,
    [OP_stop_gradient] = integer_same,
    [OP_sign] = integer_sign,
    [OP_relu] = integer_relu,
};

static bool compute_int(Elab *e, Op op, int64_t a, int64_t b, Span span,
                        ExprValue *out) {
  int64_t r = 0;
  IntegerFunction *function = integer_functions[op];
  IntegerResult result = function ? function(a, b, &r) : INTEGER_is_float;
  if (result == INTEGER_is_float) return false;
  bool is_bool = op_info(op)->pw_class == PW_COMPARE;
  *out = is_bool ? expr_value_bool(r != 0) : expr_value_int(r);
  if (result == INTEGER_exact) return true;
  diag(e->diags, DIAG_overflow, span);
  *out = POISON;
  return true;
}

ExprValue expr_value_whole(ExprValue val) {
  bool is_whole = val.kind == EXPR_VALUE_float &&
                  val.floating == floor(val.floating) &&
                  fabs(val.floating) <= 0x1p53;
  return is_whole ? expr_value_int((int64_t)val.floating) : val;
}

bool expr_value_equal(ExprValue a, ExprValue b) {
  if (expr_value_is_number(a) && expr_value_is_number(b))
    return a.kind == EXPR_VALUE_int && b.kind == EXPR_VALUE_int
               ? a.integer == b.integer
               : expr_value_to_double(a) == expr_value_to_double(b);
  if (a.kind != b.kind) return false;
  switch (a.kind) {
  case EXPR_VALUE_none: return true;
  case EXPR_VALUE_bool: return a.boolean == b.boolean;
  case EXPR_VALUE_string: return a.string == b.string;
  case EXPR_VALUE_tensor: return value_equal(a.tensor, b.tensor);
  case EXPR_VALUE_gate: return a.gate == b.gate;
  case EXPR_VALUE_list:
    if (a.list->n != b.list->n) return false;
    for (int i = 0; i < a.list->n; i++)
      if (!expr_value_equal(a.list->items[i], b.list->items[i])) return false;
    return true;
  default: return false;
  }
}

static ExprValue wrong_kind(Elab *e, Op op, ExprValue val, const char *wanted,
                            const Expr *x) {
  diag(e->diags, DIAG_wrong_operand, x ? x->span : e->graph->span,
       op_spelling(op), wanted, expr_value_describe(e, val));
  return POISON;
}

static ExprValue compute_logic(Elab *e, Op op, const ExprValue *args,
                               const Expr *const *exprs, int n) {
  for (int i = 0; i < n; i++)
    if (args[i].kind != EXPR_VALUE_bool)
      return wrong_kind(e, op, args[i], "a boolean", exprs ? exprs[i] : NULL);
  double b = n > 1 ? args[1].boolean : 0;
  return expr_value_bool(compute_float(op, args[0].boolean, b) != 0);
}

/* A boolean counts as 0 or 1, as it does in tensors. */
static ExprValue as_number(ExprValue val) {
  return val.kind == EXPR_VALUE_bool ? expr_value_int(val.boolean) : val;
}

ExprValue expr_value_compute(Elab *e, Op op, const ExprValue *given,
                             const Expr *const *exprs, int n) {
  const OpInfo *info = op_info(op);
  if (info->pw_class == PW_LOGIC) return compute_logic(e, op, given, exprs, n);
  if (op == OP_select) {
    if (given[0].kind != EXPR_VALUE_bool)
      return wrong_kind(e, op, given[0], "a boolean", exprs ? exprs[0] : NULL);
    return given[0].boolean ? given[1] : given[2];
  }
  Span span = e->graph->span;
  ExprValue args[3];
  bool all_ints = true, all_numbers = true;
  for (int i = 0; i < n; i++) {
    args[i] = as_number(given[i]);
    all_numbers = all_numbers && expr_value_is_number(args[i]);
    all_ints = all_ints && args[i].kind == EXPR_VALUE_int;
  }
  if ((op == OP_eq || op == OP_ne) && !all_numbers)
    return expr_value_bool(expr_value_equal(given[0], given[1]) ==
                           (op == OP_eq));
  for (int i = 0; i < n; i++)
    if (!expr_value_is_number(args[i]))
      return wrong_kind(e, op, args[i], "a number", exprs ? exprs[i] : NULL);
  if (op_has(op, OP_FLAG_divides) && expr_value_to_double(args[1]) == 0) {
    diag(e->diags, DIAG_division_by_zero, span);
    return POISON;
  }
  ExprValue out;
  int64_t second = n > 1 && all_ints ? args[1].integer : 0;
  if (all_ints && compute_int(e, op, args[0].integer, second, span, &out))
    return out;
  double r = compute_float(op, expr_value_to_double(args[0]),
                           n > 1 ? expr_value_to_double(args[1]) : 0);
  return info->pw_class == PW_COMPARE ? expr_value_bool(r != 0)
                                      : expr_value_float(r);
}

/* ---- texts ---- */

const Type *elab_ordered_type(const Elab *e, ExprValue val) {
  const Type *type = elab_type(e, val);
  if (!val.order) return type;
  Type *ordered = type_create(e->arena, type->dtype, type->rank);
  for (int i = 0; i < type->rank; i++)
    ordered->dims[i] = type->dims[type_find(type, val.order[i])];
  return ordered;
}

const char *type_describe(Elab *e, const Type *type) {
  Text text = text_create(e->arena);
  text_add(&text, "[");
  for (int i = 0; i < type->rank; i++)
    text_printf(&text, "%s%s", i ? ", " : "", type->dims[i].name);
  text_add(&text, "]");
  return text_string(&text);
}

const char *expr_value_describe(Elab *e, ExprValue val) {
  switch (val.kind) {
  case EXPR_VALUE_poison: return "wrong";
  case EXPR_VALUE_none: return "none";
  case EXPR_VALUE_bool: return val.boolean ? "true" : "false";
  case EXPR_VALUE_int:
    return arena_printf(e->arena, "%lld", (long long)val.integer);
  case EXPR_VALUE_float: {
    Text text = text_create(e->arena);
    text_add_real(&text, val.floating);
    return text_string(&text);
  }
  case EXPR_VALUE_string:
    return arena_printf(e->arena, "the string \"%s\"", val.string);
  case EXPR_VALUE_list:
    return arena_printf(e->arena, "a list of %d", val.list->n);
  case EXPR_VALUE_gate: return "a gate";
  case EXPR_VALUE_tensor: {
    const Type *type = elab_type(e, val);
    return arena_printf(e->arena, "a tensor %s%s", dtype_name(type->dtype),
                        type_describe(e, type));
  }
  }
  UNREACHABLE();
}

const char *expr_describe(Elab *e, const Expr *x) {
  size_t n = x && x->span.source ? x->span.end - x->span.begin : 0;
  const char *text = n ? x->span.source->text + x->span.begin : NULL;
  if (!n || n > LONGEST_QUOTE || memchr(text, '\n', n)) return "this value";
  return arena_printf(e->arena, "'%.*s'", (int)n, text);
}

const char *expr_subject(Elab *e, const Expr *x) {
  bool is_literal = x && (x->kind == EXPR_int || x->kind == EXPR_float ||
                          x->kind == EXPR_string);
  return is_literal ? "this value" : expr_describe(e, x);
}

const Type *elab_type(const Elab *e, ExprValue val) {
  return graph_type(e->graph, val.tensor);
}
