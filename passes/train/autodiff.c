/*
 * autodiff.c -- append the gradient of the loss with respect to every trainable
 * parameter, in reverse mode.
 *
 *     %2 = mul %0, %1               %2 = mul %0, %1
 *     %3 = sum %2 {over = [B]}  =>  %3 = sum %2 {over = [B]}
 *     output loss "loss" %3         %4 = const {value = 1.0}
 *                                   %5 = broadcast %4 {to = [B], sizes = [8]}
 *                                   %6 = mul %5, %1      "grad.mul"
 *                                   output loss "loss" %3
 *                                   output grad "w" %6
 *
 * ir/adjoint.c does the walk.  It visits only nodes between a parameter and the
 * loss.  Gradients that a rule computes for other inputs have no users, and dce
 * drops them.
 *
 * A gradient node belongs to the phase weight_gradient if nothing but parameter
 * gradients depends on it.  Such nodes may be delayed; the others are the
 * critical path of the backward pass.
 *
 * requires: logical types, one loss     keeps: forward ids
 * breaks: nothing                       cost: O(nodes)
 */
#include "passes/train/scan_saving.h"

typedef struct Autodiff {
  PassContext *ctx;
  Graph *graph;   /* the copy that grows */
  bool *has_data; /* by forward node: depends on anything but parameters */
  Adjoint adjoint;
} Autodiff;

static bool is_trainable(const GraphInput *input, const Graph *graph) {
  const Type *type = graph_type(graph, input->value);
  return input->role == ROLE_param && !input->is_frozen &&
         dtype_class(type->dtype) == CLASS_FLOAT;
}

/* The forward part, node for node, so that ids stay what they were.  A scan
 * also stacks what its gradient will read. */
static Graph *copy_forward(PassContext *ctx, const Graph *from) {
  Rewrite rewrite = rewrite_begin(ctx, from);
  for (int id = 0; id < from->nodes.n; id++) {
    const Node *node = from->nodes.data[id];
    if (node->op != OP_scan) {
      Value copy = rewrite_copy(&rewrite, id);
      ASSERT(copy.node == id);
      continue;
    }
    Node marked = *node;
    marked.body = scan_saving_mark(ctx, node);
    rewrite_at(&rewrite, id);
    Value copy =
        scan_append_saving(rewrite.to, &marked, rewrite_inputs(&rewrite, id));
    ASSERT(copy.node == id);
    for (int r = 0; r < node->n_results; r++)
      rewrite_set(&rewrite, (Value){id, r}, (Value){id, r});
  }
  return rewrite_end(&rewrite);
}

static void mark_dependence(Autodiff *ad) {
  const Graph *graph = ad->graph;
  Adjoint *adjoint = &ad->adjoint;
  for (int i = 0; i < graph->inputs.n; i++) {
    const GraphInput *input = &graph->inputs.data[i];
    adjoint->is_wanted[input->value.node] = is_trainable(input, graph);
    ad->has_data[input->value.node] = input->role != ROLE_param;
  }
  adjoint_spread(adjoint);
  for (int id = 0; id < adjoint->n_forward; id++) {
    const Node *node = graph->nodes.data[id];
    for (int i = 0; i < node->n_inputs; i++)
      ad->has_data[id] = ad->has_data[id] || ad->has_data[node->inputs[i].node];
  }
}

/* Marks what the cotangents of values that depend on data need; the other
 * gradient nodes are for parameters only. */
static void set_gradient_phases(Autodiff *ad) {
  Graph *graph = ad->graph;
  bool *is_inner = ARENA_ARRAY(ad->ctx->scratch, bool, graph->nodes.n);
  for (int id = 0; id < ad->adjoint.n_forward; id++) {
    const Node *node = graph->nodes.data[id];
    for (int i = 0; i < node->n_results && ad->has_data[id]; i++) {
      Value cotangent = adjoint_get(&ad->adjoint, (Value){id, i});
      if (value_is(cotangent)) is_inner[cotangent.node] = true;
    }
  }
  for (int id = graph->nodes.n - 1; id >= ad->adjoint.n_forward; id--) {
    Node *node = graph->nodes.data[id];
    if (!is_inner[id]) node->phase = PHASE_weight_gradient;
    for (int i = 0; i < node->n_inputs && is_inner[id]; i++) {
      is_inner[node->inputs[i].node] = true;
    }
  }
}

/* The gradient of the loss with respect to itself: the loss scale, so that
 * small gradients do not vanish in 16 bits. */
static Value loss_gradient(Autodiff *ad, DType dtype) {
  double scale = pass_precision_of(ad->ctx)->loss_scale;
  if (scale >= 0) return graph_const(ad->graph, dtype, scale > 0 ? scale : 1);
  Module *module = ad->ctx->module;
  uint16_t stage = ad->graph->stage;
  ad->graph->stage = 0; /* each stage updates it alike */
  Value value = graph_input(ad->graph, ROLE_loss_scale,
                            name_intern(module->names, "loss_scale"),
                            type_scalar(module->arena, DT_f32));
  ad->graph->inputs.data[ad->graph->inputs.n - 1].init =
      (Init){.kind = INIT_constant, .a = 65536};
  ad->graph->stage = stage;
  return graph_cast(ad->graph, value, dtype);
}

static void output_gradients(Autodiff *ad) {
  Graph *graph = ad->graph;
  for (int i = 0; i < graph->inputs.n; i++) {
    GraphInput input = graph->inputs.data[i];
    if (!is_trainable(&input, graph)) continue;
    const Node *node = graph_node(graph, input.value);
    Value gradient = adjoint_get(&ad->adjoint, input.value);
    if (!value_is(gradient)) {
      diag(ad->ctx->module->diags, DIAG_no_gradient, node->span, input.path);
      continue;
    }
    adjoint_set_place(&ad->adjoint, input.value.node);
    gradient = graph_cast(graph, gradient, node->types[0]->dtype);
    gradient = graph_transpose_to(graph, gradient, node->types[0]);
    graph_output(graph, ROLE_grad, input.path, gradient);
  }
}

Graph *pass_autodiff(PassContext *ctx, const Graph *from) {
  Autodiff ad = {
      .ctx = ctx,
      .graph = copy_forward(ctx, from),
      .has_data = ARENA_ARRAY(ctx->scratch, bool, from->nodes.n),
  };
  ad.adjoint = adjoint_begin(ctx->scratch, ad.graph);
  mark_dependence(&ad);
  const GraphOutput *loss = NULL;
  for (int i = 0; i < from->outputs.n; i++) {
    if (from->outputs.data[i].role == ROLE_loss) loss = &from->outputs.data[i];
  }
  if (loss != NULL) {
    adjoint_set_place(&ad.adjoint, loss->value.node);
    DType dtype = graph_type(from, loss->value)->dtype;
    adjoint_add(&ad.adjoint, loss->value, loss_gradient(&ad, dtype));
    adjoint_walk(&ad.adjoint, ctx->scratch);
  }
  output_gradients(&ad);
  set_gradient_phases(&ad);
  scan_saving_drop_marks(ad.graph);
  ad.graph->phase = PHASE_forward;
  ad.graph->stage = 0;
  ad.graph->span = SPAN_NONE;
  ad.graph->path = name_intern(ctx->module->names, "");
  return ad.graph;
}
