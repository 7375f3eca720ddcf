/*
 * graph.c -- builds graphs by appending nodes, and finds nodes, inputs and
 * outputs in them.
 *
 * Appending copies what it is given, so callers may keep attributes and inputs
 * on their stack; types are shared.
 */
#include "ir/ir.h"

#include <string.h>

const char *role_name(Role role) {
  static const char *const names[N_ROLES] = {
#define ROLE(name, program) #name,
#include "ir/roles.def"
  };
  ASSERT((unsigned)role < N_ROLES);
  return names[role];
}

bool role_is_of_step(Role role) {
  return role == ROLE_data || role == ROLE_step || role == ROLE_seed ||
         role == ROLE_epoch;
}

Module *module_apart(const Module *module, Arena *arena) {
  Module *own = arena_copy(arena, module, sizeof *module);
  own->arena = arena;
  own->diags = diags_create(arena);
  return own;
}

Graph *graph_create(Module *module, Name name) {
  Graph *graph = ARENA_NEW(module->arena, Graph);
  graph->module = module;
  graph->name = name;
  graph->path = name_intern(module->names, "");
  return graph;
}

Graph *graph_like(const Graph *graph) {
  Arena *arena = graph->module->arena;
  Graph *result = graph_create(graph->module, graph->name);
  result->mesh = graph->mesh;
  vec_reserve(arena, &result->nodes, graph->nodes.n);
  vec_reserve(arena, &result->inputs, graph->inputs.n);
  vec_reserve(arena, &result->outputs, graph->outputs.n);
  return result;
}

/* ---- appending ---- */

static Attr copy_attr(Arena *arena, const Attr *attr) {
  Attr result = *attr;
  switch (attr_kind(attr->key)) {
  case ATTRKIND_NAMES:
    result.names = arena_copy(arena, attr->names, attr->n * sizeof(Name));
    break;
  case ATTRKIND_INTS:
    result.integers =
        arena_copy(arena, attr->integers, attr->n * sizeof(int64_t));
    break;
  default: break;
  }
  return result;
}

/* Insertion sort: a node has a handful. */
static void sort_attrs(Arena *arena, Attr *sorted, const Attr *attrs, int n) {
  for (int i = 0; i < n; i++) {
    int j = i;
    for (; j > 0 && sorted[j - 1].key > attrs[i].key; j--) {
      sorted[j] = sorted[j - 1];
    }
    sorted[j] = copy_attr(arena, &attrs[i]);
  }
}

static void push_node(Graph *graph, Node *node) {
  vec_push(graph->module->arena, &graph->nodes, node);
  graph->ops[node->op / 64] |= UINT64_C(1) << node->op % 64;
  graph->node_bytes += node_copy_bytes(node);
}

/* Nearly all are a first result, which every node has: then the node, which may
 * be far away, is not read. */
static void assert_value(const Graph *graph, Value value) {
  ASSERT(value.node >= 0 && value.node < graph->nodes.n);
  if (value.result != 0) graph_node(graph, value);
}

/* A node and its arrays are one allocation: there may be millions. */
static Value append_node(Graph *graph, Op op, const Value *inputs, int n_inputs,
                         const Attrs *attrs, const Type *const *types,
                         int n_results, Graph *body) {
  enum { NODE_BYTES = (sizeof(Node) + 7) & ~7 };
  Arena *arena = graph->module->arena;
  int n_attrs = attrs ? attrs->n : 0;
  size_t attrs_bytes = (size_t)n_attrs * sizeof(Attr);
  size_t types_bytes = (size_t)n_results * sizeof *types;
  size_t inputs_bytes = (size_t)n_inputs * sizeof *inputs;
  char *node =
      arena_alloc(arena, NODE_BYTES + attrs_bytes + types_bytes + inputs_bytes);
  const Type **own_types = (const Type **)(node + NODE_BYTES);
  Value *own_inputs = (Value *)((char *)own_types + types_bytes);
  Attr *own_attrs = (Attr *)((char *)own_inputs + inputs_bytes);
  for (int i = 0; i < n_inputs; i++) {
    assert_value(graph, inputs[i]);
    own_inputs[i] = inputs[i];
  }
  for (int i = 0; i < n_results; i++) own_types[i] = types[i];
  if (attrs) sort_attrs(arena, own_attrs, attrs->items, n_attrs);
  *(Node *)node = (Node){.op = op,
                         .phase = graph->phase,
                         .stage = graph->stage,
                         .n_inputs = n_inputs,
                         .n_results = n_results,
                         .n_attrs = n_attrs,
                         .inputs = own_inputs,
                         .types = own_types,
                         .attrs = own_attrs,
                         .body = body,
                         .span = graph->span,
                         .path = graph->path};
  push_node(graph, (Node *)node);
  return (Value){graph->nodes.n - 1, 0};
}

Value graph_input(Graph *graph, Role role, Name path, const Type *type) {
  Attrs attrs = {0};
  attrs_int(&attrs, ATTR_index, graph->inputs.n);
  Value value = append_node(graph, OP_input, NULL, 0, &attrs, &type, 1, NULL);
  GraphInput input = {.role = role, .path = path, .value = value};
  vec_push(graph->module->arena, &graph->inputs, input);
  return value;
}

void graph_output(Graph *graph, Role role, Name path, Value value) {
  graph_node(graph, value);
  GraphOutput output = {role, path, value};
  vec_push(graph->module->arena, &graph->outputs, output);
}

/* The caller has checked; the rule's message is for the developer. */
static _Noreturn void rule_violated(Module *module, Op op) {
  Text text = text_create(module->arena);
  text_printf(&text, "the rule of '%s' holds\n", op_info(op)->name);
  diags_print(module->diags, &text);
  assert_failed(__FILE__, __LINE__, __func__, text_string(&text));
}

static int infer_node_types(Graph *graph, Op op, const Value *inputs,
                            int n_inputs, const Attrs *attrs,
                            const Type **out_types) {
  Arena *arena = graph->module->arena;
  const Type **types = ARENA_ARRAY(arena, const Type *, n_inputs);
  for (int i = 0; i < n_inputs; i++) types[i] = graph_type(graph, inputs[i]);
  OpCall call = {op, n_inputs, types, attrs, NULL};
  int n = op_infer(graph->module, &call, graph->span, out_types);
  if (n < 0) rule_violated(graph->module, op);
  return n;
}

Value graph_append(Graph *graph, Op op, const Value *inputs, int n_inputs,
                   const Attrs *attrs) {
  const Type *types[8];
  int n = infer_node_types(graph, op, inputs, n_inputs, attrs, types);
  return append_node(graph, op, inputs, n_inputs, attrs, types, n, NULL);
}

Value graph_append_typed(Graph *graph, Op op, const Value *inputs, int n_inputs,
                         const Attrs *attrs, const Type *const *types,
                         int n_results, Graph *body) {
  ASSERT(op != OP_input);
  return append_node(graph, op, inputs, n_inputs, attrs, types, n_results,
                     body);
}

static Value copy_input(Graph *to, const Graph *from, Node *node) {
  Arena *arena = to->module->arena;
  int64_t slot = node_int(node, ATTR_index, -1);
  ASSERT(slot >= 0 && slot < from->inputs.n);
  Value value = {to->nodes.n, 0};
  GraphInput input = from->inputs.data[slot];
  input.value = value;
  Node *copy = node;
  if (slot != to->inputs.n) {
    Attrs attrs = {0};
    attrs_int(&attrs, ATTR_index, to->inputs.n);
    copy = arena_copy(arena, node, sizeof *node);
    copy->attrs = arena_copy(arena, attrs.items, sizeof(Attr));
  }
  push_node(to, copy);
  vec_push(arena, &to->inputs, input);
  return value;
}

static bool same_values(const Value *a, const Value *b, int n) {
  for (int i = 0; i < n; i++)
    if (!value_equal(a[i], b[i])) return false;
  return true;
}

static bool same_types(const Type *const *a, const Type *const *b, int n) {
  for (int i = 0; i < n; i++)
    if (!type_equal(a[i], b[i])) return false;
  return true;
}

bool node_equal(const Node *a, const Node *b) {
  if (a->op != b->op || a->phase != b->phase || a->stage != b->stage ||
      a->n_inputs != b->n_inputs || a->n_results != b->n_results ||
      a->n_attrs != b->n_attrs || a->body != b->body)
    return false;
  for (int i = 0; i < a->n_attrs; i++)
    if (!attr_equal(&a->attrs[i], &b->attrs[i])) return false;
  return same_values(a->inputs, b->inputs, a->n_inputs) &&
         same_types(a->types, b->types, a->n_results);
}

/* A copy with inputs and types of its own, so that who walks over a graph need
 * not read the node that it was copied from; attributes are shared. */
static Node *copy_changed(Arena *arena, const Node *node, const Value *inputs,
                          const Type *const *types) {
  enum { NODE_BYTES = (sizeof(Node) + 7) & ~7 };
  size_t types_bytes = (size_t)node->n_results * sizeof *types;
  size_t inputs_bytes = (size_t)node->n_inputs * sizeof *inputs;
  char *memory = arena_alloc(arena, NODE_BYTES + types_bytes + inputs_bytes);
  const Type **own_types = (const Type **)(memory + NODE_BYTES);
  Value *own_inputs = (Value *)((char *)own_types + types_bytes);
  Node *copy = (Node *)memory;
  *copy = *node;
  for (int i = 0; i < node->n_results; i++) own_types[i] = types[i];
  for (int i = 0; i < node->n_inputs; i++) own_inputs[i] = inputs[i];
  copy->types = own_types;
  copy->inputs = own_inputs;
  return copy;
}

/* The contents of a node never change, so a copy shares them; a copy that reads
 * the same inputs is the node itself.  (Bodies of scans are replaced.) */
static Value append_copy(Graph *to, Node *node, const Value *inputs,
                         const Type *const *types) {
  Arena *arena = to->module->arena;
  for (int i = 0; i < node->n_inputs; i++) assert_value(to, inputs[i]);
  bool is_same = same_values(inputs, node->inputs, node->n_inputs) &&
                 (!types || same_types(types, node->types, node->n_results));
  if (!is_same || node->op == OP_scan)
    node = copy_changed(arena, node, inputs, types ? types : node->types);
  push_node(to, node);
  return (Value){to->nodes.n - 1, 0};
}

void graph_share_node(Graph *to, Node *node) {
  ASSERT(node->op != OP_input);
  push_node(to, node);
}

Value graph_copy_node(Graph *to, const Graph *from, int id,
                      const Value *new_inputs, bool infer_types) {
  Node *node = from->nodes.data[id];
  if (node->op == OP_input) return copy_input(to, from, node);
  if (!infer_types || !op_info(node->op)->infer)
    return append_copy(to, node, new_inputs, NULL);
  Attrs attrs = {.n = node->n_attrs};
  const Type *inferred[8];
  for (int i = 0; i < node->n_attrs; i++) attrs.items[i] = node->attrs[i];
  int n = infer_node_types(to, node->op, new_inputs, node->n_inputs, &attrs,
                           inferred);
  ASSERT(n == node->n_results);
  return append_copy(to, node, new_inputs, inferred);
}

Value graph_copy_node_as(Graph *to, const Graph *from, int id,
                         const Value *new_inputs, const Type *const *types) {
  Node *node = from->nodes.data[id];
  ASSERT(node->op != OP_input);
  return append_copy(to, node, new_inputs, types);
}

/* ---- looking up ---- */

const GraphInput *graph_find_input(const Graph *graph, Role role, Name path) {
  for (int i = 0; i < graph->inputs.n; i++) {
    const GraphInput *input = &graph->inputs.data[i];
    if (input->role == role && input->path == path) return input;
  }
  return NULL;
}

InputIndex graph_index_inputs(const Graph *graph, Arena *arena) {
  InputIndex index = {.graph = graph};
  for (int i = graph->inputs.n - 1; i >= 0; i--) {
    const GraphInput *input = &graph->inputs.data[i];
    Map **map = &index.by_path[input->role];
    if (!*map) *map = map_create(arena);
    map_put(*map, input->path, (void *)(intptr_t)(i + 1));
  }
  return index;
}

const GraphInput *input_indexed(const InputIndex *index, Role role, Name path) {
  const Map *map = index->by_path[role];
  intptr_t found = map ? (intptr_t)map_get(map, path) : 0;
  return found ? &index->graph->inputs.data[found - 1] : NULL;
}

const GraphOutput *graph_find_output(const Graph *graph, Role role, Name path) {
  for (int i = 0; i < graph->outputs.n; i++) {
    const GraphOutput *output = &graph->outputs.data[i];
    if (output->role == role && output->path == path) return output;
  }
  return NULL;
}

bool *graph_data_nodes(const Graph *graph, Arena *arena) {
  bool *is_data = ARENA_ARRAY(arena, bool, graph->nodes.n);
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    is_data[id] =
        node->op == OP_input &&
        graph->inputs.data[node_int(node, ATTR_index, 0)].role == ROLE_data;
    for (int i = 0; i < node->n_inputs; i++)
      is_data[id] |= is_data[node->inputs[i].node];
  }
  return is_data;
}

int *graph_use_counts(const Graph *graph, Arena *arena) {
  int *counts = ARENA_ARRAY(arena, int, graph->nodes.n);
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    for (int i = 0; i < node->n_inputs; i++) counts[node->inputs[i].node]++;
  }
  for (int i = 0; i < graph->outputs.n; i++) {
    counts[graph->outputs.data[i].value.node]++;
  }
  return counts;
}

GraphPins graph_pins(const Graph *graph, Arena *arena) {
  GraphPins pins = {0};
  if (!graph_has_op(graph, OP_constraint)) return pins;
  int *uses = graph_use_counts(graph, arena);
  pins.first = ARENA_ARRAY(arena, int, graph->nodes.n);
  pins.next = ARENA_ARRAY(arena, int, graph->nodes.n);
  for (int id = graph->nodes.n - 1; id >= 0; id--) {
    const Node *node = graph->nodes.data[id];
    if (node->op != OP_constraint || uses[id] > 0) continue;
    int *first = &pins.first[node->inputs[0].node];
    pins.next[id] = *first ? *first : -1;
    *first = id;
  }
  return pins;
}

int *graph_reader_counts(const Graph *graph, Arena *arena) {
  int *counts = graph_use_counts(graph, arena);
  GraphPins pins = graph_pins(graph, arena);
  for (int id = 0; id < graph->nodes.n; id++)
    if (pin_is_at(&pins, id)) counts[graph->nodes.data[id]->inputs[0].node]--;
  return counts;
}

/* ---- short forms ---- */

Value graph_const(Graph *graph, DType dtype, double value) {
  Attrs attrs = {0};
  attrs_float(&attrs, ATTR_value, value);
  attrs_name(&attrs, ATTR_dtype,
             name_intern(graph->module->names, dtype_name(dtype)));
  return graph_append(graph, OP_const, NULL, 0, &attrs);
}

Value graph_positions(Graph *graph, Name dim, int64_t size) {
  DType dtype = dtype_of_positions(size);
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dim, dim);
  attrs_ints(&attrs, ATTR_sizes, &size, 1);
  if (dtype != DT_i32)
    attrs_name(&attrs, ATTR_dtype,
               name_intern(graph->module->names, dtype_name(dtype)));
  return graph_append(graph, OP_iota, NULL, 0, &attrs);
}

Value graph_op1(Graph *graph, Op op, Value a) {
  return graph_append(graph, op, &a, 1, NULL);
}

Value graph_op2(Graph *graph, Op op, Value a, Value b) {
  return graph_append(graph, op, (Value[]){a, b}, 2, NULL);
}

Value graph_op3(Graph *graph, Op op, Value a, Value b, Value c) {
  return graph_append(graph, op, (Value[]){a, b, c}, 3, NULL);
}

Value graph_reduce(Graph *graph, Op op, Value a, const Name *over, int n) {
  Attrs attrs = {0};
  attrs_names(&attrs, ATTR_over, over, n);
  return graph_append(graph, op, &a, 1, &attrs);
}

Value graph_cast(Graph *graph, Value a, DType dtype) {
  if (graph_type(graph, a)->dtype == dtype) return a;
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dtype,
             name_intern(graph->module->names, dtype_name(dtype)));
  return graph_append(graph, OP_cast, &a, 1, &attrs);
}

Value graph_transpose_to(Graph *graph, Value a, const Type *order) {
  const Type *type = graph_type(graph, a);
  ASSERT(type->rank == order->rank);
  Name names[MAX_RANK];
  bool is_same = true;
  for (int i = 0; i < order->rank; i++) {
    names[i] = order->dims[i].name;
    is_same = is_same && type->dims[i].name == names[i];
  }
  if (is_same) return a;
  Attrs attrs = {0};
  attrs_names(&attrs, ATTR_order, names, order->rank);
  return graph_append(graph, OP_transpose, &a, 1, &attrs);
}

/* ---- hashing ---- */

static uint64_t hash_int(int64_t value, uint64_t seed) {
  return hash_bytes(&value, sizeof value, seed);
}

static uint64_t hash_name(Name name, uint64_t seed) {
  return hash_bytes(name, strlen(name) + 1, seed);
}

static uint64_t hash_type(const Type *type, uint64_t seed) {
  uint64_t h = hash_int(type->dtype, seed);
  h = hash_int(type->rank, h);
  h = hash_int(type->partial ? type->partial << 8 | (int)type->partial_kind : 0,
               h);
  for (int i = 0; i < type->rank; i++) {
    h = hash_name(type->dims[i].name, h);
    h = hash_int(type->dims[i].size, h);
    h = hash_int(type->dims[i].split, h);
  }
  return h;
}

/* A guard changes no kernel. */
static uint64_t hash_attr(const Attr *attr, uint64_t seed) {
  if (attr->key == ATTR_guard) return seed;
  uint64_t h = hash_int(attr->key, hash_int(attr->n, seed));
  switch (attr_kind(attr->key)) {
  case ATTRKIND_NAME:
  case ATTRKIND_TEXT: return hash_name(attr->name, h);
  case ATTRKIND_NAMES:
    for (int i = 0; i < attr->n; i++) h = hash_name(attr->names[i], h);
    return h;
  case ATTRKIND_INT: return hash_int(attr->integer, h);
  case ATTRKIND_INTS:
    return hash_bytes(attr->integers, attr->n * sizeof(int64_t), h);
  case ATTRKIND_FLOAT: return hash_bytes(&attr->real, sizeof attr->real, h);
  }
  UNREACHABLE();
}

static uint64_t hash_body(Graph *body, uint64_t seed) {
  return hash_int((int64_t)region_hash(body), seed);
}

static uint64_t hash_node(const Node *node, uint64_t seed) {
  uint64_t h = hash_name(op_info(node->op)->name, seed);
  h = hash_int(node->n_inputs, h);
  h = hash_int(node->n_results, h);
  h = hash_bytes(node->inputs, node->n_inputs * sizeof(Value), h);
  for (int i = 0; i < node->n_results; i++) h = hash_type(node->types[i], h);
  for (int i = 0; i < node->n_attrs; i++) h = hash_attr(&node->attrs[i], h);
  if (node->body) h = hash_body(node->body, h);
  return h;
}

static uint64_t hash_mesh(const Mesh *mesh) {
  uint64_t h = 0;
  for (int i = 0; i < mesh->n_axes; i++) {
    h = hash_name(mesh->axes[i].name, h);
    h = hash_int((int64_t)mesh->axes[i].size << 1 | mesh->axes[i].is_sequential,
                 h);
  }
  return h;
}

uint64_t kernel_key(const Graph *graph, int id) {
  const Node *node = graph->nodes.data[id];
  uint64_t h = hash_mesh(&graph->mesh);
  h = hash_int(node->n_inputs, hash_int(node->n_results, h));
  h = hash_name(op_info(node->op)->name, h);
  for (int i = 0; i < node->n_inputs; i++)
    h = hash_type(graph_type(graph, node->inputs[i]), h);
  for (int i = 0; i < node->n_results; i++) h = hash_type(node->types[i], h);
  for (int i = 0; i < node->n_attrs; i++) h = hash_attr(&node->attrs[i], h);
  return node->body ? hash_body(node->body, h) : h;
}

uint64_t graph_hash(const Graph *graph) {
  uint64_t h = hash_mesh(&graph->mesh);
  for (int i = 0; i < graph->nodes.n; i++) {
    h = hash_node(graph->nodes.data[i], h);
  }
  for (int i = 0; i < graph->outputs.n; i++) {
    const GraphOutput *output = &graph->outputs.data[i];
    h = hash_int(output->role, h);
    h = hash_bytes(&output->value, sizeof output->value, h);
  }
  for (int i = 0; i < graph->inputs.n; i++) {
    h = hash_int(graph->inputs.data[i].role, h);
  }
  return h;
}

uint64_t region_hash(Graph *body) {
  if (body->hashed_nodes != body->nodes.n ||
      body->hashed_outputs != body->outputs.n) {
    body->hash = graph_hash(body);
    body->hashed_nodes = body->nodes.n;
    body->hashed_outputs = body->outputs.n;
  }
  return body->hash;
}
