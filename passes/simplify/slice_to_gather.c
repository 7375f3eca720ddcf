/*
 * slice_to_gather.c -- turn one-element slices and pads into gather and select,
 * which fuse.
 *
 *     %1 = add %a, %b : f32[B, G:4, O]             %1 = gather %a, 2 {dim = G}
 *     %2 = slice %1 {dim = G, start = 2}           %2 = gather %b, 2 {dim = G}
 *     %3 = sum %2 {over = [G]} : f32[B, O]   =>    %3 = add %1, %2 : f32[B, O]
 *     %4 = ... %3 : f32[B, O]                      %4 = ... %3 : f32[B, O]
 *     %5 = broadcast %4 {to = [G]}                 %5 = eq (iota G), 2
 *     %6 = pad %5 {pad = [2, 1]}                   %6 = select %5, %4, 0
 *
 * A slice or pad is a kernel of its own, but a gather or select fuses with its
 * neighbours.  A gather is hoisted above a pointwise operator all of whose
 * users are such gathers.  The gates of a recurrent layer are slices of one
 * value in the forward pass and pads of one gradient in the backward pass: each
 * becomes one kernel.
 *
 * requires: decomposed, logical types     keeps: values, result types
 * breaks: node ids                        cost: O(nodes)
 */
#include "passes/rewrite.h"

typedef struct Unpacking {
  const Graph *graph;
  bool *is_unpacked; /* by node: all its users are one-element slices along
                        dim[id] */
  Name *dim;
  Map *gathered; /* by element_key: id of the new node, plus one */
} Unpacking;

/* Element `at` along dim[id] of node `id`. */
static const void *element_key(const Unpacking *p, int id, int64_t at) {
  return (const void *)(intptr_t)(at * p->graph->nodes.n + id + 1);
}

/* The slice whose one element this sum reduces, or NULL. */
static const Node *unpacked_slice(const Graph *graph, const Node *node) {
  int n;
  if (node->op != OP_sum) return NULL;
  const Node *slice = graph_node(graph, node->inputs[0]);
  if (slice->op != OP_slice) return NULL;
  const Name *over = node_names(node, ATTR_over, &n);
  Name dim = node_name(slice, ATTR_dim);
  bool is_one =
      n == 1 && over[0] == dim && type_size(slice->types[0], dim) == 1;
  return is_one ? slice : NULL;
}

static bool is_pointwise_node(const Node *node) {
  return op_is(node->op, OPCLASS_elementwise);
}

/* A slice of one element whose users all drop the dim becomes a gather. */
static void find_unpacked(Unpacking *p, Arena *arena) {
  const Graph *graph = p->graph;
  int n = graph->nodes.n;
  int *uses = graph_reader_counts(graph, arena);
  int *unpacking = ARENA_ARRAY(arena, int, n); /* users that are such slices */
  for (int id = n - 1; id >= 0; id--) {
    const Node *node = graph->nodes.data[id];
    const Node *slice = unpacked_slice(graph, node);
    if (slice) unpacking[node->inputs[0].node]++;
    bool all = uses[id] > 0 && unpacking[id] == uses[id];
    if (node->op == OP_slice && all) {
      int from = node->inputs[0].node;
      Name dim = node_name(node, ATTR_dim);
      if (!p->dim[from]) p->dim[from] = dim;
      unpacking[from] += p->dim[from] == dim;
    }
    p->is_unpacked[id] = all && is_pointwise_node(node) && p->dim[id];
    for (int i = 0; p->is_unpacked[id] && i < node->n_inputs; i++) {
      int from = node->inputs[i].node;
      if (!p->dim[from]) p->dim[from] = p->dim[id];
      unpacking[from] += p->dim[from] == p->dim[id];
    }
  }
}

/* Element `at` along `dim` of a value of the old graph. A value that several
 * nodes share is gathered once: otherwise a chain of n nodes, each of which
 * reads the one before twice, would become 2^n nodes. */
static Value gather_element(Rewrite *rewrite, const Unpacking *p, Value value,
                            Name dim, int64_t at) {
  Graph *to = rewrite->to;
  const Node *node = graph_node(p->graph, value);
  if (type_find(node->types[value.result], dim) < 0)
    return rewrite_get(rewrite, value);
  if (p->is_unpacked[value.node] && p->dim[value.node] == dim) {
    const void *key = element_key(p, value.node, at);
    intptr_t known = (intptr_t)map_get(p->gathered, key);
    if (known) return (Value){(int)known - 1, 0};
    Value *inputs = ARENA_ARRAY(rewrite->ctx->scratch, Value, node->n_inputs);
    for (int i = 0; i < node->n_inputs; i++)
      inputs[i] = gather_element(rewrite, p, node->inputs[i], dim, at);
    Value copy = graph_copy_node(to, p->graph, value.node, inputs, true);
    const Type *order =
        type_without(rewrite->ctx->module->arena, node->types[0], &dim, 1);
    Value now = graph_transpose_to(to, copy, order);
    map_put(p->gathered, key, (void *)(intptr_t)(now.node + 1));
    return now;
  }
  Value index = graph_const(to, dtype_of_positions(at + 1), (double)at);
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dim, dim);
  return graph_append(to, OP_gather,
                      (Value[]){rewrite_get(rewrite, value), index}, 2, &attrs);
}

static bool slice_as_gather(Rewrite *rewrite, const Unpacking *p, int id) {
  const Node *node = rewrite->from->nodes.data[id];
  const Node *slice = unpacked_slice(rewrite->from, node);
  if (!slice) return false;
  Value now =
      gather_element(rewrite, p, slice->inputs[0], node_name(slice, ATTR_dim),
                     node_int(slice, ATTR_start, 0));
  rewrite_set(rewrite, (Value){id, 0},
              graph_transpose_to(rewrite->to, now, node->types[0]));
  return true;
}

/* The one element that is padded, without the dim. */
static Value drop_padded_dim(Rewrite *rewrite, Value value, Name dim) {
  int n;
  const Node *node = graph_node(rewrite->to, value);
  if (node->op == OP_broadcast && node_names(node, ATTR_to, &n)[0] == dim &&
      n == 1)
    return node->inputs[0];
  return graph_reduce(rewrite->to, OP_sum, value, &dim, 1);
}

static bool pad_as_select(Rewrite *rewrite, int id) {
  const Node *node = rewrite->from->nodes.data[id];
  if (node->op != OP_pad) return false;
  const Type *from = graph_type(rewrite->from, node->inputs[0]);
  Name dim = node_name(node, ATTR_dim);
  if (type_size(from, dim) != 1) return false;
  int n;
  Graph *to = rewrite->to;
  Value one =
      drop_padded_dim(rewrite, rewrite_get(rewrite, node->inputs[0]), dim);
  Value index = graph_positions(to, dim, type_size(node->types[0], dim));
  Value wanted = graph_const(to, graph_type(to, index)->dtype,
                             (double)node_ints(node, ATTR_pad, &n)[0]);
  Value is_here = graph_op2(to, OP_eq, index, wanted);
  Value fill = graph_const(to, from->dtype, node_float(node, ATTR_value, 0));
  Value now = graph_op3(to, OP_select, is_here, one, fill);
  rewrite_set(rewrite, (Value){id, 0},
              graph_transpose_to(to, now, node->types[0]));
  return true;
}

static bool slice_to_gather_rule(Rewrite *rewrite, int id, void *user) {
  const Unpacking *p = user;
  return slice_as_gather(rewrite, p, id) || pad_as_select(rewrite, id);
}

Graph *pass_slice_to_gather(PassContext *ctx, const Graph *graph) {
  int n = graph->nodes.n;
  if (!graph_has_op(graph, OP_slice) && !graph_has_op(graph, OP_pad))
    return NULL;
  Unpacking unpacking = {.graph = graph,
                         .is_unpacked = ARENA_ARRAY(ctx->scratch, bool, n),
                         .dim = ARENA_ARRAY(ctx->scratch, Name, n),
                         .gathered = map_create(ctx->scratch)};
  find_unpacked(&unpacking, ctx->scratch);
  return rewrite_graph(ctx, graph, slice_to_gather_rule, &unpacking);
}
