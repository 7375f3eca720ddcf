/*
 * precision_build.c -- build the graph with the roundings that precision.c
 * decided.
 *
 * Every float value exists in f32, rounded, or both; the missing form is made
 * for its first reader.  A value that the program typed in 16 bits is computed
 * in f32 and rounded to its dtype for all readers.
 */
#include "passes/precision/precision.h"

static bool is_float_value(const Rounding *r, Value value) {
  return dtype_is_rounded(precision_dtype(r, value));
}

static bool is_typed_16bit(const Rounding *r, Value value) {
  return dtype_is_16bit(precision_dtype(r, value));
}

/* ---- a value in the dtype that is wanted ---- */

/* A cast with path, phase and stage of the value. A gradient is rounded before
 * it is reduced: every rank and micro-batch rounds its partial sum. */
static Value cast_in_place(Rounding *r, Value old, Value value, DType dtype,
                           bool is_partial) {
  Graph *to = r->rewrite.to;
  if (graph_type(to, value)->dtype == dtype) return value;
  Name path = to->path;
  Span span = to->span;
  Phase phase = to->phase;
  uint16_t stage = to->stage;
  rewrite_at(&r->rewrite, old.node);
  Names *names = to->module->names;
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dtype, name_intern(names, dtype_name(dtype)));
  if (is_partial) attrs_name(&attrs, ATTR_reduce, name_intern(names, "sum"));
  value = graph_append(to, OP_cast, &value, 1, &attrs);
  to->path = path;
  to->span = span;
  to->phase = phase;
  to->stage = stage;
  return value;
}

static Value value_in_f32(Rounding *r, Value old) {
  Facts *facts = precision_facts(r, old);
  if (!value_is(facts->in_f32))
    facts->in_f32 = cast_in_place(r, old, facts->in_16bit, DT_f32, false);
  return facts->in_f32;
}

/* In the dtype of computation, or the 16-bit dtype of its type. */
static Value value_in_16bit(Rounding *r, Value old) {
  Facts *facts = precision_facts(r, old);
  if (!value_is(facts->in_16bit))
    facts->in_16bit =
        cast_in_place(r, old, facts->in_f32, r->precision->compute, false);
  return facts->in_16bit;
}

static Value value_in_dtype(Rounding *r, Value old, DType dtype) {
  DType own =
      is_typed_16bit(r, old) ? precision_dtype(r, old) : r->precision->compute;
  if (own == dtype) return value_in_16bit(r, old);
  return cast_in_place(r, old, value_in_f32(r, old), dtype, false);
}

static void set_rounded_result(Rounding *r, Value old, Value now) {
  Facts *facts = precision_facts(r, old);
  DType is = graph_type(r->rewrite.to, now)->dtype;
  if (!is_float_value(r, old) || (is == DT_f32 && facts->rounded == DT_f32)) {
    facts->in_f32 = now;
  } else if (facts->rounded == DT_f32) {
    facts->in_16bit = now;
  } else {
    facts->in_16bit =
        cast_in_place(r, old, now, facts->rounded, facts->is_gradient);
  }
}

/* Appends node `id` with these inputs and attributes (NULL: its own); its float
 * results have this dtype. */
static void append_rounded(Rounding *r, int id, const Value *inputs,
                           const Attrs *attrs, DType dtype) {
  const Node *node = r->from->nodes.data[id];
  Arena *arena = r->from->module->arena;
  const Type **types =
      ARENA_ARRAY(r->rewrite.ctx->scratch, const Type *, node->n_results);
  for (int i = 0; i < node->n_results; i++) {
    bool is_lse = node->op == OP_attention && i >= 1;
    types[i] = is_float_value(r, (Value){id, i}) && !is_lse
                   ? type_with_dtype(arena, node->types[i], dtype)
                   : node->types[i];
  }
  rewrite_at(&r->rewrite, id);
  Value first =
      attrs
          ? graph_append_typed(r->rewrite.to, node->op, inputs, node->n_inputs,
                               attrs, types, node->n_results, node->body)
          : graph_copy_node_as(r->rewrite.to, r->from, id, inputs, types);
  for (int i = 0; i < node->n_results; i++)
    set_rounded_result(r, (Value){id, i}, (Value){first.node, i});
}

static void set_dtype(Rounding *r, Attrs *attrs, DType dtype) {
  attrs_name(attrs, ATTR_dtype,
             name_intern(r->from->module->names, dtype_name(dtype)));
}

/* ---- kinds of nodes ---- */

/* Operands that the program typed alike keep their dtype. */
static DType contraction_dtype(const Rounding *r, const Node *node) {
  DType dtype = precision_dtype(r, node->inputs[0]);
  for (int i = 0; i < node->n_inputs; i++) {
    bool is_lse = node->op == OP_attention_grad && i == 4;
    if (!is_lse && precision_dtype(r, node->inputs[i]) != dtype)
      return r->precision->compute;
  }
  return dtype_is_16bit(dtype) ? dtype : r->precision->compute;
}

/* Rounds the operands; the sum is rounded once, if at all. */
static void build_contraction(Rounding *r, int id, Value *inputs) {
  const Node *node = r->from->nodes.data[id];
  Attrs attrs = node_attrs(node);
  DType operands = contraction_dtype(r, node), dtype = r->facts[id][0].rounded;
  for (int i = 0; i < node->n_inputs; i++) {
    bool is_lse = node->op == OP_attention_grad && i == 4;
    inputs[i] = is_float_value(r, node->inputs[i]) && !is_lse
                    ? value_in_dtype(r, node->inputs[i], operands)
                    : value_in_f32(r, node->inputs[i]);
  }
  if (op_has(node->op, OP_FLAG_attends)) dtype = operands;
  bool is_set = dtype != operands || node_has(node, ATTR_dtype);
  if (is_set) set_dtype(r, &attrs, dtype);
  append_rounded(r, id, inputs, is_set ? &attrs : NULL, dtype);
}

/* Every operand is rounded already, or may be rounded before the move. */
static bool moves_16bit(const Rounding *r, int id) {
  const Node *node = r->from->nodes.data[id];
  DType typed = precision_dtype(r, (Value){id, 0});
  bool any = false;
  for (int i = 0; i < node->n_inputs; i++) {
    if (!is_float_value(r, node->inputs[i])) continue;
    const Facts *facts = precision_facts(r, node->inputs[i]);
    bool is_table = node->op == OP_gather && !facts->is_contracted;
    bool may_round = r->facts[id][0].rounded != DT_f32 && !is_table;
    if (precision_dtype(r, node->inputs[i]) != typed) return false;
    if (facts->rounded == DT_f32 && !may_round) return false;
    any = true;
  }
  return any;
}

static void build_move(Rounding *r, int id, Value *inputs) {
  const Node *node = r->from->nodes.data[id];
  bool is_16bit = moves_16bit(r, id);
  DType dtype = DT_f32;
  for (int i = 0; i < node->n_inputs; i++) {
    bool is_rounded = is_16bit && is_float_value(r, node->inputs[i]);
    inputs[i] = is_rounded ? value_in_16bit(r, node->inputs[i])
                           : value_in_f32(r, node->inputs[i]);
    if (is_rounded) dtype = graph_type(r->rewrite.to, inputs[i])->dtype;
  }
  append_rounded(r, id, inputs, NULL, dtype);
}

/* A cast between float dtypes: the rounding that the program asks for, then
 * that of the precision. */
static void build_cast(Rounding *r, int id) {
  const Node *node = r->from->nodes.data[id];
  Value now = value_in_f32(r, node->inputs[0]);
  if (is_typed_16bit(r, (Value){id, 0}))
    now = value_in_dtype(r, node->inputs[0], node->types[0]->dtype);
  set_rounded_result(r, (Value){id, 0}, now);
}

/* All other operators compute in f32. Two kernels that stand alone read 16-bit
 * values themselves: sums of rows, and maxima, which are only compared. */
static void build_f32_node(Rounding *r, int id, Value *inputs) {
  const Node *node = r->from->nodes.data[id];
  Attrs attrs = node_attrs(node);
  bool is_pool = node->op == OP_maxpool_grad &&
                 precision_facts(r, node->inputs[0])->rounded != DT_f32;
  bool is_sum = node->op == OP_scatter_add &&
                precision_facts(r, node->inputs[0])->rounded != DT_f32;
  for (int i = 0; i < node->n_inputs; i++) {
    bool is_16bit = (is_pool && i < 2) || (is_sum && i == 0);
    inputs[i] = is_16bit ? value_in_16bit(r, node->inputs[i])
                         : value_in_f32(r, node->inputs[i]);
  }
  bool is_typed = is_typed_16bit(r, (Value){id, 0});
  bool is_set = is_sum || (is_typed && node_has(node, ATTR_dtype));
  if (is_set) set_dtype(r, &attrs, DT_f32);
  append_rounded(r, id, inputs, is_set ? &attrs : NULL, DT_f32);
}

/* ---- scans ---- */

/* The operand of a body's input: rounded if it is rounded outside, or if
 * contractions alone read it. */
static Value build_scan_operand(Rounding *r, int id, int index) {
  const Node *node = r->from->nodes.data[id];
  Value value = node->inputs[index];
  Facts *inner =
      precision_facts(r->bodies[id], node->body->inputs.data[index].value);
  bool is_carried = scan_input_role(node, index) == ROLE_carry;
  bool is_16bit = inner->is_16bit || is_typed_16bit(r, value) ||
                  (!is_carried && precision_facts(r, value)->rounded != DT_f32);
  if (!is_float_value(r, value) || !is_16bit) return value_in_f32(r, value);
  value = value_in_16bit(r, value);
  inner->rounded = graph_type(r->rewrite.to, value)->dtype;
  return value;
}

static void build_scan(Rounding *r, int id, Value *inputs) {
  const Node *node = r->from->nodes.data[id];
  for (int i = 0; i < node->n_inputs; i++)
    inputs[i] = build_scan_operand(r, id, i);
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
    set_rounded_result(r, (Value){id, i}, (Value){first.node, i});
}

static void build_body_input(Rounding *r, int id) {
  const GraphInput *input =
      &r->from->inputs.data[node_int(r->from->nodes.data[id], ATTR_index, 0)];
  Facts *facts = &r->facts[id][0];
  const Type *type = r->from->nodes.data[id]->types[0];
  if (is_float_value(r, input->value))
    type = type_with_dtype(r->from->module->arena, type, facts->rounded);
  rewrite_at(&r->rewrite, id);
  set_rounded_result(r, input->value,
                     rewrite_input(r->rewrite.to, input, type));
}

/* An output of a body in its dtype: a carry has one dtype in and out. */
static Value build_body_output(Rounding *r, int index) {
  const GraphOutput *output = &r->from->outputs.data[index];
  const Facts *result = &r->outer->facts[r->scan_id][index];
  if (is_typed_16bit(r, output->value)) return value_in_16bit(r, output->value);
  bool is_rounded = result->rounded != DT_f32 && !result->is_gradient;
  return is_float_value(r, output->value) && is_rounded
             ? value_in_16bit(r, output->value)
             : value_in_f32(r, output->value);
}

/* ---- the graph ---- */

/* A pin is about the form of the value that all readers see. */
static void build_pin(Rounding *r, int id) {
  const Node *node = r->from->nodes.data[id];
  const Facts *facts = precision_facts(r, node->inputs[0]);
  bool is_rounded = value_is(facts->in_16bit) &&
                    (facts->rounded != DT_f32 || !value_is(facts->in_f32));
  Value value = is_rounded ? facts->in_16bit : facts->in_f32;
  const Type *type = graph_type(r->rewrite.to, value);
  rewrite_at(&r->rewrite, id);
  graph_copy_node_as(r->rewrite.to, r->from, id, &value, &type);
}

/* Parameters are stored in the dtype `master`, except those that the program
 * typed. */
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
    set_rounded_result(r, (Value){id, 0}, now);
    return;
  }
  if (type->dtype == r->precision->compute) facts->in_16bit = now;
  facts->in_f32 = cast_in_place(r, (Value){id, 0}, now, DT_f32, false);
}

static bool casts_floats(const Rounding *r, int id) {
  const Node *node = r->from->nodes.data[id];
  return node->op == OP_cast && is_float_value(r, (Value){id, 0}) &&
         is_float_value(r, node->inputs[0]);
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
  else if (casts_floats(r, id))
    build_cast(r, id);
  else if (precision_is_contraction(r, id))
    build_contraction(r, id, inputs);
  else if (precision_is_move(node->op))
    build_move(r, id, inputs);
  else
    build_f32_node(r, id, inputs);
}

static Value build_output(Rounding *r, int index) {
  const GraphOutput *output = &r->from->outputs.data[index];
  if (r->scan) return build_body_output(r, index);
  const Facts *facts = precision_facts(r, output->value);
  if (output->role != ROLE_grad || !is_float_value(r, output->value))
    return is_typed_16bit(r, output->value) ? value_in_16bit(r, output->value)
                                            : value_in_f32(r, output->value);
  bool is_rounded =
      facts->rounded == r->precision->grads && facts->rounded != DT_f32;
  Value value = is_rounded ? value_in_16bit(r, output->value)
                           : value_in_f32(r, output->value);
  return cast_in_place(r, output->value, value, r->precision->grads, true);
}

Graph *precision_build(Rounding *r) {
  GraphPins pins = graph_pins(r->from, r->rewrite.ctx->scratch);
  for (int id = 0; id < r->from->nodes.n; id++) {
    const Node *node = r->from->nodes.data[id];
    if (r->is_live[id] || node->op == OP_input)
      build_node(r, id);
    else if (pin_is_at(&pins, id) && r->is_live[node->inputs[0].node])
      build_pin(r, id);
  }
  for (int i = 0; i < r->from->outputs.n; i++) {
    const GraphOutput *output = &r->from->outputs.data[i];
    graph_output(r->rewrite.to, output->role, output->path, build_output(r, i));
  }
  return r->rewrite.to;
}
