/*
 * rewrite.c -- implements the walk that passes share (see rewrite.h), and
 * answers questions about nodes that several passes ask.
 */
#include "passes/rewrite.h"

Rewrite rewrite_begin(PassContext *ctx, const Graph *from) {
  Rewrite rewrite = {.ctx = ctx, .from = from, .to = graph_like(from)};
  int n = from->nodes.n;
  rewrite.first = ARENA_ARRAY(ctx->scratch, Value, n);
  for (int i = 0; i < n; i++) rewrite.first[i] = VALUE_NONE;
  rewrite.others = ARENA_ARRAY(ctx->scratch, Value *, n);
  return rewrite;
}

void rewrite_set_other(Rewrite *rewrite, Value old, Value now) {
  Value **others = &rewrite->others[old.node];
  if (!*others) {
    int n = rewrite->from->nodes.data[old.node]->n_results - 1;
    *others = ARENA_ARRAY(rewrite->ctx->scratch, Value, n);
    for (int r = 0; r < n; r++) (*others)[r] = VALUE_NONE;
  }
  (*others)[old.result - 1] = now;
}

void rewrite_at(Rewrite *rewrite, int id) {
  const Node *node = rewrite->from->nodes.data[id];
  rewrite->to->span = node->span;
  rewrite->to->path = node->path;
  rewrite->to->phase = node->phase;
  rewrite->to->stage = node->stage;
}

Value *rewrite_inputs(const Rewrite *rewrite, int id) {
  const Node *node = rewrite->from->nodes.data[id];
  Value *inputs = ARENA_ARRAY(rewrite->ctx->scratch, Value, node->n_inputs);
  for (int i = 0; i < node->n_inputs; i++)
    inputs[i] = rewrite_get(rewrite, node->inputs[i]);
  return inputs;
}

const Value *rewrite_read_inputs(const Rewrite *rewrite, int id,
                                 Value few[REWRITE_FEW]) {
  const Node *node = rewrite->from->nodes.data[id];
  if (rewrite->n_same == id) return node->inputs;
  if (node->n_inputs > REWRITE_FEW) return rewrite_inputs(rewrite, id);
  for (int i = 0; i < node->n_inputs; i++)
    few[i] = rewrite_get(rewrite, node->inputs[i]);
  return few;
}

Value rewrite_input(Graph *to, const GraphInput *like, const Type *type) {
  Value value = graph_input(to, like->role, like->path, type);
  GraphInput *input = &to->inputs.data[to->inputs.n - 1];
  input->init = like->init;
  input->is_frozen = like->is_frozen;
  input->is_on_host = like->is_on_host;
  input->has_decay = like->has_decay;
  input->group = like->group;
  input->contracts = like->contracts;
  input->batches = like->batches;
  return value;
}

/* The values of a node are those of the old one. */
static void set_same(Rewrite *rewrite, int id) {
  int n_results = rewrite->from->nodes.data[id]->n_results;
  for (int r = 0; r < n_results; r++)
    rewrite_set(rewrite, (Value){id, r}, (Value){id, r});
}

/* All before is the same: there is nothing to look at.  Inputs are registered,
 * and bodies of scans replaced. */
static bool copies_same(Rewrite *rewrite, int id) {
  Node *node = rewrite->from->nodes.data[id];
  if (rewrite->n_same != id || rewrite->to->nodes.n != id ||
      node->op == OP_input || node->op == OP_scan)
    return false;
  graph_share_node(rewrite->to, node);
  set_same(rewrite, id);
  rewrite->n_same++;
  return true;
}

Value rewrite_copy(Rewrite *rewrite, int id) {
  const Node *node = rewrite->from->nodes.data[id];
  rewrite_at(rewrite, id);
  if (copies_same(rewrite, id)) return (Value){id, 0};
  Value few[REWRITE_FEW];
  const Value *inputs = rewrite_read_inputs(rewrite, id, few);
  Value first = graph_copy_node(rewrite->to, rewrite->from, id, inputs, false);
  for (int r = 0; r < node->n_results; r++)
    rewrite_set(rewrite, (Value){id, r}, (Value){first.node, r});
  if (rewrite->n_same == id && first.node == id &&
      rewrite->to->nodes.data[id] == node)
    rewrite->n_same++;
  return first;
}

Graph *rewrite_end(Rewrite *rewrite) {
  for (int i = 0; i < rewrite->from->outputs.n; i++) {
    const GraphOutput *output = &rewrite->from->outputs.data[i];
    graph_output(rewrite->to, output->role, output->path,
                 rewrite_get(rewrite, output->value));
  }
  return rewrite->to;
}

Graph *rewrite_graph(PassContext *ctx, const Graph *from, RewriteRule *rule,
                     void *user) {
  Rewrite rewrite = rewrite_begin(ctx, from);
  for (int id = 0; id < from->nodes.n; id++) {
    rewrite_at(&rewrite, id);
    if (!rule || !rule(&rewrite, id, user)) rewrite_copy(&rewrite, id);
  }
  return rewrite_end(&rewrite);
}

const Precision *pass_precision_of(const PassContext *ctx) {
  static const Precision plain = {
      .compute = DT_f32, .master = DT_f32, .grads = DT_f32, .loss_scale = 1};
  const Precision *precision = ctx->model ? &ctx->model->precision : &plain;
  return dtype_class(precision->compute) == CLASS_FLOAT ? precision : &plain;
}

Attrs node_attrs(const Node *node) {
  Attrs attrs = {.n = node->n_attrs};
  ASSERT(node->n_attrs <= ARRAY_LENGTH(attrs.items));
  for (int i = 0; i < node->n_attrs; i++) attrs.items[i] = node->attrs[i];
  return attrs;
}

const Node *value_op(const Graph *graph, Value value, Op op) {
  const Node *node = graph_node(graph, value);
  return node->op == op ? node : NULL;
}

/* Every element of the result may be one of a constant's. */
static bool copies_one_value(const Node *node) {
  if (node->op == OP_cast)
    return dtype_class(node->types[0]->dtype) == CLASS_FLOAT;
  return node->op == OP_rename || (op_is(node->op, OPCLASS_data_movement) &&
                                   op_has(node->op, OP_FLAG_fuses));
}

bool value_const(const Graph *graph, Value value, double *out_value) {
  const Node *node = graph_node(graph, value);
  while (copies_one_value(node)) {
    /* A cast to fewer bits would round: only f32 and f64-like constants that
     * stay what they are may be looked through. */
    if (node->op == OP_cast && node->types[0]->dtype != DT_f32) return false;
    node = graph_node(graph, node->inputs[0]);
  }
  if (node->op != OP_const) return false;
  *out_value = node_float(node, ATTR_value, 0);
  return true;
}

void reduced_dims(const Node *node, const Name **out_dims, int *out_n) {
  if (node->op == OP_argmax) {
    const Attr *attr = node_attr(node, ATTR_dim);
    *out_dims = &attr->name;
    *out_n = 1;
    return;
  }
  *out_dims = node_names(node, ATTR_over, out_n);
}
