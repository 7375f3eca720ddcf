/*
 * fuse_share.c -- equal bodies share their nodes.
 *
 * Layers that repeat have the same kernels: of the 9,845 that GPT-3 has for
 * training and evaluation 114 differ.  A body is built in an arena that is
 * cleared after it, and copied out of it if none before was equal.  Otherwise
 * the node gets that one, with the paths of its own nodes.  So the graph of
 * many layers has the bodies of a few.
 */
#include "passes/fuse/fuse.h"

static uint64_t mix_values(uint64_t h, const Value *values, int n) {
  for (int i = 0; i < n; i++)
    h = hash_mix(h,
                 (uint64_t)values[i].node << 32 | (uint32_t)values[i].result);
  return h;
}

static uint64_t mix_attr(uint64_t h, const Attr *attr) {
  h = hash_mix(h, (uint64_t)attr->key << 32 | (uint32_t)attr->n);
  switch (attr_kind(attr->key)) {
  case ATTRKIND_NAMES:
    for (int i = 0; i < attr->n; i++)
      h = hash_mix(h, (uintptr_t)attr->names[i]);
    return h;
  case ATTRKIND_INTS:
    for (int i = 0; i < attr->n; i++)
      h = hash_mix(h, (uint64_t)attr->integers[i]);
    return h;
  case ATTRKIND_NAME:
  case ATTRKIND_TEXT: return hash_mix(h, (uintptr_t)attr->name);
  case ATTRKIND_INT: return hash_mix(h, (uint64_t)attr->integer);
  case ATTRKIND_FLOAT: return hash_bytes(&attr->real, sizeof attr->real, h);
  }
  UNREACHABLE();
}

/* Hashes a body as region_hash does, but names by their addresses: that is
 * several times faster. */
static uint64_t body_key(const Graph *body) {
  uint64_t h = 0;
  for (int id = 0; id < body->nodes.n; id++) {
    const Node *node = body->nodes.data[id];
    h = hash_mix(h, (uint64_t)node->op << 8 | node->phase);
    h = hash_mix(h, node->span.begin);
    h = mix_values(h, node->inputs, node->n_inputs);
    for (int r = 0; r < node->n_results; r++)
      h = hash_mix(h, type_hash(node->types[r]));
    for (int i = 0; i < node->n_attrs; i++) h = mix_attr(h, &node->attrs[i]);
  }
  for (int i = 0; i < body->outputs.n; i++)
    h = mix_values(h, &body->outputs.data[i].value, 1);
  return h;
}

static bool span_equal(Span a, Span b) {
  return a.source == b.source && a.begin == b.begin && a.end == b.end;
}

/* All is the same but the paths. */
static bool bodies_equal(const Graph *a, const Graph *b) {
  if (a->nodes.n != b->nodes.n || a->outputs.n != b->outputs.n) return false;
  for (int id = 0; id < a->nodes.n; id++) {
    const Node *x = a->nodes.data[id], *y = b->nodes.data[id];
    if (!node_equal(x, y) || !span_equal(x->span, y->span)) return false;
  }
  for (int i = 0; i < a->outputs.n; i++)
    if (!value_equal(a->outputs.data[i].value, b->outputs.data[i].value))
      return false;
  return true;
}

BodyShare *body_share_begin(const Fusion *fusion) {
  Module *module = fusion->graph->module;
  BodyShare *share = ARENA_NEW(fusion->arena, BodyShare);
  share->known = map_create(fusion->arena);
  share->module = module;
  share->trial = *module;
  share->trial.arena = arena_beside(module->arena);
  return share;
}

Graph *body_share_keep(BodyShare *share, Graph *body) {
  Module *module = share->module;
  const void *key = (const void *)(uintptr_t)body_key(body);
  const Graph *known = map_get(share->known, key);
  Graph *kept;
  if (known && bodies_equal(known, body)) {
    int n = body->nodes.n;
    Name *paths = ARENA_ARRAY(module->arena, Name, n);
    for (int id = 0; id < n; id++) paths[id] = body->nodes.data[id]->path;
    kept = arena_copy(module->arena, known, sizeof *known);
    kept->paths = paths;
  } else {
    kept = graph_copy(module, body);
    region_hash(kept); /* for those that will be equal, too */
    map_put(share->known, key, kept);
  }
  arena_clear(share->trial.arena);
  return kept;
}

void body_share_end(BodyShare *share) {
  arena_destroy(share->trial.arena);
}
