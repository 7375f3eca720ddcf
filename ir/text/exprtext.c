/*
 * exprtext.c -- turns the formula texts of tables into nodes: derivatives of
 * pointwise rows (ops.def), optimizers and learning rates (optimizers.def).
 *
 *     "R(0.5) * a + EXP(-y)"   "m = b1 * m + (1 - b1) * g; w = w - lr * m"
 *
 * A recursive descent over the C subset that those texts use: numbers, names,
 * unary minus and not, * /, + -, one comparison, && and ||, R(x), SEL(c, x, y),
 * functions, whose capital names are those of operators in small letters, and
 * the reductions of tensors SUM, MEAN, NORM and ORTH.
 * Arithmetic on constants is done here, in double: "1 - b1" must be the f32
 * nearest to 0.1, not 1 minus the f32 nearest to 0.9.
 */
#include <ctype.h>
#include <math.h>
#include <string.h>

#include "ir/ir.h"

/* A number not yet in the graph, or a value in it. */
typedef struct Term {
  bool is_number;
  double number;
  Value value;
} Term;

typedef struct Reader {
  ExprScope *scope;
  const char *at;
} Reader;

static Term read_formula_or(Reader *reader);

static Term literal_term(double x) {
  return (Term){.is_number = true, .number = x, .value = VALUE_NONE};
}

static Value term_value(Reader *reader, Term term) {
  if (!term.is_number) return term.value;
  return graph_const(reader->scope->graph, reader->scope->dtype, term.number);
}

static void skip_blanks(Reader *reader) {
  while (*reader->at == ' ') reader->at++;
}

static bool accept_char(Reader *reader, const char *token) {
  skip_blanks(reader);
  size_t n = strlen(token);
  if (strncmp(reader->at, token, n) != 0) return false;
  reader->at += n;
  return true;
}

static void expect_char(Reader *reader, const char *token) {
  ASSERT(accept_char(reader, token));
}

static size_t word_length(const char *at) {
  size_t n = 0;
  if (!isalpha((unsigned char)*at)) return 0;
  while (isalnum((unsigned char)at[n]) || at[n] == '_') n++;
  return n;
}

static Term apply1(Reader *reader, Op op, Term a) {
  if (a.is_number && op == OP_neg) return literal_term(-a.number);
  if (a.is_number && op == OP_sqrt) return literal_term(sqrt(a.number));
  Value x = term_value(reader, a);
  return (Term){.value = graph_op1(reader->scope->graph, op, x)};
}

/* Arithmetic on numbers is done at once; all else becomes nodes. */
static const bool is_folded[N_OPS] = {
    [OP_add] = true, [OP_sub] = true,     [OP_mul] = true,
    [OP_div] = true, [OP_minimum] = true, [OP_maximum] = true,
};

static Term apply2(Reader *reader, Op op, Term a, Term b) {
  if (a.is_number && b.is_number && is_folded[op]) {
    return literal_term(op_value(op, a.number, b.number, 0));
  }
  Value x = term_value(reader, a), y = term_value(reader, b);
  return (Term){.value = graph_op2(reader->scope->graph, op, x, y)};
}

/* A name bound to a constant node counts as a number, so that it folds. */
static Term read_formula_name(Reader *reader, size_t length) {
  const ExprScope *scope = reader->scope;
  for (int i = 0; i < scope->n; i++) {
    const ExprName *item = &scope->names[i];
    if (strlen(item->name) != length ||
        strncmp(item->name, reader->at, length) != 0) {
      continue;
    }
    reader->at += length;
    const Node *node = graph_node(scope->graph, item->value);
    if (node->op == OP_const && node->types[0]->dtype == scope->dtype) {
      return literal_term(node_float(node, ATTR_value, 0));
    }
    return (Term){.value = item->value};
  }
  UNREACHABLE(); /* the text uses a name that nobody bound */
}

/* ---- functions of tensors ---- */

static const ExprDims *find_group(const ExprScope *scope, const char *name,
                                  size_t length) {
  for (int i = 0; i < scope->n_groups; i++) {
    const ExprDims *group = &scope->groups[i];
    if (strlen(group->name) == length &&
        strncmp(group->name, name, length) == 0)
      return group;
  }
  UNREACHABLE(); /* the text names dims that the parameter has not */
}

/* Fills `out` with the dims of `type` that a reduction goes over: those of the
 * groups that follow, all without any. */
static int read_formula_dims(Reader *reader, const Type *type, Name *out) {
  int n = 0;
  bool has_groups = false;
  while (accept_char(reader, ",")) {
    skip_blanks(reader);
    size_t length = word_length(reader->at);
    const ExprDims *group = find_group(reader->scope, reader->at, length);
    reader->at += length;
    has_groups = true;
    for (int i = 0; i < group->n; i++)
      if (type_find(type, group->dims[i]) >= 0) out[n++] = group->dims[i];
  }
  for (int i = 0; i < type->rank && !has_groups; i++)
    out[n++] = type->dims[i].name;
  return n;
}

static Value read_reduction(Reader *reader, const char *name) {
  ExprScope *scope = reader->scope;
  Graph *graph = scope->graph;
  Value x = term_value(reader, read_formula_or(reader));
  const Type *type = graph_type(graph, x);
  Name dims[MAX_RANK];
  int n = read_formula_dims(reader, type, dims);
  expect_char(reader, ")");
  if (strcmp(name, "norm") == 0) x = graph_op2(graph, OP_mul, x, x);
  if (n > 0) x = graph_reduce(graph, OP_sum, x, dims, n);
  if (strcmp(name, "norm") == 0) return graph_op1(graph, OP_sqrt, x);
  if (strcmp(name, "sum") == 0) return x;
  double elements = 1;
  for (int i = 0; i < n; i++) elements *= (double)type_size(type, dims[i]);
  Value factor = graph_const(graph, scope->dtype, 1 / elements);
  return graph_op2(graph, OP_mul, x, factor);
}

static Value rename_dims(Graph *graph, Value x, const ExprDims *from,
                         const ExprDims *to) {
  Attrs attrs = {0};
  attrs_names(&attrs, ATTR_from, from->dims, from->n);
  attrs_names(&attrs, ATTR_to, to->dims, to->n);
  return graph_append(graph, OP_rename, &x, 1, &attrs);
}

static Value contract_terms(Graph *graph, Value a, Value b,
                            const ExprDims *over) {
  Attrs attrs = {0};
  attrs_names(&attrs, ATTR_over, over->dims, over->n);
  return graph_append(graph, OP_dot, (Value[]){a, b}, 2, &attrs);
}

static Value combine_groups(ExprScope *scope, double s, Value a, double t,
                            Value b) {
  Graph *graph = scope->graph;
  Value x = graph_const(graph, scope->dtype, s),
        y = graph_const(graph, scope->dtype, t);
  return graph_op2(graph, OP_add, graph_op2(graph, OP_mul, a, x),
                   graph_op2(graph, OP_mul, b, y));
}

static double group_size(const Type *type, const ExprDims *group) {
  double n = 1;
  for (int i = 0; i < group->n; i++)
    n *= (double)type_size(type, group->dims[i]);
  return n;
}

/* The dims of `group` under names that no tensor has: "C" is "C~", "C~~". */
static ExprDims fresh_dims(Names *names, const ExprDims *group) {
  ExprDims fresh = {.n = group->n};
  for (int i = 0; i < group->n; i++)
    fresh.dims[i] = name_format(names, "%s~", group->dims[i]);
  return fresh;
}

/* ORTH(x), the nearest matrix with orthonormal rows, about: five steps of the
 * quintic Newton-Schulz iteration of Jordan et al. 2024 on x (of norm at most
 * 1) as a matrix of the groups `in` and `out`; other dims are batched.
 *
 *     A = X X^T;  X = a X + (b A + c A A) X      rows: the smaller group  */
static Value orthogonalise(ExprScope *scope, Value x) {
  Graph *graph = scope->graph;
  Names *names = graph->module->names;
  const Type *type = graph_type(graph, x);
  const ExprDims *in = find_group(scope, "in", 2),
                 *out = find_group(scope, "out", 3);
  bool is_wide = group_size(type, in) <= group_size(type, out);
  const ExprDims *rows = is_wide ? in : out, *columns = is_wide ? out : in;
  ExprDims rows2 = fresh_dims(names, rows), rows3 = fresh_dims(names, &rows2);
  for (int i = 0; i < 5; i++) {
    Value x2 = rename_dims(graph, x, rows, &rows2);
    Value a = contract_terms(graph, x, x2, columns);
    Value a2 = rename_dims(graph, a, &rows2, &rows3);
    a2 = rename_dims(graph, a2, rows, &rows2);
    Value aa = rename_dims(graph, contract_terms(graph, a, a2, &rows2), &rows3,
                           &rows2);
    Value b = combine_groups(scope, -4.7750, a, 2.0315, aa);
    Value bx = contract_terms(graph, b, x2, &rows2);
    Value three = graph_const(graph, scope->dtype, 3.4445);
    x = graph_op2(graph, OP_add, graph_op2(graph, OP_mul, x, three), bx);
  }
  return graph_transpose_to(graph, x, type);
}

static bool is_reduction_word(const char *name) {
  return strcmp(name, "sum") == 0 || strcmp(name, "mean") == 0 ||
         strcmp(name, "norm") == 0;
}

/* ---- the descent ---- */

static Term read_formula_call(Reader *reader, size_t length) {
  char name[32] = {0};
  ASSERT(length < sizeof(name));
  for (size_t i = 0; i < length; i++) {
    name[i] = (char)tolower((unsigned char)reader->at[i]);
  }
  reader->at += length;
  expect_char(reader, "(");
  if (strcmp(name, "sel") == 0) strcpy(name, "select");
  if (is_reduction_word(name))
    return (Term){.value = read_reduction(reader, name)};
  Term args[3];
  int n = 0;
  do {
    ASSERT(n < 3);
    args[n++] = read_formula_or(reader);
  } while (accept_char(reader, ","));
  expect_char(reader, ")");
  if (strcmp(name, "r") == 0) return args[0];
  if (strcmp(name, "orth") == 0) {
    Value x = term_value(reader, args[0]);
    return (Term){.value = orthogonalise(reader->scope, x)};
  }
  Op op;
  ASSERT(op_find(name, &op) && op_info(op)->is_pointwise &&
         op_info(op)->min_inputs == n);
  if (n == 1) return apply1(reader, op, args[0]);
  if (n == 2) return apply2(reader, op, args[0], args[1]);
  Value a = term_value(reader, args[0]), b = term_value(reader, args[1]),
        c = term_value(reader, args[2]);
  return (Term){.value = graph_op3(reader->scope->graph, op, a, b, c)};
}

static Term read_formula_number(Reader *reader) {
  const char *at = reader->at;
  size_t n = strspn(at, "0123456789.");
  if (at[n] == 'e') {
    n++;
    if (at[n] == '-' || at[n] == '+') n++;
    n += strspn(at + n, "0123456789");
  }
  double x;
  ASSERT(text_read_real(at, n, &x));
  reader->at += n;
  return literal_term(x);
}

static Term read_primary(Reader *reader) {
  skip_blanks(reader);
  if (accept_char(reader, "(")) {
    Term inner = read_formula_or(reader);
    expect_char(reader, ")");
    return inner;
  }
  if (accept_char(reader, "INF")) return literal_term(INFINITY);
  size_t length = word_length(reader->at);
  if (length > 0) {
    return reader->at[length] == '(' ? read_formula_call(reader, length)
                                     : read_formula_name(reader, length);
  }
  return read_formula_number(reader);
}

static Term read_unary(Reader *reader) {
  if (accept_char(reader, "-"))
    return apply1(reader, OP_neg, read_unary(reader));
  if (accept_char(reader, "!"))
    return apply1(reader, OP_not, read_unary(reader));
  return read_primary(reader);
}

static Term read_product(Reader *reader) {
  Term left = read_unary(reader);
  for (;;) {
    if (accept_char(reader, "*")) {
      left = apply2(reader, OP_mul, left, read_unary(reader));
    } else if (accept_char(reader, "/")) {
      left = apply2(reader, OP_div, left, read_unary(reader));
    } else {
      return left;
    }
  }
}

static Term read_sum(Reader *reader) {
  Term left = read_product(reader);
  for (;;) {
    if (accept_char(reader, "+")) {
      left = apply2(reader, OP_add, left, read_product(reader));
    } else if (accept_char(reader, "-")) {
      left = apply2(reader, OP_sub, left, read_product(reader));
    } else {
      return left;
    }
  }
}

static Term read_comparison(Reader *reader) {
  /* Longer spellings first. */
  static const struct {
    const char *token;
    Op op;
  } table[] = {
      {"==", OP_eq}, {"!=", OP_ne}, {"<=", OP_le},
      {">=", OP_ge}, {"<", OP_lt},  {">", OP_gt},
  };
  Term left = read_sum(reader);
  for (int i = 0; i < ARRAY_LENGTH(table); i++) {
    if (accept_char(reader, table[i].token)) {
      return apply2(reader, table[i].op, left, read_sum(reader));
    }
  }
  return left;
}

static Term read_formula_and(Reader *reader) {
  Term left = read_comparison(reader);
  while (accept_char(reader, "&&")) {
    left = apply2(reader, OP_and, left, read_comparison(reader));
  }
  return left;
}

static Term read_formula_or(Reader *reader) {
  Term left = read_formula_and(reader);
  while (accept_char(reader, "||")) {
    left = apply2(reader, OP_or, left, read_formula_and(reader));
  }
  return left;
}

/* "name = " at the reader, but not "name == ". */
static size_t assigned_length(Reader *reader) {
  skip_blanks(reader);
  size_t length = word_length(reader->at);
  const char *after = reader->at + length;
  while (*after == ' ') after++;
  return length > 0 && after[0] == '=' && after[1] != '=' ? length : 0;
}

void expr_bind(ExprScope *scope, const char *name, Value value) {
  for (int i = 0; i < scope->n; i++) {
    if (strcmp(scope->names[i].name, name) == 0) {
      scope->names[i].value = value;
      return;
    }
  }
  ASSERT(scope->n < ARRAY_LENGTH(scope->names));
  scope->names[scope->n++] = (ExprName){name, value};
}

void expr_bind_float(ExprScope *scope, const char *name, double value) {
  expr_bind(scope, name, graph_const(scope->graph, scope->dtype, value));
}

Value expr_find(const ExprScope *scope, const char *name) {
  for (int i = 0; i < scope->n; i++) {
    if (strcmp(scope->names[i].name, name) == 0) return scope->names[i].value;
  }
  return VALUE_NONE;
}

Value expr_build(ExprScope *scope, const char *text) {
  Reader reader = {.scope = scope, .at = text};
  Value last = VALUE_NONE;
  do {
    skip_blanks(&reader);
    if (*reader.at == '\0') break; /* a final semicolon */
    size_t length = assigned_length(&reader);
    const char *name = reader.at;
    if (length > 0) {
      reader.at += length;
      expect_char(&reader, "=");
    }
    last = term_value(&reader, read_formula_or(&reader));
    if (length > 0) {
      Names *names = scope->graph->module->names;
      expr_bind(scope, name_intern_n(names, name, length), last);
    }
  } while (accept_char(&reader, ";"));
  skip_blanks(&reader);
  ASSERT(*reader.at == '\0');
  return last;
}
