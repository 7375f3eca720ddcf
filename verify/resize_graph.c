/*
 * resize_graph.c -- copies a graph with other sizes: types, and the attributes
 * that hold sizes, offsets or integers that are sizes.
 *
 * The shape rule of every node that has one is asked again.
 */
#include "verify/resize.h"

typedef struct Resized {
  const Resizing *resizing;
  Arena *arena;
  bool is_right;
} Resized;

static const Type *resized_type(const Resized *r, const Type *type) {
  Type *own = arena_copy(r->arena, type,
                         sizeof *type + (size_t)type->rank * sizeof(Dim));
  for (int d = 0; d < type->rank; d++)
    own->dims[d].size =
        resizing_size(r->resizing, type->dims[d].name, type->dims[d].size);
  return own;
}

/* The names of the dims whose sizes an attribute lists. */
static const Name *names_of_sizes(const Node *node, int *out_n) {
  if (node_has(node, ATTR_space)) return node_names(node, ATTR_space, out_n);
  if (node_has(node, ATTR_dim) && node->op != OP_split_dim &&
      node->op != OP_topk) {
    *out_n = 1;
    return &node_attr(node, ATTR_dim)->name;
  }
  return node_names(node, ATTR_to, out_n);
}

static void resize_sizes(const Resized *r, const Node *node, Attr *attr) {
  int n = 0;
  const Name *names = names_of_sizes(node, &n);
  int64_t *sizes = ARENA_ARRAY(r->arena, int64_t, attr->n);
  for (int i = 0; i < attr->n; i++)
    sizes[i] = i < n ? resizing_size(r->resizing, names[i], attr->integers[i])
                     : attr->integers[i];
  attr->integers = sizes;
}

static void resize_pads(const Resized *r, const Node *node, const Type *from,
                        Attr *attr) {
  Name dim = node_name(node, ATTR_dim);
  int64_t *pads = ARENA_ARRAY(r->arena, int64_t, attr->n);
  for (int i = 0; i < attr->n; i++)
    pads[i] = resizing_offset(r->resizing, dim, type_size(from, dim),
                              attr->integers[i]);
  attr->integers = pads;
}

static void resize_attr(const Resized *r, const Graph *graph, const Node *node,
                        Attr *attr) {
  const Type *from = node->n_inputs ? graph_type(graph, node->inputs[0]) : NULL;
  Name dim = node_has(node, ATTR_dim) ? node_name(node, ATTR_dim) : NULL;
  if (attr->key == ATTR_sizes) {
    resize_sizes(r, node, attr);
  } else if (node->op == OP_pad && attr->key == ATTR_pad) {
    resize_pads(r, node, from, attr);
  } else if (node->op == OP_slice && attr->key == ATTR_start) {
    attr->integer =
        resizing_offset(r->resizing, dim, type_size(from, dim), attr->integer);
  }
}

/* ---- integer constants ---- */

/* Operand `i` is the index of an element, as of a slice of one, or a number of
 * positions that are counted along another dim, as the turn of a ring is. */
static bool is_position(const Graph *graph, const Node *node, int i) {
  if (node->op == OP_gather && i == 1) return true;
  if (node->n_inputs != 2 || node->types[0]->dtype != DT_bool) return false;
  const Node *number = graph_node(graph, node->inputs[i]);
  const Node *places = graph_node(graph, node->inputs[1 - i]);
  return places->op == OP_iota &&
         places->types[0]->dims[0].size !=
             (int64_t)node_float(number, ATTR_value, 0);
}

/* By node: an integer constant that may be a size. */
static bool *find_size_constants(const Resized *r, const Graph *graph) {
  bool *may_be = ARENA_ARRAY(r->arena, bool, graph->nodes.n);
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    for (int i = 0; i < node->n_inputs; i++) {
      const Node *from = graph_node(graph, node->inputs[i]);
      may_be[node->inputs[i].node] |=
          from->op == OP_const &&
          dtype_class(from->types[0]->dtype) == CLASS_INT &&
          !is_position(graph, node, i);
    }
  }
  return may_be;
}

/* ---- the shape rule ---- */

static bool rule_holds(const Resized *r, const Graph *graph, const Node *node) {
  Arena *scratch = arena_beside(r->arena);
  Attrs attrs = {.n = node->n_attrs};
  const Type **types = ARENA_ARRAY(scratch, const Type *, node->n_inputs);
  const Type *made[8];
  for (int i = 0; i < node->n_attrs; i++) attrs.items[i] = node->attrs[i];
  for (int i = 0; i < node->n_inputs; i++)
    types[i] = type_logical(scratch, graph_type(graph, node->inputs[i]));
  OpCall call = {node->op, node->n_inputs, types, &attrs, NULL};
  /* A rule that does not hold is no mistake of the user. */
  int n =
      op_infer(module_apart(graph->module, scratch), &call, node->span, made);
  bool holds = n == node->n_results;
  for (int i = 0; i < n && holds; i++)
    holds = type_same_dims(made[i], node->types[i]);
  arena_destroy(scratch);
  return holds;
}

/* ---- graphs ---- */

static Graph *resized_graph(Resized *r, const Graph *graph);

static Node *resized_node(Resized *r, const Graph *graph, const Node *node,
                          bool is_size) {
  Node *own = arena_copy(r->arena, node, sizeof *node);
  const Type **types = ARENA_ARRAY(r->arena, const Type *, node->n_results);
  Attr *attrs =
      arena_copy(r->arena, node->attrs, (size_t)node->n_attrs * sizeof(Attr));
  for (int i = 0; i < node->n_results; i++)
    types[i] = resized_type(r, node->types[i]);
  for (int i = 0; i < node->n_attrs; i++)
    resize_attr(r, graph, node, &attrs[i]);
  for (int i = 0; i < node->n_attrs && is_size; i++)
    if (attrs[i].key == ATTR_value)
      attrs[i].real =
          (double)resizing_integer(r->resizing, (int64_t)attrs[i].real);
  own->types = types;
  own->attrs = attrs;
  if (node->body) own->body = resized_graph(r, node->body);
  return own;
}

static Graph *resized_graph(Resized *r, const Graph *graph) {
  Graph *own = arena_copy(r->arena, graph, sizeof *graph);
  own->nodes.data = ARENA_ARRAY(r->arena, Node *, graph->nodes.n);
  own->hashed_nodes = 0;
  const bool *is_size = find_size_constants(r, graph);
  for (int id = 0; id < graph->nodes.n && r->is_right; id++) {
    const Node *node = graph->nodes.data[id];
    own->nodes.data[id] = resized_node(r, graph, node, is_size[id]);
    if (op_info(node->op)->infer && rule_holds(r, graph, node))
      r->is_right = rule_holds(r, own, own->nodes.data[id]);
  }
  return own;
}

Graph *resizing_apply(const Resizing *resizing, const Graph *graph) {
  Resized r = {
      .resizing = resizing, .arena = graph->module->arena, .is_right = true};
  Graph *own = resized_graph(&r, graph);
  return r.is_right ? own : NULL;
}
