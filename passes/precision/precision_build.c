/*
 * precision_build.c -- the graph that rounds where precision.c has decided.
 *
 * Every real value is there as f32, rounded, or both; the other one is made for
 * the first reader that wants it.  A value that the program typed in 16 bits is
 * computed in f32 and rounded to its dtype, whoever reads it.
 */
#include "passes/precision/precision.h"

static bool is_real(const Rounding *r, Value value) {
  return dtype_is_rounded(precision_dtype(r, value));
}

static bool is_typed_short(const Rounding *r, Value value) {
  return dtype_is_16bit(precision_dtype(r, value));
}

/* ---- a value in the dtype that is wanted ---- */

/* A cast that stands with the value.  A gradient is rounded before it is
 * reduced: every rank and micro-batch rounds its part. */
static Value cast_at(Rounding *r, Value old, Value value, DType dtype,
                     bool is_part) {
  Graph *to = r->rewrite.to;
  if (graph_type(to, value)->dtype == dtype) return value;
  Name path = to->path;
  Span span = to->span;
  Phase phase = to->phase;
  rewrite_at(&r->rewrite, old.node);
  Names *names = to->module->names;
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dtype, name_intern(names, dtype_name(dtype)));
  if (is_part) attrs_name(&attrs, ATTR_reduce, name_intern(names, "sum"));
  value = graph_append(to, OP_cast, &value, 1, &attrs);
  to->path = path;
  to->span = span;
  to->phase = phase;
  return value;
}

static Value wide(Rounding *r, Value old) {
  Facts *facts = precision_facts(r, old);
  if (!value_is(facts->wide))
    facts->wide = cast_at(r, old, facts->narrow, DT_f32, false);
  return facts->wide;
}

/* In the dtype of computation, or the one that it is typed. */
static Value narrow(Rounding *r, Value old) {
  Facts *facts = precision_facts(r, old);
  if (!value_is(facts->narrow))
    facts->narrow = cast_at(r, old, facts->wide, r->precision->compute, false);
  return facts->narrow;
}

static Value in_dtype(Rounding *r, Value old, DType dtype) {
  DType own =
      is_typed_short(r, old) ? precision_dtype(r, old) : r->precision->compute;
  if (own == dtype) return narrow(r, old);
  return cast_at(r, old, wide(r, old), dtype, false);
}

static void set_result(Rounding *r, Value old, Value now) {
  Facts *facts = precision_facts(r, old);
  DType is = graph_type(r->rewrite.to, now)->dtype;
  if (!is_real(r, old) || (is == DT_f32 && facts->rounded == DT_f32)) {
    facts->wide = now;
  } else if (facts->rounded == DT_f32) {
    facts->narrow = now;
  } else {
    facts->narrow = cast_at(r, old, now, facts->rounded, facts->is_gradient);
  }
}

/* Appends node `id` with these inputs and reals of these dtypes as results. */
static void append(Rounding *r, int id, const Value *inputs, const Attrs *attrs,
                   DType dtype) {
  const Node *node = r->from->nodes.data[id];
  Arena *arena = r->from->module->arena;
  const Type **types =
      ARENA_ARRAY(r->rewrite.ctx->scratch, const Type *, node->n_results);
  for (int i = 0; i < node->n_results; i++) {
    bool is_lse = node->op == OP_attention && i == 1;
    types[i] = is_real(r, (Value){id, i}) && !is_lse
                   ? type_with_dtype(arena, node->types[i], dtype)
                   : node->types[i];
  }
  rewrite_at(&r->rewrite, id);
  Value first =
      graph_append_typed(r->rewrite.to, node->op, inputs, node->n_inputs, attrs,
                         types, node->n_results, node->body);
  for (int i = 0; i < node->n_results; i++)
    set_result(r, (Value){id, i}, (Value){first.node, i});
}

static void set_dtype(Rounding *r, Attrs *attrs, DType dtype) {
  attrs_name(attrs, ATTR_dtype,
             name_intern(r->from->module->names, dtype_name(dtype)));
}

/* ---- kinds of nodes ---- */

/* Operands that are typed alike keep their dtype. */
static DType operand_dtype(const Rounding *r, const Node *node) {
  DType dtype = precision_dtype(r, node->inputs[0]);
  for (int i = 0; i < node->n_inputs; i++) {
    bool is_lse = node->op == OP_attention_grad && i == 4;
    if (!is_lse && precision_dtype(r, node->inputs[i]) != dtype)
      return r->precision->compute;
  }
  return dtype_is_16bit(dtype) ? dtype : r->precision->compute;
}

/* Operands are rounded; the sum is rounded once, if at all. */
static void build_product(Rounding *r, int id, Value *inputs) {
  const Node *node = r->from->nodes.data[id];
  Attrs attrs = node_attrs(node);
  DType operands = operand_dtype(r, node), dtype = r->facts[id][0].rounded;
  for (int i = 0; i < node->n_inputs; i++) {
    bool is_lse = node->op == OP_attention_grad && i == 4;
    inputs[i] = is_real(r, node->inputs[i]) && !is_lse
                    ? in_dtype(r, node->inputs[i], operands)
                    : wide(r, node->inputs[i]);
  }
  if (precision_is_attention(node->op)) dtype = operands;
  if (dtype != operands || node_has(node, ATTR_dtype))
    set_dtype(r, &attrs, dtype);
  append(r, id, inputs, &attrs, dtype);
}

/* All that is moved is there rounded, or may be rounded before the move. */
static bool moves_rounded(const Rounding *r, int id) {
  const Node *node = r->from->nodes.data[id];
  DType typed = precision_dtype(r, (Value){id, 0});
  bool any = false;
  for (int i = 0; i < node->n_inputs; i++) {
    if (!is_real(r, node->inputs[i])) continue;
    const Facts *facts = precision_facts(r, node->inputs[i]);
    bool is_table = node->op == OP_gather && !facts->is_multiplied;
    bool may_round = r->facts[id][0].rounded != DT_f32 && !is_table;
    if (precision_dtype(r, node->inputs[i]) != typed) return false;
    if (facts->rounded == DT_f32 && !may_round) return false;
    any = true;
  }
  return any;
}

static void build_move(Rounding *r, int id, Value *inputs) {
  const Node *node = r->from->nodes.data[id];
  Attrs attrs = node_attrs(node);
  bool is_narrow = moves_rounded(r, id);
  DType dtype = DT_f32;
  for (int i = 0; i < node->n_inputs; i++) {
    bool is_rounded = is_narrow && is_real(r, node->inputs[i]);
    inputs[i] =
        is_rounded ? narrow(r, node->inputs[i]) : wide(r, node->inputs[i]);
    if (is_rounded) dtype = graph_type(r->rewrite.to, inputs[i])->dtype;
  }
  append(r, id, inputs, &attrs, dtype);
}

/* Between reals: what the program asks for, and rounded on. */
static void build_cast(Rounding *r, int id) {
  const Node *node = r->from->nodes.data[id];
  Value now = wide(r, node->inputs[0]);
  if (is_typed_short(r, (Value){id, 0}))
    now = in_dtype(r, node->inputs[0], node->types[0]->dtype);
  set_result(r, (Value){id, 0}, now);
}

/* Everything else computes in f32.  Two kernels that stand alone read the
 * short values themselves: sums of rows, and maxima, which are only compared.
 */
static void build_other(Rounding *r, int id, Value *inputs) {
  const Node *node = r->from->nodes.data[id];
  Attrs attrs = node_attrs(node);
  bool is_pool = node->op == OP_maxpool_grad &&
                 precision_facts(r, node->inputs[0])->rounded != DT_f32;
  bool is_sum = node->op == OP_scatter_add &&
                precision_facts(r, node->inputs[0])->rounded != DT_f32;
  for (int i = 0; i < node->n_inputs; i++) {
    bool is_narrow = (is_pool && i < 2) || (is_sum && i == 0);
    inputs[i] =
        is_narrow ? narrow(r, node->inputs[i]) : wide(r, node->inputs[i]);
  }
  bool is_typed = is_typed_short(r, (Value){id, 0});
  if (is_sum || (is_typed && node_has(node, ATTR_dtype)))
    set_dtype(r, &attrs, DT_f32);
  append(r, id, inputs, &attrs, DT_f32);
}

/* ---- scans ---- */

/* What a body's input is given: rounded if it is so outside, or if products
 * alone read it. */
static Value given_to_body(Rounding *r, int id, int index) {
  const Node *node = r->from->nodes.data[id];
  Value value = node->inputs[index];
  Facts *inner =
      precision_facts(r->bodies[id], node->body->inputs.data[index].value);
  bool is_carried = scan_input_role(node, index) == ROLE_carry;
  bool is_short = inner->is_short || is_typed_short(r, value) ||
                  (!is_carried && precision_facts(r, value)->rounded != DT_f32);
  if (!is_real(r, value) || !is_short) return wide(r, value);
  value = narrow(r, value);
  inner->rounded = graph_type(r->rewrite.to, value)->dtype;
  return value;
}

static void build_scan(Rounding *r, int id, Value *inputs) {
  const Node *node = r->from->nodes.data[id];
  for (int i = 0; i < node->n_inputs; i++) inputs[i] = given_to_body(r, id, i);
  Graph *body = precision_build(r->bodies[id]);
  Attrs attrs = node_attrs(node);
  const Type **types =
      ARENA_ARRAY(r->rewrite.ctx->scratch, const Type *, node->n_results);
  for (int i = 0; i < node->n_results; i++)
    types[i] =
        type_with_dtype(r->from->module->arena, node->types[i],
                        graph_type(body, body->outputs.data[i].value)->dtype);
  rewrite_at(&r->rewrite, id);
  Value first =
      graph_append_typed(r->rewrite.to, OP_scan, inputs, node->n_inputs, &attrs,
                         types, node->n_results, body);
  for (int i = 0; i < node->n_results; i++)
    set_result(r, (Value){id, i}, (Value){first.node, i});
}

static void build_body_input(Rounding *r, int id) {
  const GraphInput *input =
      &r->from->inputs.data[node_int(r->from->nodes.data[id], ATTR_index, 0)];
  Facts *facts = &r->facts[id][0];
  const Type *type = r->from->nodes.data[id]->types[0];
  if (is_real(r, input->value))
    type = type_with_dtype(r->from->module->arena, type, facts->rounded);
  rewrite_at(&r->rewrite, id);
  set_result(r, input->value, rewrite_input(r->rewrite.to, input, type));
}

/* The dtype of what the body hands on: a carry comes and goes in one. */
static Value handed_on(Rounding *r, int index) {
  const GraphOutput *output = &r->from->outputs.data[index];
  const Facts *result = &r->outer->facts[r->scan_id][index];
  if (is_typed_short(r, output->value)) return narrow(r, output->value);
  bool is_rounded = result->rounded != DT_f32 && !result->is_gradient;
  return is_real(r, output->value) && is_rounded ? narrow(r, output->value)
                                                 : wide(r, output->value);
}

/* ---- the whole ---- */

/* Weights are kept in the dtype `master`, but for those that were typed. */
static void build_input(Rounding *r, int id) {
  const Node *node = r->from->nodes.data[id];
  const GraphInput *input =
      &r->from->inputs.data[node_int(node, ATTR_index, 0)];
  const Type *type = node->types[0];
  Facts *facts = &r->facts[id][0];
  bool is_master = input->role == ROLE_param;
  if (is_master && type->dtype == DT_f32 && !facts->is_typed)
    type = type_with_dtype(r->from->module->arena, type, r->precision->master);
  rewrite_at(&r->rewrite, id);
  Value now = rewrite_input(r->rewrite.to, input, type);
  if (type->dtype == node->types[0]->dtype) {
    set_result(r, (Value){id, 0}, now);
    return;
  }
  if (type->dtype == r->precision->compute) facts->narrow = now;
  facts->wide = cast_at(r, (Value){id, 0}, now, DT_f32, false);
}

static bool casts_reals(const Rounding *r, int id) {
  const Node *node = r->from->nodes.data[id];
  return node->op == OP_cast && is_real(r, (Value){id, 0}) &&
         is_real(r, node->inputs[0]);
}

static void build_node(Rounding *r, int id) {
  const Node *node = r->from->nodes.data[id];
  Value *inputs = ARENA_ARRAY(r->rewrite.ctx->scratch, Value, node->n_inputs);
  if (node->op == OP_input && r->scan)
    build_body_input(r, id);
  else if (node->op == OP_input)
    build_input(r, id);
  else if (node->op == OP_scan)
    build_scan(r, id, inputs);
  else if (casts_reals(r, id))
    build_cast(r, id);
  else if (precision_is_product(r, id))
    build_product(r, id, inputs);
  else if (precision_is_move(node->op))
    build_move(r, id, inputs);
  else
    build_other(r, id, inputs);
}

static Value output_value(Rounding *r, int index) {
  const GraphOutput *output = &r->from->outputs.data[index];
  if (r->scan) return handed_on(r, index);
  const Facts *facts = precision_facts(r, output->value);
  if (output->role != ROLE_grad || !is_real(r, output->value))
    return is_typed_short(r, output->value) ? narrow(r, output->value)
                                            : wide(r, output->value);
  bool is_rounded =
      facts->rounded == r->precision->grads && facts->rounded != DT_f32;
  Value value = is_rounded ? narrow(r, output->value) : wide(r, output->value);
  return cast_at(r, output->value, value, r->precision->grads, true);
}

Graph *precision_build(Rounding *r) {
  for (int id = 0; id < r->from->nodes.n; id++)
    if (r->is_live[id] || r->from->nodes.data[id]->op == OP_input)
      build_node(r, id);
  for (int i = 0; i < r->from->outputs.n; i++) {
    const GraphOutput *output = &r->from->outputs.data[i];
    graph_output(r->rewrite.to, output->role, output->path, output_value(r, i));
  }
  return r->rewrite.to;
}
