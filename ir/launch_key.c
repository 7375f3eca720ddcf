/*
 * launch_key.c -- hashes what one run of a node works on, on one rank: the key
 * by which profiles know launches.
 *
 *     dot x [B:128@d, C:64], w [C:64, F:32@t]   mesh(d = 2, t = 4)
 *     dot x [B:64, C:64], w [C:64, F:8]         one rank: the same key
 *
 * Two launches with one key take the same time on one machine.  So types have
 * local sizes and no placement, and attributes count only where they change
 * the work: not names of mesh axes, nor where a slice begins, nor the value of
 * a constant.  Sizes in attributes are logical, and types have them already.
 * Which operands are one value counts, because it is read once.
 */
#include "ir/ir.h"
#include "ir/place/mesh_place.h"

#include <string.h>

static uint64_t add_int(int64_t value, uint64_t seed) {
  return hash_bytes(&value, sizeof value, seed);
}

static uint64_t add_name(Name name, uint64_t seed) {
  return hash_bytes(name, strlen(name) + 1, seed);
}

static uint64_t add_local_type(const Type *type, const Mesh *mesh,
                               uint64_t seed) {
  uint64_t h = add_int(type->rank, add_int((int64_t)type->dtype, seed));
  for (int d = 0; d < type->rank; d++)
    h = add_int(type_local_size(type, mesh, d),
                add_name(type->dims[d].name, h));
  return h;
}

/* Floats are constants of formulas.  `index` says which input of a body. */
static bool changes_work(AttrKey key) {
  switch (key) {
  case ATTR_sizes:
  case ATTR_start:
  case ATTR_stream:
  case ATTR_axes:
  case ATTR_bucket:
  case ATTR_shift:
  case ATTR_partial:
  case ATTR_guard:
  case ATTR_per_microbatch:
  case ATTR_recompute: return false;
  default: return attr_kind(key) != ATTRKIND_FLOAT;
  }
}

static uint64_t add_attr(const Attr *attr, uint64_t seed) {
  if (!changes_work(attr->key)) return seed;
  uint64_t h = add_int((int64_t)attr->key, add_int(attr->n, seed));
  switch (attr_kind(attr->key)) {
  case ATTRKIND_NAME:
  case ATTRKIND_TEXT: return add_name(attr->name, h);
  case ATTRKIND_NAMES:
    for (int i = 0; i < attr->n; i++) h = add_name(attr->names[i], h);
    return h;
  case ATTRKIND_INT: return add_int(attr->integer, h);
  case ATTRKIND_INTS:
    return hash_bytes(attr->integers, (size_t)attr->n * sizeof(int64_t), h);
  case ATTRKIND_FLOAT: break;
  }
  UNREACHABLE();
}

static uint64_t add_body(const Graph *body, const Mesh *mesh, uint64_t seed);

/* All of a node but its inputs. */
static uint64_t add_node(const Node *node, const Mesh *mesh, uint64_t seed) {
  uint64_t h = add_name(op_info(node->op)->name, seed);
  h = add_int(node->n_results, add_int(node->n_inputs, h));
  for (int i = 0; i < node->n_results; i++)
    h = add_local_type(node->types[i], mesh, h);
  for (int i = 0; i < node->n_attrs; i++) h = add_attr(&node->attrs[i], h);
  return node->body ? add_body(node->body, mesh, h) : h;
}

static uint64_t add_value(Value value, uint64_t seed) {
  return add_int(value.result, add_int(value.node, seed));
}

static uint64_t add_body(const Graph *body, const Mesh *mesh, uint64_t seed) {
  uint64_t h = add_int(body->nodes.n, seed);
  for (int id = 0; id < body->nodes.n; id++) {
    const Node *node = body->nodes.data[id];
    for (int i = 0; i < node->n_inputs; i++) h = add_value(node->inputs[i], h);
    h = add_node(node, mesh, h);
  }
  for (int i = 0; i < body->outputs.n; i++)
    h = add_value(body->outputs.data[i].value, h);
  return h;
}

/* 0 says that there is no key. */
static uint64_t some_key(uint64_t h) {
  return h ? h : 1;
}

uint64_t launch_key(const Graph *graph, int id) {
  const Node *node = graph->nodes.data[id];
  const Mesh *mesh = &graph->mesh;
  uint64_t h = add_int(node_joins_microbatches(node), 0);
  for (int i = 0; i < node->n_inputs; i++) {
    int first = 0;
    while (!value_equal(node->inputs[first], node->inputs[i])) first++;
    h = add_local_type(graph_type(graph, node->inputs[i]), mesh,
                       add_int(first, h));
  }
  return some_key(add_node(node, mesh, h));
}

uint64_t clear_key(const Graph *graph, int id) {
  const Node *node = graph->nodes.data[id];
  uint64_t h = add_name("clear", 0);
  for (int i = 0; i < node->n_results; i++)
    h = add_local_type(node->types[i], &graph->mesh, h);
  return some_key(h);
}
