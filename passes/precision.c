/*
 * precision.c -- rounds values to the dtype of computation (language.md 8).
 *
 *     compute = bf16
 *     %2 = gelu %0                     %2 = gelu %0
 *     %3 = dot %2, %1 {over = [C]}     %3 = cast %2 : bf16
 *                                 =>   %4 = cast %1 : bf16
 *                                      %5 = dot %3, %4 {dtype = f32} : f32
 *
 * Pointwise operators, reductions and statistics read and write f32.  A value
 * is rounded where a product, convolution or attention reads it, where several
 * operators read it, and where the backward pass reads what the forward pass
 * made, which is why this comes after autodiff; all its readers then see the
 * rounded value, behind a cast back to f32 that fuses into each of them.
 * Before decompose and fuse, so that neither changes a rounding.  Products sum
 * in f32; one whose result is rounded writes the short dtype at once.
 *
 * Left in f32 whatever reads it (a product rounds its own copy): slots and
 * data, scalars, sums and what follows from sums alone (statistics), what
 * follows from numbers and positions alone, the loss, what `f32` lists, and
 * what the program typed, which is a cast from f32 to f32 up to here.
 *
 * The nodes of one path are one operator of the language: values between them
 * are its own affair.  Rounding commutes with moving elements, so moves handle
 * the short values.
 *
 * requires: whole types, gradients as outputs     keeps: types of outputs, but
 * for gradients, which get the dtype `grads`     cost: O(nodes)
 */
#include <string.h>

#include "passes/rewrite.h"

/* What is known of a value before anything is decided. */
typedef struct Facts {
  bool is_made;       /* from numbers and positions alone */
  bool is_statistic;  /* from sums alone */
  bool is_kept;       /* f32 for all readers */
  bool is_multiplied; /* a product reads it */
  bool is_gradient;   /* moved at most, it is the gradient of a parameter */
  bool crosses;       /* the backward pass reads what the forward pass made */
  bool moves_rounded; /* a move reads it whose result is rounded */
  bool is_typed;      /* an input whose readers are all pins */
  int n_readers;
  Name reader;        /* path of the one there is */
  DType rounded;      /* f32: not rounded */
  Value wide, narrow; /* in the new graph; VALUE_NONE: not made yet */
} Facts;

typedef struct Rounding {
  const Precision *precision;
  const Graph *from;
  Rewrite rewrite;
  Facts **facts; /* [node][result] */
  bool *is_live, *is_listed;
} Rounding;

static Facts *facts_of(const Rounding *r, Value value) {
  return &r->facts[value.node][value.result];
}

/* ---- the list of what stays in f32 ---- */

/* A layer is listed wherever it is called, an operator by its name too. */
static bool entry_matches(const char *entry, const Node *node) {
  return strcmp(entry, op_info(node->op)->name) == 0 ||
         path_has(node->path, entry);
}

static bool is_loss(const Node *node) {
  const char *path = node->path;
  if (!path) return false;
  if (strncmp(path, "grad.", 5) == 0) path += 5;
  return strncmp(path, "loss", 4) == 0 && (path[4] == '.' || path[4] == '\0');
}

static bool is_listed(const Rounding *r, const Node *node) {
  if (is_loss(node)) return true;
  for (int i = 0; i < r->precision->n_f32_paths; i++)
    if (entry_matches(r->precision->f32_paths[i], node)) return true;
  return false;
}

/* ---- kinds of operators ---- */

static bool is_attention(Op op) {
  return op == OP_attention || op == OP_attention_grad;
}

/* Reads short values and sums in f32. */
static bool is_product(const Rounding *r, int id) {
  Op op = r->from->nodes.data[id]->op;
  return !r->is_listed[id] &&
         (op == OP_dot || op == OP_conv || op == OP_conv_input_grad ||
          op == OP_conv_weight_grad || is_attention(op));
}

/* Computes nothing: a rounded value may be moved as it is. */
static bool is_move(Op op) {
  switch (op) {
  case OP_transpose:
  case OP_broadcast:
  case OP_merge_dims:
  case OP_gather:
  case OP_slice:
  case OP_reverse:
  case OP_pad:
  case OP_concat:
  case OP_stop:
  case OP_maxpool: return true;
  default: return op_info(op)->is_view;
  }
}

static bool is_plain(const Type *type) {
  return type->dtype == DT_f32;
}

/* A cast from f32 to f32: what the program typed. */
static bool is_pin(const Graph *graph, const Node *node) {
  return node->op == OP_cast && is_plain(node->types[0]) &&
         is_plain(graph_type(graph, node->inputs[0]));
}

/* ---- facts, in the order of the graph ---- */

static void mark_live(Rounding *r) {
  const Graph *graph = r->from;
  for (int i = 0; i < graph->outputs.n; i++)
    r->is_live[graph->outputs.data[i].value.node] = true;
  for (int id = graph->nodes.n - 1; id >= 0; id--) {
    const Node *node = graph->nodes.data[id];
    for (int i = 0; r->is_live[id] && i < node->n_inputs; i++)
      r->is_live[node->inputs[i].node] = true;
  }
}

static bool sums(Op op) {
  return op_is_reduction(op) || op == OP_logsumexp;
}

/* From real inputs that are statistics, and from at least one. */
static bool follows_from_statistics(const Rounding *r, const Node *node) {
  bool any = false;
  if (!op_info(node->op)->is_pointwise && !is_move(node->op)) return false;
  for (int i = 0; i < node->n_inputs; i++) {
    const Facts *input = facts_of(r, node->inputs[i]);
    if (input->is_made ||
        dtype_class(graph_type(r->from, node->inputs[i])->dtype) != CLASS_REAL)
      continue;
    if (!input->is_statistic) return false;
    any = true;
  }
  return any;
}

static void find_facts(Rounding *r, int id) {
  const Node *node = r->from->nodes.data[id];
  bool is_made = node->op != OP_input;
  for (int i = 0; i < node->n_inputs; i++)
    is_made &= facts_of(r, node->inputs[i])->is_made;
  r->is_listed[id] = is_listed(r, node);
  bool is_statistic = sums(node->op) || follows_from_statistics(r, node);
  for (int i = 0; i < node->n_results; i++) {
    bool is_second =
        i > 0 && node->op != OP_attention_grad; /* lse, mean, var */
    Facts *facts = &r->facts[id][i];
    *facts = (Facts){.is_made = is_made, .rounded = DT_f32};
    facts->wide = facts->narrow = VALUE_NONE;
    facts->is_statistic = is_statistic || is_second;
    facts->is_kept = is_made || facts->is_statistic || r->is_listed[id] ||
                     node->op == OP_input || node->types[i]->rank == 0 ||
                     is_pin(r->from, node) || !is_plain(node->types[i]);
  }
}

/* ---- what is rounded, from the end ---- */

static bool is_backward(const Node *node) {
  return node->phase != PHASE_forward;
}

static DType decide(const Rounding *r, int id, int result) {
  const Facts *facts = &r->facts[id][result];
  const Precision *p = r->precision;
  if (facts->is_gradient) return facts->n_readers == 0 ? p->grads : DT_f32;
  if (facts->is_kept) return DT_f32;
  bool is_shared = facts->n_readers > 1 || facts->crosses;
  bool rounds =
      is_shared || facts->is_multiplied || facts->moves_rounded ||
      (is_product(r, id) && is_attention(r->from->nodes.data[id]->op));
  return rounds ? p->compute : DT_f32;
}

static void tell_input(Rounding *r, int id, int index) {
  const Node *node = r->from->nodes.data[id];
  Value input = node->inputs[index];
  Facts *facts = facts_of(r, input);
  const Facts *result = &r->facts[id][0];
  bool is_moved = is_move(node->op);
  if (is_moved && result->is_gradient && result->n_readers == 0) {
    facts->is_gradient = true;
    return;
  }
  bool has_path = node->path && *node->path;
  if (facts->n_readers == 0 || !has_path || facts->reader != node->path)
    facts->n_readers++;
  facts->reader = node->path;
  facts->is_typed =
      is_pin(r->from, node) && (facts->n_readers == 1 || facts->is_typed);
  facts->crosses |=
      is_backward(node) && !is_backward(r->from->nodes.data[input.node]);
  facts->is_multiplied |= is_product(r, id);
  /* Rows are fewer than their table: they are rounded after the gather. */
  bool is_table = node->op == OP_gather && index == 0;
  facts->moves_rounded |= is_moved && !is_table && result->rounded != DT_f32;
}

static void decide_all(Rounding *r) {
  const Graph *graph = r->from;
  for (int i = 0; i < graph->outputs.n; i++)
    if (graph->outputs.data[i].role == ROLE_grad)
      facts_of(r, graph->outputs.data[i].value)->is_gradient = true;
  for (int id = graph->nodes.n - 1; id >= 0; id--) {
    const Node *node = graph->nodes.data[id];
    if (!r->is_live[id]) continue;
    for (int i = 0; i < node->n_results; i++)
      r->facts[id][i].rounded = decide(r, id, i);
    for (int i = 0; i < node->n_inputs; i++) tell_input(r, id, i);
  }
}

/* ---- the new graph ---- */

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
  Facts *facts = facts_of(r, old);
  if (!value_is(facts->wide))
    facts->wide = cast_at(r, old, facts->narrow, DT_f32, false);
  return facts->wide;
}

static Value narrow(Rounding *r, Value old) {
  Facts *facts = facts_of(r, old);
  if (!value_is(facts->narrow))
    facts->narrow = cast_at(r, old, facts->wide, r->precision->compute, false);
  return facts->narrow;
}

static bool is_f32(const Rounding *r, Value value) {
  return is_plain(graph_type(r->from, value));
}

static void set_result(Rounding *r, Value old, Value now) {
  Facts *facts = facts_of(r, old);
  if (graph_type(r->rewrite.to, now)->dtype !=
      graph_type(r->from, old)->dtype) {
    facts->narrow = now;
  } else if (facts->rounded != DT_f32) {
    facts->narrow = cast_at(r, old, now, facts->rounded, facts->is_gradient);
  } else {
    facts->wide = now;
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
    types[i] = is_plain(node->types[i]) && !is_lse
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

/* Operands are rounded; the sum is rounded once, if at all. */
static void build_product(Rounding *r, int id, Value *inputs) {
  const Node *node = r->from->nodes.data[id];
  Attrs attrs = node_attrs(node);
  DType compute = r->precision->compute, dtype = r->facts[id][0].rounded;
  for (int i = 0; i < node->n_inputs; i++) {
    bool is_lse = node->op == OP_attention_grad && i == 4;
    inputs[i] = is_f32(r, node->inputs[i]) && !is_lse
                    ? narrow(r, node->inputs[i])
                    : wide(r, node->inputs[i]);
  }
  if (is_attention(node->op)) dtype = compute;
  if (dtype != compute) set_dtype(r, &attrs, dtype);
  append(r, id, inputs, &attrs, dtype);
}

/* All that is moved is there rounded, or may be rounded before the move. */
static bool moves_rounded(const Rounding *r, int id) {
  const Node *node = r->from->nodes.data[id];
  bool any = false;
  for (int i = 0; i < node->n_inputs; i++) {
    if (!is_f32(r, node->inputs[i])) continue;
    const Facts *facts = facts_of(r, node->inputs[i]);
    bool is_table = node->op == OP_gather && !facts->is_multiplied;
    bool may_round = r->facts[id][0].rounded != DT_f32 && !is_table;
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
    bool is_rounded = is_narrow && is_f32(r, node->inputs[i]);
    inputs[i] =
        is_rounded ? narrow(r, node->inputs[i]) : wide(r, node->inputs[i]);
    if (is_rounded) dtype = graph_type(r->rewrite.to, inputs[i])->dtype;
  }
  append(r, id, inputs, &attrs, dtype);
}

/* Everything else computes in f32.  Two kernels that stand alone read the
 * short values themselves: sums of rows, and maxima, which are only compared.
 */
static void build_other(Rounding *r, int id, Value *inputs) {
  const Node *node = r->from->nodes.data[id];
  Attrs attrs = node_attrs(node);
  bool is_pool = node->op == OP_maxpool_grad &&
                 facts_of(r, node->inputs[0])->rounded != DT_f32;
  bool is_sum = node->op == OP_scatter_add &&
                facts_of(r, node->inputs[0])->rounded != DT_f32;
  for (int i = 0; i < node->n_inputs; i++) {
    bool is_narrow = (is_pool && i < 2) || (is_sum && i == 0);
    inputs[i] =
        is_narrow ? narrow(r, node->inputs[i]) : wide(r, node->inputs[i]);
  }
  if (is_sum) set_dtype(r, &attrs, DT_f32);
  append(r, id, inputs, &attrs, DT_f32);
}

/* Weights are kept in the dtype `master`, but for those that were typed. */
static void build_input(Rounding *r, int id) {
  const Node *node = r->from->nodes.data[id];
  const GraphInput *input = &r->from->inputs.data[node_int(node, ATTR_slot, 0)];
  const Type *type = node->types[0];
  Facts *facts = &r->facts[id][0];
  bool is_master = input->role == ROLE_param || input->role == ROLE_ema;
  if (is_master && is_plain(type) && !facts->is_typed)
    type = type_with_dtype(r->from->module->arena, type, r->precision->master);
  rewrite_at(&r->rewrite, id);
  Value now = rewrite_input(r->rewrite.to, input, type);
  if (type->dtype == node->types[0]->dtype) {
    facts->wide = now;
    return;
  }
  if (type->dtype == r->precision->compute) facts->narrow = now;
  facts->wide = cast_at(r, (Value){id, 0}, now, DT_f32, false);
}

static void build_node(Rounding *r, int id) {
  const Node *node = r->from->nodes.data[id];
  Value *inputs = ARENA_ARRAY(r->rewrite.ctx->scratch, Value, node->n_inputs);
  if (node->op == OP_input)
    build_input(r, id);
  else if (is_pin(r->from, node))
    r->facts[id][0].wide = wide(r, node->inputs[0]);
  else if (is_product(r, id))
    build_product(r, id, inputs);
  else if (is_move(node->op))
    build_move(r, id, inputs);
  else
    build_other(r, id, inputs);
}

static void build_outputs(Rounding *r) {
  for (int i = 0; i < r->from->outputs.n; i++) {
    const GraphOutput *output = &r->from->outputs.data[i];
    Facts *facts = facts_of(r, output->value);
    bool is_gradient = output->role == ROLE_grad;
    bool is_rounded = is_gradient && facts->rounded != DT_f32;
    Value value = is_rounded ? facts->narrow : wide(r, output->value);
    if (is_gradient && is_f32(r, output->value))
      value = cast_at(r, output->value, value, r->precision->grads, true);
    graph_output(r->rewrite.to, output->role, output->path, value);
  }
}

Graph *pass_precision(PassContext *ctx, const Graph *graph) {
  int n = graph->nodes.n;
  Rounding r = {.precision = pass_precision_of(ctx),
                .from = graph,
                .rewrite = rewrite_begin(ctx, graph),
                .facts = ARENA_ARRAY(ctx->scratch, Facts *, n),
                .is_live = ARENA_ARRAY(ctx->scratch, bool, n),
                .is_listed = ARENA_ARRAY(ctx->scratch, bool, n)};
  mark_live(&r);
  for (int id = 0; id < n; id++) {
    r.facts[id] =
        ARENA_ARRAY(ctx->scratch, Facts, graph->nodes.data[id]->n_results);
    find_facts(&r, id);
  }
  decide_all(&r);
  for (int id = 0; id < n; id++)
    if (r.is_live[id] || graph->nodes.data[id]->op == OP_input)
      build_node(&r, id);
  build_outputs(&r);
  return r.rewrite.to;
}
