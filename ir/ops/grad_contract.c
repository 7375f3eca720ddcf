/*
 * grad_contract.c -- builds the gradients of contractions, windows and
 * attention.
 *
 * Each of the three convolutions (y of x and w, dx of dy and w, dw of x and dy)
 * is linear in both operands, and its gradients are the other two with the same
 * geometry.
 */
#include "ir/ops/grad.h"

static Value operand_type(const Graph *graph, int id, int index) {
  return graph->nodes.data[id]->inputs[index];
}

void grad_dot(Graph *graph, int id, const Value *cotangents, Value *out) {
  Value a = operand_type(graph, id, 0), b = operand_type(graph, id, 1),
        g = cotangents[0];
  out[0] = grad_dot_to(graph, g, b, graph_type(graph, a));
  out[1] = grad_dot_to(graph, a, g, graph_type(graph, b));
}

/* ---- attributes handed on ---- */

static void copy_ints(Attrs *attrs, const Node *node, AttrKey key) {
  int n;
  if (!node_has(node, key)) return;
  const int64_t *values = node_ints(node, key, &n);
  attrs_ints(attrs, key, values, n);
}

static void copy_names(Attrs *attrs, const Node *node, AttrKey key) {
  int n;
  if (!node_has(node, key)) return;
  const Name *names = node_names(node, key, &n);
  attrs_names(attrs, key, names, n);
}

static void space_sizes(Graph *graph, Attrs *attrs, AttrKey key,
                        const Node *node, const Type *type) {
  int n;
  const Name *space = node_names(node, ATTR_space, &n);
  int64_t *sizes = ARENA_ARRAY(graph->module->arena, int64_t, n);
  for (int i = 0; i < n; i++) sizes[i] = type_size(type, space[i]);
  attrs_ints(attrs, key, sizes, n);
}

/* ---- convolutions ---- */

static Attrs copy_geometry(const Node *node) {
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dim, node_name(node, ATTR_dim));
  copy_names(&attrs, node, ATTR_space);
  copy_ints(&attrs, node, ATTR_stride);
  copy_ints(&attrs, node, ATTR_pad);
  copy_ints(&attrs, node, ATTR_dilate);
  return attrs;
}

/* The dims of w that x does not have. */
static void new_dims(Graph *graph, Attrs *attrs, const Type *x, const Type *w) {
  Name *names = ARENA_ARRAY(graph->module->arena, Name, w->rank);
  int n = 0;
  for (int i = 0; i < w->rank; i++) {
    if (type_find(x, w->dims[i].name) < 0) names[n++] = w->dims[i].name;
  }
  attrs_names(attrs, ATTR_to, names, n);
}

/* The dims of x that w does not have: the batch, but no groups. */
static void summed_dims(Graph *graph, Attrs *attrs, const Type *x,
                        const Type *w, Name contracted) {
  Name *names = ARENA_ARRAY(graph->module->arena, Name, x->rank);
  int n = 0;
  for (int i = 0; i < x->rank; i++) {
    Name name = x->dims[i].name;
    if (name != contracted && type_find(w, name) < 0) names[n++] = name;
  }
  attrs_names(attrs, ATTR_over, names, n);
}

static Value convolved(Graph *graph, const Node *node, Value x, Value w) {
  Attrs attrs = copy_geometry(node);
  return graph_append(graph, OP_conv, (Value[]){x, w}, 2, &attrs);
}

static Value input_grad(Graph *graph, const Node *node, Value dy, Value w,
                        const Type *x, const Type *w_type) {
  Attrs attrs = copy_geometry(node);
  space_sizes(graph, &attrs, ATTR_sizes, node, x);
  new_dims(graph, &attrs, x, w_type);
  Value dx =
      graph_append(graph, OP_conv_input_grad, (Value[]){dy, w}, 2, &attrs);
  return grad_sum_to(graph, dx, x);
}

static Value weight_grad(Graph *graph, const Node *node, Value x, Value dy,
                         const Type *x_type, const Type *w) {
  Attrs attrs = copy_geometry(node);
  space_sizes(graph, &attrs, ATTR_window, node, w);
  new_dims(graph, &attrs, x_type, w);
  summed_dims(graph, &attrs, x_type, w, node_name(node, ATTR_dim));
  Value dw =
      graph_append(graph, OP_conv_weight_grad, (Value[]){x, dy}, 2, &attrs);
  return grad_sum_to(graph, dw, w);
}

void grad_conv(Graph *graph, int id, const Value *cotangents, Value *out) {
  const Node *node = graph->nodes.data[id];
  Value x = node->inputs[0], w = node->inputs[1], g = cotangents[0];
  const Type *x_type = graph_type(graph, x), *w_type = graph_type(graph, w);
  out[0] = input_grad(graph, node, g, w, x_type, w_type);
  out[1] = weight_grad(graph, node, x, g, x_type, w_type);
}

void grad_conv_input_grad(Graph *graph, int id, const Value *cotangents,
                          Value *out) {
  const Node *node = graph->nodes.data[id];
  Value dy = node->inputs[0], w = node->inputs[1], g = cotangents[0];
  out[0] = convolved(graph, node, g, w);
  out[1] =
      weight_grad(graph, node, g, dy, node->types[0], graph_type(graph, w));
}

void grad_conv_weight_grad(Graph *graph, int id, const Value *cotangents,
                           Value *out) {
  const Node *node = graph->nodes.data[id];
  Value x = node->inputs[0], dy = node->inputs[1], g = cotangents[0];
  out[0] = input_grad(graph, node, dy, g, graph_type(graph, x), node->types[0]);
  out[1] = convolved(graph, node, x, g);
}

/* ---- pooling ---- */

static Attrs copy_window(const Node *node) {
  Attrs attrs = {0};
  copy_names(&attrs, node, ATTR_space);
  copy_ints(&attrs, node, ATTR_window);
  copy_ints(&attrs, node, ATTR_stride);
  copy_ints(&attrs, node, ATTR_pad);
  if (node_has(node, ATTR_causal)) {
    attrs_int(&attrs, ATTR_causal, node_int(node, ATTR_causal, 1));
  }
  return attrs;
}

void grad_maxpool(Graph *graph, int id, const Value *cotangents, Value *out) {
  const Node *node = graph->nodes.data[id];
  Attrs attrs = copy_window(node);
  Value inputs[] = {node->inputs[0], {id, 0}, cotangents[0]};
  out[0] = graph_append(graph, OP_maxpool_grad, inputs, 3, &attrs);
}

static void spread_pool(Graph *graph, int id, Op op, const Value *cotangents,
                        Value *out) {
  const Node *node = graph->nodes.data[id];
  Attrs attrs = copy_window(node);
  const Type *x = graph_type(graph, node->inputs[0]);
  space_sizes(graph, &attrs, ATTR_sizes, node, x);
  out[0] = graph_append(graph, op, &cotangents[0], 1, &attrs);
}

void grad_avgpool(Graph *graph, int id, const Value *cotangents, Value *out) {
  spread_pool(graph, id, OP_avgpool_grad, cotangents, out);
}

void grad_adaptive_avgpool(Graph *graph, int id, const Value *cotangents,
                           Value *out) {
  spread_pool(graph, id, OP_adaptive_avgpool_grad, cotangents, out);
}

/* The transposed map, and the map itself where that is differentiated. */
void grad_resize(Graph *graph, int id, const Value *cotangents, Value *out) {
  const Node *node = graph->nodes.data[id];
  Name dim = node_name(node, ATTR_dim);
  int64_t size = type_size(graph_type(graph, node->inputs[0]), dim);
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dim, dim);
  attrs_ints(&attrs, ATTR_sizes, &size, 1);
  copy_ints(&attrs, node, ATTR_window);
  if (!node_int(node, ATTR_reverse, 0)) attrs_int(&attrs, ATTR_reverse, 1);
  out[0] = graph_append(graph, OP_resize, &cotangents[0], 1, &attrs);
}

/* ---- attention ---- */

/* The log-sum-exp is a result for the gradient's own use; nothing that reads
 * it may be differentiated. */
void grad_attention(Graph *graph, int id, const Value *cotangents, Value *out) {
  const Node *node = graph->nodes.data[id];
  ASSERT(value_is(cotangents[0]) && !value_is(cotangents[1]));
  Value d_o = graph_transpose_to(graph, cotangents[0], node->types[0]);
  Attrs attrs = {0};
  for (int i = 0; i < node->n_attrs; i++) attrs.items[i] = node->attrs[i];
  attrs.n = node->n_attrs;
  bool has_count = node->n_inputs > 3;
  Value inputs[] = {node->inputs[0],
                    node->inputs[1],
                    node->inputs[2],
                    {id, 0},
                    {id, 1},
                    d_o,
                    has_count ? node->inputs[3] : VALUE_NONE};
  Value first =
      graph_append(graph, OP_attention_grad, inputs, 6 + has_count, &attrs);
  for (int i = 0; i < 3; i++) out[i] = (Value){first.node, i};
}
