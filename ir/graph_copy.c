/*
 * graph_copy.c -- copies a graph into other memory.
 *
 * The graphs of passes share nodes, so none of them can be freed alone.  A copy
 * shares nothing: after it, the arena in which passes worked can be destroyed
 * with all that the last graph no longer has.  Nodes follow each other in
 * memory as they do in the graph, and their bodies come behind them, so that a
 * walk over launches reads few pages.  Arrays have no spare room, and equal
 * types are one.
 */
#include "ir/ir.h"

#include <string.h>

enum { N_RECENT = 256, FIRST_TYPES = 64 };

typedef struct RecentType {
  const Type *from, *to;
} RecentType;

typedef struct GraphCopy {
  Module *module;
  Arena *arena, *scratch;
  RecentType recent[N_RECENT]; /* by address: most types are met again soon */
  Map *bodies;        /* by their nodes, which equal bodies share: the copy */
  const Type **types; /* those of the copy, by hash; NULL: empty */
  size_t n_types, n_slots;
} GraphCopy;

/* ---- types ---- */

static const Type **find_type(const GraphCopy *copy, const Type *type) {
  size_t mask = copy->n_slots - 1;
  for (size_t i = (size_t)type_hash(type) & mask;; i = (i + 1) & mask) {
    const Type **slot = &copy->types[i];
    if (!*slot || type_equal(*slot, type)) return slot;
  }
}

static void grow_types(GraphCopy *copy) {
  const Type **old = copy->types;
  size_t n = copy->n_slots;
  copy->n_slots = n ? 2 * n : FIRST_TYPES;
  copy->types = ARENA_ARRAY(copy->scratch, const Type *, copy->n_slots);
  for (size_t i = 0; i < n; i++)
    if (old[i]) *find_type(copy, old[i]) = old[i];
}

static const Type *copy_type(GraphCopy *copy, const Type *type) {
  size_t at = (size_t)hash_mix(0, (uintptr_t)type) % N_RECENT;
  RecentType *recent = &copy->recent[at];
  if (recent->from == type) return recent->to;
  const Type **slot = find_type(copy, type);
  if (!*slot) {
    *slot =
        arena_copy(copy->arena, type, sizeof(Type) + type->rank * sizeof(Dim));
    *recent = (RecentType){type, *slot};
    if (++copy->n_types * 2 > copy->n_slots) grow_types(copy);
    return recent->to;
  }
  *recent = (RecentType){type, *slot};
  return recent->to;
}

/* ---- nodes ---- */

typedef struct NodeBytes {
  size_t attrs, lists, types, inputs;
} NodeBytes;

enum { NODE_BYTES = (sizeof(Node) + 7) & ~7 };

/* All kinds of lists have items of eight bytes on the machines we know; where
 * pointers are shorter there is room to spare. */
static bool attr_is_list(const Attr *attr) {
  AttrKind kind = attr_kind(attr->key);
  return kind == ATTRKIND_NAMES || kind == ATTRKIND_INTS;
}

static NodeBytes node_bytes(const Node *node) {
  NodeBytes bytes = {.attrs = (size_t)node->n_attrs * sizeof(Attr),
                     .types = (size_t)node->n_results * sizeof(Type *),
                     .inputs = (size_t)node->n_inputs * sizeof(Value)};
  for (int i = 0; i < node->n_attrs; i++)
    if (attr_is_list(&node->attrs[i]))
      bytes.lists += (size_t)node->attrs[i].n * sizeof(int64_t);
  return bytes;
}

/* The lists lie at `lists`, one after the other. */
static void copy_attrs(const Node *node, Attr *attrs, char *lists) {
  for (int i = 0; i < node->n_attrs; i++) {
    const Attr *attr = &node->attrs[i];
    attrs[i] = *attr;
    if (!attr_is_list(attr)) continue;
    if (attr_kind(attr->key) == ATTRKIND_NAMES) {
      memcpy(lists, attr->names, (size_t)attr->n * sizeof(Name));
      attrs[i].names = (const Name *)lists;
    } else {
      memcpy(lists, attr->integers, (size_t)attr->n * sizeof(int64_t));
      attrs[i].integers = (const int64_t *)lists;
    }
    lists += (size_t)attr->n * sizeof(int64_t);
  }
}

/* Without its body. */
static Node *copy_node(GraphCopy *copy, const Node *node) {
  NodeBytes bytes = node_bytes(node);
  char *memory =
      arena_alloc(copy->arena, NODE_BYTES + bytes.attrs + bytes.lists +
                                   bytes.types + bytes.inputs);
  Node *result = (Node *)memory;
  const Type **types = (const Type **)(memory + NODE_BYTES);
  Value *inputs = (Value *)((char *)types + bytes.types);
  Attr *attrs = (Attr *)((char *)inputs + bytes.inputs);
  char *lists = (char *)attrs + bytes.attrs;
  *result = *node;
  if (node->n_attrs) copy_attrs(node, attrs, lists);
  if (node->n_inputs) memcpy(inputs, node->inputs, bytes.inputs);
  for (int i = 0; i < node->n_results; i++)
    types[i] = copy_type(copy, node->types[i]);
  result->attrs = attrs;
  result->inputs = inputs;
  result->types = types;
  return result;
}

/* Bytes of a node without its body. */
static size_t plain_bytes(const Node *node) {
  return NODE_BYTES + (size_t)node->n_attrs * sizeof(Attr) +
         (size_t)node->n_results * sizeof(Type *) +
         (size_t)node->n_inputs * sizeof(Value);
}

/* ---- graphs ---- */

static void *copy_array(Arena *arena, const void *items, int n,
                        size_t item_bytes) {
  return n ? arena_copy(arena, items, (size_t)n * item_bytes) : NULL;
}

static Graph *copy_graph(GraphCopy *copy, const Graph *graph);

static Graph *copy_body(GraphCopy *copy, const Graph *body) {
  const Graph *known = map_get(copy->bodies, body->nodes.data);
  Graph *result = known ? arena_copy(copy->arena, known, sizeof *known)
                        : copy_graph(copy, body);
  if (!known) map_put(copy->bodies, body->nodes.data, result);
  result->paths = body->paths ? copy_array(copy->arena, body->paths,
                                           body->nodes.n, sizeof *body->paths)
                              : NULL;
  return result;
}

static Graph *copy_graph(GraphCopy *copy, const Graph *graph) {
  Arena *arena = copy->arena;
  Graph *result = arena_copy(arena, graph, sizeof *graph);
  int n = graph->nodes.n;
  result->module = copy->module;
  result->node_bytes = 0;
  result->nodes.data = ARENA_ARRAY(arena, Node *, n);
  result->nodes.capacity = n;
  bool has_bodies =
      graph_has_op(graph, OP_fused) || graph_has_op(graph, OP_scan);
  for (int id = 0; id < n; id++) {
    result->nodes.data[id] = copy_node(copy, graph->nodes.data[id]);
    result->node_bytes += plain_bytes(result->nodes.data[id]);
  }
  for (int id = 0; id < n && has_bodies; id++) {
    Node *node = result->nodes.data[id];
    if (!node->body) continue;
    node->body = copy_body(copy, node->body);
    result->node_bytes += graph_copy_bytes(node->body);
  }
  result->inputs.data = copy_array(arena, graph->inputs.data, graph->inputs.n,
                                   sizeof *graph->inputs.data);
  result->inputs.capacity = graph->inputs.n;
  result->outputs.data =
      copy_array(arena, graph->outputs.data, graph->outputs.n,
                 sizeof *graph->outputs.data);
  result->outputs.capacity = graph->outputs.n;
  return result;
}

Graph *graph_copy(Module *module, const Graph *graph) {
  Arena *scratch = arena_beside(module->arena);
  GraphCopy *copy = ARENA_NEW(scratch, GraphCopy);
  copy->module = module;
  copy->arena = module->arena;
  copy->scratch = scratch;
  copy->bodies = map_create(scratch);
  grow_types(copy);
  Graph *result = copy_graph(copy, graph);
  arena_destroy(scratch);
  return result;
}

size_t node_copy_bytes(const Node *node) {
  return plain_bytes(node) + (node->body ? graph_copy_bytes(node->body) : 0);
}

size_t graph_copy_bytes(const Graph *graph) {
  if (graph->paths)
    return sizeof *graph + (size_t)graph->nodes.n * sizeof *graph->paths;
  return sizeof *graph + (size_t)graph->nodes.n * sizeof(Node *) +
         graph->node_bytes +
         (size_t)graph->inputs.n * sizeof *graph->inputs.data +
         (size_t)graph->outputs.n * sizeof *graph->outputs.data;
}
