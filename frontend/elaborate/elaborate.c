/*
 * elaborate.c -- expressions: what is known at compile time is computed, the
 * rest becomes nodes of the graph.
 *
 * Mistakes are reported where they are seen and give the poison value; what
 * is computed from poison is poison and says nothing.  A budget of nodes, list
 * elements and steps is shared by all graphs of a program; when it runs out
 * everything is poison, so that the walk ends by itself.
 */
#include "frontend/internal.h"

#include <math.h>
#include <string.h>

enum { MOST_ERRORS = 20, MOST_NESTING = 2000 };

Elab *elab_create(Program *program, Name graph_name) {
  Module *m = program->module;
  Elab *e = ARENA_NEW(m->arena, Elab);
  *e = (Elab){.program = program,
              .module = m,
              .arena = m->arena,
              .names = m->names,
              .diags = m->diags,
              .graph = graph_create(m, graph_name),
              .epoch = ++program->n_epochs,
              .params = map_create(m->arena),
              .written_states = map_create(m->arena),
              .data = map_create(m->arena),
              .limits = map_create(m->arena),
              .step = VALUE_NONE,
              .seed = VALUE_NONE};
  return e;
}

/* ---- budget ---- */

void elab_exhausted(Elab *e, Span span, const char *what, int64_t limit) {
  if (!e->program->is_over)
    diag(e->diags, DIAG_budget, span, (long long)limit, what);
  e->program->is_over = true;
}

bool elab_step(Elab *e, Span span) {
  Program *p = e->program;
  if (p->is_over) return false;
  if (++p->spent.steps > p->budget.steps)
    elab_exhausted(e, span, "steps", p->budget.steps);
  else if (p->spent.list_elements > p->budget.list_elements)
    elab_exhausted(e, span, "list elements", p->budget.list_elements);
  else if (diags_errors(e->diags) >= MOST_ERRORS)
    p->is_over = true;
  return !p->is_over;
}

bool elab_may_list(Elab *e, int64_t n, Span span) {
  Program *p = e->program;
  int64_t most = p->budget.list_elements;
  if (n > most - p->spent.list_elements)
    elab_exhausted(e, span, "list elements", most);
  return !p->is_over;
}

/* ---- nodes ---- */

void elab_at(Elab *e, const Expr *x) {
  e->at = x;
  e->graph->span = x->span;
  const char *name = x->kind == EXPR_call    ? "call"
                     : x->kind == EXPR_index ? "rename"
                                             : "value";
  e->graph->path = scope_path(e, x, name);
}

const Type *elab_type(const Elab *e, ExprValue val) {
  return graph_type(e->graph, val.tensor);
}

static bool spend_node(Elab *e) {
  Program *p = e->program;
  if (p->is_over) return false;
  if (++p->spent.nodes > p->budget.nodes)
    elab_exhausted(e, e->graph->span, "nodes", p->budget.nodes);
  return !p->is_over;
}

static void set_origin(Elab *e, int node) {
  while (e->origins.n <= node) vec_push(e->arena, &e->origins, NULL);
  e->origins.data[node] = e->at;
}

ExprValue elab_emit(Elab *e, Op op, const ExprValue *inputs, int n,
                    const Attrs *attrs) {
  enum { FEW = 4 };
  const Type *few_types[FEW], **types = few_types;
  Value few_values[FEW], *values = few_values;
  if (n > FEW) {
    types = ARENA_ARRAY(e->arena, const Type *, n);
    values = ARENA_ARRAY(e->arena, Value, n);
  }
  bool is_weak = true;
  for (int i = 0; i < n; i++) {
    if (!expr_value_is_tensor(inputs[i])) return POISON;
    values[i] = inputs[i].tensor;
    types[i] = elab_type(e, inputs[i]);
    is_weak = is_weak && inputs[i].is_weak;
  }
  if (!spend_node(e)) return POISON;
  OpCall call = {.op = op, .n_inputs = n, .types = types, .attrs = attrs};
  const Type *results[8];
  int n_results = op_infer(e->module, &call, e->graph->span, results);
  if (n_results < 1) return POISON;
  Value value = graph_append_typed(e->graph, op, values, n, attrs, results,
                                   n_results, NULL);
  set_origin(e, value.node);
  return expr_value_tensor(value, is_weak && n > 0);
}

static Name dtype_attr(Elab *e, DType dtype) {
  Name *name = &e->dtypes[dtype];
  if (!*name) *name = name_intern(e->names, dtype_name(dtype));
  return *name;
}

ExprValue elab_number(Elab *e, DType dtype, double value) {
  Attrs attrs = {0};
  attrs_float(&attrs, ATTR_value, value);
  attrs_name(&attrs, ATTR_dtype, dtype_attr(e, dtype));
  ExprValue val = elab_emit(e, OP_const, NULL, 0, &attrs);
  val.is_weak = true;
  return val;
}

bool elab_fits(DType dtype, ExprValue val) {
  if (dtype_class(dtype) == CLASS_BOOL) return val.kind == EXPR_VALUE_bool;
  if (dtype_class(dtype) == CLASS_FLOAT) return expr_value_is_number(val);
  ExprValue whole = expr_value_whole(val);
  if (whole.kind != EXPR_VALUE_int) return false;
  int bits = 8 * dtype_size_bytes(dtype) - (dtype == DT_u8 ? 0 : 1);
  if (bits == 63) bits = 53; /* constants of a graph are doubles */
  int64_t least = dtype == DT_u8 ? 0 : -(INT64_C(1) << bits);
  int64_t most = INT64_C(1) << bits;
  return whole.integer >= least && whole.integer < most;
}

ExprValue elab_scalar(Elab *e, DType dtype, ExprValue val) {
  return elab_fits(dtype, val)
             ? elab_number(e, dtype, expr_value_to_double(val))
             : val;
}

bool elab_dtype(Elab *e, Name name, Span span, DType *out) {
  if (dtype_find(name, out) && *out != DT_f64) return true;
  const char *names[N_DTYPES];
  int n = 0;
  for (int i = 0; i < N_DTYPES; i++)
    if (i != DT_f64) names[n++] = dtype_name((DType)i);
  span.end = span.begin + (uint32_t)strlen(name);
  Diag *d = diag(e->diags, DIAG_unknown_dtype, span, name);
  if (!foreign_help(d, FOREIGN_dtype, name))
    diag_choices(e->arena, d, name, names, n);
  return false;
}

ExprValue elab_cast(Elab *e, ExprValue val, DType dtype) {
  if (!expr_value_is_tensor(val) || elab_type(e, val)->dtype == dtype)
    return val;
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dtype, dtype_attr(e, dtype));
  return elab_emit(e, OP_cast, &val, 1, &attrs);
}

/* Slots but for parameters are f32 in any case; carries may be rounded. */
ExprValue elab_keep_f32(Elab *e, ExprValue val) {
  if (!e->program->rounds || !expr_value_is_tensor(val)) return val;
  const Node *node = graph_node(e->graph, val.tensor);
  if (elab_type(e, val)->dtype != DT_f32 || node->op == OP_cast) return val;
  if (node->op == OP_input) {
    Role role = e->graph->inputs.data[node_int(node, ATTR_index, 0)].role;
    if (role != ROLE_param && role != ROLE_carry) return val;
  }
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dtype, dtype_attr(e, DT_f32));
  return elab_emit(e, OP_cast, &val, 1, &attrs);
}

bool elab_takes(DType dtype, DType has) {
  bool is_rounding = dtype_is_rounded(dtype) && dtype_is_rounded(has);
  return has == dtype || (is_rounding && (dtype == DT_f32 || has == DT_f32));
}

ExprValue elab_typed(Elab *e, const TypeExpr *type, ExprValue val) {
  DType dtype;
  if (!type->dtype || !dtype_find(type->dtype, &dtype) ||
      !expr_value_is_tensor(val) ||
      !elab_takes(dtype, elab_type(e, val)->dtype))
    return val;
  if (dtype == DT_f32) val = elab_keep_f32(e, val);
  val = elab_cast(e, val, dtype);
  val.is_weak = val.is_weak && !dtype_is_16bit(dtype);
  return val;
}

/* ---- messages about dims ---- */

/* Where a value was made from two operands that share a dim, the missing one
 * was probably to be a renamed one of those: attention without T -> S. */
static void note_batched(Elab *e, Diag *d, const Expr *x, Name missing) {
  if (!x || x->kind != EXPR_name) return;
  const Local *local = frame_local(e->frame, x->name);
  if (!local || !expr_value_is_tensor(local->val)) return;
  const Node *node = graph_node(e->graph, local->val.tensor);
  int id = local->val.tensor.node;
  while (op_info(node->op)->is_pointwise && node->n_inputs > 0) {
    id = node->inputs[0].node;
    node = graph_node(e->graph, node->inputs[0]);
  }
  if (node->op != OP_dot) return;
  const Type *a = graph_type(e->graph, node->inputs[0]);
  const Type *b = graph_type(e->graph, node->inputs[1]);
  int n_over;
  const Name *over = node_names(node, ATTR_over, &n_over);
  int first_shared = -1, shared = -1;
  for (int i = 0; i < a->rank && shared < 0; i++) {
    bool contracted = type_find(b, a->dims[i].name) < 0;
    for (int j = 0; j < n_over; j++)
      contracted = contracted || over[j] == a->dims[i].name;
    if (contracted) continue;
    if (first_shared < 0)
      first_shared = i; /* the batch, likely */
    else
      shared = i;
  }
  if (shared < 0) shared = first_shared;
  if (shared < 0) return;
  Name dim = a->dims[shared].name;
  diag_note(d, node->span, "both operands have '%s', so it was batched", dim);
  const Expr *origin = id < e->origins.n ? e->origins.data[id] : NULL;
  bool is_named = origin && origin->kind == EXPR_call && origin->args.n > 1 &&
                  origin->args.items[1].value->kind == EXPR_name;
  diag_help(d, "rename one of them before the matmul, as in %s[%s -> %s]",
            is_named ? origin->args.items[1].value->name : "k", dim, missing);
}

Diag *elab_no_dim(Elab *e, const Expr *x, const Type *type, Name dim,
                  Span span) {
  Diag *d = diag(e->diags, DIAG_no_dimension, span, expr_subject(e, x), dim,
                 type_describe(e, type));
  note_batched(e, d, x, dim);
  if (scan_slices(e, dim))
    diag_help(d, "inside a scan over '%s' values are those of one iteration",
              dim);
  return d;
}

static bool note_operand(Elab *e, Diag *d, const Expr *x, const Dim *dim) {
  if (!x) return false;
  const Local *local =
      x->kind == EXPR_name ? frame_local(e->frame, x->name) : NULL;
  Span span = local ? local->span : x->span;
  if (!span.source) return false;
  diag_note(d, span, "%s %s %s = %lld here", expr_describe(e, x),
            local ? "gets" : "has", dim->name, (long long)dim->size);
  return true;
}

bool elab_unify(Elab *e, const Type *a, const Type *b, const Expr *ax,
                const Expr *bx, Name except, Name except2) {
  for (int i = 0; i < a->rank; i++) {
    int j = type_find(b, a->dims[i].name);
    if (j < 0 || a->dims[i].size == b->dims[j].size) continue;
    if (a->dims[i].name == except || a->dims[i].name == except2) continue;
    Diag *d =
        diag(e->diags, DIAG_size_mismatch, e->graph->span, a->dims[i].name,
             (long)a->dims[i].size, (long)b->dims[j].size);
    if (!note_operand(e, d, bx, &b->dims[j]))
      note_operand(e, d, ax, &a->dims[i]);
    return false;
  }
  return true;
}

void elab_not_supported(Elab *e, Span span, const char *what) {
  diag(e->diags, DIAG_not_supported, span, what);
}

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

/* `and`, `or`: what the left side settles is not looked at further, so that
 * `i > 0 and list[i - 1] == 2` works. */
static bool is_settled(const Expr *x, ExprValue left) {
  return left.kind == EXPR_VALUE_bool &&
         ((x->op == OPERATOR_and && !left.truth) ||
          (x->op == OPERATOR_or && left.truth));
}

static ExprValue operate(Elab *e, const Expr *x, ExprValue a, ExprValue b) {
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
    if (!is_settled(chain[i], left))
      left = operate(e, chain[i], left, eval(e, chain[i]->b));
  }
  return left;
}

static ExprValue not_a_value(Elab *e, const Expr *x, const char *what) {
  diag(e->diags, DIAG_not_a_value, x->span, what);
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
  case EXPR_unary: return operate(e, x, eval(e, x->a), POISON);
  case EXPR_binary: return eval_chain(e, x);
  case EXPR_call: return eval_call(e, x);
  case EXPR_index: return eval_index(e, x);
  case EXPR_field: return data_field(e, x);
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
    e->program->is_over = true;
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
    diag(e->diags, DIAG_not_whole, x->span, expr_subject(e, x),
         expr_value_describe(e, val));
  return false;
}
