/*
 * precision.c -- decide which values are rounded to the dtype of computation
 * (language.md 8).
 *
 *     compute = bf16
 *     %2 = gelu %0                     %2 = gelu %0
 *     %3 = dot %2, %1 {over = [C]}     %3 = cast %2 : bf16
 *                                 =>   %4 = cast %1 : bf16
 *                                      %5 = dot %3, %4 {dtype = f32} : f32
 *
 * Pointwise operators, reductions and statistics read and write f32.  A value
 * is rounded where a contraction or attention reads it, where several operators
 * read it, and where it is a saved activation, which is why this pass comes
 * after autodiff.  All readers then see the rounded value: a cast back to f32
 * fuses into each of them.  The pass comes before decompose and fuse, so that
 * neither changes a rounding.  Contractions sum in f32; one whose result is
 * rounded writes the 16-bit dtype at once.
 *
 * Some values stay in f32 whatever reads them (a contraction rounds its own
 * copy): persistent buffers and data, scalars, statistics (sums and values that
 * follow from sums alone), values that follow from constants and indices alone,
 * the loss, the operators that `f32` lists, and values that the program typed
 * f32, which up to here is a cast from f32 to f32.  A value that the program
 * typed in 16 bits is computed in f32 and rounded to its dtype.
 *
 * The body of a scan is a graph of its own that follows the same rules; its
 * readers count for the value outside.  A carry stays in f32 like a persistent
 * buffer, as it may be a sum over all iterations, unless contractions alone
 * read it and round it anyway.
 *
 * The nodes of one path are one operator of the language, and a value between
 * two of them is not rounded.  Rounding commutes with data movement, so views
 * and copies move the 16-bit values.
 *
 * requires: logical types, gradients as outputs
 * keeps: types of outputs, but for gradients, which get the dtype `grads`
 * breaks: node ids     cost: O(nodes)
 */
#include "passes/precision/precision.h"

#include <string.h>

/* ---- the list of what stays in f32 ---- */

static bool is_loss_node(const Node *node) {
  const char *path = node->path;
  if (!path) return false;
  if (strncmp(path, "grad.", 5) == 0) path += 5;
  return strncmp(path, "loss", 4) == 0 && (path[4] == '.' || path[4] == '\0');
}

static bool is_listed(const Rounding *r, const Node *node) {
  if (is_loss_node(node) || (r->scan && r->outer->is_listed[r->scan_id]))
    return true;
  for (int i = 0; i < r->precision->n_f32_paths; i++)
    if (node_is_called(node, r->precision->f32_paths[i])) return true;
  return false;
}

/* ---- kinds of dtypes and operators ---- */

Facts *precision_facts(const Rounding *r, Value value) {
  return &r->facts[value.node][value.result];
}

DType precision_dtype(const Rounding *r, Value value) {
  return graph_type(r->from, value)->dtype;
}

bool precision_is_contraction(const Rounding *r, int id) {
  return !r->is_listed[id] &&
         op_is(r->from->nodes.data[id]->op, OPCLASS_contraction);
}

/* Gives the same whether its operands are rounded before it or its result after
 * it.  Elementwise operators and reductions are fused, and rounded there;
 * tokens are rounded where an expert multiplies them. */
bool precision_is_move(Op op) {
  bool is_other = op_is(op, OPCLASS_elementwise) ||
                  op_is(op, OPCLASS_reduction) || op_is(op, OPCLASS_routing);
  return op_has(op, OP_FLAG_identity) ||
         (op_has(op, OP_FLAG_exact) && !is_other);
}

bool precision_is_pin(const Graph *graph, const Node *node) {
  return node->op == OP_cast && node->types[0]->dtype == DT_f32 &&
         dtype_is_rounded(graph_type(graph, node->inputs[0])->dtype);
}

/* ---- facts, in the order of the graph ---- */

static void mark_live_nodes(Rounding *r) {
  const Graph *graph = r->from;
  for (int i = 0; i < graph->outputs.n; i++)
    r->is_live[graph->outputs.data[i].value.node] = true;
  for (int id = graph->nodes.n - 1; id >= 0; id--) {
    const Node *node = graph->nodes.data[id];
    for (int i = 0; r->is_live[id] && i < node->n_inputs; i++)
      r->is_live[node->inputs[i].node] = true;
  }
}

/* All float inputs are statistics, and there is at least one. */
static bool follows_from_statistics(const Rounding *r, const Node *node) {
  bool any = false;
  if (!op_info(node->op)->is_pointwise && !precision_is_move(node->op))
    return false;
  for (int i = 0; i < node->n_inputs; i++) {
    const Facts *input = precision_facts(r, node->inputs[i]);
    if (input->is_constant ||
        dtype_class(graph_type(r->from, node->inputs[i])->dtype) != CLASS_FLOAT)
      continue;
    if (!input->is_statistic) return false;
    any = true;
  }
  return any;
}

static Rounding *rounding_create(PassContext *ctx, const Graph *graph,
                                 Rounding *outer, int scan_id);

static bool is_carry(const Rounding *r, int index) {
  return r->scan && index < scan_carries(r->scan);
}

/* Contractions alone read the value, perhaps through views and transposes, so
 * they may read it rounded. */
static bool is_only_contracted(const Rounding *r, Value value) {
  const Graph *graph = r->from;
  bool is_read = false;
  for (int i = 0; i < graph->outputs.n; i++)
    if (value_equal(graph->outputs.data[i].value, value)) return false;
  for (int id = value.node + 1; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    for (int i = 0; r->is_live[id] && i < node->n_inputs; i++) {
      if (!value_equal(node->inputs[i], value)) continue;
      is_read = true;
      if (precision_is_contraction(r, id)) continue;
      bool is_moved = op_is(node->op, OPCLASS_view) || node->op == OP_transpose;
      if (!is_moved || !is_only_contracted(r, (Value){id, 0})) return false;
    }
  }
  return is_read;
}

/* An operand is the same in the body and outside; a carry is f32 like a
 * persistent buffer. */
static void find_body_input_facts(Rounding *r, int id) {
  int index = (int)node_int(r->from->nodes.data[id], ATTR_index, 0);
  Facts *facts = &r->facts[id][0];
  facts->stays_f32 = true;
  if (is_carry(r, index)) return;
  const Facts *given = precision_facts(r->outer, r->scan->inputs[index]);
  facts->is_constant = given->is_constant;
  facts->is_statistic = given->is_statistic;
}

/* Finds the facts of a body with those of its scan: results have the facts of
 * the body's values, but last carries are f32 if the loop carries f32. */
static void find_scan_facts(Rounding *r, PassContext *ctx, int id) {
  const Node *node = r->from->nodes.data[id];
  Rounding *body = r->bodies[id] = rounding_create(ctx, node->body, r, id);
  for (int i = 0; i < node->n_results; i++) {
    const Facts *inner =
        precision_facts(body, node->body->outputs.data[i].value);
    Facts *facts = &r->facts[id][i];
    facts->is_constant = inner->is_constant;
    facts->is_statistic = inner->is_statistic;
    facts->stays_f32 = inner->stays_f32;
  }
  for (int i = 0; i < scan_carries(node); i++) {
    const Facts *carried =
        precision_facts(body, node->body->inputs.data[i].value);
    r->facts[id][i].stays_f32 = !carried->is_16bit;
    r->facts[id][i].is_16bit = carried->is_16bit;
  }
  for (int i = 0; i < scan_carries(node); i++)
    precision_facts(body, node->body->outputs.data[i].value)->stays_f32 |=
        !r->facts[id][i].is_16bit;
}

static void find_node_facts(Rounding *r, PassContext *ctx, int id) {
  const Node *node = r->from->nodes.data[id];
  bool is_constant = node->op != OP_input;
  r->facts[id] = ARENA_ARRAY(ctx->scratch, Facts, node->n_results);
  for (int i = 0; i < node->n_inputs; i++)
    is_constant &= precision_facts(r, node->inputs[i])->is_constant;
  r->is_listed[id] = is_listed(r, node);
  bool is_statistic =
      op_is(node->op, OPCLASS_reduction) || follows_from_statistics(r, node);
  for (int i = 0; i < node->n_results; i++) {
    bool is_second =
        i > 0 && node->op != OP_attention_grad; /* lse, mean, var */
    Facts *facts = &r->facts[id][i];
    *facts = (Facts){.is_constant = is_constant, .rounded = DT_f32};
    facts->in_f32 = facts->in_16bit = VALUE_NONE;
    facts->is_statistic = is_statistic || is_second;
    facts->stays_f32 = is_constant || facts->is_statistic || r->is_listed[id] ||
                       node->op == OP_input || node->types[i]->rank == 0 ||
                       precision_is_pin(r->from, node) ||
                       node->types[i]->dtype != DT_f32;
  }
  if (node->op == OP_scan) find_scan_facts(r, ctx, id);
  if (node->op == OP_input && r->scan) find_body_input_facts(r, id);
}

static Rounding *rounding_create(PassContext *ctx, const Graph *graph,
                                 Rounding *outer, int scan_id) {
  int n = graph->nodes.n;
  Rounding *r = ARENA_NEW(ctx->scratch, Rounding);
  *r = (Rounding){.precision = pass_precision_of(ctx),
                  .from = graph,
                  .rewrite = rewrite_begin(ctx, graph),
                  .facts = ARENA_ARRAY(ctx->scratch, Facts *, n),
                  .is_live = ARENA_ARRAY(ctx->scratch, bool, n),
                  .is_listed = ARENA_ARRAY(ctx->scratch, bool, n),
                  .bodies = ARENA_ARRAY(ctx->scratch, Rounding *, n),
                  .outer = outer,
                  .scan_id = scan_id};
  if (outer) r->scan = outer->from->nodes.data[scan_id];
  mark_live_nodes(r);
  for (int id = 0; id < n; id++) find_node_facts(r, ctx, id);
  for (int i = 0; r->scan && i < graph->inputs.n; i++) {
    Value input = graph->inputs.data[i].value;
    bool may_be_16bit = precision_dtype(r, input) == DT_f32;
    precision_facts(r, input)->is_16bit =
        may_be_16bit && is_only_contracted(r, input);
  }
  return r;
}

/* ---- what is rounded, from the end ---- */

static bool is_backward(const Node *node) {
  return node->phase != PHASE_forward;
}

static DType decide_dtype(const Rounding *r, int id, int result) {
  const Facts *facts = &r->facts[id][result];
  const Precision *p = r->precision;
  DType typed = r->from->nodes.data[id]->types[result]->dtype;
  if (dtype_is_16bit(typed)) return typed;
  if (facts->is_gradient) return facts->n_readers == 0 ? p->grads : DT_f32;
  if (facts->stays_f32) return DT_f32;
  bool is_shared = facts->n_readers > 1 || facts->crosses;
  bool rounds = is_shared || facts->is_contracted || facts->is_moved_rounded ||
                facts->is_stacked || facts->is_16bit ||
                (precision_is_contraction(r, id) &&
                 op_has(r->from->nodes.data[id]->op, OP_FLAG_attends));
  return rounds ? p->compute : DT_f32;
}

/* A reader in a body is a reader outside. */
static void note_scan_reader(Rounding *r, int id, int index) {
  const Node *node = r->from->nodes.data[id];
  Facts *facts = precision_facts(r, node->inputs[index]);
  const Facts *inner =
      precision_facts(r->bodies[id], node->body->inputs.data[index].value);
  bool is_first = facts->n_readers == 0;
  if (inner->n_readers == 0) return;
  facts->n_readers += inner->n_readers;
  facts->reader = inner->reader;
  facts->is_typed = inner->is_typed && (is_first || facts->is_typed);
  if (scan_input_role(node, index) == ROLE_carry && !inner->is_16bit) return;
  facts->is_contracted |= inner->is_contracted;
  facts->is_moved_rounded |= inner->is_moved_rounded;
}

static void note_reader(Rounding *r, int id, int index) {
  const Node *node = r->from->nodes.data[id];
  Value input = node->inputs[index];
  Facts *facts = precision_facts(r, input);
  const Facts *result = &r->facts[id][0];
  bool is_moved = precision_is_move(node->op);
  if (is_moved && result->is_gradient && result->n_readers == 0) {
    facts->is_gradient = true;
    return;
  }
  /* In a body no value is a saved activation. */
  facts->crosses |= !r->scan && is_backward(node) &&
                    !is_backward(r->from->nodes.data[input.node]);
  if (node->op == OP_scan) {
    note_scan_reader(r, id, index);
    return;
  }
  bool has_path = node->path && *node->path;
  if (facts->n_readers == 0 || !has_path || facts->reader != node->path)
    facts->n_readers++;
  facts->reader = node->path;
  facts->is_typed = precision_is_pin(r->from, node) &&
                    (facts->n_readers == 1 || facts->is_typed);
  facts->is_contracted |= precision_is_contraction(r, id);
  /* Rows are fewer than their table: they are rounded after the gather. */
  bool is_table = node->op == OP_gather && index == 0;
  facts->is_moved_rounded |= is_moved && !is_table && result->rounded != DT_f32;
}

static void decide_graph(Rounding *r);

static void decide_body(Rounding *r, int id) {
  const Node *node = r->from->nodes.data[id];
  for (int i = 0; i < node->n_results; i++) {
    const Facts *facts = &r->facts[id][i];
    Facts *inner =
        precision_facts(r->bodies[id], node->body->outputs.data[i].value);
    inner->is_stacked |= facts->rounded != DT_f32 && !facts->is_gradient;
  }
  decide_graph(r->bodies[id]);
}

static void decide_graph(Rounding *r) {
  const Graph *graph = r->from;
  for (int i = 0; i < graph->outputs.n; i++)
    if (graph->outputs.data[i].role == ROLE_grad)
      precision_facts(r, graph->outputs.data[i].value)->is_gradient = true;
  for (int id = graph->nodes.n - 1; id >= 0; id--) {
    const Node *node = graph->nodes.data[id];
    if (!r->is_live[id]) continue;
    for (int i = 0; i < node->n_results; i++)
      r->facts[id][i].rounded = decide_dtype(r, id, i);
    if (node->op == OP_scan) decide_body(r, id);
    for (int i = 0; i < node->n_inputs; i++) note_reader(r, id, i);
  }
}

Graph *pass_precision(PassContext *ctx, const Graph *graph) {
  Rounding *r = rounding_create(ctx, graph, NULL, -1);
  decide_graph(r);
  return precision_build(r);
}
