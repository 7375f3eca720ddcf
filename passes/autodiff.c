/*
 * autodiff.c -- reverse-mode differentiation: appends the gradient of the loss
 * with respect to every trainable parameter.
 *
 *     %2 = mul %0, %1               %2 = mul %0, %1
 *     %3 = sum %2 {over = [B]}  =>  %3 = sum %2 {over = [B]}
 *     output loss "loss" %3         %4 = const {value = 1.0}
 *                                   %5 = broadcast %4 {to = [B], sizes = [8]}
 *                                   %6 = mul %5, %1      "grad.mul"
 *                                   output loss "loss" %3
 *                                   output grad "w" %6
 *
 * One walk backwards over the forward nodes.  When it reaches a node, all its
 * users have been visited, so that its cotangents are complete.  Only nodes on
 * a way from a parameter to the loss are visited; what a rule computes for
 * other inputs is unused, and dce drops it.
 *
 * A gradient node belongs to the phase weight_gradient if nothing but
 * parameter gradients depends on it: such work may be delayed, the rest is the
 * critical path of the backward pass.
 *
 * requires: whole types, one loss     keeps: forward ids     cost: O(nodes)
 */
#include "passes/rewrite.h"

typedef struct Autodiff {
  PassContext *ctx;
  Graph *graph;      /* the copy that grows */
  int n_forward;     /* nodes of the graph given */
  bool *is_wanted;   /* [n_forward]: depends on a trainable parameter */
  bool *has_data;    /* [n_forward]: depends on anything but parameters */
  int *first;        /* [n_forward]: number of the node's first result */
  Value *cotangents; /* by first[node] + result; in `graph` */
} Autodiff;

static bool is_trainable(const GraphInput *input, const Graph *graph) {
  const Type *type = graph_type(graph, input->value);
  return input->role == ROLE_param && !input->is_frozen &&
         dtype_class(type->dtype) == CLASS_REAL;
}

/* The forward part, node for node, so that ids stay what they were. */
static Graph *copy_forward(PassContext *ctx, const Graph *from) {
  Rewrite rewrite = rewrite_begin(ctx, from);
  for (int id = 0; id < from->nodes.n; id++) {
    Value copy = rewrite_copy(&rewrite, id);
    ASSERT(copy.node == id);
  }
  return rewrite_end(&rewrite);
}

static void mark_dependence(Autodiff *ad) {
  const Graph *graph = ad->graph;
  int n_values = 0;
  for (int i = 0; i < graph->inputs.n; i++) {
    const GraphInput *input = &graph->inputs.data[i];
    ad->is_wanted[input->value.node] = is_trainable(input, graph);
    ad->has_data[input->value.node] = input->role != ROLE_param;
  }
  for (int id = 0; id < ad->n_forward; id++) {
    const Node *node = graph->nodes.data[id];
    for (int i = 0; i < node->n_inputs; i++) {
      int from = node->inputs[i].node;
      ad->is_wanted[id] = ad->is_wanted[id] || ad->is_wanted[from];
      ad->has_data[id] = ad->has_data[id] || ad->has_data[from];
    }
    ad->first[id] = n_values;
    n_values += node->n_results;
  }
  Arena *scratch = ad->ctx->scratch;
  ad->cotangents = ARENA_ARRAY(scratch, Value, n_values);
  for (int i = 0; i < n_values; i++) ad->cotangents[i] = VALUE_NONE;
}

static Value *cotangent_of(Autodiff *ad, Value value) {
  return &ad->cotangents[ad->first[value.node] + value.result];
}

static void accumulate(Autodiff *ad, Value value, Value gradient) {
  const Type *type = graph_type(ad->graph, value);
  ASSERT(type_same_dims(type, graph_type(ad->graph, gradient)));
  Value *sum = cotangent_of(ad, value);
  *sum =
      value_is(*sum) ? graph_op2(ad->graph, OP_add, *sum, gradient) : gradient;
}

static void set_place(Autodiff *ad, int id) {
  const Node *node = ad->graph->nodes.data[id];
  Names *names = ad->ctx->module->names;
  ad->graph->phase = PHASE_input_gradient;
  ad->graph->span = node->span;
  ad->graph->path = name_format(names, "grad.%s",
                                node->path[0] != '\0' ? node->path : "loss");
}

/* Passes the cotangents of node `id` on to its inputs. */
static void visit(Autodiff *ad, int id) {
  const Node *node = ad->graph->nodes.data[id];
  const OpInfo *info = op_info(node->op);
  const Value *cotangents = &ad->cotangents[ad->first[id]];
  bool has_any = false;
  for (int i = 0; i < node->n_results; i++) {
    has_any = has_any || value_is(cotangents[i]);
  }
  if (!has_any || !ad->is_wanted[id] || info->grad == NULL) return;
  set_place(ad, id);
  Value *out = ARENA_ARRAY(ad->ctx->scratch, Value, node->n_inputs);
  for (int i = 0; i < node->n_inputs; i++) out[i] = VALUE_NONE;
  info->grad(ad->graph, id, cotangents, out);
  for (int i = 0; i < node->n_inputs; i++) {
    if (value_is(out[i]) && ad->is_wanted[node->inputs[i].node]) {
      accumulate(ad, node->inputs[i], out[i]);
    }
  }
}

/* Marks what the cotangents of values that depend on data need; the other
 * gradient nodes are for parameters only. */
static void set_phases(Autodiff *ad) {
  Graph *graph = ad->graph;
  bool *is_inner = ARENA_ARRAY(ad->ctx->scratch, bool, graph->nodes.n);
  for (int id = 0; id < ad->n_forward; id++) {
    const Node *node = graph->nodes.data[id];
    for (int i = 0; i < node->n_results && ad->has_data[id]; i++) {
      Value cotangent = ad->cotangents[ad->first[id] + i];
      if (value_is(cotangent)) is_inner[cotangent.node] = true;
    }
  }
  for (int id = graph->nodes.n - 1; id >= ad->n_forward; id--) {
    Node *node = graph->nodes.data[id];
    if (!is_inner[id]) node->phase = PHASE_weight_gradient;
    for (int i = 0; i < node->n_inputs && is_inner[id]; i++) {
      is_inner[node->inputs[i].node] = true;
    }
  }
}

static void output_gradients(Autodiff *ad) {
  Graph *graph = ad->graph;
  for (int i = 0; i < graph->inputs.n; i++) {
    GraphInput input = graph->inputs.data[i];
    if (!is_trainable(&input, graph)) continue;
    const Node *node = graph_node(graph, input.value);
    Value gradient = *cotangent_of(ad, input.value);
    if (!value_is(gradient)) {
      diag(ad->ctx->module->diags, DIAG_no_gradient, node->span, input.path);
      continue;
    }
    set_place(ad, input.value.node);
    gradient = graph_cast(graph, gradient, node->types[0]->dtype);
    gradient = graph_transpose_to(graph, gradient, node->types[0]);
    graph_output(graph, ROLE_grad, input.path, gradient);
  }
}

Graph *pass_autodiff(PassContext *ctx, const Graph *from) {
  int n = from->nodes.n;
  Autodiff ad = {
      .ctx = ctx,
      .graph = copy_forward(ctx, from),
      .n_forward = n,
      .is_wanted = ARENA_ARRAY(ctx->scratch, bool, n),
      .has_data = ARENA_ARRAY(ctx->scratch, bool, n),
      .first = ARENA_ARRAY(ctx->scratch, int, n),
  };
  mark_dependence(&ad);
  const GraphOutput *loss = NULL;
  for (int i = 0; i < from->outputs.n; i++) {
    if (from->outputs.data[i].role == ROLE_loss) loss = &from->outputs.data[i];
  }
  if (loss != NULL) {
    set_place(&ad, loss->value.node);
    DType dtype = graph_type(from, loss->value)->dtype;
    *cotangent_of(&ad, loss->value) = graph_const(ad.graph, dtype, 1);
    for (int id = n - 1; id >= 0; id--) visit(&ad, id);
  }
  output_gradients(&ad);
  set_phases(&ad);
  ad.graph->phase = PHASE_forward;
  ad.graph->span = SPAN_NONE;
  ad.graph->path = name_intern(ctx->module->names, "");
  return ad.graph;
}
