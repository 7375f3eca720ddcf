/*
 * emit.c -- appends nodes to the graph, and casts values to the dtype that a
 * node or a declared type requires.
 */
#include "frontend/syntax/help.h"
#include "frontend/elaborate/emit.h"
#include "frontend/elaborate/frame.h"

#include <string.h>

void elab_at(Elab *e, const Expr *x) {
  e->at = x;
  e->graph->span = x->span;
  const char *name = x->kind == EXPR_call    ? "call"
                     : x->kind == EXPR_index ? "rename"
                                             : "value";
  e->graph->path = scope_path(e, x, name);
}

static bool spend_node(Elab *e) {
  SourceTree *p = e->tree;
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
  const Expr *at = e->at;
  bool is_call = at && at->kind == EXPR_call && at->a->kind == EXPR_name;
  OpCall call = {.op = op,
                 .n_inputs = n,
                 .types = types,
                 .attrs = attrs,
                 .called = is_call ? at->a->name : NULL};
  const Type *results[8];
  int n_results = op_infer(e->module, &call, e->graph->span, results);
  if (n_results < 1) return POISON;
  Value value = graph_append_typed(e->graph, op, values, n, attrs, results,
                                   n_results, NULL);
  set_origin(e, value.node);
  return expr_value_tensor(value, is_weak && n > 0);
}

/* ---- dtypes ---- */

static Name dtype_attr(Elab *e, DType dtype) {
  Name *name = &e->dtypes[dtype];
  if (!*name) *name = name_intern(e->names, dtype_name(dtype));
  return *name;
}

ExprValue elab_second_result(ExprValue first) {
  if (!expr_value_is_tensor(first)) return first;
  return expr_value_tensor((Value){first.tensor.node, 1}, false);
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

/* Persistent buffers except parameters are f32; carries may be rounded. */
ExprValue elab_keep_f32(Elab *e, ExprValue val) {
  if (!e->tree->rounds || !expr_value_is_tensor(val)) return val;
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
